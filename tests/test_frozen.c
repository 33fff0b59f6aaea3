/* Bytecode of every version of the container since the first edition, tests/frozen/N (made by tests/freeze):
 * it is read, gives in the interpreter the results that it gave then, is translated for every target, written
 * anew and taken apart to text that says the same. */
#include "check_kit.h"
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "case_file.h"
#include "codegen.h"
#include "fileio.h"
#include "language.h"
#include "suite_kit.h"
#include "vbc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TIMEOUT = 300 };

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
/* The folders: how many cases each has, and a hash of its files, which never change. */
static const struct {
    const char *version;
    int cases;
    uint64_t hash;
} folders[] = {{"1", 138, UINT64_C(0x8b85d5d7a62f104e)},
               {"2", 159, UINT64_C(0xa114dee47bf17ddf)},
               {"3", 247, UINT64_C(0x852b00a310933828)},
               {"4", 266, UINT64_C(0xe18dd51c57fc52ef)},
               {"5", 279, UINT64_C(0x7a01bb27da496acb)}};

static char *folder_of(int version, char path[4096]) {
    const char *top = getenv("srcdir");
    snprintf(path, 4096, "%s/tests/frozen/%s", top != NULL ? top : ".", folders[version].version);
    return path;
}

typedef struct frozen {
    case_file *c;
    uint8_t *bytes;
    size_t size;
    tvm_ir_program *program;
} frozen;

/* Reading verifies. */
static frozen frozen_read(const char *path) {
    frozen f = {.c = case_read(path)};
    ck_assert_ptr_nonnull(f.c);
    ck_assert_ptr_nonnull(f.c->bytecode);
    char file[8192];
    snprintf(file, sizeof file, "%.*s%s", (int)(strrchr(path, '/') + 1 - path), path, f.c->bytecode);
    tvm_diags diags = {0};
    tvm_status status = tvm_file_read(file, 1 << 20, &f.bytes, &f.size, &diags);
    if (status == TVM_OK) status = tvm_vbc_read(f.bytes, f.size, file, &f.program, &diags);
    tvm_diags_print(&diags, stderr, "test_frozen", false);
    ck_assert_msg(status == TVM_OK, "%s is not read", file);
    return f;
}

static void frozen_free(frozen *f) {
    tvm_ir_program_free(f->program);
    free(f->bytes);
    case_free(f->c);
}

static void check_launch(const frozen *f, const uint8_t *bytes, size_t size) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = ""};
    tvm_context *context = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_msg(case_launch(f->c, context, bytes, size, NULL), "%s gives other results", f->c->name);
    tvm_context_free(context);
}

static void check_results(const frozen *f) {
    check_launch(f, f->bytes, f->size);
}

static void check_translation(const frozen *f) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        tvm_diags diags = {0};
        tvm_target target;
        tvm_module *module = NULL;
        ck_assert_int_eq(tvm_target_parse(targets[i], &target, NULL), TVM_OK);
        tvm_status status = tvm_translate(f->program, target, &module, &diags);
        tvm_diags_print(&diags, stderr, "test_frozen", false);
        ck_assert_msg(status == TVM_OK, "%s is not translated for %s", f->c->name, targets[i]);
        tvm_module_free(module);
    }
}

/* Written in the container of this version it is the same program; its text gives the same results. */
static void check_rewritten(const frozen *f) {
    tvm_diags diags = {0};
    char *text = NULL, *text2 = NULL;
    uint8_t *bytes = NULL;
    size_t size;
    tvm_ir_program *again = NULL;
    ck_assert_int_eq(tvm_vbc_write(f->program, TVM_VBC_LINES, &bytes, &size, &diags), TVM_OK);
    ck_assert_int_eq(tvm_vbc_read(bytes, size, NULL, &again, &diags), TVM_OK);
    ck_assert_int_eq(tvm_disassemble(f->program, &text, &diags), TVM_OK);
    ck_assert_int_eq(tvm_disassemble(again, &text2, &diags), TVM_OK);
    ck_assert_str_eq(text, text2);
    tvm_ir_program_free(again);
    free(text2), free(bytes);
    tvm_status status = tvm_assemble_text(text, strlen(text), f->c->name, NULL, &again, &diags);
    tvm_diags_print(&diags, stderr, "test_frozen", false);
    ck_assert_msg(status == TVM_OK, "the text of %s is not assembled", f->c->name);
    ck_assert_int_eq(tvm_vbc_write(again, TVM_VBC_LINES, &bytes, &size, &diags), TVM_OK);
    check_launch(f, bytes, size);
    tvm_ir_program_free(again);
    free(text), free(bytes);
}

static uint64_t hash_file(const char *path, uint64_t hash) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &bytes, &size, NULL), TVM_OK);
    hash = XXH3_64bits_withSeed(bytes, size, hash);
    free(bytes);
    return hash;
}

START_TEST(test_never_rewritten) {
    char pattern[4200], folder[4096];
    glob_t found;
    uint64_t hash = 0;
    snprintf(pattern, sizeof pattern, "%s/*", folder_of(_i, folder));
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) hash = hash_file(found.gl_pathv[i], hash);
    globfree(&found);
    ck_assert_msg(hash == folders[_i].hash, "%s has hash 0x%016" PRIx64 ": bytecode that was frozen changed",
                  folder, hash);
}
END_TEST

static void check_folder(int version, void (*check)(const frozen *f)) {
    char folder[4096];
    char **paths = case_list(folder_of(version, folder));
    int count = 0;
    ck_assert_msg(paths != NULL, "no cases in %s", folder);
    for (char **path = paths; *path != NULL; path++, count++) {
        frozen f = frozen_read(*path);
        check(&f);
        frozen_free(&f);
        free(*path);
    }
    free(paths);
    ck_assert_int_eq(count, folders[version].cases);
}

START_TEST(test_results) {
    check_folder(_i, check_results);
}
END_TEST

START_TEST(test_translation) {
    check_folder(_i, check_translation);
}
END_TEST

START_TEST(test_rewritten) {
    check_folder(_i, check_rewritten);
}
END_TEST

/* Shapes that differ between the kernels of an entry are read from files of the versions that had them alone.
 */
START_TEST(test_shapes_of_an_entry) {
    enum { AT_LANGUAGE = 24 };
    char path[4096], file[8192];
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(file, sizeof file, "%s/matmul_lowbit_u4.vbc", folder_of(4, path));
    ck_assert_int_eq(tvm_file_read(file, 1 << 20, &bytes, &size, NULL), TVM_OK);
    ck_assert_int_eq(tvm_vbc_read(bytes, size, NULL, &program, NULL), TVM_OK);
    tvm_ir_program_free(program);
    bytes[AT_LANGUAGE] = TVM_LANGUAGE_OF_SHAPES;
    ck_assert_int_eq(tvm_vbc_read(bytes, size, NULL, &program, &diags), TVM_INVALID);
    const char *said = diags.items[0].message;
    ck_assert_msg(strstr(said, "matmul_lowbit: case ") != NULL &&
                      strstr(said, ": dimension 1 of 'p' is k / 64 in 'matmul_lowbit_") != NULL,
                  "%s", said);
    tvm_diags_free(&diags);
    free(bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frozen");
    TCase *tests = tcase_create("frozen");
    enum { FOLDERS = sizeof folders / sizeof *folders };
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_loop_test(tests, test_never_rewritten, 0, FOLDERS);
    tcase_add_loop_test(tests, test_results, 0, FOLDERS);
    tcase_add_loop_test(tests, test_translation, 0, FOLDERS);
    tcase_add_loop_test(tests, test_rewritten, 0, FOLDERS);
    tcase_add_test(tests, test_shapes_of_an_entry);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
