#include "turns_emit.h"

#include "params.h"

void tvm_turns_begin(emitter *e) {
    if (e->k->counts_turns) e->turns_left = tvm_params_hidden(e, TVM_ABI_TURNS);
}

const turn_plan *tvm_turns_of(const emitter *e, uint32_t loop) {
    const turn_plan *plan = e->k->turns ? &e->k->turns[loop] : NULL;
    return plan && !plan->in_outer ? plan : NULL;
}

/* The launch has no more than UINT32_MAX turns. */
void tvm_emit_turns(emitter *e, uint64_t turns) {
    if (turns == 0) return;
    if (turns > UINT32_MAX) {
        tvm_emit(e, "trap;");
        return;
    }
    reg p = tvm_new_pred(e);
    const char *left = e->turns_left.name;
    tvm_emit(e, "setp.lt.u32 %s, %s, %u;", p.name, left, (unsigned)turns);
    tvm_emit_trap(e, p, true);
    tvm_emit(e, "sub.u32 %s, %s, %u;", left, left, (unsigned)turns);
}

/* Of 32 bits, as many turns of one each. */
static void take_words(emitter *e, reg turns) {
    reg p = tvm_new_pred(e);
    const char *left = e->turns_left.name;
    tvm_emit(e, "setp.lt.u32 %s, %s, %s;", p.name, left, turns.name);
    tvm_emit_trap(e, p, true);
    tvm_emit(e, "sub.u32 %s, %s, %s;", left, left, turns.name);
}

void tvm_emit_turns_each(emitter *e, reg turns, bool wide, uint64_t each) {
    if (!wide && each == 1) {
        take_words(e, turns);
        return;
    }
    reg p = tvm_new_pred(e), all = tvm_new_rd(e), left = tvm_new_rd(e), taken = tvm_new_r(e);
    const uint64_t most = each < UINT32_MAX ? each : UINT32_MAX;
    if (wide) {
        /* More than 2^32 are as many: 2^32 are too many. */
        tvm_emit(e, "min.u64 %s, %s, 0x100000000;", all.name, turns.name);
        tvm_emit(e, "mul.lo.u64 %s, %s, %u;", all.name, all.name, (unsigned)most);
    } else {
        tvm_emit(e, "mul.wide.u32 %s, %s, %u;", all.name, turns.name, (unsigned)most);
    }
    /* Where each takes more than 2^32 - 1, one is too many. */
    if (each > UINT32_MAX) tvm_emit(e, "shl.b64 %s, %s, 1;", all.name, all.name);
    tvm_emit(e, "cvt.u64.u32 %s, %s;", left.name, e->turns_left.name);
    tvm_emit(e, "setp.lt.u64 %s, %s, %s;", p.name, left.name, all.name);
    tvm_emit_trap(e, p, true);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", taken.name, all.name);
    tvm_emit(e, "sub.u32 %s, %s, %s;", e->turns_left.name, e->turns_left.name, taken.name);
}

void tvm_emit_ask_again(emitter *e, reg predicate, bool when, uint32_t label) {
    if (!e->k->counts_turns) {
        tvm_emit(e, "@%s%s bra $L%u;", when ? "" : "!", predicate.name, label);
        return;
    }
    reg vote = tvm_new_pred(e);
    uint32_t over = tvm_new_label(e);
    tvm_emit(e, "vote.sync.%s.pred %s, %s, 0xffffffff;", when ? "any" : "all", vote.name, predicate.name);
    tvm_emit(e, "@%s%s bra.uni $L%u;", when ? "!" : "", vote.name, over);
    tvm_emit_turns(e, 1);
    tvm_emit(e, "bra.uni $L%u;", label);
    tvm_text_add(&e->body, "$L%u:\n", over);
}
