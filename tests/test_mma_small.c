/* mma of floats of 4, 6 and 8 bits in any mix, and with scales of blocks (OCP MX, NVFP4): in the interpreter
 * and as the PTX machine executes the generated code, against float64 that decodes the elements on its own.
 */
#include "check_kit.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "compare_kit.h"
#include "interp.h"
#include "random_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { M = 32, N = 16, K = 128, BLOCKS = K / 16 };

/* ---- formats ---- */

/* OCP Microscaling Formats 1.0, tables 1, 2 and 4. */
typedef struct format {
    const char *name;
    unsigned exponent, mantissa;
    int bias;
    unsigned largest; /* code of the largest finite number */
} format;

static const format formats[] = {{"f8_e4m3", 4, 3, 7, 0x7e},
                                 {"f8_e5m2", 5, 2, 15, 0x7b},
                                 {"f6_e2m3", 2, 3, 1, 0x1f},
                                 {"f6_e3m2", 3, 2, 3, 0x1f},
                                 {"f4_e2m1", 2, 1, 1, 0x07}};
enum { FORMATS = sizeof formats / sizeof *formats, F4 = 4 };

static unsigned bits_of(const format *f) {
    return 1 + f->exponent + f->mantissa;
}

static double value_of(const format *f, unsigned code) {
    unsigned magnitude = code & ((1u << (bits_of(f) - 1)) - 1), exponent = magnitude >> f->mantissa,
             fraction = magnitude & ((1u << f->mantissa) - 1);
    double value = exponent
                       ? ldexp((1 << f->mantissa) + (int)fraction, (int)exponent - f->bias - (int)f->mantissa)
                       : ldexp((int)fraction, 1 - f->bias - (int)f->mantissa);
    return code >> (bits_of(f) - 1) ? -value : value;
}

/* Of magnitude `most` at most, of either sign. */
static unsigned random_code(const format *f, double most) {
    unsigned code;
    do code = (unsigned)random_bits() % (f->largest + 1);
    while (fabs(value_of(f, code)) > most);
    return code | (unsigned)(random_bits() % 2) << (bits_of(f) - 1);
}

/* ---- a product ---- */

typedef struct product {
    const format *a, *b;
    bool f16_sums;
    const char *scale; /* type of the scales; NULL: none */
    unsigned block;
} product;

typedef struct tensors {
    uint8_t a[M * K] __attribute__((aligned(16))), b[N * K] __attribute__((aligned(16)));
    uint8_t scale_a[M * BLOCKS] __attribute__((aligned(16))),
        scale_b[N * BLOCKS] __attribute__((aligned(16)));
    float y[M * N] __attribute__((aligned(16)));
    double want[M * N], size[M * N]; /* and the sum of the magnitudes */
} tensors;

static double scale_of(const product *p, uint8_t code) {
    return p->block == 16 ? value_of(&formats[0], code & 0x7f)
           : code == 255  ? (double)NAN
                          : ldexp(1, code - 127);
}

static void fill(const product *p, tensors *x) {
    double most = p->f16_sums ? 4 : DBL_MAX;
    for (unsigned i = 0; i < M * K; i++)
        tvm_bits_set(x->a, (uint64_t)i * bits_of(p->a), bits_of(p->a), random_code(p->a, most));
    for (unsigned i = 0; i < N * K; i++)
        tvm_bits_set(x->b, (uint64_t)i * bits_of(p->b), bits_of(p->b), random_code(p->b, most));
    /* of f8_e4m3 the sign is anything */
    for (unsigned i = 0; i < M * BLOCKS; i++)
        x->scale_a[i] =
            (uint8_t)(p->block == 16 ? random_code(&formats[0], DBL_MAX) : 107 + random_bits() % 40);
    for (unsigned i = 0; i < N * BLOCKS; i++)
        x->scale_b[i] =
            (uint8_t)(p->block == 16 ? random_code(&formats[0], DBL_MAX) : 107 + random_bits() % 40);
}

static void compute(const product *p, tensors *x) {
    for (unsigned m = 0; m < M; m++)
        for (unsigned n = 0; n < N; n++) {
            double sum = 1, size = 1;
            for (unsigned k = 0; k < K; k++) {
                double a = value_of(p->a, (unsigned)tvm_bits_get(x->a, (uint64_t)(m * K + k) * bits_of(p->a),
                                                                 bits_of(p->a))),
                       b = value_of(p->b, (unsigned)tvm_bits_get(x->b, (uint64_t)(n * K + k) * bits_of(p->b),
                                                                 bits_of(p->b)));
                if (p->scale) a *= scale_of(p, x->scale_a[m * (K / p->block) + k / p->block]);
                if (p->scale) b *= scale_of(p, x->scale_b[n * (K / p->block) + k / p->block]);
                sum += a * b;
                size += fabs(a * b);
            }
            x->want[m * N + n] = sum;
            x->size[m * N + n] = size;
        }
}

/* Rows of 6 bits are no multiple of what a thread loads at once, of which there is a warning. */
static tvm_ir_program *assemble_warned(const char *text) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags);
    if (status != TVM_OK) tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_msg(status == TVM_OK, "not assembled:\n%s", text);
    tvm_diags_free(&diags);
    return program;
}

/* The operands in registers, or as tiles of shared tensors. */
static tvm_ir_program *make_program(const product *p, bool is_shared) {
    char text[2048], scales[256] = "", loads[256] = "";
    const char *a = p->a->name, *b = p->b->name;
    if (p->scale) {
        unsigned blocks = K / p->block;
        snprintf(scales, sizeof scales, "s: global %s[%d, %u], t: global %s[%d, %u], ", p->scale, M, blocks,
                 p->scale, N, blocks);
        snprintf(loads, sizeof loads,
                 "%%s = load-global s[0, 0], [%d, %u]\n%%t = transpose(load-global(t[0, 0], [%d, %u]))\n", M,
                 blocks, N, blocks);
    }
    snprintf(
        text, sizeof text,
        ".vasm 7\n.kernel k(a: global %s[%d, %d], b: global %s[%d, %d], %sy: global f32[%d, %d])\n"
        ".warps 2\n.grid 1\n%%a = load-global a[0, 0], [%d, %d]\n%%bt = load-global b[0, 0], [%d, %d]\n%s"
        "%%c = alloc-register %s[%d, %d], init 1.0\n",
        a, M, K, b, N, K, scales, M, N, M, K, N, K, loads, p->f16_sums ? "f16" : "f32", M, N);
    size_t used = strlen(text);
    if (is_shared)
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "%%sa = alloc-shared %s[%d, %d]\n%%sb = alloc-shared %s[%d, %d]\nstore-shared %%sa, %%a\n"
            "store-shared %%sb, %%bt\nsync\n%%d = mma %%sa[0, 0], %%sb[0, 0], %%c, transpose_b, k %d",
            a, M, K, b, N, K, K);
    else
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%%b = transpose %%bt\n%%d = mma %%a, %%b, %%c");
    snprintf(text + used, sizeof text - used, "%s\nstore-global y[0, 0], cast(%%d, f32)\n.end\n",
             p->scale ? ", scale_a %s, scale_b %t" : "");
    return assemble_warned(text);
}

static void expect_sums(const product *p, const tensors *x, const char *where) {
    double rounding = p->f16_sums ? 0x1p-11 * K / 32 : 0x1p-24 * K;
    for (unsigned i = 0; i < M * N; i++)
        ck_assert_msg(fabs((double)x->y[i] - x->want[i]) <= rounding * x->size[i],
                      "%s, %s x %s%s%s: element %u is %g, expected %g", where, p->a->name, p->b->name,
                      p->scale ? " by " : "", p->scale ? p->scale : "", i, (double)x->y[i], x->want[i]);
}

static unsigned arguments(const product *p, tensors *x, tvm_interp_arg args[5]) {
    unsigned count = 0;
    args[count++] = (tvm_interp_arg){.data = x->a};
    args[count++] = (tvm_interp_arg){.data = x->b};
    if (p->scale) args[count++] = (tvm_interp_arg){.data = x->scale_a};
    if (p->scale) args[count++] = (tvm_interp_arg){.data = x->scale_b};
    args[count++] = (tvm_interp_arg){.data = x->y};
    return count;
}

/* The targets have the instructions for ptxas, too, where there is one. */
static void expect_accepted(tvm_module *module, const char *target) {
    char *path = NULL;
    tvm_diags diags = {0};
    if (tvm_ptxas_find(&path, NULL) == TVM_OK) {
        tvm_status status = tvm_ptxas(module, path, &diags);
        tvm_diags_print(&diags, stderr, target, false);
        ck_assert_msg(status == TVM_OK, "ptxas refuses the code for %s", target);
    }
    tvm_diags_free(&diags);
    free(path);
}

/* `says`: in the PTX for sm_120a. */
static void check_product(const product *p, bool is_shared, const char *says) {
    static const char *const targets[] = {"sm_80", "sm_90a", "sm_120a", "sm_121a"};
    static tensors x;
    float interpreted[M * N];
    tvm_interp_arg args[5];
    fill(p, &x);
    compute(p, &x);
    unsigned count = arguments(p, &x, args);
    tvm_ir_program *program = make_program(p, is_shared);
    run_interpreter(program, "k", args, one_block);
    expect_sums(p, &x, "interpreter");
    memcpy(interpreted, x.y, sizeof interpreted);
    for (unsigned t = 0; t < sizeof targets / sizeof *targets; t++) {
        bool is_120 = strncmp(targets[t], "sm_12", 5) == 0;
        tvm_module *module = translate(program, targets[t]);
        memset(x.y, 0xff, sizeof x.y);
        run_translated(module, "k", args, count, one_block);
        expect_sums(p, &x, targets[t]);
        /* there each fragment is one instruction, and the machine adds in the order of k */
        if (is_120) ck_assert_mem_eq(x.y, interpreted, sizeof interpreted);
        if (is_120 && p->a == p->b && !is_shared) expect_accepted(module, targets[t]);
        ck_assert_msg((strstr(module->ptx, says) != NULL) == is_120, "%s: %s in the PTX", targets[t], says);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}

/* ---- tests ---- */

START_TEST(any_two_formats_are_multiplied) {
    const format *a = &formats[_i / FORMATS], *b = &formats[_i % FORMATS];
    bool old = _i / FORMATS < 2 && _i % FORMATS < 2;
    check_product(&(product){.a = a, .b = b, .f16_sums = true}, _i % 2 == 0, ".kind::f8f6f4.f16.");
    if (!old) check_product(&(product){.a = a, .b = b}, _i % 2 == 1, ".kind::f8f6f4.f32.");
}
END_TEST

START_TEST(blocks_of_32_have_scales_of_e8m0) {
    const format *a = &formats[_i / FORMATS], *b = &formats[_i % FORMATS];
    bool both_f4 = _i == F4 * FORMATS + F4;
    check_product(&(product){.a = a, .b = b, .scale = "e8m0", .block = 32}, _i % 2 == 0,
                  both_f4 ? ".kind::mxf4.block_scale.scale_vec::2X."
                          : ".kind::mxf8f6f4.block_scale.scale_vec::1X.");
}
END_TEST

START_TEST(blocks_of_16_have_scales_of_f8_e4m3) {
    product p = {.a = &formats[F4], .b = &formats[F4], .scale = "f8_e4m3", .block = 16};
    check_product(&p, _i == 0, ".kind::mxf4nvf4.block_scale.scale_vec::4X.");
}
END_TEST

/* Row 5 of a and column 3 of b have a scale that is NaN: so is what it is a factor of, and nothing else. */
START_TEST(a_scale_that_is_nan_is_one_of_its_row_or_column) {
    static tensors x;
    static const char *const targets[] = {NULL, "sm_80", "sm_120a"};
    product p = {.a = &formats[F4],
                 .b = &formats[_i ? F4 : 0],
                 .scale = _i ? "f8_e4m3" : "e8m0",
                 .block = _i ? 16 : 32};
    tvm_interp_arg args[5];
    fill(&p, &x);
    x.scale_a[5 * (K / p.block) + 3] = _i ? 0x7f : 0xff;
    x.scale_b[3 * (K / p.block) + 1] = 0xff;
    unsigned count = arguments(&p, &x, args);
    tvm_ir_program *program = make_program(&p, false);
    for (unsigned t = 0; t < 3; t++) {
        tvm_module *module = t ? translate(program, targets[t]) : NULL;
        if (t)
            run_translated(module, "k", args, count, one_block);
        else
            run_interpreter(program, "k", args, one_block);
        for (unsigned i = 0; i < M * N; i++)
            ck_assert_msg((isnan(x.y[i]) != 0) == (i / N == 5 || i % N == 3), "%s: element %u is %g",
                          t ? targets[t] : "interpreter", i, (double)x.y[i]);
        if (t) tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* ---- tiles of bytes, of which each 16 begin with 16 elements ---- */

/* PTX ISA, "ldmatrix", .b4x16_p64 and .b6x16_p32: what is behind the elements is padding, of any bits. */
static void put_apart(const format *f, const uint8_t *codes, unsigned count, uint8_t *bytes) {
    unsigned bits = bits_of(f);
    for (unsigned i = 0; i < count; i++) bytes[i] = (uint8_t)random_bits();
    for (unsigned i = 0; i < count; i++)
        tvm_bits_set(bytes + i / 16 * 16, (uint64_t)(i % 16) * bits, bits,
                     tvm_bits_get(codes, (uint64_t)i * bits, bits));
}

static const char *word_of(const format *f, const char *word, char text[24]) {
    text[0] = '\0';
    if (bits_of(f) < 8) snprintf(text, 24, ", %s %s", word, f->name);
    return text;
}

/* Two products, of half of k each, of which the second begins within the rows. */
static tvm_ir_program *make_apart(const product *p) {
    char text[2048], type_a[24], type_b[24], scales[2][128] = {"", ""};
    const char *a = bits_of(p->a) < 8 ? "u8" : p->a->name, *b = bits_of(p->b) < 8 ? "u8" : p->b->name;
    for (unsigned h = 0; p->scale && h < 2; h++)
        snprintf(scales[h], sizeof scales[h], ", scale_a %%s%u, scale_b transpose(%%t%u)", h, h);
    size_t used =
        (size_t)snprintf(text, sizeof text, ".vasm 7\n.kernel k(a: global %s[%d, %d], b: global %s[%d, %d], ",
                         a, M, K, b, N, K);
    if (p->scale)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "s: global e8m0[%d, %d], t: global e8m0[%d, %d], ", M, K / 32, N, K / 32);
    used += (size_t)snprintf(
        text + used, sizeof text - used,
        "y: global f32[%d, %d])\n.warps 2\n.grid 1\n.assume has(mma_f8f6f4) || limit(shared_memory) == 0\n"
        "%%sa = alloc-shared %s[%d, %d]\n%%sb = alloc-shared %s[%d, %d]\n"
        "store-shared %%sa, load-global(a[0, 0], [%d, %d])\nstore-shared %%sb, load-global(b[0, 0], [%d, %d])\n"
        "sync\n%%c = alloc-register %s[%d, %d], init 1.0\n",
        M, N, a, M, K, b, N, K, M, K, N, K, p->f16_sums ? "f16" : "f32", M, N);
    for (unsigned h = 0; h < 2; h++) {
        if (p->scale)
            used += (size_t)snprintf(
                text + used, sizeof text - used,
                "%%s%u = load-global s[0, %u], [%d, %d]\n%%t%u = load-global t[0, %u], [%d, %d]\n", h,
                h * K / 64, M, K / 64, h, h * K / 64, N, K / 64);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%%c = mma %%sa[0, %u], %%sb[0, %u], %%c, transpose_b, k %d%s%s%s\n",
                                 h * K / 2, h * K / 2, K / 2, scales[h], word_of(p->a, "type_a", type_a),
                                 word_of(p->b, "type_b", type_b));
    }
    snprintf(text + used, sizeof text - used, "store-global y[0, 0], cast(%%c, f32)\n.end\n");
    return assemble_warned(text);
}

static void expect_unpacked(const char *ptx, const format *f) {
    const char *form =
        bits_of(f) == 4 ? ".m8n16.x4.shared.b8x16.b4x16_p64 " : ".m8n16.x4.shared.b8x16.b6x16_p32 ";
    if (bits_of(f) < 8) ck_assert_msg(strstr(ptx, form) != NULL, "no ldmatrix%s", form);
}

static void check_apart(const product *p) {
    static const char *const targets[] = {"sm_120a", "sm_121a", "sm_120f"};
    static tensors x;
    static uint8_t apart_a[M * K] __attribute__((aligned(16))), apart_b[N * K] __attribute__((aligned(16)));
    float interpreted[M * N];
    tvm_interp_arg args[5];
    fill(p, &x);
    compute(p, &x);
    put_apart(p->a, x.a, M * K, apart_a);
    put_apart(p->b, x.b, N * K, apart_b);
    unsigned count = arguments(p, &x, args);
    args[0].data = apart_a;
    args[1].data = apart_b;
    tvm_ir_program *program = make_apart(p);
    run_interpreter(program, "k", args, one_block);
    expect_sums(p, &x, "interpreter");
    memcpy(interpreted, x.y, sizeof interpreted);
    for (unsigned t = 0; t < sizeof targets / sizeof *targets; t++) {
        tvm_module *module = translate(program, targets[t]);
        memset(x.y, 0xff, sizeof x.y);
        run_translated(module, "k", args, count, one_block);
        ck_assert_mem_eq(x.y, interpreted, sizeof interpreted);
        expect_unpacked(module->ptx, p->a);
        expect_unpacked(module->ptx, p->b);
        if (t == 0) expect_accepted(module, targets[t]);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}

/* Every mix with an element of less than 8 bits, first those whose a is one; sums of f32 or f16, or scales.
 */
enum { NARROW = 3, WIDE = FORMATS - NARROW, MIXES = NARROW * FORMATS + WIDE * NARROW };

START_TEST(elements_apart_are_unpacked_by_ldmatrix) {
    int i = _i - NARROW * FORMATS;
    const format *a = i < 0 ? &formats[WIDE + _i / FORMATS] : &formats[i / NARROW],
                 *b = i < 0 ? &formats[_i % FORMATS] : &formats[WIDE + i % NARROW];
    check_apart(&(product){.a = a, .b = b, .f16_sums = _i % 2 == 0});
    if (a != b || a != &formats[F4]) check_apart(&(product){.a = a, .b = b, .scale = "e8m0", .block = 32});
}
END_TEST

/* ---- matrices that are quantized, of any size ---- */

enum { ROWS = 70, COLUMNS = 41, DEPTH = 256, GROUPS = DEPTH / 16 };

typedef struct quantized {
    const format *type;
    unsigned block;
    uint8_t codes[ROWS * DEPTH] __attribute__((aligned(16))),
        scales[ROWS * GROUPS] __attribute__((aligned(16)));
    double given[ROWS * DEPTH], value[ROWS * DEPTH]; /* before, and what code and scale are */
} quantized;

/* The code whose value is next to x. */
static unsigned nearest(const format *f, double x) {
    unsigned best = 0;
    for (unsigned code = 0; code <= f->largest; code++)
        if (fabs(value_of(f, code) - fabs(x)) < fabs(value_of(f, best) - fabs(x))) best = code;
    return best | (unsigned)(x < 0) << (bits_of(f) - 1);
}

/* MX 1.0, 6.3: the power of two of the largest magnitude, over that of the format. NVFP4: the largest
 * magnitude is next to 6. */
static uint8_t choose_scale(const quantized *q, const double *block) {
    double most = 0;
    int power, own;
    for (unsigned i = 0; i < q->block; i++) most = fmax(most, fabs(block[i]));
    if (q->block == 16) return (uint8_t)nearest(&formats[0], most / value_of(q->type, q->type->largest));
    frexp(most, &power);
    frexp(value_of(q->type, q->type->largest), &own);
    return (uint8_t)(127 + power - own);
}

static void quantize(quantized *q, unsigned rows, const product *p) {
    for (unsigned at = 0; at < rows * DEPTH; at += q->block) {
        int spread = (int)(random_bits() % 8) - 4; /* blocks of various sizes */
        for (unsigned i = at; i < at + q->block; i++)
            q->given[i] = ldexp((double)(int64_t)(random_bits() % 20001) - 10000, spread - 13);
        uint8_t scale = q->scales[at / q->block] = choose_scale(q, q->given + at);
        for (unsigned i = at; i < at + q->block; i++) {
            unsigned code = nearest(q->type, q->given[i] / scale_of(p, scale));
            tvm_bits_set(q->codes, (uint64_t)i * bits_of(q->type), bits_of(q->type), code);
            q->value[i] = value_of(q->type, code) * scale_of(p, scale);
        }
    }
}

static tvm_ir_program *make_matmul(const product *p) {
    char text[2048];
    snprintf(
        text, sizeof text,
        ".vasm 7\n.const G = %u\n.kernel k(m: i32, n: i32, k: i32, a: global %s[m, k], s: global %s[m, k / G],\n"
        "    b: global %s[n, k], t: global %s[n, k / G], y: global f32[m, n])\n.warps 4\n"
        ".grid cdiv(m, 32), cdiv(n, 32)\n.assume m >= 0, n >= 0, k >= 0, k %% 128 == 0\n"
        "%%c = alloc-register f32[32, 32], init 0.0\n%%m = block.x * 32\n%%n = block.y * 32\n"
        "for %%k = 0 to k step 128\n%%a = load-global a[%%m, %%k], [32, 128]\n"
        "%%b = transpose(load-global(b[%%n, %%k], [32, 128]))\n"
        "%%s = load-global s[%%m, %%k / G], [32, 128 / G]\n"
        "%%t = transpose(load-global(t[%%n, %%k / G], [32, 128 / G]))\n"
        "%%c = mma %%a, %%b, %%c, scale_a %%s, scale_b %%t\nend\nstore-global y[%%m, %%n], %%c\n.end\n",
        p->block, p->a->name, p->scale, p->b->name, p->scale);
    return assemble_warned(text);
}

/* The sums against float64, and how far quantizing moves them: by a few of the thousand parts. */
static void expect_matmul(const quantized *a, const quantized *b, const float *y, const char *where) {
    double moved = 0, all = 0;
    for (unsigned m = 0; m < ROWS; m++)
        for (unsigned n = 0; n < COLUMNS; n++) {
            double want = 0, size = 0, plain = 0;
            for (unsigned k = 0; k < DEPTH; k++) {
                want += a->value[m * DEPTH + k] * b->value[n * DEPTH + k];
                size += fabs(a->value[m * DEPTH + k] * b->value[n * DEPTH + k]);
                plain += a->given[m * DEPTH + k] * b->given[n * DEPTH + k];
            }
            ck_assert_msg(fabs((double)y[m * COLUMNS + n] - want) <= 0x1p-24 * DEPTH * size,
                          "%s: y[%u, %u] is %g, expected %g", where, m, n, (double)y[m * COLUMNS + n], want);
            moved += ((double)y[m * COLUMNS + n] - plain) * ((double)y[m * COLUMNS + n] - plain);
            all += plain * plain;
        }
    ck_assert_msg(sqrt(moved / all) < 0.25, "%s: quantized by %g of the size", where, sqrt(moved / all));
}

START_TEST(quantized_matrices_are_multiplied) {
    static const product all[] = {
        {.a = &formats[F4], .b = &formats[0], .scale = "e8m0", .block = 32},     /* MXFP4 by MXFP8 */
        {.a = &formats[F4], .b = &formats[F4], .scale = "f8_e4m3", .block = 16}, /* NVFP4 */
    };
    static quantized a, b;
    static float y[2][ROWS * COLUMNS] __attribute__((aligned(16)));
    const product *p = &all[_i];
    const uint32_t grid[3] = {(ROWS + 31) / 32, (COLUMNS + 31) / 32, 1};
    a.type = p->a, b.type = p->b, a.block = b.block = p->block;
    quantize(&a, ROWS, p);
    quantize(&b, COLUMNS, p);
    tvm_interp_arg args[] = {{.scalar.i = ROWS}, {.scalar.i = COLUMNS}, {.scalar.i = DEPTH},
                             {.data = a.codes},  {.data = a.scales},    {.data = b.codes},
                             {.data = b.scales}, {.data = y[0]}};
    tvm_ir_program *program = make_matmul(p);
    tvm_module *module = translate(program, "sm_120a");
    run_interpreter(program, "k", args, grid);
    expect_matmul(&a, &b, y[0], "interpreter");
    args[7].data = y[1];
    run_translated(module, "k", args, 8, grid);
    ck_assert_mem_eq(y[1], y[0], sizeof y[0]);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mma_small");
    TCase *tests = suite_case(suite, "mma_small");
    tcase_add_loop_test(tests, any_two_formats_are_multiplied, 0, FORMATS * FORMATS);
    tcase_add_loop_test(tests, blocks_of_32_have_scales_of_e8m0, 0, FORMATS * FORMATS);
    tcase_add_loop_test(tests, blocks_of_16_have_scales_of_f8_e4m3, 0, 2);
    tcase_add_loop_test(tests, a_scale_that_is_nan_is_one_of_its_row_or_column, 0, 2);
    tcase_add_loop_test(tests, elements_apart_are_unpacked_by_ldmatrix, 0, MIXES);
    tcase_add_loop_test(tests, quantized_matrices_are_multiplied, 0, 2);
    return run_suite(suite);
}
