/* Explores the paths of a kernel by its scalars alone: each scalar that bears on what is asked is a sum of
 * unknowns, and what was decided on the way are facts about these (refute.h). A choice that the facts leave
 * open is made both ways. A sum that may be beyond its type is a new unknown. Loops are in loops.c. */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WAYS = 4 }; /* through an extent of the grid, or an assumption, that is looked at */

/* ---- values ---- */

static bool is_whole(tvm_dtype type) {
    return tvm_dtype_is_integer(type);
}

void tvm_explore_limits(tvm_dtype type, int64_t *low, int64_t *high) {
    unsigned bits = type.bits > 63 ? 63 : type.kind == TVM_KIND_UINT ? type.bits : type.bits - 1u;
    *high = type.kind == TVM_KIND_BOOL ? 1 : bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1;
    *low = type.kind == TVM_KIND_INT                      ? -*high - 1
           : type.kind == TVM_KIND_UINT && type.bits > 63 ? INT64_MIN
                                                          : 0;
}

refute_sum tvm_explore_unknown(explorer *e, tvm_dtype type, bool is_own) {
    int64_t low, high;
    tvm_explore_limits(type, &low, &high);
    uint16_t unknown = tvm_refute_unknown_new(e->unknowns, low, high, is_own);
    if (!unknown) e->failed = true;
    e->unknowns->of[unknown].is_passing = is_own;
    return tvm_refute_of(unknown);
}

/* One for all blocks and moments. */
static refute_sum leaf(explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    if (!e->leaves[expr]) {
        e->leaves[expr] = tvm_explore_unknown(e, node->type, false).terms[0].of[0];
        if (node->op == TVM_EXPR_GRID && e->leaves[expr]) e->unknowns->of[e->leaves[expr]].low = 1;
    }
    return tvm_refute_of(e->leaves[expr]);
}

refute_sum tvm_explore_grid(explorer *e, unsigned axis) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    uint32_t grid = kernel->grid[axis];
    if (grid == TVM_NONE) return tvm_refute_number(1);
    if (kernel->exprs[grid].op == TVM_EXPR_INTEGER) return tvm_refute_number(kernel->exprs[grid].value.i);
    for (uint32_t x = 0; x < kernel->expr_count; x++)
        if (kernel->exprs[x].op == TVM_EXPR_GRID && kernel->exprs[x].a == axis) return leaf(e, x);
    uint16_t *own = &e->leaves[kernel->expr_count + axis]; /* no expression has it */
    if (!*own) *own = tvm_refute_unknown_new(e->unknowns, 1, INT32_MAX, false);
    if (!*own) e->failed = true;
    return tvm_refute_of(*own);
}

/* The unknown of what is computed of the two, the same each time; 0: there are too many. *is_new: it is made
 * here. */
static uint16_t memo(explorer *e, const refute_sum *a, const refute_sum *b, bool *is_new) {
    uint32_t q = 0;
    *is_new = false;
    while (q < e->quotient_count && (memcmp(&e->quotients[q].whole, a, sizeof *a) != 0 ||
                                     memcmp(&e->quotients[q].by, b, sizeof *b) != 0))
        q++;
    if (q < e->quotient_count) return e->quotients[q].unknown;
    if (q == e->quotient_capacity) {
        uint32_t capacity = q ? 2 * q : 16;
        explore_quotient *more = realloc(e->quotients, capacity * sizeof *more);
        if (!more) {
            e->p->no_memory = e->failed = true;
            return 0;
        }
        e->quotients = more;
        e->quotient_capacity = capacity;
    }
    bool is_own = false;
    for (uint16_t u = 1; u < e->unknowns->count; u++)
        if (e->unknowns->of[u].is_own && (tvm_refute_has(a, u) || tvm_refute_has(b, u))) is_own = true;
    uint16_t unknown = tvm_refute_unknown_new(e->unknowns, 0, INT64_MAX, is_own);
    if (!unknown) e->failed = true;
    e->quotients[e->quotient_count++] = (explore_quotient){*a, *b, unknown};
    *is_new = true;
    return unknown;
}

/* What the sum is in the type: itself if it is not beyond it. One that may wrap is unknown, but always the
 * same. */
static refute_sum in_type(explorer *e, explore_moment *m, const refute_sum *sum, tvm_dtype type) {
    int64_t low, high, least, most;
    bool is_new;
    tvm_explore_limits(type, &least, &most);
    tvm_refute_range(e->unknowns, sum, &low, &high);
    if (e->exact || (low >= least && high <= most && low > INT64_MIN && high < INT64_MAX)) return *sum;
    refute_sum bottom = tvm_refute_number(least), top = tvm_refute_number(most);
    do {
        bool fits = type.bits < 64 && (low >= least || tvm_explore_is_above(e, m, sum, &bottom, 0, 0)) &&
                    (high <= most || tvm_explore_is_above(e, m, &top, sum, 0, 0));
        if (fits) return *sum;
    } while (type.bits < 64 && tvm_explore_look(e, m, sum));
    bottom = tvm_refute_number(-2 * (int64_t)type.bits - (type.kind == TVM_KIND_UINT)); /* no divisor */
    uint16_t unknown = memo(e, sum, &bottom, &is_new);
    e->unknowns->of[unknown].low = least;
    e->unknowns->of[unknown].high = most;
    return tvm_refute_of(unknown);
}

/* a / b; what is known of it becomes known. */
static refute_sum quotient(explorer *e, explore_moment *m, tvm_dtype type, const refute_sum *a,
                           const refute_sum *b) {
    int64_t number = 0, low, high;
    bool is_new;
    uint16_t unknown = memo(e, a, b, &is_new);
    refute_unknown *of = &e->unknowns->of[unknown];
    if (is_new) tvm_explore_limits(type, &low, &of->high); /* as the number that is divided */
    if (is_new && tvm_refute_is_number(b, &number)) {
        tvm_refute_range(e->unknowns, a, &low, &high);
        if (high / number < of->high) of->high = high / number;
        of->divisor = number;
        of->whole = *a;
    }
    refute_sum value = tvm_refute_of(unknown), product, least = *a, most, one = tvm_refute_number(1);
    if (!tvm_refute_multiply(&product, &value, b)) return value;
    most = product;
    if (tvm_refute_add(&least, -1, &product)) tvm_explore_learn(e, m, &least);
    least = *a;
    if (tvm_refute_add(&least, -1, &value) && !tvm_refute_is_number(b, &number))
        tvm_explore_learn(e, m, &least);
    if (tvm_refute_add(&most, 1, b) && tvm_refute_add(&most, -1, a) && tvm_refute_add(&most, -1, &one))
        tvm_explore_learn(e, m, &most);
    return value;
}

/* Of a number that is 0 or more and one above 0; other quotients and remainders are not known. */
static refute_sum divided(explorer *e, explore_moment *m, const tvm_expr *node, const refute_sum *a,
                          const refute_sum *b) {
    refute_sum whole = *a, less = *b, one = tvm_refute_number(1), part;
    if (node->op == TVM_EXPR_CDIV) {
        if (!tvm_refute_add(&whole, 1, b) || !tvm_refute_add(&whole, -1, &one))
            return tvm_explore_unknown(e, node->type, true);
        whole = in_type(e, m, &whole, node->type);
    }
    if (!tvm_refute_add(&less, -1, &one) || !tvm_explore_is_positive(e, m, &less) ||
        !tvm_explore_is_positive(e, m, &whole))
        return tvm_explore_unknown(e, node->type, true);
    refute_sum value = quotient(e, m, node->type, &whole, b);
    if (node->op != TVM_EXPR_MOD) return value;
    if (!tvm_refute_multiply(&part, &value, b) || !tvm_refute_add(&whole, -1, &part))
        return tvm_explore_unknown(e, node->type, true);
    return whole;
}

static refute_sum combined(explorer *e, explore_moment *m, const tvm_expr *node, const refute_sum *a,
                           const refute_sum *b) {
    refute_sum sum = *a, less = *b, one = tvm_refute_number(1);
    int64_t number;
    bool made = true;
    switch (node->op) {
    case TVM_EXPR_ADD:
        made = tvm_refute_add(&sum, 1, b);
        break;
    case TVM_EXPR_SUB:
        made = tvm_refute_add(&sum, -1, b);
        break;
    case TVM_EXPR_MUL:
        made = tvm_refute_multiply(&sum, a, b);
        break;
    case TVM_EXPR_SHL:
        made = tvm_refute_is_number(b, &number) && number >= 0 && number < 31;
        if (made) less = tvm_refute_number(INT64_C(1) << number);
        made = made && tvm_refute_multiply(&sum, a, &less);
        break;
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        if (!tvm_refute_add(&less, -1, a) || !tvm_refute_add(&less, -1, &one))
            return tvm_explore_unknown(e, node->type, true);
        return tvm_explore_is_positive(e, m, &less) == (node->op == TVM_EXPR_MIN) ? *a : *b;
    case TVM_EXPR_DIV:
    case TVM_EXPR_CDIV:
    case TVM_EXPR_MOD:
        return divided(e, m, node, a, b);
    default:
        made = false;
    }
    return made ? in_type(e, m, &sum, node->type) : tvm_explore_unknown(e, node->type, true);
}

refute_sum tvm_explore_value(explorer *e, explore_moment *m, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    refute_sum a, b;
    if (node->type.kind == TVM_KIND_BOOL) return tvm_refute_number(tvm_explore_holds(e, m, expr));
    if (!is_whole(node->type)) return tvm_explore_unknown(e, TVM_I(64), true);
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return tvm_refute_number(node->value.i);
    case TVM_EXPR_SLOT:
        if (node->a < e->p->kernel->param_count) return leaf(e, expr);
        return e->index[node->a] >= 0 ? m->values[e->index[node->a]]
                                      : tvm_explore_unknown(e, node->type, true);
    case TVM_EXPR_BLOCK:
        return m->values[tvm_explore_block(e, node->a)];
    case TVM_EXPR_GRID:
        return tvm_explore_grid(e, node->a);
    case TVM_EXPR_SELECT:
        return tvm_explore_value(e, m, tvm_explore_holds(e, m, node->a) ? node->b : node->c);
    case TVM_EXPR_CAST:
        if (!is_whole(e->p->kernel->exprs[node->a].type)) return tvm_explore_unknown(e, node->type, true);
        a = tvm_explore_value(e, m, node->a);
        return in_type(e, m, &a, node->type);
    case TVM_EXPR_NEG:
        a = tvm_explore_value(e, m, node->a);
        b = tvm_refute_number(0);
        return tvm_refute_add(&b, -1, &a) ? in_type(e, m, &b, node->type)
                                          : tvm_explore_unknown(e, node->type, true);
    default:
        break;
    }
    if (tvm_expr_arity(node) == 0) return leaf(e, expr);
    if (tvm_expr_arity(node) != 2) return tvm_explore_unknown(e, node->type, true);
    a = tvm_explore_value(e, m, node->a);
    b = tvm_explore_value(e, m, node->b);
    return combined(e, m, node, &a, &b);
}

/* Of whole numbers. */
static bool compare(explorer *e, explore_moment *m, const tvm_expr *node) {
    refute_sum a = tvm_explore_value(e, m, node->a), b = tvm_explore_value(e, m, node->b);
    refute_sum one = tvm_refute_number(1), up = a, down = b; /* a - b, b - a */
    bool strict = node->op == TVM_EXPR_LT || node->op == TVM_EXPR_GT;
    if (!tvm_refute_add(&up, -1, &b) || !tvm_refute_add(&down, -1, &a)) return tvm_explore_choose(e);
    if (node->op == TVM_EXPR_EQ || node->op == TVM_EXPR_NE) {
        if (!tvm_explore_is_positive(e, m, &up) || !tvm_explore_is_positive(e, m, &down))
            return node->op == TVM_EXPR_NE;
        return node->op == TVM_EXPR_EQ;
    }
    refute_sum *sum = node->op == TVM_EXPR_GT || node->op == TVM_EXPR_GE ? &up : &down;
    if (strict && !tvm_refute_add(sum, -1, &one)) return tvm_explore_choose(e);
    return tvm_explore_is_positive(e, m, sum);
}

bool tvm_explore_holds(explorer *e, explore_moment *m, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    int64_t number;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return node->value.i != 0;
    case TVM_EXPR_LNOT:
        return !tvm_explore_holds(e, m, node->a);
    case TVM_EXPR_LAND:
        return tvm_explore_holds(e, m, node->a) && tvm_explore_holds(e, m, node->b);
    case TVM_EXPR_LOR:
        return tvm_explore_holds(e, m, node->a) || tvm_explore_holds(e, m, node->b);
    case TVM_EXPR_SELECT:
        return tvm_explore_holds(e, m, tvm_explore_holds(e, m, node->a) ? node->b : node->c);
    case TVM_EXPR_SLOT:
        if (node->a >= e->p->kernel->param_count && e->index[node->a] >= 0 &&
            tvm_refute_is_number(&m->values[e->index[node->a]], &number))
            return number != 0;
        return tvm_explore_choose(e);
    default:
        if (tvm_expr_is_comparison(node->op) && is_whole(e->p->kernel->exprs[node->a].type))
            return compare(e, m, node);
        return tvm_explore_choose(e);
    }
}

/* ---- instructions ---- */

typedef struct place_in_text {
    uint32_t at;
    bool wanted; /* of a condition */
} place_in_text;

static bool decide(explorer *e, explore_moment *m, const void *how) {
    const place_in_text *place = how;
    const tvm_insn *insn = &e->p->kernel->insns[place->at];
    return tvm_explore_holds(e, m, tvm_operands(e->p->kernel, insn)[0].value) == place->wanted;
}

/* Is all that the expression reads followed, or a parameter? */
static bool is_followed(const explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT) return node->a < e->p->kernel->param_count || e->index[node->a] >= 0;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (!is_followed(e, node->operands[i])) return false;
    return true;
}

static bool step(explorer *e, explore_moment *m, const void *how) {
    const uint32_t at = ((const place_in_text *)how)->at;
    const tvm_ir_kernel *kernel = e->p->kernel;
    const tvm_insn *insn = &kernel->insns[at];
    if (e->asked[at] && e->meet(e, m, at)) return false;
    int32_t to = insn->result == TVM_NONE ? -1 : e->index[insn->result];
    if (to < 0) return insn->op != TVM_OP_TRAP;
    tvm_dtype type = kernel->slots[insn->result].dtype;
    refute_sum value = {.count = 0};
    if (insn->op == TVM_OP_LET)
        value = tvm_explore_value(e, m, tvm_operands(kernel, insn)[0].value);
    else
        value = tvm_explore_unknown(e, type, true);
    m->values[to] = value;
    refute_sum above = value, floor = tvm_refute_number(e->floors ? e->floors[at] : INT64_MIN);
    if (!e->floors || e->floors[at] == INT64_MIN || !tvm_refute_add(&above, -1, &floor)) return true;
    return tvm_explore_learn(e, m, &above);
}

static void move(explorer *e, explore_moments *to, explore_moments *from) {
    for (uint32_t i = 0; i < from->count; i++) tvm_explore_add(e, to, from->of[i]);
    from->count = 0;
}

/* Does it ask, or jump? */
static bool is_asking(const explorer *e, uint32_t from, uint32_t end) {
    for (uint32_t i = from; i < end; i++) {
        tvm_op_class class = tvm_insn_class(&e->p->kernel->insns[i]);
        if (e->asked[i] || class == TVM_CLASS_JUMP || class == TVM_CLASS_EXIT) return true;
    }
    return false;
}

/* A condition, of one moment at a time. */
static void branch(explorer *e, uint32_t at, explore_moments *moments, explore_jumps *jumps) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    const uint32_t match = kernel->insns[at].match, end = tvm_prove_end_of(kernel, at);
    const place_in_text sides[2] = {{at, true}, {at, false}};
    const bool joins = !is_asking(e, at + 1, end);
    explore_moments made = {0};
    for (uint32_t i = 0; i < moments->count && !e->failed; i++) {
        const uint32_t first = made.count;
        for (unsigned side = 0; side < 2; side++) {
            explore_moments one = {0};
            tvm_explore_add(e, &one, tvm_explore_copy(e, moments->of[i]));
            tvm_explore_each(e, &one, false, decide, &sides[side]);
            if (side == 0) tvm_explore_range(e, at + 1, match, &one, jumps);
            if (side == 1 && match != end) tvm_explore_range(e, match + 1, end, &one, jumps);
            move(e, &made, &one);
            free(one.of);
        }
        if (joins && !e->failed && made.count > EXPLORE_APART) tvm_explore_join(e, &made, first);
    }
    tvm_explore_clear(moments);
    *moments = made;
}

void tvm_explore_range(explorer *e, uint32_t from, uint32_t end, explore_moments *moments,
                       explore_jumps *jumps) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    for (uint32_t at = from; at < end && moments->count && !e->failed; at++) {
        const tvm_insn *insn = &kernel->insns[at];
        const place_in_text here = {at, true};
        tvm_op_class class = tvm_insn_class(insn);
        tvm_prove_charge(e->p, 1);
        if (e->unknowns->work > e->unknowns->most_work) e->failed = true;
        if (class <= TVM_CLASS_BRANCH && !e->insns[at]) {
            at = tvm_prove_end_of(kernel, at);
        } else if (class == TVM_CLASS_LOOP) {
            tvm_explore_loop(e, at, moments);
            at = insn->match;
        } else if (class == TVM_CLASS_BRANCH) {
            branch(e, at, moments, jumps);
            at = tvm_prove_end_of(kernel, at);
        } else if (class == TVM_CLASS_SECTION) {
            e->failed = true;
        } else if (class == TVM_CLASS_JUMP) {
            move(e, insn->op == TVM_OP_BREAK ? &jumps->breaks : &jumps->continues, moments);
        } else if (class == TVM_CLASS_EXIT) {
            if (e->silent)
                tvm_explore_clear(moments);
            else
                move(e, &e->ends, moments);
        } else if (insn->op == TVM_OP_ASSERT) { /* what is behind it comes where it holds */
            if (is_followed(e, tvm_operands(kernel, insn)[0].value))
                tvm_explore_each(e, moments, false, decide, &here);
        } else if (e->asked[at] || insn->op == TVM_OP_TRAP ||
                   (insn->result != TVM_NONE && e->index[insn->result] >= 0)) {
            tvm_explore_each(e, moments, !e->asked[at], step, &here);
        }
    }
}

void tvm_explore_all(explorer *e, explore_moment *start) {
    explore_moments moments = {0};
    tvm_explore_add(e, &moments, start);
    tvm_explore_range(e, 0, e->p->kernel->insn_count, &moments, NULL);
    move(e, &e->ends, &moments);
    free(moments.of);
}

void tvm_explore_forget(explorer *e, uint32_t unknowns, uint32_t quotients) {
    e->unknowns->count = unknowns;
    e->quotient_count = quotients;
    for (uint32_t i = 0; i < e->p->kernel->expr_count + 3; i++)
        if (e->leaves[i] >= unknowns) e->leaves[i] = 0;
}

/* ---- begin and end ---- */

bool tvm_explore_begin(explorer *e, prover *p, refute_unknowns *unknowns, const uint8_t *asked,
                       unsigned most) {
    const size_t insns = p->kernel->insn_count + (size_t)1, slots = p->kernel->slot_count + (size_t)1;
    *e = (explorer){.p = p, .unknowns = unknowns, .asked = asked, .most = most};
    e->insns = calloc(insns, 1);
    e->edge = calloc(insns, 1);
    e->index = calloc(slots, sizeof *e->index);
    e->leaves = calloc(p->kernel->expr_count + (size_t)3, sizeof *e->leaves);
    if (!e->insns || !e->edge || !e->index || !e->leaves || !tvm_explore_slice(e)) {
        p->no_memory = e->failed = true;
        return false;
    }
    e->values = (e->followed + 3 + EXPLORE_KEPT) * (1 + 2 * EXPLORE_DEPTH);
    return true;
}

void tvm_explore_end(explorer *e) {
    tvm_explore_clear(&e->ends);
    free(e->insns);
    free(e->edge);
    free(e->floors);
    free(e->index);
    free(e->leaves);
    free(e->quotients);
    free(e->trial);
}

/* An extent that is a parameter is not above what global_impl.h says: cdiv(n, 128) does not wrap. */
static void bound_extents(explorer *e) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    for (uint32_t s = 0; s < kernel->param_count; s++)
        for (unsigned d = 0; kernel->slots[s].kind == TVM_SLOT_GLOBAL && d < kernel->slots[s].rank; d++) {
            uint32_t expr = kernel->slots[s].shape[d];
            const tvm_expr *node = &kernel->exprs[expr];
            if (node->op != TVM_EXPR_SLOT || !is_whole(node->type)) continue;
            refute_unknown *of = &e->unknowns->of[leaf(e, expr).terms[0].of[0]];
            if (of->high > INT32_MAX - (1 << 16)) of->high = INT32_MAX - (1 << 16);
            if (of->low < 0) of->low = 0;
        }
}

/* An assumption, or what an extent of the grid is. */
typedef struct given {
    uint32_t expr;
    int axis; /* -1: an assumption */
} given;

static bool assume(explorer *e, explore_moment *m, const void *how) {
    const given *g = how;
    if (g->axis < 0) return tvm_explore_holds(e, m, g->expr);
    refute_sum up = tvm_explore_grid(e, (unsigned)g->axis), value = tvm_explore_value(e, m, g->expr),
               down = value;
    if (!tvm_refute_add(&down, -1, &up) || !tvm_refute_add(&up, -1, &value)) return true;
    return tvm_explore_learn(e, m, &down) && tvm_explore_learn(e, m, &up);
}

/* How many minima, maxima and selections the expression has. */
static unsigned ways(const explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    unsigned count = node->op == TVM_EXPR_MIN || node->op == TVM_EXPR_MAX || node->op == TVM_EXPR_SELECT;
    for (unsigned i = 0; i < tvm_expr_arity(node) && count <= MOST_WAYS; i++)
        count += ways(e, node->operands[i]);
    return count;
}

/* What is several cases, or too many, says nothing here. */
static void use_given(explorer *e, explore_moments *moments, const given *g) {
    explore_moments before = {0};
    const uint32_t unknowns = e->unknowns->count, quotients = e->quotient_count;
    if (ways(e, g->expr) > MOST_WAYS) return;
    for (uint32_t k = 0; k < moments->count; k++)
        tvm_explore_add(e, &before, tvm_explore_copy(e, moments->of[k]));
    if (e->failed) return tvm_explore_clear(&before);
    tvm_explore_each(e, moments, false, assume, g);
    bool plain = moments->count == 1 && !e->failed;
    e->failed = e->p->no_memory;
    tvm_explore_clear(plain ? &before : moments);
    if (plain) return;
    *moments = before;
    tvm_explore_forget(e, unknowns, quotients);
}

explore_moment *tvm_explore_start(explorer *e) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    explore_moments moments = {0};
    explore_moment *m = tvm_explore_new(e);
    bound_extents(e);
    for (unsigned axis = 0; m && axis < 3; axis++) {
        refute_sum grid = tvm_explore_grid(e, axis), index = tvm_refute_number(0), one = tvm_refute_number(1);
        int64_t number;
        if (!tvm_refute_is_number(&grid, &number) || number != 1)
            index = tvm_refute_of(tvm_refute_unknown_new(e->unknowns, 0, INT32_MAX - 1, true));
        m->values[tvm_explore_block(e, axis)] = index;
        if (tvm_refute_add(&grid, -1, &index) && tvm_refute_add(&grid, -1, &one))
            tvm_explore_learn(e, m, &grid);
    }
    tvm_explore_add(e, &moments, m);
    for (uint32_t i = 0; i < kernel->assume_count && !e->failed; i++)
        use_given(e, &moments, &(given){kernel->assumes[i], -1});
    for (int axis = 0; axis < 3 && !e->failed; axis++)
        if (kernel->grid[axis] != TVM_NONE) use_given(e, &moments, &(given){kernel->grid[axis], axis});
    explore_moment *first = moments.count ? moments.of[0] : NULL;
    free(moments.of);
    return first;
}
