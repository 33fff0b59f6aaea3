/* The atoms against the formulas of the PTX ISA, and the layout rules of instructions against their
 * definitions, enumerated. */
#include "check_kit.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "mma.h"
#include "layout_kit.h"
#include "suite_kit.h"

static reference ref_a, ref_b, ref_c;

static tvm_layout atom(const char *name) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_atom(name, strlen(name), &out, NULL), TVM_OK);
    return out;
}

/* ---- atoms ---- */

static void expect(const tvm_layout *layout, uint32_t lane, uint32_t i, uint32_t row, uint32_t column) {
    uint32_t index[2];
    tvm_layout_map(layout, lane, i, index);
    ck_assert_uint_eq(index[0], row);
    ck_assert_uint_eq(index[1], column);
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", the .f16 and .bf16 cases. */
START_TEST(atoms_are_the_fragments_of_the_ptx_isa) {
    tvm_layout a = atom("mma.m16n8k16.A"), b = atom("mma.m16n8k16.B"), c = atom("mma.m16n8k16.C");
    ck_assert_uint_eq(tvm_layout_threads(&a), 32);
    ck_assert_uint_eq(tvm_layout_threads(&b), 32);
    ck_assert_uint_eq(tvm_layout_threads(&c), 32);
    ck_assert_uint_eq(tvm_layout_locals(&a), 8);
    ck_assert_uint_eq(tvm_layout_locals(&b), 4);
    ck_assert_uint_eq(tvm_layout_locals(&c), 4);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t group = lane >> 2, in_group = lane % 4;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            uint32_t column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            expect(&a, lane, i, row, column);
        }
        for (uint32_t i = 0; i < 4; i++) {
            expect(&b, lane, i, in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group);
            expect(&c, lane, i, i < 2 ? group : group + 8, in_group * 2 + (i & 1));
        }
    }
}
END_TEST

/* PTX ISA, ldmatrix .m8n8 .b16: a thread of the warp receives elements 2*(lane%4) and +1 of row lane/4. */
START_TEST(ldmatrix_is_the_fragment_of_the_ptx_isa) {
    tvm_layout matrix = atom("ldmatrix");
    ck_assert_uint_eq(tvm_layout_locals(&matrix), 2);
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 2; i++) expect(&matrix, lane, i, lane / 4, lane % 4 * 2 + i);
}
END_TEST

/* PTX ISA, "Matrix Fragments for mma.m16n8k64" of .e2m1: eights along k; then 8 rows down; then 32 steps of
 * k. */
START_TEST(m16n8k64_is_the_fragment_of_the_ptx_isa) {
    tvm_layout a = atom("mma.m16n8k64.A"), b = atom("mma.m16n8k64.B");
    ck_assert_uint_eq(tvm_layout_locals(&a), 32);
    ck_assert_uint_eq(tvm_layout_locals(&b), 16);
    for (uint32_t lane = 0; lane < 32; lane++) {
        for (uint32_t i = 0; i < 32; i++) {
            bool upper = i < 8 || (i >= 16 && i < 24);
            expect(&a, lane, i, lane / 4 + (upper ? 0 : 8), lane % 4 * 8 + i % 8 + (i < 16 ? 0 : 32));
        }
        for (uint32_t i = 0; i < 16; i++)
            expect(&b, lane, i, lane % 4 * 8 + i % 8 + (i < 8 ? 0 : 32), lane / 4);
    }
}
END_TEST

/* PTX ISA, "Block Scaling for mma.sync": thread-id 0 of a is the first two lanes of four, whose rows are 8
 * apart, and of b the first one. The others may have anything; here it is the same. */
START_TEST(scales_are_where_block_scaling_looks_for_them) {
    static const uint32_t counts[] = {1, 2, 4};
    for (unsigned c = 0; c < 3; c++) {
        char name[2][32];
        for (unsigned i = 0; i < 2; i++)
            snprintf(name[i], sizeof name[i], "mma.scale_vec%u.%c", counts[c], i ? 'B' : 'A');
        tvm_layout a = atom(name[0]), b = atom(name[1]);
        ck_assert_uint_eq(tvm_layout_locals(&a), counts[c]);
        ck_assert_uint_eq(tvm_layout_locals(&b), counts[c]);
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t i = 0; i < counts[c]; i++) {
                expect(&a, lane, i, lane / 4 + lane % 2 * 8, i);
                expect(&b, lane, i, i, lane / 4);
            }
    }
}
END_TEST

START_TEST(atoms_are_listed_by_name) {
    tvm_layout out;
    tvm_why why = {""};
    size_t count = 0;
    for (; tvm_layout_atom_name(count); count++) {
        tvm_layout layout = atom(tvm_layout_atom_name(count));
        ck_assert(tvm_layout_valid(&layout, NULL));
    }
    ck_assert_uint_eq(count, 23);
    tvm_layout c = atom("mma.m16n8k16.C"), d = atom("mma.m16n8k16.D");
    ck_assert(tvm_layout_equal(&c, &d));
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.Axx", 14, &out, &why), TVM_OK);
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16", 12, &out, &why), TVM_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "mma.m16n8k16"));
    ck_assert_int_eq(tvm_layout_atom("", 0, &out, NULL), TVM_INVALID);
}
END_TEST

/* ---- broadcasts ---- */

/* The definition, enumerated; map is filled when it holds. */
static bool reference_broadcasts(const reference *operand, const reference *result, uint32_t *map) {
    if (operand->rank > result->rank || operand->threads != result->threads) return false;
    unsigned missing = result->rank - operand->rank;
    for (unsigned d = 0; d < operand->rank; d++)
        if (operand->shape[d] != 1 && operand->shape[d] != result->shape[d + missing]) return false;
    for (uint32_t l = 0; l < result->locals; l++) {
        map[l] = UINT32_MAX;
        for (uint32_t t = 0; t < result->threads; t++) {
            uint32_t index[TVM_MAX_RANK], wanted[TVM_MAX_RANK], at = UINT32_MAX;
            reference_index(result, t, l, index);
            for (unsigned d = 0; d < operand->rank; d++)
                wanted[d] = operand->shape[d] == 1 ? 0 : index[d + missing];
            uint32_t element = flatten(operand->rank, operand->shape, wanted);
            for (uint32_t m = 0; m < operand->locals; m++)
                if (operand->table[t * operand->locals + m] == element) at = m;
            if (at == UINT32_MAX || (t > 0 && at != map[l])) return false;
            map[l] = at;
        }
    }
    return true;
}

/* Something to broadcast to `result`: its reductions, its trailing dimensions, the same locals otherwise
 * ordered or spread; not always fitting. */
static tvm_layout related_operand(uint32_t *state, const tvm_layout *result) {
    tvm_layout operand = *result;
    for (unsigned d = 0; d < result->rank; d++)
        if (random_below(state, 3) == 0)
            ck_assert_int_eq(tvm_layout_reduce(&operand, d, &operand, NULL), TVM_OK);
    for (unsigned i = operand.locals; i-- > 1 && random_below(state, 2) == 0;) {
        unsigned at = random_below(state, i + 1);
        uint8_t kept = operand.local[i];
        operand.local[i] = operand.local[at];
        operand.local[at] = kept;
    }
    if (operand.spatials > 1 && random_below(state, 4) == 0) {
        int32_t kept = operand.spatial[0];
        operand.spatial[0] = operand.spatial[1];
        operand.spatial[1] = kept;
    }
    if (operand.spatials > 0 && operand.spatial[0] >= 0 && random_below(state, 4) == 0) {
        operand.local[operand.locals++] = (uint8_t)operand.spatial[0];
        operand.spatial[0] = -(int32_t)operand.mode_size[operand.spatial[0]];
    }
    ck_assert_int_eq(tvm_layout_make(operand.rank, operand.shape, operand.modes, operand.mode_size,
                                     operand.spatials, operand.spatial, operand.locals, operand.local,
                                     &operand, NULL),
                     TVM_OK);
    while (operand.rank > 1 && operand.shape[0] == 1 && random_below(state, 2) == 0)
        ck_assert_int_eq(tvm_layout_squeeze(&operand, 0, &operand, NULL), TVM_OK);
    return operand;
}

/* The table of a library layout, element by element (map itself is checked in test_layout). */
static void reference_of(const tvm_layout *layout, reference *out) {
    out->rank = layout->rank;
    memcpy(out->shape, layout->shape, sizeof out->shape);
    out->threads = tvm_layout_threads(layout);
    out->locals = tvm_layout_locals(layout);
    for (uint32_t n = 0; n < out->threads * out->locals; n++) {
        uint32_t index[TVM_MAX_RANK];
        tvm_layout_map(layout, n / out->locals, n % out->locals, index);
        out->table[n] = flatten(out->rank, out->shape, index);
    }
}

static bool check_broadcasts(const tvm_layout *operand, const tvm_layout *result) {
    static uint32_t map[TVM_MAX_LOCALS], want_map[TVM_MAX_LOCALS];
    tvm_why why = {""};
    reference_of(operand, &ref_a);
    reference_of(result, &ref_b);
    bool want = reference_broadcasts(&ref_a, &ref_b, want_map);
    ck_assert_int_eq(tvm_layout_broadcasts(operand, result, map, &why), want);
    ck_assert_int_eq(tvm_layout_broadcasts(operand, result, NULL, NULL), want);
    ck_assert_int_eq(why.text[0] == '\0', want);
    if (want) ck_assert_mem_eq(map, want_map, ref_b.locals * sizeof *map);
    return want;
}

START_TEST(broadcasts_agrees_with_its_definition) {
    uint32_t state = 2;
    int yes = 0, no = 0;
    for (int i = 0; i < 4000; i++) {
        tvm_layout operand, result;
        lists from;
        random_lists(&state, 48, &from);
        ck_assert_int_eq(make_from(&from, &result, NULL), TVM_OK);
        if (i % 8 == 0) {
            random_lists_over(&state, from.rank, result.shape, true, &from);
            ck_assert_int_eq(make_from(&from, &operand, NULL), TVM_OK);
        } else {
            operand = related_operand(&state, &result);
        }
        bool answer = check_broadcasts(&operand, &result);
        yes += answer;
        no += !answer;
    }
    ck_assert_int_gt(yes, 500);
    ck_assert_int_gt(no, 500);
}
END_TEST

START_TEST(broadcasts_known_cases) {
    tvm_layout c = compose(spatial2(2, 2), atom("mma.m16n8k16.C")), row, column, scalar,
               one_thread = local2(1, 1);
    ck_assert_int_eq(tvm_layout_reduce(&c, 0, &row, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_reduce(&c, 1, &column, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_replicated(1, 128, &scalar, NULL), TVM_OK);
    ck_assert(check_broadcasts(&c, &c));
    ck_assert(check_broadcasts(&row, &c));
    ck_assert(check_broadcasts(&column, &c));
    ck_assert(check_broadcasts(&scalar, &c));
    ck_assert(!check_broadcasts(&c, &row));
    ck_assert(!check_broadcasts(&one_thread, &c));
    ck_assert_int_eq(tvm_layout_squeeze(&row, 0, &row, NULL), TVM_OK);
    ck_assert(check_broadcasts(&row, &c));
    /* Everybody holding everything is not enough: the place would depend on the thread. */
    tvm_layout everywhere = compose(spatial2(1, 1), local2(32, 16)), copies;
    ck_assert_int_eq(tvm_layout_replicated(2, 128, &copies, NULL), TVM_OK);
    everywhere = compose(copies, everywhere);
    ck_assert(!check_broadcasts(&everywhere, &c));
}
END_TEST

/* ---- joint ---- */

static bool holds(const reference *layout, uint32_t thread, uint32_t element) {
    for (uint32_t l = 0; l < layout->locals; l++)
        if (layout->table[thread * layout->locals + l] == element) return true;
    return false;
}

/* Of two reductions of one layout, which have every dimension between them: each thread holds what it held.
 */
START_TEST(joint_of_reductions_holds_what_was_held) {
    uint32_t state = 7;
    int checked = 0;
    for (int i = 0; i < 3000; i++) {
        tvm_layout whole, a, b, out;
        lists from;
        random_lists(&state, 48, &from);
        ck_assert_int_eq(make_from(&from, &whole, NULL), TVM_OK);
        a = b = whole;
        for (unsigned d = 0; d < whole.rank; d++) {
            unsigned keep = random_below(&state, 3);
            if (keep == 0) ck_assert_int_eq(tvm_layout_reduce(&a, d, &a, NULL), TVM_OK);
            if (keep == 1) ck_assert_int_eq(tvm_layout_reduce(&b, d, &b, NULL), TVM_OK);
        }
        while (b.rank > 1 && b.shape[0] == 1) ck_assert_int_eq(tvm_layout_squeeze(&b, 0, &b, NULL), TVM_OK);
        tvm_why why = {""};
        ck_assert_msg(tvm_layout_joint((const tvm_layout *[]){&a, &b}, 2, &out, &why) == TVM_OK, "%s",
                      why.text);
        ck_assert(check_broadcasts(&a, &out) && check_broadcasts(&b, &out));
        reference_of(&whole, &ref_a);
        reference_of(&out, &ref_b);
        ck_assert_uint_eq(ref_a.locals, ref_b.locals);
        for (uint32_t n = 0; n < ref_a.threads * ref_a.locals; n++)
            ck_assert(holds(&ref_b, n / ref_a.locals, ref_a.table[n]));
        checked += whole.rank > 1;
    }
    ck_assert_int_gt(checked, 1000);
}
END_TEST

START_TEST(joint_known_cases) {
    tvm_layout a, b, out, expected;
    tvm_why why = {""};
    const tvm_layout *pair[] = {&a, &b};
    /* A thread of the column, a column of threads for the row: row-major. */
    expected = compose(local2(2, 1), compose(spatial2(8, 4), local2(2, 2)));
    ck_assert_int_eq(tvm_layout_reduce(&expected, 1, &a, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_reduce(&expected, 0, &b, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_OK);
    ck_assert(tvm_layout_equal(&out, &expected));
    /* The order of the operands does not matter. */
    ck_assert_int_eq(tvm_layout_joint((const tvm_layout *[]){&b, &a}, 2, &out, &why), TVM_OK);
    ck_assert(tvm_layout_equal(&out, &expected));
    /* Threads that no dimension takes are replicas. */
    tvm_layout four;
    ck_assert_int_eq(tvm_layout_replicated(2, 4, &four, NULL), TVM_OK);
    a = compose(spatial2(8, 1), four);
    b = compose(compose(four, four), compose(local2(1, 3), spatial2(1, 2)));
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_OK);
    ck_assert_uint_eq(tvm_layout_replication(&out), 2);
    ck_assert_uint_eq(tvm_layout_locals(&out), 3);
    /* The same threads share out rows and columns: thread t has row t and column t alone. */
    a = spatial2(32, 1), b = spatial2(1, 32);
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "dimensions 0 and 1 are spread over the same threads"));
    /* Their digits overlap. */
    a = compose(spatial2(4, 1), compose(four, local2(2, 1))), b = compose(spatial2(1, 16), local2(1, 1));
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "spread over the same threads"));
    b = spatial2(1, 8);
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "16 threads, the other 8"));
    b = compose(four, compose(four, local2(3, 2)));
    ck_assert_int_eq(tvm_layout_joint(pair, 2, &out, &why), TVM_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "extents 8 and 3 do not broadcast"));
}
END_TEST

/* ---- view ---- */

static bool same_bits(const reference *from, unsigned from_bits, const reference *to, unsigned to_bits,
                      uint32_t one, uint32_t other) {
    for (uint32_t l = 0; l < to->locals; l++) {
        for (uint32_t m = 0; m < to->locals; m++) {
            if (to->table[one * to->locals + l] != to->table[other * to->locals + m]) continue;
            for (unsigned b = 0; b < to_bits; b++) {
                uint32_t p = l * to_bits + b, q = m * to_bits + b;
                if (p % from_bits != q % from_bits || from->table[one * from->locals + p / from_bits] !=
                                                          from->table[other * from->locals + q / from_bits])
                    return false;
            }
        }
    }
    return true;
}

static bool reference_viewable(const reference *from, unsigned from_bits, const reference *to,
                               unsigned to_bits) {
    if (from->threads != to->threads || from->locals * from_bits != to->locals * to_bits) return false;
    for (uint32_t t = 0; t < to->threads; t++)
        for (uint32_t u = 0; u < t; u++)
            if (!same_bits(from, from_bits, to, to_bits, t, u)) return false;
    return true;
}

static bool check_viewable(const tvm_layout *from, unsigned from_bits, const tvm_layout *to,
                           unsigned to_bits) {
    tvm_why why = {""};
    reference_of(from, &ref_a);
    reference_of(to, &ref_b);
    bool want = reference_viewable(&ref_a, from_bits, &ref_b, to_bits);
    ck_assert_int_eq(tvm_layout_viewable(from, from_bits, to, to_bits, &why), want);
    ck_assert_int_eq(why.text[0] == '\0', want);
    return want;
}

/* Two layouts with the same number of threads and of locals: the threads' digits are random on either side.
 */
START_TEST(viewable_agrees_with_its_definition) {
    static const int32_t spatials[][4] = {{4, 3, 0, 0},   {2, 2, 3, 0},  {-4, 3, 0, 0}, {4, -3, 0, 0},
                                          {-2, 2, 3, 0},  {2, -2, 3, 0}, {2, 2, -3, 0}, {-2, 2, -3, 0},
                                          {-12, 0, 0, 0}, {3, -2, 2, 0}, {-3, 4, 0, 0}, {6, -2, 0, 0},
                                          {-6, 2, 0, 0},  {3, -4, 0, 0}};
    static const uint32_t locals[][2] = {{4, 8}, {8, 4}, {2, 16}, {32, 1}, {16, 2}, {3, 8}};
    enum { COUNT = sizeof spatials / sizeof *spatials };
    tvm_layout layouts[COUNT][6];
    for (size_t s = 0; s < COUNT; s++) {
        tvm_layout copies, threads = local2(1, 1);
        for (unsigned i = 0; i < 4 && spatials[s][i] != 0; i++) {
            int32_t size = spatials[s][i];
            if (size > 0)
                copies = spatial2(i % 2 ? (uint32_t)size : 1, i % 2 ? 1 : (uint32_t)size);
            else
                ck_assert_int_eq(tvm_layout_replicated(2, (uint32_t)-size, &copies, NULL), TVM_OK);
            threads = compose(threads, copies);
        }
        for (size_t l = 0; l < 6; l++)
            layouts[s][l] = compose(threads, local2(locals[l][0] > 3 ? 2 : 1,
                                                    locals[l][0] > 3 ? locals[l][0] / 2 : locals[l][0]));
    }
    int yes = 0, no = 0;
    for (size_t a = 0; a < COUNT; a++)
        for (size_t b = 0; b < COUNT; b++)
            for (size_t l = 0; l < 6; l++)
                for (size_t k = 0; k < 6; k++) {
                    if ((l + k + a + b) % 5 != 0) continue;
                    bool answer = check_viewable(&layouts[a][l], locals[l][1], &layouts[b][k], locals[k][1]);
                    yes += answer;
                    no += !answer;
                }
    ck_assert_int_gt(yes, 100);
    ck_assert_int_gt(no, 100);
}
END_TEST

START_TEST(viewable_known_cases) {
    /* 96 bytes of u8 a warp, 3 a thread, seen as the 8 u3 of an A fragment. */
    tvm_layout bytes, a = atom("mma.m16n8k16.A"), copies;
    ck_assert_int_eq(tvm_layout_spatial(1, (uint32_t[]){32}, &bytes, NULL), TVM_OK);
    tvm_layout three;
    ck_assert_int_eq(tvm_layout_local(1, (uint32_t[]){3}, &three, NULL), TVM_OK);
    bytes = compose(bytes, three);
    ck_assert(check_viewable(&bytes, 8, &a, 3));
    ck_assert(check_viewable(&a, 3, &bytes, 8));
    ck_assert(!check_viewable(&bytes, 8, &a, 4));
    /* Copies of an element must come from copies of its bits. */
    ck_assert_int_eq(tvm_layout_replicated(2, 2, &copies, NULL), TVM_OK);
    tvm_layout copied = compose(copies, a), spread = compose(spatial2(2, 1), a), inner = compose(a, copies);
    ck_assert(check_viewable(&copied, 3, &spread, 3));
    ck_assert(!check_viewable(&spread, 3, &copied, 3));
    ck_assert(check_viewable(&copied, 3, &copied, 3));
    ck_assert(!check_viewable(&copied, 3, &inner, 3));
    ck_assert(!check_viewable(&bytes, 8, &copied, 3));
}
END_TEST

/* ---- mma ---- */

/* Local number of the tile in a warp, or -1. */
static int64_t tile_of(const reference *r, uint32_t warp, const uint32_t *index) {
    uint32_t flat = flatten(r->rank, r->shape, index);
    for (uint32_t l = 0; l < r->locals; l++)
        if (r->table[warp * r->locals + l] == flat) return l;
    return -1;
}

/* The tiles of a and b that a warp multiplies for its tile t of c in step k. */
static void tiles_for(uint32_t warp, uint32_t t, uint32_t k, int64_t *tile_a, int64_t *tile_b) {
    uint32_t in_a[TVM_MAX_RANK], in_b[TVM_MAX_RANK];
    reference_index(&ref_c, warp, t, in_a);
    reference_index(&ref_c, warp, t, in_b);
    in_a[ref_c.rank - 1] = in_b[ref_c.rank - 2] = k;
    for (unsigned d = 0; d + 2 < ref_c.rank; d++) {
        if (ref_a.shape[d] == 1) in_a[d] = 0;
        if (ref_b.shape[d] == 1) in_b[d] = 0;
    }
    *tile_a = tile_of(&ref_a, warp, in_a);
    *tile_b = tile_of(&ref_b, warp, in_b);
}

/* The definition over the quotients a, b and c (ref_a, ref_b, ref_c). */
static bool reference_mma(void) {
    unsigned m = ref_c.rank - 2, n = ref_c.rank - 1;
    for (unsigned d = 0; d < m; d++)
        if ((ref_a.shape[d] != ref_c.shape[d] && ref_a.shape[d] != 1) ||
            (ref_b.shape[d] != ref_c.shape[d] && ref_b.shape[d] != 1))
            return false;
    if (ref_a.shape[m] != ref_c.shape[m] || ref_b.shape[n] != ref_c.shape[n] ||
        ref_a.shape[n] != ref_b.shape[m] || ref_a.threads != ref_c.threads || ref_b.threads != ref_c.threads)
        return false;
    for (uint32_t t = 0; t < ref_c.locals; t++) {
        for (uint32_t k = 0; k < ref_a.shape[n]; k++) {
            int64_t first_a = -1, first_b = -1, tile_a, tile_b;
            for (uint32_t warp = 0; warp < ref_c.threads; warp++) {
                tiles_for(warp, t, k, &tile_a, &tile_b);
                if (warp == 0) first_a = tile_a, first_b = tile_b;
                if (tile_a < 0 || tile_b < 0 || tile_a != first_a || tile_b != first_b) return false;
            }
        }
    }
    return true;
}

static void check_tiles(const tvm_mma_plan *plan) {
    ck_assert_uint_eq(plan->tiles_c, ref_c.locals);
    ck_assert_uint_eq(plan->tiles_k, ref_a.shape[ref_a.rank - 1]);
    for (uint32_t t = 0; t < plan->tiles_c; t++)
        for (uint32_t k = 0; k < plan->tiles_k; k++)
            for (uint32_t warp = 0; warp < ref_c.threads; warp++) {
                uint32_t tile_a, tile_b;
                int64_t want_a, want_b;
                tiles_for(warp, t, k, &want_a, &want_b);
                tvm_mma_tile(plan, t, k, &tile_a, &tile_b);
                ck_assert_int_eq(want_a, tile_a);
                ck_assert_int_eq(want_b, tile_b);
            }
}

/* Composes the quotients with the atoms and compares the plan with the definition. */
static bool check_mma(const tvm_layout *outer_a, const tvm_layout *outer_b, const tvm_layout *outer_c) {
    tvm_layout a = compose(*outer_a, atom("mma.m16n8k16.A")), b = compose(*outer_b, atom("mma.m16n8k16.B"));
    tvm_layout c = compose(*outer_c, atom("mma.m16n8k16.C"));
    tvm_mma_plan plan;
    tvm_why why = {""};
    reference_of(outer_a, &ref_a);
    reference_of(outer_b, &ref_b);
    reference_of(outer_c, &ref_c);
    bool want = reference_mma();
    ck_assert_int_eq(tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &a, &b, &c, &plan, &why), want);
    ck_assert_int_eq(why.text[0] == '\0', want);
    if (want) check_tiles(&plan);
    return want;
}

/* a's (side 0) or b's quotient from c's: its rows or columns, and all of k in every warp; sometimes bent out
 * of shape. */
static tvm_layout operand_for(uint32_t *state, const tvm_layout *outer_c, unsigned side, uint32_t tiles_k) {
    tvm_layout rows, ks = side == 0 ? local2(1, tiles_k) : local2(tiles_k, 1), out;
    unsigned k_dim = side == 0 ? outer_c->rank - 1U : outer_c->rank - 2U;
    ck_assert_int_eq(tvm_layout_reduce(outer_c, k_dim, &rows, NULL), TVM_OK);
    for (unsigned d = 0; d + 2U < outer_c->rank; d++) /* broadcast */
        if (random_below(state, 3) == 0) ck_assert_int_eq(tvm_layout_reduce(&rows, d, &rows, NULL), TVM_OK);
    out = random_below(state, 2) ? compose(rows, ks) : compose(ks, rows);
    if (random_below(state, 6) == 0) {
        lists from;
        random_lists_over(state, out.rank, out.shape, true, &from);
        ck_assert_int_eq(make_from(&from, &out, NULL), TVM_OK);
    }
    return out;
}

/* Of matrices, then with one and two batch dimensions. */
START_TEST(mma_plan_agrees_with_its_definition) {
    static const uint32_t extents[] = {1, 2, 3, 4, 6};
    uint32_t state = 6 + (uint32_t)_i;
    unsigned rank = 2 + (unsigned)_i;
    int yes = 0, no = 0;
    for (int i = 0; i < 2000; i++) {
        lists from;
        tvm_layout c;
        uint32_t shape[4];
        for (unsigned d = 0; d < rank; d++) shape[d] = extents[random_below(&state, 5 - (uint32_t)_i)];
        random_lists_over(&state, rank, shape, true, &from);
        ck_assert_int_eq(make_from(&from, &c, NULL), TVM_OK);
        uint32_t tiles_k = 1 + random_below(&state, 4);
        tvm_layout a = operand_for(&state, &c, 0, tiles_k), b = operand_for(&state, &c, 1, tiles_k);
        uint32_t most = tvm_layout_threads(&a) | tvm_layout_threads(&b) | tvm_layout_threads(&c);
        if (most > 32) continue;
        bool answer = check_mma(&a, &b, &c);
        yes += answer;
        no += !answer;
    }
    ck_assert_int_gt(yes, 200);
    ck_assert_int_gt(no, 200);
}
END_TEST

START_TEST(mma_plan_splits_k_as_a_batch) {
    tvm_layout a, b, c, two, along_k;
    ck_assert_int_eq(tvm_layout_spatial(3, (const uint32_t[]){2, 2, 1}, &c, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_replicated(3, 2, &two, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_spatial(3, (const uint32_t[]){2, 1, 1}, &along_k, NULL), TVM_OK);
    a = compose(c, local2(1, 4));
    b = compose(compose(along_k, two), local2(4, 1));
    ck_assert(check_mma(&a, &b, &c));
    /* b of the other half of k in each warp */
    tvm_layout wrong = compose(compose(two, along_k), local2(4, 1));
    ck_assert(!check_mma(&a, &wrong, &c));
    /* every warp holds both halves of b: too much is fine only where it is local */
    tvm_layout both, four;
    ck_assert_int_eq(tvm_layout_replicated(3, 4, &four, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_local(3, (const uint32_t[]){2, 4, 1}, &both, NULL), TVM_OK);
    both = compose(four, both);
    ck_assert(!check_mma(&a, &both, &c));
}
END_TEST

START_TEST(mma_plan_known_cases) {
    tvm_layout pair, a, b, c = spatial2(1, 2);
    ck_assert_int_eq(tvm_layout_replicated(2, 2, &pair, NULL), TVM_OK);
    /* Two warps side by side share a; each has its columns of b. */
    a = compose(pair, local2(1, 4)), b = compose(local2(4, 1), spatial2(1, 2));
    ck_assert(check_mma(&a, &b, &c));
    /* k split over the warps: each would lack half of a row of tiles. */
    tvm_layout split = compose(spatial2(1, 2), local2(1, 2));
    ck_assert(!check_mma(&split, &b, &c));
    /* Columns of b in the wrong warp. */
    tvm_layout wrong = compose(local2(4, 2), pair);
    ck_assert(!check_mma(&a, &wrong, &c));
    tvm_mma_plan plan;
    tvm_why why;
    tvm_layout good_c = atom("mma.m16n8k16.C"), good_a = atom("mma.m16n8k16.A"),
               good_b = atom("mma.m16n8k16.B");
    ck_assert(tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &good_a, &good_b, &good_c, &plan, &why));
    ck_assert(!tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &good_a, &good_c, &good_c, &plan, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "mma.m16n8k16.B"));
    tvm_layout cube;
    ck_assert_int_eq(tvm_layout_unsqueeze(&good_a, 0, &cube, NULL), TVM_OK);
    ck_assert(!tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &cube, &good_b, &good_c, &plan, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "rank 3, expected 2 to 2 as c"));
    /* Leading dimensions of extent 1 may be missing. */
    tvm_layout one_c;
    ck_assert_int_eq(tvm_layout_unsqueeze(&good_c, 0, &one_c, NULL), TVM_OK);
    ck_assert(tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &cube, &good_b, &one_c, &plan, &why));
    const uint32_t sixteen = 16;
    tvm_layout row;
    ck_assert_int_eq(tvm_layout_local(1, &sixteen, &row, NULL), TVM_OK);
    ck_assert(!tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &row, &good_b, &good_c, &plan, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "rank 2 or more"));
    ck_assert(!tvm_mma_plan_make(tvm_mma_atoms_of(TVM_F16, false), &good_c, &good_b, &good_c, &plan, NULL));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layout rules");
    TCase *tests = tcase_create("rules");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, atoms_are_the_fragments_of_the_ptx_isa);
    tcase_add_test(tests, ldmatrix_is_the_fragment_of_the_ptx_isa);
    tcase_add_test(tests, m16n8k64_is_the_fragment_of_the_ptx_isa);
    tcase_add_test(tests, scales_are_where_block_scaling_looks_for_them);
    tcase_add_test(tests, atoms_are_listed_by_name);
    tcase_add_test(tests, broadcasts_agrees_with_its_definition);
    tcase_add_test(tests, broadcasts_known_cases);
    tcase_add_test(tests, joint_of_reductions_holds_what_was_held);
    tcase_add_test(tests, joint_known_cases);
    tcase_add_test(tests, viewable_agrees_with_its_definition);
    tcase_add_test(tests, viewable_known_cases);
    tcase_add_loop_test(tests, mma_plan_agrees_with_its_definition, 0, 3);
    tcase_add_test(tests, mma_plan_splits_k_as_a_batch);
    tcase_add_test(tests, mma_plan_known_cases);
    return run_suite(suite);
}
