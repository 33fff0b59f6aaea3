/* Inside ptx_machine.h: tcgen05 of one block (PTX ISA, "TensorCore 5th Generation Family Instructions"):
 * tensor memory, what moves data to and from it, and its products; cta_group::1.
 *
 * As with wgmma, an operation is done at once and nothing else may notice before its end has been waited for.
 * What is not defined ends the test: an access of tensor memory, or a write of shared memory, that nothing
 * orders after another that has it still (ptx_tensor_order.h); a register that a tcgen05.ld may still write;
 * lanes of other warps; columns that are not allocated; the end of a block that has not given all back. What
 * an allocation holds at first, and what a 16-bit element leaves of its column, is garbage. */
#ifndef TVM_TESTS_PTX_TENSOR_H
#define TVM_TESTS_PTX_TENSOR_H

#include "ptx_tensor_mma.h"

/* ---- cp, commit ---- */

/* tcgen05.cp.cta_group::1.shape[.multicast] [d], descriptor: rows of the matrix, which lie along k, go to
 * lanes from `first` on, and to each further group of lanes of the mask of warps. */
static inline void ptx_tensor_cp(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    static const struct {
        const char *shape, *multicast;
        unsigned rows, bytes;
        uint8_t warps[4]; /* of which lanes the rows of each warp's lanes are: the number of 32 rows */
    } all[] = {{"128x256b", "", 128, 32, {0, 1, 2, 3}},
               {"128x128b", "", 128, 16, {0, 1, 2, 3}},
               {"64x128b", "warpx2::02_13", 64, 16, {0, 1, 0, 1}},
               {"64x128b", "warpx2::01_23", 64, 16, {0, 0, 1, 1}},
               {"32x128b", "warpx4", 32, 16, {0, 0, 0, 0}}};
    const char *multicast = insn->parts > 4 ? insn->part[4] : "";
    ptx_stamp by = ptx_tensor_issue(ptx_tensor_of(m), t / 32, PTX_TENSOR_CP);
    ptx_spot d = ptx_tensor_spot(m, &insn->operand[0], t);
    ptx_matrix x = ptx_tensor_descriptor(insn, ptx_operand_value(m, &insn->operand[1], t), false);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (!ptx_is(all[i].shape, insn->part[3]) || !ptx_is(all[i].multicast, multicast)) continue;
        ptx_must(d.lane == 0 && insn->operands == 2, "ptx: unknown %s", insn->text);
        /* Of a pair each block copies what is there in its shared memory to its tensor memory: as CUTLASS
         * uses it (include/cute/arch/copy_sm100.hpp, the copies of 2 CTAs). */
        unsigned blocks = ptx_is(insn->part[2], "cta_group::2") ? 2 : 1;
        for (unsigned lane = 0; lane < PTX_TENSOR_LANES * blocks; lane++)
            for (unsigned byte = 0; byte < all[i].bytes; byte += 4) {
                uint32_t word, row = all[i].warps[lane / 32 % 4] * 32 + lane % 32;
                ptx_machine *of = lane < PTX_TENSOR_LANES ? m : ptx_tensor_peer(m, insn);
                ptx_tensor_read_shared(m, of, insn, by, ptx_matrix_place(&x, row, byte, 1), 4, &word);
                ptx_spot at = {lane % PTX_TENSOR_LANES, d.column + byte / 4};
                *ptx_tensor_cell_of(m->tensor, of->tensor, insn, by, at, true) = word;
            }
        return;
    }
    ptx_abort("ptx: unknown %s", insn->text);
}

/* tcgen05.commit.cta_group.mbarrier::arrive::one[.shared::cluster][.multicast::cluster].b64 [mbarrier]{,
 * mask}: at the block's mbarrier, or at those in the same place of the blocks of the mask, which are of the
 * pair. */
static inline void ptx_tensor_commit_to(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, &insn->operand[0], t, &owner);
    uint64_t address = b->address;
    bool casts = insn->operands == 2;
    uint32_t mask =
        casts ? (uint32_t)ptx_operand_value(m, &insn->operand[1], t) & 0xffff : UINT32_C(1) << m->rank;
    ptx_must(ptx_is(insn->part[3], "mbarrier::arrive::one") && owner == m &&
                 insn->parts == (casts ? 7U : insn->parts) &&
                 (casts ? ptx_is(insn->part[5], "multicast::cluster") : insn->operands == 1),
             "ptx: unknown %s", insn->text);
    for (unsigned rank = 0; rank < 16; rank++) {
        if (!(mask >> rank & 1)) continue;
        ptx_must(rank == m->rank || (casts && rank == (m->rank ^ 1)), "ptx: block %u is none of the pair: %s",
                 rank, insn->text);
        ptx_machine *to = rank == m->rank ? m : ptx_tensor_peer(m, insn);
        b = ptx_mbarrier_find(to, address);
        ptx_must(b && b->missing > 0, "ptx: no mbarrier, or more arrivals than it is for: %s", insn->text);
        ptx_tensor_commit(ptx_tensor_of(m), t / 32, ptx_tensor_of(to), (unsigned)(b - to->mbarriers));
        b->missing--;
        ptx_mbarrier_end_phase(to, b);
    }
}

static inline void ptx_tcgen05(ptx_machine *m, const ptx_insn *insn) {
    const char *op = insn->part[1];
    bool of_warps = ptx_is(op, "alloc") || ptx_is(op, "dealloc") || ptx_is(op, "relinquish_alloc_permit");
    bool of_thread = ptx_is(op, "mma") || ptx_is(op, "cp") || ptx_is(op, "commit");
    if (of_warps || of_thread) ptx_tensor_group(m, insn);
    for (unsigned t = 0; t < m->threads && of_thread; t++) {
        if (!ptx_active(m, insn, t)) continue;
        for (unsigned other = t / 32 * 32; other < t; other++)
            ptx_must(!ptx_active(m, insn, other), "ptx: by two threads of a warp: %s", insn->text);
        if (ptx_is(op, "mma")) ptx_tensor_mma(m, insn, t);
        if (ptx_is(op, "cp")) ptx_tensor_cp(m, insn, t);
        if (ptx_is(op, "commit")) ptx_tensor_commit_to(m, insn, t);
    }
    if (of_thread) return;
    bool after = ptx_is(op, "fence::after_thread_sync");
    if (ptx_is(op, "alloc"))
        ptx_tensor_alloc(m, insn);
    else if (ptx_is(op, "dealloc"))
        ptx_tensor_dealloc(m, insn);
    else if (of_warps)
        ptx_one_warp(m, insn), ptx_tensor_of(m)->given_up = true;
    else if (ptx_is(op, "ld") || ptx_is(op, "st"))
        ptx_tensor_move(m, insn);
    else if (ptx_is(op, "wait::ld") || ptx_is(op, "wait::st"))
        ptx_tensor_wait_for(m, insn);
    else if (after || ptx_is(op, "fence::before_thread_sync"))
        for (unsigned w = 0; w < m->threads / 32; w++) {
            if (m->running >> w & 1) ptx_tensor_fence(ptx_tensor_of(m), w, after);
        }
    else
        ptx_abort("ptx: unknown %s", insn->text);
}

#endif
