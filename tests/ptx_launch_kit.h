/* A launch on the PTX machine: the parameters as the kernel's ABI wants them, all blocks one after the other.
 */
#ifndef TVM_TESTS_PTX_LAUNCH_KIT_H
#define TVM_TESTS_PTX_LAUNCH_KIT_H

#include "abi_kit.h"
#include "codegen.h"
#include "ptx_machine.h"

/* `m` is made of the module's code of the kernel; values and tensors are those of abi_set. Ends with the
 * first block that traps or makes a fault. */
static inline void ptx_launch(ptx_machine *m, const tvm_module *module, const tvm_ir_program *program,
                              const tvm_ir_kernel *kernel, const tvm_launch_env *env, const uint64_t *values,
                              const uint64_t *tensors) {
    const tvm_kernel_abi *abi = &module->kernels[kernel - program->kernels].abi;
    ptx_tensor_map maps[TVM_ABI_TENSOR_MAPS];
    abi_maps(abi, program, kernel, env, values, tensors, maps);
    abi_set(abi, values, tensors, env, maps, m->params, sizeof m->params / sizeof *m->params);
    memcpy(m->grid, env->grid, sizeof m->grid);
    for (m->block[2] = 0; m->block[2] < m->grid[2]; m->block[2]++)
        for (m->block[1] = 0; m->block[1] < m->grid[1]; m->block[1]++)
            for (m->block[0] = 0; m->block[0] < m->grid[0] && !m->trapped && !m->fault[0]; m->block[0]++)
                ptx_run(m);
}

#endif
