/* copy-bulk: by the copy engine (TMA), in boxes of a tensor map that one thread of the team starts, or by all
 * of its threads. Either way what comes is announced to the mbarrier, so that its phase does not end before.
 */
#include <stdio.h>

#include "analysis.h"
#include "barrier.h"
#include "bulk_ways.h"
#include "emit_async.h"
#include "emit_bulk_run.h"
#include "emit_mbarrier.h"
#include "global_access.h"
#include "kernel.h"
#include "numbers.h"
#include "shared_access.h"
#include "tensor_memory.h"

/* No extent is greater, and no box that begins there ends above what 32 bits hold. */
enum { COORDINATE_MAX = INT32_MAX - TVM_ABI_BOX_EXTENT };

/* ---- multicast: each block of a group brings a part of the tile to all of them ---- */

/* The blocks of a cluster that differ along the axes alone. */
typedef struct block_group {
    uint32_t count;
    uint32_t ranks; /* of its blocks, less that of the first: a mask */
    uint32_t below; /* what a step along the axis adds to the rank */
    char index[20]; /* the special register that numbers the blocks of the group */
} block_group;

static block_group group_of(const emitter *e, const tvm_operand *axes) {
    const uint32_t *cluster = e->k->kernel->cluster;
    block_group g = {.count = 1, .ranks = 1, .below = 1, .index = "%cluster_ctarank"};
    g.count = tvm_multicast_blocks(e->k, axes);
    if (g.count == 1) return g;
    if (axes->value != TVM_AXES_ALL) {
        for (unsigned d = 0; d < axes->value; d++) g.below *= cluster[d];
        snprintf(g.index, sizeof g.index, "%%cluster_ctaid.%c", "xyz"[axes->value]);
    }
    for (uint32_t i = 1; i < g.count; i++) g.ranks |= UINT32_C(1) << (g.below * i);
    return g;
}

/* A tile that is cut along a dimension, a part a block; the last block's part is at (count - 1) * extent. */
typedef struct part_of_tile {
    bulk_tile tile;
    unsigned dim;    /* that it is cut along */
    bool is_cut;     /* else the first block brings all of it */
    uint32_t stride; /* elements of shared memory from one part to the next */
} part_of_tile;

static bool plan_part(emitter *e, const bulk_operands *o, const block_group *group, part_of_tile *part,
                      bulk_plan *plan) {
    char why[BULK_WHY_MAX];
    for (unsigned d = 0; d < o->tile.rank && group->count > 1; d++) {
        if (o->tile.extent[d] % group->count != 0) continue;
        *part = (part_of_tile){.tile = o->tile, .dim = d, .is_cut = true};
        part->tile.extent[d] /= group->count;
        if (!tvm_bulk_plan_make(e->k, &part->tile, BULK_LOAD, plan, why)) continue;
        unsigned dim = plan->tile.lead + d;
        if (plan->tile.modes[dim] != 1 || plan->factor != 1) continue;
        part->stride = part->tile.extent[d] * plan->tile.layout->mode_stride[plan->tile.first[dim]];
        uint64_t wanted = tvm_bulk_alignment(plan->tile.layout, plan->tile.bits);
        if ((uint64_t)part->stride * plan->tile.bits % (8 * wanted) == 0) return true;
    }
    *part = (part_of_tile){.tile = o->tile};
    return tvm_bulk_plan_make(e->k, &part->tile, BULK_LOAD, plan, why);
}

/* ---- by the copy engine ---- */

/* fence TENSOR_MAP: the address of the map, the parameter of that row, as %rd; a thread of the block has it
 * fetched at kernel entry. */
static reg map_address(emitter *e, uint32_t row) {
    uint32_t before = e->next_rd;
    reg param = tvm_pure_at_entry(e, 'd', "mov.b64 $, param_%u;", row);
    reg address = tvm_pure_at_entry(e, 'd', "cvta.param.u64 $, %s;", param.name);
    bool is_new = e->next_rd != before;
    reg thread = tvm_pure_at_entry(e, 'r', "mov.u32 $, %%tid.x;");
    reg first = tvm_pure_at_entry(e, 'p', "setp.eq.u32 $, %s, 0;", thread.name);
    if (is_new) tvm_emit_prologue(e, "@%s prefetch.tensormap [%s];", first.name, address.name);
    return address;
}

/* An index as a coordinate of 32 bits: one that is out of their range stays outside of the tensor, and no box
 * goes beyond it. */
static reg narrow(emitter *e, uint32_t expr) {
    reg at = tvm_emit_expr(e, expr), out = tvm_new_r(e);
    if (node_of(e->k, expr)->type.bits == 32) {
        if (e->k->facts->exprs[expr].high <= COORDINATE_MAX) return at;
        tvm_emit(e, "min.s32 %s, %s, %d;", out.name, at.name, COORDINATE_MAX);
        return out;
    }
    reg low = tvm_new_rd(e), high = tvm_new_rd(e);
    tvm_emit(e, "max.s64 %s, %s, %d;", low.name, at.name, -COORDINATE_MAX);
    tvm_emit(e, "min.s64 %s, %s, %d;", high.name, low.name, COORDINATE_MAX);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", out.name, high.name);
    return out;
}

/* All of the sum is in range and 32 bits wide, and so is what saturates above it: where a view begins is no
 * more than an extent. */
static reg coordinate(emitter *e, const bulk_plan *plan, unsigned dim) {
    const bulk_sum *at = &plan->at[dim];
    reg part[TVM_MAX_VIEW_DEPTH + 1], wide, more, sum;
    unsigned parts = 0;
    int64_t value;
    for (unsigned i = 0; i < at->count; i++) {
        bool is_nothing = tvm_fact_constant(e->k, at->expr[i], &value) && value == 0;
        if (!is_nothing || (i + 1 == at->count && parts == 0)) part[parts++] = narrow(e, at->expr[i]);
    }
    if (parts == 1) return part[0];
    wide = tvm_new_rd(e), more = tvm_new_rd(e), sum = tvm_new_r(e);
    tvm_emit(e, "cvt.s64.s32 %s, %s;", wide.name, part[0].name);
    for (unsigned i = 1; i < parts; i++) {
        tvm_emit(e, "cvt.s64.s32 %s, %s;", more.name, part[i].name);
        tvm_emit(e, "add.s64 %s, %s, %s;", wide.name, wide.name, more.name);
    }
    tvm_emit(e, "min.s64 %s, %s, %d;", wide.name, wide.name, COORDINATE_MAX);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", sum.name, wide.name);
    return sum;
}

typedef struct engine {
    reg map;                 /* %rd */
    reg shared;              /* %r: where the tile begins, without the constant part */
    reg index[TVM_MAX_RANK]; /* by dimension of the tensor */
    unsigned rank;
    reg leader; /* predicate: the thread that starts the copies */
    char policy[16];
    const char *level2;
    char mask[16]; /* ", %h5": of the blocks that a multicast is for; "": there is none */
} engine;

/* Everything that all threads compute: none of it may be computed first where one thread alone runs. */
static engine open_engine(emitter *e, const bulk_operands *o, bulk_plan *plan, uint32_t row) {
    engine g = {.rank = plan->map.rank};
    cache_hint hint = tvm_cache_hint(e, o->evict);
    g.level2 = hint.level2;
    snprintf(g.policy, sizeof g.policy, "%s", hint.policy);
    g.map = map_address(e, row);
    for (unsigned d = 0; d < g.rank; d++) g.index[d] = coordinate(e, plan, d);
    unsigned inner = tvm_abi_map_dim(&plan->map, 0);
    if (plan->factor > 1)
        g.index[inner] = word_op(e, "shr.s32", g.index[inner], tvm_log2_floor(plan->factor));
    g.shared = tvm_shared_base(e);
    if (plan->tile.has_dynamic) {
        shared_access shared = {.e = e, .tile = plan->tile};
        reg address = tvm_new_r(e), dynamic = tvm_shared_dynamic(&shared);
        if (plan->tile.bytes > 0)
            tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", address.name, dynamic.name, plan->tile.bytes,
                     g.shared.name);
        else
            tvm_emit(e, "add.u32 %s, %s, %s;", address.name,
                     tvm_shared_packed_bytes(e, &plan->tile, dynamic).name, g.shared.name);
        g.shared = address;
    }
    return g;
}

/* Where box n lies: its coordinates in the tensor, innermost first; the bytes from the beginning of shared
 * memory. */
static uint32_t place_box(emitter *e, const bulk_operands *o, const bulk_plan *plan, const engine *g,
                          uint32_t n, char coordinates[96]) {
    uint32_t at[TVM_MAX_RANK], ahead[TVM_ABI_TENSOR_MAP_RANK] = {0};
    size_t used = 0;
    tvm_bulk_box(&o->tile, plan, n, at);
    for (unsigned d = 0; d < o->tile.rank; d++) ahead[plan->dim[d]] = at[d];
    for (unsigned i = 0; i < g->rank; i++) {
        unsigned d = tvm_abi_map_dim(&plan->map, i);
        uint32_t plus = ahead[d] / (i == 0 ? plan->factor : 1);
        reg index = plus ? word_op(e, "add.s32", g->index[d], plus) : g->index[d];
        used += (size_t)snprintf(coordinates + used, 96 - used, "%s%s", used ? ", " : "", index.name);
    }
    return e->k->slots[o->tile.shared->value].shared_offset +
           tvm_shared_bytes_of(&plan->tile, plan->tile.constant + tvm_shared_linear(&plan->tile, at));
}

/* fence BULK_LANDED, BULK_OVER_READ, MULTICAST */
static void start_box(emitter *e, const bulk_operands *o, const bulk_plan *plan, const engine *g,
                      const mbarrier *barrier, uint32_t n) {
    char coordinates[96];
    const char *cast = g->mask[0] ? ".multicast::cluster" : "";
    uint32_t to = place_box(e, o, plan, g, n, coordinates);
    tvm_emit(
        e,
        "@%s cp.async.bulk.tensor.%ud.shared::cluster.global.tile.mbarrier::complete_tx::bytes%s%s [%s+%u], "
        "[%s, {%s}], [%s+%u]%s%s;",
        g->leader.name, g->rank, cast, g->level2, g->shared.name, to, g->map.name, coordinates,
        barrier->address.name, barrier->plus, g->mask, g->policy);
}

/* The block's place in its group, as %r. */
static reg place_in_group(emitter *e, const block_group *group) {
    return tvm_pure(e, 'r', "mov.u32 $, %s;", group->index);
}

/* Moves the boxes on to the block's part, and says which blocks they are for. */
static void aim(emitter *e, const block_group *group, const part_of_tile *part, const bulk_plan *plan,
                engine *g) {
    reg place = place_in_group(e, group), mask = tvm_new_h(e);
    reg rank = tvm_pure(e, 'r', "mov.u32 $, %%cluster_ctarank;");
    reg ahead = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", place.name, group->below);
    reg first = tvm_pure(e, 'r', "sub.u32 $, %s, %s;", rank.name, ahead.name);
    reg ranks = tvm_pure(e, 'r', "mov.b32 $, %u;", group->ranks);
    reg blocks = tvm_pure(e, 'r', "shl.b32 $, %s, %s;", ranks.name, first.name);
    tvm_emit(e, "cvt.u16.u32 %s, %s;", mask.name, blocks.name);
    snprintf(g->mask, sizeof g->mask, ", %s", mask.name);
    if (!part->is_cut) return;
    reg index = tvm_new_r(e), shared = tvm_new_r(e);
    unsigned d = plan->dim[part->dim];
    tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", index.name, place.name, part->tile.extent[part->dim],
             g->index[d].name);
    tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", shared.name, place.name,
             tvm_shared_bytes_of(&plan->tile, part->stride), g->shared.name);
    g->index[d] = index;
    g->shared = shared;
}

/* fence GLOBAL_TO_ENGINE */
static void by_engine(emitter *e, const bulk_operands *whole, const block_group *group,
                      const part_of_tile *part, bulk_plan *plan, uint32_t row) {
    char name[96];
    bulk_operands o = *whole;
    o.tile = part->tile;
    uint32_t bytes = plan->count * plan->box_bytes * (part->is_cut ? group->count : 1);
    bool guarded =
        tvm_shared_guard(e, o.tile.shared->value, o.tile.shared + 1, o.tile.rank, whole->tile.extent);
    mbarrier barrier = tvm_mbarrier_find(e, o.barrier);
    engine g = open_engine(e, &o, plan, row);
    if (group->count > 1) aim(e, group, part, plan, &g);
    uint32_t behind = tvm_new_label(e);
    g.leader = tvm_emit_elect(e, behind);
    if (tvm_writes_global(e->k->kernel, o.tile.global->value))
        tvm_emit(e, "@%s fence.proxy.async.global;", g.leader.name);
    tvm_emit(e, "@%s mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s+%u], %u;", g.leader.name,
             barrier.address.name, barrier.plus, bytes);
    if (group->count > 1 && !part->is_cut) {
        reg first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", place_in_group(e, group).name);
        g.leader = tvm_both(e, g.leader, first);
    }
    for (uint32_t n = 0; n < plan->count; n++) start_box(e, &o, plan, &g, &barrier, n);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    snprintf(name, sizeof name, "cp.async.bulk.tensor.%ud%s%s%s", g.rank, g.mask[0] ? ".multicast" : "",
             g.level2, guarded || barrier.guarded ? " guarded" : "");
    tvm_explain(e, name, 0, plan->count, -1, "");
}

/* ---- by the threads ---- */

/* fence COPY_ARRIVAL: each thread adds an arrival to the phase, which comes when its copies have. */
static tvm_status by_threads(emitter *e, const bulk_operands *o, const char *why) {
    char refused[BULK_WHY_MAX + 32];
    snprintf(refused, sizeof refused, "cp.async.bulk.tensor: %s", why);
    const thread_copy copy = {.target = o->tile.shared,
                              .source = o->tile.global,
                              .tile = o->extents,
                              .evict = o->evict,
                              .refused = refused};
    bool is_async;
    mbarrier barrier = tvm_mbarrier_find(e, o->barrier);
    tvm_status status = tvm_emit_thread_copy(e, &copy, &is_async);
    if (status == TVM_OK && is_async)
        tvm_emit(e, "cp.async.mbarrier.arrive.shared.b64 [%s+%u];", barrier.address.name, barrier.plus);
    return status;
}

tvm_status tvm_emit_COPY_BULK(emitter *e, const tvm_insn *insn) {
    bulk_operands o = tvm_bulk_operands(e->k, insn);
    block_group group = group_of(e, o.multicast);
    part_of_tile part;
    bulk_plan plan;
    char why[BULK_WHY_MAX];
    bool has_boxes =
        tvm_bulk_plan_make(e->k, &o.tile, BULK_LOAD, &plan, why) && plan_part(e, &o, &group, &part, &plan);
    /* A run is shorter to start than several boxes, or one of wider elements than the tensor's. */
    if ((!has_boxes || plan.count > 1 || plan.factor > 1) && e->k->bulk.by_engine && group.count == 1 &&
        tvm_emit_bulk_run(e, &o.tile, o.barrier, o.evict))
        return TVM_OK;
    if (!has_boxes) return by_threads(e, &o, why);
    uint32_t row = tvm_abi_add_map(&e->code->abi, &plan.map);
    if (row == TVM_NONE) {
        snprintf(why, sizeof why, "the kernel has %d tensor maps without it", TVM_ABI_TENSOR_MAPS);
        return by_threads(e, &o, why);
    }
    by_engine(e, &o, &group, &part, &plan, row);
    return TVM_OK;
}

/* ---- store-bulk and reduce-bulk ---- */

static bulk_operands read_store(const emitter *e, const tvm_operand *operands) {
    bulk_operands o = {.tile.global = operands};
    o.tile.shared = o.tile.global + 1 + e->k->kernel->slots[o.tile.global->value].rank;
    o.extents = o.tile.shared + 1 + tvm_slot_shared_layout(e->k, o.tile.shared->value)->rank;
    o.tile.rank = o.extents->value;
    for (unsigned d = 0; d < o.tile.rank; d++) o.tile.extent[d] = o.extents[1 + d].value;
    o.evict = o.extents + 1 + o.tile.rank;
    return o;
}

/* The elected thread's predicate, and that the tile is not outside before the tensor's beginning. */
static reg begins(emitter *e, const bulk_operands *o, const bulk_plan *plan, reg leader) {
    for (unsigned d = 0; plan->tested >> d; d++) {
        uint32_t index = o->tile.global[1 + d].value;
        if (!(plan->tested >> d & 1)) continue;
        reg inside = tvm_new_pred(e), at = tvm_emit_expr(e, index);
        tvm_emit(e, "setp.ge.s%u %s, %s, 0;", e->k->kernel->exprs[index].type.bits, inside.name, at.name);
        leader = tvm_both(e, leader, inside);
    }
    return leader;
}

/* fence TO_ENGINE, ENGINE_OVER_THREADS. Each is a group of its own. */
static void store_by_engine(emitter *e, const bulk_operands *o, bulk_way way, bulk_plan *plan, uint32_t row) {
    char name[64], coordinates[96];
    const char *reduce = way == BULK_ADD ? ".reduce" : "", *add = way == BULK_ADD ? ".add" : "";
    bool guarded =
        tvm_shared_guard(e, o->tile.shared->value, o->tile.shared + 1, o->tile.rank, o->tile.extent);
    engine g = open_engine(e, o, plan, row);
    uint32_t behind = tvm_new_label(e);
    g.leader = tvm_emit_elect(e, behind);
    if (tvm_threads_write_global(e->k->kernel, o->tile.global->value))
        tvm_emit(e, "@%s fence.proxy.async.global;", g.leader.name);
    reg stores = begins(e, o, plan, g.leader);
    for (uint32_t n = 0; n < plan->count; n++) {
        uint32_t from = place_box(e, o, plan, &g, n, coordinates);
        tvm_emit(
            e, "@%s cp%s.async.bulk.tensor.%ud.global.shared::cta%s.tile.bulk_group%s [%s, {%s}], [%s+%u]%s;",
            stores.name, reduce, g.rank, add, g.level2, g.map.name, coordinates, g.shared.name, from,
            g.policy);
    }
    tvm_emit(e, "@%s cp.async.bulk.commit_group;", g.leader.name);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    snprintf(name, sizeof name, "cp%s.async.bulk.tensor.%ud.global%s%s%s", reduce, g.rank, add, g.level2,
             guarded || plan->tested ? " guarded" : "");
    tvm_explain(e, name, 0, plan->count, -1, "");
}

static tvm_status store_tile(emitter *e, const tvm_operand *operands, bulk_way way) {
    bulk_operands o = read_store(e, operands);
    bulk_plan plan;
    char why[BULK_WHY_MAX], refused[BULK_WHY_MAX + 32];
    if (tvm_bulk_plan_make(e->k, &o.tile, way, &plan, why)) {
        uint32_t row = tvm_abi_add_map(&e->code->abi, &plan.map);
        if (row != TVM_NONE) {
            store_by_engine(e, &o, way, &plan, row);
            return TVM_OK;
        }
        snprintf(why, sizeof why, "the kernel has %d tensor maps without it", TVM_ABI_TENSOR_MAPS);
    }
    snprintf(refused, sizeof refused, "cp%s.async.bulk.tensor: %s", way == BULK_ADD ? ".reduce" : "", why);
    const thread_copy copy = {.target = o.tile.global,
                              .source = o.tile.shared,
                              .tile = o.extents,
                              .evict = o.evict,
                              .refused = refused,
                              .is_store = true,
                              .adds = way == BULK_ADD};
    bool is_async;
    return tvm_emit_thread_copy(e, &copy, &is_async);
}

tvm_status tvm_emit_STORE_BULK(emitter *e, const tvm_insn *insn) {
    return store_tile(e, tvm_operands(e->k->kernel, insn), BULK_STORE);
}

tvm_status tvm_emit_REDUCE_BULK(emitter *e, const tvm_insn *insn) {
    return store_tile(e, tvm_operands(e->k->kernel, insn) + 1, BULK_ADD);
}

/* fence BULK_STORED, BULK_STORE_READ: the groups are those of the thread that started them; the others have
 * none, and wait for it at the barrier.
 */
tvm_status tvm_emit_WAIT_BULK(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    const char *read = operands[1].kind == TVM_OPERAND_NONE ? "" : ".read";
    bool has_engine = tvm_target_has(e->k->target, TVM_HAS_BULK);
    if (has_engine) tvm_emit(e, "cp.async.bulk.wait_group%s %u;", read, operands[0].value);
    tvm_emit_barrier(e);
    tvm_explain(e, has_engine ? "cp.async.bulk.wait_group, bar.sync" : "bar.sync", 0, 1, -1,
                has_engine ? "" : "cp.async.bulk.wait_group: the target lacks it");
    return TVM_OK;
}
