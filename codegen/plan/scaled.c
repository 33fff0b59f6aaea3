/* Finds the conversions whose last step can be left to mma's sums: see scaled.h. */
#include "scaled.h"

#include <math.h>

#include "convert.h"
#include "mma_operands.h"
#include "packed_constant.h"
#include "packing.h"
#include "uses.h"
#include "wgmma.h"

/* ---- the sums' readers ---- */

/* What a product can be rid of the power with: a scalar constant would do as well, but is of no use. */
static bool is_group_scale(const kernel_state *k, const tvm_operand *operand) {
    if (operand->kind != TVM_OPERAND_SLOT) return false;
    const tvm_insn *insn = tvm_slot_definition(k, operand->value);
    return insn && insn->op == TVM_OP_CAST && tvm_dtype_same(tvm_slot_dtype(k, operand->value), TVM_F32) &&
           tvm_dtype_same(tvm_slot_dtype(k, tvm_operands(k->kernel, insn)[0].value), TVM_F16);
}

static bool is_slot(const tvm_operand *operand, uint32_t slot) {
    return operand->kind == TVM_OPERAND_SLOT && operand->value == slot;
}

static bool multiplies(const kernel_state *k, const tvm_insn *insn, uint32_t sums) {
    if (insn->op != TVM_OP_FMA && insn->op != TVM_OP_MUL) return false;
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    unsigned at = is_slot(&operands[1], sums);
    if (!is_slot(&operands[at], sums) || !is_group_scale(k, &operands[1 - at])) return false;
    return insn->op == TVM_OP_MUL || !is_slot(&operands[2], sums);
}

enum { VIEWS = 4 }; /* of views */

static bool sums_are_multiplied(const kernel_state *k, uint32_t sums, unsigned depth) {
    const slot_use *use = &k->uses->slots[sums];
    if (use->assigned != 1 || depth == VIEWS) return false;
    for (uint32_t i = 0; i < use->count; i++) {
        const tvm_insn *insn = tvm_slot_reader(k, sums, i);
        if (insn->op == TVM_OP_VIEW && tvm_dtype_same(tvm_slot_dtype(k, insn->result), TVM_F32)) {
            if (!sums_are_multiplied(k, insn->result, depth + 1)) return false;
        } else if (!multiplies(k, insn, sums)) {
            return false;
        }
    }
    return true;
}

static void mark_sums(kernel_state *k, uint32_t sums, const scaled_weights *scaled) {
    const slot_use *use = &k->uses->slots[sums];
    k->slots[sums].scaled = *scaled;
    for (uint32_t i = 0; i < use->count; i++)
        if (tvm_slot_reader(k, sums, i)->op == TVM_OP_VIEW)
            mark_sums(k, tvm_slot_reader(k, sums, i)->result, scaled);
}

/* ---- the mma ---- */

/* The row of ones costs an mma for each fragment of b, or one wgmma a step of k; it saves an addition for
 * each word of a, and costs an FMA for each sum. */
static bool ones_pay(const kernel_state *k, const tvm_insn *mma) {
    enum { FEW = 2 }; /* eights of columns */
    const mma_operands *o = tvm_mma_operands_of(k, mma);
    uint32_t fragments_a = tvm_layout_locals(tvm_slot_layout(k, o->a)) / 8;
    uint32_t fragments_b = tvm_layout_locals(tvm_slot_layout(k, o->b)) / 4;
    uint32_t columns = tvm_wgmma_columns(k, mma);
    return columns ? columns <= FEW : fragments_a >= 4 * fragments_b;
}

/* Do the classes fill a byte, so that the upper bytes are one view for all of them? */
static bool fills_byte(tvm_dtype from, const scaled_weights *scaled) {
    return scaled->classes > 1 && scaled->classes * from.bits == 8;
}

/* Where wgmma runs beside conversions, integers whose classes do not fill a byte are faster converted to the
 * end: the last step is an addition of f16, and what it saves are shifts and ANDs, of which there are too
 * many as it is (bench/NOTES). */
static bool is_slower(const kernel_state *k, const tvm_insn *mma, tvm_dtype from,
                      const scaled_weights *scaled) {
    return tvm_dtype_is_integer(from) && !fills_byte(from, scaled) && tvm_wgmma_columns(k, mma) != 0;
}

/* Of each tile of c, its fragment of a modulo the period, which must be the same in all steps of k. */
static bool find_fragments(const kernel_state *k, const tvm_insn *mma, scaled_weights *scaled) {
    const tvm_mma_plan *plan = &tvm_mma_operands_of(k, mma)->plan;
    if (scaled->period == 1) return true;
    if (plan->tiles_c > SCALED_TILES) return false;
    for (uint32_t c = 0; c < plan->tiles_c; c++)
        for (uint32_t step = 0; step < plan->tiles_k; step++) {
            uint32_t tile_a, tile_b;
            tvm_mma_tile(plan, c, step, &tile_a, &tile_b);
            if (step == 0) scaled->fragment[c] = (uint8_t)(tile_a % scaled->period);
            if (scaled->fragment[c] != tile_a % scaled->period) return false;
        }
    return true;
}

/* Does the mma give the same, but for what the program allows? */
static bool is_legal(const kernel_state *k, const tvm_insn *insn, uint32_t weights, scaled_weights *scaled) {
    if (insn->op != TVM_OP_MMA) return false;
    const mma_operands *o = tvm_mma_operands_of(k, insn);
    if (o->a != weights || o->b == weights || o->mma.types->sums != TVM_MMA_F32) return false;
    if (!tvm_slot_is_zero(k, o->mma.c) || o->mma.c == insn->result) return false;
    if (scaled->zero != 0 && !o->mma.may_reassociate) return false;
    return find_fragments(k, insn, scaled) && sums_are_multiplied(k, insn->result, 0);
}

/* Is it faster there? */
static bool pays(const kernel_state *k, const tvm_insn *mma, tvm_dtype from, const scaled_weights *scaled) {
    return !is_slower(k, mma, from, scaled) && (scaled->zero == 0 || ones_pay(k, mma));
}

/* What a scaling is asked for. */
typedef enum scaling_test { LEGAL, LEGAL_AND_PAYS } scaling_test;

static bool takes_scaled(const kernel_state *k, const tvm_insn *insn, uint32_t weights, tvm_dtype from,
                         scaled_weights scaled, scaling_test test) {
    return is_legal(k, insn, weights, &scaled) && (test == LEGAL || pays(k, insn, from, &scaled));
}

static bool all_take(const kernel_state *k, uint32_t weights, tvm_dtype from, const scaled_weights *scaled,
                     scaling_test test) {
    for (uint32_t i = 0; i < k->uses->slots[weights].count; i++)
        if (!takes_scaled(k, tvm_slot_reader(k, weights, i), weights, from, *scaled, test)) return false;
    return true;
}

/* ---- powers ---- */

/* The last bit of a subnormal f16 is 2^-24. */
static void integer_classes(tvm_dtype from, unsigned period, scaled_weights *scaled) {
    enum { SUBNORMAL = 24 };
    scaled->period = (uint8_t)period;
    scaled->classes = (uint8_t)(2 * period * from.bits <= (unsigned)TVM_F16.mantissa ? 2 * period : 1);
    scaled->nested = fills_byte(from, scaled) && from.bits > 1;
    for (unsigned i = 0; i < scaled->classes; i++)
        scaled->power[i] = (int8_t)(SUBNORMAL - (int)(i * from.bits));
}

/* Whether the complement of the code is minus the value: scaled.h. */
static void count_lacking(tvm_dtype from, scaled_weights *scaled) {
    if (scaled->nested || scaled->zero != (1 << from.bits) - 1) return;
    scaled->lacking = true;
    scaled->zero = 0;
}

static bool float_power(tvm_dtype from, scaled_weights *scaled) {
    int power = tvm_pair_exponent(from);
    if (power == 0) return false;
    scaled->period = scaled->classes = 1;
    scaled->power[0] = (int8_t)power;
    return true;
}

static bool find_powers(const kernel_state *k, uint32_t weights, tvm_dtype from, scaled_weights *scaled,
                        scaling_test test) {
    if (!tvm_dtype_is_integer(from))
        return float_power(from, scaled) && all_take(k, weights, from, scaled, test);
    for (unsigned period = SCALED_CLASSES / 2; period > 0; period /= 2) {
        if (period > 1 && 2 * period * from.bits > (unsigned)TVM_F16.mantissa) continue;
        scaled_weights found = *scaled;
        integer_classes(from, period, &found);
        count_lacking(from, &found);
        if (!all_take(k, weights, from, &found, test)) continue;
        *scaled = found;
        return true;
    }
    return false;
}

/* ---- the pattern ---- */

/* A conversion, with the constant that it takes along. */
typedef struct conversion {
    uint32_t weights; /* its result */
    tvm_dtype from;
    double zero, scale;
} conversion;

static conversion conversion_of(const kernel_state *k, const group_match *g) {
    const tvm_insn *insn = &k->kernel->insns[g->first], *next = tvm_group_next(k, insn);
    conversion c = {.weights = next ? next->result : insn->result, .scale = 1};
    c.from = tvm_slot_dtype(k, tvm_operands(k->kernel, insn)->value);
    if (next) tvm_packed_constant(k, insn, next, &c.zero, &c.scale);
    return c;
}

/* With the zero point left to the sums if that can be, else taken off in the registers. */
static bool find_scaling(const kernel_state *k, const conversion *c, scaled_weights *scaled,
                         scaling_test test) {
    double zero = c->zero + tvm_packing_complement(TVM_PACKING_PAIR, c->from);
    *scaled = (scaled_weights){.is_scaled = true, .zero = zero};
    if (find_powers(k, c->weights, c->from, scaled, test)) return true;
    scaled->subtracted = zero; /* a whole number: tvm_packed_zero_is_exact */
    scaled->zero = 0;
    return fabs(zero) <= 1 << c->from.bits && find_powers(k, c->weights, c->from, scaled, test);
}

static bool is_read_by_mma(const kernel_state *k, uint32_t slot) {
    const slot_use *use = &k->uses->slots[slot];
    bool read = false;
    for (uint32_t i = 0; i < use->count; i++) read = read || tvm_slot_reader(k, slot, i)->op == TVM_OP_MMA;
    return read && use->assigned == 1;
}

bool tvm_scaled_matches(kernel_state *k, group_match *g) {
    const tvm_insn *insn = &k->kernel->insns[g->first];
    if (insn->op != TVM_OP_CAST && insn->op != TVM_OP_CAST_LOWBIT) return false;
    if (tvm_slot_packing(k, tvm_operands(k->kernel, insn)->value) != TVM_PACKING_PAIR) return false;
    conversion c = conversion_of(k, g);
    /* a scale is what the program takes back itself */
    return c.scale == 1 && tvm_dtype_same(tvm_slot_dtype(k, c.weights), TVM_F16) &&
           is_read_by_mma(k, c.weights);
}

const char *tvm_scaled_refuse(kernel_state *k, const group_match *g) {
    scaled_weights scaled;
    conversion c = conversion_of(k, g);
    if (!tvm_dtype_is_integer(c.from) && tvm_pair_exponent(c.from) == 0) return "nothing is left to do";
    return find_scaling(k, &c, &scaled, LEGAL) ? NULL
                                               : "not all that reads it gives sums that a scale multiplies";
}

const char *tvm_scaled_does_not_pay(kernel_state *k, const group_match *g) {
    scaled_weights scaled;
    conversion c = conversion_of(k, g);
    return find_scaling(k, &c, &scaled, LEGAL_AND_PAYS) ? NULL : "it costs more than it saves";
}

uint32_t tvm_scaled_take(kernel_state *k, const group_match *g) {
    scaled_weights scaled;
    conversion c = conversion_of(k, g);
    const slot_use *use = &k->uses->slots[c.weights];
    find_scaling(k, &c, &scaled, LEGAL_AND_PAYS);
    k->slots[c.weights].scaled = scaled;
    for (uint32_t i = 0; i < use->count; i++) {
        const tvm_insn *mma = tvm_slot_reader(k, c.weights, i);
        find_fragments(k, mma, &scaled);
        mark_sums(k, mma->result, &scaled);
    }
    return 0;
}

/* ---- classes ---- */

unsigned tvm_weight_class(const scaled_weights *scaled, unsigned pair) {
    return (2 * (pair / 4 % scaled->period) + pair % 2) % scaled->classes;
}

unsigned tvm_sum_class(const scaled_weights *scaled, uint32_t local) {
    unsigned fragment = scaled->period == 1 ? 0 : scaled->fragment[local / 4];
    return (2 * fragment + local % 4 / 2) % scaled->classes;
}

double tvm_sum_factor(const scaled_weights *scaled, uint32_t local) {
    return ldexp(scaled->lacking ? -1 : 1, scaled->power[tvm_sum_class(scaled, local)]);
}
