/* Relayouts at a better place: a tensor takes the layout in which an instruction needs it, and with it the
 * tensors that it is computed from or that are computed of it. What is improved one tensor at a time
 * (infer.c) stops where several would have to change together. */
#include "infer_state.h"

#include <string.h>

enum { ATTEMPTS = 1 << 20, TURNS = 64 }; /* bounds of the work */

typedef struct region {
    uint32_t *slots, *insns; /* members, and the instructions that have one */
    uint32_t slot_count, insn_count;
    bool *member, *touched;
    bool *within;     /* of the instructions, those that are element-wise, through which a layout is spread */
    uint32_t *before; /* layouts of the kernel's slots */
    tvm_infer_reason *reasons;
} region;

static bool region_make(tvm_infer_state *in, region *r) {
    r->slots = tvm_infer_array(in, in->slot_count, sizeof *r->slots);
    r->insns = tvm_infer_array(in, in->kernel->insn_count, sizeof *r->insns);
    r->member = tvm_infer_array(in, in->slot_count, sizeof *r->member);
    r->touched = tvm_infer_array(in, in->kernel->insn_count, sizeof *r->touched);
    r->within = tvm_infer_array(in, in->kernel->insn_count, sizeof *r->within);
    r->before = tvm_infer_array(in, in->slot_count, sizeof *r->before);
    r->reasons = tvm_infer_array(in, in->slot_count, sizeof *r->reasons);
    return !in->failed;
}

/* Sums that products add to stay as they are, and so do those that one instruction uses, which turns what it
 * makes of them. What a product makes for several others is turned once for all. */
static bool has_sums(const tvm_infer_state *in, uint32_t slot) {
    unsigned uses = in->first_use[slot + 1] - in->first_use[slot], products = 0;
    bool added_to = false;
    for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) {
        uint32_t insn = in->uses[i];
        if (!tvm_infer_is_product(in, insn, slot)) continue;
        const tvm_insn *mma = &in->kernel->insns[insn];
        const tvm_operand *operands = tvm_operands(in->kernel, mma);
        const tvm_mma_places at = tvm_mma_find_places(in->program, in->kernel, operands, mma->count);
        added_to = added_to || operands[at.c].value == slot;
        products++;
    }
    return products > 0 && (added_to || uses - products < 2);
}

static void join(const tvm_infer_state *in, region *r, uint32_t slot) {
    if (slot == TVM_NONE || r->member[slot] || !in->open[slot] || has_sums(in, slot)) return;
    r->member[slot] = true;
    r->slots[r->slot_count++] = slot;
}

/* The tensor, and those that element-wise instructions connect with it. */
static void collect(const tvm_infer_state *in, region *r, uint32_t slot) {
    r->slot_count = r->insn_count = 0;
    memset(r->member, 0, in->slot_count);
    memset(r->touched, 0, in->kernel->insn_count);
    memset(r->within, 0, in->kernel->insn_count);
    join(in, r, slot);
    for (uint32_t next = 0; next < r->slot_count; next++)
        for (uint32_t i = in->first_use[r->slots[next]]; i < in->first_use[r->slots[next] + 1]; i++) {
            uint32_t insn = in->uses[i];
            tvm_infer_operands registers;
            if (r->touched[insn]) continue;
            r->touched[insn] = true;
            r->insns[r->insn_count++] = insn;
            const tvm_op_info *row = tvm_infer_row(in, insn);
            if (row->class != TVM_CLASS_COMPUTE || row->effects || in->kernel->insns[insn].op == TVM_OP_MMA)
                continue;
            r->within[insn] = true;
            tvm_infer_registers(in, insn, &registers);
            join(in, r, tvm_infer_result(in, insn));
            for (unsigned k = 0; k < registers.count; k++) join(in, r, registers.slots[k]);
        }
}

static uint64_t cost_of(tvm_infer_state *in, const region *r, uint64_t *products) {
    uint64_t cost = 0;
    *products = 0;
    for (uint32_t i = 0; i < r->insn_count; i++) {
        tvm_infer_plan plan;
        tvm_infer_make_plan(in, r->insns[i], &plan);
        cost += plan.cost * in->weights[r->insns[i]];
        *products += plan.tensor * in->weights[r->insns[i]];
    }
    return cost;
}

/* The slot and what goes with it in this layout, if that costs less; `later`: or as much, as a relayout
 * behind several instructions leaves these to be done as one. */
static bool try_layout(tvm_infer_state *in, region *r, uint32_t slot, uint32_t layout,
                       tvm_infer_reason reason, bool later) {
    uint64_t products, products_before;
    collect(in, r, slot);
    if (!r->member[slot]) return false;
    uint64_t before = cost_of(in, r, &products_before);
    memcpy(r->before, in->layout, in->slot_count * sizeof *r->before);
    memcpy(r->reasons, in->reasons, in->slot_count * sizeof *r->reasons);
    for (uint32_t i = 0; i < r->slot_count; i++) in->layout[r->slots[i]] = TVM_NONE;
    in->within = r->within;
    tvm_infer_spread(in, slot, layout, reason);
    in->within = NULL;
    for (uint32_t i = 0; i < r->slot_count; i++)
        if (in->layout[r->slots[i]] == TVM_NONE) in->layout[r->slots[i]] = r->before[r->slots[i]];
    uint64_t cost = cost_of(in, r, &products);
    if (cost < before + later && products <= products_before) return true;
    memcpy(in->layout, r->before, in->slot_count * sizeof *r->before);
    memcpy(in->reasons, r->reasons, in->slot_count * sizeof *r->reasons);
    return false;
}

/* The operands as the result has it. */
static bool try_operands(tvm_infer_state *in, region *r, uint32_t insn, const tvm_infer_operands *registers) {
    uint32_t layouts[TVM_INFER_OPERANDS];
    for (unsigned k = 0; k < registers->count; k++) layouts[k] = TVM_NONE;
    if (!tvm_infer_backwards(in, insn, in->layout[tvm_infer_result(in, insn)], layouts)) return false;
    for (unsigned k = 0; k < registers->count; k++)
        if (layouts[k] != in->layout[registers->slots[k]] &&
            try_layout(in, r, registers->slots[k], layouts[k], (tvm_infer_reason){TVM_WHY_USE, insn}, false))
            return true;
    return false;
}

/* Where the instruction's plan asks for a relayout: on its other side, or further on. */
static bool improve_at(tvm_infer_state *in, region *r, uint32_t insn) {
    tvm_infer_plan plan;
    tvm_infer_operands registers;
    uint32_t result = tvm_infer_result(in, insn);
    tvm_infer_make_plan(in, insn, &plan);
    if (plan.cost == 0 || plan.cost >= TVM_INFER_NEVER) return false;
    tvm_infer_registers(in, insn, &registers);
    for (unsigned k = 0; k < registers.count; k++)
        if (plan.layouts[k] != in->layout[registers.slots[k]] &&
            try_layout(in, r, registers.slots[k], plan.layouts[k], (tvm_infer_reason){TVM_WHY_USE, insn},
                       false))
            return true;
    if (result == TVM_NONE || plan.result == TVM_NONE || plan.result == in->layout[result]) return false;
    return try_layout(in, r, result, plan.result, (tvm_infer_reason){TVM_WHY_RULE, insn},
                      registers.count > 0) ||
           try_operands(in, r, insn, &registers);
}

void tvm_infer_improve_regions(tvm_infer_state *in) {
    region r;
    if (!region_make(in, &r)) return;
    for (uint32_t turns = 0, i = 0; i < in->kernel->insn_count && !in->failed && in->attempts < ATTEMPTS;)
        if (turns == TURNS || !improve_at(in, &r, i))
            i++;
        else
            turns++;
}
