/* Who compiles PTX: the order of the search, nvJitLink by way of a library that has no compiler
 * (fake_nvjitlink.c), and, where the toolkit's own is found, that it agrees with ptxas. */
#include "check_kit.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assembler_kit.h"
#include "folder_kit.h"
#include "nvjitlink.h"
#include "ptx_compiler.h"
#include "suite_kit.h"

static char folder[64], script_path[128], library_path[2][PATH_MAX];
static tvm_diags diags;
static char ptx[] = ".version 8.0\n";
static tvm_kernel_code kernels[1];
static tvm_module module;
static tvm_ptx_compiler compiler;

static void forget_environment(void) {
    static const char *const names[] = {"TVM_PTXAS", "TVM_NVJITLINK", "CUDA_HOME", "LD_LIBRARY_PATH",
                                        "FAKE_NVJITLINK_FAIL"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void set_up(void) {
    folder_make(folder);
    snprintf(script_path, sizeof script_path, "%s/ptxas", folder);
    ck_assert_ptr_nonnull(realpath("tests/fake/libnvJitLink.so.12", library_path[0]));
    ck_assert_ptr_nonnull(realpath("tests/fake/libnvJitLink.so.13", library_path[1]));
    forget_environment();
    diags = (tvm_diags){0};
    kernels[0] = (tvm_kernel_code){
        .name = "first", .registers = -1, .spill_stores = -1, .spill_loads = -1, .stack_bytes = -1};
    module = (tvm_module){
        .target = {90, 'a'}, .ptx = ptx, .ptx_size = sizeof ptx - 1, .kernels = kernels, .kernel_count = 1};
    compiler = (tvm_ptx_compiler){0};
}

static void tear_down(void) {
    folder_remove(folder);
    free(module.cubin);
    tvm_ptx_compiler_free(&compiler);
    tvm_diags_free(&diags);
}

/* A ptxas in the folder whose cubin is what `body` writes to "$4". */
static void write_ptxas(const char *body) {
    folder_script(script_path, "case $1 in --version) echo 'tools, release 12.8, V12.8.93'; exit;; esac\n%s",
                  body);
}

static void find(tvm_ptx_compiler_kind kind, const char *path) {
    tvm_ptx_compiler_free(&compiler);
    ck_assert_int_eq(tvm_ptx_compiler_find(&compiler, &diags, &diags), TVM_OK);
    ck_assert_int_eq(compiler.kind, kind);
    if (path) ck_assert_str_eq(compiler.path, path);
}

static void expect_message(const char *part) {
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, part) != NULL, "'%s' is not in: %s", part,
                  diags.items[0].message);
}

static void expect_cubin(const char *expected) {
    ck_assert_uint_eq(module.cubin_size, strlen(expected));
    ck_assert_mem_eq(module.cubin, expected, module.cubin_size);
}

START_TEST(what_is_asked_for_comes_first) {
    write_ptxas("");
    setenv("TVM_NVJITLINK", library_path[1], 1);
    find(TVM_PTX_BY_NVJITLINK, library_path[1]);
    setenv("TVM_PTXAS", script_path, 1);
    find(TVM_PTX_BY_PTXAS, script_path);
    setenv("TVM_PTXAS", "", 1);
    find(TVM_PTX_BY_NVJITLINK, library_path[1]);
    setenv("TVM_NVJITLINK", "none", 1);
    setenv("PATH", folder, 1);
    find(TVM_PTX_BY_PTXAS, NULL);
    ck_assert_uint_eq(diags.count, 0);
}
END_TEST

START_TEST(what_is_asked_for_and_missing_is_named) {
    setenv("TVM_PTXAS", "/no/such/ptxas", 1);
    find(TVM_PTX_BY_DRIVER, NULL);
    expect_message("/no/such/ptxas");
    tvm_diags_free(&diags);
    diags = (tvm_diags){0};
    ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_NO_PTXAS);
    expect_message("/no/such/ptxas");
    tvm_diags_free(&diags);
    diags = (tvm_diags){0};
    unsetenv("TVM_PTXAS");
    setenv("TVM_NVJITLINK", "/no/such/library", 1);
    tvm_ptx_compiler_free(&compiler);
    ck_assert_int_eq(tvm_ptx_compiler_find(&compiler, &diags, &diags), TVM_OK);
    ck_assert_int_ne(compiler.kind, TVM_PTX_BY_NVJITLINK);
    expect_message("/no/such/library");
}
END_TEST

START_TEST(the_library_is_looked_for_in_folders) {
    char path[256], *found;
    snprintf(path, sizeof path, "%s/libnvJitLink.so.12", folder);
    ck_assert_int_eq(symlink(library_path[0], path), 0);
    setenv("LD_LIBRARY_PATH", "/no/such/folder::/none", 1);
    setenv("CUDA_HOME", "/no/cuda", 1);
    char *before = NULL;
    tvm_status status = tvm_nvjitlink_find(&before, &diags); /* a toolkit's, or none */
    char list[256];
    snprintf(list, sizeof list, "/no/such/folder:%s:/bin", folder);
    setenv("LD_LIBRARY_PATH", list, 1);
    ck_assert_int_eq(tvm_nvjitlink_find(&found, &diags), TVM_OK);
    /* A toolkit that configure found comes before, the system's folders after. */
    ck_assert(strcmp(found, path) == 0 || (status == TVM_OK && strcmp(found, before) == 0));
    free(found);
    free(before);
    ck_assert_uint_eq(diags.count, 0);
}
END_TEST

static void compile_by_library(int which, const char *cubin, const char *made_by) {
    setenv("TVM_NVJITLINK", library_path[which], 1);
    find(TVM_PTX_BY_NVJITLINK, library_path[which]);
    ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_OK);
    expect_cubin(cubin);
    ck_assert_str_eq(module.made_by, made_by);
    ck_assert_uint_eq(diags.count, 0);
}

START_TEST(nvjitlink_compiles) {
    compile_by_library(1, "\177ELF-arch=sm_90a-verbose-Xptxas=-v.version 8.0\n", "nvJitLink 99.1");
    ck_assert_int_eq(kernels[0].registers, 92);
    ck_assert_int_eq(kernels[0].stack_bytes, 16);
    ck_assert_int_eq(kernels[0].spill_stores, 4);
    ck_assert_int_eq(kernels[0].spill_loads, 8);
    module.target = (tvm_target){80, '\0'};
    compile_by_library(1, "\177ELF-arch=sm_80-verbose-Xptxas=-v.version 8.0\n", "nvJitLink 99.1");
}
END_TEST

START_TEST(the_first_versions_names_are_known) {
    compile_by_library(0, "\177ELF-arch=sm_90a-verbose-Xptxas=-v.version 8.0\n", "nvJitLink");
}
END_TEST

START_TEST(unknown_options_are_left_out) {
    setenv("FAKE_NVJITLINK_FAIL", "option", 1);
    compile_by_library(1, "\177ELF-arch=sm_90a.version 8.0\n", "nvJitLink 99.1");
}
END_TEST

static const char *const failures[] = {"create", "add", "complete", "size", "cubin"};
enum { FAILURES = sizeof failures / sizeof *failures };

START_TEST(a_failure_of_the_library_is_reported) {
    setenv("FAKE_NVJITLINK_FAIL", failures[_i], 1);
    ck_assert_int_eq(tvm_nvjitlink(&module, library_path[1], &diags), TVM_PTXAS);
    expect_message("nvJitLink");
    if (strcmp(failures[_i], "complete") == 0) expect_message("line 7; error   : no such thing");
    ck_assert_ptr_null(module.cubin);
    ck_assert_str_eq(module.made_by, "");
}
END_TEST

START_TEST(then_ptxas_is_tried) {
    write_ptxas("printf program >\"$4\"\n");
    setenv("CUDA_HOME", "/no/cuda", 1);
    setenv("FAKE_NVJITLINK_FAIL", failures[_i], 1);
    setenv("TVM_NVJITLINK", library_path[1], 1);
    find(TVM_PTX_BY_NVJITLINK, library_path[1]);
    setenv("TVM_PTXAS", script_path, 1);
    ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_OK);
    expect_cubin("program");
    ck_assert_str_eq(module.made_by, "ptxas");
    ck_assert_uint_eq(diags.count, 0);
}
END_TEST

START_TEST(registers_are_set_by_ptxas) {
    char *found = NULL;
    write_ptxas("printf program >\"$4\"\n");
    setenv("TVM_NVJITLINK", library_path[1], 1);
    find(TVM_PTX_BY_NVJITLINK, library_path[1]);
    setenv("TVM_PTXAS", script_path, 1);
    module.sets_registers = true;
    ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_OK);
    expect_cubin("program");
    ck_assert_str_eq(module.made_by, "ptxas");
    ck_assert_str_eq(module.made_by_why, "as nvJitLink ignores setmaxnreg");
    unsetenv("TVM_PTXAS");
    setenv("CUDA_HOME", "/no/cuda", 1);
    setenv("PATH", "/no/path", 1);
    if (tvm_ptxas_find(&found, NULL) == TVM_NO_PTXAS) { /* the toolkit's own is found without any of them */
        ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_OK);
        ck_assert_str_eq(module.made_by, "nvJitLink 99.1");
        ck_assert_str_eq(module.made_by_why, "which ignores setmaxnreg: there is no ptxas");
    }
    free(found);
}
END_TEST

START_TEST(what_is_no_such_library_is_reported) {
    char path[256];
    snprintf(path, sizeof path, "%s/library", folder);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("not a library", file);
    fclose(file);
    ck_assert_int_eq(tvm_nvjitlink(&module, path, &diags), TVM_PTXAS);
    expect_message("cannot be opened");
    expect_message(path);
}
END_TEST

START_TEST(ptxas_is_named_by_its_release) {
    write_ptxas("printf x >\"$4\"\n");
    ck_assert_int_eq(tvm_ptx_compiler_ptxas(script_path, &compiler, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptx_compiler_ask(&compiler, &diags), TVM_OK);
    ck_assert_str_eq(compiler.version, "tools, release 12.8, V12.8.93");
    ck_assert_int_eq(tvm_ptx_compile(&compiler, &module, &diags), TVM_OK);
    ck_assert_str_eq(module.made_by, "ptxas release 12.8, V12.8.93");
}
END_TEST

/* ---- the toolkit's library, where there is one */

static const char source[] = ".vasm 1\n"
                             ".kernel scale(n: i32, x: global f32[n])\n"
                             ".warps 4\n"
                             ".grid cdiv(n, 512)\n"
                             "    %vx = load-global x[block.x * 512], spatial(128).local(4)\n"
                             "    %vy = mul %vx, 3.0\n"
                             "    store-global x[block.x * 512], %vy\n"
                             ".end\n";

static tvm_module *translate(void) {
    tvm_ir_program *program = assemble(source);
    tvm_module *translated = NULL;
    ck_assert_int_eq(tvm_translate(program, (tvm_target){90, 'a'}, &translated, &diags), TVM_OK);
    tvm_ir_program_free(program);
    return translated;
}

static void *compile_once(void *path) {
    tvm_module *translated = translate();
    tvm_diags said = {0};
    tvm_status status = tvm_nvjitlink(translated, path, &said);
    bool good = status == TVM_OK && translated->kernels[0].registers > 0 && translated->cubin_size > 64 &&
                memcmp(translated->cubin, "\177ELF", 4) == 0;
    tvm_diags_print(&said, stderr, "test_ptx_compiler", false);
    tvm_diags_free(&said);
    tvm_module_free(translated);
    return good ? NULL : path;
}

/* Does the toolkit have both? These tests are not run without. */
static bool has_toolkit(void) {
    char *library = NULL, *program = NULL;
    forget_environment();
    bool found = !tvm_nvjitlink_find(&library, NULL) && !tvm_ptxas_find(&program, NULL);
    free(library);
    free(program);
    return found;
}

START_TEST(the_toolkits_library_agrees_with_ptxas) {
    char *library = NULL, *program = NULL;
    tvm_module *one = translate(), *other = translate();
    ck_assert_int_eq(tvm_nvjitlink_find(&library, NULL), TVM_OK);
    ck_assert_int_eq(tvm_ptxas_find(&program, NULL), TVM_OK);
    ck_assert_int_eq(tvm_nvjitlink(one, library, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptxas(other, program, &diags), TVM_OK);
    ck_assert_int_eq(one->kernels[0].stack_bytes, other->kernels[0].stack_bytes);
    ck_assert_int_eq(one->kernels[0].spill_loads, other->kernels[0].spill_loads);
    ck_assert_int_gt(one->kernels[0].registers, 0);
    tvm_module_free(one);
    tvm_module_free(other);
    free(library);
    free(program);
}
END_TEST

START_TEST(threads_compile_at_once) {
    enum { THREADS = 8 };
    char *library = NULL;
    pthread_t threads[THREADS];
    ck_assert_int_eq(tvm_nvjitlink_find(&library, NULL), TVM_OK);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, compile_once, library), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_null(result);
    }
    free(library);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ptx compiler");
    TCase *tests = tcase_create("ptx compiler");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, what_is_asked_for_comes_first);
    tcase_add_test(tests, what_is_asked_for_and_missing_is_named);
    tcase_add_test(tests, the_library_is_looked_for_in_folders);
    tcase_add_test(tests, nvjitlink_compiles);
    tcase_add_test(tests, the_first_versions_names_are_known);
    tcase_add_test(tests, unknown_options_are_left_out);
    tcase_add_loop_test(tests, a_failure_of_the_library_is_reported, 0, FAILURES);
    tcase_add_loop_test(tests, then_ptxas_is_tried, 0, FAILURES);
    tcase_add_test(tests, registers_are_set_by_ptxas);
    tcase_add_test(tests, what_is_no_such_library_is_reported);
    tcase_add_test(tests, ptxas_is_named_by_its_release);
    if (has_toolkit()) {
        tcase_add_test(tests, the_toolkits_library_agrees_with_ptxas);
        tcase_add_test(tests, threads_compile_at_once);
    }
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
