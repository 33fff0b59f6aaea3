/* Launches of the shipped programs' kernels, whatever their parameters: scalars of shipped_sizes.h, tensors
 * of zeros, and sequences that end within tiles, or numbers of sequences, pages and rows that there are not.
 */
#ifndef TVM_TESTS_SHIPPED_LAUNCH_H
#define TVM_TESTS_SHIPPED_LAUNCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shipped_sizes.h"
#include "tvm.h"

enum { SHIPPED_BYTES = 1 << 25 /* of a tensor, at most */, SHIPPED_ARGUMENTS = 64 };

typedef struct shipped_launch {
    tvm_context *context;
    tvm_kernel *kernel;
    tvm_value values[SHIPPED_ARGUMENTS];
    size_t count;
    bool hostile;
} shipped_launch;

static inline void shipped_scalars(shipped_launch *l, const size_of *size) {
    tvm_param_info info;
    for (size_t i = 0; i < l->count; i++) {
        if (tvm_param(l->kernel, i, &info) != TVM_OK) abort();
        l->values[i] = (tvm_value){.i = shipped_scalar(info.name, size), .f = 1};
        if (!strcmp(info.type, "bool")) l->values[i].i = 1;
    }
}

/* Sequences that share the queries and all keys but one, so that tiles end within them; in a cache five
 * tokens, of which one is new, in pages of their own. */
static inline void shipped_sequences(const tvm_param_info *info, const size_of *size, int32_t *numbers,
                                     size_t count, bool hostile) {
    static const int32_t extremes[] = {-1, INT32_MAX, INT32_MIN, 1 << 20, 4, -5, 7, 1 << 30};
    if (strcmp(info->type, "i32")) return;
    for (size_t i = 0; hostile && i < count; i++) numbers[i] = extremes[i % 8];
    if (hostile) return;
    for (size_t i = 0; i < count; i++) {
        int64_t at = (int64_t)i, last = count > 1 ? (int64_t)count - 1 : 1;
        if (!strcmp(info->name, "lengths")) numbers[i] = 5;
        if (!strcmp(info->name, "starts")) numbers[i] = (int32_t)at;
        if (!strcmp(info->name, "table")) numbers[i] = (int32_t)(at % 4);
        if (!strcmp(info->name, "reads") || !strcmp(info->name, "writes")) numbers[i] = (int32_t)(at % 4);
        if (!strcmp(info->name, "q_starts")) numbers[i] = (int32_t)(at * size->rows / last);
        if (!strcmp(info->name, "k_starts")) numbers[i] = (int32_t)(at * (size->rest - 1) / last);
    }
}

/* False: not of these sizes. */
static inline bool shipped_tensors(shipped_launch *l, const size_of *size) {
    tvm_param_info info;
    for (size_t i = 0; i < l->count; i++) {
        int64_t shape[8];
        size_t bytes;
        if (tvm_param(l->kernel, i, &info) != TVM_OK) abort();
        if (!info.is_tensor) continue;
        if (tvm_param_shape(l->kernel, i, l->values, l->count, shape, &bytes) != TVM_OK) return false;
        if (bytes > SHIPPED_BYTES) return false;
        int32_t *numbers = calloc(bytes / sizeof *numbers + 1, sizeof *numbers);
        if (numbers == NULL || tvm_memory_alloc(l->context, bytes ? bytes : 1, &l->values[i].data) != TVM_OK)
            abort();
        shipped_sequences(&info, size, numbers, bytes / sizeof *numbers, l->hostile);
        if (tvm_memory_write(l->context, l->values[i].data, numbers, bytes) != TVM_OK) abort();
        free(numbers);
    }
    return true;
}

/* Does it read what hostile numbers may be in? */
static inline bool shipped_has_numbers(tvm_kernel *kernel) {
    tvm_param_info info;
    for (size_t i = 0; i < tvm_param_count(kernel); i++) {
        if (tvm_param(kernel, i, &info) != TVM_OK) abort();
        if (info.is_tensor && !strcmp(info.type, "i32")) return true;
    }
    return false;
}

/* So many times, one after the other. TVM_ARGUMENT: the size does not serve the kernel. */
static inline tvm_status shipped_launch_kernel(tvm_context *context, tvm_kernel *kernel, const size_of *size,
                                               unsigned times, bool hostile) {
    shipped_launch l = {
        .context = context, .kernel = kernel, .count = tvm_param_count(kernel), .hostile = hostile};
    tvm_status status = TVM_ARGUMENT;
    if (l.count > SHIPPED_ARGUMENTS) abort();
    shipped_scalars(&l, size);
    bool fits = shipped_tensors(&l, size);
    for (unsigned i = 0; fits && i < times && (i == 0 || status == TVM_OK); i++)
        status = tvm_launchv(kernel, NULL, l.values, l.count);
    if (status == TVM_OK) status = tvm_synchronize(context, NULL);
    if (status != TVM_OK && status != TVM_ARGUMENT)
        fprintf(stderr, "%s: %s\n", tvm_kernel_name(kernel), tvm_message(context));
    for (size_t i = 0; i < l.count; i++)
        if (l.values[i].data != NULL) tvm_memory_free(context, l.values[i].data);
    return status;
}

#endif
