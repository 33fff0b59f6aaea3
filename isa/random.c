#include "random.h"

#include <math.h>

#include "convert.h"

void tvm_philox(const uint32_t key[2], const uint32_t counter[TVM_PHILOX_WORDS],
                uint32_t words[TVM_PHILOX_WORDS]) {
    uint32_t k0 = key[0], k1 = key[1], c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (unsigned round = 0; round < TVM_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)TVM_PHILOX_M0 * c0, p1 = (uint64_t)TVM_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += TVM_PHILOX_W0;
        k1 += TVM_PHILOX_W1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

float tvm_random_uniform(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

const float tvm_erfinv_center[TVM_ERFINV_COEFFICIENTS] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                                          -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                                          -0.00417768164f,  0.246640727f,    1.50140941f};
const float tvm_erfinv_tail[TVM_ERFINV_COEFFICIENTS] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                                                        -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                                                        0.00943887047f,   1.00167406f,     2.83297682f};
const float tvm_log_coefficients[TVM_LOG_COEFFICIENTS] = {
    7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
    -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};

static float polynomial(const float *coefficients, unsigned count, float x) {
    float value = coefficients[0];
    for (unsigned i = 1; i < count; i++) value = fmaf(value, x, coefficients[i]);
    return value;
}

/* Of a normal number: m 2^e with m from sqrt(1/2) to sqrt(2). */
static float natural_log(float x) {
    uint32_t bits = tvm_f32_bits(x);
    float m = tvm_f32_from_bits((bits & 0x7fffff) | 0x3f000000), e = (float)((int32_t)(bits >> 23) - 126);
    float twice = m + m, less = e - 1;
    if (m < TVM_SQRT_HALF) m = twice, e = less;
    float f = m - 1, z = f * f;
    float y = polynomial(tvm_log_coefficients, TVM_LOG_COEFFICIENTS, f) * f;
    y = y * z;
    y = fmaf(e, TVM_LOG_2_LOW, y);
    y = fmaf(z, -0.5f, y);
    return fmaf(e, TVM_LOG_2_HIGH, f + y);
}

float tvm_random_normal(uint32_t word) {
    float t = (float)(2 * word + 1) * 0x1p-32f, x = 1 - t;
    float w = -natural_log(t * (2 - t));
    float center = polynomial(tvm_erfinv_center, TVM_ERFINV_COEFFICIENTS, w - 2.5f);
    float tail = polynomial(tvm_erfinv_tail, TVM_ERFINV_COEFFICIENTS, sqrtf(w) - 3);
    float value = (w < 5 ? center : tail) * x;
    value = value * TVM_SQRT_2;
    return word >> 31 ? -value : value;
}
