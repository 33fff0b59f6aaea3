#include "vector.h"

#include "convert.h"
#include "interp_vector.h"

#include <math.h>
#include <string.h>
#ifdef VECTOR_X86
#include <immintrin.h>
#endif

/* Rows of c, and vectors of a row of c, that the inner loop of mma holds in registers. */
enum { MMA_ROWS = 4, MMA_COLUMNS = 2 };

/* ---- conversions ---- */

#define CONVERT_BODY(name, to_type, from_type)                                                               \
    INLINE void name##_body(to_type *restrict to, const from_type *restrict from, size_t count) {            \
        for (size_t i = 0; i < count; i++) to[i] = tvm_##name(from[i]);                                      \
    }
CONVERT_BODY(f16_to_f32, float, uint16_t)
CONVERT_BODY(bf16_to_f32, float, uint16_t)
CONVERT_BODY(f32_to_f16, uint16_t, float)
CONVERT_BODY(f32_to_bf16, uint16_t, float)

/* ---- gathers and look-ups ---- */

INLINE void gather_bits_tail(uint8_t *restrict to, const uint8_t *restrict from,
                             const uint32_t *restrict positions, uint8_t mask, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t position = positions[i];
        unsigned pair = from[position >> 3] | (unsigned)from[(position >> 3) + 1] << 8;
        to[i] = (uint8_t)(pair >> (position & 7)) & mask;
    }
}

INLINE void gather_pieces_tail(uint8_t *restrict to, const uint8_t *restrict from,
                               const uint32_t *restrict positions, const uint16_t *restrict shapes,
                               size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t position = positions[i];
        unsigned pair = from[position >> 3] | (unsigned)from[(position >> 3) + 1] << 8;
        to[i] |= (uint8_t)((pair >> (position & 7) & shapes[i] & 0xff) << (shapes[i] >> 8));
    }
}

#define gather_bits_16   gather_bits_tail
#define gather_pieces_16 gather_pieces_tail

#ifdef VECTOR_X86
/* Compilers make no gathers of bytes. */
TARGET_256 static inline __m256i bits_256(const uint8_t *from, const uint32_t *positions) {
    __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)positions);
    __m256i words = _mm256_i32gather_epi32((const int *)(const void *)from, _mm256_srli_epi32(at, 3), 1);
    return _mm256_srlv_epi32(words, _mm256_and_si256(at, _mm256_set1_epi32(7)));
}

/* The lowest bytes of the words. */
TARGET_256 static inline __m128i bytes_256(__m256i words) {
    __m128i low = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    return _mm_packus_epi16(low, low);
}

TARGET_256 static inline void gather_bits_32(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                                             uint8_t mask, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i words = _mm256_and_si256(bits_256(from, positions + i), _mm256_set1_epi32(mask));
        _mm_storel_epi64((__m128i *)(void *)(to + i), bytes_256(words));
    }
    gather_bits_tail(to + i, from, positions + i, mask, count - i);
}

TARGET_256 static inline void gather_pieces_32(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                                               const uint16_t *shapes, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i shape = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(shapes + i)));
        __m256i mask = _mm256_and_si256(shape, _mm256_set1_epi32(0xff));
        __m256i words = _mm256_sllv_epi32(_mm256_and_si256(bits_256(from, positions + i), mask),
                                          _mm256_srli_epi32(shape, 8));
        __m128i so_far = _mm_loadl_epi64((const __m128i *)(const void *)(to + i));
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_or_si128(so_far, bytes_256(words)));
    }
    gather_pieces_tail(to + i, from, positions + i, shapes + i, count - i);
}

TARGET_512 static inline __m512i bits_512(const uint8_t *from, const uint32_t *positions) {
    __m512i at = _mm512_loadu_si512(positions);
    __m512i words = _mm512_i32gather_epi32(_mm512_srli_epi32(at, 3), from, 1);
    return _mm512_srlv_epi32(words, _mm512_and_si512(at, _mm512_set1_epi32(7)));
}

TARGET_512 static inline void gather_bits_64(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                                             uint8_t mask, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m512i words = _mm512_and_si512(bits_512(from, positions + i), _mm512_set1_epi32(mask));
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm512_cvtepi32_epi8(words));
    }
    gather_bits_tail(to + i, from, positions + i, mask, count - i);
}

TARGET_512 static inline void gather_pieces_64(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                                               const uint16_t *shapes, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m512i shape =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(shapes + i)));
        __m512i mask = _mm512_and_si512(shape, _mm512_set1_epi32(0xff));
        __m512i words = _mm512_sllv_epi32(_mm512_and_si512(bits_512(from, positions + i), mask),
                                          _mm512_srli_epi32(shape, 8));
        __m128i *at = (__m128i *)(void *)(to + i);
        _mm_storeu_si128(at, _mm_or_si128(_mm_loadu_si128(at), _mm512_cvtepi32_epi8(words)));
    }
    gather_pieces_tail(to + i, from, positions + i, shapes + i, count - i);
}
#endif

void tvm_interp_widen_units(interp_units *units) {
    enum { WIDEST = 64 };
    uint32_t *at = units->at;
    for (; units->bytes < WIDEST && units->count % 2 == 0; units->count /= 2, units->bytes *= 2) {
        for (uint32_t i = 0; i < units->count; i += 2)
            if (at[i] % 2 || at[i + 1] != at[i] + 1) return;
        for (uint32_t i = 0; i < units->count; i += 2) at[i / 2] = at[i] / 2;
    }
}

#define UNIT_LOOP(bytes)                                                                                     \
    case bytes:                                                                                              \
        for (size_t i = 0; i < units->count; i++)                                                            \
            memcpy(to + i * (bytes), from + (size_t)at[i] * (bytes), (bytes));                               \
        break;

void tvm_interp_copy_units(const interp_units *units, uint8_t *restrict to, const uint8_t *restrict from) {
    const uint32_t *at = units->at;
    switch (units->bytes) {
        UNIT_LOOP(1)
        UNIT_LOOP(2)
        UNIT_LOOP(4)
        UNIT_LOOP(8)
        UNIT_LOOP(16)
        UNIT_LOOP(32)
        UNIT_LOOP(64)
    }
}

INLINE void gather_32_body(uint32_t *restrict to, const uint32_t *restrict from, const uint32_t *restrict at,
                           size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = from[at[i]];
}

INLINE void lookup_16_body(uint16_t *restrict to, const uint8_t *restrict from,
                           const uint16_t *restrict table, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = table[from[i]];
}

INLINE void lookup_32_body(uint32_t *restrict to, const uint8_t *restrict from,
                           const uint32_t *restrict table, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = table[from[i]];
}

/* ---- fma ---- */

INLINE void fma_f32_body(float *to, const float *const *operands, const size_t *steps, size_t count) {
    const float *x = operands[0], *y = operands[1], *z = operands[2];
    if (steps[0] && steps[1] && steps[2]) {
        for (size_t i = 0; i < count; i++) to[i] = fmaf(x[i], y[i], z[i]);
    } else if (steps[0] && steps[2]) {
        float factor = *y;
        for (size_t i = 0; i < count; i++) to[i] = fmaf(x[i], factor, z[i]);
    } else {
        for (size_t i = 0; i < count; i++) to[i] = fmaf(x[i * steps[0]], y[i * steps[1]], z[i * steps[2]]);
    }
}

/* ---- mma ----
 * b is converted in panels of MMA_COLUMNS vectors, k rows each, so that the inner loop reads one stream.
 *
 * Each product is exact: added with one rounding. Of f16 it is an f32 (22 bits, within the exponents), so
 * that a product and a sum do; of bf16 it has 16 bits but may lie beyond f32's exponents, so that it takes an
 * fma, as those of f32 do. */

/* Floats of a or b. */
INLINE void factors(float *restrict to, const void *from, size_t at, tvm_interp_factor factor, size_t count) {
    if (factor == TVM_FACTOR_F32)
        memcpy(to, (const float *)from + at, count * sizeof *to);
    else if (factor == TVM_FACTOR_BF16)
        bf16_to_f32_body(to, (const uint16_t *)from + at, count);
    else
        f16_to_f32_body(to, (const uint16_t *)from + at, count);
}

/* c += b * a of vectors, rounded once. */
#define FUSED_LANES(name, c, b, a)                                                                           \
    for (unsigned lane = 0; lane < name##_LANES; lane++) (c)[lane] = fmaf((b)[lane], a, (c)[lane])
#define FUSED_256(name, c, b, a)                                                                             \
    (c) = (name##_vector)_mm256_fmadd_ps((__m256)(b), _mm256_set1_ps(a), (__m256)(c))
#define FUSED_512(name, c, b, a)                                                                             \
    (c) = (name##_vector)_mm512_fmadd_ps((__m512)(b), _mm512_set1_ps(a), (__m512)(c))

#define MMA_BODY(name, bytes, attribute, fused)                                                              \
    typedef float name##_vector __attribute__((vector_size(bytes), aligned(4), may_alias));                  \
    enum { name##_LANES = (bytes) / 4, name##_WIDTH = MMA_COLUMNS * name##_LANES };                          \
    attribute INLINE void name##_tile(size_t k, const float *a, const float *panel, bool fuses,              \
                                      float *tile) {                                                         \
        name##_vector c[MMA_ROWS][MMA_COLUMNS];                                                              \
        memcpy(c, tile, sizeof c);                                                                           \
        for (size_t p = 0; p < k; p++) {                                                                     \
            const name##_vector *b = (const name##_vector *)(const void *)(panel + p * name##_WIDTH);        \
            for (unsigned i = 0; i < MMA_ROWS; i++)                                                          \
                for (unsigned j = 0; j < MMA_COLUMNS; j++)                                                   \
                    if (fuses) {                                                                             \
                        fused(name, c[i][j], b[j], a[i * k + p]);                                            \
                    } else {                                                                                 \
                        name##_vector product = b[j] * a[i * k + p];                                         \
                        c[i][j] += product;                                                                  \
                    }                                                                                        \
        }                                                                                                    \
        memcpy(tile, c, sizeof c);                                                                           \
    }                                                                                                        \
    attribute INLINE void name##_panel(size_t k, size_t n, size_t width, const void *b, size_t at,           \
                                       tvm_interp_factor factor, float *panel) {                             \
        if (width < name##_WIDTH) memset(panel, 0, k *name##_WIDTH * sizeof *panel);                         \
        for (size_t p = 0; p < k; p++) factors(panel + p * name##_WIDTH, b, at + p * n, factor, width);      \
    }                                                                                                        \
    attribute INLINE void name##_rows(size_t rows, size_t width, size_t k, size_t n, const float *a,         \
                                      const float *panel, bool fuses, float *c) {                            \
        float tile[MMA_ROWS * name##_WIDTH] __attribute__((aligned(64))) = {0};                              \
        for (size_t i = 0; i < rows; i++) memcpy(tile + i * name##_WIDTH, c + i * n, width * sizeof *c);     \
        if (fuses)                                                                                           \
            name##_tile(k, a, panel, true, tile);                                                            \
        else                                                                                                 \
            name##_tile(k, a, panel, false, tile);                                                           \
        for (size_t i = 0; i < rows; i++) memcpy(c + i * n, tile + i * name##_WIDTH, width * sizeof *c);     \
    }                                                                                                        \
    attribute INLINE void name##_body(size_t m, size_t n, size_t k, const void *a, const void *b,            \
                                      tvm_interp_factor factor, float *c, float *scratch) {                  \
        float *panel = scratch + mma_rows(m) * k;                                                            \
        factors(scratch, a, 0, factor, m *k);                                                                \
        memset(scratch + m * k, 0, (mma_rows(m) - m) * k * sizeof *scratch);                                 \
        for (size_t j = 0; j < n; j += name##_WIDTH) {                                                       \
            size_t width = n - j < name##_WIDTH ? n - j : (size_t)name##_WIDTH;                              \
            if (width == name##_WIDTH)                                                                       \
                name##_panel(k, n, name##_WIDTH, b, j, factor, panel);                                       \
            else                                                                                             \
                name##_panel(k, n, width, b, j, factor, panel);                                              \
            for (size_t i = 0; i < m; i += MMA_ROWS)                                                         \
                name##_rows(m - i < MMA_ROWS ? m - i : MMA_ROWS, width, k, n, scratch + i * k, panel,        \
                            factor != TVM_FACTOR_F16, c + i * n + j);                                        \
        }                                                                                                    \
    }

INLINE size_t mma_rows(size_t m) {
    return (m + MMA_ROWS - 1) / MMA_ROWS * MMA_ROWS;
}

size_t tvm_interp_mma_scratch(size_t m, size_t k) {
    enum { WIDEST = MMA_COLUMNS * 16 };
    return (mma_rows(m) * k + k * WIDEST) * sizeof(float);
}

MMA_BODY(mma_16, 16, , FUSED_LANES)

/* ---- one instance of every loop for each set of vector instructions ---- */

#define INSTANCES(suffix, attribute, width)                                                                  \
    attribute static void f16_to_f32_##suffix(float *to, const uint16_t *from, size_t count) {               \
        f16_to_f32_body(to, from, count);                                                                    \
    }                                                                                                        \
    attribute static void bf16_to_f32_##suffix(float *to, const uint16_t *from, size_t count) {              \
        bf16_to_f32_body(to, from, count);                                                                   \
    }                                                                                                        \
    attribute static void f32_to_f16_##suffix(uint16_t *to, const float *from, size_t count) {               \
        f32_to_f16_body(to, from, count);                                                                    \
    }                                                                                                        \
    attribute static void f32_to_bf16_##suffix(uint16_t *to, const float *from, size_t count) {              \
        f32_to_bf16_body(to, from, count);                                                                   \
    }                                                                                                        \
    attribute static void gather_bits_##suffix(uint8_t *to, const uint8_t *from, const uint32_t *positions,  \
                                               uint8_t mask, size_t count) {                                 \
        gather_bits_##width(to, from, positions, mask, count);                                               \
    }                                                                                                        \
    attribute static void gather_pieces_##suffix(                                                            \
        uint8_t *to, const uint8_t *from, const uint32_t *positions, const uint16_t *shapes, size_t count) { \
        gather_pieces_##width(to, from, positions, shapes, count);                                           \
    }                                                                                                        \
    attribute static void gather_32_##suffix(uint32_t *to, const uint32_t *from, const uint32_t *at,         \
                                             size_t count) {                                                 \
        gather_32_body(to, from, at, count);                                                                 \
    }                                                                                                        \
    attribute static void lookup_16_##suffix(uint16_t *to, const uint8_t *from, const uint16_t *table,       \
                                             size_t count) {                                                 \
        lookup_16_body(to, from, table, count);                                                              \
    }                                                                                                        \
    attribute static void lookup_32_##suffix(uint32_t *to, const uint8_t *from, const uint32_t *table,       \
                                             size_t count) {                                                 \
        lookup_32_body(to, from, table, count);                                                              \
    }                                                                                                        \
    attribute static void fma_f32_##suffix(float *to, const float *const *operands, const size_t *steps,     \
                                           size_t count) {                                                   \
        fma_f32_body(to, operands, steps, count);                                                            \
    }                                                                                                        \
    attribute static void mma_##suffix(size_t m, size_t n, size_t k, const void *a, const void *b,           \
                                       tvm_interp_factor factor, float *c, float *scratch) {                 \
        mma_##width##_body(m, n, k, a, b, factor, c, scratch);                                               \
    }

INSTANCES(baseline, , 16)

#ifdef VECTOR_X86
MMA_BODY(mma_32, 32, TARGET_256, FUSED_256)
MMA_BODY(mma_64, 64, TARGET_512, FUSED_512)
INSTANCES(avx2, TARGET_256, 32)
INSTANCES(avx512, TARGET_512, 64)
#endif

void tvm_interp_f16_to_f32(float *to, const uint16_t *from, size_t count) {
    DISPATCH(f16_to_f32, (to, from, count));
}

void tvm_interp_bf16_to_f32(float *to, const uint16_t *from, size_t count) {
    DISPATCH(bf16_to_f32, (to, from, count));
}

void tvm_interp_f32_to_f16(uint16_t *to, const float *from, size_t count) {
    DISPATCH(f32_to_f16, (to, from, count));
}

void tvm_interp_f32_to_bf16(uint16_t *to, const float *from, size_t count) {
    DISPATCH(f32_to_bf16, (to, from, count));
}

void tvm_interp_fma_f32(float *to, const float *const operands[3], const size_t steps[3], size_t count) {
    DISPATCH(fma_f32, (to, operands, steps, count));
}

void tvm_interp_gather_bits(uint8_t *to, const uint8_t *from, const uint32_t *positions, uint8_t mask,
                            size_t count) {
    DISPATCH(gather_bits, (to, from, positions, mask, count));
}

void tvm_interp_gather_pieces(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                              const uint16_t *shapes, size_t count) {
    DISPATCH(gather_pieces, (to, from, positions, shapes, count));
}

void tvm_interp_gather_32(uint32_t *to, const uint32_t *from, const uint32_t *at, size_t count) {
    DISPATCH(gather_32, (to, from, at, count));
}

void tvm_interp_lookup_16(uint16_t *to, const uint8_t *from, const uint16_t table[256], size_t count) {
    DISPATCH(lookup_16, (to, from, table, count));
}

void tvm_interp_lookup_32(uint32_t *to, const uint8_t *from, const uint32_t table[256], size_t count) {
    DISPATCH(lookup_32, (to, from, table, count));
}

void tvm_interp_mma(size_t m, size_t n, size_t k, const void *a, const void *b, tvm_interp_factor factor,
                    float *c, void *scratch) {
    DISPATCH(mma, (m, n, k, a, b, factor, c, scratch));
}
