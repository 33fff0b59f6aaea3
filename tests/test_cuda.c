/* The CUDA device against a driver that has no GPU (fake_cuda.c) and a stand-in for ptxas: what is
 * loaded and launched, what is cached, and what is said when the driver fails. Without cuda.h: that the build
 * says so. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_kit.h"
#include "runtime_kit.h"
#include "suite_kit.h"

#ifdef HAVE_CUDA_H

static const char source[] = ".vasm 1\n" KIT_SCALE("cdiv(n, 256), 2") KIT_SHARED
    ".kernel scalars(b: bool, i: i32, u: u32, l: i64, w: u64, f: f32, d: f64, out: global f64[1, 32])\n"
    ".warps 1\n"
    ".grid 1\n"
    "    %vd = alloc-register f64[1, 32], spatial(1, 32), init d\n"
    "    store-global out[0, 0], %vd\n"
    ".end\n"
    ".kernel tensors(n: i32)\n"
    ".warps 1\n"
    ".grid multiprocessors\n"
    "    %va = alloc-global f32[grid.x, n]\n"
    "    %vc = alloc-global u32[n], clean\n"
    "    %vb = alloc-global f64[multiprocessors, 4]\n"
    "    %vx = load-global %vb[block.x], spatial(4).replicated(8)\n"
    ".end\n"
    ".kernel early(n: i32)\n"
    ".warps 1\n"
    ".grid n, 2, 3\n"
    "    launch-dependents\n"
    "    wait-dependency\n"
    ".end\n"
    ".kernel scale_wide(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
    ".warps 4\n"
    ".grid cdiv(n, 512)\n"
    ".assume n % 4 == 0\n"
    "    %vx = load-global x[block.x * 512], spatial(128).local(4)\n"
    "    %vy = mul %vx, f\n"
    "    store-global y[block.x * 512], %vy\n"
    ".end\n"
    ".kernel later(n: i32)\n"
    ".warps 1\n"
    ".assume target >= 100\n"
    "    exit\n"
    ".end\n"
    ".kernel device(n: i32, x: global f32[n, multiprocessors, target])\n"
    ".warps 1\n"
    "    %vx = load-global x[0, n, 0], spatial(32, 1, 1)\n"
    "    store-global x[1, 0, 0], %vx\n"
    ".end\n"
    ".entry any_tensors\n"
    ".case tensors if n > 0\n"
    ".end\n"
    ".entry any_scale\n"
    ".case scale if n < 100 && target >= 90 && multiprocessors < 140\n"
    ".case scale_wide if n >= 100\n"
    ".end\n";

static cuda_kit kit;
static char driver_log[80], ptxas_log[80];
static tvm_context *context;
static tvm_program *code;

static void setup(void) {
    kit_setup_with(&kit, source);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    snprintf(ptxas_log, sizeof ptxas_log, "%s/ptxas.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
}

static void close_all(void) {
    tvm_program_free(code);
    tvm_context_free(context);
    code = NULL;
    context = NULL;
}

static void teardown(void) {
    close_all();
    kit_teardown(&kit);
}

static tvm_status open_context(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    return tvm_context_create(&options, &context);
}

static void open_all(void) {
    ck_assert_msg(open_context() == TVM_OK, "%s", tvm_message(context));
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
}

static tvm_kernel *function_of(const char *name) {
    return kernel_named(code, name);
}

/* The file's contents since the last call, which empties it. */
static const char *log_of(const char *path) {
    static char text[4096];
    FILE *log = fopen(path, "r");
    size_t size = log ? fread(text, 1, sizeof text - 1, log) : 0;
    text[size] = '\0';
    if (log) fclose(log);
    unlink(path);
    return text;
}

static void assert_log(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void assert_log(const char *path, const char *format, ...) {
    char expected[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    ck_assert_str_eq(log_of(path), expected);
}

static void assert_says(const char *word) {
    ck_assert_msg(strstr(tvm_message(context), word) != NULL, "'%s' does not say '%s'", tvm_message(context),
                  word);
}

START_TEST(names_the_device) {
    open_all();
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CUDA);
    ck_assert_str_eq(tvm_device_name(context), "Fake GPU (cuda:0, sm_90a)");
    close_all();
    assert_log(driver_log, "retain\nrelease\n");
}
END_TEST

START_TEST(launches_with_the_grid_and_arguments) {
    open_all();
    void *x, *y;
    ck_assert_int_eq(tvm_memory_alloc(context, 4000, &x), TVM_OK);
    ck_assert_int_eq(tvm_memory_alloc(context, 4000, &y), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("scalars")), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "ifpp", 1);
    ck_assert_int_eq(tvm_launch(function_of("scale"), NULL, 1000, 0.1, x, y), TVM_OK);
    assert_log(driver_log, "launch scale 4,2,1 64,1,1 0 default 1000 %.9g %p %p\n", (double)0.1f, x, y);
    setenv("FAKE_CUDA_PARAMS", "iiillfdp", 1);
    ck_assert_int_eq(
        tvm_launch(function_of("scalars"), y, 7, -5, 4000000000u, INT64_MIN, (uint64_t)3, 1.5, 0.1, x),
        TVM_OK);
    assert_log(driver_log, "launch scalars 1,1,1 32,1,1 0 stream 1 -5 -294967296 %lld 3 1.5 %.17g %p\n",
               (long long)INT64_MIN, 0.1, x);
    ck_assert_int_eq(tvm_launch(function_of("scale"), NULL, 0, 1.0, NULL, NULL), TVM_OK);
    ck_assert_int_eq(tvm_launch(function_of("scale"), NULL, 8, 1.0, NULL, y), TVM_ARGUMENT);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    assert_log(driver_log, "%s", "");
    tvm_memory_free(context, x);
    tvm_memory_free(context, y);
}
END_TEST

START_TEST(describes_kernels) {
    open_all();
    tvm_kernel_info info;
    ck_assert_int_eq(tvm_get_kernel_info(function_of("shared"), &info), TVM_OK);
    ck_assert_str_eq(info.target, "sm_90a");
    ck_assert_uint_eq(info.threads, 32);
    ck_assert_uint_eq(info.shared_bytes, 65536);
    ck_assert_int_eq(info.registers, 40);
    ck_assert_uint_eq(info.local_bytes, 16);
    ck_assert_int_eq(tvm_get_kernel_info(function_of("scale"), &info), TVM_OK);
    ck_assert_uint_eq(info.threads, 64);
    ck_assert_uint_eq(info.shared_bytes, 0);
}
END_TEST

START_TEST(bound_functions_launch_on_their_stream) {
    typedef int (*scale_function)(int32_t, float, void *, void *);
    typedef int (*scale_on_stream)(void *, int32_t, float, void *, void *);
    char stream;
    tvm_bind_options fixed = {.stream = &stream}, first = {.stream_parameter = 1};
    tvm_function plain = NULL, bound = NULL, given = NULL;
    open_all();
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, 4000, &x), TVM_OK);
    ck_assert_int_eq(tvm_bind(function_of("scale"), &plain), TVM_OK);
    ck_assert_int_eq(tvm_bind_with(function_of("scale"), &fixed, &bound), TVM_OK);
    ck_assert_int_eq(tvm_bind_with(function_of("scale"), &first, &given), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "ifpp", 1);
    ck_assert_int_eq(((scale_function)plain)(1000, 0.1f, x, x), TVM_OK);
    assert_log(driver_log, "launch scale 4,2,1 64,1,1 0 default 1000 %.9g %p %p\n", (double)0.1f, x, x);
    ck_assert_int_eq(((scale_function)bound)(1, 2.5f, x, x), TVM_OK);
    assert_log(driver_log, "launch scale 1,2,1 64,1,1 0 stream 1 2.5 %p %p\n", x, x);
    ck_assert_int_eq(((scale_on_stream)given)(&stream, 1, 2.5f, x, x), TVM_OK);
    ck_assert_int_eq(((scale_on_stream)given)(NULL, 1, 2.5f, x, x), TVM_OK);
    assert_log(
        driver_log,
        "launch scale 1,2,1 64,1,1 0 stream 1 2.5 %p %p\nlaunch scale 1,2,1 64,1,1 0 default 1 2.5 %p %p\n",
        x, x, x, x);
    tvm_memory_free(context, x);
}
END_TEST

START_TEST(tensors_must_be_on_the_gpu) {
    open_all();
    int64_t shape[] = {16};
    void *data;
    ck_assert_int_eq(tvm_memory_alloc(context, 64, &data), TVM_OK);
    tvm_tensor x = {
        .data = data, .device = {TVM_TENSOR_CUDA, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
    tvm_value values[] = {{.i = 16}, {.f = 1}, {.tensor = &x}, {.tensor = &x}};
    unsetenv("FAKE_CUDA_PARAMS");
    ck_assert_int_eq(tvm_launchv(function_of("scale"), NULL, values, 4), TVM_OK);
    x.device.device_type = TVM_TENSOR_CUDA_MANAGED;
    ck_assert_int_eq(tvm_launchv(function_of("scale"), NULL, values, 4), TVM_OK);
    x.device = (tvm_tensor_device){TVM_TENSOR_CUDA, 1};
    ck_assert_int_eq(tvm_launchv(function_of("scale"), NULL, values, 4), TVM_ARGUMENT);
    assert_says("'x' is to be on cuda:0, but is on cuda:1");
    x.device = (tvm_tensor_device){TVM_TENSOR_CPU, 0};
    ck_assert_int_eq(tvm_launchv(function_of("scale"), NULL, values, 4), TVM_ARGUMENT);
    assert_says("is on the CPU");
    x.device = (tvm_tensor_device){TVM_TENSOR_CUDA_HOST, 0};
    ck_assert_int_eq(tvm_launchv(function_of("scale"), NULL, values, 4), TVM_ARGUMENT);
    assert_says("pinned");
    tvm_memory_free(context, data);
}
END_TEST

/* Launches from many threads, each with arguments of its own: none is lost, none is mixed up. */
enum { THREADS = 16, LAUNCHES = 50 };

typedef struct worker {
    pthread_t thread;
    int (*scale)(void *, int32_t, float, void *, void *);
    int number;
    bool right;
} worker;

static void *work(void *pointer) {
    worker *self = pointer;
    char *address = (char *)(uintptr_t)((uintptr_t)(self->number + 1) << 20);
    self->right = true;
    for (int i = 0; i < LAUNCHES; i++)
        self->right = self->right && !self->scale(NULL, 1000 * self->number + i, (float)i, address, address);
    return NULL;
}

START_TEST(many_threads_launch) {
    tvm_bind_options options = {.stream_parameter = 1};
    tvm_function function;
    static unsigned char seen[THREADS][LAUNCHES];
    worker workers[THREADS];
    open_all();
    ck_assert_int_eq(tvm_bind_with(function_of("scale"), &options, &function), TVM_OK);
    setenv("FAKE_CUDA_PARAMS", "ifpp", 1);
    for (int i = 0; i < THREADS; i++) {
        workers[i] =
            (worker){.number = i, .scale = (int (*)(void *, int32_t, float, void *, void *))function};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert(workers[i].right);
    }
    FILE *log = fopen(driver_log, "r");
    ck_assert_ptr_nonnull(log);
    char line[256];
    while (fgets(line, sizeof line, log)) {
        int blocks, n;
        float f;
        unsigned long long x, y;
        if (sscanf(line, "launch scale %d,2,1 64,1,1 0 default %d %f %llx %llx", &blocks, &n, &f, &x, &y) !=
            5)
            continue;
        int thread = n / 1000, round = n % 1000;
        ck_assert(thread < THREADS && round < LAUNCHES);
        ck_assert_int_eq(blocks, (n + 255) / 256);
        ck_assert(f == (float)round && x == (unsigned long long)(thread + 1) << 20 && x == y);
        seen[thread][round]++;
    }
    fclose(log);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < LAUNCHES; j++) ck_assert_int_eq(seen[i][j], i || j ? 1 : 0); /* n = 0: no block */
}
END_TEST

/* The device's target and multiprocessors decide with the arguments. */
START_TEST(entry_launches_its_variant) {
    open_all();
    void *x;
    double time;
    tvm_kernel *entry = function_of("any_scale");
    ck_assert_int_eq(tvm_memory_alloc(context, 4000, &x), TVM_OK);
    ck_assert_int_eq(tvm_prepare(entry), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "ifpp", 1);
    ck_assert_int_eq(tvm_launch(entry, NULL, 99, 0.5, x, x), TVM_OK);
    assert_log(driver_log, "launch scale 1,2,1 64,1,1 0 default 99 0.5 %p %p\n", x, x);
    ck_assert_int_eq(tvm_launch(entry, NULL, 1000, 0.5, x, x), TVM_OK);
    assert_log(driver_log, "launch scale_wide 2,1,1 128,1,1 0 default 1000 0.5 %p %p\n", x, x);
    ck_assert_int_eq(tvm_launch(entry, NULL, 101, 0.5, x, x), TVM_ARGUMENT);
    assert_says("entry 'any_scale': kernel 'scale_wide' assumes n % 4 == 0 (n = 101)");
    const tvm_value values[4] = {{.i = 1000}, {.f = 0.5}, {.data = x}, {.data = x}};
    ck_assert_int_eq(tvm_time(entry, values, 4, 3, &time), TVM_OK);
    ck_assert_ptr_nonnull(strstr(log_of(driver_log), "captured 20\n"));
    tvm_memory_free(context, x);
    close_all();
    setenv("FAKE_CUDA_CC", "80", 1);
    open_all();
    ck_assert_int_eq(tvm_launch(function_of("any_scale"), NULL, 99, 0.5, NULL, NULL), TVM_ARGUMENT);
    assert_says(
        "serves n = 99, multiprocessors = 132, target = 80; the nearest is 'scale_wide', which needs n >= 100");
    close_all();
    unsetenv("FAKE_CUDA_CC");
    setenv("FAKE_CUDA_MULTIPROCESSORS", "148", 1);
    open_all();
    ck_assert_int_eq(tvm_launch(function_of("any_scale"), NULL, 99, 0.5, NULL, NULL), TVM_ARGUMENT);
    close_all();
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
}
END_TEST

START_TEST(bound_entry_launches_its_variant) {
    typedef int (*scale_on_stream)(void *, int32_t, float, void *, void *);
    char stream;
    tvm_bind_options first = {.stream_parameter = 1};
    tvm_function bound;
    tvm_kernel_info info;
    void *x;
    open_all();
    tvm_kernel *entry = function_of("any_scale");
    ck_assert_int_eq(tvm_get_kernel_info(entry, &info), TVM_USAGE);
    assert_says("'any_scale' is an entry, which has no code of its own");
    ck_assert_int_eq(tvm_memory_alloc(context, 4000, &x), TVM_OK);
    ck_assert_int_eq(tvm_bind_with(entry, &first, &bound), TVM_OK);
    ck_assert_int_eq(tvm_prepare(entry), TVM_OK);
    log_of(driver_log);
    setenv("FAKE_CUDA_PARAMS", "ifpp", 1);
    ck_assert_int_eq(((scale_on_stream)bound)(&stream, 99, 0.5f, x, x), TVM_OK);
    assert_log(driver_log, "launch scale 1,2,1 64,1,1 0 stream 99 0.5 %p %p\n", x, x);
    ck_assert_int_eq(((scale_on_stream)bound)(&stream, 1000, 0.5f, x, x), TVM_OK);
    assert_log(driver_log, "launch scale_wide 2,1,1 128,1,1 0 stream 1000 0.5 %p %p\n", x, x);
    tvm_memory_free(context, x);
}
END_TEST

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
    assert_log(driver_log,
               "retain\nload cubin\nattribute shared 8 65536\nlaunch shared 1,1,1 32,1,1 65536 default\n");
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

START_TEST(a_kernel_that_waits_for_its_dependency_may_begin_early) {
    char stream;
    unsetenv("FAKE_CUDA_PARAMS");
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("early")), TVM_OK);
    log_of(driver_log);
    ck_assert_int_eq(tvm_launch(function_of("early"), &stream, 5), TVM_OK);
    /* 6 is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    assert_log(driver_log, "with 6 1 launch early 5,2,3 32,1,1 0 stream\n");
    setenv("FAKE_CUDA_NO_EARLY", "1", 1);
    ck_assert_int_eq(tvm_launch(function_of("early"), &stream, 5), TVM_OK);
    assert_log(driver_log, "launch early 5,2,3 32,1,1 0 stream\n");
    unsetenv("FAKE_CUDA_NO_EARLY");
    close_all();
    setenv("FAKE_CUDA_CC", "89", 1);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("early")), TVM_OK);
    log_of(driver_log);
    ck_assert_int_eq(tvm_launch(function_of("early"), &stream, 5), TVM_OK);
    assert_log(driver_log, "launch early 5,2,3 32,1,1 0 stream\n");
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

START_TEST(second_run_needs_no_ptxas) {
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    close_all();
    assert_log(ptxas_log, "--version \n-v -arch=sm_90a\n-v -arch=sm_90a\n");
    assert_log(driver_log,
               "retain\nload cubin\nload cubin\nattribute shared 8 65536\nunload\nunload\nrelease\n");
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
    assert_log(driver_log, "retain\nload ptx\nattribute shared 8 65536\n");
    close_all();
    log_of(driver_log);
    open_all();
    ck_assert_int_eq(tvm_prepare(function_of("shared")), TVM_OK);
    assert_log(driver_log, "retain\nload ptx\nattribute shared 8 65536\n");
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

START_TEST(fault_names_the_kernel) {
    open_all();
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, 1024, &x), TVM_OK);
    setenv("FAKE_CUDA_FAULT", "700", 1);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    unsetenv("FAKE_CUDA_PARAMS");
    ck_assert_int_eq(tvm_launch(function_of("scale"), NULL, 16, 1.0, x, x), TVM_OK);
    tvm_program_free(code);
    code = NULL;
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_FAULT);
    assert_says("'scale'");
    assert_says("CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_says("an illegal memory access was encountered");
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_FAULT);
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

START_TEST(times_graph_replays) {
    open_all();
    double microseconds = 0;
    void *x;
    ck_assert_int_eq(tvm_memory_alloc(context, 1024, &x), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    log_of(driver_log);
    tvm_value values[] = {{.i = 16}, {.f = 1}, {.data = x}, {.data = x}};
    ck_assert_int_eq(tvm_time(function_of("scale"), values, 4, 50, &microseconds), TVM_OK);
    assert_log(driver_log, "captured 20\nreplay\nreplay\nreplay\nreplay\n");
    /* The driver says 2 ms for the warm-up, then 4, 6, 8 for 20 launches each. */
    ck_assert_double_eq_tol(microseconds, 300, 1e-3);
    tvm_memory_free(context, x);
}
END_TEST

START_TEST(runs_in_the_callers_context) {
    char other;
    tvm_context_options options = {.cuda_context = &other, .cache_dir = kit.cache};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CUDA);
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
    ck_assert_int_eq(tvm_prepare(function_of("scale")), TVM_OK);
    close_all();
    assert_log(driver_log, "load cubin\nunload\n"); /* the primary one is not touched */
}
END_TEST

START_TEST(unusable_drivers) {
    setenv("FAKE_CUDA_INIT", "803", 1);
    ck_assert_int_eq(open_context(), TVM_NO_DEVICE);
    assert_says("803");
    close_all();
    tvm_context_options any = {0};
    ck_assert_int_eq(tvm_context_create(&any, &context), TVM_OK);
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CPU);
    close_all();
    unsetenv("FAKE_CUDA_INIT");
    setenv("FAKE_CUDA_CC", "35", 1);
    ck_assert_int_eq(open_context(), TVM_UNSUPPORTED);
    close_all();
    unsetenv("FAKE_CUDA_CC");
    any = (tvm_context_options){.device = TVM_DEVICE_CUDA, .ordinal = 1};
    ck_assert_int_eq(tvm_context_create(&any, &context), TVM_NO_DEVICE);
    assert_says("cuda:1");
}
END_TEST

#else

START_TEST(build_without_cuda_says_so) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA};
    tvm_context *context = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_UNSUPPORTED);
    ck_assert(strstr(tvm_message(context), "built without cuda.h") != NULL);
    tvm_context_free(context);
    ck_assert_int_eq(tvm_context_create(NULL, &context), TVM_OK);
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CPU);
    tvm_context_free(context);
}
END_TEST

#endif /* HAVE_CUDA_H */

int main(void) {
    Suite *suite = suite_create("cuda");
    TCase *cases = tcase_create("cuda");
    tcase_set_timeout(cases, 120); /* under valgrind, on a busy machine */
#ifdef HAVE_CUDA_H
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, names_the_device);
    tcase_add_test(cases, launches_with_the_grid_and_arguments);
    tcase_add_test(cases, describes_kernels);
    tcase_add_test(cases, bound_functions_launch_on_their_stream);
    tcase_add_test(cases, tensors_must_be_on_the_gpu);
    tcase_add_test(cases, many_threads_launch);
    tcase_add_test(cases, entry_launches_its_variant);
    tcase_add_test(cases, bound_entry_launches_its_variant);
    tcase_add_test(cases, reserve_of_an_entry_is_of_its_variant);
    tcase_add_test(cases, kernels_get_what_their_shapes_read_of_the_device);
    tcase_add_test(cases, kernel_for_another_target_is_left_out);
    tcase_add_test(cases, asks_for_large_shared_memory);
    tcase_add_test(cases, what_a_gpu_cannot_hold_is_passed_over);
    tcase_add_test(cases, tensors_of_a_launch_belong_to_its_stream);
    tcase_add_test(cases, clean_tensors_belong_to_their_program);
    tcase_add_test(cases, launches_are_captured_with_or_without_memory_made_before);
    tcase_add_test(cases, a_kernel_that_waits_for_its_dependency_may_begin_early);
    tcase_add_test(cases, threads_share_streams);
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
    tcase_add_test(cases, fault_names_the_kernel);
    tcase_add_test(cases, out_of_device_memory);
    tcase_add_test(cases, times_graph_replays);
    tcase_add_test(cases, runs_in_the_callers_context);
    tcase_add_test(cases, unusable_drivers);
#else
    tcase_add_test(cases, build_without_cuda_says_so);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
