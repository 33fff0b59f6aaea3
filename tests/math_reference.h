/* The functions of the element-wise instructions in long double, whose mantissa has 64 bits, and how far a
 * GPU's results may lie from them: what vasm(5) says. */
#ifndef TVM_TESTS_MATH_REFERENCE_H
#define TVM_TESTS_MATH_REFERENCE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "convert.h"
#include "types.h"

_Static_assert(LDBL_MANT_DIG >= 64, "the reference needs a long double of 64 bits");

static inline long double reference_rsqrt(long double x) {
    return 1 / sqrtl(x);
}
static inline long double reference_div(long double x, long double y) {
    return x / y;
}

typedef struct math_row {
    const char *name;
    bool fast;
    long double (*unary)(long double);
    long double (*binary)(long double, long double);
    double units[4];  /* of the last place: of f16, bf16, f32 and f64 */
    double absolute;  /* or so much, where that is more */
    double low, high; /* where f32 is sampled densely */
    double beyond;    /* larger arguments are not spoken of; 0: all are */
} math_row;

static const math_row math_rows[] = {
    {"sqrt", false, sqrtl, NULL, {0.5, 0.5, 0.5, 0.5}, 0, 0, 16, 0},
    {"rsqrt", false, reference_rsqrt, NULL, {0.51, 0.51, 2, 1.5}, 0, 0, 16, 0},
    {"exp", false, expl, NULL, {0.51, 0.51, 2.5, 1}, 0, -106, 90, 0},
    {"exp2", false, exp2l, NULL, {0.51, 0.51, 2.5, 1}, 0, -150, 129, 0},
    {"log", false, logl, NULL, {0.51, 0.51, 1.5, 1}, 0, 0, 4, 0},
    {"log2", false, log2l, NULL, {0.51, 0.51, 1.5, 1}, 0, 0, 4, 0},
    {"sin", false, sinl, NULL, {0.51, 0.51, 2, 1}, 0, -200000, 200000, 0},
    {"cos", false, cosl, NULL, {0.51, 0.51, 2, 1}, 0, -200000, 200000, 0},
    {"tan", false, tanl, NULL, {0.51, 0.51, 4, 2.5}, 0, -200000, 200000, 0},
    {"sinh", false, sinhl, NULL, {0.51, 0.51, 3, 2}, 0, -90, 90, 0},
    {"cosh", false, coshl, NULL, {0.51, 0.51, 3, 1.5}, 0, -90, 90, 0},
    {"tanh", false, tanhl, NULL, {0.51, 0.51, 2, 2}, 0, -10, 10, 0},
    {"erf", false, erfl, NULL, {0.51, 0.51, 1.5, 1.5}, 0, -5, 5, 0},
    {"atan2", false, NULL, atan2l, {0.51, 0.51, 2.5, 2}, 0, -2, 2, 0},
    {"mod", false, NULL, fmodl, {0, 0, 0, 0}, 0, -100, 100, 0},
    {"pow", false, NULL, powl, {0.52, 0.52, 3.5, 1.5}, 0, 0, 20, 0},
    {"floor", false, floorl, NULL, {0, 0, 0, 0}, 0, -100, 100, 0},
    {"ceil", false, ceill, NULL, {0, 0, 0, 0}, 0, -100, 100, 0},
    {"round", false, rintl, NULL, {0, 0, 0, 0}, 0, -100, 100, 0},
    {"trunc", false, truncl, NULL, {0, 0, 0, 0}, 0, -100, 100, 0},
    {"sqrt", true, sqrtl, NULL, {0.51, 0.51, 1.5}, 0, 0, 16, 0},
    {"rsqrt", true, reference_rsqrt, NULL, {0.51, 0.51, 2}, 0, 0, 16, 0},
    {"exp", true, expl, NULL, {0.51, 0.51, 100}, 0, -86, 88, 0},
    {"exp2", true, exp2l, NULL, {1.5, 1.5, 2.5}, 0, -126, 128, 0},
    {"log", true, logl, NULL, {0.52, 0.52, 3}, 0x1p-21, 0, 4, 0},
    {"log2", true, log2l, NULL, {0.52, 0.52, 3}, 0x1p-21, 0, 4, 0},
    {"sin", true, sinl, NULL, {0.6, 0.6, 2}, 0x1p-20, -3.14159, 3.14159, 3.1416},
    {"cos", true, cosl, NULL, {0.6, 0.6, 2}, 0x1p-20, -3.14159, 3.14159, 3.1416},
    {"tanh", true, tanhl, NULL, {1.5, 1.5, 8192}, 0, -10, 10, 0},
    {"div", true, NULL, reference_div, {0.51, 0.51, 2}, 0, -100, 100, 0},
};
enum { MATH_ROWS = sizeof math_rows / sizeof *math_rows };

/* The types; of f64 fast forms are those without the word. */
enum { MATH_TYPES = 4, MATH_F64 = 3 };
static const tvm_dtype math_types[MATH_TYPES] = {{TVM_KIND_FLOAT, 16, 5, 10},
                                                 {TVM_KIND_FLOAT, 16, 8, 7},
                                                 {TVM_KIND_FLOAT, 32, 8, 23},
                                                 {TVM_KIND_FLOAT, 64, 11, 52}};
static inline bool math_has(const math_row *row, unsigned type) {
    return type != MATH_F64 || !row->fast;
}

/* Digits of a float type, its subnormals' unit, and beyond which power of two it ends. */
static inline int math_digits(tvm_dtype type) {
    return (int)type.mantissa + 1;
}
static inline int math_least(tvm_dtype type) {
    return 2 - (1 << (type.exponent - 1)) - (int)type.mantissa;
}
static inline int math_end(tvm_dtype type) {
    return 1 << (type.exponent - 1);
}

static inline long double math_value(const math_row *row, long double x, long double y) {
    return row->unary ? row->unary(x) : row->binary(x, y);
}

/* How many units in the last place of the type `found` is from the exact result; infinite when one of them
 * alone is NaN. An infinity counts as the power of two that the type has no more. */
static inline double math_units(tvm_dtype type, long double exact, double found) {
    if (isnan(exact) || isnan(found)) return isnan(exact) && isnan(found) ? 0 : INFINITY;
    bool same_sign = !signbit(exact) == !signbit(found);
    if (isinf(exact)) return isinf(found) && same_sign ? 0 : INFINITY;
    int exponent = exact == 0 ? -16000 : ilogbl(exact), unit = exponent + 1 - math_digits(type);
    if (isinf(found)) {
        if (fabsl(exact) >= ldexpl(1, math_end(type)) && same_sign) return 0;
        found = copysign(ldexp(1, math_end(type)), found);
    }
    if (exponent >= math_end(type)) unit = math_end(type) - math_digits(type);
    if (unit < math_least(type)) unit = math_least(type);
    return (double)(fabsl(exact - (long double)found) / ldexpl(1, unit));
}

/* Is the result for these arguments spoken of? A fast form may take subnormal f32 as zero. */
static inline bool math_counts(const math_row *row, double x, double y) {
    if (row->beyond > 0 && !(fabs(x) <= row->beyond)) return false;
    if (!row->fast) return true;
    bool divisor = row->binary == NULL || (fabs(y) >= 0x1p-126 && fabs(y) <= 0x1p126);
    return (x == 0 || fabs(x) >= 0x1p-126) && divisor;
}

/* Units that `found` is off beyond what is right without any: zero where a fast form's result is subnormal,
 * or an error within the row's absolute bound. */
static inline double math_error(const math_row *row, tvm_dtype type, double x, double y, double found) {
    long double exact = math_value(row, (long double)x, (long double)y);
    if (row->fast && fabsl(exact) < 0x1.01p-126L && found == 0) return 0;
    if (row->absolute > 0 && fabsl(exact - (long double)found) <= (long double)row->absolute) return 0;
    return math_units(type, exact, found);
}

/* The exact result rounded to nearest even. */
static inline uint64_t math_rounded(tvm_dtype type, long double exact) {
    if (isnan(exact) || isinf(exact) || exact == 0) return tvm_encode(type, (double)exact);
    int unit = ilogbl(exact) + 1 - math_digits(type);
    if (unit < math_least(type)) unit = math_least(type);
    return tvm_encode(type, (double)ldexpl(rintl(ldexpl(exact, -unit)), unit)); /* few digits: exact */
}

#endif
