/* mma of floats of 4, 6 and 8 bits in any mix, with f16 sums, or with scales. */
#ifndef TVM_CODEGEN_EMIT_MMA_MIXED_H
#define TVM_CODEGEN_EMIT_MMA_MIXED_H

#include "emit.h"
#include "mma_operands.h"

/* Does the target's mma.sync multiply them? */
bool tvm_mma_mixed_fits(const emitter *e, const mma_operands *o);
/* By that instruction. Operands are in registers. */
tvm_status tvm_emit_mma_mixed(emitter *e, const tvm_insn *insn, const mma_operands *o);
/* Of scales, on other targets: elements times their scales as f16 or bf16. */
tvm_status tvm_emit_mma_scaled(emitter *e, const tvm_insn *insn, const mma_operands *o);

#endif
