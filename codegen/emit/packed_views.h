/* What conversions of tensors of packing `pair` share: the views of the recipe (isa/packing.h), in which
 * codes lie as pairs. */
#ifndef TVM_CODEGEN_PACKED_VIEWS_H
#define TVM_CODEGEN_PACKED_VIEWS_H

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
/* Those of the slot's block of that number. */
void tvm_block_begin(block_views *v, emitter *e, uint32_t slot, uint32_t block);
reg tvm_block_view(block_views *v, unsigned view);
/* A view shifted, to the left when distance > 0: within each half, what the caller keeps of it has stayed
 * inside. */
reg tvm_moved_view(block_views *v, unsigned purpose, unsigned view, int distance);
/* Writes a pair as it is, or a pair of the type `wide` as two f32. */
void tvm_write_pair(emitter *e, element_writer *writer, const tvm_dtype *wide, reg pair);
/* A constant that ptxas does not see as one (a thread number has 10 bits). PRMT takes one immediate operand:
 * where ptxas finds two, it copies the other to a register before every PRMT. */
reg tvm_hidden_constant(emitter *e, uint32_t value);

#endif
