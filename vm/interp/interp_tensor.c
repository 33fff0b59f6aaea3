/* Tensor memory: what the tensor core does there, mma-tensor and copy-tensor, is done when the team commits
 * it, not before, so that who reads too early finds what was there before. */
#include "interp_impl.h"
#include "sanitize.h"
#include "tensor_memory.h"

#include <stdlib.h>
#include <string.h>

INTERP_NO_PLAN(ALLOC_TENSOR)

/* As alloc-shared: all ones. */
tvm_status tvm_interp_ALLOC_TENSOR(interp_context *context, const interp_insn *insn) {
    return tvm_interp_ALLOC_SHARED(context, insn);
}

INTERP_NO_PLAN(FREE_TENSOR)

tvm_status tvm_interp_FREE_TENSOR(interp_context *context, const interp_insn *insn) {
    return tvm_interp_FREE_SHARED(context, insn);
}

/* ---- pairs of blocks ---- */

uint32_t tvm_interp_tensor_blocks(const interp_context *context, const interp_insn *insn,
                                  interp_block *out[2]) {
    interp_block *block = context->block;
    out[0] = block;
    if (!tvm_tensor_is_pair(block->kernel->kernel, insn->source)) return 1;
    out[1] = block + 1;
    return (block - block->cluster) % 2 == 0 ? 2 : 0;
}

/* ---- what a commit-tensor follows ---- */

tvm_status tvm_interp_start_tensor_work(interp_context *context, const interp_tensor_work *work) {
    interp_tensor_works *works = &context->tensor_works;
    if (works->count >= INTERP_MAX_COPIES)
        return tvm_interp_fail(context, work->insn, "more than %d that no commit-tensor follows",
                               INTERP_MAX_COPIES);
    if (works->count == works->capacity) {
        size_t capacity = works->capacity ? 2 * works->capacity : 16;
        interp_tensor_work *items = realloc(works->items, capacity * sizeof *items);
        if (!items) return tvm_interp_no_memory(context->block->run);
        works->items = items;
        works->capacity = capacity;
    }
    works->items[works->count++] = *work;
    return TVM_OK;
}

tvm_status tvm_interp_tensor_end(const interp_block *block) {
    for (uint32_t c = 0; c < block->context_count; c++)
        if (block->contexts[c].tensor_works.count > 0)
            return tvm_interp_fail(&block->contexts[c], block->contexts[c].tensor_works.items[0].insn,
                                   "the block ends without a commit-tensor after it");
    return TVM_OK;
}

/* ---- copy-tensor ---- */

typedef struct copy_plan {
    interp_tile to, from;
    size_t bytes, all_bytes; /* of what is read, and of what is written */
} copy_plan;

tvm_status tvm_plan_COPY_TENSOR(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    copy_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    uint32_t source = 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[0].value));
    uint32_t at = source + 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[source].value));
    at += insn->operands[at].value; /* the last of the extents, of which two are not 1 */
    const uint32_t tile[2] = {insn->operands[at - 1].value, insn->operands[at].value},
                   lanes[2] = {TVM_TENSOR_LANES, tile[1]};
    tvm_interp_plan_tile(k, insn->operands, 0, 2, lanes, &plan->to);
    tvm_interp_plan_tile(k, insn->operands, source, 2, tile, &plan->from);
    size_t bytes = tvm_dtype_container(interp_slot(k, plan->to.slot)->dtype);
    plan->bytes = (size_t)tile[0] * tile[1] * bytes;
    plan->all_bytes = (size_t)lanes[0] * lanes[1] * bytes;
    tvm_interp_need_scratch(k, plan->all_bytes + INTERP_SLACK);
    return TVM_OK;
}

static tvm_status sanitize_copy(interp_context *context, interp_block *block,
                                const interp_tensor_work *work) {
    const copy_plan *plan = work->insn->plan;
    sanitize_access access = {.owner = block,
                              .memory = plan->from.slot,
                              .tensor = TVM_NONE,
                              .mode = SANITIZE_READ,
                              .actor = SANITIZE_TENSOR};
    tvm_status status = tvm_interp_sanitize_tile_at(context, work->insn, &plan->from, work->a, &access);
    access.memory = plan->to.slot;
    access.mode = SANITIZE_WRITE;
    return status == TVM_OK
               ? tvm_interp_sanitize_tile_at(context, work->insn, &plan->to, work->target, &access)
               : status;
}

tvm_status tvm_interp_COPY_TENSOR(interp_context *context, const interp_insn *insn) {
    const copy_plan *plan = insn->plan;
    interp_tensor_work work = {.insn = insn};
    interp_block *blocks[2];
    uint32_t count = tvm_interp_tensor_blocks(context, insn, blocks);
    tvm_status status = tvm_interp_find_tile(context, insn, &plan->to, work.target);
    if (status == TVM_OK) status = tvm_interp_find_tile(context, insn, &plan->from, work.a);
    for (uint32_t b = 0; b < count && status == TVM_OK && interp_sanitized(context); b++)
        status = sanitize_copy(context, blocks[b], &work);
    return status == TVM_OK && count ? tvm_interp_start_tensor_work(context, &work) : status;
}

/* Rows of a tile that is for each quarter of the lanes stand once more for each of the others. */
static tvm_status perform_copy(interp_context *context, const interp_tensor_work *work) {
    const copy_plan *plan = work->insn->plan;
    interp_block *blocks[2];
    uint32_t count = tvm_interp_tensor_blocks(context, work->insn, blocks);
    uint8_t *rows = context->block->scratch;
    for (uint32_t b = 0; b < count; b++) {
        tvm_interp_move_tile_at(blocks[b], &plan->from, work->a, true, rows);
        for (size_t at = plan->bytes; at < plan->all_bytes; at += plan->bytes)
            memcpy(rows + at, rows, plan->bytes);
        tvm_interp_move_tile_at(blocks[b], &plan->to, work->target, false, rows);
    }
    return TVM_OK;
}

/* ---- commit-tensor ---- */

INTERP_NO_PLAN(COMMIT_TENSOR)

/* The teams of both blocks of a pair meet there, so that none of what either waits for is over before it has
 * come. False: the other has not come yet. */
static bool meets_pair(interp_context *context) {
    interp_block *block = context->block, *cluster = block->cluster;
    interp_context *other = &cluster[(block - cluster) ^ 1].contexts[context - block->contexts];
    if (!context->has_arrived) context->pair_commits++;
    context->has_arrived = other->pair_commits < context->pair_commits;
    if (!context->has_arrived && other->has_arrived) other->state = INTERP_READY;
    return !context->has_arrived;
}

/* At the mbarrier of each block of a pair. */
tvm_status tvm_interp_COMMIT_TENSOR(interp_context *context, const interp_insn *insn) {
    interp_tensor_works *works = &context->tensor_works;
    interp_barrier *barrier;
    interp_block *blocks[2];
    uint32_t count = tvm_interp_tensor_blocks(context, insn, blocks);
    tvm_status status = tvm_interp_find_barrier(context, insn, 0, &barrier);
    if (status == TVM_OK && tvm_tensor_is_pair(context->block->kernel->kernel, insn->source) &&
        !meets_pair(context))
        return interp_again(context, INTERP_AT_CLUSTER);
    if (status != TVM_OK || !count) return status;
    size_t number = (size_t)(barrier - context->block->barriers);
    for (size_t i = 0; i < works->count && status == TVM_OK; i++) {
        bool is_copy = works->items[i].insn->source->op == TVM_OP_COPY_TENSOR;
        status = (is_copy ? perform_copy : tvm_interp_multiply_tensor)(context, &works->items[i]);
    }
    works->count = 0;
    for (uint32_t b = 0; b < count && status == TVM_OK; b++)
        if (!blocks[b]->barriers[number].arrivals)
            status = tvm_interp_fault_between(
                context, insn, NULL,
                "the other block has not made its mbarriers yet: a sync-cluster is missing");
    for (uint32_t b = 0; b < count && status == TVM_OK; b++) {
        interp_barrier *own = &blocks[b]->barriers[number];
        if (interp_sanitized(context)) status = tvm_sanitize_commit(context, blocks[b], own);
        if (status == TVM_OK) status = tvm_interp_arrival(context, insn, blocks[b], own);
    }
    return status;
}
