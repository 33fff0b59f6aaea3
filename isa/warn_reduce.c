/* One walk over the instructions of a kernel, with what is known of each register tensor: the dimensions in
 * which some of its elements may come from outside of a global tensor. */
#include "warn_reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "reduce.h"

enum { DEPTH = 16 };

/* Sets of dimensions, bit d for dimension d. */
typedef struct edge {
    uint32_t zero, other; /* some elements may be from outside, as zeros, or as something else */
    uint32_t full;        /* the extent is more than 1 */
    uint32_t load;        /* the instruction that loads them; TVM_NONE: none does */
    bool not_negative;    /* is any element */
} edge;

typedef struct walk {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_diags *diags;
    edge *edges;          /* by slot */
    uint32_t *definition; /* by slot: the only instruction that assigns it, or TVM_NONE */
} walk;

/* ---- divisors of indices and extents ---- */

static const tvm_expr *node_of(const walk *w, uint32_t expr) {
    return &w->kernel->exprs[expr];
}

/* What `.assume PARAMETER % constant == 0` says; 1: nothing. */
static uint64_t assumed(const walk *w, uint32_t expr, uint32_t slot, unsigned depth) {
    const tvm_expr *node = node_of(w, expr);
    if (node->op == TVM_EXPR_LAND && depth > 0) {
        uint64_t a = assumed(w, node->a, slot, depth - 1), b = assumed(w, node->b, slot, depth - 1);
        return a > b ? a : b;
    }
    if (node->op != TVM_EXPR_EQ) return 1;
    const tvm_expr *rest = node_of(w, node->a), *zero = node_of(w, node->b);
    if (rest->op != TVM_EXPR_MOD || zero->op != TVM_EXPR_INTEGER || zero->value.i != 0) return 1;
    const tvm_expr *of = node_of(w, rest->a), *by = node_of(w, rest->b);
    bool says = of->op == TVM_EXPR_SLOT && of->a == slot && by->op == TVM_EXPR_INTEGER && by->value.i > 0;
    return says ? (uint64_t)by->value.i : 1;
}

static uint64_t divisor(const walk *w, uint32_t expr, unsigned depth);

static uint64_t divisor_of_slot(const walk *w, uint32_t slot, unsigned depth) {
    uint64_t known = 1;
    if (slot < w->kernel->param_count) {
        for (uint32_t i = 0; i < w->kernel->assume_count; i++) {
            uint64_t by = assumed(w, w->kernel->assumes[i], slot, DEPTH);
            known = known / tvm_gcd(known, by) * by;
            if (known > INT32_MAX) return by;
        }
        return known;
    }
    if (w->definition[slot] == TVM_NONE) return 1;
    const tvm_insn *insn = &w->kernel->insns[w->definition[slot]];
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    if (tvm_insn_has(insn, TVM_TRAIT_VALUE)) return divisor(w, operands[0].value, depth);
    if (tvm_insn_has(insn, TVM_TRAIT_COUNTER))
        return tvm_gcd(divisor(w, operands[0].value, depth), divisor(w, operands[2].value, depth));
    return 1;
}

/* A number that the value is a multiple of, at most 2^31; 0: it is 0. */
static uint64_t divisor(const walk *w, uint32_t expr, unsigned depth) {
    const tvm_expr *node = node_of(w, expr);
    if (depth-- == 0) return 1;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return node->value.i < 0 ? -(uint64_t)node->value.i : (uint64_t)node->value.i;
    case TVM_EXPR_SLOT:
        return divisor_of_slot(w, node->a, depth);
    case TVM_EXPR_CAST:
    case TVM_EXPR_NEG:
        return divisor(w, node->a, depth);
    case TVM_EXPR_MUL: {
        uint64_t a = divisor(w, node->a, depth), b = divisor(w, node->b, depth);
        return a > INT32_MAX || b > INT32_MAX || a * b > INT32_MAX ? (a > b ? a : b) : a * b;
    }
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
    case TVM_EXPR_MOD:
        return tvm_gcd(divisor(w, node->a, depth), divisor(w, node->b, depth));
    default:
        return 1;
    }
}

/* ---- where elements from outside come from, and what becomes of them ---- */

static bool is_given(const tvm_operand *operands, uint32_t count, uint32_t at) {
    return at < count && operands[at].kind != TVM_OPERAND_NONE;
}

/* A tile that begins at a multiple of its extent in a tensor whose extent is such a multiple, too, is inside
 * or outside as a whole. */
static edge loaded(const walk *w, uint32_t at) {
    enum { MASK = 1, FILL };
    const tvm_insn *insn = &w->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    const tvm_slot *tensor = &w->kernel->slots[operands->value];
    const tvm_layout *tile = &w->program->layouts[w->kernel->slots[insn->result].layout];
    uint32_t after = 1 + tensor->rank;
    edge out = {.load = at};
    if (is_given(operands, insn->count, after + MASK) || is_given(operands, insn->count, after + FILL))
        return out;
    for (unsigned d = 0; d < tile->rank; d++) {
        unsigned dim = tensor->rank - tile->rank + d;
        const tvm_expr *extent = node_of(w, tensor->shape[dim]), *index = node_of(w, operands[1 + dim].value);
        uint64_t whole = divisor(w, tensor->shape[dim], DEPTH),
                 begin = divisor(w, operands[1 + dim].value, DEPTH);
        bool constant = extent->op == TVM_EXPR_INTEGER && index->op == TVM_EXPR_INTEGER;
        bool inside = constant && index->value.i >= 0 && index->value.i <= extent->value.i - tile->shape[d];
        if (!inside && (whole % tile->shape[d] || begin % tile->shape[d])) out.zero |= 1U << d;
    }
    return out;
}

/* A constant's value; NaN where it is none. */
static double constant(const walk *w, const tvm_operand *operand) {
    const tvm_expr *node = operand->kind == TVM_OPERAND_EXPR ? node_of(w, operand->value) : NULL;
    return node && node->op == TVM_EXPR_INTEGER ? (double)node->value.i
           : node && node->op == TVM_EXPR_FLOAT ? node->value.f
                                                : NAN;
}

/* The operand's edge in the dimensions of a result of so many; zero in all of them where it is the constant
 * 0. */
static edge edge_of(const walk *w, const tvm_operand *operand, unsigned rank) {
    double value = constant(w, operand);
    edge out = {.load = TVM_NONE, .not_negative = value >= 0, .zero = value == 0 ? UINT32_MAX : 0};
    if (operand->kind != TVM_OPERAND_SLOT || w->kernel->slots[operand->value].kind != TVM_SLOT_REGISTER)
        return out;
    const tvm_layout *layout = &w->program->layouts[w->kernel->slots[operand->value].layout];
    unsigned more = rank > layout->rank ? rank - layout->rank : 0;
    out = w->edges[operand->value];
    for (unsigned d = 0; d < layout->rank; d++) out.full |= (uint32_t)(layout->shape[d] > 1) << d;
    out.zero <<= more, out.other <<= more, out.full <<= more;
    return out;
}

/* Dimensions in which a loaded operand has zeros from outside. */
static uint32_t zeros(edge x) {
    return x.load == TVM_NONE ? 0 : x.zero;
}

static uint32_t first_load(edge x, edge y) {
    return zeros(x) | x.other ? x.load : y.load;
}

/* x + y and what is like it, or (selects) the greater or smaller. Where one is zero and the other has an
 * element of its own, as the sums of the tiles before, a sum does not change; that of a scalar or a broadcast
 * tensor is something else. */
static edge joined(edge x, edge y, bool selects) {
    edge out = {.load = first_load(x, y), .other = x.other | y.other};
    uint32_t all = (zeros(x) | zeros(y)) & ~out.other, both = x.zero & y.zero & all;
    uint32_t keeps = ((x.zero & y.full) | (y.zero & x.full)) & all & ~both;
    out.zero = both | (selects ? keeps : 0);
    out.other |= all & ~both & ~keeps;
    out.not_negative = x.not_negative && y.not_negative;
    return out;
}

/* x * y: zero where either is. */
static edge multiplied(edge x, edge y) {
    edge out = {.zero = zeros(x) | zeros(y), .load = first_load(x, y)};
    out.other = (x.other | y.other) & ~out.zero;
    out.not_negative = x.not_negative && y.not_negative;
    return out;
}

/* x / y: zero where x is. */
static edge divided(edge x, edge y) {
    return (edge){.zero = zeros(x),
                  .other = (x.other | zeros(y) | y.other) & ~zeros(x),
                  .load = first_load(x, y),
                  .not_negative = x.not_negative && y.not_negative};
}

static edge made(edge x, bool not_negative) {
    x.not_negative = x.not_negative || not_negative;
    return x;
}

/* What an instruction makes of zeros from outside; of those that are not listed nothing is followed. */
typedef enum way {
    LOSES,
    KEEPS,        /* zero stays zero, and keeps its sign */
    TURNS,        /* zero stays zero, in any sign */
    NOT_NEGATIVE, /* zero stays zero, and nothing is negative */
    CHANGES,      /* zero becomes something else */
    PRODUCT,
    QUOTIENT,
    SUM,
    CHOICE
} way;

static const uint8_t ways[TVM_OP_COUNT] = {
    [TVM_OP_CAST] = KEEPS,
    [TVM_OP_CAST_LOWBIT] = KEEPS,
    [TVM_OP_RELAYOUT] = KEEPS,
    [TVM_OP_CLIP] = KEEPS,
    [TVM_OP_FLOOR] = KEEPS,
    [TVM_OP_CEIL] = KEEPS,
    [TVM_OP_ROUND] = KEEPS,
    [TVM_OP_TRUNC] = KEEPS,
    [TVM_OP_TANH] = KEEPS,
    [TVM_OP_ERF] = KEEPS,
    [TVM_OP_NEG] = TURNS,
    [TVM_OP_SIN] = TURNS,
    [TVM_OP_TAN] = TURNS,
    [TVM_OP_SINH] = TURNS,
    [TVM_OP_ABS] = NOT_NEGATIVE,
    [TVM_OP_SQRT] = NOT_NEGATIVE,
    [TVM_OP_POPCOUNT] = NOT_NEGATIVE,
    [TVM_OP_EXP] = CHANGES,
    [TVM_OP_EXP2] = CHANGES,
    [TVM_OP_LOG] = CHANGES,
    [TVM_OP_LOG2] = CHANGES,
    [TVM_OP_RSQRT] = CHANGES,
    [TVM_OP_COS] = CHANGES,
    [TVM_OP_COSH] = CHANGES,
    [TVM_OP_NOT] = CHANGES,
    [TVM_OP_MUL] = PRODUCT,
    [TVM_OP_MULHI] = PRODUCT,
    [TVM_OP_AND] = PRODUCT,
    [TVM_OP_FMA] = PRODUCT,
    [TVM_OP_DIV] = QUOTIENT,
    [TVM_OP_MOD] = QUOTIENT,
    [TVM_OP_SHL] = QUOTIENT,
    [TVM_OP_SHR] = QUOTIENT,
    [TVM_OP_ADD] = SUM,
    [TVM_OP_SUB] = SUM,
    [TVM_OP_OR] = SUM,
    [TVM_OP_XOR] = SUM,
    [TVM_OP_ATAN2] = SUM,
    [TVM_OP_POW] = SUM,
    [TVM_OP_MIN] = CHOICE,
    [TVM_OP_MAX] = CHOICE,
};

/* Of two operands; of x * y + z with a third. */
static edge of_several(const walk *w, const tvm_insn *insn, unsigned rank) {
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    edge x = edge_of(w, &operands[0], rank), y = edge_of(w, &operands[1], rank);
    bool square = operands[0].kind == TVM_OPERAND_SLOT && operands[1].kind == TVM_OPERAND_SLOT &&
                  operands[0].value == operands[1].value;
    edge product = made(multiplied(x, y), square && insn->op != TVM_OP_MULHI);
    switch (ways[insn->op]) {
    case PRODUCT:
        return insn->op == TVM_OP_FMA ? joined(product, edge_of(w, &operands[2], rank), false) : product;
    case QUOTIENT:
        return divided(x, y);
    case CHOICE:
        return made(joined(x, y, true), insn->op == TVM_OP_MAX && (x.not_negative || y.not_negative));
    default:
        if (insn->op == TVM_OP_SUB) y.not_negative = false;
        return joined(x, y, false);
    }
}

static edge computed(const walk *w, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    unsigned rank = w->program->layouts[w->kernel->slots[insn->result].layout].rank;
    edge none = {.load = TVM_NONE};
    if (insn->op == TVM_OP_ALLOC_REGISTER) {
        none.not_negative =
            insn->count < 1 || operands[0].kind == TVM_OPERAND_NONE || constant(w, &operands[0]) >= 0;
        return none;
    }
    if (ways[insn->op] == LOSES) return none;
    if (ways[insn->op] >= PRODUCT) return of_several(w, insn, rank);
    edge x = edge_of(w, &operands[0], rank);
    x.full = 0;
    if (ways[insn->op] == CHANGES) return (edge){.other = zeros(x) | x.other, .load = x.load};
    x.not_negative = ways[insn->op] == NOT_NEGATIVE || (x.not_negative && ways[insn->op] == KEEPS);
    return x;
}

/* ---- reductions ---- */

/* Does the operation give the same with zeros among its elements as without? */
static bool takes_zeros(uint32_t operation, bool not_negative) {
    switch (operation) {
    case TVM_SUM:
    case TVM_REDUCE_OR:
    case TVM_REDUCE_XOR:
    case TVM_REDUCE_ANY:
        return true;
    case TVM_REDUCE_MAX:
    case TVM_REDUCE_ARGMAX:
        return not_negative;
    default:
        return false;
    }
}

/* What does not count, to write it behind fill. */
static const char *neutral(uint32_t operation, tvm_dtype type) {
    bool is_float = type.kind == TVM_KIND_FLOAT;
    switch (operation) {
    case TVM_REDUCE_MAX:
    case TVM_REDUCE_ARGMAX:
        return is_float ? "as 'fill -inf'" : "with the least of their values, by fill";
    case TVM_REDUCE_MIN:
    case TVM_REDUCE_ARGMIN:
        return is_float ? "as 'fill inf'" : "with the greatest of their values, by fill";
    case TVM_REDUCE_PROD:
        return "as 'fill 1'";
    default:
        return "with what does not change the result, by fill";
    }
}

static edge reduced(walk *w, const tvm_insn *insn) {
    enum { OPERATION, SOURCE };
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    uint32_t axes = tvm_reduce_axes(operands, insn->count), operation = operands[OPERATION].value;
    edge source = w->edges[operands[SOURCE].value];
    tvm_dtype type = w->kernel->slots[operands[SOURCE].value].dtype;
    bool not_negative = source.not_negative || type.kind == TVM_KIND_UINT;
    uint32_t zero = takes_zeros(operation, not_negative) ? 0 : source.zero & axes,
             other = source.other & axes;
    edge out = {.zero = source.zero & ~axes, .other = source.other & ~axes, .load = source.load};
    if (zero == 0 && other == 0) return out;
    const tvm_insn *load = &w->kernel->insns[source.load];
    tvm_place place = {.line = insn->line};
    unsigned d = 0;
    char hint[160];
    while (!((zero | other) >> d & 1)) d++;
    if (insn->file != TVM_NONE) place.file = tvm_string(w->program, insn->file);
    snprintf(hint, sizeof hint, "load them %s, or replace them by 'where'",
             other ? "with a fill of which comes what does not count, as 'fill -inf' before exp"
                   : neutral(operation, type));
    tvm_diag_add(w->diags, TVM_OK, &place, hint,
                 "%s: reduce %s: dimension %u has elements from outside of '%s' (line %u), %s",
                 tvm_string(w->program, w->kernel->name), tvm_reduction_names[operation], d,
                 tvm_string(w->program, w->kernel->slots[tvm_operands(w->kernel, load)->value].name),
                 (unsigned)load->line, other ? "which are not zero any more" : "which are zero");
    return out;
}

static void find_definitions(walk *w) {
    for (uint32_t s = 0; s < w->kernel->slot_count; s++) w->definition[s] = TVM_NONE;
    for (uint32_t i = w->kernel->insn_count; i-- > 0;)
        if (w->kernel->insns[i].result != TVM_NONE) w->definition[w->kernel->insns[i].result] = i;
    for (uint32_t i = 0; i < w->kernel->insn_count; i++) {
        uint32_t slot = w->kernel->insns[i].result;
        if (slot != TVM_NONE && w->definition[slot] != i) w->definition[slot] = TVM_NONE;
    }
}

static void walk_kernel(walk *w) {
    find_definitions(w);
    for (uint32_t i = 0; i < w->kernel->insn_count; i++) {
        const tvm_insn *insn = &w->kernel->insns[i];
        if (insn->result == TVM_NONE || w->kernel->slots[insn->result].kind != TVM_SLOT_REGISTER) continue;
        w->edges[insn->result] = insn->op == TVM_OP_LOAD_GLOBAL ? loaded(w, i)
                                 : insn->op == TVM_OP_REDUCE    ? reduced(w, insn)
                                                                : computed(w, insn);
    }
}

tvm_status tvm_warn_reductions(const tvm_ir_program *program, tvm_diags *diags) {
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        walk w = {.program = program, .kernel = kernel, .diags = diags};
        w.edges = calloc(kernel->slot_count + (size_t)1, sizeof *w.edges);
        w.definition = calloc(kernel->slot_count + (size_t)1, sizeof *w.definition);
        bool made = w.edges && w.definition;
        if (made) walk_kernel(&w);
        free(w.edges);
        free(w.definition);
        if (!made) return tvm_diag_no_memory(diags);
    }
    return TVM_OK;
}
