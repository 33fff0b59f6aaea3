/* The public interface on the interpreter: load, look, launch, and every way to get an argument wrong. */
#include "check_kit.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assembler.h"
#include "runtime_kit.h"
#include "suite_kit.h"
#include "vbc.h"

static const char source[] = ".vasm 1\n" SCALE_KERNEL SCALARS_KERNEL
                             ".kernel packed(r: i32, c: i64, w: global u3[r, c * 8], v: global u3[r, c])\n"
                             ".warps 1\n"
                             ".grid r\n"
                             "    sync\n"
                             ".end\n"
                             ".kernel divide(n: i32, x: global f32[32])\n"
                             ".warps 1\n"
                             ".grid 1\n"
                             "    %vq = 7 / n\n"
                             "    %vx = alloc-register f32[32], spatial(32), init %vq\n"
                             "    store-global x[0], %vx\n"
                             ".end\n";

static uint8_t *bytecode;
static size_t bytecode_size;
static tvm_context *context;
static tvm_program *code;

static void assemble(void) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(source, sizeof source - 1, "runtime.vasm", NULL, &program, &diags);
    if (status) tvm_diags_print(&diags, stderr, "test_runtime", false);
    ck_assert_int_eq(status, TVM_OK);
    ck_assert_int_eq(tvm_vbc_write(program, true, &bytecode, &bytecode_size, &diags), TVM_OK);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

static void setup(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2};
    assemble();
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_load(context, bytecode, bytecode_size, &code), TVM_OK);
}

static void teardown(void) {
    tvm_program_free(code);
    tvm_context_free(context);
    free(bytecode);
}

static tvm_kernel *function_of(const char *name) {
    return kernel_named(code, name);
}

/* The call failed as it should, and the message names all of these (up to the first NULL). */
static void assert_refused(tvm_status status, tvm_status expected, const char *a, const char *b,
                           const char *c) {
    const char *const words[] = {a, b, c};
    const char *message = tvm_message(context);
    ck_assert_msg(status == expected, "status %d, message '%s'", status, message);
    for (int i = 0; i < 3 && words[i]; i++)
        ck_assert_msg(strstr(message, words[i]) != NULL, "'%s' does not say '%s'", message, words[i]);
}

static float *floats(size_t count) {
    void *data = NULL;
    ck_assert_int_eq(tvm_memory_alloc(context, count * sizeof(float), &data), TVM_OK);
    ck_assert_uint_eq((uintptr_t)data % 256, 0);
    return data;
}

/* ---- contexts, loading, introspection ---- */

START_TEST(names_the_device) {
    ck_assert_int_eq(tvm_device(context), TVM_DEVICE_CPU);
    ck_assert_str_eq(tvm_device_name(context), "interpreter, 2 threads");
    ck_assert_str_eq(tvm_message(context), "");
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
}
END_TEST

START_TEST(reports_the_interpreter) {
    char *text = NULL;
    ck_assert_int_eq(tvm_device_report(context, &text), TVM_OK);
    ck_assert_ptr_nonnull(strstr(text, "target: none: launches see no capability, and limits of 0\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nnvJitLink: "));
    ck_assert_ptr_nonnull(strstr(text, "\nptxas: "));
    free(text);
    tvm_context *other = NULL;
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .target = 90};
    ck_assert_int_eq(tvm_context_create(&options, &other), TVM_OK);
    ck_assert_int_eq(tvm_device_report(other, &text), TVM_OK);
    ck_assert_ptr_nonnull(strstr(text, "target: 90: launches see what sm_90a has\n"));
    free(text);
    tvm_context_free(other);
    ck_assert_int_eq(tvm_device_report(NULL, &text), TVM_USAGE);
    ck_assert_int_eq(tvm_target_report(context, "sm_87", &text), TVM_OK);
    ck_assert_ptr_nonnull(
        strstr(text, "target: sm_87\ncubins run on: 8.7\nshared memory: 163 KiB a block\n"));
    free(text);
    ck_assert_int_eq(tvm_target_report(context, "", &text), TVM_UNSUPPORTED);
    ck_assert_ptr_null(text);
}
END_TEST

/* A kernel with a sync, the same without, one that waits for other blocks, and an entry of the first two. */
START_TEST(proves_kernels) {
    static const char *const bodies[][2] = {{"right", "sync"}, {"wrong", "sync-warp"}};
    tvm_text lines = {0};
    tvm_program *own = NULL;
    tvm_kernel *kernel = NULL;
    tvm_kernel_proof proof;
    char *report = NULL;
    tvm_text_puts(&lines, ".vasm 7\n");
    for (size_t i = 0; i < 2; i++)
        tvm_text_add(&lines,
                     ".kernel %s(y: global f32[64])\n.warps 2\n.grid 1\n%%s = alloc-shared f32[64]\n"
                     "store-shared %%s, alloc-register(f32[64], spatial(64), init 1.0)\n%s\n"
                     "store-global y, load-shared(%%s, flatten(column_spatial(2, 32)))\n.end\n",
                     bodies[i][0], bodies[i][1]);
    tvm_text_puts(&lines, ".kernel waits(y: global f32[64])\n.warps 2\n.grid 2\n"
                          "%a = alloc-global i32[1], clean\nlock-semaphore %a[0], 1\n.end\n"
                          ".kernel common(y: global f32[64])\n.warps 2\n.grid 2\n"
                          "store-global y, alloc-register(f32[64], spatial(64), init 1.0)\n.end\n"
                          ".entry any\n.case right\n.case wrong\n.end\n");
    ck_assert_int_eq(tvm_assemble(context, tvm_text_string(&lines), lines.size, NULL, &own), TVM_OK);
    tvm_text_free(&lines);
    ck_assert_int_eq(tvm_get_kernel(own, "right", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prove_kernel(kernel, &proof, &report), TVM_OK);
    ck_assert_int_eq(proof.races, TVM_VERDICT_PROVED);
    ck_assert_int_eq(proof.deadlocks, TVM_VERDICT_PROVED);
    ck_assert_int_eq(proof.global, TVM_VERDICT_PROVED);
    ck_assert_str_eq(report,
                     "right: races: proved\nright: deadlocks: proved\nright: global memory: proved\n");
    free(report);
    ck_assert_int_eq(tvm_get_kernel(own, "wrong", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prove_kernel(kernel, &proof, NULL), TVM_OK);
    ck_assert_int_eq(proof.races, TVM_VERDICT_FOUND);
    ck_assert_int_eq(tvm_get_kernel(own, "waits", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prove_kernel(kernel, &proof, NULL), TVM_OK);
    ck_assert_int_eq(proof.races, TVM_VERDICT_PROVED);
    ck_assert_int_eq(proof.deadlocks, TVM_VERDICT_CONDITIONAL);
    ck_assert_int_eq(proof.global, TVM_VERDICT_PROVED);
    ck_assert_int_eq(tvm_get_kernel(own, "common", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prove_kernel(kernel, &proof, &report), TVM_OK);
    ck_assert_int_eq(proof.global, TVM_VERDICT_FOUND);
    ck_assert_ptr_nonnull(strstr(report, "common: global memory: found: "));
    free(report);
    ck_assert_int_eq(tvm_get_kernel(own, "any", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prove_kernel(kernel, &proof, &report), TVM_OK);
    ck_assert_int_eq(proof.races, TVM_VERDICT_FOUND);
    ck_assert_ptr_nonnull(strstr(report, "right: races: proved\n"));
    ck_assert_ptr_nonnull(strstr(report, "wrong: races: found: "));
    free(report);
    ck_assert_int_eq(tvm_prove_kernel(NULL, &proof, NULL), TVM_USAGE);
    ck_assert_int_eq(tvm_prove_kernel(kernel, NULL, NULL), TVM_USAGE);
    tvm_program_free(own);
}
END_TEST

START_TEST(auto_finds_a_device) {
    tvm_context *any = NULL;
    ck_assert_int_eq(tvm_context_create(NULL, &any), TVM_OK);
    ck_assert_int_ne(tvm_device(any), TVM_DEVICE_AUTO);
    tvm_context_free(any);
}
END_TEST

START_TEST(failed_creation_tells_why) {
    tvm_context_options options = {.device = (tvm_device_kind)77};
    tvm_context *none = NULL;
    tvm_program *loaded = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &none), TVM_USAGE);
    ck_assert(strstr(tvm_message(none), "77") != NULL);
    ck_assert_int_eq(tvm_load(none, bytecode, bytecode_size, &loaded), TVM_USAGE);
    ck_assert_int_eq(tvm_synchronize(none, NULL), TVM_USAGE);
    ck_assert(strstr(tvm_message(none), "tvm_context_create") != NULL);
    tvm_context_free(none);
    ck_assert_str_ne(tvm_message(NULL), "");
    tvm_context_free(NULL);
    tvm_program_free(NULL);
}
END_TEST

START_TEST(missing_gpu_is_an_error) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .ordinal = 1000};
    tvm_context *none = NULL;
    tvm_status status = tvm_context_create(&options, &none);
    ck_assert(status == TVM_NO_DEVICE || status == TVM_UNSUPPORTED);
    ck_assert_str_ne(tvm_message(none), "");
    tvm_context_free(none);
}
END_TEST

START_TEST(looks_inside) {
    tvm_param_info info;
    ck_assert_uint_eq(tvm_kernel_count(code), 4);
    ck_assert_str_eq(tvm_kernel_name(tvm_kernel_at(code, 1)), "scalars");
    ck_assert_ptr_null(tvm_kernel_at(code, 4));
    tvm_kernel *scale = function_of("scale");
    ck_assert_uint_eq(tvm_param_count(scale), 4);
    ck_assert_int_eq(tvm_param(scale, 1, &info), TVM_OK);
    ck_assert_str_eq(info.name, "f");
    ck_assert_str_eq(info.type, "f32");
    ck_assert_uint_eq(info.bits, 32);
    ck_assert(!info.is_tensor);
    ck_assert_uint_eq(info.rank, 0);
    ck_assert_int_eq(tvm_param(function_of("packed"), 2, &info), TVM_OK);
    ck_assert_str_eq(info.name, "w");
    ck_assert_str_eq(info.type, "u3");
    ck_assert_uint_eq(info.bits, 3);
    ck_assert(info.is_tensor);
    ck_assert_uint_eq(info.rank, 2);
    ck_assert_str_eq(info.shape, "[r, c * 8]");
    ck_assert_int_eq(tvm_param(scale, 0, &info), TVM_OK);
    ck_assert_str_eq(info.shape, "");
    assert_refused(tvm_param(scale, 4, &info), TVM_USAGE, "scale", "4", NULL);
}
END_TEST

START_TEST(describes_kernels) {
    tvm_kernel_info info;
    ck_assert_int_eq(tvm_get_kernel_info(function_of("scale"), &info), TVM_OK);
    ck_assert_str_eq(info.target, "interpreter");
    ck_assert_uint_eq(info.threads, 32);
    ck_assert_int_eq(info.registers, -1);
    ck_assert_int_eq(tvm_get_kernel_info(NULL, &info), TVM_USAGE);
}
END_TEST

START_TEST(assembles_text) {
    static const char text[] =
        ".vasm 1\n.const N = 8, M = 3\n.kernel k(x: global f32[N, M])\n.warps 1\n.grid 1\n"
        "    sync\n.end\n";
    static const char *const defines[] = {"M=5"}, *const wrong[] = {"NN=1"};
    tvm_assemble_options options = {.name = "text.vasm", .defines = defines, .define_count = 1};
    int64_t shape[8];
    tvm_value none = {0};
    tvm_program *loaded = NULL;
    ck_assert_int_eq(tvm_assemble(context, text, sizeof text - 1, NULL, &loaded), TVM_OK);
    ck_assert_int_eq(tvm_param_shape(tvm_kernel_at(loaded, 0), 0, &none, 1, shape, NULL), TVM_OK);
    ck_assert_int_eq(shape[0], 8);
    ck_assert_int_eq(shape[1], 3);
    tvm_program_free(loaded);
    ck_assert_int_eq(tvm_assemble(context, text, sizeof text - 1, &options, &loaded), TVM_OK);
    ck_assert_int_eq(tvm_param_shape(tvm_kernel_at(loaded, 0), 0, &none, 1, shape, NULL), TVM_OK);
    ck_assert_int_eq(shape[1], 5);
    tvm_program_free(loaded);
    options.defines = wrong;
    assert_refused(tvm_assemble(context, text, sizeof text - 1, &options, &loaded), TVM_SYNTAX, "NN", NULL,
                   NULL);
    ck_assert_ptr_null(loaded);
    options.define_count = 0;
    assert_refused(tvm_assemble(context, text, 40, &options, &loaded), TVM_SYNTAX, "text.vasm:", NULL, NULL);
    ck_assert_int_ne(tvm_assemble(context, NULL, 0, NULL, &loaded), TVM_OK);
    ck_assert_int_eq(tvm_assemble(context, NULL, 1, NULL, &loaded), TVM_USAGE);
    ck_assert_int_eq(tvm_assemble(NULL, text, 1, NULL, &loaded), TVM_USAGE);
}
END_TEST

START_TEST(unknown_kernel_names_those_there_are) {
    tvm_kernel *function;
    assert_refused(tvm_get_kernel(code, "scalar", &function), TVM_NOT_FOUND, "'scalar'",
                   "scale, scalars, packed, divide", NULL);
    ck_assert_ptr_null(function);
    function_of("scale");
    ck_assert_str_eq(tvm_message(context), ""); /* after success */
}
END_TEST

START_TEST(broken_bytecode_is_refused) {
    tvm_program *loaded;
    assert_refused(tvm_load(context, "not bytecode", 12, &loaded), TVM_FORMAT, NULL, NULL, NULL);
    ck_assert_ptr_null(loaded);
    ck_assert_str_ne(tvm_message(context), "");
    ck_assert_int_ne(tvm_load(context, bytecode, bytecode_size - 1, &loaded), TVM_OK);
    ck_assert_int_ne(tvm_load(context, NULL, 0, &loaded), TVM_OK);
    assert_refused(tvm_load_file(context, "/nowhere/x.vbc", &loaded), TVM_IO, "/nowhere/x.vbc", NULL, NULL);
}
END_TEST

START_TEST(loads_a_file) {
    char path[] = "/tmp/tvm-test-runtime-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_eq(write(file, bytecode, bytecode_size), (ssize_t)bytecode_size);
    close(file);
    tvm_program *loaded;
    ck_assert_int_eq(tvm_load_file(context, path, &loaded), TVM_OK);
    unlink(path);
    ck_assert_uint_eq(tvm_kernel_count(loaded), 4);
    tvm_program_free(loaded);
}
END_TEST

/* ---- launches ---- */

START_TEST(launches) {
    enum { N = 300 };
    float *x = floats(N), *y = floats(N), in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = (float)i;
    ck_assert_int_eq(tvm_memory_write(context, x, in, sizeof in), TVM_OK);
    tvm_kernel *scale = function_of("scale");
    ck_assert_int_eq(tvm_prepare(scale), TVM_OK);
    ck_assert_int_eq(tvm_launch(scale, NULL, N, 2.5, x, y), TVM_OK);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    ck_assert_int_eq(tvm_memory_read(context, out, y, sizeof out), TVM_OK);
    for (int i = 0; i < N; i++) ck_assert_float_eq(out[i], 2.5f * (float)i);
    tvm_value values[] = {
        {.i = N}, {.f = -1.0}, {.data = x, .bytes = sizeof in}, {.data = y, .bytes = sizeof out}};
    ck_assert_int_eq(tvm_launchv(scale, NULL, values, 4), TVM_OK);
    ck_assert_int_eq(tvm_memory_read(context, out, y, sizeof out), TVM_OK);
    for (int i = 0; i < N; i++) ck_assert_float_eq(out[i], -(float)i);
    ck_assert_int_eq(tvm_memory_free(context, x), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(context, y), TVM_OK);
}
END_TEST

START_TEST(passes_every_scalar_type) {
    const double expected[7] = {
        1, -2147483647 - 1, 4294967295.0, -1099511627776.0, 9223372036854775808.0, (float)0.1, 0.1};
    const double opposite[7] = {0, 2147483647, 0, 1099511627776.0, 1, -1.5, 1e300};
    void *out;
    ck_assert_int_eq(tvm_memory_alloc(context, 7 * 32 * sizeof(double), &out), TVM_OK);
    tvm_kernel *scalars = function_of("scalars");
    ck_assert_int_eq(tvm_launch(scalars, NULL, 5, INT32_MIN, 4294967295u, (int64_t)-1099511627776,
                                (uint64_t)1 << 63, 0.1, 0.1, out),
                     TVM_OK);
    assert_scalars(out, expected);
    tvm_value values[] = {{.i = 0}, {.i = INT32_MAX}, {.i = 0},     {.i = 1099511627776},
                          {.i = 1}, {.f = -1.5},      {.f = 1e300}, {.data = out}};
    ck_assert_int_eq(tvm_launchv(scalars, NULL, values, 8), TVM_OK);
    assert_scalars(out, opposite);
    tvm_memory_free(context, out);
}
END_TEST

START_TEST(refuses_wrong_arguments) {
    tvm_kernel *scale = function_of("scale");
    float *x = floats(16), *y = floats(16);
    assert_refused(tvm_launch(scale, NULL, 6, 1.0, x, y), TVM_ARGUMENT, "scale", "n % 4 == 0", "n = 6");
    assert_refused(tvm_launch(scale, NULL, -4, 1.0, x, y), TVM_ARGUMENT, "scale", "-4", NULL);
    assert_refused(tvm_launch(scale, NULL, 16, 1.0, NULL, y), TVM_ARGUMENT, "scale", "'x'", "NULL");
    assert_refused(tvm_launch(scale, NULL, 8, 1.0, x, y + 1), TVM_ARGUMENT, "scale", "'y'", "aligned");
    tvm_value values[] = {{.i = 16}, {.f = 1}, {.data = x, .bytes = 64}, {.data = y, .bytes = 63}};
    assert_refused(tvm_launchv(scale, NULL, values, 4), TVM_ARGUMENT, "'y'", "64", "63");
    assert_refused(tvm_launchv(scale, NULL, values, 3), TVM_ARGUMENT, "scale", "4", "3");
    assert_refused(tvm_launchv(scale, NULL, NULL, 4), TVM_ARGUMENT, "scale", NULL, NULL);
    values[0].i = (int64_t)1 << 32;
    assert_refused(tvm_launchv(scale, NULL, values, 4), TVM_ARGUMENT, "'n'", "4294967296", "i32");
    values[0].i = 16;
    values[3].bytes = 64;
    ck_assert_int_eq(tvm_launchv(scale, NULL, values, 4), TVM_OK);
    ck_assert_str_eq(tvm_message(context), "");
    tvm_memory_free(context, x);
    tvm_memory_free(context, y);
}
END_TEST

START_TEST(empty_grid_does_nothing) {
    ck_assert_int_eq(tvm_launch(function_of("scale"), NULL, 0, 1.0, NULL, NULL), TVM_OK);
    double microseconds = 1;
    tvm_value values[4] = {{.i = 0}};
    ck_assert_int_eq(tvm_time(function_of("scale"), values, 4, 1, &microseconds), TVM_OK);
    ck_assert_double_eq(microseconds, 0);
}
END_TEST

START_TEST(run_time_error_is_reported) {
    float *x = floats(32);
    tvm_kernel *divide = function_of("divide");
    assert_refused(tvm_launch(divide, NULL, 0, x), TVM_FAULT, "divide", "division by zero",
                   "runtime.vasm:36");
    ck_assert_int_eq(tvm_launch(divide, NULL, 2, x), TVM_OK);
    ck_assert_float_eq(x[0], 3);
    tvm_memory_free(context, x);
}
END_TEST

START_TEST(tells_shapes) {
    int64_t shape[8];
    size_t bytes;
    tvm_kernel *packed = function_of("packed");
    tvm_value values[4] = {{.i = 5}, {.i = 16}};
    ck_assert_int_eq(tvm_param_shape(packed, 2, values, 4, shape, &bytes), TVM_OK);
    ck_assert_int_eq(shape[0], 5);
    ck_assert_int_eq(shape[1], 128);
    ck_assert_uint_eq(bytes, 5 * 128 * 3 / 8);
    values[1].i = 3;
    assert_refused(tvm_param_shape(packed, 3, values, 4, shape, &bytes), TVM_ARGUMENT, "v", "u3",
                   "whole bytes");
    values[0].i = -1;
    assert_refused(tvm_param_shape(packed, 2, values, 4, shape, &bytes), TVM_ARGUMENT, "w", "-1", "negative");
    assert_refused(tvm_param_shape(packed, 0, values, 4, shape, &bytes), TVM_USAGE, "packed", "no tensor",
                   NULL);
    assert_refused(tvm_param_shape(packed, 9, values, 4, shape, &bytes), TVM_USAGE, "packed", NULL, NULL);
}
END_TEST

START_TEST(times) {
    enum { N = 256 };
    float *x = floats(N), *y = floats(N);
    double microseconds = 0;
    memset(x, 0, N * sizeof *x);
    tvm_value values[] = {{.i = N}, {.f = 1}, {.data = x}, {.data = y}};
    ck_assert_int_eq(tvm_time(function_of("scale"), values, 4, 3, &microseconds), TVM_OK);
    ck_assert_double_gt(microseconds, 0);
    values[0].i = 6;
    assert_refused(tvm_time(function_of("scale"), values, 4, 3, &microseconds), TVM_ARGUMENT, "n % 4", NULL,
                   NULL);
    tvm_memory_free(context, x);
    tvm_memory_free(context, y);
}
END_TEST

START_TEST(too_much_memory_is_refused) {
    void *data;
    assert_refused(tvm_memory_alloc(context, SIZE_MAX, &data), TVM_DEVICE_MEMORY, "memory", NULL, NULL);
    assert_refused(tvm_memory_alloc(context, (size_t)1 << 63, &data), TVM_DEVICE_MEMORY, "memory", NULL,
                   NULL);
    ck_assert_ptr_null(data);
    ck_assert_int_eq(tvm_memory_alloc(context, 0, &data), TVM_OK);
    ck_assert_ptr_nonnull(data);
    ck_assert_int_eq(tvm_memory_free(context, data), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(context, NULL), TVM_OK);
}
END_TEST

/* ---- threads: one context, one function, messages of their own ---- */

enum { THREADS = 6, LAUNCHES = 20, LENGTH = 512 };

typedef struct worker {
    pthread_t thread;
    int number;
    bool right;
} worker;

static void *work(void *pointer) {
    worker *self = pointer;
    void *x = NULL, *y = NULL;
    tvm_kernel *scale = NULL;
    bool right = tvm_get_kernel(code, "scale", &scale) == TVM_OK;
    right = right && !tvm_memory_alloc(context, LENGTH * sizeof(float), &x);
    right = right && !tvm_memory_alloc(context, LENGTH * sizeof(float), &y);
    for (int i = 0; right && i < LENGTH; i++) ((float *)x)[i] = (float)i;
    for (int round = 0; right && round < LAUNCHES; round++) {
        right = tvm_launch(scale, NULL, LENGTH, (double)(self->number + round), x, y) == TVM_OK;
        right = right && !*tvm_message(context);
        for (int i = 0; right && i < LENGTH; i++)
            right = ((float *)y)[i] == (float)(i * (self->number + round));
        char expected[32];
        snprintf(expected, sizeof expected, "n = %d", 4 * self->number + 1);
        right = right && tvm_launch(scale, NULL, 4 * self->number + 1, 1.0, x, y) == TVM_ARGUMENT;
        right = right && strstr(tvm_message(context), expected);
    }
    tvm_memory_free(context, x);
    tvm_memory_free(context, y);
    self->right = right;
    return NULL;
}

START_TEST(many_threads_at_once) {
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
        ck_assert_msg(workers[i].right, "thread %d", i);
    }
    ck_assert_str_eq(tvm_message(context), ""); /* none of theirs */
}
END_TEST

START_TEST(misuse_is_no_crash) {
    ck_assert_int_eq(tvm_context_create(NULL, NULL), TVM_USAGE);
    ck_assert_int_eq(tvm_launch(NULL, NULL), TVM_USAGE);
    ck_assert_int_eq(tvm_launchv(NULL, NULL, NULL, 0), TVM_USAGE);
    ck_assert_int_eq(tvm_prepare(NULL), TVM_USAGE);
    assert_refused(tvm_get_kernel(code, NULL, NULL), TVM_USAGE, "tvm_get_kernel: ", "NULL", NULL);
    assert_refused(tvm_memory_alloc(context, 1, NULL), TVM_USAGE, "tvm_memory_alloc: ", "NULL", NULL);
    ck_assert_uint_eq(tvm_kernel_count(NULL), 0);
    ck_assert_ptr_null(tvm_kernel_at(NULL, 0));
    ck_assert_uint_eq(tvm_param_count(NULL), 0);
    ck_assert_str_eq(tvm_device_name(NULL), "no device");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("runtime");
    TCase *cases = tcase_create("runtime");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, names_the_device);
    tcase_add_test(cases, reports_the_interpreter);
    tcase_add_test(cases, proves_kernels);
    tcase_add_test(cases, auto_finds_a_device);
    tcase_add_test(cases, failed_creation_tells_why);
    tcase_add_test(cases, missing_gpu_is_an_error);
    tcase_add_test(cases, looks_inside);
    tcase_add_test(cases, describes_kernels);
    tcase_add_test(cases, assembles_text);
    tcase_add_test(cases, unknown_kernel_names_those_there_are);
    tcase_add_test(cases, broken_bytecode_is_refused);
    tcase_add_test(cases, loads_a_file);
    tcase_add_test(cases, launches);
    tcase_add_test(cases, passes_every_scalar_type);
    tcase_add_test(cases, refuses_wrong_arguments);
    tcase_add_test(cases, empty_grid_does_nothing);
    tcase_add_test(cases, run_time_error_is_reported);
    tcase_add_test(cases, tells_shapes);
    tcase_add_test(cases, times);
    tcase_add_test(cases, too_much_memory_is_refused);
    tcase_add_test(cases, many_threads_at_once);
    tcase_add_test(cases, misuse_is_no_crash);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
