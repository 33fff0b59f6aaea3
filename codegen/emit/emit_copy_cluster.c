/* copy-cluster: PTX ISA, "cp.async.bulk", of shared memory to that of another block of the cluster. One
 * thread of the team announces the bytes to the other block's mbarrier and starts a copy for each run of
 * bytes that is one in both tensors. Where there are too many, or runs of other than whole 16 bytes, the
 * threads copy elements, which arrive with the team's next arrival. */
#include <stdio.h>
#include <stdlib.h>

#include "access.h"
#include "emit_cluster.h"
#include "emit_mbarrier.h"
#include "numbers.h"
#include "shared_access.h"

enum { RUNS = 64, GRANULE = 16, WHY_MAX = 160 };

typedef struct tiles {
    const tvm_operand *target, *source, *barrier; /* slot, then indices */
    uint32_t rank_of_block;                       /* an expression */
    unsigned rank;
    uint32_t extent[TVM_MAX_RANK], elements;
    shared_access to, from;
} tiles;

/* Bytes of one tile that are bytes of the other, from the beginnings of both tensors. */
typedef struct run {
    uint32_t from, to, bytes;
} run;

static void open_tiles(emitter *e, const tvm_insn *insn, tiles *t) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    *t = (tiles){.target = operands, .elements = 1};
    const tvm_operand *rank = operands + 1 + tvm_slot_shared_layout(e->k, operands->value)->rank;
    t->rank_of_block = rank->value;
    t->source = rank + 1;
    const tvm_operand *tile = t->source + 1 + tvm_slot_shared_layout(e->k, t->source->value)->rank;
    t->rank = tile->value;
    for (unsigned d = 0; d < t->rank; d++) {
        t->extent[d] = tile[1 + d].value;
        t->elements *= t->extent[d];
    }
    t->barrier = tile + 1 + t->rank;
    tvm_shared_access_open(e, &t->to, t->target->value, t->target + 1, t->rank, t->extent, 1);
    tvm_shared_access_open(e, &t->from, t->source->value, t->source + 1, t->rank, t->extent, 1);
}

static void coordinates(const tiles *t, uint32_t element, uint32_t at[TVM_MAX_RANK]) {
    for (unsigned d = t->rank; d-- > 0; element /= t->extent[d]) at[d] = element % t->extent[d];
}

/* ---- by TMA ---- */

static uint32_t place(const shared_tile *s, const uint32_t at[TVM_MAX_RANK]) {
    return tvm_shared_swizzle(s->layout, s->constant + tvm_shared_linear(s, at)) * s->bytes;
}

static int by_source(const void *a, const void *b) {
    const run *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Joins neighbours; how many runs there are. */
static uint32_t join(run *runs, uint32_t count) {
    uint32_t joined = 0;
    qsort(runs, count, sizeof *runs, by_source);
    for (uint32_t i = 1; i < count; i++) {
        run *last = &runs[joined];
        if (runs[i].from == last->from + last->bytes && runs[i].to == last->to + last->bytes)
            last->bytes += runs[i].bytes;
        else
            runs[++joined] = runs[i];
    }
    return joined + 1;
}

static bool begins_well(const shared_tile *s) {
    return !s->has_dynamic || s->dynamic_divisor * s->bytes % GRANULE == 0;
}

/* runs: room for the elements. 0: TMA cannot do it. */
static uint32_t find_runs(const emitter *e, const tiles *t, run *runs, char why[WHY_MAX]) {
    if (!tvm_target_has(e->k->target, TVM_HAS_BULK)) {
        char target[16];
        snprintf(why, WHY_MAX, "%s lacks it", tvm_target_name(e->k->target, target));
        return 0;
    }
    if (tvm_cluster_blocks(e->k->kernel) ==
        1) { /* an illegal instruction, to an H200 (driver 580, CUDA 13.0) */
        snprintf(why, WHY_MAX, "the cluster is one block");
        return 0;
    }
    if (!t->to.tile.linear || !t->from.tile.linear || !t->to.tile.fixed || !t->from.tile.fixed) {
        snprintf(why, WHY_MAX, "run-time indices change the order of the tile's bytes");
        return 0;
    }
    for (uint32_t i = 0; i < t->elements; i++) {
        uint32_t at[TVM_MAX_RANK] = {0};
        coordinates(t, i, at);
        runs[i] = (run){place(&t->from.tile, at), place(&t->to.tile, at), t->from.tile.bytes};
    }
    uint32_t count = join(runs, t->elements);
    bool whole = begins_well(&t->to.tile) && begins_well(&t->from.tile);
    for (uint32_t i = 0; i < count && whole; i++)
        whole = (runs[i].from | runs[i].to | runs[i].bytes) % GRANULE == 0;
    if (whole && count <= RUNS) return count;
    snprintf(why, WHY_MAX,
             whole ? "the tile is %u runs of bytes, expected at most %d"
                   : "the tile is %u runs of bytes, not all of whole %d bytes",
             count, whole ? RUNS : GRANULE);
    return 0;
}

/* Where the tensor's run-time part begins, without the runs' bytes. */
static reg open_address(emitter *e, shared_access *s) {
    reg base = tvm_shared_base(e), address;
    if (!s->tile.has_dynamic) return base;
    reg dynamic = tvm_shared_dynamic(s);
    address = tvm_new_r(e);
    tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", address.name, dynamic.name, s->tile.bytes, base.name);
    return address;
}

/* fence FAR_COPY */
static void by_engine(emitter *e, tiles *t, const run *runs, uint32_t count, bool guarded) {
    bool is_far = tvm_cluster_blocks(e->k->kernel) > 1;
    reg from = open_address(e, &t->from), to = open_address(e, &t->to), far = tvm_new_r(e);
    mbarrier b = tvm_mbarrier_find(e, t->barrier);
    tvm_emit(e, "add.u32 %s, %s, %u;", far.name, b.address.name, b.plus);
    if (is_far) {
        to = tvm_emit_cluster_address(e, to, t->rank_of_block);
        far = tvm_emit_cluster_address(e, far, t->rank_of_block);
    }
    uint32_t behind = tvm_new_label(e);
    reg leader = tvm_emit_elect(e, behind);
    tvm_emit(e, "@%s mbarrier.expect_tx.relaxed.%s.b64 [%s], %u;", leader.name,
             is_far ? "cluster.shared::cluster" : "cta.shared::cta", far.name,
             t->elements * t->from.tile.bytes);
    for (uint32_t i = 0; i < count; i++)
        tvm_emit(
            e,
            "@%s cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%s+%u], [%s+%u], "
            "%u, [%s];",
            leader.name, to.name, e->k->slots[t->to.tile.slot].shared_offset + runs[i].to, from.name,
            e->k->slots[t->from.tile.slot].shared_offset + runs[i].from, runs[i].bytes, far.name);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    tvm_explain(
        e, guarded || b.guarded ? "cp.async.bulk.shared::cluster guarded" : "cp.async.bulk.shared::cluster",
        0, count, -1, "");
}

/* ---- by the threads ---- */

static void copy_element(emitter *e, tiles *t, uint32_t first) {
    static const uint32_t none[TVM_MAX_RANK] = {0};
    uint32_t threads = tvm_team_threads(e->team), below = 1;
    unsigned bits = 8 * t->from.tile.bytes;
    reg number = tvm_thread_id(e), at[TVM_MAX_RANK] = {{""}}, units[4] = {tvm_new_r(e), tvm_new_r(e)};
    char guard[20] = "", operands[64];
    if (first > 0) number = tvm_pure(e, 'r', "add.u32 $, %s, %u;", number.name, first);
    if (first + threads > t->elements) {
        reg has = tvm_pure(e, 'p', "setp.lt.u32 $, %s, %u;", number.name, t->elements);
        snprintf(guard, sizeof guard, "@%s ", has.name);
    }
    for (unsigned d = t->rank; d-- > 0; below *= t->extent[d]) {
        reg digit = tvm_pure_divide(e, number, below);
        at[d] = tvm_pure_modulo(e, digit, t->extent[d]);
    }
    reg from = tvm_shared_address_of_coordinates(&t->from, at, none);
    reg to = tvm_shared_address_of_coordinates(&t->to, at, none);
    bool is_far = tvm_cluster_blocks(e->k->kernel) > 1;
    if (is_far) to = tvm_emit_cluster_address(e, to, t->rank_of_block);
    tvm_access_operands(units, bits == 64 ? 2 : 1, operands);
    tvm_emit(e, "%sld.shared.%s %s, [%s+%u];", guard, tvm_access_type(bits), operands, from.name,
             e->k->slots[t->from.tile.slot].shared_offset);
    tvm_emit(e, "%sst.shared%s.%s [%s+%u], %s;", guard, is_far ? "::cluster" : "", tvm_access_type(bits),
             to.name, e->k->slots[t->to.tile.slot].shared_offset, operands);
}

/* fence FAR_ARRIVAL: the stores come with the team's next arrival, whose scope is the cluster
 * (tvm_stores_far). */
static void by_threads(emitter *e, tiles *t, bool guarded, const char *why) {
    char refused[WHY_MAX + 40];
    uint32_t threads = tvm_team_threads(e->team), turns = 0;
    snprintf(refused, sizeof refused, "cp.async.bulk: %s", why);
    for (uint32_t first = 0; first < t->elements; first += threads, turns++) copy_element(e, t, first);
    if (tvm_cluster_blocks(e->k->kernel) == 1) { /* an arrival of each thread's own, that comes at once */
        mbarrier b = tvm_mbarrier_find(e, t->barrier);
        tvm_emit(e, "cp.async.mbarrier.arrive.shared.b64 [%s+%u];", b.address.name, b.plus);
    }
    tvm_explain(e,
                guarded ? "ld.shared and st.shared by element guarded" : "ld.shared and st.shared by element",
                8 * t->from.tile.bytes, 2 * turns, -1, refused);
}

bool tvm_stores_far(emitter *e) {
    bool far = false;
    for (uint32_t i = 0; i < e->k->kernel->insn_count && !far; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        far = insn->op != TVM_OP_LOAD_CLUSTER && tvm_cluster_access(e->k->kernel, insn);
        if (insn->op != TVM_OP_COPY_CLUSTER) continue;
        char why[WHY_MAX];
        tiles t;
        open_tiles(e, insn, &t);
        run *runs = malloc(t.elements * sizeof *runs);
        far = !runs || find_runs(e, &t, runs, why) == 0;
        free(runs);
    }
    return far && tvm_cluster_blocks(e->k->kernel) > 1;
}

tvm_status tvm_emit_COPY_CLUSTER(emitter *e, const tvm_insn *insn) {
    tiles t;
    char why[WHY_MAX] = "";
    open_tiles(e, insn, &t);
    run *runs = malloc(t.elements * sizeof *runs);
    if (!runs) return tvm_diag_no_memory(e->k->diags);
    bool to = tvm_shared_guard(e, t.target->value, t.target + 1, t.rank, t.extent);
    bool from = tvm_shared_guard(e, t.source->value, t.source + 1, t.rank, t.extent);
    bool block = tvm_emit_cluster_guard(e, t.rank_of_block);
    uint32_t count = find_runs(e, &t, runs, why);
    if (count)
        by_engine(e, &t, runs, count, to || from || block);
    else
        by_threads(e, &t, to || from || block, why);
    free(runs);
    return TVM_OK;
}
