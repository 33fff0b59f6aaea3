/* Inside the code generator: conversions of tensors of packing `pair`. */
#ifndef TVM_CODEGEN_PACKED_H
#define TVM_CODEGEN_PACKED_H

#include "compute.h"
#include "packing.h"

typedef struct packed_cast {
    uint32_t source, result, locals;
    tvm_dtype from, to;
    double zero;                  /* subtracted of each value: tvm_packed_zero_is_exact, or 0 */
    double scale;                 /* multiplies each value: tvm_packed_scale_is_exact, or 1 */
    const scaled_weights *scaled; /* the last step is left to mma's sums (scaled.h); or NULL */
} packed_cast;

/* The views of a block, each made when it is first needed. */
typedef struct block_views {
    emitter *e;
    const tvm_pair_recipe *recipe;
    uint32_t slot, block;
    reg view[TVM_PAIR_VIEWS + 8];
    reg moved[2][TVM_PAIR_VIEWS + 8]; /* the latest shift of a view, by purpose */
    int distance[2][TVM_PAIR_VIEWS + 8];
    reg byte, rest; /* integers: the upper bytes under an exponent, and without the codes taken out */
    reg half[2];    /* floats in bytes: the bytes of each of a view's pairs */
    reg upper;      /* scaled and nested: the upper bytes of the halves */
} block_views;
reg tvm_block_view(block_views *v, unsigned view);
/* A view shifted, to the left when distance > 0: within each half, what the caller keeps of it has stayed
 * inside. */
reg tvm_moved_view(block_views *v, unsigned purpose, unsigned view, int distance);
/* A pair of floats (of any width but 3) to f16 or bf16. */
reg tvm_float_pair(block_views *v, const packed_cast *c, unsigned pair);

/* Why not, as of a candidate (compute.h). */
const char *tvm_refuse_packed_pairs(const packed_cast *c);
/* Converts the whole tensor; false when memory ran out. */
bool tvm_emit_packed_pairs(emitter *e, const packed_cast *c);
/* The same for floats of 3 bits, whose packing has no pairs in halves of words. */
const char *tvm_refuse_packed_lookup(const packed_cast *c);
bool tvm_emit_packed_lookup(emitter *e, const packed_cast *c);
/* Writes a pair as it is, or a pair of the type `wide` as two f32. */
void tvm_write_pair(emitter *e, element_writer *writer, const tvm_dtype *wide, reg pair);
/* A constant that ptxas does not see as one (a thread number has 10 bits). PRMT takes one immediate operand:
 * where ptxas finds two, it copies the other to a register before every PRMT. */
reg tvm_hidden_constant(emitter *e, uint32_t value);
/* Is `next` an add or sub (of integers) or mul (of floats) of the conversion's result and a constant? Then what it
 * subtracts (else 0) and multiplies by (else 1). */
bool tvm_packed_constant(const emitter *e, const tvm_insn *cast, const tvm_insn *next, double *zero,
                         double *scale);
/* May the subtraction of a constant be made part of the conversion, with the same result to the last bit? */
bool tvm_packed_zero_is_exact(tvm_dtype from, tvm_dtype to, double zero);
/* The same of a multiplication. */
bool tvm_packed_scale_is_exact(const emitter *e, tvm_dtype from, tvm_dtype to, double scale);

/* Does multiplying the fields of a low-precision float, in their places in f16 or bf16, leave infinities or
 * NaN wrong? Then tvm_mend_float_pair puts them right: `codes` are the codes at the low ends of the two
 * halves, other bits zero. */
bool tvm_float_pair_needs_mending(tvm_dtype from, tvm_dtype to);
reg tvm_mend_float_pair(emitter *e, tvm_dtype from, tvm_dtype to, reg codes, reg pair);

#endif
