/* Rules of the instructions that give the elements of a register tensor other places. */
#include "rules.h"

#include <string.h>

tvm_status tvm_rule_RELAYOUT(const tvm_rule *rule) {
    char found[TVM_SHAPE_TEXT_MAX], expected[TVM_SHAPE_TEXT_MAX], operand[TVM_RULE_NAME_MAX];
    const tvm_layout *source = tvm_rule_layout(rule, 0), *result = &rule->type->layout;
    tvm_status status = tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, NULL);
    if (status != TVM_OK) return status;
    if (source->rank == result->rank &&
        memcmp(source->shape, result->shape, source->rank * sizeof source->shape[0]) == 0)
        return TVM_OK;
    return tvm_refuse(rule->why, "the layout has shape %s, %s %s",
                      tvm_shape_text(result->rank, result->shape, found), tvm_rule_name(rule, 0, operand),
                      tvm_shape_text(source->rank, source->shape, expected));
}

/* ---- other names for the same elements ---- */

static tvm_status transposed(const tvm_rule *rule, tvm_layout *out, tvm_why *why) {
    const tvm_layout *source = tvm_rule_layout(rule, 0);
    const tvm_operand *order = rule->count > 1 ? &rule->operands[1] : NULL;
    uint32_t dims[TVM_MAX_RANK];
    bool given = order && order->kind == TVM_OPERAND_CONST;
    if (given && order->value != source->rank)
        return tvm_refuse(why, "the order has %u entries, the tensor %u dimensions", order->value,
                          source->rank);
    for (unsigned d = 0; d < source->rank; d++) dims[d] = given ? order[1 + d].value : source->rank - 1U - d;
    return tvm_layout_permute(source, dims, out, why);
}

static tvm_status reshaped(const tvm_rule *rule, tvm_layout *out, tvm_why *why) {
    uint32_t shape[TVM_MAX_RANK];
    const tvm_operand *list = &rule->operands[1];
    tvm_why reason = {""};
    for (uint32_t d = 0; d < list->value; d++) shape[d] = list[1 + d].value;
    if (tvm_layout_reshape(tvm_rule_layout(rule, 0), list->value, shape, out, &reason) == TVM_OK)
        return TVM_OK;
    return tvm_refuse(why, "%.150s%s", reason.text,
                      strstr(reason.text, "straddles") ? ": relayout it first" : "");
}

tvm_status tvm_rule_RELABEL(const tvm_rule *rule) {
    const tvm_layout *source = tvm_rule_layout(rule, 0);
    tvm_layout layout;
    tvm_status status;
    tvm_why why = {""};
    switch (rule->op) {
    case TVM_OP_TRANSPOSE:
        status = transposed(rule, &layout, &why);
        break;
    case TVM_OP_RESHAPE:
        status = reshaped(rule, &layout, &why);
        break;
    case TVM_OP_SQUEEZE:
        status = tvm_layout_squeeze(source, tvm_rule_value(rule, 1), &layout, &why);
        break;
    default:
        status = tvm_layout_unsqueeze(source, tvm_rule_value(rule, 1), &layout, &why);
    }
    if (status != TVM_OK) return tvm_refuse(rule->why, "%s", why.text);
    return tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, &layout);
}
