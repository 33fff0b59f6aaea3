#include "vector.h"

#include "checkpoint_impl.h"
#include "pack_vector.h"

enum { TURNED_ROWS = 64, TURNED_COLUMNS = 64 };

/* One row of codes from a row of words that has them all at the same place, or cut in two. */
INLINE void shifted_body(const uint8_t *restrict words, unsigned shift, uint32_t mask, uint64_t columns,
                         uint8_t *restrict to) {
    for (uint64_t j = 0; j < columns; j++) to[j] = (uint8_t)(ck_word_at(words, j) >> shift & mask);
}

/* Adds the bits of a further plane. */
INLINE void plane_body(const uint8_t *restrict words, unsigned shift, unsigned width, unsigned lowest,
                       uint64_t columns, uint8_t *restrict to) {
    uint32_t mask = (1u << width) - 1;
    for (uint64_t j = 0; j < columns; j++)
        to[j] = (uint8_t)(to[j] | (ck_word_at(words, j) >> shift & mask) << lowest);
}

static void cut_in_two(const uint8_t *words, const uint8_t *next, unsigned shift, uint32_t mask,
                       uint64_t columns, uint8_t *to) {
    for (uint64_t j = 0; j < columns; j++)
        to[j] = (uint8_t)((ck_word_at(words, j) >> shift | ck_word_at(next, j) << (32 - shift)) & mask);
}

INLINE void awq_body(const uint8_t *restrict words, uint64_t count, uint8_t *restrict to) {
    for (uint64_t w = 0; w < count; w++) {
        uint32_t word = ck_word_at(words, w);
        for (unsigned j = 0; j < 8; j++) to[8 * w + j] = word >> ck_awq_shift(j) & 15;
    }
}

/* Both codes of each byte; `upper`: 1 where that of the upper half is the first. */
INLINE void nibbles_body(const uint8_t *restrict from, uint64_t count, unsigned upper, uint8_t *restrict to) {
    for (uint64_t i = 0; i < count / 2; i++) {
        to[2 * i + upper] = from[i] & 15;
        to[2 * i + (upper ^ 1)] = from[i] >> 4;
    }
}

#define INSTANCES(suffix, attribute)                                                                         \
    attribute static void shifted_##suffix(const uint8_t *words, unsigned shift, uint32_t mask,              \
                                           uint64_t columns, uint8_t *to) {                                  \
        shifted_body(words, shift, mask, columns, to);                                                       \
    }                                                                                                        \
    attribute static void plane_##suffix(const uint8_t *words, unsigned shift, unsigned width,               \
                                         unsigned lowest, uint64_t columns, uint8_t *to) {                   \
        plane_body(words, shift, width, lowest, columns, to);                                                \
    }                                                                                                        \
    attribute static void awq_##suffix(const uint8_t *words, uint64_t count, uint8_t *to) {                  \
        awq_body(words, count, to);                                                                          \
    }                                                                                                        \
    attribute static void nibbles_##suffix(const uint8_t *from, uint64_t count, unsigned upper,              \
                                           uint8_t *to) {                                                    \
        if (upper)                                                                                           \
            nibbles_body(from, count, 1, to);                                                                \
        else                                                                                                 \
            nibbles_body(from, count, 0, to);                                                                \
    }

INSTANCES(baseline, )

#ifdef VECTOR_X86
INSTANCES(avx2, TARGET_256)
INSTANCES(avx512, TARGET_512)
#endif

/* Row `row` of planes. */
static void take_planes(const ck_layer *layer, uint64_t row, uint64_t column, uint64_t columns, uint8_t *to) {
    for (ck_plane plane = {0}; ck_next_plane(layer->bits, &plane);) {
        unsigned shift;
        uint64_t word = ck_plane_word(layer->bits, plane, row, &shift);
        const uint8_t *words = layer->codes.data + (word * layer->n + column) * 4;
        if (!plane.lowest)
            DISPATCH(shifted, (words, shift, (1u << plane.width) - 1, columns, to));
        else
            DISPATCH(plane, (words, shift, plane.width, plane.lowest, columns, to));
    }
}

void ck_take_gptq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                  uint64_t column, uint64_t columns, uint8_t *to, size_t stride) {
    unsigned bits = layer->bits;
    uint32_t mask = (1u << bits) - 1;
    (void)index;
    for (uint64_t i = 0; i < count; i++, to += stride) {
        unsigned shift = rows[i] * bits % 32;
        const uint8_t *words = layer->codes.data + (rows[i] * bits / 32 * layer->n + column) * 4;
        if (layer->planar)
            take_planes(layer, rows[i], column, columns, to);
        else if (shift + bits <= 32)
            DISPATCH(shifted, (words, shift, mask, columns, to));
        else
            cut_in_two(words, words + layer->n * 4, shift, mask, columns, to);
    }
}

void ck_take_awq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count, uint64_t column,
                 uint64_t columns, uint8_t *to, size_t stride) {
    (void)index;
    for (uint64_t i = 0; i < count; i++, to += stride)
        DISPATCH(awq, (layer->codes.data + (rows[i] * layer->n + column) / 2, columns / 8, to));
}

/* Rows of W that follow each other, of codes that are halves of bytes or bytes: `data` is the first one's
 * column. */
static void take_block(const ck_layer *layer, const uint8_t *data, uint64_t width, uint64_t count,
                       uint64_t columns, uint8_t *to, size_t stride) {
    unsigned bits = layer->bits;
    uint8_t block[TURNED_COLUMNS * TURNED_ROWS];
    for (uint64_t start = 0; start < columns; start += TURNED_COLUMNS) {
        uint64_t some = columns - start < TURNED_COLUMNS ? columns - start : TURNED_COLUMNS;
        const uint8_t *from = data + start * width;
        for (uint64_t j = 0; bits == 4 && j < some; j++)
            DISPATCH(nibbles, (from + j * width, count, layer->upper_first, block + j * TURNED_ROWS));
        tvm_pack_transpose(1, bits == 4 ? block : from, bits == 4 ? TURNED_ROWS : width, some, count,
                           to + start, stride);
    }
}

void ck_take_turned(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride) {
    unsigned bits = layer->bits, a_word = 32 / bits;
    uint64_t width = layer->pitch;
    const uint8_t *data = layer->codes.data + (index * layer->n + column) * width;
    if (!layer->order && (bits == 4 || bits == 8) && count <= TURNED_ROWS && (count * bits) % 8 == 0) {
        take_block(layer, data + rows[0] * bits / 8, width, count, columns, to, stride);
        return;
    }
    for (uint64_t j = 0; j < columns; j++, data += width)
        for (uint64_t i = 0; i < count; i++) {
            uint64_t bit = layer->dense ? rows[i] * bits : rows[i] / a_word * 32 + rows[i] % a_word * bits;
            to[i * stride + j] = (uint8_t)ck_string_at(data, bit, bits);
        }
}
