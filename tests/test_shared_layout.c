/* Shared layouts against brute force: canonical form, swizzles, and simulated banks. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "layout.h"
#include "layout_reference.h"
#include "suite_kit.h"

enum { BANKS = 32, BANK_BYTES = 4, CHUNK_BYTES = 16 };

/* Offset of every element in row-major order, from the lists themselves; returns the largest. */
static uint32_t offsets_of(const lists *from, const uint32_t *stride, unsigned base, unsigned bits,
                           unsigned shift, uint32_t *offsets) {
    uint32_t elements = shape_elements(from->rank, from->shape), largest = 0;
    for (uint32_t e = 0; e < elements; e++) {
        uint32_t index[TVM_MAX_RANK];
        uint64_t offset = 0;
        unflatten(from->rank, from->shape, e, index);
        for (unsigned m = from->modes; m-- > 0;) {
            uint32_t *rest = &index[from->mode_dim[m]];
            offset += (uint64_t)(*rest % from->mode_size[m]) * stride[m];
            *rest /= from->mode_size[m];
        }
        for (unsigned b = 0; b < bits; b++)
            if (offset >> (base + shift + b) & 1) offset ^= UINT64_C(1) << (base + b);
        offsets[e] = (uint32_t)offset;
        if (offsets[e] > largest) largest = offsets[e];
    }
    return largest;
}

static bool layout_has_offsets(const tvm_shared_layout *layout, const uint32_t *offsets) {
    for (uint32_t e = 0; e < shape_elements(layout->rank, layout->shape); e++) {
        uint32_t index[TVM_MAX_RANK];
        unflatten(layout->rank, layout->shape, e, index);
        if (tvm_shared_layout_offset(layout, index) != offsets[e]) return false;
    }
    return true;
}

static tvm_status make_shared(const lists *from, const uint32_t *stride, unsigned base, unsigned bits,
                              unsigned shift, tvm_shared_layout *out) {
    return tvm_shared_layout_make(from->rank, from->shape, from->modes, from->mode_size, stride, base, bits,
                                  shift, out, NULL);
}

/* Strides that nest in a random order of the modes, with gaps now and then. */
static void random_strides(uint32_t *state, const lists *from, bool gaps, uint32_t *stride) {
    uint8_t order[TVM_MAX_MODES];
    for (unsigned m = 0; m < from->modes; m++) {
        unsigned at = random_below(state, m + 1);
        order[m] = order[at];
        order[at] = (uint8_t)m;
    }
    uint32_t span = 1;
    for (unsigned i = 0; i < from->modes; i++) {
        if (gaps && random_below(state, 4) == 0) span += random_below(state, 4);
        stride[order[i]] = span;
        span *= from->mode_size[order[i]];
    }
}

START_TEST(make_is_the_function_of_its_lists) {
    static uint32_t offsets[72];
    uint32_t state = 1;
    for (int i = 0; i < 1000; i++) {
        lists from;
        tvm_shared_layout layout, again;
        uint32_t stride[TVM_MAX_MODES];
        random_lists(&state, 72, &from);
        random_strides(&state, &from, true, stride);
        ck_assert_int_eq(make_shared(&from, stride, 0, 0, 0, &layout), TVM_OK);
        uint32_t largest = offsets_of(&from, stride, 0, 0, 0, offsets);
        ck_assert(layout_has_offsets(&layout, offsets));
        ck_assert_uint_eq(tvm_shared_layout_span(&layout), largest + 1);
        ck_assert(tvm_shared_layout_valid(&layout, NULL));
        ck_assert_int_eq(tvm_shared_layout_make(layout.rank, layout.shape, layout.modes, layout.mode_size,
                                                layout.mode_stride, 0, 0, 0, &again, NULL),
                         TVM_OK);
        ck_assert(tvm_shared_layout_equal(&layout, &again));
    }
}
END_TEST

START_TEST(equal_structs_are_equal_functions) {
    enum { EACH = 300, ELEMENTS = 24 };
    static tvm_shared_layout layouts[EACH];
    static uint32_t offsets[EACH][ELEMENTS];
    static const uint32_t shape[2] = {4, 6};
    uint32_t state = 5;
    int same = 0;
    for (int i = 0; i < EACH; i++) {
        lists from;
        uint32_t stride[TVM_MAX_MODES];
        random_lists_over(&state, 2, shape, false, &from);
        random_strides(&state, &from, false, stride);
        ck_assert_int_eq(make_shared(&from, stride, 0, 0, 0, &layouts[i]), TVM_OK);
        offsets_of(&from, stride, 0, 0, 0, offsets[i]);
        for (int j = 0; j < i; j++) {
            bool equal = memcmp(offsets[i], offsets[j], sizeof offsets[i]) == 0;
            ck_assert_int_eq(tvm_shared_layout_equal(&layouts[i], &layouts[j]), equal);
            same += equal;
        }
    }
    ck_assert_int_gt(same, 100);
}
END_TEST

START_TEST(overlaps_and_excess_are_refused) {
    static uint32_t offsets[72];
    uint32_t state = 3;
    int made = 0, overlaps = 0;
    for (int i = 0; i < 5000; i++) {
        lists from;
        tvm_shared_layout layout;
        uint32_t stride[TVM_MAX_MODES];
        random_lists(&state, 24, &from);
        random_strides(&state, &from, true, stride);
        if (from.modes > 0) stride[random_below(&state, from.modes)] = random_below(&state, 30);
        offsets_of(&from, stride, 0, 0, 0, offsets);
        bool overlap = false;
        uint32_t elements = shape_elements(from.rank, from.shape);
        for (uint32_t a = 0; a < elements && !overlap; a++)
            for (uint32_t b = 0; b < a && !overlap; b++) overlap = offsets[a] == offsets[b];
        bool ok = make_shared(&from, stride, 0, 0, 0, &layout) == TVM_OK;
        if (overlap) ck_assert(!ok);
        if (ok) ck_assert(layout_has_offsets(&layout, offsets));
        made += ok;
        overlaps += overlap;
    }
    ck_assert_int_gt(made, 500);
    ck_assert_int_gt(overlaps, 300);
    tvm_shared_layout out;
    const uint32_t two[2] = {2, 2};
    ck_assert_int_eq(tvm_shared_layout_make(2, two, 2, two, (uint32_t[]){1 << 20, 1}, 0, 0, 0, &out, NULL),
                     TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_make(2, two, 2, two, (uint32_t[]){UINT32_MAX, 1}, 0, 0, 0, &out, NULL),
                     TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_make(2, two, 1, two, (uint32_t[]){2, 1}, 0, 0, 0, &out, NULL),
                     TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_row_major(2, (uint32_t[]){2048, 1024}, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_row_major(0, NULL, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_row_major(9, (uint32_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, &out, NULL),
                     TVM_INVALID);
}
END_TEST

/* A contiguous layout: a swizzle is good exactly if it permutes the offsets. */
START_TEST(swizzles_stay_in_the_allocation) {
    static uint32_t offsets[512];
    uint32_t state = 9;
    int made = 0, left = 0;
    for (int i = 0; i < 5000; i++) {
        uint32_t shape[2] = {1 + random_below(&state, 16), 1 + random_below(&state, 24)};
        lists from;
        uint32_t stride[TVM_MAX_MODES];
        tvm_shared_layout layout;
        random_lists_over(&state, 2, shape, false, &from);
        random_strides(&state, &from, false, stride);
        unsigned base = random_below(&state, 4), bits = 1 + random_below(&state, 3),
                 shift = bits + random_below(&state, 3);
        uint32_t elements = shape[0] * shape[1];
        bool stays = offsets_of(&from, stride, base, bits, shift, offsets) < elements;
        bool ok = make_shared(&from, stride, base, bits, shift, &layout) == TVM_OK;
        ck_assert_int_eq(ok, stays);
        if (ok) {
            ck_assert(layout_has_offsets(&layout, offsets));
            ck_assert(tvm_shared_layout_valid(&layout, NULL));
            ck_assert_uint_eq(tvm_shared_layout_span(&layout), elements);
            bool seen[512] = {false};
            for (uint32_t e = 0; e < elements; e++) {
                ck_assert(!seen[offsets[e]]);
                seen[offsets[e]] = true;
            }
        }
        made += ok;
        left += !ok;
    }
    ck_assert_int_gt(made, 500);
    ck_assert_int_gt(left, 500);
}
END_TEST

START_TEST(hostile_swizzles_are_refused) {
    static const unsigned bad[][3] = {{3, 3, 2},  {0, 32, 32}, {29, 1, 2},   {31, 1, 1},
                                      {0, 1, 31}, {200, 3, 3}, {3, 255, 255}};
    tvm_shared_layout out;
    const uint32_t shape[2] = {16, 64}, strides[2] = {64, 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(
            tvm_shared_layout_make(2, shape, 2, shape, strides, bad[i][0], bad[i][1], bad[i][2], &out, NULL),
            TVM_INVALID);
    ck_assert_int_eq(tvm_shared_layout_make(2, shape, 2, shape, strides, 3, 0, 7, &out, NULL), TVM_OK);
    ck_assert_uint_eq(out.swizzle_base + out.swizzle_shift, 0);
}
END_TEST

START_TEST(valid_wants_the_canonical_struct) {
    uint32_t state = 21;
    tvm_shared_layout good, bad;
    ck_assert_int_eq(tvm_shared_layout_auto(3, (uint32_t[]){4, 16, 64}, 16, &good, NULL), TVM_OK);
    ck_assert(tvm_shared_layout_valid(&good, NULL));
    bad = good, bad.shape[3] = 1;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    bad = good, bad.mode_size[3] = 2;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    bad = good, bad.mode_stride[30] = 2;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    bad = good, bad.mode_dim[2] = 1;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    bad = good, bad.swizzle_bits = 0;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    bad = good, bad.mode_stride[1] = 63;
    ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    for (int i = 0; i < 5000; i++) {
        for (size_t b = 0; b < sizeof bad; b++)
            ((unsigned char *)&bad)[b] = (unsigned char)random_next(&state);
        if (i % 2) bad.rank = 1 + bad.rank % 8, bad.modes %= 33;
        ck_assert(!tvm_shared_layout_valid(&bad, NULL));
    }
}
END_TEST

/* How often the most loaded bank is used when eight consecutive rows' 16-byte chunks at one column are read.
 */
static unsigned worst_bank(const tvm_shared_layout *layout, uint32_t row, uint32_t column, unsigned bytes) {
    unsigned uses[BANKS] = {0}, worst = 0;
    for (uint32_t r = row; r < row + 8; r++) {
        uint32_t first = tvm_shared_layout_offset(layout, (uint32_t[]){r, column}) * bytes;
        ck_assert_uint_eq(first % CHUNK_BYTES, 0);
        for (uint32_t e = 0; e < CHUNK_BYTES / bytes; e++)
            ck_assert_uint_eq(tvm_shared_layout_offset(layout, (uint32_t[]){r, column + e}) * bytes,
                              first + e * bytes);
        for (uint32_t b = 0; b < CHUNK_BYTES / BANK_BYTES; b++) uses[first / BANK_BYTES % BANKS + b]++;
    }
    for (unsigned b = 0; b < BANKS; b++)
        if (uses[b] > worst) worst = uses[b];
    return worst;
}

/* Eight chunks of 16 bytes are all 32 banks: once each is the best there is, for narrow rows too. */
START_TEST(auto_has_no_bank_conflicts) {
    for (unsigned bytes = 1; bytes <= 16; bytes *= 2) {
        for (uint32_t row_bytes = 32; row_bytes <= 2048; row_bytes *= 2) {
            tvm_shared_layout layout;
            const uint32_t shape[2] = {24, row_bytes / bytes};
            ck_assert_int_eq(tvm_shared_layout_auto(2, shape, bytes * 8, &layout, NULL), TVM_OK);
            ck_assert(tvm_shared_layout_valid(&layout, NULL));
            ck_assert_uint_eq(tvm_shared_layout_span(&layout), shape[0] * shape[1]);
            for (uint32_t row = 0; row <= 16; row += 8)
                for (uint32_t column = 0; column < shape[1]; column += CHUNK_BYTES / bytes)
                    ck_assert_uint_eq(worst_bank(&layout, row, column, bytes), 1);
        }
    }
}
END_TEST

/* Rows of several times 128 bytes of 16-bit elements: blocks of columns, one after the other (PTX ISA,
 * "Strides"). */
START_TEST(auto_cuts_wide_rows_into_blocks_of_columns) {
    const uint32_t shape[3] = {2, 16, 192};
    tvm_shared_layout layout;
    ck_assert_int_eq(tvm_shared_layout_auto(3, shape, 16, &layout, NULL), TVM_OK);
    ck_assert_uint_eq(tvm_shared_layout_span(&layout), 2 * 16 * 192);
    for (uint32_t i = 0; i < 2 * 16 * 192; i++) {
        uint32_t stage = i / (16 * 192), row = i / 192 % 16, column = i % 192, chunk = column % 64 / 8;
        uint32_t expected =
            stage * 16 * 192 + column / 64 * 16 * 64 + row * 64 + (chunk ^ row % 8) * 8 + column % 8;
        ck_assert_uint_eq(tvm_shared_layout_offset(&layout, (uint32_t[]){stage, row, column}), expected);
    }
}
END_TEST

START_TEST(auto_swizzles_only_where_it_can) {
    static const struct {
        unsigned rank;
        uint32_t shape[3];
        unsigned bits, swizzle_bits;
    } cases[] = {
        {3, {4, 16, 64}, 16, 3}, {2, {16, 32}, 16, 2}, {2, {16, 16}, 16, 1}, {2, {3, 64}, 16, 3},
        {2, {16, 8}, 16, 0},     {2, {16, 48}, 16, 0}, {1, {1024}, 16, 0},   {2, {16, 64}, 3, 0},
        {2, {16, 64}, 24, 0},    {2, {16, 64}, 4, 1},  {2, {16, 256}, 2, 2}, {2, {16, 64}, 6, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tvm_shared_layout layout, plain;
        ck_assert_int_eq(tvm_shared_layout_auto(cases[i].rank, cases[i].shape, cases[i].bits, &layout, NULL),
                         TVM_OK);
        ck_assert_uint_eq(layout.swizzle_bits, cases[i].swizzle_bits);
        ck_assert_int_eq(tvm_shared_layout_row_major(cases[i].rank, cases[i].shape, &plain, NULL), TVM_OK);
        ck_assert_int_eq(tvm_shared_layout_equal(&layout, &plain), cases[i].swizzle_bits == 0);
    }
    tvm_shared_layout layout;
    ck_assert_int_eq(tvm_shared_layout_auto(2, (uint32_t[]){2048, 1024}, 16, &layout, NULL), TVM_INVALID);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("shared layout");
    TCase *tests = tcase_create("shared layout");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, make_is_the_function_of_its_lists);
    tcase_add_test(tests, equal_structs_are_equal_functions);
    tcase_add_test(tests, overlaps_and_excess_are_refused);
    tcase_add_test(tests, swizzles_stay_in_the_allocation);
    tcase_add_test(tests, hostile_swizzles_are_refused);
    tcase_add_test(tests, valid_wants_the_canonical_struct);
    tcase_add_test(tests, auto_has_no_bank_conflicts);
    tcase_add_test(tests, auto_cuts_wide_rows_into_blocks_of_columns);
    tcase_add_test(tests, auto_swizzles_only_where_it_can);
    return run_suite(suite);
}
