/* Scalars and control: let, for, while, if, else, end, break, continue, exit, sync. A loop or an if emits its
 * whole body, so that the body can be emitted more than once. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "emit_drain.h"
#include "hoist.h"
#include "kernel.h"
#include "emit.h"
#include "numbers.h"
#include "scratch.h"
#include "turns_emit.h"
#include "unroll.h"
#include "wgmma_wait.h"

static const char *move_type(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return type.bits == 64 ? "f64" : "f32";
    return type.kind != TVM_KIND_BOOL && type.bits == 64 ? "b64" : "b32";
}

tvm_status tvm_emit_LET(emitter *e, const tvm_insn *insn) {
    uint32_t expr = tvm_operands(e->k->kernel, insn)[0].value;
    int64_t value;
    bool known = tvm_fact_constant(e->k, expr, &value);
    reg r = tvm_emit_expr(e, expr);
    tvm_emit(e, "mov.%s %s, %s;", move_type(tvm_slot_dtype(e->k, insn->result)), e->slots[insn->result].reg,
             r.name);
    if (known)
        tvm_fact_set_constant(e->k, insn->result, value);
    else
        tvm_fact_forget(e->k, insn->result);
    return TVM_OK;
}

/* ---- loops ---- */

static loop_frame *enter_loop(emitter *e, uint32_t insn) {
    loop_frame *frame = tvm_enter_loop(e, insn);
    frame->break_label = tvm_new_label(e);
    return frame;
}

static bool body_jumps(const emitter *e, uint32_t loop, uint32_t end) {
    for (uint32_t i = loop + 1; i < end; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        if (tvm_insn_class(insn) == TVM_CLASS_JUMP && insn->match == loop) return true;
    }
    return false;
}

typedef struct for_loop {
    uint32_t insn, end_insn, var;
    uint32_t start, end, step; /* expressions */
    tvm_dtype type;
    const char *signed_type; /* of comparisons */
    const char *unsigned_type;
    reg end_reg, step_reg;
    uint32_t copies;
    bool is_multiple;       /* the number of turns is a multiple of copies */
    bool reaches_end;       /* adding the step never wraps */
    const turn_plan *turns; /* NULL: it takes none */
    bool takes_all;         /* of turns, where it begins */
} for_loop;

/* Of those that do not take all turns at once. */
static void begin_turn(emitter *e, const for_loop *loop) {
    if (loop->turns && !loop->takes_all) tvm_emit_turns(e, loop->turns->each);
}

/* Those of a loop that has begun, at least one: by a step that is a number, and of 64 bits a power of two,
 * for which dividing is cheap. */
static void take_all(emitter *e, const for_loop *loop) {
    known_loop known;
    int64_t step = 0;
    if (!loop->takes_all) return;
    if (tvm_loop_known(e->k, &e->k->kernel->insns[loop->insn], &known)) {
        tvm_emit_turns(e, tvm_turns_times(known.turns, loop->turns->each));
        return;
    }
    bool wide = loop->type.bits == 64;
    reg turns = wide ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_fact_constant(e->k, loop->step, &step);
    tvm_emit(e, "sub.%s %s, %s, %s;", loop->unsigned_type, turns.name, loop->end_reg.name,
             e->slots[loop->var].reg);
    tvm_emit(e, "sub.%s %s, %s, 1;", loop->unsigned_type, turns.name, turns.name);
    if (tvm_is_power_of_two(step))
        tvm_emit(e, "shr.%s %s, %s, %d;", loop->unsigned_type, turns.name, turns.name,
                 __builtin_ctzll((uint64_t)step));
    else
        tvm_emit(e, "div.%s %s, %s, %" PRId64 ";", loop->unsigned_type, turns.name, turns.name, step);
    tvm_emit(e, "add.%s %s, %s, 1;", loop->unsigned_type, turns.name, turns.name);
    tvm_emit_turns_each(e, turns, wide, loop->turns->each);
}

static bool can_take_all(const emitter *e, const for_loop *loop) {
    int64_t step;
    if (!loop->turns || !loop->turns->whole || !tvm_fact_constant(e->k, loop->step, &step)) return false;
    return step > 0 && (loop->type.bits == 32 || tvm_is_power_of_two(step));
}

static tvm_status emit_unrolled(emitter *e, const for_loop *loop, const known_loop *known) {
    bool jumps = body_jumps(e, loop->insn, loop->end_insn);
    loop_frame *frame = enter_loop(e, loop->insn);
    frame->is_unrolled = true;
    if (loop->takes_all) tvm_emit_turns(e, tvm_turns_times(known->turns, loop->turns->each));
    for (uint64_t i = 0; i < known->turns; i++) {
        int64_t value = known->start + (int64_t)i * known->step;
        begin_turn(e, loop);
        tvm_emit(e, "mov.%s %s, %" PRId64 ";", move_type(loop->type), e->slots[loop->var].reg, value);
        tvm_fact_set_constant(e->k, loop->var, value);
        frame->continue_label = tvm_new_label(e);
        tvm_status status = tvm_emit_range(e, loop->insn + 1, loop->end_insn);
        if (status != TVM_OK) return status;
        if (!jumps) continue;
        tvm_text_add(&e->body, "$L%u:\n", frame->continue_label);
        tvm_waits_meet(e, &frame->at_continue);
        tvm_scratch_join(e);
        tvm_fact_forget_assigned(e->k, loop->insn + 1, loop->end_insn);
    }
    if (jumps) tvm_text_add(&e->body, "$L%u:\n", frame->break_label);
    if (jumps) tvm_scratch_join(e);
    tvm_waits_meet(e, &frame->at_break);
    tvm_fact_forget(e->k, loop->var);
    tvm_leave_loop(e);
    return TVM_OK;
}

/* Where a path leaves the loop. */
static void note_break(emitter *e, loop_frame *frame) {
    wait_set now = tvm_waits(e);
    tvm_waits_add(&frame->at_break, &now);
}

/* Goes on to `next` (a label, or UINT32_MAX: what follows) with the next value, or leaves the loop. */
static void emit_advance(emitter *e, const for_loop *loop, uint32_t next, uint32_t leave) {
    const char *var = e->slots[loop->var].reg;
    reg p = tvm_new_pred(e);
    if (loop->reaches_end) {
        tvm_emit(e, "add.%s %s, %s, %s;", loop->signed_type, var, var, loop->step_reg.name);
        tvm_emit(e, "setp.%s.%s %s, %s, %s;", next != UINT32_MAX ? "lt" : "ge", loop->signed_type, p.name,
                 var, loop->end_reg.name);
        tvm_emit(e, "@%s bra.uni $L%u;", p.name, next != UINT32_MAX ? next : leave);
        return;
    }
    /* start + step may be beyond the type: compare what is left instead. */
    reg left = loop->type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_emit(e, "sub.%s %s, %s, %s;", loop->signed_type, left.name, loop->end_reg.name, var);
    tvm_emit(e, "setp.le.%s %s, %s, %s;", loop->unsigned_type, p.name, left.name, loop->step_reg.name);
    tvm_emit(e, "@%s bra.uni $L%u;", p.name, leave);
    tvm_emit(e, "add.%s %s, %s, %s;", loop->signed_type, var, var, loop->step_reg.name);
    if (next != UINT32_MAX) tvm_emit(e, "bra.uni $L%u;", next);
}

static tvm_status emit_counted(emitter *e, const for_loop *loop) {
    const char *var = e->slots[loop->var].reg;
    loop_frame *frame = enter_loop(e, loop->insn);
    uint32_t head = tvm_new_label(e), leave = frame->break_label;
    bool jumps = body_jumps(e, loop->insn, loop->end_insn);
    reg p = tvm_new_pred(e);
    tvm_emit(e, "setp.ge.%s %s, %s, %s;", loop->signed_type, p.name, var, loop->end_reg.name);
    tvm_emit(e, "@%s bra.uni $L%u;", p.name, leave);
    note_break(e, frame);
    take_all(e, loop);
    tvm_text_add(&e->body, "$L%u:\n", head);
    tvm_waits_at_head(e, loop->insn);
    tvm_scratch_join(e);
    tvm_fact_forget_assigned(e->k, loop->insn, loop->end_insn);
    for (uint32_t i = 0; i < loop->copies; i++) {
        frame->continue_label = tvm_new_label(e);
        begin_turn(e, loop);
        tvm_status status = tvm_emit_range(e, loop->insn + 1, loop->end_insn);
        if (status != TVM_OK) return status;
        tvm_text_add(&e->body, "$L%u:\n", frame->continue_label);
        tvm_waits_meet(e, &frame->at_continue);
        if (jumps) tvm_scratch_join(e);
        if (i + 1 == loop->copies) tvm_waits_before_head(e, loop->insn);
        note_break(e, frame);
        tvm_fact_forget_assigned(e->k, loop->insn, loop->end_insn);
        if (i + 1 == loop->copies)
            emit_advance(e, loop, head, leave);
        else if (loop->is_multiple)
            tvm_emit(e, "add.%s %s, %s, %s;", loop->signed_type, var, var, loop->step_reg.name);
        else
            emit_advance(e, loop, UINT32_MAX, leave);
    }
    tvm_text_add(&e->body, "$L%u:\n", leave);
    tvm_waits_enter(e, frame->at_break);
    tvm_scratch_join(e);
    tvm_leave_loop(e);
    return TVM_OK;
}

/* A register that later assignments leave alone. */
static reg keep_value(emitter *e, uint32_t expr, tvm_dtype type) {
    reg value = tvm_emit_expr(e, expr);
    if (tvm_fact_stable(e->k, expr)) return value;
    reg copy = type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_emit(e, "mov.%s %s, %s;", move_type(type), copy.name, value.name);
    return copy;
}

static void plan_loop(emitter *e, for_loop *loop) {
    bool is_wide = loop->type.bits == 64, is_signed = loop->type.kind == TVM_KIND_INT;
    loop->signed_type = is_signed ? (is_wide ? "s64" : "s32") : (is_wide ? "u64" : "u32");
    loop->unsigned_type = is_wide ? "u64" : "u32";
    loop->copies = e->k->loops[loop->insn].copies;
    uint64_t weight = (uint64_t)e->k->loops[loop->insn].weight * loop->copies;
    if (loop->copies < 1 || weight + e->k->kernel->insn_count > e->insn_budget) loop->copies = 1;
    int64_t step, high = is_wide ? INT64_MAX : is_signed ? INT32_MAX : UINT32_MAX;
    const expr_fact *start = &e->k->facts->exprs[loop->start], *end = &e->k->facts->exprs[loop->end];
    if (!tvm_fact_constant(e->k, loop->step, &step) || step <= 0) return;
    /* Facts of u64 beyond INT64_MAX are not in the order of the loop. */
    if (is_wide && !is_signed && (start->low < 0 || end->low < 0)) return;
    uint64_t divisor = tvm_gcd(tvm_fact_divisor(e->k, loop->start), tvm_fact_divisor(e->k, loop->end));
    loop->reaches_end = divisor % (uint64_t)step == 0 || end->high <= high - step;
    loop->is_multiple = step <= UINT32_MAX && divisor % ((uint64_t)step * loop->copies) == 0;
}

/* What is found of the loop's variable builds on it: see range_between. */
static void guard_step(emitter *e, const for_loop *loop) {
    reg p;
    if (tvm_fact_positive(e->k, loop->step)) return;
    p = tvm_new_pred(e);
    tvm_emit(e, "setp.%s.%s %s, %s, 0;", loop->type.kind == TVM_KIND_INT ? "le" : "eq", loop->signed_type,
             p.name, loop->step_reg.name);
    tvm_emit_trap(e, p, true);
}

tvm_status tvm_emit_FOR(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    for_loop loop = {.insn = (uint32_t)(insn - e->k->kernel->insns),
                     .end_insn = insn->match,
                     .var = insn->result,
                     .start = operands[0].value,
                     .end = operands[1].value,
                     .step = operands[2].value,
                     .type = tvm_slot_dtype(e->k, insn->result)};
    plan_loop(e, &loop);
    known_loop known;
    tvm_status status;
    loop.turns = tvm_turns_of(e, loop.insn);
    loop.takes_all = can_take_all(e, &loop);
    if (tvm_loop_known(e->k, insn, &known) && known.turns <= loop.copies) {
        status = emit_unrolled(e, &loop, &known);
    } else {
        reg first = tvm_emit_expr(e, loop.start);
        loop.end_reg = keep_value(e, loop.end, loop.type);
        loop.step_reg = keep_value(e, loop.step, loop.type);
        guard_step(e, &loop);
        tvm_emit(e, "mov.%s %s, %s;", move_type(loop.type), e->slots[loop.var].reg, first.name);
        status = emit_counted(e, &loop);
    }
    e->position = loop.end_insn + 1;
    return status;
}

tvm_status tvm_emit_WHILE(emitter *e, const tvm_insn *insn) {
    uint32_t number = (uint32_t)(insn - e->k->kernel->insns),
             test = tvm_operands(e->k->kernel, insn)[0].value;
    loop_frame *frame = enter_loop(e, number);
    frame->continue_label = tvm_new_label(e);
    tvm_fact_forget_assigned(e->k, number + 1, insn->match);
    tvm_text_add(&e->body, "$L%u:\n", frame->continue_label);
    tvm_waits_at_head(e, number);
    tvm_scratch_join(e);
    reg p = tvm_emit_condition(e, test);
    tvm_emit(e, "@!%s bra.uni $L%u;", p.name, frame->break_label);
    note_break(e, frame);
    unsigned mark = tvm_fact_enter(e->k, test, true, number + 1, insn->match);
    if (tvm_turns_of(e, number)) tvm_emit_turns(e, tvm_turns_of(e, number)->each);
    tvm_status status = tvm_emit_range(e, number + 1, insn->match);
    tvm_fact_leave(e->k, mark);
    tvm_waits_before_head(e, number);
    tvm_emit(e, "bra.uni $L%u;", frame->continue_label);
    tvm_text_add(&e->body, "$L%u:\n", frame->break_label);
    tvm_waits_enter(e, frame->at_break);
    tvm_scratch_join(e);
    tvm_fact_forget_assigned(e->k, number + 1, insn->match);
    tvm_leave_loop(e);
    e->position = insn->match + 1;
    return status;
}

/* What follows in the body is not reached. */
tvm_status tvm_emit_BREAK(emitter *e, const tvm_insn *insn) {
    (void)insn;
    loop_frame *frame = &e->hoist->loops[e->hoist->loop_count - 1];
    note_break(e, frame);
    tvm_emit(e, "bra.uni $L%u;", frame->break_label);
    tvm_waits_enter(e, (wait_set){{0}});
    return TVM_OK;
}

/* The label is the head of a while. */
tvm_status tvm_emit_CONTINUE(emitter *e, const tvm_insn *insn) {
    loop_frame *frame = &e->hoist->loops[e->hoist->loop_count - 1];
    if (e->k->kernel->insns[insn->match].op == TVM_OP_WHILE) tvm_waits_before_head(e, insn->match);
    wait_set now = tvm_waits_enter(e, (wait_set){{0}});
    tvm_waits_add(&frame->at_continue, &now);
    tvm_emit(e, "bra.uni $L%u;", frame->continue_label);
    return TVM_OK;
}

/* ---- if ---- */

static tvm_status emit_part(emitter *e, uint32_t test, bool holds, uint32_t first, uint32_t last) {
    unsigned mark = tvm_fact_enter(e->k, test, holds, first, last);
    tvm_status status = tvm_emit_range(e, first, last);
    tvm_fact_leave(e->k, mark);
    return status;
}

/* What a loop does not change is tested before it. */
static reg emit_test(emitter *e, uint32_t test) {
    if (!tvm_loop_invariant(e, test) || tvm_fact_stable(e->k, test)) return tvm_emit_condition(e, test);
    reg p = tvm_new_pred(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", p.name, tvm_hoist_kept(e, 'r', tvm_hoist_expr(e, test)).name);
    return p;
}

tvm_status tvm_emit_IF(emitter *e, const tvm_insn *insn) {
    uint32_t number = (uint32_t)(insn - e->k->kernel->insns),
             test = tvm_operands(e->k->kernel, insn)[0].value;
    bool has_else = e->k->kernel->insns[insn->match].op == TVM_OP_ELSE;
    uint32_t end = has_else ? e->k->kernel->insns[insn->match].match : insn->match;
    int64_t value;
    tvm_status status;
    if (tvm_fact_constant(e->k, test, &value)) {
        status = value      ? tvm_emit_range(e, number + 1, insn->match)
                 : has_else ? tvm_emit_range(e, insn->match + 1, end)
                            : TVM_OK;
        e->position = end + 1;
        return status;
    }
    uint32_t else_label = tvm_new_label(e), end_label = has_else ? tvm_new_label(e) : else_label;
    reg p = emit_test(e, test);
    tvm_emit(e, "@!%s bra.uni $L%u;", p.name, else_label);
    wait_set before = tvm_waits(e);
    status = emit_part(e, test, true, number + 1, insn->match);
    tvm_fact_forget_assigned(e->k, number + 1, insn->match);
    if (has_else && status == TVM_OK) {
        tvm_emit(e, "bra.uni $L%u;", end_label);
        tvm_text_add(&e->body, "$L%u:\n", else_label);
        before = tvm_waits_enter(e, before);
        tvm_scratch_join(e);
        status = emit_part(e, test, false, insn->match + 1, end);
        tvm_fact_forget_assigned(e->k, insn->match + 1, end);
    }
    tvm_waits_meet(e, &before);
    tvm_scratch_join(e);
    tvm_text_add(&e->body, "$L%u:\n", end_label);
    e->position = end + 1;
    return status;
}

/* Emitted with what they close or divide. */
tvm_status tvm_emit_ELSE(emitter *e, const tvm_insn *insn) {
    (void)e;
    (void)insn;
    return TVM_OK;
}

tvm_status tvm_emit_END(emitter *e, const tvm_insn *insn) {
    (void)e;
    (void)insn;
    return TVM_OK;
}

tvm_status tvm_emit_EXIT(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit_block_exit(e, "exit");
    return TVM_OK;
}
