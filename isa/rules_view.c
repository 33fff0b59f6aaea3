/* Rules of view-global and view-shared. */
#include "shared_view.h"
#include "view.h"

#include "rules.h"

enum { SOURCE, ORDER };

/* Does a part take the last dimension as it is? Then its rows are whole bytes, as those of the base. */
static bool keeps_rows(const tvm_rule *rule, const tvm_slot *base, const uint8_t *from) {
    const tvm_result_type *type = rule->type;
    int64_t first;
    return from[type->rank - 1] == base->rank - 1 &&
           type->shape[type->rank - 1] == base->shape[base->rank - 1] &&
           tvm_rule_integer(rule, rule->operands[rule->at[SOURCE] + base->rank].value, &first) && first == 0;
}

static tvm_status part(const tvm_rule *rule, const tvm_slot *base) {
    const tvm_result_type *type = rule->type;
    const tvm_operand *order = rule->operands + rule->at[ORDER];
    char name[TVM_RULE_NAME_MAX];
    uint8_t from[TVM_MAX_RANK];
    bool taken[TVM_MAX_RANK] = {false};
    tvm_rule_name(rule, SOURCE, name);
    if (order->kind != TVM_OPERAND_NONE && order->value != type->rank)
        return tvm_refuse(rule->why, "order names %u dimensions, the view has %u", order->value, type->rank);
    if (type->rank > base->rank)
        return tvm_refuse(rule->why, "the view has %u dimensions, %s only %u: expected strides", type->rank,
                          name, base->rank);
    for (unsigned d = 0; d < type->rank; d++) {
        uint32_t dim = order->kind == TVM_OPERAND_NONE ? base->rank - type->rank + d : order[1 + d].value;
        if (dim >= base->rank)
            return tvm_refuse(rule->why, "order: %s has no dimension %u, only %u", name, dim, base->rank);
        if (taken[dim]) return tvm_refuse(rule->why, "order names dimension %u twice", dim);
        taken[dim] = true;
        from[d] = (uint8_t)dim;
    }
    if (base->dtype.bits % 8 == 0 || keeps_rows(rule, base, from)) return TVM_OK;
    return tvm_refuse(rule->why, "elements of %s are no whole bytes: expected %s's last dimension as it is",
                      TVM_DTYPE_TEXT(base->dtype), name);
}

static tvm_status line(const tvm_rule *rule, const tvm_slot *base) {
    char name[TVM_RULE_NAME_MAX];
    tvm_rule_name(rule, SOURCE, name);
    if (rule->operands[rule->at[ORDER]].kind != TVM_OPERAND_NONE)
        return tvm_refuse(rule->why, "order and strides: expected one of them");
    if (base->form != TVM_FORM_ROW_MAJOR)
        return tvm_refuse(rule->why, "strides: %s is not in row-major order, one element behind the other",
                          name);
    if (base->dtype.bits % 8 != 0)
        return tvm_refuse(rule->why, "strides: %s has type %s, expected elements of whole bytes", name,
                          TVM_DTYPE_TEXT(base->dtype));
    return TVM_OK;
}

tvm_status tvm_rule_VIEW_GLOBAL(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    const tvm_slot *base = tvm_rule_slot(rule, SOURCE);
    if (type->rank < 1 || type->rank > TVM_MAX_RANK)
        return tvm_refuse(rule->why, "a tensor has 1 to %d dimensions, not %u", TVM_MAX_RANK, type->rank);
    if (type->dtype.kind != TVM_KIND_NONE && !tvm_dtype_same(type->dtype, base->dtype))
        return tvm_refuse(rule->why, "the view has type %s, %s %s", TVM_DTYPE_TEXT(type->dtype),
                          TVM_RULE_NAME(rule, SOURCE), TVM_DTYPE_TEXT(base->dtype));
    tvm_status status = type->form == TVM_FORM_PART ? part(rule, base) : line(rule, base);
    if (status != TVM_OK) return status;
    type->kind = TVM_SLOT_GLOBAL;
    type->dtype = base->dtype;
    return TVM_OK;
}

tvm_status tvm_rule_VIEW_SHARED(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    tvm_shared_view view;
    tvm_why why = {""};
    if (tvm_shared_view_make(rule->program, rule->kernel, rule->operands, &view, &why) != TVM_OK)
        return tvm_refuse(rule->why, "%s: %.160s", TVM_RULE_NAME(rule, SOURCE), why.text);
    if (type->has_layout && !tvm_shared_layout_equal(&type->shared_layout, &view.layout))
        return tvm_refuse(rule->why, "the view has a layout other than declared");
    tvm_dtype dtype = tvm_rule_slot(rule, SOURCE)->dtype;
    if (type->dtype.kind != TVM_KIND_NONE && !tvm_dtype_same(type->dtype, dtype))
        return tvm_refuse(rule->why, "the view has a type other than %s", TVM_RULE_NAME(rule, SOURCE));
    if (view.base % tvm_bits_whole(dtype.bits) != 0)
        return tvm_refuse(rule->why, "the view begins inside a byte of elements of %s",
                          TVM_DTYPE_TEXT(dtype));
    if (tvm_shared_layout_packs(&view.layout, dtype.bits, &why) != TVM_OK)
        return tvm_refuse(rule->why, "type %s: %.160s", TVM_DTYPE_TEXT(dtype), why.text);
    type->kind = TVM_SLOT_SHARED;
    type->dtype = dtype;
    type->shared_layout = view.layout;
    type->has_layout = true;
    return TVM_OK;
}
