/* Proofs that an index lies inside a tensor: a sum is shown not to be negative by replacing its atoms, one
 * after the other, by bounds that loops, the grid, divisions and conditions give them. */
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "claims.h"
#include "numbers.h"

enum { SUM_BUDGET = 256, PROOF_BUDGET = 400, PROOF_DEPTH = 10 };

/* ---- sums ---- */

void tvm_linear_add_term(linear *sum, uint32_t atom, int64_t factor) {
    unsigned i = 0;
    while (i < sum->count && sum->terms[i].atom != atom) i++;
    if (i == sum->count) {
        if (factor == 0) return;
        if (sum->count == LINEAR_TERMS) {
            sum->failed = true;
            return;
        }
        sum->terms[sum->count].atom = atom;
        sum->terms[sum->count++].coefficient = factor;
        return;
    }
    if (__builtin_add_overflow(sum->terms[i].coefficient, factor, &sum->terms[i].coefficient))
        sum->failed = true;
    if (sum->terms[i].coefficient == 0) sum->terms[i] = sum->terms[--sum->count];
}

static void add_constant(linear *sum, int64_t value, int64_t factor) {
    int64_t product;
    if (__builtin_mul_overflow(value, factor, &product) ||
        __builtin_add_overflow(sum->constant, product, &sum->constant))
        sum->failed = true;
}

void tvm_linear_add_scaled(linear *sum, const linear *more, int64_t factor) {
    sum->failed = sum->failed || more->failed;
    add_constant(sum, more->constant, factor);
    for (unsigned i = 0; i < more->count; i++) {
        int64_t product;
        if (__builtin_mul_overflow(more->terms[i].coefficient, factor, &product))
            sum->failed = true;
        else
            tvm_linear_add_term(sum, more->terms[i].atom, product);
    }
}

static void add_multiple(const kernel_state *k, linear *sum, uint32_t expr, int64_t factor, int64_t by,
                         unsigned *budget) {
    int64_t product;
    if (__builtin_mul_overflow(factor, by, &product))
        sum->failed = true;
    else
        tvm_linear_add(k, sum, expr, product, budget);
}

/* A conversion is looked through when the value before it is known exactly and fits. */
static bool cast_is_plain(const kernel_state *k, const tvm_expr *node) {
    const expr_fact *from = &k->facts->exprs[node->a];
    bool is_narrow = node->type.bits == 32;
    bool fits =
        node->type.kind == TVM_KIND_INT
            ? !is_narrow || (from->low >= INT32_MIN && from->high <= INT32_MAX)
            : is_narrow && node->type.kind == TVM_KIND_UINT && from->low >= 0 && from->high <= UINT32_MAX;
    return from->exact && fits;
}

void tvm_linear_add(const kernel_state *k, linear *sum, uint32_t expr, int64_t factor, unsigned *budget) {
    const tvm_expr *node = node_of(k, expr);
    int64_t value;
    if (sum->failed) return;
    if (*budget == 0) {
        sum->failed = true;
        return;
    }
    --*budget;
    if (tvm_fact_constant(k, expr, &value)) {
        add_constant(sum, value, factor);
        return;
    }
    switch (node->op) {
    case TVM_EXPR_SLOT:
        if (k->facts->slots[node->a].definition == TVM_NONE) break;
        tvm_linear_add(k, sum, k->facts->slots[node->a].definition, factor, budget);
        return;
    case TVM_EXPR_ADD:
        tvm_linear_add(k, sum, node->a, factor, budget);
        tvm_linear_add(k, sum, node->b, factor, budget);
        return;
    case TVM_EXPR_SUB:
        tvm_linear_add(k, sum, node->a, factor, budget);
        add_multiple(k, sum, node->b, factor, -1, budget);
        return;
    case TVM_EXPR_NEG:
        add_multiple(k, sum, node->a, factor, -1, budget);
        return;
    case TVM_EXPR_MUL:
        if (tvm_fact_constant(k, node->b, &value))
            add_multiple(k, sum, node->a, factor, value, budget);
        else if (tvm_fact_constant(k, node->a, &value))
            add_multiple(k, sum, node->b, factor, value, budget);
        else
            break;
        return;
    case TVM_EXPR_SHL:
        if (!tvm_fact_constant(k, node->b, &value) || value < 0 || value > 30) break;
        add_multiple(k, sum, node->a, factor, INT64_C(1) << value, budget);
        return;
    case TVM_EXPR_CAST:
        if (!cast_is_plain(k, node)) break;
        tvm_linear_add(k, sum, node->a, factor, budget);
        return;
    default:
        break;
    }
    tvm_linear_add_term(sum, expr, factor);
}

void tvm_linear_add_value(const kernel_state *k, linear *sum, uint32_t expr, int64_t factor,
                          unsigned *budget) {
    int64_t value;
    if (tvm_fact_constant(k, expr, &value) || k->facts->exprs[expr].exact)
        tvm_linear_add(k, sum, expr, factor, budget);
    else
        tvm_linear_add_term(sum, expr, factor);
}

/* ---- bounds of atoms ---- */

/* scale * atom <= sum (or >= sum). */
typedef struct bound {
    int64_t scale;
    linear sum;
} bound;

enum { MAX_BOUNDS = 4 };

typedef struct bounds {
    bound items[MAX_BOUNDS];
    unsigned count;
    bool all; /* every one is needed: the atom is one of them */
} bounds;

static linear *add_bound(bounds *list, int64_t scale) {
    if (list->count == MAX_BOUNDS) return NULL;
    bound *b = &list->items[list->count++];
    *b = (bound){.scale = scale};
    return &b->sum;
}

static void bound_by(const kernel_state *k, bounds *list, int64_t scale, uint32_t expr, int64_t plus) {
    unsigned budget = SUM_BUDGET;
    linear *sum = add_bound(list, scale);
    if (!sum) return;
    tvm_linear_add_value(k, sum, expr, 1, &budget);
    add_constant(sum, plus, 1);
}

/* A division by a positive constant of something that is known exactly. */
static bool plain_division(const kernel_state *k, const tvm_expr *node, int64_t *by) {
    if (node->op != TVM_EXPR_DIV && node->op != TVM_EXPR_CDIV) return false;
    if (!tvm_fact_constant(k, node->b, by) || *by <= 0) return false;
    const expr_fact *dividend = &k->facts->exprs[node->a];
    if (tvm_fact_is_u64(node->type) && dividend->low < 0) return false;
    if (node->op == TVM_EXPR_DIV) return true;
    int64_t limit = node->type.bits == 64             ? INT64_MAX
                    : node->type.kind == TVM_KIND_INT ? INT32_MAX
                                                      : UINT32_MAX;
    return dividend->low >= 0 && dividend->high <= limit - (*by - 1);
}

static bool divides_evenly(const kernel_state *k, const tvm_expr *node, int64_t by) {
    return tvm_fact_divisor(k, node->a) % (uint64_t)by == 0;
}

static void bound_division(const kernel_state *k, bounds *list, const tvm_expr *node, bool upper) {
    int64_t by;
    if (!plain_division(k, node, &by)) return;
    if (divides_evenly(k, node, by))
        bound_by(k, list, by, node->a, 0);
    else if (node->op == TVM_EXPR_CDIV)
        bound_by(k, list, by, node->a, upper ? by - 1 : 0);
    else if (k->facts->exprs[node->a].low >= 0)
        bound_by(k, list, by, node->a, upper ? 0 : 1 - by);
}

static void bound_loop_variable(const kernel_state *k, bounds *list, const tvm_expr *node, bool upper) {
    const slot_fact *slot = &k->facts->slots[node->a];
    if (slot->loop == TVM_NONE) return;
    const tvm_operand *operands = tvm_operands(k->kernel, &k->kernel->insns[slot->loop]);
    const tvm_insn *loop = &k->kernel->insns[slot->loop];
    uint32_t limit = operands[upper ? 1 : 0].value;
    /* The value at the loop's start must still be that of the expression here: nothing in the body may
     * assign. */
    if (!k->facts->exprs[limit].stable &&
        k->facts->scalars_set[loop->match] != k->facts->scalars_set[slot->loop + 1])
        return;
    if (!upper) {
        bound_by(k, list, 1, limit, 0);
        return;
    }
    uint64_t gap = tvm_gcd(slot->divisor, tvm_fact_divisor(k, limit));
    bound_by(k, list, 1, limit, gap > 0 && gap <= INT32_MAX ? -(int64_t)gap : -1);
}

/* A value from memory, which the emitted code keeps in its range. */
static void bound_given(const kernel_state *k, bounds *list, const tvm_expr *node, bool upper) {
    const tvm_operand *interval = k->facts->slots[node->a].interval;
    if (interval) bound_by(k, list, 1, interval[upper].value, upper ? -1 : 0);
}

static void bound_block(const kernel_state *k, bounds *list, const tvm_expr *node, bool upper) {
    if (upper && node->a < 3 && k->facts->grid_leaf[node->a] != TVM_NONE)
        bound_by(k, list, 1, k->facts->grid_leaf[node->a], -1);
    uint32_t grid = node->a < 3 ? k->kernel->grid[node->a] : TVM_NONE;
    if (!upper || grid == TVM_NONE) return;
    const tvm_expr *extent = node_of(k, grid);
    int64_t by;
    bound_by(k, list, 1, grid, -1);
    if (tvm_fact_is_u64(extent->type) && k->facts->exprs[extent->a].low < 0) return;
    if ((extent->op != TVM_EXPR_CDIV && extent->op != TVM_EXPR_DIV) ||
        !tvm_fact_constant(k, extent->b, &by) || by <= 0)
        return;
    /* A cdiv that wrapped makes a negative grid, which is not launched. */
    bool rounds_up = extent->op == TVM_EXPR_CDIV && !divides_evenly(k, extent, by);
    bound_by(k, list, by, extent->a, rounds_up ? -1 : -by);
}

/* What a slot with one definition stands for. */
static uint32_t resolve(const kernel_state *k, uint32_t expr) {
    for (unsigned i = 0; i < SUM_BUDGET && node_of(k, expr)->op == TVM_EXPR_SLOT; i++) {
        uint32_t definition = k->facts->slots[node_of(k, expr)->a].definition;
        if (definition == TVM_NONE) break;
        expr = definition;
    }
    return expr;
}

/* What the value is below of, as the grid or its loop says: an expression, or TVM_NONE. */
static uint32_t end_of(const kernel_state *k, const tvm_expr *node) {
    if (node->op == TVM_EXPR_BLOCK) return node->a <= 2 ? k->kernel->grid[node->a] : TVM_NONE;
    if (node->op != TVM_EXPR_SLOT || k->facts->slots[node->a].loop == TVM_NONE) return TVM_NONE;
    uint32_t loop = k->facts->slots[node->a].loop;
    uint32_t end = tvm_operands(k->kernel, &k->kernel->insns[loop])[1].value;
    bool same = k->facts->exprs[end].stable ||
                k->facts->scalars_set[k->kernel->insns[loop].match] == k->facts->scalars_set[loop + 1];
    return same ? resolve(k, end) : TVM_NONE;
}

/* x % y < y; x / y < z where x < y * z and x is a block index or the variable of a loop. A product that wraps
 * is no greater than the one that does not. */
static void bound_decoded(const kernel_state *k, bounds *list, const tvm_expr *node, bool upper) {
    uint32_t end = end_of(k, node_of(k, resolve(k, node->a)));
    if (!upper || k->facts->exprs[node->a].low < 0 || k->facts->exprs[node->b].low < 1) return;
    if (node->op == TVM_EXPR_MOD) {
        bound_by(k, list, 1, node->b, -1);
        return;
    }
    if (end == TVM_NONE) return;
    const tvm_expr *product = node_of(k, end);
    if (product->op != TVM_EXPR_MUL || k->facts->exprs[product->a].low < 0 ||
        k->facts->exprs[product->b].low < 0)
        return;
    uint32_t by = resolve(k, node->b);
    if (resolve(k, product->a) == by) bound_by(k, list, 1, product->b, -1);
    if (resolve(k, product->b) == by) bound_by(k, list, 1, product->a, -1);
}

static void find_bounds(const kernel_state *k, uint32_t atom, bool upper, bounds *list) {
    const tvm_expr *node = node_of(k, atom);
    *list = (bounds){0};
    if (tvm_fact_is_u64(node->type)) return; /* what follows is said of numbers that are ordered as i64 are */
    switch (node->op) {
    case TVM_EXPR_SLOT:
        bound_loop_variable(k, list, node, upper);
        bound_given(k, list, node, upper);
        break;
    case TVM_EXPR_BLOCK:
        bound_block(k, list, node, upper);
        break;
    case TVM_EXPR_DIV:
        bound_division(k, list, node, upper);
        bound_decoded(k, list, node, upper);
        break;
    case TVM_EXPR_CDIV:
        bound_division(k, list, node, upper);
        break;
    case TVM_EXPR_MOD:
        bound_decoded(k, list, node, upper);
        break;
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        bound_by(k, list, 1, node->a, 0);
        bound_by(k, list, 1, node->b, 0);
        list->all = (node->op == TVM_EXPR_MIN) != upper;
        break;
    default:
        break;
    }
}

/* ---- search ---- */

typedef struct search {
    const kernel_state *k;
    linear conditions[2 * TVM_MAX_DEPTH];
    unsigned condition_count;
    unsigned budget;
} search;

/* Divisions without remainder are multiplied out. */
static void multiply_out(const kernel_state *k, linear *sum) {
    for (unsigned round = 0; round < 4; round++) {
        unsigned i = 0;
        int64_t by = 0;
        for (; i < sum->count; i++) {
            const tvm_expr *node = node_of(k, sum->terms[i].atom);
            if (plain_division(k, node, &by) && divides_evenly(k, node, by)) break;
        }
        if (i == sum->count) return;
        uint32_t atom = sum->terms[i].atom;
        int64_t coefficient = sum->terms[i].coefficient;
        linear out = {0};
        unsigned budget = SUM_BUDGET;
        int64_t scale = coefficient % by == 0 ? 1 : by;
        tvm_linear_add_scaled(&out, sum, scale);
        if (out.failed) return;
        tvm_linear_add_term(&out, atom, -coefficient * scale);
        tvm_linear_add_value(k, &out, node_of(k, atom)->a, coefficient * scale / by, &budget);
        if (out.failed) return;
        *sum = out;
    }
}

/* Smallest value that the ranges of the atoms allow. */
static bool holds_by_ranges(const kernel_state *k, const linear *sum) {
    int64_t least = sum->constant;
    for (unsigned i = 0; i < sum->count; i++) {
        const expr_fact *fact = &k->facts->exprs[sum->terms[i].atom];
        int64_t coefficient = sum->terms[i].coefficient, product;
        if (__builtin_mul_overflow(coefficient, coefficient > 0 ? fact->low : fact->high, &product) ||
            __builtin_add_overflow(least, product, &least))
            return false;
    }
    return least >= 0;
}

static bool prove(search *s, const linear *goal, unsigned depth);

/* The goal with a term replaced by a bound of its atom. */
static bool prove_with(search *s, const linear *goal, unsigned term, const bound *b, unsigned depth) {
    linear next = {0};
    tvm_linear_add_scaled(&next, goal, b->scale);
    if (next.failed) return false;
    int64_t coefficient = goal->terms[term].coefficient, whole;
    if (__builtin_mul_overflow(coefficient, b->scale, &whole)) return false;
    tvm_linear_add_term(&next, goal->terms[term].atom, -whole);
    tvm_linear_add_scaled(&next, &b->sum, coefficient);
    return prove(s, &next, depth + 1);
}

static bool prove_by_bounds(search *s, const linear *goal, unsigned term, unsigned depth) {
    bounds list;
    find_bounds(s->k, goal->terms[term].atom, goal->terms[term].coefficient < 0, &list);
    for (unsigned i = 0; i < list.count; i++) {
        bool proven = prove_with(s, goal, term, &list.items[i], depth);
        if (proven && !list.all) return true;
        if (!proven && list.all) return false;
    }
    return list.all && list.count > 0;
}

/* goal - factor * condition, where that removes an atom. */
static bool prove_by_conditions(search *s, const linear *goal, unsigned term, unsigned depth) {
    for (unsigned c = 0; c < s->condition_count; c++) {
        const linear *given = &s->conditions[c];
        for (unsigned i = 0; i < given->count; i++) {
            int64_t have = given->terms[i].coefficient, need = goal->terms[term].coefficient;
            if (given->terms[i].atom != goal->terms[term].atom || (have > 0) != (need > 0) ||
                need % have != 0)
                continue;
            linear next = *goal;
            tvm_linear_add_scaled(&next, given, -(need / have));
            if (prove(s, &next, depth + 1)) return true;
        }
    }
    return false;
}

static bool prove(search *s, const linear *goal, unsigned depth) {
    uint64_t cost = 1 + s->condition_count;
    if (goal->failed || s->budget == 0 || depth > PROOF_DEPTH || s->k->facts->work < cost) return false;
    s->budget--;
    s->k->facts->work -= cost;
    linear sum = *goal;
    multiply_out(s->k, &sum);
    if (holds_by_ranges(s->k, &sum)) return true;
    for (unsigned i = 0; i < sum.count; i++)
        if (prove_by_conditions(s, &sum, i, depth)) return true;
    for (unsigned i = 0; i < sum.count; i++)
        if (prove_by_bounds(s, &sum, i, depth)) return true;
    return false;
}

/* ---- conditions of the path ---- */

static void add_condition(search *s, uint32_t greater, uint32_t less, int64_t gap) {
    if (s->condition_count == sizeof s->conditions / sizeof *s->conditions) return;
    linear sum = {.constant = -gap};
    unsigned budget = SUM_BUDGET;
    tvm_linear_add_value(s->k, &sum, greater, 1, &budget);
    tvm_linear_add_value(s->k, &sum, less, -1, &budget);
    multiply_out(s->k, &sum);
    if (!sum.failed) s->conditions[s->condition_count++] = sum;
}

static void add_conditions(search *s, uint32_t expr, bool holds, unsigned depth) {
    const tvm_expr *node = node_of(s->k, expr);
    if (depth > 8) return;
    if (node->op == TVM_EXPR_LNOT) {
        add_conditions(s, node->a, !holds, depth + 1);
        return;
    }
    if (node->op == (holds ? TVM_EXPR_LAND : TVM_EXPR_LOR)) {
        add_conditions(s, node->a, holds, depth + 1);
        add_conditions(s, node->b, holds, depth + 1);
        return;
    }
    if (node->op < TVM_EXPR_LT || node->op > TVM_EXPR_NE) return;
    tvm_dtype type = node_of(s->k, node->a)->type;
    if (type.kind == TVM_KIND_FLOAT || (type.kind == TVM_KIND_UINT && type.bits == 64)) return;
    unsigned op = holds ? node->op : tvm_expr_opposite(node->op);
    if (op == TVM_EXPR_LT || op == TVM_EXPR_LE || op == TVM_EXPR_EQ)
        add_condition(s, node->b, node->a, op == TVM_EXPR_LT);
    if (op == TVM_EXPR_GT || op == TVM_EXPR_GE || op == TVM_EXPR_EQ)
        add_condition(s, node->a, node->b, op == TVM_EXPR_GT);
}

bool tvm_linear_not_negative(const kernel_state *k, const linear *sum) {
    const facts *f = k->facts;
    if (f->work == 0) return false;
    search s = {.k = k, .budget = PROOF_BUDGET};
    for (unsigned i = 0; i < f->condition_count; i++)
        add_conditions(&s, f->conditions[i].expr, f->conditions[i].holds, 0);
    for (uint32_t i = 0; i < k->kernel->assume_count && i < 2 * TVM_MAX_DEPTH; i++)
        add_conditions(&s, k->kernel->assumes[i], true, 0);
    return prove(&s, sum, 0);
}

static bool reads_assigned(const kernel_state *k, uint32_t expr, uint32_t first, uint32_t last,
                           unsigned *budget) {
    const tvm_expr *node = node_of(k, expr);
    if (k->facts->exprs[expr].stable) return false;
    if (*budget == 0) return true;
    --*budget;
    if (node->op == TVM_EXPR_SLOT) {
        for (uint32_t i = first; i < last; i++)
            if (k->kernel->insns[i].result == node->a) return true;
        uint32_t definition = k->facts->slots[node->a].definition;
        return definition != TVM_NONE && reads_assigned(k, definition, first, last, budget);
    }
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    return (arity > 0 && reads_assigned(k, node->a, first, last, budget)) ||
           (arity > 1 && reads_assigned(k, node->b, first, last, budget)) ||
           (arity > 2 && reads_assigned(k, node->c, first, last, budget));
}

unsigned tvm_fact_enter(kernel_state *k, uint32_t expr, bool holds, uint32_t first, uint32_t last) {
    facts *f = k->facts;
    unsigned mark = f->condition_count, budget = SUM_BUDGET;
    if (mark < sizeof f->conditions / sizeof *f->conditions && !reads_assigned(k, expr, first, last, &budget))
        f->conditions[f->condition_count++] = (known_condition){expr, holds};
    return mark;
}

void tvm_fact_leave(kernel_state *k, unsigned mark) {
    k->facts->condition_count = mark;
}

unsigned tvm_fact_set_aside(kernel_state *k, unsigned mark) {
    unsigned all = k->facts->condition_count;
    k->facts->condition_count = mark;
    return all;
}

/* ---- questions ---- */

/* What is proved of an expression's values is taken down where somebody wants it. */
static bool claimed_range(const kernel_state *k, uint32_t expr, int64_t low, int64_t high, bool proved) {
    if (proved && k->claims)
        tvm_fact_claim(k, &(tvm_claim){.kind = TVM_CLAIM_RANGE, .expr = expr, .low = low, .high = high});
    return proved;
}

static bool is_not_negative(const kernel_state *k, uint32_t index) {
    if (k->facts->exprs[index].low >= 0) return true;
    if (!k->facts->exprs[index].exact) return false;
    linear sum = {0};
    unsigned budget = SUM_BUDGET;
    tvm_linear_add_value(k, &sum, index, 1, &budget);
    return !sum.failed && tvm_linear_not_negative(k, &sum);
}

/* Proof of 0 <= index <= high. An index that wraps equals its sum modulo 2^32 only; inside a bound below 2^31
 * both are the same number. */
static bool lies_below(const kernel_state *k, uint32_t index, linear *high, int64_t high_most) {
    bool is_narrow = node_of(k, index)->type.bits == 32, exact = k->facts->exprs[index].exact;
    linear low = {0};
    unsigned budget = SUM_BUDGET;
    if (exact || (is_narrow && high_most <= INT32_MAX))
        tvm_linear_add(k, &low, index, 1, &budget);
    else
        tvm_linear_add_term(&low, index, 1);
    tvm_linear_add_scaled(high, &low, -1);
    return !low.failed && !high->failed && tvm_linear_not_negative(k, &low) &&
           tvm_linear_not_negative(k, high);
}

static bool is_inside(const kernel_state *k, uint32_t index, int64_t extent, uint32_t bound_expr) {
    linear high = {.constant = -extent};
    unsigned budget = SUM_BUDGET;
    tvm_linear_add_value(k, &high, bound_expr, 1, &budget);
    return lies_below(k, index, &high, k->facts->exprs[bound_expr].high);
}

static bool is_at_most(const kernel_state *k, uint32_t index, int64_t most) {
    const expr_fact *fact = &k->facts->exprs[index];
    linear high = {.constant = most};
    if (fact->low >= 0 && fact->high <= most) return true;
    return most <= INT32_MAX && lies_below(k, index, &high, most);
}

bool tvm_fact_positive(const kernel_state *k, uint32_t expr) {
    int64_t value;
    return claimed_range(k, expr, 1, INT64_MAX,
                         k->facts->exprs[expr].low > 0 || (tvm_fact_constant(k, expr, &value) && value > 0));
}

bool tvm_fact_not_negative(const kernel_state *k, uint32_t index) {
    return claimed_range(k, index, 0, INT64_MAX, is_not_negative(k, index));
}

bool tvm_fact_at_most(const kernel_state *k, uint32_t index, int64_t most) {
    return claimed_range(k, index, 0, most, is_at_most(k, index, most));
}

bool tvm_fact_inside(const kernel_state *k, uint32_t index, int64_t extent, uint32_t bound_expr) {
    if (!is_inside(k, index, extent, bound_expr)) return false;
    if (k->claims)
        tvm_fact_claim(
            k, &(tvm_claim){.kind = TVM_CLAIM_INSIDE, .expr = index, .bound = bound_expr, .low = extent});
    return true;
}

static void split(const kernel_state *k, uint32_t index, int64_t *constant, uint64_t *divisor) {
    linear sum = {0};
    unsigned budget = SUM_BUDGET;
    tvm_linear_add(k, &sum, index, 1, &budget);
    *constant = 0;
    *divisor = tvm_fact_divisor(k, index);
    if (sum.failed || sum.constant < 0 || sum.constant > INT32_MAX) return;
    uint64_t rest = 0;
    for (unsigned i = 0; i < sum.count; i++) {
        int64_t c = sum.terms[i].coefficient;
        uint64_t factor = c < 0 ? -(uint64_t)c : (uint64_t)c, product;
        /* Modulo a power of two, only that part of a divisor counts. */
        uint64_t atom = tvm_fact_divisor(k, sum.terms[i].atom);
        if (__builtin_mul_overflow(factor, atom, &product)) product = factor & (~factor + 1);
        rest = tvm_gcd(rest, product);
    }
    if (sum.constant == 0 && *divisor % (rest ? rest : 1) == 0) return;
    *constant = sum.constant;
    *divisor = rest & (~rest + 1);
}

void tvm_fact_split(const kernel_state *k, uint32_t index, int64_t *constant, uint64_t *divisor) {
    split(k, index, constant, divisor);
    if (k->claims)
        tvm_fact_claim(
            k, &(tvm_claim){.kind = TVM_CLAIM_REST, .expr = index, .low = *constant, .divisor = *divisor});
}
