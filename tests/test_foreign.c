/* The kernels of tests/foreign, each of another kind, and none with a layout: their results on the
 * interpreter against float64, and their code. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

#define FOLDER "../tests/foreign/"

static kernel_kit opened(const char *name, const char *define) {
    char path[200];
    snprintf(path, sizeof path, FOLDER "%s.vasm", name);
    return kit_open(path, define);
}

static void is_near(const char *what, size_t at, double found, double want, double tolerance) {
    ck_assert_msg(fabs(found - want) <= tolerance * (fabs(want) > 1 ? fabs(want) : 1),
                  "%s: element %zu is %.9g, expected %.9g", what, at, found, want);
}

static void check(const char *what, const kit_tensor *found, const double *want, double tolerance) {
    for (size_t i = 0; i < found->count; i++) is_near(what, i, found->values[i], want[i], tolerance);
}

static double *doubles(size_t count) {
    double *values = calloc(count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

/* Whole numbers from 0 to below `end`. */
static kit_tensor *whole(kernel_kit *k, tvm_dtype type, size_t count, unsigned end) {
    kit_tensor *t = kit_tensor_new(k, type, count);
    for (size_t i = 0; i < count; i++) t->values[i] = floor(kit_random(k) * end);
    kit_write(k, t);
    return t;
}

static void scalars(kernel_kit *k, unsigned count, const double *values) {
    kit_clear(k);
    for (unsigned i = 0; i < count; i++) kit_scalar(k, values[i]);
}
#define SCALARS(k, ...)                                                                                      \
    scalars(k, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (const double[]){__VA_ARGS__})

#define I8   TVM_I(8)
#define I32  TVM_I(32)
#define U4   TVM_U(4)
#define F4   TVM_FLOAT(4, 2, 1)
#define E4M3 TVM_FLOAT(8, 4, 3)

/* ---- products with what is around them ---- */

START_TEST(experts_of_4_bits) {
    enum { TOKENS = 48, N = 72, K = 128, EXPERTS = 3, T = 16 };
    kernel_kit k = opened("moe_u4", "");
    SCALARS(&k, TOKENS, N, K, EXPERTS);
    kit_tensor *expert = whole(&k, I32, TOKENS / T, EXPERTS), *x = kit_input(&k, TVM_F16, TOKENS * K, -1, 1),
               *w = whole(&k, U4, EXPERTS * N * K, 16),
               *factor = kit_input(&k, TVM_F16, EXPERTS * N, 0.01, 0.1),
               *y = kit_tensor_new(&k, TVM_F16, TOKENS * N);
    kit_launch(&k, "moe_u4");
    double *want = doubles(TOKENS * N);
    for (size_t i = 0; i < TOKENS * N; i++) {
        size_t row = i / N, e = (size_t)expert->values[row / T] * N + i % N;
        for (size_t l = 0; l < K; l++) want[i] += x->values[row * K + l] * (w->values[e * K + l] - 8);
        want[i] *= factor->values[e];
    }
    check("moe_u4", y, want, 1e-3);
    free(want);
    kit_close(&k);
}
END_TEST

START_TEST(integers_of_8_bits) {
    enum { M = 70, N = 136, K = 96 };
    kernel_kit k = opened("w8a8", "");
    SCALARS(&k, M, N, K);
    kit_tensor *a = kit_input(&k, I8, M * K, -127, 127), *b = kit_input(&k, I8, N * K, -127, 127),
               *rows = kit_input(&k, TVM_F32, M, 0.001, 0.01),
               *columns = kit_input(&k, TVM_F32, N, 0.001, 0.01), *bias = kit_input(&k, TVM_F16, N, -1, 1),
               *y = kit_tensor_new(&k, TVM_F16, M * N);
    kit_launch(&k, "w8a8");
    double *want = doubles(M * N);
    for (size_t i = 0; i < M * N; i++) {
        for (size_t l = 0; l < K; l++) want[i] += a->values[i / N * K + l] * b->values[i % N * K + l];
        want[i] = want[i] * rows->values[i / N] * columns->values[i % N] + bias->values[i % N];
    }
    check("w8a8", y, want, 1e-3);
    free(want);
    kit_close(&k);
}
END_TEST

START_TEST(microscaled_weights) {
    enum { M = 40, N = 72, K = 128 };
    unsigned group = _i ? 16 : 32;
    kernel_kit k = opened("mxfp4", _i ? "S=f8_e4m3 GROUP=16" : "");
    SCALARS(&k, M, N, K);
    kit_tensor *x = kit_input(&k, TVM_BF16, M * K, -1, 1), *w = kit_input(&k, F4, N * K, -6, 6);
    size_t scales = N * K / group;
    tvm_dtype type = _i ? E4M3 : TVM_E8M0;
    kit_tensor *s = kit_tensor_new(&k, type, scales);
    for (size_t i = 0; i < scales; i++) s->values[i] = ldexp(1, -(int)(kit_random(&k) * 4));
    kit_write(&k, s);
    kit_tensor *y = kit_tensor_new(&k, TVM_BF16, M * N);
    kit_launch(&k, "mxfp4");
    double *want = doubles(M * N);
    for (size_t i = 0; i < M * N; i++)
        for (size_t l = 0; l < K; l++)
            want[i] +=
                x->values[i / N * K + l] * w->values[i % N * K + l] * s->values[(i % N * K + l) / group];
    check("mxfp4", y, want, 0x1p-8);
    free(want);
    kit_close(&k);
}
END_TEST

START_TEST(adapters) {
    enum { TOKENS = 128, N = 136, K = 128, ADAPTERS = 3, T = 64, R = 16 };
    kernel_kit k = opened("sgmv", "");
    kit_clear(&k);
    kit_scalar(&k, TOKENS), kit_scalar(&k, N), kit_scalar(&k, K), kit_scalar(&k, ADAPTERS);
    kit_scalar(&k, 0.5);
    kit_tensor *adapter = whole(&k, I32, TOKENS / T, ADAPTERS),
               *x = kit_input(&k, TVM_F16, TOKENS * K, -1, 1),
               *a = kit_input(&k, TVM_F16, ADAPTERS * R * K, -0.2, 0.2),
               *b = kit_input(&k, TVM_F16, ADAPTERS * N * R, -1, 1),
               *y = kit_input(&k, TVM_F16, TOKENS * N, -1, 1);
    double *want = doubles(TOKENS * N), *before = doubles(TOKENS * N);
    memcpy(before, y->values, TOKENS * N * sizeof *before);
    kit_launch(&k, "sgmv");
    for (size_t i = 0; i < TOKENS * N; i++) {
        size_t row = i / N, l = (size_t)adapter->values[row / T];
        for (size_t r = 0; r < R; r++) {
            double v = 0;
            for (size_t c = 0; c < K; c++) v += x->values[row * K + c] * a->values[(l * R + r) * K + c];
            want[i] += 0.5 * v * b->values[(l * N + i % N) * R + r];
        }
        want[i] += before[i];
    }
    check("sgmv", y, want, 4e-3);
    free(want);
    free(before);
    kit_close(&k);
}
END_TEST

static void check_convolution(const char *name) {
    enum { IMAGES = 2, H = 3, W = 70, C = 40, N = 72 };
    kernel_kit k = opened(name, "");
    SCALARS(&k, IMAGES, H, W, C, N);
    kit_tensor *x = kit_input(&k, TVM_F16, IMAGES * H * W * C, -1, 1),
               *w = kit_input(&k, TVM_F16, 9 * N * C, -0.2, 0.2), *bias = kit_input(&k, TVM_F16, N, -1, 1),
               *y = kit_tensor_new(&k, TVM_F16, IMAGES * H * W * N);
    kit_launch(&k, name);
    double *want = doubles(y->count);
    for (size_t i = 0; i < y->count; i++) {
        int n = (int)(i % N), column = (int)(i / N % W), line = (int)(i / N / W % H),
            image = (int)(i / N / W / H);
        want[i] = bias->values[n];
        for (int tap = 0; tap < 9; tap++) {
            int r = line + tap / 3 - 1, s = column + tap % 3 - 1;
            if (r < 0 || r >= H || s < 0 || s >= W) continue;
            const double *pixel = &x->values[((image * H + r) * W + s) * C],
                         *taps = &w->values[(tap * N + n) * C];
            for (int c = 0; c < C; c++) want[i] += pixel[c] * taps[c];
        }
        want[i] = fmax(want[i], 0);
    }
    check(name, y, want, 2e-3);
    free(want);
    kit_close(&k);
}

START_TEST(taps_of_a_convolution) {
    check_convolution("convolution");
}
END_TEST

START_TEST(taps_of_a_tile_with_a_border) {
    check_convolution("convolution_halo");
}
END_TEST

START_TEST(parts_of_k) {
    enum { M = 70, N = 72, K = 512 };
    kernel_kit k = opened("split_k", "");
    SCALARS(&k, M, N, K);
    kit_tensor *a = kit_input(&k, TVM_F16, M * K, -0.5, 0.5), *b = kit_input(&k, TVM_F16, N * K, -0.5, 0.5),
               *bias = kit_input(&k, TVM_F16, N, -1, 1), *y = kit_tensor_new(&k, TVM_F16, M * N);
    kit_launch(&k, "split_k");
    double *want = doubles(M * N);
    for (size_t i = 0; i < M * N; i++) {
        for (size_t l = 0; l < K; l++) want[i] += a->values[i / N * K + l] * b->values[i % N * K + l];
        want[i] = fmax(want[i] + bias->values[i % N], 0);
    }
    check("split_k", y, want, 2e-3);
    free(want);
    kit_close(&k);
}
END_TEST

/* ---- products of products ---- */

START_TEST(latent_attention) {
    enum { BATCH = 2, N = 100, HEADS = 16, D = 576, DV = 512 };
    kernel_kit k = opened("mla_decode", "");
    kit_clear(&k);
    kit_scalar(&k, BATCH), kit_scalar(&k, N), kit_scalar(&k, 0.25);
    kit_tensor *q = kit_input(&k, TVM_BF16, BATCH * HEADS * D, -1, 1),
               *cache = kit_input(&k, TVM_BF16, BATCH * N * D, -1, 1),
               *o = kit_tensor_new(&k, TVM_BF16, BATCH * HEADS * DV);
    kit_launch(&k, "mla_decode");
    for (size_t row = 0; row < BATCH * HEADS; row++) {
        double s[N], top = -INFINITY, sum = 0;
        const double *keys = &cache->values[row / HEADS * N * D];
        for (size_t j = 0; j < N; j++) {
            s[j] = 0;
            for (size_t d = 0; d < D; d++) s[j] += 0.25 * q->values[row * D + d] * keys[j * D + d];
            top = fmax(top, s[j]);
        }
        for (size_t j = 0; j < N; j++) sum += s[j] = exp(s[j] - top);
        for (size_t d = 0; d < DV; d++) {
            double want = 0;
            for (size_t j = 0; j < N; j++) want += s[j] / sum * keys[j * D + d];
            is_near("mla_decode", row * DV + d, o->values[row * DV + d], want, 0x1p-7);
        }
    }
    kit_close(&k);
}
END_TEST

START_TEST(cross_entropy) {
    enum { M = 70, VOCABULARY = 300, K = 72 };
    kernel_kit k = opened("cross_entropy", "");
    SCALARS(&k, M, VOCABULARY, K);
    kit_tensor *h = kit_input(&k, TVM_F16, M * K, -1, 1), *w = kit_input(&k, TVM_F16, VOCABULARY * K, -1, 1),
               *label = whole(&k, I32, M, VOCABULARY), *loss = kit_tensor_new(&k, TVM_F32, M);
    kit_launch(&k, "cross_entropy");
    for (size_t i = 0; i < M; i++) {
        double sum = 0, hit = 0;
        for (size_t j = 0; j < VOCABULARY; j++) {
            double s = 0;
            for (size_t l = 0; l < K; l++) s += h->values[i * K + l] * w->values[j * K + l];
            sum += exp(s);
            if ((double)j == label->values[i]) hit = s;
        }
        is_near("cross_entropy", i, loss->values[i], log(sum) - hit, 1e-4);
    }
    kit_close(&k);
}
END_TEST

/* Row i of x times row j of y. */
static double dot(const kit_tensor *x, size_t i, const kit_tensor *y, size_t j, size_t width) {
    double sum = 0;
    for (size_t d = 0; d < width; d++) sum += x->values[i * width + d] * y->values[j * width + d];
    return sum;
}

START_TEST(attention_backward) {
    enum { N = 128, D = 64 };
    const double scale = 0.25;
    kernel_kit k = opened("attention_backward", "");
    kit_clear(&k);
    kit_scalar(&k, N), kit_scalar(&k, scale);
    kit_tensor *q = kit_input(&k, TVM_F16, N * D, -1, 1), *keys = kit_input(&k, TVM_F16, N * D, -1, 1),
               *v = kit_input(&k, TVM_F16, N * D, -1, 1), *grad = kit_input(&k, TVM_F16, N * D, -1, 1),
               *lse = kit_tensor_new(&k, TVM_F32, N), *delta = kit_tensor_new(&k, TVM_F32, N),
               *dk = kit_tensor_new(&k, TVM_F16, N * D), *dv = kit_tensor_new(&k, TVM_F16, N * D);
    double *p = doubles(N * N), *want_k = doubles(N * D), *want_v = doubles(N * D);
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (size_t j = 0; j < N; j++) sum += p[i * N + j] = exp(scale * dot(q, i, keys, j, D));
        lse->values[i] = log(sum);
        for (size_t j = 0; j < N; j++) delta->values[i] += (p[i * N + j] /= sum) * dot(grad, i, v, j, D);
    }
    kit_write(&k, lse);
    kit_write(&k, delta);
    kit_launch(&k, "attention_backward");
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            double ds = p[i * N + j] * (dot(grad, i, v, j, D) - delta->values[i]) * scale;
            for (size_t d = 0; d < D; d++) want_v[j * D + d] += p[i * N + j] * grad->values[i * D + d];
            for (size_t d = 0; d < D; d++) want_k[j * D + d] += ds * q->values[i * D + d];
        }
    check("dk", dk, want_k, 2e-3);
    check("dv", dv, want_v, 2e-3);
    free(p);
    free(want_k);
    free(want_v);
    kit_close(&k);
}
END_TEST

START_TEST(linear_attention) {
    enum { N = 192, D = 64 };
    kernel_kit k = opened("linear_attention", "");
    SCALARS(&k, N);
    kit_tensor *q = kit_input(&k, TVM_F16, N * D, -0.3, 0.3),
               *keys = kit_input(&k, TVM_F16, N * D, -0.3, 0.3), *v = kit_input(&k, TVM_F16, N * D, -1, 1),
               *gate = kit_input(&k, TVM_F32, N, -0.2, 0), *o = kit_tensor_new(&k, TVM_F16, N * D);
    double *state = doubles(D * D);
    kit_launch(&k, "linear_attention");
    for (size_t t = 0; t < N; t++)
        for (size_t c = 0; c < D; c++) {
            double want = 0;
            for (size_t d = 0; d < D; d++) {
                double *s = &state[d * D + c];
                *s = exp(gate->values[t]) * *s + keys->values[t * D + d] * v->values[t * D + c];
                want += q->values[t * D + d] * *s;
            }
            is_near("linear_attention", t * D + c, o->values[t * D + c], want, 4e-3);
        }
    free(state);
    kit_close(&k);
}
END_TEST

START_TEST(fourier_transform) {
    enum { ROWS = 6, N = 256 };
    const double turn = -2 * acos(-1) / N;
    kernel_kit k = opened("fft", "");
    SCALARS(&k, ROWS);
    kit_tensor *re = kit_input(&k, TVM_F32, ROWS * N, -1, 1), *im = kit_input(&k, TVM_F32, ROWS * N, -1, 1),
               *yre = kit_tensor_new(&k, TVM_F32, ROWS * N), *yim = kit_tensor_new(&k, TVM_F32, ROWS * N);
    kit_launch(&k, "fft");
    for (size_t i = 0; i < ROWS * N; i++) {
        double c = 0, d = 0;
        for (size_t l = 0; l < N; l++) {
            double x = re->values[i / N * N + l], y = im->values[i / N * N + l];
            double angle = turn * (double)(i % N * l % N);
            c += x * cos(angle) - y * sin(angle);
            d += x * sin(angle) + y * cos(angle);
        }
        is_near("fft", i, yre->values[i], c, 0.05);
        is_near("fft", i, yim->values[i], d, 0.05);
    }
    kit_close(&k);
}
END_TEST

/* ---- without products ---- */

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The token that stays, or is drawn; *sure: not within the rounding of another one. */
static size_t verified(const double *p, const double *q, size_t n, double top_p, size_t token,
                       const double *u, bool *sure) {
    double sorted[1024], mass = 0, kept = 0, rest = 0, sum = 0;
    memcpy(sorted, p, n * sizeof *p);
    qsort(sorted, n, sizeof *sorted, by_value);
    size_t count = 0;
    while (count < n && mass < top_p) mass += sorted[count++];
    double cut = sorted[count - 1];
    *sure = fabs(mass - top_p) > 1e-5 && fabs(mass - cut - top_p) > 1e-5;
    for (size_t i = 0; i < n; i++) kept += p[i] >= cut ? p[i] : 0;
    double of_p = p[token] >= cut ? p[token] / kept : 0;
    *sure = *sure && fabs(u[0] * q[token] - of_p) > 1e-6;
    if (u[0] * q[token] < of_p) return token;
    for (size_t i = 0; i < n; i++) rest += fmax((p[i] >= cut ? p[i] / kept : 0) - q[i], 0);
    for (size_t i = 0; i < n; i++) {
        sum += fmax((p[i] >= cut ? p[i] / kept : 0) - q[i], 0);
        if (fabs(sum - u[1] * rest) < 1e-6) *sure = false;
        if (sum > u[1] * rest) return i;
    }
    return n - 1;
}

START_TEST(verification) {
    enum { ROWS = 24, N = 1000 };
    kernel_kit k = opened("verify", "");
    kit_clear(&k);
    kit_scalar(&k, ROWS), kit_scalar(&k, N), kit_scalar(&k, 0.8);
    kit_tensor *p = kit_input(&k, TVM_F32, ROWS * N, 0, 1), *q = kit_input(&k, TVM_F32, ROWS * N, 0, 1);
    for (size_t r = 0; r < ROWS; r++) {
        double of_p = 0, of_q = 0;
        for (size_t i = r * N; i < (r + 1) * N; i++) of_p += p->values[i] = pow(p->values[i], 6);
        for (size_t i = r * N; i < (r + 1) * N; i++) of_q += q->values[i];
        for (size_t i = r * N; i < (r + 1) * N; i++) p->values[i] /= of_p, q->values[i] /= of_q;
    }
    kit_write(&k, p);
    kit_write(&k, q);
    kit_tensor *token = whole(&k, I32, ROWS, N), *u = kit_input(&k, TVM_F32, 2 * ROWS, 0, 1),
               *out = kit_tensor_new(&k, I32, ROWS);
    kit_launch(&k, "verify");
    unsigned compared = 0, stayed = 0;
    for (size_t r = 0; r < ROWS; r++) {
        bool sure;
        size_t want = verified(&p->values[r * N], &q->values[r * N], N, 0.8, (size_t)token->values[r],
                               &u->values[2 * r], &sure);
        if (!sure) continue;
        compared++;
        stayed += want == (size_t)token->values[r];
        is_near("verify", r, out->values[r], (double)want, 0);
    }
    ck_assert_uint_gt(compared, ROWS / 2);
    ck_assert_uint_gt(stayed, 0);
    ck_assert_uint_lt(stayed, compared);
    kit_close(&k);
}
END_TEST

/* ---- the code ---- */

/* As good as with the sums' layouts written (HAND): tensor instructions, and hardly more instructions. No
 * spills. */
static const struct {
    const char *name, *define;
    unsigned wgmma, mma;
    bool has_hand;
} codes[] = {
    {"moe_u4", "", 4, 0, true},
    {"w8a8", "", 2, 0, true},
    {"mxfp4", "", 4, 0, true},
    {"mxfp4", "S=f8_e4m3 GROUP=16", 4, 0, true},
    {"sgmv", "", 5, 0, true},
    {"convolution", "", 2, 0, true},
    {"convolution_halo", "", 18, 0, true},
    {"split_k", "", 4, 0, true},
    {"mla_decode", "", 0, 136, true},
    {"cross_entropy", "", 4, 0, true},
    {"attention_backward", "", 16, 0, true},
    {"linear_attention", "", 16, 0, true},
    {"fft", "", 0, 32, true},
    {"verify", "", 0, 0, false},
};

static unsigned count(const char *text, const char *what) {
    unsigned found = 0;
    for (; (text = strstr(text, what)) != NULL; text++) found++;
    return found;
}

START_TEST(code_is_as_good_as_written) {
    char path[5000], name[200], define[100];
    snprintf(name, sizeof name, FOLDER "%s.vasm", codes[_i].name);
    snprintf(define, sizeof define, "%s%s", codes[_i].define, codes[_i].has_hand ? " HAND=true" : "");
    tvm_ir_program *open = assemble_file(program_path(name, path), codes[_i].define),
                   *written = assemble_file(program_path(name, path), define);
    tvm_module *mine = translate(open, "sm_90a"), *best = translate(written, "sm_90a");
    ck_assert_uint_eq(count(mine->ptx, "wgmma.mma_async"), codes[_i].wgmma);
    ck_assert_uint_eq(count(mine->ptx, "mma.sync"), codes[_i].mma);
    ck_assert_uint_eq(count(best->ptx, "wgmma.mma_async"), codes[_i].wgmma);
    unsigned instructions = count(mine->ptx, ";"), of_best = count(best->ptx, ";");
    ck_assert_msg(100 * instructions <= 103 * of_best, "%s: %u instructions, written %u", codes[_i].name,
                  instructions, of_best);
    tvm_diags diags = {0};
    bool compile = test_all() && strcmp(mine->ptx, best->ptx) != 0;
    if (compile && tvm_ptxas(mine, NULL, &diags) == TVM_OK && tvm_ptxas(best, NULL, &diags) == TVM_OK)
        ck_assert_msg(100 * mine->kernels[0].registers <= 105 * best->kernels[0].registers,
                      "%s: %d registers, written %d", codes[_i].name, mine->kernels[0].registers,
                      best->kernels[0].registers);
    tvm_diags_free(&diags);
    tvm_module_free(mine);
    tvm_module_free(best);
    compiles_without_spills(open, codes[_i].name, "sm_90a");
    tvm_ir_program_free(open);
    tvm_ir_program_free(written);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("foreign");
    TCase *tests = tcase_create("foreign");
    tcase_add_test(tests, experts_of_4_bits);
    tcase_add_test(tests, integers_of_8_bits);
    tcase_add_loop_test(tests, microscaled_weights, 0, 2);
    tcase_add_test(tests, adapters);
    tcase_add_test(tests, taps_of_a_convolution);
    tcase_add_test(tests, taps_of_a_tile_with_a_border);
    tcase_add_test(tests, parts_of_k);
    tcase_add_test(tests, latent_attention);
    tcase_add_test(tests, cross_entropy);
    tcase_add_test(tests, attention_backward);
    tcase_add_test(tests, linear_attention);
    tcase_add_test(tests, fourier_transform);
    tcase_add_test(tests, verification);
    tcase_add_loop_test(tests, code_is_as_good_as_written, 0, sizeof codes / sizeof *codes);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
