/* Where an access is, and whether two of them have an element in common. */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"

enum { MOST_OFFSET = 1 << 24 }; /* of indices that are counted by a loop */

/* ---- along a loop ---- */

/* The index as by * variable + from, of a loop around the instruction. The variable is assigned by the loop
 * alone. False: it is not so. */
static bool is_linear(const checker *c, uint32_t insn, uint32_t expr, uint32_t *loop, int64_t *by,
                      int64_t *from) {
    const tvm_ir_kernel *kernel = c->kernel;
    const tvm_expr *node = &kernel->exprs[expr], *number;
    switch (node->op) {
    case TVM_EXPR_SLOT:
        *by = 1;
        *from = 0;
        for (uint32_t i = 0; i < insn; i++)
            if (kernel->insns[i].op == TVM_OP_FOR && kernel->insns[i].result == node->a &&
                kernel->insns[i].match > insn)
                *loop = i;
        for (uint32_t i = *loop + 1; *loop != TVM_NONE && i < kernel->insns[*loop].match; i++)
            if (kernel->insns[i].result == node->a) return false;
        return *loop != TVM_NONE;
    case TVM_EXPR_ADD:
    case TVM_EXPR_MUL:
        number = &kernel->exprs[node->b];
        if (number->op != TVM_EXPR_INTEGER || number->value.i < -MOST_OFFSET ||
            number->value.i > MOST_OFFSET || !is_linear(c, insn, node->a, loop, by, from))
            return false;
        if (node->op == TVM_EXPR_MUL) *by *= number->value.i;
        *from = node->op == TVM_EXPR_ADD ? *from + number->value.i : *from * number->value.i;
        return *by > 0 && *by<MOST_OFFSET && * from> - MOST_OFFSET && *from < MOST_OFFSET;
    default:
        return false;
    }
}

/* How far the index goes on in a turn; 0: it is not known. */
static int64_t stride_of(const checker *c, uint32_t loop, int64_t by) {
    const tvm_expr *step = &c->kernel->exprs[tvm_operands(c->kernel, &c->kernel->insns[loop])[2].value];
    if (step->op != TVM_EXPR_INTEGER || step->value.i < 1 || step->value.i > MOST_OFFSET) return 0;
    return step->value.i * by < MOST_OFFSET ? step->value.i * by : 0;
}

static void forget_loop(check_place *place, unsigned d) {
    place->loop[d] = 0;
    place->by[d] = place->from[d] = place->behind[d] = 0;
}

uint32_t tvm_check_place_of(checker *c, const check_state *state, uint32_t number) {
    const check_site *site = &c->sites[number];
    check_place place = {.site = number};
    for (unsigned d = 0; d < site->rank; d++) {
        place.low[d] = CHECK_UNKNOWN;
        if (site->everywhere) continue;
        check_value index = tvm_check_eval(c, state, site->indices[d].value);
        uint32_t loop = TVM_NONE;
        int64_t by, from;
        if (index.kind == CHECK_EXACT && index.v >= 0 && site->extent[d] <= site->shape[d] &&
            index.v <= (int64_t)site->shape[d] - site->extent[d]) {
            place.low[d] = (int32_t)index.v;
            continue;
        }
        if (site->extent[d] == 1 || (index.kind == CHECK_CLASS && index.modulus % site->extent[d] == 0 &&
                                     index.v % site->extent[d] == 0))
            place.low[d] = CHECK_ALIGNED;
        if (!is_linear(c, site->insn, site->indices[d].value, &loop, &by, &from) || loop == TVM_NONE ||
            stride_of(c, loop, by) == 0)
            continue;
        place.loop[d] = loop + 1;
        place.by[d] = (int32_t)by;
        place.from[d] = (int32_t)from;
    }
    return tvm_check_set_add(c, &c->places, &place, sizeof place, NULL);
}

uint32_t tvm_check_next_place(checker *c, uint32_t number, uint32_t loop) {
    check_place place = *tvm_check_place(c, number);
    const check_site *site = &c->sites[place.site];
    for (unsigned d = 0; d < site->rank; d++) {
        if (place.loop[d] != loop + 1 || place.behind[d]) continue;
        int64_t stride = stride_of(c, loop, place.by[d]), least = -2 * stride - site->extent[d];
        place.behind[d] = place.from[d] - stride <= least;
        if (least > -MOST_OFFSET)
            place.from[d] = (int32_t)(place.behind[d] ? least : place.from[d] - stride);
        else
            forget_loop(&place, d);
    }
    return tvm_check_set_add(c, &c->places, &place, sizeof place, NULL);
}

uint32_t tvm_check_place_after(checker *c, uint32_t number, uint32_t loop) {
    check_place place = *tvm_check_place(c, number);
    for (unsigned d = 0; d < TVM_MAX_RANK; d++)
        if (loop == TVM_NONE || place.loop[d] == loop + 1) forget_loop(&place, d);
    return tvm_check_set_add(c, &c->places, &place, sizeof place, NULL);
}

/* ---- do two of them have an element in common? ---- */

static bool is_exact(int32_t low) {
    return low > CHECK_ALIGNED;
}

/* Are both relative to the variable of one loop? */
static bool is_alike(const check_place *x, const check_place *y, unsigned d) {
    return x->loop[d] && x->loop[d] == y->loop[d] && x->by[d] == y->by[d];
}

/* Along a dimension, is the first tile before the second? Of one that is behind it is known how far at least.
 */
static bool is_before(const check_place *x, uint32_t extent, const check_place *y, unsigned d) {
    if (is_exact(x->low[d]) != is_exact(y->low[d])) return false;
    if (is_exact(x->low[d])) return (int64_t)x->low[d] + extent <= y->low[d];
    return is_alike(x, y, d) && !y->behind[d] && (int64_t)x->from[d] + extent <= y->from[d];
}

/* Among the root's elements, the first and the last that it may touch. */
static void span_of(const check_site *site, const check_place *place, uint64_t *low, uint64_t *high) {
    *low = *high = site->first;
    for (unsigned d = 0; d < site->rank; d++) {
        const tvm_shared_digits *digits = &site->digits[d];
        bool known = is_exact(place->low[d]) && digits->count <= 1;
        uint32_t from = known ? (uint32_t)place->low[d] : 0, count = known ? site->extent[d] : site->shape[d];
        if (known) *low += tvm_shared_digits_at(digits, from);
        if (digits->count <= 1) *high += tvm_shared_digits_at(digits, from + count - 1);
        for (unsigned i = 0; i < digits->count && digits->count > 1; i++)
            *high += (uint64_t)(digits->size[i] - 1) * digits->step[i];
    }
}

bool tvm_check_overlap(const checker *c, uint32_t a, uint32_t b) {
    const check_place *x = tvm_check_place(c, a), *y = tvm_check_place(c, b);
    const check_site *s = &c->sites[x->site], *t = &c->sites[y->site];
    uint64_t low[2], high[2];
    if (s->root != t->root || (!s->writes && !t->writes) || (s->is_atomic && t->is_atomic)) return false;
    for (unsigned d = 0; d < s->rank && s->slot == t->slot; d++)
        if (is_before(x, s->extent[d], y, d) || is_before(y, t->extent[d], x, d)) return false;
    span_of(s, x, &low[0], &high[0]);
    span_of(t, y, &low[1], &high[1]);
    return low[0] <= high[1] && low[1] <= high[0];
}

/* ---- by which threads? ---- */

static uint32_t elements_of(const check_site *site) {
    uint32_t count = 1;
    for (unsigned d = 0; d < site->rank; d++) count *= site->extent[d];
    return count;
}

/* Fills threads, by element of the tile in row-major order; false: nothing is known, or memory is out. */
static bool find_threads(checker *c, check_site *site) {
    enum { NOBODY = CHECK_SEVERAL - 1 };
    if (!site->layout || site->threads) return site->threads != NULL;
    const uint32_t count = elements_of(site), locals = tvm_layout_locals(site->layout),
                   all = tvm_layout_threads(site->layout) * locals;
    uint32_t *table = malloc((size_t)all * sizeof *table);
    site->threads = malloc(count * sizeof *site->threads);
    if (!table || !site->threads) {
        c->no_memory = c->over = true;
    } else {
        tvm_check_charge(c, count + all);
        tvm_layout_table(site->layout, table);
        for (uint32_t e = 0; e < count; e++) site->threads[e] = NOBODY;
        for (uint32_t i = 0; i < all; i++) {
            uint16_t *who = table[i] < count ? &site->threads[table[i]] : NULL,
                     thread = (uint16_t)(i / locals);
            if (who) *who = *who == NOBODY || *who == thread ? thread : CHECK_SEVERAL;
        }
    }
    free(table);
    return !c->no_memory;
}

/* How far the second is behind the first along each dimension. Multiples of one extent are one place, or have
 * no element in common. */
static bool find_distance(const check_site *s, const check_site *t, const check_place *x,
                          const check_place *y, int64_t *distance) {
    for (unsigned d = 0; d < s->rank; d++) {
        bool exact = is_exact(x->low[d]) && is_exact(y->low[d]);
        bool aligned =
            x->low[d] == CHECK_ALIGNED && y->low[d] == CHECK_ALIGNED && s->extent[d] == t->extent[d];
        bool linear = is_alike(x, y, d) && !x->behind[d] && !y->behind[d];
        if (!exact && !aligned && !linear) return false;
        distance[d] = exact ? (int64_t)y->low[d] - x->low[d] : linear ? (int64_t)y->from[d] - x->from[d] : 0;
    }
    return true;
}

/* Threads that hold an element together have written one value: who of them reads it reads its own. */
static bool is_own(const check_site *s, const check_site *t, bool same) {
    return same && s->layout && t->layout && tvm_layout_equal(s->layout, t->layout) &&
           (tvm_layout_replication(s->layout) == 1 || (s->writes && !s->is_far && !t->writes));
}

bool tvm_check_differ(checker *c, uint32_t a, uint32_t b, bool warps) {
    const check_place *x = tvm_check_place(c, a), *y = tvm_check_place(c, b);
    check_site *s = &c->sites[x->site], *t = &c->sites[y->site];
    int64_t distance[TVM_MAX_RANK] = {0};
    if (s->slot != t->slot || !find_distance(s, t, x, y, distance)) return true;
    bool same = true;
    for (unsigned d = 0; d < s->rank; d++) same = same && distance[d] == 0 && s->extent[d] == t->extent[d];
    if (is_own(s, t, same)) return false;
    if (!find_threads(c, s) || !find_threads(c, t)) return true;
    tvm_check_charge(c, elements_of(t) / 4);
    for (uint32_t e = 0; e < elements_of(t); e++) {
        int64_t other = 0, step = 1;
        uint32_t rest = e;
        for (unsigned d = s->rank; d-- > 0 && other >= 0; rest /= t->extent[d], step *= s->extent[d]) {
            int64_t along = rest % t->extent[d] + distance[d];
            other = along < 0 || along >= s->extent[d] ? -1 : other + along * step;
        }
        if (other < 0) continue;
        uint16_t one = s->threads[other], two = t->threads[e];
        if (one == CHECK_SEVERAL || two == CHECK_SEVERAL || (warps ? one / 32 != two / 32 : one != two))
            return true;
    }
    return false;
}
