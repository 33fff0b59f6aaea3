/* Running shipped programs on the interpreter: tensors of any type made from float64, and read back as
 * float64. */
#ifndef TVM_TESTS_KERNEL_KIT_H
#define TVM_TESTS_KERNEL_KIT_H

#include "shipped_kit.h"
#include "tvm.h"
#include "types.h"

enum { KIT_TENSORS = 16, KIT_ARGUMENTS = 24 };

/* A tensor in the context's memory; `values` are its elements as float64. */
typedef struct kit_tensor {
    tvm_dtype type;
    size_t count;
    double *values;
    void *data;
} kit_tensor;

typedef struct kernel_kit {
    tvm_context *context;
    tvm_program *program;
    kit_tensor tensors[KIT_TENSORS];
    size_t tensor_count;
    tvm_value arguments[KIT_ARGUMENTS];
    size_t argument_count;
    uint64_t random;
} kernel_kit;

/* The program of that file, with these definitions; ends the test where it is refused. */
static inline kernel_kit kit_open_path(const char *path, const char *define) {
    kernel_kit k = {.random = UINT64_C(0x9e3779b97f4a7c15)};
    size_t size = 0;
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    uint8_t *bytes = bytecode_of(path, define, &size);
    ck_assert_int_eq(tvm_context_create(&options, &k.context), TVM_OK);
    ck_assert_int_eq(tvm_load(k.context, bytes, size, &k.program), TVM_OK);
    free(bytes);
    return k;
}

/* That of a file of programs/. */
static inline kernel_kit kit_open(const char *file, const char *define) {
    char path[5000];
    return kit_open_path(program_path(file, path), define);
}

/* Forgets the arguments and tensors. */
static inline void kit_clear(kernel_kit *k) {
    for (size_t i = 0; i < k->tensor_count; i++) {
        tvm_memory_free(k->context, k->tensors[i].data);
        free(k->tensors[i].values);
    }
    k->tensor_count = k->argument_count = 0;
}

static inline void kit_close(kernel_kit *k) {
    kit_clear(k);
    tvm_program_free(k->program);
    tvm_context_free(k->context);
}

/* In [0, 1). */
static inline double kit_random(kernel_kit *k) {
    k->random ^= k->random << 13;
    k->random ^= k->random >> 7;
    k->random ^= k->random << 17;
    return (double)(k->random >> 11) * 0x1p-53;
}

static inline size_t kit_bytes(const kit_tensor *t) {
    return (t->count * t->type.bits + 7) / 8;
}

static inline void kit_scalar(kernel_kit *k, double value) {
    ck_assert_uint_lt(k->argument_count, KIT_ARGUMENTS);
    k->arguments[k->argument_count++] = (tvm_value){.i = (int64_t)value, .f = value};
}

/* A tensor argument of zeros. */
static inline kit_tensor *kit_tensor_new(kernel_kit *k, tvm_dtype type, size_t count) {
    ck_assert(k->tensor_count < KIT_TENSORS && k->argument_count < KIT_ARGUMENTS);
    kit_tensor *t = &k->tensors[k->tensor_count++];
    *t = (kit_tensor){.type = type, .count = count, .values = calloc(count + 1, sizeof *t->values)};
    uint8_t *zeros = calloc(kit_bytes(t) + 1, 1);
    ck_assert(t->values != NULL && zeros != NULL);
    ck_assert_int_eq(tvm_memory_alloc(k->context, kit_bytes(t), &t->data), TVM_OK);
    ck_assert_int_eq(tvm_memory_write(k->context, t->data, zeros, kit_bytes(t)), TVM_OK);
    free(zeros);
    k->arguments[k->argument_count++] = (tvm_value){.data = t->data, .bytes = kit_bytes(t)};
    return t;
}

/* Its values to the context's memory; they become what the type makes of them. */
static inline void kit_write(kernel_kit *k, kit_tensor *t) {
    uint8_t *bytes = calloc(kit_bytes(t) + 1, 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < t->count; i++) {
        uint64_t code = tvm_encode(t->type, t->values[i]);
        tvm_bits_set(bytes, i * t->type.bits, t->type.bits, code);
        t->values[i] = tvm_decode(t->type, code);
    }
    ck_assert_int_eq(tvm_memory_write(k->context, t->data, bytes, kit_bytes(t)), TVM_OK);
    free(bytes);
}

static inline void kit_read(kernel_kit *k, kit_tensor *t) {
    uint8_t *bytes = calloc(kit_bytes(t) + 1, 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(tvm_memory_read(k->context, bytes, t->data, kit_bytes(t)), TVM_OK);
    for (size_t i = 0; i < t->count; i++)
        t->values[i] = tvm_decode(t->type, tvm_bits_get(bytes, i * t->type.bits, t->type.bits));
    free(bytes);
}

/* A tensor argument of random values in [low, high). */
static inline kit_tensor *kit_input(kernel_kit *k, tvm_dtype type, size_t count, double low, double high) {
    kit_tensor *t = kit_tensor_new(k, type, count);
    for (size_t i = 0; i < count; i++) t->values[i] = low + (high - low) * kit_random(k);
    kit_write(k, t);
    return t;
}

/* Launches the kernel or entry with the arguments so far, and reads all tensors back. */
static inline void kit_launch(kernel_kit *k, const char *name) {
    tvm_kernel *kernel = NULL;
    ck_assert_msg(tvm_get_kernel(k->program, name, &kernel) == TVM_OK &&
                      tvm_launchv(kernel, NULL, k->arguments, k->argument_count) == TVM_OK,
                  "%s: %s", name, tvm_message(k->context));
    for (size_t i = 0; i < k->tensor_count; i++) kit_read(k, &k->tensors[i]);
}

#endif
