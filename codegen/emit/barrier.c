#include "barrier.h"

#include <stdio.h>

#include "frame.h"

#include "wgmma_impl.h"

/* fence TO_ENGINE, TO_ENGINE_FAR: wgmma and tcgen05.mma read shared memory through the asynchronous proxy,
 * and TMA writes it so (PTX ISA, "Proxies"). */
void tvm_emit_proxy_fence(emitter *e) {
    if (!e->k->wgmma->used && !e->k->bulk.by_engine && !e->k->tensor.workers) return;
    bool unfenced = e->k->bulk.by_threads || e->k->bulk.unfenced[e->k->insn - e->k->kernel->insns];
    if (unfenced) tvm_emit(e, "fence.proxy.async.shared::%s;", e->stores_far ? "cluster" : "cta");
}

/* fence COPIED_TO_ENGINE: what threads copied arrives without a word of theirs: who waited for it tells the
 * asynchronous proxy. */
void tvm_emit_bulk_arrived(emitter *e) {
    if (e->k->bulk.by_threads && (e->k->wgmma->used || e->k->tensor.workers || e->k->bulk.reads_by_engine))
        tvm_emit(e, "fence.proxy.async.shared::cta;");
}

void tvm_emit_barrier(emitter *e) {
    tvm_emit_proxy_fence(e);
    tvm_emit_thread_barrier(e);
}

/* The operands of the team's barrier: its number, and how many threads it has where these are not all. */
static void barrier_text(emitter *e, char text[32]) {
    if (e->team.warps == e->k->kernel->warps)
        tvm_frame_barrier(e, e->barrier, text);
    else if (e->teams > 1)
        snprintf(text, 32, "%s, %u",
                 tvm_pure(e, 'r', "add.u32 $, %s, %u;", e->team_index.name, (unsigned)e->barrier).name,
                 tvm_team_threads(e->team));
    else
        snprintf(text, 32, "%u, %u", e->barrier, tvm_team_threads(e->team));
}

/* fence TEAM_BARRIER */
void tvm_emit_thread_barrier(emitter *e) {
    char text[32];
    e->scratch_read = 0;
    barrier_text(e, text);
    tvm_emit(e, "bar.sync %s;", text);
}

/* fence TEAM_BARRIER */
reg tvm_emit_barrier_vote(emitter *e, const char *operation, reg vote) {
    char text[32];
    reg all = tvm_new_pred(e);
    tvm_emit_proxy_fence(e);
    e->scratch_read = 0;
    barrier_text(e, text);
    tvm_emit(e, "bar.red.%s.pred %s, %s, %s;", operation, all.name, text, vote.name);
    return all;
}

tvm_status tvm_emit_SYNC(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit_barrier(e);
    return TVM_OK;
}

/* fence WARP_BARRIER; where the warp is the team, fence TO_ENGINE_WARP */
tvm_status tvm_emit_SYNC_WARP(emitter *e, const tvm_insn *insn) {
    (void)insn;
    if (e->team.warps == 1) tvm_emit_proxy_fence(e);
    tvm_emit(e, "bar.warp.sync 0xffffffff;");
    return TVM_OK;
}
