/* Copies of tiles that are one run of bytes (plan/bulk_run.h). */
#ifndef TVM_CODEGEN_EMIT_BULK_RUN_H
#define TVM_CODEGEN_EMIT_BULK_RUN_H

#include "bulk_run.h"
#include "emit.h"

/* Has one thread of the team start the copy, which completes on the mbarrier; false: nothing is emitted. */
bool tvm_emit_bulk_run(emitter *e, const bulk_tile *tile, const tvm_operand *barrier,
                       const tvm_operand *evict);

#endif
