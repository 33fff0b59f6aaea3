/* Rules of the instructions by which teams, blocks and launches wait for each other. */
#include "rules.h"

static bool is_word(tvm_dtype type) {
    return tvm_dtype_is_integer(type) && type.bits == 32;
}

static tvm_status semaphore(const tvm_rule *rule) {
    tvm_dtype tensor = tvm_rule_slot(rule, 0)->dtype, value = tvm_rule_expr_type(rule, 1);
    if (!is_word(tensor))
        return tvm_refuse(rule->why, "the semaphore has type %s, expected u32 or i32",
                          TVM_DTYPE_TEXT(tensor));
    if (!is_word(value))
        return tvm_refuse(rule->why, "the value has type %s, expected u32 or i32", TVM_DTYPE_TEXT(value));
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_LOCK_SEMAPHORE(const tvm_rule *rule) {
    return semaphore(rule);
}

tvm_status tvm_rule_RELEASE_SEMAPHORE(const tvm_rule *rule) {
    return semaphore(rule);
}

tvm_status tvm_rule_LAUNCH_DEPENDENTS(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_WAIT_DEPENDENCY(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

/* ---- mbarriers ---- */

tvm_status tvm_rule_ALLOC_BARRIER(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    uint32_t count = 1,
             arrivals = rule->operands[rule->at[0]].kind == TVM_OPERAND_NONE ? 1 : tvm_rule_value(rule, 0);
    if (!type->has_layout) return tvm_refuse(rule->why, "expected the extents of the mbarriers");
    tvm_shared_layout plain;
    for (unsigned d = 0; d < type->shared_layout.rank; d++) count *= type->shared_layout.shape[d];
    if (count > TVM_MAX_BARRIERS)
        return tvm_refuse(rule->why, "%u mbarriers, expected at most %d", count, TVM_MAX_BARRIERS);
    if (tvm_shared_layout_row_major(type->shared_layout.rank, type->shared_layout.shape, &plain, NULL) !=
            TVM_OK ||
        !tvm_shared_layout_equal(&plain, &type->shared_layout))
        return tvm_refuse(rule->why, "the mbarriers are not in row-major order");
    if (arrivals < 1 || arrivals > TVM_MAX_ARRIVALS)
        return tvm_refuse(rule->why, "arrivals is %u, expected 1 to %d", arrivals, TVM_MAX_ARRIVALS);
    type->kind = TVM_SLOT_BARRIER;
    type->dtype = TVM_U(64);
    return TVM_OK;
}

tvm_status tvm_rule_barrier_index(const tvm_rule *rule, unsigned entry) {
    const tvm_operand *indices = rule->operands + rule->at[entry] + 1;
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    const uint32_t *shape = tvm_slot_shape(rule->program, slot);
    int64_t at;
    for (unsigned d = 0; d < tvm_slot_rank(rule->program, slot); d++)
        if (tvm_rule_integer(rule, indices[d].value, &at) && (at < 0 || at >= shape[d]))
            return tvm_refuse(rule->why, "%s: index %lld in dimension %u: expected 0 to %u",
                              TVM_RULE_NAME(rule, entry), (long long)at, d, shape[d] - 1);
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_ARRIVE_BARRIER(const tvm_rule *rule) {
    bool given = rule->operands[rule->at[1]].kind != TVM_OPERAND_NONE;
    if (given && tvm_rule_value(rule, 1) > TVM_MAX_PENDING)
        return tvm_refuse(rule->why, "pending is %u, expected 0 to %d", tvm_rule_value(rule, 1),
                          TVM_MAX_PENDING);
    tvm_status status = tvm_rule_cluster_rank(rule, 2);
    return status == TVM_OK ? tvm_rule_barrier_index(rule, 0) : status;
}

tvm_status tvm_rule_SYNC_BARRIER(const tvm_rule *rule) {
    return tvm_rule_barrier_index(rule, 0);
}

tvm_status tvm_rule_WAIT_BARRIER(const tvm_rule *rule) {
    return tvm_rule_barrier_index(rule, 0);
}

/* Are the grid's blocks in one line, known without a launch? */
static bool is_line(const tvm_ir_kernel *kernel) {
    for (unsigned d = 1; d < 3; d++) {
        const tvm_expr *extent = kernel->grid[d] == TVM_NONE ? NULL : &kernel->exprs[kernel->grid[d]];
        if (extent && (extent->op != TVM_EXPR_INTEGER || extent->value.i != 1)) return false;
    }
    return true;
}

tvm_status tvm_rule_CANCEL_BLOCK(const tvm_rule *rule) {
    if (!is_line(rule->kernel) || tvm_cluster_blocks(rule->kernel) > 1)
        return tvm_refuse(
            rule->why,
            "the result is the block's place along x: expected a grid of x alone, and no clusters");
    return tvm_rule_scalar(rule, TVM_I(32));
}
