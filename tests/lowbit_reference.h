/* What programs/matmul_lowbit.vasminc computes, on top of matmul_reference.h: a bias, products of f32. */
#ifndef TVM_TESTS_LOWBIT_REFERENCE_H
#define TVM_TESTS_LOWBIT_REFERENCE_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matmul_reference.h"

/* A program: its weight type, or the table that codes of u4 have their values from, and options. */
typedef struct lowbit_form {
    const char *type;
    matmul_variant options;
    bool bias, f32; /* f32: of the product */
    bool factor;    /* by which the sums are multiplied: LOWBIT_FACTOR */
} lowbit_form;

#define LOWBIT_FACTOR 0.1875f

/* The rows of a tile of a variant, whose name says them, as matmul_lowbit_64x128x2 and
 * matmul_lowbit_mma_8x64x8; 0: the kernel is none. */
static inline unsigned lowbit_rows(const char *kernel) {
    static const char *const engines[] = {"matmul_lowbit_", "matmul_lowbit_mma_", "matmul_lowbit_stream_",
                                          "matmul_lowbit_tensor_"};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        size_t length = strlen(engines[i]);
        if (strncmp(kernel, engines[i], length) == 0 && isdigit((unsigned char)kernel[length]))
            return (unsigned)strtoul(kernel + length, NULL, 10);
    }
    return 0;
}

/* Is the variant for targets before sm_90, too? */
static inline bool lowbit_is_for_all(const char *kernel) {
    size_t length = strlen(kernel);
    return length > 5 && strcmp(kernel + length - 5, "_sm80") == 0;
}

/* Is it a variant with tcgen05? */
static inline bool lowbit_is_tensor(const char *kernel) {
    return strncmp(kernel, "matmul_lowbit_tensor_", strlen("matmul_lowbit_tensor_")) == 0;
}

/* Is it a variant, and has the target what it takes? */
static inline bool lowbit_runs_on(const char *kernel, unsigned target) {
    if (lowbit_rows(kernel) == 0) return false;
    if (lowbit_is_tensor(kernel)) return target >= 100 && target < 120;
    if (lowbit_is_for_all(kernel)) return true;
    return strncmp(kernel, "matmul_lowbit_mma_", strlen("matmul_lowbit_mma_")) == 0 ? target >= 90
                                                                                    : target == 90;
}

/* The definitions NAME=VALUE, with a space between. */
static inline void lowbit_define(const lowbit_form *f, char define[128]) {
    const char *half = f->options.bf16 ? "bf16" : "f16";
    bool table = weight_table(f->type) != NULL;
    snprintf(define, 128, "WTYPE=%s ATYPE=%s OTYPE=%s GROUP=%ld ZEROS=%s BIAS=%s FACTOR=%s%s%s%s",
             table ? "u4" : f->type, half, f->f32 ? "f32" : half, f->options.group,
             f->options.zeros ? "true" : "false", f->bias ? "true" : "false", f->factor ? "true" : "false",
             table ? " BOOK=\"" : "", table ? f->type : "", table ? "\"" : "");
}

/* Multiplies expected[m, n] by the factor, fills bias[n] (zeros without one) and adds it to every row. */
static inline void lowbit_bias(const lowbit_form *f, long m, long n, uint16_t *bias, double *expected) {
    for (long j = 0; j < n; j++)
        bias[j] =
            f->bias ? half_code(f->options.bf16, (unsigned)j & 1, (int)(j % 3) - 1, (unsigned)(37 * j) & 1023)
                    : 0;
    for (long i = 0; i < m * n; i++)
        expected[i] =
            expected[i] * (f->factor ? (double)LOWBIT_FACTOR : 1) + half_value(f->options.bf16, bias[i % n]);
}

static inline double lowbit_value(const lowbit_form *f, const void *c, size_t i) {
    float whole;
    uint16_t half;
    if (f->f32) return memcpy(&whole, (const char *)c + 4 * i, 4), (double)whole;
    return memcpy(&half, (const char *)c + 2 * i, 2), half_value(f->options.bf16, half);
}

/* ||c - expected|| / ||expected||, Frobenius; NaN when an element is one. */
static inline double lowbit_error(const lowbit_form *f, size_t count, const void *c, const double *expected) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = lowbit_value(f, c, i) - expected[i];
        difference += d * d, norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

/* What it may be. Sums are f32, so a product of f32 is off by no more than their rounding, in which codes of
 * 1 bit may stand with seven others, and that of a table's values. */
static inline double lowbit_error_bound(const lowbit_form *f) {
    if (f->f32 && weight_table(f->type)) return f->options.bf16 ? 2e-3 : 2e-4;
    return f->f32 ? 1e-5 : matmul_error_bound(f->options);
}

#endif
