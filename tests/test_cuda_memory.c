/* Memory of the CUDA device (device_kit.h): tensors of launches, streams and programs, what is reserved,
 * shared memory. Without cuda.h there is none. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "device_kit.h"

static void open_tensors(void) {
    setenv("FAKE_CUDA_MULTIPROCESSORS", "7", 1);
    setenv("FAKE_CUDA_MEMORY", "1", 1);
    setenv("FAKE_CUDA_PARAMS", "ippp", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("tensors")), TVM_OK);
    log_of(driver_log);
}

/* Memory of alloc-global is made for the variant. */
START_TEST(reserve_of_an_entry_is_of_its_variant) {
    char stream;
    tvm_value values[] = {{.i = 1000}};
    open_tensors();
    ck_assert_int_eq(tvm_reserve(function_of("any_tensors"), &stream, values, 1), TVM_OK);
    assert_log(driver_log, "alloc 65536\nalloc 65536\nset 0 65536\n");
    ck_assert_int_eq(tvm_launch(function_of("any_tensors"), &stream, 1000), TVM_OK);
    ck_assert_ptr_null(strstr(log_of(driver_log), "alloc"));
    values[0].i = 0;
    ck_assert_int_eq(tvm_reserve(function_of("any_tensors"), &stream, values, 1), TVM_ARGUMENT);
    assert_says("no variant of 'any_tensors' serves n = 0");
}
END_TEST

START_TEST(kernels_get_what_their_shapes_read_of_the_device) {
    open_all();
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, 3 * 132 * 90 * 4, &x), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("device")), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "ipii", 1);
    ck_assert_int_eq(tvm_launch(function_of("device"), NULL, 3, x), TVM_OK);
    assert_log(driver_log, "launch device 1,1,1 32,1,1 0 default 3 %p 132 90\n", x);
    tvm_memory_free(context, x);
}
END_TEST

/* 128000 bytes: more than a block has on sm_120. */
static const char sizes[] = ".vasm 1\n"
                            ".kernel huge(n: i32)\n"
                            ".warps 1\n"
                            "    %vs = alloc-shared f32[32000]\n"
                            ".end\n"
                            ".kernel modest(n: i32)\n"
                            ".warps 2\n"
                            "    exit\n"
                            ".end\n"
                            ".entry any_size\n"
                            ".case huge if n < 9\n"
                            ".case modest if n < 5\n"
                            ".end\n";

static void open_sizes(void) {
    ck_assert_msg(open_context() == TVM_OK, "%s", tvm_message(context));
    ck_assert_int_eq(tvm_assemble(context, sizes, strlen(sizes), NULL, &code), TVM_OK);
}

START_TEST(what_a_gpu_cannot_hold_is_passed_over) {
    const char *name;
    tvm_value values[] = {{.i = 4}};
    open_sizes();
    ck_assert_int_eq(tvm_kernel_variant(function_of("any_size"), values, 1, &name), TVM_OK);
    ck_assert_str_eq(name, "huge");
    ck_assert_int_eq(tvm_prepare(function_of("huge")), TVM_OK);
    close_all();
    setenv("FAKE_CUDA_CC", "120", 1);
    unsetenv("FAKE_CUDA_PARAMS");
    open_sizes();
    ck_assert_int_eq(tvm_kernel_variant(function_of("any_size"), values, 1, &name), TVM_OK);
    ck_assert_str_eq(name, "modest");
    ck_assert_int_eq(tvm_prepare(function_of("any_size")), TVM_OK);
    log_of(driver_log);
    ck_assert_int_eq(tvm_launch(function_of("any_size"), NULL, 4), TVM_OK);
    assert_log(driver_log, "launch modest 1,1,1 64,1,1 0 default\n");
    ck_assert_int_eq(tvm_launch(function_of("any_size"), NULL, 8), TVM_RESOURCES);
    assert_says(
        "no variant of 'any_size' serves n = 8 on this device: 'huge' needs 128000 bytes of shared memory, of "
        "which a block has 101376");
    ck_assert_int_eq(tvm_launch(function_of("any_size"), NULL, 10), TVM_ARGUMENT);
    assert_says("the nearest is 'modest', which needs n < 5");
    ck_assert_int_eq(tvm_launch(function_of("huge"), NULL, 4), TVM_RESOURCES);
    assert_says("kernel 'huge' needs 128000 bytes of shared memory, more than a block has on this GPU");
    ck_assert_int_eq(tvm_reserve(function_of("huge"), NULL, values, 1), TVM_RESOURCES);
    ck_assert_int_eq(tvm_prepare(function_of("huge")), TVM_RESOURCES);
    ck_assert_str_eq(log_of(driver_log), "");
    close_all();
    unsetenv("FAKE_CUDA_CC");
}
END_TEST

START_TEST(asks_for_large_shared_memory) {
    open_all();
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, 512, &x), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    unsetenv("FAKE_CUDA_PARAMS");
    ck_assert_int_eq(tvm_launch(function_of("shared"), NULL, 128, x), TVM_OK);
    /* 8 is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    assert_log(driver_log, "retain\nload cubin\nattribute shared 9 100\nattribute shared 8 65536\n"
                           "launch shared 1,1,1 32,1,1 65536 default\n");
    tvm_memory_free(context, x);
}
END_TEST

/* The addresses that the last launch of `tensors` got; the log says nothing else but `before` it. */
static void read_tensors(const char *before, void *address[3]) {
    const char *text = log_of(driver_log);
    ck_assert_msg(strncmp(text, before, strlen(before)) == 0, "'%s' does not begin '%s'", text, before);
    int n;
    ck_assert_msg(sscanf(text + strlen(before), "launch tensors 7,1,1 32,1,1 0 %*s %d %p %p %p\n", &n,
                         &address[0], &address[1], &address[2]) == 4,
                  "'%s'", text);
    for (unsigned i = 0; i < 3; i++) ck_assert_uint_eq((uintptr_t)address[i] % 256, 0);
}

/* Sizes of what is allocated: 7 * n * 4 bytes and 7 * 4 * 8, each rounded up to 256; n * 4 of zeros. All come
 * in multiples of 64 KiB. */
START_TEST(tensors_of_a_launch_belong_to_its_stream) {
    char one, other;
    void *a[3], *b[3], *c[3];
    open_tensors();
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &one, 1000), TVM_OK);
    read_tensors("alloc 65536\nalloc 65536\nset 0 65536\n", a);
    ck_assert_uint_eq((uintptr_t)a[2] - (uintptr_t)a[0], (7 * 1000 * 4 + 255) / 256 * 256);
    for (size_t i = 0; i < 1000; i++) ck_assert_uint_eq(((uint32_t *)a[1])[i], 0);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &other, 1000), TVM_OK);
    read_tensors("alloc 65536\nalloc 65536\nset 0 65536\n", b);
    ck_assert(a[0] != b[0] && a[1] != b[1]);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &one, 500), TVM_OK);
    read_tensors("", c);
    ck_assert(a[0] == c[0] && a[1] == c[1]);
    /* 280000 bytes: more than twice what is there. */
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &one, 10000), TVM_OK);
    read_tensors("alloc 327680\n", c);
    ck_assert(a[0] != c[0] && a[1] == c[1]);
    memset(a[0], 1, 65536); /* a launch that is still under way may write there */
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &other, 1000), TVM_OK);
    read_tensors("", c);
    ck_assert(b[0] == c[0] && b[1] == c[1]);
}
END_TEST

/* What one program leaves in clean memory no other gets; that of a program that is freed is given back. */
START_TEST(clean_tensors_belong_to_their_program) {
    char stream;
    void *a[3], *b[3], *c[3];
    tvm_program *first;
    open_tensors();
    first = code;
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 1000), TVM_OK);
    read_tensors("alloc 65536\nalloc 65536\nset 0 65536\n", a);
    memset(a[1], 1, 4000);
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("tensors")), TVM_OK);
    log_of(driver_log);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 1000), TVM_OK);
    read_tensors("alloc 65536\nset 0 65536\n", b);
    ck_assert(a[0] == b[0] && a[1] != b[1]);
    for (size_t i = 0; i < 1000; i++) ck_assert_uint_eq(((uint32_t *)b[1])[i], 0);
    long live = kit.driver->live();
    tvm_program_free(code);
    ck_assert_int_eq(kit.driver->live(), live - 2); /* the module, the memory */
    code = first;
    log_of(driver_log);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 1000), TVM_OK);
    read_tensors("", c);
    ck_assert(a[0] == c[0] && a[1] == c[1]);
}
END_TEST

START_TEST(launches_are_captured_with_or_without_memory_made_before) {
    char stream, other;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol[3], *graph, *a[3];
    int (*begin)(void *, int), (*end)(void *, void **), (*destroy)(void *);
    double microseconds;
    tvm_value values[] = {{.i = 1000}};
    open_tensors();
    symbol[0] = dlsym(library, "cuStreamBeginCapture_v2");
    symbol[1] = dlsym(library, "cuStreamEndCapture");
    memcpy(&begin, &symbol[0], sizeof begin);
    memcpy(&end, &symbol[1], sizeof end);
    symbol[2] = dlsym(library, "cuGraphDestroy");
    memcpy(&destroy, &symbol[2], sizeof destroy);
    begin(&other, 0);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &other, 1000), TVM_OK);
    end(&other, &graph);
    destroy(graph);
    assert_log(driver_log, "alloc 65536\nalloc 65536\nset 0 65536\ncaptured 1\n");
    ck_assert_int_eq(tvm_reserve(function_of("tensors"), &stream, values, 1), TVM_OK);
    begin(&stream, 0);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 1000), TVM_OK);
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 900), TVM_OK);
    end(&stream, &graph);
    destroy(graph);
    assert_log(driver_log, "alloc 65536\nalloc 65536\nset 0 65536\ncaptured 2\n");
    ck_assert_int_eq(tvm_launch(function_of("tensors"), &stream, 1000), TVM_OK);
    read_tensors("", a);
    values[0].i = -1;
    ck_assert_int_eq(tvm_reserve(function_of("tensors"), &stream, values, 1), TVM_ARGUMENT);
    assert_says("extent 1 of va is negative");
    values[0].i = 1000;
    ck_assert_int_eq(tvm_time(function_of("tensors"), values, 1, 20, &microseconds), TVM_OK);
    dlclose(library);
}
END_TEST

static void *launch_tensors(void *stream) {
    for (int n = 1; n <= 64; n++)
        if (tvm_launch(function_of("tensors"), stream, n * 1000)) return NULL;
    return stream;
}

START_TEST(threads_share_streams) {
    enum { RESERVERS = 8 };
    pthread_t threads[RESERVERS];
    char streams[2];
    void *result;
    open_tensors();
    unsetenv("FAKE_CUDA_LOG");
    for (unsigned i = 0; i < RESERVERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_tensors, &streams[i % 2]), 0);
    for (unsigned i = 0; i < RESERVERS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_nonnull(result);
    }
}
END_TEST

START_TEST(out_of_device_memory) {
    open_all();
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, (size_t)1 << 50, &x), TVM_DEVICE_MEMORY);
    assert_says("1125899906842624");
    ck_assert_ptr_null(x);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_memory");
    TCase *cases = tcase_create("cuda_memory");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, reserve_of_an_entry_is_of_its_variant);
    tcase_add_test(cases, kernels_get_what_their_shapes_read_of_the_device);
    tcase_add_test(cases, asks_for_large_shared_memory);
    tcase_add_test(cases, what_a_gpu_cannot_hold_is_passed_over);
    tcase_add_test(cases, tensors_of_a_launch_belong_to_its_stream);
    tcase_add_test(cases, clean_tensors_belong_to_their_program);
    tcase_add_test(cases, launches_are_captured_with_or_without_memory_made_before);
    tcase_add_test(cases, threads_share_streams);
    tcase_add_test(cases, out_of_device_memory);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
