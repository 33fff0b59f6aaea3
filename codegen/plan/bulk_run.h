/* Tiles of copy-bulk whose bytes lie together in global and in shared memory, and are inside of the tensor or
 * outside of it all at once: one run of bytes. */
#ifndef TVM_CODEGEN_BULK_RUN_H
#define TVM_CODEGEN_BULK_RUN_H

#include "bulk_plan.h"
#include "global_tile.h"

typedef struct bulk_run {
    shared_tile s;
    global_tile g;
    uint32_t bytes;
} bulk_run;

/* Does TMA bring the tile as one run of bytes? */
bool tvm_bulk_run_find(kernel_state *k, const bulk_tile *tile, bulk_run *r);

#endif
