/* A tensor in scratch memory, into which threads store what they have in one layout and from which they load
 * it in another. Its elements lie row-major, rows as far apart as costs the fewest bank conflicts. */
#ifndef TVM_CODEGEN_SCRATCH_TILE_H
#define TVM_CODEGEN_SCRATCH_TILE_H

#include "emit.h"

/* A register tensor that is a tile of it, from `offset` on. */
typedef struct tile_side {
    const tvm_layout *layout;
    uint32_t slot;
    uint32_t locals;
    uint32_t offset[TVM_MAX_RANK];
    uint32_t width; /* elements that are accessed at once; set by the plan */
} tile_side;

typedef struct scratch_tile {
    tvm_dtype type;
    uint32_t bytes; /* of an element: a byte at least */
    unsigned rank;
    uint32_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK]; /* in elements */
    uint32_t elements;                                  /* with what lies between rows */
} scratch_tile;

void tvm_tile_plan(scratch_tile *t, tvm_dtype type, unsigned rank, const uint32_t *shape,
                   tile_side *const *sides, unsigned count);
uint64_t tvm_tile_bytes(const scratch_tile *t);
/* At bytes `scratch` of the block's shared memory. false: no memory. */
void tvm_tile_store(emitter *e, const scratch_tile *t, const tile_side *side, uint32_t scratch);
bool tvm_tile_load(emitter *e, const scratch_tile *t, const tile_side *side, uint32_t scratch);

#endif
