/* Inside the code generator: what the two files of mma share. */
#ifndef TVM_CODEGEN_EMIT_MMA_H
#define TVM_CODEGEN_EMIT_MMA_H

#include "mma_operands.h"

/* An operand's type in the names of mma.sync and wgmma: "f16", "s8", "e4m3". */
const char *tvm_mma_type_name(tvm_dtype type);

/* mma of types whose fragments are not words of the operands: f64, f32 in full, and f8 on targets whose
 * tensor cores do not have it. Operands are in registers. */
tvm_status tvm_emit_mma_elements(emitter *e, const tvm_insn *insn, const mma_operands *o);

#endif
