#include "emit_mbarrier.h"

#include <stdio.h>

#include "analysis.h"
#include "barrier.h"
#include "emit_cluster.h"
#include "emit_tensor.h"
#include "mbarrier_plan.h"
#include "numbers.h"
#include "shared_access.h"
#include "turns_emit.h"

/* Nanoseconds, at most, for which a thread may sleep in one try_wait; where each ask takes a turn, few. */
enum { SUSPEND_HINT = 10000000, SUSPEND_COUNTED = 1000 };

void tvm_mbarriers_begin(emitter *e) {
    e->stores_far = tvm_stores_far(e);
    for (uint32_t i = 0; i < e->k->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        if (insn->op != TVM_OP_ALLOC_BARRIER || e->k->slots[insn->result].named.first) continue;
        tvm_emit_prologue(e, "mov.b32 %s, %s;", e->slots[insn->result].reg,
                          tvm_mbarrier_is_open(e->k, insn) ? "0xffffffff" : "0");
    }
}

/* ---- addresses ---- */

mbarrier tvm_mbarrier_find(emitter *e, const tvm_operand *operand) {
    uint32_t slot = operand->value, step = 1;
    const tvm_shared_layout *layout = tvm_slot_shared_layout(e->k, slot);
    mbarrier b = {.guarded = tvm_shared_guard(e, slot, operand + 1, 0, NULL)};
    for (unsigned d = layout->rank; d-- > 0; step *= layout->shape[d]) {
        uint32_t index = operand[1 + d].value;
        int64_t value;
        if (layout->shape[d] == 1) continue;
        if (tvm_fact_constant(e->k, index, &value)) {
            b.constant += (uint32_t)value * step;
            continue;
        }
        reg at = tvm_emit_expr(e, index);
        if (node_of(e->k, index)->type.bits == 64) {
            reg narrow = tvm_new_r(e);
            tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
            at = narrow;
        }
        if (step > 1) at = word_op(e, "mul.lo.u32", at, step);
        if (b.number.name[0]) {
            reg sum = tvm_new_r(e);
            tvm_emit(e, "add.u32 %s, %s, %s;", sum.name, b.number.name, at.name);
            at = sum;
        }
        b.number = at;
    }
    b.address = tvm_shared_base(e);
    b.plus = e->k->slots[slot].shared_offset + 8 * b.constant;
    if (b.number.name[0]) {
        reg address = tvm_new_r(e);
        tvm_emit(e, "mad.lo.u32 %s, %s, 8, %s;", address.name, b.number.name, b.address.name);
        b.address = address;
        if (b.constant > 0) b.number = word_op(e, "add.u32", b.number, b.constant);
    }
    return b;
}

/* The bit of the mbarrier among those of its slot, as a register or a number. */
static const char *bit_of(emitter *e, const mbarrier *b, char text[16]) {
    if (b->number.name[0]) {
        reg bit = tvm_new_r(e);
        tvm_emit(e, "shl.b32 %s, 1, %s;", bit.name, b->number.name);
        snprintf(text, 16, "%s", bit.name);
    } else {
        snprintf(text, 16, "0x%x", (unsigned)(UINT32_C(1) << b->constant));
    }
    return text;
}

/* ---- instructions ---- */

/* fence MBARRIER_INIT */
static void init_slot(emitter *e, const tvm_insn *insn, reg first) {
    const slot_plan *slot = &e->k->slots[insn->result];
    uint32_t count = tvm_mbarrier_arrivals(e->k, insn) * slot->team_arrivals;
    for (uint32_t i = 0; i < tvm_mbarrier_count(e->k, insn->result); i++)
        tvm_emit(e, "@%s mbarrier.init.shared.b64 [%s+%u], %u;", first.name, tvm_shared_base(e).name,
                 slot->shared_offset + 8 * i, count);
    for (uint32_t i = 0; slot->ledger && i < tvm_mbarrier_count(e->k, insn->result); i++)
        tvm_emit(e, "@%s st.shared.b32 [%s+%u], 0;", first.name, tvm_shared_base(e).name,
                 slot->ledger + 4 * i);
}

static bool makes_mbarriers(const emitter *e, const tvm_insn *insn) {
    return insn->op == TVM_OP_ALLOC_BARRIER && !e->k->slots[insn->result].named.first;
}

/* The first of them makes those of the whole kernel. */
static bool is_first(const emitter *e, const tvm_insn *insn) {
    const tvm_insn *at = e->k->kernel->insns;
    while (!makes_mbarriers(e, at)) at++;
    return at == insn;
}

/* fence MBARRIER_INIT: the fences are for other blocks of the cluster, and for copies that complete on an
 * mbarrier. */
tvm_status tvm_emit_ALLOC_BARRIER(emitter *e, const tvm_insn *insn) {
    const named_barriers *named = &e->k->slots[insn->result].named;
    char why[80];
    snprintf(why, sizeof why, "bar.sync: %s", named->refused ? named->refused : "");
    if (named->first || !is_first(e, insn)) {
        tvm_explain(e, named->first ? "bar" : "made before", 0, 0, -1, named->first ? "" : why);
        return TVM_OK;
    }
    reg first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", tvm_thread_id(e).name);
    for (uint32_t i = 0; i < e->k->kernel->insn_count; i++)
        if (makes_mbarriers(e, &e->k->kernel->insns[i])) init_slot(e, &e->k->kernel->insns[i], first);
    if (tvm_target_has(e->k->target, TVM_HAS_CLUSTERS))
        tvm_emit(e, "@%s fence.mbarrier_init.release.cluster;", first.name);
    if (tvm_target_has(e->k->target, TVM_HAS_BULK))
        tvm_emit(e, "@%s fence.proxy.async.shared::cta;", first.name);
    tvm_emit_thread_barrier(e);
    e->has_barriers = true;
    tvm_explain(e, "mbarrier.init, bar.sync", 64, tvm_mbarrier_count(e->k, insn->result), -1, why);
    return TVM_OK;
}

static reg far_address(emitter *e, const mbarrier *b, uint32_t rank) {
    reg near = tvm_new_r(e);
    tvm_emit(e, "add.u32 %s, %s, %u;", near.name, b->address.name, b->plus);
    return tvm_emit_cluster_address(e, near, rank);
}

/* fence NAMED_BARRIER: at the barriers of bar; false: there are none for the slot. */
static bool meet(emitter *e, const tvm_operand *operands, const char *what) {
    const named_barriers *named = &e->k->slots[operands->value].named;
    if (!named->first) return false;
    mbarrier b = tvm_mbarrier_find(e, operands);
    tvm_emit_proxy_fence(e);
    if (b.number.name[0])
        tvm_emit(e, "bar.%s %s, %u;", what, word_op(e, "add.u32", b.number, named->first).name,
                 (unsigned)named->threads);
    else
        tvm_emit(e, "bar.%s %u, %u;", what, (unsigned)(named->first + b.constant), (unsigned)named->threads);
    char name[32];
    snprintf(name, sizeof name, "bar.%s%s", what, b.guarded ? " guarded" : "");
    tvm_explain(e, name, 0, 1, -1, "");
    return true;
}

/* Does a block read what another one of its cluster writes: shared memory of another block, or a global
 * tensor that the kernel writes? put-global and take-global see to it themselves. */
static bool tells_cluster(const emitter *e) {
    if (e->stores_far) return true;
    for (uint32_t i = 0; i < e->k->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        if (insn->op == TVM_OP_LOAD_CLUSTER) return true;
        if (!(tvm_op(insn->op)->effects & TVM_EFFECT_READ_GLOBAL) || insn->op == TVM_OP_TAKE_GLOBAL) continue;
        const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
        for (uint32_t o = 0; o < insn->count; o++)
            if (operands[o].kind == TVM_OPERAND_SLOT && tvm_writes_global(e->k->kernel, operands[o].value))
                return true;
    }
    return false;
}

/* fence FAR_ARRIVAL, FAR_ARRIVAL_OF_READS: an arrival at another block's mbarrier. Where it tells of nothing
 * but tiles that have been read, it needs no fence: one for the cluster waits for all of the thread's writes
 * to global memory. */
static void arrive_far(emitter *e, const char *address, const char *speaks, uint32_t count) {
    tvm_emit(e, "@%s mbarrier.arrive%s.shared::cluster.b64 _, [%s], %u;", speaks,
             tells_cluster(e) ? ".release.cluster" : "", address, count);
}

/* Counts the arrivals, for who drains the mbarrier in the end (emit_drain.c). */
static void count_arrival(emitter *e, const tvm_operand *operands, const mbarrier *b, const tvm_operand *rank,
                          const char *speaks, uint32_t count) {
    reg address = tvm_shared_base(e);
    uint32_t plus = e->k->slots[operands->value].ledger + 4 * b->constant;
    bool is_far = rank->kind != TVM_OPERAND_NONE && tvm_cluster_blocks(e->k->kernel) > 1;
    if (!e->k->slots[operands->value].ledger) return;
    if (b->number.name[0]) {
        reg own = tvm_new_r(e);
        tvm_emit(e, "mad.lo.u32 %s, %s, 4, %s;", own.name, b->number.name, address.name);
        address = own;
        plus -= 4 * b->constant; /* which is part of the number */
    }
    if (is_far) {
        reg near = tvm_new_r(e);
        tvm_emit(e, "add.u32 %s, %s, %u;", near.name, address.name, plus);
        address = tvm_emit_cluster_address(e, near, rank->value);
        plus = 0;
    }
    tvm_emit(e, "@%s red.relaxed.%s.add.u32 [%s+%u], %u;", speaks,
             is_far ? "cluster.shared::cluster" : "cta.shared", address.name, plus, count);
}

/* fence BLOCK_MBARRIER. rank: of the cluster's block whose mbarrier it is; of kind NONE: this one's. */
static mbarrier arrive(emitter *e, const tvm_operand *operands, const tvm_operand *rank) {
    uint32_t count = e->k->slots[operands->value].team_arrivals / e->team.warps;
    bool is_far = rank->kind != TVM_OPERAND_NONE && tvm_cluster_blocks(e->k->kernel) > 1;
    mbarrier b = tvm_mbarrier_find(e, operands);
    if (rank->kind != TVM_OPERAND_NONE && tvm_emit_cluster_guard(e, rank->value)) b.guarded = true;
    reg lane = tvm_pure(e, 'r', "and.b32 $, %s, 31;", tvm_thread_id(e).name);
    reg speaks = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", lane.name);
    tvm_emit_proxy_fence(e);
    count_arrival(e, operands, &b, rank, speaks.name, count);
    if (is_far) b.address = far_address(e, &b, rank->value);
    tvm_emit(e, "bar.warp.sync 0xffffffff;");
    if (is_far)
        arrive_far(e, b.address.name, speaks.name, count);
    else if (tvm_target_has(e->k->target, TVM_HAS_ARRIVE_COUNT) && count > 1)
        tvm_emit(e, "@%s mbarrier.arrive.shared.b64 _, [%s+%u], %u;", speaks.name, b.address.name, b.plus,
                 count);
    else
        for (uint32_t i = 0; i < count; i++)
            tvm_emit(e, "@%s mbarrier.arrive.shared.b64 _, [%s+%u];", speaks.name, b.address.name, b.plus);
    return b;
}

tvm_status tvm_emit_ARRIVE_BARRIER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    if (meet(e, operands, "arrive")) return TVM_OK;
    bool guarded = arrive(e, operands, &operands[insn->count - 1]).guarded;
    tvm_explain(e, guarded ? "mbarrier.arrive guarded" : "mbarrier.arrive", 64, 1, -1, "");
    return TVM_OK;
}

/* One arrival, as that of a team, by the tensor core. The team meets before: it lets what others have to wait
 * for go on, and a warp that has not come to a wait by then could miss the phase, and the next one. So do the
 * teams of both blocks of a pair: the even one's commit lets the odd block go on, too. */
/* fence TENSOR_COMMIT, TEAM_BARRIER */
tvm_status tvm_emit_COMMIT_TENSOR(emitter *e, const tvm_insn *insn) {
    static const tvm_operand here = {TVM_OPERAND_NONE, 0};
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    uint32_t count = e->k->slots[operands->value].team_arrivals, behind = tvm_new_label(e);
    mbarrier b = tvm_mbarrier_find(e, operands);
    if (e->team.warps > 1) tvm_emit_thread_barrier(e);
    reg leader = tvm_emit_elect(e, behind);
    count_arrival(e, operands, &b, &here, leader.name, count);
    if (e->k->tensor.pairs) tvm_emit_pair_meets(e, leader, behind);
    for (uint32_t i = 0; i < count; i++) tvm_emit_tensor_commit(e, leader, b.address, b.plus);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    tvm_explain(e, b.guarded ? "tcgen05.commit guarded" : "tcgen05.commit", 64, count, -1, "");
    return TVM_OK;
}

/* May who waits at the mbarriers learn there of what another block wrote? An acquire of the cluster is dear:
 * it empties the L1 cache. */
static bool hears_cluster(const emitter *e, uint32_t slot) {
    if (tvm_cluster_blocks(e->k->kernel) == 1) return false;
    for (uint32_t i = 0; i < e->k->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
        bool is_far = insn->op == TVM_OP_COPY_CLUSTER || (insn->op == TVM_OP_ARRIVE_BARRIER &&
                                                          operands[insn->count - 1].kind != TVM_OPERAND_NONE);
        for (uint32_t o = 0; is_far && o < insn->count; o++)
            if (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == slot) return tells_cluster(e);
    }
    return false;
}

/* fence BLOCK_MBARRIER, FAR_ARRIVAL, BULK_LANDED, COPY_ARRIVAL: all threads ask: who sees the end of a phase
 * sees what came before its arrivals, and what copies brought.
 */
static void wait(emitter *e, const tvm_operand *operands, mbarrier b) {
    const char *parities = e->slots[operands->value].reg;
    bool sleeps = tvm_target_has(e->k->target, TVM_HAS_TRY_WAIT);
    const char *scope = hears_cluster(e, operands->value) ? ".acquire.cluster.shared::cta" : ".shared";
    char text[16];
    const char *bit = bit_of(e, &b, text);
    reg masked = tvm_new_r(e), parity = tvm_new_r(e), done = tvm_new_pred(e), odd = tvm_new_pred(e);
    uint32_t again = tvm_new_label(e);
    tvm_emit(e, "and.b32 %s, %s, %s;", masked.name, parities, bit);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", odd.name, masked.name);
    tvm_emit(e, "selp.b32 %s, 1, 0, %s;", parity.name, odd.name);
    tvm_text_add(&e->body, "$L%u:\n", again);
    if (sleeps)
        tvm_emit(e, "mbarrier.try_wait.parity%s.b64 %s, [%s+%u], %s, %u;", scope, done.name, b.address.name,
                 b.plus, parity.name, e->k->counts_turns ? SUSPEND_COUNTED : SUSPEND_HINT);
    else
        tvm_emit(e, "mbarrier.test_wait.parity.shared.b64 %s, [%s+%u], %s;", done.name, b.address.name,
                 b.plus, parity.name);
    tvm_emit_ask_again(e, done, false, again);
    tvm_emit(e, "xor.b32 %s, %s, %s;", parities, parities, bit);
    tvm_emit_bulk_arrived(e);
}

tvm_status tvm_emit_WAIT_BARRIER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    wait(e, operands, tvm_mbarrier_find(e, operands));
    tvm_explain(e,
                tvm_target_has(e->k->target, TVM_HAS_TRY_WAIT) ? "mbarrier.try_wait" : "mbarrier.test_wait",
                64, 1, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_SYNC_BARRIER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    if (meet(e, operands, "sync")) return TVM_OK;
    static const tvm_operand here = {TVM_OPERAND_NONE, 0};
    wait(e, operands, arrive(e, operands, &here));
    tvm_explain(e,
                tvm_target_has(e->k->target, TVM_HAS_TRY_WAIT) ? "mbarrier.arrive, try_wait"
                                                               : "mbarrier.arrive, test_wait",
                64, 1, -1, "");
    return TVM_OK;
}
