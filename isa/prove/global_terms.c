/* Terms: what scalars are, as integers that do not wrap where that is known. */
#include "global_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- the pool ---- */

static uint32_t bucket_of(const global_prover *g, const global_term *t) {
    uint64_t hash = (uint64_t)t->kind << 16 | (uint64_t)t->op << 8 | t->bits;
    const uint32_t words[] = {t->a, t->b, t->c, (uint32_t)t->k, (uint32_t)(t->k >> 32)};
    bool sum = t->kind == GLOBAL_SUM_OF;
    for (unsigned i = sum ? 1 : 0; i < 5; i++) hash = (hash ^ words[i]) * UINT64_C(1099511628211);
    for (uint32_t i = 0; sum && i < t->b; i++) {
        hash = (hash ^ (uint64_t)g->parts[t->a + i].by) * UINT64_C(1099511628211);
        hash = (hash ^ g->parts[t->a + i].term) * UINT64_C(1099511628211);
    }
    return (uint32_t)(hash ^ hash >> 29) & (GLOBAL_BUCKETS - 1);
}

static bool same_parts(const global_prover *g, uint32_t a, uint32_t b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (g->parts[a + i].by != g->parts[b + i].by || g->parts[a + i].term != g->parts[b + i].term)
            return false;
    return true;
}

static bool same(const global_prover *g, const global_term *x, const global_term *y) {
    if (x->kind != y->kind || x->op != y->op || x->bits != y->bits || x->k != y->k || x->b != y->b ||
        x->c != y->c || x->step != y->step)
        return false;
    return x->kind == GLOBAL_SUM_OF ? same_parts(g, x->a, y->a, x->b) : x->a == y->a;
}

static void *grown(global_prover *g, void *array, uint32_t *capacity, size_t size) {
    uint32_t wanted = *capacity ? 2 * *capacity : 64;
    void *made = realloc(array, wanted * size);
    if (made)
        *capacity = wanted;
    else
        g->p->no_memory = true;
    return made;
}

uint32_t tvm_global_term(global_prover *g, const global_term *made) {
    uint32_t bucket = bucket_of(g, made);
    for (uint32_t i = g->buckets[bucket]; i != TVM_NONE; i = g->terms[i].next)
        if (same(g, &g->terms[i], made)) return i;
    if (g->term_count == GLOBAL_TERMS) g->gave_up = true;
    if (g->gave_up || g->p->no_memory) return TVM_NONE;
    if (g->term_count == g->term_capacity) {
        global_term *terms = grown(g, g->terms, &g->term_capacity, sizeof *terms);
        if (!terms) return TVM_NONE;
        g->terms = terms;
    }
    tvm_prove_charge(g->p, 4);
    g->terms[g->term_count] = *made;
    g->terms[g->term_count].next = g->buckets[bucket];
    g->buckets[bucket] = g->term_count;
    return g->term_count++;
}

uint32_t tvm_global_const(global_prover *g, int64_t k) {
    return tvm_global_term(
        g, &(global_term){.kind = GLOBAL_CONST, .k = k, .low = k, .high = k, .uniform = true});
}

/* ---- sums ---- */

static uint32_t marked(const global_prover *g, uint32_t term, uint32_t mark) {
    return global_at(g, term)->uniform ? term & ~GLOBAL_OTHER : term | mark;
}

global_sum tvm_global_as_sum(const global_prover *g, uint32_t term) {
    const global_term *t = global_at(g, term);
    uint32_t mark = term & GLOBAL_OTHER;
    global_sum sum = {.k = t->kind == GLOBAL_CONST || t->kind == GLOBAL_SUM_OF ? t->k : 0};
    if (t->kind == GLOBAL_SUM_OF) {
        sum.count = t->b;
        memcpy(sum.parts, g->parts + t->a, t->b * sizeof *sum.parts);
        for (unsigned i = 0; i < sum.count; i++) sum.parts[i].term = marked(g, sum.parts[i].term, mark);
    } else if (t->kind != GLOBAL_CONST) {
        sum.parts[sum.count++] = (global_part){1, marked(g, term, mark)};
    }
    return sum;
}

static bool add_part(global_sum *sum, int64_t by, uint32_t term) {
    unsigned at = 0;
    while (at < sum->count && sum->parts[at].term < term) at++;
    if (at < sum->count && sum->parts[at].term == term) {
        if (__builtin_add_overflow(sum->parts[at].by, by, &sum->parts[at].by)) return false;
        if (sum->parts[at].by != 0) return true;
        memmove(sum->parts + at, sum->parts + at + 1, (--sum->count - at) * sizeof *sum->parts);
        return true;
    }
    if (by == 0) return true;
    if (sum->count == GLOBAL_SUM) return false;
    memmove(sum->parts + at + 1, sum->parts + at, (sum->count++ - at) * sizeof *sum->parts);
    sum->parts[at] = (global_part){by, term};
    return true;
}

bool tvm_global_add(const global_prover *g, global_sum *sum, int64_t by, uint32_t term) {
    const global_sum other = tvm_global_as_sum(g, term);
    int64_t k;
    if (__builtin_mul_overflow(other.k, by, &k) || __builtin_add_overflow(sum->k, k, &sum->k)) return false;
    for (unsigned i = 0; i < other.count; i++) {
        if (__builtin_mul_overflow(other.parts[i].by, by, &k)) return false;
        if (!add_part(sum, k, other.parts[i].term)) return false;
    }
    return true;
}

static int64_t clamped(__int128 v) {
    return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
}

void tvm_global_sum_range(const global_prover *g, const global_sum *sum, int64_t *low, int64_t *high) {
    __int128 least = sum->k, most = sum->k;
    for (unsigned i = 0; i < sum->count; i++) {
        const global_term *t = global_at(g, sum->parts[i].term);
        __int128 by = sum->parts[i].by;
        least += by * (by > 0 ? t->low : t->high);
        most += by * (by > 0 ? t->high : t->low);
    }
    *low = clamped(least);
    *high = clamped(most);
}

uint32_t tvm_global_sum(global_prover *g, const global_sum *sum) {
    if (sum->count == 0) return tvm_global_const(g, sum->k);
    if (sum->count == 1 && sum->k == 0 && sum->parts[0].by == 1) return sum->parts[0].term;
    if (g->part_count + sum->count > g->part_capacity) {
        global_part *parts = grown(g, g->parts, &g->part_capacity, sizeof *parts);
        if (!parts) return TVM_NONE;
        g->parts = parts;
    }
    memcpy(g->parts + g->part_count, sum->parts, sum->count * sizeof *sum->parts);
    global_term made = {
        .kind = GLOBAL_SUM_OF, .a = g->part_count, .b = sum->count, .k = sum->k, .uniform = true};
    for (unsigned i = 0; i < sum->count; i++)
        made.uniform = made.uniform && global_at(g, sum->parts[i].term)->uniform;
    tvm_global_sum_range(g, sum, &made.low, &made.high);
    uint32_t before = g->term_count, term = tvm_global_term(g, &made);
    if (term == before) g->part_count += sum->count;
    return term;
}

uint32_t tvm_global_plus(global_prover *g, uint32_t a, uint32_t b, int64_t by) {
    if (a == TVM_NONE || b == TVM_NONE) return TVM_NONE;
    global_sum sum = tvm_global_as_sum(g, a);
    if (!tvm_global_add(g, &sum, by, b)) return TVM_NONE;
    return tvm_global_sum(g, &sum);
}

/* ---- operators ---- */

void tvm_global_type_range(tvm_dtype type, int64_t *low, int64_t *high) {
    bool is_signed = type.kind == TVM_KIND_INT, whole = is_signed || type.kind == TVM_KIND_UINT;
    *low = INT64_MIN;
    *high = INT64_MAX;
    if (type.kind == TVM_KIND_BOOL) *low = 0, *high = 1;
    if (!whole || type.bits >= 64) return;
    *low = is_signed ? -(INT64_C(1) << (type.bits - 1)) : 0;
    *high = (INT64_C(1) << (type.bits - is_signed)) - 1;
}

/* Values are kept as integers; those of u64 are, as long as they are below 2^63. */
static bool is_plain(tvm_dtype type) {
    return type.kind == TVM_KIND_BOOL || type.kind == TVM_KIND_INT ||
           (type.kind == TVM_KIND_UINT && type.bits < 64);
}

/* The term as a value of the type. */
static uint32_t wrapped(global_prover *g, tvm_dtype type, uint32_t term) {
    int64_t low, high;
    if (term == TVM_NONE) return TVM_NONE;
    tvm_global_type_range(type, &low, &high);
    const global_term *t = global_at(g, term);
    if (t->low >= low && t->high <= high && (type.bits < 64 || (t->low != INT64_MIN && t->high != INT64_MAX)))
        return term;
    if (t->kind == GLOBAL_SUM_OF) {
        global_sum sum = tvm_global_as_sum(g, term), minus = {0};
        bool negated = tvm_global_add(g, &minus, -1, term);
        int64_t most = tvm_global_most(g, &sum), least = negated ? tvm_global_most(g, &minus) : INT64_MAX;
        if (most < g->terms[term].high) g->terms[term].high = most;
        if (least != INT64_MAX && -least > g->terms[term].low) g->terms[term].low = -least;
        t = global_at(g, term);
        if (t->low >= low && t->high <= high && most != INT64_MAX && least != INT64_MAX) return term;
    }
    return tvm_global_term(g, &(global_term){.kind = GLOBAL_WRAP,
                                             .a = term,
                                             .bits = type.kind == TVM_KIND_BOOL ? 1 : type.bits,
                                             .op = type.kind == TVM_KIND_INT,
                                             .low = low,
                                             .high = high,
                                             .uniform = t->uniform});
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void range_of_product(const global_term *a, const global_term *b, int64_t *low, int64_t *high) {
    const __int128 ends[] = {(__int128)a->low * b->low, (__int128)a->low * b->high,
                             (__int128)a->high * b->low, (__int128)a->high * b->high};
    __int128 least = ends[0], most = ends[0];
    for (unsigned i = 1; i < 4; i++) {
        if (ends[i] < least) least = ends[i];
        if (ends[i] > most) most = ends[i];
    }
    *low = clamped(least);
    *high = clamped(most);
}

bool tvm_global_as_product(const global_prover *g, uint32_t term, global_product *product) {
    const global_term *t = global_at(g, term);
    if (t->kind == GLOBAL_CONST) return !__builtin_mul_overflow(product->by, t->k, &product->by);
    if (t->kind == GLOBAL_SUM_OF && t->k == 0 && t->b == 1)
        return !__builtin_mul_overflow(product->by, g->parts[t->a].by, &product->by) &&
               tvm_global_as_product(g, g->parts[t->a].term, product);
    if (t->kind == GLOBAL_OP && t->op == TVM_EXPR_MUL && t->c == GLOBAL_EXACT) /* a chain to the left */
        return tvm_global_as_product(g, t->a, product) && tvm_global_as_product(g, t->b, product);
    if (product->count == GLOBAL_FACTORS) return false;
    unsigned at = product->count++;
    for (; at > 0 && product->factors[at - 1] > term; at--) product->factors[at] = product->factors[at - 1];
    product->factors[at] = term;
    return true;
}

bool tvm_global_without(global_product *product, const global_product *of) {
    for (unsigned i = 0; i < of->count; i++) {
        unsigned at = 0;
        while (at < product->count && product->factors[at] != of->factors[i]) at++;
        if (at == product->count) return false;
        memmove(product->factors + at, product->factors + at + 1,
                (--product->count - at) * sizeof *product->factors);
    }
    return true;
}

/* x / n * m, where n is a multiple of m, is not more than x. (That n is 0 would be a fault.) */
static int64_t most_of_product(const global_prover *g, const global_product *product) {
    int64_t best = INT64_MAX;
    for (unsigned i = 0; i < product->count; i++) {
        const global_term *t = global_at(g, product->factors[i]);
        global_product n = {.by = 1}, rest = {.by = product->by};
        if (t->kind != GLOBAL_OP || t->op != TVM_EXPR_DIV || global_at(g, t->a)->low < 0) continue;
        if (global_at(g, t->b)->low < 0 || !tvm_global_as_product(g, t->b, &n)) continue;
        for (unsigned j = 0; j < product->count; j++)
            if (j != i) rest.factors[rest.count++] = product->factors[j];
        bool natural = true;
        for (unsigned j = 0; j < n.count; j++) natural = natural && global_at(g, n.factors[j])->low >= 0;
        if (natural && rest.by >= 0 && rest.by <= n.by && tvm_global_without(&n, &rest))
            best = lesser(best, global_at(g, t->a)->high);
    }
    return best;
}

/* Of a / b, a % b or the like: a at least 0, b at least 1, as 0 would be a fault. Else the type's. */
static void range_of(global_prover *g, unsigned op, const uint32_t *terms, int64_t *low, int64_t *high) {
    const global_term a = *global_at(g, terms[0]);
    global_term b = *global_at(g, terms[1]);
    bool natural = a.low >= 0 && b.low >= 0 && b.high >= 1;
    if (natural && (op == TVM_EXPR_DIV || op == TVM_EXPR_MOD || op == TVM_EXPR_CDIV))
        b.low = larger(b.low, 1);
    switch (op) {
    case TVM_EXPR_DIV:
        if (!natural) return;
        *low = a.low / b.high;
        *high = lesser(a.high / b.low, tvm_global_most_quotient(g, terms[0], terms[1]));
        return;
    case TVM_EXPR_MOD:
        if (!natural) return;
        *low = 0;
        *high = lesser(a.high, b.high - 1);
        return;
    case TVM_EXPR_CDIV:
        if (!natural || a.high > *high - (b.high - 1)) return;
        *low = a.low / b.high + (a.low % b.high != 0);
        *high = a.high / b.low + (a.high % b.low != 0);
        return;
    case TVM_EXPR_AND:
        if (a.low >= 0 || b.low >= 0) *low = 0;
        if (a.low >= 0) *high = a.high;
        if (b.low >= 0) *high = lesser(*high, b.high);
        return;
    case TVM_EXPR_SHR:
        if (a.low < 0) return;
        *low = 0;
        *high = a.high;
        return;
    case TVM_EXPR_MIN:
        *low = lesser(a.low, b.low);
        *high = lesser(a.high, b.high);
        return;
    case TVM_EXPR_MAX:
        *low = larger(a.low, b.low);
        *high = larger(a.high, b.high);
        return;
    default:
        return;
    }
}

static uint32_t operation(global_prover *g, const tvm_expr *node, const uint32_t *terms, int64_t low,
                          int64_t high) {
    unsigned arity = tvm_expr_arity(node);
    global_term made = {.kind = GLOBAL_OP,
                        .op = node->op,
                        .bits = node->type.bits,
                        .step = node->type.kind,
                        .a = terms[0],
                        .b = arity > 1 ? terms[1] : 0,
                        .c = arity > 2 ? terms[2] : 0,
                        .low = low,
                        .high = high,
                        .uniform = true};
    for (unsigned i = 0; i < arity; i++) made.uniform = made.uniform && global_at(g, terms[i])->uniform;
    return tvm_global_term(g, &made);
}

/* a / b or a % b of a sum, some of which b divides, and the rest of which is less than b. */
static uint32_t split(global_prover *g, uint32_t a, int64_t b, bool rest) {
    const global_sum sum = tvm_global_as_sum(g, a);
    global_sum whole = {0}, part = {.k = sum.k};
    int64_t low, high;
    if (b == 1) return rest ? tvm_global_const(g, 0) : a;
    if (b < 1 || global_at(g, a)->low < 0) return TVM_NONE;
    for (unsigned i = 0; i < sum.count; i++) {
        bool divides = sum.parts[i].by % b == 0;
        global_sum *to = divides ? &whole : &part;
        to->parts[to->count++] =
            (global_part){divides ? sum.parts[i].by / b : sum.parts[i].by, sum.parts[i].term};
    }
    whole.k = part.k / b;
    part.k %= b;
    tvm_global_sum_range(g, &part, &low, &high);
    if (low < 0 || high >= b) return TVM_NONE;
    return tvm_global_sum(g, rest ? &part : &whole);
}

/* Of factors in the order of their numbers, so that equal products are one term. */
static uint32_t chain(global_prover *g, const global_product *product) {
    uint32_t term = product->factors[0];
    global_product so_far = {.by = 1, .count = 1, .factors = {term}};
    for (unsigned i = 1; i < product->count && term != TVM_NONE; i++) {
        const global_term *a = global_at(g, term), *b = global_at(g, product->factors[i]);
        global_term made = {.kind = GLOBAL_OP,
                            .op = TVM_EXPR_MUL,
                            .a = term,
                            .b = product->factors[i],
                            .c = GLOBAL_EXACT,
                            .uniform = a->uniform && b->uniform};
        range_of_product(a, b, &made.low, &made.high);
        so_far.factors[so_far.count++] = product->factors[i];
        made.high = lesser(made.high, most_of_product(g, &so_far));
        term = tvm_global_term(g, &made);
    }
    return term;
}

static uint32_t product(global_prover *g, const tvm_expr *node, const uint32_t *terms) {
    const global_term *a = global_at(g, terms[0]), *b = global_at(g, terms[1]);
    if (a->kind == GLOBAL_CONST || b->kind == GLOBAL_CONST) {
        global_sum sum = {0};
        bool first = a->kind == GLOBAL_CONST;
        if (!tvm_global_add(g, &sum, first ? a->k : b->k, terms[first])) return TVM_NONE;
        return wrapped(g, node->type, tvm_global_sum(g, &sum));
    }
    global_product all = {.by = 1};
    global_sum sum = {0};
    if (!tvm_global_as_product(g, terms[0], &all) || !tvm_global_as_product(g, terms[1], &all))
        return TVM_NONE;
    uint32_t term = chain(g, &all);
    if (term == TVM_NONE || !tvm_global_add(g, &sum, all.by, term)) return TVM_NONE;
    return wrapped(g, node->type, tvm_global_sum(g, &sum));
}

/* x - x / n * n is x % n. */
static uint32_t remainder_of(global_prover *g, const tvm_expr *node, const uint32_t *terms) {
    global_product all = {.by = 1};
    if (node->op != TVM_EXPR_SUB || !tvm_global_as_product(g, terms[1], &all)) return TVM_NONE;
    for (unsigned i = 0; i < all.count; i++) {
        const global_term t = *global_at(g, all.factors[i]);
        global_product n = {.by = 1}, rest = {.by = all.by};
        if (t.kind != GLOBAL_OP || t.op != TVM_EXPR_DIV || t.a != terms[0]) continue;
        if (!tvm_global_as_product(g, t.b, &n)) continue;
        for (unsigned j = 0; j < all.count; j++)
            if (j != i) rest.factors[rest.count++] = all.factors[j];
        if (n.by != rest.by || n.count != rest.count || !tvm_global_without(&n, &rest)) continue;
        tvm_expr mod = *node;
        mod.op = TVM_EXPR_MOD;
        return tvm_global_apply(g, &mod, node->type, (const uint32_t[2]){terms[0], t.b});
    }
    return TVM_NONE;
}

/* By the rules of whole numbers; TVM_NONE: there is none. */
static uint32_t simplified(global_prover *g, const tvm_expr *node, const uint32_t *terms) {
    const global_term *a = global_at(g, terms[0]), *b = global_at(g, terms[tvm_expr_arity(node) > 1]);
    bool has = b->kind == GLOBAL_CONST;
    uint32_t rest;
    switch (node->op) {
    case TVM_EXPR_CAST:
        return wrapped(g, node->type, terms[0]);
    case TVM_EXPR_NEG:
        return wrapped(g, node->type, tvm_global_plus(g, tvm_global_const(g, 0), terms[0], -1));
    case TVM_EXPR_ADD:
        return wrapped(g, node->type, tvm_global_plus(g, terms[0], terms[1], 1));
    case TVM_EXPR_SUB:
        rest = remainder_of(g, node, terms);
        return rest != TVM_NONE ? rest : wrapped(g, node->type, tvm_global_plus(g, terms[0], terms[1], -1));
    case TVM_EXPR_MUL:
        return product(g, node, terms);
    case TVM_EXPR_SHL:
        if (!has || b->k < 0 || b->k >= 31) return TVM_NONE;
        return product(g, node, (const uint32_t[2]){terms[0], tvm_global_const(g, INT64_C(1) << b->k)});
    case TVM_EXPR_SHR:
        return has && b->k >= 0 && b->k < 31 && a->low >= 0 ? split(g, terms[0], INT64_C(1) << b->k, false)
                                                            : TVM_NONE;
    case TVM_EXPR_DIV:
    case TVM_EXPR_MOD:
        return has ? split(g, terms[0], b->k, node->op == TVM_EXPR_MOD) : TVM_NONE;
    case TVM_EXPR_AND:
        return has && b->k >= 0 && (b->k & (b->k + 1)) == 0 && b->k < INT32_MAX
                   ? split(g, terms[0], b->k + 1, true)
                   : TVM_NONE;
    case TVM_EXPR_MIN:
        return a->high <= b->low ? terms[0] : b->high <= a->low ? terms[1] : TVM_NONE;
    case TVM_EXPR_MAX:
        return a->low >= b->high ? terms[0] : b->low >= a->high ? terms[1] : TVM_NONE;
    default:
        return TVM_NONE;
    }
}

static uint32_t folded(global_prover *g, const tvm_expr *node, tvm_dtype operands, const uint32_t *terms) {
    tvm_scalar values[3] = {{0}, {0}, {0}}, result;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++) {
        if (global_at(g, terms[i])->kind != GLOBAL_CONST) return TVM_NONE;
        values[i].i = global_at(g, terms[i])->k;
    }
    bool made = tvm_expr_apply(node, operands, values, &result, NULL) == TVM_OK;
    return made ? tvm_global_const(g, result.i) : TVM_NONE;
}

/* c ? x : y */
static uint32_t selected(global_prover *g, const tvm_expr *node, const uint32_t *terms) {
    const global_term *condition = global_at(g, terms[0]);
    if (condition->kind == GLOBAL_CONST) return condition->k ? terms[1] : terms[2];
    if (terms[1] == terms[2]) return terms[1];
    const global_term *x = global_at(g, terms[1]), *y = global_at(g, terms[2]);
    return operation(g, node, terms, lesser(x->low, y->low), larger(x->high, y->high));
}

uint32_t tvm_global_apply(global_prover *g, const tvm_expr *node, tvm_dtype operands, const uint32_t *terms) {
    int64_t low, high;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (terms[i] == TVM_NONE) return TVM_NONE;
    tvm_global_type_range(node->type, &low, &high);
    bool select = node->op == TVM_EXPR_SELECT;
    if (!is_plain(node->type) || !(select || is_plain(operands))) return operation(g, node, terms, low, high);
    if (select) return selected(g, node, terms);
    uint32_t term = folded(g, node, operands, terms);
    if (term == TVM_NONE && !g->p->no_memory) term = simplified(g, node, terms);
    if (term != TVM_NONE || g->p->no_memory) return term;
    if (tvm_expr_arity(node) == 2) range_of(g, node->op, terms, &low, &high);
    return operation(g, node, terms, low, high);
}
