/* What the operators of expressions do to integers: the one definition, for the interpreter and the assembler
 * as for what a launch evaluates. Values are held as tvm_scalar holds them: those of 32 bits extended to 64
 * by their sign or by zeros, bool as 0 or 1. Inlined, so that a constant operator and type remove the choice.
 */
#ifndef TVM_ISA_INTEGERS_H
#define TVM_ISA_INTEGERS_H

#include "program.h"

#define TVM_INLINE __attribute__((always_inline)) static inline

/* An operator beside those of expressions: a * b + c, of one type. */
enum { TVM_INTEGER_MULTIPLY_ADD = TVM_EXPR_COUNT };

/* An operator with its types. */
typedef struct tvm_integer_op {
    uint8_t op;   /* tvm_expr_op, of a node with operands, or the above */
    uint8_t bits; /* of the result; 1 for bool */
    bool result_signed;
    bool operands_signed;
} tvm_integer_op;

TVM_INLINE tvm_integer_op tvm_integer_op_of(unsigned op, tvm_dtype result, tvm_dtype operands) {
    return (tvm_integer_op){.op = (uint8_t)op,
                            .bits = result.kind == TVM_KIND_BOOL ? 1 : result.bits,
                            .result_signed = result.kind == TVM_KIND_INT,
                            .operands_signed = operands.kind == TVM_KIND_INT};
}

/* The low bits as a value: sign- or zero-extended; of bool, whether any is set. */
TVM_INLINE int64_t tvm_integer_wrapped(unsigned bits, bool is_signed, uint64_t value) {
    switch (bits) {
    case 32:
        return is_signed ? (int64_t)(int32_t)value : (int64_t)(uint32_t)value;
    case 1:
        return value != 0;
    default:
        return (int64_t)value;
    }
}

/* Toward zero; the one signed quotient that does not fit wraps to itself, with remainder 0. 32-bit quotients
 * are much the cheaper ones. */
TVM_INLINE uint64_t tvm_integer_divide(bool is_signed, int64_t a, int64_t b, bool remainder) {
    uint64_t low = (uint64_t)(a | b);
    if (low <= UINT32_MAX) return remainder ? (uint32_t)a % (uint32_t)b : (uint32_t)a / (uint32_t)b;
    if (!is_signed) return remainder ? (uint64_t)a % (uint64_t)b : (uint64_t)a / (uint64_t)b;
    if (b == -1) return remainder ? 0 : 0 - (uint64_t)a;
    return (uint64_t)(remainder ? a % b : a / b);
}

TVM_INLINE bool tvm_integer_less(bool is_signed, int64_t a, int64_t b) {
    return is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

TVM_INLINE bool tvm_integer_compare(unsigned op, bool is_signed, int64_t a, int64_t b) {
    switch (op) {
    case TVM_EXPR_LT:
        return tvm_integer_less(is_signed, a, b);
    case TVM_EXPR_LE:
        return !tvm_integer_less(is_signed, b, a);
    case TVM_EXPR_GT:
        return tvm_integer_less(is_signed, b, a);
    case TVM_EXPR_GE:
        return !tvm_integer_less(is_signed, a, b);
    case TVM_EXPR_EQ:
        return a == b;
    default:
        return a != b;
    }
}

/* Counts are taken modulo the width, which is a power of two. */
TVM_INLINE uint64_t tvm_integer_shift_right(const tvm_integer_op *kind, int64_t a, int64_t count) {
    unsigned by = (unsigned)count & (kind->bits - 1u);
    return kind->operands_signed ? (uint64_t)(a >> by) : (uint64_t)a >> by;
}

/* Before it is wrapped. */
TVM_INLINE uint64_t tvm_integer_compute(const tvm_integer_op *kind, int64_t a, int64_t b, int64_t c) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    bool is_signed = kind->operands_signed;
    switch (kind->op) {
    case TVM_EXPR_NEG:
        return 0 - x;
    case TVM_EXPR_NOT:
        return ~x;
    case TVM_EXPR_LNOT:
        return !x;
    case TVM_EXPR_MUL:
        return x * y;
    case TVM_INTEGER_MULTIPLY_ADD:
        return x * y + (uint64_t)c;
    case TVM_EXPR_DIV:
        return tvm_integer_divide(is_signed, a, b, false);
    case TVM_EXPR_MOD:
        return tvm_integer_divide(is_signed, a, b, true);
    case TVM_EXPR_CDIV:
        return tvm_integer_divide(is_signed, tvm_integer_wrapped(kind->bits, kind->result_signed, x + y - 1),
                                  b, false);
    case TVM_EXPR_ADD:
        return x + y;
    case TVM_EXPR_SUB:
        return x - y;
    case TVM_EXPR_SHL:
        return x << (y & (kind->bits - 1u));
    case TVM_EXPR_SHR:
        return tvm_integer_shift_right(kind, a, b);
    case TVM_EXPR_AND:
        return x & y;
    case TVM_EXPR_OR:
        return x | y;
    case TVM_EXPR_LAND:
        return x && y;
    case TVM_EXPR_LOR:
        return x || y;
    case TVM_EXPR_XOR:
        return x ^ y;
    case TVM_EXPR_SELECT:
        return (uint64_t)(x ? b : c);
    case TVM_EXPR_MIN:
        return tvm_integer_less(is_signed, a, b) ? x : y;
    case TVM_EXPR_MAX:
        return tvm_integer_less(is_signed, a, b) ? y : x;
    default: /* CAST: wrapped by the caller */
        return x;
    }
}

TVM_INLINE bool tvm_integer_divides(unsigned op) {
    return op == TVM_EXPR_DIV || op == TVM_EXPR_MOD || op == TVM_EXPR_CDIV;
}

/* False: a division by zero. */
TVM_INLINE bool tvm_integer_apply(const tvm_integer_op *kind, int64_t a, int64_t b, int64_t c,
                                  int64_t *result) {
    if (tvm_expr_is_comparison(kind->op)) {
        *result = tvm_integer_compare(kind->op, kind->operands_signed, a, b);
        return true;
    }
    if (!b && tvm_integer_divides(kind->op)) return false;
    *result = tvm_integer_wrapped(kind->bits, kind->result_signed, tvm_integer_compute(kind, a, b, c));
    return true;
}

#endif
