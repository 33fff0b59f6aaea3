/* Finds the products that wgmma can do: see wgmma.h. */
#include "wgmma_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uses.h"

/* With fewer columns of 8, mma.sync is as fast. */
enum { MIN_COLUMNS = 2 };

/* ---- where b lies ---- */

static const char *find_lanes(const tvm_layout *layout, place *p) {
    uint32_t coordinate[TVM_MAX_RANK], threads = tvm_layout_threads(layout), first = 0;
    p->groups = threads / WGMMA_THREADS;
    for (uint32_t t = 0; t < threads; t++) {
        tvm_layout_map(layout, t, 0, coordinate);
        uint32_t offset = tvm_shared_linear(&p->tile, coordinate), lane = t % 32;
        uint32_t *group = &p->threads[t / WGMMA_THREADS];
        if (t == 0) first = offset;
        if (t % WGMMA_THREADS == 0) *group = offset - first;
        if (offset - first != *group + lane / 4 * WGMMA_ROW + lane % 4 * 2)
            return "the four warps of a group do not have the same b, in rows of 64 elements along k";
        p->varies = p->varies || *group != 0;
    }
    return NULL;
}

static const char *find_tiles(const tvm_layout *layout, place *p) {
    static const uint32_t inside[] = {0, 1, 8, 9}; /* a thread's elements of a fragment, along k */
    uint32_t coordinate[TVM_MAX_RANK];
    for (uint32_t t = 0; t < p->count; t++)
        for (uint32_t i = 0; i < 4; i++) {
            tvm_layout_map(layout, 0, 4 * t + i, coordinate);
            uint32_t offset = tvm_shared_linear(&p->tile, coordinate);
            if (i == 0) p->tiles[t] = offset;
            if (offset != p->tiles[t] + inside[i]) return "b is not contiguous along k";
        }
    return NULL;
}

/* p->tiles has room for all fragments of b. */
static const char *find_place(emitter *e, const triple *t, place *p) {
    const tvm_insn *load = &e->kernel->insns[t->load];
    const tvm_operand *tensor = tvm_operands(e->kernel, load);
    const tvm_layout *layout = tvm_slot_layout(e, load->result);
    const tvm_shared_layout *shared = tvm_slot_shared_layout(e, tensor->value);
    uint32_t threads = tvm_layout_threads(layout);
    if (threads % WGMMA_THREADS != 0) return "the warps are no multiple of 4";
    if (tvm_slot_dtype(e, load->result).bits != 16) return "b's elements are viewed as others";
    bool linear = tvm_shared_open(e, &p->tile, tensor->value, tensor + 1, layout->rank, threads);
    if (!linear || shared->swizzle_base != 3 || shared->swizzle_bits != 3 || shared->swizzle_shift != 3)
        return "the shared tensor's rows are not swizzled by swizzle(3, 3, 3)";
    if (p->tile.dynamic_divisor % WGMMA_EIGHT_ROWS != 0)
        return "the tile's place is not known to be a multiple of 8 rows";
    const char *why = find_lanes(layout, p);
    return why ? why : find_tiles(layout, p);
}

/* ---- the products ---- */

void tvm_wgmma_products_free(products *all) {
    free(all->tile_a);
    free(all->tile_c);
    free(all->offset);
    *all = (products){0};
}

static uint32_t fragment_of(const products *all, uint32_t tile_a) {
    uint32_t f = 0;
    while (f < all->fragments && all->tile_a[f * all->steps] != tile_a) f++;
    return f;
}

/* The fragments of a, and the offset of the lowest column at each step. */
static void find_fragments(const tvm_mma_plan *plan, const place *p, products *all) {
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a);
        if (f == all->fragments) all->fragments++;
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
            all->tile_a[f * all->steps + k] = tile_a;
            if (c == 0 || p->tiles[tile_b] < all->offset[k]) all->offset[k] = p->tiles[tile_b];
        }
    }
    all->columns = plan->tiles_c / all->fragments;
}

static const char *order_columns(const tvm_mma_plan *plan, const place *p, products *all) {
    static const char *const why = "b's columns do not lie one after the other";
    for (uint32_t i = 0; i < plan->tiles_c; i++) all->tile_c[i] = TVM_NONE;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a),
                 column = (p->tiles[tile_b] - all->offset[0]) / WGMMA_EIGHT_ROWS;
        if (column >= all->columns || f >= all->fragments) return why;
        uint32_t *entry = &all->tile_c[f * all->columns + column];
        if (*entry != TVM_NONE) return why;
        *entry = c;
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
            if (p->tiles[tile_b] != all->offset[k] + column * WGMMA_EIGHT_ROWS ||
                all->tile_a[f * all->steps + k] != tile_a)
                return why;
        }
    }
    return NULL;
}

/* In every warpgroup. */
static const char *check_beginnings(const place *p, const products *all) {
    for (uint32_t k = 0; k < all->steps; k++)
        for (uint32_t g = 0; g < p->groups; g++) {
            uint32_t first = p->tile.constant + p->threads[g] + all->offset[k];
            if (first % WGMMA_EIGHT_ROWS >= WGMMA_ROW || first % WGMMA_STEP != 0)
                return "a step of k does not begin in the first of 8 rows";
        }
    return NULL;
}

/* "" when out of memory. */
const char *tvm_wgmma_products(emitter *e, const triple *t, place *p, products *all) {
    const tvm_insn *mma = &e->kernel->insns[t->mma];
    const tvm_operand *operands = tvm_operands(e->kernel, mma);
    const tvm_layout *b = tvm_slot_layout(e, operands[1].value);
    tvm_mma_plan plan;
    tvm_why reason;
    *p = (place){.count = tvm_layout_locals(b) / 4};
    *all = (products){0};
    if (!tvm_mma_plan_make(tvm_slot_layout(e, operands[0].value), b, tvm_slot_layout(e, operands[2].value),
                           &plan, &reason))
        return "the layouts are not mma's";
    p->tiles = calloc(p->count + (size_t)1, sizeof *p->tiles);
    all->steps = plan.tiles_k;
    all->tile_a = calloc((size_t)plan.tiles_c * plan.tiles_k + 1, sizeof *all->tile_a);
    all->tile_c = calloc(plan.tiles_c + (size_t)1, sizeof *all->tile_c);
    all->offset = calloc(plan.tiles_k + (size_t)1, sizeof *all->offset);
    const char *why = p->tiles && all->tile_a && all->tile_c && all->offset ? find_place(e, t, p) : "";
    if (!why) {
        find_fragments(&plan, p, all);
        why = order_columns(&plan, p, all);
    }
    if (!why) why = check_beginnings(p, all);
    free(p->tiles);
    p->tiles = NULL;
    return why;
}

/* ---- the plan ---- */

static bool find_triple(const emitter *e, uint32_t at, triple *t) {
    const tvm_ir_kernel *kernel = e->kernel;
    const tvm_insn *insns = kernel->insns;
    if (insns[at].op != TVM_OP_LOAD_SHARED) return false;
    uint32_t b = insns[at].result, next = at + 1;
    *t = (triple){.load = at, .view = TVM_NONE};
    if (next < kernel->insn_count && insns[next].op == TVM_OP_VIEW && insn_operands(e, next)[0].value == b) {
        t->view = next;
        b = insns[next++].result;
    }
    if (next >= kernel->insn_count || insns[next].op != TVM_OP_MMA) return false;
    const tvm_operand *operands = insn_operands(e, next);
    t->mma = next;
    return operands[1].value == b && operands[0].value != b;
}

static tvm_status find_triples(emitter *e, struct wgmma_state *s) {
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        triple *t = &s->triples[s->count];
        products all;
        place p;
        if (!find_triple(e, i, t)) continue;
        const char *why = tvm_wgmma_products(e, t, &p, &all);
        if (!why && all.columns > WGMMA_COLUMNS) why = "more than 256 columns";
        if (!why) t->columns = all.columns;
        tvm_wgmma_products_free(&all);
        if (why && !*why) return tvm_diag_no_memory(e->diags);
        snprintf(t->refused, sizeof t->refused, "%s", why ? why : "");
        s->triple[t->mma] = ++s->count;
        i = t->mma;
    }
    return TVM_OK;
}

/* The load and the view of a triple can be left out if whatever reads their slots is a triple, too: each has
 * a load and a view of its own right before its mma. */
static void refuse_read_elsewhere(const emitter *e, struct wgmma_state *s, uint32_t *reads) {
    const slot_use *uses = e->uses->slots;
    for (uint32_t i = 0; i < s->count; i++) {
        reads[slot_loaded(e, &s->triples[i])]++;
        if (s->triples[i].view != TVM_NONE) reads[slot_viewed(e, &s->triples[i])]++;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        triple *t = &s->triples[i];
        uint32_t loaded = slot_loaded(e, t), viewed = slot_viewed(e, t);
        if (t->columns == 0 || (uses[loaded].count == reads[loaded] && uses[viewed].count == reads[viewed]))
            continue;
        t->columns = 0;
        snprintf(t->refused, sizeof t->refused, "b is read elsewhere, too");
    }
}

/* ---- triples that one wgmma does ---- */

/* Do the fragments of the products lie alike? */
static bool is_alike(const emitter *e, const triple *t, const triple *other) {
    const tvm_operand *a = insn_operands(e, t->mma), *b = insn_operands(e, other->mma);
    return tvm_layout_equal(tvm_slot_layout(e, a[0].value), tvm_slot_layout(e, b[0].value)) &&
           tvm_layout_equal(tvm_slot_layout(e, a[1].value), tvm_slot_layout(e, b[1].value)) &&
           tvm_layout_equal(tvm_slot_layout(e, slot_sums(e, t)), tvm_slot_layout(e, slot_sums(e, other))) &&
           tvm_layout_equal(tvm_slot_layout(e, slot_loaded(e, t)),
                            tvm_slot_layout(e, slot_loaded(e, other))) &&
           insn_operands(e, t->load)[0].value == insn_operands(e, other->load)[0].value;
}

/* Does `t` neither read nor assign the sums of the `count` triples from `first` on? */
static bool is_independent(const emitter *e, const triple *t, const triple *first, uint32_t count) {
    for (const triple *of = first; of < first + count; of++)
        if (slot_sums(e, of) == slot_sums(e, t) || slot_sums(e, of) == insn_operands(e, t->mma)[2].value)
            return false;
    return true;
}

/* Is the b of `t` the number-th below that of `first`? Equal expressions are the same ones. */
static bool lies_below(emitter *e, const triple *t, const triple *first, uint32_t number) {
    const tvm_operand *a = insn_operands(e, first->load), *b = insn_operands(e, t->load);
    const tvm_layout *layout = tvm_slot_layout(e, slot_loaded(e, t));
    shared_tile tile_a, tile_b;
    for (unsigned d = 1; d <= tvm_slot_shared_layout(e, a->value)->rank; d++) {
        const tvm_expr *exprs = e->kernel->exprs;
        bool constants = exprs[a[d].value].op == TVM_EXPR_INTEGER && exprs[b[d].value].op == TVM_EXPR_INTEGER;
        if (a[d].value != b[d].value && !constants) return false;
    }
    tvm_shared_open(e, &tile_a, a->value, a + 1, layout->rank, tvm_layout_threads(layout));
    tvm_shared_open(e, &tile_b, b->value, b + 1, layout->rank, tvm_layout_threads(layout));
    return tile_b.constant - tile_a.constant == number * first->columns * WGMMA_EIGHT_ROWS;
}

/* How many triples from `first` on, which is taken, one wgmma can do. */
static uint32_t count_joined(emitter *e, const struct wgmma_state *s, const triple *first) {
    const triple *end = s->triples + s->count, *t = first + 1;
    uint32_t a = insn_operands(e, first->mma)[0].value, count = 1;
    for (; t < end && (count + 1) * first->columns <= WGMMA_COLUMNS; t++, count++)
        if (t->columns == 0 || t->load != t[-1].mma + 1 || insn_operands(e, t->mma)[0].value != a ||
            !is_alike(e, t, first) || !is_independent(e, t, first, count) || !lies_below(e, t, first, count))
            break;
    return count;
}

static void take_triple(struct wgmma_state *s, const triple *t, enum wgmma_role role) {
    s->role[t->load] = WGMMA_LEFT_OUT;
    if (t->view != TVM_NONE) s->role[t->view] = WGMMA_LEFT_OUT;
    s->role[t->mma] = (uint8_t)role;
    s->used = true;
}

static void take(emitter *e, struct wgmma_state *s) {
    triple *end = s->triples + s->count;
    for (triple *first = s->triples; first < end; first += first->joined ? first->joined : 1) {
        if (first->columns == 0) continue;
        uint32_t joined = count_joined(e, s, first);
        if (joined * first->columns < MIN_COLUMNS) {
            first->columns = 0;
            snprintf(first->refused, sizeof first->refused, "8 columns are as fast by mma.sync");
            continue;
        }
        first->joined = joined;
        for (uint32_t j = 0; j < joined; j++) take_triple(s, first + j, j == 0 ? WGMMA_FIRST : WGMMA_JOINS);
    }
}

bool tvm_wgmma_same_sums(const emitter *e, const triple *t, const triple *other) {
    bool same = t->joined == other->joined && is_alike(e, t, other);
    for (uint32_t j = 0; j < t->joined && same; j++) same = slot_sums(e, t + j) == slot_sums(e, other + j);
    return same;
}

tvm_status tvm_wgmma_plan(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    struct wgmma_state *s = calloc(1, sizeof *s);
    e->wgmma = s;
    if (!s) return tvm_diag_no_memory(e->diags);
    if (e->target.arch != 90 || e->target.feature != 'a') return TVM_OK;
    size_t insns = kernel->insn_count + (size_t)1, slots = kernel->slot_count + (size_t)1;
    uint32_t *reads = calloc(slots, sizeof *reads);
    s->triples = calloc(insns, sizeof *s->triples);
    s->role = calloc(insns, sizeof *s->role);
    s->triple = calloc(insns, sizeof *s->triple);
    s->busy = calloc(slots, sizeof *s->busy);
    s->sums_of = calloc(slots, sizeof *s->sums_of);
    bool fits = reads && s->triples && s->role && s->triple && s->busy && s->sums_of;
    tvm_status status = fits ? find_triples(e, s) : tvm_diag_no_memory(e->diags);
    if (status == TVM_OK) {
        refuse_read_elsewhere(e, s, reads);
        take(e, s);
    }
    free(reads);
    return status;
}

void tvm_wgmma_free(emitter *e) {
    if (!e->wgmma) return;
    free(e->wgmma->triples);
    free(e->wgmma->role);
    free(e->wgmma->triple);
    free(e->wgmma->busy);
    free(e->wgmma->sums_of);
    free(e->wgmma);
    e->wgmma = NULL;
}

bool tvm_wgmma_takes(const emitter *e, const tvm_insn *insn) {
    return e->wgmma->used && e->wgmma->role[insn_number(e, insn)] != WGMMA_NONE;
}

const char *tvm_wgmma_refused(const emitter *e, const tvm_insn *mma) {
    const struct wgmma_state *s = e->wgmma;
    uint32_t number = s->triple ? s->triple[insn_number(e, mma)] : 0;
    return number ? s->triples[number - 1].refused : "";
}

uint32_t tvm_wgmma_columns(const emitter *e, const tvm_insn *mma) {
    const struct wgmma_state *s = e->wgmma;
    if (!tvm_wgmma_takes(e, mma)) return 0;
    uint32_t i = s->triple[insn_number(e, mma)] - 1;
    while (s->role[s->triples[i].mma] == WGMMA_JOINS) i--;
    return s->triples[i].columns * s->triples[i].joined;
}
