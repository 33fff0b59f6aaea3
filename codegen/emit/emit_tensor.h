/* Tensor memory: see plan/tensor_plan.h. */
#ifndef TVM_CODEGEN_EMIT_TENSOR_H
#define TVM_CODEGEN_EMIT_TENSOR_H

#include "emit.h"

/* The fences that stand before and behind an instruction. */
void tvm_emit_tensor_fence(emitter *e, const tvm_insn *insn, unsigned fence);
/* The address of the tile at the index that follows the tensor: the same in all threads. */
reg tvm_tensor_address(emitter *e, const tvm_operand *tensor);
/* Where a block ends: waits for what is under way, and frees the columns. */
void tvm_emit_tensor_end(emitter *e);

#endif
