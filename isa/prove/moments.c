/* Moments of a path: what values are, and what is known of unknowns. Facts only become more, but where an
 * unknown has become another sum, or several moments become one. */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MOMENTS = 96 };

/* ---- moments ---- */

explore_moment *tvm_explore_new(explorer *e) {
    explore_moment *m = malloc(sizeof *m);
    refute_sum *values = calloc(e->values + (size_t)1, sizeof *values);
    if (!m || !values) {
        free(m);
        free(values);
        e->p->no_memory = true;
        e->failed = true;
        return NULL;
    }
    m->values = values;
    m->fact_count = m->looked = 0;
    m->cannot_be = false;
    m->solver = NULL;
    m->solved = 0;
    return m;
}

explore_moment *tvm_explore_copy(explorer *e, const explore_moment *from) {
    explore_moment *m = tvm_explore_new(e);
    if (!m) return NULL;
    memcpy(m->values, from->values, e->values * sizeof *m->values);
    e->unknowns->work += 10 + (e->values + from->fact_count) * 2;
    memcpy(m->facts, from->facts, from->fact_count * sizeof *m->facts);
    m->fact_count = from->fact_count;
    m->looked = from->looked;
    m->cannot_be = from->cannot_be;
    m->solver = from->solver ? tvm_refute_solver_new(e->unknowns) : NULL;
    m->solved = m->solver ? from->solved : 0;
    if (m->solver) tvm_refute_solver_copy(m->solver, from->solver);
    return m;
}

void tvm_explore_free(explore_moment *m) {
    if (!m) return;
    free(m->values);
    free(m->solver);
    free(m);
}

/* Takes the moment. */
bool tvm_explore_add(explorer *e, explore_moments *to, explore_moment *m) {
    if (!m) return false;
    if (to->count == MOST_MOMENTS) e->failed = true;
    if (to->count == to->capacity && !e->failed) {
        uint32_t capacity = to->capacity ? 2 * to->capacity : 8;
        explore_moment **of = realloc(to->of, capacity * sizeof *of);
        if (!of) e->p->no_memory = e->failed = true;
        if (of) to->of = of;
        if (of) to->capacity = capacity;
    }
    if (e->failed) {
        tvm_explore_free(m);
        return false;
    }
    to->of[to->count++] = m;
    return true;
}

void tvm_explore_clear(explore_moments *moments) {
    for (uint32_t i = 0; i < moments->count; i++) tvm_explore_free(moments->of[i]);
    free(moments->of);
    *moments = (explore_moments){0};
}

/* ---- facts ---- */

/* The solver with all facts. */
static refute_solver *solver_of(explorer *e, explore_moment *m) {
    if (!m->solver) {
        m->solver = tvm_refute_solver_new(e->unknowns);
        m->solved = 0;
    }
    if (!e->trial) e->trial = tvm_refute_solver_new(e->unknowns);
    if (!m->solver || !e->trial) {
        e->p->no_memory = e->failed = true;
        return NULL;
    }
    while (m->solved < m->fact_count) tvm_refute_solver_add(m->solver, &m->facts[m->solved++]);
    return m->solver;
}

bool tvm_explore_is_refuted(explorer *e, explore_moment *m, unsigned effort) {
    const refute_solver *solver = solver_of(e, m);
    return solver && tvm_refute(solver, m->facts, m->fact_count, effort);
}

bool tvm_explore_look(explorer *e, explore_moment *m, const refute_sum *about) {
    bool has = m->looked != m->fact_count;
    for (uint32_t i = 0; i < about->count; i++) has = has || about->terms[i].of[1];
    const refute_solver *solver = has ? solver_of(e, m) : NULL;
    if (!solver) return false;
    uint32_t before = m->fact_count;
    m->fact_count = m->looked = tvm_refute_learn(solver, m->facts, m->fact_count, EXPLORE_FACTS, about);
    return m->fact_count > before;
}

bool tvm_explore_follows(explorer *e, explore_moment *m, const refute_sum *sum, unsigned effort) {
    int64_t low, high;
    refute_sum facts[EXPLORE_FACTS + 1], not = tvm_refute_number(-1);
    tvm_refute_range(e->unknowns, sum, &low, &high);
    if (low >= 0) return true;
    if (high < 0 || !tvm_refute_add(&not, -1, sum)) return false;
    const refute_solver *solver = solver_of(e, m);
    if (!solver) return false;
    if (!effort && tvm_refute_solver_denies(solver, sum)) return false;
    tvm_refute_solver_try(e->trial, solver);
    if (tvm_refute_solver_add(e->trial, &not ) || !effort) return tvm_refute(e->trial, NULL, 0, 0);
    memcpy(facts, m->facts, m->fact_count * sizeof *facts);
    facts[m->fact_count] = not ;
    return tvm_refute(e->trial, facts, m->fact_count + 1, effort);
}

bool tvm_explore_is_above(explorer *e, explore_moment *m, const refute_sum *a, const refute_sum *b,
                          int64_t by, unsigned effort) {
    refute_sum sum = *a, number = tvm_refute_number(by);
    return tvm_refute_add(&sum, -1, b) && tvm_refute_add(&sum, -1, &number) &&
           tvm_explore_follows(e, m, &sum, effort);
}

/* The unknown that the sum, which is 0, says the value of; 0: it says none. */
static uint16_t solved(const explorer *e, const refute_sum *sum, refute_sum *value) {
    for (uint32_t i = sum->count; i-- > 0;) {
        const refute_term *term = &sum->terms[i];
        if (!term->of[0] || term->of[1] || (term->by != 1 && term->by != -1)) continue;
        if (!e->unknowns->of[term->of[0]].is_passing) continue;
        refute_sum rest = {.count = 0};
        refute_sum own = tvm_refute_of(term->of[0]);
        if (!tvm_refute_add(&rest, -term->by, sum) || !tvm_refute_add(&rest, 1, &own)) continue;
        if (tvm_refute_has(&rest, term->of[0])) continue;
        *value = rest;
        return term->of[0];
    }
    return 0;
}

static void keep_fact(explorer *e, explore_moment *m, const refute_sum *sum) {
    int64_t low, high;
    tvm_refute_range(e->unknowns, sum, &low, &high);
    if (low >= 0) return;
    for (uint32_t i = 0; i < m->fact_count; i++)
        if (memcmp(&m->facts[i], sum, sizeof *sum) == 0) return;
    if (m->fact_count < EXPLORE_FACTS)
        m->facts[m->fact_count++] = *sum;
    else
        e->failed = true;
}

/* Puts the value in the place of the unknown, in all that is known. False: it is too large. */
static bool replace(explorer *e, explore_moment *m, uint16_t unknown, const refute_sum *value) {
    refute_sum trial;
    for (uint32_t i = 0; i < e->values; i++) {
        trial = m->values[i];
        if (!tvm_refute_replace(&trial, unknown, value)) return false;
    }
    for (uint32_t i = 0; i < e->values; i++) tvm_refute_replace(&m->values[i], unknown, value);
    for (uint32_t i = 0; i < m->fact_count; i++) tvm_refute_replace(&m->facts[i], unknown, value);
    uint32_t count = m->fact_count;
    m->fact_count = m->looked = m->solved = 0;
    free(m->solver);
    m->solver = NULL;
    for (uint32_t i = 0; i < count; i++) { /* without those that say nothing any more */
        const refute_sum fact = m->facts[i];
        keep_fact(e, m, &fact);
    }
    return true;
}

/* The range of the unknown, which has another value now, as facts. */
static void keep_range(explorer *e, explore_moment *m, uint16_t unknown, const refute_sum *value) {
    const refute_unknown *of = &e->unknowns->of[unknown];
    refute_sum low = *value, high = tvm_refute_number(of->high), number = tvm_refute_number(of->low);
    if (of->low > INT64_MIN / 4 && tvm_refute_add(&low, -1, &number)) keep_fact(e, m, &low);
    if (of->high < INT64_MAX / 4 && tvm_refute_add(&high, -1, value)) keep_fact(e, m, &high);
}

static bool is_factor(const refute_sum *sum, uint16_t unknown) {
    for (uint32_t i = 0; i < sum->count; i++)
        for (unsigned d = 0; d < REFUTE_DEGREE && sum->terms[i].of[1]; d++)
            if (sum->terms[i].of[d] == unknown) return true;
    return false;
}

/* Would products become products of more? */
static bool grows(const explorer *e, const explore_moment *m, uint16_t unknown, const refute_sum *value) {
    bool linear = true, factor = false;
    for (uint32_t i = 0; i < value->count; i++) linear = linear && !value->terms[i].of[1];
    for (uint32_t i = 0; i < e->values && !linear; i++) factor = factor || is_factor(&m->values[i], unknown);
    for (uint32_t i = 0; i < m->fact_count && !linear; i++)
        factor = factor || is_factor(&m->facts[i], unknown);
    return factor;
}

/* The sum is 0. */
static bool learn_equal(explorer *e, explore_moment *m, const refute_sum *sum) {
    refute_sum value;
    uint16_t unknown = solved(e, sum, &value);
    if (!unknown || grows(e, m, unknown, &value) || !replace(e, m, unknown, &value)) return false;
    keep_range(e, m, unknown, &value);
    return true;
}

bool tvm_explore_learn(explorer *e, explore_moment *m, const refute_sum *sum) {
    int64_t number, low, high;
    tvm_refute_range(e->unknowns, sum, &low, &high);
    if (high < 0) return false;
    if (high == 0 && learn_equal(e, m, sum)) return true;
    for (uint32_t i = 0; i < m->fact_count; i++) {
        refute_sum both = *sum;
        if (!tvm_refute_add(&both, 1, &m->facts[i]) || !tvm_refute_is_number(&both, &number)) continue;
        if (number < 0) return false;
        if (number == 0 && learn_equal(e, m, sum)) return true;
    }
    keep_fact(e, m, sum);
    return true;
}

tvm_dtype tvm_explore_type(const explorer *e, uint32_t value) {
    for (uint32_t s = 0; s < e->p->kernel->slot_count; s++)
        if (e->index[s] == (int32_t)value) return e->p->kernel->slots[s].dtype;
    return TVM_I(64);
}

/* ---- fewer facts ---- */

/* How much the fact says: that of fewer terms and unknowns is kept first. */
static unsigned length_of(const refute_sum *sum) {
    unsigned length = 0;
    for (uint32_t i = 0; i < sum->count; i++)
        for (unsigned d = 0; d < REFUTE_DEGREE; d++) length += sum->terms[i].of[d] != 0;
    return length;
}

void tvm_explore_tidy(explorer *e, explore_moment *m) {
    enum { LONGEST = REFUTE_TERMS * REFUTE_DEGREE };
    const uint32_t count = m->fact_count;
    refute_sum *facts = malloc((count + (size_t)1) * sizeof *facts);
    if (!facts || !solver_of(e, m)) {
        free(facts);
        return;
    }
    memcpy(facts, m->facts, count * sizeof *facts);
    free(m->solver);
    m->solver = NULL;
    m->fact_count = m->solved = 0;
    for (unsigned length = 0; length <= LONGEST; length++)
        for (uint32_t i = 0; i < count; i++)
            if (length_of(&facts[i]) == length && !tvm_explore_follows(e, m, &facts[i], 0))
                m->facts[m->fact_count++] = facts[i];
    m->looked = m->fact_count;
    free(facts);
}

/* ---- what is not asked for any more ---- */

static void mark(bool *live, const refute_sum *sum) {
    for (uint32_t i = 0; i < sum->count; i++)
        for (unsigned d = 0; d < REFUTE_DEGREE; d++) live[sum->terms[i].of[d]] = true;
}

/* Unknowns of what is alike in all blocks, as the expression has it. */
static void mark_leaves(const explorer *e, uint32_t expr, bool *live) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    if (e->leaves[expr]) live[e->leaves[expr]] = true;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++) mark_leaves(e, node->operands[i], live);
}

/* Is the value one of `for`, which may be beyond its type behind the last turn? */
static bool counts(const explorer *e, uint32_t value) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    bool any = false;
    for (uint32_t i = 0; i < kernel->insn_count && !any; i++)
        any = kernel->insns[i].op == TVM_OP_FOR && e->index[kernel->insns[i].result] == (int32_t)value;
    return any;
}

/* That a scalar is one of its type. */
static void keep_type(explorer *e, explore_moment *m, uint32_t value) {
    int64_t least, most;
    const refute_sum *sum = &m->values[value];
    tvm_explore_limits(tvm_explore_type(e, value), &least, &most);
    refute_sum up = tvm_refute_number(most), down = *sum, low = tvm_refute_number(least);
    if (most < INT64_MAX && tvm_refute_add(&up, -1, sum)) keep_fact(e, m, &up);
    if (least > INT64_MIN / 2 && tvm_refute_add(&down, -1, &low)) keep_fact(e, m, &down);
}

void tvm_explore_drop(explorer *e, explore_moment *m, uint32_t from) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    bool live[REFUTE_UNKNOWNS] = {true};
    if (e->exact) return;
    for (uint32_t v = 0; v < e->values; v++) mark(live, &m->values[v]);
    for (unsigned axis = 0; axis < 3; axis++) {
        const refute_sum grid = tvm_explore_grid(e, axis);
        mark(live, &grid);
    }
    for (uint32_t i = from; i < kernel->insn_count; i++) {
        const tvm_operand *operands = tvm_operands(kernel, &kernel->insns[i]);
        for (uint32_t o = 0; o < kernel->insns[i].count && e->insns[i]; o++)
            if (operands[o].kind == TVM_OPERAND_EXPR) mark_leaves(e, operands[o].value, live);
    }
    for (uint32_t v = 0; v < e->followed; v++)
        if (!counts(e, v)) keep_type(e, m, v);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->fact_count; i++) {
        bool all = true;
        for (uint32_t t = 0; t < m->facts[i].count; t++)
            for (unsigned d = 0; d < REFUTE_DEGREE; d++) all = all && live[m->facts[i].terms[t].of[d]];
        if (all) m->facts[kept++] = m->facts[i];
    }
    free(m->solver);
    m->solver = NULL;
    m->solved = 0;
    m->fact_count = m->looked = kept;
}

/* ---- joins ---- */

/* Is by * (bound - the value) 0 or more in each of them? */
static bool is_bound(explorer *e, explore_moment *const *of, uint32_t count, uint32_t value,
                     const refute_sum *bound, int64_t by) {
    for (uint32_t i = 0; i < count; i++) {
        refute_sum sum = {.count = 0};
        if (!tvm_refute_add(&sum, by, bound) || !tvm_refute_add(&sum, -by, &of[i]->values[value]) ||
            !tvm_explore_follows(e, of[i], &sum, 0))
            return false;
    }
    return true;
}

/* Is it a sum or difference of scalars and numbers? */
static bool is_sum(const explorer *e, uint32_t expr) {
    const tvm_expr *node = &e->p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_ADD || node->op == TVM_EXPR_SUB) return is_sum(e, node->a) && is_sum(e, node->b);
    return node->op == TVM_EXPR_INTEGER || (node->op == TVM_EXPR_SLOT && tvm_dtype_is_integer(node->type) &&
                                            (node->a < e->p->kernel->param_count || e->index[node->a] >= 0));
}

/* What is below, or above, the value in all of them becomes a fact of what it is called. */
static void bound(explorer *e, explore_moment *const *of, uint32_t count, uint32_t value,
                  const refute_sum *bound, const refute_sum *made, explore_moment *to) {
    for (int64_t by = -1; by <= 1; by += 2) {
        refute_sum fact = {.count = 0};
        if (is_bound(e, of, count, value, bound, by) && tvm_refute_add(&fact, by, bound) &&
            tvm_refute_add(&fact, -by, made))
            keep_fact(e, to, &fact);
    }
}

/* By sums that the text assigns to the scalar somewhere. */
static void bound_by_text(explorer *e, explore_moment *const *of, uint32_t count, uint32_t value,
                          const refute_sum *made, explore_moment *to) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op != TVM_OP_LET || e->index[insn->result] != (int32_t)value) continue;
        const uint32_t expr = tvm_operands(kernel, insn)[0].value;
        if (!is_sum(e, expr)) continue;
        bool exact = e->exact;
        e->exact = true;
        refute_sum sum = tvm_explore_value(e, of[0], expr);
        e->exact = exact;
        bound(e, of, count, value, &sum, made, to);
    }
}

/* An unknown for a value that is not the same in all, with facts: it is above a small number, and above, or
 * below, what it is in one of them, or what the text assigns it. */
static refute_sum joined(explorer *e, explore_moment *const *of, uint32_t count, uint32_t value,
                         explore_moment *to) {
    refute_sum made = tvm_explore_unknown(e, tvm_explore_type(e, value), true), number;
    if (value >= e->followed) return made;
    for (int64_t least = 1; least >= -1; least--) {
        number = tvm_refute_number(least);
        if (!is_bound(e, of, count, value, &number, -1)) continue;
        refute_unknown *unknown = &e->unknowns->of[made.terms[0].of[0]];
        if (unknown->low < least) unknown->low = least;
        break;
    }
    for (uint32_t i = 0; i < count; i++) bound(e, of, count, value, &of[i]->values[value], &made, to);
    bound_by_text(e, of, count, value, &made, to);
    return made;
}

/* One of which is so what is of all from the first on; they are freed. */
void tvm_explore_join(explorer *e, explore_moments *moments, uint32_t first) {
    explore_moment *const *of = moments->of + first;
    const uint32_t count = moments->count - first;
    explore_moment *to = count > 1 ? tvm_explore_new(e) : NULL;
    if (!to) return;
    for (uint32_t i = 0; i < of[0]->fact_count; i++) {
        bool all = true;
        for (uint32_t k = 1; k < count && all; k++) {
            all = false;
            for (uint32_t j = 0; j < of[k]->fact_count && !all; j++)
                all = memcmp(&of[0]->facts[i], &of[k]->facts[j], sizeof *to->facts) == 0;
        }
        if (all) to->facts[to->fact_count++] = of[0]->facts[i];
    }
    for (uint32_t v = 0; v < e->values; v++) {
        bool same = true;
        for (uint32_t k = 1; k < count && same; k++)
            same = memcmp(&of[0]->values[v], &of[k]->values[v], sizeof *to->values) == 0;
        to->values[v] = same ? of[0]->values[v] : joined(e, of, count, v, to);
    }
    while (moments->count > first) tvm_explore_free(moments->of[--moments->count]);
    tvm_explore_add(e, moments, to);
}

/* ---- choices ---- */

/* One that the facts leave open. */
bool tvm_explore_choose(explorer *e) {
    if (e->choice_at == EXPLORE_CHOICES) {
        e->failed = true;
        return true;
    }
    if (e->choice_at == e->choice_count) e->choices[e->choice_count++] = true;
    return e->choices[e->choice_at++];
}

/* Is the sum 0 or more? */
bool tvm_explore_is_positive(explorer *e, explore_moment *m, const refute_sum *sum) {
    refute_sum not = tvm_refute_number(-1);
    if (!tvm_refute_add(&not, -1, sum)) return tvm_explore_choose(e);
    do {
        if (tvm_explore_follows(e, m, sum, 0)) return true;
        if (tvm_explore_follows(e, m, &not, 0)) return false;
    } while (tvm_explore_look(e, m, sum));
    bool is = tvm_explore_choose(e);
    const refute_sum none = {.count = 0};
    if (!tvm_explore_learn(e, m, is ? sum : &not )) m->cannot_be = true;
    tvm_explore_look(e, m, &none);
    if (tvm_explore_is_refuted(e, m, 0)) m->cannot_be = true;
    return is;
}

void tvm_explore_each(explorer *e, explore_moments *moments, bool joins, explore_step *what,
                      const void *how) {
    explore_moments made = {0};
    for (uint32_t i = 0; i < moments->count && !e->failed; i++) {
        const uint32_t first = made.count;
        e->choice_count = 0;
        for (bool more = true; more && !e->failed;) {
            explore_moment *m = tvm_explore_copy(e, moments->of[i]);
            e->choice_at = 0;
            if (m && what(e, m, how) && !m->cannot_be)
                tvm_explore_add(e, &made, m);
            else
                tvm_explore_free(m);
            while (e->choice_count && !e->choices[e->choice_count - 1]) e->choice_count--;
            more = e->choice_count > 0;
            if (more) e->choices[e->choice_count - 1] = false;
        }
        if (joins && !e->failed && (made.count > first + 3 || made.count > EXPLORE_APART))
            tvm_explore_join(e, &made, first);
    }
    tvm_explore_clear(moments);
    *moments = made;
}
