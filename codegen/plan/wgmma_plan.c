/* Finds the products that wgmma can do: see wgmma.h. */
#include "wgmma_impl.h"

#include <stdlib.h>

/* With fewer columns of 8, mma.sync is as fast. */
enum { MIN_COLUMNS = 2 };

/* ---- the products ---- */

static void products_free(products *all) {
    free(all->tile_a);
    free(all->tile_c);
    free(all->at_a);
    free(all->at_b);
    *all = (products){0};
}

static bool products_make(const tvm_mma_plan *plan, products *all) {
    size_t steps = plan->tiles_k, tiles = plan->tiles_c;
    all->steps = plan->tiles_k;
    all->tile_a = calloc(tiles * steps + 1, sizeof *all->tile_a);
    all->tile_c = calloc(tiles + 1, sizeof *all->tile_c);
    all->at_a = calloc(tiles * steps + 1, sizeof *all->at_a);
    all->at_b = calloc(steps + 1, sizeof *all->at_b);
    return all->tile_a && all->tile_c && all->at_a && all->at_b;
}

static uint32_t fragment_of(const products *all, uint32_t tile_a) {
    uint32_t f = 0;
    while (f < all->fragments && all->tile_a[f * all->steps] != tile_a) f++;
    return f;
}

/* The fragments of a. */
static void find_fragments(const tvm_mma_plan *plan, products *all) {
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a);
        if (f == all->fragments) all->fragments++;
        for (uint32_t step = 0; step < plan->tiles_k; step++) {
            tvm_mma_tile(plan, c, step, &tile_a, &tile_b);
            all->tile_a[f * all->steps + step] = tile_a;
        }
    }
    all->columns = plan->tiles_c / all->fragments;
}

/* Where the columns begin, ascending. `lies`: of each fragment of b. */
static const char *find_columns(const tvm_mma_plan *plan, const uint32_t *lies, products *all,
                                uint32_t at[WGMMA_COLUMNS]) {
    uint32_t count = 0;
    if (all->columns > WGMMA_COLUMNS) return "more than 256 columns: use more warps, or give c fewer";
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b, i = count;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        if (tile_a != all->tile_a[0]) continue;
        if (count == all->columns)
            return "a warp has other columns for other rows: leave the layout of c out";
        for (; i > 0 && at[i - 1] > lies[tile_b]; i--) at[i] = at[i - 1];
        at[i] = lies[tile_b];
        count++;
    }
    return tvm_wgmma_find_eights(&all->b, at, count);
}

/* tile_c, in that order, and at_b. */
static const char *order_columns(const tvm_mma_plan *plan, const uint32_t *lies, const uint32_t *at,
                                 products *all) {
    static const char *const why = "b's columns do not lie alike in all steps of k: leave its layout out";
    for (uint32_t i = 0; i < plan->tiles_c; i++) all->tile_c[i] = TVM_NONE;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        uint32_t tile_a, tile_b, column = 0;
        tvm_mma_tile(plan, c, 0, &tile_a, &tile_b);
        uint32_t f = fragment_of(all, tile_a);
        while (column < all->columns && at[column] != lies[tile_b]) column++;
        uint32_t *entry = &all->tile_c[f * all->columns + column];
        if (column == all->columns || *entry != TVM_NONE) return why;
        *entry = c;
        for (uint32_t step = 0; step < plan->tiles_k; step++) {
            tvm_mma_tile(plan, c, step, &tile_a, &tile_b);
            uint32_t first = lies[tile_b] - (at[column] - at[0]);
            if (c == 0) all->at_b[step] = first;
            if (first != all->at_b[step] || all->tile_a[f * all->steps + step] != tile_a) return why;
        }
    }
    return NULL;
}

/* NULL, or why wgmma cannot read b where it lies. What it needs to know of the place holds wherever the
 * instruction is emitted: there more of an index may be known, never less. */
static const char *find_b(kernel_state *k, const mma_operands *o, uint32_t *lies, products *all) {
    uint32_t at[WGMMA_COLUMNS];
    wgmma_operand b;
    if (o->mma.types->is_scalar || o->mma.types->sums == TVM_MMA_F64)
        return "wgmma has no such type: it has f16, bf16, tf32 (the word tf32 for f32), f8 and i8";
    if (tvm_mma_is_mixed(&o->mma))
        return "wgmma has neither floats of 4 and 6 bits, nor f16 sums of f8, nor scales";
    if (!tvm_wgmma_open(k, o, false, &b))
        return "a tile of b does not lie in whole modes of its tensor: leave its layout out";
    const char *why = tvm_wgmma_find_matrix(&b, &all->b);
    uint32_t tiles = tvm_layout_locals(b.layout) / tvm_layout_locals(&b.atom);
    for (uint32_t t = 0; t < tiles && !why; t++) lies[t] = tvm_wgmma_offset(&b, t);
    if (!why) find_fragments(&o->plan, all);
    if (!why) why = find_columns(&o->plan, lies, all, at);
    if (!why) why = order_columns(&o->plan, lies, at, all);
    for (uint32_t step = 0; step < all->steps && !why; step++)
        why = tvm_wgmma_check_beginning(&b, &all->b, all->at_b[step]);
    return why;
}

/* The same for a, which else goes to registers. */
static const char *find_a(kernel_state *k, const mma_operands *o, products *all) {
    wgmma_operand a;
    if (!tvm_wgmma_open(k, o, true, &a))
        return "a tile of a does not lie in whole modes of its tensor: leave its layout out";
    const char *why = tvm_wgmma_find_matrix(&a, &all->a);
    if (!why) why = tvm_wgmma_find_rows(&a, &all->a);
    for (uint32_t i = 0; i < all->fragments * all->steps && !why; i++) {
        all->at_a[i] = tvm_wgmma_offset(&a, all->tile_a[i]);
        why = tvm_wgmma_check_beginning(&a, &all->a, all->at_a[i]);
    }
    return why;
}

/* Is a computed right before the mma? Then its fragments are computed step by step beside the products. */
static bool is_computed_beside(const kernel_state *k, const product *p) {
    const tvm_insn *insn = &k->kernel->insns[p->mma];
    uint32_t a = operands_of(k, p)->a;
    if (p->all.a_is_shared || p->all.steps == 1) return false;
    while (insn-- > k->kernel->insns) {
        const tvm_op_info *info = tvm_op(insn->op);
        if (insn->result == a) return info->class == TVM_CLASS_COMPUTE && info->effects == 0;
        if (insn->op == TVM_OP_MMA || info->class == TVM_CLASS_LOOP || info->class == TVM_CLASS_END)
            return false;
    }
    return false;
}

/* "" for want of memory. */
static const char *find_products(kernel_state *k, const mma_operands *o, product *p) {
    uint32_t *lies = calloc(tvm_layout_locals(&o->tile_b) + (size_t)1, sizeof *lies);
    const char *why = lies && products_make(&o->plan, &p->all) ? find_b(k, o, lies, &p->all) : "";
    free(lies);
    if (why) return why;
    p->columns = p->all.columns;
    if (o->mma.a.is_shared) p->why_a = find_a(k, o, &p->all);
    p->all.a_is_shared = o->mma.a.is_shared && !p->why_a;
    return NULL;
}

/* ---- the plan ---- */

/* Of a thread's sums and two operands of a: with more than these there are none left for what computes one.
 */
enum { MOST_REGISTERS = 112 };

static bool is_next(const kernel_state *k, const product *p, const product *next) {
    return next->mma == p->mma + 1 && operands_of(k, next)->a == operands_of(k, p)->a;
}

/* The sums that a thread has of the product, and of those beside it that have the same a. */
static uint32_t count_sums(const kernel_state *k, const struct wgmma_plan *s, const product *p) {
    const product *first = p, *last = p;
    uint32_t count = 0;
    while (first > s->products && is_next(k, first - 1, first)) first--;
    while (last + 1 < s->products + s->count && is_next(k, last, last + 1)) last++;
    for (; first <= last; first++) count += tvm_layout_locals(tvm_slot_layout(k, slot_sums(k, first)));
    return count;
}

/* Does another product add to the same sums, with another a from registers? Then the program computes one
 * beside the other. */
static bool takes_turns(const kernel_state *k, const struct wgmma_plan *s, const product *p) {
    uint32_t a = operands_of(k, p)->a;
    uint32_t bits = tvm_layout_locals(tvm_slot_layout(k, a)) * k->kernel->slots[a].dtype.bits;
    if (count_sums(k, s, p) + 2 * bits / 32 > MOST_REGISTERS) return false;
    for (const product *q = s->products; q < s->products + s->count; q++)
        if (!q->refused && !q->all.a_is_shared && slot_sums(k, q) == slot_sums(k, p) &&
            operands_of(k, q)->a != operands_of(k, p)->a)
            return true;
    return false;
}

static void find_pace(const kernel_state *k, struct wgmma_plan *s) {
    for (product *p = s->products; p < s->products + s->count; p++)
        p->is_paced = !p->refused && is_computed_beside(k, p) && !takes_turns(k, s, p);
}

static tvm_status find_all(kernel_state *k, struct wgmma_plan *s) {
    tvm_team_walk walk = {.depth = 0};
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        tvm_team team = tvm_team_next(&walk, k->kernel, &k->kernel->insns[i]);
        if (k->kernel->insns[i].op != TVM_OP_MMA) continue;
        const mma_operands *o = tvm_mma_operands_of(k, &k->kernel->insns[i]);
        product *p = &s->products[s->count];
        p->mma = i;
        const char *why = !o->mma.b.is_shared ? "b is in registers: write a tile of a shared tensor as b"
                          : team.first % 4 == 0
                              ? find_products(k, o, p)
                              : "the first warp of the role is no multiple of 4: begin it at one";
        if (why) products_free(&p->all);
        if (why && !*why) return tvm_diag_no_memory(k->diags);
        p->refused = why;
        s->product[i] = ++s->count;
    }
    find_pace(k, s);
    return TVM_OK;
}

/* ---- products that one wgmma does ---- */

/* Equal expressions are the same ones, and nothing stands between products that are joined. */
static bool same_a(const kernel_state *k, const product *p, const product *other) {
    const tvm_mma_source *x = &operands_of(k, p)->mma.a, *y = &operands_of(k, other)->mma.a;
    if (x->slot != y->slot || x->tile_rank != y->tile_rank || x->is_transposed != y->is_transposed)
        return false;
    unsigned rank = x->is_shared ? tvm_slot_shared_layout(k, x->slot)->rank : 0;
    for (unsigned d = 1; d <= rank; d++)
        if (x->tensor[d].value != y->tensor[d].value) return false;
    return true;
}

/* Do the fragments of the products lie alike? */
static bool is_alike(const kernel_state *k, const product *p, const product *other) {
    const mma_operands *x = operands_of(k, p), *y = operands_of(k, other);
    return tvm_layout_equal(tvm_slot_layout(k, x->a), tvm_slot_layout(k, y->a)) &&
           tvm_layout_equal(tvm_slot_layout(k, slot_sums(k, p)), tvm_slot_layout(k, slot_sums(k, other))) &&
           tvm_layout_equal(&x->tile_b, &y->tile_b) && x->mma.b.slot == y->mma.b.slot &&
           p->all.a_is_shared == other->all.a_is_shared;
}

/* Does `p` neither read nor assign the sums of the `count` products from `first` on? */
static bool is_independent(const kernel_state *k, const product *p, const product *first, uint32_t count) {
    for (const product *of = first; of < first + count; of++)
        if (slot_sums(k, of) == slot_sums(k, p) || slot_sums(k, of) == operands_of(k, p)->mma.c) return false;
    return true;
}

/* Is the b of `p` the number-th below that of `first`? */
static bool lies_below(kernel_state *k, const product *p, const product *first, uint32_t number) {
    const tvm_operand *a = operands_of(k, first)->mma.b.tensor, *b = operands_of(k, p)->mma.b.tensor;
    wgmma_operand x, y;
    if (first->all.b.is_transposed) return false;
    for (unsigned d = 1; d <= tvm_slot_shared_layout(k, a->value)->rank; d++) {
        const tvm_expr *exprs = k->kernel->exprs;
        bool constants = exprs[a[d].value].op == TVM_EXPR_INTEGER && exprs[b[d].value].op == TVM_EXPR_INTEGER;
        if (a[d].value != b[d].value && !constants) return false;
    }
    tvm_wgmma_open(k, operands_of(k, first), false, &x);
    tvm_wgmma_open(k, operands_of(k, p), false, &y);
    return (y.tile.constant - x.tile.constant) * x.tile.bytes ==
           number * first->columns * first->all.b.stride;
}

/* How many products from `first` on, which is taken, one wgmma can do. */
static uint32_t count_joined(kernel_state *k, const struct wgmma_plan *s, const product *first) {
    const product *end = s->products + s->count, *p = first + 1;
    uint32_t count = 1;
    for (; p < end && (count + 1) * first->columns <= WGMMA_COLUMNS; p++, count++)
        if (p->columns == 0 || p->mma != p[-1].mma + 1 || !same_a(k, p, first) || !is_alike(k, p, first) ||
            !is_independent(k, p, first, count) || !lies_below(k, p, first, count))
            break;
    return count;
}

bool tvm_wgmma_same_sums(const kernel_state *k, const product *p, const product *other) {
    bool same = p->joined == other->joined && is_alike(k, p, other);
    for (uint32_t j = 0; j < p->joined && same; j++) same = slot_sums(k, p + j) == slot_sums(k, other + j);
    return same;
}

tvm_status tvm_wgmma_find(kernel_state *k) {
    struct wgmma_plan *s = calloc(1, sizeof *s);
    k->wgmma = s;
    if (!s) return tvm_diag_no_memory(k->diags);
    if (!tvm_target_has(k->target, TVM_HAS_WGMMA)) return TVM_OK;
    size_t insns = k->kernel->insn_count + (size_t)1;
    s->products = calloc(insns, sizeof *s->products);
    s->role = calloc(insns, sizeof *s->role);
    s->product = calloc(insns, sizeof *s->product);
    bool fits = s->products && s->role && s->product;
    return fits ? find_all(k, s) : tvm_diag_no_memory(k->diags);
}

void tvm_wgmma_free(kernel_state *k) {
    if (!k->wgmma) return;
    for (uint32_t i = 0; i < k->wgmma->count; i++) products_free(&k->wgmma->products[i].all);
    tvm_wgmma_free_makers(k);
    free(k->wgmma->products);
    free(k->wgmma->role);
    free(k->wgmma->product);
    free(k->wgmma->heads);
    free(k->wgmma);
    k->wgmma = NULL;
}

bool tvm_wgmma_takes(const kernel_state *k, const tvm_insn *insn) {
    return k->wgmma->used && k->wgmma->role[insn_number(k, insn)] != WGMMA_NONE;
}

bool tvm_wgmma_has_sums(const kernel_state *k, uint32_t slot) {
    const struct wgmma_plan *s = k->wgmma;
    for (uint32_t i = 0; s->used && i < s->count; i++)
        if (s->role[s->products[i].mma] != WGMMA_NONE && slot_sums(k, &s->products[i]) == slot) return true;
    return false;
}

uint32_t tvm_wgmma_columns(const kernel_state *k, const tvm_insn *mma) {
    const struct wgmma_plan *s = k->wgmma;
    if (!tvm_wgmma_takes(k, mma)) return 0;
    uint32_t i = s->product[insn_number(k, mma)] - 1;
    while (s->role[s->products[i].mma] == WGMMA_JOINS) i--;
    return s->products[i].columns * s->products[i].joined;
}

/* ---- the pattern ---- */

static product *product_of(const kernel_state *k, const group_match *g) {
    return &k->wgmma->products[k->wgmma->product[g->first] - 1];
}

bool tvm_wgmma_matches(kernel_state *k, group_match *g) {
    return k->wgmma->product && k->wgmma->product[g->first] != 0;
}

const char *tvm_wgmma_refuse(kernel_state *k, const group_match *g) {
    return product_of(k, g)->refused;
}

const char *tvm_wgmma_does_not_pay(kernel_state *k, const group_match *g) {
    product *first = product_of(k, g);
    bool pays = count_joined(k, k->wgmma, first) * first->columns >= MIN_COLUMNS;
    return pays ? NULL : "8 columns are as fast by mma.sync: give c 16";
}

uint32_t tvm_wgmma_take(kernel_state *k, const group_match *g) {
    product *first = product_of(k, g);
    first->joined = count_joined(k, k->wgmma, first);
    k->wgmma->used = true;
    for (uint32_t j = 0; j < first->joined; j++)
        k->wgmma->role[first[j].mma] = j == 0 ? WGMMA_FIRST : WGMMA_JOINS;
    return first->joined - 1;
}
