/* What kernels do with the memory of their parameters: whether they read and write it, and what of that may
 * come before a block has executed wait-dependency, while the launch before may still run. */
#include <stdlib.h>

#include "runtime.h"
#include "view.h"

/* Does a view on the way from the tensor to its memory promise that earlier launches have written it? */
static bool is_settled(const tvm_ir_kernel *kernel, uint32_t slot) {
    for (unsigned depth = 0; depth <= TVM_MAX_VIEW_DEPTH && kernel->slots[slot].view != 0; depth++) {
        tvm_view view;
        tvm_view_read(kernel, &kernel->insns[kernel->slots[slot].view - 1], &view);
        if (view.settled) return true;
        slot = view.base;
    }
    return false;
}

/* Has the instruction the memory of a parameter for an operand? Of those that write to global memory only
 * targets have. *settled: all such operands are settled. */
static bool has_operand_in(const tvm_ir_kernel *kernel, const tvm_insn *insn, uint32_t param, bool *settled) {
    bool found = false;
    *settled = true;
    for (uint32_t i = 0; i < insn->count; i++) {
        const tvm_operand *operand = &kernel->operands[insn->first + i];
        if (operand->kind != TVM_OPERAND_SLOT || kernel->slots[operand->value].kind != TVM_SLOT_GLOBAL ||
            tvm_view_root(kernel, operand->value) != param)
            continue;
        found = true;
        *settled = *settled && is_settled(kernel, operand->value);
    }
    return found;
}

/* ---- what may come before wait-dependency ---- */

/* A control statement that is open. `before`: all ways that lead to it have waited; `then`: those to its
 * `else`. */
typedef struct opened {
    tvm_op_class class;
    bool before, then;
} opened;

/* Have all ways to the place behind the instruction waited? Behind a loop and a role as before it: the body
 * may not have run, or not by these warps. No way leads behind a jump or an exit. */
static bool go_on(const tvm_insn *insn, bool waited, opened *open, unsigned *depth) {
    tvm_op_class class = tvm_insn_class(insn);
    opened *last = *depth > 0 ? &open[*depth - 1] : NULL;
    if (tvm_op(insn->op)->effects & TVM_EFFECT_LAST_LAUNCH) return true;
    if (tvm_class_opens(class)) open[(*depth)++] = (opened){class, waited, waited};
    if (class == TVM_CLASS_JUMP || class == TVM_CLASS_EXIT) return true;
    if (class == TVM_CLASS_ELSE && last) {
        last->then = waited;
        return last->before;
    }
    if (class != TVM_CLASS_END || !last) return waited;
    (*depth)--;
    return last->class == TVM_CLASS_BRANCH ? last->then && waited : last->before;
}

static bool waits(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_op(kernel->insns[i].op)->effects & TVM_EFFECT_LAST_LAUNCH) return true;
    return false;
}

/* Of a kernel without wait-dependency, which begins when the launch before has ended, nothing is early;
 * without memory all is. */
static unsigned early_accesses(const tvm_ir_kernel *kernel, uint32_t param) {
    if (!waits(kernel)) return 0;
    opened *open = calloc((size_t)kernel->insn_count + 1, sizeof *open);
    unsigned depth = 0, early = open ? 0 : TVM_PARAM_READ_EARLY | TVM_PARAM_WRITTEN_EARLY;
    bool waited = false, settled;
    for (uint32_t i = 0; open && i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        unsigned effects = tvm_op(insn->op)->effects;
        bool reads = effects & TVM_EFFECT_READ_GLOBAL, writes = effects & TVM_EFFECT_WRITE_GLOBAL;
        if (!waited && (reads || writes) && has_operand_in(kernel, insn, param, &settled)) {
            if (reads && !settled) early |= TVM_PARAM_READ_EARLY;
            if (writes) early |= TVM_PARAM_WRITTEN_EARLY;
        }
        waited = go_on(insn, waited, open, &depth);
    }
    free(open);
    return early;
}

/* ---- in the order of the text ---- */

static unsigned accesses_of(const tvm_ir_kernel *kernel, uint32_t param) {
    unsigned found = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        unsigned effects = tvm_op(kernel->insns[i].op)->effects, kinds = 0;
        bool settled;
        if (!(effects & (TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_WRITE_GLOBAL))) continue;
        if (!has_operand_in(kernel, &kernel->insns[i], param, &settled)) continue;
        if (effects & TVM_EFFECT_READ_GLOBAL) kinds |= TVM_PARAM_READ;
        if (effects & TVM_EFFECT_WRITE_GLOBAL) kinds |= TVM_PARAM_WRITTEN;
        if (kinds & TVM_PARAM_READ && !(found & TVM_PARAM_WRITTEN)) kinds |= TVM_PARAM_READ_FIRST;
        found |= kinds;
    }
    return found | early_accesses(kernel, param);
}

unsigned tvm_param_accesses(const tvm_kernel *function, uint32_t param) {
    if (!function->entry) return accesses_of(function->kernel, param);
    unsigned found = 0;
    for (uint32_t i = 0; i < function->entry->case_count; i++)
        found |= accesses_of(&function->code->program->kernels[function->entry->cases[i].kernel], param);
    return found;
}
