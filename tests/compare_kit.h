/* Running a kernel on the interpreter, and its translation by the PTX machine, and comparing what they give.
 */
#ifndef TVM_TESTS_COMPARE_KIT_H
#define TVM_TESTS_COMPARE_KIT_H

#include "check_kit.h"
#include <math.h>

#include "codegen.h"
#include "interp.h"
#include "ptx_machine.h"
#include "types.h"

/* One argument: the address of a tensor, or the value of a scalar. */
static inline void run_translated(const tvm_module *module, const char *kernel, const tvm_interp_arg *args,
                                  unsigned count, const uint32_t grid[3]) {
    unsigned threads = 0;
    for (size_t k = 0; k < module->kernel_count; k++)
        if (strcmp(module->kernels[k].name, kernel) == 0) threads = module->kernels[k].abi.threads;
    ptx_machine m = ptx_load(module->ptx, kernel, threads);
    memcpy(m.grid, grid, sizeof m.grid);
    for (unsigned i = 0; i < count; i++)
        m.params[i] = args[i].data ? (uint64_t)(uintptr_t)args[i].data : args[i].scalar.u;
    for (uint64_t b = 0; b < (uint64_t)grid[0] * grid[1] * grid[2]; b++) {
        m.block[0] = (uint32_t)(b % grid[0]);
        m.block[1] = (uint32_t)(b / grid[0] % grid[1]);
        m.block[2] = (uint32_t)(b / grid[0] / grid[1]);
        ptx_run(&m);
    }
    ptx_free(&m);
}

static inline void run_interpreter(const tvm_ir_program *program, const char *kernel,
                                   const tvm_interp_arg *args, const uint32_t grid[3]) {
    tvm_diags diags = {0};
    tvm_interp_kernel *prepared = NULL;
    tvm_interp_options options = {.threads = 1};
    ck_assert_int_eq(tvm_interp_prepare(program, tvm_find_kernel(program, kernel), &prepared, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_interp_run(prepared, args, grid, &options, &diags), TVM_OK);
    tvm_interp_free(prepared);
    tvm_diags_free(&diags);
}

static const uint32_t one_block[3] = {1, 1, 1};

static inline bool same_value(tvm_dtype type, uint64_t a, uint64_t b) {
    if (a == b) return true;
    return type.kind == TVM_KIND_FLOAT && isnan(tvm_decode(type, a)) && isnan(tvm_decode(type, b));
}

static inline void compare_tensors(const char *what, tvm_dtype type, const uint8_t *found,
                                   const uint8_t *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t a = tvm_bits_get(found, i * type.bits, type.bits),
                 b = tvm_bits_get(want, i * type.bits, type.bits);
        ck_assert_msg(same_value(type, a, b), "%s: element %zu is %llx, expected %llx", what, i,
                      (unsigned long long)a, (unsigned long long)b);
    }
}

#endif
