/* Tensor memory but for its products: PTX ISA, "Tensor Memory Allocation and Management Instructions",
 * "Tensor Memory and Register Load/Store Instructions". */
#include "emit_tensor.h"

#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "barrier.h"
#include "emit_cluster.h"
#include "frame.h"
#include "shared_access.h"
#include "tensor_memory.h"
#include "tensor_plan.h"
#include "turns_emit.h"

/* fence TENSOR_THREADS */
void tvm_emit_tensor_fence(emitter *e, const tvm_insn *insn, unsigned fence) {
    if (!e->k->tensor.used || !(e->k->tensor.fences[insn - e->k->kernel->insns] & fence)) return;
    tvm_emit(e, "tcgen05.fence::%s_thread_sync;", fence == TENSOR_FENCE_BEFORE ? "before" : "after");
}

/* ---- pairs of blocks: PTX ISA, "CTA Pair" and "Issue Granularity" ---- */

unsigned tvm_tensor_group(const emitter *e) {
    return e->k->tensor.pairs ? 2 : 1;
}

void tvm_emit_even_block(emitter *e, uint32_t label) {
    if (!e->k->tensor.pairs) return;
    reg rank = tvm_pure(e, 'r', "mov.u32 $, %%cluster_ctarank;");
    reg last = tvm_pure(e, 'r', "and.b32 $, %s, 1;", rank.name);
    tvm_emit(e, "@%s bra $L%u;", tvm_pure(e, 'p', "setp.ne.u32 $, %s, 0;", last.name).name, label);
}

/* fence TENSOR_COMMIT */
void tvm_emit_tensor_commit(emitter *e, reg leader, reg mbarrier, uint32_t plus) {
    if (!e->k->tensor.pairs) {
        tvm_emit(e, "@%s tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%s+%u];",
                 leader.name, mbarrier.name, plus);
        return;
    }
    reg rank = tvm_new_r(e), even = tvm_new_r(e), mask = tvm_new_r(e), half = tvm_new_h(e);
    tvm_emit(e, "mov.u32 %s, %%cluster_ctarank;", rank.name);
    tvm_emit(e, "and.b32 %s, %s, 14;", even.name, rank.name);
    tvm_emit(e, "shl.b32 %s, 3, %s;", mask.name, even.name);
    tvm_emit(e, "cvt.u16.u32 %s, %s;", half.name, mask.name);
    tvm_emit(e,
             "@%s tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
             "[%s+%u], %s;",
             leader.name, mbarrier.name, plus, half.name);
}

/* fence BLOCK_MBARRIER, FAR_ARRIVAL_OF_READS. The even block answers once it has heard of the odd one, which
 * waits for the answer: so none of the two mbarriers ends a phase more than its block has waited for. */
void tvm_emit_pair_meets(emitter *e, reg leader, uint32_t behind) {
    reg at = tvm_new_r(e), rank = tvm_new_r(e), other = tvm_new_r(e), far = tvm_new_r(e), last = tvm_new_r(e);
    reg odd = tvm_new_pred(e), tells = tvm_new_pred(e), done = tvm_new_pred(e);
    uint32_t again = tvm_new_label(e), meets = e->k->tensor.shared + TENSOR_MEETS;
    tvm_emit(e, "mov.u32 %s, %%tid.x;", at.name);
    tvm_emit(e, "shr.u32 %s, %s, 5;", at.name, at.name);
    tvm_emit(e, "mad.lo.u32 %s, %s, 8, %s;", at.name, at.name, tvm_shared_base(e).name);
    tvm_emit(e, "add.u32 %s, %s, %u;", at.name, at.name, meets);
    tvm_emit(e, "mov.u32 %s, %%cluster_ctarank;", rank.name);
    tvm_emit(e, "xor.b32 %s, %s, 1;", other.name, rank.name);
    tvm_emit(e, "mapa.shared::cluster.u32 %s, %s, %s;", far.name, at.name, other.name);
    tvm_emit(e, "and.b32 %s, %s, 1;", last.name, rank.name);
    tvm_emit(e, "setp.ne.u32 %s, %s, 0;", odd.name, last.name);
    tvm_emit(e, "and.pred %s, %s, %s;", tells.name, odd.name, leader.name);
    tvm_emit(e, "@%s mbarrier.arrive.shared::cluster.b64 _, [%s];", tells.name, far.name);
    tvm_text_add(&e->body, "$L%u:\n", again);
    tvm_emit(e, "mbarrier.try_wait.parity.shared.b64 %s, [%s], %s;", done.name, at.name, e->pair_parity.name);
    tvm_emit_ask_again(e, done, false, again);
    tvm_emit(e, "xor.b32 %s, %s, 1;", e->pair_parity.name, e->pair_parity.name);
    tvm_emit(e, "@%s bra $L%u;", odd.name, behind);
    tvm_emit(e, "@%s mbarrier.arrive.shared::cluster.b64 _, [%s];", leader.name, far.name);
}

/* ---- allocation ---- */

/* fence TENSOR_THREADS, TEAM_BARRIER, CLUSTER_BARRIER: of the block; of pairs, of the cluster. */
static void meet(emitter *e) {
    tvm_emit(e, "tcgen05.fence::before_thread_sync;");
    if (e->k->tensor.pairs)
        tvm_emit_cluster_meet(e);
    else
        tvm_emit_thread_barrier(e);
    tvm_emit(e, "tcgen05.fence::after_thread_sync;");
}

static uint32_t workers(const emitter *e) {
    uint32_t count = 0;
    for (uint32_t set = e->k->tensor.workers; set; set &= set - 1) count++;
    return count;
}

/* fence MBARRIER_INIT: by the thread that made them, as alloc-barrier does. */
static void make_mbarriers(emitter *e) {
    const tensor_memory *tensor = &e->k->tensor;
    reg first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", tvm_thread_id(e).name);
    if (!workers(e) && !tensor->pairs) return;
    tvm_emit(e, "@%s mbarrier.init.shared.b64 [%s+%u], %u;", first.name, tvm_shared_base(e).name,
             tensor->shared + TENSOR_MBARRIER, workers(e) ? workers(e) : 1);
    for (uint32_t w = 0; tensor->pairs && w < e->k->kernel->warps; w++)
        if (tensor->committers >> w & 1)
            tvm_emit(e, "@%s mbarrier.init.shared.b64 [%s+%u], 1;", first.name, tvm_shared_base(e).name,
                     tensor->shared + TENSOR_MEETS + 8 * w);
    tvm_emit(e, "@%s fence.mbarrier_init.release.cluster;", first.name);
    tvm_emit(e, "@%s fence.proxy.async.shared::cta;", first.name);
}

/* fence TENSOR_LIFE: the first of them allocates the columns of the whole kernel, by the block's first warp.
 */
tvm_status tvm_emit_ALLOC_TENSOR(emitter *e, const tvm_insn *insn) {
    const tensor_memory *tensor = &e->k->tensor;
    if (e->tensor_base.name[0]) {
        if (e->k->slots[insn->result].reuses) meet(e);
        tvm_explain(e, "allocated before", 0, 0, -1, "");
        return TVM_OK;
    }
    if (tensor->pairs) tvm_emit_cluster_meet(e); /* the other block runs */
    uint32_t behind = tvm_new_label(e);
    reg warp = tvm_pure(e, 'p', "setp.lt.u32 $, %s, 32;", tvm_thread_id(e).name);
    tvm_emit(e, "@!%s bra $L%u;", warp.name, behind);
    tvm_emit(e, "tcgen05.alloc.cta_group::%u.sync.aligned.shared::cta.b32 [%s+%u], %u;", tvm_tensor_group(e),
             tvm_shared_base(e).name, tensor->shared + TENSOR_ADDRESS, tensor->columns);
    tvm_emit(e, "tcgen05.relinquish_alloc_permit.cta_group::%u.sync.aligned;", tvm_tensor_group(e));
    make_mbarriers(e);
    tvm_text_add(&e->body, "$L%u:\n", behind);
    meet(e);
    if (tensor->pairs) {
        e->pair_parity = tvm_new_r(e);
        tvm_emit(e, "mov.b32 %s, 0;", e->pair_parity.name);
    }
    e->tensor_base = tvm_new_r(e);
    tvm_emit(e, "ld.shared.b32 %s, [%s+%u];", e->tensor_base.name, tvm_shared_base(e).name,
             tensor->shared + TENSOR_ADDRESS);
    tvm_explain(e, "tcgen05.alloc, bar.sync", 0, 1, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_FREE_TENSOR(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_explain(e, "nothing", 0, 0, -1, "");
    return TVM_OK;
}

/* fence TENSOR_COMMIT: each team's thread that may have started work arrives once that is done; the first
 * warp waits for them all, and for the others to come here. */
static void wait_for_work(emitter *e, reg thread) {
    reg number = tvm_new_r(e), bit = tvm_new_r(e), works = tvm_new_pred(e), leader = tvm_new_pred(e);
    uint32_t behind = tvm_new_label(e);
    tvm_emit(e, "shr.u32 %s, %s, 5;", number.name, thread.name);
    tvm_emit(e, "shr.u32 %s, %u, %s;", bit.name, (unsigned)e->k->tensor.workers, number.name);
    tvm_emit(e, "and.b32 %s, %s, 1;", bit.name, bit.name);
    tvm_emit(e, "setp.eq.u32 %s, %s, 0;", works.name, bit.name);
    tvm_emit(e, "@%s bra $L%u;", works.name, behind);
    tvm_emit_even_block(e, behind);
    tvm_emit(e, "elect.sync _|%s, 0xffffffff;", leader.name);
    tvm_emit_tensor_commit(e, leader, tvm_shared_base(e), e->k->tensor.shared + TENSOR_MBARRIER);
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

/* Both blocks have waited for the work, and neither needs the other's memory any more; the first warps give
 * the columns back together. Returns the label for the others. */
/* fence CLUSTER_BARRIER */
static uint32_t wait_for_pair(emitter *e, reg first) {
    uint32_t behind = tvm_new_label(e);
    tvm_emit(e, "tcgen05.fence::before_thread_sync;");
    tvm_emit_cluster_meet(e);
    tvm_emit(e, "@!%s bra $L%u;", first.name, behind);
    return behind;
}

/* fence TENSOR_LIFE, TENSOR_THREADS */
void tvm_emit_tensor_end(emitter *e) {
    if (!e->tensor_base.name[0]) return;
    uint32_t behind = tvm_new_label(e);
    reg thread = tvm_new_r(e), first = tvm_new_pred(e), done = tvm_new_pred(e);
    tvm_emit(e, "mov.u32 %s, %%tid.x;", thread.name); /* not held until here */
    tvm_emit(e, "setp.lt.u32 %s, %s, 32;", first.name, thread.name);
    if (workers(e)) wait_for_work(e, thread);
    tvm_emit(e, "tcgen05.fence::before_thread_sync;");
    char all[32];
    tvm_emit(e, "bar.sync %s;", tvm_frame_barrier(e, 0, all));
    tvm_emit(e, "@!%s bra $L%u;", first.name, behind);
    if (workers(e)) {
        uint32_t again = tvm_new_label(e);
        tvm_text_add(&e->body, "$L%u:\n", again);
        tvm_emit(e, "mbarrier.try_wait.parity.shared.b64 %s, [%s+%u], 0;", done.name, tvm_shared_base(e).name,
                 e->k->tensor.shared + TENSOR_MBARRIER);
        tvm_emit(e, "@!%s bra $L%u;", done.name, again);
    }
    if (e->k->tensor.pairs) tvm_text_add(&e->body, "$L%u:\n", behind);
    if (e->k->tensor.pairs) behind = wait_for_pair(e, first);
    tvm_emit(e, "tcgen05.fence::after_thread_sync;");
    tvm_emit(e, "tcgen05.dealloc.cta_group::%u.sync.aligned.b32 %s, %u;", tvm_tensor_group(e),
             e->tensor_base.name, e->k->tensor.columns);
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

/* ---- addresses: the lane in the upper half, the column in the lower one ---- */

reg tvm_tensor_address(emitter *e, const tvm_operand *tensor) {
    const tvm_slot *slot = &e->k->kernel->slots[tensor->value];
    const uint32_t *shape = tvm_slot_shape(e->k->program, slot);
    unsigned rank = tvm_slot_rank(e->k->program, slot);
    uint32_t constant = e->k->slots[tensor->value].tensor_column, step = 1;
    reg address = e->tensor_base;
    for (unsigned d = rank; d-- > 0;) {
        uint32_t index = tensor[1 + d].value, divisor = TVM_TENSOR_COLUMN_BITS / slot->dtype.bits;
        int64_t value;
        if (d + 2 == rank) {
            step = tvm_tensor_matrix_columns(e->k->program, slot); /* the lane is 0 */
            continue;
        }
        if (tvm_fact_constant(e->k, index, &value)) {
            constant += (uint32_t)value * step / (d + 1 == rank ? divisor : 1);
        } else { /* of columns one element each, as the rule says */
            reg at = tvm_emit_expr(e, index), next = tvm_new_r(e);
            if (e->k->kernel->exprs[index].type.bits == 64) {
                reg narrow = tvm_new_r(e);
                tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
                at = narrow;
            }
            tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", next.name, at.name, step, address.name);
            address = next;
        }
        if (d + 2 < rank) step *= shape[d];
    }
    if (!constant) return address;
    reg next = tvm_new_r(e);
    tvm_emit(e, "add.u32 %s, %s, %u;", next.name, address.name, constant);
    return next;
}

/* ---- loads and stores ---- */

/* The warp's lanes, and its columns. */
static reg warp_address(emitter *e, const tvm_operand *tensor, const tvm_layout *layout) {
    enum { LANES = 96, LANE = 16 }; /* bits of the thread's number; of the address */
    unsigned in_column = TVM_TENSOR_COLUMN_BITS / e->k->kernel->slots[tensor->value].dtype.bits;
    reg address = tvm_tensor_address(e, tensor), own = tvm_new_r(e), column;
    reg lanes = tvm_pure(e, 'r', "and.b32 $, %s, %u;", tvm_thread_id(e).name, LANES);
    reg part = tvm_pure(e, 'r', "shl.b32 $, %s, %u;", lanes.name, LANE);
    reg warp = tvm_pure(e, 'r', "and.b32 $, %s, %u;", tvm_thread_id(e).name, TVM_MAX_THREADS - 32);
    if (tvm_coordinate_of(e, layout, 1, warp, &column))
        part = tvm_pure(e, 'r', "add.u32 $, %s, %s;", part.name, tvm_pure_divide(e, column, in_column).name);
    tvm_emit(e, "add.u32 %s, %s, %s;", own.name, address.name, part.name);
    return own;
}

/* How many of the units from the first on one instruction takes: a power of two. */
static uint32_t units_together(const tvm_tensor_access *access, uint32_t first) {
    const tvm_tensor_unit *units = &access->units[first];
    uint32_t count = 1, whole = 1;
    while (first + count < access->count && count < access->shape->most && units[count].lane == units->lane &&
           units[count].column == units->column + count * access->shape->columns)
        count++;
    while (2 * whole <= count) whole *= 2;
    return whole;
}

enum { WORDS_TEXT = 128 * (sizeof(reg) + 2) + 4 };

static void list_words(emitter *e, const tvm_tensor_access *access, uint32_t first, uint32_t count,
                       uint32_t slot, char text[WORDS_TEXT]) {
    size_t used = 0;
    for (uint32_t u = first; u < first + count; u++)
        for (unsigned w = 0; w < access->shape->words; w++)
            used += (size_t)snprintf(text + used, WORDS_TEXT - used, "%s%s", used ? ", " : "",
                                     tvm_slot_word(e, slot, access->units[u].words[w]).name);
}

static tvm_status move(emitter *e, const tvm_operand *tensor, uint32_t slot, bool loads) {
    const tvm_layout *layout = tvm_slot_layout(e->k, slot);
    tvm_tensor_access access;
    char words[WORDS_TEXT], name[64];
    uint32_t count, instructions = 0;
    tvm_tensor_access_find(layout, tvm_slot_dtype(e->k, slot).bits, e->team, &access, NULL);
    bool guarded = tvm_shared_guard(e, tensor->value, tensor + 1, 2, layout->shape);
    reg address = warp_address(e, tensor, layout);
    for (uint32_t u = 0; u < access.count; u += count, instructions++) {
        const tvm_tensor_unit *unit = &access.units[u];
        uint32_t plus = (uint32_t)unit->lane << 16 | unit->column;
        reg at = plus ? word_op(e, "add.u32", address, plus) : address;
        count = units_together(&access, u);
        list_words(e, &access, u, count, slot, words);
        if (loads)
            tvm_emit(e, "tcgen05.ld.sync.aligned.%s.x%u.b32 {%s}, [%s];", access.shape->name, count, words,
                     at.name);
        else
            tvm_emit(e, "tcgen05.st.sync.aligned.%s.x%u.b32 [%s], {%s};", access.shape->name, count, at.name,
                     words);
    }
    tvm_emit(e, "tcgen05.wait::%s.sync.aligned;", loads ? "ld" : "st");
    snprintf(name, sizeof name, "tcgen05.%s.%s%s", loads ? "ld" : "st", access.shape->name,
             guarded ? " guarded" : "");
    tvm_explain(e, name, 32, instructions, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_LOAD_TENSOR(emitter *e, const tvm_insn *insn) {
    return move(e, tvm_operands(e->k->kernel, insn), insn->result, true);
}

tvm_status tvm_emit_STORE_TENSOR(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    uint32_t source = 1 + tvm_slot_rank(e->k->program, &e->k->kernel->slots[operands->value]);
    return move(e, operands, operands[source].value, false);
}
