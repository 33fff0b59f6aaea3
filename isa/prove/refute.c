/* Facts about whole numbers, each a sum that is 0 or more, and whether they contradict each other.
 *
 * Products of unknowns are taken as unknowns of their own, so that facts are linear, and one unknown after
 * the other is eliminated: of a fact in which it has a factor above 0 and one in which it has one below, a
 * sum of both times positive numbers is a fact without it (Fourier and Motzkin; each is divided by what its
 * factors have in common, and its number rounded down, as all are whole). If 0 is left, and a number below 0,
 * the facts contradict each other. A fact that is left out, as it is too large or there are too many, makes
 * nothing contradict itself that does not.
 *
 * Where that does not do, products are given facts: u * v is 0 or more if u and v are; u * n is at most v * n
 * if u is at most v, and n is 0 or more, and at most v * n - n if u is less than v; a product of two
 * quotients times their divisors is at most the product of what they are quotients of. Which is so of u and v
 * is found in the same way; where it is not known, the three cases may be looked at one by one. */
#include "refute.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ATOMS = 48, MOST_ROWS = 240, MOST_FACTS = 256, MOST_PIVOTS = 250, MOST_DENOMINATOR = 1 << 20 };

typedef __int128 wide;

/* ---- sums ---- */

uint16_t tvm_refute_unknown_new(refute_unknowns *u, int64_t low, int64_t high, bool is_own) {
    if (u->count == 0) u->count = 1;
    if (u->count == REFUTE_UNKNOWNS) return 0;
    u->of[u->count] = (refute_unknown){.low = low, .high = high, .is_own = is_own};
    return (uint16_t)u->count++;
}

static int by_product(const refute_term *a, const refute_term *b) {
    for (unsigned i = 0; i < REFUTE_DEGREE; i++)
        if (a->of[i] != b->of[i]) return a->of[i] < b->of[i] ? -1 : 1;
    return 0;
}

/* Adds a term; false: too many, or beyond 64 bits. */
static bool add_term(refute_sum *to, const refute_term *term, int64_t by) {
    uint32_t at = 0;
    int64_t more;
    if (__builtin_mul_overflow(term->by, by, &more)) return false;
    if (more == 0) return true;
    while (at < to->count && by_product(&to->terms[at], term) < 0) at++;
    if (at < to->count && by_product(&to->terms[at], term) == 0) {
        if (__builtin_add_overflow(to->terms[at].by, more, &to->terms[at].by)) return false;
        if (to->terms[at].by) return true;
        memmove(&to->terms[at], &to->terms[at + 1], (--to->count - at) * sizeof *to->terms);
        to->terms[to->count] = (refute_term){.by = 0}; /* sums are compared as bytes */
        return true;
    }
    if (to->count == REFUTE_TERMS) return false;
    memmove(&to->terms[at + 1], &to->terms[at], (to->count++ - at) * sizeof *to->terms);
    to->terms[at] = *term;
    to->terms[at].by = more;
    return true;
}

bool tvm_refute_add(refute_sum *to, int64_t by, const refute_sum *sum) {
    refute_sum made = *to;
    for (uint32_t i = 0; i < sum->count; i++)
        if (!add_term(&made, &sum->terms[i], by)) return false;
    *to = made;
    return true;
}

/* The product of two; false: of too many unknowns. */
static bool times(refute_term *to, const refute_term *a, const refute_term *b) {
    unsigned i = 0, j = 0, count = 0;
    refute_term made = {.by = 0};
    if (__builtin_mul_overflow(a->by, b->by, &made.by)) return false;
    while ((i < REFUTE_DEGREE && a->of[i]) || (j < REFUTE_DEGREE && b->of[j])) {
        uint16_t x = i < REFUTE_DEGREE ? a->of[i] : 0, y = j < REFUTE_DEGREE ? b->of[j] : 0;
        if (count == REFUTE_DEGREE) return false;
        made.of[count++] = x >= y ? x : y;
        if (x >= y)
            i++;
        else
            j++;
    }
    *to = made;
    return true;
}

bool tvm_refute_multiply(refute_sum *to, const refute_sum *a, const refute_sum *b) {
    refute_sum made = {.count = 0};
    refute_term term;
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++)
            if (!times(&term, &a->terms[i], &b->terms[j]) || !add_term(&made, &term, 1)) return false;
    *to = made;
    return true;
}

static bool term_has(const refute_term *term, uint16_t unknown) {
    for (unsigned i = 0; i < REFUTE_DEGREE; i++)
        if (term->of[i] == unknown) return true;
    return false;
}

bool tvm_refute_has(const refute_sum *sum, uint16_t unknown) {
    for (uint32_t i = 0; i < sum->count; i++)
        if (term_has(&sum->terms[i], unknown)) return true;
    return false;
}

bool tvm_refute_replace(refute_sum *to, uint16_t unknown, const refute_sum *value) {
    refute_sum made = {.count = 0};
    for (uint32_t i = 0; i < to->count; i++) {
        refute_sum term = tvm_refute_number(to->terms[i].by);
        for (unsigned d = 0; d < REFUTE_DEGREE && to->terms[i].of[d]; d++) {
            refute_sum factor = to->terms[i].of[d] == unknown ? *value : tvm_refute_of(to->terms[i].of[d]);
            if (!tvm_refute_multiply(&term, &term, &factor)) return false;
        }
        if (!tvm_refute_add(&made, 1, &term)) return false;
    }
    *to = made;
    return true;
}

static int64_t clamp(wide v) {
    return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
}

void tvm_refute_range(const refute_unknowns *u, const refute_sum *sum, int64_t *low, int64_t *high) {
    wide least = 0, most = 0;
    for (uint32_t i = 0; i < sum->count; i++) {
        wide from = sum->terms[i].by, to = from;
        for (unsigned d = 0; d < REFUTE_DEGREE && sum->terms[i].of[d]; d++) {
            const refute_unknown *of = &u->of[sum->terms[i].of[d]];
            wide ends[4] = {(wide)clamp(from) * of->low, (wide)clamp(from) * of->high,
                            (wide)clamp(to) * of->low, (wide)clamp(to) * of->high};
            from = to = ends[0];
            for (unsigned e = 1; e < 4; e++) {
                from = ends[e] < from ? ends[e] : from;
                to = ends[e] > to ? ends[e] : to;
            }
        }
        least += clamp(from);
        most += clamp(to);
    }
    *low = clamp(least);
    *high = clamp(most);
}

/* ---- a sum of facts that says that a number below 0 is 0 or more ---- */

/* Facts as rows: factors of atoms, which are products of unknowns, and a number. `search` has the rows that
 * are solved: columns are what is not basic, of which numbers from `count` on are atoms. */
typedef struct refute_solver table;
struct refute_solver {
    refute_unknowns *u;
    const refute_solver *base; /* has the facts of the first `shared` rows */
    uint32_t shared;
    bool contradicts;
    refute_term atoms[MOST_ATOMS];
    uint32_t atom_count, count;
    refute_sum rows[MOST_ROWS];
    double search[MOST_ROWS][MOST_ATOMS], value[MOST_ROWS], bound[MOST_ROWS];
    uint32_t basic[MOST_ROWS], column[MOST_ATOMS];
    double column_value[MOST_ATOMS];
};

/* Of an atom; atom_count: it is none yet. */
static uint32_t place_of(const table *t, const refute_term *term) {
    uint32_t a = 0;
    while (a < t->atom_count && by_product(&t->atoms[a], term) != 0) a++;
    return a;
}

static uint32_t atom_of(table *t, const refute_term *term) {
    uint32_t a = place_of(t, term);
    if (a < t->atom_count || a == MOST_ATOMS) return a;
    for (uint32_t r = 0; r < t->count; r++) t->search[r][a] = 0;
    t->column[a] = MOST_ROWS + a;
    t->column_value[a] = 0;
    t->atoms[a] = *term;
    return t->atom_count++;
}

/* Adds the atom times a number to the row, in what the columns are now. */
static void add_atom(table *t, uint32_t r, uint32_t atom, double by) {
    for (uint32_t c = 0; c < t->atom_count; c++)
        if (t->column[c] == MOST_ROWS + atom) {
            t->search[r][c] += by;
            t->value[r] += by * t->column_value[c];
            return;
        }
    for (uint32_t i = 0; i < r; i++) {
        if (t->basic[i] != MOST_ROWS + atom) continue;
        for (uint32_t c = 0; c < t->atom_count; c++) t->search[r][c] += by * t->search[i][c];
        t->value[r] += by * t->value[i];
        return;
    }
}

/* False: the fact is left out, as the table is full. */
static bool add_row(table *t, const refute_sum *fact) {
    const uint32_t r = t->count;
    uint32_t atoms[REFUTE_TERMS] = {0};
    if (r == MOST_ROWS) return false;
    for (uint32_t i = 0; i < fact->count; i++) {
        if (fact->terms[i].of[0]) atoms[i] = atom_of(t, &fact->terms[i]);
        if (atoms[i] == MOST_ATOMS) return false;
    }
    memset(t->search[r], 0, sizeof t->search[r]);
    t->bound[r] = t->value[r] = 0;
    for (uint32_t i = 0; i < fact->count; i++)
        if (fact->terms[i].of[0])
            add_atom(t, r, atoms[i], (double)fact->terms[i].by);
        else
            t->bound[r] = -(double)fact->terms[i].by;
    t->rows[r] = *fact;
    t->basic[r] = r;
    t->count++;
    t->u->work += t->atom_count / 4 + 1;
    return true;
}

/* What is known of the unknown by itself. */
static void add_range(table *t, uint16_t unknown) {
    const refute_unknown *of = &t->u->of[unknown];
    refute_sum fact = tvm_refute_of(unknown), number = tvm_refute_number(of->low);
    if (of->low > INT64_MIN / 4 && tvm_refute_add(&fact, -1, &number)) add_row(t, &fact);
    fact = tvm_refute_number(of->high);
    number = tvm_refute_of(unknown);
    if (of->high < INT64_MAX / 4 && tvm_refute_add(&fact, -1, &number)) add_row(t, &fact);
}

/* With what is known of unknowns that come with it. */
static void add_fact(table *t, const refute_sum *fact) {
    const uint32_t before = t->atom_count;
    add_row(t, fact);
    for (uint32_t a = before, all = t->atom_count; a < all; a++)
        if (!t->atoms[a].of[1]) add_range(t, t->atoms[a].of[0]);
}

static const double nearly = 1e-7, tiny = 1e-11; /* of a number: limits of 32 bits are apart by 1 */

/* The row that is farthest below its bound; count: none is. */
static uint32_t worst_row(const table *t) {
    uint32_t worst = t->count;
    double most = 0;
    for (uint32_t r = 0; r < t->count; r++) {
        uint32_t of = t->basic[r];
        if (of >= MOST_ROWS) continue;
        double bound = t->bound[of], below = bound - t->value[r];
        if (below <= nearly + tiny * (bound < 0 ? -bound : bound) || below <= most) continue;
        most = below;
        worst = r;
    }
    return worst;
}

/* A column by which the row's value can be raised; atom_count: there is none. The lowest number, so that it
 * ends. */
static uint32_t raising(const table *t, uint32_t r) {
    uint32_t best = t->atom_count;
    for (uint32_t c = 0; c < t->atom_count; c++) {
        double by = t->search[r][c];
        bool is_atom = t->column[c] >= MOST_ROWS;
        bool falls = by < -nearly && (is_atom || t->column_value[c] > t->bound[t->column[c]] + nearly);
        if (by <= nearly && !falls) continue;
        if (best == t->atom_count || t->column[c] > t->column[best]) best = c; /* atoms first */
    }
    return best;
}

/* The row's value becomes its bound; the column and it change places. */
static void pivot(table *t, uint32_t r, uint32_t c) {
    const double by = t->search[r][c], step = (t->bound[t->basic[r]] - t->value[r]) / by;
    const uint32_t out = t->basic[r];
    t->u->work += t->count * t->atom_count / 16 + 4;
    for (uint32_t i = 0; i < t->count; i++) t->value[i] += t->search[i][c] * step;
    double in = t->column_value[c] + step;
    for (uint32_t j = 0; j < t->atom_count; j++) t->search[r][j] /= -by;
    t->search[r][c] = 1 / by;
    for (uint32_t i = 0; i < t->count; i++) {
        double times = t->search[i][c];
        if (i == r || times == 0) continue;
        t->search[i][c] = 0;
        for (uint32_t j = 0; j < t->atom_count; j++) {
            double sum = t->search[i][j] + times * t->search[r][j];
            t->search[i][j] = sum < 1e-11 && sum > -1e-11 ? 0 : sum;
        }
    }
    t->basic[r] = t->column[c];
    t->value[r] = in;
    t->column[c] = out;
    t->column_value[c] = t->bound[out];
}

/* The number as a fraction; 0: it is none of small numbers. */
static int64_t denominator_of(double x) {
    int64_t before = 0, q = 1;
    double rest = x;
    if (!(x < 1e12)) return 0;
    for (unsigned i = 0; i < 24; i++) {
        double whole = (double)(int64_t)rest, scaled = x * (double)q;
        double off = scaled - (double)(int64_t)(scaled + 0.5);
        if (off < 1e-6 && off > -1e-6) return q;
        rest = 1 / (rest - whole);
        if (rest > 1e9) return q;
        int64_t next = (int64_t)rest * q + before;
        before = q;
        q = next;
        if (q > MOST_DENOMINATOR) return 0;
    }
    return 0;
}

/* The fact of a row. */
static const refute_sum *fact_of(const table *t, uint32_t r) {
    while (r < t->shared) t = t->base;
    return &t->rows[r];
}

/* The proof itself: is the sum of the facts, each times a number that is 0 or more, a number below 0? Nothing
 * of how the numbers were found matters. */
static bool is_contradiction(const table *t, const int64_t *times) {
    wide sums[MOST_ATOMS] = {0}, number = 0;
    for (uint32_t r = 0; r < t->count; r++) {
        if (times[r] < 0) return false;
        const refute_sum *fact = fact_of(t, r);
        for (uint32_t i = 0; i < fact->count && times[r]; i++) {
            const refute_term *term = &fact->terms[i];
            wide more = (wide)term->by * times[r];
            if (term->of[0])
                sums[place_of(t, term)] += more;
            else
                number += more;
        }
    }
    for (uint32_t a = 0; a < t->atom_count; a++)
        if (sums[a]) return false;
    return number < 0;
}

/* Of a row that no column can raise: it and the columns are the facts, the factors how often. */
static bool check_row(const table *t, uint32_t r) {
    int64_t common = 1, times[MOST_ROWS] = {0};
    for (uint32_t c = 0; c < t->atom_count; c++) {
        double by = -t->search[r][c];
        if (by < nearly || t->column[c] >= MOST_ROWS) continue;
        int64_t q = denominator_of(by), x = q, y = common;
        if (!q) return false;
        while (x) {
            int64_t rest = y % x;
            y = x;
            x = rest;
        }
        if (common / y > MOST_DENOMINATOR * 64 / q) return false;
        common = common / y * q;
    }
    times[t->basic[r]] = common;
    for (uint32_t c = 0; c < t->atom_count; c++) {
        double by = -t->search[r][c] * (double)common;
        if (-t->search[r][c] >= nearly && t->column[c] < MOST_ROWS && by < 1e15)
            times[t->column[c]] = (int64_t)(by + 0.5);
    }
    return is_contradiction(t, times);
}

static void solve(table *t) {
    for (unsigned i = 0; i < MOST_PIVOTS && !t->contradicts && t->u->work <= t->u->most_work; i++) {
        uint32_t r = worst_row(t);
        if (r == t->count) return;
        uint32_t c = raising(t, r);
        if (c < t->atom_count)
            pivot(t, r, c);
        else if (check_row(t, r))
            t->contradicts = true;
        else
            return;
    }
}

refute_solver *tvm_refute_solver_new(refute_unknowns *u) {
    table *t = malloc(sizeof *t);
    if (!t) return NULL;
    t->u = u;
    t->contradicts = false;
    t->count = t->atom_count = t->shared = 0;
    return t;
}

static void copy_search(table *to, const table *from) {
    const uint32_t rows = from->count, atoms = from->atom_count;
    to->u = from->u;
    to->contradicts = from->contradicts;
    to->count = rows;
    to->atom_count = atoms;
    memcpy(to->atoms, from->atoms, atoms * sizeof *to->atoms);
    for (uint32_t r = 0; r < rows; r++) memcpy(to->search[r], from->search[r], atoms * sizeof **to->search);
    memcpy(to->value, from->value, rows * sizeof *to->value);
    memcpy(to->bound, from->bound, rows * sizeof *to->bound);
    memcpy(to->basic, from->basic, rows * sizeof *to->basic);
    memcpy(to->column, from->column, atoms * sizeof *to->column);
    memcpy(to->column_value, from->column_value, atoms * sizeof *to->column_value);
    to->u->work += 10 + rows * (1 + atoms / 8);
}

void tvm_refute_solver_copy(refute_solver *to, const refute_solver *from) {
    copy_search(to, from);
    to->shared = 0;
    for (uint32_t r = 0; r < from->count; r++) to->rows[r] = *fact_of(from, r);
}

void tvm_refute_solver_try(refute_solver *to, const refute_solver *from) {
    copy_search(to, from);
    to->base = from;
    to->shared = from->count;
}

bool tvm_refute_solver_add(refute_solver *solver, const refute_sum *fact) {
    if (!solver->contradicts) add_fact(solver, fact);
    solve(solver);
    return solver->contradicts;
}

/* Is the sum below 0 where the facts are known to hold together? Then it does not follow that it is not. */
bool tvm_refute_solver_denies(const refute_solver *solver, const refute_sum *sum) {
    double value = 0;
    if (solver->contradicts || worst_row(solver) != solver->count) return false;
    for (uint32_t i = 0; i < sum->count; i++) {
        if (!sum->terms[i].of[0]) {
            value += (double)sum->terms[i].by;
            continue;
        }
        uint32_t atom = place_of(solver, &sum->terms[i]), c = 0, r = 0;
        if (atom == solver->atom_count) return false;
        while (c < solver->atom_count && solver->column[c] != MOST_ROWS + atom) c++;
        while (c == solver->atom_count && solver->basic[r] != MOST_ROWS + atom) r++;
        value +=
            (double)sum->terms[i].by * (c < solver->atom_count ? solver->column_value[c] : solver->value[r]);
    }
    solver->u->work += 4;
    return value < -0.5;
}

/* ---- products ---- */

/* Facts, and more that follow from them. */
typedef struct knowledge {
    refute_unknowns *u;
    refute_sum facts[MOST_FACTS];
    uint32_t count;
    table *all, *trial; /* of the facts; with one more */
    bool splits;        /* cases are looked at */
} knowledge;

static bool is_there(const knowledge *k, const refute_sum *fact) {
    k->u->work += k->count / 4;
    for (uint32_t i = 0; i < k->count; i++)
        if (memcmp(&k->facts[i], fact, sizeof *fact) == 0) return true;
    return false;
}

static void learn(knowledge *k, const refute_sum *fact) {
    if (k->count == MOST_FACTS || is_there(k, fact)) return;
    k->facts[k->count++] = *fact;
    tvm_refute_solver_add(k->all, fact);
}

/* Does it follow that the sum is 0 or more? */
static bool follows(knowledge *k, const refute_sum *sum) {
    int64_t low, high;
    refute_sum not = tvm_refute_number(-1);
    if (k->u->work > k->u->most_work) return false;
    tvm_refute_range(k->u, sum, &low, &high);
    if (low >= 0) return true;
    if (high < 0 || !tvm_refute_add(&not, -1, sum)) return false;
    if (is_there(k, sum)) return true;
    if (tvm_refute_solver_denies(k->all, sum)) return false;
    tvm_refute_solver_try(k->trial, k->all);
    return tvm_refute_solver_add(k->trial, &not );
}

/* a - b - by >= 0; of 0 there is no unknown. */
static bool is_above(knowledge *k, uint16_t a, uint16_t b, int64_t by) {
    refute_sum sum = tvm_refute_number(-by), x = tvm_refute_of(a), y = tvm_refute_of(b);
    return (!a || tvm_refute_add(&sum, 1, &x)) && (!b || tvm_refute_add(&sum, -1, &y)) && follows(k, &sum);
}

static void forget(knowledge *k) {
    if (!k) return;
    free(k->all);
    free(k->trial);
    free(k);
}

static knowledge *know(refute_unknowns *u, const refute_sum *facts, uint32_t count, const table *all) {
    knowledge *k = count <= MOST_FACTS ? malloc(sizeof *k) : NULL;
    if (!k) return NULL;
    k->u = u;
    k->count = count;
    k->splits = false;
    memcpy(k->facts, facts, count * sizeof *facts);
    k->all = tvm_refute_solver_new(u);
    k->trial = tvm_refute_solver_new(u);
    if (!k->all || !k->trial) {
        forget(k);
        return NULL;
    }
    tvm_refute_solver_copy(k->all, all);
    return k;
}

enum { MOST_PRODUCTS = 16 };

typedef struct product {
    uint16_t a, b;
} product;

static uint32_t find_products(const knowledge *k, const refute_sum *about, product *out) {
    uint32_t count = 0;
    for (uint32_t f = 0; f <= k->count; f++)
        for (uint32_t i = 0; i < (f ? &k->facts[f - 1] : about)->count; i++) {
            const refute_term *term = &(f ? &k->facts[f - 1] : about)->terms[i];
            bool known = !term->of[1] || term->of[2];
            for (uint32_t p = 0; p < count && !known; p++)
                known = out[p].a == term->of[0] && out[p].b == term->of[1];
            if (!known && count < MOST_PRODUCTS) out[count++] = (product){term->of[0], term->of[1]};
        }
    return count;
}

/* (u - v - by) * n; u or v may be 0, which is no unknown. */
static bool order_of(refute_sum *fact, uint16_t u, uint16_t v, uint16_t n, int64_t by) {
    refute_sum first = tvm_refute_number(-by), x = tvm_refute_of(u), y = tvm_refute_of(v),
               factor = tvm_refute_of(n);
    return (!u || tvm_refute_add(&first, 1, &x)) && (!v || tvm_refute_add(&first, -1, &y)) &&
           tvm_refute_multiply(fact, &first, &factor);
}

static bool is_ordered(const knowledge *k, uint16_t u, uint16_t v, uint16_t n, int64_t by) {
    refute_sum fact;
    return order_of(&fact, u, v, n, by) && is_there(k, &fact);
}

/* That is 0 or more, as both factors are. */
static void learn_order(knowledge *k, uint16_t u, uint16_t v, uint16_t n, int64_t by) {
    refute_sum fact;
    if (order_of(&fact, u, v, n, by)) learn(k, &fact);
}

/* u * n, where n is 0 or more: u is at least 1, or 0, or at most 0. */
static void learn_sign(knowledge *k, uint16_t u, uint16_t n) {
    if (is_ordered(k, u, 0, n, 1)) return;
    if (is_above(k, u, 0, 1))
        learn_order(k, u, 0, n, 1);
    else if (is_above(k, u, 0, 0))
        learn_order(k, u, 0, n, 0);
    if (is_above(k, 0, u, 0)) learn_order(k, 0, u, n, 0);
}

/* What the signs of both say, and what they are quotients of. */
static void learn_signs(knowledge *k, const product *p) {
    bool a = is_above(k, p->a, 0, 0), b = is_above(k, p->b, 0, 0);
    if (b) learn_sign(k, p->a, p->b);
    if (a) learn_sign(k, p->b, p->a);
    const refute_unknown *x = &k->u->of[p->a], *y = &k->u->of[p->b];
    int64_t divisor;
    refute_sum both;
    if (!a || !b || x->divisor < 1 || y->divisor < 1 ||
        __builtin_mul_overflow(x->divisor, y->divisor, &divisor) ||
        !tvm_refute_multiply(&both, &x->whole, &y->whole) || !follows(k, &x->whole) || !follows(k, &y->whole))
        return;
    refute_sum times_each = {.count = 1};
    times_each.terms[0] = (refute_term){.by = 1, .of = {p->a, p->b}};
    if (tvm_refute_add(&both, -divisor, &times_each)) learn(k, &both);
}

/* u * n and v * n, of one n. */
static bool find_common(const product *p, const product *q, uint16_t *u, uint16_t *v, uint16_t *n) {
    *n = p->a == q->a || p->a == q->b ? p->a : p->b == q->a || p->b == q->b ? p->b : 0;
    if (!*n) return false;
    *u = p->a == *n ? p->b : p->a;
    *v = q->a == *n ? q->b : q->a;
    return *u != *v;
}

/* Of the two that have n in common; false: which is less is not known. */
static bool compare(knowledge *k, uint16_t u, uint16_t v, uint16_t n) {
    if (is_ordered(k, u, v, n, 1) || is_ordered(k, v, u, n, 1)) return true;
    for (unsigned side = 0; side < 2 && k->splits; side++) /* it may be the lower one by 1 */
        if (is_above(k, side ? u : v, side ? v : u, -1)) learn_order(k, side ? u : v, side ? v : u, n, -1);
    for (int64_t by = 1; by >= 0; by--)
        for (unsigned side = 0; side < 2; side++) {
            uint16_t above = side ? u : v, below = side ? v : u;
            if (!is_above(k, above, below, by)) continue;
            learn_order(k, above, below, n, by);
            return true;
        }
    return false;
}

enum { MOST_OPEN = 40 };

typedef struct open_order {
    uint16_t u, v, n;
} open_order;

/* Adds what products say; the pairs of which it is not known which is less. */
static uint32_t learn_products(knowledge *k, const refute_sum *about, open_order *open) {
    product products[MOST_PRODUCTS];
    uint32_t open_count = 0, count = find_products(k, about, products);
    for (uint32_t p = 0; p < count; p++) learn_signs(k, &products[p]);
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t q = 0; q < p; q++) {
            open_order o;
            if (!find_common(&products[p], &products[q], &o.u, &o.v, &o.n) || !is_above(k, o.n, 0, 0))
                continue;
            if (!compare(k, o.u, o.v, o.n) && open_count < MOST_OPEN) open[open_count++] = o;
        }
    return open_count;
}

static bool refute_within(knowledge *k, unsigned effort);

/* All three: u below v, above it, or equal. */
static bool refute_cases(const knowledge *k, const open_order *o, unsigned effort) {
    bool refuted = true;
    for (int which = -1; which <= 1 && refuted; which++) {
        uint16_t above = which < 0 ? o->v : o->u, below = which < 0 ? o->u : o->v;
        refute_sum fact = tvm_refute_of(above), less = tvm_refute_of(below),
                   one = tvm_refute_number(which != 0);
        refute_sum back = {.count = 0};
        if (!tvm_refute_add(&fact, -1, &less) || !tvm_refute_add(&fact, -1, &one)) return false;
        knowledge *of = know(k->u, k->facts, k->count, k->all);
        if (!of) return false;
        of->splits = true;
        learn(of, &fact);
        learn_order(of, above, below, o->n, which != 0);
        if (which == 0) {
            tvm_refute_add(&back, -1, &fact);
            learn(of, &back);
            learn_order(of, below, above, o->n, 0);
        }
        refuted = of->all->contradicts || (effort && refute_within(of, effort));
        forget(of);
    }
    return refuted;
}

static bool refute_within(knowledge *k, unsigned effort) {
    open_order open[MOST_OPEN];
    const refute_sum none = {.count = 0};
    uint32_t count = learn_products(k, &none, open);
    for (uint32_t i = 0; i < count && effort && !k->all->contradicts; i++)
        if (refute_cases(k, &open[i], effort - 1)) return true;
    return k->all->contradicts;
}

uint32_t tvm_refute_learn(const refute_solver *solver, refute_sum *facts, uint32_t count, uint32_t most,
                          const refute_sum *about) {
    open_order open[MOST_OPEN];
    knowledge *k = know(solver->u, facts, count, solver);
    if (!k) return count;
    learn_products(k, about, open);
    uint32_t all = k->count < most ? k->count : most;
    memcpy(facts, k->facts, all * sizeof *facts);
    forget(k);
    return all;
}

/* The last fact, which is often what is to be refuted, times each factor of products that is 0 or more. */
static void learn_multiples(knowledge *k) {
    product products[MOST_PRODUCTS];
    const refute_sum none = {.count = 0}, last = k->facts[k->count - 1];
    uint32_t count = find_products(k, &none, products);
    for (uint32_t p = 0; p < count; p++)
        for (unsigned side = 0; side < 2; side++) {
            uint16_t n = side ? products[p].a : products[p].b;
            refute_sum factor = tvm_refute_of(n), fact;
            bool linear = true;
            for (uint32_t i = 0; i < last.count; i++) linear = linear && !last.terms[i].of[1];
            if (linear && is_above(k, n, 0, 0) && tvm_refute_multiply(&fact, &last, &factor)) learn(k, &fact);
        }
}

static bool refute(const refute_solver *solver, const refute_sum *facts, uint32_t count, unsigned effort,
                   bool is_goal) {
    if (solver->contradicts || !effort) return solver->contradicts;
    knowledge *k = know(solver->u, facts, count, solver);
    if (k) k->splits = effort > 1;
    if (k && count && is_goal) learn_multiples(k);
    bool refuted = k && refute_within(k, effort - 1);
    forget(k);
    return refuted;
}

bool tvm_refute(const refute_solver *solver, const refute_sum *facts, uint32_t count, unsigned effort) {
    return refute(solver, facts, count, effort, true);
}

bool tvm_refute_facts(const refute_solver *solver, const refute_sum *facts, uint32_t count, unsigned effort) {
    return refute(solver, facts, count, effort, false);
}
