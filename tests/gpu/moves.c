/* The shipped programs that move elements to other places, or into another type, of every size: the
 * interpreter and the GPU alike. What is added are small whole numbers, whose sums do not depend on their
 * order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* One launch: transpose m, n; embedding and scatter_add vocabulary, rows, n; histogram n, bins;
 * widen_lowbit granules. */
typedef struct launch {
    const char *file, *type;
    int64_t sizes[3];
} launch;

static const launch launches[] = {
    {"transpose", "f16", {1, 1}},
    {"transpose", "f16", {129, 31}},
    {"transpose", "f16", {1000, 2000}},
    {"transpose", "bf16", {33, 1024}},
    {"transpose", "f32", {260, 516}},
    {"transpose", "f32", {257, 515}},
    {"transpose", "u8", {272, 144}},
    {"transpose", "f64", {34, 66}},
    {"embedding", "f16", {1000, 300, 4096}},
    {"embedding", "bf16", {1000, 37, 129}},
    {"embedding", "f32", {7, 1, 1}},
    {"scatter_add", "f16", {100, 300, 512}},
    {"scatter_add", "f16", {10, 33, 77}},
    {"scatter_add", "bf16", {100, 300, 512}},
    {"scatter_add", "f32", {100, 300, 516}},
    {"scatter_add", "f32", {3, 301, 5}},
    {"scatter_add", "f64", {20, 100, 64}},
    {"scatter_add", "i32", {20, 1000, 64}},
    {"histogram", "i32", {1000003, 100}},
    {"histogram", "i32", {1 << 20, 2000}},
    {"histogram", "i64", {300001, 16384}},
    {"histogram", "u8", {1000001, 256}},
    {"histogram", "i16", {500000, 20000}},
    {"widen_lowbit", "f6_e3m2", {1001}},
    {"widen_lowbit", "f5_e2m2", {6}},
    {"widen_lowbit", "f7_e4m2", {333}},
    {"widen_lowbit", "f6_e2m3", {64}},
};
enum { LAUNCHES = sizeof launches / sizeof *launches };

/* Whole numbers from `low` to below `high`. */
static uint8_t *whole_numbers(tvm_dtype type, size_t count, int64_t low, int64_t high, uint64_t state) {
    uint8_t *bytes = calloc(count + 1, type.bits / 8);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        double value = (double)(low + (int64_t)((state >> 33) % (uint64_t)(high - low)));
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    return bytes;
}

/* Granules of 128 rows and 64 columns, of all codes. */
static bool run_widening(suite *s, const gpu_test *test) {
    const launch *l = test->data;
    size_t weights = (size_t)l->sizes[0] * 128 * 64, bytes = weights * test->type.bits / 8;
    uint8_t *p = whole_numbers(TVM_U(8), bytes, 0, 256, 9);
    gpu_arg args[] = {ARG_SCALAR(1024), ARG_SCALAR(l->sizes[0]), ARG_IN(TVM_U(8), bytes, p),
                      ARG_OUT(TVM_U(8), weights)};
    bool good = gpu_run_both(s, test, "widen", args, 4);
    free(p);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    const launch *l = test->data;
    const int64_t *n = l->sizes;
    bool is_transpose = l->file[0] == 't', is_histogram = l->file[0] == 'h', looks_up = l->file[0] == 'e';
    tvm_dtype type = test->type;
    int64_t low = type.kind == TVM_KIND_UINT ? 0 : -3;
    size_t rows = (size_t)(n[1] * n[2]), table = (size_t)(n[0] * n[2]),
           flat = (size_t)(is_histogram ? n[0] : n[0] * n[1]);
    int64_t high = is_histogram && type.bits > 8 ? n[1] + 5 : type.exponent == 8 && type.bits == 16 ? 8 : 120;
    uint8_t *x = whole_numbers(type,
                               is_transpose || is_histogram ? flat
                               : looks_up                   ? table
                                                            : rows,
                               low, high, 7);
    uint8_t *ids = whole_numbers(TVM_I(32), (size_t)n[1], -1, n[0] + 1, 8);
    bool good;
    if (is_transpose) {
        gpu_arg args[] = {ARG_SCALAR(n[0]), ARG_SCALAR(n[1]), ARG_IN(type, flat, x), ARG_OUT(type, flat)};
        good = gpu_run_both(s, test, l->file, args, 4);
    } else if (is_histogram) {
        gpu_arg args[] = {ARG_SCALAR(n[0]), ARG_SCALAR(n[1]), ARG_IN(type, flat, x),
                          ARG_OUT(TVM_I(32), (size_t)n[1])};
        good = gpu_run_both(s, test, l->file, args, 4);
    } else {
        gpu_arg ids_arg = ARG_IN(TVM_I(32), (size_t)n[1], ids);
        gpu_arg args[] = {ARG_SCALAR(n[0]), ARG_SCALAR(n[1]),
                          ARG_SCALAR(n[2]), ARG_IN(type, looks_up ? table : rows, x),
                          ids_arg,          ARG_OUT(type, looks_up ? rows : table)};
        good = gpu_run_both(s, test, l->file, args, 6);
    }
    free(x), free(ids);
    return good;
}

void gpu_add_moves(suite *s, gpu_group *group) {
    for (size_t i = 0; i < LAUNCHES; i++) {
        const launch *l = &launches[i];
        char title[96], path[4200], define[32];
        const char *const defines[] = {define};
        snprintf(title, sizeof title, "%s of %s, %lld x %lld x %lld", l->file, l->type,
                 (long long)l->sizes[0], (long long)l->sizes[1], (long long)l->sizes[2]);
        snprintf(path, sizeof path, "%s/%s.vasm", s->programs, l->file);
        bool widens = l->file[0] == 'w';
        snprintf(define, sizeof define, widens ? "WTYPE=%s" : "T=%s", l->type);
        gpu_test *test = gpu_add(group, title, NULL, path, defines, 1);
        test->run = widens ? run_widening : run;
        test->data = l;
        tvm_dtype_parse(l->type, strlen(l->type), &test->type);
    }
}
