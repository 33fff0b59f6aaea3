/* Bounds of sums that numbers alone do not give: a loop's variable is below its end, a remainder below what
 * divides, the smaller of two below both. Each such term is replaced by its bound, one after the other, until
 * what is left cancels. */
#include "global_impl.h"

static int64_t bound(global_prover *g, const global_sum *sum, unsigned depth);

/* With part number `i` replaced by by * term + k; INT64_MAX: too large. */
static int64_t replaced(global_prover *g, const global_sum *sum, unsigned i, int64_t by, uint32_t term,
                        __int128 k, unsigned depth) {
    global_sum made = {.k = sum->k};
    if (k > INT64_MAX || k < INT64_MIN || __builtin_add_overflow(made.k, (int64_t)k, &made.k))
        return INT64_MAX;
    for (unsigned n = 0; n < sum->count; n++)
        if (n != i) made.parts[made.count++] = sum->parts[n];
    return tvm_global_add(g, &made, by, term) ? bound(g, &made, depth - 1) : INT64_MAX;
}

static int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* by * (x / c) or by * cdiv(x, c), where c divides by. */
static int64_t of_quotient(global_prover *g, const global_sum *sum, unsigned i, const global_term *t, bool up,
                           unsigned depth) {
    const global_term x = *global_at(g, t->a), c = *global_at(g, t->b);
    int64_t by = sum->parts[i].by;
    if (c.kind != GLOBAL_CONST || c.k < 1 || by % c.k != 0 || x.low < 0) return INT64_MAX;
    if (up && x.high > (INT64_C(1) << 31) - 1 - c.k) return INT64_MAX; /* it might wrap */
    bool beyond = up ? by > 0 : by < 0;
    __int128 most = (__int128)(by > 0 ? by / c.k : -(by / c.k)) * (c.k - 1);
    return replaced(g, sum, i, by / c.k, t->a, beyond ? most : 0, depth);
}

static int64_t of_operation(global_prover *g, const global_sum *sum, unsigned i, const global_term *t,
                            unsigned depth) {
    int64_t by = sum->parts[i].by;
    bool rises = by > 0, whole = t->step == TVM_KIND_INT || (t->step == TVM_KIND_UINT && t->bits < 64);
    if (!whole) return INT64_MAX;
    switch (t->op) {
    case TVM_EXPR_MOD:
        if (!rises || global_at(g, t->a)->low < 0 || global_at(g, t->b)->low < 0) return INT64_MAX;
        return replaced(g, sum, i, by, t->b, -(__int128)by, depth);
    case TVM_EXPR_DIV:
        return of_quotient(g, sum, i, t, false, depth);
    case TVM_EXPR_CDIV:
        return of_quotient(g, sum, i, t, true, depth);
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX: {
        int64_t a = replaced(g, sum, i, by, t->a, 0, depth), b = replaced(g, sum, i, by, t->b, 0, depth);
        return rises == (t->op == TVM_EXPR_MIN) ? lesser(a, b) : larger(a, b);
    }
    case TVM_EXPR_SELECT:
        return larger(replaced(g, sum, i, by, t->b, 0, depth), replaced(g, sum, i, by, t->c, 0, depth));
    default:
        return INT64_MAX;
    }
}

static int64_t of_part(global_prover *g, const global_sum *sum, unsigned i, unsigned depth) {
    global_term t = *global_at(g, sum->parts[i].term);
    int64_t by = sum->parts[i].by;
    uint32_t mark = sum->parts[i].term & GLOBAL_OTHER;
    t.a |= t.kind == GLOBAL_OP || t.kind == GLOBAL_WRAP ? mark : 0;
    t.b |= t.b != TVM_NONE ? mark : 0;
    t.c |= mark;
    switch (t.kind) {
    case GLOBAL_LOOP:
        return by > 0 ? replaced(g, sum, i, by, t.c, -(__int128)by, depth)
                      : replaced(g, sum, i, by, t.b, 0, depth);
    case GLOBAL_BLOCK:
        return by > 0 ? replaced(g, sum, i, by, t.b, -(__int128)by, depth) : INT64_MAX;
    case GLOBAL_GRID:
        return t.b != TVM_NONE ? replaced(g, sum, i, by, t.b, 0, depth) : INT64_MAX;
    case GLOBAL_WRAP: /* of what is not negative it is not more */
        return by > 0 && global_at(g, t.a)->low >= 0 ? replaced(g, sum, i, by, t.a, 0, depth) : INT64_MAX;
    case GLOBAL_OP:
        return of_operation(g, sum, i, &t, depth);
    default:
        return INT64_MAX;
    }
}

static int64_t bound(global_prover *g, const global_sum *sum, unsigned depth) {
    int64_t low, best;
    tvm_global_sum_range(g, sum, &low, &best);
    if (depth == 0 || g->work == 0) return best;
    g->work--;
    tvm_prove_charge(g->p, 2);
    for (unsigned i = 0; i < sum->count; i++) best = lesser(best, of_part(g, sum, i, depth));
    return best;
}

int64_t tvm_global_most(global_prover *g, const global_sum *sum) {
    g->work = GLOBAL_BOUND_WORK;
    return bound(g, sum, GLOBAL_BOUND_DEPTH);
}

bool tvm_global_less(global_prover *g, uint32_t a, uint32_t b) {
    global_sum sum = tvm_global_as_sum(g, a);
    return tvm_global_add(g, &sum, -1, b) && tvm_global_most(g, &sum) < 0;
}

/* What it is below, in every case; TVM_NONE. */
static uint32_t limit_of(const global_prover *g, uint32_t x) {
    const global_term *t = global_at(g, x);
    uint32_t limit = t->kind == GLOBAL_LOOP ? t->c : t->kind == GLOBAL_BLOCK ? t->b : TVM_NONE;
    if (limit != TVM_NONE && global_at(g, limit)->kind == GLOBAL_GRID) limit = global_at(g, limit)->b;
    if (limit == TVM_NONE) return TVM_NONE;
    t = global_at(g, limit);
    return t->kind == GLOBAL_WRAP && global_at(g, t->a)->low >= 0 ? t->a : limit;
}

/* A divisor as a product that it is, or (*more) at least is: then a factor may be 0. */
static bool divisor_of(const global_prover *g, uint32_t d, global_product *product, bool *more) {
    const global_term *t = global_at(g, d);
    if (t->kind == GLOBAL_OP && t->op == TVM_EXPR_MAX) {
        bool first = global_at(g, t->a)->kind == GLOBAL_CONST;
        if (!first && global_at(g, t->b)->kind != GLOBAL_CONST) return false;
        d = first ? t->b : t->a;
        *more = true;
    }
    *product = (global_product){.by = 1};
    if (!tvm_global_as_product(g, d, product) || product->by < 1) return false;
    for (unsigned i = 0; i < product->count; i++)
        if (global_at(g, product->factors[i])->low < 0) return false;
    return true;
}

/* x < limit and d, both products of what is not negative: x / d is less than what is left of the former,
 * divided by the number of the latter. (A factor of both is not 0, as the limit is more than x.) */
static int64_t quotient(global_prover *g, global_product limit, global_product d, bool more, unsigned depth) {
    for (unsigned i = 0; i < d.count;) {
        const global_product one = {.by = 1, .count = 1, .factors = {d.factors[i]}};
        if (tvm_global_without(&limit, &one))
            tvm_global_without(&d, &one);
        else
            i++;
    }
    for (unsigned i = 0; i < d.count && depth > 0; i++) { /* the smaller of two is one of them */
        const global_term *t = global_at(g, d.factors[i]);
        if (t->kind != GLOBAL_OP || t->op != TVM_EXPR_MIN) continue;
        int64_t worst = 0;
        for (unsigned n = 0; n < 2; n++) {
            global_product with = d;
            const global_product one = {.by = 1, .count = 1, .factors = {d.factors[i]}};
            tvm_global_without(&with, &one);
            if (!tvm_global_as_product(g, n ? t->b : t->a, &with) || with.by < 1) return INT64_MAX;
            worst = larger(worst, quotient(g, limit, with, more, depth - 1));
        }
        return worst;
    }
    __int128 most = limit.by;
    if (more && d.count > 0) return INT64_MAX;
    for (unsigned i = 0; i < limit.count; i++) {
        most *= global_at(g, limit.factors[i])->high;
        if (most > INT64_MAX) return INT64_MAX;
    }
    return most < 1 ? 0 : (int64_t)((most - 1) / d.by);
}

/* Is the term the larger of 1 and the smaller of two, *a and *b? */
static bool is_height(const global_prover *g, uint32_t term, uint32_t *a, uint32_t *b) {
    const global_term *t = global_at(g, term);
    if (t->kind != GLOBAL_OP || t->op != TVM_EXPR_MAX) return false;
    const global_term *x = global_at(g, t->a), *y = global_at(g, t->b);
    if (x->kind != GLOBAL_CONST) {
        const global_term *swap = x;
        x = y;
        y = swap;
    }
    if (x->kind != GLOBAL_CONST || x->k != 1 || y->kind != GLOBAL_OP || y->op != TVM_EXPR_MIN) return false;
    *a = y->a;
    *b = y->b;
    return true;
}

/* Tiles u * v, in bands c high and v wide of which the last may be lower: of tile x, x / (c * v) is the band,
 * and x % (c * v) / min(c, u - band * c) the column. As x < u * v, x % (c * v) is less than (u - band * c) *
 * v and than c * v, so that the column is less than v. (With min(c, u) for c there is one band where u is
 * less.) */
static int64_t most_in_band(const global_prover *g, uint32_t rest, uint32_t height) {
    const global_term *t = global_at(g, rest);
    uint32_t side[2], limit, band = TVM_NONE;
    int64_t best = INT64_MAX;
    if (t->kind != GLOBAL_OP || t->op != TVM_EXPR_MOD || !is_height(g, height, &side[0], &side[1]))
        return INT64_MAX;
    limit = limit_of(g, t->a);
    if (global_at(g, side[1])->kind != GLOBAL_CONST) {
        uint32_t swap = side[0];
        side[0] = side[1];
        side[1] = swap;
    }
    const int64_t c = global_at(g, side[1])->k;
    global_product tiles = {.by = 1}, divisor;
    bool more = false;
    if (limit == TVM_NONE || global_at(g, side[1])->kind != GLOBAL_CONST || c < 1) return INT64_MAX;
    if (global_at(g, t->a)->low < 0 || !tvm_global_as_product(g, limit, &tiles) || tiles.by != 1)
        return INT64_MAX;
    if (!divisor_of(g, t->b, &divisor, &more) || tiles.count != 2) return INT64_MAX;
    global_sum left = tvm_global_as_sum(g, side[0]);
    for (unsigned i = 0; i < left.count; i++) {
        const global_term *q = global_at(g, left.parts[i].term);
        if (left.parts[i].by == -c && q->kind == GLOBAL_OP && q->op == TVM_EXPR_DIV && q->a == t->a &&
            q->b == t->b)
            band = left.parts[i].term;
    }
    if (band == TVM_NONE || !tvm_global_add(g, &left, c, band)) return INT64_MAX;
    for (unsigned i = 0; i < 2; i++) {
        uint32_t u = tiles.factors[i], v = tiles.factors[1 - i];
        const global_product width = {.by = 1, .count = 1, .factors = {v}};
        global_product high = divisor;
        if (left.k != 0 || left.count != 1 || left.parts[0].by != 1 || left.parts[0].term != u) continue;
        if (global_at(g, u)->low < 0 || global_at(g, v)->low < 0 || !tvm_global_without(&high, &width))
            continue;
        const global_term *lower = high.count == 1 ? global_at(g, high.factors[0]) : NULL;
        bool smaller = lower && high.by == 1 && lower->kind == GLOBAL_OP && lower->op == TVM_EXPR_MIN &&
                       ((lower->a == side[1] && lower->b == u) || (lower->b == side[1] && lower->a == u));
        if (smaller || (high.count == 0 && high.by == c)) best = lesser(best, global_at(g, v)->high - 1);
    }
    return best;
}

int64_t tvm_global_most_quotient(global_prover *g, uint32_t x, uint32_t d) {
    int64_t in_band = most_in_band(g, x, d);
    if (in_band != INT64_MAX) return in_band;

    uint32_t limit = limit_of(g, x);
    global_product product = {.by = 1}, divisor;
    bool more = false;
    if (limit == TVM_NONE || global_at(g, x)->low < 0 || !tvm_global_as_product(g, limit, &product))
        return INT64_MAX;
    if (product.by < 1 || !divisor_of(g, d, &divisor, &more)) return INT64_MAX;
    for (unsigned i = 0; i < product.count; i++)
        if (global_at(g, product.factors[i])->low < 0) return INT64_MAX;
    return quotient(g, product, divisor, more, 3);
}
