/* Inside ptx_machine.h: the orders that a GPU is free to choose. With ptx_machine.order each warp goes on by
 * itself, for so many instructions as a generator says that begins with that number, and a copy of cp.async
 * comes at any time until its thread has waited for it. What a program's barriers order is the same in every
 * order; a race on shared memory makes one of many orders end the test, or give another result. */
#ifndef TVM_TESTS_PTX_ORDER_H
#define TVM_TESTS_PTX_ORDER_H

#include "ptx_state.h"

enum { PTX_SLICE = 48 /* instructions that a warp does in a row, at most */ };

/* splitmix64, below n. */
static inline unsigned ptx_draw(ptx_machine *m, unsigned n) {
    uint64_t z = m->order += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ z >> 31) % n);
}

/* Each warp is a part. */
static inline void ptx_part_warps(ptx_machine *m) {
    m->part_count = m->threads / 32;
    for (unsigned w = 0; w < m->part_count; w++)
        m->parts[w] = (ptx_part){.warps = UINT32_C(1) << w, .asked = UINT64_MAX};
}

/* Do the warps meet again before the instruction: those of warpgroups, or all that vote at a barrier? */
static inline bool ptx_must_gather(const ptx_machine *m, const ptx_insn *insn) {
    if (!m->order || !ptx_is(insn->part[0], "bar") || !ptx_is(insn->part[1], "red")) return false;
    uint64_t threads = 0, count = insn->operands > 3 ? insn->operand[2].value : m->threads;
    for (uint32_t left = m->running; left; left &= left - 1) threads += 32;
    return threads < count;
}

/* ---- cp.async ---- */

static inline void ptx_async_start(ptx_machine *m, unsigned t, uint8_t *to, const uint8_t *from, size_t bytes,
                                   size_t given) {
    if (m->async_count == m->async_capacity) {
        m->async_capacity = m->async_capacity ? 2 * m->async_capacity : 256;
        m->asyncs = realloc(m->asyncs, m->async_capacity * sizeof *m->asyncs);
        ck_assert_ptr_nonnull(m->asyncs);
    }
    m->asyncs[m->async_count++] = (ptx_async){
        .thread = t, .group = m->async_groups[t], .to = to, .from = from, .bytes = bytes, .given = given};
    memset(to, 0xa5, bytes);
}

static inline void ptx_async_come(ptx_machine *m, unsigned i) {
    const ptx_async copy = m->asyncs[i];
    memset(copy.to, 0, copy.bytes);
    if (copy.given) memcpy(copy.to, copy.from, copy.given);
    memmove(&m->asyncs[i], &m->asyncs[i + 1], (--m->async_count - i) * sizeof copy);
}

/* All but the latest groups of the thread. */
static inline void ptx_async_wait(ptx_machine *m, unsigned t, uint64_t pending) {
    for (unsigned i = 0; i < m->async_count;)
        if (m->asyncs[i].thread == t && m->asyncs[i].group + pending < m->async_groups[t])
            ptx_async_come(m, i);
        else
            i++;
}

static inline void ptx_cp_async(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    size_t bytes = insn->operand[2].value, given = bytes;
    unsigned sizes = insn->operands - (strstr(insn->text, ".L2::cache_hint") != NULL);
    if (sizes > 3) given = ptx_operand_value(m, &insn->operand[3], t);
    ptx_must(given <= bytes, "ptx: %s", insn->text);
    uint8_t *to = ptx_address(m, insn, &insn->operand[0], true, t, bytes);
    ptx_wrote(m, to, t, bytes);
    memset(to, 0, bytes);
    const uint8_t *from = given ? ptx_address(m, insn, &insn->operand[1], false, t, bytes) : NULL;
    if (given && !ptx_allowed(m, insn, from, given, t)) return;
    if (m->order)
        ptx_async_start(m, t, to, from, bytes, given);
    else if (given)
        memcpy(to, from, given);
}

/* cp.async.commit_group, .wait_group, .wait_all; cp.async.mbarrier.arrive, which here waits for the copies.
 */
static inline void ptx_async_step(ptx_machine *m, const ptx_insn *insn) {
    const char *what = insn->part[2];
    bool commits = ptx_is(what, "commit_group"), waits = ptx_is(what, "wait_group");
    bool all = ptx_is(what, "wait_all") || ptx_is(what, "mbarrier");
    for (unsigned t = 0; t < m->threads && (commits || waits || all); t++) {
        if (!ptx_active(m, insn, t)) continue;
        m->async_groups[t] += !waits;
        if (!commits) ptx_async_wait(m, t, waits ? ptx_operand_value(m, &insn->operand[0], t) : 0);
    }
}

/* ---- turns ---- */

/* How many slices a block of a cluster does before another one's turn comes: few, or so many that it waits.
 */
static inline unsigned ptx_slices(ptx_machine *m) {
    return m->order && m->peer_count > 1 ? 1U << ptx_draw(m, 12) : UINT_MAX;
}

/* The part that goes on; part_count: none can. */
static inline unsigned ptx_drawn_part(ptx_machine *m,
                                      bool (*can)(const ptx_machine *m, const ptx_part *part)) {
    unsigned able = 0;
    for (unsigned p = 0; p < m->part_count; p++) able += can(m, &m->parts[p]);
    if (able == 0) return m->part_count;
    if (m->async_count && ptx_draw(m, 4) == 0) ptx_async_come(m, ptx_draw(m, m->async_count));
    for (unsigned p = 0, left = ptx_draw(m, able);; p++)
        if (can(m, &m->parts[p]) && left-- == 0) return p;
}

#endif
