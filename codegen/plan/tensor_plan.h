/* Tensor memory of a kernel: which columns its tensors have, who starts work there, and where threads order
 * it. */
#ifndef TVM_CODEGEN_TENSOR_PLAN_H
#define TVM_CODEGEN_TENSOR_PLAN_H

#include "kernel_state.h"

/* In the block's shared memory, from k->tensor.shared on: the address that tcgen05.alloc writes, an mbarrier
 * for what is under way at the block's end, and, of pairs, one for each warp, where its team meets that of
 * the other block. */
enum { TENSOR_ADDRESS = 0, TENSOR_MBARRIER = 8, TENSOR_MEETS = 16 };
uint32_t tvm_tensor_shared_bytes(const tvm_ir_kernel *kernel);

/* Sets k->tensor, but for `shared`, and the columns of the slots. A message where the columns that are free
 * lie apart. */
tvm_status tvm_tensor_plan(kernel_state *k);

/* Is the instruction one that gives the tensor core work, which a thread starts and goes on? */
bool tvm_starts_tensor_work(const tvm_insn *insn);

#endif
