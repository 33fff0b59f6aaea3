/* Pictures of layouts and of what accesses to memory cost, as text and as SVG. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "layout_kit.h"
#include "traffic.h"

static char *picture_of(const tvm_picture_request *request) {
    tvm_diags diags = {0};
    char *picture = NULL;
    tvm_status status = tvm_print_layout(request, &picture, &diags);
    ck_assert_msg(status == TVM_OK, "%s: %s", request->expression, diags.count ? diags.items[0].message : "");
    tvm_diags_free(&diags);
    return picture;
}

static void picture_is(const tvm_picture_request request, const char *want) {
    char *picture = picture_of(&request);
    ck_assert_str_eq(picture, want);
    free(picture);
}

START_TEST(register_layouts_show_every_cell) {
    picture_is((tvm_picture_request){.expression = "local(2,1).spatial(2,3)"}, "      0     1     2\n"
                                                                               "0  0: 0  1: 0  2: 0\n"
                                                                               "1  3: 0  4: 0  5: 0\n"
                                                                               "2  0: 1  1: 1  2: 1\n"
                                                                               "3  3: 1  4: 1  5: 1\n");
    picture_is((tvm_picture_request){.expression = "layout([1, 4], [2, 2], [-3, 0], [1])"},
               "          0         1         2         3\n"
               "0  0,2,4: 0  0,2,4: 1  1,3,5: 0  1,3,5: 1\n");
    picture_is((tvm_picture_request){.expression = "layout([1, 2], [2], [-32], [0])"},
               "              0             1\n"
               "0  0,1,..,31: 0  0,1,..,31: 1\n");
    picture_is((tvm_picture_request){.expression = "local(20)"},
               "        0      1      2      3      4      5      6      7\n"
               " 0  0:  0  0:  1  0:  2  0:  3  0:  4  0:  5  0:  6  0:  7\n"
               " 8  0:  8  0:  9  0: 10  0: 11  0: 12  0: 13  0: 14  0: 15\n"
               "16  0: 16  0: 17  0: 18  0: 19\n");
    picture_is((tvm_picture_request){.expression = "local(2,1,2)"}, "[0, :, :]\n"
                                                                    "      0     1\n"
                                                                    "0  0: 0  0: 1\n"
                                                                    "[1, :, :]\n"
                                                                    "      0     1\n"
                                                                    "0  0: 2  0: 3\n");
}
END_TEST

START_TEST(colours_tell_threads_apart) {
    picture_is((tvm_picture_request){.expression = "spatial(1,2)", .colour = true},
               "      0     1\n"
               "0  \033[30;48;5;217m0: 0\033[0m  \033[30;48;5;157m1: 0\033[0m\n");
    /* of several warps, warps */
    char *picture = picture_of(&(tvm_picture_request){.expression = "spatial(64)", .colour = true});
    ck_assert_ptr_nonnull(strstr(picture, "\033[30;48;5;217m31: 0"));
    ck_assert_ptr_null(strstr(picture, "\033[30;48;5;157m1: 0"));
    free(picture);
}
END_TEST

/* ---- folding ---- */

typedef struct step {
    unsigned dim;
    uint32_t by, count, change;
    bool local;
} step;

static unsigned read_steps(const char *picture, step *steps) {
    unsigned count = 0;
    for (const char *at = strstr(picture, "  every "); at; at = strstr(at + 1, "  every ")) {
        char what[16], how[16];
        step *s = &steps[count++];
        ck_assert_int_eq(sscanf(at, "  every %u %15[a-z], %u times: %15[a-z] + %u", &s->by, what, &s->count,
                                how, &s->change),
                         5);
        s->dim = !strcmp(what, "columns");
        s->local = !strcmp(how, "local");
        ck_assert(s->local || !strcmp(how, "thread"));
    }
    return count;
}

/* The first holder and the local index of the cell that is drawn in this row and column. */
static void read_cell(const char *picture, uint32_t row, uint32_t column, uint32_t *thread, uint32_t *local) {
    const char *at = picture;
    for (uint32_t line = 0; line <= row; line++) at = strchr(at, '\n') + 1;
    at += strspn(at, " ");
    at += strcspn(at, " "); /* the row's number */
    for (uint32_t c = 0; c < column; c++) {
        at = strstr(at, ": ") + 2;
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    *thread = (uint32_t)strtoul(at, NULL, 10);
    *local = (uint32_t)strtoul(strstr(at, ": ") + 2, NULL, 10);
}

/* What is drawn, with what the notes say repeats it, is the whole layout. */
START_TEST(folded_pictures_say_every_cell) {
    static const uint32_t shapes[][2] = {{16, 16}, {64, 64}, {48, 96}, {1, 254}, {130, 3}, {256, 8}};
    uint32_t state = 7 + (uint32_t)_i;
    const uint32_t *shape = shapes[_i];
    for (unsigned round = 0; round < 12; round++) {
        uint32_t threads = 1U << random_below(&state, 8), index[2];
        tvm_layout layout = random_layout_over(&state, 2, shape, threads);
        char text[TVM_LAYOUT_TEXT_MAX];
        char *picture = picture_of(&(tvm_picture_request){.expression = tvm_layout_text(&layout, text)});
        step steps[64];
        unsigned count = read_steps(picture, steps);
        ck_assert(count > 0 || !strstr(picture, "Shown"));
        for (index[0] = 0; index[0] < shape[0]; index[0] += 1 + index[0] / 4)
            for (index[1] = 0; index[1] < shape[1]; index[1] += 1 + index[1] / 4) {
                uint32_t at[2] = {index[0], index[1]}, add[2] = {0, 0}, thread, local, drawn[2];
                for (unsigned i = 0; i < count; i++) {
                    uint32_t digit = index[steps[i].dim] / steps[i].by % steps[i].count;
                    at[steps[i].dim] -= digit * steps[i].by;
                    add[steps[i].local] += digit * steps[i].change;
                }
                tvm_layout_locate(&layout, index, &thread, &local);
                read_cell(picture, at[0], at[1], &drawn[0], &drawn[1]);
                ck_assert_msg(drawn[0] + add[0] == thread && drawn[1] + add[1] == local, "%s at %u, %u", text,
                              index[0], index[1]);
            }
        for (char *line = strtok(picture, "\n"); line; line = strtok(NULL, "\n"))
            ck_assert_uint_le(strlen(line), 80);
        free(picture);
    }
}
END_TEST

START_TEST(folded_pictures_name_what_repeats) {
    char *picture =
        picture_of(&(tvm_picture_request){.expression = "spatial(4,1).local(1,4).mma.m16n8k16.A"});
    ck_assert_ptr_nonnull(strstr(picture, "Shown: 32 of 64 rows, 8 of 64 columns. They repeat:\n"
                                          "  every 8 columns, 8 times: local + 4\n"
                                          "  every 32 rows, 2 times: thread + 64\n"));
    free(picture);
    picture = picture_of(&(tvm_picture_request){.expression = "local(512)"});
    ck_assert_ptr_nonnull(strstr(picture, "Shown: 256 of 512 elements. They repeat:\n"
                                          "  every 256 elements, 2 times: local + 256\n"));
    free(picture);
    picture = picture_of(&(tvm_picture_request){.expression = "local(50, 32, 2)"});
    ck_assert_ptr_nonnull(strstr(picture, "  every 2 indices of dimension 0, 25 times: local + 128\n"));
    free(picture);
}
END_TEST

/* ---- shared memory ---- */

START_TEST(shared_layouts_show_lines_and_banks) {
    picture_is((tvm_picture_request){.expression = "shared([5,16],[5,16],[16,1],swizzle(3,1,3))"},
               "        0       8\n"
               "0   0:0-3   0:4-7\n"
               "1  0:8-11 0:12-15\n"
               "2 0:16-19 0:20-23\n"
               "3 0:24-27 0:28-31\n"
               "4   1:4-7   1:0-3\n"
               "Each cell: 8 elements of 16 bits, by line of 128 bytes: banks of 4 bytes.\n");
}
END_TEST

/* Rows of 128 bytes: row r has its chunk c in the banks of chunk c ^ (r % 8). */
START_TEST(swizzles_move_chunks) {
    char *picture =
        picture_of(&(tvm_picture_request){.expression = "shared([16,64],[16,64],[64,1],swizzle(3,3,3))"});
    for (uint32_t row = 0; row < 16; row++) {
        char want[128];
        int length = snprintf(want, sizeof want, "%2u", row);
        for (unsigned c = 0; c < 8; c++) {
            char cell[16];
            unsigned bank = (c ^ row % 8) * 4;
            snprintf(cell, sizeof cell, "%u:%u-%u", row, bank, bank + 3);
            length += snprintf(want + length, sizeof want - (size_t)length, " %8s", cell);
        }
        ck_assert_msg(strstr(picture, want) != NULL, "%s\n%s", want, picture);
    }
    ck_assert_ptr_null(strstr(picture, "Shown"));
    free(picture);
    picture = picture_of(
        &(tvm_picture_request){.expression = "shared([64,64],[64,64],[64,1],swizzle(3,3,3))", .type = "f16"});
    ck_assert_ptr_nonnull(strstr(picture, "  every 32 rows, 2 times: line + 32\n"));
    free(picture);
}
END_TEST

/* Eight rows of 128 bytes, read by columns of 16 bytes: all in the same banks, unless swizzled. */
START_TEST(conflicts_are_marked) {
    picture_is((tvm_picture_request){.expression = "spatial(8,4).local(1,2)",
                                     .shared = "shared([8,8],[8,8],[64,1])"},
               "warp 0, access 0: lanes by bank\n"
               "                0       4       8      12      16      20      24      28\n"
               "pass 0   0  row 0 \n"
               "pass 1   0  row 1!\n"
               "pass 2   0  row 2!\n"
               "pass 3   0  row 3!\n"
               "pass 4   0  row 4!\n"
               "pass 5   0  row 5!\n"
               "pass 6   0  row 6!\n"
               "pass 7   0  row 7!\n"
               "By ldmatrix: each access reads 8 rows of 16 bytes.\n"
               "1 warp, 1 access each, 8 passes, 8 in all where 1 would do: 8-way bank conflicts (!).\n");
    picture_is((tvm_picture_request){.expression = "local(1,8).ldmatrix",
                                     .shared = "shared([8,64],[8,64],[64,1],swizzle(3,3,3))"},
               "warp 0, access 0: lanes by bank\n"
               "                0      4      8     12     16     20     24     28\n"
               "pass 0   0  row 0  row 1  row 2  row 3  row 4  row 5  row 6  row 7\n"
               "By ldmatrix: each access reads 8 rows of 16 bytes.\n"
               "1 warp, 8 accesses each, 1 pass: no bank conflicts.\n");
    /* words of 4 bytes, 2 apart: lanes 0 and 16 meet in bank 0 */
    char *picture = picture_of(&(tvm_picture_request){
        .expression = "spatial(32)", .type = "f32", .shared = "shared([32],[32],[2])"});
    ck_assert_ptr_nonnull(strstr(picture, "2 passes, 2 in all where 1 would do: 2-way bank conflicts (!)."));
    ck_assert_ptr_nonnull(strstr(picture, "pass 1   0  16!       17!       18!"));
    free(picture);
    /* the same word for all */
    picture = picture_of(&(tvm_picture_request){
        .expression = "layout([1], [], [-32], [])", .type = "f32", .shared = "shared([1],[],[])"});
    ck_assert_ptr_nonnull(strstr(picture, "pass 0   0  0+"));
    ck_assert_ptr_nonnull(strstr(picture, "1 pass: no bank conflicts."));
    free(picture);
}
END_TEST

START_TEST(passes_are_those_of_the_banks) {
    uint32_t address[32];
    uint8_t pass[32];
    for (unsigned stride = 1; stride <= 64; stride++) { /* words: gcd(stride, 32) lanes meet in a bank */
        unsigned meet = 1;
        while (meet < 32 && stride % (2 * meet) == 0) meet *= 2;
        for (unsigned i = 0; i < 32; i++) address[i] = 4 * stride * i;
        ck_assert_uint_eq(tvm_bank_passes(address, 32, 32, pass), meet);
        for (unsigned i = 0; i < 32; i++) ck_assert_uint_eq(pass[i], i / (32 / meet));
    }
    for (unsigned i = 0; i < 32; i++) address[i] = 16 * i;
    ck_assert_uint_eq(tvm_bank_passes(address, 32, 128, pass), 4);
    ck_assert_uint_eq(pass[31], 3);
    ck_assert_uint_eq(tvm_bank_passes_least(32, 64), 2);
}
END_TEST

/* ---- global memory ---- */

START_TEST(global_accesses_show_lines_and_sectors) {
    picture_is(
        (tvm_picture_request){
            .expression = "spatial(2,16).local(1,2)", .type = "f32", .global = true, .row = 40},
        "warp 0, access 0: lanes by line of 128 bytes and sector of 32\n"
        "              0     32     64     96\n"
        "  byte 0    0-3    4-7   8-11  12-15\n"
        "byte 128         16-19  20-23  24-27\n"
        "byte 256  28-31\n"
        "1 warp, 1 access each of up to 32 x 8 bytes: 3 lines, 8 sectors.\n"
        "256 bytes of 256 that are moved, 100 %, are of the tile; ! marks sectors of which not all is "
        "used.\n");
    picture_is(
        (tvm_picture_request){.expression = "spatial(4,1)", .global = true, .row = 64},
        "warp 0, access 0: lanes by line of 128 bytes and sector of 32\n"
        "           0   32   64   96\n"
        "  byte 0   0!\n"
        "byte 128   1!\n"
        "byte 256   2!\n"
        "byte 384   3!\n"
        "1 warp, 1 access each of up to 4 x 2 bytes: 4 lines, 4 sectors.\n"
        "8 bytes of 128 that are moved, 6 %, are of the tile; ! marks sectors of which not all is used.\n");
}
END_TEST

/* ---- SVG ---- */

START_TEST(svg_has_a_box_for_each_cell) {
    char *picture =
        picture_of(&(tvm_picture_request){.expression = "local(2,1).spatial(8,4).local(1,2)", .svg = true});
    unsigned boxes = 0;
    ck_assert_ptr_eq(strstr(picture, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""), picture);
    ck_assert_str_eq(picture + strlen(picture) - 7, "</svg>\n");
    for (const char *at = strstr(picture, "stroke=\"#777\""); at; at = strstr(at + 1, "stroke=\"#777\""))
        boxes++;
    ck_assert_uint_eq(boxes, 16 * 8);
    ck_assert_ptr_nonnull(strstr(picture, ">31: 3</text>"));
    free(picture);
    picture = picture_of(&(tvm_picture_request){
        .expression = "spatial(8,4).local(1,2)", .shared = "shared([8,8],[8,8],[64,1])", .svg = true});
    ck_assert_ptr_nonnull(strstr(picture, "stroke=\"#c00\" stroke-width=\"2.5\""));
    free(picture);
}
END_TEST

/* ---- what is wrong ---- */

START_TEST(wrong_requests_are_refused) {
    static const struct {
        tvm_picture_request request;
        const char *message;
    } wrong[] = {
        {{.expression = "local(2"}, "is not closed"},
        {{.expression = "u3"}, "expected a register layout or a shared layout"},
        {{.expression = ""}, ""},
        {{.expression = "local(2)", .type = "f99"}, "'f99' is no type"},
        {{.expression = "local(2)", .shared = "row_major"}, "expected a shared layout with its shape"},
        {{.expression = "local(2)", .shared = "local(2)"}, "expected a shared layout with its shape"},
        {{.expression = "local(2)", .shared = "shared([3],[3],[1])"}, "differ in shape"},
        {{.expression = "local(1,2)", .shared = "shared([2],[2],[1])"}, "differ in shape"},
        {{.expression = "shared([2],[2],[1])", .global = true},
         "expected a register layout, found a shared layout"},
        {{.expression = "local(4,8)", .global = true, .row = 7}, "shorter than one of the tile"},
        {{.expression = "local(1000000)", .global = true}, ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tvm_diags diags = {0};
        char *picture = NULL;
        ck_assert_int_ne(tvm_print_layout(&wrong[i].request, &picture, &diags), TVM_OK);
        ck_assert_ptr_null(picture);
        ck_assert_uint_ge(diags.count, 1);
        ck_assert_msg(strstr(diags.items[0].message, wrong[i].message) != NULL, "%s", diags.items[0].message);
        tvm_diags_free(&diags);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pictures");
    TCase *tests = tcase_create("pictures");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, register_layouts_show_every_cell);
    tcase_add_test(tests, colours_tell_threads_apart);
    tcase_add_loop_test(tests, folded_pictures_say_every_cell, 0, 6);
    tcase_add_test(tests, folded_pictures_name_what_repeats);
    tcase_add_test(tests, shared_layouts_show_lines_and_banks);
    tcase_add_test(tests, swizzles_move_chunks);
    tcase_add_test(tests, conflicts_are_marked);
    tcase_add_test(tests, passes_are_those_of_the_banks);
    tcase_add_test(tests, global_accesses_show_lines_and_sectors);
    tcase_add_test(tests, svg_has_a_box_for_each_cell);
    tcase_add_test(tests, wrong_requests_are_refused);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
