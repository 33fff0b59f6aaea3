/* Register tensors to and from tiles in scratch memory (plan/scratch_tile.h). */
#ifndef TVM_CODEGEN_SCRATCH_MOVE_H
#define TVM_CODEGEN_SCRATCH_MOVE_H

#include "emit.h"
#include "scratch_tile.h"

/* At bytes `scratch` of the block's shared memory. false: no memory. */
void tvm_tile_store(emitter *e, const scratch_tile *t, const tile_side *side, uint32_t scratch);
bool tvm_tile_load(emitter *e, const scratch_tile *t, const tile_side *side, uint32_t scratch);

#endif
