/* Conversions between codes of any two types, and between codes and doubles: exact arithmetic on integers.
 * Every code is first taken apart into sign * significand * 2^exponent, then rounded once into its target. */
#include <math.h>

#include "types.h"

typedef enum number_class { FINITE, INFINITE, NOT_A_NUMBER } number_class;

/* value = (negative ? -1 : 1) * significand * 2^exponent when FINITE */
typedef struct number {
    number_class class;
    bool negative;
    int exponent;
    uint64_t significand;
} number;

static uint64_t low_bits(unsigned count) {
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static int64_t sign_extend(uint64_t code, unsigned bits) {
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return (int64_t)((code ^ sign) - sign);
}

/* ---- fields of floats ---- */

/* Bits below the fields: only tf32, whose fields are the upper ones of an f32, has any. */
static unsigned float_padding(tvm_dtype type) {
    return type.bits - 1u - type.exponent - type.mantissa;
}

/* Largest finite magnitude, as the bits of exponent and mantissa. */
static uint64_t float_max(tvm_dtype type) {
    uint64_t all = low_bits(type.exponent + type.mantissa);
    if (tvm_float_has_infinity(type)) return all - low_bits(type.mantissa) - 1;
    return tvm_float_has_nan(type) ? all - 1 : all;
}

static number unpack_float(tvm_dtype type, uint64_t code) {
    uint64_t fields = code >> float_padding(type);
    uint64_t magnitude = fields & low_bits(type.exponent + type.mantissa);
    uint64_t mantissa = fields & low_bits(type.mantissa);
    int exponent = (int)(magnitude >> type.mantissa);
    number result = {.negative = fields >> (type.exponent + type.mantissa) & 1};
    if (magnitude > float_max(type)) {
        result.class = tvm_float_has_infinity(type) && mantissa == 0 ? INFINITE : NOT_A_NUMBER;
        return result;
    }
    result.significand = exponent == 0 ? mantissa : mantissa | UINT64_C(1) << type.mantissa;
    result.exponent = (exponent == 0 ? 1 : exponent) - tvm_float_bias(type) - type.mantissa;
    return result;
}

/* significand / 2^shift: to nearest, ties to even, or toward zero. */
static uint64_t shift_right(uint64_t significand, unsigned shift, bool nearest) {
    if (shift == 0) return significand;
    if (shift > 64) return 0;
    uint64_t quotient = shift == 64 ? 0 : significand >> shift;
    uint64_t rest = significand & low_bits(shift);
    uint64_t half = UINT64_C(1) << (shift - 1);
    bool up = rest > half || (rest == half && (quotient & 1));
    return quotient + (nearest && up);
}

/* Exponent and mantissa bits of a finite magnitude > 0, as if the exponent field had no upper end. The
 * rounded significand is *added* to the exponent, so that its leading one, and a carry out of it, count
 * there. */
static uint64_t round_magnitude(tvm_dtype type, uint64_t significand, int exponent) {
    int least = 1 - tvm_float_bias(type);
    int leading = 63 - __builtin_clzll(significand) + exponent;
    int binade = leading < least ? least : leading;
    int shift = binade - type.mantissa - exponent;
    uint64_t rounded = shift < 0 ? significand << -shift : shift_right(significand, (unsigned)shift, true);
    return ((uint64_t)(binade - least) << type.mantissa) + rounded;
}

static uint64_t pack_float(tvm_dtype type, number value) {
    unsigned width = type.exponent + type.mantissa;
    if (value.class == NOT_A_NUMBER) {
        bool has_nan = tvm_float_has_nan(type);
        return has_nan ? low_bits(type.bits - 1) : float_max(type);
    }
    uint64_t greatest = float_max(type);
    uint64_t magnitude = 0;
    if (value.class == INFINITE)
        magnitude = greatest + 1;
    else if (value.significand != 0)
        magnitude = round_magnitude(type, value.significand, value.exponent);
    if (magnitude > greatest) magnitude = greatest + !tvm_dtype_is_lowbit(type);
    return (magnitude | (uint64_t)value.negative << width) << float_padding(type);
}

/* ---- e8m0 ---- */

enum { E8M0_NAN = 255, E8M0_BIAS = 127 };

static number unpack_e8m0(uint64_t code) {
    if (code == E8M0_NAN) return (number){.class = NOT_A_NUMBER};
    return (number){.significand = 1, .exponent = (int)code - E8M0_BIAS};
}

/* The power of two below, or the next one from its middle on; what is outside of the range is its end. */
static uint64_t pack_e8m0(number value) {
    if (value.class == NOT_A_NUMBER) return E8M0_NAN;
    if (value.negative || (value.class == FINITE && value.significand == 0)) return 0;
    if (value.class == INFINITE) return E8M0_NAN - 1;
    int top = 63 - __builtin_clzll(value.significand);
    int code = top + value.exponent + E8M0_BIAS;
    if (top > 0 && (value.significand >> (top - 1) & 1)) code++;
    return code < 0 ? 0 : code >= E8M0_NAN ? E8M0_NAN - 1 : (uint64_t)code;
}

/* ---- integers ---- */

static number unpack_integer(tvm_dtype type, uint64_t code) {
    if (type.kind == TVM_KIND_UINT) return (number){.significand = code};
    int64_t value = sign_extend(code, type.bits);
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    return (number){.negative = value < 0, .significand = magnitude};
}

/* Magnitude of a number rounded to an integer; UINT64_MAX when it is too large for 64 bits. */
static uint64_t integer_magnitude(number value, bool nearest) {
    if (value.class == NOT_A_NUMBER || value.significand == 0)
        return value.class == INFINITE ? UINT64_MAX : 0;
    if (value.exponent < 0) return shift_right(value.significand, (unsigned)-value.exponent, nearest);
    if (value.exponent > __builtin_clzll(value.significand)) return UINT64_MAX;
    return value.significand << value.exponent;
}

static uint64_t pack_integer(tvm_dtype type, number value, bool nearest) {
    uint64_t magnitude = integer_magnitude(value, nearest);
    uint64_t limit;
    if (type.kind == TVM_KIND_UINT)
        limit = value.negative ? 0 : low_bits(type.bits);
    else
        limit = low_bits(type.bits - 1u) + value.negative;
    if (magnitude > limit) magnitude = limit;
    return (value.negative ? -magnitude : magnitude) & low_bits(type.bits);
}

/* ---- any type ---- */

static number unpack(tvm_dtype type, uint64_t code) {
    code &= low_bits(type.bits);
    switch (type.kind) {
    case TVM_KIND_FLOAT:
        return tvm_dtype_same(type, TVM_E8M0) ? unpack_e8m0(code) : unpack_float(type, code);
    case TVM_KIND_BOOL:
        return (number){.significand = code != 0};
    default:
        return unpack_integer(type, code);
    }
}

static uint64_t pack(tvm_dtype type, number value, bool nearest) {
    switch (type.kind) {
    case TVM_KIND_FLOAT:
        return tvm_dtype_same(type, TVM_E8M0) ? pack_e8m0(value) : pack_float(type, value);
    case TVM_KIND_BOOL:
        return value.class != FINITE || value.significand != 0;
    default:
        return pack_integer(type, value, nearest);
    }
}

double tvm_decode(tvm_dtype type, uint64_t code) {
    if (tvm_dtype_same(type, TVM_F64)) return tvm_f64_from_bits(code);
    if (tvm_dtype_same(type, TVM_F32)) return (double)tvm_f32_from_bits((uint32_t)code);
    number value = unpack(type, code);
    double magnitude;
    if (value.class == NOT_A_NUMBER)
        magnitude = NAN;
    else if (value.class == INFINITE)
        magnitude = INFINITY;
    else /* 2^exponent is a normal double for every type left: the least is bf16's 2^-133 */
        magnitude = (double)value.significand * tvm_f64_from_bits((uint64_t)(1023 + value.exponent) << 52);
    return value.negative ? -magnitude : magnitude;
}

uint64_t tvm_encode(tvm_dtype type, double value) {
    return pack(type, unpack(TVM_F64, tvm_f64_bits(value)), true);
}

uint64_t tvm_cast(tvm_dtype to, tvm_dtype from, uint64_t code, bool lowbit) {
    bool saturating = to.bits < 8 || (to.bits == 8 && lowbit);
    if (tvm_dtype_same(to, from) && tvm_dtype_is_lowbit(to)) return code & low_bits(to.bits);
    if (tvm_dtype_is_integer(to) && from.kind != TVM_KIND_FLOAT && !saturating) {
        code &= low_bits(from.bits);
        if (from.kind == TVM_KIND_BOOL) return code != 0;
        if (from.kind == TVM_KIND_INT) code = (uint64_t)sign_extend(code, from.bits);
        return code & low_bits(to.bits);
    }
    return pack(to, unpack(from, code), saturating);
}
