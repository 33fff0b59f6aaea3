#include "reduce_op.h"

#include <inttypes.h>
#include <stdio.h>

#include "compute.h"

/* Of integers and of floats. */
static const struct {
    const char *integer, *real;
} names[TVM_REDUCTION_COUNT] = {
    [TVM_SUM] = {"add", "add.rn"},        [TVM_REDUCE_PROD] = {"mul.lo", "mul.rn"},
    [TVM_REDUCE_MAX] = {"max", "max"},    [TVM_REDUCE_MIN] = {"min", "min"},
    [TVM_REDUCE_AND] = {"and", NULL},     [TVM_REDUCE_OR] = {"or", NULL},
    [TVM_REDUCE_XOR] = {"xor", NULL},     [TVM_REDUCE_ANY] = {"or", NULL},
    [TVM_REDUCE_ALL] = {"and", NULL},     [TVM_REDUCE_ARGMAX] = {"max", "max"},
    [TVM_REDUCE_ARGMIN] = {"min", "min"},
};

static bool is_bitwise(uint32_t operation) {
    return operation >= TVM_REDUCE_AND && operation <= TVM_REDUCE_ALL;
}

const char *tvm_reduce_name(const reduce_op *op) {
    return op->compute.kind == TVM_KIND_FLOAT ? names[op->operation].real : names[op->operation].integer;
}

const char *tvm_reduce_suffix(const reduce_op *op) {
    return is_bitwise(op->operation) ? tvm_element_suffix(op->compute) : tvm_arithmetic_suffix(op->compute);
}

reg tvm_reduce_pair(emitter *e, const reduce_op *op, reg x, reg y) {
    reg d = tvm_new_element(e, op->compute);
    tvm_emit(e, "%s.%s %s, %s, %s;", tvm_reduce_name(op), tvm_reduce_suffix(op), d.name, x.name, y.name);
    return d;
}

static void shuffle_word(emitter *e, const char *mode, const char *to, const char *from, const char *by) {
    tvm_emit(e, "shfl.sync.%s.b32 %s, %s, %s, 31, 0xffffffff;", mode, to, from, by);
}

reg tvm_reduce_shuffle(emitter *e, const reduce_op *op, const char *mode, reg value, const char *by) {
    reg d = tvm_new_element(e, op->compute);
    if (op->compute.bits < 64) {
        shuffle_word(e, mode, d.name, value.name, by);
        return d;
    }
    reg low = tvm_new_r(e), high = tvm_new_r(e), other_low = tvm_new_r(e), other_high = tvm_new_r(e);
    tvm_emit(e, "mov.b64 {%s, %s}, %s;", low.name, high.name, value.name);
    shuffle_word(e, mode, other_low.name, low.name, by);
    shuffle_word(e, mode, other_high.name, high.name, by);
    tvm_emit(e, "mov.b64 %s, {%s, %s};", d.name, other_low.name, other_high.name);
    return d;
}

static const char *float_neutral(const reduce_op *op, bool is_result) {
    bool wide = op->compute.bits == 64;
    if (op->operation == TVM_SUM)
        return is_result ? (wide ? "0d0000000000000000" : "0f00000000")
                         : (wide ? "0d8000000000000000" : "0f80000000");
    if (op->operation == TVM_REDUCE_PROD) return wide ? "0d3FF0000000000000" : "0f3F800000";
    if (!is_result) return wide ? "0d7FF8000000000000" : "0f7FFFFFFF";
    if (op->operation == TVM_REDUCE_MAX) return wide ? "0dFFF0000000000000" : "0fFF800000";
    return wide ? "0d7FF0000000000000" : "0f7F800000";
}

const char *tvm_reduce_neutral(const reduce_op *op, bool is_result, char text[24]) {
    unsigned bits = op->type.bits;
    bool is_signed = op->type.kind == TVM_KIND_INT, is_bool = op->type.kind == TVM_KIND_BOOL;
    uint64_t ones = UINT64_MAX >> (64 - bits);
    uint64_t value = 0;
    if (op->compute.kind == TVM_KIND_FLOAT) return float_neutral(op, is_result);
    switch (op->operation) {
    case TVM_REDUCE_PROD:
        value = 1;
        break;
    case TVM_REDUCE_AND:
    case TVM_REDUCE_ALL:
        value = is_bool ? 1 : ones;
        break;
    case TVM_REDUCE_MAX: /* sign-extended */
        value = is_signed ? ~(ones >> 1) : 0;
        break;
    case TVM_REDUCE_MIN:
        value = is_signed ? ones >> 1 : ones;
        break;
    default:
        break;
    }
    snprintf(text, 24, "0x%" PRIx64, op->compute.bits == 64 ? value : value & UINT32_MAX);
    return text;
}
