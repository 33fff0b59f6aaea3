/* Where the elements of what is made of pieces of tensors come from: see emit/emit_pieces.c. */
#ifndef TVM_CODEGEN_PIECES_PLAN_H
#define TVM_CODEGEN_PIECES_PLAN_H

#include "pieces.h"
#include "scratch_tile.h"

/* Where a local element of the result comes from, in every thread. */
typedef struct origin {
    uint32_t local;
    unsigned piece;
} origin;

typedef struct assembly {
    tvm_pieces pieces;
    tvm_dtype type;
    const tvm_layout *layouts[2], *layout;
    uint32_t result, locals;
    origin *origins; /* NULL: threads have not what they need */
    scratch_tile tile;
    tile_side sides[2], whole;
} assembly;

/* False without memory. `origins` is to be freed. */
bool tvm_pieces_plan(assembly *a, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_insn *insn);

#endif
