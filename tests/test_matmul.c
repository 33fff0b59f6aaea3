/* programs/matmul.vasm: both variants, with each part of the epilogue, against float64, and the same bits for
 * a row whatever the rows beside it; put through ptxas without a spill. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { TIMEOUT = 300 };

typedef struct form {
    const char *define;
    bool is_bf16, scales, bias, residual;
    enum { NONE, RELU, SILU } act;
} form;

static const form forms[] = {
    {"T=f16", .act = NONE},
    {"T=bf16 SCALES=true BIAS=true", .is_bf16 = true, .scales = true, .bias = true},
    {"T=f16 ACT=relu RESIDUAL=true", .residual = true, .act = RELU},
    {"T=f16 SCALES=true BIAS=true ACT=silu RESIDUAL=true", false, true, true, true, SILU},
};
enum { FORMS = sizeof forms / sizeof *forms };
static const char *const kernels[] = {"matmul", "matmul_wide", "matmul_plain"};
static const size_t sizes[][3] = {{1, 8, 16}, {130, 264, 80}, {257, 72, 208}};

static double activation(double x, const form *f) {
    return f->act == RELU ? fmax(x, 0) : f->act == SILU ? x / (1 + exp(-x)) : x;
}

typedef struct operands {
    kit_tensor *a, *b, *sa, *sb, *bias, *r, *c;
} operands;

static operands make(kernel_kit *k, const form *f, const size_t size[3]) {
    tvm_dtype type = f->is_bf16 ? TVM_BF16 : TVM_F16;
    size_t m = size[0], n = size[1], depth = size[2];
    operands o = {0};
    kit_clear(k);
    for (unsigned i = 0; i < 3; i++) kit_scalar(k, (double)size[i]);
    o.a = kit_input(k, type, m * depth, -1, 1), o.b = kit_input(k, type, n * depth, -1, 1);
    if (f->scales) o.sa = kit_input(k, TVM_F32, m, 0.5, 2), o.sb = kit_input(k, TVM_F32, n, 0.5, 2);
    if (f->bias) o.bias = kit_input(k, TVM_F32, n, -2, 2);
    if (f->residual) o.r = kit_input(k, type, m * n, -4, 4);
    o.c = kit_tensor_new(k, type, m * n);
    return o;
}

static double expected(const operands *o, const form *f, size_t i, size_t j, size_t n, size_t depth) {
    double sum = 0;
    for (size_t l = 0; l < depth; l++) sum += o->a->values[i * depth + l] * o->b->values[j * depth + l];
    if (f->scales) sum *= o->sa->values[i] * o->sb->values[j];
    if (f->bias) sum += o->bias->values[j];
    sum = activation(sum, f);
    return f->residual ? sum + o->r->values[i * n + j] : sum;
}

START_TEST(each_variant_multiplies) {
    const form *f = &forms[_i];
    kernel_kit k = kit_open("matmul.vasm", f->define);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t v = 0; v < sizeof kernels / sizeof *kernels; v++) {
            size_t m = sizes[s][0], n = sizes[s][1], depth = sizes[s][2];
            operands o = make(&k, f, sizes[s]);
            kit_launch(&k, kernels[v]);
            for (size_t i = 0; i < m * n; i++) {
                double want = expected(&o, f, i / n, i % n, n, depth);
                double bound = (f->is_bf16 ? 0x1p-8 : 0x1p-11) * fabs(want) + 2e-4;
                ck_assert_msg(fabs(o.c->values[i] - want) <= bound,
                              "%s, %s: %zu x %zu x %zu: element %zu is %.9g, expected %.9g", kernels[v],
                              f->define, m, n, depth, i, o.c->values[i], want);
            }
        }
    kit_close(&k);
}
END_TEST

/* The first row of a product is that of the product with the other rows left out. */
START_TEST(rows_do_not_depend_on_each_other) {
    enum { M = 150, N = 72, K = 144 };
    static const size_t size[] = {M, N, K};
    kernel_kit k = kit_open("matmul.vasm", forms[0].define);
    double row[N];
    operands o = make(&k, &forms[0], size);
    kit_launch(&k, kernels[_i]);
    for (unsigned j = 0; j < N; j++) row[j] = o.c->values[j];
    k.arguments[0].i = 1;
    kit_launch(&k, kernels[_i]);
    ck_assert_mem_eq(row, o.c->values, sizeof row);
    kit_close(&k);
}
END_TEST

START_TEST(compiles) {
    static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
    char path[5000];
    for (unsigned f = 0; f < 2; f++) {
        tvm_ir_program *program = assemble_file(program_path("matmul.vasm", path), forms[f].define);
        compiles_without_spills(program, forms[f].define, targets[_i]);
        tvm_ir_program_free(program);
    }
}
END_TEST

START_TEST(other_types_are_refused) {
    char path[5000];
    is_refused(program_path("matmul.vasm", path), "T=f32", "T must be f16 or bf16");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("matmul");
    TCase *tests = tcase_create("matmul");
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_loop_test(tests, each_variant_multiplies, 0, FORMS);
    tcase_add_loop_test(tests, rows_do_not_depend_on_each_other, 0, 3);
    tcase_add_loop_test(tests, compiles, 0, 4);
    tcase_add_test(tests, other_types_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
