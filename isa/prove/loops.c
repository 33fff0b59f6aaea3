/* Loops: what is so at the beginning of each turn, whatever the turns before did. It is guessed, and checked:
 * a guess holds if it does in the first turn, and if, where all guesses hold at the beginning of a turn, it
 * does at the beginning of the next. Those that do not are left out, and the others checked again, until all
 * hold. Guesses are, of a scalar x that the loop assigns,
 *
 *   - x >= 0, x >= -1; x is at most, or at least, what it was where the loop began;
 *   - x is at most, or at least, an expression that some scalar of the loop is assigned anywhere in the
 * kernel, with the values that its scalars have now;
 *   - a ghost is at least x;
 *   - sums of scalars, and of scalars times others that the loop leaves alone, that no turn changes: found by
 * looking for factors of what each path through the body adds to them. */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GUESSES = 160, MOST_ROUNDS = 8, MOST_PARTS = 20, MOST_EQUATIONS = 1024, CHECK_EFFORT = 0 };

typedef enum guess_kind { AT_LEAST_NUMBER, AS_FIRST, AS_EXPRESSION, ABOVE_VALUE, CONSERVED } guess_kind;

typedef struct part { /* a value, or times an unknown */
    uint32_t value;
    uint16_t by;
} part;

typedef struct guess {
    guess_kind kind;
    bool gone;
    uint32_t value, other; /* numbers of values; of AS_EXPRESSION other is the expression */
    int64_t by;            /* 1: at least; -1: at most; of AT_LEAST_NUMBER the number */
    int64_t factors[MOST_PARTS];
} guess;

typedef struct loop {
    explorer *e;
    uint32_t at;
    uint32_t set[128], set_count; /* values that it assigns */
    part parts[MOST_PARTS];
    uint32_t part_count;
    guess guesses[MOST_GUESSES];
    uint32_t guess_count;
} loop;

/* What the value was where the loop began, and where the turn did: other values. */
static uint32_t first_of(const explorer *e, uint32_t value) {
    return (e->followed + 3 + EXPLORE_KEPT) * (2 * e->depth - 1) + value;
}
static uint32_t before_of(const explorer *e, uint32_t value) {
    return (e->followed + 3 + EXPLORE_KEPT) * (2 * e->depth) + value;
}

/* ---- the value of a guess: 0 or more where it holds ---- */

static bool conserved(const loop *l, const explore_moment *m, const guess *g, bool first, refute_sum *sum) {
    for (uint32_t i = 0; i < l->part_count; i++) {
        refute_sum value = m->values[first ? first_of(l->e, l->parts[i].value) : l->parts[i].value];
        refute_sum by = tvm_refute_of(l->parts[i].by);
        if (!g->factors[i]) continue;
        if (l->parts[i].by && !tvm_refute_multiply(&value, &value, &by)) return false;
        if (!tvm_refute_add(sum, g->factors[i], &value)) return false;
    }
    return true;
}

static bool evaluate(const loop *l, explore_moment *m, const guess *g, refute_sum *sum) {
    refute_sum value = m->values[g->value], other;
    *sum = (refute_sum){.count = 0};
    switch (g->kind) {
    case AT_LEAST_NUMBER:
        other = tvm_refute_number(g->by);
        return tvm_refute_add(sum, 1, &value) && tvm_refute_add(sum, -1, &other);
    case AS_FIRST:
        other = m->values[first_of(l->e, g->value)];
        break;
    case ABOVE_VALUE:
        other = m->values[g->other];
        break;
    case AS_EXPRESSION:
        l->e->exact = true;
        other = tvm_explore_value(l->e, m, g->other);
        l->e->exact = false;
        break;
    default: {
        refute_sum first = {.count = 0};
        return conserved(l, m, g, false, sum) && conserved(l, m, g, true, &first) &&
               tvm_refute_add(sum, -1, &first) &&
               (g->by > 0 ||
                (other = *sum, *sum = (refute_sum){.count = 0}, tvm_refute_add(sum, -1, &other)));
    }
    }
    return tvm_refute_add(sum, g->by, &value) && tvm_refute_add(sum, -g->by, &other);
}

typedef struct question {
    loop *l;
    guess *g;
} question;

static bool assume(explorer *e, explore_moment *m, const void *how) {
    const question *q = how;
    refute_sum sum;
    if (!evaluate(q->l, m, q->g, &sum)) return true;
    bool known = q->g->kind != CONSERVED && q->g->kind != AS_EXPRESSION && tvm_explore_follows(e, m, &sum, 0);
    return known || tvm_explore_learn(e, m, &sum);
}

/* One that does not hold is gone. */
static bool check(explorer *e, explore_moment *m, const void *how) {
    const question *q = how;
    refute_sum sum;
    if (q->g->gone) return false;
    if (!evaluate(q->l, m, q->g, &sum) || !tvm_explore_follows(e, m, &sum, CHECK_EFFORT)) q->g->gone = true;
    return false;
}

static void check_at(loop *l, const explore_moments *at, guess *g) {
    refute_sum sum;
    for (uint32_t i = 0; i < at->count && g->kind != AS_EXPRESSION && !g->gone; i++)
        g->gone = !evaluate(l, at->of[i], g, &sum) ||
                  !tvm_explore_follows(l->e, at->of[i], &sum, g->kind == AT_LEAST_NUMBER);
    if (g->kind != AS_EXPRESSION) return;
    explore_moments copies = {0};
    for (uint32_t i = 0; i < at->count; i++)
        tvm_explore_add(l->e, &copies, tvm_explore_copy(l->e, at->of[i]));
    const question q = {l, g};
    tvm_explore_each(l->e, &copies, false, check, &q);
    tvm_explore_clear(&copies);
}

/* ---- guesses ---- */

static guess *add_guess(loop *l, guess_kind kind, uint32_t value, uint32_t other, int64_t by) {
    if (l->guess_count == MOST_GUESSES) return NULL;
    guess *g = &l->guesses[l->guess_count++];
    *g = (guess){.kind = kind, .value = value, .other = other, .by = by};
    return g;
}

/* Is the expression a sum, product, minimum or maximum of what is followed? */
static bool is_plain(const explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    switch (node->op) {
    case TVM_EXPR_SLOT:
        return node->a < e->p->kernel->param_count ? tvm_dtype_is_integer(node->type)
                                                   : e->index[node->a] >= 0;
    case TVM_EXPR_INTEGER:
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
        return true;
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MUL:
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        return tvm_dtype_is_integer(node->type) && is_plain(e, node->a) && is_plain(e, node->b);
    default:
        return false;
    }
}

static bool is_set(const loop *l, uint32_t value) {
    for (uint32_t i = 0; i < l->set_count; i++)
        if (l->set[i] == value) return true;
    return false;
}

static bool reads_set(const loop *l, uint32_t expr) {
    const tvm_expr *node = &l->e->p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT)
        return node->a >= l->e->p->kernel->param_count && is_set(l, (uint32_t)l->e->index[node->a]);
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (reads_set(l, node->operands[i])) return true;
    return false;
}

/* What x is compared with: expressions that are equal to it at first, or that the loop assigns it. */
static void guess_expressions(loop *l, uint32_t x, explore_moment *first) {
    explorer *e = l->e;
    const tvm_ir_kernel *kernel = e->p->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        int32_t to = insn->op == TVM_OP_LET ? e->index[insn->result] : -1;
        if (to < 0 || !is_set(l, (uint32_t)to)) continue;
        uint32_t expr = tvm_operands(kernel, insn)[0].value;
        bool inside = i > l->at && i < kernel->insns[l->at].match;
        if (!is_plain(e, expr) || kernel->exprs[expr].op == TVM_EXPR_INTEGER) continue;
        bool own = (uint32_t)to == x && inside && !reads_set(l, expr);
        bool same = false;
        if (!own && reads_set(l, expr)) {
            int64_t number = 1;
            e->exact = true;
            e->choice_at = e->choice_count = 0;
            explore_moment *trial = tvm_explore_copy(e, first);
            if (!trial) return;
            refute_sum value = tvm_explore_value(e, trial, expr);
            e->exact = false;
            same = tvm_refute_add(&value, -1, &trial->values[x]) && tvm_refute_is_number(&value, &number) &&
                   number == 0;
            tvm_explore_free(trial);
            same = same || ((uint32_t)to == x && inside);
        }
        if (!own && !same) continue;
        add_guess(l, AS_EXPRESSION, x, expr, 1);
        add_guess(l, AS_EXPRESSION, x, expr, -1);
    }
}

static bool is_scalar(const explorer *e, uint32_t value) {
    return value < e->followed;
}

static void make_guesses(loop *l, explore_moment *first) {
    explorer *e = l->e;
    for (uint32_t i = 0; i < l->set_count; i++) {
        uint32_t x = l->set[i];
        add_guess(l, AS_FIRST, x, 0, 1);
        add_guess(l, AS_FIRST, x, 0, -1);
        if (!is_scalar(e, x)) continue;
        add_guess(l, AT_LEAST_NUMBER, x, 0, 0);
        add_guess(l, AT_LEAST_NUMBER, x, 0, -1);
    }
    for (uint32_t i = 0; i < l->set_count; i++)
        for (uint32_t j = 0; j < l->set_count; j++)
            if (!is_scalar(e, l->set[i]) && is_scalar(e, l->set[j]))
                add_guess(l, ABOVE_VALUE, l->set[i], l->set[j], 1);
    for (uint32_t i = 0; i < l->set_count; i++)
        if (is_scalar(e, l->set[i])) guess_expressions(l, l->set[i], first);
}

/* ---- what no turn changes ---- */

static void add_part(loop *l, uint32_t value, uint16_t by) {
    for (uint32_t i = 0; i < l->part_count; i++)
        if (l->parts[i].value == value && l->parts[i].by == by) return;
    if (l->part_count < MOST_PARTS) l->parts[l->part_count++] = (part){value, by};
}

/* The number of the scalar's value; UINT32_MAX: it is none that is followed. */
static uint32_t value_of(const explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    bool is = node->op == TVM_EXPR_SLOT && node->a >= e->p->kernel->param_count && e->index[node->a] >= 0;
    return is ? (uint32_t)e->index[node->a] : UINT32_MAX;
}

/* The unknown that a factor is: of a scalar that the loop leaves alone, or of a parameter; 0: it is none. */
static uint16_t factor_of(const loop *l, explore_moment *turn, uint32_t expr) {
    const explorer *e = l->e;
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    if (node->op != TVM_EXPR_SLOT || !tvm_dtype_is_integer(node->type)) return 0;
    const uint32_t other = value_of(e, expr);
    if (other == UINT32_MAX ? node->a >= e->p->kernel->param_count : is_set(l, other)) return 0;
    const refute_sum by = tvm_explore_value(l->e, turn, expr);
    return by.count == 1 && by.terms[0].by == 1 && !by.terms[0].of[1] ? by.terms[0].of[0] : 0;
}

/* Scalars of the loop, and those times what they are multiplied by somewhere, if the loop leaves that alone.
 */
static void find_parts(loop *l, explore_moment *turn) {
    explorer *e = l->e;
    const tvm_ir_kernel *kernel = e->p->kernel;
    for (uint32_t i = 0; i < l->set_count; i++)
        if (is_scalar(e, l->set[i])) add_part(l, l->set[i], 0);
    for (uint32_t x = 0; x < kernel->expr_count; x++)
        for (unsigned side = 0; side < 2 && kernel->exprs[x].op == TVM_EXPR_MUL; side++) {
            uint32_t own = value_of(e, kernel->exprs[x].operands[side]);
            if (own == UINT32_MAX || !is_set(l, own)) continue;
            uint16_t by = factor_of(l, turn, kernel->exprs[x].operands[1 - side]);
            if (by) add_part(l, own, by);
        }
}

typedef struct equations {
    double by[MOST_EQUATIONS][MOST_PARTS];
    uint32_t count;
} equations;

/* That the sum of the parts' changes is 0, product by product. False: too many. */
static bool add_equations(loop *l, const explore_moment *m, equations *q) {
    refute_sum changes[MOST_PARTS];
    for (uint32_t i = 0; i < l->part_count; i++) {
        refute_sum by = tvm_refute_of(l->parts[i].by);
        changes[i] = m->values[l->parts[i].value];
        if (!tvm_refute_add(&changes[i], -1, &m->values[before_of(l->e, l->parts[i].value)])) return false;
        if (l->parts[i].by && !tvm_refute_multiply(&changes[i], &changes[i], &by)) return false;
    }
    for (uint32_t i = 0; i < l->part_count; i++)
        for (uint32_t t = 0; t < changes[i].count; t++) {
            if (q->count == MOST_EQUATIONS) return false;
            double *row = q->by[q->count++];
            for (uint32_t j = 0; j < l->part_count; j++) {
                row[j] = 0;
                for (uint32_t u = 0; u < changes[j].count; u++)
                    if (memcmp(changes[j].terms[u].of, changes[i].terms[t].of,
                               sizeof changes[i].terms[t].of) == 0)
                        row[j] = (double)changes[j].terms[u].by;
            }
        }
    return true;
}

/* Brings the equations to a form in which each has a part of its own, pivots[]; the others may be chosen. */
static uint32_t solve(equations *q, uint32_t parts, uint32_t *pivots) {
    uint32_t rank = 0;
    for (uint32_t column = parts; column-- > 0 && rank < q->count;) {
        uint32_t best = rank;
        for (uint32_t r = rank; r < q->count; r++) {
            double a = q->by[r][column], b = q->by[best][column];
            if (a * a > b * b) best = r;
        }
        if (q->by[best][column] == 0) continue;
        for (uint32_t j = 0; j < parts; j++) {
            double swap = q->by[rank][j];
            q->by[rank][j] = q->by[best][j];
            q->by[best][j] = swap;
        }
        double lead = q->by[rank][column];
        for (uint32_t j = 0; j < parts; j++) q->by[rank][j] /= lead;
        for (uint32_t r = 0; r < q->count; r++) {
            double by = q->by[r][column];
            for (uint32_t j = 0; j < parts && r != rank && by != 0; j++) q->by[r][j] -= by * q->by[rank][j];
        }
        pivots[rank++] = column;
    }
    return rank;
}

/* A guess of sums that no path changes; each is checked like all others, so that rounding does no harm. */
static void guess_conserved(loop *l, explore_moment *turn, const explore_moments *again) {
    equations *q = calloc(1, sizeof *q);
    uint32_t pivots[MOST_PARTS];
    bool made = q != NULL;
    find_parts(l, turn);
    for (uint32_t k = 0; k < again->count && made; k++) made = add_equations(l, again->of[k], q);
    uint32_t rank = made ? solve(q, l->part_count, pivots) : 0;
    for (uint32_t free_part = 0; free_part < l->part_count && made; free_part++) {
        bool is_pivot = false;
        for (uint32_t r = 0; r < rank; r++) is_pivot = is_pivot || pivots[r] == free_part;
        if (is_pivot) continue;
        for (int sign = 1; sign >= -1; sign -= 2) {
            guess *g = add_guess(l, CONSERVED, 0, 0, sign);
            if (!g) break;
            g->factors[free_part] = 1;
            for (uint32_t r = 0; r < rank; r++) {
                double by = -q->by[r][free_part];
                if (by > -1e12 && by < 1e12)
                    g->factors[pivots[r]] = (int64_t)by;
                else
                    g->gone = true;
            }
        }
    }
    free(q);
}

/* ---- turns ---- */

typedef struct condition {
    const loop *l;
    bool wanted;
} condition;

static bool goes_on(explorer *e, explore_moment *m, const void *how) {
    const condition *c = how;
    const tvm_insn *insn = &e->p->kernel->insns[c->l->at];
    const tvm_operand *operands = tvm_operands(e->p->kernel, insn);
    if (insn->op == TVM_OP_WHILE) return tvm_explore_holds(e, m, operands[0].value) == c->wanted;
    refute_sum left = tvm_explore_value(e, m, operands[1].value), one = tvm_refute_number(1);
    bool made =
        tvm_refute_add(&left, -1, &m->values[e->index[insn->result]]) && tvm_refute_add(&left, -1, &one);
    return !made || tvm_explore_is_positive(e, m, &left) == c->wanted;
}

/* Parts the moments: those that go on stay, the others come to `ended`. */
static void part_moments(loop *l, explore_moments *moments, explore_moments *ended) {
    explore_moments others = {0};
    for (uint32_t i = 0; i < moments->count; i++)
        tvm_explore_add(l->e, &others, tvm_explore_copy(l->e, moments->of[i]));
    const condition on = {l, true}, off = {l, false};
    tvm_explore_each(l->e, moments, false, goes_on, &on);
    tvm_explore_each(l->e, &others, false, goes_on, &off);
    for (uint32_t i = 0; i < others.count; i++) tvm_explore_add(l->e, ended, others.of[i]);
    free(others.of);
}

/* The first of all turns, as far as guesses say, and as the loop goes on. */
static void begin_turn(loop *l, const explore_moment *turn, explore_moments *out) {
    tvm_explore_add(l->e, out, tvm_explore_copy(l->e, turn));
    for (uint32_t i = 0; i < l->guess_count; i++) {
        const question q = {l, &l->guesses[i]};
        if (!l->guesses[i].gone) tvm_explore_each(l->e, out, false, assume, &q);
    }
    const condition on = {l, true};
    tvm_explore_each(l->e, out, false, goes_on, &on);
}

static bool next_value(explorer *e, explore_moment *m, const void *how) {
    const loop *l = how;
    const tvm_insn *insn = &e->p->kernel->insns[l->at];
    if (insn->op != TVM_OP_FOR) return true;
    refute_sum step = tvm_explore_value(e, m, tvm_operands(e->p->kernel, insn)[2].value);
    if (!tvm_refute_add(&m->values[e->index[insn->result]], 1, &step)) e->failed = true;
    return true;
}

/* Runs the body; moments become those at the end of the turn, those that break come to `ended`. */
static void run_body(loop *l, explore_moments *moments, explore_moments *ended) {
    explore_jumps jumps = {0};
    tvm_explore_range(l->e, l->at + 1, l->e->p->kernel->insns[l->at].match, moments, &jumps);
    for (uint32_t i = 0; i < jumps.continues.count; i++)
        tvm_explore_add(l->e, moments, jumps.continues.of[i]);
    for (uint32_t i = 0; i < jumps.breaks.count; i++) tvm_explore_add(l->e, ended, jumps.breaks.of[i]);
    free(jumps.continues.of);
    free(jumps.breaks.of);
    tvm_explore_each(l->e, moments, false, next_value, l);
}

/* What a turn changes, wherever it begins: loops inside may do anything, and nothing wraps. */
static void look_for_conserved(loop *l, explore_moment *turn) {
    explorer *e = l->e;
    explore_moments moments = {0}, ended = {0};
    const condition on = {l, true};
    e->silent++;
    e->exact = e->coarse = true;
    tvm_explore_add(e, &moments, tvm_explore_copy(e, turn));
    tvm_explore_each(e, &moments, false, goes_on, &on);
    run_body(l, &moments, &ended);
    part_moments(l, &moments, &ended);
    e->exact = e->coarse = false;
    e->silent--;
    guess_conserved(l, turn, &moments);
    tvm_explore_clear(&moments);
    tvm_explore_clear(&ended);
}

/* Looks for what holds; guesses that do not are gone. */
static void find_guesses(loop *l, const explore_moment *turn) {
    explorer *e = l->e;
    const refute_sum none = {.count = 0};
    e->silent++;
    for (unsigned round = 0;; round++) {
        explore_moments moments = {0}, ended = {0};
        uint32_t gone = 0;
        begin_turn(l, turn, &moments);
        run_body(l, &moments, &ended);
        part_moments(l, &moments, &ended);
        for (uint32_t i = 0; i < moments.count; i++) tvm_explore_look(e, moments.of[i], &none);
        for (uint32_t i = 0; i < l->guess_count && !e->failed; i++) {
            if (l->guesses[i].gone) continue;
            check_at(l, &moments, &l->guesses[i]);
            gone += l->guesses[i].gone;
        }
        tvm_explore_clear(&moments);
        tvm_explore_clear(&ended);
        if (round == MOST_ROUNDS) e->failed = true;
        if (!gone || e->failed) break;
    }
    e->silent--;
}

/* A `for` whose variable, or bounds, its body changes is not looked into. */
static bool is_odd(const loop *l) {
    const tvm_ir_kernel *kernel = l->e->p->kernel;
    const tvm_insn *insn = &kernel->insns[l->at];
    const tvm_operand *operands = tvm_operands(kernel, insn);
    if (insn->op != TVM_OP_FOR) return false;
    for (uint32_t i = l->at + 1; i < insn->match; i++)
        if (kernel->insns[i].result == insn->result) return true;
    const tvm_expr *step = &kernel->exprs[operands[2].value];
    return reads_set(l, operands[1].value) || step->op != TVM_EXPR_INTEGER || step->value.i < 1;
}

static void find_set(loop *l) {
    explorer *e = l->e;
    const tvm_ir_kernel *kernel = e->p->kernel;
    bool takes = false;
    for (uint32_t i = l->at; i < kernel->insns[l->at].match; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        int32_t value = insn->result == TVM_NONE ? -1 : e->index[insn->result];
        takes = takes || e->asked[i];
        if (value < 0 || is_set(l, (uint32_t)value)) continue;
        if (l->set_count + EXPLORE_GHOSTS == 128) e->failed = true;
        if (!e->failed) l->set[l->set_count++] = (uint32_t)value;
    }
    for (unsigned g = 0; g < e->ghosts && takes && !e->failed; g++)
        l->set[l->set_count++] = tvm_explore_ghost(e, g);
}

/* Those that are alike but for what the loop assigns are one. */
static void join_alike(loop *l, explore_moments *moments) {
    explorer *e = l->e;
    const uint32_t all = e->followed + 3 + EXPLORE_KEPT;
    for (uint32_t i = 0; i < moments->count && !e->failed; i++) {
        explore_moments group = {0};
        tvm_explore_add(e, &group, moments->of[i]);
        for (uint32_t k = moments->count; k-- > i + 1;) {
            bool alike = true;
            for (uint32_t v = 0; v < all && alike; v++)
                alike = is_set(l, v) || memcmp(&moments->of[i]->values[v], &moments->of[k]->values[v],
                                               sizeof *moments->of[i]->values) == 0;
            if (!alike) continue;
            tvm_explore_add(e, &group, moments->of[k]);
            moments->of[k] = moments->of[--moments->count];
        }
        tvm_explore_join(e, &group, 0);
        moments->of[i] = group.count ? group.of[0] : NULL;
        free(group.of);
    }
}

/* From a moment that goes into the first turn; takes it. */
static void run_from(loop *l, explore_moment *first, explore_moments *ended) {
    explorer *e = l->e;
    explore_moments moments = {0};
    l->guess_count = l->part_count = 0;
    for (uint32_t i = 0; i < l->set_count; i++)
        first->values[first_of(e, l->set[i])] = first->values[l->set[i]];
    if (e->depth == 1) tvm_explore_drop(e, first, l->at);
    tvm_explore_tidy(e, first);
    explore_moment *turn = tvm_explore_copy(e, first);
    for (uint32_t i = 0; i < l->set_count && turn; i++) {
        turn->values[l->set[i]] = tvm_explore_unknown(e, tvm_explore_type(e, l->set[i]), true);
        turn->values[before_of(e, l->set[i])] = turn->values[l->set[i]];
    }
    make_guesses(l, first);
    tvm_explore_add(e, &moments, first);
    for (uint32_t i = 0; i < l->guess_count && !e->failed; i++) check_at(l, &moments, &l->guesses[i]);
    tvm_explore_clear(&moments);
    if (turn && !e->failed) look_for_conserved(l, turn);
    if (turn && !e->failed) find_guesses(l, turn);
    if (turn && !e->failed) begin_turn(l, turn, &moments);
    run_body(l, &moments, ended);
    part_moments(l, &moments, ended); /* what goes on is what has been looked at */
    tvm_explore_clear(&moments);
    tvm_explore_free(turn);
}

static bool first_value(explorer *e, explore_moment *m, const void *how) {
    const loop *l = how;
    const tvm_insn *insn = &e->p->kernel->insns[l->at];
    if (insn->op == TVM_OP_FOR)
        m->values[e->index[insn->result]] =
            tvm_explore_value(e, m, tvm_operands(e->p->kernel, insn)[0].value);
    return true;
}

/* The loop does anything to what it assigns. */
static void pass_over(loop *l, explore_moments *moments, explore_moments *ended) {
    for (uint32_t i = 0; i < moments->count; i++) {
        for (uint32_t v = 0; v < l->set_count; v++)
            moments->of[i]->values[l->set[v]] =
                tvm_explore_unknown(l->e, tvm_explore_type(l->e, l->set[v]), true);
        tvm_explore_add(l->e, ended, moments->of[i]);
    }
    moments->count = 0;
}

void tvm_explore_loop(explorer *e, uint32_t at, explore_moments *moments) {
    explore_moments ended = {0};
    loop *l = calloc(1, sizeof *l);
    if (!l) e->p->no_memory = e->failed = true;
    if (l) *l = (loop){.e = e, .at = at};
    const tvm_insn *insn = &e->p->kernel->insns[at];
    if (e->depth == EXPLORE_DEPTH || (insn->op == TVM_OP_FOR && e->index[insn->result] < 0)) e->failed = true;
    if (!e->failed) find_set(l);
    if (!e->failed && is_odd(l)) e->failed = true;
    if (!e->failed) {
        tvm_explore_each(e, moments, false, first_value, l);
        part_moments(l, moments, &ended);
        if (e->coarse) pass_over(l, moments, &ended);
        join_alike(l, moments);
        e->depth++;
        for (uint32_t i = 0; i < moments->count && !e->failed; i++) {
            run_from(l, moments->of[i], &ended);
            moments->of[i] = NULL;
        }
        e->depth--;
    }
    free(l);
    tvm_explore_clear(moments);
    *moments = ended;
}
