/* Layers of GGUF files: the blocks of ggml, as src/ggml-common.h and its reference dequantizers
 * (ggml-quants.c) define them. A row of a tensor, which is a column of W, is blocks of 32 or 256 weights,
 * each with its scales: a weight is code * scale + offset, where the scale and the offset of a group of 16 or
 * 32 are f16, or small integers times an f16 of the block. Products of the latter are exact here, in f64. */
#include "checkpoint_impl.h"

#include <stdlib.h>

struct ck_blocks {
    const char *name; /* of the type, in the file */
    tvm_dtype type;   /* of the codes that are made */
    unsigned group;
    tvm_dtype numbers; /* of the scales; f32 where they are products */
    /* The 32 codes of a block from weight `at` on, a multiple of 32. */
    void (*codes)(const uint8_t *block, unsigned at, uint8_t to[32]);
    double (*scale)(const uint8_t *block, unsigned group);
    double (*offset)(const uint8_t *block, unsigned group); /* NULL: the codes' own zero is 0 */
    unsigned weights, bytes;                                /* of a block */
};

static double half_at(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return (double)tvm_f16_to_f32(half);
}

/* ---- codes ---- */

/* Sixteen bytes: the lower halves are codes 0 to 15, the upper ones 16 to 31. */
static void halves(const uint8_t *bytes, uint8_t to[32]) {
    for (unsigned i = 0; i < 16; i++) {
        to[i] = bytes[i] & 15;
        to[16 + i] = bytes[i] >> 4;
    }
}

/* Adds bit i of the four bytes to code i. */
static void add_bits(const uint8_t *bytes, unsigned place, uint8_t to[32]) {
    for (unsigned i = 0; i < 32; i++) to[i] = (uint8_t)(to[i] | (bytes[i / 8] >> i % 8 & 1) << place);
}

/* Two bits of 32 codes in each of 32 bytes: four such rows of codes are in a byte, 128 codes in the 32. */
static void pairs(const uint8_t *bytes, unsigned at, unsigned place, uint8_t to[32]) {
    const uint8_t *from = bytes + at / 128 * 32;
    unsigned shift = at % 128 / 32 * 2;
    for (unsigned i = 0; i < 32; i++) to[i] = (uint8_t)(to[i] | (from[i] >> shift & 3) << place);
}

/* Bit at / 32 of 32 bytes. */
static void add_mask(const uint8_t *bytes, unsigned at, unsigned place, uint8_t to[32]) {
    for (unsigned i = 0; i < 32; i++) to[i] = (uint8_t)(to[i] | (bytes[i] >> at / 32 & 1) << place);
}

/* The values of IQ4_NL and IQ4_XS (kvalues_iq4nl), as codes of i8. */
static void look_up(uint8_t to[32]) {
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    for (unsigned i = 0; i < 32; i++) to[i] = (uint8_t)values[to[i] & 15];
}

static void codes_q4_0(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 2, to);
}
static void codes_q4_1(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 4, to);
}
static void codes_q5_0(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 6, to);
    add_bits(block + 2, 4, to);
}
static void codes_q5_1(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 8, to);
    add_bits(block + 4, 4, to);
}
static void codes_q8_0(const uint8_t *block, unsigned at, uint8_t to[32]) {
    memcpy(to, block + 2 + at, 32);
}
static void codes_iq4_nl(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 2, to);
    look_up(to);
}
static void codes_mxfp4(const uint8_t *block, unsigned at, uint8_t to[32]) {
    (void)at;
    halves(block + 1, to);
}
static void codes_iq4_xs(const uint8_t *block, unsigned at, uint8_t to[32]) {
    halves(block + 8 + at / 2, to);
    look_up(to);
}
static void codes_q2_k(const uint8_t *block, unsigned at, uint8_t to[32]) {
    memset(to, 0, 32);
    pairs(block + 16, at, 0, to);
}
static void codes_q3_k(const uint8_t *block, unsigned at, uint8_t to[32]) {
    memset(to, 0, 32);
    pairs(block + 32, at, 0, to);
    add_mask(block, at, 2, to);
}
/* 32 bytes have 64 codes. */
static void nibbles(const uint8_t *bytes, unsigned at, uint8_t to[32]) {
    const uint8_t *from = bytes + at / 64 * 32;
    for (unsigned i = 0; i < 32; i++) to[i] = from[i] >> at % 64 / 32 * 4 & 15;
}
static void codes_q4_k(const uint8_t *block, unsigned at, uint8_t to[32]) {
    nibbles(block + 16, at, to);
}
static void codes_q5_k(const uint8_t *block, unsigned at, uint8_t to[32]) {
    nibbles(block + 48, at, to);
    add_mask(block + 16, at, 4, to);
}
/* 64 bytes have 128 codes: the lower halves 0 to 63, the upper ones 64 to 127. */
static void codes_q6_k(const uint8_t *block, unsigned at, uint8_t to[32]) {
    const uint8_t *from = block + at / 128 * 64 + at % 64;
    for (unsigned i = 0; i < 32; i++) to[i] = from[i] >> at % 128 / 64 * 4 & 15;
    pairs(block + 128, at, 4, to);
}

/* ---- scales and offsets ---- */

static double scale_first(const uint8_t *block, unsigned group) {
    (void)group;
    return half_at(block);
}
static double offset_second(const uint8_t *block, unsigned group) {
    (void)group;
    return half_at(block + 2);
}
static double scale_mxfp4(const uint8_t *block, unsigned group) {
    (void)group;
    return tvm_decode(TVM_E8M0, block[0]);
}
static double scale_q2_k(const uint8_t *block, unsigned group) {
    return half_at(block + 80) * (block[group] & 15);
}
static double offset_q2_k(const uint8_t *block, unsigned group) {
    return -half_at(block + 82) * (block[group] >> 4);
}
/* Sixteen scales of 6 bits: the lower four of scale g in the halves of bytes 0 to 7, the upper two in bytes 8
 * to 11. */
static double scale_q3_k(const uint8_t *block, unsigned group) {
    const uint8_t *packed = block + 96;
    int low = packed[group % 8] >> group / 8 * 4 & 15, high = packed[8 + group % 4] >> group / 4 * 2 & 3;
    return half_at(block + 108) * ((low | high << 4) - 32);
}
/* Eight scales and as many offsets of 6 bits in 12 bytes: 0 to 3 in the lower six bits of bytes 0 to 3, and 4
 * to 7; of 4 to 7 the lower four bits in bytes 8 to 11, the upper two in those of the bytes 0 to 3, and 4
 * to 7. */
static int six_bits(const uint8_t *packed, unsigned group, unsigned second) {
    if (group < 4) return packed[4 * second + group] & 63;
    return (packed[4 + group] >> 4 * second & 15) | packed[4 * second + group - 4] >> 6 << 4;
}
static double scale_q4_k(const uint8_t *block, unsigned group) {
    return half_at(block) * six_bits(block + 4, group, 0);
}
static double offset_q4_k(const uint8_t *block, unsigned group) {
    return -half_at(block + 2) * six_bits(block + 4, group, 1);
}
static double scale_q6_k(const uint8_t *block, unsigned group) {
    return half_at(block + 208) * (int8_t)block[192 + group];
}
static double scale_iq4_xs(const uint8_t *block, unsigned group) {
    unsigned high = block[2] | (unsigned)block[3] << 8;
    int scale = (block[4 + group / 2] >> group % 2 * 4 & 15) | (int)(high >> 2 * group & 3) << 4;
    return half_at(block) * (scale - 32);
}

#define UNSIGNED(bits)                                                                                       \
    { TVM_KIND_UINT, bits, 0, 0 }
#define SIGNED8                                                                                              \
    { TVM_KIND_INT, 8, 0, 0 }
#define HALF                                                                                                 \
    { TVM_KIND_FLOAT, 16, 5, 10 }
#define PRODUCT                                                                                              \
    { TVM_KIND_FLOAT, 32, 8, 23 }

static const struct ck_blocks forms[] = {
    {"Q4_0", UNSIGNED(4), 32, HALF, codes_q4_0, scale_first, NULL, 32, 18},
    {"Q4_1", UNSIGNED(4), 32, HALF, codes_q4_1, scale_first, offset_second, 32, 20},
    {"Q5_0", UNSIGNED(5), 32, HALF, codes_q5_0, scale_first, NULL, 32, 22},
    {"Q5_1", UNSIGNED(5), 32, HALF, codes_q5_1, scale_first, offset_second, 32, 24},
    {"Q8_0", SIGNED8, 32, HALF, codes_q8_0, scale_first, NULL, 32, 34},
    {"MXFP4",
     {TVM_KIND_FLOAT, 4, 2, 1},
     32,
     {TVM_KIND_FLOAT, 8, 8, 0},
     codes_mxfp4,
     scale_mxfp4,
     NULL,
     32,
     17},
    {"IQ4_NL", SIGNED8, 32, HALF, codes_iq4_nl, scale_first, NULL, 32, 18},
    {"IQ4_XS", SIGNED8, 32, PRODUCT, codes_iq4_xs, scale_iq4_xs, NULL, 256, 136},
    {"Q2_K", UNSIGNED(2), 16, PRODUCT, codes_q2_k, scale_q2_k, offset_q2_k, 256, 84},
    {"Q3_K", UNSIGNED(3), 16, PRODUCT, codes_q3_k, scale_q3_k, NULL, 256, 110},
    {"Q4_K", UNSIGNED(4), 32, PRODUCT, codes_q4_k, scale_q4_k, offset_q4_k, 256, 144},
    {"Q5_K", UNSIGNED(5), 32, PRODUCT, codes_q5_k, scale_q4_k, offset_q4_k, 256, 176},
    {"Q6_K", UNSIGNED(6), 16, PRODUCT, codes_q6_k, scale_q6_k, NULL, 256, 210},
};

static const struct ck_blocks *form_of(const ck_tensor *tensor) {
    for (size_t i = 0; tensor->header->type.kind == TVM_KIND_NONE && i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(tensor->header->dtype, forms[i].name)) return &forms[i];
    return NULL;
}

bool ck_is_blocks(const ck_layer *layer) {
    return layer->codes.change != NULL && layer->codes.header->type.kind == TVM_KIND_NONE;
}

tvm_status ck_plan_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const tvm_safetensor *header = layer->codes.header;
    const struct ck_blocks *form = layer->blocks = form_of(&layer->codes);
    if (!form)
        return ck_refuse(
            c, layer, TVM_UNSUPPORTED, diags,
            "it is of type %.20s, which is not read; quantize the model again, to Q4_K_M for instance, with "
            "llama-quantize",
            header->dtype);
    if (header->rank < 2) return ck_refuse(c, layer, TVM_FORMAT, diags, "it is quantized, but a vector");
    layer->k = ck_extent(&layer->codes, 0);
    layer->n = ck_extent(&layer->codes, 1);
    layer->stacked = header->rank == 3;
    layer->count = layer->stacked ? ck_extent(&layer->codes, 2) : 1;
    if (header->rank > 3) return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "it has four extents");
    layer->type = form->type;
    layer->bits = form->type.bits;
    layer->group = form->group;
    layer->numbers = form->numbers;
    layer->own_zeros = layer->has_offsets = form->offset != NULL;
    layer->pitch = layer->k / form->weights * form->bytes;
    layer->plain = layer->codes.change->plain;
    return TVM_OK;
}

/* Column `column` of W, which is a row of the file. */
static const uint8_t *row_of(const ck_layer *layer, uint64_t index, uint64_t column) {
    return layer->codes.data + (index * layer->n + ck_row_of_file(&layer->codes, column)) * layer->pitch;
}

void ck_take_blocks(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride) {
    const struct ck_blocks *form = layer->blocks;
    for (uint64_t j = 0; j < columns; j++) {
        const uint8_t *row = row_of(layer, index, column + j);
        for (uint64_t i = 0; i < count; i += 32) { /* rows follow one another, and k is whole blocks */
            uint8_t codes[32];
            form->codes(row + rows[i] / form->weights * form->bytes, (unsigned)(rows[i] % form->weights),
                        codes);
            for (unsigned l = 0; l < 32; l++) to[(i + l) * stride + j] = codes[l];
        }
    }
}

static double of_group(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column,
                       double (*number)(const uint8_t *block, unsigned group)) {
    unsigned groups = layer->blocks->weights / layer->blocks->group;
    return number(row_of(layer, index, column) + group / groups * layer->blocks->bytes,
                  (unsigned)(group % groups));
}

double ck_scale_blocks(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    return of_group(layer, index, group, column, layer->blocks->scale);
}

double ck_offset_blocks(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    return of_group(layer, index, group, column, layer->blocks->offset);
}

const char *ck_blocks_name(const ck_layer *layer) {
    return layer->blocks ? layer->blocks->name : NULL;
}
