/* programs/matmul_lowbit.vasminc with scales of 8 bits: every variant on the interpreter against float64 and
 * weights and scales decoded here, by the formulas of OCP's MX 1.0 (e8m0) and OFP8 1.0 (f8_e4m3). Scales that
 * are powers of two, and products of f4_e2m1 with f8_e4m3, are exact, so that errors are those of the sums.
 */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent_kit.h"
#include "lowbit_reference.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "tvm.h"
#include "type_kit.h"

typedef struct scaled_form {
    const char *define; /* but for the type of activations */
    bool bf16, is_power, is_table;
    long group;
    weight_type weight;
} scaled_form;

static const scaled_form forms[] = {
    {"WTYPE=f4_e2m1 STYPE=f8_e4m3 GROUP=16 FACTOR=true", false, false, false, 16, {'f', 4, 2, 1, NULL}},
    {"WTYPE=f4_e2m1 STYPE=f8_e4m3 GROUP=16 FACTOR=true", true, false, false, 16, {'f', 4, 2, 1, NULL}},
    {"WTYPE=f4_e2m1 STYPE=e8m0 GROUP=32 FACTOR=true", false, true, false, 32, {'f', 4, 2, 1, NULL}},
    {"WTYPE=f4_e2m1 STYPE=e8m0 GROUP=32 FACTOR=true", true, true, false, 32, {'f', 4, 2, 1, NULL}},
    {"WTYPE=u4 BOOK=\"e2m1\" STYPE=e8m0 GROUP=32 FACTOR=true", true, true, true, 32, {'f', 4, 2, 1, NULL}},
    {"WTYPE=u4 BOOK=\"e2m1\" STYPE=f8_e4m3 GROUP=16 FACTOR=true",
     true,
     false,
     true,
     16,
     {'f', 4, 2, 1, NULL}},
    {"WTYPE=f6_e3m2 STYPE=e8m0 GROUP=32 FACTOR=true", true, true, false, 32, {'f', 6, 3, 2, NULL}},
    {"WTYPE=u4 STYPE=f8_e4m3 GROUP=64 FACTOR=true", false, false, false, 64, {'u', 4, 0, 0, NULL}},
};
enum { FORMS = sizeof forms / sizeof *forms };

static void form_define(const scaled_form *f, char define[160]) {
    const char *half = f->bf16 ? "bf16" : "f16";
    snprintf(define, 160, "%s ATYPE=%s OTYPE=%s", f->define, half, half);
}

static double scale_value(bool is_power, unsigned code) {
    if (is_power) return ldexp(1, (int)code - 127);
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -magnitude : magnitude;
}

/* Signs, subnormals and large ones of f8_e4m3, but not NaN; of e8m0 2^-9 to 2^3. */
static uint8_t scale_code(bool is_power, uint32_t random) {
    uint32_t some = random >> 8;
    return (uint8_t)(is_power         ? 118 + some % 13
                     : some % 16 == 0 ? some >> 8 & 7
                                      : (some >> 8) % 0x68 | (some & 0x80));
}

static uint32_t next(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

typedef struct product {
    long m, n, k;
    uint16_t *a, *c;
    uint8_t *w, *p, *s;
    float factor;
    double *expected;
} product;

static void *zeroed(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    ck_assert_ptr_nonnull(memory);
    return memset(memory, 0, (bytes + 64) / 64 * 64);
}

static void make_product(const scaled_form *f, product *o, long m, long n, long k) {
    uint32_t state = (uint32_t)(m + 3 * n + 7 * k);
    unsigned bits = (unsigned)f->weight.bits;
    *o = (product){.m = m, .n = n, .k = k, .factor = 0.375f};
    o->a = zeroed((size_t)(m * k) * 2), o->c = zeroed((size_t)(m * n) * 2);
    o->w = zeroed((size_t)(k * n) * bits / 8), o->s = zeroed((size_t)(k / f->group * n));
    o->expected = zeroed((size_t)(m * n) * sizeof(double));
    double *w = zeroed((size_t)(k * n) * sizeof(double));
    for (long i = 0; i < k / f->group * n; i++) o->s[i] = scale_code(f->is_power, next(&state));
    for (long i = 0; i < k * n; i++) {
        unsigned code = next(&state) >> 16 & ((1u << bits) - 1);
        for (unsigned b = 0; b < bits; b++)
            if (code >> b & 1)
                o->w[((size_t)i * bits + b) / 8] |= (uint8_t)(1u << ((size_t)i * bits + b) % 8);
        double value = weight_value(f->weight, code) - (f->weight.kind == 'u' ? 1 << (bits - 1) : 0);
        w[i] = value * scale_value(f->is_power, o->s[i / n / f->group * n + i % n]);
    }
    for (long i = 0; i < m * k; i++) {
        uint32_t some = next(&state) >> 8;
        o->a[i] = half_code(f->bf16, some & 1, (int)(some >> 1) % 4 - 4, some >> 4 & 1023);
        double a = half_value(f->bf16, o->a[i]);
        for (long j = 0; j < n; j++) o->expected[i / k * n + j] += a * w[i % k * n + j];
    }
    for (long i = 0; i < m * n; i++) o->expected[i] *= (double)o->factor;
    free(w);
}

static void free_product(product *o) {
    void *const memory[] = {o->a, o->c, o->w, o->p, o->s, o->expected};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

static tvm_kernel *kernel_of(tvm_context *context, tvm_program *code, const char *name) {
    tvm_kernel *kernel = NULL;
    ck_assert_msg(tvm_get_kernel(code, name, &kernel) == TVM_OK, "%s", tvm_message(context));
    return kernel;
}

static void pack(tvm_context *context, tvm_program *code, product *o) {
    tvm_kernel *kernel = kernel_of(context, code, "pack");
    tvm_value sizes[4] = {{.i = o->k}, {.i = o->n}};
    int64_t shape[8];
    size_t bytes;
    ck_assert_int_eq(tvm_param_shape(kernel, 3, sizes, 4, shape, &bytes), TVM_OK);
    o->p = zeroed(bytes);
    ck_assert_int_eq(tvm_launch(kernel, NULL, (int)o->k, (int)o->n, o->w, o->p), TVM_OK);
}

static void is_expected(const scaled_form *f, const product *o, const char *kernel) {
    double difference = 0, norm = 0;
    for (long i = 0; i < o->m * o->n; i++) {
        double d = half_value(f->bf16, o->c[i]) - o->expected[i];
        difference += d * d, norm += o->expected[i] * o->expected[i];
    }
    /* The result's rounding, half a unit of the last place at most, and that of weights u4 times a scale. */
    double error = sqrt(difference / norm), bound = f->bf16 ? 2.4e-3 : 3.5e-4;
    ck_assert_msg(error <= bound, "%s: %s: m %ld n %ld k %ld: relative Frobenius error %g", f->define, kernel,
                  o->m, o->n, o->k, error);
}

static void multiplies(tvm_context *context, tvm_program *code, const scaled_form *f, product *o,
                       const char *kernel) {
    memset(o->c, 0x7f, (size_t)(o->m * o->n) * 2);
    ck_assert_msg(tvm_launch(kernel_of(context, code, kernel), NULL, (int)o->m, (int)o->n, (int)o->k, o->a,
                             o->p, o->s, &o->factor, o->c) == TVM_OK,
                  "%s", tvm_message(context));
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    is_expected(f, o, kernel);
}

/* Two products as a stack of two experts: rows and matrices stand one behind the other. */
static void multiply_stacked(tvm_context *context, tvm_program *code, const scaled_form *f, product o[2],
                             const char *kernel) {
    const long m = o[0].m + o[1].m, n = o[0].n, k = o[0].k;
    const size_t packed = (size_t)((n + 63) / 64 * 64 * k) * (unsigned)f->weight.bits / 8,
                 scales = (size_t)(k / f->group * n);
    uint16_t *a = zeroed((size_t)(m * k) * 2), *c = zeroed((size_t)(m * n) * 2);
    uint8_t *p = zeroed(2 * packed), *s = zeroed(2 * scales);
    _Alignas(64) const int32_t offsets[] = {0, (int32_t)o[0].m, (int32_t)m};
    _Alignas(64) const float factors[] = {o[0].factor, o[1].factor};
    for (size_t i = 0, row = 0; i < 2; row += (size_t)o[i++].m) {
        memcpy(a + row * (size_t)k, o[i].a, (size_t)(o[i].m * k) * 2);
        memcpy(p + i * packed, o[i].p, packed), memcpy(s + i * scales, o[i].s, scales);
    }
    ck_assert_msg(tvm_launch(kernel_of(context, code, kernel), NULL, (int)m, (int)n, (int)k, 2, a, offsets, p,
                             s, factors, c) == TVM_OK,
                  "%s", tvm_message(context));
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
    for (size_t i = 0, row = 0; i < 2; row += (size_t)o[i++].m) {
        memcpy(o[i].c, c + row * (size_t)n, (size_t)(o[i].m * n) * 2);
        is_expected(f, &o[i], kernel);
    }
    free(a), free(c), free(p), free(s);
}

static tvm_program *opened(const char *define, unsigned target, tvm_context **context) {
    char path[5000];
    size_t size = 0;
    tvm_context_options options = {
        .device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = "", .target = target, .multiprocessors = 3};
    tvm_program *code;
    uint8_t *bytes = bytecode_of(program_path("matmul_lowbit_u4.vasm", path), define, &size);
    ck_assert_int_eq(tvm_context_create(&options, context), TVM_OK);
    ck_assert_int_eq(tvm_load(*context, bytes, size, &code), TVM_OK);
    free(bytes);
    return code;
}

/* A third of the variants, another one for each form, without TVM_TEST_ALL; the entry always. */
START_TEST(scales_of_8_bits_multiply) {
    const scaled_form *f = &forms[_i / 2];
    const unsigned target = _i % 2 ? 100 : 90;
    char define[160];
    tvm_context *context;
    form_define(f, define);
    tvm_program *code = opened(define, target, &context);
    product o;
    make_product(f, &o, 19, 144, 256);
    pack(context, code, &o);
    multiplies(context, code, f, &o, "matmul_lowbit");
    for (size_t k = 0; k < tvm_kernel_count(code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(code, k));
        if (lowbit_runs_on(kernel, target) && test_takes((unsigned)k + (unsigned)_i, 3))
            multiplies(context, code, f, &o, kernel);
    }
    int status = tvm_launch(kernel_of(context, code, "matmul_lowbit"), NULL, 1, 136, 256, o.a, o.p, o.s,
                            &o.factor, o.c);
    ck_assert_int_eq(status, TVM_ARGUMENT); /* rows of scales are no whole 16 bytes */
    free_product(&o);
    tvm_program_free(code);
    tvm_context_free(context);
}
END_TEST

START_TEST(stacks_have_scales_of_8_bits) {
    const scaled_form *f = &forms[_i];
    char form[160], define[200];
    tvm_context *context;
    form_define(f, form);
    snprintf(define, sizeof define, "%s EXPERTS=true", form);
    tvm_program *code = opened(define, 90, &context);
    product o[2];
    for (size_t i = 0; i < 2; i++) {
        make_product(f, &o[i], i ? 70 : 19, 144, 256);
        pack(context, code, &o[i]);
    }
    multiply_stacked(context, code, f, o, "matmul_lowbit");
    for (size_t k = 0; k < tvm_kernel_count(code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(code, k));
        if (lowbit_runs_on(kernel, 90) && test_takes((unsigned)k + (unsigned)_i, 6))
            multiply_stacked(context, code, f, o, kernel);
    }
    for (size_t i = 0; i < 2; i++) free_product(&o[i]);
    tvm_program_free(code);
    tvm_context_free(context);
}
END_TEST

/* One kernel of each engine without TVM_TEST_ALL. */
START_TEST(scales_of_8_bits_compile) {
    static const char *const kernels[] = {
        "_mma_8x64x8",       "_mma_16x256x1", "_64x128x1", "_128x192x2_persistent",
        "_stream_256x256x2", "_mma_64x256x2", "_256x128x1"};
    char define[256], path[5000];
    for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        char form[160], name[64];
        if (!test_takes(i + (unsigned)_i, 3)) continue;
        form_define(&forms[_i], form);
        program_path("matmul_lowbit_u4.vasm", path);
        snprintf(name, sizeof name, "matmul_lowbit%s", kernels[i]);
        tvm_ir_program *all = assemble_file(path, form);
        bool ships = tvm_find_kernel(all, name) != NULL;
        tvm_ir_program_free(all);
        if (!ships) continue;
        snprintf(define, sizeof define, "%s ONLY=\"%s\"", form, kernels[i]);
        tvm_ir_program *program = assemble_file(path, define);
        compiles_without_spills(program, define, "sm_90a");
        tvm_ir_program_free(program);
    }
}
END_TEST

static Suite *scales_suite(void) {
    Suite *suite = suite_create("lowbit_scales");
    TCase *run = tcase_create("interpreter"), *compiled = tcase_create("ptxas");
    tcase_add_loop_test(run, scales_of_8_bits_multiply, 0, 2 * FORMS);
    tcase_add_loop_test(run, stacks_have_scales_of_8_bits, 0, FORMS);
    suite_add_tcase(suite, run);
    tcase_add_loop_test(compiled, scales_of_8_bits_compile, 0, FORMS);
    suite_add_tcase(suite, compiled);
    return suite;
}

int main(void) {
    return run_suite(scales_suite());
}
