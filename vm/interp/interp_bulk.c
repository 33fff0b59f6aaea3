/* Bulk copies: their tiles are written when the phase of their mbarrier ends, not before. */
#include "interp_impl.h"
#include "sanitize.h"

#include <inttypes.h>
#include <string.h>

/* The operands that are a copy-async's stand in the same places. */
tvm_status tvm_plan_COPY_BULK(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return tvm_plan_COPY_ASYNC(kernel, insn, diags);
}

/* Where the mbarrier stands among the operands: behind both tensors and the tile. */
static uint32_t barrier_operand(const tvm_interp_kernel *k, const interp_insn *insn) {
    uint32_t source = 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[0].value));
    uint32_t tile = source + 1 + interp_slot(k, insn->operands[source].value)->rank;
    return tile + 1 + insn->operands[tile].value;
}

/* What each block gets that the copy is for. */
static tvm_status sanitize(interp_context *context, const interp_copy *copy, uint32_t ranks) {
    interp_block *block = context->block;
    sanitize_access to = {.mode = SANITIZE_WRITE,
                          .actor = SANITIZE_BULK,
                          .barrier = copy->barrier,
                          .is_cast = ranks != 0},
                    from = {.mode = SANITIZE_READ, .actor = SANITIZE_BULK, .barrier = copy->barrier};
    tvm_status status = tvm_interp_sanitize_copy(context, copy, to, from);
    for (uint32_t r = 0; r < block->cluster_size && status == TVM_OK; r++) {
        interp_block *peer = &block->cluster[r];
        if (!(ranks >> r & 1) || peer == block) continue;
        to.barrier = peer->barriers + (copy->barrier - block->barriers);
        tvm_sanitize_far(context, copy->insn, peer, to.barrier, true);
        status = tvm_interp_sanitize_tile(context, copy, to, peer);
    }
    return status;
}

tvm_status tvm_interp_COPY_BULK(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block;
    interp_barrier *barrier;
    uint32_t ranks = 0, place = barrier_operand(block->kernel, insn);
    tvm_status status = tvm_interp_find_barrier(context, insn, place, &barrier);
    if (status == TVM_OK) status = tvm_interp_start_copy(context, insn, &block->bulk);
    if (status != TVM_OK) return status;
    interp_copy *copy = &block->bulk.items[block->bulk.count - 1];
    copy->barrier = barrier;
    barrier->bytes += (int64_t)tvm_interp_copy_bytes(copy);
    if (block->cluster_size > 1)
        ranks = tvm_interp_cast_ranks(block, &insn->operands[insn->source->count - 1]);
    if (ranks) status = tvm_interp_cast_reaches(context, copy, ranks);
    if (status == TVM_OK && interp_sanitized(context)) status = sanitize(context, copy, ranks);
    return status == TVM_OK && ranks ? tvm_interp_cast(context, copy, ranks) : status;
}

void tvm_interp_bulk_come(interp_block *block, interp_barrier *barrier) {
    interp_copies *bulk = &block->bulk;
    size_t kept = 0;
    for (size_t i = 0; i < bulk->count; i++) {
        interp_copy *copy = &bulk->items[i];
        if (copy->barrier != barrier) {
            bulk->items[kept++] = *copy;
            continue;
        }
        if (copy->from) {
            tvm_interp_perform_cluster_copy(block, copy);
            barrier->bytes -= (int64_t)tvm_interp_cluster_copy_bytes(copy);
        } else {
            tvm_interp_perform_copy(block, copy);
            barrier->bytes -= (int64_t)tvm_interp_copy_bytes(copy);
        }
        barrier->brought = barrier->phases + 1;
        barrier->bringer = copy->insn;
    }
    bulk->count = kept;
}

/* Phases that some warp has waited for. */
static uint64_t awaited(const interp_barrier *barrier) {
    uint64_t most = 0;
    for (unsigned w = 0; w < TVM_MAX_THREADS / 32; w++)
        if (barrier->waits[w] > most) most = barrier->waits[w];
    return most > 0 && barrier->open ? most - 1 : most;
}

tvm_status tvm_interp_bulk_end(const interp_block *block) {
    const interp_context *context = &block->contexts[0];
    if (block->bulk.count > 0)
        return tvm_interp_fail(context, block->bulk.items[0].insn,
                               "the block ends before the phase of its mbarrier: %" PRIu32 " of %" PRIu32
                               " arrivals are missing",
                               block->bulk.items[0].barrier->missing, block->bulk.items[0].barrier->arrivals);
    for (uint32_t i = 0; i < block->kernel->barrier_count; i++) {
        const interp_barrier *barrier = &block->barriers[i];
        if (barrier->brought > awaited(barrier))
            return tvm_interp_fail(context, barrier->bringer,
                                   "the block ends without a wait for phase %" PRIu64 " of its mbarrier",
                                   barrier->brought);
    }
    return TVM_OK;
}

/* ---- stores: what they store is what their tiles hold as late as may be ---- */

static tvm_status start_store(interp_context *context, const interp_insn *insn, sanitize_mode mode) {
    tvm_status status = tvm_interp_start_copy(context, insn, &context->stores);
    if (status != TVM_OK || !interp_sanitized(context)) return status;
    status = tvm_interp_sanitize_copy(context, &context->stores.items[context->stores.count - 1],
                                      (sanitize_access){.mode = SANITIZE_READ, .actor = SANITIZE_STORE_READ},
                                      (sanitize_access){.mode = mode, .actor = SANITIZE_STORE_WRITE});
    tvm_sanitize_store(context);
    return status;
}

tvm_status tvm_interp_STORE_BULK(interp_context *context, const interp_insn *insn) {
    return start_store(context, insn, SANITIZE_WRITE);
}

tvm_status tvm_interp_REDUCE_BULK(interp_context *context, const interp_insn *insn) {
    return start_store(context, insn, SANITIZE_ATOMIC);
}

void tvm_interp_finish_stores(interp_context *context, size_t pending) {
    interp_copies *stores = &context->stores;
    size_t done = stores->count > pending ? stores->count - pending : 0;
    for (size_t i = 0; i < done; i++) tvm_interp_perform_store(context->block, &stores->items[i]);
    stores->count -= done;
    if (done && stores->count)
        memmove(stores->items, stores->items + done, stores->count * sizeof *stores->items);
}

INTERP_NO_PLAN(WAIT_BULK)

tvm_status tvm_interp_WAIT_BULK(interp_context *context, const interp_insn *insn) {
    tvm_interp_finish_stores(context, insn->operands[0].value);
    if (!interp_sanitized(context)) return TVM_OK;
    return tvm_sanitize_wait_bulk(context, insn->operands[0].value,
                                  insn->operands[1].kind != TVM_OPERAND_NONE);
}
