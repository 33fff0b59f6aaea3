/* Bytecode of every version of the container since the first edition, tests/frozen/N.tar.gz (made by
 * tests/freeze): it is read, gives in the interpreter the results that it gave then, is translated for every
 * target, written anew and taken apart to text that says the same. */
#include "check_kit.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assembler.h"
#include "case_file.h"
#include "codegen.h"
#include "fileio.h"
#include "language.h"
#include "own_folder_kit.h"
#include "suite_kit.h"
#include "vbc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
/* The archives: how many cases each has, and its hash, which never changes. */
static const struct {
    const char *version;
    int cases;
    uint64_t hash;
} archives[] = {{"1", 138, UINT64_C(0x8865de53fae19142)},
                {"2", 159, UINT64_C(0x4c4b14ea02cc829e)},
                {"3", 247, UINT64_C(0x53873d5086cd4d8d)},
                {"4", 257, UINT64_C(0x278387ad3c61a970)},
                {"5", 270, UINT64_C(0xfadd5b21323e34e6)}};
enum { ARCHIVES = sizeof archives / sizeof *archives };

static const char *archive_of(int version, char path[4096]) {
    const char *top = getenv("srcdir");
    snprintf(path, 4096, "%s/tests/frozen/%s.tar.gz", top != NULL ? top : ".", archives[version].version);
    return path;
}

static void unpack(const char *archive, const char *to) {
    int status;
    ck_assert_int_eq(mkdir(to, 0700), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        execlp("tar", "tar", "-xzf", archive, "-C", to, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "tar does not unpack %s", archive);
}

/* Once, before all tests. */
static void unpack_all(void) {
    char path[4096];
    setup();
    for (int i = 0; i < ARCHIVES; i++) unpack(archive_of(i, path), in_folder(archives[i].version));
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

START_TEST(test_never_rewritten) {
    char path[4096];
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(archive_of(_i, path), 1 << 20, &bytes, &size, NULL), TVM_OK);
    uint64_t hash = XXH3_64bits(bytes, size);
    ck_assert_msg(hash == archives[_i].hash, "%s has hash 0x%016" PRIx64 ": bytecode that was frozen changed",
                  path, hash);
    free(bytes);
}
END_TEST

static void check_archive(int version, void (*check)(const frozen *f)) {
    char **paths = case_list(in_folder(archives[version].version));
    int count = 0;
    ck_assert_msg(paths != NULL, "no cases of version %s", archives[version].version);
    for (char **path = paths; *path != NULL; path++, count++) {
        frozen f = frozen_read(*path);
        check(&f);
        frozen_free(&f);
        free(*path);
    }
    free(paths);
    ck_assert_int_eq(count, archives[version].cases);
}

START_TEST(test_results) {
    check_archive(_i, check_results);
}
END_TEST

START_TEST(test_translation) {
    check_archive(_i, check_translation);
}
END_TEST

START_TEST(test_rewritten) {
    check_archive(_i, check_rewritten);
}
END_TEST

/* Shapes that differ between the kernels of an entry are read from files of the versions that had them alone.
 */
START_TEST(test_shapes_of_an_entry) {
    enum { AT_LANGUAGE = 24 };
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(in_folder("5/matmul_lowbit_u4.vbc"), 1 << 20, &bytes, &size, NULL),
                     TVM_OK);
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
    tcase_add_unchecked_fixture(tests, unpack_all, teardown);
    tcase_add_loop_test(tests, test_never_rewritten, 0, ARCHIVES);
    tcase_add_loop_test(tests, test_results, 0, ARCHIVES);
    tcase_add_loop_test(tests, test_translation, 0, ARCHIVES);
    tcase_add_loop_test(tests, test_rewritten, 0, ARCHIVES);
    tcase_add_test(tests, test_shapes_of_an_entry);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
