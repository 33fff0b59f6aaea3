#include "packing.h"

#include <stddef.h>

const char *const tvm_packing_names[TVM_PACKING_COUNT] = {"linear", "pair"};

#define SHIFT(a, amount)                                                                                     \
    { TVM_VIEW_SHIFT, (a), 0, (amount) }
#define BYTES(a, i, b, j)                                                                                    \
    { TVM_VIEW_BYTES, (a), (b), (i) + 2 * (j) }
#define ROTATE(a, amount)                                                                                    \
    { TVM_VIEW_ROTATE, (a), 0, (amount) }
#define SELECT(mask, a, b)                                                                                   \
    { TVM_VIEW_SELECT, (a), (b), (mask) }

/* Two pairs of a view: in the upper bytes of its halves, and in the lower ones. */
#define BOTH(view)                                                                                           \
    {view, 8}, {                                                                                             \
        view, 0                                                                                              \
    }

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

/* Floats. A view of form HALVES or BYTES has the bits of two pairs, or one, where f16 or a byte has them, so
 * that each word of a block and each rotation of it gives what fits; what is left over in words is put
 * together by SELECT. The least views for each were searched for by program. */
static const tvm_pair_recipe f8_bytes = {1, 0, 2, {{0, 0, 0, 0}}, {BOTH(0)}}; /* f8_e4m3, f8_e5m2 */
static const tvm_pair_recipe f5_low = {
    5,
    11,
    16,
    {ROTATE(0, 3), ROTATE(1, 5), SELECT(0x8181, 6, 5), ROTATE(2, 3), ROTATE(4, 6), SELECT(0x0101, 9, 8),
     ROTATE(1, 7), SELECT(0x8080, 11, 10), ROTATE(3, 5), ROTATE(4, 2), SELECT(0x0c0c, 14, 13)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(7), BOTH(12), BOTH(15)}}; /* f5_e1m3, f5_e2m2 */
static const tvm_pair_recipe f5_e3m1 = {
    5,
    14,
    16,
    {ROTATE(0, 5), ROTATE(1, 6), SELECT(0x8484, 6, 5), ROTATE(3, 1), SELECT(0x1010, 8, 7), ROTATE(4, 4),
     ROTATE(3, 3), SELECT(0x0808, 11, 10), SELECT(0x8080, 8, 12), ROTATE(2, 4), ROTATE(0, 2),
     SELECT(0x0808, 15, 14), ROTATE(1, 7), SELECT(0x8080, 17, 16)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(9), BOTH(13), BOTH(18)}};
static const tvm_pair_recipe f5_e4m0 = {
    5,
    11,
    16,
    {ROTATE(0, 3), ROTATE(1, 5), SELECT(0x1818, 6, 5), ROTATE(2, 4), ROTATE(1, 7), SELECT(0x0808, 9, 8),
     ROTATE(4, 3), SELECT(0x8080, 11, 10), ROTATE(3, 5), ROTATE(4, 2), SELECT(0xc0c0, 14, 13)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(7), BOTH(12), BOTH(15)}};
static const tvm_pair_recipe f6_low = {
    3,
    5,
    8,
    {ROTATE(0, 6), ROTATE(1, 4), SELECT(0x0606, 4, 3), ROTATE(2, 2), SELECT(0x1818, 6, 5)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(7)}}; /* f6_e2m3, f6_e3m2 */
static const tvm_pair_recipe f6_e4m1 = {
    3,
    5,
    8,
    {ROTATE(0, 6), ROTATE(1, 4), SELECT(0x3030, 4, 3), ROTATE(2, 2), SELECT(0xc0c0, 6, 5)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(7)}};
static const tvm_pair_recipe f7_e3m3 = {
    7,
    13,
    16,
    {ROTATE(1, 6), ROTATE(2, 5), SELECT(0x0202, 8, 7), ROTATE(3, 4), SELECT(0x0404, 10, 9), ROTATE(4, 3),
     SELECT(0x0808, 12, 11), ROTATE(5, 2), SELECT(0x1010, 14, 13), ROTATE(6, 1), SELECT(0x2020, 16, 15),
     ROTATE(0, 7), SELECT(0x8080, 18, 17)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(5), BOTH(6), BOTH(19)}};
static const tvm_pair_recipe f7_e4m2 = {
    7,
    13,
    16,
    {ROTATE(0, 7), ROTATE(1, 6), SELECT(0x0404, 8, 7), ROTATE(2, 5), SELECT(0x0808, 10, 9), ROTATE(3, 4),
     SELECT(0x1010, 12, 11), ROTATE(4, 3), SELECT(0x2020, 14, 13), ROTATE(5, 2), SELECT(0x4040, 16, 15),
     ROTATE(6, 1), SELECT(0x8080, 18, 17)},
    {BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(5), BOTH(6), BOTH(19)}};
static const tvm_pair_recipe f6_e1m4 = {3,
                                        9,
                                        8,
                                        {ROTATE(0, 6), ROTATE(1, 4), SELECT(0x3030, 4, 3), ROTATE(2, 2),
                                         SELECT(0xc0c0, 6, 5), ROTATE(0, 8), ROTATE(1, 8), ROTATE(2, 8),
                                         ROTATE(7, 8)},
                                        {{0, 0}, {8, 0}, {1, 0}, {9, 0}, {2, 0}, {10, 0}, {7, 0}, {11, 0}}};
static const tvm_pair_recipe f7_e1m5 = {
    7,
    21,
    16,
    {ROTATE(0, 7),           ROTATE(1, 6), SELECT(0x0404, 8, 7),   ROTATE(2, 5),
     SELECT(0x0808, 10, 9),  ROTATE(3, 4), SELECT(0x1010, 12, 11), ROTATE(4, 3),
     SELECT(0x2020, 14, 13), ROTATE(5, 2), SELECT(0x4040, 16, 15), ROTATE(6, 1),
     SELECT(0x8080, 18, 17), ROTATE(0, 8), ROTATE(1, 8),           ROTATE(2, 8),
     ROTATE(3, 8),           ROTATE(4, 8), ROTATE(5, 8),           ROTATE(6, 8),
     ROTATE(19, 8)},
    {{0, 0},
     {20, 0},
     {1, 0},
     {21, 0},
     {2, 0},
     {22, 0},
     {3, 0},
     {23, 0},
     {4, 0},
     {24, 0},
     {5, 0},
     {25, 0},
     {6, 0},
     {26, 0},
     {19, 0},
     {27, 0}}};
static const tvm_pair_recipe f7_low6 = {
    7,
    24,
    16,
    {ROTATE(5, 7),          ROTATE(6, 10),        ROTATE(3, 9),           ROTATE(0, 6),
     ROTATE(4, 9),          SELECT(0x8100, 2, 3), ROTATE(4, 6),           SELECT(0x0e00, 5, 13),
     ROTATE(1, 7),          ROTATE(3, 6),         SELECT(0x8100, 16, 15), ROTATE(1, 13),
     SELECT(0x8100, 18, 4), ROTATE(2, 11),        BYTES(18, 0, 20, 1),    BYTES(16, 0, 20, 0),
     SELECT(0x0200, 2, 6),  ROTATE(5, 13),        ROTATE(2, 8),           SELECT(0x0200, 25, 24),
     SELECT(0x8100, 25, 0), ROTATE(6, 6),         ROTATE(0, 9),           SELECT(0x8e00, 29, 28)},
    {{1, 0},
     {7, 0},
     {8, 0},
     {9, 0},
     {10, 0},
     {11, 0},
     {12, 0},
     {14, 0},
     {17, 0},
     {19, 0},
     {21, 0},
     {22, 0},
     {23, 0},
     {26, 0},
     {27, 0},
     {30, 0}}}; /* f7_e2m4; f7_e5m1 as bf16 */
static const tvm_pair_recipe f8_e1m6 = {1, 1, 2, {ROTATE(0, 8)}, {{0, 0}, {1, 0}}};
static const tvm_pair_recipe f8_e2m5 = {
    2,
    6,
    4,
    {ROTATE(0, 8), ROTATE(1, 13), SELECT(0x8080, 3, 2), ROTATE(1, 8), ROTATE(0, 13), SELECT(0x8080, 6, 5)},
    {{0, 0}, {1, 0}, {4, 0}, {7, 0}}};
static const tvm_pair_recipe f8_low6 = {
    2,
    6,
    4,
    {ROTATE(0, 8), ROTATE(1, 14), SELECT(0x8080, 3, 2), ROTATE(1, 8), ROTATE(0, 14), SELECT(0x8080, 6, 5)},
    {{0, 0}, {1, 0}, {4, 0}, {7, 0}}};

/* In the places of bf16. */
static const tvm_pair_recipe f6_e5m0 = {
    3,
    14,
    8,
    {ROTATE(1, 5), ROTATE(0, 6), SELECT(0x0c00, 4, 0), ROTATE(2, 7), SELECT(0x8000, 6, 1), ROTATE(1, 12),
     ROTATE(0, 11), SELECT(0x8b00, 9, 8), ROTATE(2, 13), SELECT(0x0e00, 6, 11), BYTES(4, 1, 9, 0),
     ROTATE(1, 10), ROTATE(2, 4), SELECT(0x8600, 15, 14)},
    {{2, 0}, {3, 0}, {5, 0}, {7, 0}, {10, 0}, {12, 0}, {13, 0}, {16, 0}}};
static const tvm_pair_recipe f7_e6m0 = {
    7,
    26,
    16,
    {ROTATE(5, 10),          ROTATE(3, 6),           ROTATE(2, 9),           ROTATE(1, 6),
     ROTATE(0, 11),          ROTATE(6, 10),          ROTATE(4, 6),           ROTATE(4, 8),
     SELECT(0x1e00, 14, 13), SELECT(0x0b00, 0, 5),   ROTATE(6, 6),           SELECT(0x9a00, 2, 17),
     ROTATE(0, 5),           ROTATE(1, 10),          SELECT(0x9600, 20, 19), ROTATE(2, 14),
     SELECT(0x8000, 22, 3),  ROTATE(4, 7),           SELECT(0x8200, 24, 1),  ROTATE(5, 1),
     ROTATE(3, 11),          SELECT(0x0b00, 27, 26), ROTATE(2, 15),          SELECT(0x1600, 19, 29),
     ROTATE(5, 5),           SELECT(0x0200, 31, 6)},
    {{4, 0},
     {7, 0},
     {8, 0},
     {9, 0},
     {10, 0},
     {11, 0},
     {12, 0},
     {15, 0},
     {16, 0},
     {18, 0},
     {21, 0},
     {23, 0},
     {25, 0},
     {28, 0},
     {30, 0},
     {32, 0}}};
static const tvm_pair_recipe f8_e7m0 = {
    2,
    6,
    4,
    {ROTATE(0, 9), ROTATE(0, 15), SELECT(0x8000, 3, 2), ROTATE(1, 9), ROTATE(1, 15), SELECT(0x8000, 6, 5)},
    {{1, 0}, {0, 0}, {4, 0}, {7, 0}}};

static const tvm_pair_recipe f4_e1m2 = {1, 1, 4, {ROTATE(0, 4)}, {BOTH(0), BOTH(1)}};
static const tvm_pair_recipe f4_e2m1 = {
    1, 3, 4, {ROTATE(0, 4), ROTATE(0, 5), SELECT(0x8888, 2, 1)}, {BOTH(0), BOTH(3)}};
static const tvm_pair_recipe f4_e3m0 = {
    1, 3, 4, {ROTATE(0, 4), ROTATE(0, 2), SELECT(0x8888, 2, 1)}, {BOTH(0), BOTH(3)}};

static bool is_nibble_float(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits == 3;
}

/* f16's exponent holds infinity and NaN where that of a type of 5 bits and one of mantissa at most has its
 * largest numbers; types of more bits reach further still. */
tvm_dtype tvm_pair_target(tvm_dtype type) {
    return type.exponent > 5 || (type.exponent == 5 && type.mantissa < 2) ? TVM_BF16 : TVM_F16;
}

tvm_pair_form tvm_pair_form_of(tvm_dtype type) {
    if (type.kind != TVM_KIND_FLOAT || is_nibble_float(type)) return TVM_FORM_RUN;
    if (type.mantissa >= 4 || tvm_dtype_same(tvm_pair_target(type), TVM_BF16)) return TVM_FORM_HALVES;
    return type.mantissa == 3 || type.exponent == 4 || type.bits == 8 ? TVM_FORM_BYTES : TVM_FORM_HALVES;
}

static const tvm_pair_recipe *float_recipe(tvm_dtype type) {
    static const tvm_pair_recipe *const by_exponent[5][8] = {
        {NULL, &f4_e1m2, &f4_e2m1, &f4_e3m0},
        {NULL, &f5_low, &f5_low, &f5_e3m1, &f5_e4m0},
        {NULL, &f6_e1m4, &f6_low, &f6_low, &f6_e4m1, &f6_e5m0},
        {NULL, &f7_e1m5, &f7_low6, &f7_e3m3, &f7_e4m2, &f7_low6, &f7_e6m0},
        {NULL, &f8_e1m6, &f8_e2m5, &f8_low6, &f8_bytes, &f8_bytes, &f8_low6, &f8_e7m0},
    };
    return by_exponent[type.bits - 4][type.exponent];
}

const tvm_pair_recipe *tvm_pair_recipe_of(tvm_dtype type) {
    if (!tvm_dtype_is_lowbit(type) || is_nibble_float(type)) return NULL;
    return tvm_pair_form_of(type) == TVM_FORM_RUN ? &recipes[type.bits] : float_recipe(type);
}

/* With one bit of exponent, subnormals and normals are steps of one size, as f16's are at its low end: the
 * place is free, and chosen so that eight bits hold both the one and the other. */
static bool is_fixed_point(tvm_dtype type) {
    return type.exponent == 1 && type.mantissa >= 4;
}

unsigned tvm_pair_low(tvm_dtype type) {
    return is_fixed_point(type) ? 8u - type.bits : (unsigned)(tvm_pair_target(type).mantissa - type.mantissa);
}

int tvm_pair_exponent(tvm_dtype type) {
    tvm_dtype target = tvm_pair_target(type);
    switch (tvm_pair_form_of(type)) {
    case TVM_FORM_HALVES:
        return tvm_float_bias(target) - tvm_float_bias(type) + target.mantissa - type.mantissa -
               (int)tvm_pair_low(type);
    case TVM_FORM_BYTES:
        return type.exponent == 5 ? 0 : tvm_float_bias(TVM_FLOAT(8, 4, 3)) - tvm_float_bias(type);
    default:
        return 0;
    }
}

unsigned tvm_pair_place(tvm_dtype type, const tvm_pair_field *field, unsigned odd, unsigned bit) {
    bool sign = bit == type.bits - 1u;
    switch (tvm_pair_form_of(type)) {
    case TVM_FORM_HALVES:
        return (sign ? 15u : tvm_pair_low(type) + bit) - field->offset + 16 * odd;
    case TVM_FORM_BYTES:
        return (sign ? 7u : (type.exponent == 5 ? 2u : 3u) - type.mantissa + bit) + 8 * odd +
               (field->offset ? 0 : 16);
    default:
        return field->offset + bit + 16 * odd;
    }
}

/* Floats of 3 bits lie so that the lower three bits of nibbles are indices of a table: of 32 elements in
 * three words 24 codes there, the last eight a bit in each word's nibbles. */
static uint32_t nibble_bit(uint32_t element, unsigned bit) {
    uint32_t in = element % 32, block = element / 32 * 96;
    return block + (in < 24 ? in * 4 + bit : bit * 32 + (in - 24) * 4 + 3);
}

bool tvm_packing_takes(tvm_packing packing, tvm_dtype type) {
    return packing == TVM_PACKING_LINEAR || (packing == TVM_PACKING_PAIR && tvm_dtype_is_lowbit(type));
}

uint32_t tvm_packing_block(tvm_packing packing, tvm_dtype type) {
    if (packing != TVM_PACKING_PAIR || !tvm_dtype_is_lowbit(type)) return 1;
    const tvm_pair_recipe *recipe = tvm_pair_recipe_of(type);
    return recipe ? 2u * recipe->pairs : 32;
}

/* Where bit `bit` of a view comes from: the bit of the block's words, word * 32 + bit. */
static uint32_t trace(const tvm_pair_recipe *recipe, unsigned view, unsigned bit) {
    while (view >= recipe->words) {
        const tvm_pair_view *v = &recipe->view[view - recipe->words];
        switch (v->op) {
        case TVM_VIEW_SHIFT:
            bit += v->amount;
            view = v->a;
            break;
        case TVM_VIEW_ROTATE:
            bit = (bit + v->amount) % 32;
            view = v->a;
            break;
        case TVM_VIEW_BYTES:
            view = bit % 16 < 8 ? v->a : v->b;
            bit = bit / 16 * 16 + bit % 8 + 8u * (bit % 16 < 8 ? v->amount % 2u : v->amount / 2u);
            break;
        default:
            view = v->amount >> bit % 16 & 1 ? v->a : v->b;
        }
    }
    return view * 32 + bit;
}

uint32_t tvm_packing_bit(tvm_packing packing, tvm_dtype type, uint32_t element, unsigned bit) {
    if (packing == TVM_PACKING_PAIR && is_nibble_float(type)) return nibble_bit(element, bit);
    const tvm_pair_recipe *recipe = packing == TVM_PACKING_PAIR ? tvm_pair_recipe_of(type) : NULL;
    if (!recipe) return element * type.bits + bit;
    uint32_t pair = element / 2, block = pair / recipe->pairs;
    const tvm_pair_field *field = &recipe->field[pair % recipe->pairs];
    return block * recipe->words * 32 +
           trace(recipe, field->view, tvm_pair_place(type, field, element % 2, bit));
}

uint32_t tvm_packing_complement(tvm_packing packing, tvm_dtype type) {
    return packing == TVM_PACKING_PAIR && type.kind == TVM_KIND_INT ? 1u << (type.bits - 1) : 0;
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
