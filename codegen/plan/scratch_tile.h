/* A tensor in scratch memory, into which threads store what they have in one layout and from which they load
 * it in another (emit/scratch.h). Its elements lie row-major, rows as far apart as costs the fewest bank
 * conflicts. */
#ifndef TVM_CODEGEN_SCRATCH_TILE_H
#define TVM_CODEGEN_SCRATCH_TILE_H

#include "kernel_state.h"

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
/* Where an element of a layout lies from the first one of its side, and that of the side, in elements. */
uint32_t tvm_tile_offset(const scratch_tile *t, const tvm_layout *layout, uint32_t thread, uint32_t local);
uint32_t tvm_tile_base(const scratch_tile *t, const tile_side *s);

#endif
