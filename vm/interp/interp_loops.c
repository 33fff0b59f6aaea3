#include "interp_loops.h"

#include <math.h>
#include <string.h>

#include "functions.h"
#include "interp_vector.h"

/* Vector code at any level of -O, and every operation rounded by itself. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

/* Elements of f16 and bf16 that are converted to f32 at a time. */
enum { CHUNK = 256 };

/* ---- the operations on one element ---- */

/* Integers wrap: computed without sign, in 64 bits so that nothing is promoted to int. */
#define INT_ADD(T, a, b) (T)((uint64_t)(a) + (uint64_t)(b))
#define INT_SUB(T, a, b) (T)((uint64_t)(a) - (uint64_t)(b))
#define INT_MUL(T, a, b) (T)((uint64_t)(a) * (uint64_t)(b))
#define INT_MIN(T, a, b) ((b) < (a) ? (b) : (a))
#define INT_MAX(T, a, b) ((a) < (b) ? (b) : (a))
/* Dividing by zero gives all ones and leaves the dividend as remainder: an element outside of a tensor is
 * zero, so that this must not stop a program. The least integer divided by -1 wraps. */
#define UINT_DIV(T, a, b) ((b) == 0 ? (T)-1 : (T)((a) / (b)))
#define UINT_MOD(T, a, b) ((b) == 0 ? (a) : (T)((a) % (b)))
#define SINT_DIV(T, a, b) ((b) == 0 ? (T)-1 : (b) == -1 ? INT_SUB(T, 0, a) : (T)((a) / (b)))
#define SINT_MOD(T, a, b) ((b) == 0 ? (a) : (b) == -1 ? (T)0 : (T)((a) % (b)))
#define INT_NEG(T, a)     INT_SUB(T, 0, a)

/* The upper half of a product. */
static inline uint64_t upper_unsigned(uint64_t a, uint64_t b) {
    uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX), cross = (a >> 32) * (b & UINT32_MAX) + (low >> 32);
    uint64_t other = (a & UINT32_MAX) * (b >> 32) + (cross & UINT32_MAX);
    return (a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32);
}
static inline uint64_t upper_signed(int64_t a, int64_t b) {
    return upper_unsigned((uint64_t)a, (uint64_t)b) - (a < 0 ? (uint64_t)b : 0) - (b < 0 ? (uint64_t)a : 0);
}
#define UINT_MULHI(T, a, b)                                                                                  \
    (T)(sizeof(T) == 8 ? upper_unsigned(a, b) : (uint64_t)(a) * (uint64_t)(b) >> (INT_WIDTH(T) & 63))
#define SINT_MULHI(T, a, b)                                                                                  \
    (T)(sizeof(T) == 8 ? upper_signed(a, b) : (uint64_t)((int64_t)(a) * (int64_t)(b)) >> (INT_WIDTH(T) & 63))

#define INT_ABS(T, a) ((a) < 1 ? INT_SUB(T, 0, a) : (a))

/* Counts of shifts are modulo the width. */
#define INT_WIDTH(T)       (8 * sizeof(T))
#define INT_COUNT(T, b)    ((unsigned)(b) & (INT_WIDTH(T) - 1))
#define INT_AND(T, a, b)   (T)((a) & (b))
#define INT_OR(T, a, b)    (T)((a) | (b))
#define INT_XOR(T, a, b)   (T)((a) ^ (b))
#define INT_NOT(T, a)      (T)(~(a))
#define INT_SHL(T, a, b)   (T)((uint64_t)(a) << INT_COUNT(T, b))
#define INT_SHR(T, a, b)   (T)((a) >> INT_COUNT(T, b))
#define INT_POPCOUNT(T, a) (T) __builtin_popcountll((uint64_t)(a)&UINT64_MAX >> (64 - INT_WIDTH(T)))
#define BOOL_NOT(T, a)     ((a) ^ 1)

#define FLOAT_ADD(T, a, b) ((a) + (b))
#define FLOAT_SUB(T, a, b) ((a) - (b))
#define FLOAT_MUL(T, a, b) ((a) * (b))
#define FLOAT_DIV(T, a, b) ((a) / (b))
#define FLOAT_NEG(T, a)    (-(a))
#define FLOAT_ABS(T, a)    (T) fabs(a)
#define FLOAT_MIN(T, a, b) min_##T(a, b)
#define FLOAT_MAX(T, a, b) max_##T(a, b)

#define FLOAT_ORDER(T, is_nan)                                                                               \
    static inline T min_##T(T a, T b) {                                                                      \
        return is_nan(b) || a < b || (a == b && signbit(a)) ? (is_nan(a) ? b : a) : b;                       \
    }                                                                                                        \
    static inline T max_##T(T a, T b) {                                                                      \
        return is_nan(b) || a > b || (a == b && signbit(b)) ? (is_nan(a) ? b : a) : b;                       \
    }
FLOAT_ORDER(float, isnan)
FLOAT_ORDER(double, isnan)

float tvm_interp_max_f32(float a, float b) {
    return max_float(a, b);
}
double tvm_interp_max_f64(double a, double b) {
    return max_double(a, b);
}

/* x in [low, high]; where the bounds cross it is high. */
#define INT_CLIP(T, a, low, high)   INT_MIN(T, INT_MAX(T, a, low), high)
#define FLOAT_CLIP(T, a, low, high) FLOAT_MIN(T, FLOAT_MAX(T, a, low), high)

/* ---- loops over containers ---- */

/* With both steps known to the compiler the loops become vector code. */
#define BINARY_LOOP(name, R, T, operation)                                                                   \
    static void name(size_t count, void *result, const void *const operands[3], const size_t steps[3]) {     \
        const T *x = operands[0], *y = operands[1];                                                          \
        R *to = result;                                                                                      \
        if (steps[0] && steps[1]) {                                                                          \
            for (size_t i = 0; i < count; i++) to[i] = operation(T, x[i], y[i]);                             \
        } else if (steps[0]) {                                                                               \
            T b = *y;                                                                                        \
            for (size_t i = 0; i < count; i++) to[i] = operation(T, x[i], b);                                \
        } else {                                                                                             \
            T a = *x;                                                                                        \
            for (size_t i = 0; i < count; i++) to[i] = operation(T, a, y[i * steps[1]]);                     \
        }                                                                                                    \
    }

#define UNARY_LOOP(name, T, operation)                                                                       \
    static void name(size_t count, void *result, const void *const operands[3], const size_t steps[3]) {     \
        const T *x = operands[0];                                                                            \
        T *to = result;                                                                                      \
        for (size_t i = 0; i < count; i++) to[i] = operation(T, x[i * steps[0]]);                            \
    }

#define TERNARY_LOOP(name, T, operation)                                                                     \
    static void name(size_t count, void *result, const void *const operands[3], const size_t steps[3]) {     \
        const T *x = operands[0], *y = operands[1], *z = operands[2];                                        \
        T *to = result;                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = operation(T, x[i * steps[0]], y[i * steps[1]], z[i * steps[2]]);                         \
    }

#define COMPARE_EQ(T, a, b) ((a) == (b))
#define COMPARE_NE(T, a, b) ((a) != (b))
#define COMPARE_LT(T, a, b) ((a) < (b))
#define COMPARE_LE(T, a, b) ((a) <= (b))

#define COMMON_LOOPS(suffix, T, CLASS)                                                                       \
    BINARY_LOOP(add_##suffix, T, T, CLASS##_ADD)                                                             \
    BINARY_LOOP(sub_##suffix, T, T, CLASS##_SUB)                                                             \
    BINARY_LOOP(mul_##suffix, T, T, CLASS##_MUL)                                                             \
    BINARY_LOOP(min_##suffix, T, T, CLASS##_MIN)                                                             \
    BINARY_LOOP(max_##suffix, T, T, CLASS##_MAX)                                                             \
    UNARY_LOOP(neg_##suffix, T, CLASS##_NEG)                                                                 \
    UNARY_LOOP(abs_##suffix, T, CLASS##_ABS)                                                                 \
    TERNARY_LOOP(clip_##suffix, T, CLASS##_CLIP)                                                             \
    BINARY_LOOP(eq_##suffix, uint8_t, T, COMPARE_EQ)                                                         \
    BINARY_LOOP(ne_##suffix, uint8_t, T, COMPARE_NE)                                                         \
    BINARY_LOOP(lt_##suffix, uint8_t, T, COMPARE_LT)                                                         \
    BINARY_LOOP(le_##suffix, uint8_t, T, COMPARE_LE)

#define INT_FMA(T, a, b, c) INT_ADD(T, INT_MUL(T, a, b), c)

#define INTEGER_LOOPS(suffix, T, CLASS)                                                                      \
    COMMON_LOOPS(suffix, T, INT)                                                                             \
    BINARY_LOOP(div_##suffix, T, T, CLASS##_DIV)                                                             \
    BINARY_LOOP(mod_##suffix, T, T, CLASS##_MOD)                                                             \
    BINARY_LOOP(mulhi_##suffix, T, T, CLASS##_MULHI)                                                         \
    TERNARY_LOOP(fma_##suffix, T, INT_FMA)                                                                   \
    BINARY_LOOP(and_##suffix, T, T, INT_AND)                                                                 \
    BINARY_LOOP(or_##suffix, T, T, INT_OR)                                                                   \
    BINARY_LOOP(xor_##suffix, T, T, INT_XOR)                                                                 \
    UNARY_LOOP(not_##suffix, T, INT_NOT)                                                                     \
    BINARY_LOOP(shl_##suffix, T, T, INT_SHL)                                                                 \
    BINARY_LOOP(shr_##suffix, T, T, INT_SHR)                                                                 \
    UNARY_LOOP(popcount_##suffix, T, INT_POPCOUNT)

INTEGER_LOOPS(i8, int8_t, SINT)
INTEGER_LOOPS(i16, int16_t, SINT)
INTEGER_LOOPS(i32, int32_t, SINT)
INTEGER_LOOPS(i64, int64_t, SINT)
INTEGER_LOOPS(u8, uint8_t, UINT)
INTEGER_LOOPS(u16, uint16_t, UINT)
INTEGER_LOOPS(u32, uint32_t, UINT)
INTEGER_LOOPS(u64, uint64_t, UINT)
COMMON_LOOPS(f32, float, FLOAT)
COMMON_LOOPS(f64, double, FLOAT)
BINARY_LOOP(div_f32, float, float, FLOAT_DIV)
BINARY_LOOP(div_f64, double, double, FLOAT_DIV)

UNARY_LOOP(not_bool, uint8_t, BOOL_NOT)

static void fma_f32(size_t count, void *result, const void *const operands[3], const size_t steps[3]) {
    const float *const floats[3] = {operands[0], operands[1], operands[2]};
    tvm_interp_fma_f32(result, floats, steps, count);
}

static void fma_f64(size_t count, void *result, const void *const operands[3], const size_t steps[3]) {
    const double *x = operands[0], *y = operands[1], *z = operands[2];
    double *to = result;
    for (size_t i = 0; i < count; i++) to[i] = fma(x[i * steps[0]], y[i * steps[1]], z[i * steps[2]]);
}

/* ---- functions of floats ----
 * Those of f16, bf16 and f32 are computed in double and rounded once more. Of sqrt and the roundings to whole
 * numbers that is rounding once. The others' double is within a unit in its last place of the exact value, so
 * that the result is the correctly rounded one, unless the exact value lies within 2^-52 of it beside the
 * middle between two numbers of the type: no code of f16 or bf16 is so unlucky (tests/test_math.c tries them
 * all), of f32 about one in 2^28. */

static inline double from_f16(uint16_t code) {
    return (double)tvm_f16_to_f32(code);
}
static inline double from_bf16(uint16_t code) {
    return (double)tvm_bf16_to_f32(code);
}
static inline double from_f32(float value) {
    return (double)value;
}
static inline double from_f64(double value) {
    return value;
}
static inline float to_f32(double value) {
    return (float)value;
}
static inline double to_f64(long double value) {
    return (double)value;
}

#define FUNCTION_LOOP(name, function, T, suffix, round)                                                      \
    static void name##_##suffix(size_t count, void *result, const void *const operands[3],                   \
                                const size_t steps[3]) {                                                     \
        const T *x = operands[0];                                                                            \
        T *to = result;                                                                                      \
        for (size_t i = 0; i < count; i++) to[i] = round(function(from_##suffix(x[i * steps[0]])));          \
    }
#define FUNCTION_LOOPS(name, function)                                                                       \
    FUNCTION_LOOP(name, function, uint16_t, f16, tvm_f64_to_f16)                                             \
    FUNCTION_LOOP(name, function, uint16_t, bf16, tvm_f64_to_bf16)                                           \
    FUNCTION_LOOP(name, function, float, f32, to_f32)
/* Of x and y. */
#define FUNCTION2_LOOP(name, function, T, suffix, round)                                                     \
    static void name##_##suffix(size_t count, void *result, const void *const operands[3],                   \
                                const size_t steps[3]) {                                                     \
        const T *x = operands[0], *y = operands[1];                                                          \
        T *to = result;                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = round(function(from_##suffix(x[i * steps[0]]), from_##suffix(y[i * steps[1]])));         \
    }
#define FUNCTION2_LOOPS(name, function)                                                                      \
    FUNCTION2_LOOP(name, function, uint16_t, f16, tvm_f64_to_f16)                                            \
    FUNCTION2_LOOP(name, function, uint16_t, bf16, tvm_f64_to_bf16)                                          \
    FUNCTION2_LOOP(name, function, float, f32, to_f32)

/* Of f64 in long double, which has 64 digits or more: rounded to 0.51 units or better. */
#define TVM_FUNCTION(id, name, function, wide)                                                               \
    FUNCTION_LOOPS(name, function)                                                                           \
    FUNCTION_LOOP(name, wide, double, f64, to_f64)
#define TVM_FUNCTION_2(id, name, function, wide)                                                             \
    FUNCTION2_LOOPS(name, function)                                                                          \
    FUNCTION2_LOOP(name, wide, double, f64, to_f64)
#include "functions.def"

/* ---- f16 and bf16 ----
 * Sums, products and quotients of numbers of p digits that are rounded to q >= 2p + 2 digits and then to p
 * are those rounded once (Figueroa, "When is double rounding innocuous?", SIGNUM 1995); f32 has 24, f16 11,
 * bf16 8. The exponents of bf16 are those of f32, but of its subnormals f32 has 16 digits more. */

typedef void (*to_floats)(float *to, const uint16_t *from, size_t count);
typedef void (*from_floats)(uint16_t *to, const float *from, size_t count);

/* Converts the next chunk of an operand; one element when its step is 0. */
static void read_chunk(to_floats convert, float *to, const void *operand, size_t step, size_t at,
                       size_t count) {
    const uint16_t *codes = operand;
    convert(to, codes + at * step, step ? count : 1);
}

static void half_loop(interp_loop_function loop, unsigned arity, to_floats widen, from_floats narrow,
                      size_t count, uint16_t *result, const void *const operands[3], const size_t steps[3]) {
    float chunks[3][CHUNK], sums[CHUNK];
    const void *const sources[3] = {chunks[0], chunks[1], chunks[2]};
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t part = count - at < CHUNK ? count - at : CHUNK;
        for (unsigned o = 0; o < arity; o++) read_chunk(widen, chunks[o], operands[o], steps[o], at, part);
        loop(part, sums, sources, steps);
        narrow(result + at, sums, part);
    }
}

static void half_compare(interp_loop_function loop, to_floats widen, size_t count, uint8_t *result,
                         const void *const operands[3], const size_t steps[3]) {
    float chunks[2][CHUNK];
    const void *const sources[3] = {chunks[0], chunks[1], NULL};
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t part = count - at < CHUNK ? count - at : CHUNK;
        for (unsigned o = 0; o < 2; o++) read_chunk(widen, chunks[o], operands[o], steps[o], at, part);
        loop(part, result + at, sources, steps);
    }
}

/* x * y + z rounded to odd: the double next to the exact value, towards zero, with its last bit set when
 * there is anything left. Rounding that to p + 2 or fewer digits is rounding the exact value (Boldo and
 * Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
 * The product of two f16 or bf16 is exact in double. */
static double fma_odd(float x, float y, float z) {
    double product = (double)x * (double)y, addend = z;
    double sum = product + addend;
    double other = sum - product; /* the two-sum of Knuth: sum + error is exact */
    double error = (product - (sum - other)) + (addend - other);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (!isfinite(sum) || error == 0 || (bits & 1)) return sum;
    bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

static void half_fma(to_floats widen, uint16_t (*narrow)(double), size_t count, uint16_t *result,
                     const void *const operands[3], const size_t steps[3]) {
    float chunks[3][CHUNK];
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t part = count - at < CHUNK ? count - at : CHUNK;
        for (unsigned o = 0; o < 3; o++) read_chunk(widen, chunks[o], operands[o], steps[o], at, part);
        for (size_t i = 0; i < part; i++)
            result[at + i] =
                narrow(fma_odd(chunks[0][i * steps[0]], chunks[1][i * steps[1]], chunks[2][i * steps[2]]));
    }
}

#define HALF_LOOP(operation, type, arity)                                                                    \
    static void operation##_##type(size_t count, void *result, const void *const operands[3],                \
                                   const size_t steps[3]) {                                                  \
        half_loop(operation##_f32, arity, tvm_interp_##type##_to_f32, tvm_interp_f32_to_##type, count,       \
                  result, operands, steps);                                                                  \
    }
#define HALF_COMPARE(operation, type)                                                                        \
    static void operation##_##type(size_t count, void *result, const void *const operands[3],                \
                                   const size_t steps[3]) {                                                  \
        half_compare(operation##_f32, tvm_interp_##type##_to_f32, count, result, operands, steps);           \
    }
#define HALF_LOOPS(type)                                                                                     \
    HALF_LOOP(add, type, 2)                                                                                  \
    HALF_LOOP(sub, type, 2)                                                                                  \
    HALF_LOOP(mul, type, 2)                                                                                  \
    HALF_LOOP(div, type, 2)                                                                                  \
    HALF_LOOP(min, type, 2)                                                                                  \
    HALF_LOOP(max, type, 2)                                                                                  \
    HALF_LOOP(neg, type, 1)                                                                                  \
    HALF_LOOP(abs, type, 1)                                                                                  \
    HALF_LOOP(clip, type, 3)                                                                                 \
    HALF_COMPARE(eq, type)                                                                                   \
    HALF_COMPARE(ne, type)                                                                                   \
    HALF_COMPARE(lt, type)                                                                                   \
    HALF_COMPARE(le, type)                                                                                   \
    static void fma_##type(size_t count, void *result, const void *const operands[3],                        \
                           const size_t steps[3]) {                                                          \
        half_fma(tvm_interp_##type##_to_f32, tvm_f64_to_##type, count, result, operands, steps);             \
    }
HALF_LOOPS(f16)
HALF_LOOPS(bf16)

/* ---- where, whatever the type ---- */

#define WHERE_LOOP(bytes, T)                                                                                 \
    static void where_##bytes(size_t count, void *result, const void *const operands[3],                     \
                              const size_t steps[3]) {                                                       \
        typedef T __attribute__((may_alias)) element;                                                        \
        const uint8_t *condition = operands[0];                                                              \
        const element *x = operands[1], *y = operands[2];                                                    \
        element *to = result;                                                                                \
        for (size_t i = 0; i < count; i++)                                                                   \
            to[i] = condition[i * steps[0]] ? x[i * steps[1]] : y[i * steps[2]];                             \
    }
WHERE_LOOP(1, uint8_t)
WHERE_LOOP(2, uint16_t)
WHERE_LOOP(4, uint32_t)
WHERE_LOOP(8, uint64_t)

/* ---- the tables ---- */

typedef struct loop_row {
    tvm_dtype type;
    interp_loop_function eq, ne, lt, le;
#define TVM_OP_ELEMENT(number, id, ...) interp_loop_function id;
#include "opcodes.def"
} loop_row;

#define COMMON_ROW(suffix)                                                                                   \
    .ADD = add_##suffix, .SUB = sub_##suffix, .MUL = mul_##suffix, .DIV = div_##suffix, .MIN = min_##suffix, \
    .MAX = max_##suffix, .NEG = neg_##suffix, .ABS = abs_##suffix, .FMA = fma_##suffix,                      \
    .CLIP = clip_##suffix, .MOD = mod_##suffix, .eq = eq_##suffix, .ne = ne_##suffix, .lt = lt_##suffix,     \
    .le = le_##suffix

#define FLOAT_ROW(suffix)                                                                                    \
    COMMON_ROW(suffix),                                                                                      \
        .SQRT = sqrt_##suffix, .RSQRT = rsqrt_##suffix, .FLOOR = floor_##suffix, .CEIL = ceil_##suffix,      \
        .ROUND = round_##suffix, .TRUNC = trunc_##suffix, .EXP = exp_##suffix, .EXP2 = exp2_##suffix,        \
        .LOG = log_##suffix, .LOG2 = log2_##suffix, .SIN = sin_##suffix, .COS = cos_##suffix,                \
        .TANH = tanh_##suffix, .ERF = erf_##suffix, .POW = pow_##suffix, .TAN = tan_##suffix,                \
        .SINH = sinh_##suffix, .COSH = cosh_##suffix, .ATAN2 = atan2_##suffix

#define INTEGER(kind, size, suffix)                                                                          \
    {                                                                                                        \
        .type = {kind, size, 0, 0}, COMMON_ROW(suffix), .MULHI = mulhi_##suffix, .AND = and_##suffix,        \
        .OR = or_##suffix, .XOR = xor_##suffix, .NOT = not_##suffix, .SHL = shl_##suffix,                    \
        .SHR = shr_##suffix, .POPCOUNT = popcount_##suffix                                                   \
    }
#define FLOATING(size, e, m, suffix)                                                                         \
    { .type = {TVM_KIND_FLOAT, size, e, m}, FLOAT_ROW(suffix) }

static const loop_row rows[] = {
    INTEGER(TVM_KIND_INT, 8, i8),
    INTEGER(TVM_KIND_INT, 16, i16),
    INTEGER(TVM_KIND_INT, 32, i32),
    INTEGER(TVM_KIND_INT, 64, i64),
    INTEGER(TVM_KIND_UINT, 8, u8),
    INTEGER(TVM_KIND_UINT, 16, u16),
    INTEGER(TVM_KIND_UINT, 32, u32),
    INTEGER(TVM_KIND_UINT, 64, u64),
    FLOATING(16, 5, 10, f16),
    FLOATING(16, 8, 7, bf16),
    FLOATING(32, 8, 23, f32),
    FLOATING(64, 11, 52, f64),
    {.type = {TVM_KIND_BOOL, 8, 0, 0},
     .AND = and_u8,
     .OR = or_u8,
     .XOR = xor_u8,
     .NOT = not_bool,
     .eq = eq_u8,
     .ne = ne_u8},
};

static const loop_row *find_row(tvm_dtype type) {
    static const loop_row none = {.type = {0}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        if (tvm_dtype_same(rows[r].type, type)) return &rows[r];
    return &none;
}

interp_loop_function tvm_interp_element_loop(unsigned op, tvm_dtype type) {
    const loop_row *row = find_row(type);
    switch (op) {
#define TVM_OP_ELEMENT(number, id, ...)                                                                      \
    case number:                                                                                             \
        return row->id;
#include "opcodes.def"
    default:
        return NULL;
    }
}

interp_loop_function tvm_interp_compare_loop(tvm_compare compare, tvm_dtype type) {
    const loop_row *row = find_row(type);
    switch (compare) {
    case TVM_EQ:
        return row->eq;
    case TVM_NE:
        return row->ne;
    case TVM_LT:
        return row->lt;
    case TVM_LE:
        return row->le;
    default:
        return NULL;
    }
}

interp_loop_function tvm_interp_where_loop(unsigned bytes) {
    return bytes == 1 ? where_1 : bytes == 2 ? where_2 : bytes == 4 ? where_4 : where_8;
}
