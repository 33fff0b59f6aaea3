/* Low-precision and float codes and what they are worth, from their definitions (OCP 8-bit and microscaling
 * specifications; others: bias 2^(X-1)-1, subnormals, no infinity, no NaN): a reference that shares nothing
 * with the library. */
#ifndef BENCH_VALUE_H
#define BENCH_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu.h"

typedef struct value_type {
    char name[12]; /* "u3", "f6_e3m2", "f16" */
    char kind;     /* u, i or f */
    unsigned bits, exponent, mantissa;
} value_type;

enum { VALUE_TYPES = 42 };
/* The low-precision types u1..u8, i2..i8, fN_eXmY in this order; returns VALUE_TYPES. */
unsigned value_types(value_type types[VALUE_TYPES]);
/* One of these, or f16, bf16, f32; false when there is none of that name. */
bool value_type_named(const char *name, value_type *type);

double value_of(const value_type *type, uint32_t code);
/* The code of a float type for a value in its normal range or zero; bits below its mantissa are cut off. */
uint32_t value_code(const value_type *type, double value);

/* Random codes of weights, 8 at a time to `bits` bytes: all codes but infinities and NaN; of types whose
 * exponents reach beyond f16's, only those below 32 in magnitude, so that sums of products stay finite in
 * f16. count must be a multiple of 8. */
void value_fill(bench *b, const value_type *type, uint8_t *to, size_t count);

/* Element `index` of compactly stored codes of at most 8 bits. */
static inline uint32_t value_at(const uint8_t *codes, size_t index, unsigned bits) {
    size_t bit = index * bits;
    uint32_t word = codes[bit / 8];
    if (bit % 8 + bits > 8) word |= (uint32_t)codes[bit / 8 + 1] << 8;
    return word >> bit % 8 & ((1u << bits) - 1);
}

#endif
