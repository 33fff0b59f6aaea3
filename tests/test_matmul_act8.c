/* programs/matmul_scaled.vasm and programs/matmul_lowbit_a8.vasm, products of activations of 8 and 4 bits:
 * their variants, with each sort of scales and weights, on the interpreter and as generated code on the PTX
 * machine, against float64, of stacks of experts, too; the same bits for a row whatever the rows beside it;
 * put through ptxas without a spill; what they refuse. */
#include "check_kit.h"
#include <math.h>
#include <string.h>

#include "kernel_code_kit.h"
#include "suite_kit.h"

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static size_t ceil_div(size_t a, size_t b) {
    return (a + b - 1) / b;
}

/* Half a unit in the last place of a number of about 1. */
static double rounding_of(tvm_dtype type) {
    return ldexp(0.5, -(int)type.mantissa);
}

typedef struct product {
    size_t m, n, k, experts;
    kit_tensor *c;
    double *wanted, *sums;
    int *expert; /* of each row; -1: of none */
} product;

/* An element that nothing was written to: zero, or the bytes that kit_execute leaves in results. */
static bool is_untouched(tvm_dtype type, double value) {
    double left = tvm_decode(type, UINT64_C(0x7f7f7f7f) & ((UINT64_C(1) << type.bits) - 1));
    return value == 0 || value == left || (isnan(left) && isnan(value));
}

/* c is the sum of k products and a bias, in f32, rounded once: in a group of `group` each sum is
 * rounded, then the scale, its product, and the sum of the groups. sums: those of the products' magnitudes.
 */
static void compare(const product *p, size_t group, const char *where) {
    double roundings = (double)group + 3 * (double)ceil_div(p->k, group) + 4;
    for (size_t i = 0; i < p->c->count; i++) {
        double value = p->c->values[i], wanted = p->wanted[i];
        double bound =
            (roundings * p->sums[i] + fabs(wanted)) * 0x1p-24 + rounding_of(p->c->type) * fabs(wanted) * 1.01;
        if (p->expert[i / p->n] < 0)
            ck_assert_msg(is_untouched(p->c->type, value), "%s: element %zu became %.9g", where, i, value);
        else
            ck_assert_msg(fabs(value - wanted) <= bound, "%s: element %zu is %.9g, expected %.9g +- %.2g",
                          where, i, value, wanted, bound);
    }
}

/* What rows belong to: matrix 0, or by offsets that are negative, beyond m or less than those before. */
static product product_new(size_t m, size_t n, size_t k, size_t experts, const int32_t *offsets) {
    product p = {m,
                 n,
                 k,
                 experts,
                 NULL,
                 calloc(m * n, sizeof(double)),
                 calloc(m * n, sizeof(double)),
                 calloc(m, sizeof(int))};
    ck_assert(p.wanted != NULL && p.sums != NULL && p.expert != NULL);
    for (size_t i = 0; i < m && offsets != NULL; i++) {
        int64_t end = offsets[0];
        p.expert[i] = -1;
        for (size_t e = 0; e < experts; e++) {
            int64_t begin = end;
            end = offsets[e + 1] > begin ? offsets[e + 1] : begin;
            if ((int64_t)i >= begin && (int64_t)i < end) p.expert[i] = (int)e;
        }
    }
    return p;
}

static void product_free(product *p) {
    free(p->wanted);
    free(p->sums);
    free(p->expert);
}

enum { EXPERTS = 5, OFFSETS = 6 };

/* Rows at one expert, experts without rows or with one, rows of none, and offsets that are none. */
static const int32_t *offsets_of(size_t which, size_t m, int32_t offsets[EXPERTS + 1]) {
    const int32_t all = (int32_t)m, half = all / 2, third = all / 3;
    const int32_t given[OFFSETS][EXPERTS + 1] = {
        {0, third, third, half, half + 1, all},        {0, all, all, all, all, all},
        {third, third, third + 9, half, all, all},     {-7, -9, third, 2000000000, 5, all},
        {0, half, third, all - third, third, all - 1}, {all, all + 9, 3, INT32_MIN, INT32_MAX, 0}};
    memcpy(offsets, given[which % OFFSETS], sizeof given[0]);
    return offsets;
}

/* Scalars, and with offsets how many experts there are. */
static void give_sizes(kernel_kit *k, const product *p, bool stacked) {
    const size_t extents[] = {p->m, p->n, p->k, p->experts};
    for (size_t i = 0; i < (stacked ? 4 : 3); i++) kit_scalar(k, (double)extents[i]);
}

static void give_offsets(kernel_kit *k, const product *p, const int32_t *offsets) {
    if (offsets == NULL) return;
    kit_tensor *t = kit_tensor_new(k, TVM_I(32), p->experts + 1);
    for (size_t e = 0; e <= p->experts; e++) t->values[e] = offsets[e];
    kit_write(k, t);
}

/* ---- matmul_scaled ---- */

typedef struct scaled_form {
    const char *define, *a, *b, *scales, *c;
    size_t group, b_rows; /* elements that share a scale; 0: all */
    bool one_a, one_b, bias, by_group, alpha;
} scaled_form;

static const scaled_form scaled_forms[] = {
    {"GROUP=128", "f8_e4m3", "f8_e4m3", "f32", "bf16", 128, 128, 0, 0, 0, 0, 0},
    {"GROUP=128 TB=f8_e5m2 OTYPE=f32 BIAS=true", "f8_e4m3", "f8_e5m2", "f32", "f32", 128, 128, 0, 0, 1, 0, 0},
    {"BY_GROUP=true OTYPE=f32 BIAS=true", "f8_e4m3", "f8_e4m3", "f32", "f32", 128, 128, 0, 0, 1, 1, 0},
    {"GROUP=0 BIAS=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 0, 1, 0, 0, 1, 0, 0},
    {"GROUP=0 ONE_A=true ONE_B=true OTYPE=f16", "f8_e4m3", "f8_e4m3", "f32", "f16", 0, 1, 1, 1, 0, 0, 0},
    {"GROUP=0 ONE_A=true T=f8_e5m2 TB=f8_e4m3", "f8_e5m2", "f8_e4m3", "f32", "bf16", 0, 1, 1, 0, 0, 0, 0},
    {"GROUP=32 BIAS=true OTYPE=f32", "f8_e4m3", "f8_e4m3", "e8m0", "f32", 32, 1, 0, 0, 1, 0, 0},
    {"T=i8 OTYPE=f16", "i8", "i8", "f32", "f16", 128, 128, 0, 0, 0, 0, 0},
    {"T=i8 BY_GROUP=true", "i8", "i8", "f32", "bf16", 128, 128, 0, 0, 0, 1, 0},
    {"TB=f4_e2m1", "f8_e4m3", "f4_e2m1", "f32", "bf16", 128, 128, 0, 0, 0, 0, 0},
    {"TB=f4_e2m1 BY_GROUP=true", "f8_e4m3", "f4_e2m1", "f32", "bf16", 128, 128, 0, 0, 0, 1, 0},
    {"TB=f6_e3m2 GROUP=0 OTYPE=f32", "f8_e4m3", "f6_e3m2", "f32", "f32", 0, 1, 0, 0, 0, 0, 0},
    {"T=f8_e5m2 TB=f6_e2m3 GROUP=32", "f8_e5m2", "f6_e2m3", "e8m0", "bf16", 32, 1, 0, 0, 0, 0, 0},
    {"TB=f4_e2m1 GROUP=32 BIAS=true", "f8_e4m3", "f4_e2m1", "e8m0", "bf16", 32, 1, 0, 0, 1, 0, 0},
    {"T=f4_e2m1 GROUP=32", "f4_e2m1", "f4_e2m1", "e8m0", "bf16", 32, 1, 0, 0, 0, 0, 0},
    {"T=f4_e2m1 GROUP=16 ALPHA=true OTYPE=f32", "f4_e2m1", "f4_e2m1", "f8_e4m3", "f32", 16, 1, 0, 0, 0, 0, 1},
    {"T=f4_e2m1 GROUP=16 BIAS=true", "f4_e2m1", "f4_e2m1", "f8_e4m3", "bf16", 16, 1, 0, 0, 1, 0, 0},
    {"EXPERTS=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 128, 128, 0, 0, 0, 0, 0},
    {"EXPERTS=true BY_GROUP=true BIAS=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 128, 128, 0, 0, 1, 1, 0},
    {"EXPERTS=true OTYPE=f32 TB=f8_e5m2", "f8_e4m3", "f8_e5m2", "f32", "f32", 128, 128, 0, 0, 0, 0, 0},
    {"EXPERTS=true GROUP=0 BIAS=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 0, 1, 0, 0, 1, 0, 0},
    {"EXPERTS=true GROUP=0 ONE_A=true ONE_B=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 0, 1, 1, 1, 0, 0, 0},
    {"EXPERTS=true GROUP=0 T=i8 OTYPE=f16", "i8", "i8", "f32", "f16", 0, 1, 0, 0, 0, 0, 0},
    {"EXPERTS=true T=i8", "i8", "i8", "f32", "bf16", 128, 128, 0, 0, 0, 0, 0},
    {"EXPERTS=true GROUP=32 BIAS=true", "f8_e4m3", "f8_e4m3", "e8m0", "bf16", 32, 1, 0, 0, 1, 0, 0},
    {"EXPERTS=true TB=f4_e2m1 GROUP=32", "f8_e4m3", "f4_e2m1", "e8m0", "bf16", 32, 1, 0, 0, 0, 0, 0},
    {"EXPERTS=true T=f4_e2m1 GROUP=16 ALPHA=true", "f4_e2m1", "f4_e2m1", "f8_e4m3", "bf16", 16, 1, 0, 0, 0, 0,
     1},
};
enum { SCALED_FORMS = sizeof scaled_forms / sizeof *scaled_forms };
static const char *const scaled_kernels[] = {"matmul_scaled",
                                             "matmul_scaled_plain",
                                             "matmul_scaled_256x128",
                                             "matmul_scaled_128x128",
                                             "matmul_scaled_128x64",
                                             "matmul_scaled_64x128",
                                             "matmul_scaled_64x64",
                                             "matmul_scaled_16x128",
                                             "matmul_scaled_f8",
                                             "matmul_scaled_spread",
                                             "matmul_scaled_tensor_128x256",
                                             "matmul_scaled_tensor_128x128",
                                             "matmul_scaled_tensor_128x64"};
enum {
    SCALED_KERNELS = sizeof scaled_kernels / sizeof *scaled_kernels,
    SCALED_TENSOR = SCALED_KERNELS - 3,
    SCALED_WGMMA = SCALED_KERNELS - 5
};
/* Rows, columns and depth that end within tiles and groups. */
static const size_t sizes[][3] = {{1, 8, 32}, {130, 200, 160}, {150, 136, 416}, {140, 264, 384}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Not every form has registers for every variant. */
static bool has_kernel(const tvm_ir_program *program, const char *name) {
    for (uint32_t i = 0; i < program->kernel_count; i++)
        if (!strcmp(tvm_string(program, program->kernels[i].name), name)) return true;
    return !strcmp(name, "matmul_scaled") || !strcmp(name, "matmul_lowbit_a8");
}

static bool is_narrow(const scaled_form *f) {
    return type_of(f->b).bits < 8;
}

/* Do the tensor cores multiply by the scales, where they can? */
static bool is_block(const scaled_form *f) {
    return f->group == 32 || f->group == 16;
}

/* Scales of blocks go by tcgen05 for whole steps of k. */
static bool has_scaled(const tvm_ir_program *program, const scaled_form *f, const char *name, size_t k) {
    return has_kernel(program, name) && (!is_block(f) || k % 128 == 0 || !strstr(name, "_tensor_"));
}

static bool is_stack(const char *define) {
    return strstr(define, "EXPERTS=true") != NULL;
}

static product scaled_stack(kernel_kit *k, const scaled_form *f, const size_t size[3], size_t experts,
                            const int32_t *offsets) {
    product p = product_new(size[0], size[1], is_narrow(f) ? ceil_div(size[2], 128) * 128 : size[2], experts,
                            offsets);
    size_t group = f->group ? f->group : p.k, groups = ceil_div(p.k, group),
           rows_b = ceil_div(p.n, f->b_rows);
    double low = f->a[0] == 'i' ? -128 : -4, scale = f->a[0] == 'i' ? 0.02 : 1;
    kit_clear(k);
    give_sizes(k, &p, offsets != NULL);
    const kit_tensor *a = kit_input(k, type_of(f->a), p.m * p.k, low, -low);
    give_offsets(k, &p, offsets);
    const kit_tensor *b = kit_input(k, type_of(f->b), experts * p.n * p.k, low, -low);
    size_t row_step = f->by_group ? 1 : groups, group_step = f->by_group ? ceil_div(p.m, 4) * 4 : 1;
    size_t of_a = f->by_group ? groups * group_step : p.m * groups;
    kit_tensor *sa = kit_input(k, type_of(f->scales), f->one_a ? 1 : of_a, scale / 4, scale * 4);
    for (size_t i = 0; f->by_group && i < of_a; i++)
        if (i % group_step >= p.m) sa->values[i] = NAN; /* of no row */
    kit_write(k, sa);
    size_t of_b = f->one_b ? 1 : rows_b * groups;
    const kit_tensor *sb = kit_input(k, type_of(f->scales), experts * of_b, scale / 4, scale * 4);
    const kit_tensor *alpha = f->alpha ? kit_input(k, TVM_F32, experts, 0.25, 4) : NULL;
    const kit_tensor *bias = f->bias ? kit_input(k, TVM_F32, experts * p.n, -9, 9) : NULL;
    p.c = kit_tensor_new(k, type_of(f->c), p.m * p.n);
    for (size_t i = 0; i < p.m * p.n; i++) {
        size_t row = i / p.n, column = i % p.n, e = (size_t)p.expert[row];
        if (p.expert[row] < 0) continue;
        for (size_t l = 0; l < p.k; l++) {
            double by = sa->values[f->one_a ? 0 : row * row_step + l / group * group_step] *
                        sb->values[e * of_b + (f->one_b ? 0 : column / f->b_rows * groups + l / group)] *
                        (alpha ? alpha->values[e] : 1);
            double term = a->values[row * p.k + l] * b->values[(e * p.n + column) * p.k + l] * by;
            p.wanted[i] += term, p.sums[i] += fabs(term);
        }
        double more = bias ? bias->values[e * p.n + column] : 0;
        p.wanted[i] += more, p.sums[i] += fabs(more);
    }
    return p;
}

static product scaled_new(kernel_kit *k, const scaled_form *f, const size_t size[3]) {
    return scaled_stack(k, f, size, 1, NULL);
}

/* With EXPERTS, of five matrices, by offsets number `which`. */
static product scaled_any(kernel_kit *k, const scaled_form *f, const size_t size[3], size_t which) {
    int32_t offsets[EXPERTS + 1];
    if (!is_stack(f->define)) return scaled_new(k, f, size);
    return scaled_stack(k, f, size, EXPERTS, offsets_of(which, size[0], offsets));
}

START_TEST(operands_with_scales_are_multiplied) {
    const scaled_form *f = &scaled_forms[_i];
    char path[5000], where[200];
    kernel_kit k = kit_open("matmul_scaled.vasm", f->define);
    tvm_ir_program *program = assemble_file(program_path("matmul_scaled.vasm", path), f->define);
    size_t group = is_block(f) ? f->group : 128;
    for (size_t s = 0; s < SIZES; s++) {
        product p = scaled_any(&k, f, sizes[s], s + (size_t)_i);
        for (size_t v = 0; v < SCALED_KERNELS; v++) {
            if ((v > 1 && v % 2 != s % 2) || !has_scaled(program, f, scaled_kernels[v], p.k)) continue;
            snprintf(where, sizeof where, "%s, %s, %zu x %zu x %zu", scaled_kernels[v], f->define, p.m, p.n,
                     p.k);
            kit_launch(&k, scaled_kernels[v]);
            compare(&p, group, where);
        }
        for (size_t v = 2; v < SCALED_WGMMA && s == 1 && _i % 2 == 0; v++) {
            if (!is_stack(f->define) && v != 2 + ((size_t)_i + 3) % (SCALED_WGMMA - 2)) continue;
            if (!has_kernel(program, scaled_kernels[v])) continue;
            kit_execute(&k, p.c, program, scaled_kernels[v], "sm_90a");
            compare(&p, group, scaled_kernels[v]);
        }
        if (s == 1 && _i % 2 == 0) {
            kit_execute(&k, p.c, program, "matmul_scaled_plain", "sm_80");
            compare(&p, group, "matmul_scaled_plain for sm_80");
        }
        const char *tensor = scaled_kernels[SCALED_TENSOR + (size_t)_i % 3];
        if (s % 2 == 1 && has_scaled(program, f, tensor, p.k)) {
            kit_execute(&k, p.c, program, tensor, "sm_100a");
            compare(&p, group, tensor);
        }
        if (s == 1 && is_narrow(f)) {
            bool spread = has_kernel(program, "matmul_scaled_spread");
            const char *own = spread ? "matmul_scaled_spread" : "matmul_scaled_plain";
            kit_execute(&k, p.c, program, own, "sm_120a");
            snprintf(where, sizeof where, "%s for sm_120a, %s", own, f->define);
            compare(&p, group, where);
        }
        if (s == 1 && has_kernel(program, "matmul_scaled_f8")) {
            kit_execute(&k, p.c, program, "matmul_scaled_f8", "sm_89");
            compare(&p, group, "matmul_scaled_f8 for sm_89");
        }
        product_free(&p);
    }
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

/* Shapes that no tile divides, with the scales of a in both orders. */
START_TEST(random_shapes_are_multiplied) {
    const scaled_form *f = &scaled_forms[_i % 2 ? 2 : 1];
    kernel_kit k = kit_open("matmul_scaled.vasm", f->define);
    char path[5000], where[100];
    tvm_ir_program *program = assemble_file(program_path("matmul_scaled.vasm", path), f->define);
    for (unsigned i = 0; i < 5; i++) {
        const size_t size[] = {1 + (size_t)(290 * kit_random(&k)), 8 + (size_t)(36 * kit_random(&k)) * 8,
                               16 + (size_t)(24 * kit_random(&k)) * 16};
        const char *name = scaled_kernels[(size_t)(SCALED_WGMMA * kit_random(&k))];
        if (!has_kernel(program, name)) name = "matmul_scaled";
        product p = scaled_new(&k, f, size);
        snprintf(where, sizeof where, "%s, %s, %zu x %zu x %zu", name, f->define, p.m, p.n, p.k);
        kit_launch(&k, name);
        compare(&p, 128, where);
        product_free(&p);
    }
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

/* ---- matmul_lowbit_a8 ---- */

typedef struct lowbit_form {
    const char *define, *w, *a, *scales, *c;
    size_t group;
    bool zeros, levels, bias;
} lowbit_form;

static const lowbit_form lowbit_forms[] = {
    {"GROUP=128", "u4", "i8", "f32", "f16", 128, false, false, false},
    {"GROUP=0 WTYPE=i4 BIAS=true OTYPE=f32", "i4", "i8", "f32", "f32", 0, false, false, true},
    {"ATYPE=f8_e4m3 STYPE=f16", "u4", "f8_e4m3", "f16", "f16", 128, false, false, false},
    {"ATYPE=f8_e4m3 GROUP=0 WTYPE=i4 OTYPE=bf16", "i4", "f8_e4m3", "f32", "bf16", 0, false, false, false},
    {"LEVELS=true ZEROS=true GROUP=64 BIAS=true", "u4", "i8", "f32", "f16", 64, true, true, true},
    {"LEVELS=true GROUP=32 WTYPE=i4", "i4", "i8", "f32", "f16", 32, false, true, false},
    {"ZEROS=true GROUP=64 STYPE=bf16", "u4", "i8", "bf16", "f16", 64, true, false, false},
    {"ZEROS=true ATYPE=f8_e4m3 GROUP=32", "u4", "f8_e4m3", "f32", "f16", 32, true, false, false},
    {"ZEROS=true GROUP=0", "u4", "i8", "f32", "f16", 0, true, false, false},
    {"WTYPE=u3", "u3", "i8", "f32", "f16", 128, false, false, false},
    {"WTYPE=u7 ZEROS=true GROUP=32", "u7", "i8", "f32", "f16", 32, true, false, false},
    {"WTYPE=i6 GROUP=0", "i6", "i8", "f32", "f16", 0, false, false, false},
    {"WTYPE=u1 ATYPE=f8_e4m3 ZEROS=true", "u1", "f8_e4m3", "f32", "f16", 128, true, false, false},
    {"WTYPE=u5 ATYPE=f8_e4m3", "u5", "f8_e4m3", "f32", "f16", 128, false, false, false},
    {"WTYPE=f6_e3m2 ATYPE=f8_e4m3 GROUP=32", "f6_e3m2", "f8_e4m3", "f32", "f16", 32, false, false, false},
    {"WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0", "f4_e2m1", "f8_e4m3", "e8m0", "f16", 32, 0, 0, 0},
    {"ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0 ZEROS=true", "u4", "f8_e4m3", "e8m0", "f16", 32, true, 0, 0},
    {"WTYPE=u4 STYPE=f8_e4m3 GROUP=64", "u4", "i8", "f8_e4m3", "f16", 64, false, false, false},
    {"WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=0", "f4_e2m1", "f8_e4m3", "f32", "f16", 0, false, false, false},
    {"WTYPE=f6_e2m3 ATYPE=f8_e4m3 STYPE=f16", "f6_e2m3", "f8_e4m3", "f16", "f16", 128, false, false, false},
    {"WTYPE=f4_e3m0 ATYPE=f8_e4m3", "f4_e3m0", "f8_e4m3", "f32", "f16", 128, false, false, false},
    {"WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=64 STYPE=bf16", "f4_e2m1", "f8_e4m3", "bf16", "f16", 64, 0, 0, 0},
    {"EXPERTS=true", "u4", "i8", "f32", "f16", 128, false, false, false},
    {"EXPERTS=true GROUP=0 BIAS=true OTYPE=f32", "u4", "i8", "f32", "f32", 0, false, false, true},
    {"EXPERTS=true ATYPE=f8_e4m3 BIAS=true", "u4", "f8_e4m3", "f32", "f16", 128, false, false, true},
    {"EXPERTS=true LEVELS=true ZEROS=true GROUP=64", "u4", "i8", "f32", "f16", 64, true, true, false},
    {"EXPERTS=true WTYPE=u3 ZEROS=true GROUP=32 STYPE=bf16", "u3", "i8", "bf16", "f16", 32, true, 0, 0},
    {"EXPERTS=true WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0", "f4_e2m1", "f8_e4m3", "e8m0", "f16", 32,
     0, 0, 0},
    {"EXPERTS=true WTYPE=u5 GROUP=0 OTYPE=bf16", "u5", "i8", "f32", "bf16", 0, false, false, false},
};
enum { LOWBIT_FORMS = sizeof lowbit_forms / sizeof *lowbit_forms };
static const char *const lowbit_kernels[] = {"matmul_lowbit_a8",
                                             "matmul_lowbit_a8_plain",
                                             "matmul_lowbit_a8_256x128",
                                             "matmul_lowbit_a8_128x128",
                                             "matmul_lowbit_a8_64x128",
                                             "matmul_lowbit_a8_64x64",
                                             "matmul_lowbit_a8_16x64",
                                             "matmul_lowbit_a8_160x128",
                                             "matmul_lowbit_a8_192x128",
                                             "matmul_lowbit_a8_block",
                                             "matmul_lowbit_a8_tensor_64x128",
                                             "matmul_lowbit_a8_tensor_128x128",
                                             "matmul_lowbit_a8_tensor_192x128"};
enum { LOWBIT_KERNELS = sizeof lowbit_kernels / sizeof *lowbit_kernels, LOWBIT_TENSOR = LOWBIT_KERNELS - 3 };
static const size_t lowbit_sizes[][3] = {{1, 8, 128}, {70, 136, 384}, {150, 72, 256}};
enum { LOWBIT_SIZES = sizeof lowbit_sizes / sizeof *lowbit_sizes };

/* Columns of the matrix that is packed: of stacks, whose matrices stand side by side, with what pads them. */
static size_t packed_columns(const product *p, bool stacked) {
    return stacked ? p->experts * ceil_div(p->n, 64) * 64 : p->n;
}

/* What the weights are multiplied by, and their zero points: of matrix e, row l and column j. */
static double weight_of(const lowbit_form *f, const product *p, kit_tensor *const t[4], size_t e, size_t l,
                        size_t j) {
    size_t columns = t[0]->count / p->k, groups = f->group ? p->k / f->group : 1;
    size_t at = (e * groups + (f->group ? l / f->group : 0)) * p->n + j, of_s = f->levels ? e * p->n + j : at;
    tvm_dtype type = type_of(f->w);
    double zero = f->zeros ? t[3]->values[at] : type.kind == TVM_KIND_UINT ? ldexp(1, (int)type.bits - 1) : 0;
    double level = f->levels ? t[2]->values[at] : 1;
    return (t[0]->values[l * columns + e * (columns / p->experts) + j] - zero) * level * t[1]->values[of_s];
}

static bool has_offset(const lowbit_form *f) {
    return f->zeros || f->levels;
}

/* Those with wgmma have rows of levels and zero points in pieces of 16 bytes. */
static bool has_lowbit(const tvm_ir_program *program, const lowbit_form *f, const char *name, size_t n) {
    bool any = !strcmp(name, "matmul_lowbit_a8") || strstr(name, "plain") || strstr(name, "tensor");
    return has_kernel(program, name) && (any || !has_offset(f) || n % 16 == 0);
}

/* Packs random weights, and makes the arguments of the product. */
static product lowbit_stack(kernel_kit *k, const lowbit_form *f, const size_t of[3], size_t experts,
                            const int32_t *offsets) {
    const size_t columns = type_of(f->scales).bits == 8 || (has_offset(f) && of[0] > 1) ? 16 : 8;
    product p = product_new(of[0], ceil_div(of[1], columns) * columns, of[2], experts, offsets);
    const size_t packed_n = packed_columns(&p, offsets != NULL);
    tvm_dtype type = type_of(f->w);
    double bits = type.bits, low = type.kind == TVM_KIND_UINT  ? 0
                                   : type.kind == TVM_KIND_INT ? -ldexp(1, (int)bits - 1)
                                                               : -9;
    double high = type.kind == TVM_KIND_UINT ? ldexp(1, (int)bits) : -low;
    size_t groups = f->group ? p.k / f->group : 1;
    kit_clear(k);
    kit_scalar(k, (double)p.k), kit_scalar(k, (double)packed_n);
    kit_tensor *t[4] = {kit_input(k, type, p.k * packed_n, low, high)};
    kit_tensor *packed =
        kit_tensor_new(k, type_of("u8"), ceil_div(packed_n, 64) * (p.k / 128) * 1024 * type.bits);
    kit_launch(k, "pack");
    k->argument_count = 0;
    give_sizes(k, &p, offsets != NULL);
    double most = f->a[0] == 'i' ? 127 : 8;
    const kit_tensor *a = kit_input(k, type_of(f->a), p.m * p.k, -most, most);
    give_offsets(k, &p, offsets);
    k->arguments[k->argument_count++] = (tvm_value){.data = packed->data, .bytes = kit_bytes(packed)};
    const kit_tensor *sa = kit_input(k, TVM_F32, p.m, 0.25, 4);
    t[1] = kit_input(k, type_of(f->scales), experts * (f->levels ? 1 : groups) * p.n, 0.01, 0.1);
    if (f->levels) t[2] = kit_input(k, type_of("u8"), experts * groups * p.n, 1, 8.4);
    if (f->zeros) t[3] = kit_input(k, type_of("u8"), experts * groups * p.n, 0, high - 1);
    const kit_tensor *bias = f->bias ? kit_input(k, TVM_F32, experts * p.n, -9, 9) : NULL;
    p.c = kit_tensor_new(k, type_of(f->c), p.m * p.n);
    for (size_t i = 0; i < p.m * p.n; i++) {
        if (p.expert[i / p.n] < 0) continue;
        size_t e = (size_t)p.expert[i / p.n];
        for (size_t l = 0; l < p.k; l++) {
            double term =
                a->values[i / p.n * p.k + l] * sa->values[i / p.n] * weight_of(f, &p, t, e, l, i % p.n);
            p.wanted[i] += term, p.sums[i] += fabs(term);
        }
        double more = bias ? bias->values[e * p.n + i % p.n] : 0;
        p.wanted[i] += more, p.sums[i] += fabs(more);
    }
    return p;
}

static product lowbit_new(kernel_kit *k, const lowbit_form *f, const size_t size[3]) {
    return lowbit_stack(k, f, size, 1, NULL);
}

/* With EXPERTS, of five matrices, by offsets number `which`. */
static product lowbit_any(kernel_kit *k, const lowbit_form *f, const size_t size[3], size_t which) {
    int32_t offsets[EXPERTS + 1];
    if (!is_stack(f->define)) return lowbit_new(k, f, size);
    return lowbit_stack(k, f, size, EXPERTS, offsets_of(which, size[0], offsets));
}

START_TEST(weights_of_fewer_bits_are_multiplied) {
    const lowbit_form *f = &lowbit_forms[_i];
    char path[5000], where[200];
    kernel_kit k = kit_open("matmul_lowbit_a8.vasm", f->define);
    tvm_ir_program *program = assemble_file(program_path("matmul_lowbit_a8.vasm", path), f->define);
    size_t group = f->group ? f->group : 128;
    for (size_t s = 0; s < LOWBIT_SIZES; s++) {
        product p = lowbit_any(&k, f, lowbit_sizes[s], s + (size_t)_i);
        for (size_t v = 0; v < LOWBIT_KERNELS; v++) {
            if ((v > 1 && (v + (size_t)_i) % 3 != s) || !has_lowbit(program, f, lowbit_kernels[v], p.n))
                continue;
            snprintf(where, sizeof where, "%s, %s, %zu x %zu x %zu", lowbit_kernels[v], f->define, p.m, p.n,
                     p.k);
            kit_launch(&k, lowbit_kernels[v]);
            compare(&p, group, where);
        }
        const char *wide = lowbit_kernels[2 + _i / 4];
        if (s == 1 && _i % 4 == 0 && has_kernel(program, wide)) {
            kit_execute(&k, p.c, program, wide, "sm_90a");
            compare(&p, group, wide);
            kit_execute(&k, p.c, program, "matmul_lowbit_a8_plain", "sm_80");
            compare(&p, group, "matmul_lowbit_a8_plain for sm_80");
        }
        if (s == 1 && has_kernel(program, "matmul_lowbit_a8_block")) {
            kit_execute(&k, p.c, program, "matmul_lowbit_a8_block", "sm_120a");
            compare(&p, group, "matmul_lowbit_a8_block for sm_120a");
        }
        const char *tensor = lowbit_kernels[LOWBIT_TENSOR + (size_t)_i % 3];
        if (s == 1 && has_kernel(program, tensor)) {
            kit_execute(&k, p.c, program, tensor, "sm_100a");
            compare(&p, group, tensor);
        }
        product_free(&p);
    }
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

/* ---- both ---- */

/* A stack of 512 matrices, of which every fifth has rows, and two a tile and more. */
START_TEST(many_matrices_are_multiplied) {
    static const scaled_form scaled = {
        "EXPERTS=true", "f8_e4m3", "f8_e4m3", "f32", "bf16", 128, 128, 0, 0, 0, 0, 0};
    static const lowbit_form lowbit = {
        "EXPERTS=true GROUP=0", "u4", "i8", "f32", "f16", 0, false, false, false};
    enum { MANY = 512 };
    int32_t offsets[MANY + 1] = {0};
    for (size_t e = 0; e < MANY; e++)
        offsets[e + 1] = offsets[e] + (e == 77 || e == 511 ? 70 : e % 5 == 0 ? 1 + (int32_t)e % 3 : 0);
    const size_t size[] = {(size_t)offsets[MANY], 16, 128};
    kernel_kit k = kit_open(_i == 0 ? "matmul_scaled.vasm" : "matmul_lowbit_a8.vasm",
                            _i == 0 ? scaled.define : lowbit.define);
    product p = _i == 0 ? scaled_stack(&k, &scaled, size, MANY, offsets)
                        : lowbit_stack(&k, &lowbit, size, MANY, offsets);
    static const char *const kernels[2][3] = {
        {"matmul_scaled", "matmul_scaled_plain", "matmul_scaled_64x64"},
        {"matmul_lowbit_a8", "matmul_lowbit_a8_plain", "matmul_lowbit_a8_16x64"}};
    for (size_t i = 0; i < 3; i++) {
        kit_launch(&k, kernels[_i][i]);
        compare(&p, 128, kernels[_i][i]);
    }
    product_free(&p);
    kit_close(&k);
}
END_TEST

/* The first row of a product is that of the product with the other rows left out, and of every other variant.
 */
START_TEST(rows_do_not_depend_on_each_other) {
    enum { N = 72 };
    static const size_t size[] = {150, N, 256};
    double row[N];
    char path[5000];
    const char *file = _i == 0 ? "matmul_scaled.vasm" : "matmul_lowbit_a8.vasm";
    kernel_kit k = kit_open(file, "GROUP=128");
    tvm_ir_program *program = assemble_file(program_path(file, path), "GROUP=128");
    product p = _i == 0 ? scaled_new(&k, &scaled_forms[0], size) : lowbit_new(&k, &lowbit_forms[0], size);
    const char *const *kernels = _i == 0 ? scaled_kernels : lowbit_kernels;
    for (size_t v = 0; v < (_i == 0 ? (size_t)SCALED_KERNELS : (size_t)LOWBIT_KERNELS); v++) {
        /* those add halves of k up otherwise */
        if (strstr(kernels[v], "a8_64x64") != NULL || strstr(kernels[v], "a8_16x64") != NULL) continue;
        if (!has_kernel(program, kernels[v])) continue;
        k.arguments[0].i = v % 2 ? 1 : 150;
        kit_launch(&k, kernels[v]);
        for (size_t j = 0; j < N && v == 0; j++) row[j] = p.c->values[j];
        ck_assert_msg(!memcmp(row, p.c->values, sizeof row), "%s", kernels[v]);
    }
    product_free(&p);
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

static const struct {
    const char *file, *define, *target;
} compiled[] = {
    {"matmul_scaled.vasm", "GROUP=128", "sm_80"},
    {"matmul_scaled.vasm", "GROUP=128 BIAS=true OTYPE=f32", "sm_90a"},
    {"matmul_scaled.vasm", "BY_GROUP=true", "sm_90a"},
    {"matmul_scaled.vasm", "GROUP=0 BIAS=true", "sm_90a"},
    {"matmul_scaled.vasm", "GROUP=32", "sm_90a"},
    {"matmul_scaled.vasm", "GROUP=32", "sm_120a"},
    {"matmul_scaled.vasm", "GROUP=32", "sm_89"},
    {"matmul_scaled.vasm", "GROUP=0", "sm_89"},
    {"matmul_lowbit_a8.vasm", "GROUP=128 BIAS=true", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "GROUP=0", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "ATYPE=f8_e4m3", "sm_80"},
    {"matmul_lowbit_a8.vasm", "ATYPE=f8_e4m3 ZEROS=true GROUP=32", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "LEVELS=true ZEROS=true GROUP=64", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "WTYPE=f6_e3m2 ATYPE=f8_e4m3", "sm_89"},
    {"matmul_lowbit_a8.vasm", "WTYPE=u7 ZEROS=true", "sm_100a"},
    {"matmul_lowbit_a8.vasm", "ATYPE=f8_e4m3 ZEROS=true GROUP=32", "sm_103a"},
    {"matmul_lowbit_a8.vasm", "WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0", "sm_110a"},
    {"matmul_lowbit_a8.vasm", "LEVELS=true", "sm_110a"},
    {"matmul_lowbit_a8.vasm", "WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0", "sm_120a"},
    {"matmul_lowbit_a8.vasm", "WTYPE=f6_e3m2 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0 BIAS=true", "sm_121a"},
    {"matmul_scaled.vasm", "GROUP=32", "sm_100a"},
    {"matmul_scaled.vasm", "GROUP=128 BIAS=true", "sm_103a"},
    {"matmul_scaled.vasm", "T=i8 OTYPE=f32", "sm_110a"},
    {"matmul_scaled.vasm", "TB=f4_e2m1 BIAS=true", "sm_100a"},
    {"matmul_scaled.vasm", "TB=f6_e3m2 GROUP=32 OTYPE=f32", "sm_103a"},
    {"matmul_scaled.vasm", "T=f4_e2m1 GROUP=32", "sm_110a"},
    {"matmul_scaled.vasm", "T=f4_e2m1 GROUP=16 ALPHA=true BIAS=true", "sm_100a"},
    {"matmul_scaled.vasm", "TB=f6_e2m3 GROUP=0", "sm_120a"},
    {"matmul_scaled.vasm", "TB=f4_e2m1 GROUP=32", "sm_121a"},
    {"matmul_scaled.vasm", "T=f4_e2m1 GROUP=32 BIAS=true", "sm_120a"},
    {"matmul_scaled.vasm", "T=f4_e2m1 GROUP=16 ALPHA=true", "sm_121a"},
    {"matmul_scaled.vasm", "TB=f4_e2m1", "sm_90a"},
    {"matmul_scaled.vasm", "EXPERTS=true", "sm_90a"},
    {"matmul_scaled.vasm", "EXPERTS=true BY_GROUP=true", "sm_90a"},
    {"matmul_scaled.vasm", "EXPERTS=true GROUP=32", "sm_89"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true ATYPE=f8_e4m3 ZEROS=true GROUP=32", "sm_80"},
    {"matmul_scaled.vasm", "EXPERTS=true GROUP=0 T=i8", "sm_90a"},
    {"matmul_scaled.vasm", "EXPERTS=true GROUP=0 BIAS=true", "sm_90a"},
    {"matmul_scaled.vasm", "EXPERTS=true", "sm_80"},
    {"matmul_scaled.vasm", "EXPERTS=true", "sm_100a"},
    {"matmul_scaled.vasm", "EXPERTS=true GROUP=32", "sm_100a"},
    {"matmul_scaled.vasm", "EXPERTS=true GROUP=32", "sm_120a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true BIAS=true", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true GROUP=0", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true ATYPE=f8_e4m3 ZEROS=true GROUP=32", "sm_90a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true", "sm_100a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true WTYPE=f4_e2m1 ATYPE=f8_e4m3 GROUP=32 STYPE=e8m0", "sm_100a"},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true", "sm_89"},
};
enum { COMPILED = sizeof compiled / sizeof *compiled };

START_TEST(compiles) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path(compiled[_i].file, path), compiled[_i].define);
    compiles_without_spills(program, compiled[_i].define, compiled[_i].target);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(other_constants_are_refused) {
    static const char *const refused[][3] = {
        {"matmul_scaled.vasm", "T=f16", "T must be f8_e4m3"},
        {"matmul_scaled.vasm", "TB=i8", "TB must be T"},
        {"matmul_scaled.vasm", "T=i8 GROUP=0", "matmul.vasm"},
        {"matmul_scaled.vasm", "GROUP=64", "GROUP must be 0, 16, 32 or 128"},
        {"matmul_scaled.vasm", "T=f4_e2m1", "GROUP=32 and GROUP=16"},
        {"matmul_scaled.vasm", "GROUP=16", "GROUP=16 goes with T=f4_e2m1"},
        {"matmul_scaled.vasm", "T=i8 TB=f4_e2m1", "TB must be T"},
        {"matmul_scaled.vasm", "GROUP=32 ALPHA=true", "ALPHA goes with GROUP=16"},
        {"matmul_scaled.vasm", "GROUP=32 STYPE=f32", "with GROUP=32 e8m0"},
        {"matmul_scaled.vasm", "ONE_A=true", "GROUP=0"},
        {"matmul_scaled.vasm", "BY_GROUP=true GROUP=0", "BY_GROUP goes with"},
        {"matmul_scaled.vasm", "OTYPE=f8_e4m3", "OTYPE must be"},
        {"matmul_lowbit_a8.vasm", "ATYPE=f16", "ATYPE must be i8"},
        {"matmul_lowbit_a8.vasm", "WTYPE=u8", "at most 7 bits"},
        {"matmul_lowbit_a8.vasm", "WTYPE=f4_e2m1", "ATYPE=f8_e4m3"},
        {"matmul_lowbit_a8.vasm", "WTYPE=u6 ATYPE=f8_e4m3", "ATYPE must be i8"},
        {"matmul_lowbit_a8.vasm", "WTYPE=f7_e5m1 ATYPE=f8_e4m3", "does not have the values"},
        {"matmul_lowbit_a8.vasm", "WTYPE=i4 ZEROS=true", "unsigned"},
        {"matmul_lowbit_a8.vasm", "GROUP=16", "GROUP must be 0, 32, 64 or 128"},
        {"matmul_lowbit_a8.vasm", "LEVELS=true GROUP=0", "LEVELS goes with"},
    };
    char path[5000];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        is_refused(program_path(refused[i][0], path), refused[i][1], refused[i][2]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("matmul_act8");
    TCase *tests = suite_case(suite, "matmul_act8");
    tcase_add_loop_test(tests, operands_with_scales_are_multiplied, 0, SCALED_FORMS);
    tcase_add_loop_test(tests, random_shapes_are_multiplied, 0, 2);
    tcase_add_loop_test(tests, weights_of_fewer_bits_are_multiplied, 0, LOWBIT_FORMS);
    tcase_add_loop_test(tests, many_matrices_are_multiplied, 0, 2);
    tcase_add_loop_test(tests, rows_do_not_depend_on_each_other, 0, 2);
    tcase_add_loop_test(tests, compiles, 0, COMPILED);
    tcase_add_test(tests, other_constants_are_refused);
    return run_suite(suite);
}
