/* Kernels as plain C functions, on the interpreter: every type, many parameters, many threads. */
#include "check_kit.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime_kit.h"
#include "suite_kit.h"

static const char source[] = ".vasm 1\n" SCALE_KERNEL SCALARS_KERNEL;

static tvm_context *context;
static tvm_program *program;

static void load(const char *text) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    tvm_status status = tvm_assemble(context, text, strlen(text), NULL, &program);
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static void setup(void) {
    load(source);
}

static void teardown(void) {
    tvm_program_free(program);
    tvm_context_free(context);
}

static tvm_kernel *kernel_of(const char *name) {
    return kernel_named(program, name);
}

typedef int (*scale_function)(int32_t n, float f, const float *x, float *y);
typedef int (*scale_on_stream)(void *stream, int32_t n, float f, const float *x, float *y);

START_TEST(calls_like_a_function) {
    enum { N = 300 };
    tvm_function function = NULL;
    _Alignas(16) static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    ck_assert_int_eq(tvm_bind(kernel_of("scale"), &function), TVM_OK);
    scale_function scale = (scale_function)function;
    ck_assert_int_eq(scale(N, 0.5f, x, y), TVM_OK);
    for (int i = 0; i < N; i++) ck_assert_float_eq(y[i], 0.5f * (float)i);
    tvm_bind_options first = {.stream_parameter = 1};
    ck_assert_int_eq(tvm_bind_with(kernel_of("scale"), &first, &function), TVM_OK);
    ck_assert(function != (tvm_function)scale);
    ck_assert_int_eq(((scale_on_stream)function)(NULL, N, 2, x, y), TVM_OK);
    for (int i = 0; i < N; i++) ck_assert_float_eq(y[i], 2.0f * (float)i);
    ck_assert_int_eq(scale(N, -1, x, y), TVM_OK); /* the first is still there */
    ck_assert_float_eq(y[N - 1], -(float)(N - 1));
}
END_TEST

START_TEST(returns_the_status) {
    tvm_function function = NULL;
    _Alignas(16) float x[8] = {0};
    ck_assert_int_eq(tvm_bind(kernel_of("scale"), &function), TVM_OK);
    scale_function scale = (scale_function)function;
    ck_assert_int_eq(scale(6, 1, x, x), TVM_ARGUMENT);
    ck_assert(strstr(tvm_message(context), "n % 4 == 0 (n = 6)") != NULL);
    ck_assert_int_eq(scale(4, 1, x + 1, x), TVM_ARGUMENT);
    ck_assert(strstr(tvm_message(context), "aligned") != NULL);
    ck_assert_int_eq(scale(4, 1, NULL, x), TVM_ARGUMENT);
    ck_assert(strstr(tvm_message(context), "NULL") != NULL);
    ck_assert_int_eq(scale(8, 1, x, x), TVM_OK);
    ck_assert_str_eq(tvm_message(context), "");
}
END_TEST

START_TEST(passes_every_type) {
    typedef int (*scalars_function)(bool, int32_t, uint32_t, int64_t, uint64_t, float, double, double *);
    tvm_function function = NULL;
    _Alignas(16) double out[7 * 32];
    const double none[7] = {0},
                 expected[7] = {1, -7, 4294967295.0, -1099511627776.0, 9223372036854775808.0, 0.1f, 0.1};
    ck_assert_int_eq(tvm_bind(kernel_of("scalars"), &function), TVM_OK);
    ck_assert_int_eq(
        ((scalars_function)function)(true, -7, UINT32_MAX, -1099511627776, (uint64_t)1 << 63, 0.1f, 0.1, out),
        TVM_OK);
    assert_scalars(out, expected);
    ck_assert_int_eq(((scalars_function)function)(false, 0, 0, 0, 0, 0, 0, out), TVM_OK);
    assert_scalars(out, none);
}
END_TEST

START_TEST(unbinds) {
    tvm_function function = NULL, other = NULL;
    tvm_kernel *scale = kernel_of("scale"), *scalars = kernel_of("scalars");
    _Alignas(16) float x[4] = {1, 2, 3, 4};
    ck_assert_int_eq(tvm_bind(scale, &function), TVM_OK);
    ck_assert_int_eq(tvm_bind(scale, &other), TVM_OK);
    ck_assert_int_eq(tvm_unbind(scalars, function), TVM_NOT_FOUND);
    ck_assert(strstr(tvm_message(context), "'scalars'") != NULL);
    ck_assert_int_eq(tvm_unbind(scale, function), TVM_OK);
    ck_assert_int_eq(tvm_unbind(scale, function), TVM_NOT_FOUND);
    ck_assert_int_eq(((scale_function)other)(4, 3, x, x), TVM_OK);
    ck_assert_float_eq(x[3], 12);
    ck_assert_int_eq(tvm_unbind(scale, NULL), TVM_NOT_FOUND);
    ck_assert_int_eq(tvm_bind(scale, NULL), TVM_USAGE);
    ck_assert_int_eq(tvm_bind(NULL, &function), TVM_USAGE);
    ck_assert_int_eq(tvm_unbind(NULL, other), TVM_USAGE);
}
END_TEST

/* 64 parameters, the language's limit: more than the registers of any calling convention hold. */
START_TEST(takes_many_parameters) {
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define ALL(X)      EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7)
#define PAIR(n)     "p" #n ": i32, "
#define SUM(n)      " + p" #n
#define TYPE(n)     int32_t,
#define VALUE(n)    (n) * (n),
    const char text[] =
        ".vasm 1\n.kernel sum(" ALL(PAIR) "a: i32, b: i32, c: i32, d: f32, e: i32, f: i32, g: "
                                          "i32, out: global f32[32])\n"
                                          ".warps 1\n.grid 1\n"
                                          "    %s = a + b + c + e + f + g" ALL(
                                              SUM) "\n"
                                                   "    %v = alloc-register f32[32], spatial(32), init %s\n"
                                                   "    %w = add %v, d\n"
                                                   "    store-global out[0], %w\n.end\n";
    typedef int (*sum_function)(ALL(TYPE) int32_t, int32_t, int32_t, float, int32_t, int32_t, int32_t,
                                float *);
    _Alignas(16) float out[32];
    tvm_function function = NULL;
    int expected = 0;
    for (int tens = 1; tens <= 7; tens++)
        for (int ones = 0; ones < 8; ones++) expected += (10 * tens + ones) * (10 * tens + ones);
    load(text);
    ck_assert_uint_eq(tvm_param_count(tvm_kernel_at(program, 0)), 64);
    ck_assert_int_eq(tvm_bind(tvm_kernel_at(program, 0), &function), TVM_OK);
    ck_assert_int_eq(((sum_function)function)(ALL(VALUE) 100000, 200000, 300000, 0.5f, -3, -4, -5, out),
                     TVM_OK);
    for (int i = 0; i < 32; i++) ck_assert_float_eq(out[i], (float)(expected + 600000 - 12) + 0.5f);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 16, CALLS = 40, LENGTH = 256 };

typedef struct worker {
    pthread_t thread;
    scale_function scale;
    int number;
    bool right;
} worker;

static void *work(void *pointer) {
    worker *self = pointer;
    _Alignas(16) float x[LENGTH], y[LENGTH];
    for (int i = 0; i < LENGTH; i++) x[i] = (float)i;
    self->right = true;
    for (int round = 0; self->right && round < CALLS; round++) {
        float f = (float)(self->number * CALLS + round);
        char expected[32];
        self->right = self->scale(LENGTH, f, x, y) == TVM_OK;
        for (int i = 0; self->right && i < LENGTH; i++) self->right = y[i] == f * (float)i;
        snprintf(expected, sizeof expected, "n = %d", 4 * self->number + 1);
        self->right = self->right && self->scale(4 * self->number + 1, f, x, y) == TVM_ARGUMENT &&
                      strstr(tvm_message(context), expected);
        tvm_function own = NULL;
        tvm_kernel *kernel = tvm_kernel_at(program, 0);
        self->right = self->right && !tvm_bind(kernel, &own) && !((scale_function)own)(4, f, x, y) &&
                      y[3] == 3 * f && !tvm_unbind(kernel, own);
    }
    return NULL;
}

START_TEST(many_threads_call_one_function) {
    worker workers[THREADS];
    tvm_function function = NULL;
    ck_assert_int_eq(tvm_bind(kernel_of("scale"), &function), TVM_OK);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i, .scale = (scale_function)function};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_msg(workers[i].right, "thread %d", i);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bind");
    TCase *cases = tcase_create("bind"), *other = tcase_create("other programs");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, calls_like_a_function);
    tcase_add_test(cases, returns_the_status);
    tcase_add_test(cases, passes_every_type);
    tcase_add_test(cases, unbinds);
    tcase_add_test(cases, many_threads_call_one_function);
    suite_add_tcase(suite, cases);
    tcase_add_checked_fixture(other, NULL, teardown);
    tcase_add_test(other, takes_many_parameters);
    suite_add_tcase(suite, other);
    return run_suite(suite);
}
