/* What blocks of ggml's types mean, weight after weight, as ggml-quants.c defines it (dequantize_row_*), in
 * f32: its walks over the bytes, and nothing shared with vm/tools. */
#ifndef TVM_TESTS_GGUF_REFERENCE_H
#define TVM_TESTS_GGUF_REFERENCE_H

#include <stdint.h>
#include <string.h>

#include "convert.h"

static inline float gguf_half(const uint8_t *bytes) {
    uint16_t half = (uint16_t)(bytes[0] | bytes[1] << 8);
    return tvm_f16_to_f32(half);
}

static const float gguf_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const float gguf_e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void gguf_q4(const uint8_t *block, int minimum, float *y) {
    float d = gguf_half(block), least = minimum ? gguf_half(block + 2) : 0;
    const uint8_t *qs = block + (minimum ? 4 : 2);
    for (int j = 0; j < 16; j++) {
        y[j] = minimum ? (float)(qs[j] & 15) * d + least : (float)((qs[j] & 15) - 8) * d;
        y[j + 16] = minimum ? (float)(qs[j] >> 4) * d + least : (float)((qs[j] >> 4) - 8) * d;
    }
}

static inline void gguf_q5(const uint8_t *block, int minimum, float *y) {
    float d = gguf_half(block), least = minimum ? gguf_half(block + 2) : 0;
    const uint8_t *high = block + (minimum ? 4 : 2), *qs = high + 4;
    uint32_t qh = high[0] | (uint32_t)high[1] << 8 | (uint32_t)high[2] << 16 | (uint32_t)high[3] << 24;
    for (int j = 0; j < 16; j++) {
        int a = (qs[j] & 15) | (int)(qh >> j << 4 & 16), b = qs[j] >> 4 | (int)(qh >> (j + 12) & 16);
        y[j] = minimum ? (float)a * d + least : (float)(a - 16) * d;
        y[j + 16] = minimum ? (float)b * d + least : (float)(b - 16) * d;
    }
}

static inline void gguf_q8(const uint8_t *block, float *y) {
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)block[2 + j] * gguf_half(block);
}

static inline void gguf_mxfp4(const uint8_t *block, float *y) {
    float half = block[0] ? tvm_f32_from_bits((uint32_t)block[0] << 23) / 2 : tvm_f32_from_bits(0x00200000);
    for (int j = 0; j < 16; j++) {
        y[j] = gguf_e2m1_twice[block[1 + j] & 15] * half;
        y[j + 16] = gguf_e2m1_twice[block[1 + j] >> 4] * half;
    }
}

static inline void gguf_iq4_nl(const uint8_t *block, float *y) {
    for (int j = 0; j < 16; j++) {
        y[j] = gguf_half(block) * gguf_iq4[block[2 + j] & 15];
        y[j + 16] = gguf_half(block) * gguf_iq4[block[2 + j] >> 4];
    }
}

static inline void gguf_iq4_xs(const uint8_t *block, float *y) {
    const uint8_t *qs = block + 8;
    unsigned h = block[2] | (unsigned)block[3] << 8;
    for (int ib = 0; ib < 8; ib++, qs += 16, y += 32, h >>= 2) {
        int ls = (ib % 2 ? block[4 + ib / 2] >> 4 : block[4 + ib / 2] & 15) + (int)(h & 3) * 16;
        float dl = gguf_half(block) * (float)(ls - 32);
        for (int j = 0; j < 16; j++) {
            y[j] = dl * gguf_iq4[qs[j] & 15];
            y[j + 16] = dl * gguf_iq4[qs[j] >> 4];
        }
    }
}

static inline void gguf_q2_k(const uint8_t *block, float *y) {
    const uint8_t *scales = block, *q = block + 16;
    float d = gguf_half(block + 80), min = gguf_half(block + 82);
    for (int n = 0; n < 2; n++, q += 32)
        for (int shift = 0; shift < 8; shift += 2)
            for (int half = 0; half < 2; half++, scales++)
                for (int l = 0; l < 16; l++)
                    *y++ = d * (float)(*scales & 15) * (float)(q[16 * half + l] >> shift & 3) -
                           min * (float)(*scales >> 4);
}

static inline void gguf_q3_k(const uint8_t *block, float *y) {
    const uint8_t *hm = block, *q = block + 32, *packed = block + 96;
    float d = gguf_half(block + 108);
    unsigned mask = 1;
    int is = 0;
    for (int n = 0; n < 2; n++, q += 32)
        for (int shift = 0; shift < 8; shift += 2, mask <<= 1)
            for (int half = 0; half < 2; half++, is++) {
                int low = is < 8 ? packed[is] & 15 : packed[is - 8] >> 4,
                    high = packed[8 + is % 4] >> 2 * (is / 4) & 3;
                float dl = d * (float)((low | high << 4) - 32);
                for (int l = 16 * half; l < 16 * half + 16; l++)
                    *y++ = dl * (float)((q[l] >> shift & 3) - (hm[l] & mask ? 0 : 4));
            }
}

static inline void gguf_scale_min(int j, const uint8_t *q, float *d, float *least) {
    if (j < 4) {
        *d = (float)(q[j] & 63);
        *least = (float)(q[j + 4] & 63);
    } else {
        *d = (float)((q[j + 4] & 0xf) | (q[j - 4] >> 6 << 4));
        *least = (float)(q[j + 4] >> 4 | (q[j] >> 6 << 4));
    }
}

static inline void gguf_q45_k(const uint8_t *block, int bits, float *y) {
    const uint8_t *qh = block + 16, *ql = bits == 4 ? qh : qh + 32;
    float d = gguf_half(block), min = gguf_half(block + 2), sc, least;
    for (int is = 0; is < 8; is++) {
        gguf_scale_min(is, block + 4, &sc, &least);
        for (int l = 0; l < 32; l++) {
            int code = is % 2 ? ql[l] >> 4 : ql[l] & 15;
            if (bits == 5 && qh[l] & 1 << is) code += 16;
            *y++ = d * sc * (float)code - min * least;
        }
        if (is % 2) ql += 32;
    }
}

static inline void gguf_q6_k(const uint8_t *block, float *y) {
    const uint8_t *ql = block, *qh = block + 128;
    const int8_t *sc = (const int8_t *)(block + 192);
    float d = gguf_half(block + 208);
    for (int n = 0; n < 2; n++, y += 128, ql += 64, qh += 32, sc += 8)
        for (int l = 0; l < 32; l++) {
            int is = l / 16;
            y[l] = d * (float)sc[is] * (float)(((ql[l] & 15) | (qh[l] & 3) << 4) - 32);
            y[l + 32] = d * (float)sc[is + 2] * (float)(((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32);
            y[l + 64] = d * (float)sc[is + 4] * (float)((ql[l] >> 4 | (qh[l] >> 4 & 3) << 4) - 32);
            y[l + 96] = d * (float)sc[is + 6] * (float)((ql[l + 32] >> 4 | (qh[l] >> 6 & 3) << 4) - 32);
        }
}

/* A type: its number, the weights and bytes of a block, where its f16 numbers are (-1: none), and whether
 * every weight is held exactly by an import. */
typedef struct gguf_kind {
    const char *name;
    uint32_t number;
    unsigned weights, bytes;
    int halves[2];
    int exact;
} gguf_kind;

static const gguf_kind gguf_kinds[] = {
    {"Q4_0", 2, 32, 18, {0, -1}, 1},      {"Q4_1", 3, 32, 20, {0, 2}, 0},
    {"Q5_0", 6, 32, 22, {0, -1}, 1},      {"Q5_1", 7, 32, 24, {0, 2}, 0},
    {"Q8_0", 8, 32, 34, {0, -1}, 1},      {"Q2_K", 10, 256, 84, {80, 82}, 0},
    {"Q3_K", 11, 256, 110, {108, -1}, 0}, {"Q4_K", 12, 256, 144, {0, 2}, 0},
    {"Q5_K", 13, 256, 176, {0, 2}, 0},    {"Q6_K", 14, 256, 210, {208, -1}, 0},
    {"IQ4_NL", 20, 32, 18, {0, -1}, 1},   {"IQ4_XS", 23, 256, 136, {0, -1}, 0},
    {"MXFP4", 39, 32, 17, {-1, -1}, 1},
};
enum { GGUF_KINDS = sizeof gguf_kinds / sizeof *gguf_kinds };

static inline void gguf_dequantize(const gguf_kind *kind, const uint8_t *block, float *y) {
    switch (kind->number) {
    case 2:
    case 3:
        gguf_q4(block, kind->number == 3, y);
        break;
    case 6:
    case 7:
        gguf_q5(block, kind->number == 7, y);
        break;
    case 8:
        gguf_q8(block, y);
        break;
    case 10:
        gguf_q2_k(block, y);
        break;
    case 11:
        gguf_q3_k(block, y);
        break;
    case 12:
    case 13:
        gguf_q45_k(block, kind->number == 12 ? 4 : 5, y);
        break;
    case 14:
        gguf_q6_k(block, y);
        break;
    case 20:
        gguf_iq4_nl(block, y);
        break;
    case 23:
        gguf_iq4_xs(block, y);
        break;
    default:
        gguf_mxfp4(block, y);
    }
}

#endif
