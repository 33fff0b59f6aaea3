/* Diagnostics: what is kept of them, and how they are printed. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "diag.h"
#include "suite_kit.h"

/* The printed form, to be freed. */
static char *printed(const tvm_diags *diags, const char *program, bool color) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(stream);
    tvm_diags_print(diags, stream, program, color);
    ck_assert_int_eq(fclose(stream), 0);
    return text;
}

static void assert_printed(tvm_diags *diags, const char *program, const char *expected) {
    char *text = printed(diags, program, false);
    ck_assert_str_eq(text, expected);
    free(text);
    tvm_diags_free(diags);
}

START_TEST(keeps_copies) {
    char file[] = "a.vasm", source[] = "line", hint[] = "try b", word[] = "x";
    tvm_diags diags = {0};
    tvm_place place = {file, 3, 2, 1, source};
    ck_assert_int_eq(tvm_diag_add(&diags, TVM_SYNTAX, &place, hint, "bad %s %d", word, 7), TVM_SYNTAX);
    memset(file, '-', sizeof file - 1);
    memset(source, '-', sizeof source - 1);
    memset(hint, '-', sizeof hint - 1);
    memset(word, '-', sizeof word - 1);
    ck_assert_uint_eq(diags.count, 1);
    const tvm_diag *diag = &diags.items[0];
    ck_assert_int_eq(diag->status, TVM_SYNTAX);
    ck_assert_str_eq(diag->file, "a.vasm");
    ck_assert_str_eq(diag->source, "line");
    ck_assert_str_eq(diag->hint, "try b");
    ck_assert_str_eq(diag->message, "bad x 7");
    ck_assert_uint_eq(diag->line, 3);
    ck_assert_uint_eq(diag->column, 2);
    ck_assert_uint_eq(diag->length, 1);
    tvm_diags_free(&diags);
    ck_assert_uint_eq(diags.count, 0);
    ck_assert_ptr_null(diags.items);
}
END_TEST

START_TEST(nothing_kept_without_a_list) {
    ck_assert_int_eq(tvm_diag_add(NULL, TVM_IO, NULL, NULL, "lost %d", 1), TVM_IO);
    ck_assert_int_eq(tvm_diag_no_memory(NULL), TVM_NO_MEMORY);
}
END_TEST

START_TEST(many_stay_in_order) {
    tvm_diags diags = {0};
    for (int i = 0; i < 1000; i++) tvm_diag_add(&diags, TVM_INVALID, NULL, NULL, "number %d", i);
    ck_assert_uint_eq(diags.count, 1000);
    ck_assert_uint_eq(diags.lost, 0);
    for (int i = 0; i < 1000; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "number %d", i);
        ck_assert_str_eq(diags.items[i].message, expected);
        ck_assert_ptr_null(diags.items[i].file);
        ck_assert_ptr_null(diags.items[i].hint);
    }
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(long_message_is_whole) {
    static char text[100001];
    memset(text, 'm', sizeof text - 1);
    tvm_diags diags = {0};
    tvm_diag_add(&diags, TVM_PTXAS, NULL, NULL, "%s", text);
    ck_assert_str_eq(diags.items[0].message, text);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(prints_place_caret_and_hint) {
    tvm_diags diags = {0};
    tvm_place place = {"m.vasm", 12, 9, 4, "    %a = lod-shared %s"};
    tvm_diag_add(&diags, TVM_SYNTAX, &place, "did you mean 'load-shared'?", "no such instruction");
    assert_printed(&diags, "tvm-as",
                   "m.vasm:12:9: error: no such instruction\n"
                   "        %a = lod-shared %s\n"
                   "            ^~~~\n"
                   "    hint: did you mean 'load-shared'?\n");
}
END_TEST

START_TEST(prints_what_is_known_of_the_place) {
    tvm_diags diags = {0};
    tvm_place file = {.file = "w.npy"}, line = {.file = "m.vasm", .line = 4};
    tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "one");
    tvm_diag_add(&diags, TVM_IO, &file, NULL, "two");
    tvm_diag_add(&diags, TVM_INVALID, &line, "three", "four");
    assert_printed(&diags, "tvm-run",
                   "tvm-run: error: one\n"
                   "w.npy: error: two\n"
                   "m.vasm:4: error: four\n"
                   "    hint: three\n");
    tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "five");
    assert_printed(&diags, NULL, "error: five\n");
}
END_TEST

START_TEST(caret_lines_up) {
    tvm_diags diags = {0};
    /* Under tabs, and under characters of several bytes (columns count bytes). */
    tvm_place tabs = {"f", 1, 4, 1, "\ta\tb"};
    tvm_place utf8 = {"f", 2, 6, 5, "\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9 x"};
    tvm_diag_add(&diags, TVM_SYNTAX, &tabs, NULL, "t");
    tvm_diag_add(&diags, TVM_SYNTAX, &utf8, NULL, "u");
    assert_printed(&diags, NULL,
                   "f:1:4: error: t\n"
                   "    \ta\tb\n"
                   "    \t \t^\n"
                   "f:2:6: error: u\n"
                   "    \xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9 x\n"
                   "       ^~~\n");
}
END_TEST

START_TEST(caret_stays_at_the_line) {
    tvm_diags diags = {0};
    tvm_place beyond = {"f", 1, 4000000000u, 4000000000u, "ab"},
              longer = {"f", 2, 2, 4000000000u, "abc\ndef"};
    tvm_place empty = {"f", 3, 1, 1, ""};
    tvm_diag_add(&diags, TVM_SYNTAX, &beyond, NULL, "e");
    tvm_diag_add(&diags, TVM_SYNTAX, &longer, NULL, "e");
    tvm_diag_add(&diags, TVM_SYNTAX, &empty, NULL, "e");
    assert_printed(&diags, NULL,
                   "f:1:4000000000: error: e\n"
                   "    ab\n"
                   "      ^\n"
                   "f:2:2: error: e\n"
                   "    abc\n"
                   "     ^~\n"
                   "f:3:1: error: e\n"
                   "    \n"
                   "    ^\n");
}
END_TEST

/* Of a line of any length a part that fits a screen is shown, with the caret under the right character. */
START_TEST(long_line_is_cut_around_the_caret) {
    static char source[5001];
    for (size_t i = 0; i < sizeof source - 1; i++) source[i] = (char)('a' + i % 26);
    static const uint32_t columns[] = {1, 50, 100, 2500, 4950, 5000};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        uint32_t column = columns[i];
        source[column - 1] = '!';
        tvm_diags diags = {0};
        tvm_place place = {"f", 1, column, 1, source};
        tvm_diag_add(&diags, TVM_SYNTAX, &place, NULL, "e");
        char *text = printed(&diags, NULL, false);
        char *line = strchr(text, '\n') + 1;
        char *below = strchr(line, '\n') + 1;
        ck_assert_int_lt(below - line, 200);
        ck_assert_int_eq(strchr(below, '^') - below, strchr(line, '!') - line);
        free(text);
        tvm_diags_free(&diags);
        source[column - 1] = 'x';
    }
}
END_TEST

START_TEST(control_characters_do_not_reach_the_terminal) {
    tvm_diags diags = {0};
    tvm_place place = {"a\033b", 1, 3, 1, "x\033[2Jy\x7f\a"};
    tvm_diag_add(&diags, TVM_SYNTAX, &place, "\033]0;t\a", "%s", "bad '\033[31m'");
    char *text = printed(&diags, NULL, false);
    for (const char *c = text; *c; c++) ck_assert(*c == '\n' || ((unsigned char)*c >= 0x20 && *c != 0x7f));
    free(text);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(color_only_adds_escapes) {
    tvm_diags diags = {0};
    tvm_place place = {"f", 1, 2, 2, "abc"};
    tvm_diag_add(&diags, TVM_SYNTAX, &place, "h", "m");
    char *plain = printed(&diags, NULL, false), *colored = printed(&diags, NULL, true);
    ck_assert_ptr_null(strchr(plain, '\033'));
    ck_assert_ptr_nonnull(strchr(colored, '\033'));
    char *to = colored;
    for (const char *from = colored; *from; from++) {
        if (*from == '\033')
            from = strchr(from, 'm');
        else
            *to++ = *from;
    }
    *to = '\0';
    ck_assert_str_eq(colored, plain);
    free(plain);
    free(colored);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(lost_ones_are_told) {
    tvm_diags diags = {.lost = 3};
    assert_printed(&diags, "tvm-as", "tvm-as: error: out of host memory: 3 more messages are lost\n");
}
END_TEST

START_TEST(every_status_has_its_own_text) {
    static const tvm_status all[] = {
#define STATUS_ID(id, value, text, advice) TVM_##id,
        TVM_STATUS_TABLE(STATUS_ID)
#undef STATUS_ID
    };
    size_t count = sizeof all / sizeof all[0];
    for (size_t i = 0; i < count; i++) {
        const char *text = tvm_status_text(all[i]);
        ck_assert_str_ne(text, "");
        ck_assert_str_ne(text, tvm_status_text((tvm_status)9999));
        for (size_t j = 0; j < i; j++) ck_assert_str_ne(text, tvm_status_text(all[j]));
    }
    ck_assert_str_eq(tvm_status_text(TVM_OK), "success");
    ck_assert_ptr_null(tvm_status_advice(TVM_OK));
    ck_assert_ptr_null(tvm_status_advice((tvm_status)9999));
    ck_assert(strstr(tvm_status_advice(TVM_FAULT), "context") != NULL);
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_diag_no_memory(&diags), TVM_NO_MEMORY);
    assert_printed(&diags, NULL, "error: out of host memory\n");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("diag");
    TCase *cases = tcase_create("diag");
    tcase_add_test(cases, keeps_copies);
    tcase_add_test(cases, nothing_kept_without_a_list);
    tcase_add_test(cases, many_stay_in_order);
    tcase_add_test(cases, long_message_is_whole);
    tcase_add_test(cases, prints_place_caret_and_hint);
    tcase_add_test(cases, prints_what_is_known_of_the_place);
    tcase_add_test(cases, caret_lines_up);
    tcase_add_test(cases, caret_stays_at_the_line);
    tcase_add_test(cases, long_line_is_cut_around_the_caret);
    tcase_add_test(cases, control_characters_do_not_reach_the_terminal);
    tcase_add_test(cases, color_only_adds_escapes);
    tcase_add_test(cases, lost_ones_are_told);
    tcase_add_test(cases, every_status_has_its_own_text);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
