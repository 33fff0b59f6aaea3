/* The cheapest way to do one instruction with the layouts that its slots have. */
#include "infer_state.h"

#include <string.h>

typedef struct planning {
    tvm_infer_state *in;
    uint32_t insn;
    tvm_infer_operands registers;
    uint32_t have[TVM_INFER_OPERANDS]; /* the operands' layouts, and the result's */
    uint32_t result_slot, result;
    bool may_relayout;
    tvm_infer_plan *best;
} planning;

static unsigned bits_of(const planning *p, uint32_t slot) {
    return p->in->work[slot].dtype.bits;
}

static uint64_t change(const planning *p, uint32_t slot, uint32_t from, uint32_t to) {
    if (from == to) return 0;
    if (!p->may_relayout) return TVM_INFER_NEVER;
    const tvm_layout left = tvm_infer_layout(p->in, from), right = tvm_infer_layout(p->in, to);
    if (p->in->remade[slot] && p->result_slot != slot) return tvm_layout_locals(&right);
    return tvm_infer_relayout_cost(&left, &right, bits_of(p, slot));
}

/* What the instruction moves, in the layout in which it does. */
static uint64_t access_cost(const planning *p, const uint32_t *layouts, uint32_t result,
                            uint64_t *registers) {
    tvm_infer_space space = tvm_infer_space_of(p->in, p->insn);
    *registers = 0;
    if (space == TVM_SPACE_NONE || p->in->kernel->insns[p->insn].op == TVM_OP_MMA) return 0;
    unsigned k;
    uint32_t moved = tvm_infer_moved(p->in, p->insn, &k);
    if (moved == TVM_NONE) return 0;
    const tvm_layout found = tvm_infer_layout(p->in, p->result_slot != TVM_NONE ? result : layouts[k]);
    tvm_layout layout;
    *registers = ((uint64_t)tvm_layout_locals(&found) * bits_of(p, moved) + 31) / 32;
    if (!tvm_infer_lines_last(&found, tvm_infer_line(p->in, p->insn, found.rank), &layout)) layout = found;
    return tvm_infer_access_cost(space, &layout, bits_of(p, moved),
                                 tvm_infer_width(p->in, p->insn, bits_of(p, moved)));
}

/* Takes the plan if the rule does and it is the cheapest so far. */
static void consider(planning *p, const uint32_t *layouts, uint32_t result) {
    uint64_t registers, cost = access_cost(p, layouts, result, &registers);
    for (unsigned k = 0; k < p->registers.count; k++)
        cost += change(p, p->registers.slots[k], p->have[k], layouts[k]);
    if (p->result_slot != TVM_NONE) cost += change(p, p->result_slot, result, p->result);
    if (cost >= p->best->cost || cost >= TVM_INFER_NEVER) return;
    cost += tvm_infer_work_cost(p->in, p->insn, layouts, result);
    tvm_infer_product product = {.tensor = 0};
    if (p->in->kernel->insns[p->insn].op == TVM_OP_MMA &&
        tvm_infer_product_of(p->in, p->insn, result, &product))
        cost += product.tensor + product.fragments;
    if (cost >= p->best->cost || !tvm_infer_attempt(p->in, p->insn, layouts, result, NULL, NULL)) return;
    p->best->cost = cost;
    p->best->tensor = product.tensor;
    p->best->registers = registers;
    memcpy(p->best->layouts, layouts, p->registers.count * sizeof *layouts);
    p->best->result = result;
}

/* The operands as the result asks for them. */
static void consider_result(planning *p, uint32_t result) {
    uint32_t layouts[TVM_INFER_OPERANDS];
    for (unsigned k = 0; k < p->registers.count; k++) layouts[k] = TVM_NONE;
    if (tvm_infer_backwards(p->in, p->insn, result, layouts)) consider(p, layouts, result);
}

/* The layout with the registers of each thread in another order: those that are neighbours in memory, too,
 * beside each other. TVM_NONE: it is so already. */
static uint32_t with_runs(planning *p, uint32_t layout) {
    tvm_layout found = tvm_infer_layout(p->in, layout), made;
    unsigned line = tvm_infer_line(p->in, p->insn, found.rank), finest = found.modes, at = 0;
    while (finest > 0 && found.mode_dim[finest - 1] != line) finest--;
    while (at < found.locals && found.local[at] + 1U != finest) at++;
    if (at + 1U >= found.locals) return TVM_NONE;
    for (; at + 1U < found.locals; at++) found.local[at] = found.local[at + 1];
    found.local[at] = (uint8_t)(finest - 1);
    if (tvm_layout_make(found.rank, found.shape, found.modes, found.mode_size, found.spatials, found.spatial,
                        found.locals, found.local, &made, NULL) != TVM_OK)
        return TVM_NONE;
    return tvm_infer_number(p->in, &made);
}

static void consider_move_in(planning *p, unsigned ordinal, uint32_t layout) {
    uint32_t layouts[TVM_INFER_OPERANDS];
    if (layout == TVM_NONE) return;
    if (p->result_slot != TVM_NONE && p->registers.count)
        consider_result(p, layout);
    else if (p->result_slot != TVM_NONE)
        consider(p, p->have, layout);
    else if (tvm_infer_beside(p->in, p->insn, ordinal, layout, layouts))
        consider(p, layouts, TVM_NONE);
}

/* What is moved in the layouts that are best for that. */
static void consider_moved(planning *p) {
    tvm_infer_anchor anchors[TVM_INFER_ANCHORS];
    unsigned ordinal;
    uint32_t slot = tvm_infer_moved(p->in, p->insn, &ordinal);
    if (slot == TVM_NONE) return;
    unsigned count = tvm_infer_anchors(p->in, p->insn, slot, anchors);
    for (unsigned i = 0; i < count; i++) consider_move_in(p, ordinal, anchors[i].layout);
    consider_move_in(p, ordinal, with_runs(p, p->result_slot != TVM_NONE ? p->result : p->have[ordinal]));
}

/* Operands of an instruction without a result, as one of them has it. */
static void consider_beside(planning *p) {
    uint32_t layouts[TVM_INFER_OPERANDS];
    for (unsigned k = 0; k < p->registers.count; k++)
        if (tvm_infer_beside(p->in, p->insn, k, p->have[k], layouts)) consider(p, layouts, TVM_NONE);
}

typedef struct tvm_infer_plan_memo {
    struct tvm_infer_plan_memo *next;
    uint32_t have[TVM_INFER_OPERANDS], result;
    tvm_infer_plan plan;
} plan_memo;

static bool is_of(const plan_memo *memo, const planning *p) {
    return memo->result == p->result &&
           memcmp(memo->have, p->have, p->registers.count * sizeof *p->have) == 0;
}

static void find_best(planning *p) {
    uint32_t made;
    p->best->cost = 2 * (uint64_t)TVM_INFER_NEVER;
    consider(p, p->have, p->result);
    if (!p->may_relayout) return;
    if (p->result_slot != TVM_NONE && p->registers.count) {
        consider_result(p, p->result);
        for (unsigned k = 0; k < p->registers.count; k++) consider_result(p, p->have[k]);
        if (tvm_infer_attempt(p->in, p->insn, p->have, TVM_NONE, &made, NULL)) consider(p, p->have, made);
    }
    if (p->result_slot == TVM_NONE && p->registers.count > 1) consider_beside(p);
    if (tvm_infer_space_of(p->in, p->insn) != TVM_SPACE_NONE &&
        p->in->kernel->insns[p->insn].op != TVM_OP_MMA)
        consider_moved(p);
}

void tvm_infer_make_plan(tvm_infer_state *in, uint32_t insn, tvm_infer_plan *plan) {
    planning p = {.in = in, .insn = insn, .best = plan};
    *plan = (tvm_infer_plan){.cost = 0, .result = TVM_NONE};
    tvm_infer_registers(in, insn, &p.registers);
    p.result_slot = tvm_infer_result(in, insn);
    p.result = p.result_slot == TVM_NONE ? TVM_NONE : in->layout[p.result_slot];
    if (p.result_slot == TVM_NONE && !p.registers.count) return;
    if (p.result_slot != TVM_NONE && p.result == TVM_NONE) return;
    bool open = p.result_slot != TVM_NONE && in->open[p.result_slot];
    for (unsigned k = 0; k < p.registers.count; k++) {
        p.have[k] = in->layout[p.registers.slots[k]];
        if (p.have[k] == TVM_NONE) return;
        open = open || in->open[p.registers.slots[k]];
    }
    /* Between written layouts nothing is changed: they contradict each other. */
    p.may_relayout = open;
    plan_memo *memo = in->plans[insn];
    while (memo && !is_of(memo, &p)) memo = memo->next;
    if (memo) {
        *plan = memo->plan;
        return;
    }
    find_best(&p);
    memo = in->memos < TVM_INFER_MEMOS ? tvm_infer_array(in, 1, sizeof *memo) : NULL;
    if (!memo) return;
    in->memos++;
    *memo = (plan_memo){.next = in->plans[insn], .result = p.result, .plan = *plan};
    memcpy(memo->have, p.have, sizeof memo->have);
    in->plans[insn] = memo;
}
