#include "mbarrier_plan.h"

#include "analysis.h"
#include "numbers.h"

/* Of a block, for bar. */
enum { BARRIERS = 16 };

static uint32_t multiple_of_both(uint32_t a, uint32_t b) {
    return a / (uint32_t)tvm_gcd(a, b) * b;
}

static void note_use(kernel_state *k, const tvm_insn *insn, uint32_t slot, tvm_team team) {
    slot_plan *state = &k->slots[slot];
    named_barriers *named = &state->named;
    bool syncs = insn->op == TVM_OP_SYNC_BARRIER, arrives = syncs || insn->op == TVM_OP_ARRIVE_BARRIER;
    if (arrives) state->team_arrivals = multiple_of_both(state->team_arrivals, team.warps);
    if (insn->op == TVM_OP_ARRIVE_BARRIER &&
        tvm_operands(k->kernel, insn)[insn->count - 1].kind != TVM_OPERAND_NONE &&
        tvm_cluster_blocks(k->kernel) > 1)
        named->refused = "other blocks of the cluster arrive";
    else if (!arrives)
        named->refused = "teams also wait there, or copies come";
    else if (named->warps && named->warps != team.warps)
        named->refused = "the teams have different numbers of warps";
    named->syncs = named->syncs || syncs;
    named->warps = team.warps;
}

uint32_t tvm_mbarrier_count(const kernel_state *k, uint32_t slot) {
    return tvm_shared_layout_span(tvm_slot_shared_layout(k, slot));
}

uint32_t tvm_mbarrier_arrivals(const kernel_state *k, const tvm_insn *alloc) {
    const tvm_operand *arrivals = tvm_operands(k->kernel, alloc);
    return arrivals->kind == TVM_OPERAND_NONE ? 1 : arrivals->value;
}

bool tvm_mbarrier_is_open(const kernel_state *k, const tvm_insn *alloc) {
    return tvm_operands(k->kernel, alloc)[1].kind != TVM_OPERAND_NONE;
}

/* The numbers from *next on are left. */
static void name_barriers(kernel_state *k, const tvm_insn *alloc, uint32_t *next) {
    named_barriers *named = &k->slots[alloc->result].named;
    uint32_t count = tvm_mbarrier_count(k, alloc->result),
             warps = tvm_mbarrier_arrivals(k, alloc) * named->warps;
    if (!named->syncs) named->refused = "no team syncs there";
    if (tvm_mbarrier_is_open(k, alloc)) named->refused = "they are open";
    if (k->counts_turns) named->refused = "what waits there would ask nothing that can be counted";
    if (warps > k->kernel->warps) named->refused = "there are more arrivals than warps";
    if (!named->refused && *next + count > BARRIERS) named->refused = "there are no more than 16";
    if (named->refused) return;
    named->first = *next;
    named->threads = 32 * warps;
    *next += count;
}

void tvm_mbarriers_plan(kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    uint32_t next = 1;
    for (uint32_t s = 0; s < kernel->slot_count; s++) k->slots[s].team_arrivals = 1;
    tvm_team_walk walk = {.depth = 0};
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        const tvm_operand *operands = tvm_operands(kernel, insn);
        tvm_team team = tvm_team_next(&walk, kernel, insn);
        for (uint32_t o = 0; o < insn->count; o++)
            if (operands[o].kind == TVM_OPERAND_SLOT &&
                kernel->slots[operands[o].value].kind == TVM_SLOT_BARRIER)
                note_use(k, insn, operands[o].value, team);
        if (tvm_insn_class(insn) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, insn);
        next += tvm_role_teams(&role);
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op == TVM_OP_ALLOC_BARRIER) name_barriers(k, insn, &next);
    }
}
