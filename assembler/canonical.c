/* The canonical order of a program's pools: that of a walk over its kernels. What the assembler made on the
 * way but did not use is left behind. */
#include "canonical.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const tvm_ir_program *from;
    tvm_ir_program *to;
    const tvm_ir_kernel *kernel;
    uint32_t index; /* of the new kernel, or entry */
    bool in_entry;
    uint32_t *exprs; /* old -> new, TVM_NONE: not yet */
    uint32_t *slots;
} walk;

static uint32_t string(walk *w, uint32_t old) {
    const char *text = tvm_string(w->from, old);
    return tvm_ir_program_string(w->to, text, strlen(text));
}

static tvm_ir_kernel *kernel_of(const walk *w) {
    return w->in_entry ? &w->to->entries[w->index].head : &w->to->kernels[w->index];
}

static uint32_t *fresh_map(uint32_t count) {
    uint32_t *map = malloc((count + 1) * sizeof *map);
    if (map) memset(map, 0xff, (count + 1) * sizeof *map);
    return map;
}

static bool expr(walk *w, uint32_t old, uint32_t *out);

static bool extents(walk *w, tvm_slot *of) {
    for (unsigned d = 0; of->kind == TVM_SLOT_GLOBAL && d < of->rank; d++) {
        if (!expr(w, of->shape[d], &of->shape[d])) return false;
        if (of->form == TVM_FORM_STRIDED && !expr(w, of->stride[d], &of->stride[d])) return false;
    }
    return true;
}

/* The extents of a parameter follow once all parameters are there. */
static bool slot(walk *w, uint32_t old, uint32_t *out) {
    if (old == TVM_NONE || w->slots[old] != TVM_NONE) {
        *out = old == TVM_NONE ? TVM_NONE : w->slots[old];
        return true;
    }
    tvm_slot made = w->kernel->slots[old];
    made.name = string(w, made.name);
    if (made.kind == TVM_SLOT_REGISTER)
        made.layout = tvm_ir_program_layout(w->to, &w->from->layouts[made.layout]);
    if (tvm_slot_has_places(made.kind))
        made.layout = tvm_ir_program_shared_layout(w->to, &w->from->shared_layouts[made.layout]);
    if (made.kind == TVM_SLOT_GLOBAL && old >= w->kernel->param_count)
        if (!extents(w, &made)) return false;
    bool tensor = made.kind == TVM_SLOT_REGISTER || tvm_slot_has_places(made.kind);
    if (made.name == TVM_NONE || (tensor && made.layout == TVM_NONE)) return false;
    *out = w->slots[old] = tvm_ir_kernel_add_slot(kernel_of(w), &made);
    return *out != TVM_NONE;
}

/* Operands before their operator; recursion is bounded by TVM_MAX_EXPR_SIZE. */
static bool expr(walk *w, uint32_t old, uint32_t *out) {
    if (old == TVM_NONE || w->exprs[old] != TVM_NONE) {
        *out = old == TVM_NONE ? TVM_NONE : w->exprs[old];
        return true;
    }
    tvm_expr node = w->kernel->exprs[old];
    unsigned arity = tvm_expr_op_info(node.op)->arity;
    if (arity > 0 && !expr(w, node.a, &node.a)) return false;
    if (arity > 1 && !expr(w, node.b, &node.b)) return false;
    if (arity > 2 && !expr(w, node.c, &node.c)) return false;
    if (node.op == TVM_EXPR_SLOT && !slot(w, node.a, &node.a)) return false;
    *out = w->exprs[old] = tvm_ir_kernel_expr(kernel_of(w), &node);
    return *out != TVM_NONE;
}

static bool instruction(walk *w, const tvm_insn *old) {
    tvm_operand operands[TVM_INSN_OPERANDS];
    tvm_insn made = *old;
    if (old->count > TVM_INSN_OPERANDS) return false;
    if (!slot(w, old->result, &made.result)) return false;
    for (uint32_t i = 0; i < old->count; i++) {
        operands[i] = tvm_operands(w->kernel, old)[i];
        if (operands[i].kind == TVM_OPERAND_SLOT && !slot(w, operands[i].value, &operands[i].value))
            return false;
        if (operands[i].kind == TVM_OPERAND_EXPR && !expr(w, operands[i].value, &operands[i].value))
            return false;
        if (operands[i].kind == TVM_OPERAND_STRING) {
            operands[i].value = string(w, operands[i].value);
            if (operands[i].value == TVM_NONE) return false;
        }
    }
    made.file = TVM_NONE;
    return tvm_ir_kernel_add_insn(kernel_of(w), &made, operands, old->count) != TVM_NONE;
}

static bool header(walk *w) {
    const tvm_ir_kernel *old = w->kernel;
    uint32_t index;
    kernel_of(w)->warps = old->warps;
    kernel_of(w)->resident = old->resident;
    memcpy(kernel_of(w)->cluster, old->cluster, sizeof old->cluster);
    for (uint32_t i = 0; i < old->param_count; i++)
        if (!slot(w, i, &index)) return false;
    kernel_of(w)->param_count = old->param_count;
    for (uint32_t i = 0; i < old->param_count; i++) {
        tvm_slot made = kernel_of(w)->slots[i];
        if (!extents(w, &made)) return false;
        kernel_of(w)->slots[i] = made;
    }
    for (unsigned axis = 0; axis < 3; axis++) {
        if (!expr(w, old->grid[axis], &index)) return false;
        kernel_of(w)->grid[axis] = index;
    }
    for (uint32_t i = 0; i < old->assume_count; i++)
        if (!expr(w, old->assumes[i], &index) || tvm_ir_kernel_add_assume(kernel_of(w), index) == TVM_NONE)
            return false;
    return true;
}

static bool kernel(walk *w) {
    uint32_t name = string(w, w->kernel->name);
    w->index = name == TVM_NONE ? TVM_NONE : tvm_ir_program_add_kernel(w->to, name);
    if (w->index == TVM_NONE || !header(w)) return false;
    for (uint32_t i = 0; i < w->kernel->insn_count; i++)
        if (!instruction(w, &w->kernel->insns[i])) return false;
    return true;
}

/* The kernels have been moved; the head's parameters come with the first case. */
static bool entry(walk *w, const tvm_ir_entry *old) {
    uint32_t name = string(w, w->kernel->name);
    w->index = name == TVM_NONE ? TVM_NONE : tvm_ir_program_add_entry(w->to, name);
    if (w->index == TVM_NONE) return false;
    for (uint32_t i = 0; i < old->head.param_count; i++) w->slots[i] = i;
    for (uint32_t i = 0; i < old->case_count; i++) {
        tvm_ir_case made = old->cases[i];
        if (!expr(w, made.condition, &made.condition) || !expr(w, made.cost, &made.cost) ||
            tvm_ir_entry_add_case(w->to, &w->to->entries[w->index], &made) == TVM_NONE)
            return false;
    }
    return true;
}

/* Walks one kernel, or the head of an entry (NULL: none). */
static bool move(walk *w, const tvm_ir_kernel *from, const tvm_ir_entry *of) {
    w->kernel = from;
    w->in_entry = of != NULL;
    w->exprs = fresh_map(from->expr_count);
    w->slots = fresh_map(from->slot_count);
    bool good = w->exprs && w->slots && (of ? entry(w, of) : kernel(w));
    free(w->exprs);
    free(w->slots);
    return good;
}

/* Files of the line table come last: without it nothing else moves. */
static bool files(walk *w) {
    for (uint32_t k = 0; k < w->from->kernel_count; k++)
        for (uint32_t i = 0; i < w->from->kernels[k].insn_count; i++) {
            uint32_t file = w->from->kernels[k].insns[i].file;
            if (file == TVM_NONE) continue;
            uint32_t made = string(w, file);
            if (made == TVM_NONE) return false;
            w->to->kernels[k].insns[i].file = made;
        }
    return true;
}

tvm_ir_program *tvm_asm_canonical(const tvm_ir_program *program, tvm_diags *diags) {
    walk w = {.from = program, .to = tvm_ir_program_new()};
    bool good = w.to != NULL;
    for (uint32_t k = 0; good && k < program->kernel_count; k++) good = move(&w, &program->kernels[k], NULL);
    for (uint32_t i = 0; good && i < program->entry_count; i++)
        good = move(&w, &program->entries[i].head, &program->entries[i]);
    if (good && files(&w)) return w.to;
    tvm_ir_program_free(w.to);
    tvm_diag_no_memory(diags);
    return NULL;
}
