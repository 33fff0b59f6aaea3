/* Operators on values: static ones are folded, run-time scalars become nodes, with conversions between their
 * types made explicit. */
#include "operators.h"

#include <stdio.h>
#include <string.h>

#include "instruction.h"
#include "report.h"
#include "result.h"
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

static const char condition_hint[] =
    "a condition is one scalar: 'scalar(any(%mask, 0))' of a tensor of one dimension, or 'where' per element";

bool tvm_asm_to_bool(tvm_asm *as, const tvm_token *token, const tvm_value *x, tvm_value *value) {
    *value = *x;
    if (x->kind == TVM_VALUE_POISON) return true;
    if (!tvm_value_is_scalar(x))
        return tvm_asm_error(as, token, x->kind == TVM_VALUE_TENSOR ? condition_hint : NULL,
                             "expected a condition, found %s", tvm_value_what(x));
    if (x->kind == TVM_VALUE_BOOL || (x->kind == TVM_VALUE_EXPR && x->type.kind == TVM_KIND_BOOL))
        return true;
    if (x->kind == TVM_VALUE_FLOAT || x->type.kind == TVM_KIND_FLOAT)
        return tvm_asm_error(as, token, "write the comparison, as `x != 0.0`", "a float is not a condition");
    tvm_value zero = tvm_value_integer(0);
    return tvm_asm_binary(as, TVM_EXPR_NE, token, x, &zero, value);
}

/* ---- static folding ---- */

/* In a type that was asked for: as the program would at run time. */
static bool fold_typed(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                       const tvm_value *y, tvm_dtype type, tvm_value *value) {
    tvm_value a = tvm_value_as(x, type), b = y ? tvm_value_as(y, type) : a;
    tvm_scalar operands[3] = {tvm_value_scalar(&a), tvm_value_scalar(&b), {0}}, result;
    if (op == TVM_EXPR_SHL || op == TVM_EXPR_SHR) operands[1] = tvm_value_scalar(y);
    tvm_expr node = {.op = (uint8_t)op, .type = tvm_expr_is_comparison(op) ? TVM_BOOL : type};
    tvm_why why;
    if (tvm_expr_apply(&node, type, operands, &result, &why) != TVM_OK)
        return tvm_asm_invalid(as, token, NULL, "%s", why.text);
    *value = tvm_value_of_scalar(node.type, result);
    return true;
}

static bool is_untyped(const tvm_value *value) {
    return tvm_value_is_literal(value) || value->kind == TVM_VALUE_BOOL;
}

/* Does the operator give of two integers of 64 bits one that needs no more? */
static bool stays_in_range(tvm_expr_op op, int64_t x, int64_t y) {
    int64_t r;
    switch (op) {
    case TVM_EXPR_ADD:
        return !__builtin_add_overflow(x, y, &r);
    case TVM_EXPR_NEG: /* y is x */
        return x != INT64_MIN;
    case TVM_EXPR_SUB:
        return !__builtin_sub_overflow(x, y, &r);
    case TVM_EXPR_MUL:
        return !__builtin_mul_overflow(x, y, &r);
    case TVM_EXPR_DIV:
    case TVM_EXPR_MOD:
        return x != INT64_MIN || y != -1;
    case TVM_EXPR_CDIV:
        return !y || ((x != INT64_MIN || y != -1) && !__builtin_add_overflow(x, y - 1, &r));
    case TVM_EXPR_SHL:
        return y >= 0 && y <= 62 && x <= (INT64_MAX >> y) && x >= (INT64_MIN >> y);
    default:
        return true;
    }
}

/* Literals are integers of 64 bits that do not wrap, and doubles; what is made of them is one, too. y: NULL
 * of unary operators. */
static bool fold_literals(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                          const tvm_value *y, tvm_value *value) {
    bool is_float = x->kind == TVM_VALUE_FLOAT || (y && y->kind == TVM_VALUE_FLOAT);
    if (is_float && !tvm_expr_takes_type(op, TVM_F64))
        return tvm_asm_error(as, token, NULL, "'%s' does not take floats", tvm_expr_op_info(op)->text);
    int64_t count = op == TVM_EXPR_SHR && !is_float ? y->as.i : 0;
    if (count < 0 || count > 63)
        return tvm_asm_invalid(as, token, NULL, "the count of a shift is from 0 to 63");
    if (!is_float && !stays_in_range(op, x->as.i, y ? y->as.i : x->as.i))
        return tvm_asm_invalid(as, token, NULL, "the static integer does not fit 64 bits");
    if (!fold_typed(as, op, token, x, y, is_float ? TVM_F64 : TVM_I(64), value)) return false;
    if (value->kind != TVM_VALUE_BOOL) value->type = (tvm_dtype){0};
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

/* An operand of a logical operator that has tensors among its operands: of bool. */
static bool to_truths(tvm_asm *as, tvm_expr_op op, const tvm_token *token, tvm_value *operand) {
    if (operand->kind != TVM_VALUE_TENSOR) {
        const tvm_value x = *operand;
        return tvm_asm_to_bool(as, token, &x, operand);
    }
    if (!tvm_asm_settle(as, operand)) return false;
    const tvm_slot *slot = &tvm_asm_kernel(as)->slots[operand->as.tensor.slot];
    if (slot->kind != TVM_SLOT_REGISTER || slot->dtype.kind == TVM_KIND_BOOL) return true;
    char hint[TVM_MAX_NAME + 32];
    snprintf(hint, sizeof hint, "write the comparison, as '%%%s != 0'", tvm_string(as->program, slot->name));
    return tvm_asm_invalid(as, token, hint, "'%s' takes tensors of bool, '%%%s' has type %s",
                           tvm_expr_op_info(op)->text, tvm_string(as->program, slot->name),
                           TVM_DTYPE_TEXT(slot->dtype));
}

/* The instruction that the operator means, where tensors are among the operands. */
static bool of_tensors(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *operands,
                       uint32_t count, tvm_value *value) {
    const tvm_expr_info *info = tvm_expr_op_info(op);
    tvm_value given[4];
    uint32_t words = 0;
    char hint[32];
    if (!info->tensors)
        return tvm_asm_error(as, token, NULL, "'%s' takes %s, not %s", info->text,
                             count > 1 ? "scalars" : "a scalar",
                             tvm_value_what(&operands[operands->kind != TVM_VALUE_TENSOR]));
    snprintf(hint, sizeof hint, "write '.vasm %u'", info->tensors);
    if (info->tensors > as->text.version)
        return tvm_asm_error(as, token, hint, "'%s' of tensors came with version %u of the language",
                             info->text, info->tensors);
    if (tvm_op_first_words(info->instruction)) given[words++] = tvm_value_integer(info->word);
    for (uint32_t i = 0; i < count; i++) {
        given[words + i] = operands[i];
        if (info->takes == TVM_TAKES_BOOL && !to_truths(as, op, token, &given[words + i])) return false;
    }
    return tvm_asm_tensor_operation(as, info->instruction, token, given, words + count, value);
}

/* The items of one list behind those of another. */
static bool concatenate(tvm_asm *as, const tvm_token *token, const tvm_value *x, const tvm_value *y,
                        tvm_value *value) {
    uint32_t before = x->as.list.count, after = y->as.list.count;
    if ((uint64_t)before + after > TVM_ASM_LIST)
        return tvm_asm_error(as, token, NULL, "more than %d items", TVM_ASM_LIST);
    tvm_value *items = tvm_arena_alloc(&as->scratch, (before + (size_t)after + 1) * sizeof *items);
    if (!items) return tvm_asm_no_memory(as);
    if (before) memcpy(items, x->as.list.items, before * sizeof *items);
    if (after) memcpy(items + before, y->as.list.items, after * sizeof *items);
    *value = (tvm_value){.kind = TVM_VALUE_LIST, .as.list = {items, before + after}};
    return true;
}

bool tvm_asm_binary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                    const tvm_value *y, tvm_value *value) {
    if (x->kind == TVM_VALUE_POISON || y->kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    const tvm_value operands[2] = {*x, *y};
    if (x->kind == TVM_VALUE_TENSOR || y->kind == TVM_VALUE_TENSOR)
        return of_tensors(as, op, token, operands, 2, value);
    if (op == TVM_EXPR_ADD && x->kind == TVM_VALUE_LIST && y->kind == TVM_VALUE_LIST)
        return concatenate(as, token, x, y, value);
    bool scalars = tvm_value_is_scalar(x) && tvm_value_is_scalar(y);
    if (!scalars && (op == TVM_EXPR_EQ || op == TVM_EXPR_NE)) return equality(as, op, token, x, y, value);
    if (!scalars)
        return tvm_asm_error(as, token, NULL, "'%s' takes scalars, not %s", tvm_expr_op_info(op)->text,
                             tvm_value_what(tvm_value_is_scalar(x) ? y : x));
    if (tvm_expr_op_info(op)->takes == TVM_TAKES_BOOL) return logical(as, op, token, x, y, value);
    if (is_untyped(x) && is_untyped(y)) return fold_literals(as, op, token, x, y, value);
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

bool tvm_asm_unary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                   tvm_value *value) {
    if (x->kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    if (x->kind == TVM_VALUE_TENSOR) return of_tensors(as, op, token, x, 1, value);
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
        return is_untyped(x) ? fold_literals(as, op, token, x, NULL, value)
                             : fold_typed(as, op, token, x, NULL, x->type, value);
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
    if (c->kind == TVM_VALUE_TENSOR) {
        const tvm_value operands[3] = {*c, *x, *y};
        if (x->kind == TVM_VALUE_POISON || y->kind == TVM_VALUE_POISON) return true;
        return of_tensors(as, TVM_EXPR_SELECT, token, operands, 3, value);
    }
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
