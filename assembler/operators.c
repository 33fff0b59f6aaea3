/* Operators on values: static ones are folded, run-time scalars become nodes, with conversions between their
 * types made explicit. */
#include "operators.h"

#include <limits.h>
#include <math.h>

#include "instruction.h"
#include "report.h"
#include "scalars.h"

bool tvm_asm_convert(tvm_asm *as, const tvm_token *token, tvm_dtype type, const tvm_value *x,
                     tvm_value *value) {
    *value = *x;
    if (x->kind == TVM_VALUE_POISON) return true;
    if (!tvm_value_is_scalar(x))
        return tvm_asm_error(as, token, NULL, "a conversion takes a scalar, not %s", tvm_value_what(x));
    if (tvm_value_is_static(x)) {
        *value = tvm_value_as(x, type);
        return true;
    }
    uint32_t expr;
    if (!tvm_asm_lower(as, token, x, type, &expr)) return false;
    *value = (tvm_value){.kind = TVM_VALUE_EXPR, .type = type, .as.expr = expr};
    return true;
}

bool tvm_asm_to_bool(tvm_asm *as, const tvm_token *token, const tvm_value *x, tvm_value *value) {
    *value = *x;
    if (x->kind == TVM_VALUE_POISON) return true;
    if (!tvm_value_is_scalar(x))
        return tvm_asm_error(as, token, NULL, "expected a condition, found %s", tvm_value_what(x));
    if (x->kind == TVM_VALUE_BOOL || (x->kind == TVM_VALUE_EXPR && x->type.kind == TVM_KIND_BOOL))
        return true;
    if (x->kind == TVM_VALUE_FLOAT || x->type.kind == TVM_KIND_FLOAT)
        return tvm_asm_error(as, token, "write the comparison, as `x != 0.0`", "a float is not a condition");
    tvm_value zero = tvm_value_integer(0);
    return tvm_asm_binary(as, TVM_EXPR_NE, token, x, &zero, value);
}

/* ---- static folding of literals: 64-bit integers without wrapping, doubles ---- */

static bool overflow(tvm_asm *as, const tvm_token *token) {
    return tvm_asm_invalid(as, token, NULL, "the static integer does not fit 64 bits");
}

static bool fold_division(tvm_asm *as, tvm_expr_op op, const tvm_token *token, int64_t x, int64_t y,
                          tvm_value *value) {
    if (y == 0) return tvm_asm_invalid(as, token, NULL, "division by zero");
    if (x == INT64_MIN && y == -1) return overflow(as, token);
    if (op == TVM_EXPR_CDIV) {
        int64_t sum;
        if (__builtin_add_overflow(x, y - 1, &sum)) return overflow(as, token);
        *value = tvm_value_integer(sum / y);
    } else {
        *value = tvm_value_integer(op == TVM_EXPR_DIV ? x / y : x % y);
    }
    return true;
}

static bool fold_integers(tvm_asm *as, tvm_expr_op op, const tvm_token *token, int64_t x, int64_t y,
                          tvm_value *value) {
    int64_t r = 0;
    switch (op) {
    case TVM_EXPR_ADD:
        if (__builtin_add_overflow(x, y, &r)) return overflow(as, token);
        break;
    case TVM_EXPR_SUB:
        if (__builtin_sub_overflow(x, y, &r)) return overflow(as, token);
        break;
    case TVM_EXPR_MUL:
        if (__builtin_mul_overflow(x, y, &r)) return overflow(as, token);
        break;
    case TVM_EXPR_DIV:
    case TVM_EXPR_MOD:
    case TVM_EXPR_CDIV:
        return fold_division(as, op, token, x, y, value);
    case TVM_EXPR_SHL:
        if (y < 0 || y > 62 || x > (INT64_MAX >> y) || x < (INT64_MIN >> y)) return overflow(as, token);
        r = (int64_t)((uint64_t)x << y);
        break;
    case TVM_EXPR_SHR:
        if (y < 0 || y > 63) return tvm_asm_invalid(as, token, NULL, "the count of a shift is from 0 to 63");
        r = x >> y;
        break;
    case TVM_EXPR_AND:
        r = x & y;
        break;
    case TVM_EXPR_OR:
        r = x | y;
        break;
    case TVM_EXPR_XOR:
        r = x ^ y;
        break;
    case TVM_EXPR_MIN:
        r = x < y ? x : y;
        break;
    default: /* MAX */
        r = x > y ? x : y;
        break;
    }
    *value = tvm_value_integer(r);
    return true;
}

static bool fold_floats(tvm_asm *as, tvm_expr_op op, const tvm_token *token, double x, double y,
                        tvm_value *value) {
    double r;
    switch (op) {
    case TVM_EXPR_ADD:
        r = x + y;
        break;
    case TVM_EXPR_SUB:
        r = x - y;
        break;
    case TVM_EXPR_MUL:
        r = x * y;
        break;
    case TVM_EXPR_DIV:
        r = x / y;
        break;
    case TVM_EXPR_MIN:
        r = fmin(x, y);
        break;
    case TVM_EXPR_MAX:
        r = fmax(x, y);
        break;
    default:
        return tvm_asm_error(as, token, NULL, "'%s' does not take floats", tvm_expr_op_info(op)->text);
    }
    *value = tvm_value_float(r);
    return true;
}

static bool compare_numbers(tvm_expr_op op, const tvm_value *x, const tvm_value *y) {
    bool less, equal, greater;
    if (x->kind == TVM_VALUE_FLOAT || y->kind == TVM_VALUE_FLOAT) {
        double a = x->kind == TVM_VALUE_FLOAT ? x->as.f : (double)x->as.i;
        double b = y->kind == TVM_VALUE_FLOAT ? y->as.f : (double)y->as.i;
        less = a<b, equal = a == b, greater = a> b;
    } else {
        less = x->as.i<y->as.i, equal = x->as.i == y->as.i, greater = x->as.i> y->as.i;
    }
    return tvm_expr_compares(op, less, equal, greater);
}

static bool is_logical(tvm_expr_op op) {
    return op == TVM_EXPR_LAND || op == TVM_EXPR_LOR;
}

static bool fold_literals(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                          const tvm_value *y, tvm_value *value) {
    if (tvm_expr_is_comparison(op)) {
        *value = tvm_value_bool(compare_numbers(op, x, y));
        return true;
    }
    if (x->kind == TVM_VALUE_FLOAT || y->kind == TVM_VALUE_FLOAT) {
        double a = x->kind == TVM_VALUE_FLOAT ? x->as.f : (double)x->as.i;
        double b = y->kind == TVM_VALUE_FLOAT ? y->as.f : (double)y->as.i;
        return fold_floats(as, op, token, a, b, value);
    }
    return fold_integers(as, op, token, x->as.i, y->as.i, value);
}

/* ---- static folding in a type that was asked for: as the program would at run time ---- */

static bool fold_typed(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                       const tvm_value *y, tvm_dtype type, tvm_value *value) {
    tvm_value a = tvm_value_as(x, type), b = tvm_value_as(y, type);
    tvm_scalar operands[3] = {tvm_value_scalar(&a), tvm_value_scalar(&b), {0}}, result;
    if (op == TVM_EXPR_SHL || op == TVM_EXPR_SHR) operands[1] = tvm_value_scalar(y);
    tvm_expr node = {.op = (uint8_t)op, .type = tvm_expr_is_comparison(op) ? TVM_BOOL : type};
    tvm_why why;
    if (tvm_expr_apply(&node, type, operands, &result, &why) != TVM_OK)
        return tvm_asm_invalid(as, token, NULL, "%s", why.text);
    *value = tvm_value_of_scalar(node.type, result);
    return true;
}

/* ---- binary ---- */

static bool equality(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                     const tvm_value *y, tvm_value *value) {
    bool shared =
        (x->kind == TVM_VALUE_SHARED || x->kind == TVM_VALUE_SWIZZLE || x->kind == TVM_VALUE_ROW_MAJOR) &&
        (y->kind == TVM_VALUE_SHARED || y->kind == TVM_VALUE_SWIZZLE || y->kind == TVM_VALUE_ROW_MAJOR);
    if (x->kind != y->kind && !shared)
        return tvm_asm_error(as, token, NULL, "cannot compare %s with %s", tvm_value_what(x),
                             tvm_value_what(y));
    *value = tvm_value_bool(tvm_value_equal(x, y) == (op == TVM_EXPR_EQ));
    return true;
}

/* false && e, true || e */
static bool is_decided(tvm_expr_op op, const tvm_value *x) {
    return tvm_value_is_static(x) && (x->as.i != 0) == (op == TVM_EXPR_LOR);
}

static bool logical(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                    const tvm_value *y, tvm_value *value) {
    tvm_value a, b;
    if (!tvm_asm_to_bool(as, token, x, &a) || !tvm_asm_to_bool(as, token, y, &b)) return false;
    if (tvm_value_is_static(&a) && tvm_value_is_static(&b)) {
        *value = tvm_value_bool(op == TVM_EXPR_LAND ? a.as.i && b.as.i : a.as.i || b.as.i);
        return true;
    }
    if (tvm_value_is_static(&a) || tvm_value_is_static(&b)) {
        bool decided = is_decided(op, &a) || is_decided(op, &b);
        *value = decided ? tvm_value_bool(op == TVM_EXPR_LOR) : tvm_value_is_static(&a) ? b : a;
        return true;
    }
    tvm_expr node = {.op = (uint8_t)op, .type = TVM_BOOL};
    return tvm_asm_lower(as, token, &a, TVM_BOOL, &node.a) &&
           tvm_asm_lower(as, token, &b, TVM_BOOL, &node.b) && tvm_asm_node(as, token, &node, value);
}

/* Which type the operands get; bool only for == and !=. */
static tvm_dtype operand_type(const tvm_asm *as, tvm_expr_op op, const tvm_value *x, const tvm_value *y) {
    tvm_dtype type = tvm_asm_common(as, x, y);
    if (op == TVM_EXPR_SHL || op == TVM_EXPR_SHR) type = tvm_asm_type_of(as, x);
    if (type.kind == TVM_KIND_BOOL && op != TVM_EXPR_EQ && op != TVM_EXPR_NE) type = TVM_I(32);
    return type;
}

static bool shift_count(tvm_asm *as, const tvm_token *token, const tvm_value *count, uint32_t *expr) {
    tvm_dtype type = tvm_asm_type_of(as, count);
    if (type.kind == TVM_KIND_FLOAT)
        return tvm_asm_error(as, token, NULL, "the count of a shift is an integer");
    return tvm_asm_lower(as, token, count, type.kind == TVM_KIND_BOOL ? TVM_I(32) : type, expr);
}

/* The element-wise instruction of an operator. */
static bool tensor_binary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                          const tvm_value *y, tvm_value *value) {
    static const uint16_t instructions[TVM_EXPR_COUNT] = {
        [TVM_EXPR_ADD] = TVM_OP_ADD, [TVM_EXPR_SUB] = TVM_OP_SUB, [TVM_EXPR_MUL] = TVM_OP_MUL,
        [TVM_EXPR_DIV] = TVM_OP_DIV, [TVM_EXPR_MIN] = TVM_OP_MIN, [TVM_EXPR_MAX] = TVM_OP_MAX,
        [TVM_EXPR_AND] = TVM_OP_AND, [TVM_EXPR_OR] = TVM_OP_OR,   [TVM_EXPR_XOR] = TVM_OP_XOR,
        [TVM_EXPR_SHL] = TVM_OP_SHL, [TVM_EXPR_SHR] = TVM_OP_SHR,
    };
    tvm_value operands[2] = {*x, *y};
    if (instructions[op] && tvm_op(instructions[op])->since <= as->text.version)
        return tvm_asm_tensor_operation(as, instructions[op], token, operands, 2, value);
    return tvm_asm_error(as, token, NULL, "'%s' takes scalars, not %s", tvm_expr_op_info(op)->text,
                         tvm_value_what(x->kind == TVM_VALUE_TENSOR ? x : y));
}

bool tvm_asm_binary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                    const tvm_value *y, tvm_value *value) {
    if (x->kind == TVM_VALUE_POISON || y->kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    if (x->kind == TVM_VALUE_TENSOR || y->kind == TVM_VALUE_TENSOR)
        return tensor_binary(as, op, token, x, y, value);
    bool scalars = tvm_value_is_scalar(x) && tvm_value_is_scalar(y);
    if (!scalars && (op == TVM_EXPR_EQ || op == TVM_EXPR_NE)) return equality(as, op, token, x, y, value);
    if (!scalars)
        return tvm_asm_error(as, token, NULL, "'%s' takes scalars, not %s", tvm_expr_op_info(op)->text,
                             tvm_value_what(tvm_value_is_scalar(x) ? y : x));
    if (is_logical(op)) return logical(as, op, token, x, y, value);
    bool literals = (tvm_value_is_literal(x) || x->kind == TVM_VALUE_BOOL) &&
                    (tvm_value_is_literal(y) || y->kind == TVM_VALUE_BOOL);
    if (literals) return fold_literals(as, op, token, x, y, value);
    tvm_dtype type = operand_type(as, op, x, y);
    if (tvm_value_is_static(x) && tvm_value_is_static(y)) return fold_typed(as, op, token, x, y, type, value);
    tvm_expr node = {.op = (uint8_t)op, .type = tvm_expr_is_comparison(op) ? TVM_BOOL : type};
    bool shift = op == TVM_EXPR_SHL || op == TVM_EXPR_SHR;
    if (!tvm_asm_lower(as, token, x, type, &node.a)) return false;
    if (!(shift ? shift_count(as, token, y, &node.b) : tvm_asm_lower(as, token, y, type, &node.b)))
        return false;
    return tvm_asm_node(as, token, &node, value);
}

/* ---- unary and conditional ---- */

static bool fold_unary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                       tvm_value *value) {
    if (x->kind == TVM_VALUE_FLOAT) {
        if (op == TVM_EXPR_NOT) return tvm_asm_error(as, token, NULL, "'~' does not take floats");
        *value = *x;
        value->as.f = -x->as.f;
        return true;
    }
    if (x->type.kind == TVM_KIND_NONE || x->kind == TVM_VALUE_BOOL) {
        if (op == TVM_EXPR_NEG && x->as.i == INT64_MIN) return overflow(as, token);
        *value = tvm_value_integer(op == TVM_EXPR_NEG ? -x->as.i : ~x->as.i);
        return true;
    }
    tvm_scalar operands[3] = {tvm_value_scalar(x), {0}, {0}}, result;
    tvm_expr node = {.op = (uint8_t)op, .type = x->type};
    tvm_why why;
    if (tvm_expr_apply(&node, x->type, operands, &result, &why) != TVM_OK)
        return tvm_asm_invalid(as, token, NULL, "%s", why.text);
    *value = tvm_value_of_scalar(x->type, result);
    return true;
}

bool tvm_asm_unary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                   tvm_value *value) {
    if (x->kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    if (op == TVM_EXPR_NEG && x->kind == TVM_VALUE_TENSOR)
        return tvm_asm_tensor_operation(as, TVM_OP_NEG, token, x, 1, value);
    if (op == TVM_EXPR_NOT && x->kind == TVM_VALUE_TENSOR && tvm_op(TVM_OP_NOT)->since <= as->text.version)
        return tvm_asm_tensor_operation(as, TVM_OP_NOT, token, x, 1, value);
    if (!tvm_value_is_scalar(x))
        return tvm_asm_error(as, token, NULL, "'%s' takes a scalar, not %s", tvm_expr_op_info(op)->text,
                             tvm_value_what(x));
    tvm_value operand = *x;
    if (op == TVM_EXPR_LNOT) {
        if (!tvm_asm_to_bool(as, token, x, &operand)) return false;
        if (tvm_value_is_static(&operand)) {
            *value = tvm_value_bool(!operand.as.i);
            return true;
        }
    } else if (tvm_value_is_static(x)) {
        return fold_unary(as, op, token, x, value);
    }
    tvm_dtype type = operand.type;
    if (type.kind == TVM_KIND_BOOL && op != TVM_EXPR_LNOT) type = TVM_I(32);
    tvm_expr node = {.op = (uint8_t)op, .type = type};
    return tvm_asm_lower(as, token, &operand, type, &node.a) && tvm_asm_node(as, token, &node, value);
}

bool tvm_asm_select(tvm_asm *as, const tvm_token *token, const tvm_value *c, const tvm_value *x,
                    const tvm_value *y, tvm_value *value) {
    tvm_value condition;
    *value = tvm_value_poison();
    if (c->kind == TVM_VALUE_POISON) return true;
    if (!tvm_asm_to_bool(as, token, c, &condition)) return false;
    if (tvm_value_is_static(&condition)) {
        *value = condition.as.i ? *x : *y;
        return true;
    }
    if (x->kind == TVM_VALUE_POISON || y->kind == TVM_VALUE_POISON) return true;
    if (!tvm_value_is_scalar(x) || !tvm_value_is_scalar(y))
        return tvm_asm_error(as, token, NULL, "a run-time condition chooses between scalars, not %s",
                             tvm_value_what(tvm_value_is_scalar(x) ? y : x));
    tvm_dtype type = tvm_asm_common(as, x, y);
    tvm_expr node = {.op = TVM_EXPR_SELECT, .type = type, .a = condition.as.expr};
    return tvm_asm_lower(as, token, x, type, &node.b) && tvm_asm_lower(as, token, y, type, &node.c) &&
           tvm_asm_node(as, token, &node, value);
}
