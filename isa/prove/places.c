/* Where an access is: places of sites, which of them may have elements in common. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

#include "shared_view.h"

enum { MOST_OFFSET = 1 << 24 }; /* of indices that are counted by a loop */

/* ---- places ---- */

static uint32_t hash_place(const prove_place *place) {
    const uint8_t *bytes = (const uint8_t *)place;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *place; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

static bool grow_places(prover *p) {
    uint32_t capacity = p->place_capacity ? 2 * p->place_capacity : 256;
    prove_place *places = realloc(p->places, capacity * sizeof *places);
    if (!places) return false;
    p->places = places;
    p->place_capacity = capacity;
    return true;
}

/* Equal places have one number. The table is large enough for most kernels, and is searched in full. */
static uint32_t intern(prover *p, const prove_place *place) {
    uint32_t mask = p->place_bucket_count - 1, at = hash_place(place) & mask, tried = 0;
    for (; p->place_buckets[at] && tried < p->place_bucket_count; at = (at + 1) & mask, tried++)
        if (memcmp(&p->places[p->place_buckets[at] - 1], place, sizeof *place) == 0)
            return p->place_buckets[at] - 1;
    if (tried == p->place_bucket_count) {
        p->too_long = true;
        return 0;
    }
    if (p->place_count == p->place_capacity && !grow_places(p)) {
        p->no_memory = true;
        return TVM_NONE;
    }
    p->places[p->place_count++] = *place;
    p->place_buckets[at] = p->place_count;
    return p->place_count - 1;
}

/* The index as by * variable + from, of a loop around the instruction that is counted by a constant. The
 * variable is assigned by the loop alone. */
static bool is_linear(const prover *p, uint32_t insn, uint32_t expr, uint32_t *loop, int64_t *by,
                      int64_t *from) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    int64_t more_by, more;
    *by = *from = 0;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        *from = node->value.i;
        return *from > -MOST_OFFSET && *from < MOST_OFFSET;
    case TVM_EXPR_SLOT:
        *by = 1;
        for (uint32_t i = 0; i < insn; i++)
            if (p->kernel->insns[i].op == TVM_OP_FOR && p->kernel->insns[i].result == node->a &&
                p->kernel->insns[i].match > insn)
                *loop = i;
        for (uint32_t i = *loop + 1; *loop != TVM_NONE && i < p->kernel->insns[*loop].match; i++)
            if (p->kernel->insns[i].result == node->a) return false;
        return *loop != TVM_NONE;
    case TVM_EXPR_ADD:
    case TVM_EXPR_MUL:
        if (p->kernel->exprs[node->b].op != TVM_EXPR_INTEGER ||
            !is_linear(p, insn, node->a, loop, by, from) ||
            !is_linear(p, insn, node->b, loop, &more_by, &more))
            return false;
        *from = node->op == TVM_EXPR_ADD ? *from + more : *from * more;
        if (node->op == TVM_EXPR_MUL) *by *= more;
        return *by > 0 && *by<MOST_OFFSET && * from> - MOST_OFFSET && *from < MOST_OFFSET;
    default:
        return false;
    }
}

/* How far the index goes on in a turn; 0: it is not known. */
static int64_t stride_of(const prover *p, uint32_t loop, int64_t by) {
    const tvm_expr *step = &p->kernel->exprs[tvm_operands(p->kernel, &p->kernel->insns[loop])[2].value];
    if (step->op != TVM_EXPR_INTEGER || step->value.i < 1 || step->value.i > MOST_OFFSET) return 0;
    return step->value.i * by < MOST_OFFSET ? step->value.i * by : 0;
}

/* Is the slot assigned by `let` alone, and by none of those in the loop, so that it is what it was? */
static bool is_let_before(const prover *p, uint32_t slot, uint32_t loop) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        bool inside = i > loop && i < p->kernel->insns[loop].match;
        if (insn->result == slot && (insn->op != TVM_OP_LET || inside)) return false;
    }
    return slot >= p->kernel->param_count;
}

/* An operand of the minima (or maxima) of which the expression is one, that is a scalar times a number. */
static bool find_bound(const prover *p, uint32_t expr, uint32_t loop, uint8_t op, prove_bound *bound) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    if (node->op == op)
        return find_bound(p, node->a, loop, op, bound) || find_bound(p, node->b, loop, op, bound);
    bool times = node->op == TVM_EXPR_MUL && p->kernel->exprs[node->b].op == TVM_EXPR_INTEGER;
    const tvm_expr *scalar = times ? &p->kernel->exprs[node->a] : node;
    int64_t by = times ? p->kernel->exprs[node->b].value.i : 1;
    if (scalar->op != TVM_EXPR_SLOT || by < 1 || by > MOST_OFFSET || !is_let_before(p, scalar->a, loop) ||
        (times && !tvm_prove_is_whole(p, expr)))
        return false;
    *bound = (prove_bound){scalar->a, (int32_t)by};
    return true;
}

/* Where a loop's bounds bound the index: its variable is below the end, and not below the start. */
static void set_bounds(const prover *p, const prove_site *site, unsigned d, uint32_t loop,
                       prove_place *place) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[loop]);
    prove_bound bound;
    int64_t by = place->by[d], from = place->from[d];
    if (!tvm_prove_is_whole(p, site->indices[d].value)) return;
    if (from + site->extent[d] <= by && find_bound(p, operands[1].value, loop, TVM_EXPR_MIN, &bound) &&
        bound.times * by < MOST_OFFSET)
        place->under[d] = (prove_bound){bound.slot, (int32_t)(bound.times * by)};
    if (from >= 0 && find_bound(p, operands[0].value, loop, TVM_EXPR_MAX, &bound) &&
        bound.times * by < MOST_OFFSET)
        place->over[d] = (prove_bound){bound.slot, (int32_t)(bound.times * by)};
}

static void set_linear(const prover *p, const prove_site *site, unsigned d, prove_place *place) {
    uint32_t loop = TVM_NONE;
    int64_t by, from;
    if (!is_linear(p, site->insn, site->indices[d].value, &loop, &by, &from) || loop == TVM_NONE) return;
    if (stride_of(p, loop, by) == 0) return;
    place->loop[d] = loop + 1;
    place->by[d] = (int32_t)by;
    place->from[d] = (int32_t)from;
    set_bounds(p, site, d, loop, place);
}

/* Without the bounds by the slot, or by any: TVM_NONE. */
uint32_t tvm_prove_place_without(prover *p, uint32_t number, uint32_t slot) {
    prove_place place = p->places[number];
    bool has = false;
    for (unsigned d = 0; d < TVM_MAX_RANK; d++)
        for (unsigned side = 0; side < 2; side++) {
            prove_bound *bound = side ? &place.over[d] : &place.under[d];
            if (!bound->times || (slot != TVM_NONE && bound->slot != slot)) continue;
            *bound = (prove_bound){0};
            has = true;
        }
    return has ? intern(p, &place) : number;
}

static void forget_loop(prove_place *place, unsigned d) {
    place->loop[d] = 0;
    place->by[d] = place->from[d] = place->behind[d] = 0;
}

static bool is_in_loop(const prove_place *place, uint32_t loop) {
    for (unsigned d = 0; d < TVM_MAX_RANK; d++)
        if (place->loop[d] && (loop == TVM_NONE || place->loop[d] == loop + 1)) return true;
    return false;
}

uint32_t tvm_prove_next_place(prover *p, uint32_t number, uint32_t loop) {
    prove_place place = p->places[number];
    const prove_site *site = &p->sites[place.site];
    if (!is_in_loop(&place, loop)) return number;
    for (unsigned d = 0; d < site->rank; d++) {
        if (place.loop[d] != loop + 1 || place.behind[d]) continue;
        int64_t stride = stride_of(p, loop, place.by[d]), least = -2 * stride - site->extent[d];
        place.behind[d] = place.from[d] - stride <= least;
        if (least > -MOST_OFFSET)
            place.from[d] = (int32_t)(place.behind[d] ? least : place.from[d] - stride);
        else
            forget_loop(&place, d);
    }
    return intern(p, &place);
}

uint32_t tvm_prove_place_after(prover *p, uint32_t number, uint32_t loop) {
    prove_place place = p->places[number];
    if (!is_in_loop(&place, loop)) return number;
    for (unsigned d = 0; d < TVM_MAX_RANK; d++)
        if (loop == TVM_NONE || place.loop[d] == loop + 1) forget_loop(&place, d);
    return intern(p, &place);
}

/* Along a dimension, is one tile before the other? Of one that is behind it is known how far at least. */
static bool is_apart(const prove_place *x, uint32_t x_extent, const prove_place *y, unsigned d) {
    int64_t low = tvm_prove_is_exact(x->low[d]) ? x->low[d] : x->from[d],
            high = tvm_prove_is_exact(y->low[d]) ? y->low[d] : y->from[d];
    if (x->under[d].times && x->under[d].slot == y->over[d].slot && x->under[d].times == y->over[d].times)
        return true;
    bool comparable = tvm_prove_is_exact(x->low[d]) ? tvm_prove_is_exact(y->low[d])
                                                    : tvm_prove_is_alike(x, y, d) && !y->behind[d];
    return comparable && low + x_extent <= high;
}

uint32_t tvm_prove_place_of(prover *p, const prove_state *state, uint32_t number) {
    const prove_site *site = &p->sites[number];
    prove_place place;
    memset(&place, 0, sizeof place);
    place.site = number;
    prove_value block = {0};
    if (site->block) block = tvm_prove_eval(p, state, site->block->value);
    place.block = block.kind == PROVE_EXACT ? (int32_t)block.v : PROVE_UNKNOWN;
    for (unsigned d = 0; d < site->rank; d++) {
        prove_value index = {0};
        if (!site->everywhere) index = tvm_prove_eval(p, state, site->indices[d].value);
        bool inside = index.kind == PROVE_EXACT && index.v >= 0 && site->extent[d] <= site->shape[d] &&
                      index.v <= (int64_t)site->shape[d] - site->extent[d];
        bool aligned = !site->everywhere && (site->extent[d] == 1 || (index.kind == PROVE_CLASS &&
                                                                      index.modulus % site->extent[d] == 0 &&
                                                                      index.v % site->extent[d] == 0));
        bool is_rank = aligned && index.kind == PROVE_ANY && tvm_prove_is_rank(p, site->indices[d].value);
        place.low[d] = inside    ? (int32_t)index.v
                       : is_rank ? PROVE_RANK
                       : aligned ? PROVE_ALIGNED
                                 : PROVE_UNKNOWN;
        if (!inside && !site->everywhere) set_linear(p, site, d, &place);
    }
    return intern(p, &place);
}

/* ---- do two of them have an element in common? ---- */

uint64_t tvm_prove_most(const prove_site *site, unsigned d) {
    const tvm_shared_digits *digits = &site->digits[d];
    uint64_t far = 0;
    for (unsigned i = 0; i < digits->count; i++) far += (uint64_t)(digits->size[i] - 1) * digits->step[i];
    return far;
}

/* Among the root's elements, from the first to the last. */
static void span(const prove_site *site, const prove_place *place, uint64_t *low, uint64_t *high) {
    *low = *high = site->first;
    for (unsigned d = 0; d < site->rank; d++) {
        bool known = tvm_prove_is_exact(place->low[d]) && !tvm_prove_is_split(site, d);
        uint64_t from = known ? (uint64_t)place->low[d] : 0, count = known ? site->extent[d] : site->shape[d];
        *low += tvm_prove_is_split(site, d) ? 0 : tvm_shared_digits_at(&site->digits[d], (uint32_t)from);
        *high += tvm_prove_is_split(site, d)
                     ? tvm_prove_most(site, d)
                     : tvm_shared_digits_at(&site->digits[d], (uint32_t)(from + count - 1));
    }
}

bool tvm_prove_overlap(const prover *p, uint32_t a, uint32_t b) {
    const prove_place *x = &p->places[a], *y = &p->places[b];
    const prove_site *s = &p->sites[x->site], *t = &p->sites[y->site];
    uint64_t low[2], high[2];
    if (x->block != y->block && x->block != PROVE_UNKNOWN && y->block != PROVE_UNKNOWN) return false;
    if (s->root != t->root || (!s->writes && !t->writes) || (s->is_atomic && t->is_atomic)) return false;
    if (s->ticket && s->ticket == t->ticket) return false; /* each has numbers of its own */
    for (unsigned d = 0; d < s->rank && s->slot == t->slot; d++) {
        if (is_apart(x, s->extent[d], y, d) || is_apart(y, t->extent[d], x, d)) return false;
    }
    span(s, x, &low[0], &high[0]);
    span(t, y, &low[1], &high[1]);
    return low[0] <= high[1] && low[1] <= high[0];
}
