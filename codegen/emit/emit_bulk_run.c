/* copy-bulk of a tile whose bytes lie together in global and in shared memory, and are inside of the tensor
 * or outside of it all at once: one cp.async.bulk without a tensor map, whose boxes would have to begin at
 * other multiples than 16 bytes or would be several. PTX ISA, "cp.async.bulk". A tile that is outside is made
 * zeros by the team's threads. */
#include <stdio.h>

#include "analysis.h"
#include "bulk_run.h"
#include "caches.h"
#include "copy.h"
#include "global_access.h"
#include "mbarrier.h"

enum { GRANULE = 16, CHUNK = 16 };

typedef struct run {
    shared_tile s;
    global_access g;
    uint32_t bytes;
} run;

static bool is_together(const bulk_tile *tile, const run *r) {
    const shared_tile *s = &r->s;
    uint64_t elements = 1;
    for (unsigned d = tile->rank; d-- > 0; elements *= tile->extent[d]) {
        unsigned global = r->g.lead + d, shared = s->lead + d;
        if (tile->extent[d] == 1) continue;
        if (!r->g.constant_stride[global] || (uint64_t)r->g.stride[global] != elements) return false;
        if (s->modes[shared] != 1 || s->layout->mode_stride[s->first[shared]] != elements) return false;
    }
    return s->layout->swizzle_bits == 0;
}

static bool is_aligned(const run *r) {
    const shared_tile *s = &r->s;
    static const uint64_t rows[TVM_MAX_RANK] = {0};
    uint64_t shared = tvm_fact_gcd(s->constant, s->dynamic_divisor);
    return r->bytes % GRANULE == 0 && shared * s->bytes % GRANULE == 0 &&
           tvm_global_alignment(&r->g, rows) >= 8 * GRANULE;
}

/* No edge of the tensor goes through the tile. */
static bool is_whole(const bulk_tile *tile, const run *r) {
    for (unsigned d = 0; d < tile->rank; d++) {
        unsigned dim = r->g.lead + d;
        if (!r->g.proven[dim] && tvm_fact_gcd(r->g.granule[dim], tile->extent[d]) != tile->extent[d])
            return false;
    }
    return true;
}

static bool open_run(emitter *e, const bulk_tile *tile, run *r) {
    const tvm_slot *slot = &e->kernel->slots[tile->global->value];
    *r = (run){0};
    if (!tvm_target_has(e->target, TVM_HAS_BULK) || slot->form != TVM_FORM_ROW_MAJOR) return false;
    for (unsigned d = 0; d < tile->rank; d++) r->g.extent[d] = tile->extent[d];
    if (!tvm_shared_open(e, &r->s, tile->shared->value, tile->shared + 1, tile->rank, tile->extent, 1))
        return false;
    tvm_global_open(e, &r->g, tile->global->value, tile->global + 1, tile->rank);
    r->bytes = r->s.bytes;
    for (unsigned d = 0; d < tile->rank; d++) r->bytes *= tile->extent[d];
    return is_together(tile, r) && is_aligned(r) && is_whole(tile, r);
}

bool tvm_bulk_run_may_be(emitter *e, const bulk_tile *tile) {
    run r;
    return open_run(e, tile, &r);
}

/* Where `inside` does not hold; the threads of a warp go through the loop together. */
static void make_zeros(emitter *e, const run *r, reg inside, reg shared, uint32_t plus) {
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

bool tvm_emit_bulk_run(emitter *e, const bulk_tile *tile, const tvm_operand *barrier,
                       const tvm_operand *evict) {
    static const uint32_t none[TVM_MAX_RANK] = {0};
    run r;
    char name[64];
    if (!open_run(e, tile, &r)) return false;
    bool guarded = tvm_shared_guard(e, tile->shared->value, tile->shared + 1, tile->rank, tile->extent);
    mbarrier b = tvm_mbarrier_find(e, barrier);
    cache_hint hint = tvm_cache_hint(e, evict);
    reg shared = tvm_shared_base(e), inside = {""}, from = tvm_global_pointer(&r.g, none);
    uint32_t plus = e->slots[r.s.slot].shared_offset + r.s.constant * r.s.bytes, behind = tvm_new_label(e);
    if (r.s.has_dynamic) {
        reg dynamic = tvm_shared_dynamic(&r.s), address = tvm_new_r(e);
        tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", address.name, dynamic.name, r.s.bytes, shared.name);
        shared = address;
    }
    bool may_be_outside = tvm_global_predicate(&r.g, none, &inside);
    reg leader = tvm_emit_elect(e, behind);
    if (tvm_emit_writes_global(e, tile->global->value))
        tvm_emit(e, "@%s fence.proxy.async.global;", leader.name);
    if (may_be_outside) {
        reg both = tvm_new_pred(e);
        tvm_emit(e, "and.pred %s, %s, %s;", both.name, leader.name, inside.name);
        leader = both;
    }
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
