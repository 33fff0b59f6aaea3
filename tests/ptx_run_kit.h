/* Running a kernel k(x, z) of two global tensors as generated code, with one block. */
#ifndef TVM_TESTS_PTX_RUN_KIT_H
#define TVM_TESTS_PTX_RUN_KIT_H

#include "ptx_machine.h"
#include "translate_kit.h"

static inline void run_ptx(const tvm_ir_program *program, const char *target, const uint8_t *x, uint8_t *z,
                           size_t bytes) {
    tvm_module *module = translate(program, target);
    ptx_machine m = ptx_load(module->ptx, "k", module->kernels[0].abi.threads);
    m.params[0] = (uint64_t)(uintptr_t)x;
    m.params[1] = (uint64_t)(uintptr_t)z;
    ptx_allow(&m, x, bytes);
    ptx_allow(&m, z, bytes);
    m.grid[0] = m.grid[1] = m.grid[2] = 1;
    ptx_run(&m);
    ck_assert_msg(!m.fault[0] && !m.trapped, "%s", m.fault);
    ptx_free(&m);
    tvm_module_free(module);
}

#endif
