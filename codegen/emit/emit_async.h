/* Tiles copied between global and shared memory by the threads of a team. */
#ifndef TVM_CODEGEN_EMIT_ASYNC_H
#define TVM_CODEGEN_EMIT_ASYNC_H

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

#endif
