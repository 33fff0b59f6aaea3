/* copy-bulk of a tile whose bytes lie together in global and in shared memory, and are inside of the tensor
 * or outside of it all at once: one cp.async.bulk without a tensor map, whose boxes would have to begin at
 * other multiples than 16 bytes or would be several. PTX ISA, "cp.async.bulk". A tile that is outside is made
 * zeros by the team's threads. */
#include "emit_bulk_run.h"

#include <stdio.h>

#include "emit_mbarrier.h"
#include "global_access.h"
#include "shared_access.h"

/* Bytes that a thread makes zeros at a time. */
enum { CHUNK = 16 };

/* fence TO_ENGINE: where `inside` does not hold; the threads of a warp go through the loop together. */
static void make_zeros(emitter *e, const bulk_run *r, reg inside, reg shared, uint32_t plus) {
    uint32_t behind = tvm_new_label(e), again = tvm_new_label(e), step = CHUNK * tvm_team_threads(e->team);
    reg done = tvm_new_r(e), at = tvm_new_r(e), to = tvm_new_r(e), zero = tvm_new_r(e);
    reg has = tvm_new_pred(e), more = tvm_new_pred(e);
    tvm_emit(e, "@%s bra $L%u;", inside.name, behind);
    tvm_emit(e, "mov.b32 %s, 0;", zero.name);
    tvm_emit(e, "mov.b32 %s, 0;", done.name);
    tvm_text_add(&e->body, "$L%u:\n", again);
    tvm_emit(e, "mad.lo.u32 %s, %s, %d, %s;", at.name, tvm_thread_id(e).name, CHUNK, done.name);
    tvm_emit(e, "setp.lt.u32 %s, %s, %u;", has.name, at.name, r->bytes);
    tvm_emit(e, "add.u32 %s, %s, %s;", to.name, shared.name, at.name);
    tvm_emit(e, "@%s st.shared.v4.b32 [%s+%u], {%s, %s, %s, %s};", has.name, to.name, plus, zero.name,
             zero.name, zero.name, zero.name);
    tvm_emit(e, "add.u32 %s, %s, %u;", done.name, done.name, step);
    tvm_emit(e, "setp.lt.u32 %s, %s, %u;", more.name, done.name, r->bytes);
    tvm_emit(e, "@%s bra $L%u;", more.name, again);
    tvm_emit(e, "fence.proxy.async.shared::cta;");
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

/* fence GLOBAL_TO_ENGINE, BULK_LANDED, BULK_OVER_READ */
bool tvm_emit_bulk_run(emitter *e, const bulk_tile *tile, const tvm_operand *barrier,
                       const tvm_operand *evict) {
    static const uint32_t none[TVM_MAX_RANK] = {0};
    bulk_run r;
    char name[64];
    if (!tvm_bulk_run_find(e->k, tile, &r)) return false;
    shared_access s = {.e = e, .tile = r.s};
    global_access g = {.e = e, .tile = r.g};
    bool guarded = tvm_shared_guard(e, tile->shared->value, tile->shared + 1, tile->rank, tile->extent);
    mbarrier b = tvm_mbarrier_find(e, barrier);
    cache_hint hint = tvm_cache_hint(e, evict);
    reg shared = tvm_shared_base(e), inside = {""}, from = tvm_global_pointer(&g, none);
    uint32_t plus = e->k->slots[r.s.slot].shared_offset + r.s.constant * r.s.bytes, behind = tvm_new_label(e);
    if (r.s.has_dynamic) {
        reg dynamic = tvm_shared_dynamic(&s), address = tvm_new_r(e);
        tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", address.name, dynamic.name, r.s.bytes, shared.name);
        shared = address;
    }
    bool may_be_outside = tvm_global_predicate(&g, none, &inside);
    reg leader = tvm_emit_elect(e, behind);
    if (tvm_writes_global(e->k->kernel, tile->global->value))
        tvm_emit(e, "@%s fence.proxy.async.global;", leader.name);
    if (may_be_outside) leader = tvm_both(e, leader, inside);
    tvm_emit(e, "@%s mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s+%u], %u;", leader.name,
             b.address.name, b.plus, r.bytes);
    tvm_emit(
        e,
        "@%s cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes%s [%s+%u], [%s], %u, [%s+%u]%s;",
        leader.name, hint.level2, shared.name, plus, from.name, r.bytes, b.address.name, b.plus, hint.policy);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    if (may_be_outside) make_zeros(e, &r, inside, shared, plus);
    snprintf(name, sizeof name, "cp.async.bulk%s%s", hint.level2,
             guarded || b.guarded || may_be_outside ? " guarded" : "");
    tvm_explain(e, name, 0, 1, -1, "");
    return true;
}
