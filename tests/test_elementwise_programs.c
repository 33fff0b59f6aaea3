/* The shipped programs that work element by element, on the interpreter against float64, at sizes of all
 * kinds; and through ptxas without a spill, with all their options. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { TYPES = 3 };

static const char *const type_names[TYPES] = {"f16", "bf16", "f32"};
/* One rounding to the type, and of f32 what the functions are off. */
static const double tolerances[TYPES] = {0x1p-10, 0x1p-7, 1e-5};

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static void near(const char *what, size_t i, double found, double want, double tolerance) {
    double least = fmax(fabs(want), 0x1p-14);
    ck_assert_msg(fabs(found - want) <= tolerance * least, "%s: element %zu is %.9g, expected %.9g", what, i,
                  found, want);
}

static void compiles(const char *file, const char *define) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path(file, path), define);
    compiles_without_spills(program, define, "sm_80");
    compiles_without_spills(program, define, "sm_90a");
    tvm_ir_program_free(program);
}

/* ---- vector_add ---- */

START_TEST(vectors_are_added) {
    static const char *const types[] = {"f16", "bf16", "f32", "f64", "i8", "u64"};
    static const size_t sizes[] = {1, 31, 4096, 4097, 10000};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        char define[32];
        snprintf(define, sizeof define, "T=%s", types[t]);
        kernel_kit k = kit_open("vector_add.vasm", define);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            kit_clear(&k);
            kit_scalar(&k, (double)sizes[s]);
            kit_tensor *x = kit_input(&k, type_of(types[t]), sizes[s], 0, 60),
                       *y = kit_input(&k, type_of(types[t]), sizes[s], 0, 60),
                       *z = kit_tensor_new(&k, type_of(types[t]), sizes[s]);
            kit_launch(&k, "vector_add");
            for (size_t i = 0; i < sizes[s]; i++) {
                double sum = tvm_decode(z->type, tvm_encode(z->type, x->values[i] + y->values[i]));
                near(define, i, z->values[i], sum, 0);
            }
        }
        kit_close(&k);
    }
}
END_TEST

/* ---- swiglu ---- */

static const char *const activations[] = {"silu", "gelu", "gelu_tanh"};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static double activate(unsigned activation, double a) {
    if (activation == 0) return a / (1 + exp(-a));
    if (activation == 1) return a * (1 + erf(a / sqrt(2))) / 2;
    return a * (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a))) / 2;
}

static const size_t row_sizes[][2] = {{1, 8}, {3, 1}, {2, 1027}, {5, 4096}, {1, 2056}};
enum { ROW_SIZES = sizeof row_sizes / sizeof *row_sizes };

static void check_swiglu(const char *define, unsigned activation, unsigned type) {
    kernel_kit k = kit_open("swiglu.vasm", define);
    for (size_t s = 0; s < ROW_SIZES; s++) {
        size_t m = row_sizes[s][0], n = row_sizes[s][1];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
        kit_tensor *x = kit_input(&k, type_of(type_names[type]), m * 2 * n, -8, 8),
                   *y = kit_tensor_new(&k, type_of(type_names[type]), m * n);
        kit_launch(&k, "swiglu");
        for (size_t i = 0; i < m * n; i++) {
            double a = x->values[i / n * 2 * n + i % n], b = x->values[i / n * 2 * n + n + i % n];
            double want = activate(activation, a) * b;
            /* of a gelu the sum 1 + tanh cancels where a is far below zero */
            double tolerance = activation > 0 && a < -1 ? 0.02 : tolerances[type];
            near(define, i, y->values[i], want, tolerance);
        }
    }
    kit_close(&k);
}

START_TEST(gated_units_are_those_of_float64) {
    for (unsigned a = 0; a < ACTIVATIONS; a++) {
        char define[64];
        snprintf(define, sizeof define, "ACT=%s T=%s", activations[a], type_names[_i]);
        check_swiglu(define, a, (unsigned)_i);
        compiles("swiglu.vasm", define);
    }
}
END_TEST

/* ---- quantize_rows ---- */

static const char *const outputs[] = {"i8", "f8_e4m3", "f8_e5m2"};
static const double greatest[] = {127, 448, 57344};

/* Element and scale of a group that begins at `from`, `group` long. */
static void check_group(const char *define, const double *v, size_t group, double scale, const double *found,
                        tvm_dtype type, double most) {
    double largest = 0;
    for (size_t i = 0; i < group; i++) largest = fmax(largest, fabs(v[i]));
    near(define, 0, scale, largest == 0 ? 1 : largest / most, 1e-6);
    for (size_t i = 0; i < group; i++) {
        /* the product with the reciprocal is within a few units of the quotient: either neighbour of a tie */
        double exact = largest == 0 ? 0 : v[i] * (most / largest);
        double below = exact * (1 - 4e-7), above = exact * (1 + 4e-7);
        bool whole = type.kind == TVM_KIND_INT;
        double low = whole ? rint(below) : tvm_decode(type, tvm_encode(type, below)),
               high = whole ? rint(above) : tvm_decode(type, tvm_encode(type, above));
        ck_assert_msg(found[i] == low || found[i] == high, "%s: element %zu is %g, expected %g (%g)", define,
                      i, found[i], low, exact);
    }
}

static void check_quantize(const char *define, unsigned t, unsigned o, size_t group, bool gated, size_t m,
                           size_t n) {
    bool by_group = strstr(define, "BY_GROUP") != NULL;
    kernel_kit k = kit_open("quantize_rows.vasm", define);
    tvm_dtype type = type_of(type_names[t]);
    size_t width = gated ? 2 * n : n, each = group ? group : n, scales = m * n / each;
    kit_scalar(&k, (double)m), kit_scalar(&k, (double)n);
    kit_tensor *x = kit_input(&k, type, m * width, -3, 3),
               *y = kit_tensor_new(&k, type_of(outputs[o]), m * n),
               *s = kit_tensor_new(&k, type_of("f32"), by_group ? n / each * ((m + 3) / 4 * 4) : scales);
    for (size_t i = 0; i < each && m > 1; i++) x->values[width + i] = 0; /* a group of zeros */
    kit_write(&k, x);
    kit_launch(&k, gated ? "swiglu_quantize_rows" : "quantize_rows");
    double *v = calloc(m * n, sizeof *v);
    ck_assert_ptr_nonnull(v);
    for (size_t i = 0; i < m * n; i++) {
        double a = x->values[i / n * width + i % n];
        v[i] = a;
        if (gated) v[i] = (double)(float)(a / (1 + exp(-a))) * x->values[i / n * width + n + i % n];
        v[i] = tvm_decode(type, tvm_encode(type, v[i]));
    }
    size_t of_row = n / each, row_step = by_group ? 1 : of_row, group_step = by_group ? (m + 3) / 4 * 4 : 1;
    for (size_t g = 0; g < scales && !gated; g++)
        check_group(define, v + g * each, each, s->values[g / of_row * row_step + g % of_row * group_step],
                    y->values + g * each, y->type, greatest[o]);
    /* gated: the rounding of the product to T may fall the other way */
    for (size_t i = 0; i < m * n && gated; i++) {
        double scale = s->values[i / n * row_step + i % n / each * group_step];
        near(define, i, y->values[i] * scale, v[i], 0.13 + 0.6 * scale / fmax(fabs(v[i]), 1e-4));
    }
    free(v);
    kit_close(&k);
}

START_TEST(rows_are_quantized) {
    static const size_t groups[] = {0, 128}, odd_lengths[] = {1001, 301, 5001};
    for (unsigned i = 0; i < 12; i++) {
        unsigned t = (unsigned)_i, o = i % 3;
        size_t group = groups[i / 3 % 2];
        bool gated = i / 6;
        char define[96];
        snprintf(define, sizeof define, "T=%s OTYPE=%s GROUP=%zu%s", type_names[t], outputs[o], group,
                 group && o ? " BY_GROUP=true" : "");
        check_quantize(define, t, o, group, gated, 3, 256);
        if (i % 3 == 0) check_quantize(define, t, o, group, gated, 2, group ? 4096 + 128 : 4096 + 72);
        if (group == 0 && (o == 0 || !gated)) check_quantize(define, t, o, group, gated, 2, odd_lengths[o]);
        /* more rows than the interpreter has multiprocessors */
        if (group == 0 && o == 1)
            check_quantize(define, t, o, group, gated, gated ? 2 : 6, gated ? 16389 : 16392);
        if (group == 0 && o == 2) check_quantize(define, t, o, group, gated, 1, 9001);
        if (!gated) compiles("quantize_rows.vasm", define);
    }
}
END_TEST

/* MXFP8: the scale is a power of two, that of the greatest magnitude less the type's own; what is then too
 * large becomes the greatest number. */
START_TEST(groups_are_quantized_as_mxfp8) {
    enum { M = 3, N = 320, GROUP = 32 };
    static const int exponents[] = {0, 8, 15};
    for (unsigned o = 1; o < 3; o++) {
        char define[96];
        snprintf(define, sizeof define, "T=f32 OTYPE=%s GROUP=32 STYPE=e8m0", outputs[o]);
        kernel_kit k = kit_open("quantize_rows.vasm", define);
        kit_scalar(&k, M), kit_scalar(&k, N);
        kit_tensor *x = kit_input(&k, type_of("f32"), (size_t)M * N, -1, 1),
                   *y = kit_tensor_new(&k, type_of(outputs[o]), (size_t)M * N),
                   *s = kit_tensor_new(&k, type_of("e8m0"), (size_t)M * N / GROUP);
        for (size_t i = 0; i < (size_t)M * N; i++) x->values[i] *= ldexp(1, (int)(i / GROUP % 9) * 25 - 120);
        for (size_t i = 0; i < GROUP; i++) x->values[i] = 0;
        kit_write(&k, x);
        kit_launch(&k, "quantize_rows");
        for (size_t g = 0; g < (size_t)M * N / GROUP; g++) {
            double most = 0;
            for (size_t i = 0; i < GROUP; i++) most = fmax(most, fabs(x->values[g * GROUP + i]));
            double scale = most == 0 ? 0 : ldexp(1, (int)floor(log2(most)) - exponents[o]);
            scale = fmax(scale, 0x1p-126);
            ck_assert_msg(s->values[g] == scale, "%s: scale %zu is %g, expected %g", define, g, s->values[g],
                          scale);
            for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++)
                ck_assert(y->values[i] == tvm_decode(y->type, tvm_encode(y->type, x->values[i] / scale)));
        }
        kit_close(&k);
        compiles("quantize_rows.vasm", define);
    }
}
END_TEST

/* MXFP4, as MXFP8; and NVFP4: the scale of 16 is the greatest magnitude of them, divided by 6, as f8_e4m3,
 * which the tensor may be divided by a number of f32 before. */
static double scale_of_4_bits(bool nv, double most) {
    if (!nv) return fmax(most == 0 ? 0 : ldexp(1, (int)floor(log2(most)) - 2), 0x1p-126);
    tvm_dtype type = type_of("f8_e4m3");
    return tvm_decode(type,
                      tvm_encode(type, fmin(fmax((double)((float)most * (float)(1 / 6.0)), 0x1p-9), 448)));
}

static const char *const four_bits[] = {"T=f32 OTYPE=f4_e2m1 GROUP=32 STYPE=e8m0",
                                        "T=f32 OTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3",
                                        "T=f32 OTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 TWO_SCALES=true"};

/* Are y and s those of the count values v, divided by `whole`? Quotients may be off by `error`. */
static void check_four_bits(unsigned form, const double *v, size_t count, const kit_tensor *y,
                            const kit_tensor *s, double whole, double error) {
    size_t group = form ? 16 : 32;
    for (size_t g = 0; g < count / group; g++) {
        double most = 0;
        for (size_t i = 0; i < group; i++)
            most = fmax(most, fabs((double)((float)v[g * group + i] / (float)whole)));
        double scale = scale_of_4_bits(form > 0, most);
        ck_assert_msg(s->values[g] == scale, "%s: scale %zu is %g, expected %g", four_bits[form], g,
                      s->values[g], scale);
        for (size_t i = 0; i < group; i++) { /* either neighbour of a tie */
            double quotient = (double)((float)v[g * group + i] / (float)whole) / scale;
            double found = y->values[g * group + i];
            ck_assert(found == tvm_decode(y->type, tvm_encode(y->type, quotient * (1 + error))) ||
                      found == tvm_decode(y->type, tvm_encode(y->type, quotient * (1 - error))));
        }
    }
}

START_TEST(groups_are_quantized_to_four_bits) {
    enum { M = 3, N = 320 };
    size_t group = _i ? 16 : 32, groups = (size_t)M * N / group;
    kernel_kit k = kit_open("quantize_rows.vasm", four_bits[_i]);
    kit_scalar(&k, M), kit_scalar(&k, N);
    kit_tensor *x = kit_input(&k, type_of("f32"), (size_t)M * N, -1, 1),
               *y = kit_tensor_new(&k, type_of("f4_e2m1"), (size_t)M * N),
               *s = kit_tensor_new(&k, type_of(_i ? "f8_e4m3" : "e8m0"), groups);
    const kit_tensor *whole = _i == 2 ? kit_input(&k, type_of("f32"), 1, 2, 3) : NULL;
    int step = _i ? 3 : 25, first = _i ? -14 : -120;
    for (size_t i = 0; i < (size_t)M * N; i++) x->values[i] *= ldexp(1, (int)(i / group % 9) * step + first);
    for (size_t i = 0; i < group; i++) x->values[i] = 0;
    kit_write(&k, x);
    kit_launch(&k, "quantize_rows");
    check_four_bits((unsigned)_i, x->values, (size_t)M * N, y, s, whole ? whole->values[0] : 1, 2e-7);
    kit_close(&k);
    compiles("quantize_rows.vasm", four_bits[_i]);
}
END_TEST

/* The norm of a row, in float64; b: of layer_norm, else NULL. */
static void expect_norm(const double *x, const double *w, const double *b, size_t n, double eps,
                        double *norm) {
    double mean = 0, squares = 0;
    for (size_t j = 0; b && j < n; j++) mean += x[j] / (double)n;
    for (size_t j = 0; j < n; j++) squares += (x[j] - mean) * (x[j] - mean) / (double)n;
    for (size_t j = 0; j < n; j++) norm[j] = (x[j] - mean) / sqrt(squares + eps) * w[j] + (b ? b[j] : 0);
}

/* Are y and s the norm, in numbers of 8 bits with a scale for so many columns? A number may be the neighbour
 * of the nearest one, as sums of f32 are off by a little. */
static void check_eight_bits(const char *define, const double *norm, size_t m, size_t n, size_t group,
                             bool by_group, const kit_tensor *y, const kit_tensor *s) {
    double qmax = y->type.kind == TVM_KIND_INT ? 127 : 448;
    for (size_t g = 0; g < m * n / group; g++) {
        size_t row = g * group / n, rows = (m + 3) / 4 * 4;
        double most = 0, scale = s->values[by_group ? g % (n / group) * rows + row : g];
        for (size_t i = 0; i < group; i++) most = fmax(most, fabs(norm[g * group + i]));
        near(define, g, scale, most / qmax, 1e-5);
        for (size_t i = g * group; i < (g + 1) * group; i++) {
            double step = y->type.kind == TVM_KIND_INT ? scale : fmax(fabs(norm[i]) / 8, scale * 0x1p-9);
            ck_assert_msg(fabs(y->values[i] * scale - norm[i]) <= 0.501 * step, "%s: element %zu", define, i);
        }
    }
}

/* The norms that programs quantize, whose results are computed here in float64. */
static const struct {
    const char *program, *entry;
    bool shifts; /* by the mean and a bias */
} norms[] = {{"rms_norm.vasm", "rms_norm", false}, {"layer_norm.vasm", "layer_norm", true}};
enum { NORMS = sizeof norms / sizeof *norms, FOUR_BITS = sizeof four_bits / sizeof *four_bits };

/* Starts the norm's launch: m and n, eps, and inputs of which *norm is the norm. */
static void norm_inputs(kernel_kit *k, unsigned which, size_t m, size_t n, double *norm) {
    double eps = 0x1p-10;
    kit_clear(k);
    kit_scalar(k, (double)m), kit_scalar(k, (double)n), kit_scalar(k, eps);
    const kit_tensor *x = kit_input(k, type_of("f32"), m * n, -4, 4),
                     *w = kit_input(k, type_of("f32"), n, 0.5, 2),
                     *b = norms[which].shifts ? kit_input(k, type_of("f32"), n, -1, 1) : NULL;
    for (size_t i = 0; i < m; i++)
        expect_norm(x->values + i * n, w->values, b ? b->values : NULL, n, eps, norm + i * n);
}

START_TEST(norms_are_quantized_to_four_bits) {
    enum { M = 3, N = 320 };
    double norm[M * N];
    unsigned which = (unsigned)_i / FOUR_BITS, form = (unsigned)_i % FOUR_BITS;
    kernel_kit k = kit_open(norms[which].program, four_bits[form]);
    norm_inputs(&k, which, M, N, norm);
    kit_tensor *y = kit_tensor_new(&k, type_of("f4_e2m1"), (size_t)M * N),
               *s = kit_tensor_new(&k, type_of(form ? "f8_e4m3" : "e8m0"), (size_t)M * N / (form ? 16 : 32));
    const kit_tensor *whole = form == 2 ? kit_input(&k, type_of("f32"), 1, 0.01, 0.02) : NULL;
    kit_launch(&k, norms[which].entry);
    check_four_bits(form, norm, (size_t)M * N, y, s, whole ? whole->values[0] : 1, 1e-6);
    kit_close(&k);
    compiles(norms[which].program, four_bits[form]);
}
END_TEST

/* Rows that fill a tile and rows that do not, a row of odd length, and rows that blocks walk along. */
START_TEST(norms_are_quantized_to_eight_bits) {
    static const struct {
        const char *define;
        size_t group;
        bool by_group;
    } forms[] = {{"T=f32 OTYPE=i8", 0, false},
                 {"T=f32 OTYPE=f8_e4m3", 0, false},
                 {"T=f32 OTYPE=f8_e4m3 GROUP=128", 128, false},
                 {"T=f32 OTYPE=i8 GROUP=64 BY_GROUP=true", 64, true}};
    static const size_t sizes[][2] = {{3, 256}, {5, 1152}, {2, 16384}, {3, 255}, {70, 7}, {2, 8189}};
    unsigned which = (unsigned)_i / 4;
    size_t group = forms[_i % 4].group;
    const char *define = forms[_i % 4].define;
    kernel_kit k = kit_open(norms[which].program, define);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t m = sizes[i][0], n = sizes[i][1], each = group ? group : n;
        double *norm = calloc(m * n, sizeof *norm);
        ck_assert_ptr_nonnull(norm);
        if (n % each == 0) {
            norm_inputs(&k, which, m, n, norm);
            kit_tensor *y = kit_tensor_new(&k, type_of(_i % 4 % 3 ? "f8_e4m3" : "i8"), m * n),
                       *s = kit_tensor_new(&k, type_of("f32"),
                                           n / each * (forms[_i % 4].by_group ? (m + 3) / 4 * 4 : m));
            kit_launch(&k, norms[which].entry);
            check_eight_bits(define, norm, m, n, each, forms[_i % 4].by_group, y, s);
        }
        free(norm);
    }
    kit_close(&k);
    compiles(norms[which].program, define);
}
END_TEST

/* ---- rope ---- */

static void check_rope(const char *define, unsigned t, bool interleaved, size_t tokens, size_t heads,
                       size_t d) {
    enum { MAX = 40 };
    kernel_kit k = kit_open("rope.vasm", define);
    tvm_dtype type = type_of(type_names[t]);
    const double sizes[] = {MAX, (double)tokens, (double)heads, (double)d};
    for (unsigned i = 0; i < 4; i++) kit_scalar(&k, sizes[i]);
    kit_tensor *positions = kit_input(&k, type_of("i32"), tokens, 0, MAX - 1),
               *table = kit_input(&k, type_of("f32"), MAX * d, -1, 1),
               *x = kit_input(&k, type, tokens * heads * d, -4, 4),
               *y = kit_tensor_new(&k, type, tokens * heads * d);
    kit_launch(&k, "rope");
    for (size_t i = 0; i < tokens * heads * (d / 2); i++) {
        size_t row = i / (d / 2), pair = i % (d / 2), p = (size_t)positions->values[row / heads];
        size_t first = row * d + (interleaved ? 2 * pair : pair), second = first + (interleaved ? 1 : d / 2);
        double cosine = table->values[p * d + pair], sine = table->values[p * d + d / 2 + pair];
        double a = x->values[first] * cosine - x->values[second] * sine,
               b = x->values[second] * cosine + x->values[first] * sine;
        /* of a difference that cancels, the rounding of its terms is left */
        double left = 4 * (fabs(cosine) + fabs(sine)) * 1.2e-7;
        near(define, first, y->values[first], a, tolerances[t] + left / fmax(fabs(a), 0x1p-14));
        near(define, second, y->values[second], b, tolerances[t] + left / fmax(fabs(b), 0x1p-14));
    }
    kit_close(&k);
}

START_TEST(heads_are_turned) {
    static const size_t sizes[][3] = {{3, 17, 128}, {2, 5, 64}, {5, 33, 80},
                                      {1, 3, 6},    {2, 9, 48}, {1, 130, 2}};
    static const char *const styles[] = {"half", "interleaved"};
    for (unsigned i = 0; i < 2; i++) {
        char define[64];
        snprintf(define, sizeof define, "T=%s STYLE=%s", type_names[_i], styles[i]);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            check_rope(define, (unsigned)_i, i == 1, sizes[s][0], sizes[s][1], sizes[s][2]);
        compiles("rope.vasm", define);
    }
}
END_TEST

START_TEST(impossible_options_are_refused) {
    char path[5000];
    is_refused(program_path("swiglu.vasm", path), "ACT=relu", "ACT must be silu, gelu or gelu_tanh");
    is_refused(program_path("rope.vasm", path), "STYLE=third", "STYLE must be half or interleaved");
    is_refused(program_path("quantize_rows.vasm", path), "OTYPE=f16", "OTYPE must be");
    is_refused(program_path("quantize_rows.vasm", path), "GROUP=100", "GROUP must be");
    is_refused(program_path("quantize_rows.vasm", path), "OTYPE=f4_e2m1", "with groups f4_e2m1");
    is_refused(program_path("quantize_rows.vasm", path), "GROUP=16 TWO_SCALES=true", "TWO_SCALES goes with");
    is_refused(program_path("quantize_rows.vasm", path), "STYPE=e8m0", "STYPE must be");
    for (unsigned i = 0; i < NORMS; i++) {
        program_path(norms[i].program, path);
        is_refused(path, "OTYPE=bf16", "OTYPE must be");
        is_refused(path, "GROUP=128", "GROUP must be");
        is_refused(path, "OTYPE=f4_e2m1", "with groups f4_e2m1");
        is_refused(path, "OTYPE=i8 GROUP=16 STYPE=f8_e4m3", "STYPE must be");
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("elementwise_programs");
    TCase *tests = tcase_create("programs");
    tcase_add_test(tests, vectors_are_added);
    tcase_add_loop_test(tests, gated_units_are_those_of_float64, 0, TYPES);
    tcase_add_loop_test(tests, rows_are_quantized, 0, TYPES);
    tcase_add_test(tests, groups_are_quantized_as_mxfp8);
    tcase_add_loop_test(tests, groups_are_quantized_to_four_bits, 0, 3);
    tcase_add_loop_test(tests, norms_are_quantized_to_four_bits, 0, NORMS * FOUR_BITS);
    tcase_add_loop_test(tests, norms_are_quantized_to_eight_bits, 0, NORMS * 4);
    tcase_add_loop_test(tests, heads_are_turned, 0, TYPES);
    tcase_add_test(tests, impossible_options_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
