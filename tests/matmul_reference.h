/* An independent computation of what programs/matmul.vasminc computes: its own decoding of weight types and
 * f16, float64 sums. Nothing here comes from the library that it checks. */
#ifndef TVM_TESTS_MATMUL_REFERENCE_H
#define TVM_TESTS_MATMUL_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUP = 128 };

typedef struct weight_type {
    char kind; /* u, i or f */
    int bits, exponent, mantissa;
} weight_type;

/* "u3", "i5", "f6_e3m2"; false for anything else. */
static inline int weight_type_parse(const char *name, weight_type *type) {
    *type = (weight_type){0};
    if (sscanf(name, "f%d_e%dm%d", &type->bits, &type->exponent, &type->mantissa) == 3)
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

static inline double weight_value(weight_type type, unsigned code) {
    if (type.kind == 'u') return (double)code - matmul_pow2(type.bits - 1);
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

static inline double half_value(uint16_t code) {
    int exponent = code >> 10 & 31;
    double fraction = code & 1023;
    double magnitude = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                       : exponent     ? (fraction + 1024) * matmul_pow2(exponent - 25)
                                      : fraction * matmul_pow2(-24);
    return code >> 15 ? -magnitude : magnitude;
}

static inline uint64_t next_random(uint64_t *state) { /* xorshift64* (Vigna 2016) */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static inline unsigned get_bits(const uint8_t *bytes, size_t bit, int width) {
    unsigned code = 0;
    for (int i = 0; i < width; i++)
        code |= (unsigned)(bytes[(bit + (size_t)i) / 8] >> (bit + (size_t)i) % 8 & 1) << i;
    return code;
}

/* Random inputs: activations of magnitude [2^-5, 2) and either sign, scales in [2^-8, 2^-6), weights of any
 * code that is a number. a is [m, k], w the compact bit string of [k, n] (zero on entry), s is [k / GROUP,
 * n]. */
static inline void matmul_inputs(long m, long n, long k, weight_type type, uint64_t seed, uint16_t *a,
                                 uint8_t *w, uint16_t *s) {
    uint64_t state = 0x9e3779b97f4a7c15u + seed;
    for (long i = 0; i < m * k; i++) {
        uint64_t r = next_random(&state);
        a[i] = (uint16_t)((r >> 63) << 15 | (10 + (r >> 40) % 6) << 10 | (r >> 20 & 1023));
    }
    for (long i = 0; i < k / GROUP * n; i++) {
        uint64_t r = next_random(&state);
        s[i] = (uint16_t)((7 + (r >> 40) % 2) << 10 | (r >> 20 & 1023));
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
static inline void matmul_expect(long m, long n, long k, weight_type type, const uint16_t *a,
                                 const uint8_t *w, const uint16_t *s, double *expected) {
    double *activation = malloc((size_t)(m * k) * sizeof *activation);
    if (activation == NULL) abort();
    for (long i = 0; i < m * k; i++) activation[i] = half_value(a[i]);
    for (long l = 0; l < k; l++)
        for (long j = 0; j < n; j++) {
            double weight =
                weight_value(type, get_bits(w, (size_t)(l * n + j) * (size_t)type.bits, type.bits)) *
                half_value(s[l / GROUP * n + j]);
            for (long i = 0; i < m; i++) expected[i * n + j] += activation[i * k + l] * weight;
        }
    free(activation);
}

/* ||c - expected|| / ||expected||, Frobenius; the largest |difference| in *largest. */
static inline double matmul_error(size_t count, const uint16_t *c, const double *expected, double *largest) {
    double difference = 0, norm = 0;
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        double d = half_value(c[i]) - expected[i];
        difference += d * d, norm += expected[i] * expected[i];
        if (!(fabs(d) <= *largest)) *largest = fabs(d);
    }
    return sqrt(difference / norm);
}

#endif
