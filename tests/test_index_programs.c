/* The shipped programs that move elements to other places: transpose, embedding, scatter_add and histogram.
 * On the interpreter against plain loops, at sizes of all kinds, and through ptxas without a spill, with all
 * their types. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { TIMEOUT = 600 };

static const char *const targets[] = {"sm_80", "sm_90a", "sm_120a"};
static const char *const moved_types[] = {"f16", "bf16", "f32", "u8", "f64"};
static const char *const added_types[] = {"f16", "bf16", "f32", "i32", "f64"};
static const char *const counted_types[] = {"i32", "u8", "i16", "i64"};
enum {
    MOVED = sizeof moved_types / sizeof *moved_types,
    ADDED = sizeof added_types / sizeof *added_types,
    COUNTED = sizeof counted_types / sizeof *counted_types
};

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static void compiles(const char *file, const char *define) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path(file, path), define);
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        compiles_without_spills(program, define, targets[t]);
    tvm_ir_program_free(program);
}

static const char *define_of(const char *type, char text[32]) {
    snprintf(text, 32, "T=%s", type);
    return text;
}

static void same(const char *what, size_t i, double found, double want) {
    ck_assert_msg(found == want, "%s: element %zu is %.9g, expected %.9g", what, i, found, want);
}

START_TEST(matrices_are_transposed) {
    static const size_t sizes[][2] = {{1, 1}, {3, 200}, {129, 31}, {128, 64}, {136, 144}, {8, 512}};
    char define[32];
    define_of(moved_types[_i], define);
    kernel_kit k = kit_open("transpose.vasm", define);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t m = sizes[s][0], n = sizes[s][1];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type_of(moved_types[_i]), m * n, 0, 250),
                   *y = kit_tensor_new(&k, type_of(moved_types[_i]), m * n);
        kit_launch(&k, "transpose");
        for (size_t i = 0; i < m * n; i++) same(define, i, y->values[i], x->values[i % m * n + i / m]);
    }
    kit_close(&k);
    compiles("transpose.vasm", define);
}
END_TEST

/* Rows of a table, some of them of ids that it does not have. */
static const size_t row_sizes[][3] = {{1, 1, 1}, {10, 37, 8}, {50, 16, 300}, {7, 33, 256}, {1000, 5, 264}};
enum { ROW_SIZES = sizeof row_sizes / sizeof *row_sizes };

static kit_tensor *random_ids(kernel_kit *k, size_t rows, size_t vocabulary) {
    kit_tensor *ids = kit_tensor_new(k, type_of("i32"), rows);
    for (size_t r = 0; r < rows; r++) ids->values[r] = floor(kit_random(k) * ((double)vocabulary + 2)) - 1;
    kit_write(k, ids);
    return ids;
}

static bool has_row(double id, size_t vocabulary) {
    return id >= 0 && id < (double)vocabulary;
}

START_TEST(rows_are_looked_up) {
    char define[32];
    tvm_dtype type = type_of(moved_types[_i]);
    define_of(moved_types[_i], define);
    kernel_kit k = kit_open("embedding.vasm", define);
    for (size_t s = 0; s < ROW_SIZES; s++) {
        size_t vocabulary = row_sizes[s][0], rows = row_sizes[s][1], n = row_sizes[s][2];
        kit_clear(&k);
        kit_scalar(&k, (double)vocabulary), kit_scalar(&k, (double)rows), kit_scalar(&k, (double)n);
        kit_tensor *table = kit_input(&k, type, vocabulary * n, 0, 250),
                   *ids = random_ids(&k, rows, vocabulary), *y = kit_tensor_new(&k, type, rows * n);
        kit_launch(&k, "embedding");
        for (size_t i = 0; i < rows * n; i++) {
            double id = ids->values[i / n];
            same(define, i, y->values[i],
                 has_row(id, vocabulary) ? table->values[(size_t)id * n + i % n] : 0);
        }
    }
    kit_close(&k);
    compiles("embedding.vasm", define);
}
END_TEST

/* The interpreter adds in the order of the rows, and rounds each sum. */
START_TEST(rows_are_added_to_rows) {
    char define[32];
    tvm_dtype type = type_of(added_types[_i]);
    define_of(added_types[_i], define);
    kernel_kit k = kit_open("scatter_add.vasm", define);
    for (size_t s = 0; s < ROW_SIZES; s++) {
        size_t vocabulary = row_sizes[s][0], rows = row_sizes[s][1], n = row_sizes[s][2];
        kit_clear(&k);
        kit_scalar(&k, (double)vocabulary), kit_scalar(&k, (double)rows), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type, rows * n, -9, 9), *ids = random_ids(&k, rows, vocabulary),
                   *table = kit_input(&k, type, vocabulary * n, -9, 9);
        double *want = calloc(vocabulary * n, sizeof *want);
        ck_assert_ptr_nonnull(want);
        memcpy(want, table->values, vocabulary * n * sizeof *want);
        for (size_t i = 0; i < rows * n; i++) {
            double id = ids->values[i / n];
            if (!has_row(id, vocabulary)) continue;
            double *to = &want[(size_t)id * n + i % n];
            *to = tvm_decode(type, tvm_encode(type, *to + x->values[i]));
        }
        kit_launch(&k, "scatter_add");
        for (size_t i = 0; i < vocabulary * n; i++) same(define, i, table->values[i], want[i]);
        free(want);
    }
    kit_close(&k);
    compiles("scatter_add.vasm", define);
}
END_TEST

START_TEST(elements_are_counted) {
    static const size_t sizes[][2] = {{1, 1},       {1000, 10},    {8191, 256},  {40000, 100},
                                      {9000, 2000}, {5000, 16000}, {3000, 20000}};
    char define[32];
    define_of(counted_types[_i], define);
    kernel_kit k = kit_open("histogram.vasm", define);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s][0], bins = sizes[s][1];
        double *want = calloc(bins, sizeof *want);
        ck_assert_ptr_nonnull(want);
        kit_clear(&k);
        kit_scalar(&k, (double)n), kit_scalar(&k, (double)bins);
        kit_tensor *x = kit_input(&k, type_of(counted_types[_i]), n, -3, (double)bins + 9),
                   *counts = kit_input(&k, type_of("i32"), bins, 0, 5);
        for (size_t b = 0; b < bins; b++) want[b] = counts->values[b];
        for (size_t i = 0; i < n; i++)
            if (has_row(x->values[i], bins)) want[(size_t)x->values[i]]++;
        kit_launch(&k, "histogram");
        for (size_t b = 0; b < bins; b++) same(define, b, counts->values[b], want[b]);
        free(want);
    }
    kit_close(&k);
    compiles("histogram.vasm", define);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("index_programs");
    TCase *tests = tcase_create("programs");
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_loop_test(tests, matrices_are_transposed, 0, MOVED);
    tcase_add_loop_test(tests, rows_are_looked_up, 0, MOVED);
    tcase_add_loop_test(tests, rows_are_added_to_rows, 0, ADDED);
    tcase_add_loop_test(tests, elements_are_counted, 0, COUNTED);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
