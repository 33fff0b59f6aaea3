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

/* Signs stay in their places, exponent and mantissa move from bit `from` of each half to bit `to`. */
reg tvm_place_float_fields(emitter *e, tvm_dtype type, reg view, unsigned from, unsigned to);

/* Is the type's only NaN the code of all ones, below the highest bit of the exponent of `to`? Then what it
 * lacks to be NaN there, before the multiplication by the power of two between the biases, is that bit, and
 * it alone carries into it where one is added: `placed` with fields from bit `low` on, with that bit. */
bool tvm_float_nan_carries(tvm_dtype from, tvm_dtype to);
reg tvm_carry_float_nan(emitter *e, tvm_dtype from, reg placed, unsigned low);

#endif
