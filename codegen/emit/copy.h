/* Tiles copied from global to shared memory, by the threads of a team or by the copy engine. */
#ifndef TVM_CODEGEN_COPY_H
#define TVM_CODEGEN_COPY_H

#include "emit.h"

typedef struct thread_copy {
    const tvm_operand *target, *source; /* shared and global: slot, then indices */
    const tvm_operand *tile;            /* count, then extents */
    const tvm_operand *evict,
        *warps;          /* operands of kinds E and A; warps NULL: all of the team share the tile */
    const char *refused; /* better ways, and why not: "why; why", or "" */
    bool is_store;       /* the other way, at once: target is global, source shared */
    bool adds;           /* of a store: to what is there */
} thread_copy;

/* By cp.async, or element by element where nothing is aligned; writes the report. *is_async: the thread's
 * copies arrive when cp.async.wait_group or an mbarrier says so; else they have been stored. */
tvm_status tvm_emit_thread_copy(emitter *e, const thread_copy *operands, bool *is_async);

/* Branches to the label in all warps of the team but the first, of which it elects a thread: a predicate. */
reg tvm_emit_elect(emitter *e, uint32_t label);

/* Where a team or block ends: its tiles live as long as copies may read or write them, and as other blocks of
 * the cluster may reach for them. */
void tvm_emit_block_end(emitter *e);
/* Does the kernel write the global tensor? */
bool tvm_emit_writes_global(const emitter *e, uint32_t slot);
/* Finds e->bulk. */
void tvm_bulk_prepare(emitter *e);
/* After the wait for an mbarrier: what copies brought is for wgmma, too. */
void tvm_emit_bulk_arrived(emitter *e);

#endif
