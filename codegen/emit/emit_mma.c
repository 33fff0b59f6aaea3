/* mma: one mma.sync.m16n8k16 a tile of c and step of k, k ascending, so that every output is accumulated in
 * that order; all tiles of c before the next k, so that neighbouring instructions do not wait for each other.
 * The first step of k reads c where it is: where that is known to be zero, ptxas reads the zero register.
 * Two mma of the same a, the second of which adds to the first's result, go through k together.
 * Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". */
#include <stdlib.h>

#include "compute.h"
#include "groups.h"
#include "mma_operands.h"
#include "scaled.h"

enum { WORDS_A = 4, WORDS_B = 2, WORDS_C = 4 };

typedef struct mma_tile {
    uint32_t a, b, c, result;        /* slots */
    uint32_t tile_a, tile_b, tile_c; /* tile_c: also of the result */
} mma_tile;

static void emit_tile(emitter *e, const char *type, const mma_tile *t) {
    reg a[WORDS_A], b[WORDS_B], c[WORDS_C], d[WORDS_C];
    for (unsigned i = 0; i < WORDS_A; i++) a[i] = tvm_slot_word(e, t->a, t->tile_a * WORDS_A + i);
    for (unsigned i = 0; i < WORDS_B; i++) b[i] = tvm_slot_word(e, t->b, t->tile_b * WORDS_B + i);
    for (unsigned i = 0; i < WORDS_C; i++) c[i] = tvm_slot_word(e, t->c, t->tile_c * WORDS_C + i);
    for (unsigned i = 0; i < WORDS_C; i++) d[i] = tvm_slot_word(e, t->result, t->tile_c * WORDS_C + i);
    tvm_emit(e,
             "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
             "{%s, %s, %s, %s};",
             type, type, d[0].name, d[1].name, d[2].name, d[3].name, a[0].name, a[1].name, a[2].name,
             a[3].name, b[0].name, b[1].name, c[0].name, c[1].name, c[2].name, c[3].name);
}

/* ---- what scaled weights have not had subtracted: scaled.h ---- */

/* For a fragment of b at the first step of k, the columns' sums over k: a row of ones times b. */
typedef struct column_sums {
    uint32_t tile_b; /* at step 0 */
    reg sums[WORDS_C];
} column_sums;

static void add_ones(emitter *e, const char *type, uint32_t slot_b, uint32_t tile_b, reg sums[WORDS_C],
                     bool first) {
    reg one = tvm_constant_word(e, 0x3c003c00), zero = tvm_pure(e, 'r', "mov.b32 $, 0;");
    reg b[WORDS_B], c[WORDS_C];
    for (unsigned i = 0; i < WORDS_B; i++) b[i] = tvm_slot_word(e, slot_b, tile_b * WORDS_B + i);
    for (unsigned i = 0; i < WORDS_C; i++) {
        c[i] = first ? zero : sums[i];
        if (first) sums[i] = tvm_new_r(e);
    }
    tvm_emit(e,
             "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
             "{%s, %s, %s, %s};",
             type, type, sums[0].name, sums[1].name, sums[2].name, sums[3].name, one.name, one.name, one.name,
             one.name, b[0].name, b[1].name, c[0].name, c[1].name, c[2].name, c[3].name);
}

/* entry[tile_c] becomes the place in `all` of each tile of c. */
static void plan_columns(const tvm_mma_plan *plan, column_sums *all, uint32_t *entry) {
    uint32_t count = 0;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b, i = 0;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        while (i < count && all[i].tile_b != tile_b) i++;
        entry[c] = i;
        if (i == count) all[count++].tile_b = tile_b;
    }
}

/* Before the products of step k, the column sums of that step. */
static void step_columns(emitter *e, const char *type, const mma_tile *t, const tvm_mma_plan *plan,
                         uint32_t k, column_sums *all, const uint32_t *entry) {
    uint32_t done = 0;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        if (entry[c] != done) continue; /* entries are numbered as they first appear */
        tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
        add_ones(e, type, t->b, tile_b, all[done++].sums, k == 0);
    }
}

/* ---- the instruction ---- */

static void emit_products(emitter *e, const char *type, mma_tile *t, const tvm_mma_plan *plan, uint32_t c,
                          uint32_t k) {
    t->c = k == 0 ? c : t->result;
    for (t->tile_c = 0; t->tile_c < plan->tiles_c; t->tile_c++) {
        tvm_mma_tile(plan, t->tile_c, k, &t->tile_a, &t->tile_b);
        emit_tile(e, type, t);
    }
}

static bool emit_with_columns(emitter *e, const char *type, mma_tile *t, const tvm_mma_plan *plan,
                              uint32_t c) {
    column_sums *all = calloc(plan->tiles_c, sizeof *all);
    uint32_t *entry = calloc(plan->tiles_c, sizeof *entry);
    bool fits = all && entry;
    if (fits) {
        plan_columns(plan, all, entry);
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            step_columns(e, type, t, plan, k, all, entry);
            emit_products(e, type, t, plan, c, k);
        }
        if (e->slots[t->a].scaled.nested) tvm_subtract_nested(e, t->result, plan);
        for (uint32_t i = 0; i < plan->tiles_c; i++) tvm_subtract_zero(e, t->result, i, all[entry[i]].sums);
    }
    free(all);
    free(entry);
    return fits;
}

static void emit_both(emitter *e, const char *type, mma_tile *t, const tvm_mma_plan *plan, uint32_t c,
                      const tvm_insn *next) {
    mma_tile second = *t;
    second.b = tvm_mma_operands_of(e, next)->b;
    t->result = second.result = next->result;
    for (uint32_t k = 0; k < plan->tiles_k; k++) {
        emit_products(e, type, t, plan, c, k);
        emit_products(e, type, &second, plan, second.result, k);
    }
}

/* What lies in shared memory goes to registers first. */
static tvm_status load_operands(emitter *e, const mma_operands *o) {
    tvm_status status = TVM_OK;
    if (o->mma.a.is_shared) status = tvm_emit_load_tile(e, o->mma.a.tensor, &o->tile_a, o->a);
    if (o->mma.b.is_shared && status == TVM_OK)
        status = tvm_emit_load_tile(e, o->mma.b.tensor, &o->tile_b, o->b);
    return status;
}

tvm_status tvm_emit_MMA(emitter *e, const tvm_insn *insn) {
    const mma_operands *o = tvm_mma_operands_of(e, insn);
    const tvm_mma_plan *plan = &o->plan;
    mma_tile t = {.a = o->a, .b = o->b, .result = insn->result};
    uint32_t c = o->mma.c;
    tvm_status status = load_operands(e, o);
    if (status != TVM_OK) return status;
    const char *type = tvm_slot_dtype(e, t.a).exponent == 5 ? "f16" : "bf16";
    const scaled_weights *scaled = &e->slots[t.a].scaled;
    bool columns = scaled->is_scaled && scaled->zero != 0;
    const tvm_insn *next = tvm_group_next(e, insn);
    if (next) {
        emit_both(e, type, &t, plan, c, next);
    } else if (!columns) {
        for (uint32_t k = 0; k < plan->tiles_k; k++) emit_products(e, type, &t, plan, c, k);
        if (scaled->nested) tvm_subtract_nested(e, t.result, plan);
    } else if (!emit_with_columns(e, type, &t, plan, c)) {
        return tvm_diag_no_memory(e->diags);
    }
    char name[64];
    snprintf(name, sizeof name, "mma.sync.m16n8k16.f32.%s%s", type, columns ? " and a row of ones" : "");
    tvm_explain(e, name, 0, plan->tiles_c * plan->tiles_k, -1, "");
    return TVM_OK;
}
