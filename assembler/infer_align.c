/* How the elements of a global tensor lie: along which dimension neighbours are neighbours in memory, a line,
 * and how wide accesses may be: as lines, and the tile's first element, are known to be aligned by constants
 * and by assumptions such as n % 8 == 0. */
#include "infer_state.h"

#include "view.h"

enum { TWOS_MAX = 7, DEPTH = 16, WIDEST = 16 };

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

static unsigned twos_of(int64_t value) {
    return value == 0 ? TWOS_MAX : least((unsigned)__builtin_ctzll((uint64_t)value), TWOS_MAX);
}

/* Factors of two that the assumption says of the slot. */
static unsigned assumed(const tvm_ir_kernel *k, uint32_t expr, uint32_t slot, unsigned depth) {
    const tvm_expr *node = &k->exprs[expr];
    if (depth == 0) return 0;
    if (node->op == TVM_EXPR_LAND) {
        unsigned a = assumed(k, node->a, slot, depth - 1), b = assumed(k, node->b, slot, depth - 1);
        return a > b ? a : b;
    }
    if (node->op != TVM_EXPR_EQ) return 0;
    const tvm_expr *rest = &k->exprs[node->a], *zero = &k->exprs[node->b];
    if (rest->op != TVM_EXPR_MOD || zero->op != TVM_EXPR_INTEGER || zero->value.i) return 0;
    const tvm_expr *of = &k->exprs[rest->a], *by = &k->exprs[rest->b];
    while (of->op == TVM_EXPR_CAST) of = &k->exprs[of->a];
    return of->op == TVM_EXPR_SLOT && of->a == slot && by->op == TVM_EXPR_INTEGER ? twos_of(by->value.i) : 0;
}

static unsigned twos(const tvm_infer_state *in, uint32_t expr, unsigned depth, unsigned unknown);

static unsigned twos_of_slot(const tvm_infer_state *in, uint32_t slot, unsigned depth, unsigned unknown) {
    const tvm_ir_kernel *k = in->kernel;
    unsigned most = 0;
    if (slot < k->param_count) {
        for (uint32_t i = 0; i < k->assume_count; i++) {
            unsigned found = assumed(k, k->assumes[i], slot, DEPTH);
            if (found > most) most = found;
        }
        return most;
    }
    uint32_t definition = in->definitions[slot];
    if (definition == TVM_NONE) return unknown;
    const tvm_insn *insn = &k->insns[definition];
    const tvm_operand *operands = tvm_operands(k, insn);
    if (tvm_insn_has(insn, TVM_TRAIT_VALUE)) return twos(in, operands[0].value, depth, unknown);
    if (tvm_insn_has(insn, TVM_TRAIT_COUNTER))
        return least(twos(in, operands[0].value, depth, unknown),
                     twos(in, operands[2].value, depth, unknown));
    return unknown;
}

/* Factors of two of an expression, TWOS_MAX at most; of a variable whose value is not known, `unknown`. */
static unsigned twos(const tvm_infer_state *in, uint32_t expr, unsigned depth, unsigned unknown) {
    const tvm_expr *node = &in->kernel->exprs[expr];
    if (depth-- == 0) return 0;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return twos_of(node->value.i);
    case TVM_EXPR_SLOT:
        return twos_of_slot(in, node->a, depth, unknown);
    case TVM_EXPR_CAST:
    case TVM_EXPR_NEG:
        return twos(in, node->a, depth, unknown);
    case TVM_EXPR_MUL:
        return least(twos(in, node->a, depth, unknown) + twos(in, node->b, depth, unknown), TWOS_MAX);
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
    case TVM_EXPR_MOD:
        return least(twos(in, node->a, depth, unknown), twos(in, node->b, depth, unknown));
    case TVM_EXPR_SELECT:
        return least(twos(in, node->b, depth, unknown), twos(in, node->c, depth, unknown));
    case TVM_EXPR_DIV: {
        const tvm_expr *by = &in->kernel->exprs[node->b];
        unsigned have = twos(in, node->a, depth, unknown), less;
        if (by->op != TVM_EXPR_INTEGER || by->value.i <= 0 || by->value.i & (by->value.i - 1)) return 0;
        less = twos_of(by->value.i);
        return have > less ? have - less : 0;
    }
    default:
        return 0;
    }
}

/* Factors of two of the step along a dimension of a global tensor; TWOS_MAX: it is the constant 1 (*is_one),
 * or more than that. */
static unsigned twos_of_step(const tvm_infer_state *in, uint32_t slot, unsigned dim, bool *is_one) {
    const tvm_ir_kernel *k = in->kernel;
    tvm_global_dim of = tvm_global_step(k, slot, dim);
    const tvm_slot *tensor = &k->slots[of.slot];
    *is_one = false;
    if (tensor->form == TVM_FORM_STRIDED) {
        const tvm_expr *stride = &k->exprs[tensor->stride[of.dim]];
        *is_one = stride->op == TVM_EXPR_INTEGER && stride->value.i == 1;
        return *is_one ? TWOS_MAX : twos(in, tensor->stride[of.dim], DEPTH, 0);
    }
    *is_one = of.dim + 1U == tensor->rank;
    return *is_one ? TWOS_MAX : twos(in, tensor->shape[tensor->rank - 1], DEPTH, 0);
}

/* The last dimension along which neighbours are neighbours in memory; the rank: there is none. */
static unsigned line_of(const tvm_infer_state *in, uint32_t slot) {
    unsigned rank = in->kernel->slots[slot].rank;
    bool is_one = false;
    for (unsigned d = rank; d-- > 0;) {
        twos_of_step(in, slot, d, &is_one);
        if (is_one) return d;
    }
    return rank;
}

/* Of the lines of a global tensor and where they begin: 0 where neighbours are apart. The bound of views of
 * views bounds the recursion. */
static unsigned twos_of_lines(const tvm_infer_state *in, uint32_t slot) {
    const tvm_ir_kernel *k = in->kernel;
    const tvm_slot *tensor = &k->slots[slot];
    unsigned known = TWOS_MAX;
    bool unit;
    if (line_of(in, slot) == tensor->rank) return 0;
    for (unsigned d = 0; d < tensor->rank; d++) known = least(known, twos_of_step(in, slot, d, &unit));
    if (tensor->view == 0 || tvm_view_depth(k, slot) > TVM_MAX_VIEW_DEPTH) return known;
    tvm_view view;
    tvm_view_read(k, &k->insns[tensor->view - 1], &view);
    for (unsigned d = 0; d < view.base_rank; d++) {
        unsigned step = twos_of_step(in, view.base, d, &unit),
                 index = twos(in, view.index[d].value, DEPTH, TWOS_MAX);
        known = least(known, least(unit ? index : step + index, TWOS_MAX));
    }
    return least(known, twos_of_lines(in, view.base));
}

unsigned tvm_infer_width(const tvm_infer_state *in, uint32_t insn, unsigned bits) {
    const tvm_operand *operands = tvm_operands(in->kernel, &in->kernel->insns[insn]);
    unsigned known = TWOS_MAX;
    for (uint32_t i = 0; i < in->kernel->insns[insn].count; i++) {
        const tvm_slot *slot = &in->kernel->slots[operands[i].value];
        if (operands[i].kind != TVM_OPERAND_SLOT || slot->kind != TVM_SLOT_GLOBAL) continue;
        unsigned line = least(line_of(in, operands[i].value), slot->rank - 1U);
        const tvm_operand *index = &operands[i + 1 + line];
        known = least(known, twos(in, slot->shape[line], DEPTH, 0)); /* where the lines end */
        known = least(known, twos_of_lines(in, operands[i].value));
        if (i + slot->rank < in->kernel->insns[insn].count && index->kind == TVM_OPERAND_EXPR)
            known = least(known, twos(in, index->value, DEPTH, TWOS_MAX));
        else
            known = 0; /* a tensor of indices */
    }
    uint64_t bytes = ((uint64_t)bits << known) / 8;
    return bytes >= WIDEST ? WIDEST : bytes ? (unsigned)bytes & -(unsigned)bytes : 1;
}

unsigned tvm_infer_line(const tvm_infer_state *in, uint32_t insn, unsigned rank) {
    const tvm_operand *operands = tvm_operands(in->kernel, &in->kernel->insns[insn]);
    for (uint32_t i = 0; i < in->kernel->insns[insn].count; i++) {
        const tvm_slot *slot = &in->kernel->slots[operands[i].value];
        if (operands[i].kind != TVM_OPERAND_SLOT || slot->kind != TVM_SLOT_GLOBAL) continue;
        unsigned line = line_of(in, operands[i].value), before = slot->rank - least(rank, slot->rank);
        return line < slot->rank && line >= before ? rank - (slot->rank - line) : rank - 1;
    }
    return rank - 1;
}

bool tvm_infer_lines_last(const tvm_layout *layout, unsigned line, tvm_layout *out) {
    uint32_t order[TVM_MAX_RANK];
    for (unsigned d = 0; d < layout->rank; d++)
        order[d] = d + 1U == layout->rank ? line : d < line ? d : d + 1;
    return tvm_layout_permute(layout, order, out, NULL) == TVM_OK;
}

bool tvm_infer_lines_back(const tvm_layout *layout, unsigned line, tvm_layout *out) {
    uint32_t order[TVM_MAX_RANK];
    for (unsigned d = 0; d < layout->rank; d++)
        order[d] = d < line ? d : d == line ? layout->rank - 1U : d - 1;
    return tvm_layout_permute(layout, order, out, NULL) == TVM_OK;
}
