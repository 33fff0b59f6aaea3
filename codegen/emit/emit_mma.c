/* mma: one mma.sync a tile of c and step of k, k ascending, so that every output is accumulated in that
 * order; all tiles of c before the next k, so that neighbouring instructions do not wait for each other. The
 * first step of k reads c where it is: where that is known to be zero, ptxas reads the zero register. Two mma
 * of the same a, the second of which adds to the first's result, go through k together. Fragments: PTX ISA,
 * "Matrix Fragments for mma.m16n8k16 with floating point type", and those of m16n8k8 and m16n8k32. Types
 * whose registers are not whole words of the fragments are emit_mma_elements.c's, small floats in any mix,
 * and scales, emit_mma_mixed.c's. */
#include <stdlib.h>

#include "compute.h"
#include "emit_mma_elements.h"
#include "emit_mma_mixed.h"
#include "groups.h"
#include "kernel.h"
#include "mma_operands.h"
#include "mma_text.h"
#include "scaled_sums.h"

enum { TEXT = TVM_MMA_TEXT };

typedef struct mma_tile {
    uint32_t a, b, c, result;        /* slots */
    uint32_t tile_a, tile_b, tile_c; /* tile_c: also of the result */
} mma_tile;

/* "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" */
static const char *opcode(const tvm_mma_types *types, char text[TEXT]) {
    const char *c = tvm_mma_type_name(types->c);
    snprintf(text, TEXT, "mma.sync.aligned.m16n8k%u.row.col.%s.%s.%s.%s", types->atoms->k, c,
             tvm_mma_type_name(types->a), tvm_mma_type_name(types->b), c);
    return text;
}

static void emit_tile(emitter *e, const mma_operands *o, const mma_tile *t) {
    char name[TEXT], a[TEXT], b[TEXT], c[TEXT], d[TEXT];
    tvm_emit(e, "%s %s, %s, %s, %s;", opcode(o->mma.types, name),
             tvm_mma_words(e, t->result, t->tile_c * o->words_c, o->words_c, d),
             tvm_mma_words(e, t->a, t->tile_a * o->words_a, o->words_a, a),
             tvm_mma_words(e, t->b, t->tile_b * o->words_b, o->words_b, b),
             tvm_mma_words(e, t->c, t->tile_c * o->words_c, o->words_c, c));
}

/* ---- what scaled weights have not had subtracted: scaled.h ---- */

enum { SUMS = 4 };

/* For a fragment of b at the first step of k, the columns' sums over k: a row of ones times b. */
typedef struct column_sums {
    uint32_t tile_b; /* at step 0 */
    reg sums[SUMS];
} column_sums;

static void add_ones(emitter *e, const mma_operands *o, uint32_t slot_b, uint32_t tile_b, reg sums[SUMS],
                     bool first) {
    reg one = tvm_constant_word(e, 0x3c003c00), zero = tvm_pure(e, 'r', "mov.b32 $, 0;"), c[SUMS];
    char name[TEXT], b[TEXT];
    for (unsigned i = 0; i < SUMS; i++) {
        c[i] = first ? zero : sums[i];
        if (first) sums[i] = tvm_new_r(e);
    }
    tvm_emit(e, "%s {%s, %s, %s, %s}, {%s, %s, %s, %s}, %s, {%s, %s, %s, %s};", opcode(o->mma.types, name),
             sums[0].name, sums[1].name, sums[2].name, sums[3].name, one.name, one.name, one.name, one.name,
             tvm_mma_words(e, slot_b, tile_b * o->words_b, o->words_b, b), c[0].name, c[1].name, c[2].name,
             c[3].name);
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
static void step_columns(emitter *e, const mma_operands *o, const mma_tile *t, uint32_t k, column_sums *all,
                         const uint32_t *entry) {
    uint32_t done = 0;
    for (uint32_t c = 0; c < o->plan.tiles_c; c++) {
        uint32_t tile_a, tile_b;
        if (entry[c] != done) continue; /* entries are numbered as they first appear */
        tvm_mma_tile(&o->plan, c, k, &tile_a, &tile_b);
        add_ones(e, o, t->b, tile_b, all[done++].sums, k == 0);
    }
}

/* ---- the instruction ---- */

static void emit_products(emitter *e, const mma_operands *o, mma_tile *t, uint32_t c, uint32_t k) {
    t->c = k == 0 ? c : t->result;
    for (t->tile_c = 0; t->tile_c < o->plan.tiles_c; t->tile_c++) {
        tvm_mma_tile(&o->plan, t->tile_c, k, &t->tile_a, &t->tile_b);
        emit_tile(e, o, t);
    }
}

static bool emit_with_columns(emitter *e, const mma_operands *o, mma_tile *t) {
    const tvm_mma_plan *plan = &o->plan;
    column_sums *all = calloc(plan->tiles_c, sizeof *all);
    uint32_t *entry = calloc(plan->tiles_c, sizeof *entry);
    bool fits = all && entry;
    if (fits) {
        plan_columns(plan, all, entry);
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            step_columns(e, o, t, k, all, entry);
            emit_products(e, o, t, o->mma.c, k);
        }
        if (e->k->slots[t->a].scaled.nested) tvm_subtract_nested(e, t->result, plan);
        for (uint32_t i = 0; i < plan->tiles_c; i++) tvm_subtract_zero(e, t->result, i, all[entry[i]].sums);
    }
    free(all);
    free(entry);
    return fits;
}

static void emit_both(emitter *e, const mma_operands *o, mma_tile *t, const tvm_insn *next) {
    mma_tile second = *t;
    second.b = tvm_mma_operands_of(e->k, next)->b;
    t->result = second.result = next->result;
    for (uint32_t k = 0; k < o->plan.tiles_k; k++) {
        emit_products(e, o, t, o->mma.c, k);
        emit_products(e, o, &second, second.result, k);
    }
}

/* What lies in shared memory goes to registers first. */
static tvm_status load_operand(emitter *e, const mma_operands *o, const tvm_mma_source *source,
                               const tvm_layout *tile, uint32_t slot) {
    char target[16];
    if (!source->is_shared) return TVM_OK;
    if (!source->is_spread) return tvm_emit_load_tile(e, source->tensor, tile, slot);
    if (tvm_mma_mixed_fits(e, o))
        return tvm_emit_load_spread(e, source->tensor, tile, slot, source->type.bits);
    return tvm_emit_error(e, TVM_UNSUPPORTED, "'.assume has(mma_f8f6f4)' leaves the kernel out there",
                          "%s has no mma of elements that are spread over bytes",
                          tvm_target_name(e->k->target, target));
}

static tvm_status load_operands(emitter *e, const mma_operands *o) {
    tvm_status status = load_operand(e, o, &o->mma.a, &o->tile_a, o->a);
    return status == TVM_OK ? load_operand(e, o, &o->mma.b, &o->tile_b, o->b) : status;
}

static bool is_f8(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits == 8;
}

/* Where tensor cores have no products of f8 by mma.sync, on sm_90 and sm_100, ptxas makes them of f16;
 * ptxas 13.0 then takes other bits than a register's upper half where it comes to know late that the register
 * is constant, as of a load whose condition never holds. */
static void hide_operands(emitter *e, const mma_operands *o) {
    bool through_f16 = !tvm_target_has(e->k->target, TVM_HAS_MMA_F8_CORES);
    if (!is_f8(o->mma.types->a) || !through_f16) return;
    if (!o->mma.a.is_shared) tvm_hide_constants(e, o->a);
    if (!o->mma.b.is_shared) tvm_hide_constants(e, o->b);
}

static tvm_status emit_words(emitter *e, const tvm_insn *insn, const mma_operands *o) {
    mma_tile t = {.a = o->a, .b = o->b, .result = insn->result};
    const scaled_weights *scaled = &e->k->slots[t.a].scaled;
    bool columns = scaled->is_scaled && scaled->zero != 0;
    const tvm_insn *next = tvm_group_next(e->k, insn);
    hide_operands(e, o);
    if (next) {
        hide_operands(e, tvm_mma_operands_of(e->k, next));
        emit_both(e, o, &t, next);
    } else if (!columns) {
        for (uint32_t k = 0; k < o->plan.tiles_k; k++) emit_products(e, o, &t, o->mma.c, k);
        if (scaled->nested) tvm_subtract_nested(e, t.result, &o->plan);
    } else if (!emit_with_columns(e, o, &t)) {
        return tvm_diag_no_memory(e->k->diags);
    }
    const tvm_mma_types *types = o->mma.types;
    if (is_f8(types->a)) e->ptx_version = 84;
    bool mixed = !tvm_dtype_same(types->a, types->b);
    char name[96];
    snprintf(name, sizeof name, "mma.sync.m16n8k%u.%s.%s%s%s%s", types->atoms->k, tvm_mma_type_name(types->c),
             tvm_mma_type_name(types->a), mixed ? "." : "", mixed ? tvm_mma_type_name(types->b) : "",
             columns ? " and a row of ones" : "");
    tvm_explain(e, name, 0, o->plan.tiles_c * o->plan.tiles_k, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_MMA(emitter *e, const tvm_insn *insn) {
    const mma_operands *o = tvm_mma_operands_of(e->k, insn);
    tvm_status status = load_operands(e, o);
    if (status != TVM_OK) return status;
    if (tvm_mma_is_mixed(&o->mma) && tvm_mma_mixed_fits(e, o)) return tvm_emit_mma_mixed(e, insn, o);
    if (o->mma.scaling) return tvm_emit_mma_scaled(e, insn, o);
    return tvm_mma_is_of_words(e->k, o) ? emit_words(e, insn, o) : tvm_emit_mma_elements(e, insn, o);
}
