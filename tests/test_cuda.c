/* The CUDA device against a driver that has no GPU (device_kit.h): what is launched, and what is said when
 * the driver fails. Without cuda.h: that the build says so. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "device_kit.h"

#ifdef HAVE_CUDA_H

START_TEST(names_the_device) {
    open_all();
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CUDA);
    ck_assert_str_eq(tvm_device_name(context), "Fake GPU (cuda:0, sm_90a)");
    close_all();
    assert_log(driver_log, "retain\nrelease\n");
}
END_TEST

/* A report of a GPU of this compute capability; the caller frees it. */
static char *report_of(const char *capability, const char *name) {
    char *text = NULL;
    setenv("FAKE_CUDA_CC", capability, 1);
    open_all();
    ck_assert_str_eq(tvm_device_name(context), name);
    ck_assert_int_eq(tvm_device_report(context, &text), TVM_OK);
    close_all();
    unsetenv("FAKE_CUDA_CC");
    return text;
}

static bool has_line(const char *text, const char *line) {
    char whole[600];
    snprintf(whole, sizeof whole, "%s\n", line);
    const char *found = strstr(text, whole);
    return found && (found == text || found[-1] == '\n');
}

START_TEST(reports_what_a_gpu_gets_and_misses) {
    char *hopper = report_of("90", "Fake GPU (cuda:0, sm_90a)"),
         *ada = report_of("89", "Fake GPU (cuda:0, sm_89)");
    ck_assert(has_line(hopper, "target: sm_90a") && has_line(ada, "target: sm_89"));
    ck_assert(has_line(hopper, "shared memory: 227 KiB a block") &&
              has_line(ada, "shared memory: 99 KiB a block"));
    ck_assert(has_line(hopper, "products: wgmma, mma.sync") && has_line(ada, "products: mma.sync"));
    ck_assert(has_line(hopper, "copies: TMA, cp.async") && has_line(ada, "copies: cp.async"));
    ck_assert(
        strstr(ada, "\nlacks: stmatrix (threads store the elements), cp_async_bulk (each thread copies "));
    ck_assert(strstr(ada, "wgmma (mma.sync)") && strstr(ada, "\nuses: ldmatrix, cp_async, mma_f8, "));
    ck_assert(strstr(hopper, ", wgmma, ") && !strstr(hopper, "wgmma (mma.sync)"));
    ck_assert(strstr(hopper, "\nnvJitLink: ") && strstr(hopper, "\nptxas: "));
    free(hopper), free(ada);
}
END_TEST

/* The nearest target before: its PTX runs on the GPU, no cubin does, and what one architecture alone has is
 * not used. */
START_TEST(a_gpu_that_no_target_is_of_gets_ptx) {
    char *newer = report_of("130", "Fake GPU (cuda:0, sm_121)"),
         *between = report_of("88", "Fake GPU (cuda:0, sm_87)"),
         *sibling = report_of("122", "Fake GPU (cuda:0, sm_121)");
    ck_assert(has_line(newer,
                       "target: sm_121, as PTX, which the driver compiles: this version knows no target of "
                       "compute capability 13.0"));
    ck_assert(has_line(between, /* a cubin for Tegra runs on no other GPU, its PTX does */
                       "target: sm_87, as PTX, which the driver compiles: this version knows no target of "
                       "compute capability 8.8"));
    ck_assert(has_line(sibling, "target: sm_121")); /* a cubin of a lower minor number runs */
    ck_assert(strstr(sibling, "setmaxnreg (") && !strstr(sibling, "has, but"));
    free(newer), free(between), free(sibling);
}
END_TEST

/* Without a GPU of the kind. */
START_TEST(reports_a_target_by_name) {
    static const char *const lines[][4] = {
        {"sm_89", "cubins run on: 8.9", "shared memory: 99 KiB a block", "products: mma.sync"},
        {"sm_80", "cubins run on: 8.0, 8.6, 8.9", "shared memory: 163 KiB a block", "copies: cp.async"},
        {"sm_100f", "cubins run on: 10.0, 10.3", "products: tcgen05, mma.sync", "copies: TMA, cp.async"},
        {"sm_120a", "cubins run on: 12.0", "products: mma.sync, mma.sync with scales of blocks",
         "types: f16, bf16, tf32, f64, i8, f8, f6, f4; others are converted to these in registers"},
    };
    open_all();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *text = NULL, target[32];
        ck_assert_int_eq(tvm_target_report(context, lines[i][0], &text), TVM_OK);
        snprintf(target, sizeof target, "target: %s", lines[i][0]);
        ck_assert(has_line(text, target) && !strstr(text, "ptxas: "));
        for (size_t j = 1; j < 4; j++)
            ck_assert_msg(has_line(text, lines[i][j]), "%s in\n%s", lines[i][j], text);
        free(text);
    }
    char *none = NULL;
    ck_assert_int_eq(tvm_target_report(context, "sm_81", &none), TVM_UNSUPPORTED);
    ck_assert_ptr_null(none);
    assert_says("unknown target 'sm_81'; known are sm_80, sm_86");
    assert_says("sm_121f, sm_121a");
    ck_assert_int_eq(tvm_target_report(context, NULL, &none), TVM_USAGE);
}
END_TEST

static tvm_status create_asking(unsigned target, const char *capability, tvm_context **made) {
    const tvm_context_options options = {.device = TVM_DEVICE_CUDA, .target = target, .cache_dir = ""};
    setenv("FAKE_CUDA_CC", capability, 1);
    tvm_status status = tvm_context_create(&options, made);
    unsetenv("FAKE_CUDA_CC");
    return status;
}

/* What an older GPU has is all that launches see, and what its blocks may have. */
START_TEST(code_for_an_older_target_is_asked_for) {
    tvm_context *asked = NULL;
    char *report = NULL;
    ck_assert_int_eq(create_asking(80, "90", &asked), TVM_OK);
    ck_assert_str_eq(tvm_device_name(asked), "Fake GPU (cuda:0, sm_80)");
    ck_assert_int_eq(tvm_device_report(asked, &report), TVM_OK);
    ck_assert(has_line(report, "target: sm_80, as asked for; its PTX is compiled for sm_90"));
    ck_assert(has_line(report, "shared memory: 163 KiB a block") && strstr(report, "wgmma (mma.sync)"));
    tvm_launch_env env = tvm_context_launch_env(asked);
    ck_assert_uint_eq(env.target, 80);
    ck_assert(!tvm_traits_have(env.traits, TVM_HAS_WGMMA));
    free(report);
    tvm_context_free(asked);
    ck_assert_int_eq(create_asking(90, "103", &asked), TVM_OK); /* sm_90a's code runs on sm_90 alone */
    ck_assert_str_eq(tvm_device_name(asked), "Fake GPU (cuda:0, sm_90)");
    ck_assert(!tvm_traits_have(tvm_context_launch_env(asked).traits, TVM_HAS_WGMMA));
    tvm_context_free(asked);
    ck_assert_int_eq(create_asking(90, "90", &asked), TVM_OK);
    ck_assert_str_eq(tvm_device_name(asked), "Fake GPU (cuda:0, sm_90a)");
    tvm_context_free(asked);
    ck_assert_int_eq(create_asking(100, "103", &asked), TVM_OK); /* what their family has */
    ck_assert_str_eq(tvm_device_name(asked), "Fake GPU (cuda:0, sm_100f)");
    tvm_context_free(asked);
    static const unsigned refused[] = {100, 75, 1};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ck_assert_int_eq(create_asking(refused[i], "90", &asked), TVM_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(tvm_message(asked), "a device of compute capability 9.0 runs no code"));
        tvm_context_free(asked);
    }
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
#ifdef HAVE_CUDA_H
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, names_the_device);
    tcase_add_test(cases, reports_what_a_gpu_gets_and_misses);
    tcase_add_test(cases, a_gpu_that_no_target_is_of_gets_ptx);
    tcase_add_test(cases, reports_a_target_by_name);
    tcase_add_test(cases, code_for_an_older_target_is_asked_for);
    tcase_add_test(cases, launches_with_the_grid_and_arguments);
    tcase_add_test(cases, describes_kernels);
    tcase_add_test(cases, bound_functions_launch_on_their_stream);
    tcase_add_test(cases, tensors_must_be_on_the_gpu);
    tcase_add_test(cases, many_threads_launch);
    tcase_add_test(cases, entry_launches_its_variant);
    tcase_add_test(cases, bound_entry_launches_its_variant);
    tcase_add_test(cases, a_kernel_that_waits_for_its_dependency_may_begin_early);
    tcase_add_test(cases, fault_names_the_kernel);
    tcase_add_test(cases, times_graph_replays);
    tcase_add_test(cases, runs_in_the_callers_context);
    tcase_add_test(cases, unusable_drivers);
#else
    tcase_add_test(cases, build_without_cuda_says_so);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
