/* The end of a block. Its shared memory becomes another block's, so that no copy may be under way to it:
 * where it is not proved that all have been waited for (analysis/drains.c), all warps meet, and the first one
 * ends each phase that copies may belong to. How many arrivals it lacks is known from those that have been
 * counted.
 */
#include "emit_drain.h"

#include "emit_cluster.h"
#include "emit_tensor.h"
#include "frame.h"
#include "mbarrier_plan.h"
#include "turns_emit.h"

static const tvm_insn *alloc_of(const emitter *e, uint32_t slot) {
    const tvm_insn *at = e->k->kernel->insns;
    while (at->op != TVM_OP_ALLOC_BARRIER || at->result != slot) at++;
    return at;
}

/* Mbarriers that are drained together, so that their latencies overlap. */
enum { TOGETHER = 16 };

typedef struct drained {
    uint32_t at, ledger; /* bytes from where shared memory begins */
    uint32_t needed;     /* arrivals that end a phase */
    reg arrived, phases, parity, before;
} drained;

/* fence BLOCK_END: until the phases of these parities have ended. */
static void wait(emitter *e, const drained *all, uint32_t count, bool before) {
    uint32_t again = tvm_new_label(e);
    reg done = tvm_new_pred(e), one = tvm_new_pred(e);
    tvm_text_add(&e->body, "$L%u:\n", again);
    for (uint32_t i = 0; i < count; i++) {
        tvm_emit(e, "mbarrier.try_wait.parity.shared.b64 %s, [%s+%u], %s;", i ? one.name : done.name,
                 tvm_shared_base(e).name, all[i].at, before ? all[i].before.name : all[i].parity.name);
        if (i) tvm_emit(e, "and.pred %s, %s, %s;", done.name, done.name, one.name);
    }
    tvm_emit_ask_again(e, done, false, again);
}

/* fence BLOCK_END: the arrivals have ended so many phases, the last of which may still wait for its bytes;
 * then the one that is on gets the arrivals that it lacks. */
static void drain(emitter *e, drained *all, uint32_t count, const char *first) {
    for (uint32_t i = 0; i < count; i++) {
        drained *d = &all[i];
        d->arrived = tvm_new_r(e), d->phases = tvm_new_r(e), d->parity = tvm_new_r(e),
        d->before = tvm_new_r(e);
        tvm_emit(e, "ld.shared.b32 %s, [%s+%u];", d->arrived.name, tvm_shared_base(e).name, d->ledger);
        tvm_emit(e, "div.u32 %s, %s, %u;", d->phases.name, d->arrived.name, d->needed);
        tvm_emit(e, "and.b32 %s, %s, 1;", d->parity.name, d->phases.name);
        tvm_emit(e, "xor.b32 %s, %s, 1;", d->before.name, d->parity.name);
    }
    wait(e, all, count, true);
    for (uint32_t i = 0; i < count; i++) {
        const drained *d = &all[i];
        reg more = tvm_new_r(e);
        tvm_emit(e, "mul.lo.u32 %s, %s, %u;", more.name, d->phases.name, d->needed);
        tvm_emit(e, "sub.u32 %s, %s, %s;", more.name, more.name, d->arrived.name);
        tvm_emit(e, "add.u32 %s, %s, %u;", more.name, more.name, d->needed);
        tvm_emit(e, "@%s mbarrier.arrive.shared.b64 _, [%s+%u], %s;", first, tvm_shared_base(e).name, d->at,
                 more.name);
    }
    wait(e, all, count, false);
}

static void drain_slots(emitter *e, const char *first) {
    drained all[TOGETHER];
    uint32_t count = 0;
    for (uint32_t s = 0; s < e->k->kernel->slot_count; s++) {
        const slot_plan *slot = &e->k->slots[s];
        if (!slot->ledger) continue;
        uint32_t needed = tvm_mbarrier_arrivals(e->k, alloc_of(e, s));
        for (uint32_t i = 0; i < tvm_mbarrier_count(e->k, s); i++) {
            all[count++] = (drained){.at = slot->shared_offset + 8 * i,
                                     .ledger = slot->ledger + 4 * i,
                                     .needed = needed * slot->team_arrivals};
            if (count == TOGETHER) drain(e, all, count, first), count = 0;
        }
    }
    if (count) drain(e, all, count, first);
}

static bool has_ledger(const emitter *e) {
    for (uint32_t s = 0; s < e->k->kernel->slot_count; s++)
        if (e->k->slots[s].ledger) return true;
    return false;
}

static void by_first_warp(emitter *e) {
    uint32_t behind = tvm_new_label(e);
    reg thread = tvm_new_r(e), warp = tvm_new_pred(e), first = tvm_new_pred(e); /* not held until here */
    tvm_emit(e, "mov.u32 %s, %%tid.x;", thread.name);
    tvm_emit(e, "setp.lt.u32 %s, %s, 32;", warp.name, thread.name);
    tvm_emit(e, "setp.eq.u32 %s, %s, 0;", first.name, thread.name);
    tvm_emit(e, "@!%s bra $L%u;", warp.name, behind);
    drain_slots(e, first.name);
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

/* fence BLOCK_END: copies of one block may complete at another's mbarriers, and read its own memory. */
static void drain_all(emitter *e) {
    bool clusters = tvm_cluster_blocks(e->k->kernel) > 1;
    char all[32];
    if (clusters)
        tvm_emit_cluster_meet(e);
    else
        tvm_emit(e, "bar.sync %s;", tvm_frame_barrier(e, 0, all));
    if (e->team.first == 0) by_first_warp(e);
    if (clusters) tvm_emit_cluster_meet(e);
}

/* fence BLOCK_END; of a body, which other tasks follow, BULK_STORED */
void tvm_emit_block_end(emitter *e) {
    tvm_emit_tensor_end(e);
    if (e->k->bulk.stores_by_engine)
        tvm_emit(e, "cp.async.bulk.wait_group%s 0;", e->body_frame ? "" : ".read");
    if (e->has_barriers && has_ledger(e))
        drain_all(e);
    else
        tvm_emit_cluster_end(e);
}

void tvm_emit_block_exit(emitter *e, const char *instruction) {
    tvm_emit_block_end(e);
    if (e->body_frame)
        tvm_emit(e, "bra $L%u;", (unsigned)e->body_frame->end);
    else
        tvm_emit(e, "%s;", instruction);
}
