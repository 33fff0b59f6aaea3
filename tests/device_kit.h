/* The CUDA device against a driver that has no GPU (fake_cuda.c) and a stand-in for ptxas: a program whose
 * kernels are launched, what is open, and the logs of what the driver and ptxas were asked to do. */
#ifndef TVM_TESTS_DEVICE_KIT_H
#define TVM_TESTS_DEVICE_KIT_H

#include "check_kit.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_kit.h"
#include "runtime_kit.h"
#include "suite_kit.h"

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

static inline void setup(void) {
    kit_setup_with(&kit, source);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    snprintf(ptxas_log, sizeof ptxas_log, "%s/ptxas.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
}

static inline void close_all(void) {
    tvm_program_free(code);
    tvm_context_free(context);
    code = NULL;
    context = NULL;
}

static inline void teardown(void) {
    close_all();
    kit_teardown(&kit);
}

static inline tvm_status open_context(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    return tvm_context_create(&options, &context);
}

static inline void open_all(void) {
    ck_assert_msg(open_context() == TVM_OK, "%s", tvm_message(context));
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
}

static inline tvm_kernel *function_of(const char *name) {
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

static inline void assert_log(const char *path, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void assert_log(const char *path, const char *format, ...) {
    char expected[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    ck_assert_str_eq(log_of(path), expected);
}

static inline void assert_says(const char *word) {
    ck_assert_msg(strstr(tvm_message(context), word) != NULL, "'%s' does not say '%s'", tvm_message(context),
                  word);
}

#endif
