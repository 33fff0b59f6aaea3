#include "variants_values.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

enum {
    NO_VALUE = UINT16_MAX,
    SEGMENTS = 64,
    SET_WORDS = 4,
    SETS = 64 * SET_WORDS /* most that a set can tell apart */
};

/* The steps that are needed together. */
typedef struct segment {
    uint32_t first, count;
} segment;

/* A comparison of two values, and the segments that they take. */
typedef struct test {
    tvm_step step;
    uint64_t segments;
} test;

/* Values are numbered: the constants, the arguments that are read, the results of the steps. */
struct tvm_values {
    uint32_t constant_count, param_count, step_count;
    segment segments[SEGMENTS]; /* each after those that it reads */
    test *tests;
    tvm_step *steps;
    uint16_t *params;
    int64_t constants[];
};

/* ---- making ---- */

/* Which tests need a value. */
typedef struct set {
    uint64_t words[SET_WORDS];
} set;

typedef struct node {
    uint32_t same; /* the expression that it is always equal to, itself among them */
    bool taken;    /* is made of what steps know */
    bool constant;
    uint16_t value;
    uint8_t segment;
    int64_t number; /* of a constant */
    set needed;
} node;

typedef struct maker {
    const tvm_ir_kernel *head;
    tvm_eval_env env;
    const uint8_t *leaves;
    const uint32_t *roots;
    uint32_t root_count, groups;
    node *nodes;
    set sets[SEGMENTS]; /* of each segment */
    uint32_t segment_count;
    tvm_values *values;
    uint32_t constants, params, steps, count; /* count: of values */
} maker;

static bool is_empty(const set *s) {
    uint64_t any = 0;
    for (unsigned w = 0; w < SET_WORDS; w++) any |= s->words[w];
    return !any;
}

static unsigned size_of(const set *s) {
    unsigned size = 0;
    for (unsigned w = 0; w < SET_WORDS; w++) size += (unsigned)__builtin_popcountll(s->words[w]);
    return size;
}

static void add_all(set *to, const set *from) {
    for (unsigned w = 0; w < SET_WORDS; w++) to->words[w] |= from->words[w];
}

static const tvm_expr *expr_of(const maker *m, uint32_t e) {
    return &m->head->exprs[e];
}

/* A conversion that changes no value as it is held: to the same type, or to 64 bits. */
static bool keeps_value(const maker *m, const tvm_expr *e) {
    tvm_dtype from = expr_of(m, e->a)->type;
    return e->op == TVM_EXPR_CAST && from.kind != TVM_KIND_FLOAT && e->type.kind != TVM_KIND_FLOAT &&
           (e->type.bits == 64 || tvm_dtype_same(e->type, from));
}

/* Operands come before their operators. */
static void find_node(const maker *m, uint32_t index) {
    const tvm_expr *e = expr_of(m, index);
    const uint32_t operands[3] = {e->a, e->b, e->c};
    node *made = &m->nodes[index];
    tvm_scalar value;
    unsigned arity = tvm_expr_op_info(e->op)->arity;
    *made = (node){.same = index, .value = NO_VALUE, .taken = e->type.kind != TVM_KIND_FLOAT};
    if (made->taken && !(m->leaves[index] & TVM_LEAF_PARAM) &&
        tvm_expr_eval(m->head, index, &m->env, &value, NULL) == TVM_OK) {
        made->constant = true;
        made->number = value.i;
        return;
    }
    made->taken = made->taken && (arity || e->op == TVM_EXPR_SLOT);
    for (unsigned i = 0; i < arity; i++) made->taken = made->taken && m->nodes[operands[i]].taken;
    if (made->taken && keeps_value(m, e)) made->same = m->nodes[e->a].same;
}

static uint32_t group_of(const maker *m, uint32_t root) {
    return (uint32_t)((uint64_t)root * m->groups / m->root_count);
}

/* A comparison is made by the test itself, not by a step. */
static void need_root(const maker *m, uint32_t root) {
    const tvm_expr *e = expr_of(m, m->roots[root]);
    set in = {{0}};
    in.words[group_of(m, root) / 64] = UINT64_C(1) << group_of(m, root) % 64;
    if (!m->nodes[m->roots[root]].taken) return;
    if (!tvm_expr_is_comparison(e->op)) {
        add_all(&m->nodes[m->roots[root]].needed, &in);
        return;
    }
    add_all(&m->nodes[e->a].needed, &in);
    add_all(&m->nodes[e->b].needed, &in);
}

static void find_needed(const maker *m) {
    for (uint32_t i = 0; i < m->head->expr_count; i++) m->nodes[i].needed = (set){{0}};
    for (uint32_t r = 0; r < m->root_count; r++) need_root(m, r);
    for (uint32_t i = m->head->expr_count; i-- > 0;) {
        const tvm_expr *e = expr_of(m, i);
        const uint32_t operands[3] = {e->a, e->b, e->c};
        const node *from = &m->nodes[i];
        if (from->constant || is_empty(&from->needed)) continue;
        if (from->same != i) {
            add_all(&m->nodes[from->same].needed, &from->needed);
            continue;
        }
        for (unsigned o = 0; o < tvm_expr_op_info(e->op)->arity; o++)
            add_all(&m->nodes[operands[o]].needed, &from->needed);
    }
}

typedef enum sort { NOTHING, CONSTANT, ARGUMENT, STEP } sort;

static sort sort_of(const maker *m, uint32_t i) {
    const node *n = &m->nodes[i];
    if (is_empty(&n->needed) || n->same != i) return NOTHING;
    if (n->constant) return CONSTANT;
    return expr_of(m, i)->op == TVM_EXPR_SLOT ? ARGUMENT : STEP;
}

/* The segment of the steps that the same tests need; SEGMENTS: there are too many. */
static uint32_t segment_of(const maker *m, const set *needed) {
    uint32_t s = 0;
    while (s < m->segment_count && memcmp(&m->sets[s], needed, sizeof *needed) != 0) s++;
    return s;
}

static int larger_first(const void *a, const void *b) {
    unsigned x = size_of(a), y = size_of(b);
    return (x < y) - (x > y);
}

/* What more tests need comes first: among it is all that a step reads. */
static bool find_segments(maker *m) {
    m->segment_count = 0;
    m->constants = m->params = m->steps = 0;
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        sort found = sort_of(m, i);
        m->constants += found == CONSTANT;
        m->params += found == ARGUMENT;
        m->steps += found == STEP;
        uint32_t s = found == STEP ? segment_of(m, &m->nodes[i].needed) : 0;
        if (s == SEGMENTS) return false;
        if (found == STEP && s == m->segment_count) m->sets[m->segment_count++] = m->nodes[i].needed;
    }
    qsort(m->sets, m->segment_count, sizeof m->sets[0], larger_first);
    return true;
}

/* ---- laying out ---- */

static uint16_t value_of(const maker *m, uint32_t expr) {
    return m->nodes[m->nodes[expr].same].value;
}

static bool allocate(maker *m) {
    size_t constants = m->constants + (size_t)1; /* and the zero that a bool is compared with */
    size_t bytes = sizeof *m->values + constants * sizeof m->values->constants[0] +
                   m->root_count * sizeof(test) + m->steps * sizeof(tvm_step) + m->params * sizeof(uint16_t);
    m->values = calloc(1, bytes);
    if (!m->values) return false;
    test *tests = (test *)(void *)(m->values->constants + constants);
    tvm_step *steps = (tvm_step *)(void *)(tests + m->root_count);
    m->values->tests = tests;
    m->values->steps = steps;
    m->values->params = (uint16_t *)(void *)(steps + m->steps);
    m->values->constant_count = (uint32_t)constants;
    m->values->param_count = m->params;
    m->values->step_count = m->steps;
    return true;
}

static void place_leaves(maker *m, sort wanted) {
    uint32_t param = 0;
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        if (sort_of(m, i) != wanted) continue;
        if (wanted == CONSTANT) m->values->constants[m->count] = m->nodes[i].number;
        if (wanted == ARGUMENT) m->values->params[param++] = (uint16_t)expr_of(m, i)->a;
        m->nodes[i].value = (uint16_t)m->count++;
    }
}

static tvm_step step_of(const maker *m, const tvm_expr *e) {
    unsigned arity = tvm_expr_op_info(e->op)->arity;
    tvm_step made = tvm_step_of(m->head, e);
    made.a = value_of(m, e->a);
    if (arity > 1) made.b = value_of(m, e->b);
    if (arity > 2) made.c = value_of(m, e->c);
    return made;
}

/* Each segment's together, in the order of the expressions, in which operands come first. */
static void place_steps(maker *m) {
    segment *segments = m->values->segments;
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        if (sort_of(m, i) != STEP) continue;
        m->nodes[i].segment = (uint8_t)segment_of(m, &m->nodes[i].needed);
        segments[m->nodes[i].segment].count++;
    }
    for (uint32_t s = 1; s < m->segment_count; s++)
        segments[s].first = segments[s - 1].first + segments[s - 1].count;
    uint32_t placed[SEGMENTS] = {0};
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        if (sort_of(m, i) != STEP) continue;
        uint32_t at = segments[m->nodes[i].segment].first + placed[m->nodes[i].segment]++;
        m->values->steps[at] = step_of(m, expr_of(m, i));
        m->nodes[i].value = (uint16_t)(m->count + at);
    }
}

/* A bool is compared with the constant zero. */
static test test_of(const maker *m, uint32_t root) {
    const tvm_expr *e = expr_of(m, m->roots[root]);
    uint32_t group = group_of(m, root);
    test made = {.step = {.op = TVM_EXPR_NE, .bits = 1}};
    if (tvm_expr_is_comparison(e->op)) {
        made.step = step_of(m, e);
    } else {
        made.step.a = value_of(m, m->roots[root]);
        made.step.b = (uint16_t)(m->values->constant_count - 1);
    }
    for (uint32_t s = 0; s < m->segment_count; s++)
        if (m->sets[s].words[group / 64] >> group % 64 & 1) made.segments |= UINT64_C(1) << s;
    return made;
}

static bool lay_out(maker *m, uint32_t *tests) {
    if (!allocate(m)) return false;
    place_leaves(m, CONSTANT);
    m->count++;
    place_leaves(m, ARGUMENT);
    place_steps(m);
    for (uint32_t r = 0; r < m->root_count; r++) {
        if (!m->nodes[m->roots[r]].taken) continue;
        m->values->tests[r] = test_of(m, r);
        tests[r] = r;
    }
    return true;
}

bool tvm_values_make(const tvm_ir_kernel *head, const tvm_launch_env *env, const uint8_t *leaves,
                     const uint32_t *roots, uint32_t count, uint32_t *tests, tvm_values **values) {
    maker m = {.head = head,
               .env = {.multiprocessors = (int32_t)env->multiprocessors, .target = (int32_t)env->target},
               .leaves = leaves,
               .roots = roots,
               .root_count = count,
               .groups = count < SETS ? count : SETS};
    *values = NULL;
    for (uint32_t r = 0; r < count; r++) tests[r] = TVM_NO_TEST;
    if (!count) return true;
    m.nodes = malloc((head->expr_count + (size_t)1) * sizeof *m.nodes);
    if (!m.nodes) return false;
    for (uint32_t i = 0; i < head->expr_count; i++) find_node(&m, i);
    find_needed(&m);
    while (!find_segments(&m)) {
        m.groups /= 2;
        find_needed(&m);
    }
    bool fits = (uint64_t)m.constants + 1 + m.params + m.steps <= TVM_VALUES_MAX,
         made = !fits || lay_out(&m, tests);
    free(m.nodes);
    *values = m.values;
    return made;
}

/* ---- evaluating ---- */

void tvm_values_begin(const tvm_values *values, const tvm_scalar *scalars, tvm_values_run *run) {
    uint32_t count = values->constant_count;
    run->known = run->failed = 0;
    memcpy(run->values, values->constants, count * sizeof run->values[0]);
    for (uint32_t p = 0; p < values->param_count; p++) run->values[count++] = scalars[values->params[p]].i;
}

static bool run_segment(const tvm_values *all, const segment *s, int64_t *values) {
    int64_t *results = values + all->constant_count + all->param_count;
    for (uint32_t i = s->first; i < s->first + s->count; i++)
        if (!tvm_step_run(&all->steps[i], values, &results[i])) return false;
    return true;
}

bool tvm_values_test(const tvm_values *values, tvm_values_run *run, uint32_t number, bool *holds) {
    const test *t = &values->tests[number];
    for (uint64_t missing = t->segments & ~run->known; missing; missing &= missing - 1) {
        unsigned s = (unsigned)__builtin_ctzll(missing);
        uint64_t bit = UINT64_C(1) << s;
        if (run->failed & bit) return false;
        *(run_segment(values, &values->segments[s], run->values) ? &run->known : &run->failed) |= bit;
        if (run->failed & bit) return false;
    }
    *holds = tvm_step_compare(&t->step, run->values[t->step.a], run->values[t->step.b]);
    return true;
}
