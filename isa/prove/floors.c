/* Where a walk does not follow all scalars (slice.c), those at the edge of what it follows are unknown. What
 * it needs to know of them often is that they are above 0: a number of turns that is the smallest of several.
 * So each is asked for by itself: with all that bears on it, but without what bears on the question, it is
 * looked at what it is at least. */
#include "explore.h"

#include <stdlib.h>

enum { MOST = 1, LEAST = 0 }; /* floors that are tried */

typedef struct floor_search {
    int64_t floor;
    bool is_met;
} floor_search;

static bool meet(explorer *e, explore_moment *m, uint32_t insn) {
    floor_search *f = e->closure;
    const refute_sum none = {.count = 0};
    const uint32_t expr = tvm_operands(e->p->kernel, &e->p->kernel->insns[insn])[0].value;
    tvm_explore_value(e, m, expr); /* choices may change what its unknowns are */
    const refute_sum value = tvm_explore_value(e, m, expr);
    if (e->silent) return false;
    f->is_met = true;
    while (f->floor >= LEAST && !tvm_explore_is_above(e, m, &value, &none, f->floor, 1)) f->floor--;
    return false;
}

/* What the instruction assigns at least; below LEAST: it is not known. */
static int64_t floor_of(prover *p, uint32_t insn, uint8_t *asked, refute_unknowns *unknowns) {
    floor_search f = {.floor = MOST};
    explorer *e = calloc(1, sizeof *e);
    asked[insn] = 1;
    unknowns->count = 0;
    if (e && tvm_explore_begin(e, p, unknowns, asked, EXPLORE_ALL)) {
        e->meet = meet;
        e->closure = &f;
        explore_moment *start = tvm_explore_start(e);
        if (start) tvm_explore_all(e, start);
        if (e->failed || !f.is_met) f.floor = LEAST - 1;
    } else {
        f.floor = LEAST - 1;
        p->no_memory = true;
    }
    if (e) tvm_explore_end(e);
    free(e);
    asked[insn] = 0;
    return f.floor;
}

/* The instruction that assigns the end of a loop from 0 on, of a scalar that is assigned nowhere else;
 * TVM_NONE. */
static uint32_t end_of(const prover *p, uint32_t loop) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[loop]);
    const tvm_expr *start = &p->kernel->exprs[operands[0].value], *end = &p->kernel->exprs[operands[1].value];
    if (start->op != TVM_EXPR_INTEGER || start->value.i != 0 || end->op != TVM_EXPR_SLOT ||
        end->a < p->kernel->param_count)
        return TVM_NONE;
    const tvm_insn *let = tvm_prove_definition(p, end->a);
    return let && let->op == TVM_OP_LET ? (uint32_t)(let - p->kernel->insns) : TVM_NONE;
}

bool tvm_prove_find_runs(prover *p, uint64_t most_work) {
    const size_t insns = p->kernel->insn_count + (size_t)1;
    uint8_t *asked = calloc(insns, 1);
    refute_unknowns *unknowns = calloc(1, sizeof *unknowns);
    p->runs = calloc(insns, 1);
    bool made = asked && unknowns && p->runs;
    if (made) unknowns->most_work = most_work;
    for (uint32_t i = 0; made && i < p->kernel->insn_count && !p->no_memory; i++) {
        uint32_t end = p->kernel->insns[i].op == TVM_OP_FOR && p->bears[i] ? end_of(p, i) : TVM_NONE;
        p->runs[i] = end != TVM_NONE && floor_of(p, end, asked, unknowns) >= 1;
    }
    if (made) tvm_prove_allow(p, unknowns->work);
    free(asked);
    free(unknowns);
    return made;
}

void tvm_explore_find_floors(explorer *e, uint64_t most_work) {
    prover *p = e->p;
    const size_t insns = p->kernel->insn_count + (size_t)1;
    uint8_t *asked = calloc(insns, 1);
    refute_unknowns *unknowns = calloc(1, sizeof *unknowns);
    e->floors = calloc(insns, sizeof *e->floors);
    if (!asked || !unknowns || !e->floors) p->no_memory = e->failed = true;
    if (unknowns) unknowns->most_work = most_work;
    for (uint32_t i = 0; i < p->kernel->insn_count && !e->failed; i++) {
        e->floors[i] = e->edge[i] ? floor_of(p, i, asked, unknowns) : INT64_MIN;
        if (e->floors[i] < LEAST) e->floors[i] = INT64_MIN;
        e->failed = p->no_memory;
    }
    if (unknowns) e->unknowns->work += unknowns->work;
    free(asked);
    free(unknowns);
}
