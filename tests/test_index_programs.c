/* The shipped programs that move elements to other places: transpose, embedding, scatter_add and histogram;
 * and widen_lowbit, which moves packed weights to a wider type. On the interpreter against plain loops, at
 * sizes of all kinds, and through ptxas without a spill, with all their types. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"

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

/* Rows of which `each` ids share one; 1: of the program without EACH. */
static void look_up(const char *define, tvm_dtype type, size_t each) {
    kernel_kit k = kit_open("embedding.vasm", define);
    for (size_t s = 0; s < ROW_SIZES; s++) {
        size_t vocabulary = row_sizes[s][0], rows = row_sizes[s][1], n = row_sizes[s][2];
        kit_clear(&k);
        kit_scalar(&k, (double)vocabulary), kit_scalar(&k, (double)rows), kit_scalar(&k, (double)n);
        if (each > 1) kit_scalar(&k, (double)each);
        kit_tensor *table = kit_input(&k, type, vocabulary * n, 0, 250),
                   *ids = random_ids(&k, rows, vocabulary * each), *y = kit_tensor_new(&k, type, rows * n);
        kit_launch(&k, "embedding");
        for (size_t i = 0; i < rows * n; i++) {
            double id = floor(ids->values[i / n] / (double)each);
            same(define, i, y->values[i],
                 has_row(id, vocabulary) ? table->values[(size_t)id * n + i % n] : 0);
        }
    }
    kit_close(&k);
    compiles("embedding.vasm", define);
}

START_TEST(rows_are_looked_up) {
    char define[32], shared[64];
    define_of(moved_types[_i], define);
    look_up(define, type_of(moved_types[_i]), 1);
    snprintf(shared, sizeof shared, "%s EACH=true", define);
    look_up(shared, type_of(moved_types[_i]), 3);
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

/* ---- widen_lowbit ---- */

static const char *const widened[][2] = {{"f6_e3m2", "GROUP=128"}, {"f6_e2m3", "GROUP=64"},
                                         {"f5_e2m2", "GROUP=32"},  {"f5_e4m0", "GROUP=0"},
                                         {"f7_e4m2", "GROUP=128"}, {"f7_e3m3", "GROUP=64"}};
enum { WIDENED = sizeof widened / sizeof *widened, WIDENED_K = 256, WIDENED_N = 136 };

/* Weights of all codes, packed as matmul_lowbit has them in that type: bytes. */
static kit_tensor *packed_as(kernel_kit *k, const char *type, const char *values_of, const char *group) {
    char define[64];
    snprintf(define, sizeof define, "WTYPE=%s %s", type, group);
    *k = kit_open("matmul_lowbit_u4.vasm", define);
    kit_scalar(k, WIDENED_K), kit_scalar(k, WIDENED_N);
    kit_tensor *w = kit_tensor_new(k, type_of(type), WIDENED_K * WIDENED_N);
    for (size_t i = 0; i < w->count; i++)
        w->values[i] = tvm_decode(type_of(values_of), (i + i / 64) % (1U << type_of(values_of).bits));
    kit_write(k, w);
    kit_tensor *p = kit_tensor_new(k, type_of("u8"), 3 * WIDENED_K * 64 * w->type.bits / 8);
    kit_launch(k, "pack");
    return p;
}

/* As packed from the start in the wider type. */
START_TEST(packed_weights_are_widened) {
    const char *type = widened[_i][0], *group = widened[_i][1];
    size_t kg = group[6] == '0' ? 128 : (size_t)atoi(group + 6), granules = 3 * (WIDENED_K / kg);
    char define[64];
    snprintf(define, sizeof define, "WTYPE=%s %s", type, group);
    kernel_kit narrow, wide, k = kit_open("widen_lowbit.vasm", define);
    kit_tensor *from = packed_as(&narrow, type, type, group), *to = packed_as(&wide, "f8_e4m3", type, group);
    kit_scalar(&k, 1);
    kit_scalar(&k, (double)granules);
    kit_tensor *p = kit_tensor_new(&k, type_of("u8"), granules * kg * 64 * type_of(type).bits / 8);
    ck_assert_uint_eq(p->count, from->count);
    memcpy(p->values, from->values, from->count * sizeof *p->values);
    kit_write(&k, p);
    kit_tensor *found = kit_tensor_new(&k, type_of("u8"), granules * kg * 64);
    kit_launch(&k, "widen");
    for (size_t i = 0; i < found->count; i++) same(define, i, found->values[i], to->values[i]);
    kit_close(&k), kit_close(&narrow), kit_close(&wide);
    compiles("widen_lowbit.vasm", define);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("index_programs");
    TCase *tests = tcase_create("programs");
    tcase_add_loop_test(tests, matrices_are_transposed, 0, MOVED);
    tcase_add_loop_test(tests, rows_are_looked_up, 0, MOVED);
    tcase_add_loop_test(tests, rows_are_added_to_rows, 0, ADDED);
    tcase_add_loop_test(tests, elements_are_counted, 0, COUNTED);
    tcase_add_loop_test(tests, packed_weights_are_widened, 0, WIDENED);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
