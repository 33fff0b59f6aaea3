/* Constants in conversions: see packed_constant.h. */
#include "packed_constant.h"

#include <math.h>

#include "analysis.h"
#include "convert.h"
#include "packing.h"

static bool constant_number(const kernel_state *k, uint32_t expr, double *value) {
    const tvm_expr *node = &k->kernel->exprs[expr];
    int64_t integer;
    if (node->op == TVM_EXPR_FLOAT)
        *value = node->value.f;
    else if (node->type.kind != TVM_KIND_FLOAT && tvm_fact_constant(k, expr, &integer))
        *value = (double)integer;
    else
        return false;
    return true;
}

bool tvm_packed_constant(const kernel_state *k, const tvm_insn *cast, const tvm_insn *next, double *zero,
                         double *scale) {
    double value;
    const tvm_operand *x = tvm_operands(k->kernel, next), *y = x + 1;
    bool multiplies = tvm_insn_has(next, TVM_TRAIT_FACTOR), commutes = tvm_insn_has(next, TVM_TRAIT_COMMUTES);
    if (!multiplies && !tvm_insn_has(next, TVM_TRAIT_OFFSET)) return false;
    if (commutes && x->kind == TVM_OPERAND_EXPR) {
        y = x;
        x = x + 1;
    }
    if (x->kind != TVM_OPERAND_SLOT || x->value != cast->result || y->kind != TVM_OPERAND_EXPR) return false;
    if (!constant_number(k, y->value, &value)) return false;
    *scale = multiplies ? value : 1;
    *zero = multiplies ? 0 : commutes ? -value : value;
    return true;
}

bool tvm_float_pair_needs_mending(tvm_dtype from, tvm_dtype to) {
    return tvm_float_has_nan(from) || (tvm_dtype_same(from, TVM_FLOAT(7, 5, 1)) && to.exponent == 5);
}

bool tvm_packed_zero_is_exact(tvm_dtype from, tvm_dtype to, double zero) {
    bool half = to.kind == TVM_KIND_FLOAT && to.bits == 16;
    if (!tvm_dtype_is_integer(from) || !half || from.bits > 8 || zero != trunc(zero)) return false;
    if (from.bits > to.mantissa) return zero == 0 || (zero == 128 && from.kind == TVM_KIND_UINT);
    /* Twice the power of two that is spliced on, at most, and half of it: integers that the type has. */
    return fabs(zero) <= ldexp(1, to.mantissa - 1);
}

bool tvm_packed_converts(const kernel_state *k, tvm_dtype from, tvm_dtype to) {
    return tvm_target_has(k->target, TVM_HAS_CVT_F8) && to.exponent == 5 &&
           tvm_pair_form_of(from) == TVM_FORM_BYTES;
}

/* Is `to` the type whose places the fields of a view of form HALVES are made for? */
bool tvm_packed_in_place(tvm_dtype from, tvm_dtype to) {
    return tvm_pair_form_of(from) == TVM_FORM_HALVES && tvm_dtype_same(to, tvm_pair_target(from));
}

/* log2 of what multiplies the bits put in place. */
static int power_of(const kernel_state *k, tvm_dtype from, tvm_dtype to) {
    if (tvm_packed_converts(k, from, to) || tvm_packed_in_place(from, to)) return tvm_pair_exponent(from);
    return tvm_float_bias(to) - tvm_float_bias(from);
}

packed_factors tvm_packed_factors(const kernel_state *k, tvm_dtype from, tvm_dtype to, double scale) {
    packed_factors f = {1, ldexp(tvm_decode(to, tvm_encode(to, scale)), power_of(k, from, to))};
    if (tvm_decode(to, tvm_encode(to, f.last)) == f.last) return f;
    f.first = ldexp(1, tvm_float_bias(to));
    f.last /= f.first;
    bool reached = power_of(k, from, to) > tvm_float_bias(to);
    return reached && tvm_decode(to, tvm_encode(to, f.last)) == f.last ? f : (packed_factors){0, 0};
}

/* May the scale be multiplied into the conversion's own factor? Yes where type `to` holds the product of
 * both: the bits in place times it are then rounded once, as the value times the scale is. Types with NaN,
 * and types whose values overflow f16 before the multiplication, are refused. */
bool tvm_packed_scale_is_exact(const kernel_state *k, tvm_dtype from, tvm_dtype to, double scale) {
    if (from.kind != TVM_KIND_FLOAT || from.bits < 4 || !tvm_is_half(to) || from.exponent > to.exponent)
        return false;
    if (tvm_float_pair_needs_mending(from, to)) return false;
    packed_factors f = tvm_packed_factors(k, from, to, scale);
    return f.first != 0 && isfinite(f.last);
}
