/* Pairs of neighbours of a tensor of elements of at most 8 bits, of packing `linear`. */
#ifndef TVM_CODEGEN_LINEAR_PAIRS_H
#define TVM_CODEGEN_LINEAR_PAIRS_H

#include "emit.h"

/* Elements l and l + 1 of the slot at the low ends of the two halves of a word, xor `pattern`. */
reg tvm_spread_pair(emitter *e, uint32_t slot, uint32_t l, uint32_t pattern);
/* The halves of a pair, f16 or bf16, as a pair of the other of these types. */
reg tvm_other_halves(emitter *e, tvm_dtype from, tvm_dtype to, reg pair);

/* f8_e4m3 and f8_e5m2 have a converter to pairs of f16 on this target. */
bool tvm_converts_ofp8(const emitter *e, tvm_dtype from);
/* Elements l and l + 1 of the slot, floats whose exponent is not wider than that of `to`, as a pair of f16 or
 * bf16. */
reg tvm_linear_float_pair(emitter *e, uint32_t slot, tvm_dtype to, uint32_t l);

#endif
