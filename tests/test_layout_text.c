/* Layouts as text and as pictures. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "layout_kit.h"
#include "suite_kit.h"

static reference ref_a;

static unsigned parse_list(const char **at, int64_t *values) {
    unsigned count = 0;
    ck_assert_int_eq(**at, '[');
    for (++*at; **at != ']';) {
        char *end;
        values[count++] = strtol(*at, &end, 10);
        *at = end + strspn(end, ", ");
    }
    ++*at;
    *at += strspn(*at, ", ");
    return count;
}

START_TEST(text_says_the_whole_layout) {
    uint32_t state = 67;
    for (int i = 0; i < 1000; i++) {
        tvm_layout layout, again;
        char text[TVM_LAYOUT_TEXT_MAX];
        random_layout(&state, 72, &layout, &ref_a);
        const char *at = tvm_layout_text(&layout, text);
        ck_assert_ptr_eq(at, text);
        ck_assert_int_eq(strncmp(at, "layout(", 7), 0);
        at += 7;
        int64_t values[4][TVM_MAX_MODES];
        unsigned counts[4];
        uint32_t shape[TVM_MAX_MODES], modes[TVM_MAX_MODES];
        int32_t spatial[TVM_MAX_MODES];
        uint8_t local[TVM_MAX_MODES];
        for (int k = 0; k < 4; k++) counts[k] = parse_list(&at, values[k]);
        ck_assert_str_eq(at, ")");
        for (int k = 0; k < TVM_MAX_MODES; k++) {
            shape[k] = (uint32_t)values[0][k];
            modes[k] = (uint32_t)values[1][k];
            spatial[k] = (int32_t)values[2][k];
            local[k] = (uint8_t)values[3][k];
        }
        ck_assert_int_eq(tvm_layout_make(counts[0], shape, counts[1], modes, counts[2], spatial, counts[3],
                                         local, &again, NULL),
                         TVM_OK);
        ck_assert(tvm_layout_equal(&layout, &again));
    }
    tvm_layout c = compose(compose(local2(2, 1), spatial2(8, 4)), local2(1, 2)), one;
    char text[TVM_LAYOUT_TEXT_MAX];
    ck_assert_str_eq(tvm_layout_text(&c, text), "layout([16, 8], [2, 8, 4, 2], [1, 2], [0, 3])");
    ck_assert_int_eq(tvm_layout_replicated(2, 32, &one, NULL), TVM_OK);
    ck_assert_str_eq(tvm_layout_text(&one, text), "layout([1, 1], [], [-32], [])");
}
END_TEST

static void picture_is(tvm_layout layout, const char *want) {
    char *picture = tvm_layout_picture(&layout);
    ck_assert_ptr_nonnull(picture);
    ck_assert_str_eq(picture, want);
    free(picture);
}

START_TEST(pictures_show_every_cell) {
    tvm_layout copies, layout, cube;
    picture_is(compose(local2(2, 1), spatial2(2, 3)), "      0     1     2\n"
                                                      "0  0: 0  1: 0  2: 0\n"
                                                      "1  3: 0  4: 0  5: 0\n"
                                                      "2  0: 1  1: 1  2: 1\n"
                                                      "3  3: 1  4: 1  5: 1\n");
    ck_assert_int_eq(tvm_layout_replicated(2, 3, &copies, NULL), TVM_OK);
    picture_is(compose(copies, compose(spatial2(1, 4), local2(1, 2))),
               "           0          1          2          3          4          5          6          7\n"
               "0   0,4,8: 0   0,4,8: 1   1,5,9: 0   1,5,9: 1  2,6,10: 0  2,6,10: 1  3,7,11: 0  3,7,11: 1\n");
    ck_assert_int_eq(tvm_layout_replicated(2, 32, &copies, NULL), TVM_OK);
    picture_is(compose(copies, local2(1, 2)), "              0             1\n"
                                              "0  0,1,..,31: 0  0,1,..,31: 1\n");
    ck_assert_int_eq(tvm_layout_local(1, (uint32_t[]){20}, &layout, NULL), TVM_OK);
    picture_is(layout, "        0      1      2      3      4      5      6      7\n"
                       " 0  0:  0  0:  1  0:  2  0:  3  0:  4  0:  5  0:  6  0:  7\n"
                       " 8  0:  8  0:  9  0: 10  0: 11  0: 12  0: 13  0: 14  0: 15\n"
                       "16  0: 16  0: 17  0: 18  0: 19\n");
    ck_assert_int_eq(tvm_layout_local(3, (uint32_t[]){2, 1, 2}, &cube, NULL), TVM_OK);
    picture_is(cube, "[0, :, :]\n"
                     "      0     1\n"
                     "0  0: 0  0: 1\n"
                     "[1, :, :]\n"
                     "      0     1\n"
                     "0  0: 2  0: 3\n");
}
END_TEST

START_TEST(pictures_have_one_cell_an_element) {
    uint32_t state = 71;
    for (int i = 0; i < 300; i++) {
        tvm_layout layout;
        random_layout(&state, 72, &layout, &ref_a);
        char *picture = tvm_layout_picture(&layout);
        ck_assert_ptr_nonnull(picture);
        uint32_t cells = 0, element = 0;
        for (const char *at = strstr(picture, ": "); at; at = strstr(at + 2, ": ")) {
            /* The local index follows, the lowest thread stands before the first comma. */
            const char *start = at;
            if (at[-1] == ' ' || at[-1] == ':') continue;
            while (start > picture && start[-1] != ' ') start--;
            uint32_t thread, local, index[TVM_MAX_RANK];
            unflatten(ref_a.rank, ref_a.shape, element++, index);
            tvm_layout_locate(&layout, index, &thread, &local);
            ck_assert_uint_eq(strtoul(start, NULL, 10), thread);
            ck_assert_uint_eq(strtoul(at + 2, NULL, 10), local);
            cells++;
        }
        ck_assert_uint_eq(cells, shape_elements(ref_a.rank, ref_a.shape));
        free(picture);
    }
}
END_TEST

START_TEST(shared_text_says_the_whole_layout) {
    char text[TVM_LAYOUT_TEXT_MAX];
    tvm_shared_layout layout;
    ck_assert_int_eq(tvm_shared_layout_auto(3, (uint32_t[]){4, 16, 64}, 16, &layout, NULL), TVM_OK);
    ck_assert_str_eq(tvm_shared_layout_text(&layout, text),
                     "shared([4, 16, 64], [4, 16, 64], [1024, 64, 1], swizzle(3, 3, 3))");
    ck_assert_int_eq(tvm_shared_layout_row_major(2, (uint32_t[]){3, 5}, &layout, NULL), TVM_OK);
    ck_assert_str_eq(tvm_shared_layout_text(&layout, text), "shared([3, 5], [3, 5], [5, 1])");
    ck_assert_int_eq(tvm_shared_layout_row_major(1, (uint32_t[]){1}, &layout, NULL), TVM_OK);
    ck_assert_str_eq(tvm_shared_layout_text(&layout, text), "shared([1], [], [])");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layout text");
    TCase *tests = tcase_create("text");
    tcase_set_timeout(tests, 120);
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, text_says_the_whole_layout);
    tcase_add_test(tests, pictures_show_every_cell);
    tcase_add_test(tests, pictures_have_one_cell_an_element);
    tcase_add_test(tests, shared_text_says_the_whole_layout);
    return run_suite(suite);
}
