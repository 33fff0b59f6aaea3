/* References of conversions between codes and numbers: a code's value from the formulas of the OCP documents
 * with ldexp; the nearest code by a search in the table of all values; f32 and f64 from the compiler's own
 * conversions; integers from the C library's rounding functions. */
#ifndef TVM_TESTS_CONVERT_REFERENCE_H
#define TVM_TESTS_CONVERT_REFERENCE_H

#include "check_kit.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random_kit.h"
#include "suite_kit.h"
#include "types.h"

static inline double reference_value(tvm_dtype type, uint64_t code) {
    unsigned below_sign = type.exponent + type.mantissa;
    if (type.bits == 32) code >>= 31u - below_sign; /* tf32 */
    double sign = code >> below_sign ? -1.0 : 1.0;
    unsigned e = (unsigned)(code >> type.mantissa) % (1u << type.exponent);
    double m = (double)(code % (UINT64_C(1) << type.mantissa));
    double denominator = ldexp(1, type.mantissa);
    double bias = ldexp(1, type.exponent - 1) - 1;
    if (tvm_dtype_same(type, TVM_E8M0)) return code == 255 ? NAN : ldexp(1, (int)code - 127);
    bool ieee = type.bits >= 16 || tvm_dtype_same(type, TVM_FLOAT(8, 5, 2));
    bool last = e == (1u << type.exponent) - 1;
    if (ieee && last) return m == 0 ? sign * INFINITY : NAN;
    if (tvm_dtype_same(type, TVM_FLOAT(8, 4, 3)) && last && m == 7) return NAN;
    if (e == 0) return sign * ldexp(m / denominator, 1 - (int)bias);
    return sign * ldexp(1 + m / denominator, (int)e - (int)bias);
}

/* The finite values of a float type of at most 16 bits, from zero up: values[code]. */
typedef struct table {
    tvm_dtype type;
    unsigned count;
    double values[32768];
} table;

static inline void build_table(table *of, tvm_dtype type) {
    of->type = type;
    of->count = 0;
    for (unsigned code = 0; code < 1u << (type.bits - 1); code++) {
        double value = reference_value(type, code);
        if (!isfinite(value)) break;
        of->values[of->count++] = value;
    }
}

static inline bool has_nan(tvm_dtype type) {
    return type.bits >= 16 || tvm_dtype_same(type, TVM_FLOAT(8, 5, 2)) ||
           tvm_dtype_same(type, TVM_FLOAT(8, 4, 3));
}

/* Of two neighbours equally near, the even one. Where a type has no mantissa bits to be even, IEEE 754-2019,
 * 4.3.1 takes the one of larger magnitude; zero is even. */
static inline unsigned tie(const table *of, unsigned lower) {
    if (of->type.mantissa == 0) return lower == 0 ? 0 : lower + 1;
    return lower % 2 == 0 ? lower : lower + 1;
}

static inline uint64_t search_code(const table *of, double value) {
    uint64_t sign = signbit(value) ? UINT64_C(1) << (of->type.bits - 1) : 0;
    unsigned top = of->count - 1;
    if (isnan(value)) return has_nan(of->type) ? (UINT64_C(1) << (of->type.bits - 1)) - 1 : top;
    double magnitude = fabs(value);
    if (magnitude >= of->values[top]) {
        double half = (of->values[top] - of->values[top - 1]) / 2;
        bool over = of->type.bits == 16 && magnitude >= of->values[top] + half;
        return sign | (over ? top + 1 : top);
    }
    unsigned lower = 0, upper = top; /* values[lower] <= magnitude < values[upper] */
    while (upper - lower > 1) {
        unsigned middle = (lower + upper) / 2;
        if (of->values[middle] <= magnitude)
            lower = middle;
        else
            upper = middle;
    }
    double half_way = (of->values[lower] + of->values[upper]) / 2;
    if (magnitude == half_way) return sign | tie(of, lower);
    return sign | (magnitude < half_way ? lower : upper);
}

static inline uint64_t f64_code(double value) {
    uint64_t code;
    memcpy(&code, &value, sizeof code);
    return isnan(value) ? INT64_MAX : code;
}

static inline uint64_t f32_code(float value) {
    uint32_t code;
    memcpy(&code, &value, sizeof code);
    return isnan(value) ? INT32_MAX : code;
}

static inline float f32_value(uint32_t code) {
    float value;
    memcpy(&value, &code, sizeof value);
    return value;
}

/* Rounds to 11 significant bits, fewer below 2^-126, and then to float, which is exact. */
static inline uint64_t tf32_code(double value) {
    if (isnan(value)) return INT32_MAX;
    if (value == 0 || isinf(value)) return f32_code((float)value);
    int exponent = ilogb(value) < -126 ? -126 : ilogb(value);
    return f32_code((float)ldexp(rint(ldexp(value, 10 - exponent)), exponent - 10));
}

static inline uint64_t integer_code(tvm_dtype type, double value, bool nearest) {
    bool is_signed = type.kind == TVM_KIND_INT;
    double least = is_signed ? -ldexp(1, type.bits - 1) : 0;
    double beyond = ldexp(1, type.bits - is_signed);
    uint64_t mask = type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << type.bits) - 1;
    if (isnan(value)) return 0;
    double whole = nearest ? rint(value) : trunc(value);
    if (whole <= least) return is_signed ? UINT64_C(1) << (type.bits - 1) : 0;
    if (whole >= beyond) return is_signed ? mask >> 1 : mask;
    return (whole < 0 ? (uint64_t)(int64_t)whole : (uint64_t)whole) & mask;
}

/* The nearest of all powers, the larger one of two. */
static inline uint64_t e8m0_code(double value) {
    uint64_t best = 0;
    if (isnan(value)) return 255;
    if (value <= 0) return 0; /* the least */
    if (isinf(value)) return 254;
    for (uint64_t code = 1; code < 255; code++)
        if (fabs(ldexp(1, (int)code - 127) - value) <= fabs(ldexp(1, (int)best - 127) - value)) best = code;
    return best;
}

static inline uint64_t reference_code(const table *of, tvm_dtype type, double value, bool nearest) {
    if (type.kind == TVM_KIND_BOOL) return value != 0;
    if (type.kind != TVM_KIND_FLOAT) return integer_code(type, value, nearest);
    if (tvm_dtype_same(type, TVM_F64)) return f64_code(value);
    if (tvm_dtype_same(type, TVM_F32)) return f32_code((float)value);
    if (tvm_dtype_same(type, TVM_TF32)) return tf32_code(value);
    if (tvm_dtype_same(type, TVM_E8M0)) return e8m0_code(value);
    return search_code(of, value);
}

static inline bool same_number(double a, double b) {
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static inline bool has_table(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits <= 16 && !tvm_dtype_same(type, TVM_E8M0);
}

static inline size_t all_types(tvm_dtype types[TVM_DTYPE_COUNT_MAX]) {
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    ck_assert_uint_eq(count, 55);
    return count;
}

static table shared_table;

#endif
