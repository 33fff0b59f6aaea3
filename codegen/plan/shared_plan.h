/* Where each shared tensor lies in the block's shared memory. */
#ifndef TVM_CODEGEN_SHARED_PLAN_H
#define TVM_CODEGEN_SHARED_PLAN_H

#include "kernel_state.h"

/* What the translator has for cancel-block: the answer, then an mbarrier. */
enum { TVM_CANCEL_MBARRIER = 16, TVM_CANCEL_BYTES = 24 };

/* In bytes, of tensors; and the most there is, that of the block's memory. */
enum { SHARED_ALIGNMENT = 128, SHARED_ALIGNMENT_MAX = 1024 };

/* Of a tensor's first byte, in bytes. */
uint64_t tvm_shared_tensor_alignment(const tvm_shared_layout *layout, unsigned bits);

/* Sets the offset of every SHARED slot, tensors that do not live at the same time sharing memory, and
 * k->shared, k->role_shared and k->shared_bytes. */
tvm_status tvm_shared_plan_make(kernel_state *k);

/* Bytes of shared memory that a block of the kernel, which has no pipelined loops, needs; false: out of
 * memory. */
bool tvm_shared_bytes(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_target target,
                      uint64_t *bytes);

#endif
