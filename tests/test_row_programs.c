/* The shipped programs that work row by row, on the interpreter against float64, at sizes of all kinds; and
 * through ptxas without a spill, with all their options. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { TYPES = 3 };

static const char *const type_names[TYPES] = {"f16", "bf16", "f32"};
/* One rounding to the type, and of f32 what sums and functions are off. */
static const double tolerances[TYPES] = {0x1.1p-11, 0x1.1p-8, 1e-5};

/* Of one tile and more, in whole vectors and not, beyond what is held in registers; more rows than the
 * interpreter has multiprocessors. */
static const size_t sizes[][2] = {{3, 1},     {5, 7},     {4, 1000},  {2, 1024}, {1, 1032},
                                  {2, 4096},  {2, 5001},  {3, 8191},  {1, 8200}, {1, 16384},
                                  {1, 20001}, {1, 40000}, {9, 17000}, {90, 13},  {5, 65544}};
/* The last one is of rows that a block holds while the next one comes, as softmax and rms_norm do. */
enum { SIZES = sizeof sizes / sizeof *sizes, COMMON_SIZES = SIZES - 1 };

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static void near(const char *what, size_t i, double found, double want, double tolerance) {
    ck_assert_msg(fabs(found - want) <= tolerance * fmax(fabs(want), 0x1p-14),
                  "%s: element %zu is %.9g, expected %.9g", what, i, found, want);
}

/* Every kernel of the program, for an old and a new target. */
static void compiles(const char *file, const char *define) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path(file, path), define);
    compiles_without_spills(program, define, "sm_80");
    compiles_without_spills(program, define, "sm_90a");
    tvm_ir_program_free(program);
}

static kernel_kit open_type(const char *file, unsigned type, char define[32]) {
    snprintf(define, 32, "T=%s", type_names[type]);
    return kit_open(file, define);
}

/* The scalars m and n, and m x n values. */
static kit_tensor *rows(kernel_kit *k, unsigned type, size_t s, const double *eps, double low, double high) {
    kit_clear(k);
    kit_scalar(k, (double)sizes[s][0]), kit_scalar(k, (double)sizes[s][1]);
    if (eps) kit_scalar(k, *eps);
    return kit_input(k, type_of(type_names[type]), sizes[s][0] * sizes[s][1], low, high);
}

static kit_tensor *result(kernel_kit *k, unsigned type, size_t s) {
    return kit_tensor_new(k, type_of(type_names[type]), sizes[s][0] * sizes[s][1]);
}

/* ---- softmax ---- */

static void check_softmax(const char *define, const double *x, const double *y, size_t n, double tolerance) {
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) most = fmax(most, x[j]);
    for (size_t j = 0; j < n; j++) sum += exp(x[j] - most);
    for (size_t j = 0; j < n; j++) near(define, j, y[j], exp(x[j] - most) / sum, tolerance);
}

START_TEST(softmax_is_that_of_float64) {
    char define[32];
    kernel_kit k = open_type("softmax.vasm", (unsigned)_i, define);
    for (size_t s = 0; s < SIZES; s++) {
        size_t m = sizes[s][0], n = sizes[s][1];
        /* far below zero, and one element that cannot be */
        kit_tensor *x = rows(&k, (unsigned)_i, s, NULL, -108, -100), *y = result(&k, (unsigned)_i, s);
        if (n > 1) x->values[n / 2] = -INFINITY;
        kit_write(&k, x);
        kit_launch(&k, "softmax");
        /* results of f16 below its normal numbers are as exact as these are apart */
        for (size_t i = 0; i < m; i++)
            check_softmax(define, x->values + i * n, y->values + i * n, n,
                          tolerances[_i] + (_i == 0 ? 4e-4 : 0));
    }
    kit_close(&k);
    compiles("softmax.vasm", define);
}
END_TEST

/* ---- norms ---- */

static void check_layer_norm(const char *define, const kit_tensor *const t[4], size_t row, size_t n,
                             double eps, double tolerance) {
    const double *x = t[0]->values + row * n, *w = t[1]->values, *b = t[2]->values;
    double mean = 0, variance = 0;
    for (size_t j = 0; j < n; j++) mean += x[j] / (double)n;
    for (size_t j = 0; j < n; j++) variance += (x[j] - mean) * (x[j] - mean) / (double)n;
    for (size_t j = 0; j < n; j++) {
        double z = (x[j] - mean) / sqrt(variance + eps) * w[j], want = z + b[j];
        double found = t[3]->values[row * n + j], scale = fabs(z) + fabs(b[j]) + 2e-2;
        ck_assert_msg(fabs(found - want) <= tolerance * fabs(want) + 2e-5 * scale,
                      "%s: n %zu: element %zu is %.9g, expected %.9g", define, n, j, found, want);
    }
}

START_TEST(layer_norm_is_that_of_float64) {
    char define[32];
    double eps = 0x1p-10;
    kernel_kit k = open_type("layer_norm.vasm", (unsigned)_i, define);
    for (size_t s = 0; s < COMMON_SIZES; s++) {
        size_t m = sizes[s][0], n = sizes[s][1];
        kit_tensor *x = rows(&k, (unsigned)_i, s, &eps, 6, 10);
        kit_tensor *w = kit_input(&k, x->type, n, -2, 2), *b = kit_input(&k, x->type, n, -2, 2),
                   *y = result(&k, (unsigned)_i, s);
        kit_launch(&k, "layer_norm");
        for (size_t i = 0; i < m; i++)
            check_layer_norm(define, (const kit_tensor *const[]){x, w, b, y}, i, n, eps, tolerances[_i]);
    }
    kit_close(&k);
    compiles("layer_norm.vasm", define);
}
END_TEST

static void check_rms_norm(const char *define, const double *x, const double *w, const double *y, size_t n,
                           double eps, double tolerance) {
    double squares = 0;
    for (size_t j = 0; j < n; j++) squares += x[j] * x[j] / (double)n;
    for (size_t j = 0; j < n; j++) near(define, j, y[j], x[j] / sqrt(squares + eps) * w[j], tolerance);
}

START_TEST(rms_norm_is_that_of_float64) {
    char define[32];
    double eps = 0x1p-10;
    kernel_kit k = open_type("rms_norm.vasm", (unsigned)_i, define);
    for (size_t s = 0; s < 2 * SIZES; s++) {
        bool add = s >= SIZES;
        size_t at = s % SIZES, m = sizes[at][0], n = sizes[at][1];
        kit_tensor *x = rows(&k, (unsigned)_i, at, &eps, -3, 3);
        kit_tensor *r = add ? kit_input(&k, x->type, m * n, -3, 3) : x;
        kit_tensor *w = kit_input(&k, x->type, n, 0.5, 2), *y = result(&k, (unsigned)_i, at);
        double *sums = calloc(m * n, sizeof *sums);
        ck_assert_ptr_nonnull(sums);
        for (size_t i = 0; i < m * n; i++)
            sums[i] =
                add ? tvm_decode(x->type, tvm_encode(x->type, x->values[i] + r->values[i])) : x->values[i];
        kit_launch(&k, add ? "add_rms_norm" : "rms_norm");
        for (size_t i = 0; add && i < m * n; i++) near(define, i, r->values[i], sums[i], 0);
        for (size_t i = 0; i < m; i++)
            check_rms_norm(define, sums + i * n, w->values, y->values + i * n, n, eps, tolerances[_i]);
        free(sums);
    }
    kit_close(&k);
    compiles("rms_norm.vasm", define);
    if (_i == 0) compiles("rms_norm.vasm", "INNER=true");
}
END_TEST

/* ---- argmax and reduce ---- */

static const char *const element_types[] = {"f16", "bf16", "f32", "i32", "u8"};
enum { ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

static size_t first_of_greatest(const kit_tensor *x, size_t row, size_t n) {
    size_t best = 0;
    double most = -INFINITY;
    for (size_t j = 0; j < n; j++)
        if (x->values[row * n + j] > most) most = x->values[row * n + j], best = j;
    return best;
}

/* With ties, and in one row nothing but the least value there is; by a block, and by those of a cluster. */
START_TEST(argmax_is_the_first_of_the_greatest) {
    char define[32];
    snprintf(define, sizeof define, "T=%s", element_types[_i]);
    kernel_kit k = kit_open("argmax.vasm", define);
    for (size_t s = 0; s < COMMON_SIZES; s++) {
        size_t m = sizes[s][0], n = sizes[s][1];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type_of(element_types[_i]), m * n, 0, 40);
        for (size_t j = 0; j < m * n; j++) x->values[j] = floor(x->values[j]);
        bool is_float = x->type.kind == TVM_KIND_FLOAT;
        for (size_t j = 0; j < n && m > 1; j++)
            x->values[j] = !is_float ? x->type.kind == TVM_KIND_UINT ? 0 : -0x1p31 : j % 3 ? NAN : -INFINITY;
        if (is_float && n > 3) x->values[m * n - 2] = NAN;
        kit_write(&k, x);
        kit_tensor *y = kit_tensor_new(&k, TVM_I(32), m);
        for (int cluster = 0; cluster < (n % 16 ? 1 : 2); cluster++) {
            kit_launch(&k, cluster ? "argmax_c8" : "argmax");
            for (size_t i = 0; i < m; i++)
                near(define, i, y->values[i], (double)first_of_greatest(x, i, n), 0);
        }
    }
    kit_close(&k);
    compiles("argmax.vasm", define);
}
END_TEST

static double combine(unsigned op, double a, double b) {
    return op == 0 ? a + b : op == 1 ? a * b : op == 2 ? fmax(a, b) : fmin(a, b);
}

/* What wraps stays exact in float64: few products, small sums. */
static void check_reduce(const char *define, unsigned op, kernel_kit *k, size_t s, const char *name,
                         double tolerance) {
    size_t m = sizes[s][0], n = sizes[s][1];
    tvm_dtype type = type_of(name);
    kit_clear(k);
    kit_scalar(k, (double)m), kit_scalar(k, (double)n);
    kit_tensor *x = kit_input(k, type, m * n, 0, 100), *y = kit_tensor_new(k, type, m);
    for (size_t j = 0; j < m * n; j++)
        x->values[j] = op == 1                     ? (j % 97 == 3 ? 2 : 1)
                       : op == 0 && type.bits == 8 ? j % 29 == 0
                                                   : x->values[j];
    for (size_t j = 0; op == 1 && j < m * n; j++)
        if (j % n > 500) x->values[j] = 1;
    kit_write(k, x);
    kit_launch(k, "reduce");
    for (size_t i = 0; i < m; i++) {
        double all = x->values[i * n];
        for (size_t j = 1; j < n; j++) all = combine(op, all, x->values[i * n + j]);
        if (type.kind == TVM_KIND_UINT && op == 0) all = fmod(all, 256);
        if (tvm_decode(type, tvm_encode(type, all)) != all && isinf(tvm_decode(type, tvm_encode(type, all))))
            all = tvm_decode(type, tvm_encode(type, all));
        if (isinf(all))
            ck_assert(y->values[i] == all);
        else
            near(define, i, y->values[i], all, tolerance);
    }
}

START_TEST(reduce_combines_rows) {
    static const char *const operations[] = {"sum", "prod", "max", "min"};
    for (unsigned op = 0; op < 4; op++) {
        char define[64];
        snprintf(define, sizeof define, "T=%s OP=\"%s\"", element_types[_i], operations[op]);
        kernel_kit k = kit_open("reduce.vasm", define);
        for (size_t s = 0; s < COMMON_SIZES; s++)
            check_reduce(define, op, &k, s, element_types[_i], _i < TYPES ? tolerances[_i] : 0);
        kit_close(&k);
        compiles("reduce.vasm", define);
    }
}
END_TEST

/* ---- cumsum ---- */

/* Whole numbers that the type can hold, so that the sums are exact; of integers some wrap. */
START_TEST(cumsum_adds_up_rows) {
    char define[32];
    snprintf(define, sizeof define, "T=%s", element_types[_i]);
    kernel_kit k = kit_open("cumsum.vasm", define);
    double range = _i == 0 ? 2048 : _i == 1 ? 256 : _i == 2 ? 0x1p24 : 0;
    for (size_t s = 0; s < COMMON_SIZES; s++) {
        size_t m = sizes[s][0], n = sizes[s][1];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type_of(element_types[_i]), m * n, 0, 100);
        for (size_t i = 0; i < m; i++) {
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                double *v = &x->values[i * n + j];
                *v = floor(*v) - (range ? 50 : 0);
                if (range && fabs(sum + *v) > range) *v = sum > 0 ? -floor(sum / 2) : floor(-sum / 2);
                sum += *v;
            }
        }
        kit_write(&k, x);
        kit_tensor *y = kit_tensor_new(&k, x->type, m * n);
        kit_launch(&k, "cumsum");
        for (size_t i = 0; i < m; i++) {
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                sum += x->values[i * n + j];
                if (x->type.kind == TVM_KIND_UINT) sum = fmod(sum, 256);
                near(define, i * n + j, y->values[i * n + j], sum, 0);
            }
        }
    }
    kit_close(&k);
    compiles("cumsum.vasm", define);
}
END_TEST

/* ---- topk ---- */

static const double *sorted_row;

static int by_value(const void *a, const void *b) {
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double x = sorted_row[i], y = sorted_row[j];
    if (isnan(x)) x = -INFINITY;
    if (isnan(y)) y = -INFINITY;
    return x != y ? (x > y ? -1 : 1) : i < j ? -1 : i > j;
}

static void check_topk(const char *define, const double *x, size_t n, const double *values,
                       const double *indices, size_t count) {
    size_t *order = calloc(n, sizeof *order);
    ck_assert_ptr_nonnull(order);
    for (size_t j = 0; j < n; j++) order[j] = j;
    sorted_row = x;
    qsort(order, n, sizeof *order, by_value);
    for (size_t q = 0; q < count; q++) {
        near(define, q, indices[q], (double)order[q], 0);
        ck_assert(values[q] == (isnan(x[order[q]]) ? -INFINITY : x[order[q]]));
    }
    free(order);
}

/* Random values with many ties; ascending and descending rows, whose greatest values lie side by side; great
 * values that one place of a thread meets. With clusters and without. */
START_TEST(topk_is_the_head_of_the_sorted_row) {
    static const size_t shapes[][2] = {{2, 64},   {3, 100},   {3, 1000},  {3, 20001},
                                       {2, 8192}, {3, 12288}, {1, 100000}};
    unsigned type = (unsigned)_i % TYPES, way = (unsigned)_i / TYPES;
    size_t count = way == 1 ? 64 : 20;
    char define[64];
    snprintf(define, sizeof define, "T=%s K=%zu CLUSTERS=%s", type_names[type], count,
             way == 2 ? "false" : "true");
    kernel_kit k = kit_open("topk.vasm", define);
    for (size_t s = way == 2 ? 4 : 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t m = shapes[s][0], n = shapes[s][1];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type_of(type_names[type]), m * n, -3, 3);
        for (size_t j = 0; j < n && m > 1; j++)
            x->values[n + j] = s % 2 == 0 ? (double)j / 64 : -(double)j / 64;
        for (size_t j = 0; j < n && m > 2; j += 7) x->values[2 * n + j] = j % 2 ? NAN : -0.0;
        for (size_t j = 0; j < n && m == 1; j += 24576) x->values[j] = 100 - (double)j / 8192;
        kit_write(&k, x);
        kit_tensor *values = kit_tensor_new(&k, x->type, m * count),
                   *at = kit_tensor_new(&k, TVM_I(32), m * count);
        kit_launch(&k, "topk");
        for (size_t i = 0; i < m; i++)
            check_topk(define, x->values + i * n, n, values->values + i * count, at->values + i * count,
                       count);
    }
    kit_close(&k);
    compiles("topk.vasm", define);
}
END_TEST

/* A case of its own, so that CK_RUN_CASE chooses it. */
static void add(Suite *suite, const char *name, const TTest *test, int count) {
    TCase *tests = tcase_create(name);
    tcase_add_loop_test(tests, test, 0, count);
    suite_add_tcase(suite, tests);
}

int main(void) {
    Suite *suite = suite_create("row programs");
    add(suite, "softmax", softmax_is_that_of_float64, TYPES);
    add(suite, "layer_norm", layer_norm_is_that_of_float64, TYPES);
    add(suite, "rms_norm", rms_norm_is_that_of_float64, TYPES);
    add(suite, "argmax", argmax_is_the_first_of_the_greatest, ELEMENT_TYPES);
    add(suite, "reduce", reduce_combines_rows, ELEMENT_TYPES);
    add(suite, "cumsum", cumsum_adds_up_rows, ELEMENT_TYPES);
    add(suite, "topk", topk_is_the_head_of_the_sorted_row, 3 * TYPES);
    return run_suite(suite);
}
