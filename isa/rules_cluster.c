/* Rules of what the blocks of a cluster do together, and with each other's shared memory. */
#include "rules.h"

/* The block of the cluster, entry e: its rank, as far as is known. */
static tvm_status rank_inside(const tvm_rule *rule, unsigned entry) {
    tvm_dtype type = tvm_rule_expr_type(rule, entry);
    uint32_t blocks = tvm_cluster_blocks(rule->kernel);
    int64_t rank;
    if (!tvm_dtype_same(type, TVM_I(32)) && !tvm_dtype_same(type, TVM_I(64)))
        return tvm_refuse(rule->why, "the rank has type %s, expected i32 or i64", TVM_DTYPE_TEXT(type));
    if (tvm_rule_integer(rule, tvm_rule_value(rule, entry), &rank) && (rank < 0 || rank >= blocks))
        return tvm_refuse(rule->why, "block %lld of a cluster of %u", (long long)rank, blocks);
    return TVM_OK;
}

tvm_status tvm_rule_cluster_rank(const tvm_rule *rule, unsigned entry) {
    if (rule->operands[rule->at[entry]].kind == TVM_OPERAND_NONE) return TVM_OK;
    return rank_inside(rule, entry);
}

tvm_status tvm_rule_SYNC_CLUSTER(const tvm_rule *rule) {
    if (rule->team.warps != rule->kernel->warps)
        return tvm_refuse(rule->why, "all warps of the cluster's blocks meet: it cannot stand in a role");
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_LOAD_CLUSTER(const tvm_rule *rule) {
    tvm_status status = rank_inside(rule, 1);
    if (status == TVM_OK) status = tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, NULL);
    const tvm_layout *tile = &rule->type->layout;
    if (status == TVM_OK) status = tvm_rule_tile(rule, 0, tile->rank, tile->shape);
    return status == TVM_OK ? tvm_rule_owns_bytes(rule, rule->type->dtype, tile) : status;
}

tvm_status tvm_rule_STORE_CLUSTER(const tvm_rule *rule) {
    tvm_dtype from = tvm_rule_slot(rule, 2)->dtype, to = tvm_rule_slot(rule, 0)->dtype;
    const tvm_layout *tile = tvm_rule_layout(rule, 2);
    if (!tvm_dtype_same(from, to))
        return tvm_refuse(rule->why, "%s has type %s, expected %s", TVM_RULE_NAME(rule, 2),
                          TVM_DTYPE_TEXT(from), TVM_DTYPE_TEXT(to));
    tvm_status status = rank_inside(rule, 1);
    if (status == TVM_OK) status = tvm_rule_tile(rule, 0, tile->rank, tile->shape);
    if (status == TVM_OK) status = tvm_rule_owns_bytes(rule, from, tile);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

/* A tile of this block's tensor, which takes the same place in a tensor of another block's. */
tvm_status tvm_rule_COPY_CLUSTER(const tvm_rule *rule) {
    enum { TARGET, RANK, SOURCE, TILE, BARRIER };
    tvm_dtype from = tvm_rule_slot(rule, SOURCE)->dtype, to = tvm_rule_slot(rule, TARGET)->dtype;
    uint32_t rank = tvm_rule_value(rule, TILE), tile[TVM_MAX_RANK];
    if (rule->operands[rule->at[BARRIER]].kind == TVM_OPERAND_NONE)
        return tvm_refuse(rule->why,
                          "expected 'barrier', the other block's mbarrier that its bytes are announced to");
    for (uint32_t d = 0; d < rank; d++) tile[d] = rule->operands[rule->at[TILE] + 1 + d].value;
    if (!tvm_dtype_same(from, to))
        return tvm_refuse(rule->why, "%s has type %s, expected %s", TVM_RULE_NAME(rule, SOURCE),
                          TVM_DTYPE_TEXT(from), TVM_DTYPE_TEXT(to));
    if (from.bits % 8 != 0)
        return tvm_refuse(rule->why,
                          "elements of %s are no whole bytes: store-cluster takes them from registers",
                          TVM_DTYPE_TEXT(from));
    tvm_status status = rank_inside(rule, RANK);
    if (status == TVM_OK) status = tvm_rule_tile(rule, TARGET, rank, tile);
    if (status == TVM_OK) status = tvm_rule_tile(rule, SOURCE, rank, tile);
    return status == TVM_OK ? tvm_rule_barrier_index(rule, BARRIER) : status;
}
