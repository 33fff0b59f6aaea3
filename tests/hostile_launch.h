/* Launches of random kernels (random_program.h) with hostile arguments. */
#ifndef TVM_TESTS_HOSTILE_LAUNCH_H
#define TVM_TESTS_HOSTILE_LAUNCH_H

#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interp.h"
#include "launch.h"
#include "random_program.h"

enum { BYTES = 1 << 16, PARAMS = 16, MULTIPROCESSORS = 2 };

/* A kernel and one set of arguments. */
typedef struct launch {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_launch_env env;
    tvm_scalar scalars[PARAMS];
    uint64_t bytes[PARAMS];
    uint8_t *interp[PARAMS], *gpu[PARAMS]; /* the tensors of either side */
    char fault[512];                       /* what the interpreter reports; "": nothing */
} launch;

static inline int64_t hostile(uint64_t *state, tvm_dtype type) {
    static const int64_t values[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     6,
                                     7,
                                     8,
                                     12,
                                     16,
                                     31,
                                     32,
                                     33,
                                     64,
                                     100,
                                     1000,
                                     INT32_MAX,
                                     INT32_MIN,
                                     -8,
                                     -3,
                                     INT32_MAX - 3,
                                     1 << 30,
                                     INT32_MAX - 32,
                                     60000000,
                                     UINT32_MAX,
                                     (int64_t)1 << 32,
                                     ((int64_t)1 << 32) + 1,
                                     INT64_MAX,
                                     INT64_MIN,
                                     -6};
    int64_t value = values[random_bits(state) % (sizeof values / sizeof *values)];
    if (type.bits == 64) return value;
    return type.kind == TVM_KIND_INT ? (int32_t)value : (int64_t)(uint32_t)value;
}

static inline bool is_extent(const launch *l, uint32_t p) {
    return strcmp(tvm_string(l->program, l->kernel->slots[p].name), "n") == 0;
}

/* Scalars that the launch takes, with tensors that are not too large; false: not this time. */
static inline bool choose_arguments(launch *l, uint64_t *state) {
    static const int64_t extents[] = {0, 1, 4, 8, 31, 32, 40, 64, 96, 5};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->kernel->slots[p].kind == TVM_SLOT_SCALAR)
            l->scalars[p].i = is_extent(l, p)
                                  ? extents[random_bits(state) % (sizeof extents / sizeof *extents)]
                                  : hostile(state, l->kernel->slots[p].dtype);
    l->env = (tvm_launch_env){.scalars = l->scalars,
                              .multiprocessors = MULTIPROCESSORS,
                              .target = 80,
                              .traits = tvm_target_traits_for(80)};
    if (tvm_launch_check(l->program, l->kernel, &l->env, NULL) != TVM_OK) return false;
    if ((uint64_t)l->env.grid[0] * l->env.grid[1] * l->env.grid[2] > 4) return false;
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        int64_t shape[TVM_MAX_RANK];
        if (l->kernel->slots[p].kind == TVM_SLOT_GLOBAL &&
            (tvm_launch_shape(l->program, l->kernel, p, &l->env, shape, &l->bytes[p], NULL) != TVM_OK ||
             l->bytes[p] > BYTES))
            return false;
    }
    return true;
}

static inline void make_tensors(launch *l) {
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        if (l->kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        l->interp[p] = aligned_alloc(64, (l->bytes[p] + 64) / 64 * 64);
        l->gpu[p] = aligned_alloc(64, (l->bytes[p] + 64) / 64 * 64);
        ck_assert(l->interp[p] && l->gpu[p]);
        for (uint64_t i = 0; i < l->bytes[p]; i++) l->interp[p][i] = (uint8_t)(i * 37 + p);
        memcpy(l->gpu[p], l->interp[p], l->bytes[p]);
    }
}

static inline void free_tensors(launch *l) {
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        free(l->interp[p]);
        free(l->gpu[p]);
        l->interp[p] = l->gpu[p] = NULL;
    }
}

static inline void interpret(launch *l, const tvm_interp_kernel *ready) {
    tvm_interp_arg args[PARAMS];
    tvm_diags diags = {0};
    const tvm_interp_options options = {
        .threads = 1, .multiprocessors = MULTIPROCESSORS, .target = 80, .traits = tvm_target_traits_for(80)};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        args[p] = (tvm_interp_arg){.scalar = l->scalars[p], .data = l->interp[p]};
    tvm_status status = tvm_interp_run(ready, args, l->env.grid, &options, &diags);
    snprintf(l->fault, sizeof l->fault, "%s", status == TVM_OK ? "" : diags.items[0].message);
    tvm_diags_free(&diags);
}

#endif
