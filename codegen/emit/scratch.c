#include "scratch.h"

#include "barrier.h"

enum { FIRST = 1, SECOND = 2, BOTH = FIRST | SECOND };

reg tvm_scratch_base(emitter *e) {
    uint64_t bytes = e->shared.bytes - e->shared.scratch;
    if (e->teams <= 1 || bytes == 0) return tvm_shared_base(e);
    return tvm_pure(e, 'r', "mad.lo.u32 $, %s, %u, %s;", e->team_index.name, (unsigned)bytes,
                    tvm_shared_base(e).name);
}

uint32_t tvm_scratch_begin(emitter *e, uint64_t bytes) {
    bool small = e->shared.second > 0 && bytes <= e->shared.second;
    unsigned first = small ? FIRST : BOTH;
    if (small && (e->scratch_read & FIRST)) first = SECOND;
    if (e->scratch_read & first) {
        tvm_emit_thread_barrier(e);
        first = small ? FIRST : BOTH;
    }
    e->scratch_written = first;
    return (uint32_t)(e->shared.scratch + (first == SECOND ? e->shared.second : 0));
}

void tvm_scratch_publish(emitter *e) {
    tvm_emit_thread_barrier(e);
    e->scratch_read = e->scratch_written;
}

void tvm_scratch_join(emitter *e) {
    e->scratch_read = BOTH;
}
