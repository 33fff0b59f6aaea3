/* How a relayout is carried out: see emit/emit_rearrange.c. */
#ifndef TVM_CODEGEN_RELAYOUT_PLAN_H
#define TVM_CODEGEN_RELAYOUT_PLAN_H

#include "scratch_tile.h"

typedef enum relayout_way {
    RELAYOUT_IN_THREAD,
    RELAYOUT_MOVMATRIX,
    RELAYOUT_SHUFFLES,
    RELAYOUT_SCRATCH
} relayout_way;

typedef struct relayout {
    tvm_dtype type;
    tile_side source, result;
    relayout_way how;
    uint32_t *map;      /* RELAYOUT_IN_THREAD: of the result's local index; RELAYOUT_MOVMATRIX and
                           RELAYOUT_SHUFFLES: of its word */
    uint32_t *lane_xor; /* RELAYOUT_SHUFFLES: of each word of the result, to that of word 0 */
    scratch_tile tile;  /* RELAYOUT_SCRATCH */
} relayout;

/* False without memory. Free it whatever it returns. */
bool tvm_relayout_plan(relayout *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_insn *insn);
void tvm_relayout_free(relayout *r);

#endif
