/* Scalars, as far as places in shared memory, mbarriers and conditions depend on them. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "pipeline.h"

enum { MOST_MODULUS = 1 << 16 };

prove_value tvm_prove_exact(int64_t v) {
    return (prove_value){.kind = PROVE_EXACT, .v = v};
}

static bool is_whole(tvm_dtype type) {
    return tvm_dtype_is_integer(type) || type.kind == TVM_KIND_BOOL;
}

/* ---- which ---- */

/* What accesses shared memory or orders what does; where a path ends. */
static bool matters(const prover *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    tvm_op_class class = tvm_insn_class(insn);
    if (class == TVM_CLASS_ORDER || class == TVM_CLASS_SECTION || class == TVM_CLASS_EXIT) return true;
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT &&
            tvm_slot_has_places(p->kernel->slots[operands[o].value].kind))
            return true;
    return false;
}

/* The instructions that bear on places, order and paths, and the scalars that these read. */
static bool find_bearing(prover *p) {
    const uint32_t count = p->kernel->insn_count;
    uint8_t *slots = calloc(p->kernel->slot_count + (size_t)1, 1);
    p->bears = calloc(count + (size_t)1, 1);
    bool made = slots && p->bears;
    for (uint32_t i = 0; made && i < count; i++) {
        p->bears[i] = matters(p, &p->kernel->insns[i]);
        tvm_prove_mark_indices(p, i, slots);
    }
    if (made) tvm_prove_close_over(p, 0, count, p->bears, slots);
    for (uint32_t s = p->kernel->param_count; made && s < p->kernel->slot_count; s++)
        if (slots[s] && is_whole(p->kernel->slots[s].dtype)) p->tracked[s] = (int32_t)p->scalar_count++;
    free(slots);
    return made;
}

/* Does the expression depend on a scalar that is kept? */
static bool reads_tracked(const prover *p, uint32_t expr) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT) return p->tracked[node->a] >= 0;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (reads_tracked(p, node->operands[i])) return true;
    return false;
}

static void widen(uint64_t *lcm, int64_t by) {
    if (by < 2 || by > MOST_MODULUS) return;
    uint64_t wide = *lcm / tvm_gcd(*lcm, (uint64_t)by) * (uint64_t)by;
    if (wide <= MOST_MODULUS) *lcm = wide;
}

/* The modulus of the classes: all that expressions divide by. */
static void find_modulus(prover *p) {
    uint64_t quotients = 1, rests = 1;
    for (uint32_t e = 0; e < p->kernel->expr_count; e++) {
        const tvm_expr *node = &p->kernel->exprs[e];
        if (tvm_expr_arity(node) != 2 || !is_whole(node->type) || !reads_tracked(p, e)) continue;
        const tvm_expr *by = &p->kernel->exprs[node->b];
        if (by->op != TVM_EXPR_INTEGER) continue;
        if (node->op == TVM_EXPR_MOD) widen(&rests, by->value.i);
        if (node->op == TVM_EXPR_DIV) widen(&quotients, by->value.i);
        if (node->op == TVM_EXPR_AND && by->value.i > 0 && !(by->value.i & (by->value.i + 1)))
            widen(&rests, by->value.i + 1);
    }
    p->modulus = (uint32_t)(quotients * rests <= MOST_MODULUS ? quotients * rests : rests);
}

bool tvm_prove_find_scalars(prover *p) {
    p->tracked = malloc((p->kernel->slot_count + (size_t)1) * sizeof *p->tracked);
    if (!p->tracked) return false;
    for (uint32_t s = 0; s < p->kernel->slot_count; s++) p->tracked[s] = -1;
    if (!find_bearing(p)) return false;
    p->scalars = calloc(p->scalar_count + (size_t)1, sizeof *p->scalars);
    if (!p->scalars) return false;
    for (uint32_t s = 0; s < p->kernel->slot_count; s++)
        if (p->tracked[s] >= 0) p->scalars[p->tracked[s]].slot = s;
    find_modulus(p);
    return true;
}

/* ---- values ---- */

static int64_t type_max(tvm_dtype type) {
    unsigned bits = type.bits > 63 ? 63 : type.kind == TVM_KIND_UINT ? type.bits : type.bits - 1u;
    return bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1;
}

/* Of a class with a number: what does not wrap. */
static prove_value of_class(const tvm_expr *node, prove_value a, prove_value b) {
    const prove_value none = {0};
    if (a.kind != PROVE_CLASS && (node->op == TVM_EXPR_ADD || node->op == TVM_EXPR_MUL)) {
        prove_value swap = a;
        a = b;
        b = swap;
    }
    if (a.kind != PROVE_CLASS || b.kind != PROVE_EXACT || b.v < 0 || b.v > MOST_MODULUS) return none;
    prove_value value = a;
    switch (node->op) {
    case TVM_EXPR_ADD:
        if (a.high > type_max(node->type) - b.v) return none;
        value.high += b.v;
        value.v = (a.v + b.v) % a.modulus;
        return value;
    case TVM_EXPR_MUL:
        if (b.v == 0 || a.high > type_max(node->type) / b.v) return none;
        if (a.modulus > MOST_MODULUS / b.v) value.v = 0, value.modulus = 1;
        value.high *= b.v;
        value.v *= b.v;
        value.modulus *= (uint32_t)b.v;
        return value;
    case TVM_EXPR_DIV:
        if (b.v == 0 || a.modulus % b.v) return none;
        value.high /= b.v;
        value.v /= b.v;
        value.modulus /= (uint32_t)b.v;
        return value;
    case TVM_EXPR_MOD:
        return b.v != 0 && a.modulus % b.v == 0 ? tvm_prove_exact(a.v % b.v) : none;
    case TVM_EXPR_AND:
        return (b.v & (b.v + 1)) == 0 && a.modulus % (b.v + 1) == 0 ? tvm_prove_exact(a.v % (b.v + 1)) : none;
    default:
        return none;
    }
}

static prove_value of_operands(const prover *p, const tvm_expr *node, const prove_value *values,
                               unsigned arity) {
    const prove_value none = {0};
    tvm_scalar operands[3] = {{0}, {0}, {0}}, result;
    bool exact = true;
    for (unsigned i = 0; i < arity; i++) {
        exact = exact && values[i].kind == PROVE_EXACT;
        operands[i].i = values[i].v;
    }
    tvm_dtype type = p->kernel->exprs[node->a].type;
    if (!is_whole(node->type) || !is_whole(type)) return none;
    if (exact)
        return tvm_expr_apply(node, type, operands, &result, NULL) == TVM_OK ? tvm_prove_exact(result.i)
                                                                             : none;
    if (node->op == TVM_EXPR_CAST && values[0].kind == PROVE_CLASS && values[0].high <= type_max(node->type))
        return values[0];
    return arity == 2 ? of_class(node, values[0], values[1]) : none;
}

static prove_value lazily(const prover *p, const prove_state *state, const tvm_expr *node) {
    prove_value first = tvm_prove_eval(p, state, node->a);
    if (node->op == TVM_EXPR_SELECT) {
        if (first.kind == PROVE_EXACT) return tvm_prove_eval(p, state, first.v ? node->b : node->c);
        prove_value a = tvm_prove_eval(p, state, node->b), b = tvm_prove_eval(p, state, node->c);
        return memcmp(&a, &b, sizeof a) == 0 ? a : (prove_value){0};
    }
    bool ends = node->op == TVM_EXPR_LOR; /* which value of an operand decides */
    if (first.kind == PROVE_EXACT && (first.v != 0) == ends) return tvm_prove_exact(ends);
    prove_value second = tvm_prove_eval(p, state, node->b);
    if (second.kind == PROVE_EXACT && ((second.v != 0) == ends || first.kind == PROVE_EXACT))
        return tvm_prove_exact(second.v != 0);
    return (prove_value){0};
}

prove_value tvm_prove_eval(const prover *p, const prove_state *state, uint32_t expr) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return tvm_prove_exact(node->value.i);
    case TVM_EXPR_SLOT:
        return p->tracked[node->a] >= 0 ? state->values[p->tracked[node->a]] : (prove_value){0};
    case TVM_EXPR_LAND:
    case TVM_EXPR_LOR:
    case TVM_EXPR_SELECT:
        return lazily(p, state, node);
    default:
        break;
    }
    prove_value values[3];
    unsigned arity = tvm_expr_arity(node);
    if (arity == 0) return (prove_value){0};
    for (unsigned i = 0; i < arity; i++) values[i] = tvm_prove_eval(p, state, node->operands[i]);
    return of_operands(p, node, values, arity);
}

/* ---- assignment ---- */

/* A scalar that has many values is known less well from here on; the walk begins again. */
static void note(prover *p, prove_scalar *scalar, int64_t v) {
    for (uint32_t i = 0; i < scalar->seen_count; i++)
        if (scalar->seen[i] == v) return;
    if (scalar->seen_count < PROVE_VALUES) {
        scalar->seen[scalar->seen_count++] = v;
        return;
    }
    scalar->mode++;
    scalar->seen_count = 0;
    p->restart = true;
}

void tvm_prove_assign(prover *p, prove_state *state, uint32_t slot, prove_value value) {
    if (p->tracked[slot] < 0) return;
    prove_scalar *scalar = &p->scalars[p->tracked[slot]];
    if (scalar->mode == PROVE_NOTHING || (scalar->mode == PROVE_SIGNS && value.kind == PROVE_EXACT))
        value = (prove_value){0};
    if (value.kind != PROVE_ANY) note(p, scalar, value.v);
    state->values[p->tracked[slot]] = value;
}

/* What an equation with a number says of a scalar; of several conditions each. */
static void learn(prover *p, prove_state *state, uint32_t expr) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_LAND) {
        learn(p, state, node->a);
        learn(p, state, node->b);
    }
    if (node->op != TVM_EXPR_EQ) return;
    const tvm_expr *a = &p->kernel->exprs[node->a], *b = &p->kernel->exprs[node->b];
    if (a->op == TVM_EXPR_SLOT && b->op == TVM_EXPR_INTEGER && is_whole(a->type))
        tvm_prove_assign(p, state, a->a, tvm_prove_exact(b->value.i));
}

bool tvm_prove_learn(prover *p, prove_state *state, const tvm_insn *insn) {
    const uint32_t expr = tvm_operands(p->kernel, insn)[0].value;
    const prove_value is = tvm_prove_eval(p, state, expr);
    if (is.kind == PROVE_EXACT) return is.v != 0;
    learn(p, state, expr);
    return true;
}

/* ---- loops ---- */

static int64_t type_min(tvm_dtype type) {
    return type.kind == TVM_KIND_INT ? -type_max(type) - 1 : 0;
}

const tvm_insn *tvm_prove_definition(const prover *p, uint32_t slot) {
    const tvm_insn *only = NULL;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        if (p->kernel->insns[i].result != slot) continue;
        if (only) return NULL;
        only = &p->kernel->insns[i];
    }
    return only;
}

static prove_range range_at(const prover *p, uint32_t expr, unsigned depth, bool *wraps);

static prove_range range_of_slot(const prover *p, uint32_t slot, unsigned depth, prove_range any) {
    const tvm_insn *insn = slot < p->kernel->param_count ? NULL : tvm_prove_definition(p, slot);
    bool wraps = false;
    if (!insn || (insn->op != TVM_OP_LET && insn->op != TVM_OP_FOR)) return any;
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    prove_range range = range_at(p, operands[0].value, depth + 1, &wraps);
    if (insn->op == TVM_OP_LET) return range;
    const tvm_expr *step = &p->kernel->exprs[operands[2].value];
    if (step->op != TVM_EXPR_INTEGER || step->value.i < 1) return any;
    prove_range end = range_at(p, operands[1].value, depth + 1, &wraps);
    return (prove_range){range.low, end.high - (end.high > INT64_MIN)}; /* while it goes on */
}

/* Of sums, differences and products; false: it is not one, or beyond 64 bits. */
static bool combine(uint8_t op, prove_range a, prove_range b, prove_range *out) {
    int64_t ends[4];
    bool beyond = false;
    for (unsigned i = 0; i < 4; i++) {
        int64_t x = i & 1 ? a.high : a.low, y = i & 2 ? b.high : b.low;
        beyond = beyond || (op == TVM_EXPR_ADD   ? __builtin_add_overflow(x, y, &ends[i])
                            : op == TVM_EXPR_SUB ? __builtin_sub_overflow(x, y, &ends[i])
                            : op == TVM_EXPR_MUL ? __builtin_mul_overflow(x, y, &ends[i])
                                                 : true);
    }
    if (beyond) return false;
    *out = (prove_range){ends[0], ends[0]};
    for (unsigned i = 1; i < 4; i++) {
        if (ends[i] < out->low) out->low = ends[i];
        if (ends[i] > out->high) out->high = ends[i];
    }
    return true;
}

/* Of a number divided by a positive one. */
static prove_range divided(const tvm_expr *node, prove_range a, int64_t by, prove_range any) {
    if (node->op == TVM_EXPR_MOD)
        return a.low >= 0 ? (prove_range){0, by - 1} : (prove_range){1 - by, by - 1};
    if (node->op == TVM_EXPR_DIV) return (prove_range){a.low / by, a.high / by};
    bool wraps = a.high > any.high - (by - 1);
    if (a.low < 0) return any;
    return (prove_range){wraps ? any.low : a.low / by, a.high / by + (a.high % by != 0)};
}

static prove_range range_at(const prover *p, uint32_t expr, unsigned depth, bool *wraps) {
    enum { MOST_DEPTH = 12 };
    const tvm_expr *node = &p->kernel->exprs[expr];
    const bool wide = node->type.kind == TVM_KIND_UINT && node->type.bits > 63; /* not all are an int64_t */
    const prove_range any = {wide ? INT64_MIN : type_min(node->type), type_max(node->type)};
    prove_range a, b, range;
    *wraps = *wraps || wide;
    if (depth > MOST_DEPTH || !is_whole(node->type)) return any;
    if (node->op == TVM_EXPR_INTEGER) return (prove_range){node->value.i, node->value.i};
    if (node->op == TVM_EXPR_SLOT) return range_of_slot(p, node->a, depth, any);
    if (tvm_expr_arity(node) != 2 || !is_whole(p->kernel->exprs[node->a].type)) return any;
    a = range_at(p, node->a, depth + 1, wraps);
    b = range_at(p, node->b, depth + 1, wraps);
    switch (node->op) {
    case TVM_EXPR_MIN:
        return (prove_range){a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high};
    case TVM_EXPR_MAX:
        return (prove_range){a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
    case TVM_EXPR_DIV:
    case TVM_EXPR_CDIV:
    case TVM_EXPR_MOD:
        return b.low == b.high && b.low > 0 ? divided(node, a, b.low, any) : any;
    default:
        if (combine(node->op, a, b, &range) && range.low >= any.low && range.high <= any.high) return range;
        *wraps = true;
        return any;
    }
}

prove_range tvm_prove_range(const prover *p, uint32_t expr) {
    bool wraps = false;
    return range_at(p, expr, 0, &wraps);
}

bool tvm_prove_is_whole(const prover *p, uint32_t expr) {
    bool wraps = false;
    range_at(p, expr, 0, &wraps);
    return !wraps;
}

static prove_value to_class(const prover *p, prove_value value, const tvm_insn *loop) {
    prove_mode mode = p->scalars[p->tracked[loop->result]].mode;
    uint32_t modulus = mode == PROVE_SIGNS ? 1 : p->modulus;
    if (value.kind != PROVE_EXACT || value.v < 0) return (prove_value){0};
    return (prove_value){.kind = PROVE_CLASS,
                         .v = value.v % modulus,
                         .modulus = modulus,
                         .high = tvm_prove_range(p, tvm_operands(p->kernel, loop)[1].value).high};
}

/* Its end is a constant, so that its turns can be counted. */
static bool is_counted(const prover *p, const tvm_insn *loop) {
    return p->kernel->exprs[tvm_operands(p->kernel, loop)[1].value].op == TVM_EXPR_INTEGER;
}

static bool has_classes(const prover *p, const tvm_insn *loop) {
    return !is_counted(p, loop) || p->scalars[p->tracked[loop->result]].mode != PROVE_NUMBERS;
}

prove_value tvm_prove_first_turn(const prover *p, const prove_state *state, const tvm_insn *loop) {
    if (p->tracked[loop->result] < 0) return (prove_value){0};
    prove_value start = tvm_prove_eval(p, state, tvm_operands(p->kernel, loop)[0].value);
    if (!has_classes(p, loop)) return start.kind == PROVE_EXACT ? start : (prove_value){0};
    return to_class(p, start, loop);
}

prove_value tvm_prove_next_turn(const prover *p, const prove_state *state, const tvm_insn *loop) {
    if (p->tracked[loop->result] < 0) return (prove_value){0};
    prove_value before = state->values[p->tracked[loop->result]];
    const tvm_expr *step = &p->kernel->exprs[tvm_operands(p->kernel, loop)[2].value];
    if (step->op != TVM_EXPR_INTEGER || step->value.i < 1 || step->value.i > INT32_MAX)
        return (prove_value){0};
    if (before.kind == PROVE_EXACT && before.v > INT32_MAX) return (prove_value){0};
    if (before.kind == PROVE_EXACT) before.v += step->value.i;
    if (before.kind == PROVE_CLASS) before.v = (before.v + step->value.i) % before.modulus;
    return before;
}

int tvm_prove_goes_on(const prover *p, const prove_state *state, const tvm_insn *loop) {
    if (loop->op == TVM_OP_WHILE) {
        prove_value condition = tvm_prove_eval(p, state, tvm_operands(p->kernel, loop)[0].value);
        return condition.kind == PROVE_EXACT ? condition.v != 0 : -1;
    }
    if (p->tracked[loop->result] < 0 || !is_counted(p, loop)) return -1;
    prove_value variable = state->values[p->tracked[loop->result]];
    int64_t end = p->kernel->exprs[tvm_operands(p->kernel, loop)[1].value].value.i;
    return variable.kind == PROVE_EXACT && variable.v >= 0 && end >= 0 ? variable.v < end : -1;
}
