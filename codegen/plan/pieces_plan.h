/* Where the elements of what is made of pieces of tensors come from: see emit/emit_pieces.c. */
#ifndef TVM_CODEGEN_PIECES_PLAN_H
#define TVM_CODEGEN_PIECES_PLAN_H

#include "pieces.h"
#include "scratch_tile.h"

/* Where a local element of the result comes from, in every thread; of shift, in the threads to whose place
 * another element comes: that of the thread so many lanes before. The others keep their own. */
typedef struct origin {
    uint32_t local;
    unsigned piece;
    int lanes;
    bool some; /* some threads keep their own: those whose coordinate along the axis, of local 0, is below the
                  bound, or (back) is not */
    int bound;
} origin;

typedef struct assembly {
    tvm_pieces pieces;
    tvm_dtype type;
    const tvm_layout *layouts[2], *layout;
    uint32_t result, locals;
    origin *origins; /* NULL: threads have not what they need */
    bool by_lanes;   /* but other lanes of their warps have it */
    scratch_tile tile;
    tile_side sides[2], whole;
    unsigned side_count;
    bool overlap; /* the second side is stored behind the first, over a part of it */
} assembly;

/* False without memory. `origins` is to be freed. */
bool tvm_pieces_plan(assembly *a, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_insn *insn);

#endif
