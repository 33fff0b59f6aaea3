/* Register layouts against brute force: canonical form and queries. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "layout_kit.h"
#include "suite_kit.h"

static reference ref_a;

/* ---- canonical form ---- */

START_TEST(make_is_the_function_of_its_lists) {
    uint32_t state = 1;
    for (int i = 0; i < 3000; i++) {
        tvm_layout layout;
        random_layout(&state, 72, &layout, &ref_a);
        ck_assert(layout_is(&layout, &ref_a));
        ck_assert(reference_is_layout(&ref_a));
    }
}
END_TEST

START_TEST(equal_structs_are_equal_functions) {
    static const uint32_t shapes[][3] = {{12, 1, 1}, {4, 4, 1}, {8, 1, 1}, {6, 3, 1}, {2, 1, 6}, {2, 2, 2}};
    enum { EACH = 250 };
    static tvm_layout layouts[EACH];
    static struct { uint32_t threads, locals, table[128]; } functions[EACH];
    uint32_t state = 7;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int count = 0, same = 0;
        while (count < EACH) {
            lists from;
            random_lists_over(&state, 3, shapes[s], true, &from);
            reference_from_lists(&from, &ref_a);
            if (ref_a.threads * ref_a.locals > 128) continue;
            ck_assert_int_eq(make_from(&from, &layouts[count], NULL), TVM_OK);
            functions[count].threads = ref_a.threads;
            functions[count].locals = ref_a.locals;
            memset(functions[count].table, 0, sizeof functions[count].table);
            memcpy(functions[count].table, ref_a.table, sizeof(uint32_t) * ref_a.threads * ref_a.locals);
            count++;
        }
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < i; j++) {
                bool functions_equal = memcmp(&functions[i], &functions[j], sizeof functions[i]) == 0;
                ck_assert_int_eq(tvm_layout_equal(&layouts[i], &layouts[j]), functions_equal);
                same += functions_equal;
            }
        }
        ck_assert_int_gt(same, 20);
    }
}
END_TEST

START_TEST(make_is_idempotent) {
    uint32_t state = 3;
    for (int i = 0; i < 2000; i++) {
        tvm_layout layout, again;
        random_layout(&state, 72, &layout, &ref_a);
        ck_assert_int_eq(tvm_layout_make(layout.rank, layout.shape, layout.modes, layout.mode_size,
                                         layout.spatials, layout.spatial, layout.locals, layout.local, &again,
                                         NULL),
                         TVM_OK);
        ck_assert(tvm_layout_equal(&layout, &again));
    }
}
END_TEST

START_TEST(make_refuses_lists_that_are_no_layout) {
    static const struct {
        unsigned rank;
        uint32_t shape[9];
        unsigned modes;
        uint32_t mode_size[4];
        unsigned spatials;
        int32_t spatial[4];
        unsigned locals;
        uint8_t local[4];
    } bad[] = {
        {0, {0}, 0, {0}, 0, {0}, 0, {0}},
        {9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, {0}, 0, {0}, 0, {0}},
        {2, {4, 0}, 1, {4}, 0, {0}, 1, {0}},
        {1, {8}, 2, {2, 2}, 0, {0}, 2, {0, 1}},
        {1, {8}, 2, {2, 8}, 0, {0}, 2, {0, 1}},
        {1, {6}, 1, {4}, 0, {0}, 1, {0}},
        {2, {4, 6}, 2, {6, 4}, 0, {0}, 2, {0, 1}},
        {1, {4}, 2, {4, 0}, 0, {0}, 2, {0, 1}},
        {1, {4}, 2, {4, 2}, 0, {0}, 2, {0, 1}},
        {1, {4}, 1, {4}, 0, {0}, 0, {0}},
        {1, {4}, 1, {4}, 1, {0}, 1, {0}},
        {1, {4}, 1, {4}, 0, {0}, 2, {0, 0}},
        {1, {4}, 1, {4}, 1, {1}, 1, {0}},
        {1, {4}, 1, {4}, 0, {0}, 1, {1}},
        {1, {4}, 1, {4}, 1, {INT32_MIN}, 1, {0}},
        {1, {2048}, 1, {2048}, 1, {0}, 0, {0}},
        {1, {4}, 1, {4}, 2, {-512, 0}, 0, {0}},
        {1, {8192}, 1, {8192}, 0, {0}, 1, {0}},
        {2, {1024, 2048}, 2, {1024, 2048}, 1, {0}, 1, {1}},
        {2, {65536, 65536}, 2, {65536, 65536}, 1, {0}, 1, {1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tvm_layout layout;
        tvm_why why = {""};
        ck_assert_msg(tvm_layout_make(bad[i].rank, bad[i].shape, bad[i].modes, bad[i].mode_size,
                                      bad[i].spatials, bad[i].spatial, bad[i].locals, bad[i].local, &layout,
                                      &why) == TVM_INVALID,
                      "case %zu", i);
        ck_assert_msg(why.text[0] != '\0', "case %zu", i);
    }
    tvm_layout layout;
    ck_assert_int_eq(
        tvm_layout_make(1, (uint32_t[]){4}, 33, (uint32_t[33]){4}, 0, NULL, 0, NULL, &layout, NULL),
        TVM_INVALID);
}
END_TEST

static bool all_zero(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (((const unsigned char *)bytes)[i] != 0) return false;
    return true;
}

/* The header's description of the canonical form, rule by rule. */
static bool valid_by_the_rules(const tvm_layout *p) {
    if (p->rank < 1 || p->rank > TVM_MAX_RANK || p->modes > TVM_MAX_MODES || p->spatials > TVM_MAX_MODES ||
        p->locals > TVM_MAX_MODES)
        return false;
    double elements = 1, threads = 1, locals = 1, product[TVM_MAX_RANK];
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) product[d] = 1;
    for (unsigned d = 0; d < p->rank; d++) elements *= p->shape[d];
    for (unsigned m = 0; m < p->modes; m++) {
        if (p->mode_size[m] < 2 || p->mode_dim[m] >= p->rank) return false;
        if (m > 0 && p->mode_dim[m] < p->mode_dim[m - 1]) return false;
        product[p->mode_dim[m]] *= p->mode_size[m];
    }
    for (unsigned d = 0; d < p->rank; d++)
        if (p->shape[d] == 0 || product[d] != p->shape[d]) return false;
    unsigned uses[TVM_MAX_MODES] = {0};
    for (unsigned i = 0; i < p->spatials; i++) {
        int64_t m = p->spatial[i];
        if (m >= p->modes || m == -1) return false;
        if (m >= 0) uses[m]++;
        threads *= m < 0 ? (double)-m : p->mode_size[m];
        if (i == 0) continue;
        int64_t last = p->spatial[i - 1];
        if (m < 0 && last < 0) return false;
        if (last >= 0 && m == last + 1 && p->mode_dim[m] == p->mode_dim[last]) return false;
    }
    for (unsigned i = 0; i < p->locals; i++) {
        if (p->local[i] >= p->modes) return false;
        uses[p->local[i]]++;
        locals *= p->mode_size[p->local[i]];
        if (i > 0 && p->local[i] == p->local[i - 1] + 1 &&
            p->mode_dim[p->local[i]] == p->mode_dim[p->local[i - 1]])
            return false;
    }
    for (unsigned m = 0; m < p->modes; m++)
        if (uses[m] != 1) return false;
    return elements <= 1 << 20 && threads <= 1024 && locals <= 4096 &&
           all_zero(p->shape + p->rank, sizeof *p->shape * (TVM_MAX_RANK - p->rank)) &&
           all_zero(p->mode_size + p->modes, sizeof *p->mode_size * (TVM_MAX_MODES - p->modes)) &&
           all_zero(p->mode_dim + p->modes, TVM_MAX_MODES - p->modes) &&
           all_zero(p->spatial + p->spatials, sizeof *p->spatial * (TVM_MAX_MODES - p->spatials)) &&
           all_zero(p->local + p->locals, TVM_MAX_MODES - p->locals);
}

/* Small changes that keep a struct close to valid, so that both answers occur. */
static void mutate(uint32_t *state, tvm_layout *p) {
    unsigned at = random_below(state, 4);
    switch (random_below(state, 10)) {
    case 0:
        p->shape[at] = random_below(state, 13);
        break;
    case 1:
        p->mode_size[at] = random_below(state, 7);
        break;
    case 2:
        p->mode_dim[at] = (uint8_t)random_below(state, 4);
        break;
    case 3:
        p->spatial[at] = (int32_t)random_below(state, 8) - 4;
        break;
    case 4:
        p->local[at] = (uint8_t)random_below(state, 5);
        break;
    case 5:
        p->rank = (uint8_t)(p->rank + random_below(state, 3) - 1);
        break;
    case 6:
        p->modes = (uint8_t)(p->modes + random_below(state, 3) - 1);
        break;
    case 7:
        p->spatials = (uint8_t)(p->spatials + random_below(state, 3) - 1);
        break;
    case 8:
        p->locals = (uint8_t)(p->locals + random_below(state, 3) - 1);
        break;
    default:
        ((unsigned char *)p)[random_below(state, sizeof *p)] = (unsigned char)random_next(state);
    }
}

START_TEST(valid_agrees_with_the_rules) {
    uint32_t state = 11;
    int valid = 0, invalid = 0;
    for (int i = 0; i < 30000; i++) {
        tvm_layout layout;
        lists from;
        tvm_why why = {""};
        random_lists(&state, 24, &from);
        ck_assert_int_eq(make_from(&from, &layout, NULL), TVM_OK);
        for (uint32_t n = random_below(&state, 4); n > 0; n--) mutate(&state, &layout);
        bool want = valid_by_the_rules(&layout);
        ck_assert_int_eq(tvm_layout_valid(&layout, &why), want);
        ck_assert_int_eq(why.text[0] == '\0', want);
        valid += want;
        invalid += !want;
    }
    ck_assert_int_gt(valid, 5000);
    ck_assert_int_gt(invalid, 5000);
}
END_TEST

START_TEST(valid_survives_random_bytes) {
    uint32_t state = 13;
    for (int i = 0; i < 20000; i++) {
        tvm_layout layout;
        for (size_t b = 0; b < sizeof layout; b++)
            ((unsigned char *)&layout)[b] = (unsigned char)random_next(&state);
        if (i % 2) layout.rank = 1 + layout.rank % 8;
        if (i % 3) layout.modes = layout.modes % 33, layout.spatials %= 33, layout.locals %= 33;
        ck_assert(!tvm_layout_valid(&layout, NULL));
    }
}
END_TEST

START_TEST(unused_entries_must_be_zero) {
    tvm_layout good = compose(local2(2, 1), spatial2(8, 4)), bad;
    ck_assert(tvm_layout_valid(&good, NULL));
    bad = good, bad.shape[2] = 1;
    ck_assert(!tvm_layout_valid(&bad, NULL));
    bad = good, bad.mode_size[31] = 2;
    ck_assert(!tvm_layout_valid(&bad, NULL));
    bad = good, bad.spatial[5] = -1;
    ck_assert(!tvm_layout_valid(&bad, NULL));
    bad = good, bad.local[9] = 1;
    ck_assert(!tvm_layout_valid(&bad, NULL));
    bad = good, bad.mode_dim[8] = 1;
    ck_assert(!tvm_layout_valid(&bad, NULL));
}
END_TEST

/* ---- queries ---- */

START_TEST(locate_finds_the_lowest_holder) {
    uint32_t state = 17;
    for (int i = 0; i < 500; i++) {
        tvm_layout layout;
        random_layout(&state, 72, &layout, &ref_a);
        uint32_t elements = shape_elements(ref_a.rank, ref_a.shape), holders[72] = {0};
        ck_assert_uint_eq(tvm_layout_elements(&layout), elements);
        for (uint32_t t = ref_a.threads; t-- > 0;) {
            for (uint32_t l = 0; l < ref_a.locals; l++) {
                uint32_t index[TVM_MAX_RANK], thread, local;
                reference_index(&ref_a, t, l, index);
                tvm_layout_locate(&layout, index, &thread, &local);
                ck_assert_uint_le(thread, t);
                ck_assert_uint_eq(local, l);
                ck_assert_uint_eq(ref_a.table[thread * ref_a.locals + local],
                                  ref_a.table[t * ref_a.locals + l]);
                holders[ref_a.table[t * ref_a.locals + l]]++;
            }
        }
        for (uint32_t e = 0; e < elements; e++)
            ck_assert_uint_eq(holders[e], tvm_layout_replication(&layout));
    }
}
END_TEST

START_TEST(index_is_a_sum_of_thread_and_local_parts) {
    uint32_t state = 19;
    for (int i = 0; i < 300; i++) {
        tvm_layout layout;
        random_layout(&state, 72, &layout, &ref_a);
        for (uint32_t t = 0; t < ref_a.threads; t++)
            for (uint32_t l = 0; l < ref_a.locals; l++) {
                uint32_t both[TVM_MAX_RANK], thread[TVM_MAX_RANK], local[TVM_MAX_RANK];
                tvm_layout_map(&layout, t, l, both);
                tvm_layout_map(&layout, t, 0, thread);
                tvm_layout_map(&layout, 0, l, local);
                for (unsigned d = 0; d < ref_a.rank; d++) ck_assert_uint_eq(both[d], thread[d] + local[d]);
            }
    }
}
END_TEST

START_TEST(the_largest_layout_fits_its_table) {
    tvm_layout layout, copies;
    ck_assert_int_eq(tvm_layout_replicated(2, 4, &copies, NULL), TVM_OK);
    layout = compose(compose(copies, spatial2(16, 16)), local2(64, 64));
    const size_t threads = 1024, locals = 4096;
    uint32_t *table = malloc(threads * locals * sizeof *table);
    ck_assert_ptr_nonnull(table);
    tvm_layout_table(&layout, table);
    for (size_t t = 0; t < threads; t++)
        for (size_t l = t % 7; l < locals; l += 7) {
            size_t row = t % 256 / 16 * 64 + l / 64, column = t % 16 * 64 + l % 64;
            if (table[t * locals + l] != row * 1024 + column) ck_abort_msg("thread %zu, local %zu", t, l);
        }
    free(table);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layout");
    TCase *canonical = suite_case(suite, "canonical form");
    tcase_add_test(canonical, make_is_the_function_of_its_lists);
    tcase_add_test(canonical, equal_structs_are_equal_functions);
    tcase_add_test(canonical, make_is_idempotent);
    tcase_add_test(canonical, make_refuses_lists_that_are_no_layout);
    tcase_add_test(canonical, valid_agrees_with_the_rules);
    tcase_add_test(canonical, valid_survives_random_bytes);
    tcase_add_test(canonical, unused_entries_must_be_zero);
    TCase *queries = suite_case(suite, "queries");
    tcase_add_test(queries, locate_finds_the_lowest_holder);
    tcase_add_test(queries, index_is_a_sum_of_thread_and_local_parts);
    tcase_add_test(queries, the_largest_layout_fits_its_table);
    return run_suite(suite);
}
