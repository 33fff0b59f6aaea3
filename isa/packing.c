#include "packing.h"

#include <stddef.h>

const char *const tvm_packing_names[TVM_PACKING_COUNT] = {"linear", "pair"};

#define SHIFT(a, amount)                                                                                     \
    { TVM_VIEW_SHIFT, (a), 0, (amount) }
#define BYTES(a, i, b, j)                                                                                    \
    { TVM_VIEW_BYTES, (a), (b), (i) + 2 * (j) }
#define SELECT(mask, a, b)                                                                                   \
    { TVM_VIEW_SELECT, (a), (b), (mask) }

/* By width. A window of ten bits is reached in each half of a view. Where the width divides it badly, pieces
 * of two words are put together: for free by BYTES, when the upper piece is at most the two lowest bits of a
 * byte, as bytes are moved anyway; else by a SELECT of views whose pieces lie in their places already. Widths
 * that divide 8 alternate: two pairs of the lower bytes, two of the upper ones, as mma's fragments do. */
static const tvm_pair_recipe recipes[9] = {
    [1] = {1,
           1,
           16,
           {SHIFT(0, 8)},
           {{0, 0},
            {0, 1},
            {1, 0},
            {1, 1},
            {0, 2},
            {0, 3},
            {1, 2},
            {1, 3},
            {0, 4},
            {0, 5},
            {1, 4},
            {1, 5},
            {0, 6},
            {0, 7},
            {1, 6},
            {1, 7}}},
    [2] = {1, 1, 8, {SHIFT(0, 8)}, {{0, 0}, {0, 2}, {1, 0}, {1, 2}, {0, 4}, {0, 6}, {1, 4}, {1, 6}}},
    [3] = {3,
           3,
           16,
           {BYTES(0, 1, 1, 0), SHIFT(1, 10), BYTES(2, 1, 1, 1)},
           {{0, 0},
            {0, 3},
            {0, 6},
            {3, 1},
            {3, 4},
            {3, 7},
            {1, 2},
            {1, 5},
            {4, 0},
            {4, 3},
            {2, 0},
            {2, 3},
            {2, 6},
            {5, 1},
            {5, 4},
            {5, 7}}},
    [4] = {1, 1, 4, {SHIFT(0, 8)}, {{0, 0}, {0, 4}, {1, 0}, {1, 4}}},
    [5] = {5,
           8,
           16,
           {SHIFT(0, 10), SHIFT(1, 6), SELECT(0x0020, 5, 6), SHIFT(2, 9), SELECT(0x000e, 8, 6),
            BYTES(3, 1, 4, 0), SELECT(0x000c, 10, 8), SHIFT(4, 6)},
           {{0, 0},
            {0, 5},
            {5, 0},
            {7, 5},
            {1, 0},
            {1, 5},
            {9, 1},
            {2, 0},
            {2, 5},
            {11, 2},
            {3, 0},
            {3, 5},
            {10, 4},
            {4, 1},
            {12, 0},
            {12, 5}}},
    [6] = {3,
           5,
           8,
           {SHIFT(0, 6), BYTES(0, 1, 1, 0), SHIFT(1, 10), SHIFT(2, 6), BYTES(2, 1, 1, 1)},
           {{0, 0}, {3, 0}, {4, 4}, {1, 2}, {5, 0}, {2, 0}, {6, 0}, {7, 4}}},
    [7] = {7,
           11,
           16,
           {SHIFT(0, 9), BYTES(1, 1, 0, 0), SHIFT(1, 4), SELECT(0x0007, 2, 9), BYTES(2, 1, 3, 0), SHIFT(3, 9),
            BYTES(4, 1, 3, 1), SHIFT(5, 4), SELECT(0x0007, 4, 14), BYTES(5, 1, 6, 0), SHIFT(6, 9)},
           {{0, 2},
            {7, 0},
            {8, 3},
            {1, 0},
            {10, 0},
            {2, 3},
            {11, 2},
            {3, 1},
            {12, 0},
            {13, 2},
            {4, 3},
            {15, 0},
            {5, 0},
            {16, 3},
            {6, 2},
            {17, 0}}},
    [8] = {1, 1, 2, {SHIFT(0, 8)}, {{0, 0}, {1, 0}}},
};

static bool is_nibble_float(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits <= 4;
}

const tvm_pair_recipe *tvm_pair_recipe_of(tvm_dtype type) {
    return tvm_dtype_is_lowbit(type) && !is_nibble_float(type) ? &recipes[type.bits] : NULL;
}

/* Floats of 3 and 4 bits lie so that the lower three bits of nibbles are indices of a table. f4, of which a
 * word holds eight: the magnitudes there; in the nibbles' upper bits the signs, of each four elements at the
 * tops of the bytes or 4 bits below. f3, 32 elements in three words: 24 codes there, the last eight a bit in
 * each word's nibbles. */
static uint32_t nibble_bit(tvm_dtype type, uint32_t element, unsigned bit) {
    if (type.bits == 4) {
        uint32_t in = element % 8;
        return element / 8 * 32 + (bit < 3 ? in * 4 + bit : in % 4 * 8 + (in < 4 ? 7 : 3));
    }
    uint32_t in = element % 32, block = element / 32 * 96;
    return block + (in < 24 ? in * 4 + bit : bit * 32 + (in - 24) * 4 + 3);
}

bool tvm_packing_takes(tvm_packing packing, tvm_dtype type) {
    return packing == TVM_PACKING_LINEAR || (packing == TVM_PACKING_PAIR && tvm_dtype_is_lowbit(type));
}

uint32_t tvm_packing_block(tvm_packing packing, tvm_dtype type) {
    if (packing != TVM_PACKING_PAIR || !tvm_dtype_is_lowbit(type)) return 1;
    return 2u * recipes[type.bits].pairs;
}

/* Where bit `bit` of the halves of a view comes from: the bit of the block's words' lower halves, word * 32 +
 * bit. */
static uint32_t trace(const tvm_pair_recipe *recipe, unsigned view, unsigned bit) {
    while (view >= recipe->words) {
        const tvm_pair_view *v = &recipe->view[view - recipe->words];
        switch (v->op) {
        case TVM_VIEW_SHIFT:
            bit += v->amount;
            view = v->a;
            break;
        case TVM_VIEW_BYTES:
            view = bit < 8 ? v->a : v->b;
            bit = bit % 8 + 8u * (bit < 8 ? v->amount % 2u : v->amount / 2u);
            break;
        default:
            view = v->amount >> bit & 1 ? v->a : v->b;
        }
    }
    return view * 32 + bit;
}

uint32_t tvm_packing_bit(tvm_packing packing, tvm_dtype type, uint32_t element, unsigned bit) {
    if (packing == TVM_PACKING_PAIR && is_nibble_float(type)) return nibble_bit(type, element, bit);
    const tvm_pair_recipe *recipe = packing == TVM_PACKING_PAIR ? tvm_pair_recipe_of(type) : NULL;
    if (!recipe) return element * type.bits + bit;
    uint32_t pair = element / 2, block = pair / recipe->pairs;
    const tvm_pair_field *field = &recipe->field[pair % recipe->pairs];
    return block * recipe->words * 32 + element % 2 * 16 + trace(recipe, field->view, field->offset + bit);
}

unsigned tvm_packing_runs(tvm_packing packing, tvm_dtype type, uint32_t element,
                          tvm_packing_run runs[TVM_PACKING_RUNS]) {
    unsigned count = 0;
    for (unsigned b = 0; b < type.bits; b++) {
        uint32_t bit = tvm_packing_bit(packing, type, element, b);
        if (count > 0 && runs[count - 1].bit + runs[count - 1].count == bit && bit % 32 != 0) {
            runs[count - 1].count++;
        } else {
            runs[count++] = (tvm_packing_run){bit, (uint8_t)b, 1};
        }
    }
    return count;
}
