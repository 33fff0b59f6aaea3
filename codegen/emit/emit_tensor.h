/* Tensor memory: see plan/tensor_plan.h. */
#ifndef TVM_CODEGEN_EMIT_TENSOR_H
#define TVM_CODEGEN_EMIT_TENSOR_H

#include "emit.h"

/* The fences that stand before and behind an instruction. */
void tvm_emit_tensor_fence(emitter *e, const tvm_insn *insn, unsigned fence);
/* 1, or 2: of .cta_group. */
unsigned tvm_tensor_group(const emitter *e);
/* Of a pair, the odd block's threads go to the label: the even one does for both what comes before it. */
void tvm_emit_even_block(emitter *e, uint32_t label);
/* The team's first warps of both blocks of a pair, whose thread of the predicate speaks for them, meet; then
 * the odd block's goes to the label. */
void tvm_emit_pair_meets(emitter *e, reg leader, uint32_t label);
/* tcgen05.commit, by the thread of the predicate, at the mbarrier there, and at the one of the pair's other
 * block. */
void tvm_emit_tensor_commit(emitter *e, reg leader, reg mbarrier, uint32_t plus);
/* The address of the tile at the index that follows the tensor: the same in all threads. */
reg tvm_tensor_address(emitter *e, const tvm_operand *tensor);
/* Where a block ends: waits for what is under way, and frees the columns. */
void tvm_emit_tensor_end(emitter *e);

#endif
