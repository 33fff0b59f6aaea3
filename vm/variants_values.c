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

/* The kinds of steps that formulas are mostly made of have code of their own: operator, bits and sign of the
 * result, sign of the operands. */
#define KIND_TABLE(X)                                                                                        \
    X(MULTIPLY_ADD_32, TVM_INTEGER_MULTIPLY_ADD, 32, true, true)                                             \
    X(MULTIPLY_ADD_64, TVM_INTEGER_MULTIPLY_ADD, 64, true, true)                                             \
    X(CDIV_32, TVM_EXPR_CDIV, 32, true, true)                                                                \
    X(CDIV_64, TVM_EXPR_CDIV, 64, true, true)                                                                \
    X(DIV_32, TVM_EXPR_DIV, 32, true, true)                                                                  \
    X(DIV_64, TVM_EXPR_DIV, 64, true, true)                                                                  \
    X(MIN_64, TVM_EXPR_MIN, 64, true, true)                                                                  \
    X(MAX_64, TVM_EXPR_MAX, 64, true, true)                                                                  \
    X(SELECT_32, TVM_EXPR_SELECT, 32, true, false)                                                           \
    X(SELECT_64, TVM_EXPR_SELECT, 64, true, false)                                                           \
    X(LE, TVM_EXPR_LE, 1, false, true)                                                                       \
    X(GT, TVM_EXPR_GT, 1, false, true)

typedef enum kind {
    KIND_ANY,
    KIND_CDIV_BY, /* CDIV_32 by a constant, of which there is a reciprocal */
#define NAME(id, ...) KIND_##id,
    KIND_TABLE(NAME)
#undef NAME
} kind;

/* The operands of a step. */
typedef struct refs {
    uint16_t a, b, c;
} refs;

/* Steps of one kind that read nothing of each other. */
typedef struct batch {
    uint16_t kind, count;
} batch;

/* The steps that are needed together. */
typedef struct segment {
    uint32_t first_step, first_batch, batch_count;
} segment;

/* A comparison of two values, or one as it is, and the segments that they take. */
typedef struct test {
    tvm_step step;
    bool compares;
    uint64_t segments;
} test;

/* What a number from 0 to 2^31 - 1 is multiplied by and shifted to be divided by a constant (Granlund and
 * Montgomery, "Division by Invariant Integers using Multiplication", 1994, theorem 4.2). A division takes
 * several times as long. */
typedef struct reciprocal {
    uint64_t factor; /* 0: there is none */
    unsigned shift;
} reciprocal;

/* Values are numbered: the constants, the arguments that are read, the results of the steps. */
struct tvm_values {
    uint32_t constant_count, param_count, step_count;
    segment segments[SEGMENTS]; /* each after those that it reads */
    test *tests;
    tvm_step *steps;
    refs *operands; /* of the steps */
    batch *batches;
    uint16_t *params;
    reciprocal *reciprocals; /* of the constants */
    int64_t constants[];
};

/* ---- making ---- */

/* Which tests need a value. */
typedef struct set {
    uint64_t words[SET_WORDS];
} set;

typedef struct node {
    uint32_t same; /* the expression that it is always equal to, or itself */
    bool taken;    /* is made of what steps know */
    bool constant;
    bool joined;      /* a product that the sum which alone reads it makes with itself */
    uint32_t product; /* of a sum: the operand so joined; else TVM_NONE */
    uint32_t uses;
    uint16_t value;
    uint16_t segment, round, turn; /* of a step: its place; round 0: it has none yet */
    int64_t number;                /* of a constant */
    set needed;
} node;

/* A step on its way to its place. */
typedef struct placed {
    uint64_t key; /* segment, round, kind */
    uint32_t turn, expr;
} placed;

typedef struct maker {
    const tvm_ir_kernel *head;
    tvm_eval_env env;
    const uint8_t *leaves;
    const uint32_t *roots, *together; /* together: the number of each root's group */
    uint32_t root_count, group_count, groups;
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
    node *made = &m->nodes[index];
    tvm_scalar value;
    unsigned arity = tvm_expr_arity(e);
    *made = (node){
        .same = index, .product = TVM_NONE, .value = NO_VALUE, .taken = e->type.kind != TVM_KIND_FLOAT};
    if (made->taken && !(m->leaves[index] & TVM_LEAF_PARAM) &&
        tvm_expr_eval(m->head, index, &m->env, &value, NULL) == TVM_OK) {
        made->constant = true;
        made->number = value.i;
        return;
    }
    made->taken = made->taken && (arity || e->op == TVM_EXPR_SLOT);
    for (unsigned i = 0; i < arity; i++) made->taken = made->taken && m->nodes[e->operands[i]].taken;
    if (made->taken && keeps_value(m, e)) made->same = m->nodes[e->a].same;
}

static uint32_t group_of(const maker *m, uint32_t root) {
    return (uint32_t)((uint64_t)m->together[root] * m->groups / m->group_count);
}

static void use(const maker *m, uint32_t expr, const set *needed) {
    node *used = &m->nodes[m->nodes[expr].same];
    used->uses++;
    add_all(&used->needed, needed);
}

/* A comparison is made by the test itself, not by a step. */
static void need_root(const maker *m, uint32_t root) {
    const tvm_expr *e = expr_of(m, m->roots[root]);
    set in = {{0}};
    in.words[group_of(m, root) / 64] = UINT64_C(1) << group_of(m, root) % 64;
    if (!m->nodes[m->roots[root]].taken) return;
    if (tvm_expr_is_comparison(e->op)) {
        use(m, e->a, &in);
        use(m, e->b, &in);
    } else {
        use(m, m->roots[root], &in);
    }
}

static void find_needed(const maker *m) {
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        m->nodes[i].needed = (set){{0}};
        m->nodes[i].uses = 0;
    }
    for (uint32_t r = 0; r < m->root_count; r++) need_root(m, r);
    for (uint32_t i = m->head->expr_count; i-- > 0;) {
        const tvm_expr *e = expr_of(m, i);
        const node *from = &m->nodes[i];
        if (from->constant || is_empty(&from->needed)) continue;
        for (unsigned o = 0; o < tvm_expr_arity(e); o++) use(m, e->operands[o], &from->needed);
    }
}

/* A product and a sum of one type wrap alike whether in two steps or in one. */
static void join_products(const maker *m) {
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        const tvm_expr *e = expr_of(m, i);
        const uint32_t operands[2] = {e->a, e->b};
        node *sum = &m->nodes[i];
        if (e->op != TVM_EXPR_ADD || sum->constant || is_empty(&sum->needed)) continue;
        for (unsigned o = 0; o < 2 && sum->product == TVM_NONE; o++) {
            uint32_t product = m->nodes[operands[o]].same;
            const tvm_expr *p = expr_of(m, product);
            if (p->op != TVM_EXPR_MUL || m->nodes[product].constant || m->nodes[product].uses != 1 ||
                !tvm_dtype_same(p->type, e->type))
                continue;
            m->nodes[product].joined = true;
            sum->product = product;
        }
    }
}

typedef enum sort { NOTHING, CONSTANT, ARGUMENT, STEP } sort;

static sort sort_of(const maker *m, uint32_t i) {
    const node *n = &m->nodes[i];
    if (is_empty(&n->needed) || n->same != i || n->joined) return NOTHING;
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

/* Behind the constants of the program stand 0, 1 and -1. */
static uint16_t zero_of(const maker *m) {
    return (uint16_t)(m->values->constant_count - 3);
}

static bool allocate(maker *m) {
    size_t constants = m->constants + (size_t)3;
    size_t bytes = sizeof *m->values + constants * sizeof m->values->constants[0] +
                   m->root_count * sizeof(test) +
                   m->steps * (sizeof(tvm_step) + sizeof(refs) + sizeof(batch)) +
                   m->params * sizeof(uint16_t) + constants * sizeof(reciprocal);
    m->values = calloc(1, bytes);
    if (!m->values) return false;
    m->values->reciprocals = (reciprocal *)(void *)(m->values->constants + constants);
    m->values->tests = (test *)(void *)(m->values->reciprocals + constants);
    m->values->steps = (tvm_step *)(void *)(m->values->tests + m->root_count);
    m->values->operands = (refs *)(void *)(m->values->steps + m->steps);
    m->values->batches = (batch *)(void *)(m->values->operands + m->steps);
    m->values->params = (uint16_t *)(void *)(m->values->batches + m->steps);
    m->values->constant_count = (uint32_t)constants;
    m->values->param_count = m->params;
    m->values->step_count = m->steps;
    return true;
}

static reciprocal reciprocal_of(int64_t number) {
    if (number <= 0 || number > INT32_MAX) return (reciprocal){0};
    unsigned shift = 31;
    while (INT64_C(1) << (shift - 31) < number) shift++;
    return (reciprocal){(UINT64_C(1) << shift) / (uint64_t)number + 1, shift};
}

static void place_leaves(maker *m, sort wanted) {
    uint32_t param = 0;
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        if (sort_of(m, i) != wanted) continue;
        if (wanted == CONSTANT) {
            m->values->constants[m->count] = m->nodes[i].number;
            m->values->reciprocals[m->count] = reciprocal_of(m->nodes[i].number);
        }
        if (wanted == ARGUMENT) m->values->params[param++] = (uint16_t)expr_of(m, i)->a;
        m->nodes[i].value = (uint16_t)m->count++;
    }
}

/* Sums, differences and products are the same step. */
static tvm_step step_of(const maker *m, uint32_t expr) {
    const tvm_expr *e = expr_of(m, expr);
    unsigned arity = tvm_expr_arity(e);
    uint32_t product = m->nodes[expr].product;
    tvm_step made = tvm_step_of(m->head, e);
    made.a = value_of(m, e->a);
    if (arity > 1) made.b = value_of(m, e->b);
    if (arity > 2) made.c = value_of(m, e->c);
    if (e->op == TVM_EXPR_MUL) {
        made.c = zero_of(m);
    } else if (product != TVM_NONE) {
        made.c = value_of(m, m->nodes[e->a].same == product ? e->b : e->a);
        made.a = value_of(m, expr_of(m, product)->a);
        made.b = value_of(m, expr_of(m, product)->b);
    } else if (e->op == TVM_EXPR_ADD) {
        made.c = made.b;
        made.b = (uint16_t)(zero_of(m) + 1);
    } else if (e->op == TVM_EXPR_SUB) {
        made.c = made.a;
        made.a = made.b;
        made.b = (uint16_t)(zero_of(m) + 2);
    }
    if (e->op == TVM_EXPR_MUL || e->op == TVM_EXPR_ADD || e->op == TVM_EXPR_SUB)
        made.kind.op = TVM_INTEGER_MULTIPLY_ADD;
    return made;
}

/* Have all steps of the segment that it reads their places, before those that this turn of this round gives?
 * Products that are joined read what their sums do. */
static bool is_ready(const maker *m, uint32_t expr, const node *at) {
    const tvm_expr *e = expr_of(m, expr);
    for (unsigned o = 0; o < tvm_expr_arity(e); o++) {
        uint32_t i = m->nodes[e->operands[o]].same;
        const node *read = &m->nodes[i];
        bool is_placed = read->round && (read->round != at->round || read->turn != at->turn);
        if (read->joined ? !is_ready(m, i, at)
                         : !is_placed && read->segment == at->segment && sort_of(m, i) == STEP)
            return false;
    }
    return true;
}

static kind kind_of(const maker *m, const tvm_step *step) {
#define FIND(id, of, of_bits, of_signed, takes_signed)                                                       \
    if (step->kind.op == (of) && step->kind.bits == (of_bits) && step->kind.result_signed == (of_signed) &&  \
        step->kind.operands_signed == (takes_signed))                                                        \
        return KIND_##id;
    if (step->kind.op == TVM_EXPR_CDIV && step->kind.bits == 32 && step->kind.result_signed &&
        step->kind.operands_signed && step->b < m->values->constant_count &&
        m->values->reciprocals[step->b].factor)
        return KIND_CDIV_BY;
    KIND_TABLE(FIND)
#undef FIND
    return KIND_ANY;
}

static int by_key(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return (x->expr > y->expr) - (x->expr < y->expr);
}

/* Steps of one kind from `from` on. */
static uint32_t end_of_kind(const placed *order, uint32_t from, uint32_t end) {
    uint32_t at = from;
    while (at < end && order[at].key == order[from].key) at++;
    return at;
}

/* Puts those steps of a kind into the round that read nothing but what has a place, in turns: in each those
 * that read nothing of it, so that none waits for the one before it. */
static uint32_t take_ready(const maker *m, const placed *order, uint32_t from, uint32_t to, uint16_t round) {
    uint32_t all = 0, taken = 1;
    for (uint16_t turn = 1; taken; turn++) {
        taken = 0;
        for (uint32_t i = from; i < to; i++) {
            node *step = &m->nodes[order[i].expr];
            const node at = {.segment = step->segment, .round = round, .turn = turn};
            if (step->round || !is_ready(m, order[i].expr, &at)) continue;
            step->round = round;
            step->turn = turn;
            taken++;
        }
        all += taken;
    }
    return all;
}

/* Gives the steps of a segment their rounds: in each those of the kind of which most can be taken, as each
 * run of steps of one kind has a beginning and an end that take time. */
static void give_rounds(const maker *m, const placed *order, uint32_t begin, uint32_t end) {
    uint32_t left = end - begin;
    for (uint16_t round = 1; left; round++) {
        uint32_t best = begin, most = 0;
        for (uint32_t from = begin, to; from < end; from = to) {
            to = end_of_kind(order, from, end);
            uint32_t count = take_ready(m, order, from, to, round);
            if (count > most) best = from, most = count;
            for (uint32_t i = from; count && i < to; i++) /* another kind may have more */
                if (m->nodes[order[i].expr].round == round) m->nodes[order[i].expr].round = 0;
        }
        left -= take_ready(m, order, best, end_of_kind(order, best, end), round);
    }
}

/* Segment by segment, and in each what is alike together. */
static void order_steps(const maker *m, placed *order) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->head->expr_count; i++) {
        node *step = &m->nodes[i];
        step->round = 0;
        if (sort_of(m, i) != STEP) continue;
        const tvm_step made = step_of(m, i); /* its kind; the operands come later */
        step->segment = (uint16_t)segment_of(m, &step->needed);
        order[count++] = (placed){(uint64_t)step->segment << 48 | (uint64_t)kind_of(m, &made) << 24 |
                                      (uint64_t)made.kind.op << 16 | (uint64_t)made.kind.bits << 8 |
                                      (uint64_t)made.kind.result_signed << 1 | made.kind.operands_signed,
                                  0, i};
    }
    qsort(order, count, sizeof *order, by_key);
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        end = begin;
        while (end < count && order[end].key >> 48 == order[begin].key >> 48) end++;
        give_rounds(m, order, begin, end);
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i].key |= (uint64_t)m->nodes[order[i].expr].round << 32;
        order[i].turn = m->nodes[order[i].expr].turn;
    }
    qsort(order, count, sizeof *order, by_key);
}

static bool place_steps(maker *m) {
    tvm_values *made = m->values;
    placed *order = malloc((m->steps + (size_t)1) * sizeof *order);
    uint32_t batches = 0;
    if (!order) return false;
    order_steps(m, order);
    for (uint32_t s = 0; s < m->steps; s++) m->nodes[order[s].expr].value = (uint16_t)(m->count + s);
    for (uint32_t s = 0; s < m->steps; s++) {
        segment *of = &made->segments[order[s].key >> 48];
        tvm_step *step = &made->steps[s];
        *step = step_of(m, order[s].expr);
        made->operands[s] = (refs){step->a, step->b, step->c};
        if (s == 0 || order[s].key != order[s - 1].key) {
            if (!of->batch_count++) *of = (segment){s, batches, 1};
            made->batches[batches++] = (batch){(uint16_t)kind_of(m, step), 0};
        }
        made->batches[batches - 1].count++;
    }
    free(order);
    return true;
}

static test test_of(const maker *m, uint32_t root) {
    const tvm_expr *e = expr_of(m, m->roots[root]);
    uint32_t group = group_of(m, root);
    test made = {.compares = tvm_expr_is_comparison(e->op)};
    if (made.compares)
        made.step = step_of(m, m->roots[root]);
    else
        made.step.a = value_of(m, m->roots[root]);
    for (uint32_t s = 0; s < m->segment_count; s++)
        if (m->sets[s].words[group / 64] >> group % 64 & 1) made.segments |= UINT64_C(1) << s;
    return made;
}

static bool lay_out(maker *m, uint32_t *tests) {
    if (!allocate(m)) return false;
    place_leaves(m, CONSTANT);
    m->values->constants[m->count + 1] = 1;
    m->values->constants[m->count + 2] = -1;
    m->count += 3;
    place_leaves(m, ARGUMENT);
    if (!place_steps(m)) return false;
    for (uint32_t r = 0; r < m->root_count; r++) {
        if (!m->nodes[m->roots[r]].taken) continue;
        m->values->tests[r] = test_of(m, r);
        tests[r] = r;
    }
    return true;
}

bool tvm_values_make(const tvm_ir_kernel *head, const tvm_launch_env *env, const uint8_t *leaves,
                     const uint32_t *roots, const uint32_t *together, uint32_t count, uint32_t *tests,
                     tvm_values **values) {
    maker m = {.head = head,
               .env = tvm_launch_eval_env(env),
               .leaves = leaves,
               .roots = roots,
               .together = together,
               .root_count = count};
    *values = NULL;
    for (uint32_t r = 0; r < count; r++) tests[r] = TVM_NO_TEST;
    if (!count) return true;
    m.group_count = together[count - 1] + 1;
    m.groups = m.group_count < SETS ? m.group_count : SETS;
    m.nodes = malloc((head->expr_count + (size_t)1) * sizeof *m.nodes);
    if (!m.nodes) return false;
    for (uint32_t i = 0; i < head->expr_count; i++) find_node(&m, i);
    find_needed(&m);
    join_products(&m);
    while (!find_segments(&m)) {
        m.groups /= 2;
        find_needed(&m);
    }
    bool fits = (uint64_t)m.constants + 3 + m.params + m.steps <= TVM_VALUES_MAX,
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

/* The sum is wrapped to 32 bits before it is divided. */
static inline int64_t divide_up(int64_t a, int64_t by, const reciprocal *r) {
    int64_t sum = (int32_t)(uint32_t)((uint64_t)a + (uint64_t)by - 1);
    return sum < 0 ? sum / by : (int64_t)((uint64_t)sum * r->factor >> r->shift);
}

/* Steps of one kind, which is known where this is inlined. */
TVM_INLINE bool run_alike(tvm_integer_op op, const refs *at, const refs *last, const int64_t *values,
                          int64_t *result) {
    _Pragma("GCC unroll 4") for (; at < last; at++) {
        const tvm_step step = {op, at->a, at->b, at->c};
        if (!tvm_step_run(&step, values, result++)) return false;
    }
    return true;
}

static bool run_batch(const tvm_values *all, const batch *b, const refs *at, int64_t *values,
                      int64_t *result) {
    const refs *last = at + b->count;
    switch ((kind)b->kind) {
#define CASE(id, op, bits, is_signed, takes_signed)                                                          \
    case KIND_##id:                                                                                          \
        return run_alike((tvm_integer_op){op, bits, is_signed, takes_signed}, at, last, values, result);
        KIND_TABLE(CASE)
#undef CASE
    case KIND_CDIV_BY:
        _Pragma("GCC unroll 4") for (; at < last; at++) *result++ =
            divide_up(values[at->a], values[at->b], &all->reciprocals[at->b]);
        return true;
    case KIND_ANY:
        break;
    }
    for (; at < last; at++)
        if (!tvm_step_run(&all->steps[at - all->operands], values, result++)) return false;
    return true;
}

static bool run_segment(const tvm_values *all, const segment *s, int64_t *values) {
    const refs *at = all->operands + s->first_step;
    int64_t *result = values + all->constant_count + all->param_count + s->first_step;
    const batch *b = all->batches + s->first_batch, *end = b + s->batch_count;
    for (; b < end; at += b->count, result += b->count, b++)
        if (!run_batch(all, b, at, values, result)) return false;
    return true;
}

bool tvm_values_find(const tvm_values *values, tvm_values_run *run, uint32_t number, int64_t *value) {
    const test *t = &values->tests[number];
    for (uint64_t missing = t->segments & ~run->known; missing; missing &= missing - 1) {
        unsigned s = (unsigned)__builtin_ctzll(missing);
        uint64_t bit = UINT64_C(1) << s;
        if (run->failed & bit) return false;
        *(run_segment(values, &values->segments[s], run->values) ? &run->known : &run->failed) |= bit;
        if (run->failed & bit) return false;
    }
    *value = run->values[t->step.a];
    if (t->compares)
        *value = tvm_integer_compare(t->step.kind.op, t->step.kind.operands_signed, *value,
                                     run->values[t->step.b]);
    return true;
}

bool tvm_values_place(const tvm_values *values, uint32_t number, uint16_t *place) {
    *place = values->tests[number].step.a;
    return !values->tests[number].compares;
}
