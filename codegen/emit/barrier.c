#include "barrier.h"

#include "wgmma_impl.h"

/* wgmma reads shared memory through the asynchronous proxy, and TMA writes it so (PTX ISA,
 * "Proxies"). */
void tvm_emit_proxy_fence(emitter *e) {
    if (!e->k->wgmma->used && !e->k->bulk.by_engine) return;
    bool unfenced = e->k->bulk.by_threads || e->k->bulk.unfenced[e->k->insn - e->k->kernel->insns];
    if (unfenced) tvm_emit(e, "fence.proxy.async.shared::cta;");
}

/* What threads copied arrives without a word of theirs: who waited for it tells the asynchronous proxy. */
void tvm_emit_bulk_arrived(emitter *e) {
    if (e->k->bulk.by_threads && e->k->wgmma->used) tvm_emit(e, "fence.proxy.async.shared::cta;");
}

void tvm_emit_barrier(emitter *e) {
    tvm_emit_proxy_fence(e);
    tvm_emit_thread_barrier(e);
}

void tvm_emit_thread_barrier(emitter *e) {
    e->scratch_read = 0;
    if (e->team.warps == e->k->kernel->warps)
        tvm_emit(e, "bar.sync %u;", e->barrier);
    else if (e->teams > 1)
        tvm_emit(e, "bar.sync %s, %u;",
                 tvm_pure(e, 'r', "add.u32 $, %s, %u;", e->team_index.name, (unsigned)e->barrier).name,
                 tvm_team_threads(e->team));
    else
        tvm_emit(e, "bar.sync %u, %u;", e->barrier, tvm_team_threads(e->team));
}

tvm_status tvm_emit_SYNC(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit_barrier(e);
    return TVM_OK;
}

tvm_status tvm_emit_SYNC_WARP(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit(e, "bar.warp.sync 0xffffffff;");
    return TVM_OK;
}
