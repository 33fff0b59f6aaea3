/* The types of expressions. */
#include "typing.h"

#include <math.h>

#include "integers.h"

static tvm_status check_integer(const tvm_expr *node, tvm_why *why) {
    if (!tvm_dtype_is_integer(node->type) && node->type.kind != TVM_KIND_BOOL)
        return tvm_refuse(why, "an integer constant cannot have type %s", TVM_DTYPE_TEXT(node->type));
    bool fits = node->type.kind == TVM_KIND_BOOL
                    ? node->value.i == 0 || node->value.i == 1
                    : tvm_integer_wrapped(node->type.bits, node->type.kind == TVM_KIND_INT,
                                          (uint64_t)node->value.i) == node->value.i;
    if (!fits)
        return tvm_refuse(why, "the constant %lld does not fit %s", (long long)node->value.i,
                          TVM_DTYPE_TEXT(node->type));
    return TVM_OK;
}

static tvm_status check_float(const tvm_expr *node, tvm_why *why) {
    if (node->type.kind != TVM_KIND_FLOAT)
        return tvm_refuse(why, "a float constant cannot have type %s", TVM_DTYPE_TEXT(node->type));
    double value = node->value.f;
    const tvm_scalar given = {.f = value};
    if (tvm_scalar_cast(node->type, node->type, given).u == given.u) return TVM_OK;
    /* text has one word for all of them, of which the assembler makes one */
    if (isnan(value))
        return tvm_refuse(why, "a constant NaN of %s is positive, with all bits of the mantissa set",
                          TVM_DTYPE_TEXT(node->type));
    return tvm_refuse(why, "the constant %.17g is not a value of f32", value);
}

static tvm_status check_of_device(const tvm_expr *node, tvm_why *why) {
    const char *text = tvm_expr_op_info(node->op)->text;
    if (node->op == TVM_EXPR_HAS && node->a >= TVM_CAPABILITY_COUNT)
        return tvm_refuse(why, "capability %u does not exist", node->a);
    if (node->op == TVM_EXPR_LIMIT && node->a >= TVM_LIMIT_COUNT)
        return tvm_refuse(why, "limit %u does not exist", node->a);
    if (node->op == TVM_EXPR_HAS ? node->type.kind == TVM_KIND_BOOL : tvm_dtype_same(node->type, TVM_I(32)))
        return TVM_OK;
    return tvm_refuse(why, "%s has type %s, not %s", text, node->op == TVM_EXPR_HAS ? "bool" : "i32",
                      TVM_DTYPE_TEXT(node->type));
}

static tvm_status check_leaf(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return check_integer(node, why);
    case TVM_EXPR_FLOAT:
        return check_float(node, why);
    case TVM_EXPR_SLOT:
        if (node->a >= kernel->slot_count) return tvm_refuse(why, "slot %u does not exist", node->a);
        if (kernel->slots[node->a].kind != TVM_SLOT_SCALAR)
            return tvm_refuse(why, "a tensor cannot stand in a scalar expression");
        if (!tvm_dtype_same(kernel->slots[node->a].dtype, node->type))
            return tvm_refuse(why, "a variable of type %s is read as %s",
                              TVM_DTYPE_TEXT(kernel->slots[node->a].dtype), TVM_DTYPE_TEXT(node->type));
        return TVM_OK;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        return check_of_device(node, why);
    default:
        if (node->a > 2) return tvm_refuse(why, "axis %u is not one of x, y, z", node->a);
        if (!tvm_dtype_same(node->type, TVM_I(32)))
            return tvm_refuse(why, "block and grid have type i32, not %s", TVM_DTYPE_TEXT(node->type));
        return TVM_OK;
    }
}

static tvm_status check_type(const tvm_expr *node, tvm_dtype expected, const char *text, tvm_why *why) {
    if (tvm_dtype_same(node->type, expected)) return TVM_OK;
    return tvm_refuse(why, "%s gives %s here, not %s", text, TVM_DTYPE_TEXT(expected),
                      TVM_DTYPE_TEXT(node->type));
}

static tvm_status check_operands_agree(const tvm_expr *node, tvm_dtype a, tvm_dtype b, const char *text,
                                       tvm_why *why) {
    if (node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_SHR) {
        if (tvm_dtype_is_integer(b)) return TVM_OK;
        return tvm_refuse(why, "the count of %s is an integer, not %s", text, TVM_DTYPE_TEXT(b));
    }
    if (tvm_dtype_same(a, b)) return TVM_OK;
    return tvm_refuse(why, "the operands of %s have different types, %s and %s", text, TVM_DTYPE_TEXT(a),
                      TVM_DTYPE_TEXT(b));
}

static tvm_status check_select(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    tvm_dtype condition = kernel->exprs[node->a].type;
    if (condition.kind != TVM_KIND_BOOL)
        return tvm_refuse(why, "the condition of ?: is bool, not %s", TVM_DTYPE_TEXT(condition));
    tvm_status status =
        check_operands_agree(node, kernel->exprs[node->b].type, kernel->exprs[node->c].type, "?:", why);
    return status != TVM_OK ? status : check_type(node, kernel->exprs[node->b].type, "?:", why);
}

tvm_status tvm_expr_check(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    if (info == NULL) return tvm_refuse(why, "%u is not an operator of expressions", node->op);
    if (!tvm_dtype_valid(node->type) || !tvm_dtype_is_scalar(node->type))
        return tvm_refuse(why, "an expression has type bool, i32, u32, i64, u64, f32 or f64");
    if (info->arity == 0) return check_leaf(kernel, node, why);
    for (unsigned i = 0; i < info->arity; i++)
        if (node->operands[i] >= kernel->expr_count)
            return tvm_refuse(why, "operand expression %u does not exist", node->operands[i]);
    if (node->op == TVM_EXPR_SELECT) return check_select(kernel, node, why);
    const char *text = node->op == TVM_EXPR_CAST ? "a conversion" : info->text;
    tvm_dtype type = kernel->exprs[node->a].type;
    if (!tvm_expr_takes_type(node->op, type))
        return tvm_refuse(why, "%s does not take %s", text, TVM_DTYPE_TEXT(type));
    if (info->arity > 1) {
        tvm_status status = check_operands_agree(node, type, kernel->exprs[node->b].type, text, why);
        if (status != TVM_OK) return status;
    }
    if (node->op == TVM_EXPR_CAST) return TVM_OK;
    return check_type(node, tvm_expr_is_comparison(node->op) ? TVM_BOOL : type, text, why);
}
