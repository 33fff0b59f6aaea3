/* The table of patterns, and the pass that finds them: see groups.h. */
#include "patterns.h"

#include <stdlib.h>

#include "groups.h"
#include "mma_operands.h"
#include "packed_constant.h"
#include "scaled.h"
#include "uses.h"
#include "wgmma.h"
#include "wgmma_waits.h"

enum { REACH = 64 }; /* instructions between a value's definition and its reader, at most */

typedef struct pattern {
    const char *name;
    const char *where; /* an instruction that is not the first one was carried out */
    bool (*matches)(kernel_state *k, group_match *g);
    /* NULL, or why it is not: legal, worth it on the target. */
    const char *(*refuse)(kernel_state *k, const group_match *g);
    const char *(*does_not_pay)(kernel_state *k, const group_match *g);
    /* Takes it: how many instructions right after the first are carried out with it. NULL: the second one is.
     */
    uint32_t (*take)(kernel_state *k, const group_match *g);
} pattern;

/* ---- definitions and uses ---- */

static unsigned reads_of(const kernel_state *k, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    unsigned count = 0;
    for (uint32_t i = 0; i < insn->count; i++)
        count += operands[i].kind == TVM_OPERAND_SLOT && operands[i].value == slot;
    return count;
}

static bool is_control(const tvm_insn *insn) {
    tvm_op_class class = tvm_insn_class(insn);
    return class >= TVM_CLASS_LOOP && class <= TVM_CLASS_EXIT;
}

/* The instruction that reads what this one assigns, if that is the first one to name the variable again. */
static const tvm_insn *next_reader(const kernel_state *k, const tvm_insn *insn) {
    const tvm_insn *end = k->kernel->insns + k->kernel->insn_count;
    for (const tvm_insn *at = insn + 1; at < end && at <= insn + REACH && !is_control(at); at++) {
        if (reads_of(k, at, insn->result) > 0) return reads_of(k, at, insn->result) == 1 ? at : NULL;
        if (at->result == insn->result) return NULL;
    }
    return NULL;
}

/* The same, where nothing else sees the value: all reads of the variable are those of next readers. */
static const tvm_insn *only_reader(const kernel_state *k, uint32_t first) {
    const tvm_insn *insn = &k->kernel->insns[first];
    if (insn->result == TVM_NONE || k->groups->passed[insn->result] != k->uses->slots[insn->result].count)
        return NULL;
    return next_reader(k, insn);
}

/* May the second be carried out where the first stands? Nothing between assigns what it reads, nor reads or
 * assigns what it assigns. */
static bool may_move(const kernel_state *k, const tvm_insn *first, const tvm_insn *second) {
    for (const tvm_insn *at = first + 1; at < second; at++) {
        if (at->result != TVM_NONE && (at->result == second->result || reads_of(k, second, at->result) > 0))
            return false;
        if (reads_of(k, at, second->result) > 0) return false;
    }
    return true;
}

/* ---- constants of conversions ---- */

static const tvm_insn *insn_at(const kernel_state *k, uint32_t number) {
    return &k->kernel->insns[number];
}

static bool is_conversion_with_constant(kernel_state *k, group_match *g) {
    double zero, scale;
    const tvm_insn *first = insn_at(k, g->first), *second;
    if (first->op != TVM_OP_CAST && first->op != TVM_OP_CAST_LOWBIT) return false;
    if (tvm_slot_packing(k, tvm_operands(k->kernel, first)->value) != TVM_PACKING_PAIR) return false;
    if (!(second = only_reader(k, g->first)) || !tvm_packed_constant(k, first, second, &zero, &scale))
        return false;
    g->second = (uint32_t)(second - k->kernel->insns);
    return true;
}

static const char *refuse_constant(kernel_state *k, const group_match *g) {
    double zero, scale;
    const tvm_insn *first = insn_at(k, g->first), *second = insn_at(k, g->second);
    tvm_dtype from = tvm_slot_dtype(k, tvm_operands(k->kernel, first)->value);
    tvm_dtype to = tvm_slot_dtype(k, first->result);
    tvm_packed_constant(k, first, second, &zero, &scale);
    bool exact = second->op == TVM_OP_MUL ? tvm_packed_scale_is_exact(k, from, to, scale)
                                          : tvm_packed_zero_is_exact(from, to, zero);
    if (!exact) return "it would round otherwise";
    return may_move(k, first, second) ? NULL : "what stands between them is in the way";
}

/* ---- added products ---- */

/* Products of the same a, the second of which are added to the first. They go through k together, so that a
 * fragment of a is needed once: where a has been converted, all of it need not be in registers at the same
 * time. */
static bool is_added_product(kernel_state *k, group_match *g) {
    const tvm_insn *first = insn_at(k, g->first), *second = only_reader(k, g->first);
    if (!second || first->op != TVM_OP_MMA || second->op != TVM_OP_MMA) return false;
    const mma_operands *x = tvm_mma_operands_of(k, first), *y = tvm_mma_operands_of(k, second);
    bool in_registers = !x->mma.b.is_shared && !y->mma.b.is_shared && !x->mma.a.is_shared;
    g->second = (uint32_t)(second - k->kernel->insns);
    return in_registers && y->mma.c == first->result && y->a == x->a && tvm_mma_is_of_words(k, x);
}

static const char *refuse_added_product(kernel_state *k, const group_match *g) {
    const tvm_insn *first = insn_at(k, g->first), *second = insn_at(k, g->second);
    const mma_operands *x = tvm_mma_operands_of(k, first), *y = tvm_mma_operands_of(k, second);
    bool kept =
        second->result != x->a && second->result != x->b && second->result != y->b && first->result != x->a;
    if (!kept) return "one would overwrite what the other reads";
    if (!tvm_layout_equal(tvm_slot_layout(k, y->b), tvm_slot_layout(k, x->b)) ||
        !tvm_layout_equal(tvm_slot_layout(k, second->result), tvm_slot_layout(k, first->result)))
        return "the layouts differ";
    return may_move(k, first, second) ? NULL : "what stands between them is in the way";
}

/* ---- the table ---- */

/* In this order: whether weights are left scaled depends on what does their mma. */
static const pattern patterns[] = {
    {"wgmma", "in wgmma", tvm_wgmma_matches, tvm_wgmma_refuse, tvm_wgmma_does_not_pay, tvm_wgmma_take},
    {"constant", "in the conversion before", is_conversion_with_constant, refuse_constant, NULL, NULL},
    {"added product", "in the mma before", is_added_product, refuse_added_product, NULL, NULL},
    {"scaled", "", tvm_scaled_matches, tvm_scaled_refuse, tvm_scaled_does_not_pay, tvm_scaled_take},
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* ---- the groups ---- */

static void take(kernel_state *k, const pattern *p, const group_match *g) {
    group_entry *entries = k->groups->entries;
    uint32_t count = p->take ? p->take(k, g) : 0;
    for (uint32_t i = 1; i <= count; i++) entries[g->first + i].done = p->where;
    if (p->take) return;
    entries[g->first].next = g->second;
    entries[g->second].done = p->where;
}

static void find_groups(kernel_state *k, const pattern *p) {
    group_entry *entries = k->groups->entries;
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        group_match g = {.first = i, .second = TVM_NONE};
        if (entries[i].done || !p->matches(k, &g)) continue;
        const char *why = p->refuse(k, &g);
        if (!why && p->does_not_pay) why = p->does_not_pay(k, &g);
        if (!why) {
            take(k, p, &g);
        } else if (!entries[i].why) {
            entries[i].refused = p->name;
            entries[i].why = why;
        }
    }
}

static void count_passed(kernel_state *k) {
    const tvm_insn *insns = k->kernel->insns;
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        k->groups->entries[i].next = TVM_NONE;
        if (insns[i].result != TVM_NONE && next_reader(k, &insns[i])) k->groups->passed[insns[i].result]++;
    }
}

tvm_status tvm_groups_make(kernel_state *k) {
    struct groups *g = calloc(1, sizeof *g + (k->kernel->insn_count + (size_t)1) * sizeof *g->entries);
    k->groups = g;
    if (g) g->passed = calloc(k->kernel->slot_count + (size_t)1, sizeof *g->passed);
    if (!g || !g->passed) return tvm_diag_no_memory(k->diags);
    tvm_status status = tvm_wgmma_find(k);
    if (status != TVM_OK) return status;
    count_passed(k);
    for (unsigned p = 0; p < PATTERNS; p++) find_groups(k, &patterns[p]);
    return tvm_wgmma_plan_waits(k);
}
