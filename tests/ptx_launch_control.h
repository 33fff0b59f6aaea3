/* Inside ptx_machine.h: blocks whose launch is canceled (PTX ISA, "clusterlaunchcontrol.try_cancel" and
 * "clusterlaunchcontrol.query_cancel"), the last ones of the grid first, where the interpreter takes the next
 * one. The answer is 16 bytes, of which nothing but query_cancel may know: here a word, and its complement.
 */
#ifndef TVM_TESTS_PTX_LAUNCH_CONTROL_H
#define TVM_TESTS_PTX_LAUNCH_CONTROL_H

#include "ptx_bulk.h"
#include "ptx_mbarrier.h"

enum { PTX_ANSWER = 16 /* bytes */ };

/* The answer comes as late as it may. */
static inline void ptx_try_cancel(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, &insn->operand[1], t, &owner);
    uint64_t at = ptx_mask(ptx_get(m, insn->operand[0].reg[0], t) + insn->operand[0].value, 32);
    ptx_must(owner == m && at % PTX_ANSWER == 0 && at >= PTX_SHARED_BASE && at + PTX_ANSWER <= PTX_SHARED &&
                 ptx_is(insn->part[2], "async") && ptx_is(insn->part[3], "shared::cta") &&
                 ptx_is(insn->part[4], "mbarrier::complete_tx::bytes") && ptx_is(insn->part[5], "b128"),
             "ptx: unknown %s", insn->text);
    ptx_must(!m->none_left && !m->asked, "ptx: a request behind one that failed, or has no answer yet: %s",
             insn->text);
    bool any = m->block[0] + 1 < m->grid[0] - m->canceled;
    m->canceled += any;
    m->answer[0] = any ? UINT64_C(1) << 31 | (m->grid[0] - m->canceled) : 0;
    m->answer[1] = ~m->answer[0];
    m->asked = true;
    ck_assert_uint_lt(m->bulk_count, PTX_BULK);
    m->bulk[m->bulk_count++] = (ptx_bulk){
        .address = at, .bytes = PTX_ANSWER, .barrier = b->address, .from = (const uint8_t *)m->answer};
    ptx_engine_claims(m, at, PTX_ANSWER, (uint16_t)(PTX_ENGINE + (b - m->mbarriers)));
}

static inline void ptx_query_cancel(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    uint64_t answer = ptx_get(m, insn->operand[1].reg[0], t);
    bool any = answer >> 31 & 1;
    m->asked = false;
    if (ptx_is(insn->part[2], "is_canceled")) {
        ptx_set(m, insn->operand[0].reg[0], t, any);
        m->none_left = !any;
        return;
    }
    ptx_must(ptx_is(insn->part[2], "get_first_ctaid::x") && any, "ptx: no place, or of no block: %s",
             insn->text);
    ptx_set(m, insn->operand[0].reg[0], t, answer & INT32_MAX);
}

/* clusterlaunchcontrol, and mov.b128 of two registers to one of an answer. */
static inline void ptx_launch_control(ptx_machine *m, const ptx_insn *insn) {
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_active(m, insn, t)) continue;
        if (ptx_is(insn->part[0], "mov")) {
            const ptx_operand *halves = &insn->operand[1];
            uint64_t low = ptx_get(m, halves->reg[0], t), high = ptx_get(m, halves->reg[1], t);
            ptx_must(halves->count == 2 && high == ~low, "ptx: no answer: %s", insn->text);
            ptx_set(m, insn->operand[0].reg[0], t, low);
        } else if (ptx_is(insn->part[1], "try_cancel")) {
            ptx_try_cancel(m, insn, t);
        } else {
            ptx_must(ptx_is(insn->part[1], "query_cancel"), "ptx: unknown %s", insn->text);
            ptx_query_cancel(m, insn, t);
        }
    }
}

#endif
