/* Tiles copied between global and shared memory by the copy engine. */
#ifndef TVM_CODEGEN_EMIT_BULK_H
#define TVM_CODEGEN_EMIT_BULK_H

#include "emit.h"

/* Branches to the label in all warps of the team but the first, of which it elects a thread: a predicate. */
reg tvm_emit_elect(emitter *e, uint32_t label);
/* After the wait for an mbarrier: what copies brought is for wgmma, too. */
void tvm_emit_bulk_arrived(emitter *e);

#endif
