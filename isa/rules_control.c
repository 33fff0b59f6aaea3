/* Rules of scalars, control and the instructions that only order others. */
#include "pipeline.h"
#include "rules.h"

#include <string.h>

tvm_status tvm_rule_LET(const tvm_rule *rule) {
    return tvm_rule_scalar(rule, tvm_rule_expr_type(rule, 0));
}

tvm_status tvm_rule_FOR(const tvm_rule *rule) {
    tvm_dtype type =
        rule->type->dtype.kind != TVM_KIND_NONE ? rule->type->dtype : tvm_rule_expr_type(rule, 0);
    if (!tvm_dtype_is_integer(type) || !tvm_dtype_is_scalar(type))
        return tvm_refuse(rule->why, "the loop variable has type %s, expected i32, u32, i64 or u64",
                          TVM_DTYPE_TEXT(type));
    for (unsigned entry = 0; entry < 3; entry++) {
        tvm_dtype found = tvm_rule_expr_type(rule, entry);
        if (!tvm_dtype_same(found, type))
            return tvm_refuse(rule->why, "%.*s has type %s, expected %s as the loop variable",
                              (int)rule->desc[entry].name_length, rule->desc[entry].name,
                              TVM_DTYPE_TEXT(found), TVM_DTYPE_TEXT(type));
    }
    int64_t step;
    if (tvm_rule_integer(rule, tvm_rule_value(rule, 2), &step) &&
        (step == 0 || (type.kind == TVM_KIND_INT && step < 0)))
        return tvm_refuse(rule->why, "step is %lld, expected a positive number", (long long)step);
    uint32_t unroll = tvm_rule_value(rule, 3);
    if (unroll < 1 || unroll > TVM_MAX_UNROLL)
        return tvm_refuse(rule->why, "unroll is %u, expected 1 to %d", unroll, TVM_MAX_UNROLL);
    if (rule->operands[rule->at[TVM_FOR_PIPELINE]].kind == TVM_OPERAND_NONE)
        return tvm_rule_scalar(rule, type);
    uint32_t stages = tvm_rule_value(rule, TVM_FOR_PIPELINE);
    if (stages < 1 || stages > TVM_MAX_STAGES)
        return tvm_refuse(rule->why, "pipeline is %u, expected 1 to %d stages", stages, TVM_MAX_STAGES);
    return tvm_rule_scalar(rule, type);
}

tvm_status tvm_rule_ROLE(const tvm_rule *rule) {
    uint32_t first = tvm_rule_value(rule, 0), end = tvm_rule_value(rule, 1), by = end - first;
    bool has_by = rule->operands[rule->at[2]].kind != TVM_OPERAND_NONE;
    bool has_registers = rule->operands[rule->at[3]].kind != TVM_OPERAND_NONE;
    if (first >= end || end > rule->kernel->warps)
        return tvm_refuse(rule->why, "warps %u to %u: the kernel has 0 to %u", first, end,
                          rule->kernel->warps);
    if (has_by) by = tvm_rule_value(rule, 2);
    if (by < 1 || (end - first) % by != 0)
        return tvm_refuse(rule->why, "by is %u, expected a divisor of the %u warps", by, end - first);
    uint32_t registers = has_registers ? tvm_rule_value(rule, 3) : 24;
    if (registers < 24 || registers > 240 || registers % 8 != 0)
        return tvm_refuse(rule->why, "registers is %u, expected a multiple of 8 from 24 to 240", registers);
    return tvm_rule_scalar(rule, TVM_I(32));
}

static tvm_status condition(const tvm_rule *rule) {
    tvm_dtype type = tvm_rule_expr_type(rule, 0);
    if (type.kind != TVM_KIND_BOOL)
        return tvm_refuse(rule->why, "the condition has type %s, expected bool", TVM_DTYPE_TEXT(type));
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_WHILE(const tvm_rule *rule) {
    return condition(rule);
}
tvm_status tvm_rule_IF(const tvm_rule *rule) {
    return condition(rule);
}
tvm_status tvm_rule_ELSE(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_END(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_BREAK(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_CONTINUE(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_EXIT(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_COMMIT_GROUP(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}
tvm_status tvm_rule_SYNC(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_SYNC_WARP(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_WAIT_GROUP(const tvm_rule *rule) {
    uint32_t pending = tvm_rule_value(rule, 0);
    if (pending > TVM_MAX_PENDING)
        return tvm_refuse(rule->why, "pending is %u, expected 0 to %d", pending, TVM_MAX_PENDING);
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_PRINT_TENSOR(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

/* ---- telling the user ---- */

tvm_status tvm_rule_ASSERT(const tvm_rule *rule) {
    if (rule->kernel->exprs[rule->operands[0].value].type.kind != TVM_KIND_BOOL)
        return tvm_refuse(rule->why, "condition has type %s, expected bool",
                          TVM_DTYPE_TEXT(tvm_rule_expr_type(rule, 0)));
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_TRAP(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_PRINTF(const tvm_rule *rule) {
    const char *text = tvm_string(rule->program, rule->operands[0].value);
    uint32_t places = 0, values = tvm_rule_value(rule, 1);
    while ((text = strstr(text, "{}")) != NULL) text += 2, places++;
    if (places != values)
        return tvm_refuse(rule->why, "the text has %u {}, but there are %u values", places, values);
    return tvm_rule_nothing(rule);
}
