/* Inside ptx_machine.h: shared memory of the other blocks of a cluster (PTX ISA, "mapa", "barrier.cluster"),
 * each of which is a machine of its own. What one writes to another's memory all threads there see at once:
 * that a barrier orders it is the sanitizer's to check. The memory of a block that has ended is not there any
 * more. */
#ifndef TVM_TESTS_PTX_CLUSTER_H
#define TVM_TESTS_PTX_CLUSTER_H

#include "ptx_arithmetic.h"
#include "ptx_state.h"

static inline uint64_t ptx_mapa(const ptx_machine *m, const ptx_insn *insn, uint64_t address, uint64_t rank) {
    ptx_must(rank < m->peer_count, "ptx: the cluster has no block %u: %s", (unsigned)rank, insn->text);
    address = ptx_near(m, address);
    ptx_must(address >> PTX_FAR_SHIFT == 0, "ptx: mapa of an address that is another block's: %s",
             insn->text);
    return address | ptx_far_bits(m, rank);
}

/* The block that an address is of, and the address there. */
static inline ptx_machine *ptx_owner(ptx_machine *m, const ptx_insn *insn, uint64_t *address) {
    uint64_t rank = *address >> PTX_FAR_SHIFT;
    if (rank == 0) return m;
    ptx_must(rank <= m->peer_count, "ptx: no address of the cluster: %s", insn->text);
    ptx_machine *owner = m->peers[rank - 1];
    ptx_must(!owner->ended, "ptx: the block whose memory it is has ended: %s", insn->text);
    *address &= (UINT64_C(1) << PTX_FAR_SHIFT) - 1;
    return owner;
}

/* Bytes of the memory of a block of the cluster. */
static inline uint8_t *ptx_far(ptx_machine *m, const ptx_insn *insn, const ptx_operand *o, unsigned t,
                               size_t bytes, ptx_machine **owner) {
    uint64_t address = ptx_mask(ptx_get(m, o->reg[0], t) + o->value, 32);
    *owner = ptx_owner(m, insn, &address);
    ptx_must(address % bytes == 0, "ptx: misaligned address in thread %u: %s", t, insn->text);
    ptx_must(address >= PTX_SHARED_BASE && address + bytes <= PTX_SHARED,
             "ptx: thread %u: %llx is outside of shared memory: %s", t, (unsigned long long)address,
             insn->text);
    return (*owner)->shared + address;
}

static inline void ptx_far_wrote(ptx_machine *owner, const uint8_t *at, size_t bytes) {
    size_t first = (size_t)(at - owner->shared);
    for (size_t i = first; i < first + bytes; i++) {
        ptx_must(!ptx_may_be_read(owner, i), "ptx: another block writes what a wgmma may still read");
        owner->writer[i] = 0;
        owner->seen[i] = UINT32_MAX;
        owner->proxy[i] = PTX_VISIBLE;
    }
}

/* ld.shared::cluster and st.shared::cluster. */
static inline void ptx_far_load_store(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    bool load = insn->part[0][0] == 'l';
    const ptx_operand *memory = &insn->operand[load ? 1 : 0], *data = &insn->operand[load ? 0 : 1];
    unsigned bytes = ptx_bits(insn) / 8, count = data->kind == PTX_GROUP ? data->count : 1;
    ptx_machine *owner;
    uint8_t *at = ptx_far(m, insn, memory, t, (size_t)bytes * count, &owner);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = data->kind == PTX_IMMEDIATE ? data->value : 0;
        if (load) memcpy(&value, at + i * bytes, bytes);
        if (load && insn->part[insn->parts - 1][0] == 's') value = (uint64_t)ptx_signed(value, 8 * bytes);
        if (!load && data->kind != PTX_IMMEDIATE) value = ptx_get(m, data->reg[i], t);
        if (load)
            ptx_set(m, data->reg[i], t, value);
        else
            memcpy(at + i * bytes, &value, bytes);
    }
    if (!load) ptx_far_wrote(owner, at, (size_t)bytes * count);
}

/* ---- barrier.cluster ---- */

static inline bool ptx_all_meet(const ptx_machine *m) {
    for (unsigned p = 0; p < m->part_count; p++)
        if (!m->parts[p].meets) return false;
    return true;
}

#endif
