/* Rules of the instructions by which blocks and launches wait for each other. */
#include "rules.h"

static bool is_word(tvm_dtype type) {
    return tvm_dtype_is_integer(type) && type.bits == 32;
}

static tvm_status semaphore(const tvm_rule *rule) {
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype tensor = tvm_rule_slot(rule, 0)->dtype, value = tvm_rule_expr_type(rule, 1);
    if (!is_word(tensor))
        return tvm_refuse(rule->why, "the semaphore has type %s, expected u32 or i32",
                          tvm_dtype_name(tensor, name));
    if (!is_word(value))
        return tvm_refuse(rule->why, "the value has type %s, expected u32 or i32",
                          tvm_dtype_name(value, name));
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
