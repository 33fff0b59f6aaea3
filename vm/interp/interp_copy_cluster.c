/* copy-cluster: a tile of the block's shared memory that comes to another block of the cluster when the phase
 * of that block's mbarrier ends, not before: until then both tiles are the copy's. */
#include "interp_box.h"

#include <stdlib.h>

typedef struct side {
    uint32_t slot, first; /* the operand where it stands */
    uint8_t rank;
    int64_t shape[TVM_MAX_RANK], step[TVM_MAX_RANK];
    const tvm_shared_digits *split;
} side;

typedef struct cluster_copy_plan {
    side target, source;
    uint32_t rank, barrier; /* operands */
    uint8_t tile_rank;
    interp_width width;
    int64_t tile[TVM_MAX_RANK], dense[TVM_MAX_RANK];
} cluster_copy_plan;

/* Returns the operand behind it. */
static uint32_t plan_side(const tvm_interp_kernel *k, const interp_insn *insn, uint32_t first, side *out) {
    out->slot = insn->operands[first].value;
    out->first = first;
    out->rank = (uint8_t)tvm_interp_slot_shape(k, out->slot, out->shape);
    tvm_interp_shared_steps(k, out->slot, out->step);
    out->split = k->split[out->slot];
    return first + 1 + out->rank;
}

tvm_status tvm_plan_COPY_CLUSTER(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    cluster_copy_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    plan->rank = plan_side(k, insn, 0, &plan->target);
    uint32_t tile = plan_side(k, insn, plan->rank + 1, &plan->source);
    plan->tile_rank = (uint8_t)insn->operands[tile].value;
    plan->barrier = tile + 1 + plan->tile_rank;
    plan->width = interp_width_of(interp_slot(k, plan->source.slot)->dtype);
    size_t bytes = plan->width.bytes;
    for (unsigned d = 0; d < plan->tile_rank; d++) {
        plan->tile[d] = insn->operands[tile + 1 + d].value;
        bytes *= (size_t)plan->tile[d];
    }
    tvm_interp_row_major(plan->tile_rank, plan->tile, plan->dense);
    tvm_interp_need_scratch(k, bytes);
    return TVM_OK;
}

static interp_box box_of(const cluster_copy_plan *plan, const side *of, const int64_t *at) {
    interp_box box =
        tvm_interp_box_make(of->rank, of->shape, of->step, at, plan->tile_rank, plan->tile, plan->dense);
    tvm_interp_box_split(&box, of->split, of->rank, at);
    return box;
}

uint64_t tvm_interp_cluster_copy_bytes(const interp_copy *copy) {
    const cluster_copy_plan *plan = copy->insn->plan;
    uint64_t bytes = plan->width.bytes;
    for (unsigned d = 0; d < plan->tile_rank; d++) bytes *= (uint64_t)plan->tile[d];
    return bytes;
}

void tvm_interp_perform_cluster_copy(const interp_block *block, const interp_copy *copy) {
    const cluster_copy_plan *plan = copy->insn->plan;
    uint64_t elements = tvm_interp_cluster_copy_bytes(copy) / plan->width.bytes;
    tvm_interp_box_move(box_of(plan, &plan->source, copy->source), INTERP_LOAD, plan->width,
                        interp_tensor(copy->from, plan->source.slot), block->scratch);
    tvm_interp_box_move(box_of(plan, &plan->target, copy->target), INTERP_STORE, plan->width,
                        interp_tensor(block, plan->target.slot), block->scratch);
    interp_count(block, true, true, elements, plan->width.bits);
    interp_count(block, true, false, elements, plan->width.bits);
}

static tvm_status inside(interp_context *context, const interp_insn *insn, const side *of, int64_t *at) {
    const cluster_copy_plan *plan = insn->plan;
    tvm_status status = tvm_interp_index(context, insn, of->first, of->rank, at);
    return status == TVM_OK ? tvm_interp_inside(context, insn, of->slot, of->rank, of->shape, at,
                                                plan->tile_rank, plan->tile)
                            : status;
}

static tvm_status sanitize(interp_context *context, const interp_copy *copy, interp_block *peer) {
    const cluster_copy_plan *plan = copy->insn->plan;
    sanitize_access to = {.mode = SANITIZE_WRITE,
                          .actor = SANITIZE_BULK,
                          .barrier = copy->barrier,
                          .owner = peer,
                          .memory = plan->target.slot,
                          .tensor = TVM_NONE,
                          .tile = plan->tile,
                          .tile_rank = plan->tile_rank},
                    from = to;
    if (peer != context->block) tvm_sanitize_far(context, copy->insn, peer, copy->barrier, true);
    from.mode = SANITIZE_READ;
    from.owner = context->block;
    from.memory = plan->source.slot;
    tvm_status status =
        tvm_interp_box_sanitize(box_of(plan, &plan->source, copy->source), context, copy->insn, &from);
    return status == TVM_OK
               ? tvm_interp_box_sanitize(box_of(plan, &plan->target, copy->target), context, copy->insn, &to)
               : status;
}

tvm_status tvm_interp_COPY_CLUSTER(interp_context *context, const interp_insn *insn) {
    const cluster_copy_plan *plan = insn->plan;
    interp_copy copy = {.insn = insn, .from = context->block};
    interp_block *peer;
    tvm_status status = tvm_interp_peer(context, insn, insn->operands[plan->rank].value, &peer);
    if (status == TVM_OK) status = inside(context, insn, &plan->target, copy.target);
    if (status == TVM_OK) status = inside(context, insn, &plan->source, copy.source);
    if (status == TVM_OK) status = tvm_interp_find_barrier(context, insn, plan->barrier, &copy.barrier);
    if (status != TVM_OK) return status;
    copy.barrier = &peer->barriers[copy.barrier - context->block->barriers];
    if (copy.barrier->arrivals == 0)
        return tvm_interp_fault_between(context, insn, NULL,
                                        "the block of that rank has not made its mbarrier: a sync-cluster "
                                        "stands between alloc-barrier and what others do with it");
    status = tvm_interp_add_copy(context, insn, &peer->bulk, &copy);
    if (status != TVM_OK) return status;
    copy.barrier->bytes += (int64_t)tvm_interp_cluster_copy_bytes(&copy);
    return interp_sanitized(context) ? sanitize(context, &copy, peer) : TVM_OK;
}
