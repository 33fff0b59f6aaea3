/* mma element by element, or as f64. */
#ifndef TVM_CODEGEN_EMIT_MMA_ELEMENTS_H
#define TVM_CODEGEN_EMIT_MMA_ELEMENTS_H

#include "emit.h"
#include "mma_operands.h"

/* mma of types whose fragments are not words of the operands: f64, f32 in full, and f8 on targets whose
 * tensor cores do not have it. Operands are in registers. */
tvm_status tvm_emit_mma_elements(emitter *e, const tvm_insn *insn, const mma_operands *o);

#endif
