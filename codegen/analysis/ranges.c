/* Ranges of scalars, and which expressions are exact. Variables that are assigned again and again, such as
 * the stage of a ring, get theirs by induction: their ranges grow from nothing until every assignment keeps
 * inside of them. */
#include "ranges.h"

#include <stdlib.h>
#include <string.h>

#include "analysis.h"

enum {
    GROWING_PASSES = 24, /* then a range that still grows is given up */
    WIDEN_AFTER = 3,     /* passes; from then on a bound that grows goes on to the next constant */
    SHRINKING_PASSES = 4,
    LIMITS = 192, /* constants that bounds go on to */
    UNDER_DEPTH = 4
};

typedef struct range {
    int64_t low, high;
    bool fits; /* the bounds did not overflow */
} range;

static const range nothing_known = {0, 0, false};

void tvm_fact_type_range(tvm_dtype type, int64_t *low, int64_t *high) {
    *low = INT64_MIN;
    *high = INT64_MAX;
    if (type.kind == TVM_KIND_BOOL) {
        *low = 0;
        *high = 1;
    } else if (type.kind == TVM_KIND_INT && type.bits == 32) {
        *low = INT32_MIN;
        *high = INT32_MAX;
    } else if (type.kind == TVM_KIND_UINT && type.bits == 32) {
        *low = 0;
        *high = UINT32_MAX;
    }
}

static range type_range(tvm_dtype type) {
    range out = {.fits = true};
    tvm_fact_type_range(type, &out.low, &out.high);
    return out;
}

static bool lies_in_type(range r, tvm_dtype type) {
    range all = type_range(type);
    return r.fits && r.low >= all.low && r.high <= all.high && r.low <= r.high;
}

static range range_of(const facts *f, uint32_t expr) {
    return (range){f->exprs[expr].low, f->exprs[expr].high, true};
}

static range hull(range a, range b) {
    return (range){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high, true};
}

static range common(range a, range b) {
    return (range){a.low > b.low ? a.low : b.low, a.high < b.high ? a.high : b.high, true};
}

static bool is_empty(range r) {
    return r.fits && r.low > r.high;
}

/* ---- operators ---- */

static range range_add(range a, range b) {
    range out;
    bool low = __builtin_add_overflow(a.low, b.low, &out.low);
    bool high = __builtin_add_overflow(a.high, b.high, &out.high);
    out.fits = !low && !high;
    return out;
}

static range range_sub(range a, range b) {
    range out;
    bool low = __builtin_sub_overflow(a.low, b.high, &out.low);
    bool high = __builtin_sub_overflow(a.high, b.low, &out.high);
    out.fits = !low && !high;
    return out;
}

static range range_mul(range a, range b) {
    const int64_t x[2] = {a.low, a.high}, y[2] = {b.low, b.high};
    range out = {INT64_MAX, INT64_MIN, true};
    for (int i = 0; i < 4; i++) {
        int64_t product;
        if (__builtin_mul_overflow(x[i / 2], y[i % 2], &product)) out.fits = false;
        if (product < out.low) out.low = product;
        if (product > out.high) out.high = product;
    }
    return out;
}

static bool is_literal(range r) {
    return r.low == r.high;
}

/* Toward zero, by a positive constant; the sum a + b - 1 of a cdiv may wrap in the type. */
static range range_div(const tvm_expr *node, range a, range b) {
    if (node->op == TVM_EXPR_DIV && !is_literal(b) && a.low >= 0 && b.low >= 1)
        return (range){0, a.high, true};
    if (!is_literal(b) || b.low <= 0) return nothing_known;
    int64_t by = b.low;
    if (node->op == TVM_EXPR_CDIV) {
        range all = type_range(node->type);
        bool wraps = a.high > all.high - (by - 1);
        a.low = wraps ? all.low : a.low + (by - 1);
        a.high = wraps ? all.high : a.high + (by - 1);
    }
    return (range){a.low / by, a.high / by, true};
}

static range range_mod(range a, range b) {
    if (!is_literal(b) && a.low >= 0 && b.low >= 1)
        return (range){0, a.high < b.high ? a.high : b.high - 1, true};
    if (!is_literal(b) || b.low <= 0) return nothing_known;
    range out = {a.low < 0 ? -(b.low - 1) : 0, a.high > 0 ? b.low - 1 : 0, true};
    if (a.high >= 0 && a.high < out.high) out.high = a.high;
    return out;
}

static range range_shift(const tvm_expr *node, range a, range by) {
    if (!is_literal(by) || by.low < 0 || by.low > 31) return nothing_known;
    int64_t factor = INT64_C(1) << by.low;
    if (node->op == TVM_EXPR_SHL) return range_mul(a, (range){factor, factor, true});
    return (range){a.low >> by.low, a.high >> by.low, true};
}

/* block.a * c <= X - 1 when the grid's extent is cdiv(X, d) or X / d with c <= d. A cdiv that wrapped makes a
 * grid that is not launched. */
static bool block_product_fits(const kernel_state *k, const tvm_expr *node) {
    const facts *f = k->facts;
    const tvm_expr *block = node_of(k, node->a);
    if (block->op != TVM_EXPR_BLOCK || block->a > 2 || k->kernel->grid[block->a] == TVM_NONE) return false;
    const tvm_expr *grid = node_of(k, k->kernel->grid[block->a]);
    if (grid->op != TVM_EXPR_CDIV && grid->op != TVM_EXPR_DIV) return false;
    range factor = range_of(f, node->b), by = range_of(f, grid->b), whole = range_of(f, grid->a);
    if (tvm_fact_is_u64(grid->type) && whole.low < 0) return false;
    return is_literal(factor) && is_literal(by) && factor.low >= 0 && factor.low <= by.low &&
           whole.high <= INT32_MAX;
}

static range range_leaf(const kernel_state *k, const tvm_expr *node) {
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return (range){node->value.i, node->value.i, true};
    case TVM_EXPR_SLOT:
        return (range){k->facts->slots[node->a].low, k->facts->slots[node->a].high, true};
    case TVM_EXPR_BLOCK:
        return (range){0, node->a == 0 ? INT32_MAX - 1 : 65534, true};
    case TVM_EXPR_GRID:
        return (range){1, node->a == 0 ? INT32_MAX : 65535, true};
    case TVM_EXPR_MULTIPROCESSORS:
        return (range){1, INT32_MAX, true};
    case TVM_EXPR_TARGET: /* the device's, on which code for a lower one may run */
        return (range){k->target.arch, INT32_MAX, true};
    case TVM_EXPR_HAS:
        return (range){0, 1, true};
    case TVM_EXPR_LIMIT:
        return (range){0, INT32_MAX, true};
    default:
        return nothing_known;
    }
}

/* Division and right shift take the operands of u64 as unsigned: see facts.h. */
static bool is_unordered(const tvm_expr *node, range a, range b) {
    bool divides = node->op == TVM_EXPR_DIV || node->op == TVM_EXPR_CDIV || node->op == TVM_EXPR_MOD ||
                   node->op == TVM_EXPR_SHR;
    return divides && tvm_fact_is_u64(node->type) && (a.low < 0 || b.low < 0);
}

/* The range of an operator of one or two operands, of values in these ranges. */
static range range_apply(const kernel_state *k, const tvm_expr *node, range a, range b) {
    if (is_unordered(node, a, b)) return nothing_known;
    switch (node->op) {
    case TVM_EXPR_CAST:
        return a;
    case TVM_EXPR_NEG:
        return range_sub((range){0, 0, true}, a);
    case TVM_EXPR_ADD:
        return range_add(a, b);
    case TVM_EXPR_SUB:
        return range_sub(a, b);
    case TVM_EXPR_MUL:
        if (block_product_fits(k, node)) return (range){0, INT32_MAX - 1, true};
        return range_mul(a, b);
    case TVM_EXPR_DIV:
    case TVM_EXPR_CDIV:
        return range_div(node, a, b);
    case TVM_EXPR_MOD:
        return range_mod(a, b);
    case TVM_EXPR_SHL:
    case TVM_EXPR_SHR:
        return range_shift(node, a, b);
    case TVM_EXPR_AND:
        return a.low >= 0 ? (range){0, a.high, true} : b.low >= 0 ? (range){0, b.high, true} : nothing_known;
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        if (tvm_fact_is_u64(node->type) && (a.low < 0 || b.low < 0)) return hull(a, b);
        if (node->op == TVM_EXPR_MIN)
            return (range){a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high, true};
        return (range){a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high, true};
    default:
        return nothing_known;
    }
}

/* ---- c ? a : b, where c tells more of what is in a and b ---- */

/* What a condition says of one expression. */
typedef struct told {
    uint32_t subject;
    range range;
} told;

static bool same_value(const kernel_state *k, uint32_t a, uint32_t b) {
    const tvm_expr *x = node_of(k, a), *y = node_of(k, b);
    return a == b || (x->op == TVM_EXPR_SLOT && y->op == TVM_EXPR_SLOT && x->a == y->a);
}

/* Those of r for which `value op limit` holds. */
static range compared(range r, unsigned op, int64_t limit) {
    switch (op) {
    case TVM_EXPR_LT:
        if (r.high >= limit) r.high = limit == INT64_MIN ? INT64_MIN : limit - 1;
        break;
    case TVM_EXPR_LE:
        if (r.high > limit) r.high = limit;
        break;
    case TVM_EXPR_GT:
        if (r.low <= limit) r.low = limit == INT64_MAX ? INT64_MAX : limit + 1;
        break;
    case TVM_EXPR_GE:
        if (r.low < limit) r.low = limit;
        break;
    case TVM_EXPR_EQ:
        return common(r, (range){limit, limit, true});
    default:
        if (r.low == limit && limit < INT64_MAX) r.low = limit + 1;
        if (r.high == limit && limit > INT64_MIN) r.high = limit - 1;
        break;
    }
    return r;
}

static bool ask(const kernel_state *k, uint32_t condition, bool holds, told *out) {
    const tvm_expr *node = node_of(k, condition);
    if (node->op == TVM_EXPR_LNOT) return ask(k, node->a, !holds, out);
    if (node->op < TVM_EXPR_LT || node->op > TVM_EXPR_NE) return false;
    tvm_dtype type = node_of(k, node->a)->type;
    range a = range_of(k->facts, node->a), b = range_of(k->facts, node->b);
    if (!tvm_fact_is_integer(type) || (tvm_fact_is_u64(type) && (a.low < 0 || b.low < 0))) return false;
    unsigned op = holds ? node->op : tvm_expr_opposite(node->op);
    if (is_literal(b))
        *out = (told){node->a, compared(a, op, b.low)};
    else if (is_literal(a))
        *out = (told){node->b, compared(b, tvm_expr_mirrored(op), a.low)};
    else
        return false;
    return true;
}

/* The range of an expression where more is told; empty: it is never evaluated there. */
static range range_under(const kernel_state *k, uint32_t expr, const told *more, unsigned depth) {
    const tvm_expr *node = node_of(k, expr);
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    range known = range_of(k->facts, expr);
    if (same_value(k, expr, more->subject)) return common(known, more->range);
    bool from_float = arity > 0 && !tvm_fact_is_integer(node_of(k, node->a)->type);
    if (depth == 0 || arity == 0 || arity > 2 || from_float) return known;
    range a = range_under(k, node->a, more, depth - 1);
    range b = arity > 1 ? range_under(k, node->b, more, depth - 1) : nothing_known;
    if (is_empty(a) || is_empty(b)) return is_empty(a) ? a : b;
    range out = range_apply(k, node, a, b);
    return lies_in_type(out, node->type) ? common(known, out) : known;
}

/* False: the branch is never taken, or what it reads is never assigned. */
static bool range_branch(const kernel_state *k, const tvm_expr *node, bool holds, range *out) {
    uint32_t branch = holds ? node->b : node->c;
    range condition = range_of(k->facts, node->a);
    told more;
    if (!k->facts->exprs[branch].reached || (is_literal(condition) && (condition.low != 0) != holds))
        return false;
    *out = range_of(k->facts, branch);
    if (ask(k, node->a, holds, &more))
        *out = is_empty(more.range) ? more.range : range_under(k, branch, &more, UNDER_DEPTH);
    return !is_empty(*out);
}

static range range_select(const kernel_state *k, const tvm_expr *node) {
    range a, b;
    bool has_a = range_branch(k, node, true, &a), has_b = range_branch(k, node, false, &b);
    if (has_a && has_b) return hull(a, b);
    return has_a ? a : has_b ? b : nothing_known;
}

static range range_node(const kernel_state *k, const tvm_expr *node) {
    unsigned arity = tvm_expr_op_info(node->op)->arity; /* a leaf's a is no expression */
    if (arity == 0) return range_leaf(k, node);
    if (arity == 3) return range_select(k, node);
    return range_apply(k, node, range_of(k->facts, node->a),
                       arity > 1 ? range_of(k->facts, node->b) : nothing_known);
}

bool tvm_fact_keeps_value(const kernel_state *k, const tvm_expr *node) {
    return lies_in_type(range_node(k, node), node->type);
}

/* ---- expressions ---- */

/* Do the operands that a linear sum looks into keep exactness? */
static bool operands_exact(const kernel_state *k, const tvm_expr *node) {
    const facts *f = k->facts;
    switch (node->op) {
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MUL:
        return f->exprs[node->a].exact && f->exprs[node->b].exact;
    case TVM_EXPR_NEG:
    case TVM_EXPR_SHL:
    case TVM_EXPR_CAST:
        return f->exprs[node->a].exact;
    case TVM_EXPR_SLOT: {
        uint32_t definition = f->slots[node->a].definition;
        return definition == TVM_NONE || f->exprs[definition].exact;
    }
    default:
        return true;
    }
}

/* Is all assigned that the expression reads, as far as has been found? Of ?: the branch that is taken. */
static bool is_reached(const kernel_state *k, const tvm_expr *node) {
    const facts *f = k->facts;
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (node->op == TVM_EXPR_SLOT) return f->slots[node->a].reached;
    bool reached = arity == 0 || f->exprs[node->a].reached;
    if (arity == 3) return reached && (f->exprs[node->b].reached || f->exprs[node->c].reached);
    return reached && (arity < 2 || f->exprs[node->b].reached);
}

static void range_expr(const kernel_state *k, uint32_t expr) {
    const tvm_expr *node = node_of(k, expr);
    expr_fact *fact = &k->facts->exprs[expr];
    int64_t low, high;
    tvm_fact_type_range(node->type, &low, &high);
    bool is_u64 = tvm_fact_is_u64(node->type);
    bool from_float = node->op == TVM_EXPR_CAST && !tvm_fact_is_integer(node_of(k, node->a)->type);
    fact->exact = false;
    fact->reached = is_reached(k, node);
    if (fact->reached && tvm_fact_is_integer(node->type) && !from_float) {
        range r = range_node(k, node);
        bool fits = lies_in_type(r, node->type);
        bool leaf_like = node->op != TVM_EXPR_ADD && node->op != TVM_EXPR_SUB && node->op != TVM_EXPR_MUL &&
                         node->op != TVM_EXPR_NEG && node->op != TVM_EXPR_SHL && node->op != TVM_EXPR_CAST;
        if (fits) {
            low = r.low;
            high = r.high;
        }
        fact->exact =
            (!is_u64 || node->op == TVM_EXPR_INTEGER) && (fits || leaf_like) && operands_exact(k, node);
    }
    if (k->facts->assumed_low[expr] > low) low = k->facts->assumed_low[expr];
    if (k->facts->assumed_high[expr] < high) high = k->facts->assumed_high[expr];
    uint64_t divisor = k->facts->assumed_divisor[expr];
    if (divisor > 1 && divisor <= INT32_MAX && high > 0) high -= high % (int64_t)divisor;
    if (divisor > 1 && divisor <= INT32_MAX && low > 0 && low <= INT32_MAX)
        low += ((int64_t)divisor - low % (int64_t)divisor) % (int64_t)divisor;
    if (low > high) low = high; /* contradicting assumptions: the kernel is never launched */
    fact->low = low;
    fact->high = high;
}

/* A grid extent that is a product of factors that are not negative: none of them is 0. */
static void range_grid_factors(const kernel_state *k) {
    facts *f = k->facts;
    for (unsigned axis = 0; axis < 3; axis++) {
        uint32_t grid = k->kernel->grid[axis];
        if (grid == TVM_NONE || node_of(k, grid)->op != TVM_EXPR_MUL) continue;
        uint32_t a = node_of(k, grid)->a, b = node_of(k, grid)->b;
        if (f->exprs[a].low < 0 || f->exprs[b].low < 0) continue;
        if (f->assumed_low[a] < 1) f->assumed_low[a] = 1;
        if (f->assumed_low[b] < 1) f->assumed_low[b] = 1;
    }
}

/* ---- variables ---- */

typedef struct assigned {
    range range;
    bool any; /* false: by nothing that is reached */
} assigned;

/* bounds[0] <= value < bounds[1], to which the emitted code sees: of the variable of a loop, whose steps are
 * positive, and of a value from memory. */
static bool range_between(const kernel_state *k, const tvm_insn *insn, const tvm_operand bounds[2],
                          range *out) {
    const expr_fact *start = &k->facts->exprs[bounds[0].value], *end = &k->facts->exprs[bounds[1].value];
    tvm_dtype type = k->kernel->slots[insn->result].dtype;
    if (!start->reached || !end->reached) return false;
    *out = type_range(type);
    if (tvm_fact_is_u64(type)) {
        if (end->low < 0) return true;
        out->low = 0;
    }
    if (start->low > out->low) out->low = start->low;
    if (end->high > out->low) out->high = end->high - 1;
    return true;
}

/* What one instruction assigns; false: it is not reached. */
static bool range_assigned(const kernel_state *k, const tvm_insn *insn, range *out) {
    const facts *f = k->facts;
    if (tvm_insn_has(insn, TVM_TRAIT_VALUE)) {
        uint32_t expr = tvm_operands(k->kernel, insn)[0].value;
        *out = range_of(f, expr);
        return f->exprs[expr].reached;
    }
    if (tvm_insn_has(insn, TVM_TRAIT_COUNTER))
        return range_between(k, insn, tvm_operands(k->kernel, insn), out);
    if (tvm_insn_class(insn) == TVM_CLASS_SECTION) {
        const tvm_role role = tvm_role_of(k->kernel, insn);
        *out = (range){0, tvm_role_teams(&role) - 1, true};
        return true;
    }
    const tvm_operand *interval = tvm_insn_interval(k->program, k->kernel, insn);
    if (interval) return range_between(k, insn, interval, out);
    *out = type_range(k->kernel->slots[insn->result].dtype);
    return true;
}

static void collect(const kernel_state *k, assigned *all) {
    memset(all, 0, k->kernel->slot_count * sizeof *all);
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        range r;
        if (!tvm_fact_sets_scalar(k, insn) || !range_assigned(k, insn, &r)) continue;
        assigned *to = &all[insn->result];
        to->range = to->any ? hull(to->range, r) : r;
        to->any = true;
    }
}

/* Constants that variables are compared with, and their neighbours, ascending: where a range may end. */
typedef struct limits {
    int64_t at[LIMITS];
    unsigned count;
} limits;

static int compare_limits(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void find_limits(const kernel_state *k, limits *out) {
    out->count = 0;
    for (uint32_t x = 0; x < k->kernel->expr_count && out->count + 6 <= LIMITS; x++) {
        const tvm_expr *node = node_of(k, x);
        if (node->op < TVM_EXPR_LT || node->op > TVM_EXPR_NE) continue;
        const uint32_t sides[2] = {node->a, node->b};
        for (unsigned i = 0; i < 2; i++) {
            range r = range_of(k->facts, sides[i]);
            if (!is_literal(r) || r.low <= INT32_MIN || r.low >= INT32_MAX) continue;
            for (int64_t by = -1; by <= 1; by++) out->at[out->count++] = r.low + by;
        }
    }
    qsort(out->at, out->count, sizeof *out->at, compare_limits);
}

static void widen(const limits *to, range before, range *r, range all) {
    if (r->high > before.high) {
        unsigned i = 0;
        while (i < to->count && to->at[i] < r->high) i++;
        r->high = i < to->count && to->at[i] <= all.high ? to->at[i] : all.high;
    }
    if (r->low < before.low) {
        unsigned i = to->count;
        while (i > 0 && to->at[i - 1] > r->low) i--;
        r->low = i > 0 && to->at[i - 1] >= all.low ? to->at[i - 1] : all.low;
    }
}

/* Lets the slots' ranges grow by what is assigned; false: all of it was inside. */
static bool grow_slots(const kernel_state *k, const assigned *all, const limits *to, bool wide) {
    bool grown = false;
    for (uint32_t s = k->kernel->param_count; s < k->kernel->slot_count; s++) {
        slot_fact *slot = &k->facts->slots[s];
        range before = {slot->low, slot->high, true}, r = all[s].range;
        if (!all[s].any) continue;
        if (slot->reached && r.low >= before.low && r.high <= before.high) continue;
        if (slot->reached) {
            r = hull(before, r);
            if (wide) widen(to, before, &r, type_range(k->kernel->slots[s].dtype));
        }
        slot->low = r.low;
        slot->high = r.high;
        slot->reached = true;
        grown = true;
    }
    return grown;
}

static void shrink_slots(const kernel_state *k, const assigned *all) {
    for (uint32_t s = k->kernel->param_count; s < k->kernel->slot_count; s++) {
        slot_fact *slot = &k->facts->slots[s];
        range r = common((range){slot->low, slot->high, true}, all[s].range);
        if (!all[s].any || is_empty(r)) continue;
        slot->low = r.low;
        slot->high = r.high;
    }
}

static void set_slots(const kernel_state *k, bool reached) {
    for (uint32_t s = 0; s < k->kernel->slot_count; s++) {
        slot_fact *slot = &k->facts->slots[s];
        if (slot->reached) continue;
        tvm_fact_type_range(k->kernel->slots[s].dtype, &slot->low, &slot->high);
        slot->reached = reached || s < k->kernel->param_count;
    }
}

static void range_exprs(const kernel_state *k) {
    for (uint32_t x = 0; x < k->kernel->expr_count; x++) range_expr(k, x);
}

/* Ranges that every assignment keeps inside of: what is found when nothing grows any more is true by
 * induction over the steps of a run. */
static void grow(const kernel_state *k, assigned *all) {
    limits to;
    bool grown = true;
    set_slots(k, false);
    for (unsigned pass = 0; grown && pass < GROWING_PASSES; pass++) {
        range_exprs(k);
        if (pass == WIDEN_AFTER) find_limits(k, &to);
        collect(k, all);
        grown = grow_slots(k, all, &to, pass >= WIDEN_AFTER);
    }
    for (uint32_t s = k->kernel->param_count; grown && s < k->kernel->slot_count; s++)
        k->facts->slots[s].reached = false;
    set_slots(k, true); /* all, or those that are never assigned */
    for (uint32_t x = 0; x < k->kernel->expr_count; x++)
        k->facts->exprs[x].exact = false; /* what it was of less */
}

void tvm_find_ranges(const kernel_state *k) {
    assigned *all = calloc(k->kernel->slot_count + (size_t)1, sizeof *all);
    if (!all) { /* then all that is known is the types */
        set_slots(k, true);
        range_exprs(k);
        return;
    }
    grow(k, all);
    for (int pass = 0; pass < SHRINKING_PASSES; pass++) {
        range_exprs(k);
        collect(k, all);
        shrink_slots(k, all);
        range_grid_factors(k);
    }
    range_exprs(k);
    free(all);
}
