/* The loops of tvm-pack over many weights: vector code, one instance for each set of vector instructions. */
#ifndef TVM_VM_PACK_VECTOR_H
#define TVM_VM_PACK_VECTOR_H

#include "types.h"

typedef enum pack_float { PACK_F16, PACK_BF16, PACK_F32 } pack_float;

/* The least number of columns from n on whose codes are whole bytes: those of a row of a plain bit string. */
static inline uint64_t pack_row_columns(tvm_dtype type, uint64_t n) {
    unsigned lowest = type.bits & (~type.bits + 1u); /* the power of two that divides the bits */
    uint64_t step = lowest < 8 ? 8 / lowest : 1;
    return (n + step - 1) / step * step;
}

/* A matrix of floats in memory, row after row. */
typedef struct pack_rows {
    const void *data;
    size_t stride; /* elements from a row to the next */
    size_t rows, columns;
} pack_rows;

/* A float as a signed number of the same order: the bits of magnitude, complemented when it is negative. NaN
 * and infinity lie outside of all finite ones. */
static inline int32_t pack_key_f32(uint32_t bits) {
    return (int32_t)(bits ^ ((uint32_t) - (int32_t)(bits >> 31) & 0x7fffffff));
}
static inline uint32_t pack_key_bits(int32_t key) {
    return (uint32_t)key ^ ((uint32_t) - (int32_t)((uint32_t)key >> 31) & 0x7fffffff);
}

/* Raises greatest[j] and lowers least[j] by the keys of column j. 16-bit floats: the key of the f32 with
 * these upper bits, or of the f16's own bits in the upper half. */
void tvm_pack_extremes(pack_float type, const pack_rows *rows, int32_t *greatest, int32_t *least);

/* The ways to choose scales. */
typedef enum pack_scaling {
    PACK_SYMMETRIC, /* (code - offset) * scale, the scale such that neither end of the codes is passed */
    PACK_ONE_BIT,   /* the same of u1 with offset 1, whose values are 0 and -scale: a scale of either sign */
    PACK_OWN_ZERO   /* (code - zero) * scale, over the range of the weights and 0 */
} pack_scaling;

typedef struct pack_scaler {
    pack_scaling scaling;
    bool bf16;                 /* the scales' type; else f16 */
    double positive, negative; /* largest code above and below the offset; of PACK_OWN_ZERO the greatest code
                                  is `positive` */
    float offset;
    /* Floats of a wide range: a scale below `floor` becomes `floor` when weights reach it (an f16 scale would
     * lose its precision, or be zero, where the code has exponents to spare). Else 0. */
    double floor;
} pack_scaler;
pack_scaler tvm_pack_scaler_make(tvm_dtype type, bool own_zeros, bool bf16);

/* What weights are divided by, for each column. Scales are moderate when all are zero or between 2^-24 and
 * 2^40 (every f16 is); that of a zero scale is 2^100, which is beyond any weight that gets one. */
typedef struct pack_divisors {
    float *divisors, *reciprocals;
    float *offsets; /* added to the quotient of an integer type: whole numbers */
    bool moderate;
} pack_divisors;
#define PACK_MODERATE_LEAST    0x33800000u
#define PACK_MODERATE_GREATEST 0x53800000u
#define PACK_ZERO_DIVISOR      0x71800000u

/* Of `count` columns of groups. greatest and least are keys as pack_extremes leaves them, of finite weights.
 * false when a scale is beyond the type of scales. */
bool tvm_pack_scales(const pack_scaler *scaler, pack_float type, size_t count, const int32_t *greatest,
                     const int32_t *least, uint16_t *scales, uint16_t *zeros, pack_divisors *to);

/* How a type's codes are made of quotients. */
typedef struct pack_coder {
    tvm_dtype type;
    float low, high; /* integers: the least and the greatest code as a number */
    uint32_t mask;
    /* floats: see codes_float_body */
    uint32_t shift, half, ties, rebias, least_normal, greatest, unit_bits, sign_shift;
} pack_coder;
pack_coder tvm_pack_coder_make(tvm_dtype type);

/* codes[i * code_stride + j] = the code nearest to weight[i][j] / divisors[j]: for floats tvm_encode's; for
 * integers the quotient to nearest even, plus offsets[j], saturating. The weights are finite.
 *
 * The quotient q is a correctly rounded f32. That it rounds to the code to which the exact quotient w/s does:
 * let h be a number half-way between two codes. h has at most 9 significant bits and s at most 11, so that
 * h*s is an f32, and a weight w that is not h*s differs from it by a unit in the last place or more (half of
 * one below a power of two). With significands m_h and m_s in [1, 2) the distance of w/s from h is then at
 * least 2/m_s > 1 + 2^-11 times half a unit in the last place of h (m_h > 1 + 2^-9 times below a power of
 * two), so that q is not h and lies on the same side of it.
 *
 * Of moderate scales and 16-bit weights the quotient is made of the reciprocal r instead, where there is a
 * fused multiply-add: q0 = w*r, e = w - q0*s (exact: q0 is within two units of w/s), q = q0 + e*r, which is
 * w/s with a relative error of 2^-24 in its last two units, rounded: far less than the margin above, and h
 * itself when w = h*s. */
void tvm_pack_codes(const pack_coder *coder, pack_float type, const pack_rows *rows, const pack_divisors *by,
                    uint8_t *codes, size_t code_stride);

/* to[j] = (values[codes[j]] - offsets[j]) * scales[j], one rounding; and those as f16 or bf16. */
void tvm_pack_values(const float values[256], const uint8_t *codes, const float *offsets, const float *scales,
                     size_t count, float *to);
void tvm_pack_to_half(pack_float type, const float *from, size_t count, uint16_t *to);

/* Copies given codes, one per byte; false when one is no code of the type. Codes of signed types may be their
 * values, sign-extended. */
bool tvm_pack_copy_codes(tvm_dtype type, bool sign_extended, const pack_rows *rows, uint8_t *codes,
                         size_t code_stride);

/* Compact bit string of `count` codes of 1 to 8 bits, count * bits a multiple of 8. `string` may be written
 * up to 7 bytes past its end. */
void tvm_pack_bits(unsigned bits, const uint8_t *codes, size_t count, uint8_t *string);

/* Bits moved within a tile: word w of the result is the OR over `slots` of
 * (codes[source] & mask) << left >> right, each at [slot * words + w]. */
typedef struct pack_moves {
    size_t words;
    unsigned slots;
    const uint32_t *source;
    const uint8_t *mask, *left, *right;
} pack_moves;
/* scratch: `words` bytes. */
void tvm_pack_move(const pack_moves *moves, const uint8_t *codes, uint8_t *scratch, uint32_t *words);

/* to[j * to_stride + i] = from[i * from_stride + j], elements of 1, 2 or 4 bytes. */
void tvm_pack_transpose(unsigned item, const void *from, size_t from_stride, size_t rows, size_t columns,
                        void *to, size_t to_stride);

#endif
