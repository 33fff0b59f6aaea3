/* Loads, stores and copies of global and shared memory. No two threads touch an element without a sync
 * between them, but to read it, or by atomic operations of any order. */
#include "state.h"

#include <stdio.h>
#include <string.h>

/* ---- global tensors ---- */

static uint32_t constant(gen *g, int64_t value) {
    return gen_integer(g, TVM_I(32), value);
}

/* Elements of a row, rounded up to whole bytes. */
static uint32_t whole_row(tvm_dtype type, uint32_t extent) {
    return type.bits % 8 == 0 ? extent : (extent + 7) / 8 * 8;
}

/* The step of the last index at which an element begins a byte. */
static uint32_t row_step(tvm_dtype type) {
    return type.bits % 8 == 0 ? 1 : 8;
}

/* Extents of a tensor that has room for the tile, more than that, or less; n is one of them now and then. */
static void extents_about(gen *g, tvm_dtype type, unsigned rank, const uint32_t *tile, uint32_t *extents) {
    for (unsigned d = 0; d < rank; d++) {
        uint32_t extent = tile[d];
        if (gen_one_in(g, 4)) extent += gen_below(g, 9);
        if (gen_one_in(g, 6) && extent > 2) extent -= 1 + gen_below(g, extent / 2);
        if (d + 1 == rank) extent = whole_row(type, extent);
        extents[d] = constant(g, extent);
        if (d + 1 < rank || type.bits % 8 == 0) {
            if (gen_one_in(g, 8)) extents[d] = gen_slot_expr(g, g->scalar_i32);
        } else if (gen_one_in(g, 8)) {
            extents[d] = gen_apply(g, TVM_EXPR_MUL, gen_slot_expr(g, g->scalar_i32), constant(g, 8));
        }
    }
}

static const uint32_t *shape_of(const gen *g, uint32_t slot) {
    return gen_layout_of(g, slot)->shape;
}

/* A bool tensor whose layout the tile may take, or TVM_NONE. */
static uint32_t maybe_mask(gen *g, tvm_dtype type, uint32_t like) {
    return type.bits % 8 == 0 && gen_one_in(g, 5) ? gen_register_of(g, TVM_BOOL, like) : TVM_NONE;
}

static void put_mask(gen_insn *insn, uint32_t mask) {
    if (mask == TVM_NONE)
        gen_put_none(insn);
    else
        gen_put_slot(insn, mask);
}

/* What elements that are not read become: a constant of some type, or what the kernel computes. */
static void put_fill(gen *g, gen_insn *insn, tvm_dtype type, bool may) {
    if (!may || type.bits % 8 != 0 || !gen_one_in(g, 3))
        gen_put_none(insn);
    else
        gen_put_expr(insn, gen_one_in(g, 3) ? constant(g, gen_below(g, 4)) : gen_scalar(g, 2).expr);
}

void gen_put_evict(gen *g, gen_insn *insn) {
    if (gen_one_in(g, 4))
        gen_put_const(insn, gen_below(g, TVM_EVICT_COUNT));
    else
        gen_put_none(insn);
}

/* A parameter of those extents whose rows, or columns, lie farther apart than they must. */
static uint32_t strided_param(gen *g, const char *kind, tvm_dtype type, unsigned rank,
                              const uint32_t *extents) {
    uint32_t slot = gen_param(g, kind, type, rank, extents), step = constant(g, 1);
    bool columns = gen_one_in(g, 2);
    g->kernel->slots[slot].form = TVM_FORM_STRIDED;
    for (unsigned i = 0; i < rank; i++) {
        unsigned d = columns ? i : rank - 1 - i;
        g->kernel->slots[slot].stride[d] = step;
        step = gen_apply(g, TVM_EXPR_MUL, step, extents[d]);
        if (gen_one_in(g, 2)) step = gen_apply(g, TVM_EXPR_ADD, step, constant(g, 1 + gen_below(g, 8)));
    }
    return slot;
}

/* A parameter of those extents, or such a view of one: a part from an index on, or with its dimensions
 * exchanged. */
static uint32_t param_or_view(gen *g, const char *kind, tvm_dtype type, unsigned rank,
                              const uint32_t *extents) {
    uint32_t whole[TVM_MAX_RANK], order[TVM_MAX_RANK], first = gen_below(g, 4);
    if (type.bits % 8 != 0 || !gen_one_in(g, 4)) return gen_param(g, kind, type, rank, extents);
    if (gen_one_in(g, 4)) return strided_param(g, kind, type, rank, extents);
    bool exchanged = gen_one_in(g, 2);
    gen_insn insn = gen_begin(TVM_OP_VIEW_GLOBAL);
    insn.type = (tvm_result_type){.dtype = type, .rank = rank, .form = TVM_FORM_PART};
    memcpy(insn.type.shape, extents, rank * sizeof *extents);
    for (unsigned d = 0; d < rank; d++) {
        order[d] = exchanged ? rank - 1 - d : d;
        whole[order[d]] = gen_apply(g, TVM_EXPR_ADD, extents[d], constant(g, first + 1));
    }
    gen_put_slot(&insn, gen_param(g, kind, type, rank, whole));
    for (unsigned d = 0; d < rank; d++) gen_put_expr(&insn, gen_index(g, first, 1));
    if (exchanged)
        gen_put_list(&insn, rank, order);
    else
        gen_put_none(&insn);
    return gen_must(g, &insn);
}

uint32_t gen_load_input(gen *g, const char *kind, tvm_dtype type, const tvm_layout *layout) {
    uint32_t extents[TVM_MAX_RANK + 1], mask = maybe_mask(g, type, TVM_NONE);
    bool stacked = layout->rank < 4 && gen_one_in(g, 3), is_small = kind[0] == 's';
    gen_insn insn = gen_begin(TVM_OP_LOAD_GLOBAL);
    insn.type = (tvm_result_type){.has_layout = true, .layout = *layout};
    if (mask != TVM_NONE) insn.type.layout = *gen_layout_of(g, mask);
    if (is_small && mask != TVM_NONE) mask = TVM_NONE, insn.type.layout = *layout;
    unsigned rank = insn.type.layout.rank;
    uint32_t shape[TVM_MAX_RANK];
    memcpy(shape, insn.type.layout.shape, sizeof shape);
    extents_about(g, type, rank, shape, extents + stacked);
    if (stacked) extents[0] = constant(g, 1 + gen_below(g, 4));
    gen_put_slot(&insn, param_or_view(g, kind, type, rank + stacked, extents));
    if (stacked) gen_put_expr(&insn, gen_index(g, 3, 1));
    for (unsigned d = 0; d < rank; d++) {
        uint32_t step = d + 1 == rank ? row_step(type) : 1;
        bool beside = gen_one_in(g, 8) && step == 1;
        gen_put_expr(&insn, gen_one_in(g, 2) ? constant(g, 0)
                            : beside         ? gen_scalar(g, 2).expr
                                             : gen_index(g, 2 * step, step));
    }
    gen_put_evict(g, &insn);
    put_mask(&insn, mask);
    put_fill(g, &insn, type, kind[0] == 'r'); /* of the other kinds what is read has a range */
    uint32_t slot = gen_must(g, &insn);
    g->vars[slot] = (gen_var){.alive = true, .exact_bits = true, .whole = is_small, .high = is_small ? 4 : 0};
    return slot;
}

/* A layout in which each byte has one thread. */
static uint32_t as_whole_bytes(gen *g, uint32_t slot) {
    gen_insn insn = gen_begin(TVM_OP_RELAYOUT);
    tvm_layout source = *gen_layout_of(g, slot);
    tvm_why why;
    insn.type.has_layout =
        tvm_layout_auto(source.rank, source.shape, tvm_team_threads(g->team),
                        g->kernel->slots[slot].dtype.bits, &insn.type.layout, &why) == TVM_OK;
    uint32_t result = TVM_NONE;
    gen_put_slot(&insn, slot);
    return insn.type.has_layout && gen_take(g, &insn, &result) ? result : TVM_NONE;
}

/* A packed tensor as bytes, which are in the order of its layout. */
static uint32_t unpacked(gen *g, uint32_t slot) {
    if (!g->options->layouts_matter) return TVM_NONE;
    uint32_t bits = g->kernel->slots[slot].dtype.bits * tvm_layout_locals(gen_layout_of(g, slot));
    uint32_t shape[2] = {tvm_team_threads(g->team), bits / 8}, result = TVM_NONE;
    gen_insn insn = gen_begin(TVM_OP_VIEW);
    insn.type.dtype = TVM_U(8);
    insn.type.has_layout = bits % 8 == 0 && gen_spread(g, 2, shape, false, &insn.type.layout);
    gen_put_slot(&insn, slot);
    return insn.type.has_layout && gen_take(g, &insn, &result) ? result : TVM_NONE;
}

/* The block's, or its team's. */
static uint32_t own_place(gen *g) {
    if (!g->teams) return gen_block(g);
    uint32_t first = gen_apply(g, TVM_EXPR_MUL, gen_block(g), constant(g, g->teams));
    return gen_apply(g, TVM_EXPR_ADD, first, gen_slot_expr(g, g->team_index));
}

static bool store_tile(gen *g, uint32_t slot, uint32_t target, unsigned rank, const uint32_t *shape) {
    gen_insn insn = gen_begin(TVM_OP_STORE_GLOBAL);
    tvm_dtype type = g->kernel->slots[slot].dtype;
    gen_put_slot(&insn, target);
    gen_put_expr(&insn, own_place(g));
    for (unsigned d = 0; d < rank; d++) {
        uint32_t step = d + 1 == rank ? row_step(type) : 1;
        bool moves = g->depth == 0 && gen_one_in(g, 4) && shape[d] > 1;
        gen_put_expr(&insn, moves ? gen_index(g, step, step) : constant(g, 0));
    }
    gen_put_slot(&insn, slot);
    uint32_t mask = maybe_mask(g, type, slot);
    gen_insn masked = insn;
    put_mask(&masked, mask);
    if (mask != TVM_NONE && gen_take(g, &masked, NULL)) return true;
    put_mask(&insn, TVM_NONE);
    return gen_take(g, &insn, NULL);
}

void gen_store_output(gen *g, uint32_t slot) {
    char kind[24] = "out";
    uint32_t extents[TVM_MAX_RANK + 1];
    unsigned units = g->vars[slot].units;
    if (g->params >= GEN_PARAMS || g->failed) return;
    if (g->kernel->slots[slot].packing != 0) slot = unpacked(g, slot);
    if (slot == TVM_NONE) return;
    tvm_dtype type = g->kernel->slots[slot].dtype;
    uint32_t shape[TVM_MAX_RANK];
    unsigned rank = gen_layout_of(g, slot)->rank;
    if (rank == TVM_MAX_RANK) return;
    memcpy(shape, shape_of(g, slot), sizeof shape);
    if (units) snprintf(kind, sizeof kind, "near%u_", units);
    extents_about(g, type, rank, shape, extents + 1);
    extents[0] = constant(g, g->blocks * (g->teams ? g->teams : 1));
    uint32_t target = gen_param(g, kind, type, rank + 1, extents);
    if (!store_tile(g, slot, target, rank, shape)) {
        uint32_t other = as_whole_bytes(g, slot);
        if (other != TVM_NONE) store_tile(g, other, target, rank, shape);
    }
    if (g->depth > 0) gen_sync(g); /* all threads that hold an element store it, and so does the next turn */
}

/* ---- shared tensors ---- */

void gen_sync(gen *g) {
    gen_insn insn = gen_begin(TVM_OP_SYNC);
    gen_must(g, &insn);
    for (unsigned i = 0; i < g->shared_count; i++) g->shared[i].read = g->shared[i].written = false;
}

static void to_read(gen *g, gen_shared *s) {
    if (s->written) gen_sync(g);
    s->read = true;
}

static void to_write(gen *g, gen_shared *s) {
    if (s->written || s->read) gen_sync(g);
    s->written = true;
}

static bool shared_layout(gen *g, unsigned rank, const uint32_t *shape, unsigned bits,
                          tvm_shared_layout *out) {
    tvm_why why;
    unsigned way = gen_below(g, 3);
    if (way == 0) return tvm_shared_layout_auto(rank, shape, bits, out, &why) == TVM_OK;
    if (way == 1) return tvm_shared_layout_row_major(rank, shape, out, &why) == TVM_OK;
    uint32_t stride[TVM_MAX_RANK], step = 1;
    unsigned order = gen_below(g, 2), swizzle = gen_below(g, 4);
    for (unsigned i = rank; i-- > 0;) { /* row-major, or the last two dimensions exchanged */
        unsigned d = order && rank > 1 && i + 2 >= rank ? 2 * rank - 3 - i : i;
        stride[d] = step;
        step *= shape[d];
    }
    return tvm_shared_layout_make(rank, shape, rank, shape, stride, gen_below(g, 4), swizzle,
                                  swizzle + gen_below(g, 2), out, &why) == TVM_OK;
}

/* Every element has a value before anything reads it. */
static void fill_shared(gen *g, uint32_t slot, unsigned rank, const uint32_t *shape) {
    tvm_layout layout;
    tvm_dtype type = g->kernel->slots[slot].dtype;
    if (!gen_layout(g, rank - 1, shape + 1, &layout)) {
        g->failed = true;
        return;
    }
    uint32_t tile = gen_one_in(g, 2) ? gen_load_input(g, "raw", type, &layout) : gen_fresh(g, type, &layout);
    unsigned same = memcmp(gen_layout_of(g, tile)->shape, layout.shape, sizeof layout.shape) == 0;
    if (!same) tile = gen_fresh(g, type, &layout);
    if (type.bits % 8 != 0) tile = as_whole_bytes(g, tile);
    for (uint32_t i = 0; i < shape[0] && tile != TVM_NONE; i++) {
        gen_insn insn = gen_begin(TVM_OP_STORE_SHARED);
        gen_put_slot(&insn, slot);
        gen_put_expr(&insn, constant(g, i));
        for (unsigned d = 1; d < rank; d++) gen_put_expr(&insn, constant(g, 0));
        gen_put_slot(&insn, tile);
        gen_put_none(&insn);
        if (!gen_take(g, &insn, NULL)) tile = TVM_NONE;
    }
    if (tile == TVM_NONE) g->failed = true;
}

void gen_alloc_shared(gen *g) {
    uint32_t shape[TVM_MAX_RANK + 1];
    unsigned rank = 1 + gen_shape(g, shape + 1);
    gen_insn insn = gen_begin(TVM_OP_ALLOC_SHARED);
    insn.type.dtype = gen_dtype(g);
    shape[0] = 1 + gen_below(g, 3);
    if (g->shared_count == sizeof g->shared / sizeof *g->shared) return;
    unsigned bits = insn.type.dtype.bits;
    shape[rank - 1] = whole_row(insn.type.dtype, shape[rank - 1]);
    insn.type.has_layout = shared_layout(g, rank, shape, bits, &insn.type.shared_layout);
    if (!insn.type.has_layout || tvm_shared_layout_packs(&insn.type.shared_layout, bits, NULL) != TVM_OK)
        return;
    uint32_t slot = gen_must(g, &insn);
    g->shared[g->shared_count] = (gen_shared){.slot = slot, .written = true};
    fill_shared(g, slot, rank, shape);
    if (!g->failed) g->shared_count++;
}

static gen_shared *any_shared(gen *g) {
    if (g->shared_count == 0) return NULL;
    gen_shared *s = &g->shared[gen_below(g, g->shared_count)];
    return s->freed ? NULL : s;
}

/* A tile of the shared tensor: its last dimensions, or half of some; and an index for each dimension. */
static unsigned shared_tile(gen *g, uint32_t slot, gen_insn *insn, uint32_t tile[TVM_MAX_RANK]) {
    const tvm_shared_layout *layout = &g->program->shared_layouts[g->kernel->slots[slot].layout];
    unsigned rank = layout->rank, dims = rank - (rank > 1 && gen_one_in(g, 4) ? 0 : 1);
    uint32_t shape[TVM_MAX_RANK];
    memcpy(shape, layout->shape, sizeof shape);
    gen_put_slot(insn, slot);
    for (unsigned d = 0; d < rank; d++) {
        uint32_t extent = d < rank - dims ? 1 : shape[d];
        uint32_t step = d + 1 == rank ? row_step(g->kernel->slots[slot].dtype) : 1;
        if (d >= rank - dims && extent % (2 * step) == 0 && gen_one_in(g, 5)) extent /= 2;
        if (d >= rank - dims) tile[d - (rank - dims)] = extent;
        gen_put_expr(insn, gen_index(g, shape[d] - extent, gen_one_in(g, 2) ? extent : step));
    }
    return dims;
}

/* The tensor, or where its layout has one a view of it: half of a dimension, or its dimensions exchanged, or
 * one of all. */
static uint32_t tensor_or_view(gen *g, uint32_t slot) {
    const tvm_shared_layout layout = g->program->shared_layouts[g->kernel->slots[slot].layout];
    uint32_t result = TVM_NONE, extents[TVM_MAX_RANK], order[TVM_MAX_RANK], all = 1;
    unsigned way = gen_below(g, 8);
    if (way > 2) return slot;
    gen_insn insn = gen_begin(TVM_OP_VIEW_SHARED);
    gen_put_slot(&insn, slot);
    for (unsigned d = 0; d < layout.rank; d++) {
        bool half = way == 0 && layout.shape[d] % 2 == 0 && gen_one_in(g, 2);
        order[d] = layout.rank - 1 - d;
        extents[d] = way == 1 ? layout.shape[order[d]] : layout.shape[d] / (half ? 2 : 1);
        all *= layout.shape[d];
        gen_put_expr(&insn, constant(g, half && gen_one_in(g, 2) ? extents[d] : 0));
    }
    gen_put_list(&insn, layout.rank, extents);
    if (way == 1)
        gen_put_list(&insn, layout.rank, order);
    else
        gen_put_none(&insn);
    if (way == 2)
        gen_put_list(&insn, 1, &all);
    else
        gen_put_none(&insn);
    return gen_take(g, &insn, &result) ? result : slot;
}

static void load_shared(gen *g) {
    uint32_t tile[TVM_MAX_RANK];
    gen_shared *s = any_shared(g);
    gen_insn insn = gen_begin(TVM_OP_LOAD_SHARED);
    if (!s) return;
    unsigned rank = shared_tile(g, tensor_or_view(g, s->slot), &insn, tile);
    insn.type.has_layout = gen_layout(g, rank, tile, &insn.type.layout);
    if (!insn.type.has_layout) return;
    unsigned bits = g->kernel->slots[s->slot].dtype.bits;
    bool packed = bits % 8 != 0;
    tvm_why why;
    if (packed &&
        tvm_layout_auto(rank, tile, tvm_team_threads(g->team), bits, &insn.type.layout, &why) != TVM_OK)
        return;
    uint32_t mask = !packed && gen_one_in(g, 3) ? gen_register_of(g, TVM_BOOL, TVM_NONE) : TVM_NONE;
    to_read(g, s);
    if (mask != TVM_NONE && gen_layout_of(g, mask)->rank == rank &&
        memcmp(shape_of(g, mask), tile, rank * sizeof *tile) == 0)
        insn.type.layout = *gen_layout_of(g, mask);
    else
        mask = TVM_NONE;
    put_mask(&insn, mask);
    tvm_dtype type = g->kernel->slots[s->slot].dtype;
    put_fill(g, &insn, type, mask != TVM_NONE);
    uint32_t slot = TVM_NONE;
    if (!packed) slot = gen_must(g, &insn);
    if (packed && !gen_take(g, &insn, &slot)) return;
    g->vars[slot].exact_bits = type.kind != TVM_KIND_FLOAT || !tvm_float_has_nan(type);
}

static void store_shared(gen *g) {
    uint32_t tile[TVM_MAX_RANK];
    gen_shared *s = any_shared(g);
    gen_insn insn = gen_begin(TVM_OP_STORE_SHARED);
    if (!s) return;
    tvm_dtype type = g->kernel->slots[s->slot].dtype;
    unsigned rank = shared_tile(g, s->slot, &insn, tile);
    uint32_t source = TVM_NONE;
    for (unsigned tries = 0; tries < 4; tries++) {
        uint32_t slot = gen_register_of(g, type, TVM_NONE);
        if (slot == TVM_NONE) break;
        const tvm_layout *layout = gen_layout_of(g, slot);
        if (layout->rank == rank && memcmp(layout->shape, tile, rank * sizeof *tile) == 0) source = slot;
    }
    tvm_layout layout;
    if (source == TVM_NONE && gen_layout(g, rank, tile, &layout)) source = gen_fresh(g, type, &layout);
    if (source != TVM_NONE && type.bits % 8 != 0) source = as_whole_bytes(g, source);
    if (source == TVM_NONE) return;
    uint32_t mask = maybe_mask(g, type, source);
    gen_put_slot(&insn, source);
    gen_insn masked = insn;
    to_write(g, s);
    put_mask(&masked, mask);
    if (mask != TVM_NONE && gen_take(g, &masked, NULL)) return;
    put_mask(&insn, TVM_NONE);
    if (type.bits % 8 == 0)
        gen_must(g, &insn);
    else
        gen_take(g, &insn, NULL);
}

static void plain(gen *g, unsigned op) {
    gen_insn insn = gen_begin(op);
    gen_must(g, &insn);
}

static void wait_group(gen *g, unsigned pending) {
    gen_insn insn = gen_begin(TVM_OP_WAIT_GROUP);
    gen_put_const(&insn, pending);
    gen_must(g, &insn);
}

/* The parts that warps copy: some dimensions that they divide. */
static void put_warps(gen *g, gen_insn *insn, unsigned rank, const uint32_t *tile) {
    uint32_t parts[TVM_MAX_RANK], left = g->team.warps;
    for (unsigned d = 0; d < rank; d++) {
        parts[d] = left > 1 && tile[d] % left == 0 ? left : 1;
        left /= parts[d];
    }
    if (left == 1 && gen_one_in(g, 2))
        gen_put_list(insn, rank, parts);
    else
        gen_put_none(insn);
}

static void copy_async(gen *g) {
    uint32_t tile[TVM_MAX_RANK], extents[TVM_MAX_RANK];
    gen_shared *s = any_shared(g);
    gen_insn insn = gen_begin(TVM_OP_COPY_ASYNC);
    if (!s || g->params >= GEN_PARAMS) return;
    tvm_dtype type = g->kernel->slots[s->slot].dtype;
    unsigned rank = shared_tile(g, s->slot, &insn, tile);
    extents_about(g, type, rank, tile, extents);
    to_write(g, s);
    gen_put_slot(&insn, gen_param(g, "raw", type, rank, extents));
    for (unsigned d = 0; d < rank; d++) {
        uint32_t step = d + 1 == rank ? row_step(type) : 1;
        gen_put_expr(&insn, gen_one_in(g, 2) ? constant(g, 0)
                            : step > 1       ? gen_index(g, 2 * step, step)
                                             : gen_scalar(g, 1).expr);
    }
    gen_put_list(&insn, rank, tile);
    gen_put_evict(g, &insn);
    if (type.bits % 8 == 0)
        put_warps(g, &insn, rank, tile);
    else
        gen_put_none(&insn);
    gen_must(g, &insn);
    plain(g, TVM_OP_COMMIT_GROUP);
    bool late = gen_one_in(g, 2);
    if (late) plain(g, TVM_OP_COMMIT_GROUP);
    gen_compute(g);
    wait_group(g, late);
    gen_sync(g);
}

static void free_shared(gen *g) {
    gen_shared *s = any_shared(g);
    gen_insn insn = gen_begin(TVM_OP_FREE_SHARED);
    if (!s || g->depth > 0 || g->in_role) return;
    gen_sync(g);
    gen_put_slot(&insn, s->slot);
    gen_must(g, &insn);
    s->freed = true;
    gen_sync(g);
    gen_alloc_shared(g);
}

/* ---- elements at tensors of indices ---- */

uint32_t gen_index_tensor(gen *g, const tvm_layout *layout, bool unique, unsigned axis) {
    tvm_dtype type = gen_one_in(g, 4) ? TVM_I(64) : TVM_I(32);
    if (!unique) {
        uint32_t slot = gen_load_input(g, "index", type, layout);
        bool same = memcmp(shape_of(g, slot), layout->shape, sizeof layout->shape) == 0;
        return same && tvm_layout_equal(gen_layout_of(g, slot), layout) ? slot : gen_fresh(g, type, layout);
    }
    gen_insn insn = gen_begin(TVM_OP_IOTA);
    insn.type = (tvm_result_type){.dtype = type, .has_layout = true, .layout = *layout};
    gen_put_const(&insn, axis);
    gen_put_expr(&insn, gen_one_in(g, 2) ? constant(g, 0) : gen_scalar(g, 1).expr);
    uint32_t slot = gen_must(g, &insn);
    g->vars[slot].exact_bits = true;
    if (gen_one_in(g, 3)) {
        gen_insn change = gen_begin(TVM_OP_XOR);
        gen_put_slot(&change, slot);
        gen_put_expr(&change, constant(g, gen_below(g, 8)));
        slot = gen_must(g, &change);
        g->vars[slot].exact_bits = true;
    }
    return slot;
}

/* The places of a tile in a tensor of its shape, or of another one: unique ones have an index tensor or the
 * tile's own coordinate for each dimension. */
static void put_places(gen *g, gen_insn *insn, const tvm_layout *layout, bool unique) {
    for (unsigned d = 0; d < layout->rank; d++)
        if (gen_one_in(g, 3) || (!unique && gen_one_in(g, 3)))
            gen_put_expr(insn, gen_one_in(g, 2) || insn->op == TVM_OP_ATOMIC ? constant(g, 0)
                                                                             : gen_scalar(g, 1).expr);
        else
            gen_put_slot(insn, gen_index_tensor(g, layout, unique, d));
}

static void gather(gen *g) {
    tvm_layout layout;
    uint32_t shape[TVM_MAX_RANK], extents[TVM_MAX_RANK];
    gen_insn insn = gen_begin(TVM_OP_GATHER);
    unsigned rank = gen_shape(g, shape);
    tvm_dtype type = gen_dtype(g);
    if (!gen_layout(g, rank, shape, &layout) || g->params + 4 >= GEN_PARAMS) return;
    extents_about(g, type, rank, shape, extents);
    gen_put_slot(&insn, gen_param(g, "raw", type, rank, extents));
    insn.type = (tvm_result_type){.has_layout = true, .layout = layout};
    put_places(g, &insn, &layout, false);
    gen_put_evict(g, &insn);
    uint32_t mask = gen_one_in(g, 3) ? gen_register_of(g, TVM_BOOL, TVM_NONE) : TVM_NONE, result = TVM_NONE;
    put_mask(&insn, mask != TVM_NONE && tvm_layout_equal(gen_layout_of(g, mask), &layout) ? mask : TVM_NONE);
    put_fill(g, &insn, type, true);
    if (gen_take(g, &insn, &result)) g->vars[result].exact_bits = true;
}

static void gather_shared(gen *g) {
    gen_shared *s = any_shared(g);
    gen_insn insn = gen_begin(TVM_OP_GATHER);
    if (!s || g->params + 4 >= GEN_PARAMS) return;
    tvm_shared_layout of = g->program->shared_layouts[g->kernel->slots[s->slot].layout];
    tvm_layout layout;
    if (!gen_layout(g, of.rank, of.shape, &layout)) return;
    to_read(g, s);
    gen_put_slot(&insn, s->slot);
    insn.type = (tvm_result_type){.has_layout = true, .layout = layout};
    put_places(g, &insn, &layout, false);
    tvm_dtype type = g->kernel->slots[s->slot].dtype;
    gen_put_none(&insn);
    gen_put_none(&insn);
    put_fill(g, &insn, type, true);
    uint32_t result = TVM_NONE;
    if (!gen_take(g, &insn, &result)) return;
    g->vars[result].exact_bits = type.kind != TVM_KIND_FLOAT || !tvm_float_has_nan(type);
}

static void scatter(gen *g) {
    uint32_t source = gen_register(g), extents[TVM_MAX_RANK + 1];
    gen_insn insn = gen_begin(TVM_OP_SCATTER);
    if (source == TVM_NONE || g->params + 2 >= GEN_PARAMS) return;
    tvm_layout layout = *gen_layout_of(g, source);
    tvm_dtype type = g->kernel->slots[source].dtype;
    if (layout.rank == TVM_MAX_RANK || type.bits % 8 != 0) return;
    extents_about(g, type, layout.rank, layout.shape, extents + 1);
    extents[0] = constant(g, g->blocks);
    gen_put_slot(&insn, gen_param(g, "zero", type, layout.rank + 1u, extents));
    gen_put_expr(&insn, gen_block(g));
    put_places(g, &insn, &layout, true);
    gen_put_slot(&insn, source);
    put_mask(&insn, maybe_mask(g, type, source));
    gen_take(g, &insn, NULL);
    if (g->depth > 0) gen_sync(g); /* the next turn may store there by other threads */
}

/* ---- scalars from memory ---- */

/* An element of an "index" or "small" tensor becomes a scalar, at times with the range that it has. */
static void put_scalar(gen *g, gen_insn *insn, tvm_dtype type) {
    tvm_dtype scalar;
    tvm_dtype_scalar_of(type, &scalar);
    if (tvm_dtype_is_integer(scalar) && gen_one_in(g, 2)) {
        gen_put_expr(insn, gen_integer(g, scalar, 0));
        gen_put_expr(insn, gen_integer(g, scalar, 32));
    } else {
        gen_put_none(insn);
    }
    uint32_t slot = gen_must(g, insn);
    g->vars[slot] = (gen_var){.alive = true, .whole = tvm_dtype_same(scalar, TVM_I(32)), .high = 31};
}

static void load_scalar(gen *g) {
    static const tvm_dtype types[] = {TVM_I(32), TVM_I(32), TVM_U(8), TVM_I(16), TVM_F16, TVM_F32, TVM_U(64)};
    uint32_t extent = constant(g, 40);
    gen_insn insn = gen_begin(TVM_OP_LOAD_SCALAR);
    tvm_dtype type = types[gen_below(g, sizeof types / sizeof *types)];
    if (g->params >= GEN_PARAMS) return;
    gen_put_slot(&insn, gen_param(g, type.kind == TVM_KIND_FLOAT ? "small" : "index", type, 1, &extent));
    gen_put_expr(&insn, gen_index(g, 60, 1));
    put_scalar(g, &insn, type);
}

static void scalar(gen *g) {
    static const tvm_dtype types[] = {TVM_I(32), TVM_I(8), TVM_U(8), TVM_I(16),
                                      TVM_F16,   TVM_BF16, TVM_F32,  TVM_F64};
    static const uint32_t shape[2] = {1, 1};
    tvm_dtype type = types[gen_below(g, sizeof types / sizeof *types)];
    tvm_layout layout;
    if (g->params >= GEN_PARAMS || !gen_layout(g, 1 + gen_below(g, 2), shape, &layout)) return;
    uint32_t source = gen_load_input(g, type.kind == TVM_KIND_FLOAT ? "small" : "index", type, &layout);
    gen_insn insn = gen_begin(TVM_OP_SCALAR);
    gen_put_slot(&insn, source);
    put_scalar(g, &insn, type);
}

void gen_memory(gen *g) {
    static void (*const ways[])(gen *) = {load_shared, store_shared, copy_async, gather,     gather_shared,
                                          scatter,     load_scalar,  scalar,     gen_atomic, free_shared};
    tvm_layout layout;
    uint32_t shape[TVM_MAX_RANK];
    unsigned way = gen_below(g, 15);
    if (way < sizeof ways / sizeof *ways) {
        ways[way](g);
    } else if (g->params < GEN_PARAMS) {
        unsigned rank = gen_shape(g, shape);
        if (gen_layout(g, rank, shape, &layout))
            gen_load_input(g, gen_one_in(g, 3) ? "small" : "raw", gen_dtype(g), &layout);
    }
}
