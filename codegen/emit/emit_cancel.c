/* cancel-block: PTX ISA, "clusterlaunchcontrol.try_cancel" and "clusterlaunchcontrol.query_cancel". A thread
 * of the team asks, and all read the answer, which the asynchronous proxy writes; behind one that says that
 * there is no block left nobody asks again. Targets without it have that answer at once. */
#include "emit_cancel.h"

#include "analysis.h"
#include "barrier.h"
#include "shared_access.h"
#include "shared_plan.h"
#include "turns_emit.h"

static bool asks(const emitter *e) {
    return tvm_target_has(e->k->target, TVM_HAS_LAUNCH_CONTROL) && tvm_cancels_blocks(e->k->kernel);
}

/* fence MBARRIER_INIT */
void tvm_cancels_begin(emitter *e) {
    if (!asks(e)) return;
    reg first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", tvm_thread_id(e).name);
    e->cancel_parity = tvm_new_r(e);
    e->cancel_over = tvm_new_pred(e);
    tvm_emit(e, "mov.b32 %s, 0;", e->cancel_parity.name);
    tvm_emit(e, "setp.ne.u32 %s, 0, 0;", e->cancel_over.name);
    tvm_emit(e, "@%s mbarrier.init.shared.b64 [%s+%u], 1;", first.name, tvm_shared_base(e).name,
             e->k->answer + TVM_CANCEL_MBARRIER);
    tvm_emit(e, "@%s fence.proxy.async.shared::cta;", first.name);
    tvm_emit_thread_barrier(e);
}

/* fence BULK_LANDED: the thread of the team that asks announces the answer's bytes. */
static void ask(emitter *e) {
    enum { ANSWER_BYTES = 16 };
    uint32_t asked = tvm_new_label(e), again = tvm_new_label(e), answer = e->k->answer,
             mbarrier = answer + TVM_CANCEL_MBARRIER;
    const char *base = tvm_shared_base(e).name;
    reg leader = tvm_emit_elect(e, asked), done = tvm_new_pred(e);
    tvm_emit(e, "@%s mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s+%u], %d;", leader.name, base,
             mbarrier, ANSWER_BYTES);
    tvm_emit(
        e,
        "@%s clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%s+%u], "
        "[%s+%u];",
        leader.name, base, answer, base, mbarrier);
    tvm_emit(e, "@%s mbarrier.arrive.shared.b64 _, [%s+%u];", leader.name, base, mbarrier);
    tvm_text_add(&e->body, "$L%u:\n", asked);
    tvm_text_add(&e->body, "$L%u:\n", again);
    tvm_emit(e, "mbarrier.try_wait.parity.shared.b64 %s, [%s+%u], %s;", done.name, base, mbarrier,
             e->cancel_parity.name);
    tvm_emit_ask_again(e, done, false, again);
    tvm_emit(e, "xor.b32 %s, %s, 1;", e->cancel_parity.name, e->cancel_parity.name);
}

/* fence TO_ENGINE, ENGINE_OVER_THREADS: the next answer comes behind all reads of this one. */
static void read_answer(emitter *e, const char *result) {
    reg low = tvm_new_rd(e), high = tvm_new_rd(e), canceled = tvm_new_pred(e);
    tvm_emit(e, "ld.shared.v2.b64 {%s, %s}, [%s+%u];", low.name, high.name, tvm_shared_base(e).name,
             e->k->answer);
    tvm_emit(
        e,
        "{ .reg .b128 q; mov.b128 q, {%s, %s}; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %s, q; "
        "@%s clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %s, q; }",
        low.name, high.name, canceled.name, canceled.name, result);
    tvm_emit(e, "not.pred %s, %s;", e->cancel_over.name, canceled.name);
    tvm_emit(e, "fence.proxy.async.shared::cta;");
    tvm_emit_thread_barrier(e);
}

tvm_status tvm_emit_CANCEL_BLOCK(emitter *e, const tvm_insn *insn) {
    const char *result = e->slots[insn->result].reg;
    tvm_emit(e, "mov.b32 %s, -1;", result);
    if (asks(e)) {
        uint32_t behind = tvm_new_label(e);
        tvm_shared_base(e); /* its register is made before the branch */
        tvm_emit(e, "@%s bra $L%u;", e->cancel_over.name, behind);
        ask(e);
        read_answer(e, result);
        tvm_text_add(&e->body, "$L%u:\n", behind);
    }
    tvm_fact_forget(e->k, insn->result);
    tvm_explain(e, asks(e) ? "clusterlaunchcontrol.try_cancel" : "nothing", 128, asks(e), -1,
                asks(e) ? "" : "the target has no clusterlaunchcontrol");
    return TVM_OK;
}
