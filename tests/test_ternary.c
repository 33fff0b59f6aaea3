/* programs/matmul_ternary.vasm: bytes of five weights, and products with them, against sums of this suite's
 * own; and bench/trellis.vasm, the prototype of weights whose values are computed from a trellis' states. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>

#include "kernel_kit.h"
#include "suite_kit.h"

static const tvm_dtype I8 = {TVM_KIND_INT, 8, 0, 0}, U8 = {TVM_KIND_UINT, 8, 0, 0},
                       F32 = {TVM_KIND_FLOAT, 32, 8, 23};

/* Whole numbers from low to high. */
static kit_tensor *whole_numbers(kernel_kit *k, size_t count, int low, int high) {
    kit_tensor *t = kit_tensor_new(k, I8, count);
    for (size_t i = 0; i < count; i++) t->values[i] = low + floor(kit_random(k) * (high - low + 1));
    kit_write(k, t);
    return t;
}

/* Weights and bytes of them as the kernel packs them, kept beside the arguments. */
static void pack(kernel_kit *k, int rows, int columns, double **w, double **p) {
    size_t bytes = (size_t)((columns + 15) / 16) * (size_t)((rows + 159) / 160) * 512;
    kit_scalar(k, rows), kit_scalar(k, columns);
    kit_tensor *weights = whole_numbers(k, (size_t)(rows * columns), -1, 1),
               *packed = kit_tensor_new(k, U8, bytes);
    kit_launch(k, "pack");
    *w = weights->values, *p = packed->values;
    weights->values = packed->values = NULL;
    kit_clear(k);
}

static void multiplies(kernel_kit *k, const char *kernel, int m, int n, int rows, bool bias) {
    double *w, *p;
    pack(k, rows, n, &w, &p);
    kit_scalar(k, m), kit_scalar(k, n), kit_scalar(k, rows);
    kit_tensor *a = whole_numbers(k, (size_t)(m * rows), -127, 127);
    kit_tensor *packed = kit_tensor_new(k, U8, (size_t)((n + 15) / 16) * (size_t)((rows + 159) / 160) * 512);
    for (size_t i = 0; i < packed->count; i++) packed->values[i] = p[i];
    kit_write(k, packed);
    kit_tensor *sa = kit_input(k, F32, (size_t)m, 0.5, 2), *s = kit_input(k, F32, (size_t)n, 0.01, 0.02);
    kit_tensor *b = bias ? kit_input(k, F32, (size_t)n, -1, 1) : NULL;
    kit_tensor *c = kit_tensor_new(k, F32, (size_t)(m * n));
    kit_launch(k, kernel);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int r = 0; r < rows; r++) sum += a->values[i * rows + r] * w[r * n + j];
            double want = sum * sa->values[i] * s->values[j] + (b ? b->values[j] : 0);
            double terms = fabs(sum * sa->values[i] * s->values[j]) + (b ? fabs(b->values[j]) : 0);
            ck_assert_msg(fabs(c->values[i * n + j] - want) <= 0x1p-22 * terms,
                          "%s: m %d n %d k %d: c[%d, %d] is %g, expected %g", kernel, m, n, rows, i, j,
                          c->values[i * n + j], want);
        }
    kit_clear(k);
    free(w), free(p);
}

START_TEST(ternary_weights_multiply) {
    static const char *const kernels[] = {"matmul_ternary", "matmul_ternary_8x64", "matmul_ternary_8x16",
                                          "matmul_ternary_32x64", "matmul_ternary_32x16"};
    /* one chunk and less, more chunks than warps, columns and rows of A that end within tiles */
    static const int sizes[][3] = {{1, 16, 160}, {3, 72, 40}, {9, 88, 1448}, {33, 136, 328}};
    kernel_kit k = kit_open("matmul_ternary.vasm", _i ? "OTYPE=f32 BIAS=true" : "OTYPE=f32");
    for (size_t v = 0; v < sizeof kernels / sizeof *kernels; v++)
        for (size_t i = v % 2; i < sizeof sizes / sizeof *sizes; i += 2)
            multiplies(&k, kernels[v], sizes[i][0], sizes[i][1], sizes[i][2], _i);
    kit_close(&k);
}
END_TEST

/* Of a column with one 1 at row r, or one -1, all others 0, the byte of row r is that of five digits 1, but
 * for one. */
START_TEST(a_byte_has_five_weights) {
    enum { ROWS = 160, COLUMNS = 16 };
    kernel_kit k = kit_open("matmul_ternary.vasm", "");
    double *w, *p;
    pack(&k, ROWS, COLUMNS, &w, &p);
    int seen[243] = {0}, others = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            int q = r / 40, d = r / 8 % 5, h = r / 4 % 2, i = r % 4, number = 0;
            if (d) continue;
            for (int e = 0; e < 5; e++) number = number * 3 + (int)w[(r + 8 * e) * COLUMNS + c] + 1;
            double byte = p[(c % 8 * 4 + q) * 16 + h * 8 + c / 8 * 4 + i];
            ck_assert_double_eq(byte, ceil(number * 256 / 243.0));
            others += seen[number]++ == 0;
        }
    ck_assert_int_gt(others, 100);
    free(w), free(p);
    kit_close(&k);
}
END_TEST

static Suite *ternary_suite(void) {
    Suite *suite = suite_create("ternary");
    TCase *products = tcase_create("products");
    tcase_add_loop_test(products, ternary_weights_multiply, 0, 2);
    tcase_add_test(products, a_byte_has_five_weights);
    suite_add_tcase(suite, products);
    return suite;
}

int main(void) {
    return run_suite(ternary_suite());
}
