/* Finds the products that wgmma can do: see wgmma.h. */
#include "wgmma_impl.h"

#include <stdlib.h>

/* With fewer columns of 8, mma.sync is as fast. */
enum { MIN_COLUMNS = 2 };

/* ---- where b lies ---- */

static const char *find_lanes(const tvm_layout *layout, const shared_tile *tile, products *all) {
    uint32_t coordinate[TVM_MAX_RANK], threads = tvm_layout_threads(layout), first = 0;
    all->groups = threads / WGMMA_THREADS;
    for (uint32_t t = 0; t < threads; t++) {
        tvm_layout_map(layout, t, 0, coordinate);
        uint32_t offset = tvm_shared_linear(tile, coordinate), lane = t % 32;
        uint32_t *group = &all->threads[t / WGMMA_THREADS];
        if (t == 0) first = offset;
        if (t % WGMMA_THREADS == 0) *group = offset - first;
        if (offset - first != *group + lane / 4 * WGMMA_ROW + lane % 4 * 2)
            return "the four warps of a group do not have the same b, in rows of 64 elements along k";
        all->varies = all->varies || *group != 0;
    }
    return NULL;
}

/* tiles[f] becomes the linear offset of fragment f of b in the first warpgroup. */
static const char *find_tiles(const tvm_layout *layout, const shared_tile *tile, uint32_t *tiles) {
    static const uint32_t inside[] = {0, 1, 8, 9}; /* a thread's elements of a fragment, along k */
    uint32_t coordinate[TVM_MAX_RANK];
    for (uint32_t t = 0; t < tvm_layout_locals(layout) / 4; t++)
        for (uint32_t i = 0; i < 4; i++) {
            tvm_layout_map(layout, 0, 4 * t + i, coordinate);
            uint32_t offset = tvm_shared_linear(tile, coordinate);
            if (i == 0) tiles[t] = offset;
            if (offset != tiles[t] + inside[i]) return "b is not contiguous along k";
        }
    return NULL;
}

static const char *find_place(emitter *e, const mma_operands *o, shared_tile *tile, products *all,
                              uint32_t *tiles) {
    const tvm_operand *tensor = o->mma.b.tensor;
    const tvm_layout *layout = &o->tile_b;
    const tvm_shared_layout *shared = tvm_slot_shared_layout(e, tensor->value);
    if (tvm_layout_threads(layout) % WGMMA_THREADS != 0) return "the warps are no multiple of 4";
    bool linear = tvm_shared_open_layout(e, tile, tensor->value, tensor + 1, layout);
    if (!linear || shared->swizzle_base != 3 || shared->swizzle_bits != 3 || shared->swizzle_shift != 3)
        return "the shared tensor's rows are not swizzled by swizzle(3, 3, 3)";
    if (tile->dynamic_divisor % WGMMA_EIGHT_ROWS != 0)
        return "the tile's place is not known to be a multiple of 8 rows";
    const char *why = find_lanes(layout, tile, all);
    return why ? why : find_tiles(layout, tile, tiles);
}

/* ---- the products ---- */

static void products_free(products *all) {
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
static void find_fragments(const tvm_mma_plan *plan, const uint32_t *tiles, products *all) {
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a);
        if (f == all->fragments) all->fragments++;
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
            all->tile_a[f * all->steps + k] = tile_a;
            if (c == 0 || tiles[tile_b] < all->offset[k]) all->offset[k] = tiles[tile_b];
        }
    }
    all->columns = plan->tiles_c / all->fragments;
}

static const char *order_columns(const tvm_mma_plan *plan, const uint32_t *tiles, products *all) {
    static const char *const why = "b's columns do not lie one after the other";
    for (uint32_t i = 0; i < plan->tiles_c; i++) all->tile_c[i] = TVM_NONE;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a), column = (tiles[tile_b] - all->offset[0]) / WGMMA_EIGHT_ROWS;
        if (column >= all->columns || f >= all->fragments) return why;
        uint32_t *entry = &all->tile_c[f * all->columns + column];
        if (*entry != TVM_NONE) return why;
        *entry = c;
        for (uint32_t k = 0; k < plan->tiles_k; k++) {
            tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
            if (tiles[tile_b] != all->offset[k] + column * WGMMA_EIGHT_ROWS ||
                all->tile_a[f * all->steps + k] != tile_a)
                return why;
        }
    }
    return NULL;
}

/* In every warpgroup. */
static const char *check_beginnings(const shared_tile *tile, const products *all) {
    for (uint32_t k = 0; k < all->steps; k++)
        for (uint32_t g = 0; g < all->groups; g++) {
            uint32_t first = tile->constant + all->threads[g] + all->offset[k];
            if (first % WGMMA_EIGHT_ROWS >= WGMMA_ROW || first % WGMMA_STEP != 0)
                return "a step of k does not begin in the first of 8 rows";
        }
    return NULL;
}

/* NULL, or why wgmma cannot do the products, "" for want of memory. What it needs to know of the place holds
 * wherever the instruction is emitted: there more of an index may be known, never less. */
static const char *find_products(emitter *e, const mma_operands *o, products *all) {
    const tvm_mma_plan *plan = &o->plan;
    shared_tile tile;
    uint32_t *tiles = calloc(tvm_layout_locals(&o->tile_b) / 4 + (size_t)1, sizeof *tiles);
    all->steps = plan->tiles_k;
    all->tile_a = calloc((size_t)plan->tiles_c * plan->tiles_k + 1, sizeof *all->tile_a);
    all->tile_c = calloc(plan->tiles_c + (size_t)1, sizeof *all->tile_c);
    all->offset = calloc(plan->tiles_k + (size_t)1, sizeof *all->offset);
    const char *why =
        tiles && all->tile_a && all->tile_c && all->offset ? find_place(e, o, &tile, all, tiles) : "";
    if (!why) {
        find_fragments(plan, tiles, all);
        why = order_columns(plan, tiles, all);
    }
    if (!why) why = check_beginnings(&tile, all);
    if (!why && all->columns > WGMMA_COLUMNS) why = "more than 256 columns";
    free(tiles);
    return why;
}

/* ---- the plan ---- */

static tvm_status find_all(emitter *e, struct wgmma_state *s) {
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        if (e->kernel->insns[i].op != TVM_OP_MMA) continue;
        const mma_operands *o = tvm_mma_operands_of(e, &e->kernel->insns[i]);
        if (!o->mma.b.is_shared) continue;
        product *p = &s->products[s->count];
        p->mma = i;
        const char *why = find_products(e, o, &p->all);
        if (!why) p->columns = p->all.columns;
        if (why) products_free(&p->all);
        if (why && !*why) return tvm_diag_no_memory(e->diags);
        p->refused = why;
        s->product[i] = ++s->count;
    }
    return TVM_OK;
}

/* ---- products that one wgmma does ---- */

/* Do the fragments of the products lie alike? */
static bool is_alike(const emitter *e, const product *p, const product *other) {
    const mma_operands *x = operands_of(e, p), *y = operands_of(e, other);
    return tvm_layout_equal(tvm_slot_layout(e, x->a), tvm_slot_layout(e, y->a)) &&
           tvm_layout_equal(tvm_slot_layout(e, slot_sums(e, p)), tvm_slot_layout(e, slot_sums(e, other))) &&
           tvm_layout_equal(&x->tile_b, &y->tile_b) && x->mma.b.slot == y->mma.b.slot;
}

/* Does `p` neither read nor assign the sums of the `count` products from `first` on? */
static bool is_independent(const emitter *e, const product *p, const product *first, uint32_t count) {
    for (const product *of = first; of < first + count; of++)
        if (slot_sums(e, of) == slot_sums(e, p) || slot_sums(e, of) == operands_of(e, p)->mma.c) return false;
    return true;
}

/* Is the b of `p` the number-th below that of `first`? Equal expressions are the same ones. */
static bool lies_below(emitter *e, const product *p, const product *first, uint32_t number) {
    const mma_operands *x = operands_of(e, first), *y = operands_of(e, p);
    const tvm_operand *a = x->mma.b.tensor, *b = y->mma.b.tensor;
    shared_tile tile_a, tile_b;
    for (unsigned d = 1; d <= tvm_slot_shared_layout(e, a->value)->rank; d++) {
        const tvm_expr *exprs = e->kernel->exprs;
        bool constants = exprs[a[d].value].op == TVM_EXPR_INTEGER && exprs[b[d].value].op == TVM_EXPR_INTEGER;
        if (a[d].value != b[d].value && !constants) return false;
    }
    tvm_shared_open_layout(e, &tile_a, a->value, a + 1, &x->tile_b);
    tvm_shared_open_layout(e, &tile_b, b->value, b + 1, &y->tile_b);
    return tile_b.constant - tile_a.constant == number * first->columns * WGMMA_EIGHT_ROWS;
}

/* How many products from `first` on, which is taken, one wgmma can do. */
static uint32_t count_joined(emitter *e, const struct wgmma_state *s, const product *first) {
    const product *end = s->products + s->count, *p = first + 1;
    uint32_t a = operands_of(e, first)->a, count = 1;
    for (; p < end && (count + 1) * first->columns <= WGMMA_COLUMNS; p++, count++)
        if (p->columns == 0 || p->mma != p[-1].mma + 1 || operands_of(e, p)->a != a ||
            !is_alike(e, p, first) || !is_independent(e, p, first, count) || !lies_below(e, p, first, count))
            break;
    return count;
}

bool tvm_wgmma_same_sums(const emitter *e, const product *p, const product *other) {
    bool same = p->joined == other->joined && is_alike(e, p, other);
    for (uint32_t j = 0; j < p->joined && same; j++) same = slot_sums(e, p + j) == slot_sums(e, other + j);
    return same;
}

tvm_status tvm_wgmma_find(emitter *e) {
    struct wgmma_state *s = calloc(1, sizeof *s);
    e->wgmma = s;
    if (!s) return tvm_diag_no_memory(e->diags);
    if (e->target.arch != 90 || e->target.feature != 'a') return TVM_OK;
    size_t insns = e->kernel->insn_count + (size_t)1;
    s->products = calloc(insns, sizeof *s->products);
    s->role = calloc(insns, sizeof *s->role);
    s->product = calloc(insns, sizeof *s->product);
    bool fits = s->products && s->role && s->product;
    return fits ? find_all(e, s) : tvm_diag_no_memory(e->diags);
}

void tvm_wgmma_free(emitter *e) {
    if (!e->wgmma) return;
    for (uint32_t i = 0; i < e->wgmma->count; i++) products_free(&e->wgmma->products[i].all);
    free(e->wgmma->products);
    free(e->wgmma->role);
    free(e->wgmma->product);
    free(e->wgmma->heads);
    free(e->wgmma);
    e->wgmma = NULL;
}

bool tvm_wgmma_takes(const emitter *e, const tvm_insn *insn) {
    return e->wgmma->used && e->wgmma->role[insn_number(e, insn)] != WGMMA_NONE;
}

uint32_t tvm_wgmma_columns(const emitter *e, const tvm_insn *mma) {
    const struct wgmma_state *s = e->wgmma;
    if (!tvm_wgmma_takes(e, mma)) return 0;
    uint32_t i = s->product[insn_number(e, mma)] - 1;
    while (s->role[s->products[i].mma] == WGMMA_JOINS) i--;
    return s->products[i].columns * s->products[i].joined;
}

/* ---- the pattern ---- */

static product *product_of(const emitter *e, const group_match *g) {
    return &e->wgmma->products[e->wgmma->product[g->first] - 1];
}

bool tvm_wgmma_matches(emitter *e, group_match *g) {
    return e->wgmma->product && e->wgmma->product[g->first] != 0;
}

const char *tvm_wgmma_refuse(emitter *e, const group_match *g) {
    return product_of(e, g)->refused;
}

const char *tvm_wgmma_does_not_pay(emitter *e, const group_match *g) {
    product *first = product_of(e, g);
    bool pays = count_joined(e, e->wgmma, first) * first->columns >= MIN_COLUMNS;
    return pays ? NULL : "8 columns are as fast by mma.sync";
}

uint32_t tvm_wgmma_take(emitter *e, const group_match *g) {
    product *first = product_of(e, g);
    first->joined = count_joined(e, e->wgmma, first);
    e->wgmma->used = true;
    for (uint32_t j = 0; j < first->joined; j++)
        e->wgmma->role[first[j].mma] = j == 0 ? WGMMA_FIRST : WGMMA_JOINS;
    return first->joined - 1;
}
