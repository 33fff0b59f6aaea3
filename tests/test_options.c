/* Constants of the shipped programs that nobody should set, and that somebody will: a program is assembled
 * with them, or an .assert of its own refuses them and names a constant; no line further in complains of what
 * it was given. */
#include "check_kit.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shipped_kit.h"
#include "suite_kit.h"
#include "type_kit.h"

/* What the heads of the programs call constants of their user. */
static const char *const of_types[] = {"T",     "TB",    "OTYPE", "ATYPE", "WTYPE",
                                       "STYPE", "LTYPE", "DTYPE", "KTYPE", "VTYPE"};
static const char *const of_numbers[] = {
    "GROUP", "KGROUP",  "VGROUP", "PAGE",  "BLOCK", "D",       "DV", "ROPE", "HEAD", "HEADS",    "K",
    "TOP",   "EXPERTS", "GROUPS", "RANKS", "TAPS",  "BUCKETS", "N",  "P",    "TOPK", "MAX_BATCH"};
static const char *const odd_types[] = {"u1", "f4_e2m1", "f8_e4m3", "e8m0", "tf32", "bool"};
static const char *const odd_numbers[] = {"-16", "7", "9223372036854775807"};
enum {
    NAMES_OF_TYPES = sizeof of_types / sizeof *of_types,
    NAMES_OF_NUMBERS = sizeof of_numbers / sizeof *of_numbers,
    ODD_TYPES = sizeof odd_types / sizeof *odd_types,
    ODD_NUMBERS = sizeof odd_numbers / sizeof *odd_numbers
};
static glob_t programs;

/* Words of these programs' own, which happen to be constants of others' users; and T of the shortest program,
 * whose mma says which types it multiplies. */
static const struct own {
    const char *program, *name;
} of_its_own[] = {{"/matmul_lowbit_a8.vasm", "GROUPS"},
                  {"/matmul_simple.vasm", "T"},
                  {"/topk.vasm", "GROUPS"},
                  {"/mla_append.vasm", "D"},
                  {"/mla_decode.vasm", "D"},
                  {"/state_space.vasm", "D"}};

static bool is_of_its_own(const char *path, const char *name) {
    for (size_t i = 0; i < sizeof of_its_own / sizeof *of_its_own; i++)
        if (strcmp(name, of_its_own[i].name) == 0 && strstr(path, of_its_own[i].program) != NULL) return true;
    return false;
}

/* The program's own: an .assert in its text, or what the assembler says of -D before any line of it. */
static bool is_of_the_program(const tvm_diag *diag) {
    const char *source = diag->source == NULL ? "" : diag->source + strspn(diag->source, " ");
    return diag->line == 0 || strncmp(source, ".assert ", 8) == 0 || strncmp(source, ".error ", 7) == 0;
}

static bool names_a_constant(const char *message) {
    for (; *message != '\0'; message++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", *message) != NULL) return true;
    return false;
}

/* Does the program's text have the name? Of others the assembler says at its end that there are none. */
static bool has(const char *path, const char *name) {
    uint8_t *text = NULL;
    size_t size = 0, length = strlen(name);
    bool found = false;
    if (is_of_its_own(path, name)) return false;
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, NULL), TVM_OK);
    for (size_t i = 1; !found && i + length < size; i++)
        found = memcmp(text + i, name, length) == 0 && strchr(" (", text[i - 1]) != NULL &&
                strchr(" ,;:)", text[i + length]) != NULL;
    free(text);
    return found;
}

static void is_taken_or_refused(const char *path, const char *name, const char *value) {
    char define[64];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    snprintf(define, sizeof define, "%s=%s", name, value);
    tvm_status status = assemble_with(path, define, &program, &diags);
    if (status != TVM_OK) {
        ck_assert_uint_gt(diags.count, 0);
        const tvm_diag *first = &diags.items[0];
        ck_assert_msg(is_of_the_program(first) && names_a_constant(first->message), "%s -D %s: %s:%u: %s",
                      path, define, first->file == NULL ? "" : first->file, (unsigned)first->line,
                      first->message);
    }
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

START_TEST(odd_types_are_refused_by_name) {
    const char *path = programs.gl_pathv[_i];
    char type[TVM_DTYPE_NAME_MAX];
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = test_all() ? tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX) : 0;
    for (size_t i = 0; i < NAMES_OF_TYPES; i++) {
        if (!has(path, of_types[i])) continue;
        for (size_t j = 0; j < ODD_TYPES; j++) is_taken_or_refused(path, of_types[i], odd_types[j]);
        for (size_t j = 0; j < count; j++)
            is_taken_or_refused(path, of_types[i], tvm_dtype_name(types[j], type));
    }
}
END_TEST

START_TEST(odd_numbers_are_refused_by_name) {
    for (size_t i = 0; i < NAMES_OF_NUMBERS; i++)
        for (size_t j = 0; has(programs.gl_pathv[_i], of_numbers[i]) && j < ODD_NUMBERS; j++)
            is_taken_or_refused(programs.gl_pathv[_i], of_numbers[i], odd_numbers[j]);
}
END_TEST

static Suite *options_suite(void) {
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("constants");
    tcase_add_loop_test(tcase, odd_types_are_refused_by_name, 0, (int)programs.gl_pathc);
    tcase_add_loop_test(tcase, odd_numbers_are_refused_by_name, 0, (int)programs.gl_pathc);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void) {
    char pattern[5000];
    int status = glob(program_path("*.vasm", pattern), 0, NULL, &programs);
    if (status != 0) return 1;
    status = run_suite(options_suite());
    globfree(&programs);
    return status;
}
