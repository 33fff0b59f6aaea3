/* Pairs of low-precision floats. */
#ifndef TVM_CODEGEN_EMIT_PACKED_FLOAT_H
#define TVM_CODEGEN_EMIT_PACKED_FLOAT_H

#include "packed_constant.h"
#include "packed_views.h"

/* A pair of floats (of any width but 3) to f16 or bf16. */
reg tvm_float_pair(block_views *v, const packed_cast *c, unsigned pair);
/* Puts infinities and NaN right where that is needed (tvm_float_pair_needs_mending): `codes` are the codes at
 * the low ends of the two halves, other bits zero. */
reg tvm_mend_float_pair(emitter *e, tvm_dtype from, tvm_dtype to, reg codes, reg pair);

#endif
