/* 16-bit floats to f32, for loops of vector code: after vector.h. */
#ifndef TVM_VM_LOAD_H
#define TVM_VM_LOAD_H

#include "convert.h"

#include <stddef.h>

#ifdef VECTOR_X86
#include <immintrin.h>
#endif

/* A number within 2^22 is rounded to nearest even by adding 1.5 * 2^23, which leaves it in the sum's low
 * bits. */
#define ROUNDER 12582912.0f

typedef void load_f16(const uint16_t *restrict row, float *restrict x, size_t count);

INLINE void load_f16_baseline(const uint16_t *restrict row, float *restrict x, size_t count) {
    for (size_t j = 0; j < count; j++) x[j] = tvm_f16_to_f32(row[j]);
}

#ifdef VECTOR_X86
/* By the instruction for it, which compilers do not find by themselves. */
TARGET_256 static inline void load_f16_avx2(const uint16_t *restrict row, float *restrict x, size_t count) {
    size_t j = 0;
    for (; j + 8 <= count; j += 8)
        _mm256_storeu_ps(x + j, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(row + j))));
    load_f16_baseline(row + j, x + j, count - j);
}

TARGET_512 static inline void load_f16_avx512(const uint16_t *restrict row, float *restrict x, size_t count) {
    size_t j = 0;
    for (; j + 16 <= count; j += 16)
        _mm512_storeu_ps(x + j,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(row + j))));
    load_f16_baseline(row + j, x + j, count - j);
}
#endif

INLINE void load_bf16(const uint16_t *restrict row, float *restrict x, size_t count) {
    for (size_t j = 0; j < count; j++) x[j] = tvm_bf16_to_f32(row[j]);
}

#endif
