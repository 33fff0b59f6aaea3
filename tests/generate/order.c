/* Programs in which teams, blocks and the copy engine wait for each other: rings of stages between roles,
 * semaphores and put elements between blocks, pipelined loops, mbarriers, clusters. All stand outside of
 * control. */
#include "state.h"

#include <string.h>

static uint32_t constant(gen *g, int64_t value) {
    return gen_integer(g, TVM_I(32), value);
}

static void plain(gen *g, unsigned op) {
    gen_insn insn = gen_begin(op);
    gen_must(g, &insn);
}

static uint32_t loop(gen *g, uint32_t end, uint32_t step, unsigned stages) {
    gen_insn insn = gen_begin(TVM_OP_FOR);
    gen_put_expr(&insn, constant(g, 0));
    gen_put_expr(&insn, constant(g, end));
    gen_put_expr(&insn, constant(g, step));
    gen_put_const(&insn, 1);
    if (stages)
        gen_put_const(&insn, stages);
    else
        gen_put_none(&insn);
    uint32_t i = gen_must(g, &insn);
    g->vars[i] = (gen_var){.alive = true, .whole = true, .high = end - 1};
    return i;
}

static void add_to(gen *g, uint32_t sum, uint32_t value) {
    gen_insn insn = gen_begin(TVM_OP_ADD);
    gen_put_slot(&insn, sum);
    gen_put_slot(&insn, value);
    insn.type = (tvm_result_type){.kind = TVM_SLOT_REGISTER,
                                  .dtype = g->kernel->slots[sum].dtype,
                                  .has_layout = true,
                                  .layout = *gen_layout_of(g, sum)};
    if (!gen_take(g, &insn, &sum)) g->failed = true;
    g->vars[sum] = (gen_var){.alive = true, .loose = true};
}

static tvm_dtype sum_type(gen *g) {
    static const tvm_dtype types[] = {TVM_I(32), TVM_F32, TVM_F16, TVM_U(8), TVM_I(64)};
    return types[gen_below(g, sizeof types / sizeof *types)];
}

static uint32_t shared_tensor(gen *g, tvm_dtype type, unsigned rank, const uint32_t *shape) {
    gen_insn insn = gen_begin(TVM_OP_ALLOC_SHARED);
    tvm_why why;
    insn.type.dtype = type;
    insn.type.has_layout =
        tvm_shared_layout_auto(rank, shape, type.bits, &insn.type.shared_layout, &why) == TVM_OK;
    return gen_must(g, &insn);
}

static uint32_t barriers(gen *g, uint32_t count, uint32_t arrivals, bool open) {
    gen_insn insn = gen_begin(TVM_OP_ALLOC_BARRIER);
    tvm_why why;
    insn.type.has_layout = tvm_shared_layout_row_major(1, &count, &insn.type.shared_layout, &why) == TVM_OK;
    if (arrivals > 1)
        gen_put_const(&insn, arrivals);
    else
        gen_put_none(&insn);
    if (open)
        gen_put_const(&insn, 1);
    else
        gen_put_none(&insn);
    return gen_must(g, &insn);
}

/* rank: of arrive-barrier, an expression; TVM_NONE: left out */
static void at_barrier_of(gen *g, unsigned op, uint32_t barrier, uint32_t index, uint32_t rank) {
    gen_insn insn = gen_begin(op);
    gen_put_slot(&insn, barrier);
    gen_put_expr(&insn, index);
    if (op == TVM_OP_ARRIVE_BARRIER) {
        if (rank == TVM_NONE && gen_one_in(g, 4))
            gen_put_const(&insn, 0); /* no product is pending */
        else
            gen_put_none(&insn);
        if (rank == TVM_NONE)
            gen_put_none(&insn);
        else
            gen_put_expr(&insn, rank);
    }
    gen_must(g, &insn);
}

static void at_barrier(gen *g, unsigned op, uint32_t barrier, uint32_t index) {
    at_barrier_of(g, op, barrier, index, TVM_NONE);
}

static void put_index(gen *g, gen_insn *insn, uint32_t first, unsigned rank) {
    gen_put_expr(insn, first);
    for (unsigned d = 1; d < rank; d++) gen_put_expr(insn, constant(g, 0));
}

/* [stages, tile...] at a stage, to registers. */
static uint32_t load_stage(gen *g, uint32_t tensor, uint32_t stage, const tvm_layout *layout, unsigned rank) {
    gen_insn insn = gen_begin(TVM_OP_LOAD_SHARED);
    insn.type = (tvm_result_type){.has_layout = true, .layout = *layout};
    gen_put_slot(&insn, tensor);
    put_index(g, &insn, stage, rank);
    gen_put_none(&insn);
    uint32_t slot = gen_must(g, &insn);
    tvm_dtype type = g->kernel->slots[slot].dtype;
    g->vars[slot] = (gen_var){.alive = true, .exact_bits = type.kind != TVM_KIND_FLOAT};
    return slot;
}

static void store_stage(gen *g, uint32_t tensor, uint32_t stage, uint32_t source, unsigned rank) {
    gen_insn insn = gen_begin(TVM_OP_STORE_SHARED);
    gen_put_slot(&insn, tensor);
    put_index(g, &insn, stage, rank);
    gen_put_slot(&insn, source);
    gen_put_none(&insn);
    gen_must(g, &insn);
}

/* ---- pipelined loops ---- */

void gen_pipeline(gen *g) {
    uint32_t tile[TVM_MAX_RANK], extents[TVM_MAX_RANK], turns = 1 + gen_below(g, 6);
    tvm_dtype type = sum_type(g);
    tvm_layout layout;
    unsigned rank = gen_shape(g, tile), along = gen_below(g, rank);
    if (g->params + 2 >= GEN_PARAMS || !gen_layout(g, rank, tile, &layout)) return;
    uint32_t tensor = shared_tensor(g, type, rank, tile), sum = gen_fresh(g, type, &layout),
             step = tile[along];
    for (unsigned d = 0; d < rank; d++)
        extents[d] = constant(g, d == along ? tile[d] * turns - gen_below(g, 2) : tile[d] + gen_below(g, 9));
    uint32_t source = gen_param(g, type.kind == TVM_KIND_FLOAT ? "small" : "raw", type, rank, extents);
    uint32_t i = loop(g, step * turns, step, 1 + gen_below(g, 4));
    gen_insn copy = gen_begin(TVM_OP_COPY_ASYNC);
    gen_put_slot(&copy, tensor);
    put_index(g, &copy, constant(g, 0), rank);
    gen_put_slot(&copy, source);
    for (unsigned d = 0; d < rank; d++)
        gen_put_expr(&copy, d == along ? gen_slot_expr(g, i) : constant(g, 0));
    gen_put_list(&copy, rank, tile);
    gen_put_none(&copy);
    gen_put_none(&copy);
    gen_must(g, &copy);
    g->depth++;
    uint32_t value = load_stage(g, tensor, constant(g, 0), &layout, rank);
    add_to(g, sum, value);
    if (gen_one_in(g, 2)) gen_compute(g);
    g->depth--;
    for (uint32_t s = i; s < g->kernel->slot_count && s < GEN_SLOTS; s++)
        if (g->kernel->slots[s].kind != TVM_SLOT_GLOBAL) g->vars[s].alive = false;
    plain(g, TVM_OP_END);
    gen_store_output(g, sum);
}

/* ---- bulk copies ---- */

/* Begins a copy of a tile of a parameter; together: all blocks of the cluster get the same one. */
static void copy_tile(gen *g, tvm_dtype type, const uint32_t tile[2], uint32_t tensor, uint32_t barrier,
                      bool together) {
    uint32_t extents[2], wide = gen_below(g, 3) * 8;
    if (together) plain(g, TVM_OP_SYNC_CLUSTER);
    extents[0] = constant(g, tile[0] + gen_below(g, 5));
    extents[1] = constant(g, tile[1] + wide * (gen_one_in(g, 4) ? 1 : 2));
    gen_insn copy = gen_begin(TVM_OP_COPY_BULK);
    gen_put_slot(&copy, tensor);
    put_index(g, &copy, constant(g, 0), 2);
    /* A GPU adds subnormal numbers of f32 as zeros. */
    gen_put_slot(&copy, gen_param(g, tvm_dtype_same(type, TVM_F32) ? "small" : "raw", type, 2, extents));
    bool same = together || gen_one_in(g, 2); /* the index of all blocks */
    gen_put_expr(&copy, same ? constant(g, gen_below(g, 4)) : gen_index(g, 3, 1));
    gen_put_expr(&copy, same ? constant(g, 0) : gen_scalar(g, 1).expr);
    gen_put_list(&copy, 2, tile);
    gen_put_slot(&copy, barrier);
    gen_put_expr(&copy, constant(g, 0));
    gen_put_evict(g, &copy);
    if (together)
        gen_put_const(&copy, gen_one_in(g, 2) ? TVM_AXIS_X + g->axis : TVM_AXES_ALL);
    else
        gen_put_none(&copy);
    gen_must(g, &copy);
}

/* Stores or adds the tile to a parameter, each block to its own part, and waits for that. */
static void store_tile(gen *g, tvm_dtype type, const uint32_t tile[2], uint32_t tensor) {
    uint32_t shape[3];
    bool adds = type.bits > 8 && gen_one_in(g, 2); /* each place once, so that the order is no matter */
    gen_insn store = gen_begin(adds ? TVM_OP_REDUCE_BULK : TVM_OP_STORE_BULK),
             wait = gen_begin(TVM_OP_WAIT_BULK);
    if (adds) gen_put_const(&store, TVM_ATOMIC_ADD);
    shape[0] = constant(g, g->blocks), shape[1] = constant(g, tile[0] - gen_below(g, 2));
    shape[2] = constant(g, tile[1] + gen_below(g, 2) * 8);
    gen_put_slot(&store, gen_param(g, "zero", type, 3, shape));
    put_index(g, &store, gen_block(g), 3);
    gen_put_slot(&store, tensor);
    put_index(g, &store, constant(g, 0), 2);
    gen_put_list(&store, 2, tile);
    gen_put_evict(g, &store);
    gen_must(g, &store);
    gen_put_const(&wait, 0);
    if (gen_one_in(g, 3)) /* what it stores is not read again */
        gen_put_const(&wait, 1);
    else
        gen_put_none(&wait);
    gen_must(g, &wait);
}

/* Rows of whole 16 bytes now and then, as the copy engine wants them. */
void gen_bulk(gen *g) {
    uint32_t tile[2] = {8u << gen_below(g, 2), 8u << gen_below(g, 4)};
    static const tvm_dtype types[] = {TVM_F16, TVM_F32, TVM_U(8), TVM_I(32), TVM_BF16};
    tvm_dtype type = types[gen_below(g, 5)];
    tvm_layout layout;
    if (g->params + 3 >= GEN_PARAMS || !gen_layout(g, 2, tile, &layout)) return;
    bool clusters = g->kernel->cluster[g->axis] > 1, together = clusters && gen_one_in(g, 2);
    uint32_t arrivals = 1 + gen_one_in(g, 3), tensor = shared_tensor(g, type, 2, tile),
             barrier = barriers(g, 1, arrivals, false);
    copy_tile(g, type, tile, tensor, barrier, together);
    for (uint32_t i = 0; i < arrivals; i++) at_barrier(g, TVM_OP_ARRIVE_BARRIER, barrier, constant(g, 0));
    gen_compute(g);
    at_barrier(g, TVM_OP_WAIT_BARRIER, barrier, constant(g, 0));
    if (together) plain(g, TVM_OP_SYNC_CLUSTER);
    if (gen_one_in(g, 2)) load_stage(g, tensor, constant(g, 0), &layout, 2);
    if (gen_one_in(g, 2)) { /* another tile, of registers */
        gen_sync(g);
        store_stage(g, tensor, constant(g, 0), gen_fresh(g, type, &layout), 2);
    }
    gen_sync(g);
    store_tile(g, type, tile, tensor);
    if (gen_one_in(g, 2)) {
        uint32_t all = barriers(g, 1, 1, false);
        at_barrier(g, TVM_OP_SYNC_BARRIER, all, constant(g, 0));
    }
}

/* ---- roles ---- */

static void put_number(gen_insn *insn, uint32_t number) {
    if (number)
        gen_put_const(insn, number);
    else
        gen_put_none(insn);
}

/* by, registers: 0: left out. */
static uint32_t begin_role(gen *g, uint32_t first, uint32_t end, uint32_t by, uint32_t registers) {
    gen_insn insn = gen_begin(TVM_OP_ROLE);
    gen_put_const(&insn, first);
    gen_put_const(&insn, end);
    put_number(&insn, by);
    put_number(&insn, registers);
    uint32_t slot = gen_must(g, &insn);
    g->team = (tvm_team){first, by ? by : end - first};
    return slot;
}

static void end_role(gen *g) {
    plain(g, TVM_OP_END);
    g->team = tvm_block_team(g->kernel);
    for (uint32_t s = 0; s < g->kernel->slot_count && s < GEN_SLOTS; s++) g->vars[s].alive = g->outside[s];
}

typedef struct ring {
    uint32_t tensor, full, empty, stages, turns, tile[TVM_MAX_RANK];
    tvm_dtype type;
    unsigned rank; /* of the tile */
    bool moves_registers;
} ring;

static uint32_t stage_of(gen *g, const ring *r, uint32_t i) {
    return gen_apply(g, TVM_EXPR_MOD, gen_slot_expr(g, i), constant(g, r->stages));
}

static void produce(gen *g, const ring *r, uint32_t end) {
    tvm_layout layout;
    begin_role(g, 0, end, 0, r->moves_registers ? 88 : 0);
    if (!gen_layout(g, r->rank, r->tile, &layout)) g->failed = true;
    uint32_t tile = gen_fresh(g, r->type, &layout), step = gen_fresh(g, r->type, &layout);
    if (!g->failed) add_to(g, tile, step);
    uint32_t i = loop(g, r->turns, 1, 0);
    at_barrier(g, TVM_OP_WAIT_BARRIER, r->empty, stage_of(g, r, i));
    store_stage(g, r->tensor, stage_of(g, r, i), tile, r->rank + 1);
    at_barrier(g, TVM_OP_ARRIVE_BARRIER, r->full, stage_of(g, r, i));
    add_to(g, tile, step);
    g->depth++;
    if (gen_one_in(g, 2)) gen_compute(g);
    g->depth--;
    plain(g, TVM_OP_END);
    end_role(g);
}

static void consume(gen *g, const ring *r, uint32_t first) {
    tvm_layout layout;
    begin_role(g, first, g->kernel->warps, 0, r->moves_registers ? 160 : 0);
    if (!gen_layout(g, r->rank, r->tile, &layout)) g->failed = true;
    uint32_t sum = gen_fresh(g, r->type, &layout), before = g->kernel->slot_count;
    g->depth++;
    uint32_t i = loop(g, r->turns, 1, 0);
    at_barrier(g, TVM_OP_WAIT_BARRIER, r->full, stage_of(g, r, i));
    uint32_t tile = load_stage(g, r->tensor, stage_of(g, r, i), &layout, r->rank + 1);
    at_barrier(g, TVM_OP_ARRIVE_BARRIER, r->empty, stage_of(g, r, i));
    if (!g->failed) add_to(g, sum, tile);
    gen_compute(g);
    plain(g, TVM_OP_END);
    g->depth--;
    for (uint32_t s = before; s < g->kernel->slot_count && s < GEN_SLOTS; s++)
        if (g->kernel->slots[s].kind != TVM_SLOT_GLOBAL) g->vars[s].alive = false;
    gen_compute(g);
    gen_store_output(g, sum);
    end_role(g);
}

static void no_registers(gen *g) {
    for (uint32_t s = 0; s < g->kernel->slot_count && s < GEN_SLOTS; s++)
        if (g->kernel->slots[s].kind == TVM_SLOT_REGISTER) g->vars[s].alive = false;
}

/* Teams that each compute for themselves what the others do, too, or not quite. */
static void teams(gen *g) {
    uint32_t warps = g->kernel->warps, by = 1 + gen_below(g, warps), shape[TVM_MAX_RANK];
    tvm_layout layout;
    unsigned rank = gen_shape(g, shape);
    if (warps % by != 0) by = 1;
    for (uint32_t s = 0; s < GEN_SLOTS; s++) g->outside[s] = g->vars[s].alive;
    no_registers(g);
    g->in_role = true;
    g->team_index = begin_role(g, 0, warps, by, 0);
    g->teams = warps / by;
    g->vars[g->team_index] = (gen_var){.alive = true, .whole = true, .high = g->teams - 1};
    if (gen_layout(g, rank, shape, &layout)) {
        uint32_t tile = gen_load_input(g, "raw", sum_type(g), &layout);
        for (unsigned i = gen_below(g, 4); i > 0; i--) gen_compute(g);
        if (gen_one_in(g, 2)) gen_sync(g);
        gen_store_output(g, tile);
        uint32_t last = gen_register(g);
        if (last != TVM_NONE) gen_store_output(g, last);
    }
    g->teams = 0;
    g->in_role = false;
    end_role(g);
}

/* A ring between two teams. */
void gen_roles(gen *g) {
    uint32_t shape[TVM_MAX_RANK + 1], warps = g->kernel->warps;
    ring r = {.stages = 1 + gen_below(g, 3), .turns = 1 + gen_below(g, 5), .type = sum_type(g)};
    r.rank = gen_shape(g, r.tile);
    if (warps < 2 || g->params + 4 >= GEN_PARAMS) return;
    gen_sync(g);
    if (gen_one_in(g, 3)) {
        teams(g);
        return;
    }
    shape[0] = r.stages;
    memcpy(shape + 1, r.tile, sizeof r.tile);
    r.tensor = shared_tensor(g, r.type, r.rank + 1, shape);
    r.full = barriers(g, r.stages, 1, false);
    r.empty = barriers(g, r.stages, 1, true);
    r.moves_registers = warps == 8 && gen_one_in(g, 2);
    if (r.moves_registers) gen_store_results(g); /* nothing may follow such roles */
    g->ended = r.moves_registers;
    uint32_t end = r.moves_registers ? 4 : 1 + gen_below(g, warps - 1);
    for (uint32_t s = 0; s < GEN_SLOTS; s++) g->outside[s] = g->vars[s].alive;
    no_registers(g);
    g->in_role = true;
    produce(g, &r, end);
    no_registers(g);
    consume(g, &r, end);
    g->in_role = false;
}

/* ---- blocks ---- */

static void at_semaphore(gen *g, unsigned op, uint32_t tensor, uint32_t place, uint32_t value) {
    gen_insn insn = gen_begin(op);
    gen_put_slot(&insn, tensor);
    gen_put_expr(&insn, place);
    gen_put_expr(&insn, value);
    gen_must(g, &insn);
}

/* One block after the other adds to a tile in memory. */
static void semaphores(gen *g) {
    uint32_t four = constant(g, 4), tile[TVM_MAX_RANK], extents[TVM_MAX_RANK];
    tvm_layout layout;
    unsigned rank = gen_shape(g, tile);
    if (!gen_layout(g, rank, tile, &layout)) return;
    for (unsigned d = 0; d < rank; d++) extents[d] = constant(g, tile[d]);
    uint32_t semaphore = gen_param(g, "zero", TVM_U(32), 1, &four), place = gen_index(g, 3, 1),
             data = gen_param(g, "zero", TVM_I(32), rank, extents),
             value = gen_register_of(g, TVM_I(32), TVM_NONE);
    bool fits = value != TVM_NONE && tvm_layout_equal(gen_layout_of(g, value), &layout);
    if (!fits) value = gen_fresh(g, TVM_I(32), &layout);
    place = constant(g, gen_below(g, 4)); /* the same one of all blocks */
    at_semaphore(g, TVM_OP_LOCK_SEMAPHORE, semaphore, place, gen_block(g));
    gen_insn load = gen_begin(TVM_OP_LOAD_GLOBAL), store = gen_begin(TVM_OP_STORE_GLOBAL);
    load.type = (tvm_result_type){.has_layout = true, .layout = layout};
    gen_put_slot(&load, data);
    put_index(g, &load, constant(g, 0), rank);
    gen_put_none(&load);
    gen_put_none(&load);
    uint32_t old = gen_must(g, &load);
    gen_sync(g);
    add_to(g, old, value);
    gen_put_slot(&store, data);
    put_index(g, &store, constant(g, 0), rank);
    gen_put_slot(&store, old);
    gen_put_none(&store);
    gen_must(g, &store);
    at_semaphore(g, TVM_OP_RELEASE_SEMAPHORE, semaphore, place,
                 gen_apply(g, TVM_EXPR_ADD, gen_block(g), constant(g, 1)));
}

static void begin_if(gen *g, uint32_t condition) {
    gen_insn insn = gen_begin(TVM_OP_IF);
    gen_put_expr(&insn, condition);
    gen_must(g, &insn);
}

/* Each block puts a tile for the next one. */
static void put_and_take(gen *g) {
    uint32_t tile[TVM_MAX_RANK], extents[TVM_MAX_RANK + 1];
    tvm_layout layout, other;
    unsigned rank = gen_shape(g, tile);
    if (!gen_layout(g, rank, tile, &layout) || !gen_layout(g, rank, tile, &other)) return;
    gen_insn alloc = gen_begin(TVM_OP_ALLOC_GLOBAL), store = gen_begin(TVM_OP_PUT_GLOBAL),
             take = gen_begin(TVM_OP_TAKE_GLOBAL);
    extents[0] = constant(g, g->blocks);
    for (unsigned d = 0; d < rank; d++) extents[1 + d] = constant(g, tile[d]);
    alloc.type = (tvm_result_type){.dtype = TVM_F32, .rank = rank + 1};
    memcpy(alloc.type.shape, extents, sizeof extents - sizeof *extents);
    gen_put_const(&alloc, 1);
    uint32_t tensor = gen_must(g, &alloc), source = gen_load_input(g, "small", TVM_F32, &layout),
             taken = gen_fresh(g, TVM_F32, &other);
    g->vars[taken] = (gen_var){.alive = true, .loose = true};
    int64_t scope = gen_one_in(g, 3) ? TVM_SCOPE_SYS : TVM_SCOPE_GPU;
    begin_if(g, gen_apply(g, TVM_EXPR_LT, gen_block(g), constant(g, g->blocks - 1)));
    gen_put_slot(&store, tensor);
    put_index(g, &store, gen_block(g), rank + 1);
    gen_put_slot(&store, source);
    gen_put_const(&store, scope);
    gen_must(g, &store);
    plain(g, TVM_OP_END);
    begin_if(g, gen_apply(g, TVM_EXPR_GT, gen_block(g), constant(g, 0)));
    take.type = (tvm_result_type){.kind = TVM_SLOT_REGISTER, .has_layout = true, .layout = other};
    gen_put_slot(&take, tensor);
    put_index(g, &take, gen_apply(g, TVM_EXPR_SUB, gen_block(g), constant(g, 1)), rank + 1);
    gen_put_const(&take, scope);
    if (!gen_take(g, &take, &taken)) g->failed = true;
    plain(g, TVM_OP_END);
    gen_store_output(g, taken);
}

void gen_between_blocks(gen *g) {
    if (g->params + 4 >= GEN_PARAMS) return;
    if (gen_one_in(g, 2))
        semaphores(g);
    else
        put_and_take(g);
}

/* ---- clusters ---- */

/* The source into the tensor of the block of that rank, each element by an atomic operation, which no other
 * block does there. */
static void exchange(gen *g, uint32_t tensor, unsigned rank, uint32_t source, uint32_t other) {
    static const tvm_atomic operations[] = {TVM_ATOMIC_EXCH, TVM_ATOMIC_ADD, TVM_ATOMIC_SUB, TVM_ATOMIC_MIN,
                                            TVM_ATOMIC_MAX,  TVM_ATOMIC_AND, TVM_ATOMIC_OR,  TVM_ATOMIC_XOR};
    bool is_float = g->kernel->slots[tensor].dtype.kind == TVM_KIND_FLOAT;
    uint32_t fetched = TVM_NONE;
    bool fetch = gen_one_in(g, 2);
    gen_insn insn = gen_begin(fetch ? TVM_OP_ATOMIC_FETCH : TVM_OP_ATOMIC);
    gen_put_const(&insn, operations[gen_below(g, is_float ? 5 : 8)]);
    gen_put_slot(&insn, tensor);
    put_index(g, &insn, constant(g, 0), rank);
    gen_put_slot(&insn, source);
    gen_put_none(&insn);
    gen_put_none(&insn);
    gen_put_const(&insn, gen_below(g, TVM_ORDER_COUNT));
    gen_put_const(&insn, 1 + gen_below(g, TVM_SCOPE_COUNT - 1));
    gen_put_expr(&insn, other);
    if (!gen_take(g, &insn, &fetched)) g->failed = true;
    if (fetch && fetched != TVM_NONE) g->vars[fetched].alive = false; /* nobody had written there */
}

/* A tile whose elements differ, and differ from those of other blocks. */
static uint32_t tile_of_block(gen *g, tvm_dtype type, const tvm_layout *layout) {
    uint32_t slot = gen_load_input(g, "small", type, layout);
    const tvm_layout *has = gen_layout_of(g, slot);
    gen_insn init = gen_begin(TVM_OP_ALLOC_REGISTER), sum = gen_begin(TVM_OP_ADD);
    if (has->rank != layout->rank ||
        memcmp(has->shape, layout->shape, layout->rank * sizeof *layout->shape)) {
        g->failed = true;
        return slot;
    }
    init.type = (tvm_result_type){.dtype = type, .has_layout = true, .layout = *has};
    gen_put_expr(&init, gen_apply(g, TVM_EXPR_MUL, gen_block(g), constant(g, 5)));
    gen_put_slot(&sum, slot);
    gen_put_slot(&sum, gen_must(g, &init));
    slot = gen_must(g, &sum);
    g->vars[slot] = (gen_var){.alive = true, .exact_bits = true};
    return slot;
}

/* Tiles of the other block of a cluster of two; without a cluster, of the block itself. */
void gen_cluster(gen *g) {
    uint32_t tile[TVM_MAX_RANK];
    tvm_layout layout;
    bool clusters = g->kernel->cluster[g->axis] > 1;
    unsigned rank = gen_shape(g, tile);
    tvm_dtype type = sum_type(g);
    if (!gen_layout(g, rank, tile, &layout)) return;
    uint32_t tensor = shared_tensor(g, type, rank, tile), source = tile_of_block(g, type, &layout),
             other = clusters
                         ? gen_apply(g, TVM_EXPR_MOD,
                                     gen_apply(g, TVM_EXPR_ADD, gen_block(g), constant(g, 1)), constant(g, 2))
                         : constant(g, 0);
    bool arrives = gen_one_in(g, 2), copies = arrives && gen_one_in(g, 2); /* rather than to sync */
    bool exchanges = !copies && type.bits >= 16 && gen_one_in(g, 3);
    uint32_t barrier = arrives ? barriers(g, 1, 1, false) : TVM_NONE;
    uint32_t mine = copies ? shared_tensor(g, type, rank, tile) : TVM_NONE;
    if (copies || exchanges) store_stage(g, copies ? mine : tensor, constant(g, 0), source, rank);
    if (copies || exchanges) gen_sync(g);
    if (clusters) plain(g, TVM_OP_SYNC_CLUSTER);
    gen_insn store = gen_begin(copies ? TVM_OP_COPY_CLUSTER : TVM_OP_STORE_CLUSTER),
             load = gen_begin(TVM_OP_LOAD_CLUSTER);
    gen_put_slot(&store, tensor);
    put_index(g, &store, constant(g, 0), rank);
    gen_put_expr(&store, other);
    gen_put_slot(&store, copies ? mine : source);
    if (copies) {
        put_index(g, &store, constant(g, 0), rank);
        gen_put_list(&store, rank, tile);
        gen_put_slot(&store, barrier);
        gen_put_expr(&store, constant(g, 0));
    }
    if (exchanges)
        exchange(g, tensor, rank, source, other);
    else
        gen_must(g, &store);
    if (arrives) {
        at_barrier_of(g, TVM_OP_ARRIVE_BARRIER, barrier, constant(g, 0), other);
        at_barrier(g, TVM_OP_WAIT_BARRIER, barrier, constant(g, 0));
        uint32_t own = load_stage(g, tensor, constant(g, 0), &layout, rank);
        gen_store_output(g, own);
    }
    if (clusters)
        plain(g, TVM_OP_SYNC_CLUSTER);
    else
        gen_sync(g);
    load.type = (tvm_result_type){.has_layout = true, .layout = layout};
    gen_put_slot(&load, tensor);
    put_index(g, &load, constant(g, 0), rank);
    gen_put_expr(&load, other);
    uint32_t loaded = gen_must(g, &load);
    if (clusters) plain(g, TVM_OP_SYNC_CLUSTER);
    gen_store_output(g, loaded);
}
