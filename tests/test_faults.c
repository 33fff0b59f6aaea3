/* What goes wrong on a GPU, as the caller sees it: each kind of fault its own status, with what happened and
 * what to do; and how a process goes on after it. Against the fake driver. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"

#ifdef HAVE_CUDA_H

#include <cuda.h>

#include "cuda_kit.h"
#include "suite_kit.h"

static cuda_kit kit;
static tvm_context *context;
static tvm_program *program;
static void *x;

static void setup(void) {
    kit_setup(&kit);
}

static void open_all(void *cuda_context) {
    tvm_context_options options = {
        .device = TVM_DEVICE_CUDA, .cuda_context = cuda_context, .cache_dir = kit.cache};
    ck_assert_msg(!tvm_context_create(&options, &context), "%s", tvm_message(context));
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &program), TVM_OK);
}

static void close_all(void) {
    tvm_program_free(program);
    tvm_context_free(context);
    program = NULL;
    context = NULL;
}

/* Whatever happened, nothing is left and nothing was released twice. */
static void teardown(void) {
    close_all();
    ck_assert_int_eq(kit.driver->live(), 0);
    ck_assert_int_eq(kit.driver->mistakes(), 0);
    kit_teardown(&kit);
}

static tvm_kernel *kernel(const char *name) {
    tvm_kernel *found = NULL;
    ck_assert_int_eq(tvm_get_kernel(program, name, &found), TVM_OK);
    return found;
}

static tvm_status launch(void) {
    return tvm_launch(kernel("scale"), NULL, 16, 2.0, x, x);
}

static void assert_says(const char *word) {
    ck_assert_msg(strstr(tvm_message(context), word) != NULL, "'%s' does not say '%s'", tvm_message(context),
                  word);
}

static void open_with_memory(void) {
    open_all(NULL);
    ck_assert_int_eq(tvm_memory_alloc(context, 1024, &x), TVM_OK);
}

static const struct fault_case {
    const char *error; /* as FAKE_CUDA_FAULT takes it */
    tvm_status status;
    const char *name, *advice;
} fault_cases[] = {{"700", TVM_FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS", "create another"},
                   {"719", TVM_FAULT, "CUDA_ERROR_LAUNCH_FAILED", "compute-sanitizer"},
                   {"702", TVM_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "smaller grids"},
                   {"214", TVM_DEVICE_LOST, "CUDA_ERROR_ECC_UNCORRECTABLE", "another one"}};

/* The fault stays in the context; freeing it (and so the last reference to the primary context) ends it. */
START_TEST(fault_is_sticky_until_the_context_is_freed) {
    const struct fault_case *test = &fault_cases[_i];
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    setenv("FAKE_CUDA_FAULT", test->error, 1);
    ck_assert_int_eq(tvm_synchronize(context, NULL), test->status);
    assert_says(test->name);
    assert_says(test->advice);
    if (test->status != TVM_DEVICE_LOST) assert_says("'scale'");
    unsetenv("FAKE_CUDA_FAULT");
    ck_assert_int_eq(launch(), test->status);
    void *more;
    ck_assert_int_eq(tvm_memory_alloc(context, 16, &more), test->status);
    ck_assert_ptr_null(more);
    ck_assert_int_eq(tvm_memory_free(context, x), test->status);
    close_all();
    ck_assert_int_eq(kit.driver->live(), 0);
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    ck_assert_str_eq(tvm_message(context), "");
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_OK);
}
END_TEST

/* Two contexts of one device share the primary one: the fault is in both, and ends with the last. */
START_TEST(fault_is_shared_by_those_of_one_primary_context) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    tvm_context *other = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &other), TVM_OK);
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    setenv("FAKE_CUDA_FAULT", "700", 1);
    ck_assert_int_eq(tvm_synchronize(other, NULL), TVM_FAULT);
    unsetenv("FAKE_CUDA_FAULT");
    ck_assert_int_eq(launch(), TVM_FAULT);
    close_all();
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_FAULT);
    assert_says("CUDA_ERROR_ILLEGAL_ADDRESS");
    tvm_context_free(context);
    tvm_context_free(other);
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_OK);
}
END_TEST

START_TEST(fault_of_one_device_is_not_that_of_another) {
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .ordinal = 1, .cache_dir = kit.cache};
    tvm_context *other = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &other), TVM_OK);
    ck_assert_str_eq(tvm_device_name(other), "Fake GPU (cuda:1, sm_90a)");
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    setenv("FAKE_CUDA_FAULT", "700", 1);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_FAULT);
    ck_assert_int_eq(tvm_synchronize(other, NULL), TVM_OK);
    tvm_context_free(other);
}
END_TEST

START_TEST(out_of_memory_is_no_fault) {
    void *large = &large;
    open_with_memory();
    ck_assert_int_eq(tvm_memory_alloc(context, (size_t)1 << 50, &large), TVM_DEVICE_MEMORY);
    ck_assert_ptr_null(large);
    assert_says("1125899906842624");
    assert_says("CUDA_ERROR_OUT_OF_MEMORY");
    assert_says("works on");
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_OK);
}
END_TEST

static const struct refusal_case {
    int error;
    tvm_status status;
    const char *advice;
} refusal_cases[] = {{CUDA_ERROR_UNSUPPORTED_PTX_VERSION, TVM_DRIVER_OLD, "update the driver"},
                     {CUDA_ERROR_INVALID_IMAGE, TVM_IMAGE, "damaged"},
                     {CUDA_ERROR_NO_BINARY_FOR_GPU, TVM_IMAGE, "not for this GPU"},
                     {CUDA_ERROR_OUT_OF_MEMORY, TVM_DEVICE_MEMORY, "free memory"},
                     {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, TVM_NO_PTXAS, "install the CUDA toolkit"}};

/* With the driver's log and without it. */
START_TEST(code_that_the_driver_refuses) {
    const struct refusal_case *test = &refusal_cases[_i];
    char number[16];
    snprintf(number, sizeof number, "%d", test->error);
    setenv("FAKE_CUDA_REFUSE", number, 1);
    open_all(NULL);
    ck_assert_int_eq(tvm_prepare(kernel("scale")), test->status);
    assert_says(test->advice);
    assert_says("line 7: fake log");
    assert_says(number);
    unsetenv("FAKE_CUDA_REFUSE");
    ck_assert_int_eq(tvm_prepare(kernel("scale")), TVM_OK);
}
END_TEST

/* The nth driver call of a launch: found by failing one after the other until cuLaunchKernel is it. */
START_TEST(launch_out_of_resources) {
    open_with_memory();
    ck_assert_int_eq(tvm_prepare(kernel("scale")), TVM_OK);
    int refused = 0;
    for (long n = 1; n < 10; n++) {
        kit.driver->fail_nth(n, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        tvm_status status = launch();
        const char *failed = kit.driver->failed();
        kit.driver->fail_nth(0, 0);
        if (!failed || strcmp(failed, "cuLaunchKernel") != 0) continue;
        ck_assert_int_eq(status, TVM_RESOURCES);
        assert_says("cuLaunchKernel");
        assert_says("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
        assert_says("smaller tiles");
        refused++;
    }
    ck_assert_int_eq(refused, 1);
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_OK);
}
END_TEST

START_TEST(too_much_shared_memory) {
    setenv("FAKE_CUDA_SHARED", "60000", 1);
    open_all(NULL);
    ck_assert_int_eq(tvm_prepare(kernel("shared")), TVM_RESOURCES);
    assert_says("65536");
    assert_says("'shared'");
    assert_says("fewer stages");
}
END_TEST

START_TEST(context_destroyed_by_its_owner) {
    static _Alignas(16) char handle[1024];
    open_all(handle);
    x = handle;
    ck_assert_int_eq(tvm_prepare(kernel("scale")), TVM_OK);
    kit.driver->destroy(handle);
    ck_assert_int_eq(launch(), TVM_CONTEXT);
    assert_says("CUDA_ERROR_INVALID_CONTEXT");
    assert_says("before the CUcontext they run in is destroyed");
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_CONTEXT);
    /* The module that went with it is no mistake of the library's. */
    long expected = kit.driver->mistakes();
    close_all();
    ck_assert_int_eq(kit.driver->mistakes(), expected);
}
END_TEST

START_TEST(errors_without_a_name) {
    open_with_memory();
    ck_assert_int_eq(launch(), TVM_OK);
    setenv("FAKE_CUDA_FAULT", "12345", 1);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_DRIVER);
    assert_says("12345");
    assert_says("unknown");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("faults");
    TCase *cases = tcase_create("faults");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, fault_is_sticky_until_the_context_is_freed, 0,
                        sizeof fault_cases / sizeof *fault_cases);
    tcase_add_test(cases, fault_is_shared_by_those_of_one_primary_context);
    tcase_add_test(cases, fault_of_one_device_is_not_that_of_another);
    tcase_add_test(cases, out_of_memory_is_no_fault);
    tcase_add_loop_test(cases, code_that_the_driver_refuses, 0, sizeof refusal_cases / sizeof *refusal_cases);
    tcase_add_test(cases, launch_out_of_resources);
    tcase_add_test(cases, too_much_shared_memory);
    tcase_add_test(cases, context_destroyed_by_its_owner);
    tcase_add_test(cases, errors_without_a_name);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

#else

#include <stdlib.h>

/* Without cuda.h there is no driver to fault: test_cuda.c shows that the build says so. */
int main(void) {
    return EXIT_SUCCESS;
}

#endif /* HAVE_CUDA_H */
