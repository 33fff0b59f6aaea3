/* Rules of atomic operations. */
#include "rules.h"

enum { OPERATION, MEMORY, SOURCE, EXPECTED, MASK, ORDER, SCOPE, RANK };

static tvm_status takes_type(const tvm_rule *rule) {
    tvm_dtype type = tvm_rule_slot(rule, MEMORY)->dtype;
    tvm_atomic operation = (tvm_atomic)tvm_rule_value(rule, OPERATION);
    bool is_float = type.kind == TVM_KIND_FLOAT, is_bitwise = operation >= TVM_ATOMIC_AND;
    bool takes = tvm_dtype_is_arithmetic(type) && (is_float ? !is_bitwise : type.bits >= 32);
    if (takes) return TVM_OK;
    return tvm_refuse(rule->why, "%s of type %s, expected an integer of 32 or 64 bits%s",
                      tvm_atomic_names[operation], TVM_DTYPE_TEXT(type),
                      is_bitwise ? "" : ", f16, bf16, f32 or f64");
}

static tvm_status same_type(const tvm_rule *rule, unsigned entry) {
    tvm_dtype type = tvm_rule_slot(rule, entry)->dtype, of = tvm_rule_slot(rule, MEMORY)->dtype;
    if (tvm_dtype_same(type, of)) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, entry),
                      TVM_DTYPE_TEXT(type), TVM_DTYPE_TEXT(of), TVM_RULE_NAME(rule, MEMORY));
}

/* What cas compares with. */
static tvm_status expected(const tvm_rule *rule) {
    bool is_cas = tvm_rule_value(rule, OPERATION) == TVM_ATOMIC_CAS,
         given = tvm_rule_is_given(rule, EXPECTED);
    if (is_cas && !given) return tvm_refuse(rule->why, "cas needs 'expected'");
    if (given && !is_cas) return tvm_refuse(rule->why, "'expected' belongs to cas alone");
    if (!given) return TVM_OK;
    tvm_status status = same_type(rule, EXPECTED);
    if (status != TVM_OK) return status;
    return tvm_rule_broadcasts(rule, tvm_rule_slot(rule, EXPECTED), TVM_RULE_NAME(rule, EXPECTED),
                               tvm_rule_layout(rule, SOURCE));
}

/* The tensor is another block's. */
static tvm_status far(const tvm_rule *rule) {
    if (!tvm_rule_is_given(rule, RANK)) return TVM_OK;
    if (tvm_rule_slot(rule, MEMORY)->kind != TVM_SLOT_SHARED)
        return tvm_refuse(rule->why, "%s is global: 'rank' is of a shared tensor of the cluster's blocks",
                          TVM_RULE_NAME(rule, MEMORY));
    if (tvm_rule_is_given(rule, SCOPE) && tvm_rule_value(rule, SCOPE) == TVM_SCOPE_CTA)
        return tvm_refuse(rule->why, "a scope of the block does not reach the tensor of another one");
    return tvm_rule_cluster_rank(rule, RANK);
}

static tvm_status check(const tvm_rule *rule) {
    tvm_status status = takes_type(rule);
    if (status == TVM_OK) status = same_type(rule, SOURCE);
    if (status == TVM_OK) status = tvm_rule_places(rule, MEMORY, tvm_rule_layout(rule, SOURCE));
    if (status == TVM_OK) status = expected(rule);
    if (status == TVM_OK) status = far(rule);
    return status == TVM_OK ? tvm_rule_mask(rule, MASK, MEMORY, tvm_rule_layout(rule, SOURCE)) : status;
}

tvm_status tvm_rule_ATOMIC(const tvm_rule *rule) {
    tvm_status status = check(rule);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

tvm_status tvm_rule_ATOMIC_FETCH(const tvm_rule *rule) {
    tvm_status status = check(rule);
    if (status != TVM_OK) return status;
    const tvm_layout *layout = tvm_rule_layout(rule, SOURCE);
    tvm_dtype type = tvm_rule_slot(rule, MEMORY)->dtype;
    uint64_t bytes = type.bits / 8;
    for (unsigned d = 0; d < layout->rank; d++) bytes *= layout->shape[d];
    if (!rule->type->open && tvm_layout_replication(layout) > 1 && bytes > TVM_FETCH_SHARED_BYTES)
        return tvm_refuse(
            rule->why,
            "several threads hold each element, and of a tile of %llu bytes they are not told: expected a "
            "layout without replicas, or at most %d bytes",
            (unsigned long long)bytes, TVM_FETCH_SHARED_BYTES);
    return tvm_rule_register(rule, type, layout);
}
