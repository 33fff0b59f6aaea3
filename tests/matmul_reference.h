/* An independent computation of what programs/matmul.vasminc computes: its own decoding of weight types, f16
 * and bf16, float64 sums. Nothing here comes from the library that it checks. */
#ifndef TVM_TESTS_MATMUL_REFERENCE_H
#define TVM_TESTS_MATMUL_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The options of the program, apart from the weight type. */
typedef struct matmul_variant {
    int bf16;   /* a, s, z and c; else f16 */
    long group; /* rows of k that share a scale; 0: all of them */
    int zeros;  /* z[i / group, j] is subtracted instead of 2^(bits-1); unsigned weights only */
} matmul_variant;

static const matmul_variant matmul_default = {.group = 128};

static inline long matmul_groups(matmul_variant variant, long k) {
    return variant.group == 0 ? 1 : k / variant.group;
}

typedef struct weight_type {
    char kind; /* u, i or f; t: the values of a table */
    int bits, exponent, mantissa;
    const double *values;
} weight_type;

/* What codes mean to bitsandbytes: nf4 of the QLoRA paper, appendix E, and its fp4, in twelfths. */
static inline const double *weight_table(const char *name) {
    static const double nf4[] = {
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    };
    static const double fp4[] = {0,  0.0625 / 12,  8.0 / 12,  1,  4.0 / 12,  6.0 / 12,  2.0 / 12,  3.0 / 12,
                                 -0, -0.0625 / 12, -8.0 / 12, -1, -4.0 / 12, -6.0 / 12, -2.0 / 12, -3.0 / 12};
    return strcmp(name, "nf4") == 0 ? nf4 : strcmp(name, "fp4") == 0 ? fp4 : NULL;
}

/* "u3", "i5", "f6_e3m2", "nf4"; false for anything else. */
static inline int weight_type_parse(const char *name, weight_type *type) {
    *type = (weight_type){.values = weight_table(name)};
    if (type->values)
        type->kind = 't', type->bits = 4;
    else if (sscanf(name, "f%d_e%dm%d", &type->bits, &type->exponent, &type->mantissa) == 3)
        type->kind = 'f';
    else if (sscanf(name, "%c%d", &type->kind, &type->bits) != 2 || (type->kind != 'u' && type->kind != 'i'))
        return 0;
    return type->bits >= 1 && type->bits <= 8;
}

static inline double matmul_pow2(int exponent) {
    return ldexp(1.0, exponent);
}

/* Codes that random weights avoid. OCP: f8_e5m2 has infinity and NaN, f8_e4m3 NaN only. Types
 * with more than five bits of exponent reach beyond f16, in which products are formed: their weights stay
 * within [2^-8, 2^8). */
static inline int is_avoided(weight_type type, unsigned code) {
    if (type.kind != 'f') return 0;
    if (type.bits == 8 && type.exponent == 5 && type.mantissa == 2) return (code & 0x7c) == 0x7c;
    if (type.bits == 8 && type.exponent == 4 && type.mantissa == 3) return (code & 0x7f) == 0x7f;
    int exponent = (int)(code >> type.mantissa) & ((1 << type.exponent) - 1);
    int bias = (1 << (type.exponent - 1)) - 1;
    return type.exponent > 5 && (exponent < bias - 8 || exponent >= bias + 8);
}

/* The code's number; of unsigned types the code itself, from which the zero point is still to be subtracted.
 */
static inline double weight_value(weight_type type, unsigned code) {
    if (type.kind == 'u') return code;
    if (type.kind == 't') return type.values[code];
    if (type.kind == 'i')
        return code >> (type.bits - 1) ? (double)code - matmul_pow2(type.bits) : (double)code;
    unsigned fraction = code & ((1u << type.mantissa) - 1);
    int exponent = (int)(code >> type.mantissa) & ((1 << type.exponent) - 1);
    int bias = (1 << (type.exponent - 1)) - 1;
    double magnitude = exponent == 0 ? fraction * matmul_pow2(1 - bias - type.mantissa)
                                     : (fraction + matmul_pow2(type.mantissa)) *
                                           matmul_pow2(exponent - bias - type.mantissa);
    return code >> (type.bits - 1) ? -magnitude : magnitude;
}

/* The value of a bf16 or f16. */
static inline double half_value(int bf16, uint16_t code) {
    int width = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, largest = 2 * bias + 1;
    int exponent = code >> width & largest;
    double fraction = code & ((1 << width) - 1), one = matmul_pow2(width);
    double magnitude = exponent == largest ? (fraction != 0 ? NAN : INFINITY)
                       : exponent          ? (fraction + one) * matmul_pow2(exponent - bias - width)
                                           : fraction * matmul_pow2(1 - bias - width);
    return code >> 15 ? -magnitude : magnitude;
}

/* (-1)^sign 2^exponent (1 + fraction / 1024), the fraction cut to what the type holds. */
static inline uint16_t half_code(int bf16, unsigned sign, int exponent, unsigned fraction) {
    return (uint16_t)(sign << 15 | (bf16 ? (unsigned)(exponent + 127) << 7 | fraction >> 3
                                         : (unsigned)(exponent + 15) << 10 | fraction));
}

/* A number >= 0 that both types hold exactly. */
static inline uint16_t half_exact(int bf16, double value) {
    int exponent;
    double fraction = frexp(value, &exponent);
    return value > 0 ? half_code(bf16, 0, exponent - 1, (unsigned)((fraction * 2 - 1) * 1024)) : 0;
}

static inline uint64_t next_random(uint64_t *state) { /* xorshift64* (Vigna 2016) */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static inline unsigned get_bits(const uint8_t *bytes, size_t bit, int width) {
    unsigned shift = bit % 8, code = bytes[bit / 8];
    if (shift + (unsigned)width > 8) code |= (unsigned)bytes[bit / 8 + 1] << 8;
    return code >> shift & ((1u << width) - 1);
}

/* Random inputs: activations of magnitude [2^-5, 2) and either sign, scales in [2^-8, 2^-6), zero points
 * within the codes' range (halves between them, too, where the difference to a code is exact in bf16),
 * weights of any code that is a number. a is [m, k], w the compact bit string of [k, n] (zero on entry), s
 * and z are [groups, n]; z may be NULL without zero points. */
static inline void matmul_inputs(long m, long n, long k, weight_type type, matmul_variant variant,
                                 uint64_t seed, uint16_t *a, uint8_t *w, uint16_t *s, uint16_t *z) {
    uint64_t state = 0x9e3779b97f4a7c15u + seed;
    long group_count = matmul_groups(variant, k);
    for (long i = 0; i < m * k; i++) {
        uint64_t r = next_random(&state);
        a[i] = half_code(variant.bf16, (unsigned)(r >> 63), (int)((r >> 40) % 6) - 5, r >> 20 & 1023);
    }
    for (long i = 0; i < group_count * n; i++) {
        uint64_t r = next_random(&state);
        s[i] = half_code(variant.bf16, 0, (int)((r >> 40) % 2) - 8, r >> 20 & 1023);
    }
    for (long i = 0; variant.zeros && i < group_count * n; i++) {
        uint64_t r = next_random(&state);
        double zero = (double)(r >> 32 & ((1u << type.bits) - 1));
        z[i] = half_exact(variant.bf16, type.bits <= 4 && r >> 63 ? zero + 0.5 : zero);
    }
    for (size_t i = 0; i < (size_t)(k * n); i++) {
        unsigned code;
        do code = (unsigned)(next_random(&state) >> 32) & ((1u << type.bits) - 1);
        while (is_avoided(type, code));
        for (int b = 0; b < type.bits; b++) {
            size_t bit = i * (size_t)type.bits + (size_t)b;
            w[bit / 8] = (uint8_t)(w[bit / 8] | (code >> b & 1) << bit % 8);
        }
    }
}

/* expected (m * n, zero on entry) += A . W */
static inline void matmul_expect(long m, long n, long k, weight_type type, matmul_variant variant,
                                 const uint16_t *a, const uint8_t *w, const uint16_t *s, const uint16_t *z,
                                 double *expected) {
    double *activation = malloc((size_t)(m * k) * sizeof *activation);
    double *row = malloc((size_t)n * 3 * sizeof *row), *scale = row + n, *zero = scale + n, value[256];
    if (activation == NULL || row == NULL) abort();
    long group = variant.group == 0 ? k : variant.group;
    for (unsigned code = 0; code < 1u << type.bits; code++) value[code] = weight_value(type, code);
    for (long i = 0; i < m * k; i++) activation[i] = half_value(variant.bf16, a[i]);
    for (long l = 0; l < k; l++) {
        for (long j = 0; j < n && l % group == 0; j++) {
            scale[j] = half_value(variant.bf16, s[l / group * n + j]);
            zero[j] = variant.zeros      ? half_value(variant.bf16, z[l / group * n + j])
                      : type.kind == 'u' ? matmul_pow2(type.bits - 1)
                                         : 0;
        }
        for (long j = 0; j < n; j++) {
            unsigned code = get_bits(w, (size_t)(l * n + j) * (size_t)type.bits, type.bits);
            row[j] = (value[code] - zero[j]) * scale[j];
        }
        for (long i = 0; i < m; i++)
            for (long j = 0; j < n; j++) expected[i * n + j] += activation[i * k + l] * row[j];
    }
    free(activation);
    free(row);
}

/* ||c - expected|| / ||expected||, Frobenius; the largest |difference| in *largest. */
static inline double matmul_error(size_t count, matmul_variant variant, const uint16_t *c,
                                  const double *expected, double *largest) {
    double difference = 0, norm = 0;
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        double d = half_value(variant.bf16, c[i]) - expected[i];
        difference += d * d, norm += expected[i] * expected[i];
        if (!(fabs(d) <= *largest)) *largest = fabs(d);
    }
    return sqrt(difference / norm);
}

/* What the error may be: that of rounding the output alone is about 2e-4 for f16, 1.7e-3 for bf16. */
static inline double matmul_error_bound(matmul_variant variant) {
    return variant.bf16 ? 4e-3 : 1e-3;
}

/* 0, or one of +-1 and +-2: products and sums of them are exact. */
static inline uint16_t small_half(bool bf16, uint64_t *state) {
    unsigned r = (unsigned)(next_random(state) >> 32);
    return r % 5 == 0 ? 0 : half_code(bf16, r >> 8 & 1, (int)(r >> 9 & 1), 0);
}

#endif
