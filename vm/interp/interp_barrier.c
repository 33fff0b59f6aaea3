/* mbarriers. A phase ends with its last arrival, once the bytes that its expect-tx count announces have been
 * copied; each warp counts the phases that it has waited for, so that no program names a phase. */
#include "interp_impl.h"
#include "sanitize.h"

#include <inttypes.h>
#include <stdlib.h>

INTERP_NO_PLAN(ALLOC_BARRIER)
INTERP_NO_PLAN(ARRIVE_BARRIER)
INTERP_NO_PLAN(WAIT_BARRIER)
INTERP_NO_PLAN(SYNC_BARRIER)

static uint32_t count_of(const tvm_interp_kernel *k, uint32_t slot) {
    const tvm_slot *of = interp_slot(k, slot);
    const uint32_t *shape = tvm_slot_shape(k->program, of);
    uint32_t count = 1;
    for (unsigned d = 0; d < tvm_slot_rank(k->program, of); d++) count *= shape[d];
    return count;
}

tvm_status tvm_interp_find_barrier(interp_context *context, const interp_insn *insn, uint32_t first,
                                   interp_barrier **out) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t slot = insn->operands[first].value;
    const tvm_slot *of = interp_slot(k, slot);
    const uint32_t *shape = tvm_slot_shape(k->program, of);
    int64_t at = 0;
    for (unsigned d = 0; d < tvm_slot_rank(k->program, of); d++) {
        tvm_scalar index;
        tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[first + 1 + d].value, &index);
        if (status != TVM_OK) return status;
        if (index.i < 0 || index.i >= shape[d])
            return tvm_interp_fault(context, insn, INTERP_OUTSIDE,
                                    "%%%s: index %" PRId64 " in dimension %u: expected 0 to %u",
                                    interp_slot_name(k, slot), index.i, d, shape[d] - 1);
        at = at * shape[d] + index.i;
    }
    *out = &context->block->barriers[k->offsets[slot] + (size_t)at];
    return TVM_OK;
}

/* ---- phases ---- */

tvm_status tvm_interp_end_phase(interp_block *block, interp_barrier *barrier) {
    if (barrier->missing > 0 || barrier->casts > 0) return TVM_OK;
    tvm_interp_bulk_come(block, barrier);
    barrier->phases++;
    barrier->missing = barrier->arrivals;
    tvm_status status = block->run->sanitizer ? tvm_sanitize_phase(block, barrier) : TVM_OK;
    for (uint32_t c = 0; c < block->context_count; c++)
        if (block->contexts[c].state == INTERP_AT_BARRIER && block->contexts[c].awaited == barrier)
            block->contexts[c].state = INTERP_READY;
    return status;
}

void tvm_interp_waits_for(const interp_context *context, char text[160]) {
    const interp_barrier *barrier = context->awaited;
    text[0] = '\0';
    if (context->state == INTERP_AT_CLUSTER) snprintf(text, 160, "for the other blocks of the cluster");
    if (context->state == INTERP_AT_OTHERS) snprintf(text, 160, "all blocks that run wait");
    if (context->state != INTERP_AT_BARRIER) return;
    if (barrier->missing == 0)
        snprintf(text, 160, "for other blocks' parts of a multicast");
    else
        snprintf(text, 160, "%" PRIu32 " of %" PRIu32 " arrivals are missing", barrier->missing,
                 barrier->arrivals);
}

/* ---- instructions ---- */

tvm_status tvm_interp_ALLOC_BARRIER(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    interp_barrier *barriers = &context->block->barriers[k->offsets[insn->source->result]];
    const tvm_operand *arrivals = &insn->operands[0];
    uint32_t count = count_of(k, insn->source->result);
    for (uint32_t i = 0; i < count; i++) {
        barriers[i] = (interp_barrier){.arrivals = arrivals->kind == TVM_OPERAND_NONE ? 1 : arrivals->value,
                                       .open = insn->operands[1].kind != TVM_OPERAND_NONE};
        barriers[i].missing = barriers[i].arrivals;
    }
    if (interp_sanitized(context))
        tvm_sanitize_alloc_barrier(context, (uint32_t)k->offsets[insn->source->result], count);
    return TVM_OK;
}

/* The same mbarrier of the block of that rank. */
static tvm_status find_peer(interp_context *context, const interp_insn *insn, interp_block **block,
                            interp_barrier **barrier) {
    const tvm_operand *rank = &insn->operands[insn->source->count - 1];
    if (rank->kind == TVM_OPERAND_NONE) return TVM_OK;
    tvm_status status = tvm_interp_peer(context, insn, rank->value, block);
    if (status != TVM_OK) return status;
    *barrier = (*block)->barriers + (*barrier - context->block->barriers);
    if ((*barrier)->arrivals) return TVM_OK;
    return tvm_interp_fault_between(
        context, insn, NULL, "the other block has not made its mbarriers yet: a sync-cluster is missing");
}

/* The latest products that the arrival leaves out. */
static uint32_t pending_of(const interp_insn *insn) {
    const tvm_op_info *info = tvm_op(insn->source->op);
    const tvm_operand *pending = &insn->operands[insn->source->count - 2];
    return info->traits & TVM_TRAIT_PENDING && pending->kind == TVM_OPERAND_CONST ? pending->value : 0;
}

tvm_status tvm_interp_arrival(interp_context *context, const interp_insn *insn, interp_block *block,
                              interp_barrier *barrier) {
    tvm_status status = TVM_OK;
    if (barrier->missing == 0)
        return tvm_interp_fail(
            context, insn,
            "one arrival more than the phase has, which waits for other blocks' parts of a "
            "multicast");
    if (--barrier->missing == 0 && barrier->casts > 0) status = tvm_interp_cast_check(block, barrier, insn);
    return status == TVM_OK ? tvm_interp_end_phase(block, barrier) : status;
}

static tvm_status arrive(interp_context *context, const interp_insn *insn, bool may_be_far) {
    interp_barrier *barrier;
    interp_block *block = context->block;
    tvm_status status = tvm_interp_find_barrier(context, insn, 0, &barrier);
    if (status == TVM_OK && may_be_far) status = find_peer(context, insn, &block, &barrier);
    if (status == TVM_OK && interp_sanitized(context) && block != context->block)
        tvm_sanitize_far(context, insn, block, barrier, false);
    if (status == TVM_OK && interp_sanitized(context))
        status = tvm_sanitize_arrive(context, block, barrier, pending_of(insn));
    if (status != TVM_OK) return status;
    return tvm_interp_arrival(context, insn, block, barrier);
}

tvm_status tvm_interp_ARRIVE_BARRIER(interp_context *context, const interp_insn *insn) {
    return arrive(context, insn, true);
}

/* The phases that must have ended: those that the team has waited for, and one more; of an open mbarrier, not
 * one more. */
tvm_status tvm_interp_WAIT_BARRIER(interp_context *context, const interp_insn *insn) {
    tvm_team team = context->team;
    interp_barrier *barrier;
    tvm_status status = tvm_interp_find_barrier(context, insn, 0, &barrier);
    if (status != TVM_OK) return status;
    uint64_t waits = barrier->waits[team.first], needed = waits + !barrier->open;
    for (uint32_t w = team.first; w < team.first + team.warps; w++)
        if (barrier->waits[w] != waits)
            return tvm_interp_fail(context, insn,
                                   "warp %" PRIu32 " has waited here %" PRIu64 " times, warp %" PRIu32
                                   " %" PRIu64 " times",
                                   team.first, waits, w, barrier->waits[w]);
    if (barrier->phases > needed)
        return tvm_interp_fail(context, insn,
                               "%" PRIu64 " phases have ended, but this is the wait for number %" PRIu64
                               ": it comes too late",
                               barrier->phases, needed);
    if (barrier->phases < needed) {
        context->awaited = barrier;
        return interp_again(context, INTERP_AT_BARRIER);
    }
    for (uint32_t w = team.first; w < team.first + team.warps; w++) barrier->waits[w]++;
    return interp_sanitized(context) ? tvm_sanitize_wait(context, barrier) : TVM_OK;
}

/* Done again while it waits, it has arrived. */
tvm_status tvm_interp_SYNC_BARRIER(interp_context *context, const interp_insn *insn) {
    tvm_status status = context->has_arrived ? TVM_OK : arrive(context, insn, false);
    if (status == TVM_OK) status = tvm_interp_WAIT_BARRIER(context, insn);
    context->has_arrived = context->state == INTERP_AT_BARRIER;
    return status;
}
