/* Layouts as text. */
#include "check_kit.h"
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
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, text_says_the_whole_layout);
    tcase_add_test(tests, shared_text_says_the_whole_layout);
    return run_suite(suite);
}
