/* Tiles that lie together in global and in shared memory: see emit_bulk_run.c. */
#ifndef TVM_CODEGEN_BULK_RUN_H
#define TVM_CODEGEN_BULK_RUN_H

#include "bulk_plan.h"

/* Does TMA bring the tile as one run of bytes? Emits nothing. */
bool tvm_bulk_run_may_be(emitter *e, const bulk_tile *tile);
/* Has one thread of the team start the copy, which completes on the mbarrier; false: nothing is emitted. */
bool tvm_emit_bulk_run(emitter *e, const bulk_tile *tile, const tvm_operand *barrier,
                       const tvm_operand *evict);

#endif
