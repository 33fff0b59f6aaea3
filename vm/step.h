/* One operator on integers made ready for a sequence that evaluates them one after the other. The semantics
 * are those of tvm_expr_apply, without floats: values are held as tvm_scalar holds them. */
#ifndef TVM_VM_STEP_H
#define TVM_VM_STEP_H

#include "program.h"

/* Inlined, so that a constant kind of step removes the choice. */
#define TVM_STEP_INLINE __attribute__((always_inline)) static inline

/* An operator beside those of expressions: a * b + c, of one type. */
enum { TVM_STEP_MULTIPLY_ADD = TVM_EXPR_COUNT };

/* A value from earlier ones. */
typedef struct tvm_step {
    uint8_t op;   /* tvm_expr_op, of a node with operands, or the above */
    uint8_t bits; /* of the result; 1 for bool */
    bool result_signed;
    bool operands_signed;
    uint16_t a, b, c; /* numbers of values; unused ones any */
} tvm_step;

/* All but the operands' numbers, which are 0. */
TVM_STEP_INLINE tvm_step tvm_step_of(const tvm_ir_kernel *kernel, const tvm_expr *node) {
    return (tvm_step){.op = node->op,
                      .bits = node->type.kind == TVM_KIND_BOOL ? 1 : node->type.bits,
                      .result_signed = node->type.kind == TVM_KIND_INT,
                      .operands_signed = kernel->exprs[node->a].type.kind == TVM_KIND_INT};
}

TVM_STEP_INLINE int64_t tvm_step_wrapped(const tvm_step *step, uint64_t value) {
    switch (step->bits) {
    case 32:
        return step->result_signed ? (int64_t)(int32_t)value : (int64_t)(uint32_t)value;
    case 1:
        return value != 0;
    default:
        return (int64_t)value;
    }
}

/* 32-bit quotients are much the cheaper ones. */
TVM_STEP_INLINE uint64_t tvm_step_divide(bool is_signed, int64_t a, int64_t b, bool remainder) {
    uint64_t low = (uint64_t)(a | b);
    if (low <= UINT32_MAX) return remainder ? (uint32_t)a % (uint32_t)b : (uint32_t)a / (uint32_t)b;
    if (!is_signed) return remainder ? (uint64_t)a % (uint64_t)b : (uint64_t)a / (uint64_t)b;
    if (b == -1) return remainder ? 0 : 0 - (uint64_t)a;
    return (uint64_t)(remainder ? a % b : a / b);
}

TVM_STEP_INLINE bool tvm_step_less(const tvm_step *step, int64_t a, int64_t b) {
    return step->operands_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

TVM_STEP_INLINE uint64_t tvm_step_shift_right(const tvm_step *step, int64_t a, int64_t count) {
    unsigned by = (unsigned)count & (step->bits - 1u);
    return step->operands_signed ? (uint64_t)(a >> by) : (uint64_t)a >> by;
}

TVM_STEP_INLINE uint64_t tvm_step_compute(const tvm_step *step, int64_t a, int64_t b, int64_t c) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (step->op) {
    case TVM_EXPR_NEG:
        return 0 - x;
    case TVM_EXPR_NOT:
        return ~x;
    case TVM_EXPR_LNOT:
        return !x;
    case TVM_EXPR_MUL:
        return x * y;
    case TVM_STEP_MULTIPLY_ADD:
        return x * y + (uint64_t)c;
    case TVM_EXPR_DIV:
        return tvm_step_divide(step->operands_signed, a, b, false);
    case TVM_EXPR_MOD:
        return tvm_step_divide(step->operands_signed, a, b, true);
    case TVM_EXPR_CDIV:
        return tvm_step_divide(step->operands_signed, tvm_step_wrapped(step, x + y - 1), b, false);
    case TVM_EXPR_ADD:
        return x + y;
    case TVM_EXPR_SUB:
        return x - y;
    case TVM_EXPR_SHL:
        return x << (y & (step->bits - 1u));
    case TVM_EXPR_SHR:
        return tvm_step_shift_right(step, a, b);
    case TVM_EXPR_AND:
    case TVM_EXPR_LAND:
        return step->op == TVM_EXPR_AND ? x & y : x && y;
    case TVM_EXPR_OR:
    case TVM_EXPR_LOR:
        return step->op == TVM_EXPR_OR ? x | y : x || y;
    case TVM_EXPR_XOR:
        return x ^ y;
    case TVM_EXPR_SELECT:
        return (uint64_t)(x ? b : c);
    case TVM_EXPR_MIN:
        return tvm_step_less(step, a, b) ? x : y;
    case TVM_EXPR_MAX:
        return tvm_step_less(step, a, b) ? y : x;
    default: /* CAST: wrapped by the caller */
        return x;
    }
}

TVM_STEP_INLINE bool tvm_step_compare(const tvm_step *step, int64_t a, int64_t b) {
    switch (step->op) {
    case TVM_EXPR_LT:
        return tvm_step_less(step, a, b);
    case TVM_EXPR_LE:
        return !tvm_step_less(step, b, a);
    case TVM_EXPR_GT:
        return tvm_step_less(step, b, a);
    case TVM_EXPR_GE:
        return !tvm_step_less(step, a, b);
    case TVM_EXPR_EQ:
        return a == b;
    default:
        return a != b;
    }
}

TVM_STEP_INLINE bool tvm_step_divides(unsigned op) {
    return op == TVM_EXPR_DIV || op == TVM_EXPR_MOD || op == TVM_EXPR_CDIV;
}

/* False: a division by zero. */
TVM_STEP_INLINE bool tvm_step_run(const tvm_step *step, const int64_t *values, int64_t *result) {
    int64_t a = values[step->a], b = values[step->b];
    if (step->op >= TVM_EXPR_LT && step->op <= TVM_EXPR_NE) {
        *result = tvm_step_compare(step, a, b);
        return true;
    }
    if (!b && tvm_step_divides(step->op)) return false;
    *result = tvm_step_wrapped(step, tvm_step_compute(step, a, b, values[step->c]));
    return true;
}

#endif
