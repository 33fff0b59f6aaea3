#include "vector.h"

#include "load.h"
#include "pack_vector.h"

#include <string.h>

/* ---- extremes ---- */

INLINE void extremes_16_body(const pack_rows *rows, int32_t *restrict greatest, int32_t *restrict least) {
    enum { COLUMNS = 256 };
    for (size_t start = 0; start < rows->columns; start += COLUMNS) {
        size_t columns = rows->columns - start < COLUMNS ? rows->columns - start : COLUMNS;
        int16_t most[COLUMNS], fewest[COLUMNS];
        for (size_t j = 0; j < columns; j++) {
            most[j] = (int16_t)(greatest[start + j] >> 16);
            fewest[j] = (int16_t)(least[start + j] >> 16);
        }
        for (size_t i = 0; i < rows->rows; i++) {
            const uint16_t *restrict row = (const uint16_t *)rows->data + i * rows->stride + start;
            for (size_t j = 0; j < columns; j++) {
                int16_t bits = (int16_t)row[j];
                int16_t key = (int16_t)(bits ^ ((bits >> 15) & 0x7fff));
                most[j] = key > most[j] ? key : most[j];
                fewest[j] = key < fewest[j] ? key : fewest[j];
            }
        }
        for (size_t j = 0; j < columns; j++) {
            greatest[start + j] = (int32_t)((uint32_t)(uint16_t)most[j] << 16);
            least[start + j] = (int32_t)((uint32_t)(uint16_t)fewest[j] << 16);
        }
    }
}

INLINE void extremes_32_body(const pack_rows *rows, int32_t *restrict greatest, int32_t *restrict least) {
    for (size_t i = 0; i < rows->rows; i++) {
        const uint32_t *restrict row = (const uint32_t *)rows->data + i * rows->stride;
        for (size_t j = 0; j < rows->columns; j++) {
            int32_t key = pack_key_f32(row[j]);
            greatest[j] = key > greatest[j] ? key : greatest[j];
            least[j] = key < least[j] ? key : least[j];
        }
    }
}

/* ---- scales ---- */

INLINE float key_float(pack_float type, int32_t key) {
    uint32_t bits = pack_key_bits(key);
    if (type == PACK_F16) return tvm_f16_to_f32((uint16_t)(bits >> 16));
    return tvm_f32_from_bits(type == PACK_BF16 ? bits & 0xffff0000 : bits);
}

INLINE double scale_of(const pack_scaler *scaler, pack_scaling scaling, double greatest, double least) {
    if (scaling == PACK_OWN_ZERO) return (greatest - least) / scaler->positive;
    if (scaling == PACK_ONE_BIT) return -least >= greatest ? -least : -greatest;
    double above = greatest / scaler->positive, below = -least / scaler->negative;
    double most = greatest > -least ? greatest : -least;
    double scale = above > below ? above : below;
    double floor = most < scaler->floor ? 0 : scaler->floor;
    return scale < floor ? floor : scale;
}

/* Bit 0: a scale is infinite; bit 1: one is not moderate. */
INLINE uint32_t scales_body(const pack_scaler *scaler, pack_scaling scaling, pack_float type, bool bf16,
                            size_t count, const int32_t *restrict greatest, const int32_t *restrict least,
                            uint16_t *restrict scales, uint16_t *restrict zeros, float *restrict divisors,
                            float *restrict reciprocals, float *restrict offsets) {
    uint32_t odd = 0;
    float last = (float)scaler->positive, all = scaler->offset;
    for (size_t j = 0; j < count; j++) {
        float low = key_float(type, least[j]);
        /* + 0 makes a zero positive */
        double exact = scale_of(scaler, scaling, key_float(type, greatest[j]), low) + 0.0;
        uint16_t code = bf16 ? tvm_f64_to_bf16(exact) : tvm_f64_to_f16(exact);
        uint32_t scale = tvm_f32_bits(bf16 ? tvm_bf16_to_f32(code) : tvm_f16_to_f32(code));
        uint32_t magnitude = scale & 0x7fffffff;
        uint32_t infinite = tvm_above32(magnitude, 0x7f7fffff, 1, 0);
        uint32_t little = tvm_above32(PACK_MODERATE_LEAST, magnitude, tvm_above32(magnitude, 0, 2, 0), 0);
        odd |= infinite | little | tvm_above32(magnitude, PACK_MODERATE_GREATEST, 2, 0);
        float divisor = tvm_f32_from_bits(magnitude ? scale : PACK_ZERO_DIVISOR);
        float offset = all;
        if (scaling == PACK_OWN_ZERO) {
            float zero = -low / divisor;
            zero = zero < last ? zero : last;
            offset = (zero + ROUNDER) - ROUNDER;
            zeros[j] = bf16 ? tvm_f32_to_bf16(offset) : tvm_f32_to_f16(offset);
        }
        scales[j] = code;
        divisors[j] = divisor;
        reciprocals[j] = 1 / divisor;
        offsets[j] = offset;
    }
    return odd;
}

INLINE uint32_t scales_of_type_body(const pack_scaler *scaler, pack_float type, bool bf16, size_t count,
                                    const int32_t *greatest, const int32_t *least, uint16_t *scales,
                                    uint16_t *zeros, const pack_divisors *to) {
    float *divisors = to->divisors, *reciprocals = to->reciprocals, *offsets = to->offsets;
    if (scaler->scaling == PACK_SYMMETRIC)
        return scales_body(scaler, PACK_SYMMETRIC, type, bf16, count, greatest, least, scales, zeros,
                           divisors, reciprocals, offsets);
    if (scaler->scaling == PACK_OWN_ZERO)
        return scales_body(scaler, PACK_OWN_ZERO, type, bf16, count, greatest, least, scales, zeros, divisors,
                           reciprocals, offsets);
    return scales_body(scaler, PACK_ONE_BIT, type, bf16, count, greatest, least, scales, zeros, divisors,
                       reciprocals, offsets);
}

INLINE uint32_t scales_of_any_body(const pack_scaler *scaler, pack_float type, size_t count,
                                   const int32_t *greatest, const int32_t *least, uint16_t *scales,
                                   uint16_t *zeros, const pack_divisors *to) {
    if (scaler->bf16)
        return scales_of_type_body(scaler, type, true, count, greatest, least, scales, zeros, to);
    return scales_of_type_body(scaler, type, false, count, greatest, least, scales, zeros, to);
}

/* ---- codes ---- */

/* Loops of one simple step each over so many numbers, which compilers turn into vector code; they stay in the
 * first-level cache. */
enum { CHUNK = 512 };

INLINE void divide(float *restrict x, const float *restrict divisors, size_t count) {
    for (size_t j = 0; j < count; j++) x[j] = x[j] / divisors[j];
}

/* The same, up to what pack_codes says. */
INLINE void divide_fused(float *restrict x, const float *restrict divisors, const float *restrict reciprocals,
                         size_t count) {
    for (size_t j = 0; j < count; j++) {
        float near = x[j] * reciprocals[j];
        float rest = __builtin_fmaf(-near, divisors[j], x[j]);
        float quotient = __builtin_fmaf(rest, reciprocals[j], near);
        x[j] = tvm_f32_from_bits(tvm_f32_bits(quotient) |
                                 (tvm_f32_bits(near) & 0x80000000)); /* a zero keeps its sign */
    }
}

INLINE void codes_integer_body(const pack_coder *coder, const float *restrict quotients,
                               const float *restrict offsets, uint32_t *restrict codes, size_t count) {
    float low = coder->low, high = coder->high;
    uint32_t mask = coder->mask;
    for (size_t j = 0; j < count; j++) {
        float x = quotients[j], least = low - offsets[j], greatest = high - offsets[j];
        x = x > least ? x : least;
        x = x < greatest ? x : greatest;
        float whole = (x + ROUNDER) - ROUNDER;
        codes[j] = tvm_f32_bits(whole + offsets[j] + ROUNDER) & mask;
    }
}

/* Rounds the magnitude to the type's mantissa by adding half a unit (less one when the unit's bit is even and
 * ties go there) and cutting, then moves the exponent to its bias. Below the least normal number the adder
 * rounds to a multiple of the least subnormal. */
INLINE void codes_float_body(const pack_coder *coder, const float *restrict quotients,
                             uint32_t *restrict codes, size_t count) {
    pack_coder c = *coder;
    float unit = tvm_f32_from_bits(c.unit_bits);
    for (size_t j = 0; j < count; j++) {
        uint32_t bits = tvm_f32_bits(quotients[j]);
        uint32_t magnitude = bits & 0x7fffffff;
        uint32_t odd = (magnitude >> c.shift) | c.ties;
        uint32_t normal = ((magnitude + c.half + (odd & 1)) >> c.shift) - c.rebias;
        uint32_t subnormal = tvm_f32_bits(tvm_f32_from_bits(magnitude) + unit) - c.unit_bits;
        uint32_t code = tvm_above32(c.least_normal, magnitude, subnormal, normal);
        code = tvm_above32(code, c.greatest, c.greatest, code);
        codes[j] = code | (bits >> 31) << c.sign_shift;
    }
}

INLINE void narrow_body(const uint32_t *restrict wide, uint8_t *restrict codes, size_t count) {
    for (size_t j = 0; j < count; j++) codes[j] = (uint8_t)wide[j];
}

INLINE void codes_body(const pack_coder *coder, load_f16 *load, bool fused, pack_float type,
                       const pack_rows *rows, const pack_divisors *by, uint8_t *codes, size_t code_stride) {
    float quotients[CHUNK] __attribute__((aligned(64)));
    uint32_t wide[CHUNK] __attribute__((aligned(64)));
    for (size_t i = 0; i < rows->rows; i++)
        for (size_t j = 0; j < rows->columns; j += CHUNK) {
            size_t count = rows->columns - j < CHUNK ? rows->columns - j : CHUNK, at = i * rows->stride + j;
            if (type == PACK_F16)
                load((const uint16_t *)rows->data + at, quotients, count);
            else if (type == PACK_BF16)
                load_bf16((const uint16_t *)rows->data + at, quotients, count);
            else
                memcpy(quotients, (const float *)rows->data + at, count * sizeof *quotients);
            if (fused)
                divide_fused(quotients, by->divisors + j, by->reciprocals + j, count);
            else
                divide(quotients, by->divisors + j, count);
            if (coder->type.kind == TVM_KIND_FLOAT)
                codes_float_body(coder, quotients, wide, count);
            else
                codes_integer_body(coder, quotients, by->offsets + j, wide, count);
            narrow_body(wide, codes + i * code_stride + j, count);
        }
}

INLINE void codes_of_any_body(const pack_coder *coder, load_f16 *load, bool fused, pack_float type,
                              const pack_rows *rows, const pack_divisors *by, uint8_t *codes,
                              size_t code_stride) {
    fused = fused && by->moderate;
    if (type == PACK_F16 && fused)
        codes_body(coder, load, true, PACK_F16, rows, by, codes, code_stride);
    else if (type == PACK_F16)
        codes_body(coder, load, false, PACK_F16, rows, by, codes, code_stride);
    else if (type == PACK_BF16 && fused)
        codes_body(coder, load, true, PACK_BF16, rows, by, codes, code_stride);
    else if (type == PACK_BF16)
        codes_body(coder, load, false, PACK_BF16, rows, by, codes, code_stride);
    else
        codes_body(coder, load, false, PACK_F32, rows, by, codes, code_stride);
}

INLINE void values_body(const float *restrict values, const uint8_t *restrict codes,
                        const float *restrict offsets, const float *restrict scales, size_t count,
                        float *restrict to) {
    for (size_t j = 0; j < count; j++) to[j] = values[codes[j]];
    for (size_t j = 0; j < count; j++) to[j] = (to[j] - offsets[j]) * scales[j];
}

INLINE void to_half_body(pack_float type, const float *restrict from, size_t count, uint16_t *restrict to) {
    if (type == PACK_F16)
        for (size_t j = 0; j < count; j++) to[j] = tvm_f32_to_f16(from[j]);
    else
        for (size_t j = 0; j < count; j++) to[j] = tvm_f32_to_bf16(from[j]);
}

INLINE unsigned copy_codes_body(unsigned half, unsigned mask, const uint8_t *restrict row,
                                uint8_t *restrict codes, size_t count) {
    uint8_t strange = 0;
    for (size_t j = 0; j < count; j++) {
        strange |= (uint8_t)(row[j] + half) & (uint8_t)~mask;
        codes[j] = row[j] & (uint8_t)mask;
    }
    return strange;
}

/* ---- bits ---- */

INLINE void bits_body(unsigned bits, const uint8_t *restrict codes, size_t groups, uint8_t *restrict string) {
    const uint64_t pairs = ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0001000100010001);
    const uint64_t pair = ((UINT64_C(1) << 2 * bits) - 1) * UINT64_C(0x0000000100000001);
    const uint64_t quad = (UINT64_C(1) << 4 * bits) - 1;
    for (size_t i = 0; i < groups; i++) {
        uint64_t word;
        memcpy(&word, codes + 8 * i, 8);
        word = (word & pairs) | (word >> (8 - bits) & pairs << bits);
        word = (word & pair) | (word >> (16 - 2 * bits) & pair << 2 * bits);
        word = (word & quad) | (word >> (32 - 4 * bits) & quad << 4 * bits);
        memcpy(string + i * bits, &word, 8);
    }
}

INLINE void move_body(const pack_moves *moves, const uint8_t *restrict codes, uint8_t *restrict scratch,
                      uint32_t *restrict words) {
    size_t count = moves->words;
    memset(words, 0, count * sizeof *words);
    for (unsigned s = 0; s < moves->slots; s++) {
        const uint32_t *restrict source = moves->source + s * count;
        const uint8_t *restrict mask = moves->mask + s * count;
        const uint8_t *restrict left = moves->left + s * count;
        const uint8_t *restrict right = moves->right + s * count;
        size_t w = 0;
        for (; w + 8 <= count; w += 8)
            for (unsigned u = 0; u < 8; u++) scratch[w + u] = codes[source[w + u]];
        for (; w < count; w++) scratch[w] = codes[source[w]];
        for (w = 0; w < count; w++) words[w] |= (uint32_t)(scratch[w] & mask[w]) << left[w] >> right[w];
    }
}

/* ---- one instance of every loop for each set of vector instructions ---- */

#define INSTANCES(suffix, attribute, fused)                                                                  \
    attribute static void extremes_16_##suffix(const pack_rows *rows, int32_t *greatest, int32_t *least) {   \
        extremes_16_body(rows, greatest, least);                                                             \
    }                                                                                                        \
    attribute static void extremes_32_##suffix(const pack_rows *rows, int32_t *greatest, int32_t *least) {   \
        extremes_32_body(rows, greatest, least);                                                             \
    }                                                                                                        \
    attribute static void codes_##suffix(const pack_coder *coder, pack_float type, const pack_rows *rows,    \
                                         const pack_divisors *by, uint8_t *codes, size_t code_stride) {      \
        codes_of_any_body(coder, load_f16_##suffix, fused, type, rows, by, codes, code_stride);              \
    }                                                                                                        \
    attribute static uint32_t scales_##suffix(const pack_scaler *scaler, pack_float type, size_t count,      \
                                              const int32_t *greatest, const int32_t *least,                 \
                                              uint16_t *scales, uint16_t *zeros, const pack_divisors *to) {  \
        return scales_of_any_body(scaler, type, count, greatest, least, scales, zeros, to);                  \
    }                                                                                                        \
    attribute static void values_##suffix(const float *values, const uint8_t *codes, const float *offsets,   \
                                          const float *scales, size_t count, float *to) {                    \
        values_body(values, codes, offsets, scales, count, to);                                              \
    }                                                                                                        \
    attribute static void to_half_##suffix(pack_float type, const float *from, size_t count, uint16_t *to) { \
        to_half_body(type, from, count, to);                                                                 \
    }                                                                                                        \
    attribute static void move_##suffix(const pack_moves *moves, const uint8_t *codes, uint8_t *scratch,     \
                                        uint32_t *words) {                                                   \
        move_body(moves, codes, scratch, words);                                                             \
    }

INSTANCES(baseline, , false)

#ifdef VECTOR_X86
INSTANCES(avx2, TARGET_256, true)
INSTANCES(avx512, TARGET_512, true)
#endif

bool tvm_pack_copy_codes(tvm_dtype type, bool sign_extended, const pack_rows *rows, uint8_t *codes,
                         size_t code_stride) {
    unsigned mask = (1u << type.bits) - 1, strange = 0;
    unsigned half = sign_extended && type.kind == TVM_KIND_INT ? 1u << (type.bits - 1) : 0;
    for (size_t i = 0; i < rows->rows; i++)
        strange |= copy_codes_body(half, mask, (const uint8_t *)rows->data + i * rows->stride,
                                   codes + i * code_stride, rows->columns);
    return !strange;
}

pack_scaler tvm_pack_scaler_make(tvm_dtype type, bool own_zeros, bool bf16) {
    pack_scaler scaler = {.bf16 = bf16, .positive = (1u << type.bits) - 1};
    double half = 1u << (type.bits - 1);
    if (type.kind == TVM_KIND_FLOAT) {
        scaler.positive = scaler.negative = tvm_decode(type, tvm_encode(type, 1e30));
        scaler.floor = !bf16 && type.exponent >= 4 ? 0x1p-14 : 0;
        return scaler;
    }
    scaler.scaling = own_zeros ? PACK_OWN_ZERO : type.bits == 1 ? PACK_ONE_BIT : PACK_SYMMETRIC;
    if (own_zeros) return scaler;
    scaler.positive = half - 1;
    scaler.negative = half;
    scaler.offset = type.kind == TVM_KIND_UINT ? (float)half : 0;
    return scaler;
}

bool tvm_pack_scales(const pack_scaler *scaler, pack_float type, size_t count, const int32_t *greatest,
                     const int32_t *least, uint16_t *scales, uint16_t *zeros, pack_divisors *to) {
    uint32_t odd;
    DISPATCH(odd = scales, (scaler, type, count, greatest, least, scales, zeros, to));
    to->moderate = !odd;
    return !(odd & 1);
}

void tvm_pack_extremes(pack_float type, const pack_rows *rows, int32_t *greatest, int32_t *least) {
    if (type == PACK_F32)
        DISPATCH(extremes_32, (rows, greatest, least));
    else
        DISPATCH(extremes_16, (rows, greatest, least));
}

void tvm_pack_codes(const pack_coder *coder, pack_float type, const pack_rows *rows, const pack_divisors *by,
                    uint8_t *codes, size_t code_stride) {
    DISPATCH(codes, (coder, type, rows, by, codes, code_stride));
}

void tvm_pack_values(const float values[256], const uint8_t *codes, const float *offsets, const float *scales,
                     size_t count, float *to) {
    DISPATCH(values, (values, codes, offsets, scales, count, to));
}

void tvm_pack_to_half(pack_float type, const float *from, size_t count, uint16_t *to) {
    DISPATCH(to_half, (type, from, count, to));
}

void tvm_pack_move(const pack_moves *moves, const uint8_t *codes, uint8_t *scratch, uint32_t *words) {
    DISPATCH(move, (moves, codes, scratch, words));
}

pack_coder tvm_pack_coder_make(tvm_dtype type) {
    pack_coder coder = {.type = type, .mask = (1u << type.bits) - 1};
    if (type.kind == TVM_KIND_UINT) {
        coder.high = (float)coder.mask;
    } else if (type.kind == TVM_KIND_INT) {
        coder.low = -(float)(1u << (type.bits - 1));
        coder.high = -coder.low - 1;
    } else {
        unsigned bias = (unsigned)tvm_float_bias(type);
        coder.shift = 23u - type.mantissa;
        coder.ties = type.mantissa == 0;
        coder.half = (1u << (coder.shift - 1)) - 1;
        coder.rebias = (127 - bias) << type.mantissa;
        coder.least_normal = (128 - bias) << 23;
        coder.greatest = (uint32_t)tvm_encode(type, 1e30);
        coder.unit_bits = (127 + 23 + 1 - bias - type.mantissa) << 23;
        coder.sign_shift = type.bits - 1u;
    }
    return coder;
}

void tvm_pack_bits(unsigned bits, const uint8_t *codes, size_t count, uint8_t *string) {
    size_t groups = count / 8;
    if (bits == 8)
        memcpy(string, codes, count);
    else
        for (unsigned b = 1; b < 8; b++)
            if (b == bits) bits_body(b, codes, groups, string);
    for (size_t i = groups * 8; i < count && bits < 8; i++) tvm_bits_set(string, i * bits, bits, codes[i]);
}

/* A square of TRANSPOSE_BYTES / item rows of TRANSPOSE_BYTES. */
#ifdef VECTOR_X86
enum { TRANSPOSE_BYTES = 16 };

INLINE __m128i interleaved(unsigned item, bool high, __m128i a, __m128i b) {
    if (item == 1) return high ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
    if (item == 2) return high ? _mm_unpackhi_epi16(a, b) : _mm_unpacklo_epi16(a, b);
    return high ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
}

/* The first half of the elements of all rows is interleaved with the second, until each element of a row has
 * gone to a row of its own. */
INLINE void transpose_square(unsigned item, const uint8_t *from, size_t from_stride, uint8_t *to,
                             size_t to_stride) {
    const unsigned count = TRANSPOSE_BYTES / item;
    __m128i rows[16], next[16];
    for (unsigned i = 0; i < count; i++) rows[i] = _mm_loadu_si128((const void *)(from + i * from_stride));
    for (unsigned step = count; step > 1; step /= 2) {
        for (unsigned i = 0; i < count / 2; i++) {
            next[2 * i] = interleaved(item, false, rows[i], rows[i + count / 2]);
            next[2 * i + 1] = interleaved(item, true, rows[i], rows[i + count / 2]);
        }
        for (unsigned i = 0; i < count; i++) rows[i] = next[i];
    }
    for (unsigned i = 0; i < count; i++) _mm_storeu_si128((void *)(to + i * to_stride), rows[i]);
}
#else
enum { TRANSPOSE_BYTES = 8 };

/* Halves, quarters and, of bytes, eighths are exchanged across the diagonal. */
INLINE void transpose_square(unsigned item, const uint8_t *from, size_t from_stride, uint8_t *to,
                             size_t to_stride) {
    static const uint64_t masks[5] = {0, 0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0, 0x00000000ffffffff};
    const unsigned count = TRANSPOSE_BYTES / item;
    uint64_t rows[8];
    for (unsigned i = 0; i < count; i++) memcpy(&rows[i], from + i * from_stride, 8);
    for (unsigned step = count / 2; step; step /= 2)
        for (unsigned i = 0; i < count; i++) {
            if (i & step) continue;
            uint64_t moved = (rows[i] >> 8 * item * step ^ rows[i + step]) & masks[item * step];
            rows[i] ^= moved << 8 * item * step;
            rows[i + step] ^= moved;
        }
    for (unsigned i = 0; i < count; i++) memcpy(to + i * to_stride, &rows[i], 8);
}
#endif

/* Columns from `begin` to `end`, in bytes, of all rows: what is left over at the ends element by element. */
INLINE void transpose_columns(unsigned item, const uint8_t *from, size_t from_stride, size_t rows,
                              size_t begin, size_t end, uint8_t *to, size_t to_stride) {
    const size_t side = TRANSPOSE_BYTES / item, whole_rows = rows - rows % side;
    const size_t whole_end = end - (end - begin) % TRANSPOSE_BYTES;
    enum { AHEAD = 4 };
    for (size_t i = 0; i < whole_rows; i += side) {
        /* rows that are far apart: no processor sees by itself which line is next */
        for (size_t ahead = i + AHEAD * side; ahead < i + (AHEAD + 1) * side; ahead++)
            __builtin_prefetch(from + (ahead < rows ? ahead : i) * from_stride + begin);
        for (size_t j = begin; j < whole_end; j += TRANSPOSE_BYTES)
            transpose_square(item, from + i * from_stride + j, from_stride,
                             to + j / item * to_stride + i * item, to_stride);
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = i < whole_rows ? whole_end : begin; j < end; j += item)
            memcpy(to + j / item * to_stride + i * item, from + i * from_stride + j, item);
}

/* A line of the cache of each row after the other, all of it, as rows may begin at the same place of the
 * cache. */
void tvm_pack_transpose(unsigned item, const void *from, size_t from_stride, size_t rows, size_t columns,
                        void *to, size_t to_stride) {
    enum { LINE = 64 };
    for (size_t begin = 0; begin < columns * item; begin += LINE) {
        size_t end = columns * item - begin < LINE ? columns * item : begin + LINE;
        if (item == 1)
            transpose_columns(1, from, from_stride, rows, begin, end, to, to_stride);
        else if (item == 2)
            transpose_columns(2, from, from_stride * 2, rows, begin, end, to, to_stride * 2);
        else
            transpose_columns(4, from, from_stride * 4, rows, begin, end, to, to_stride * 4);
    }
}
