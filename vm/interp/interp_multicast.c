/* copy-bulk with multicast: each block of a group brings a part of the tile to all of them. Which part is the
 * target's matter, so that the copy counts as made, for all of its mbarriers, once each block has made it:
 * the same instruction with the same tile to the same place. Until then no phase that it belongs to ends.
 *
 * Blocks may make several in another order. So one that differs is found when a phase has had all of its
 * arrivals, and one that a block does not make when nothing goes on any more. */
#include "interp_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint32_t tvm_interp_cast_ranks(const interp_block *block, const tvm_operand *axes) {
    const uint32_t *extent = block->kernel->kernel->cluster;
    uint32_t rank = (uint32_t)(block - block->cluster), below = 1, ranks = 0;
    if (axes->kind == TVM_OPERAND_NONE) return 0;
    if (axes->value == TVM_AXES_ALL) return (UINT32_C(1) << block->cluster_size) - 1;
    for (unsigned d = 0; d < axes->value; d++) below *= extent[d];
    if (extent[axes->value] == 1) return 0;
    uint32_t first = rank - rank / below % extent[axes->value] * below;
    for (uint32_t i = 0; i < extent[axes->value]; i++) ranks |= UINT32_C(1) << (first + below * i);
    return ranks;
}

/* ---- what is wrong ---- */

static uint32_t bit_of(const interp_block *block) {
    return UINT32_C(1) << (block - block->cluster);
}

/* The first of the blocks. */
static const interp_block *block_of(const interp_block *cluster, uint32_t ranks) {
    while (!(ranks & 1)) cluster++, ranks >>= 1;
    return cluster;
}

/* "block (1,0,0)" */
static const char *name_of(const interp_block *block, char text[48]) {
    snprintf(text, 48, "block (%d,%d,%d)", block->index[0], block->index[1], block->index[2]);
    return text;
}

/* One that the block makes in the place of the other, for the same mbarrier or for any; NULL: it does not. */
static const interp_cast *instead_of(const interp_cast *cast, const interp_block *block, bool any) {
    const interp_casts *all = &block->cluster->casts;
    for (size_t i = 0; i < all->count; i++) {
        const interp_cast *own = &all->items[i];
        if ((any || own->barrier == cast->barrier) && own->ranks == cast->ranks &&
            own->made & bit_of(block) && !(own->made & cast->made))
            return own;
    }
    return NULL;
}

static tvm_status report_other(const interp_cast *cast, const interp_cast *own, const interp_block *block) {
    char mine[160], theirs[160], other[48];
    tvm_interp_copy_text(block->kernel, &own->copy, mine);
    tvm_interp_copy_text(block->kernel, &cast->copy, theirs);
    return tvm_interp_fault_between(
        block->contexts, own->copy.insn, cast->copy.insn,
        "it multicasts %s; in its place %s, line %" PRIu32
        ", multicasts %s%s: the blocks make one copy of one tile to one place, for one mbarrier",
        mine, name_of(block_of(block->cluster, cast->made), other), cast->copy.insn->source->line, theirs,
        cast->barrier == own->barrier ? "" : ", for another mbarrier");
}

/* Where the block stands instead: the context that is not done, or NULL. */
static const interp_context *stands(const interp_block *block) {
    for (uint32_t c = 0; c < block->context_count; c++)
        if (block->contexts[c].state != INTERP_DONE && block->contexts[c].state != INTERP_AT_ROLES)
            return &block->contexts[c];
    return NULL;
}

static tvm_status report_missing(const interp_cast *cast, const interp_block *block) {
    const interp_block *maker = block_of(block->cluster, cast->made);
    char other[48];
    return tvm_interp_fault_between(maker->contexts, cast->copy.insn, NULL,
                                    "it is a multicast for %s, too, which has ended without making it",
                                    name_of(block, other));
}

static tvm_status report_late(const interp_cast *cast, const interp_insn *last, const interp_block *block) {
    const interp_block *maker = block_of(block->cluster, cast->made);
    char other[48], line[32] = "";
    if (last) snprintf(line, sizeof line, ", in line %" PRIu32 ",", last->source->line);
    return tvm_interp_fault_between(
        maker->contexts, cast->copy.insn, last,
        "it is a multicast for %s, too, whose phase has had all of its arrivals%s before "
        "that block has made it",
        name_of(block, other), line);
}

tvm_status tvm_interp_cast_check(const interp_block *block, const interp_barrier *barrier,
                                 const interp_insn *last) {
    const interp_casts *all = &block->cluster->casts;
    uint32_t number = (uint32_t)(barrier - block->barriers), own = bit_of(block);
    for (size_t i = 0; i < all->count; i++) {
        const interp_cast *cast = &all->items[i];
        if (cast->barrier != number || !(cast->ranks & own) || cast->made & own) continue;
        const interp_cast *instead = instead_of(cast, block, false);
        return instead ? report_other(cast, instead, block) : report_late(cast, last, block);
    }
    return TVM_OK;
}

tvm_status tvm_interp_cast_end(interp_block *cluster) {
    for (size_t i = 0; i < cluster->casts.count; i++) {
        const interp_cast *cast = &cluster->casts.items[i];
        uint32_t missing = cast->ranks & ~cast->made;
        for (uint32_t r = 0; r < cluster->cluster_size; r++) {
            if (!(missing >> r & 1)) continue;
            const interp_cast *instead = instead_of(cast, &cluster[r], true);
            if (instead) return report_other(cast, instead, &cluster[r]);
            if (!stands(&cluster[r])) return report_missing(cast, &cluster[r]);
        }
    }
    return TVM_OK;
}

/* ---- a part ---- */

tvm_status tvm_interp_cast_reaches(interp_context *context, const interp_copy *copy, uint32_t ranks) {
    const interp_block *block = context->block, *cluster = block->cluster;
    char other[48];
    for (uint32_t r = 0; r < block->cluster_size; r++)
        if (ranks >> r & 1 && cluster[r].barriers[copy->barrier - block->barriers].arrivals == 0)
            return tvm_interp_fault_between(
                context, copy->insn, NULL,
                "%s, which the multicast is for, has not made its mbarrier: a sync-cluster stands between "
                "alloc-barrier and what others do with it",
                name_of(&cluster[r], other));
    return TVM_OK;
}

static bool grow(interp_casts *casts) {
    if (casts->count < casts->capacity) return true;
    size_t capacity = casts->capacity ? 2 * casts->capacity : 8;
    interp_cast *items = realloc(casts->items, capacity * sizeof *items);
    if (!items) return false;
    casts->items = items;
    casts->capacity = capacity;
    return true;
}

/* The same copy of another block that this one has not made yet; NULL: the block is the first. */
static interp_cast *find(interp_casts *casts, const interp_copy *copy, uint32_t barrier, uint32_t ranks,
                         uint32_t own) {
    for (size_t i = 0; i < casts->count; i++) {
        interp_cast *cast = &casts->items[i];
        if (cast->barrier == barrier && cast->ranks == ranks && !(cast->made & own) &&
            tvm_interp_copy_same(&cast->copy, copy))
            return cast;
    }
    return NULL;
}

/* All have made it. */
static tvm_status complete(interp_block *cluster, interp_cast *cast) {
    interp_casts *casts = &cluster->casts;
    const interp_cast done = *cast;
    tvm_status status = TVM_OK;
    memmove(cast, cast + 1, (size_t)(casts->items + casts->count - (cast + 1)) * sizeof *cast);
    casts->count--;
    for (uint32_t r = 0; r < cluster->cluster_size && status == TVM_OK; r++) {
        if (!(done.ranks >> r & 1)) continue;
        interp_barrier *barrier = &cluster[r].barriers[done.barrier];
        barrier->casts--;
        status = tvm_interp_end_phase(&cluster[r], barrier);
    }
    return status;
}

/* The block is the first. A phase that has had all of its arrivals takes no more. */
static tvm_status begin(interp_context *context, const interp_copy *copy, uint32_t number, uint32_t ranks) {
    interp_block *cluster = context->block->cluster;
    tvm_status status = TVM_OK;
    if (cluster->casts.count >= INTERP_MAX_COPIES)
        return tvm_interp_fail(context, copy->insn, "more than %d multicasts that not all blocks have made",
                               INTERP_MAX_COPIES);
    if (copy->barrier->missing == 0)
        return tvm_interp_fault_between(
            context, copy->insn, NULL,
            "the phase of its mbarrier has had all of its arrivals, and waits for other "
            "blocks' parts of a multicast");
    if (!grow(&cluster->casts)) return tvm_interp_no_memory(context->block->run);
    cluster->casts.items[cluster->casts.count++] =
        (interp_cast){.copy = *copy, .barrier = number, .ranks = ranks, .made = bit_of(context->block)};
    for (uint32_t r = 0; r < cluster->cluster_size && status == TVM_OK; r++) {
        interp_barrier *barrier = &cluster[r].barriers[number];
        if (!(ranks >> r & 1)) continue;
        barrier->casts++;
        if (barrier->missing == 0) status = tvm_interp_cast_check(&cluster[r], barrier, NULL);
    }
    return status;
}

tvm_status tvm_interp_cast(interp_context *context, const interp_copy *copy, uint32_t ranks) {
    interp_block *block = context->block, *cluster = block->cluster;
    uint32_t number = (uint32_t)(copy->barrier - block->barriers);
    interp_cast *cast = find(&cluster->casts, copy, number, ranks, bit_of(block));
    if (!cast) return begin(context, copy, number, ranks);
    cast->made |= bit_of(block);
    return cast->made == ranks ? complete(cluster, cast) : TVM_OK;
}
