/* Code for the CUDA device (device_kit.h): made kernel by kernel when it is asked for, cached, and what is
 * said of a compiler or a driver that refuses. Without cuda.h there is none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "device_kit.h"

START_TEST(kernel_for_another_target_is_left_out) {
    open_all();
    tvm_kernel *later = function_of("later");
    ck_assert_int_eq(tvm_prepare(later), TVM_UNSUPPORTED);
    assert_says("kernel 'later' is not for sm_90a");
    ck_assert_int_eq(tvm_launch(later, NULL, 1), TVM_ARGUMENT);
    assert_says("kernel 'later' assumes target >= 100 (target = 90)");
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    setenv("FAKE_CUDA_CC", "100", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("later")), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "i", 1);
    ck_assert_int_eq(tvm_launch(function_of("later"), NULL, 1), TVM_OK);
    assert_log(driver_log, "launch later 1,1,1 32,1,1 0 default 1\n");
    close_all();
    unsetenv("FAKE_CUDA_CC");
}
END_TEST

START_TEST(second_run_needs_no_ptxas) {
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    close_all();
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n-v -arch=sm_90a\n");
    assert_log(driver_log, "retain\nload cubin\nload cubin\nattribute shared 9 100\n"
                           "attribute shared 8 65536\nunload\nunload\nrelease\n");
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    assert_log(ptxas_log, "%s", ""); /* not even for its version */
    assert_log(driver_log, "retain\nload cubin\nunload\nrelease\n");
}
END_TEST

/* Two kernels of one program, each by a thread: the stand-in for ptxas waits until it runs twice. */
static void *prepare_one(void *kernel) {
    return (void *)(uintptr_t)tvm_prepare(kernel);
}

START_TEST(threads_translate_kernels_side_by_side) {
    pthread_t thread;
    void *status;
    open_all();
    folder_meeting_ptxas(kit.folder, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, prepare_one, function_of("scale")), 0);
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    pthread_join(thread, &status);
    ck_assert_uint_eq((uintptr_t)status, TVM_OK);
}
END_TEST

/* A launch has the kernel translated that it runs; preparing an entry all that it may run. */
START_TEST(kernels_are_translated_when_asked_for) {
    open_all();
    ck_assert_str_eq(tvm_code_origin(code), "");
    ck_assert_int_eq(tvm_launch(function_of("any_scale"), NULL, 0, 0.5, NULL, NULL), TVM_OK);
    assert_log(ptxas_log, "%s", ""); /* no block, no code */
    const tvm_value values[] = {{.i = 99}, {.f = 0.5}, {.data = NULL}, {.data = NULL}};
    ck_assert_int_eq(tvm_reserve(function_of("any_scale"), NULL, values, 4), TVM_OK);
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n");
    ck_assert_ptr_nonnull(strstr(tvm_code_origin(code), "cubin for sm_90a"));
    ck_assert_int_eq(tvm_prepare(function_of("any_scale")), TVM_OK);
    assert_log(ptxas_log, "-v -arch=sm_90a\n");
    ck_assert_int_eq(tvm_prepare(function_of("any_scale")), TVM_OK);
    assert_log(ptxas_log, "%s", "");
}
END_TEST

START_TEST(another_ptxas_or_target_is_another_entry) {
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    log_of(ptxas_log);
    folder_ptxas(kit.folder, "100.0, V100.0.1 and longer");
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n");
    setenv("FAKE_CUDA_CC", "80", 1);
    open_all();
    ck_assert_str_eq(tvm_device_name(context), "Fake GPU (cuda:0, sm_80)");
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    assert_log(ptxas_log, "-v -arch=sm_80\n");
}
END_TEST

START_TEST(corrupted_cache_is_made_anew) {
    char command[256];
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    log_of(ptxas_log);
    snprintf(command, sizeof command, "for f in %s/*; do echo junk >$f; done", kit.cache);
    ck_assert_int_eq(system(command), 0);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n");
    close_all();
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    assert_log(ptxas_log, "%s", "");
    ck_assert_ptr_null(tvm_context_warning(context));
}
END_TEST

START_TEST(works_without_a_cache) {
    snprintf(kit.cache, sizeof kit.cache, "/proc/no/cache");
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n");
    ck_assert_ptr_nonnull(tvm_context_warning(context));
    ck_assert(strstr(tvm_context_warning(context), "/proc/no/cache") != NULL);
}
END_TEST

START_TEST(without_ptxas_the_driver_compiles) {
    setenv("TVM_PTXAS", "/nowhere/ptxas", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    assert_log(driver_log, "retain\nload ptx\nattribute shared 9 100\nattribute shared 8 65536\n");
    close_all();
    log_of(driver_log);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    assert_log(driver_log, "retain\nload ptx\nattribute shared 9 100\nattribute shared 8 65536\n");
}
END_TEST

START_TEST(driver_that_refuses_code_is_quoted) {
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    log_of(ptxas_log);
    log_of(driver_log);
    setenv("FAKE_CUDA_REFUSE", "1", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_IMAGE);
    assert_says("line 7: fake log");
    /* The cached cubin was not trusted either: it was made once more. */
    assert_log(ptxas_log, "-v -arch=sm_90a\n");
    assert_log(driver_log, "retain\nload cubin\nload cubin\n");
    unsetenv("FAKE_CUDA_REFUSE");
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK); /* a failure is not kept */
}
END_TEST

START_TEST(ptxas_that_fails_is_quoted) {
    setenv("TVM_PTXAS", "/bin/false", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_PTXAS);
    assert_says("/bin/false");
}
END_TEST

/* One from before --split-compile. */
START_TEST(older_ptxas_is_run_without_threads) {
    char path[80];
    snprintf(path, sizeof path, "%s/older", kit.folder);
    folder_script(
        path, "%s",
        "case \"$*\" in *--split-compile*) echo \"ptxas fatal : Unknown option '--split-compile'\"; exit 1;;\n"
        "--version) echo 'Cuda compilation tools, release 12.0, V12.0.1';;\n"
        "*) printf '\\177ELF made for %s' \"$2\" >\"$4\";; esac\n");
    setenv("TVM_PTXAS", path, 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_code");
    TCase *cases = tcase_create("cuda_code");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, kernel_for_another_target_is_left_out);
    tcase_add_test(cases, second_run_needs_no_ptxas);
    tcase_add_test(cases, threads_translate_kernels_side_by_side);
    tcase_add_test(cases, kernels_are_translated_when_asked_for);
    tcase_add_test(cases, another_ptxas_or_target_is_another_entry);
    tcase_add_test(cases, corrupted_cache_is_made_anew);
    tcase_add_test(cases, works_without_a_cache);
    tcase_add_test(cases, without_ptxas_the_driver_compiles);
    tcase_add_test(cases, driver_that_refuses_code_is_quoted);
    tcase_add_test(cases, ptxas_that_fails_is_quoted);
    tcase_add_test(cases, older_ptxas_is_run_without_threads);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
