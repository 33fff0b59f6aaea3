/* Conversions of tensors of packing `pair` with a constant: what the instruction behind one subtracts or
 * multiplies by can be made part of it, where the results are the same to the last bit. */
#ifndef TVM_CODEGEN_PACKED_CONSTANT_H
#define TVM_CODEGEN_PACKED_CONSTANT_H

#include "kernel_state.h"

/* Is `next` an add or sub (of integers) or mul (of floats) of the conversion's result and a constant? Then
 * what it subtracts (else 0) and multiplies by (else 1). */
bool tvm_packed_constant(const kernel_state *k, const tvm_insn *cast, const tvm_insn *next, double *zero,
                         double *scale);
/* May the subtraction of a constant be made part of the conversion, with the same result to the last bit? */
bool tvm_packed_zero_is_exact(tvm_dtype from, tvm_dtype to, double zero);
/* The same of a multiplication. */
bool tvm_packed_scale_is_exact(const kernel_state *k, tvm_dtype from, tvm_dtype to, double scale);

/* The factor, and one before it where the type does not reach as far: a power of two that is exact. 0: there
 * is none. */
typedef struct packed_factors {
    double first, last;
} packed_factors;
packed_factors tvm_packed_factors(const kernel_state *k, tvm_dtype from, tvm_dtype to, double scale);

/* Are floats in bytes unpacked by the converter of f8_e4m3? */
bool tvm_packed_converts(const kernel_state *k, tvm_dtype from, tvm_dtype to);
/* Is `to` the type whose places the fields of a view of form HALVES are made for? */
bool tvm_packed_in_place(tvm_dtype from, tvm_dtype to);
/* Does multiplying the fields of a low-precision float, in their places in f16 or bf16, leave infinities or
 * NaN wrong? */
bool tvm_float_pair_needs_mending(tvm_dtype from, tvm_dtype to);

#endif
