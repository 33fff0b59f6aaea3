/* What is known of scalar expressions where code is being written: the constants of its path. */
#include "analysis.h"

#include "claims.h"

static bool constant_of(const kernel_state *k, uint32_t expr, int64_t *value);

static bool find_constant(const kernel_state *k, uint32_t expr, int64_t *value) {
    const tvm_expr *node = node_of(k, expr);
    if (node->op == TVM_EXPR_SLOT) {
        *value = k->facts->slots[node->a].value;
        return k->facts->slots[node->a].constant;
    }
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (arity == 0) return false;
    const uint32_t children[3] = {node->a, node->b, node->c};
    tvm_scalar operands[3] = {{0}, {0}, {0}}, out;
    for (unsigned i = 0; i < arity; i++)
        if (!constant_of(k, children[i], &operands[i].i)) return false;
    tvm_dtype type = node_of(k, node->op == TVM_EXPR_SELECT ? node->b : node->a)->type;
    if (tvm_expr_apply(node, type, operands, &out, NULL) != TVM_OK) return false;
    *value = out.i;
    return true;
}

static bool constant_of(const kernel_state *k, uint32_t expr, int64_t *value) {
    const tvm_expr *node = node_of(k, expr);
    expr_fact *fact = &k->facts->exprs[expr];
    if (!tvm_fact_is_integer(node->type)) return false;
    if (fact->low == fact->high) {
        *value = fact->low;
        return true;
    }
    if (node->op == TVM_EXPR_INTEGER) {
        *value = node->value.i;
        return true;
    }
    if (fact->varies) return false;
    if (fact->seen != k->facts->version) {
        fact->seen = k->facts->version;
        fact->seen_known = find_constant(k, expr, &fact->seen_value);
    }
    *value = fact->seen_value;
    return fact->seen_known;
}

bool tvm_fact_constant(const kernel_state *k, uint32_t expr, int64_t *value) {
    if (!constant_of(k, expr, value)) return false;
    if (k->claims)
        tvm_fact_claim(k, &(tvm_claim){.kind = TVM_CLAIM_RANGE, .expr = expr, .low = *value, .high = *value});
    return true;
}

bool tvm_fact_stable(const kernel_state *k, uint32_t expr) {
    return k->facts->exprs[expr].stable;
}

bool tvm_fact_invariant(const kernel_state *k, uint32_t expr, uint32_t scope) {
    const tvm_expr *node = node_of(k, expr);
    /* Loops begun after this one, and not after its end, are in it. */
    if (node->op == TVM_EXPR_SLOT) return k->facts->slots[node->a].set_in < scope;
    expr_fact *fact = &k->facts->exprs[expr];
    if (fact->scope == scope) return fact->invariant;
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    fact->scope = scope;
    fact->invariant = (arity < 1 || tvm_fact_invariant(k, node->a, scope)) &&
                      (arity < 2 || tvm_fact_invariant(k, node->b, scope)) &&
                      (arity < 3 || tvm_fact_invariant(k, node->c, scope));
    return fact->invariant;
}

void tvm_fact_enter_loop(kernel_state *k, uint32_t scope, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        uint32_t slot = k->kernel->insns[i].result;
        if (slot != TVM_NONE) k->facts->slots[slot].set_in = scope;
    }
}

uint64_t tvm_fact_divisor(const kernel_state *k, uint32_t expr) {
    int64_t value;
    if (tvm_fact_constant(k, expr, &value)) return tvm_fact_magnitude(value);
    return k->facts->exprs[expr].divisor;
}

void tvm_fact_set_constant(kernel_state *k, uint32_t slot, int64_t value) {
    k->facts->slots[slot].constant = true;
    k->facts->slots[slot].value = value;
    k->facts->version++;
}

void tvm_fact_forget(kernel_state *k, uint32_t slot) {
    if (!k->facts->slots[slot].constant) return;
    k->facts->slots[slot].constant = false;
    k->facts->version++;
}

void tvm_fact_forget_assigned(kernel_state *k, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        uint32_t slot = k->kernel->insns[i].result;
        if (slot != TVM_NONE) tvm_fact_forget(k, slot);
    }
}
