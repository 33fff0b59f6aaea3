/* Makes one chain of decisions from the conditions of an entry. && || and ! become jumps, conditions on the
 * device alone are folded, and a comparison of a parameter with a constant is one range check. */
#include "variants_impl.h"

#include <stdlib.h>

/* What is known where a decision is reached. */
typedef struct fact {
    decision test;
    bool outcome;
} fact;

enum { FACTS = 16, SKIPS = 64 };

typedef struct maker {
    tvm_variants *table;
    const tvm_ir_kernel *head;
    tvm_eval_env env;
    uint8_t *leaves; /* of each expression */
    fact facts[FACTS + 1];
    unsigned fact_count;
    uint32_t at; /* the case that is made */
    bool failed; /* out of memory */
} maker;

static uint32_t add_decision(maker *m, const decision *made) {
    tvm_variants *t = m->table;
    if (t->count == t->capacity) {
        uint32_t wanted = t->capacity ? t->capacity * 2 : 64;
        decision *moved = wanted < CHOSEN ? reallocarray(t->decisions, wanted, sizeof *moved) : NULL;
        if (!moved) {
            m->failed = true;
            return NOBODY;
        }
        t->decisions = moved;
        t->capacity = wanted;
    }
    t->decisions[t->count] = *made;
    t->decisions[t->count].of = m->at;
    return t->count++;
}

static bool integer_constant(const maker *m, uint32_t expr, int64_t *value) {
    const tvm_expr *node = &m->head->exprs[expr];
    *value = node->value.i;
    return node->op == TVM_EXPR_INTEGER;
}

/* A parameter of integers, as it is or widened to 64 bits, which changes no value as it is held. */
static bool parameter(const maker *m, uint32_t expr, uint16_t *param) {
    const tvm_expr *node = &m->head->exprs[expr];
    while (node->op == TVM_EXPR_CAST && node->type.bits == 64 && node->type.kind != TVM_KIND_FLOAT)
        node = &m->head->exprs[node->a];
    *param = (uint16_t)node->a;
    return node->op == TVM_EXPR_SLOT && node->type.kind != TVM_KIND_FLOAT;
}

/* m, or m % 16 */
static bool operand(const maker *m, uint32_t expr, decision *made) {
    const tvm_expr *node = &m->head->exprs[expr];
    int64_t modulus;
    made->is_signed = node->type.kind == TVM_KIND_INT;
    made->subject = PARAM;
    made->modulus = 0;
    if (parameter(m, expr, &made->param)) return true;
    if (node->op != TVM_EXPR_MOD || !parameter(m, node->a, &made->param) ||
        !integer_constant(m, node->b, &modulus) || modulus <= 0 || modulus > UINT32_MAX)
        return false;
    made->subject = made->is_signed ? SIGNED_MODULO : UNSIGNED_MODULO;
    made->modulus = (uint32_t)modulus;
    return true;
}

/* The values for which `value op constant` holds, or, returning true, does not: `!=` is `==` inverted, `<`
 * and `>` are `>=` and `<=`, so that no range is empty. */
static bool set_range(decision *made, unsigned op, int64_t constant) {
    uint64_t least = made->is_signed ? (uint64_t)INT64_MIN : 0, most = least - 1, at = (uint64_t)constant;
    made->low = op == TVM_EXPR_LE || op == TVM_EXPR_GT ? least : at;
    made->span = (op == TVM_EXPR_GE || op == TVM_EXPR_LT ? most : at) - made->low;
    return op == TVM_EXPR_NE || op == TVM_EXPR_LT || op == TVM_EXPR_GT;
}

/* The test that a bool expression without && || ! is; inverted: true where it does not hold. */
static decision test_of(const maker *m, uint32_t expr, bool *inverted) {
    const tvm_expr *node = &m->head->exprs[expr];
    bool compares = tvm_expr_is_comparison(node->op);
    decision made = {0};
    int64_t constant;
    if (node->op == TVM_EXPR_SLOT) { /* of type bool */
        made.param = (uint16_t)node->a;
        *inverted = set_range(&made, TVM_EXPR_NE, 0);
    } else if (compares && operand(m, node->a, &made) && integer_constant(m, node->b, &constant)) {
        *inverted = set_range(&made, node->op, constant);
    } else if (compares && operand(m, node->b, &made) && integer_constant(m, node->a, &constant)) {
        *inverted = set_range(&made, tvm_expr_mirrored(node->op), constant);
    } else {
        made = (decision){.subject = EXPRESSION, .low = expr};
        *inverted = false;
    }
    return made;
}

/* In the order of the values, as unsigned numbers. */
static uint64_t ordered(const decision *d, uint64_t value) {
    return d->is_signed ? value ^ (UINT64_C(1) << 63) : value;
}

/* Does the outcome of one decision tell that of another? */
static bool implied(const decision *d, bool outcome, const decision *other, bool *known) {
    if (d->subject != other->subject || d->param != other->param || d->modulus != other->modulus ||
        d->is_signed != other->is_signed)
        return false;
    *known = outcome;
    if (d->subject == EXPRESSION) return d->low == other->low;
    uint64_t low = ordered(d, d->low), high = ordered(d, d->low + d->span);
    uint64_t first = ordered(other, other->low), last = ordered(other, other->low + other->span);
    if (outcome) {
        *known = first <= low && high <= last;
        return *known || last < low || high < first;
    }
    bool within = low <= first && last <= high; /* the other's range, which the value is not in */
    *known = !within;
    bool below = first == 0 && last != UINT64_MAX && low <= last + 1 && high == UINT64_MAX;
    bool above = last == UINT64_MAX && first != 0 && high >= first - 1 && low == 0;
    return within || below || above;
}

static bool is_known(const maker *m, const decision *test, bool *outcome) {
    for (unsigned i = 0; i < m->fact_count; i++)
        if (implied(&m->facts[i].test, m->facts[i].outcome, test, outcome)) return true;
    return false;
}

/* Past the decisions whose outcome is known: so cases that begin alike are left together. */
static uint32_t skip_known(const maker *m, uint32_t at) {
    bool outcome;
    for (unsigned i = 0; i < SKIPS && !(at & CHOSEN) && is_known(m, &m->table->decisions[at], &outcome); i++)
        at = outcome ? m->table->decisions[at].if_true : m->table->decisions[at].if_false;
    return at;
}

/* Notes what follows from the expression being so; as much as there is room for. */
static void assume(maker *m, uint32_t expr, bool outcome) {
    const tvm_expr *node = &m->head->exprs[expr];
    if (m->fact_count >= FACTS) return;
    if (node->op == TVM_EXPR_LNOT) {
        assume(m, node->a, !outcome);
    } else if (node->op == (outcome ? TVM_EXPR_LAND : TVM_EXPR_LOR)) {
        assume(m, node->a, outcome);
        assume(m, node->b, outcome);
    } else if (node->op != TVM_EXPR_LAND && node->op != TVM_EXPR_LOR) {
        bool inverted;
        decision test = test_of(m, expr, &inverted);
        m->facts[m->fact_count++] = (fact){test, outcome != inverted};
    }
}

static uint32_t decide_leaf(maker *m, uint32_t expr, uint32_t if_true, uint32_t if_false) {
    bool inverted, outcome;
    decision made = test_of(m, expr, &inverted);
    made.if_true = inverted ? if_false : if_true;
    made.if_false = inverted ? if_true : if_false;
    if (is_known(m, &made, &outcome)) return outcome ? made.if_true : made.if_false;
    fact *last = &m->facts[m->fact_count++];
    *last = (fact){made, true};
    made.if_true = skip_known(m, made.if_true);
    last->outcome = false;
    made.if_false = skip_known(m, made.if_false);
    m->fact_count--;
    return add_decision(m, &made);
}

/* Where to begin in order to end at if_true or if_false as the expression decides. */
static uint32_t decide(maker *m, uint32_t expr, uint32_t if_true, uint32_t if_false) {
    const tvm_expr *node = &m->head->exprs[expr];
    bool both = node->op == TVM_EXPR_LAND;
    tvm_scalar value;
    if (m->failed) return NOBODY;
    if (!(m->leaves[expr] & TVM_LEAF_PARAM) && tvm_expr_eval(m->head, expr, &m->env, &value, NULL) == TVM_OK)
        return value.i ? if_true : if_false;
    if (node->op == TVM_EXPR_LNOT) return decide(m, node->a, if_false, if_true);
    if (!both && node->op != TVM_EXPR_LOR) return decide_leaf(m, expr, if_true, if_false);
    unsigned facts = m->fact_count;
    assume(m, node->a, both);
    uint32_t second = decide(m, node->b, if_true, if_false);
    m->fact_count = facts;
    return both ? decide(m, node->a, second, if_false) : decide(m, node->a, if_true, second);
}

static bool has_cost(const tvm_ir_entry *entry, uint32_t i) {
    return i < entry->case_count && entry->cases[i].cost != TVM_NONE;
}

/* Where a choice among costs goes on behind a candidate whose condition holds: past what follows from that.
 */
static uint32_t after_candidate(maker *m, uint32_t condition) {
    unsigned facts = m->fact_count;
    if (condition != TVM_NONE) assume(m, condition, true);
    uint32_t next = skip_known(m, m->table->start);
    m->fact_count = facts;
    return next;
}

/* Before those that follow it. *least is the end of the choice that the following case belongs to. */
static void add_case(maker *m, uint32_t i, uint32_t *least) {
    tvm_variants *t = m->table;
    const tvm_ir_case *made = &t->entry->cases[i];
    uint32_t taken = CHOSEN | i, candidate = NOBODY;
    m->at = i;
    if (has_cost(t->entry, i)) {
        decision end = {.subject = LEAST, .if_true = NOBODY, .if_false = t->start};
        if (!has_cost(t->entry, i + 1)) t->start = *least = add_decision(m, &end);
        uint32_t next = after_candidate(m, made->condition);
        decision offered = {.subject = CANDIDATE, .low = made->cost, .if_true = next, .if_false = next};
        taken = candidate = add_decision(m, &offered);
    }
    if (m->failed) return;
    t->rest[i] = t->start;
    t->start = made->condition == TVM_NONE ? taken : decide(m, made->condition, taken, t->start);
    if (m->failed || candidate == NOBODY) return;
    if (t->start == t->rest[i]) { /* the condition never holds on this device: its cost is not computed */
        t->count = candidate;
        return;
    }
    t->decisions[candidate].always = t->start == candidate;
    t->decisions[*least].if_true = t->start;
}

bool tvm_variants_make_chain(tvm_variants *table, const tvm_launch_env *env, uint8_t **leaves) {
    const tvm_ir_entry *entry = table->entry;
    maker m = {.table = table, .head = &entry->head, .env = tvm_launch_eval_env(env)};
    table->rest = calloc(entry->case_count + (size_t)1, sizeof *table->rest);
    m.leaves = malloc(m.head->expr_count + (size_t)1);
    if (m.leaves) tvm_expr_leaves_all(m.head, m.leaves);
    if (!m.leaves || !table->rest) {
        free(m.leaves);
        return false;
    }
    table->start = NOBODY;
    for (uint32_t i = entry->case_count, least = NOBODY; i-- > 0;) add_case(&m, i, &least);
    *leaves = m.leaves;
    if (m.failed) free(m.leaves);
    return !m.failed;
}
