/* Scalars as expressions of the kernel: their types, constants and nodes, with conversions made explicit. */
#include "scalars.h"

#include "report.h"
#include "typing.h"

/* ---- types ---- */

tvm_dtype tvm_asm_type_of(const tvm_asm *as, const tvm_value *value) {
    (void)as;
    if (!tvm_value_is_literal(value)) return value->type;
    if (value->kind == TVM_VALUE_FLOAT) return TVM_F32;
    return value->as.i >= INT32_MIN && value->as.i <= INT32_MAX ? TVM_I(32) : TVM_I(64);
}

static bool literal_fits(const tvm_value *value, tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return true;
    if (value->kind == TVM_VALUE_FLOAT) return false;
    if (type.kind == TVM_KIND_UINT) return value->as.i >= 0 && (type.bits == 64 || value->as.i <= UINT32_MAX);
    if (type.kind == TVM_KIND_INT)
        return type.bits == 64 || (value->as.i >= INT32_MIN && value->as.i <= INT32_MAX);
    return false;
}

static tvm_dtype common_of(tvm_dtype a, tvm_dtype b) {
    if (tvm_dtype_same(a, b)) return a;
    if (a.kind == TVM_KIND_FLOAT || b.kind == TVM_KIND_FLOAT) {
        bool wide = (a.kind == TVM_KIND_FLOAT && a.bits == 64) || (b.kind == TVM_KIND_FLOAT && b.bits == 64);
        return wide ? TVM_F64 : TVM_F32;
    }
    if (a.kind == TVM_KIND_BOOL) return b;
    if (b.kind == TVM_KIND_BOOL) return a;
    return TVM_I(64); /* i32 and u32, or one of 64 bits with another */
}

tvm_dtype tvm_asm_common(const tvm_asm *as, const tvm_value *x, const tvm_value *y) {
    tvm_dtype a = tvm_asm_type_of(as, x), b = tvm_asm_type_of(as, y);
    if (tvm_value_is_literal(x) && !tvm_value_is_literal(y) && literal_fits(x, b)) return b;
    if (tvm_value_is_literal(y) && !tvm_value_is_literal(x) && literal_fits(y, a)) return a;
    return common_of(a, b);
}

bool tvm_asm_widens(tvm_dtype from, tvm_dtype to) {
    if (tvm_dtype_same(from, to)) return true;
    if (from.kind == TVM_KIND_BOOL) return to.kind != TVM_KIND_FLOAT;
    if (from.kind == TVM_KIND_FLOAT || to.kind == TVM_KIND_FLOAT)
        return from.kind == to.kind && from.bits < to.bits;
    return from.bits < to.bits && (from.kind == to.kind || to.kind == TVM_KIND_INT);
}

bool tvm_asm_adapts(const tvm_asm *as, const tvm_value *value, tvm_dtype to) {
    tvm_dtype from = tvm_asm_type_of(as, value);
    if (!tvm_value_is_literal(value)) return tvm_asm_widens(from, to);
    if (value->kind == TVM_VALUE_FLOAT) return to.kind == TVM_KIND_FLOAT;
    if (to.kind == TVM_KIND_BOOL || (to.kind == TVM_KIND_UINT && value->as.i < 0)) return false;
    return to.kind == TVM_KIND_FLOAT || to.bits == 64 || (to.kind == TVM_KIND_INT && from.bits == 32) ||
           (to.kind == TVM_KIND_UINT && value->as.i <= UINT32_MAX);
}

/* ---- constants and nodes ---- */

bool tvm_asm_node(tvm_asm *as, const tvm_token *token, const tvm_expr *node, tvm_value *value) {
    tvm_why why;
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (tvm_expr_check(kernel, node, &why) != TVM_OK) return tvm_asm_invalid(as, token, NULL, "%s", why.text);
    uint32_t expr = tvm_ir_kernel_expr(kernel, node);
    if (expr == TVM_NONE)
        return tvm_asm_invalid(as, token, NULL,
                               "too large: an expression has at most %d nodes, all those of a kernel %d",
                               TVM_MAX_EXPR_SIZE, TVM_MAX_EXPRS);
    *value = (tvm_value){.kind = TVM_VALUE_EXPR, .type = node->type, .as.expr = expr};
    return true;
}

bool tvm_asm_lower(tvm_asm *as, const tvm_token *token, const tvm_value *value, tvm_dtype type,
                   uint32_t *expr) {
    tvm_value result = *value;
    if (value->kind == TVM_VALUE_EXPR) {
        if (!tvm_dtype_same(value->type, type)) {
            tvm_expr node = {.op = TVM_EXPR_CAST, .type = type, .a = value->as.expr};
            if (!tvm_asm_node(as, token, &node, &result)) return false;
        }
    } else if (tvm_value_is_number(value)) {
        tvm_value constant = tvm_value_as(value, type);
        tvm_expr node = {.op = TVM_EXPR_INTEGER, .type = type, .value.i = 0};
        if (constant.kind == TVM_VALUE_FLOAT) {
            node.op = TVM_EXPR_FLOAT;
            node.value.f = constant.as.f;
        } else {
            node.value.i = constant.as.i;
        }
        if (!tvm_asm_node(as, token, &node, &result)) return false;
    } else {
        return value->kind == TVM_VALUE_POISON
                   ? false
                   : tvm_asm_error(as, token, NULL, "expected a scalar, found %s", tvm_value_what(value));
    }
    *expr = result.as.expr;
    return true;
}

bool tvm_asm_lower_own(tvm_asm *as, const tvm_token *token, const tvm_value *value, uint32_t *expr) {
    return tvm_asm_lower(as, token, value, tvm_asm_type_of(as, value), expr);
}

bool tvm_asm_launch_time(tvm_asm *as, const tvm_token *token, uint32_t expr, unsigned leaves,
                         const char *what) {
    leaves |= TVM_LEAF_LAUNCH;
    if ((tvm_expr_leaves(tvm_asm_kernel(as), expr) & ~leaves) == 0) return true;
    if (leaves & TVM_LEAF_GRID)
        return tvm_asm_invalid(
            as, token, NULL,
            "%s is made of constants, scalar parameters, multiprocessors, target and grid only", what);
    return tvm_asm_invalid(as, token, NULL,
                           "%s is made of constants and scalar parameters, multiprocessors and target, only",
                           what);
}
