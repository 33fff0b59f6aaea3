/* Divisors: the largest numbers that are known to divide the values of scalars. */
#include "divisors.h"

#include "analysis.h"
#include "numbers.h"
#include "ranges.h"

enum { DIVISOR_PASSES = 16 };

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    if (!__builtin_mul_overflow(a, b, &product) && product <= INT64_MAX) return product;
    a = tvm_fact_power_part(a);
    b = tvm_fact_power_part(b);
    return a > b ? a : b;
}

uint64_t tvm_fact_common_multiple(uint64_t a, uint64_t b) {
    if (a == 0 || b == 0) return 0;
    uint64_t product;
    if (__builtin_mul_overflow(a / tvm_gcd(a, b), b, &product) || product > INT64_MAX) return a > b ? a : b;
    return product;
}

static bool may_be_negative(const kernel_state *k, uint32_t expr) {
    return k->facts->exprs[expr].low < 0;
}

/* Divisions and right shifts of a u64 beyond INT64_MAX keep of a divisor what is a power of two. */
static bool is_unordered(const kernel_state *k, const tvm_expr *node) {
    bool divides = node->op == TVM_EXPR_DIV || node->op == TVM_EXPR_CDIV || node->op == TVM_EXPR_MOD ||
                   node->op == TVM_EXPR_SHR;
    return divides && tvm_fact_is_u64(node->type) &&
           (may_be_negative(k, node->a) || may_be_negative(k, node->b));
}

static uint64_t divide(const kernel_state *k, const tvm_expr *node, uint64_t a, bool has_literal,
                       int64_t by) {
    const expr_fact *dividend = &k->facts->exprs[node->a], *divisor = &k->facts->exprs[node->b];
    int64_t low, high;
    tvm_fact_type_range(node->type, &low, &high);
    /* A cdiv by b is a / b where b > 0 divides a >= 0 and a + b - 1 does not wrap. */
    if (node->op == TVM_EXPR_CDIV &&
        (dividend->low < 0 || divisor->low < 1 || dividend->high > high - (divisor->high - 1)))
        return 1;
    if (a == 0) return 0;
    return has_literal && by > 0 && a % (uint64_t)by == 0 ? a / (uint64_t)by : 1;
}

static uint64_t divisor_node(const kernel_state *k, const tvm_expr *node) {
    const facts *f = k->facts;
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    uint64_t a = arity > 0 ? f->exprs[node->a].divisor : 1, b = arity > 1 ? f->exprs[node->b].divisor : 1;
    int64_t by = arity > 1 ? f->exprs[node->b].low : 0;
    bool has_literal = arity > 1 && f->exprs[node->b].high == by;
    /* What a GPU makes of a division by zero is any number. */
    bool divides = node->op == TVM_EXPR_DIV || node->op == TVM_EXPR_CDIV || node->op == TVM_EXPR_MOD;
    if (divides && by <= 0 && f->exprs[node->b].high >= 0) return 1;
    if (arity > 1 && is_unordered(k, node)) {
        a = tvm_fact_power_part(a);
        b = tvm_fact_power_part(b);
    }
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return tvm_fact_magnitude(node->value.i);
    case TVM_EXPR_SLOT:
        return f->slots[node->a].divisor;
    case TVM_EXPR_CAST:
        return tvm_fact_is_integer(node_of(k, node->a)->type) ? a : 1;
    case TVM_EXPR_NEG:
        return a;
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        return tvm_gcd(a, b);
    case TVM_EXPR_MUL:
        return a == 0 || b == 0 ? 0 : times(a, b);
    case TVM_EXPR_DIV:
    case TVM_EXPR_CDIV:
        return divide(k, node, a, has_literal, by);
    case TVM_EXPR_MOD:
        return tvm_gcd(a, b);
    case TVM_EXPR_SHL:
        if (a == 0) return 0;
        return has_literal && by >= 0 && by < 32 ? times(a, UINT64_C(1) << by) : tvm_fact_power_part(a);
    case TVM_EXPR_SHR:
        return a == 0 ? 0 : has_literal && by >= 0 && by < 32 && (a >> by) << by == a ? a >> by : 1;
    case TVM_EXPR_AND:
        if (a == 0 || b == 0) return 0;
        a = tvm_fact_power_part(a);
        b = tvm_fact_power_part(b);
        return a > b ? a : b;
    case TVM_EXPR_OR:
    case TVM_EXPR_XOR:
        return tvm_fact_power_part(tvm_gcd(a, b));
    case TVM_EXPR_SELECT:
        return tvm_gcd(b, f->exprs[node->c].divisor);
    default:
        return 1;
    }
}

static void divisor_expr(const kernel_state *k, uint32_t expr) {
    const tvm_expr *node = node_of(k, expr);
    expr_fact *fact = &k->facts->exprs[expr];
    fact->divisor = 1;
    if (!tvm_fact_is_integer(node->type)) return;
    uint64_t divisor = divisor_node(k, node), assumed = k->facts->assumed_divisor[expr];
    bool can_wrap = node->op == TVM_EXPR_ADD || node->op == TVM_EXPR_SUB || node->op == TVM_EXPR_MUL ||
                    node->op == TVM_EXPR_NEG || node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_CAST;
    /* Wrapping keeps divisibility by powers of two alone; a conversion to bool not even that. */
    if (can_wrap && divisor != 0 && !tvm_fact_keeps_value(k, node))
        divisor = node->type.kind == TVM_KIND_BOOL ? 1 : tvm_fact_power_part(divisor);
    if (tvm_fact_is_u64(node->type) && fact->low < 0) assumed = tvm_fact_power_part(assumed);
    fact->divisor = tvm_fact_common_multiple(divisor, assumed);
}

/* What the instruction assigns to its slot has. */
static uint64_t divisor_assigned(const kernel_state *k, const tvm_insn *insn) {
    const facts *f = k->facts;
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    if (tvm_insn_has(insn, TVM_TRAIT_VALUE)) return f->exprs[operands[0].value].divisor;
    if (!tvm_insn_has(insn, TVM_TRAIT_COUNTER)) return 1;
    uint64_t divisor = tvm_gcd(f->exprs[operands[0].value].divisor, f->exprs[operands[2].value].divisor);
    bool passes_sign =
        tvm_fact_is_u64(k->kernel->slots[insn->result].dtype) && f->slots[insn->result].low < 0;
    return passes_sign ? tvm_fact_power_part(divisor) : divisor;
}

static bool divisor_slots(const kernel_state *k) {
    facts *f = k->facts;
    bool changed = false;
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (!tvm_fact_sets_scalar(k, insn)) continue;
        slot_fact *slot = &f->slots[insn->result];
        uint64_t divisor = tvm_gcd(slot->divisor, divisor_assigned(k, insn));
        changed = changed || divisor != slot->divisor;
        slot->divisor = divisor;
    }
    return changed;
}

/* From "every slot is always 0" upward until nothing changes: the largest divisors that all assignments keep.
 */
void tvm_find_divisors(const kernel_state *k) {
    bool changed = true;
    for (int pass = 0; changed && pass <= DIVISOR_PASSES; pass++) {
        if (pass == DIVISOR_PASSES)
            for (uint32_t s = k->kernel->param_count; s < k->kernel->slot_count; s++)
                k->facts->slots[s].divisor = 1;
        for (uint32_t x = 0; x < k->kernel->expr_count; x++) divisor_expr(k, x);
        changed = divisor_slots(k);
    }
}
