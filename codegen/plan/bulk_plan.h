/* How TMA brings a tile of a global tensor to a shared one, or takes it back: as boxes of a
 * tensor map, each contiguous in shared memory but for the swizzle. What is asked here is whether the
 * hardware can do it for all launches; else the reason is for the report, and threads copy. */
#ifndef TVM_CODEGEN_BULK_PLAN_H
#define TVM_CODEGEN_BULK_PLAN_H

#include "shared_tile.h"

enum { BULK_BOXES = 64, BULK_WHY_MAX = 200 };

/* The operands of such a copy. */
typedef struct bulk_tile {
    const tvm_operand *shared, *global; /* slot, then indices */
    unsigned rank;                      /* of the tile: the last dimensions of both */
    uint32_t extent[TVM_MAX_RANK];
} bulk_tile;

/* Of a copy to shared memory, whose operands begin with these. *extents: their count, then they. */
bulk_tile tvm_bulk_tile(const kernel_state *k, const tvm_operand *operands, const tvm_operand **extents);

/* What boxes are started for. */
typedef enum bulk_way { BULK_LOAD, BULK_STORE, BULK_ADD } bulk_way;

/* A sum of expressions: where the views begin, each in what it views, then the tile's index. */
typedef struct bulk_sum {
    unsigned count;
    uint32_t expr[TVM_MAX_VIEW_DEPTH + 1];
} bulk_sum;

typedef struct bulk_plan {
    tvm_abi_map map;
    bulk_sum at[TVM_MAX_RANK];   /* the tile's coordinates in the map's tensor */
    uint8_t dim[TVM_MAX_RANK];   /* the tensor's that a dimension of the tile is */
    uint8_t order[TVM_MAX_RANK]; /* dimensions of the tile as boxes have them, rows first */
    uint32_t tested;  /* of a store: set of the tile's own tensor's dimensions whose index is tested: where
                         it is negative the tile is outside as a whole */
    shared_tile tile; /* opened */
    bool spreads;     /* elements of 4 or 6 bits to bytes (TVM_SPREAD_ROW) */
    unsigned factor;  /* elements of the tensor that are one of the map */
    uint32_t box[TVM_MAX_RANK]; /* in the tensor's elements, by dimension of the tile */
    uint32_t count;             /* boxes that are the tile */
    uint32_t box_bytes; /* that the mbarrier of a load counts: of what is spread those of global memory, as
                           DeepGEMM announces them (sm100_fp8_gemm_1d1d.cuh); the PTX ISA does not say */
} bulk_plan;

/* False with the reason. */
bool tvm_bulk_plan_make(kernel_state *k, const bulk_tile *tile, bulk_way way, bulk_plan *plan,
                        char why[BULK_WHY_MAX]);
/* Coordinates in the tile, in elements, at which box number n begins. */
void tvm_bulk_box(const bulk_tile *tile, const bulk_plan *plan, uint32_t n, uint32_t at[TVM_MAX_RANK]);

/* Bytes that a shared tensor's address must be a multiple of for its swizzle to be TMA's; 0: it
 * is none of TMA's. Without a swizzle as many as boxes need. */
uint64_t tvm_bulk_alignment(const tvm_shared_layout *layout, unsigned bits);

#endif
