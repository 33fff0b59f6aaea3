/* Which scalar expressions are fixed, and what is assumed of them; ranges.c and divisors.c build on it. */
#include "find_facts.h"

#include <stdlib.h>

#include "analysis.h"
#include "divisors.h"
#include "ranges.h"

enum { PROOF_WORK = 1 << 24 };

/* ---- what is fixed ---- */

typedef struct leaves {
    bool pinned; /* they keep their values while the slot that is defined by them is used */
    bool stable; /* for the whole kernel */
} leaves;

static void find_leaves(const kernel_state *k, uint32_t expr, leaves *out) {
    const tvm_expr *node = node_of(k, expr);
    if (node->op == TVM_EXPR_SLOT) {
        const slot_fact *slot = &k->facts->slots[node->a];
        bool is_param = node->a < k->kernel->param_count;
        out->stable = out->stable && (is_param || slot->stable);
        out->pinned = out->pinned &&
                      (is_param || slot->definition != TVM_NONE || slot->loop != TVM_NONE || slot->given);
        return;
    }
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (arity > 0) find_leaves(k, node->a, out);
    if (arity > 1) find_leaves(k, node->b, out);
    if (arity > 2) find_leaves(k, node->c, out);
}

/* The value is given, in a range maybe. */
static void find_interval(const kernel_state *k, const tvm_insn *insn, slot_fact *slot) {
    const tvm_operand *bounds = tvm_insn_interval(k->program, k->kernel, insn);
    leaves found = {true, true};
    slot->given = true;
    if (!bounds) return;
    find_leaves(k, bounds[0].value, &found);
    find_leaves(k, bounds[1].value, &found);
    if (found.pinned) slot->interval = bounds;
}

/* A slot with one assignment, of a value, stands for its expression: a use follows the assignment without
 * passing it again, so leaves that are parameters, other such slots and variables of enclosing loops still
 * have the values that they had there. */
static void find_definitions(const kernel_state *k) {
    facts *f = k->facts;
    const tvm_ir_kernel *kernel = k->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (!tvm_fact_sets_scalar(k, insn)) continue;
        slot_fact *slot = &f->slots[insn->result];
        if (slot->assigned != 1) continue;
        if (!tvm_insn_has(insn, TVM_TRAIT_VALUE | TVM_TRAIT_COUNTER)) {
            find_interval(k, insn, slot);
            continue;
        }
        if (tvm_insn_has(insn, TVM_TRAIT_COUNTER)) {
            slot->loop = i;
            continue;
        }
        leaves found = {true, true};
        uint32_t expr = tvm_operands(kernel, insn)[0].value;
        find_leaves(k, expr, &found);
        if (found.pinned) slot->definition = expr;
        slot->stable = found.pinned && found.stable;
    }
}

static void find_stable(const kernel_state *k) {
    facts *f = k->facts;
    for (uint32_t x = 0; x < k->kernel->expr_count; x++) {
        const tvm_expr *node = node_of(k, x);
        expr_fact *fact = &f->exprs[x];
        unsigned arity = tvm_expr_op_info(node->op)->arity;
        bool is_param = node->op == TVM_EXPR_SLOT && node->a < k->kernel->param_count;
        fact->stable = node->op != TVM_EXPR_SLOT || is_param || f->slots[node->a].stable;
        fact->varies = node->op == TVM_EXPR_BLOCK || node->op == TVM_EXPR_GRID ||
                       tvm_expr_is_of_device(node->op) || is_param;
        const uint32_t operands[3] = {node->a, node->b, node->c};
        for (unsigned i = 0; i < arity; i++) {
            fact->stable = fact->stable && f->exprs[operands[i]].stable;
            fact->varies = fact->varies || f->exprs[operands[i]].varies;
        }
    }
}

/* ---- assumptions ---- */

static void assume_bound(facts *f, uint32_t expr, unsigned op, int64_t value) {
    int64_t *low = &f->assumed_low[expr], *high = &f->assumed_high[expr];
    int64_t least = op == TVM_EXPR_GT && value < INT64_MAX ? value + 1 : value;
    int64_t most = op == TVM_EXPR_LT && value > INT64_MIN ? value - 1 : value;
    if ((op == TVM_EXPR_GT || op == TVM_EXPR_GE || op == TVM_EXPR_EQ) && least > *low) *low = least;
    if ((op == TVM_EXPR_LT || op == TVM_EXPR_LE || op == TVM_EXPR_EQ) && most < *high) *high = most;
}

/* Of u64 a comparison is one of unsigned values: below a constant up to INT64_MAX they are not negative as
 * i64, from it up they may be, unless something else says that they are not. */
static void assume_unsigned(facts *f, uint32_t expr, unsigned op, int64_t value) {
    bool below = op == TVM_EXPR_LT || op == TVM_EXPR_LE;
    if (op == TVM_EXPR_EQ || (below && value >= 0)) {
        assume_bound(f, expr, op, value);
        if (below) assume_bound(f, expr, TVM_EXPR_GE, 0);
    } else if (!below && value >= 0 && f->assumed_low[expr] >= 0) {
        assume_bound(f, expr, op, value);
    }
}

static void assume_compared(const kernel_state *k, uint32_t expr, unsigned op, int64_t value) {
    if (tvm_fact_is_u64(node_of(k, expr)->type))
        assume_unsigned(k->facts, expr, op, value);
    else
        assume_bound(k->facts, expr, op, value);
}

static void assume(const kernel_state *k, uint32_t expr) {
    const tvm_expr *node = node_of(k, expr);
    facts *f = k->facts;
    if (node->op == TVM_EXPR_LAND) {
        assume(k, node->a);
        assume(k, node->b);
        return;
    }
    if (node->op < TVM_EXPR_LT || node->op > TVM_EXPR_EQ || !tvm_fact_is_integer(node_of(k, node->a)->type))
        return;
    const tvm_expr *a = node_of(k, node->a), *b = node_of(k, node->b);
    if (b->op == TVM_EXPR_INTEGER) assume_compared(k, node->a, node->op, b->value.i);
    if (a->op == TVM_EXPR_INTEGER) assume_compared(k, node->b, tvm_expr_mirrored(node->op), a->value.i);
    if (node->op != TVM_EXPR_EQ || a->op != TVM_EXPR_MOD || b->op != TVM_EXPR_INTEGER || b->value.i != 0)
        return;
    const tvm_expr *by = node_of(k, a->b);
    if (by->op == TVM_EXPR_INTEGER && by->value.i != 0)
        f->assumed_divisor[a->a] =
            tvm_fact_common_multiple(f->assumed_divisor[a->a], tvm_fact_magnitude(by->value.i));
}

/* What a checked launch says: .assume, extents that are not negative, a grid that is not empty. */
static void find_assumptions(const kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    /* Twice: of u64, some say more once others are known. */
    for (uint32_t i = 0; i < 2 * kernel->assume_count; i++)
        assume(k, kernel->assumes[i % kernel->assume_count]);
    for (uint32_t p = 0; p < kernel->slot_count; p++) {
        const tvm_slot *slot = &kernel->slots[p];
        if (slot->kind != TVM_SLOT_GLOBAL || (slot->view && !slot->at_launch)) continue;
        for (unsigned d = 0; d < slot->rank; d++) assume_bound(k->facts, slot->shape[d], TVM_EXPR_GE, 0);
        for (unsigned d = 0; d < slot->rank && slot->form == TVM_FORM_STRIDED; d++)
            assume_bound(k->facts, slot->stride[d], TVM_EXPR_GE, 0);
        uint32_t row = slot->shape[slot->rank - 1];
        uint64_t whole = tvm_bits_whole(slot->dtype.bits);
        if (whole > 1)
            k->facts->assumed_divisor[row] = tvm_fact_common_multiple(k->facts->assumed_divisor[row], whole);
    }
    for (unsigned axis = 0; axis < 3; axis++)
        if (kernel->grid[axis] != TVM_NONE) {
            assume_bound(k->facts, kernel->grid[axis], TVM_EXPR_GE, 1);
            assume_bound(k->facts, kernel->grid[axis], TVM_EXPR_LE, axis == 0 ? INT32_MAX : 65535);
        }
}

/* ---- making ---- */

static bool allocate(kernel_state *k) {
    facts *f = calloc(1, sizeof *f);
    k->facts = f;
    if (!f) return false;
    size_t exprs = k->kernel->expr_count + (size_t)1, slots = k->kernel->slot_count + (size_t)1;
    f->slots = calloc(slots, sizeof *f->slots);
    f->exprs = calloc(exprs, sizeof *f->exprs);
    f->assumed_divisor = calloc(exprs, sizeof *f->assumed_divisor);
    f->assumed_low = calloc(exprs, sizeof *f->assumed_low);
    f->assumed_high = calloc(exprs, sizeof *f->assumed_high);
    f->scalars_set = calloc(k->kernel->insn_count + (size_t)1, sizeof *f->scalars_set);
    f->version = 1;
    for (unsigned axis = 0; axis < 3; axis++) f->grid_leaf[axis] = TVM_NONE;
    f->work = PROOF_WORK;
    return f->slots && f->exprs && f->assumed_divisor && f->assumed_low && f->assumed_high && f->scalars_set;
}

tvm_status tvm_facts_make(kernel_state *k) {
    if (!allocate(k)) return tvm_diag_no_memory(k->diags);
    facts *f = k->facts;
    const tvm_ir_kernel *kernel = k->kernel;
    for (uint32_t x = 0; x < kernel->expr_count; x++) {
        f->assumed_divisor[x] = 1;
        f->assumed_low[x] = INT64_MIN;
        f->assumed_high[x] = INT64_MAX;
        tvm_fact_type_range(kernel->exprs[x].type, &f->exprs[x].low, &f->exprs[x].high);
        if (kernel->exprs[x].op == TVM_EXPR_GRID) f->grid_leaf[kernel->exprs[x].a] = x;
    }
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        slot_fact *slot = &f->slots[s];
        slot->definition = slot->loop = TVM_NONE;
        slot->divisor = s < kernel->param_count ? 1 : 0;
        tvm_fact_type_range(kernel->slots[s].dtype, &slot->low, &slot->high);
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        if (kernel->insns[i].result != TVM_NONE) f->slots[kernel->insns[i].result].assigned++;
        f->scalars_set[i + 1] = f->scalars_set[i] + tvm_fact_sets_scalar(k, &kernel->insns[i]);
    }
    find_assumptions(k);
    find_definitions(k);
    find_stable(k);
    tvm_find_ranges(k);
    tvm_find_divisors(k);
    return TVM_OK;
}

void tvm_facts_free(kernel_state *k) {
    facts *f = k->facts;
    if (!f) return;
    free(f->slots);
    free(f->exprs);
    free(f->assumed_divisor);
    free(f->assumed_low);
    free(f->assumed_high);
    free(f->scalars_set);
    free(f);
    k->facts = NULL;
}
