/* The parameters of a launch, put where the kernel's ABI has them. */
#ifndef TVM_TESTS_ABI_KIT_H
#define TVM_TESTS_ABI_KIT_H

#include <check.h>

#include "abi.h"
#include "launch.h"

/* rows[i] = what row i of the ABI asks for: values[p] are the bits of parameter p, or the address of its
 * data, tensors[i] the address of tensor i of the launch. */
static inline void abi_set(const tvm_kernel_abi *abi, const uint64_t *values, const uint64_t *tensors,
                           const tvm_launch_env *env, uint64_t *rows, size_t room) {
    ck_assert_uint_le(abi->param_count, room);
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        switch ((tvm_abi_kind)param->kind) {
        case TVM_ABI_INTEGER:
        case TVM_ABI_FLOAT:
        case TVM_ABI_TENSOR:
            rows[i] = values[param->index];
            break;
        case TVM_ABI_SCRATCH:
        case TVM_ABI_SCRATCH_CLEAN:
            rows[i] = tensors[param->index];
            break;
        case TVM_ABI_MULTIPROCESSORS:
            rows[i] = env->multiprocessors;
            break;
        case TVM_ABI_TARGET:
            rows[i] = env->target;
            break;
        default:
            ck_abort_msg("row %u of the ABI is of a kind that no test knows", i);
        }
    }
}

#endif
