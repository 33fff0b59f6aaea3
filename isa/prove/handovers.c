/* Does each take-global get what it waits for? Blocks of lower indices are begun before, so that a block may
 * wait for them: of blocks that wait for ever the lowest one waits for none that does. So it is shown of each
 * take
 *
 *   - that what it takes is put, in the same tile of a clean tensor, by a block of a lower index (Q): with
 * what is known where the take stands (explore.c), the kernel is gone through once more, as Q, and no path
 * comes to an end without that put;
 *   - that nobody else takes it: of takes of one block the one after begins below the one before, and takes
 * of two blocks in one place contradict each other.
 *
 * Which block Q is follows from the put: an index of the put that is that of the block is that of the take.
 * Takes in a row, of tiles that numbers of the text alone keep apart, are one: Q is to put all of them, and a
 * ghost says which it has. As Q no more is followed than bears on puts.
 */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_SITES = 32,
    MOST_TAKES = 24,
    MOST_EXTENT = 8, /* of a take, in tiles of puts */
    EFFORT = 2,
    WORK = 1 << 30 /* steps, of a kernel */
};

/* A put or take of a tile. */
typedef struct handover {
    uint32_t insn, slot;
    bool takes;
    unsigned rank, ghost;
    const tvm_operand *indices;
    uint32_t extent[TVM_MAX_RANK];
} handover;

/* A take, where a path has come to it. */
typedef struct taken {
    const handover *site;
    uint64_t others; /* sites of takes right behind it, in the same place but for numbers, as bits */
    explore_moment *m;
    refute_sum at[TVM_MAX_RANK];
} taken;

typedef struct handovers {
    explorer *e;
    handover sites[MOST_SITES];
    uint32_t count;
    unsigned along; /* dimension of which puts have the block's index, and takes another */
    taken takes[MOST_TAKES];
    uint32_t taken_count;
    const taken *wanted; /* by whom; NULL: takes are collected */
    const char *why;     /* what is not known */
} handovers;

static void refuse(handovers *h, const char *why) {
    if (!h->why) h->why = why;
}

/* ---- which ---- */

static bool add_site(handovers *h, uint32_t at) {
    const prover *p = h->e->p;
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    const tvm_slot *tensor = &p->kernel->slots[operands->value];
    bool takes = insn->op == TVM_OP_TAKE_GLOBAL;
    if (h->count == MOST_SITES || tensor->view) return false;
    const tvm_slot *tile = &p->kernel->slots[takes ? insn->result : operands[1 + tensor->rank].value];
    unsigned tile_rank = tvm_slot_rank(p->program, tile);
    handover *site = &h->sites[h->count++];
    *site = (handover){at, operands->value, takes, tensor->rank, 0, operands + 1, {0}};
    for (unsigned d = 0; d < site->rank; d++)
        site->extent[d] =
            d + tile_rank < site->rank ? 1 : tvm_slot_shape(p->program, tile)[d + tile_rank - site->rank];
    return true;
}

/* Is the tensor named by puts and takes alone? */
static bool is_left_alone(const prover *p, uint32_t slot) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        const tvm_operand *operands = tvm_operands(p->kernel, insn);
        if (insn->result == slot) {
            if (insn->op != TVM_OP_ALLOC_GLOBAL) return false;
            continue;
        }
        for (uint32_t o = 0; o < insn->count; o++)
            if (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == slot &&
                insn->op != TVM_OP_PUT_GLOBAL && insn->op != TVM_OP_TAKE_GLOBAL)
                return false;
    }
    return slot >= p->kernel->param_count;
}

static bool find_sites(handovers *h, uint8_t *asked) {
    const prover *p = h->e->p;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        uint16_t op = p->kernel->insns[i].op;
        if (op != TVM_OP_PUT_GLOBAL && op != TVM_OP_TAKE_GLOBAL) continue;
        asked[i] = 1;
        if (!add_site(h, i)) return false;
        if (h->sites[h->count - 1].slot != h->sites[0].slot) return false;
    }
    return h->count && is_left_alone(p, h->sites[0].slot);
}

static const tvm_expr *index_of(const handovers *h, const handover *site, unsigned d) {
    return &h->e->p->kernel->exprs[site->indices[d].value];
}

/* Are the two in different places by numbers alone? */
static bool are_numbered(const handovers *h, const handover *a, const handover *b) {
    for (unsigned d = 0; d < a->rank; d++) {
        const tvm_expr *x = index_of(h, a, d), *y = index_of(h, b, d);
        if (x->op != TVM_EXPR_INTEGER || y->op != TVM_EXPR_INTEGER) continue;
        if (x->value.i < INT32_MIN || x->value.i > INT32_MAX || y->value.i < INT32_MIN ||
            y->value.i > INT32_MAX)
            continue;
        if (x->value.i + (int64_t)a->extent[d] <= y->value.i ||
            y->value.i + (int64_t)b->extent[d] <= x->value.i)
            return true;
    }
    return false;
}

/* Takes that may be in one place have one ghost. False: there are too many, or one may be in places of two.
 */
static bool set_ghost(handovers *h, handover *site, unsigned *ghosts) {
    bool found = false;
    for (const handover *other = h->sites; other < site; other++) {
        if (!other->takes || are_numbered(h, other, site)) continue;
        if (found && site->ghost != other->ghost) return false;
        site->ghost = other->ghost;
        found = true;
    }
    if (!found) site->ghost = (*ghosts)++;
    return *ghosts <= EXPLORE_GHOSTS;
}

/* The dimension along which takes follow each other; and numbers of those that other dimensions keep apart.
 */
static bool find_order(handovers *h) {
    for (h->along = 0; h->along < h->sites[0].rank; h->along++) {
        bool is = true;
        for (uint32_t i = 0; i < h->count && is; i++) {
            const tvm_expr *index = index_of(h, &h->sites[i], h->along);
            const bool takes = h->sites[i].takes;
            is = (index->op == TVM_EXPR_BLOCK) == !takes && (takes || h->sites[i].extent[h->along] == 1);
        }
        if (is) break;
    }
    if (h->along == h->sites[0].rank) return false;
    for (uint32_t i = 0; i < h->count; i++)
        if (h->sites[i].takes && !set_ghost(h, &h->sites[i], &h->e->ghosts)) return false;
    return true;
}

/* ---- paths ---- */

static const handover *site_at(const handovers *h, uint32_t insn) {
    uint32_t i = 0;
    while (h->sites[i].insn != insn) i++;
    return &h->sites[i];
}

/* Is all that is known of the first known of the second, too? */
static bool knows_all(const explore_moment *of, const explore_moment *m) {
    bool all = true;
    for (uint32_t i = 0; i < of->fact_count && all; i++) {
        uint32_t k = 0;
        while (k < m->fact_count && memcmp(&of->facts[i], &m->facts[k], sizeof *of->facts) != 0) k++;
        all = k < m->fact_count;
    }
    return all;
}

/* Is it right behind the other one, in the same place but for numbers of the text? Then what is shown of that
 * one is shown of it. */
static bool is_beside(const handovers *h, const taken *of, const explore_moment *m, const handover *site,
                      const refute_sum *at) {
    for (unsigned d = 0; d < site->rank; d++) {
        bool numbers = index_of(h, site, d)->op == TVM_EXPR_INTEGER &&
                       index_of(h, of->site, d)->op == TVM_EXPR_INTEGER && d != h->along;
        if (of->site->extent[d] != site->extent[d]) return false;
        if (!numbers && memcmp(&of->at[d], &at[d], sizeof *at) != 0) return false;
    }
    return of->site != site && knows_all(of->m, m);
}

static void keep_take(handovers *h, explore_moment *m, const handover *site, const refute_sum *at) {
    for (uint32_t t = h->taken_count; t-- > 0;)
        if (is_beside(h, &h->takes[t], m, site, at)) {
            h->takes[t].others |= UINT64_C(1) << (site - h->sites);
            return;
        }
    explore_moment *copy = h->taken_count < MOST_TAKES ? tvm_explore_copy(h->e, m) : NULL;
    if (!copy) {
        h->e->failed = true;
        return;
    }
    taken *t = &h->takes[h->taken_count++];
    *t = (taken){.site = site, .m = copy};
    memcpy(t->at, at, site->rank * sizeof *at);
}

/* A take: it is kept, and begins below the one before it. */
static void take(handovers *h, explore_moment *m, const handover *site) {
    refute_sum at[TVM_MAX_RANK];
    for (unsigned d = 0; d < site->rank; d++) at[d] = tvm_explore_value(h->e, m, site->indices[d].value);
    refute_sum *before = &m->values[tvm_explore_ghost(h->e, site->ghost)];
    if (!h->e->silent && !h->wanted) {
        if (!tvm_explore_is_above(h->e, m, before, &at[h->along], site->extent[h->along], 1))
            refuse(h, "may be for what the block has taken before");
        keep_take(h, m, site, at);
    }
    *before = at[h->along];
}

/* Where it is that the other block is to put. */
static refute_sum *place_of(const handovers *h, explore_moment *m, unsigned d) {
    return &m->values[tvm_explore_ghost(h->e, EXPLORE_GHOSTS + d)];
}

/* Is the put what the take waits for, of which the moment keeps the place? */
static bool is_for(handovers *h, explore_moment *m, const handover *site, const handover *take) {
    for (unsigned d = 0; d < site->rank; d++) {
        if (d != h->along && site->extent[d] != take->extent[d]) return false;
        const tvm_expr *index = index_of(h, take, d);
        bool number = d != h->along && index->op == TVM_EXPR_INTEGER;
        refute_sum at = tvm_explore_value(h->e, m, site->indices[d].value);
        const refute_sum place = number ? tvm_refute_number(index->value.i) : *place_of(h, m, d);
        if (!tvm_explore_is_above(h->e, m, &at, &place, 0, 1) ||
            !tvm_explore_is_above(h->e, m, &place, &at, 0, 1))
            return false;
    }
    return true;
}

/* A put, as the block that somebody waits for: has it put all that he waits for? A ghost says what of it, as
 * bits. */
static bool put(handovers *h, explore_moment *m, const handover *site) {
    refute_sum *done = &m->values[tvm_explore_ghost(h->e, 0)];
    const uint64_t all = h->wanted->others | UINT64_C(1) << (h->wanted->site - h->sites);
    int64_t bits;
    if (!tvm_refute_is_number(done, &bits)) return false;
    for (uint32_t i = 0; i < h->count; i++) {
        int64_t bit = INT64_C(1) << i;
        if (all & (uint64_t)bit && !(bits & bit) && is_for(h, m, site, &h->sites[i])) bits |= bit;
    }
    *done = tvm_refute_number(bits);
    return (uint64_t)bits == all;
}

static bool meet(explorer *e, explore_moment *m, uint32_t insn) {
    handovers *h = e->closure;
    const handover *site = site_at(h, insn);
    if (site->takes) {
        take(h, m, site);
        return false;
    }
    return h->wanted && put(h, m, site);
}

/* The moment as that of another block, of whose scalars nothing is known. */
static explore_moment *other_block(handovers *h, const taken *t, const refute_sum *part) {
    const prover *p = h->e->p;
    explore_moment *m = tvm_explore_copy(h->e, t->m);
    for (unsigned d = 0; d < t->site->rank && m; d++) *place_of(h, m, d) = t->at[d];
    if (m) m->values[tvm_explore_ghost(h->e, 0)] = tvm_refute_number(0);
    if (m && !tvm_refute_add(place_of(h, m, h->along), 1, part)) h->e->failed = true;
    for (uint32_t i = 0; i < h->count && m; i++)
        for (unsigned d = 0; d < h->sites[i].rank && !h->sites[i].takes; d++) {
            const tvm_expr *index = &p->kernel->exprs[h->sites[i].indices[d].value];
            if (index->op == TVM_EXPR_BLOCK)
                m->values[tvm_explore_block(h->e, index->a)] = *place_of(h, m, d);
        }
    return m;
}

/* Is the other block one of the grid, and of a lower index? Blocks begin along x first. */
static bool is_lower(handovers *h, const explore_moment *other, explore_moment *own) {
    explorer *e = h->e;
    const refute_sum none = {.count = 0};
    for (unsigned axis = 0; axis < 3; axis++) {
        refute_sum grid = tvm_explore_grid(e, axis);
        const refute_sum *index = &other->values[tvm_explore_block(e, axis)];
        if (!tvm_explore_is_above(e, own, index, &none, 0, EFFORT) ||
            !tvm_explore_is_above(e, own, &grid, index, 1, EFFORT))
            return false;
    }
    for (unsigned axis = 3; axis-- > 0;) {
        const refute_sum *x = &other->values[tvm_explore_block(e, axis)],
                         *y = &own->values[tvm_explore_block(e, axis)];
        if (tvm_explore_is_above(e, own, y, x, 1, EFFORT)) return true;
        if (!tvm_explore_is_above(e, own, y, x, 0, EFFORT)) return false;
    }
    return false;
}

static void check_put(handovers *h, const taken *t, uint32_t part) {
    explorer *e = h->e;
    refute_sum number = tvm_refute_number(part);
    explore_moment *m = other_block(h, t, &number);
    if (!m) return;
    if (!is_lower(h, m, t->m)) {
        refuse(h, "may wait for a block that is no lower one");
        tvm_explore_free(m);
        return;
    }
    const uint32_t unknowns = e->unknowns->count, quotients = e->quotient_count;
    h->wanted = t;
    tvm_explore_clear(&e->ends);
    tvm_explore_tidy(e, m);
    tvm_explore_all(e, m);
    for (uint32_t i = 0; i < e->ends.count && !e->failed; i++)
        if (!tvm_explore_is_refuted(e, e->ends.of[i], EFFORT)) refuse(h, "may wait for what no block puts");
    h->wanted = NULL;
    tvm_explore_clear(&e->ends);
    tvm_explore_forget(e, unknowns, quotients); /* nobody asks for this block's any more */
}

/* ---- two takes ---- */

typedef struct names {
    uint16_t to[REFUTE_UNKNOWNS];
} names;

static void set_apart(explorer *e, names *n, refute_sum *sum) {
    refute_sum made = *sum;
    for (uint32_t i = 0; i < sum->count; i++)
        for (unsigned d = 0; d < REFUTE_DEGREE; d++) {
            uint16_t unknown = sum->terms[i].of[d];
            if (!unknown || !e->unknowns->of[unknown].is_own) continue;
            if (!n->to[unknown]) {
                const refute_unknown *of = &e->unknowns->of[unknown];
                n->to[unknown] = tvm_refute_unknown_new(e->unknowns, of->low, of->high, true);
                if (!n->to[unknown]) e->failed = true;
            }
            refute_sum other = tvm_refute_of(n->to[unknown]);
            if (tvm_refute_has(&made, unknown) && !tvm_refute_replace(&made, unknown, &other))
                made.count = UINT32_MAX;
            if (made.count == UINT32_MAX) {
                *sum = (refute_sum){.count = 0};
                e->failed = true;
                return;
            }
        }
    *sum = made;
}

static bool is_refuted(explorer *e, const refute_sum *facts, uint32_t count) {
    refute_solver *solver = tvm_refute_solver_new(e->unknowns);
    for (uint32_t i = 0; i < count && solver; i++) tvm_refute_solver_add(solver, &facts[i]);
    bool refuted = solver && tvm_refute_facts(solver, facts, count, EFFORT);
    free(solver);
    return refuted;
}

static bool has_own(const explorer *e, const refute_sum *fact) {
    for (uint32_t i = 0; i < fact->count; i++)
        for (unsigned d = 0; d < REFUTE_DEGREE; d++)
            if (e->unknowns->of[fact->terms[i].of[d]].is_own) return true;
    return false;
}

/* Puts first, each once, the facts about blocks, and those about nothing but what these are about; how many.
 * There are fewer unknowns in them, of which a refutation takes so many. */
static uint32_t find_near(const explorer *e, refute_sum *facts, uint32_t count) {
    bool near[REFUTE_UNKNOWNS] = {true};
    uint32_t first = 0;
    for (uint32_t f = 0; f < count; f++)
        for (uint32_t i = 0; i < facts[f].count && has_own(e, &facts[f]); i++)
            for (unsigned d = 0; d < REFUTE_DEGREE; d++) near[facts[f].terms[i].of[d]] = true;
    for (uint32_t f = 0; f < count; f++) {
        bool is = true;
        for (uint32_t i = 0; i < facts[f].count; i++)
            for (unsigned d = 0; d < REFUTE_DEGREE; d++) is = is && near[facts[f].terms[i].of[d]];
        for (uint32_t i = 0; i < first && is; i++) is = memcmp(&facts[i], &facts[f], sizeof *facts) != 0;
        if (!is) continue;
        refute_sum swap = facts[first];
        facts[first++] = facts[f];
        facts[f] = swap;
    }
    return first;
}

/* Can the two, of blocks of which the first one's index along the axis is the lower, be in one place? */
static bool are_apart(handovers *h, const taken *a, const taken *b, unsigned axis) {
    explorer *e = h->e;
    names *n = calloc(1, sizeof *n);
    const uint32_t unknowns = e->unknowns->count, quotients = e->quotient_count;
    refute_sum facts[3 * EXPLORE_FACTS];
    uint32_t count = 0;
    if (!n) {
        e->p->no_memory = e->failed = true;
        return false;
    }
    for (uint32_t i = 0; i < a->m->fact_count; i++) facts[count++] = a->m->facts[i];
    for (uint32_t i = 0; i < b->m->fact_count; i++) {
        facts[count] = b->m->facts[i];
        set_apart(e, n, &facts[count++]);
    }
    refute_sum less = b->m->values[tvm_explore_block(e, axis)], one = tvm_refute_number(1);
    set_apart(e, n, &less);
    if (tvm_refute_add(&less, -1, &a->m->values[tvm_explore_block(e, axis)]) &&
        tvm_refute_add(&less, -1, &one))
        facts[count++] = less;
    for (unsigned d = 0; d < a->site->rank; d++) {
        bool numbers = index_of(h, a->site, d)->op == TVM_EXPR_INTEGER;
        if (numbers && (a->others || b->others)) continue; /* the others have other ones */
        refute_sum other = b->at[d], up = tvm_refute_number((int64_t)a->site->extent[d] - 1);
        refute_sum down = tvm_refute_number((int64_t)b->site->extent[d] - 1);
        set_apart(e, n, &other);
        if (tvm_refute_add(&up, 1, &a->at[d]) && tvm_refute_add(&up, -1, &other)) facts[count++] = up;
        if (tvm_refute_add(&down, 1, &other) && tvm_refute_add(&down, -1, &a->at[d])) facts[count++] = down;
    }
    free(n);
    if (e->failed) return false;
    bool apart = is_refuted(e, facts, find_near(e, facts, count)) || is_refuted(e, facts, count);
    tvm_explore_forget(e, unknowns, quotients);
    return apart;
}

static void check_pairs(handovers *h) {
    for (uint32_t a = 0; a < h->taken_count; a++)
        for (uint32_t b = 0; b < h->taken_count && !h->why; b++)
            for (unsigned axis = 0; axis < 3 && !h->e->failed; axis++) {
                refute_sum grid = tvm_explore_grid(h->e, axis);
                int64_t number;
                if (tvm_refute_is_number(&grid, &number) && number == 1) continue;
                if (!are_apart(h, &h->takes[a], &h->takes[b], axis))
                    refuse(h, "may be for what another block takes, too");
            }
}

/* ---- all ---- */

static void prove_all(handovers *h, uint8_t *asked) {
    explorer *e = h->e;
    explore_moment *start = tvm_explore_start(e);
    for (unsigned g = 0; g < EXPLORE_GHOSTS && start; g++)
        start->values[tvm_explore_ghost(e, g)] = tvm_refute_number(INT64_C(1) << 40);
    if (start) tvm_explore_all(e, start);
    if (e->failed) return refuse(h, "is in a kernel of too many paths");
    for (uint32_t i = 0; i < h->count; i++)
        if (h->sites[i].takes) asked[h->sites[i].insn] = 0;
    e->ghosts = 1; /* what the other block takes does not matter, but what it has put */
    if (!tvm_explore_narrow(e, asked)) return;
    for (uint32_t t = 0; t < h->taken_count && !h->why && !e->failed; t++)
        for (uint32_t part = 0; part < h->takes[t].site->extent[h->along] && !h->why; part++)
            if (part == MOST_EXTENT)
                refuse(h, "takes too many tiles");
            else
                check_put(h, &h->takes[t], part);
    if (!h->why && !e->failed) check_pairs(h);
    if (e->failed) refuse(h, "is in a kernel of too many paths");
}

/* With scalars up to the distance. */
static void prove_within(handovers *h, uint8_t *asked, unsigned most, uint64_t floor_work) {
    explorer *e = h->e;
    if (tvm_explore_begin(e, e->p, e->unknowns, asked, most)) {
        e->meet = meet;
        e->closure = h;
        tvm_explore_find_floors(e, floor_work);
        if (find_order(h))
            prove_all(h, asked);
        else
            refuse(h, "is at no place that a block of the put's index is known to put");
    }
    for (uint32_t t = 0; t < h->taken_count; t++) tvm_explore_free(h->takes[t].m);
    e->p->handed = !h->why && !e->failed;
    tvm_explore_end(e);
}

/* Few scalars are often enough, and often cheaper than all. */
static void prove_some(prover *p, handovers *h, refute_unknowns *unknowns) {
    static const unsigned distances[] = {1, EXPLORE_ALL};
    for (unsigned i = 0; i < sizeof distances / sizeof *distances && !p->handed && !p->no_memory; i++) {
        uint8_t *asked = calloc(p->kernel->insn_count + (size_t)1, 1);
        explorer *e = h->e;
        if (!asked) p->no_memory = true;
        *e = (explorer){.p = p, .unknowns = unknowns};
        *h = (handovers){.e = e};
        unknowns->count = 0;
        unknowns->most_work = unknowns->work + p->far_work / 2;
        /* the blocks of a cluster begin together, so that others may begin later that have a lower index */
        if (asked && find_sites(h, asked) && tvm_cluster_blocks(p->kernel) == 1)
            prove_within(h, asked, distances[i], p->far_work / 4);
        free(asked);
    }
}

void tvm_prove_handovers(prover *p) {
    handovers *h = calloc(1, sizeof *h);
    explorer *e = calloc(1, sizeof *e);
    refute_unknowns *unknowns = calloc(1, sizeof *unknowns);
    if (!h || !e || !unknowns) {
        p->no_memory = true;
    } else {
        h->e = e;
        prove_some(p, h, unknowns);
        tvm_prove_allow(p, unknowns->work);
        p->why_not_handed = h->why;
    }
    free(h);
    free(e);
    free(unknowns);
}
