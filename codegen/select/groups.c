/* Pairs of instructions that are carried out as one: see groups.h. */
#include "groups.h"

#include <stdlib.h>

#include "mma_operands.h"
#include "packed.h"

enum { REACH = 64 }; /* instructions between the two, at most */

typedef struct pattern {
    const char *where; /* the second one was carried out */
    /* Is it a pair of this kind, the second of which reads the first one's result? */
    bool (*matches)(const emitter *e, const tvm_insn *first, const tvm_insn *second);
    /* Does it give the same to the last bit? */
    bool (*is_legal)(const emitter *e, const tvm_insn *first, const tvm_insn *second);
} pattern;

struct groups {
    uint32_t *next;          /* by instruction: the one carried out with it, or TVM_NONE */
    const pattern **pattern; /* by instruction that an earlier one carries out */
};

/* ---- definitions and uses ---- */

static unsigned reads_of(const emitter *e, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(e->kernel, insn);
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
static const tvm_insn *next_reader(const emitter *e, const tvm_insn *insn) {
    const tvm_insn *end = e->kernel->insns + e->kernel->insn_count;
    for (const tvm_insn *at = insn + 1; at < end && at <= insn + REACH && !is_control(at); at++) {
        if (reads_of(e, at, insn->result) > 0) return reads_of(e, at, insn->result) == 1 ? at : NULL;
        if (at->result == insn->result) return NULL;
    }
    return NULL;
}

/* May the second be carried out where the first stands? Nothing between assigns what it reads, nor reads or
 * assigns what it assigns. */
static bool may_move(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    for (const tvm_insn *at = first + 1; at < second; at++) {
        if (at->result != TVM_NONE && (at->result == second->result || reads_of(e, second, at->result) > 0))
            return false;
        if (reads_of(e, at, second->result) > 0) return false;
    }
    return true;
}

/* ---- the patterns ---- */

static bool is_conversion_with_constant(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    double zero, scale;
    return (first->op == TVM_OP_CAST || first->op == TVM_OP_CAST_LOWBIT) &&
           tvm_slot_packing(e, tvm_operands(e->kernel, first)->value) == TVM_PACKING_PAIR &&
           tvm_packed_constant(e, first, second, &zero, &scale);
}

static bool is_exact(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    double zero, scale;
    tvm_dtype from = tvm_slot_dtype(e, tvm_operands(e->kernel, first)->value);
    tvm_dtype to = tvm_slot_dtype(e, first->result);
    tvm_packed_constant(e, first, second, &zero, &scale);
    return second->op == TVM_OP_MUL ? tvm_packed_scale_is_exact(e, from, to, scale)
                                    : tvm_packed_zero_is_exact(from, to, zero);
}

/* Products of the same a, the second of which are added to the first. They go through k together, so that a
 * fragment of a is needed once: where a has been converted, all of it need not be in registers at the same
 * time. */
static bool is_added_product(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    if (first->op != TVM_OP_MMA || second->op != TVM_OP_MMA) return false;
    const mma_operands *x = tvm_mma_operands_of(e, first), *y = tvm_mma_operands_of(e, second);
    bool in_registers = !x->mma.b.is_shared && !y->mma.b.is_shared && !x->mma.a.is_shared;
    return in_registers && y->mma.c == first->result && y->a == x->a;
}

static bool keeps_order(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    const mma_operands *x = tvm_mma_operands_of(e, first), *y = tvm_mma_operands_of(e, second);
    bool kept =
        second->result != x->a && second->result != x->b && second->result != y->b && first->result != x->a;
    return kept && tvm_layout_equal(tvm_slot_layout(e, y->b), tvm_slot_layout(e, x->b)) &&
           tvm_layout_equal(tvm_slot_layout(e, second->result), tvm_slot_layout(e, first->result));
}

static const pattern patterns[] = {
    {"in the conversion before", is_conversion_with_constant, is_exact},
    {"in the mma before", is_added_product, keeps_order},
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* ---- the groups ---- */

static const pattern *find_pattern(const emitter *e, const tvm_insn *first, const tvm_insn *second) {
    for (unsigned p = 0; p < PATTERNS; p++)
        if (patterns[p].matches(e, first, second) && patterns[p].is_legal(e, first, second) &&
            may_move(e, first, second))
            return &patterns[p];
    return NULL;
}

/* passed[slot]: how many of a variable's reads are those of a next reader. If all are, none sees the value
 * after it. */
static void make_pairs(emitter *e, uint32_t *passed) {
    const tvm_insn *insns = e->kernel->insns;
    struct groups *g = e->groups;
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        g->next[i] = TVM_NONE;
        if (insns[i].result != TVM_NONE && next_reader(e, &insns[i])) passed[insns[i].result]++;
    }
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        uint32_t result = insns[i].result;
        if (result == TVM_NONE || g->pattern[i] || passed[result] != e->slots[result].reads) continue;
        const tvm_insn *second = next_reader(e, &insns[i]);
        const pattern *found = second ? find_pattern(e, &insns[i], second) : NULL;
        if (!found) continue;
        g->next[i] = (uint32_t)(second - insns);
        g->pattern[second - insns] = found;
    }
}

tvm_status tvm_groups_make(emitter *e) {
    size_t insns = e->kernel->insn_count + (size_t)1;
    uint32_t *passed = calloc(e->kernel->slot_count + (size_t)1, sizeof *passed);
    struct groups *g = e->groups = calloc(1, sizeof *g);
    if (g) {
        g->next = calloc(insns, sizeof *g->next);
        g->pattern = calloc(insns, sizeof *g->pattern);
    }
    bool fits = passed && g && g->next && g->pattern;
    if (fits) make_pairs(e, passed);
    free(passed);
    return fits ? TVM_OK : tvm_diag_no_memory(e->diags);
}

void tvm_groups_free(emitter *e) {
    if (!e->groups) return;
    free(e->groups->next);
    free(e->groups->pattern);
    free(e->groups);
    e->groups = NULL;
}

const tvm_insn *tvm_group_next(const emitter *e, const tvm_insn *insn) {
    uint32_t next = e->groups->next[insn - e->kernel->insns];
    return next == TVM_NONE ? NULL : &e->kernel->insns[next];
}

const char *tvm_group_done(const emitter *e, const tvm_insn *insn) {
    const pattern *p = e->groups->pattern[insn - e->kernel->insns];
    return p ? p->where : NULL;
}
