/* What programs/matmul_lowbit.vasminc computes, on top of matmul_reference.h: a bias, products of f32. */
#ifndef TVM_TESTS_LOWBIT_REFERENCE_H
#define TVM_TESTS_LOWBIT_REFERENCE_H

#include <stdbool.h>
#include <stdio.h>
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

/* The kernels of the entry. split8 is for few bits, short8 and short16 for groups of 32, rows112 for what
 * rows128 is not for, tall2 to tall6 for what has no tiles of other widths; those for more than 16 rows, from
 * large to vast1, are else all there for u4 with default options, other forms may lack some.
 */
enum {
    SPLIT8 = 1,
    SHORT8,
    SHORT16,
    LARGE = 6,
    ROWS112 = 10,
    TALL2 = 20,
    TALL6 = 23,
    LAST_LARGE = 56,
    SMALL8 = 57,
    LOWBIT_VARIANTS = 59
};

static inline void lowbit_variant_name(unsigned variant, char name[32]) {
    static const char *const names[LOWBIT_VARIANTS] = {
        "narrow8",  "split8",   "short8",   "short16", "narrow16", "wide16",   "large",    "wide32",
        "wide64",   "square64", "rows112",  "rows128", "pairs256", "cluster1", "cluster2", "cluster3",
        "cluster4", "cluster6", "cluster8", "tall1",   "tall2",    "tall3",    "tall4",    "tall6",
        "slim1",    "slim2",    "slim3",    "slim4",   "slim6",    "slim8",    "wee1",     "wee2",
        "lean1",    "lean2",    "lean4",    "thin1",   "thin2",    "thin4",    "mid1",     "mid2",
        "mid3",     "mid4",     "midr1",    "midr2",   "broad1",   "broad2",   "broad3",   "broad4",
        "broadw",   "triple1",  "triple2",  "triple4", "triplew",  "tower1",   "high1",    "high2",
        "vast1",    "small8",   "small16"};
    snprintf(name, 32, "matmul_lowbit_%s", names[variant]);
}

static inline bool lowbit_may_lack(const lowbit_form *f, unsigned variant) {
    bool is_default = strcmp(f->type, "u4") == 0 && !f->options.bf16 && !f->options.zeros &&
                      (f->options.group == 128 || f->options.group == 0) && !f->bias && !f->f32;
    return variant == SPLIT8 || variant == SHORT8 || variant == SHORT16 || variant == ROWS112 ||
           (variant >= TALL2 && variant <= TALL6) ||
           (variant >= LARGE && variant <= LAST_LARGE && !is_default);
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
