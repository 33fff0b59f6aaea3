/* Rules of the instructions that combine the elements of a register tensor with each other. */
#include "reduce.h"
#include "rules.h"

/* The types that an operation takes, in words, or NULL when it takes this one. */
static const char *operation_refuses(uint32_t operation, tvm_dtype dtype) {
    bool arithmetic = tvm_dtype_is_arithmetic(dtype), is_bool = dtype.kind == TVM_KIND_BOOL;
    switch (operation) {
    case TVM_REDUCE_AND:
    case TVM_REDUCE_OR:
    case TVM_REDUCE_XOR:
        return is_bool || (arithmetic && dtype.kind != TVM_KIND_FLOAT) ? NULL : "i8..i64, u8..u64 or bool";
    case TVM_REDUCE_ANY:
    case TVM_REDUCE_ALL:
        return is_bool ? NULL : "bool";
    default:
        return arithmetic ? NULL : "i8..i64, u8..u64, f16, bf16, f32 or f64";
    }
}

static tvm_status check_operation(const tvm_rule *rule, uint32_t operation, unsigned source) {
    tvm_dtype dtype = tvm_rule_slot(rule, source)->dtype;
    const char *expected = operation_refuses(operation, dtype);
    if (!expected) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected %s", TVM_RULE_NAME(rule, source),
                      TVM_DTYPE_TEXT(dtype), expected);
}

static tvm_status check_axis(const tvm_rule *rule, uint32_t axis, unsigned source) {
    unsigned rank = tvm_rule_layout(rule, source)->rank;
    if (axis < rank) return TVM_OK;
    return tvm_refuse(rule->why, "there is no axis %u: %s has %u dimension%s, counted from 0", axis,
                      TVM_RULE_NAME(rule, source), rank, rank == 1 ? "" : "s");
}

tvm_status tvm_rule_REDUCE(const tvm_rule *rule) {
    enum { OPERATION, SOURCE, AXIS, ALSO };
    uint32_t operation = tvm_rule_value(rule, OPERATION);
    tvm_status status = check_operation(rule, operation, SOURCE);
    if (status == TVM_OK) status = check_axis(rule, tvm_rule_value(rule, AXIS), SOURCE);
    const tvm_operand *also = rule->count > 3 ? &rule->operands[3] : NULL;
    uint32_t others = also && also->kind == TVM_OPERAND_CONST ? also->value : 0;
    for (uint32_t i = 1; status == TVM_OK && i <= others; i++) {
        status = check_axis(rule, also[i].value, SOURCE);
        if (status == TVM_OK && i > 1 && also[i].value <= also[i - 1].value)
            return tvm_refuse(rule->why, "axis %u after axis %u: expected the axes in ascending order",
                              also[i].value, also[i - 1].value);
    }
    if (status != TVM_OK) return status;
    tvm_layout layout = *tvm_rule_layout(rule, SOURCE);
    uint32_t axes = tvm_reduce_axes(rule->operands, rule->count);
    for (unsigned d = 0; axes >> d; d++) {
        tvm_why why = {""};
        tvm_layout source = layout;
        if ((axes >> d & 1) && tvm_layout_reduce(&source, d, &layout, &why) != TVM_OK)
            return tvm_refuse(rule->why, "%s", why.text);
    }
    tvm_dtype dtype = tvm_rule_slot(rule, SOURCE)->dtype;
    return tvm_rule_register(rule, tvm_reduce_is_position(operation) ? TVM_I(32) : dtype, &layout);
}

tvm_status tvm_rule_SCAN(const tvm_rule *rule) {
    enum { OPERATION, SOURCE, AXIS };
    uint32_t operation = tvm_rule_value(rule, OPERATION);
    if (tvm_reduce_is_position(operation))
        return tvm_refuse(rule->why, "no scan of %s: expected a reduction of values",
                          tvm_reduction_names[operation]);
    tvm_status status = check_operation(rule, operation, SOURCE);
    if (status == TVM_OK) status = check_axis(rule, tvm_rule_value(rule, AXIS), SOURCE);
    if (status != TVM_OK) return status;
    return tvm_rule_register(rule, tvm_rule_slot(rule, SOURCE)->dtype, tvm_rule_layout(rule, SOURCE));
}
