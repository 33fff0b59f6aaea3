/* The instructions that may run ahead in a pipelined loop. */
#include "pipeline.h"

#include "view.h"

typedef struct finder {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_pipeline *found;
    bool *ahead;
    uint32_t at; /* being looked at */
    uint64_t work;
    tvm_why *why;
} finder;

/* Steps that one loop may cost, so that a program from a stranger cannot make its reader work for minutes. */
#define WORK (UINT64_C(1) << 24)

/* Accounts for a walk over the body. */
static tvm_status walk(finder *f) {
    f->work += f->found->end - f->found->loop;
    return f->work <= WORK ? TVM_OK : tvm_refuse(f->why, "the pipelined loop is too long to be checked");
}

uint32_t tvm_pipeline_stages(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    if (insn->op != TVM_OP_FOR || insn->count <= TVM_FOR_PIPELINE) return 0;
    const tvm_operand *stages = &tvm_operands(kernel, insn)[TVM_FOR_PIPELINE];
    return stages->kind == TVM_OPERAND_CONST ? stages->value : 0;
}

unsigned tvm_pipeline_effects(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    unsigned effects = tvm_op(insn->op)->effects;
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT && kernel->slots[operands[o].value].kind == TVM_SLOT_SHARED)
            return effects;
    return effects & ~(unsigned)TVM_EFFECT_READ_SHARED;
}

bool tvm_pipeline_fills(const tvm_pipeline *pipeline, uint32_t slot) {
    for (uint32_t i = 0; i < pipeline->tensor_count; i++)
        if (pipeline->tensors[i] == slot) return true;
    return false;
}

static const tvm_insn *insn_at(const finder *f, uint32_t at) {
    return &f->kernel->insns[at];
}

static const char *slot_name(const finder *f, uint32_t slot) {
    return tvm_string(f->program, f->kernel->slots[slot].name);
}

/* The instructions that stand in the loop's body itself, not in control of its own: the one after `at`. */
static uint32_t next_direct(const finder *f, uint32_t at) {
    const tvm_insn *insn = insn_at(f, at);
    uint32_t next = at + 1;
    while (tvm_insn_class(insn) == TVM_CLASS_BRANCH || tvm_insn_class(insn) == TVM_CLASS_LOOP ||
           tvm_insn_class(insn) == TVM_CLASS_ELSE) {
        next = insn->match + 1;
        insn = insn_at(f, insn->match);
    }
    return next;
}

/* Does an instruction name the slot where it has no indices, as a whole? */
static bool names_whole(const finder *f, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    const char *cursor = tvm_op(insn->op)->operands;
    tvm_operand_desc desc;
    uint32_t at = 0;
    while (at < insn->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        bool is_slot = operands[at].kind == TVM_OPERAND_SLOT;
        if (is_slot && operands[at].value == slot && !desc.indexed) return true;
        at += tvm_entry_operands(f->program, f->kernel, &desc, &operands[at]);
    }
    return false;
}

/* Does an instruction name the slot, and if so first, as what it writes does? */
static bool names(const finder *f, const tvm_insn *insn, uint32_t slot, bool first) {
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++) {
        if (first && o > 0) break;
        if (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == slot) return true;
    }
    return false;
}

static bool reads_register(const finder *f, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT &&
            f->kernel->slots[operands[o].value].kind == TVM_SLOT_REGISTER)
            return true;
    return false;
}

/* ---- what a copy depends on ---- */

static tvm_status need_operands(finder *f, uint32_t at);

/* A scalar that is read at instruction `reader` of the body. */
static tvm_status need_slot(finder *f, uint32_t slot, uint32_t reader) {
    uint32_t setter = TVM_NONE;
    if (slot == insn_at(f, f->found->loop)->result) return TVM_OK;
    if (walk(f) != TVM_OK) return TVM_INVALID;
    for (uint32_t i = f->found->loop + 1; i < f->found->end; i++) {
        if (insn_at(f, i)->result != slot) continue;
        if (setter != TVM_NONE)
            return tvm_refuse(f->why,
                              "'%s', on which a copy of the pipelined loop depends, is assigned twice in it",
                              slot_name(f, slot));
        setter = i;
    }
    if (setter == TVM_NONE || f->ahead[setter]) return TVM_OK;
    bool direct = false;
    for (uint32_t i = f->found->loop + 1; i <= setter && !direct; i = next_direct(f, i)) direct = i == setter;
    if (!direct || setter >= reader)
        return tvm_refuse(f->why, "'%s', on which a copy of the pipelined loop depends, is assigned %s",
                          slot_name(f, slot),
                          direct ? "in the turn before" : "under a condition or in a loop");
    if (tvm_pipeline_effects(f->kernel, insn_at(f, setter)) & ~(unsigned)TVM_EFFECT_READ_GLOBAL ||
        reads_register(f, insn_at(f, setter)))
        return tvm_refuse(f->why, "'%s', on which a copy of the pipelined loop depends, is the result of %s",
                          slot_name(f, slot), tvm_op(insn_at(f, setter)->op)->mnemonic);
    f->ahead[setter] = true;
    return need_operands(f, setter);
}

/* The limit on the size of a tree bounds the recursion. */
static tvm_status need_expr(finder *f, uint32_t expr, uint32_t reader) {
    const tvm_expr *node = &f->kernel->exprs[expr];
    unsigned arity = tvm_expr_arity(node);
    tvm_status status = node->op == TVM_EXPR_SLOT ? need_slot(f, node->a, reader) : TVM_OK;
    for (unsigned i = 0; i < arity && status == TVM_OK; i++) status = need_expr(f, node->operands[i], reader);
    return status;
}

/* A tensor that is read: what it is a view of, and at which index, does not depend on the iteration. */
static tvm_status need_tensor(const finder *f, uint32_t slot) {
    uint32_t view = f->kernel->slots[slot].view;
    if (view <= f->found->loop || view > f->found->end) return TVM_OK;
    return tvm_refuse(f->why, "'%s', from which a pipelined loop copies, is a view that is made in it",
                      slot_name(f, slot));
}

static tvm_status need_operands(finder *f, uint32_t at) {
    const tvm_insn *insn = insn_at(f, at);
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    tvm_status status = TVM_OK;
    for (uint32_t o = 0; o < insn->count && status == TVM_OK; o++) {
        if (operands[o].kind == TVM_OPERAND_EXPR) status = need_expr(f, operands[o].value, at);
        if (operands[o].kind == TVM_OPERAND_SLOT) status = need_tensor(f, operands[o].value);
    }
    return status;
}

/* ---- the copies ---- */

static tvm_status add_copy(finder *f, uint32_t at) {
    uint32_t target = tvm_operands(f->kernel, insn_at(f, at))->value;
    f->ahead[at] = true;
    if (!tvm_pipeline_fills(f->found, target)) {
        if (f->found->tensor_count == TVM_PIPELINE_TENSORS)
            return tvm_refuse(f->why, "the copies of a pipelined loop fill at most %d tensors",
                              TVM_PIPELINE_TENSORS);
        if (tvm_slot_rank(f->program, &f->kernel->slots[target]) == TVM_MAX_RANK)
            return tvm_refuse(f->why, "'%s', which a pipelined loop fills, has rank %d: expected less",
                              slot_name(f, target), TVM_MAX_RANK);
        f->found->tensors[f->found->tensor_count++] = target;
    }
    return need_operands(f, at);
}

static tvm_status find_copies(finder *f) {
    for (f->at = f->found->loop + 1; f->at < f->found->end; f->at = next_direct(f, f->at))
        if (insn_at(f, f->at)->op == TVM_OP_COPY_ASYNC && add_copy(f, f->at) != TVM_OK) return TVM_INVALID;
    f->at = f->found->loop;
    if (f->found->tensor_count == 0)
        return tvm_refuse(f->why,
                          "a pipelined loop has a copy-async in its body, outside of conditions and loops");
    return TVM_OK;
}

/* ---- the rest of the body ---- */

/* What would see that copies are under way. */
static tvm_status check_order(const finder *f, const tvm_insn *insn) {
    const unsigned told =
        TVM_EFFECT_ASYNC | TVM_EFFECT_WAIT | TVM_EFFECT_NEXT_LAUNCH | TVM_EFFECT_LAST_LAUNCH;
    const char *mnemonic = tvm_op(insn->op)->mnemonic;
    if (insn->op == TVM_OP_COPY_ASYNC)
        return tvm_refuse(f->why,
                          "a copy of a pipelined loop stands under a condition or in a loop of its body");
    bool plain = insn->op == TVM_OP_FOR && !tvm_pipeline_stages(f->kernel, insn);
    bool leaves = tvm_insn_class(insn) == TVM_CLASS_EXIT ||
                  (tvm_insn_class(insn) == TVM_CLASS_JUMP && insn->match == f->found->loop);
    if (leaves || (tvm_op(insn->op)->effects & told && !plain))
        return tvm_refuse(f->why, "%s cannot stand in a pipelined loop",
                          tvm_pipeline_stages(f->kernel, insn) ? "a pipelined loop" : mnemonic);
    return TVM_OK;
}

/* A global tensor of the memory that the slot is in, which the instruction names; TVM_NONE: none. */
static uint32_t names_memory(const finder *f, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT && tvm_global_alias(f->kernel, operands[o].value, slot))
            return operands[o].value;
    return TVM_NONE;
}

/* Does it write, in global memory, what one that is done ahead reads? */
static tvm_status check_global(finder *f, const tvm_insn *insn) {
    if (walk(f) != TVM_OK) return TVM_INVALID;
    for (uint32_t i = f->found->loop + 1; i < f->found->end; i++) {
        const tvm_operand *operands = tvm_operands(f->kernel, insn_at(f, i));
        for (uint32_t o = 0; f->ahead[i] && o < insn_at(f, i)->count; o++) {
            if (operands[o].kind != TVM_OPERAND_SLOT) continue;
            uint32_t target = names_memory(f, insn, operands[o].value);
            if (target != TVM_NONE)
                return tvm_refuse(f->why, "'%s' is written in the pipelined loop that copies from it",
                                  slot_name(f, target));
        }
    }
    return TVM_OK;
}

/* Does the instruction write a tensor that is filled ahead, or read it before it is filled, or write what a
 * copy reads? */
static tvm_status check_tensors(finder *f, const tvm_insn *insn, uint32_t last_copy) {
    unsigned effects = tvm_op(insn->op)->effects;
    for (uint32_t t = 0; t < f->found->tensor_count; t++) {
        uint32_t slot = f->found->tensors[t];
        if (!names(f, insn, slot, false)) continue;
        if (effects & TVM_EFFECT_WRITE_SHARED && names(f, insn, slot, true))
            return tvm_refuse(f->why, "'%s' is written in the pipelined loop that copies to it",
                              slot_name(f, slot));
        if (names_whole(f, insn, slot))
            return tvm_refuse(f->why, "'%s', which the pipelined loop fills, is used without an index",
                              slot_name(f, slot));
        if (f->at < last_copy)
            return tvm_refuse(f->why, "'%s' is used before the copies of the pipelined loop",
                              slot_name(f, slot));
    }
    return effects & TVM_EFFECT_WRITE_GLOBAL ? check_global(f, insn) : TVM_OK;
}

static tvm_status check_body(finder *f) {
    uint32_t last_copy = f->found->loop;
    for (uint32_t i = f->found->loop + 1; i < f->found->end; i++)
        if (f->ahead[i] && insn_at(f, i)->op == TVM_OP_COPY_ASYNC) last_copy = i;
    for (f->at = f->found->loop + 1; f->at < f->found->end; f->at++) {
        const tvm_insn *insn = insn_at(f, f->at);
        if (f->ahead[f->at]) continue;
        if (check_order(f, insn) != TVM_OK || check_tensors(f, insn, last_copy) != TVM_OK) return TVM_INVALID;
    }
    return TVM_OK;
}

/* The ahead variable is the loop's plus a constant: both are below the type's end. */
static tvm_status check_step(const finder *f) {
    const tvm_insn *loop = insn_at(f, f->found->loop);
    const tvm_expr *step = &f->kernel->exprs[tvm_operands(f->kernel, loop)[2].value];
    if (step->op != TVM_EXPR_INTEGER || step->value.i > INT32_MAX / TVM_MAX_STAGES)
        return tvm_refuse(f->why, "the step of a pipelined loop is no constant of at most %d",
                          INT32_MAX / TVM_MAX_STAGES);
    return TVM_OK;
}

tvm_status tvm_pipeline_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t loop,
                             tvm_pipeline *pipeline, bool *ahead, uint32_t *at, tvm_why *why) {
    const tvm_insn *insn = &kernel->insns[loop];
    *pipeline = (tvm_pipeline){.loop = loop, .end = insn->match, .stages = tvm_pipeline_stages(kernel, insn)};
    finder f = {program, kernel, pipeline, ahead, loop, 0, why};
    tvm_status status = check_step(&f);
    if (status == TVM_OK) status = find_copies(&f);
    if (status == TVM_OK) status = check_body(&f);
    *at = f.at;
    return status;
}
