/* Two accesses, by whom it may be at two times: do they touch an element together? What follows if they do is
 * found step by step: the difference of the indices is bounded by the extents of the tiles, so sums fall
 * apart into digits that are equal, and equal terms have equal parts. If the index of the block must be the
 * same in the end, no two blocks touch an element. */
#include "global_impl.h"
#include "numbers.h"

#include <stdlib.h>
#include <string.h>

/* `a` of the first access less `b` of the second is at least low, at most high. Neither has a constant. */
typedef struct relation {
    global_sum a, b;
    int64_t low, high;
} relation;

typedef struct facts {
    global_prover *g;
    const global_site *a, *b;
    relation relations[GLOBAL_FACTS];
    unsigned relation_count;
    uint32_t equal[GLOBAL_FACTS][2]; /* of the first, and of the second */
    unsigned equal_count;
    uint32_t fixed[GLOBAL_FACTS]; /* terms that are the same from the beginning */
    unsigned fixed_count;
    bool apart, changed;
    global_apart how;
    unsigned assumes; /* GLOBAL_NO_WRAP: no sum wraps; GLOBAL_DIFFERENT: different elements hold different
                         values */
    bool wraps;       /* the former was made use of */
    uint32_t load;
} facts;

enum { FAR = 1 << 30, ROUNDS = 16, UNASKED = 0, NO = 1, YES = 2 };

/* ---- what is the same for both ---- */

static bool is_equal(const facts *f, uint32_t a, uint32_t b) {
    for (unsigned i = 0; i < f->equal_count; i++)
        if (f->equal[i][0] == a && f->equal[i][1] == b) return true;
    return false;
}

static bool find_same(facts *f, uint32_t term, unsigned depth);

static bool have_same(facts *f, uint32_t term, unsigned depth) {
    const global_term t = *global_at(f->g, term);
    if (t.uniform || is_equal(f, term, term)) return true;
    for (unsigned i = 0; i < f->fixed_count; i++)
        if (f->fixed[i] == term) return true;
    if (depth == 0) return false;
    if (t.kind == GLOBAL_WRAP) return find_same(f, t.a, depth - 1);
    if (t.kind == GLOBAL_OP) {
        const tvm_expr node = {.op = t.op};
        const uint32_t operands[3] = {t.a, t.b, t.c};
        for (unsigned i = 0; i < tvm_expr_arity(&node); i++)
            if (!find_same(f, operands[i], depth - 1)) return false;
        return true;
    }
    for (uint32_t i = 0; t.kind == GLOBAL_SUM_OF && i < t.b; i++)
        if (!find_same(f, f->g->parts[t.a + i].term, depth - 1)) return false;
    return t.kind == GLOBAL_SUM_OF;
}

/* Has the term the same value for both? */
static bool find_same(facts *f, uint32_t term, unsigned depth) {
    uint8_t *memo = &f->g->memo[term];
    tvm_prove_charge(f->g->p, 1);
    if (*memo == UNASKED) *memo = have_same(f, term, depth) ? YES : NO;
    return *memo == YES;
}

static bool is_same(facts *f, uint32_t term) {
    return find_same(f, term, GLOBAL_DEPTH);
}

/* ---- relations ---- */

static bool same_sum(const global_sum *x, const global_sum *y) {
    if (x->count != y->count) return false;
    for (unsigned i = 0; i < x->count; i++)
        if (x->parts[i].by != y->parts[i].by || x->parts[i].term != y->parts[i].term) return false;
    return true;
}

static void relate(facts *f, global_sum a, global_sum b, __int128 low, __int128 high) {
    low += (__int128)b.k - a.k;
    high += (__int128)b.k - a.k;
    a.k = b.k = 0;
    if (low > high) f->apart = true;
    if (low < INT64_MIN / 4 || high > INT64_MAX / 4 || f->relation_count == GLOBAL_FACTS) return;
    tvm_prove_charge(f->g->p, 1 + f->relation_count / 8);
    for (unsigned i = 0; i < f->relation_count; i++) {
        const relation *known = &f->relations[i];
        if (known->low >= low && known->high <= high && same_sum(&known->a, &a) && same_sum(&known->b, &b))
            return;
    }
    f->relations[f->relation_count++] = (relation){a, b, (int64_t)low, (int64_t)high};
    f->changed = true;
}

static void relate_terms(facts *f, uint32_t a, uint32_t b, __int128 low, __int128 high) {
    relate(f, tvm_global_as_sum(f->g, a), tvm_global_as_sum(f->g, b), low, high);
}

static void add_equal(facts *f, uint32_t a, uint32_t b) {
    if (is_equal(f, a, b) || f->equal_count == GLOBAL_FACTS) return;
    f->equal[f->equal_count][0] = a;
    f->equal[f->equal_count++][1] = b;
    f->changed = true;
    tvm_prove_charge(f->g->p, f->g->term_count / 64);
    memset(f->g->memo, UNASKED, f->g->term_count);
}

static void drop(global_sum *sum, unsigned at) {
    memmove(sum->parts + at, sum->parts + at + 1, (--sum->count - at) * sizeof *sum->parts);
}

/* Without what is the same on both sides. */
static void cancel(facts *f, relation *r) {
    for (unsigned i = 0; i < r->a.count;) {
        unsigned other = 0;
        while (other < r->b.count &&
               (r->b.parts[other].by != r->a.parts[i].by ||
                !(is_equal(f, r->a.parts[i].term, r->b.parts[other].term) ||
                  (r->a.parts[i].term == r->b.parts[other].term && is_same(f, r->a.parts[i].term)))))
            other++;
        if (other == r->b.count) {
            i++;
            continue;
        }
        drop(&r->a, i);
        drop(&r->b, other);
    }
}

/* ---- terms whose difference is known ---- */

/* How far a loop's variable is from its start, at most; of others 0. */
static int64_t offset_of(facts *f, const global_term *t) {
    if (t->kind != GLOBAL_LOOP) return 0;
    global_sum sum = tvm_global_as_sum(f->g, t->c);
    if (!tvm_global_add(f->g, &sum, -1, t->b)) return INT64_MAX;
    int64_t most = tvm_global_most(f->g, &sum);
    return most == INT64_MAX ? most : most < 1 ? 0 : most - 1;
}

/* Residues of both modulo the step: where they start, if that is less than the step. */
static void relate_starts(facts *f, uint32_t a, uint32_t b) {
    const global_term x = *global_at(f->g, a), y = *global_at(f->g, b);
    uint32_t first = x.kind == GLOBAL_LOOP ? x.b : a, second = y.kind == GLOBAL_LOOP ? y.b : b,
             step = x.kind == GLOBAL_LOOP ? x.step : y.step;
    if (x.kind == GLOBAL_LOOP && y.kind == GLOBAL_LOOP && x.step != y.step) return;
    if (!is_same(f, step) || global_at(f->g, first)->low < 0 || global_at(f->g, second)->low < 0) return;
    if (!tvm_global_less(f->g, first, step) || !tvm_global_less(f->g, second, step)) return;
    relate_terms(f, first, second, 0, 0);
}

/* Turns of one loop that begins alike for both: its step is more than they differ. */
static bool is_less_than_step(facts *f, const global_term *loop, int64_t low, int64_t high) {
    int64_t step = global_at(f->g, loop->step)->low;
    return is_same(f, loop->step) && is_same(f, loop->b) && high < step && low > -step;
}

static void relate_loops(facts *f, uint32_t a, uint32_t b, int64_t low, int64_t high) {
    const global_term x = *global_at(f->g, a), y = *global_at(f->g, b);
    uint32_t first = x.kind == GLOBAL_LOOP ? x.b : a, second = y.kind == GLOBAL_LOOP ? y.b : b;
    int64_t behind = offset_of(f, &x), before = offset_of(f, &y);
    if (behind < FAR && before < FAR)
        relate_terms(f, first, second, (__int128)low - behind, (__int128)high + before);
    if (low == 0 && high == 0) relate_starts(f, a, b);
    if (a == b && is_less_than_step(f, &x, low, high)) add_equal(f, a, b);
}

/* Of sums that may have wrapped: not, where they differ by less than that. */
static void relate_wrapped(facts *f, uint32_t a, uint32_t b, int64_t low, int64_t high) {
    const global_term x = *global_at(f->g, a), y = *global_at(f->g, b);
    unsigned bits = x.kind == GLOBAL_WRAP ? x.bits : y.bits;
    uint32_t first = x.kind == GLOBAL_WRAP ? x.a : a, second = y.kind == GLOBAL_WRAP ? y.a : b;
    relation r = {.a = tvm_global_as_sum(f->g, first), .b = tvm_global_as_sum(f->g, second)};
    int64_t least[2], most[2];
    if (bits > 62 || (x.kind == GLOBAL_WRAP && y.kind == GLOBAL_WRAP && x.bits != y.bits)) return;
    cancel(f, &r);
    tvm_global_sum_range(f->g, &r.a, &least[0], &most[0]);
    tvm_global_sum_range(f->g, &r.b, &least[1], &most[1]);
    __int128 all = (__int128)1 << bits;
    bool near = (__int128)least[0] - most[1] > high - all && (__int128)most[0] - least[1] < low + all;
    if (near || f->assumes & GLOBAL_NO_WRAP) relate_terms(f, first, second, low, high);
    if (!near && f->assumes & GLOBAL_NO_WRAP) f->wraps = true;
}

static void relate_quotients(facts *f, const global_term *x, const global_term *y, int64_t low,
                             int64_t high) {
    const global_term *by = global_at(f->g, x->b);
    bool natural = global_at(f->g, x->a)->low >= 0 && global_at(f->g, y->a)->low >= 0;
    if (x->b != y->b || by->kind != GLOBAL_CONST || by->k < 1 || by->k > FAR || !natural) return;
    relate_terms(f, x->a, y->a, (__int128)by->k * low - (by->k - 1), (__int128)by->k * high + (by->k - 1));
}

/* What two loads of a tensor that nobody writes give is the same; if only the same element gives it, that is
 * the same, too. Of other loads, that blocks get different values. */
static void relate_loads(facts *f, const global_term *x, const global_term *y) {
    const global_site *s = x->b ? &f->g->loads[x->b - 1] : NULL, *t = y->b ? &f->g->loads[y->b - 1] : NULL;
    if (!(f->assumes & GLOBAL_DIFFERENT)) return;
    if (!s && !t && x->a == y->a && f->how == GLOBAL_BLOCKS) {
        f->apart = true;
        f->load = x->a;
    }
    if (!s || !t || s->space != t->space || s->unclear || t->unclear) return;
    for (unsigned d = 0; d < s->rank; d++)
        if (s->index[d] == TVM_NONE || t->index[d] == TVM_NONE) return;
    for (unsigned d = 0; d < s->rank; d++) relate_terms(f, s->index[d], t->index[d], 0, 0);
    f->load = x->a;
}

static void relate_operations(facts *f, const global_term *x, const global_term *y, int64_t low,
                              int64_t high) {
    if (x->op != y->op) return;
    if (x->op == TVM_EXPR_DIV) relate_quotients(f, x, y, low, high);
    if (x->op != TVM_EXPR_MUL || x->c != GLOBAL_EXACT || y->c != GLOBAL_EXACT || low != 0 || high != 0)
        return;
    if (x->b == y->b && is_same(f, x->b) && global_at(f->g, x->b)->low > 0) relate_terms(f, x->a, y->a, 0, 0);
    if (x->a == y->a && is_same(f, x->a) && global_at(f->g, x->a)->low > 0) relate_terms(f, x->b, y->b, 0, 0);
}

/* The first less the second is from low to high. */
static void look_into(facts *f, uint32_t a, uint32_t b, int64_t low, int64_t high) {
    const global_term x = *global_at(f->g, a), y = *global_at(f->g, b);
    bool equal = low == 0 && high == 0;
    if ((__int128)x.low - y.high > high || (__int128)x.high - y.low < low) f->apart = true;
    if (equal) add_equal(f, a, b);
    if (x.kind == GLOBAL_LOOP || y.kind == GLOBAL_LOOP) relate_loops(f, a, b, low, high);
    if (x.kind == GLOBAL_WRAP || y.kind == GLOBAL_WRAP) relate_wrapped(f, a, b, low, high);
    if (x.kind == GLOBAL_OP && y.kind == GLOBAL_OP) relate_operations(f, &x, &y, low, high);
    if (equal && x.kind == GLOBAL_LOADED && y.kind == GLOBAL_LOADED) relate_loads(f, &x, &y);
}

/* Of less than 64 bits, and no float, of which equal ones may differ? */
static bool is_narrow(const global_prover *g, uint32_t term) {
    const global_term *t = global_at(g, term);
    return t->low > INT64_MIN && t->high < INT64_MAX;
}

/* ---- sums whose difference is known ---- */

static __int128 floor_of(__int128 a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* What a comparison that holds says of the sum x, for which it is x + k <= 0, or -x + k <= 0. */
static void narrow_by(const facts *f, const global_guard *guard, const global_sum *x, int64_t *low,
                      int64_t *high) {
    const global_term *t = global_at(f->g, guard->term);
    if (t->kind != GLOBAL_OP || !tvm_expr_is_comparison(t->op)) return;
    if (!is_narrow(f->g, t->a) || !is_narrow(f->g, t->b)) return;
    unsigned op = guard->holds ? t->op : tvm_expr_opposite(t->op);
    if (op == TVM_EXPR_NE) return;
    bool below = op != TVM_EXPR_GT && op != TVM_EXPR_GE, above = op != TVM_EXPR_LT && op != TVM_EXPR_LE;
    int64_t strict = op == TVM_EXPR_LT || op == TVM_EXPR_GT;
    for (unsigned i = 0; i < 2; i++) { /* a - b <= -strict, b - a <= -strict */
        if (!(i ? above : below)) continue;
        global_sum sum = tvm_global_as_sum(f->g, i ? t->b : t->a), minus = {0};
        if (!tvm_global_add(f->g, &sum, -1, i ? t->a : t->b)) continue;
        for (unsigned n = 0; n < sum.count; n++)
            minus.parts[n] = (global_part){-sum.parts[n].by, sum.parts[n].term};
        minus.count = sum.count;
        if (same_sum(&sum, x) && -strict - sum.k < *high) *high = -strict - sum.k;
        if (same_sum(&minus, x) && strict + sum.k > *low) *low = strict + sum.k;
    }
}

/* The values that a sum has where the access is. */
static void range_under(const facts *f, const global_site *site, const global_sum *x, int64_t *low,
                        int64_t *high) {
    tvm_global_sum_range(f->g, x, low, high);
    for (uint32_t i = 0; i < site->guards; i++)
        narrow_by(f, &f->g->guards[site->first_guard + i], x, low, high);
    tvm_prove_charge(f->g->p, site->guards);
}

static void divide(const global_sum *sum, int64_t by, global_sum *whole, global_sum *rest) {
    *whole = *rest = (global_sum){0};
    for (unsigned i = 0; i < sum->count; i++) {
        const global_part part = sum->parts[i];
        if (part.by % by == 0)
            whole->parts[whole->count++] = (global_part){part.by / by, part.term};
        else
            rest->parts[rest->count++] = part;
    }
}

/* Into multiples of `by` and what is left, if that leaves the former no choice. */
static bool split_by(facts *f, const relation *r, int64_t by) {
    global_sum whole[2], rest[2];
    int64_t low[2], high[2];
    divide(&r->a, by, &whole[0], &rest[0]);
    divide(&r->b, by, &whole[1], &rest[1]);
    bool all = rest[0].count + rest[1].count == 0;
    if (whole[0].count + whole[1].count == 0 || (all && by == 1)) return false;
    for (unsigned i = 0; i < 2; i++) range_under(f, i ? f->b : f->a, &rest[i], &low[i], &high[i]);
    __int128 least = (__int128)r->low - ((__int128)high[0] - low[1]),
             most = (__int128)r->high - ((__int128)low[0] - high[1]);
    __int128 first = -floor_of(-least, by), last = floor_of(most, by);
    if (first > last) f->apart = true;
    if (first < last && !all) return false;
    relate(f, whole[0], whole[1], first, last);
    if (!all && first == last) relate(f, rest[0], rest[1], r->low - first * by, r->high - first * by);
    return true;
}

static int64_t magnitude(int64_t v) {
    return v == INT64_MIN ? INT64_MAX : v < 0 ? -v : v;
}

/* By the largest of the factors that do. */
static void split_sums(facts *f, const relation *r) {
    for (int64_t below = INT64_MAX; below > 1;) {
        int64_t by = 1;
        for (unsigned i = 0; i < r->a.count + r->b.count; i++) {
            int64_t of = magnitude(i < r->a.count ? r->a.parts[i].by : r->b.parts[i - r->a.count].by);
            if (of < below && of > by) by = of;
        }
        if (by < 2 || split_by(f, r, by)) return;
        below = by;
    }
}

/* x of x * n, where n is the same for both and not negative. */
static uint32_t factor_of(facts *f, uint32_t term, uint32_t *n) {
    const global_term t = *global_at(f->g, term);
    if (t.kind != GLOBAL_OP || t.op != TVM_EXPR_MUL || t.c != GLOBAL_EXACT) return TVM_NONE;
    bool second = is_same(f, t.b), first = is_same(f, t.a);
    if (second == first) return TVM_NONE;
    *n = second ? t.b : t.a;
    return second ? t.a : t.b;
}

/* Is the rest of the side, and so many more, below n? */
static bool fits(facts *f, const global_sum *rest, uint32_t n, int64_t more) {
    int64_t low, high;
    global_sum sum = *rest;
    tvm_global_sum_range(f->g, rest, &low, &high);
    return low >= 0 && more >= 0 && tvm_global_add(f->g, &sum, -1, n) && tvm_global_most(f->g, &sum) < -more;
}

/* x * n and less than n, on both sides. */
static void split_products(facts *f, const relation *r) {
    for (unsigned i = 0; i < r->a.count; i++)
        for (unsigned j = 0; j < r->b.count; j++) {
            uint32_t n = TVM_NONE, m = TVM_NONE;
            if (r->a.parts[i].by != 1 || r->b.parts[j].by != 1) continue;
            uint32_t x = factor_of(f, r->a.parts[i].term, &n), y = factor_of(f, r->b.parts[j].term, &m);
            if (x == TVM_NONE || y == TVM_NONE || n != m) continue;
            global_sum rest[2] = {r->a, r->b};
            drop(&rest[0], i);
            drop(&rest[1], j);
            if (!fits(f, &rest[0], n, r->low < 0 ? -r->low : 0) ||
                !fits(f, &rest[1], n, r->high > 0 ? r->high : 0))
                continue;
            relate_terms(f, x, y, 0, 0);
            relate(f, rest[0], rest[1], r->low, r->high);
            return;
        }
}

/* The loop's variable that is left of a side without multiples of its step; TVM_NONE: it is none. */
static uint32_t loop_of(const facts *f, const global_sum *sum) {
    uint32_t loop = TVM_NONE;
    for (unsigned i = 0; i < sum->count; i++)
        if (global_at(f->g, sum->parts[i].term)->kind == GLOBAL_LOOP) {
            if (loop != TVM_NONE || sum->parts[i].by != 1) return TVM_NONE;
            loop = sum->parts[i].term;
        }
    for (unsigned i = 0; i < sum->count && loop != TVM_NONE; i++)
        if (sum->parts[i].term != loop && sum->parts[i].term != global_at(f->g, loop)->step) return TVM_NONE;
    return loop;
}

/* Equal but for multiples of the step of loops. */
static void drop_steps(facts *f, const relation *r) {
    uint32_t a = loop_of(f, &r->a), b = loop_of(f, &r->b);
    if (r->low == 0 && r->high == 0 && a != TVM_NONE && b != TVM_NONE) relate_starts(f, a, b);
}

static void follow(facts *f, unsigned number) {
    relation r = f->relations[number];
    int64_t low[2], high[2];
    cancel(f, &r);
    tvm_prove_charge(f->g->p, 8);
    tvm_global_sum_range(f->g, &r.a, &low[0], &high[0]);
    tvm_global_sum_range(f->g, &r.b, &low[1], &high[1]);
    if ((__int128)low[0] - high[1] > r.high || (__int128)high[0] - low[1] < r.low) f->apart = true;
    if (r.a.count == 1 && r.b.count == 1 && r.a.parts[0].by == r.b.parts[0].by) {
        int64_t by = r.a.parts[0].by, from = by > 0 ? r.low : r.high, to = by > 0 ? r.high : r.low;
        __int128 least = -floor_of(-(__int128)from, by), most = floor_of(to, by);
        if (least > most) f->apart = true;
        if (least <= most) look_into(f, r.a.parts[0].term, r.b.parts[0].term, (int64_t)least, (int64_t)most);
        return;
    }
    drop_steps(f, &r);
    split_sums(f, &r);
    split_products(f, &r);
}

/* ---- quotients and remainders, conditions ---- */

static bool is_op(const facts *f, uint32_t term, unsigned op) {
    const global_term *t = global_at(f->g, term);
    return t->kind == GLOBAL_OP && t->op == op;
}

/* x / n and x % n are the same, so x is. */
static void join_quotients(facts *f) {
    for (unsigned i = 0; i < f->equal_count; i++) {
        if (!is_op(f, f->equal[i][0], TVM_EXPR_DIV) || !is_op(f, f->equal[i][1], TVM_EXPR_DIV)) continue;
        const global_term x = *global_at(f->g, f->equal[i][0]), y = *global_at(f->g, f->equal[i][1]);
        if (x.b != y.b || !is_same(f, x.b)) continue;
        for (unsigned j = 0; j < f->equal_count; j++) {
            const global_term r = *global_at(f->g, f->equal[j][0]), s = *global_at(f->g, f->equal[j][1]);
            if (!is_op(f, f->equal[j][0], TVM_EXPR_MOD) || !is_op(f, f->equal[j][1], TVM_EXPR_MOD)) continue;
            if (r.a == x.a && s.a == y.a && r.b == x.b && s.b == x.b) relate_terms(f, x.a, y.a, 0, 0);
        }
    }
}

/* A comparison of which its values leave equality alone: x >= 3 where x is at most 3. Else, of ==, that. */
static bool is_equality(global_prover *g, const global_term *t, bool holds) {
    unsigned op = t->op;
    if (t->kind != GLOBAL_OP || !tvm_expr_is_comparison(op)) return false;
    if (!is_narrow(g, t->a) || !is_narrow(g, t->b)) return false;
    if (!holds) op = tvm_expr_opposite(op);
    const global_term *a = global_at(g, t->a), *b = global_at(g, t->b);
    return op == TVM_EXPR_EQ || (op == TVM_EXPR_GE && a->high <= b->low) ||
           (op == TVM_EXPR_LE && a->low >= b->high);
}

/* x < 1 says x <= 0. */
static bool is_least(const global_prover *g, const global_term *t, bool holds) {
    unsigned op = t->op;
    if (t->kind != GLOBAL_OP || !tvm_expr_is_comparison(op)) return false;
    if (!is_narrow(g, t->a) || !is_narrow(g, t->b)) return false;
    if (!holds) op = tvm_expr_opposite(op);
    const global_term *a = global_at(g, t->a), *b = global_at(g, t->b);
    return (op == TVM_EXPR_LT && a->low >= b->high - 1) || (op == TVM_EXPR_GT && a->high <= b->low + 1);
}

static void follow_guards(facts *f) {
    global_prover *g = f->g;
    for (uint32_t i = 0; i < f->a->guards; i++)
        for (uint32_t j = 0; j < f->b->guards; j++) {
            const global_guard x = g->guards[f->a->first_guard + i], y = g->guards[f->b->first_guard + j];
            tvm_prove_charge(g->p, 1);
            if (x.term != y.term) continue;
            const global_term t = *global_at(g, x.term);
            if (x.holds != y.holds && is_same(f, x.term)) f->apart = true;
            if (x.holds != y.holds || !(is_equality(g, &t, x.holds) || is_least(g, &t, x.holds))) continue;
            if (is_same(f, t.b)) relate_terms(f, t.a, t.a, 0, 0);
            if (is_same(f, t.a)) relate_terms(f, t.b, t.b, 0, 0);
        }
}

static void close_over(facts *f) {
    f->changed = true;
    for (unsigned round = 0; round < ROUNDS && f->changed && !f->apart && !f->g->p->too_long; round++) {
        f->changed = false;
        follow_guards(f);
        for (unsigned i = 0; i < f->relation_count && !f->apart; i++) follow(f, i);
        join_quotients(f);
    }
}

/* ---- questions ---- */

/* Do two times at which control comes to the instruction have a sync between them if the loop has turned? */
static bool is_synced(const global_prover *g, uint32_t loop) {
    const tvm_ir_kernel *kernel = g->kernel;
    bool synced = false;
    for (uint32_t i = loop + 1; i < kernel->insns[loop].match; i++) {
        tvm_op_class class = tvm_insn_class(&kernel->insns[i]);
        if (class == TVM_CLASS_JUMP || class == TVM_CLASS_EXIT) return false;
        synced = synced || (kernel->insns[i].op == TVM_OP_SYNC && g->around[i] == loop);
    }
    return synced;
}

static bool is_in_loop(const global_prover *g, uint32_t insn) {
    for (uint32_t at = g->around[insn]; at != TVM_NONE; at = g->around[at])
        if (tvm_insn_class(&g->kernel->insns[at]) == TVM_CLASS_LOOP) return true;
    return tvm_insn_class(&g->kernel->insns[insn]) == TVM_CLASS_LOOP;
}

/* Of two times of one team that nothing orders: the loop that may have turned in between, and all that it
 * has; what stands before it is the same for both. TVM_NONE: all loops. */
static uint32_t turning_loop(const facts *f) {
    const global_prover *g = f->g;
    uint32_t loop = TVM_NONE;
    for (uint32_t at = f->a == f->b ? f->a->around : TVM_NONE; at != TVM_NONE; at = g->around[at]) {
        if (tvm_insn_class(&g->kernel->insns[at]) != TVM_CLASS_LOOP) continue;
        if (!f->a->async && is_synced(g, at)) break;
        loop = at;
    }
    return loop;
}

/* What comes of instructions that the team has done once for both. */
static void keep_same(facts *f) {
    const global_prover *g = f->g;
    uint32_t loop = turning_loop(f);
    tvm_prove_charge(g->p, g->term_count / 4);
    for (uint32_t i = 0; i < g->term_count; i++) {
        const global_term *t = global_at(g, i);
        if (t->kind != GLOBAL_LOOP && t->kind != GLOBAL_LOADED && t->kind != GLOBAL_OPAQUE) continue;
        bool turns = loop == TVM_NONE ? f->a != f->b && is_in_loop(g, t->a)
                                      : t->a >= loop && t->a <= g->kernel->insns[loop].match;
        if (!turns && f->fixed_count < GLOBAL_FACTS) f->fixed[f->fixed_count++] = i;
    }
}

static uint32_t role_term(const facts *f, uint32_t role) {
    for (uint32_t i = 0; i < f->g->term_count; i++)
        if (f->g->terms[i].kind == GLOBAL_ROLE && f->g->terms[i].a == role) return i;
    return TVM_NONE;
}

/* The same instruction in the same turn of all loops around it, up to one whose turns a sync orders. */
static bool is_one_turn(facts *f) {
    const global_prover *g = f->g;
    for (uint32_t at = f->a->around; at != TVM_NONE; at = g->around[at]) {
        if (tvm_insn_class(&g->kernel->insns[at]) != TVM_CLASS_LOOP) continue;
        if (!f->a->async && is_synced(g, at)) return true;
        bool same = false;
        for (uint32_t i = 0; i < g->term_count && !same; i++)
            same = g->terms[i].kind == GLOBAL_LOOP && g->terms[i].a == at && is_same(f, i);
        tvm_prove_charge(g->p, g->term_count / 8);
        if (!same) return false;
    }
    return true;
}

static bool is_one_block(facts *f) {
    for (unsigned d = 0; d < 3; d++)
        if (!is_same(f, f->g->axes[d])) return false;
    return true;
}

/* Along the dimension: tiles that touch an element begin at one place, if they begin at multiples of a number
 * that is no less than they are long. */
static bool is_one_index(facts *f, unsigned d) {
    const global_site *a = f->a, *b = f->b;
    if (a->index[d] == TVM_NONE || b->index[d] == TVM_NONE || a->extent[d] != b->extent[d]) return false;
    if (a->extent[d] == 1) return true;
    relation r = {.a = tvm_global_as_sum(f->g, a->index[d]), .b = tvm_global_as_sum(f->g, b->index[d])};
    uint64_t common = 0;
    cancel(f, &r);
    for (unsigned i = 0; i < r.a.count; i++) common = tvm_gcd(common, (uint64_t)magnitude(r.a.parts[i].by));
    for (unsigned i = 0; i < r.b.count; i++) common = tvm_gcd(common, (uint64_t)magnitude(r.b.parts[i].by));
    if (common == 0) return r.a.k == r.b.k;
    __int128 distance = (__int128)r.a.k - r.b.k;
    return common >= a->extent[d] && distance % (__int128)common == 0;
}

static bool is_one_place(facts *f) {
    const global_site *a = f->a, *b = f->b;
    if (a->scattered || b->scattered || a->tensor != b->tensor) return false;
    for (unsigned d = 0; d < a->rank; d++)
        if (!is_one_index(f, d)) return false;
    return true;
}

/* Elements of less than a byte share one unless tiles begin at whole bytes. */
static int64_t beside(const global_prover *g, const global_site *site, unsigned d) {
    unsigned bits = g->kernel->slots[site->root].dtype.bits;
    if (bits % 8 == 0 || d + 1 < site->rank || site->index[d] == TVM_NONE) return 0;
    const global_sum sum = tvm_global_as_sum(g, site->index[d]);
    bool whole = sum.k * bits % 8 == 0 && (uint64_t)site->extent[d] * bits % 8 == 0;
    for (unsigned i = 0; i < sum.count; i++) whole = whole && sum.parts[i].by % 8 * bits % 8 == 0;
    return whole ? 0 : 7;
}

/* Do bounds that numbers do not give keep the two further apart? What varies is different terms for the two.
 */
static bool is_too_far(facts *f, uint32_t a, uint32_t b, int64_t low, int64_t high) {
    global_sum less = tvm_global_as_sum(f->g, a), more = tvm_global_as_sum(f->g, b | GLOBAL_OTHER);
    if (!tvm_global_add(f->g, &less, -1, b | GLOBAL_OTHER) || !tvm_global_add(f->g, &more, -1, a))
        return false;
    return tvm_global_most(f->g, &less) < low || tvm_global_most(f->g, &more) < -high;
}

static void begin(facts *f, global_apart how) {
    const global_site *a = f->a, *b = f->b;
    memset(f->g->memo, UNASKED, f->g->term_count);
    for (unsigned d = 0; d < 3 && how != GLOBAL_BLOCKS; d++) add_equal(f, f->g->axes[d], f->g->axes[d]);
    if (how == GLOBAL_TURNS && a->role != TVM_NONE) {
        uint32_t role = role_term(f, a->role);
        if (role != TVM_NONE) add_equal(f, role, role);
    }
    if (how == GLOBAL_TURNS) keep_same(f);
    for (unsigned d = 0; d < a->rank; d++) {
        if (a->index[d] == TVM_NONE || b->index[d] == TVM_NONE) continue;
        int64_t more = beside(f->g, a, d) + beside(f->g, b, d);
        int64_t low = -((int64_t)a->extent[d] - 1) - more, high = (int64_t)b->extent[d] - 1 + more;
        relate_terms(f, a->index[d], b->index[d], low, high);
        if (a != b && is_too_far(f, a->index[d], b->index[d], low, high)) f->apart = true;
    }
}

static global_answer answer_of(facts *f, global_apart how) {
    const global_site *a = f->a, *b = f->b;
    begin(f, how);
    close_over(f);
    uint32_t role = how == GLOBAL_TEAMS && a->role == b->role ? role_term(f, a->role) : TVM_NONE;
    bool one = how == GLOBAL_BLOCKS  ? is_one_block(f)
               : how == GLOBAL_TEAMS ? role != TVM_NONE && is_same(f, role)
                                     : a == b && is_one_turn(f);
    global_answer answer = {
        .apart = !f->g->p->too_long && (f->apart || one), .load = f->load, .wraps = f->wraps};
    answer.same_place = !answer.apart && !f->g->p->too_long && is_one_place(f);
    return answer;
}

global_answer tvm_global_compare(global_prover *g, const global_site *a, const global_site *b,
                                 global_apart how) {
    facts *f = calloc(1, sizeof *f);
    global_answer answer = {.load = TVM_NONE};
    if (!f) g->p->no_memory = true;
    for (unsigned assumes = 0; f && assumes <= GLOBAL_ALL_ASSUMED && !answer.apart; assumes++) {
        *f = (facts){.g = g, .a = a, .b = b, .how = how, .assumes = assumes, .load = TVM_NONE};
        const global_answer made = answer_of(f, how);
        if (!assumes || made.apart) answer = made;
    }
    free(f);
    return answer;
}
