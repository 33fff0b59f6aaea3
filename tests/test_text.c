/* Text under construction: what is added stands there, whatever the sizes; the limit; a failure that stays.
 */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite_kit.h"
#include "text.h"

/* Every length of a piece around the capacities that the text grows through, formatted and as bytes. */
START_TEST(text_grows_by_any_piece) {
    enum { PIECES = 6000 };
    for (size_t length = 0; length < PIECES; length += length < 1100 ? 1 : 97) {
        tvm_text text = {0};
        char *piece = malloc(length + 1);
        ck_assert_ptr_nonnull(piece);
        memset(piece, 'x', length);
        piece[length] = '\0';
        tvm_text_add(&text, "<%s>", piece);
        tvm_text_bytes(&text, piece, length);
        tvm_text_puts(&text, "|");
        ck_assert(!text.failed);
        ck_assert_uint_eq(text.size, 2 * length + 3);
        ck_assert_uint_eq(strlen(text.data), text.size);
        ck_assert_int_eq(text.data[0], '<');
        ck_assert_uint_eq(strspn(text.data + 1, "x"), length);
        ck_assert_int_eq(text.data[length + 1], '>');
        ck_assert_uint_eq(strspn(text.data + length + 2, "x"), length);
        ck_assert_int_eq(text.data[2 * length + 2], '|');
        tvm_text_free(&text);
        free(piece);
    }
}
END_TEST

START_TEST(text_of_nothing_is_empty) {
    tvm_text text = {0}, more = {0};
    ck_assert_str_eq(tvm_text_string(&text), "");
    tvm_text_append(&text, &more);
    tvm_text_add(&text, "%s", "");
    ck_assert_str_eq(tvm_text_string(&text), "");
    ck_assert(!text.failed);
    tvm_text_free(&text);
}
END_TEST

/* As long as the limit is good; what would be longer is left out, and so is all that follows. */
START_TEST(text_keeps_its_limit) {
    tvm_text text = {.limit = 5};
    tvm_text_add(&text, "%d", 1234);
    tvm_text_puts(&text, "5");
    ck_assert(!text.failed);
    tvm_text_add(&text, "%d", 6);
    ck_assert(text.failed && text.too_long);
    tvm_text_puts(&text, "");
    tvm_text_bytes(&text, "x", 1);
    ck_assert_str_eq(tvm_text_string(&text), "12345");
    tvm_text_free(&text);
}
END_TEST

START_TEST(text_fails_with_what_is_appended) {
    tvm_text text = {0}, more = {.limit = 1};
    tvm_text_puts(&text, "a");
    tvm_text_puts(&more, "too long");
    tvm_text_append(&text, &more);
    ck_assert(text.failed);
    ck_assert_str_eq(tvm_text_string(&text), "a");
    tvm_text_free(&text);
    tvm_text_free(&more);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, text_grows_by_any_piece);
    tcase_add_test(tests, text_of_nothing_is_empty);
    tcase_add_test(tests, text_keeps_its_limit);
    tcase_add_test(tests, text_fails_with_what_is_appended);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
