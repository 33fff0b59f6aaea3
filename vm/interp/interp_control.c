/* Scalars, control flow and the barrier. */
#include "interp_impl.h"

#include <string.h>

#include "pipeline.h"
#include "sanitize.h"

INTERP_NO_PLAN(LET)
INTERP_NO_PLAN(FOR)
INTERP_NO_PLAN(WHILE)
INTERP_NO_PLAN(IF)
INTERP_NO_PLAN(ELSE)
INTERP_NO_PLAN(ROLE)
INTERP_NO_PLAN(END)
INTERP_NO_PLAN(BREAK)
INTERP_NO_PLAN(CONTINUE)
INTERP_NO_PLAN(EXIT)
INTERP_NO_PLAN(SYNC)
INTERP_NO_PLAN(SYNC_WARP)

tvm_status tvm_interp_LET(interp_context *context, const interp_insn *insn) {
    return tvm_interp_evaluate(context, insn, insn->operands[0].value, &context->slots[insn->source->result]);
}

static bool below(tvm_dtype type, tvm_scalar a, tvm_scalar b) {
    return type.kind == TVM_KIND_UINT ? a.u < b.u : a.i < b.i;
}

tvm_status tvm_interp_FOR(interp_context *context, const interp_insn *insn) {
    tvm_dtype type = interp_slot(context->block->kernel, insn->source->result)->dtype;
    interp_loop *loop = &context->loops[context->pc - 1];
    tvm_scalar start;
    tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[0].value, &start);
    if (status == TVM_OK) status = tvm_interp_evaluate(context, insn, insn->operands[1].value, &loop->end);
    if (status == TVM_OK) status = tvm_interp_evaluate(context, insn, insn->operands[2].value, &loop->step);
    if (status != TVM_OK) return status;
    if (!below(type, (tvm_scalar){0}, loop->step))
        return tvm_interp_fail(context, insn, "the step is %lld: it must be positive",
                               (long long)loop->step.i);
    if (!below(type, start, loop->end)) {
        context->pc = insn->source->match + 1;
        return TVM_OK;
    }
    context->slots[insn->source->result] = start;
    if (tvm_pipeline_stages(context->block->kernel->kernel, insn->source)) context->pipelined = true;
    return tvm_interp_turn(context, insn);
}

/* Adds the step to the variable; false when the sum, as a mathematical integer, is not below the end. */
static bool loop_next(tvm_dtype type, const interp_loop *loop, tvm_scalar *variable) {
    tvm_scalar next;
    bool overflow = type.kind == TVM_KIND_UINT ? __builtin_add_overflow(variable->u, loop->step.u, &next.u)
                                               : __builtin_add_overflow(variable->i, loop->step.i, &next.i);
    if (overflow || !below(type, next, loop->end)) return false;
    *variable = next;
    return true;
}

static tvm_status go_if(interp_context *context, const interp_insn *insn, uint32_t expr, uint32_t otherwise) {
    tvm_scalar condition;
    tvm_status status = tvm_interp_evaluate(context, insn, expr, &condition);
    if (status == TVM_OK && !condition.i) context->pc = otherwise;
    return status;
}

tvm_status tvm_interp_WHILE(interp_context *context, const interp_insn *insn) {
    uint32_t body = context->pc;
    tvm_status status = go_if(context, insn, insn->operands[0].value, insn->source->match + 1);
    return status == TVM_OK && context->pc == body ? tvm_interp_turn(context, insn) : status;
}

tvm_status tvm_interp_IF(interp_context *context, const interp_insn *insn) {
    return go_if(context, insn, insn->operands[0].value, insn->source->match + 1);
}

/* Reached at the end of the body before it. */
tvm_status tvm_interp_ELSE(interp_context *context, const interp_insn *insn) {
    context->pc = insn->source->match + 1;
    return TVM_OK;
}

/* The next iteration of the loop that opens at `opener`, whose END is at `end`. */
static tvm_status next_turn(interp_context *context, uint32_t opener, uint32_t end) {
    const interp_block *block = context->block;
    const tvm_insn *loop = &block->kernel->kernel->insns[opener];
    if (interp_sanitized(context)) tvm_sanitize_turn(context);
    if (atomic_load_explicit(&block->run->stop, memory_order_relaxed)) {
        context->state = INTERP_DONE;
    } else if (loop->op == TVM_OP_WHILE) {
        context->pc = opener;
    } else {
        tvm_dtype type = interp_slot(block->kernel, loop->result)->dtype;
        bool more = loop_next(type, &context->loops[opener], &context->slots[loop->result]);
        context->pc = more ? opener + 1 : end + 1;
        if (more) return tvm_interp_turn(context, &block->kernel->insns[opener]);
        if (tvm_pipeline_stages(block->kernel->kernel, loop)) context->pipelined = false;
    }
    return TVM_OK;
}

/* ---- roles ---- */

static bool overlaps(tvm_team team, const tvm_role *role) {
    return team.first < role->end && role->first < team.first + team.warps;
}

static tvm_status begin(interp_context *team, const interp_context *block, tvm_scalar index) {
    const tvm_ir_kernel *kernel = block->block->kernel->kernel;
    memcpy(team->slots, block->slots, kernel->slot_count * sizeof *team->slots);
    memcpy(team->views, block->views, team->block->kernel->view_count * sizeof *team->views);
    team->slots[kernel->insns[team->role].result] = index;
    team->pc = team->role + 1;
    team->state = INTERP_READY;
    team->pipelined = false;
    team->block->running++;
    return interp_sanitized(team) ? tvm_sanitize_role_begin(team, block) : TVM_OK;
}

/* The block begins the teams, once those that have warps of theirs have ended, and goes on behind the role.
 */
tvm_status tvm_interp_ROLE(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block;
    const tvm_role role = tvm_role_of(block->kernel->kernel, insn->source);
    uint32_t at = context->pc - 1;
    for (uint32_t c = 1; c < block->context_count; c++)
        if (block->contexts[c].state != INTERP_DONE && overlaps(block->contexts[c].team, &role))
            return interp_again(context, INTERP_AT_ROLES);
    tvm_status status = TVM_OK;
    for (uint32_t c = 1; c < block->context_count && status == TVM_OK; c++)
        if (block->contexts[c].role == at)
            status = begin(&block->contexts[c], context, (tvm_scalar){.i = block->contexts[c].index});
    context->pc = insn->source->match + 1;
    return status;
}

static tvm_status end_role(interp_context *context) {
    interp_block *block = context->block;
    context->state = INTERP_DONE;
    block->running--;
    if (block->contexts[0].state == INTERP_AT_ROLES) block->contexts[0].state = INTERP_READY;
    if (block->running == 0 && interp_sanitized(context)) return tvm_sanitize_roles_end(&block->contexts[0]);
    return TVM_OK;
}

tvm_status tvm_interp_END(interp_context *context, const interp_insn *insn) {
    const tvm_ir_kernel *kernel = context->block->kernel->kernel;
    uint32_t opener = insn->source->match;
    tvm_op_class class = tvm_insn_class(&kernel->insns[opener]);
    if (class == TVM_CLASS_BRANCH) return TVM_OK;
    if (class == TVM_CLASS_SECTION) return end_role(context);
    return next_turn(context, opener, context->pc - 1);
}

tvm_status tvm_interp_BREAK(interp_context *context, const interp_insn *insn) {
    const tvm_ir_kernel *kernel = context->block->kernel->kernel;
    context->pc = kernel->insns[insn->source->match].match + 1;
    return TVM_OK;
}

tvm_status tvm_interp_CONTINUE(interp_context *context, const interp_insn *insn) {
    const tvm_ir_kernel *kernel = context->block->kernel->kernel;
    uint32_t opener = insn->source->match;
    return next_turn(context, opener, kernel->insns[opener].match);
}

tvm_status tvm_interp_EXIT(interp_context *context, const interp_insn *insn) {
    (void)insn;
    context->state = INTERP_DONE;
    return TVM_OK;
}

/* What one instruction does is done for all threads before the next. */
tvm_status tvm_interp_SYNC_WARP(interp_context *context, const interp_insn *insn) {
    (void)insn;
    return interp_sanitized(context) ? tvm_sanitize_sync_warp(context) : TVM_OK;
}

/* A team is one context. */
tvm_status tvm_interp_SYNC(interp_context *context, const interp_insn *insn) {
    (void)insn;
    return interp_sanitized(context) ? tvm_sanitize_sync(context) : TVM_OK;
}
