/* Runs of 16 or 8 bytes whose alignment and whose being inside are found out when the kernel runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "global_transfer.h"

/* In bits; a run of fewer elements is no shorter than 16 bytes: a few accesses do not pay for the tests. */
enum { LONGEST_RUN = 128, SHORTEST_RUN = 64, FEWEST = 8 };

/* The last dimension of the tile, whose runs these are. */
static unsigned last_of(const transfer *t) {
    return t->g.tile.tile_rank - 1;
}

/* May a thread's elements be runs at all, of which some test is needed? */
static bool may_have_runs(const transfer *t, unsigned align, unsigned bits) {
    unsigned run = bits / t->g.tile.bits;
    const global_access *g = &t->g;
    bool may = g->tile.bits >= 8 && g->tile.bits <= 32 && g->tile.tile_rank > 0 && !t->mask.map &&
               !t->order[0] && !t->traps;
    for (unsigned d = 0; d < g->tile.rank; d++) may = may && !t->index[d].map;
    if (!may || g->tile.proven[g->tile.rank - 1] || !tvm_global_has_rows(&g->tile)) return false;
    const thread_part *part = &g->tile.part[last_of(t)];
    if (part->varies && part->divisor % run != 0) return false;
    return align < bits || g->tile.granule[g->tile.rank - 1] % run != 0;
}

/* Is every class a piece of one row? Where a dimension is 1, memory goes on along the one before it. */
static bool lie_in_rows(const transfer *t) {
    uint32_t first[TVM_MAX_RANK], at[TVM_MAX_RANK];
    unsigned last = last_of(t);
    bool all = true;
    for (uint32_t local = 0; local < t->map.locals && all; local++) {
        uint32_t from = t->map.class_first[t->map.class_id[local]];
        tvm_transfer_coordinate(t, from, first);
        tvm_transfer_coordinate(t, local, at);
        for (unsigned d = 0; d < last; d++) all = all && at[d] == first[d];
        all = all && t->map.offset[local] - t->map.offset[from] == (int64_t)at[last] - first[last];
    }
    return all;
}

/* With classes of runs of so many bits, and a plan of one access each; false: there is none, and the classes
 * are of no use. */
static bool plan_runs(emitter *e, transfer *t, unsigned bits, access_plan *plan, tvm_status *status) {
    t->g.tile.granule[t->g.tile.rank - 1] = bits / t->g.tile.bits;
    *status = tvm_transfer_classify(e, t);
    if (*status == TVM_OK) *status = tvm_transfer_plan(e, t, bits, plan);
    bool all = *status == TVM_OK && plan->count == t->map.classes && lie_in_rows(t);
    for (uint32_t i = 0; i < plan->count && all; i++) all = plan->accesses[i].width == bits;
    if (!all) tvm_access_plan_free(plan);
    return all;
}

bool tvm_transfer_find_runs(emitter *e, transfer *t, unsigned align, access_plan *plan, tvm_status *status) {
    uint64_t known = t->g.tile.granule[t->g.tile.rank - 1];
    bool tried = false;
    *status = TVM_OK;
    *plan = (access_plan){0};
    for (unsigned bits = LONGEST_RUN; bits >= SHORTEST_RUN && *status == TVM_OK; bits /= 2) {
        if (bits < LONGEST_RUN && bits / t->g.tile.bits < FEWEST) continue;
        if (!may_have_runs(t, align, bits)) continue;
        tried = true;
        if (plan_runs(e, t, bits, plan, status)) return true;
        t->g.tile.granule[t->g.tile.rank - 1] = known;
    }
    if (tried && *status == TVM_OK) *status = tvm_transfer_classify(e, t);
    return false;
}

/* ---- a run ---- */

typedef struct run_state {
    reg first;   /* the place of its first element in the row, %r or %rd */
    reg pointer; /* of the class */
    long long bytes;
    reg wide; /* all of it is inside, and aligned */
    reg rest; /* some of it is inside, but it is not wide */
} run_state;

typedef struct runs {
    transfer *t;
    const access_plan *plan;
    reg at, limit;
    bool is_wide; /* at and limit are %rd */
    run_state *run;
    reg aligned_pointer, aligned; /* of the run before: most have one pointer */
} runs;

static reg both(emitter *e, const char *operation, reg a, reg b) {
    reg out = tvm_new_pred(e);
    tvm_emit(e, "%s.pred %s, %s, %s;", operation, out.name, a.name, b.name);
    return out;
}

/* at + add, and a comparison of it. */
static reg moved(emitter *e, const runs *r, reg at, unsigned add) {
    if (add == 0) return at;
    reg out = r->is_wide ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_emit(e, "add.s%d %s, %s, %u;", r->is_wide ? 64 : 32, out.name, at.name, add);
    return out;
}

static reg compare(emitter *e, const runs *r, const char *how, char sign, reg at, const char *with) {
    reg out = tvm_new_pred(e);
    tvm_emit(e, "setp.%s.%c%d %s, %s, %s;", how, sign, r->is_wide ? 64 : 32, out.name, at.name, with);
    return out;
}

static reg find_aligned(emitter *e, runs *r, const run_state *run) {
    bool same = strcmp(r->aligned_pointer.name, run->pointer.name) == 0;
    if (same) return r->aligned;
    reg low = tvm_new_rd(e), rest = tvm_new_rd(e);
    r->aligned = tvm_new_pred(e);
    r->aligned_pointer = run->pointer;
    tvm_emit(e, "add.s64 %s, %s, %lld;", low.name, run->pointer.name, run->bytes);
    tvm_emit(e, "and.b64 %s, %s, %u;", rest.name, low.name, r->plan->widest / 8 - 1);
    tvm_emit(e, "setp.eq.s64 %s, %s, 0;", r->aligned.name, rest.name);
    return r->aligned;
}

static void test_run(emitter *e, runs *r, uint32_t i) {
    transfer *t = r->t;
    const access *a = &r->plan->accesses[i];
    run_state *run = &r->run[i];
    uint32_t coordinate[TVM_MAX_RANK];
    unsigned length = r->plan->widest / t->g.tile.bits;
    reg others;
    tvm_transfer_coordinate(t, t->map.class_first[a->class_id], coordinate);
    run->pointer = tvm_global_pointer(&t->g, coordinate);
    run->bytes = a->offset / 8;
    /* Registers may hold a run's elements in any order: the class's first local need not be its first
     * element. */
    run->first = moved(e, r, r->at, coordinate[last_of(t)] / length * length);
    reg last = moved(e, r, run->first, length - 1);
    /* Unsigned, what is negative is beyond every extent. */
    reg ends = compare(e, r, "lt", 'u', last, r->limit.name);
    reg begins = compare(e, r, "lt", 'u', run->first, r->limit.name);
    reg inside = both(e, "and", begins, ends);
    begins = compare(e, r, "lt", 's', run->first, r->limit.name);
    ends = compare(e, r, "ge", 's', last, "0");
    reg some = both(e, "and", ends, begins);
    /* The other dimensions. */
    t->g.tile.proven[t->g.tile.rank - 1] = true;
    if (tvm_global_predicate(&t->g, coordinate, &others)) {
        inside = both(e, "and", inside, others);
        some = both(e, "and", some, others);
    }
    t->g.tile.proven[t->g.tile.rank - 1] = false;
    reg narrow = tvm_new_pred(e);
    run->wide = both(e, "and", inside, find_aligned(e, r, run));
    tvm_emit(e, "not.pred %s, %s;", narrow.name, run->wide.name);
    run->rest = both(e, "and", some, narrow);
}

static tvm_status open_runs(emitter *e, transfer *t, const access_plan *plan, runs *r) {
    *r = (runs){.t = t, .plan = plan};
    r->run = calloc(plan->count, sizeof *r->run);
    if (!r->run) return tvm_diag_no_memory(e->k->diags);
    r->is_wide = tvm_global_last(&t->g, &r->at, &r->limit);
    for (uint32_t i = 0; i < plan->count; i++) test_run(e, r, i);
    return TVM_OK;
}

/* ---- the runs that are not wide ---- */

typedef void element_emitter(emitter *e, const runs *r, const reg units[4], unsigned element, reg inside,
                             const run_state *run);

/* What is not loaded stays: what wide ones have loaded, and the fill. */
static void load_element(emitter *e, const runs *r, const reg units[4], unsigned element, reg inside,
                         const run_state *run) {
    unsigned bits = r->t->g.tile.bits, bit = element * bits;
    const char *into = units[bit / 32].name;
    reg value = bits == 32 ? units[bit / 32] : tvm_new_r(e);
    tvm_emit(e, "@%s ld.global%s%s.%s %s, [%s+%lld]%s;", inside.name, r->t->hint.level1, r->t->hint.level2,
             tvm_access_type(bits), value.name, run->pointer.name, run->bytes + element * bits / 8,
             r->t->hint.policy);
    unsigned selector = 0, at = bit % 32 / 8;
    for (unsigned byte = 0; byte < 4; byte++)
        selector |= (byte >= at && byte < at + bits / 8 ? 4 + byte - at : byte) << (4 * byte);
    if (bits < 32)
        tvm_emit(e, "@%s prmt.b32 %s, %s, %s, 0x%04x;", inside.name, into, into, value.name, selector);
}

static void store_element(emitter *e, const runs *r, const reg units[4], unsigned element, reg inside,
                          const run_state *run) {
    unsigned bits = r->t->g.tile.bits, bit = element * bits;
    reg value = units[bit / 32];
    if (bit % 32 != 0) {
        value = tvm_new_r(e);
        tvm_emit(e, "shr.u32 %s, %s, %u;", value.name, units[bit / 32].name, bit % 32);
    }
    tvm_emit(e, "@%s st.global%s.%s [%s+%lld], %s%s;", inside.name, r->t->hint.level2, tvm_access_type(bits),
             run->pointer.name, run->bytes + element * bits / 8, value.name, r->t->hint.policy);
}

/* Jumps where no thread of the warp has the predicate. */
static void skip(emitter *e, reg wanted, uint32_t label) {
    reg any = tvm_new_pred(e);
    tvm_emit(e, "vote.sync.any.pred %s, %s, 0xffffffff;", any.name, wanted.name);
    tvm_emit(e, "@!%s bra $L%u;", any.name, label);
}

/* All wide ones have been started. Nothing that is computed here is used behind it. */
static void emit_rest(emitter *e, const runs *r, const reg (*units)[4], element_emitter *emit) {
    unsigned length = r->plan->widest / r->t->g.tile.bits;
    uint32_t done = tvm_new_label(e);
    reg any = r->run[0].rest;
    for (uint32_t i = 1; i < r->plan->count; i++) any = both(e, "or", any, r->run[i].rest);
    skip(e, any, done);
    for (uint32_t i = 0; i < r->plan->count; i++) {
        const run_state *run = &r->run[i];
        uint32_t next = tvm_new_label(e);
        skip(e, run->rest, next);
        for (unsigned k = 0; k < length; k++) {
            reg inside = compare(e, r, "lt", 'u', moved(e, r, run->first, k), r->limit.name);
            emit(e, r, units[i], k, both(e, "and", inside, run->rest), run);
        }
        tvm_text_add(&e->body, "$L%u:\n", next);
    }
    tvm_text_add(&e->body, "$L%u:\n", done);
}

static void explain_runs(emitter *e, const transfer *t, const access_plan *plan, const char *what) {
    char name[80];
    snprintf(name, sizeof name, "%s%s%s.%s, or by elements", what, what[0] == 'l' ? t->hint.level1 : "",
             t->hint.level2, tvm_access_type(plan->widest));
    tvm_explain(e, name, plan->widest, plan->count, -1, "");
}

tvm_status tvm_transfer_load_runs(emitter *e, transfer *t, const access_plan *plan) {
    runs r;
    char operands[64];
    tvm_status status = open_runs(e, t, plan, &r);
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan->count, sizeof *units);
    if (status == TVM_OK && (!started || !units)) status = tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++) {
        const access *a = &plan->accesses[i];
        tvm_access_load_registers(e, plan, a, t->slot, units[i]);
        for (uint32_t u = 0; u < a->units; u++) tvm_fill_unit(e, &t->fill, a->width, u, units[i][u]);
        tvm_emit(e, "@%s ld.global%s%s.%s %s, [%s+%lld]%s;", r.run[i].wide.name, t->hint.level1,
                 t->hint.level2, tvm_access_type(a->width), tvm_access_operands(units[i], a->units, operands),
                 r.run[i].pointer.name, r.run[i].bytes, t->hint.policy);
    }
    if (status == TVM_OK) {
        emit_rest(e, &r, units, load_element);
        for (uint32_t i = 0; i < plan->count; i++)
            tvm_access_spread(e, plan, &plan->accesses[i], t->slot, units[i], started);
        explain_runs(e, t, plan, "ld.global");
    }
    free(started);
    free(units);
    free(r.run);
    return status;
}

tvm_status tvm_transfer_store_runs(emitter *e, transfer *t, const access_plan *plan) {
    runs r;
    char operands[64];
    tvm_status status = open_runs(e, t, plan, &r);
    reg(*units)[4] = calloc(plan->count, sizeof *units);
    if (status == TVM_OK && !units) status = tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++) {
        const access *a = &plan->accesses[i];
        tvm_access_gather(e, plan, a, t->slot, units[i]);
        tvm_emit(e, "@%s st.global%s.%s [%s+%lld], %s%s;", r.run[i].wide.name, t->hint.level2,
                 tvm_access_type(a->width), r.run[i].pointer.name, r.run[i].bytes,
                 tvm_access_operands(units[i], a->units, operands), t->hint.policy);
    }
    if (status == TVM_OK) {
        emit_rest(e, &r, units, store_element);
        explain_runs(e, t, plan, "st.global");
    }
    free(units);
    free(r.run);
    return status;
}
