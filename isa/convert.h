/* Conversions between the 16-bit floats and the host's, inline so that loops over arrays become vector code.
 * They agree with tvm_encode and tvm_decode (types.h) for every input: round to nearest, ties to even,
 * overflow to infinity, every NaN to 0x7fff.
 *
 * No branches: the candidates for each range (subnormal, normal, overflow, NaN) are all computed and selected
 * from by masks (of ?: compilers make branches around the floating-point addition, since it may trap). A
 * subnormal result is rounded by the host's adder: adding 2^(digits - 1 + q) to a small value x leaves x,
 * rounded to a multiple of 2^q, in the low bits of the sum. This takes the host's default rounding mode. */
#ifndef TVM_ISA_CONVERT_H
#define TVM_ISA_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tvm_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tvm_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t tvm_f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double tvm_f64_from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a > b ? yes : no, for a and b below 2^31 or 2^63 (vector units compare signed numbers best). */
static inline uint32_t tvm_above32(uint32_t a, uint32_t b, uint32_t yes, uint32_t no) {
    return no ^ ((no ^ yes) & -(uint32_t)((int32_t)a > (int32_t)b));
}

static inline uint64_t tvm_above64(uint64_t a, uint64_t b, uint64_t yes, uint64_t no) {
    return no ^ ((no ^ yes) & -(uint64_t)((int64_t)a > (int64_t)b));
}

/* Exact. */
static inline float tvm_f16_to_f32(uint16_t code) {
    const uint32_t rebias = (uint32_t)(127 - 15) << 23;
    uint32_t magnitude = (uint32_t)(code & 0x7fff) << 13;
    uint32_t normal = magnitude + rebias;
    uint32_t special = normal + rebias;
    uint32_t subnormal = tvm_f32_bits(tvm_f32_from_bits(normal + (1u << 23)) - 0x1p-14f);
    uint32_t result = tvm_above32(1u << 23, magnitude, subnormal, normal);
    result = tvm_above32(magnitude, (31u << 23) - 1, special, result);
    return tvm_f32_from_bits(result | (uint32_t)(code & 0x8000) << 16);
}

static inline uint16_t tvm_f32_to_f16(float value) {
    uint32_t bits = tvm_f32_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t even = magnitude >> 13 & 1;
    uint32_t normal = (magnitude - ((uint32_t)(127 - 15) << 23) + 0xfff + even) >> 13;
    /* 2^23 * 2^-24, the smallest subnormal being 2^-24. */
    uint32_t subnormal = tvm_f32_bits(tvm_f32_from_bits(magnitude) + 0.5f) - 0x3f000000;
    uint32_t result = tvm_above32(0x38800000, magnitude, subnormal, normal); /* below 2^-14 */
    result = tvm_above32(magnitude, 0x477fefff, 0x7c00, result); /* from 65520, half-way to 2^16 */
    result |= sign;
    return (uint16_t)tvm_above32(magnitude, 0x7f800000, 0x7fff, result);
}

/* Exact. */
static inline float tvm_bf16_to_f32(uint16_t code) {
    return tvm_f32_from_bits((uint32_t)code << 16);
}

static inline uint16_t tvm_f32_to_bf16(float value) {
    uint32_t bits = tvm_f32_bits(value);
    uint32_t even = bits >> 16 & 1;
    uint32_t result = (bits + 0x7fff + even) >> 16;
    return (uint16_t)tvm_above32(bits & 0x7fffffff, 0x7f800000, 0x7fff, result);
}

/* For results computed in double: one rounding, not two. */
static inline uint16_t tvm_f64_to_f16(double value) {
    uint64_t bits = tvm_f64_bits(value);
    uint64_t magnitude = bits & INT64_MAX;
    uint64_t sign = bits >> 48 & 0x8000;
    uint64_t even = magnitude >> 42 & 1;
    uint64_t normal = (magnitude - ((uint64_t)(1023 - 15) << 52) + ((UINT64_C(1) << 41) - 1) + even) >> 42;
    uint64_t subnormal = tvm_f64_bits(tvm_f64_from_bits(magnitude) + 0x1p28) - tvm_f64_bits(0x1p28);
    uint64_t result = tvm_above64(tvm_f64_bits(0x1p-14), magnitude, subnormal, normal);
    result = tvm_above64(magnitude, tvm_f64_bits(65520.0) - 1, 0x7c00, result);
    result |= sign;
    return (uint16_t)tvm_above64(magnitude, UINT64_C(0x7ff0000000000000), 0x7fff, result);
}

static inline uint16_t tvm_f64_to_bf16(double value) {
    uint64_t bits = tvm_f64_bits(value);
    uint64_t magnitude = bits & INT64_MAX;
    uint64_t sign = bits >> 48 & 0x8000;
    uint64_t even = magnitude >> 45 & 1;
    uint64_t normal = (magnitude - ((uint64_t)(1023 - 127) << 52) + ((UINT64_C(1) << 44) - 1) + even) >> 45;
    /* 2^52 * 2^-133, the smallest subnormal being 2^-133. */
    uint64_t subnormal = tvm_f64_bits(tvm_f64_from_bits(magnitude) + 0x1p-81) - tvm_f64_bits(0x1p-81);
    uint64_t result = tvm_above64(tvm_f64_bits(0x1p-126), magnitude, subnormal, normal);
    result = tvm_above64(magnitude, tvm_f64_bits(0x1.ffp127) - 1, 0x7f80, result); /* half-way to 2^128 */
    result |= sign;
    return (uint16_t)tvm_above64(magnitude, UINT64_C(0x7ff0000000000000), 0x7fff, result);
}

#endif
