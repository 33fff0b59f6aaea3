/* A launch on the PTX machine: the parameters as the kernel's ABI wants them, all blocks one after the other.
 */
#ifndef TVM_TESTS_PTX_LAUNCH_KIT_H
#define TVM_TESTS_PTX_LAUNCH_KIT_H

#include "abi_kit.h"
#include "codegen.h"
#include "ptx_machine.h"

/* The memory of the tensors that a launch makes: zeros, which the machine may access. */
typedef struct ptx_own {
    uint8_t *block[TVM_MAX_LAUNCH_TENSORS];
    uint64_t place[TVM_MAX_LAUNCH_TENSORS]; /* their addresses, for abi_set */
    uint32_t count;
} ptx_own;

static inline void ptx_own_make(ptx_own *own, ptx_machine *m, const tvm_ir_program *program,
                                const tvm_ir_kernel *kernel, const tvm_launch_env *env) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    own->count = tvm_launch_tensors(kernel, tensors);
    for (uint32_t i = 0; i < own->count; i++) {
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes;
        ck_assert_int_eq(tvm_launch_shape(program, kernel, tensors[i].slot, env, shape, &bytes, NULL),
                         TVM_OK);
        own->block[i] = aligned_alloc(256, (bytes + 256) / 256 * 256);
        ck_assert_ptr_nonnull(own->block[i]);
        memset(own->block[i], 0, bytes);
        own->place[i] = (uint64_t)(uintptr_t)own->block[i];
        ptx_allow(m, own->block[i], bytes);
    }
}

static inline void ptx_own_free(ptx_own *own) {
    for (uint32_t i = 0; i < own->count; i++) free(own->block[i]);
    own->count = 0;
}

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
