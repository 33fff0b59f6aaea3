/* What matmul_lowbit does beside the product (programs/matmul_lowbit_fused.vasminc), and
 * programs/qkv_lowbit.vasm: each variant on the interpreter, on several machines, against float64; a launch
 * of each in the sanitizer. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_kit.h"
#include "lowbit_reference.h"
#include "suite_kit.h"

enum { GROUP = 128, N = 200, K = 640, PARTS_N = (N + 63) / 64, PARTS_K = K / 64 };

typedef struct machine {
    unsigned target, multiprocessors;
} machine;

static const machine machines[] = {{0, 4}, {90, 1}, {90, 3}, {90, 132}};
enum { MACHINES = sizeof machines / sizeof *machines };

static kernel_kit open_on(const char *file, const char *define, machine on) {
    kernel_kit k = kit_open(file, define);
    tvm_context_options options = {.device = TVM_DEVICE_CPU,
                                   .threads = 2,
                                   .cache_dir = "",
                                   .target = on.target,
                                   .multiprocessors = on.multiprocessors};
    char path[5000];
    size_t size = 0;
    tvm_program_free(k.program);
    tvm_context_free(k.context);
    uint8_t *bytes = bytecode_of(program_path(file, path), define, &size);
    ck_assert_int_eq(tvm_context_create(&options, &k.context), TVM_OK);
    ck_assert_int_eq(tvm_load(k.context, bytes, size, &k.program), TVM_OK);
    free(bytes);
    return k;
}

/* Weights of u4, whose middle is 8, packed, with their scales. */
typedef struct weights {
    size_t n, k, bytes;
    double *w, *s, *p;
} weights;

static double *copied(const kit_tensor *t) {
    double *values = malloc(t->count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    return memcpy(values, t->values, t->count * sizeof *values);
}

static weights make_weights(kernel_kit *k, size_t n, size_t rows) {
    weights made = {.n = n, .k = rows, .bytes = (n + 63) / 64 * 64 * rows / 2};
    kit_clear(k);
    kit_scalar(k, (double)rows), kit_scalar(k, (double)n);
    kit_tensor *w = kit_input(k, TVM_U(4), rows * n, 0, 15.99);
    for (size_t i = 0; i < rows * n; i++) w->values[i] = floor(w->values[i]);
    kit_write(k, w);
    kit_tensor *p = kit_tensor_new(k, TVM_U(8), made.bytes);
    kit_launch(k, "pack");
    made.w = copied(w), made.p = copied(p);
    kit_clear(k);
    kit_tensor *s = kit_input(k, TVM_F16, rows / GROUP * n, 0.005, 0.02);
    made.s = copied(s);
    kit_clear(k);
    return made;
}

static void free_weights(weights *of) {
    free(of->w), free(of->s), free(of->p);
}

static kit_tensor *given(kernel_kit *k, tvm_dtype type, size_t count, const double *values) {
    kit_tensor *t = kit_tensor_new(k, type, count);
    memcpy(t->values, values, count * sizeof *values);
    kit_write(k, t);
    return t;
}

/* The first arguments, m to s; gives a. */
static kit_tensor *first_arguments(kernel_kit *k, const weights *of, size_t m) {
    kit_clear(k);
    kit_scalar(k, (double)m), kit_scalar(k, (double)of->n), kit_scalar(k, (double)of->k);
    kit_tensor *a = kit_input(k, TVM_F16, m * of->k, -1, 1);
    given(k, TVM_U(8), of->bytes, of->p);
    given(k, TVM_F16, of->k / GROUP * of->n, of->s);
    return a;
}

static double product(const weights *of, const kit_tensor *a, size_t i, size_t j) {
    double sum = 0;
    for (size_t r = 0; r < of->k; r++)
        sum += a->values[i * of->k + r] * (of->w[r * of->n + j] - 8) * of->s[r / GROUP * of->n + j];
    return sum;
}

static bool is_near(double found, double wanted) {
    return fabs(found - wanted) <= 2e-3 * (1 + fabs(wanted));
}

static void norm_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    kit_tensor *a = first_arguments(k, of, m);
    kit_scalar(k, 0.5), kit_scalar(k, 4);
    kit_tensor *squares = kit_input(k, TVM_F32, m * PARTS_K, 1, 900);
    kit_tensor *c = kit_tensor_new(k, TVM_F16, m * N);
    kit_launch(k, kernel);
    for (size_t i = 0; i < m; i++) {
        double sum = 0;
        for (size_t p = 0; p < PARTS_K; p++) sum += squares->values[i * PARTS_K + p];
        for (size_t j = 0; j < N; j++) {
            double wanted = product(of, a, i, j) * 4 / sqrt(sum / K + 0.5);
            ck_assert_msg(is_near(c->values[i * N + j], wanted), "%s: [%zu, %zu] is %g, not %g", kernel, i, j,
                          c->values[i * N + j], wanted);
        }
    }
}

static void sum_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    kit_tensor *a = first_arguments(k, of, m);
    kit_tensor *residual = kit_input(k, TVM_F16, m * N, -3, 3);
    double *before = copied(residual);
    kit_tensor *gain = kit_input(k, TVM_F16, N, -1, 1);
    kit_tensor *moments = kit_tensor_new(k, TVM_F32, m * PARTS_N);
    kit_tensor *c = kit_tensor_new(k, TVM_F16, m * N);
    kit_launch(k, kernel);
    for (size_t i = 0; i < m; i++) {
        double squares[PARTS_N] = {0};
        for (size_t j = 0; j < N; j++) {
            double x = residual->values[i * N + j], wanted = before[i * N + j] + product(of, a, i, j);
            squares[j / 64] += x * x;
            ck_assert_msg(is_near(x, wanted), "%s: [%zu, %zu] is %g, not %g", kernel, i, j, x, wanted);
            ck_assert(is_near(c->values[i * N + j], x * gain->values[j]));
        }
        for (size_t p = 0; p < PARTS_N; p++)
            ck_assert_double_eq_tol(moments->values[i * PARTS_N + p], squares[p], 1e-5 * squares[p]);
    }
    free(before);
}

static void gate_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    kit_tensor *a = first_arguments(k, of, m);
    kit_tensor *c = kit_tensor_new(k, TVM_F16, m * N / 2);
    kit_launch(k, kernel);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < N / 2; j++) {
            double gate = product(of, a, i, 2 * j), up = product(of, a, i, 2 * j + 1);
            ck_assert(is_near(c->values[i * N / 2 + j], gate / (1 + exp(-gate)) * up));
        }
}

static const double outer_eps = 0.5, inner_eps = 0.25;

static double normed(const double *v, const double *gain, size_t count, double eps, size_t j) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += v[i] * v[i];
    return v[j] / sqrt(sum / (double)count + eps) * gain[j];
}

/* What POSTNORM gives: the residual with the addend of before, the new one, its rows and its four sums. */
static void addend_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    kit_tensor *a = first_arguments(k, of, m);
    kit_scalar(k, inner_eps), kit_scalar(k, 2);
    kit_tensor *squares = kit_tensor_new(k, TVM_F32, 4 * m * PARTS_N);
    kit_tensor *residual = kit_input(k, TVM_F16, m * N, -3, 3), *addend = kit_input(k, TVM_F16, m * N, -5, 5);
    double *before = copied(residual), *old = copied(addend), factor[32];
    kit_tensor *gains[3];
    for (size_t i = 0; i < 3; i++) gains[i] = kit_input(k, TVM_F16, N, 0.25, 1);
    kit_tensor *moments = kit_tensor_new(k, TVM_F32, 4 * m * PARTS_N);
    kit_tensor *c = kit_tensor_new(k, TVM_F16, m * 2 * N);
    for (size_t i = 0; i < m * N; i++) squares->values[i / N * PARTS_N + i % N / 64] += old[i] * old[i];
    kit_write(k, squares);
    for (size_t i = 0; i < m; i++) {
        double sum = 0;
        for (size_t p = 0; p < PARTS_N; p++) sum += squares->values[i * PARTS_N + p];
        factor[i] = 2 / sqrt(sum / N + inner_eps);
    }
    kit_launch(k, kernel);
    for (size_t i = 0; i < m; i++) {
        double sums[4][PARTS_N] = {{0}};
        for (size_t j = 0; j < N; j++) {
            double x = residual->values[i * N + j], y = addend->values[i * N + j];
            double more = y * gains[1]->values[j];
            ck_assert(is_near(x, before[i * N + j] + old[i * N + j] * gains[0]->values[j] * factor[i]));
            ck_assert_msg(is_near(y, product(of, a, i, j)), "%s: [%zu, %zu] is %g", kernel, i, j, y);
            ck_assert(is_near(c->values[(2 * i) * N + j], x * gains[2]->values[j]));
            ck_assert(is_near(c->values[(2 * i + 1) * N + j], more * gains[2]->values[j]));
            sums[0][j / 64] += y * y, sums[1][j / 64] += x * x;
            sums[2][j / 64] += x * more, sums[3][j / 64] += more * more;
        }
        for (size_t s = 0; s < 4; s++)
            for (size_t p = 0; p < PARTS_N; p++)
                ck_assert_double_eq_tol(moments->values[(s * m + i) * PARTS_N + p], sums[s][p],
                                        1e-5 * (sums[1][p] + sums[3][p] + sums[0][p]));
    }
    free(before), free(old);
}

/* What ADDEND gives, of two rows a token and their sums. */
static void norm_of_addend_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    kit_tensor *a = first_arguments(k, of, 2 * m);
    kit_scalar(k, outer_eps), kit_scalar(k, 4), kit_scalar(k, inner_eps), kit_scalar(k, 2);
    kit_tensor *squares = kit_tensor_new(k, TVM_F32, 4 * m * PARTS_K);
    kit_tensor *c = kit_tensor_new(k, TVM_F16, m * N);
    double *y = calloc(m * K, sizeof *y), gain[K], outer[K]; /* the addend is y times the gain */
    ck_assert_ptr_nonnull(y);
    for (size_t j = 0; j < K; j++) gain[j] = 0.5 + (double)(j % 3) / 4, outer[j] = 4;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < K; j++) {
            double x = a->values[2 * i * K + j], more = a->values[(2 * i + 1) * K + j];
            y[i * K + j] = more / gain[j];
            const double each[] = {y[i * K + j] * y[i * K + j], x * x, x * more, more * more};
            for (size_t s = 0; s < 4; s++) squares->values[(s * m + i) * PARTS_K + j / 64] += each[s];
        }
    kit_write(k, squares);
    kit_launch(k, kernel);
    for (size_t i = 0; i < m; i++) {
        double v[K], twice[K];
        for (size_t j = 0; j < K; j++) twice[j] = 2 * gain[j];
        for (size_t j = 0; j < K; j++)
            v[j] = a->values[2 * i * K + j] + normed(y + i * K, twice, K, inner_eps, j);
        double factor = normed(v, outer, K, outer_eps, 0) / v[0];
        for (size_t j = 0; j < N; j++) {
            double wanted = 0;
            for (size_t r = 0; r < K; r++) wanted += v[r] * (of->w[r * N + j] - 8) * of->s[r / GROUP * N + j];
            ck_assert_msg(is_near(c->values[i * N + j], wanted * factor), "%s: [%zu, %zu] is %g, not %g",
                          kernel, i, j, c->values[i * N + j], wanted * factor);
        }
    }
    free(y);
}

/* Calls the function for each variant that the machine has. */
static void each_variant(kernel_kit *k, machine on, const weights *of,
                         void (*is_right)(kernel_kit *, const weights *, size_t, const char *)) {
    unsigned number = 0;
    for (size_t i = 0; i < tvm_kernel_count(k->program); i++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(k->program, i));
        if (!lowbit_runs_on(kernel, on.target)) continue;
        is_right(k, of, number++ % 2 ? 5 : 19, kernel);
        ck_assert_int_eq(tvm_set_sanitizer(k->context, TVM_SANITIZE_TEXT), TVM_OK);
        is_right(k, of, 3, kernel);
        ck_assert_int_eq(tvm_set_sanitizer(k->context, TVM_SANITIZE_OFF), TVM_OK);
    }
    ck_assert_uint_ge(number, 1);
    is_right(k, of, 4, "matmul_lowbit");
}

START_TEST(every_variant_is_fused) {
    static void (*const functions[])(kernel_kit *, const weights *, size_t, const char *) = {
        norm_is_right, sum_is_right, gate_is_right, addend_is_right, norm_of_addend_is_right};
    static const char *const defines[] = {"NORM=true EARLY=true", "RESIDUAL=true EARLY=true",
                                          "GATE=\"silu\" EARLY=true", "POSTNORM=true EARLY=true",
                                          "NORM=true ADDEND=true EARLY=true"};
    machine on = machines[_i % MACHINES];
    kernel_kit k = open_on("matmul_lowbit_u4.vasm", defines[_i / MACHINES], on);
    weights of = make_weights(&k, N, K);
    each_variant(&k, on, &of, functions[_i / MACHINES]);
    free_weights(&of);
    kit_close(&k);
}
END_TEST

/* ---- queries, keys and values: heads of 64 elements, two of queries, and one of keys and of values */

enum { HEAD = 64, HEADS = 2, ALL = (HEADS + 2) * HEAD, PAGES = 6, SLAB = 32 * HEAD, POSITIONS = 64 };
static const double lengths_of[] = {17, 33}, pages_of[] = {1, 0, 3, 2, 5, 4};

/* Where the A operand of mma.m16n8k16 has an element, by the PTX ISA: halves of a lane, lanes of a fragment.
 */
static size_t place_of(size_t row, size_t column) {
    size_t lane = row % 8 * 4 + column % 8 / 2;
    return lane * 8 + column % 16 / 8 * 4 + row % 16 / 8 * 2 + column % 2;
}

static void qkv_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    size_t new = m / 2;
    kit_tensor *a = first_arguments(k, of, 2 * new);
    const double scalars[] = {HEADS, 1, 2, PAGES, 3, POSITIONS};
    k->arguments[0].i = (int64_t)(2 * new);
    for (size_t i = 0; i < 6; i++) kit_scalar(k, scalars[i]);
    given(k, TVM_I(32), 2, lengths_of), given(k, TVM_I(32), 6, pages_of);
    kit_tensor *rotation = kit_input(k, TVM_F32, POSITIONS * HEAD, -1, 1);
    kit_tensor *cache = kit_input(k, TVM_F16, PAGES * SLAB, 7, 8);
    double *wanted = copied(cache);
    kit_tensor *q = kit_tensor_new(k, TVM_F16, 2 * new *HEADS *HEAD);
    kit_launch(k, kernel);
    for (size_t row = 0; row < 2 * new; row++) {
        size_t position = (size_t)lengths_of[row / new] - new + row % new, token = position % 16;
        double *slab = wanted + (size_t)pages_of[row / new * 3 + position / 16] * SLAB;
        for (size_t t = token + 1; token == 0 && t < 16; t++)
            for (size_t e = 0; e < HEAD && position + t >= (size_t)lengths_of[row / new]; e++) {
                slab[e / 16 * 256 + place_of(t, e % 16)] = 0;
                slab[16 * HEAD + e / 16 * 256 + place_of(e % 16, t)] = 0;
            }
        for (size_t j = 0; j < ALL; j++) {
            double x = product(of, a, row, j), other = product(of, a, row, j ^ 1);
            const double *angles = rotation->values + position * HEAD + j % HEAD / 2;
            double turned = x * angles[0] + (j % 2 ? other : -other) * angles[HEAD / 2];
            size_t e = j % HEAD;
            if (j < HEADS * HEAD)
                ck_assert_msg(is_near(q->values[row * HEADS * HEAD + j], turned), "%s: query [%zu, %zu]",
                              kernel, row, j);
            else if (j < (HEADS + 1) * HEAD)
                slab[e / 16 * 256 + place_of(token, e % 16)] = turned;
            else
                slab[16 * HEAD + e / 16 * 256 + place_of(e % 16, token)] = x;
        }
    }
    for (size_t i = 0; i < cache->count; i++)
        ck_assert_msg(is_near(cache->values[i], wanted[i]), "%s: half %zu of the cache is %g, not %g", kernel,
                      i, cache->values[i], wanted[i]);
    free(wanted);
}

START_TEST(every_variant_appends) {
    machine on = machines[_i];
    kernel_kit k = open_on("qkv_lowbit.vasm", "HEAD=64", on);
    weights of = make_weights(&k, ALL, 256);
    each_variant(&k, on, &of, qkv_is_right);
    free_weights(&of);
    kit_close(&k);
}
END_TEST

/* ---- experts: an includer's quantization behind the gate, in blocks of 32 */

enum { EXPERTS = 3, ROWS = 90, STACK_N = 128, BLOCK = 32 };
static const double offsets_of[] = {0, 3, 73, 88}; /* the last two rows are those of none */

typedef struct stack {
    kit_tensor *q, *scales;
    tvm_dtype type;
} stack;

static double silu_of(const weights *of, const kit_tensor *a, size_t i, size_t j) {
    double gate = product(of, a, i, 2 * j);
    return gate / (1 + exp(-gate)) * product(of, a, i, 2 * j + 1);
}

/* The greatest of a block has the greatest number, but for the rounding of activations; the others are
 * rounded to the type, a unit of i8 or the mantissa's half of f8_e4m3. */
static void block_is_right(const stack *y, const weights *of, const kit_tensor *a, size_t i, size_t block,
                           const char *kernel) {
    bool whole = y->type.kind == TVM_KIND_INT;
    double scale = y->scales->values[i * STACK_N / 2 / BLOCK + block], most = 0;
    for (size_t j = block * BLOCK; j < (block + 1) * BLOCK; j++) {
        double wanted = silu_of(of, a, i, j), found = y->q->values[i * STACK_N / 2 + j] * scale;
        double unit = whole ? scale / 2 : fmax(fabs(wanted) / 16, scale / 1024);
        ck_assert_msg(fabs(found - wanted) <= unit * 1.01 + 2e-3 * fabs(wanted) + 5e-4,
                      "%s: [%zu, %zu] is %g, not %g, by %g", kernel, i, j, found, wanted, scale);
        most = fmax(most, fabs(wanted));
    }
    ck_assert_msg(fabs(scale * (whole ? 127 : 448) - most) <= 4e-3 * most + 1e-4, "%s: scale %g of %g",
                  kernel, scale, most);
}

static void experts_are_quantized(kernel_kit *k, const weights of[EXPERTS], tvm_dtype type,
                                  const char *kernel) {
    const size_t groups = of->k / GROUP * of->n;
    kit_clear(k);
    kit_scalar(k, ROWS), kit_scalar(k, (double)of->n), kit_scalar(k, (double)of->k), kit_scalar(k, EXPERTS);
    kit_tensor *a = kit_input(k, TVM_F16, ROWS * of->k, -1, 1);
    given(k, TVM_I(32), EXPERTS + 1, offsets_of);
    kit_tensor *p = kit_tensor_new(k, TVM_U(8), EXPERTS * of->bytes);
    kit_tensor *s = kit_tensor_new(k, TVM_F16, EXPERTS * groups);
    for (size_t e = 0; e < EXPERTS; e++) {
        memcpy(p->values + e * of->bytes, of[e].p, of->bytes * sizeof(double));
        memcpy(s->values + e * groups, of[e].s, groups * sizeof(double));
    }
    kit_write(k, p), kit_write(k, s);
    stack y = {.q = kit_tensor_new(k, type, ROWS * STACK_N / 2), .type = type};
    y.scales = kit_input(k, TVM_F32, ROWS * STACK_N / 2 / BLOCK, 7, 7);
    kit_launch(k, kernel);
    for (size_t i = 0, e = 0; i < ROWS; i++) {
        while (e < EXPERTS && (double)i >= offsets_of[e + 1]) e++;
        for (size_t block = 0; block < STACK_N / 2 / BLOCK; block++)
            if (e < EXPERTS)
                block_is_right(&y, &of[e], a, i, block, kernel);
            else
                ck_assert_double_eq(y.scales->values[i * STACK_N / 2 / BLOCK + block], 7);
    }
}

START_TEST(every_variant_of_a_stack_quantizes) {
    static const machine on[] = {{90, 3}, {90, 132}, {100, 3}};
    const bool whole = _i % 2;
    kernel_kit k = open_on("../tests/experts_quantized.vasm", whole ? "QTYPE=i8" : "", on[_i / 2]);
    weights of[EXPERTS];
    for (size_t e = 0; e < EXPERTS; e++) of[e] = make_weights(&k, STACK_N, 256);
    tvm_dtype type = whole ? TVM_I(8) : TVM_FLOAT(8, 4, 3);
    for (size_t i = 0; i < tvm_kernel_count(k.program); i++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(k.program, i));
        const unsigned target = on[_i / 2].target;
        /* those by mma.sync are alike on both targets */
        if (!lowbit_runs_on(kernel, target) || (target == 100 && !lowbit_is_tensor(kernel))) continue;
        if (!test_takes((unsigned)i + (unsigned)_i, 4)) continue;
        experts_are_quantized(&k, of, type, kernel);
        if (!test_takes((unsigned)i, 3)) continue;
        ck_assert_int_eq(tvm_set_sanitizer(k.context, TVM_SANITIZE_TEXT), TVM_OK);
        experts_are_quantized(&k, of, type, kernel);
        ck_assert_int_eq(tvm_set_sanitizer(k.context, TVM_SANITIZE_OFF), TVM_OK);
    }
    experts_are_quantized(&k, of, type, "matmul_lowbit");
    for (size_t e = 0; e < EXPERTS; e++) free_weights(&of[e]);
    kit_close(&k);
}
END_TEST

/* ---- the same, quantized: the bits of kv_append, where the product is exact */

/* A format, and the elements of a head. Words of a slab, by kv_cache.vasminc. */
typedef struct quantized {
    const char *define;
    size_t head, slab;
} quantized;

static const quantized forms[] = {
    {"HEAD=64 KTYPE=u8 VTYPE=u4", 64, 64 * (8 + 4) / 2 + 16},
    {"HEAD=128 KTYPE=u4 VTYPE=u4", 128, 128 * (4 + 4) / 2 + 16},
    {"HEAD=256 KTYPE=u8 VTYPE=i3", 256, 256 * (8 + 3) / 2 + 16},
};
enum { FORMS = sizeof forms / sizeof *forms };

typedef struct appended {
    const quantized *form;
    kernel_kit by_itself; /* kv_append */
} appended;

static appended now; /* what quantized_is_right compares with: each_variant passes functions of no context */

static void cache_arguments(kernel_kit *k, bool is_product, size_t m) {
    const double product[] = {HEADS, 1, 2, PAGES, 3, POSITIONS};
    const double append[] = {2, (double)m, (double)(m / 2), HEADS, 1, PAGES, 3, POSITIONS};
    const double starts[] = {0, (double)(m / 2), (double)m};
    size_t count = is_product ? sizeof product / sizeof *product : sizeof append / sizeof *append;
    for (size_t i = 0; i < count; i++) kit_scalar(k, is_product ? product[i] : append[i]);
    if (!is_product) given(k, TVM_I(32), 3, starts);
    if (is_product) given(k, TVM_I(32), 2, lengths_of);
    given(k, TVM_I(32), 6, pages_of);
    if (!is_product) given(k, TVM_I(32), 2, lengths_of);
}

static void quantized_is_right(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    size_t head = now.form->head, rows = m / 2 * 2, words = PAGES * now.form->slab;
    kit_tensor *a = first_arguments(k, of, rows);
    for (size_t i = 0; i < a->count; i++) a->values[i] = floor(a->values[i] * 1.5 + 0.5);
    kit_write(k, a);
    cache_arguments(k, true, rows);
    kit_tensor *rotation = kit_input(k, TVM_F32, POSITIONS * head, -1, 1);
    kit_tensor *cache = kit_input(k, TVM_U(32), words, 0, 4294967295.0);
    double *before = copied(cache);
    kit_tensor *q = kit_tensor_new(k, TVM_F16, rows * HEADS * head);
    kit_launch(k, kernel);

    kernel_kit *other = &now.by_itself;
    kit_clear(other);
    cache_arguments(other, false, rows);
    kit_tensor *qkv = kit_tensor_new(other, TVM_F16, rows * of->n);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < of->n; j++) qkv->values[i * of->n + j] = product(of, a, i, j);
    kit_write(other, qkv);
    given(other, TVM_F32, rotation->count, rotation->values);
    kit_tensor *q_wanted = kit_tensor_new(other, TVM_F16, q->count);
    kit_tensor *wanted = given(other, TVM_U(32), words, before);
    kit_launch(other, "kv_append");
    for (size_t i = 0; i < q->count; i++) ck_assert_double_eq(q->values[i], q_wanted->values[i]);
    for (size_t i = 0; i < words; i++)
        ck_assert_msg(cache->values[i] == wanted->values[i],
                      "%s, %s: word %zu of the cache is %.0f, not %.0f", now.form->define, kernel, i,
                      cache->values[i], wanted->values[i]);
    free(before);
}

START_TEST(every_variant_quantizes) {
    machine on = machines[_i % MACHINES];
    char define[128];
    now.form = &forms[_i / MACHINES];
    kernel_kit k = open_on("qkv_lowbit.vasm", now.form->define, on);
    snprintf(define, sizeof define, "QKV=true STYLE=\"interleaved\" D=%s",
             now.form->define + strlen("HEAD="));
    now.by_itself = kit_open("kv_append.vasm", define);
    weights of = make_weights(&k, 4 * now.form->head, 256);
    for (size_t i = 0; i < of.k / GROUP * of.n; i++) of.s[i] = 1;
    each_variant(&k, on, &of, quantized_is_right);
    free_weights(&of);
    kit_close(&now.by_itself);
    kit_close(&k);
}
END_TEST

/* ---- norms of heads */

static void heads_are_normed(kernel_kit *k, const weights *of, size_t m, const char *kernel) {
    enum { WIDE = 128 };
    size_t rows = m / 2 * 2;
    const double scalars[] = {HEADS, 1, 2, PAGES, 3, POSITIONS, 0.25};
    kit_tensor *a = first_arguments(k, of, rows);
    for (size_t i = 0; i < 7; i++) kit_scalar(k, scalars[i]);
    given(k, TVM_I(32), 2, lengths_of), given(k, TVM_I(32), 6, pages_of);
    kit_tensor *rotation = kit_tensor_new(k, TVM_F32, POSITIONS * WIDE);
    for (size_t i = 0; i < rotation->count; i++) rotation->values[i] = i % WIDE < WIDE / 2;
    kit_write(k, rotation);
    kit_tensor *gains = kit_input(k, TVM_F32, 2 * WIDE, 0.5, 2);
    kit_tensor *cache = kit_tensor_new(k, TVM_F16, PAGES * 32 * WIDE);
    kit_tensor *q = kit_tensor_new(k, TVM_F16, rows * HEADS * WIDE);
    kit_launch(k, kernel);
    for (size_t i = 0; i < rows; i++)
        for (size_t h = 0; h < HEADS + 2; h++) {
            double x[WIDE], sum = 0;
            for (size_t e = 0; e < WIDE; e++) {
                x[e] = product(of, a, i, h * WIDE + e);
                sum += x[e] * x[e];
            }
            size_t position = (size_t)lengths_of[i / (rows / 2)] - rows / 2 + i % (rows / 2);
            size_t slab = (size_t)pages_of[i / (rows / 2) * 3 + position / 16], token = position % 16;
            for (size_t e = 0; e < WIDE; e++) {
                double normed = x[e] / sqrt(sum / WIDE + 0.25) * gains->values[(h < HEADS ? 0 : WIDE) + e];
                double found =
                    h < HEADS ? q->values[(i * HEADS + h) * WIDE + e]
                    : h == HEADS
                        ? cache->values[slab * 32 * WIDE + e / 16 * 256 + place_of(token, e % 16)]
                        : cache->values[(slab * 32 + 16) * WIDE + e / 16 * 256 + place_of(e % 16, token)];
                ck_assert_msg(is_near(found, h <= HEADS ? normed : x[e]), "%s: row %zu, head %zu: %g, not %g",
                              kernel, i, h, found, normed);
            }
        }
}

START_TEST(every_variant_norms_heads) {
    machine on = machines[_i];
    kernel_kit k = open_on("qkv_lowbit.vasm", "HEAD=128 HEADS_NORM=true", on);
    weights of = make_weights(&k, (HEADS + 2) * 128, 256);
    each_variant(&k, on, &of, heads_are_normed);
    free_weights(&of);
    kit_close(&k);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("lowbit_fused");
    TCase *tests = tcase_create("lowbit_fused");
    tcase_add_loop_test(tests, every_variant_is_fused, 0, 5 * MACHINES);
    tcase_add_loop_test(tests, every_variant_appends, 0, MACHINES);
    tcase_add_loop_test(tests, every_variant_of_a_stack_quantizes, 0, 6);
    tcase_add_loop_test(tests, every_variant_quantizes, 0, FORMS * MACHINES);
    tcase_add_loop_test(tests, every_variant_norms_heads, 0, MACHINES);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
