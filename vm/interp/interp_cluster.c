/* The blocks of a cluster: they synchronize, and access each other's shared memory. */
#include "interp_impl.h"
#include "sanitize.h"

#include <inttypes.h>
#include <stdlib.h>

INTERP_NO_PLAN(SYNC_CLUSTER)

/* The last block that comes lets the others go on, which then do the instruction again. */
tvm_status tvm_interp_SYNC_CLUSTER(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block, *cluster = block->cluster;
    (void)insn;
    if (block->meets == INTERP_MET) {
        block->meets = INTERP_APART;
        return TVM_OK;
    }
    block->meets = INTERP_MEETS;
    for (uint32_t b = 0; b < block->cluster_size; b++)
        if (cluster[b].meets != INTERP_MEETS) return interp_again(context, INTERP_AT_CLUSTER);
    for (uint32_t b = 0; b < block->cluster_size; b++) {
        cluster[b].meets = INTERP_MET;
        cluster[b].contexts[0].state = INTERP_READY;
    }
    block->meets = INTERP_APART;
    return interp_sanitized(context) ? tvm_sanitize_sync_cluster(cluster) : TVM_OK;
}

tvm_status tvm_interp_peer(interp_context *context, const interp_insn *insn, uint32_t rank,
                           interp_block **peer) {
    interp_block *block = context->block;
    tvm_scalar value;
    tvm_status status = tvm_interp_evaluate(context, insn, rank, &value);
    if (status != TVM_OK) return status;
    if (value.i < 0 || value.i >= block->cluster_size)
        return tvm_interp_fault(context, insn, INTERP_OUTSIDE,
                                "rank %" PRId64 ": the cluster has %" PRIu32 " blocks", value.i,
                                block->cluster_size);
    *peer = &block->cluster[value.i];
    return TVM_OK;
}

/* ---- blocks that have not begun ---- */

INTERP_NO_PLAN(CANCEL_BLOCK)

/* Blocks begin in the order of their places, and the next one is taken; where they take turns all are begun.
 */
tvm_status tvm_interp_CANCEL_BLOCK(interp_context *context, const interp_insn *insn) {
    interp_run *run = context->block->run;
    uint64_t next = run->turns ? run->blocks : atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
    context->slots[insn->source->result].i = next < run->blocks ? (int64_t)next : -1;
    return TVM_OK;
}

/* ---- tiles of other blocks ---- */

typedef struct peer_plan {
    interp_tile tile;
    uint32_t rank, tensor; /* an expression; the slot of the register tensor */
} peer_plan;

static tvm_status plan_peer(tvm_interp_kernel *k, interp_insn *insn, uint32_t tensor, tvm_diags *diags) {
    peer_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    const tvm_slot *slot = interp_slot(k, tensor);
    tvm_interp_plan_tile(k, insn->operands, 0, tvm_slot_rank(k->program, slot),
                         tvm_slot_shape(k->program, slot), &plan->tile);
    plan->rank = insn->operands[1 + plan->tile.rank].value;
    plan->tensor = plan->tile.tensor = tensor;
    return TVM_OK;
}

tvm_status tvm_plan_LOAD_CLUSTER(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_peer(kernel, insn, insn->source->result, diags);
}

tvm_status tvm_plan_STORE_CLUSTER(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_peer(kernel, insn, insn->operands[insn->source->count - 1].value, diags);
}

static tvm_status move(interp_context *context, const interp_insn *insn, bool is_load) {
    const peer_plan *plan = insn->plan;
    interp_block *peer;
    tvm_status status = tvm_interp_peer(context, insn, plan->rank, &peer);
    return status == TVM_OK ? tvm_interp_move_tile(context, insn, &plan->tile, peer, is_load,
                                                   interp_tensor(context->block, plan->tensor))
                            : status;
}

tvm_status tvm_interp_LOAD_CLUSTER(interp_context *context, const interp_insn *insn) {
    return move(context, insn, true);
}

tvm_status tvm_interp_STORE_CLUSTER(interp_context *context, const interp_insn *insn) {
    return move(context, insn, false);
}
