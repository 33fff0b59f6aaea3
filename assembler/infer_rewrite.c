/* The kernel with what the plans ask for: the instructions are appended anew, with relayouts between them.
 * What is made of no tensor, as by alloc-register, is made once more in place of a relayout. */
#include "infer_state.h"

#include <string.h>

#include "variables.h"

typedef struct rewriting {
    tvm_infer_state *in;
    tvm_insn *old;
    uint32_t old_count;
    /* What is brought to a layout right behind its definition. */
    struct hoisted {
        uint32_t slot, layout, made;
    } * hoisted;
    uint32_t hoisted_count;
} rewriting;

static bool temporary(rewriting *w, uint32_t like, uint32_t layout, uint32_t *slot) {
    tvm_infer_state *in = w->in;
    tvm_slot made = in->kernel->slots[like];
    const char *name = tvm_string(in->program, made.name);
    made.layout = layout;
    in->as->statement.assigned = name;
    in->as->statement.assigned_length = (uint32_t)strlen(name);
    return tvm_asm_add_temporary(in->as, NULL, &made, slot);
}

static bool change(rewriting *w, const tvm_insn *at, uint32_t from, uint32_t to) {
    tvm_operand operand = {TVM_OPERAND_SLOT, from};
    tvm_insn made = {.op = TVM_OP_RELAYOUT, .result = to, .file = at->file, .line = at->line};
    if (w->in->kernel->insn_count >= TVM_MAX_INSNS) return false;
    return tvm_ir_kernel_add_insn(w->in->kernel, &made, &operand, 1) != TVM_NONE;
}

/* The slot's definition once more, for another layout. */
static bool make_again(rewriting *w, uint32_t insn, uint32_t to) {
    tvm_insn made = w->old[insn];
    tvm_operand operands[TVM_INSN_OPERANDS];
    made.result = to;
    if (made.count > TVM_INSN_OPERANDS || w->in->kernel->insn_count >= TVM_MAX_INSNS) return false;
    if (made.count) memcpy(operands, w->in->kernel->operands + made.first, made.count * sizeof *operands);
    return tvm_ir_kernel_add_insn(w->in->kernel, &made, operands, made.count) != TVM_NONE;
}

static bool keep(rewriting *w, const tvm_insn *insn) {
    tvm_operand operands[TVM_INSN_OPERANDS];
    if (insn->count > TVM_INSN_OPERANDS) return false;
    if (insn->count) memcpy(operands, tvm_operands(w->in->kernel, insn), insn->count * sizeof *operands);
    return tvm_ir_kernel_add_insn(w->in->kernel, insn, operands, insn->count) != TVM_NONE;
}

/* The tensor in the layout, for instruction `insn`: made before it, or once behind its definition where that
 * runs less often. */
static bool brought(rewriting *w, uint32_t insn, uint32_t slot, uint32_t layout, uint32_t *made) {
    for (uint32_t i = 0; i < w->hoisted_count; i++)
        if (w->hoisted[i].slot == slot && w->hoisted[i].layout == layout) {
            *made = w->hoisted[i].made;
            return true;
        }
    return temporary(w, slot, layout, made) && change(w, &w->old[insn], slot, *made);
}

static bool rewrite_one(rewriting *w, uint32_t insn, const tvm_infer_plan *plan) {
    tvm_infer_state *in = w->in;
    tvm_infer_operands registers;
    tvm_insn made = w->old[insn];
    tvm_operand operands[TVM_INSN_OPERANDS];
    uint32_t result = made.result;
    if (made.count > TVM_INSN_OPERANDS) return false;
    if (made.count) memcpy(operands, in->kernel->operands + made.first, made.count * sizeof *operands);
    registers.count = 0;
    for (uint32_t i = 0; i < made.count && registers.count < TVM_INFER_OPERANDS; i++)
        if (operands[i].kind == TVM_OPERAND_SLOT &&
            in->kernel->slots[operands[i].value].kind == TVM_SLOT_REGISTER)
            registers.at[registers.count++] = i;
    for (unsigned k = 0; k < registers.count; k++) {
        uint32_t *slot = &operands[registers.at[k]].value;
        if (plan->layouts[k] != in->layout[*slot] && !brought(w, insn, *slot, plan->layouts[k], slot))
            return false;
    }
    bool turned = plan->result != TVM_NONE && plan->result != in->layout[result];
    if (turned && !temporary(w, result, plan->result, &made.result)) return false;
    if (tvm_ir_kernel_add_insn(in->kernel, &made, operands, made.count) == TVM_NONE) return false;
    return !turned || change(w, &w->old[insn], made.result, result);
}

/* The layouts in which instruction `use` needs the slot, other than the slot's own; returns how many. */
static unsigned wanted(const rewriting *w, uint32_t use, uint32_t slot, const tvm_infer_plan *plan,
                       uint32_t layouts[TVM_INFER_OPERANDS]) {
    const tvm_infer_state *in = w->in;
    const tvm_insn *insn = &w->old[use];
    unsigned k = 0, count = 0;
    for (uint32_t o = 0; o < insn->count && k < TVM_INFER_OPERANDS; o++) {
        const tvm_operand *operand = &in->kernel->operands[insn->first + o];
        if (operand->kind != TVM_OPERAND_SLOT || in->kernel->slots[operand->value].kind != TVM_SLOT_REGISTER)
            continue;
        uint32_t layout = plan->layouts[k++];
        if (operand->value == slot && layout != in->layout[slot]) layouts[count++] = layout;
    }
    return count;
}

/* Instructions that need the slot, which `insn` assigns, in the layout, and run as often at least. */
static unsigned count_wanting(const rewriting *w, uint32_t insn, uint32_t slot, uint32_t layout,
                              const tvm_infer_plan *plans) {
    const tvm_infer_state *in = w->in;
    uint32_t layouts[TVM_INFER_OPERANDS];
    unsigned count = 0;
    for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) {
        uint32_t use = in->uses[i];
        unsigned wants = use == insn ? 0 : wanted(w, use, slot, &plans[use], layouts), k = 0;
        while (k < wants && layouts[k] != layout) k++;
        if (k < wants && in->weights[use] >= in->weights[insn]) count++;
    }
    return count;
}

/* Behind the definition of a slot, what others need it in: where they run more often, where they are several,
 * and always where it can be made again. */
static bool hoist(rewriting *w, uint32_t insn, const tvm_infer_plan *plans) {
    tvm_infer_state *in = w->in;
    uint32_t slot = w->old[insn].result, layouts[TVM_INFER_OPERANDS], made;
    if (slot == TVM_NONE || slot >= in->slot_count || in->definitions[slot] != insn) return true;
    bool again = in->remade[slot];
    for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) {
        uint32_t use = in->uses[i];
        unsigned wants = use == insn ? 0 : wanted(w, use, slot, &plans[use], layouts);
        for (unsigned k = 0; k < wants; k++) {
            uint32_t h = 0;
            bool often =
                in->weights[use] > in->weights[insn] || (in->weights[use] == in->weights[insn] &&
                                                         count_wanting(w, insn, slot, layouts[k], plans) > 1);
            while (h < w->hoisted_count && (w->hoisted[h].slot != slot || w->hoisted[h].layout != layouts[k]))
                h++;
            if (h < w->hoisted_count || !(again || often)) continue;
            if (!temporary(w, slot, layouts[k], &made) ||
                !(again ? make_again(w, insn, made) : change(w, &w->old[insn], slot, made)))
                return false;
            w->hoisted[w->hoisted_count++] = (struct hoisted){slot, layouts[k], made};
        }
    }
    return true;
}

bool tvm_infer_rewrite(tvm_infer_state *in, const tvm_infer_plan *plans) {
    tvm_ir_kernel *kernel = in->kernel;
    rewriting w = {.in = in, .old_count = kernel->insn_count};
    w.old = tvm_infer_array(in, w.old_count, sizeof *w.old);
    w.hoisted = tvm_infer_array(in, (size_t)w.old_count * TVM_INFER_OPERANDS, sizeof *w.hoisted);
    if (in->failed) return false;
    memcpy(w.old, kernel->insns, w.old_count * sizeof *w.old);
    kernel->insn_count = 0;
    for (uint32_t i = 0; i < w.old_count; i++) {
        bool planned = plans[i].cost > 0;
        if (!(planned ? rewrite_one(&w, i, &plans[i]) : keep(&w, &w.old[i]))) return false;
        if (!hoist(&w, i, plans)) return false;
    }
    return true;
}
