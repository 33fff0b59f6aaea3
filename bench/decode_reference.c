#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum { RUN = 4 };

bool decode_reference_make(bench *b, int64_t n, int64_t k, decode_reference *r) {
    *r = (decode_reference){.k = k};
    while (r->count < DECODE_COLUMNS && r->count < n) {
        int64_t start = r->count == 0     ? 0
                        : r->count == RUN ? n - RUN
                                          : (int64_t)(bench_random(b) % (uint64_t)n);
        for (int64_t i = 0; i < RUN && r->count < DECODE_COLUMNS; i++)
            r->column[r->count++] = start < 0 ? 0 : (start + i) % n;
    }
    r->weights = calloc((size_t)k * r->count, sizeof *r->weights);
    return r->weights || bench_fail(b, "reference: out of memory");
}

void decode_reference_free(decode_reference *r) {
    free(r->weights);
    free(r->products);
    *r = (decode_reference){0};
}

uint32_t decode_code(const value_type *type, const void *codes, size_t index) {
    uint16_t half;
    uint32_t word;
    if (type->bits == 16) {
        memcpy(&half, (const uint8_t *)codes + 2 * index, sizeof half);
        return half;
    }
    memcpy(&word, (const uint8_t *)codes + 4 * index, sizeof word);
    return word;
}

void decode_set_code(const value_type *type, void *codes, size_t index, uint32_t code) {
    uint16_t half = (uint16_t)code;
    if (type->bits == 16)
        memcpy((uint8_t *)codes + 2 * index, &half, sizeof half);
    else
        memcpy((uint8_t *)codes + 4 * index, &code, sizeof code);
}

/* Four sums, so that additions need not wait for each other. */
static double dot(const double *x, const double *y, int64_t count) {
    double sums[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++) sums[j] += x[i + j] * y[i + j];
    for (; i < count; i++) sums[0] += x[i] * y[i];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

static bool has_nan(const value_type *type, const void *codes, size_t count) {
    uint32_t infinity = ((1u << type->exponent) - 1) << type->mantissa;
    uint32_t magnitude = type->bits == 16 ? 0x7fff : 0x7fffffff;
    for (size_t i = 0; i < count; i++)
        if ((decode_code(type, codes, i) & magnitude) > infinity) return true;
    return false;
}

bool decode_reference_multiply(bench *b, decode_reference *r, int64_t rows, const value_type *a_type,
                               const void *a) {
    double *row = malloc((size_t)r->k * sizeof *row);
    free(r->products);
    r->products = calloc((size_t)rows * r->count, sizeof *r->products);
    bool ok = row && r->products;
    for (int64_t i = 0; ok && i < rows; i++) {
        for (int64_t l = 0; l < r->k; l++)
            row[l] = value_of(a_type, decode_code(a_type, a, (size_t)(i * r->k + l)));
        for (unsigned j = 0; j < r->count; j++)
            r->products[(size_t)i * r->count + j] = dot(row, r->weights + (size_t)r->k * j, r->k);
    }
    free(row);
    return ok || bench_fail(b, "reference: out of memory");
}

double decode_reference_error(const decode_reference *r, int64_t m, int64_t n, const value_type *c_type,
                              const void *c) {
    double difference = 0, norm = 0;
    if (has_nan(c_type, c, (size_t)(m * n))) return INFINITY;
    for (int64_t i = 0; i < m; i++)
        for (unsigned j = 0; j < r->count; j++) {
            double expected = r->products[(size_t)i * r->count + j];
            double got = value_of(c_type, decode_code(c_type, c, (size_t)(i * n + r->column[j])));
            difference += (got - expected) * (got - expected);
            norm += expected * expected;
        }
    return norm > 0 && isfinite(difference) ? sqrt(difference / norm) : INFINITY;
}

double decode_tolerance(const value_type *c_type) {
    return c_type->mantissa >= 10 ? 1e-3 : 8e-3;
}
