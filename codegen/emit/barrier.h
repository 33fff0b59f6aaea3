/* Where the threads of a team wait for each other: at barrier e->barrier, with the number of them where they
 * are not the whole block's (PTX ISA, "bar"). */
#ifndef TVM_CODEGEN_BARRIER_H
#define TVM_CODEGEN_BARRIER_H

#include "emit.h"

/* All warps of the team wait for each other, at its barrier; what they wrote before is visible to those after
 * it, wgmma included. */
void tvm_emit_barrier(emitter *e);
/* The same, and every thread learns whether all ("and") or any ("or") of them have the predicate. */
reg tvm_emit_barrier_vote(emitter *e, const char *operation, reg vote);
/* As tvm_emit_barrier, for what only threads read. */
void tvm_emit_thread_barrier(emitter *e);
/* Before an arrival, in every thread: what it wrote to shared memory is for wgmma, too. */
void tvm_emit_proxy_fence(emitter *e);
/* After the wait for an mbarrier: what copies brought is for wgmma, too. */
void tvm_emit_bulk_arrived(emitter *e);

#endif
