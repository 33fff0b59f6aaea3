/* Inside ptx_machine.h: mbarriers (PTX ISA, "mbarrier"), in shared memory, of which nothing but these
 * instructions may know. Who waits for a phase sees what the arrivals that ended it saw. */
#ifndef TVM_TESTS_PTX_MBARRIER_H
#define TVM_TESTS_PTX_MBARRIER_H

#include "ptx_bulk.h"
#include "ptx_state.h"

static inline ptx_mbarrier *ptx_mbarrier_find(ptx_machine *m, uint64_t address) {
    for (unsigned i = 0; i < m->mbarrier_count; i++)
        if (m->mbarriers[i].address == address) return &m->mbarriers[i];
    return NULL;
}

/* *m becomes the block whose mbarrier it is. */
static inline uint64_t ptx_mbarrier_address(ptx_machine **m, const ptx_insn *insn, const ptx_operand *o,
                                            unsigned t) {
    uint64_t address = ptx_mask(ptx_get(*m, o->reg[0], t) + o->value, 32);
    *m = ptx_owner(*m, insn, &address);
    ptx_must(address % 8 == 0 && address >= PTX_SHARED_BASE && address + 8 <= PTX_SHARED,
             "ptx: no place for an mbarrier: %s", insn->text);
    return address;
}

/* *owner: the block whose mbarrier it is. */
static inline ptx_mbarrier *ptx_mbarrier_of(ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                            unsigned t, ptx_machine **owner) {
    *owner = m;
    uint64_t address = ptx_mbarrier_address(owner, insn, o, t);
    ptx_mbarrier *b = ptx_mbarrier_find(*owner, address);
    ptx_must(b != NULL, "ptx: there is no mbarrier: %s", insn->text);
    ptx_must(*owner != m || b->maker == t || b->seen >> (t / 32) & 1,
             "ptx: no barrier comes after mbarrier.init: %s", insn->text);
    return b;
}

static inline ptx_mbarrier *ptx_mbarrier_made(ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                              unsigned t) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, o, t, &owner);
    ptx_must(owner == m, "ptx: another block's mbarrier: %s", insn->text);
    return b;
}

static inline void ptx_mbarrier_init(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_machine *owner = m;
    uint64_t address = ptx_mbarrier_address(&owner, insn, &insn->operand[0], t);
    ptx_must(owner == m && ptx_mbarrier_find(m, address) == NULL, "ptx: an mbarrier is made twice: %s",
             insn->text);
    ck_assert_uint_lt(m->mbarrier_count, PTX_MBARRIERS);
    uint32_t count = (uint32_t)ptx_operand_value(m, &insn->operand[1], t);
    m->mbarriers[m->mbarrier_count++] =
        (ptx_mbarrier){.address = address, .maker = t, .expected = count, .missing = count};
}

/* The memory may be anything's from then on. */
static inline void ptx_mbarrier_invalidate(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_mbarrier *b = ptx_mbarrier_made(m, insn, &insn->operand[0], t);
    ptx_must(!m->tensor && !m->bulk_count, "ptx: an mbarrier ends before its copies: %s", insn->text);
    *b = m->mbarriers[--m->mbarrier_count];
}

/* Not before the copies that are announced have been started, by other blocks of the cluster, too. */
static inline void ptx_mbarrier_end_phase(ptx_machine *m, ptx_mbarrier *b) {
    if (b->missing > 0 || (m->peer_count && ptx_bulk_bytes(m, b) < b->bytes)) return;
    ptx_bulk_come(m, b);
    ptx_must(b->bytes == 0, "ptx: a phase whose copies are not the %lld bytes more that were announced",
             (long long)b->bytes);
    b->phase++;
    b->missing = b->expected;
    for (unsigned w = 0; w < 32; w++)
        if (b->arrived[w]) b->ended[w] = b->arrived[w];
    memset(b->arrived, 0, sizeof b->arrived);
    if (m->tensor) ptx_tensor_end_phase(m->tensor, (unsigned)(b - m->mbarriers));
    m->events++;
}

static inline void ptx_mbarrier_arrive(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, &insn->operand[1], t, &owner);
    uint32_t count = insn->operands > 2 ? (uint32_t)ptx_operand_value(m, &insn->operand[2], t) : 1;
    ptx_must(count <= b->missing, "ptx: more arrivals than an mbarrier is for: %s", insn->text);
    b->missing -= count;
    if (owner == m) b->arrived[t / 32] = ++m->clock;
    if (owner == m && m->tensor) ptx_tensor_tell(m->tensor, t / 32, &m->tensor->arrived[b - m->mbarriers]);
    if (owner->rank == (m->rank ^ 1) && owner->tensor && m->tensor) {
        ptx_ends told = {{0}};
        ptx_tensor_tell(m->tensor, t / 32, &told);
        ptx_ends_merge_far(&owner->tensor->arrived[b - owner->mbarriers], &told);
    }
    ptx_mbarrier_end_phase(owner, b);
}

/* What the warps saw that arrived, and what the copies brought, the warp of t sees. It looks at each byte of
 * shared memory, of which there is mostly nothing new. */
static inline void ptx_mbarrier_acquire(ptx_machine *m, const ptx_mbarrier *b, unsigned t) {
    const uint32_t own = UINT32_C(1) << (t / 32);
    const uint16_t *const writer = m->writer, engine = (uint16_t)(PTX_ENGINE + (b - m->mbarriers));
    uint32_t *const seen = m->seen, all = 0;
    uint8_t *const proxy = m->proxy;
    const size_t end = m->written_ever;
    unsigned arrived[32], count = 0;
    if (m->tensor) ptx_ends_merge(&m->tensor->learned[t / 32], &m->tensor->ended[b - m->mbarriers]);
    for (unsigned w = 0; w < 32; w++)
        if (b->ended[w]) arrived[count++] = w, all |= UINT32_C(1) << w;
    for (size_t i = 0; i < end; i++) {
        if (writer[i] == engine) seen[i] |= own;
        if (seen[i] & own && proxy[i] != PTX_FENCED) continue;
        if (!((ptx_writing_warp(m, i) | seen[i]) & all)) continue;
        for (unsigned n = 0; n < count; n++) {
            unsigned w = arrived[n];
            bool wrote = writer[i] && (writer[i] - 1U) / 32 == w;
            if (b->ended[w] < m->written_at[i] || !(wrote || seen[i] >> w & 1)) continue;
            seen[i] |= own;
            if (proxy[i] == PTX_FENCED) proxy[i] = PTX_VISIBLE;
        }
    }
}

/* Has the phase of this parity ended? */
static inline bool ptx_mbarrier_test(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const ptx_mbarrier *b = ptx_mbarrier_made(m, insn, &insn->operand[1], t);
    uint64_t parity = ptx_operand_value(m, &insn->operand[2], t);
    ptx_must(parity <= 1, "ptx: no parity: %s", insn->text);
    return (b->phase & 1) != parity;
}

/* True: no thread of the part has found the end of its phase. */
static inline bool ptx_mbarrier_step(ptx_machine *m, const ptx_insn *insn) {
    const char *what = insn->part[1];
    bool waits = ptx_is(what, "try_wait") || ptx_is(what, "test_wait"), found = false;
    bool makes = ptx_is(what, "init"), expects = ptx_is(what, "expect_tx");
    ptx_must(!waits || ptx_is(insn->part[2], "parity"), "ptx: unknown %s", insn->text);
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_active(m, insn, t)) continue;
        if (makes) {
            ptx_mbarrier_init(m, insn, t);
        } else if (ptx_is(what, "inval")) {
            ptx_mbarrier_invalidate(m, insn, t);
        } else if (waits) {
            bool ended = ptx_mbarrier_test(m, insn, t);
            ptx_set(m, insn->operand[0].reg[0], t, ended);
            if (ended && t % 32 == 0)
                ptx_mbarrier_acquire(m, ptx_mbarrier_made(m, insn, &insn->operand[1], t), t);
            found = found || ended;
        } else if (expects) {
            ptx_machine *owner;
            ptx_bulk_expect(m, insn, ptx_mbarrier_of(m, insn, &insn->operand[0], t, &owner), t);
        } else {
            ptx_must(ptx_is(what, "arrive"), "ptx: unknown %s", insn->text);
            ptx_mbarrier_arrive(m, insn, t);
        }
    }
    return waits && !found;
}

/* The box goes to the same place of each block of the mask, and completes on its mbarrier at the same place.
 */
static inline void ptx_multicast(ptx_machine *m, const ptx_insn *insn, unsigned t, uint64_t barrier) {
    uint64_t mask = ptx_operand_value(m, &insn->operand[3], t);
    ptx_must(mask && mask >> m->peer_count == 0, "ptx: no blocks of the cluster: %s", insn->text);
    for (unsigned r = 0; r < m->peer_count; r++) {
        if (!(mask >> r & 1)) continue;
        ptx_mbarrier *b = ptx_mbarrier_find(m->peers[r], barrier);
        ptx_must(b && !m->peers[r]->ended, "ptx: block %u has no such mbarrier: %s", r, insn->text);
        ptx_bulk_start(m, insn, t, b, m->peers[r]);
        ptx_mbarrier_end_phase(m->peers[r], b);
    }
}

/* cp.async.bulk.tensor; and cp.async.mbarrier.arrive, which adds an arrival that has come at once. */
static inline void ptx_mbarrier_copy(ptx_machine *m, const ptx_insn *insn) {
    unsigned is_bulk = ptx_bulk_tensor(insn);
    bool is_move = ptx_is(insn->part[2], "bulk") && !is_bulk;
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_active(m, insn, t)) continue;
        if (is_bulk && ptx_is(insn->part[is_bulk + 2], "global")) {
            ptx_bulk_store_start(m, insn, t);
            continue;
        }
        ptx_machine *owner;
        ptx_mbarrier *b = ptx_mbarrier_of(m, insn, &insn->operand[is_move ? 3 : is_bulk ? 2 : 0], t, &owner);
        if (is_move)
            ptx_bulk_move(m, insn, t, b, owner), ptx_mbarrier_end_phase(owner, b);
        else if (is_bulk && strstr(insn->text, ".multicast"))
            ptx_multicast(m, insn, t, b->address);
        else if (is_bulk)
            ptx_bulk_start(m, insn, t, b, m);
        else
            b->arrived[t / 32] = ++m->clock;
    }
}

#endif
