/* tvm_quantize: its error against that of a fine search over scales, in plain double arithmetic, for all
 * types; that it is never worse than scales that hold the largest weight; importance; weights as they lie in
 * memory; what is refused. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lowbit_kit.h"
#include "suite_kit.h"
#include "tvm.h"
#include "types.h"

static tvm_context *context;

static void setup(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
}

static void teardown(void) {
    tvm_context_free(context);
}

/* ---- weights ---- */

static double next_uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 33) + 0.5) * 0x1p-31;
}

/* Normal, or with tails as heavy as those of a t distribution with 4 degrees of freedom; shifted. */
static float draw(uint64_t *state, bool heavy, double shift) {
    double normal = sqrt(-2 * log(next_uniform(state))) * cos(6.283185307179586 * next_uniform(state)),
           squares = 0;
    for (int i = 0; heavy && i < 4; i++) {
        double other = sqrt(-2 * log(next_uniform(state))) * cos(6.283185307179586 * next_uniform(state));
        squares += other * other;
    }
    return (float)(0.02 * ((heavy ? normal / sqrt(squares / 4) : normal) + shift));
}

typedef struct matrix {
    int64_t k, n, groups, row_bytes;
    tvm_dtype type;
    char name[TVM_DTYPE_NAME_MAX];
    bool bf16;
    float *weights;
    uint8_t *packed;
    uint16_t *scales, *zeros;
} matrix;

static void make_results(matrix *m) {
    tvm_dtype_name(m->type, m->name);
    int64_t columns = m->n;
    while (columns * m->type.bits % 8) columns++;
    m->row_bytes = columns * m->type.bits / 8;
    m->packed = calloc((size_t)(m->k * m->row_bytes) + 1, 1);
    m->scales = calloc((size_t)(m->groups * m->n) + 1, 2);
    m->zeros = calloc((size_t)(m->groups * m->n) + 1, 2);
    ck_assert(m->packed && m->scales && m->zeros);
}

static matrix make_matrix(tvm_dtype type, int64_t k, int64_t n, int64_t groups, bool heavy, double shift) {
    /* f16 has no scales for a type that reaches so far */
    matrix m = {.k = k, .n = n, .groups = groups, .type = type, .bf16 = type.exponent > 4};
    uint64_t state = (uint64_t)type.bits * 1000 + type.exponent + (uint64_t)n;
    m.weights = malloc((size_t)(k * n) * sizeof(float));
    ck_assert_ptr_nonnull(m.weights);
    for (int64_t i = 0; i < k * n; i++) m.weights[i] = draw(&state, heavy, shift);
    make_results(&m);
    return m;
}

static void free_matrix(matrix *m) {
    free(m->weights);
    free(m->packed);
    free(m->scales);
    free(m->zeros);
}

static tvm_tensor tensor_of(void *data, tvm_tensor_code code, uint8_t bits, int64_t shape[2]) {
    return (tvm_tensor){.data = data,
                        .device = {TVM_TENSOR_CPU, 0},
                        .ndim = 2,
                        .dtype = {(uint8_t)code, bits, 1},
                        .shape = shape};
}

static tvm_status quantize(const matrix *m, bool zeros, tvm_scales how, const float *importance) {
    int64_t shape[2] = {m->k, m->n}, packed[2] = {m->k, m->row_bytes}, groups[2] = {m->groups, m->n};
    tvm_tensor_code half = m->bf16 ? TVM_TENSOR_BFLOAT : TVM_TENSOR_FLOAT;
    tvm_tensor w = tensor_of(m->weights, TVM_TENSOR_FLOAT, 32, shape),
               p = tensor_of(m->packed, TVM_TENSOR_UINT, 8, packed),
               s = tensor_of(m->scales, half, 16, groups), z = tensor_of(m->zeros, half, 16, groups);
    tvm_quantize_options options = {.type = m->name, .scales = how, .importance = importance, .threads = 2};
    options.importance_length = importance ? (size_t)m->k : 0;
    return tvm_quantize(context, &options, &w, &p, &s, zeros ? &z : NULL);
}

static double half_of(const matrix *m, const uint16_t *codes, int64_t at) {
    return tvm_decode(m->bf16 ? TVM_BF16 : TVM_F16, codes[at]);
}

static double value_of(const matrix *m, bool zeros, int64_t i, int64_t j) {
    int64_t at = i / (m->k / m->groups) * m->n + j;
    uint64_t bit = (uint64_t)(i * m->row_bytes * 8 + j * m->type.bits);
    double middle = m->type.kind == TVM_KIND_UINT ? (double)(1u << (m->type.bits - 1)) : 0;
    double offset = zeros ? half_of(m, m->zeros, at) : middle;
    return (tvm_decode(m->type, tvm_bits_get(m->packed, bit, m->type.bits)) - offset) *
           half_of(m, m->scales, at);
}

static double error_of(const matrix *m, bool zeros, const float *importance) {
    double sum = 0;
    for (int64_t i = 0; i < m->k; i++)
        for (int64_t j = 0; j < m->n; j++) {
            double rest = (double)m->weights[i * m->n + j] - value_of(m, zeros, i, j);
            sum += (importance ? (double)importance[i] : 1) * rest * rest;
        }
    return sum;
}

/* ---- the fine search ---- */

typedef struct values {
    double sorted[256];
    int count;
} values;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static values values_of(tvm_dtype type, double offset) {
    values v = {.count = 0};
    for (unsigned code = 0; code < 1u << type.bits; code++) {
        double value = tvm_decode(type, code);
        if (isfinite(value)) v.sorted[v.count++] = value - offset;
    }
    qsort(v.sorted, (size_t)v.count, sizeof *v.sorted, by_value);
    return v;
}

static double distance(const values *v, double x) {
    int low = 0, high = v->count - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(v->sorted[middle] <= x ? &low : &high) = middle;
    }
    double below = fabs(x - v->sorted[low]), above = fabs(x - v->sorted[high]);
    return below < above ? below : above;
}

static double column_error(const matrix *m, const values *v, double scale, int64_t group, int64_t j,
                           const float *importance) {
    int64_t rows = m->k / m->groups;
    double sum = 0;
    for (int64_t i = group * rows; i < (group + 1) * rows; i++) {
        double rest = distance(v, (double)m->weights[i * m->n + j] / scale) * scale;
        sum += (importance ? (double)importance[i] : 1) * rest * rest;
    }
    return sum;
}

/* The least error of a column for scales that are 0.5 % apart, of either sign, and all zero points. */
static double least_error(const matrix *m, bool zeros, int64_t group, int64_t j, const float *importance) {
    int64_t rows = m->k / m->groups;
    double most = 0, least = INFINITY;
    for (int64_t i = group * rows; i < (group + 1) * rows; i++)
        most = fmax(most, fabs((double)m->weights[i * m->n + j]));
    int offsets = zeros ? 1 << m->type.bits : 1;
    for (int offset = 0; offset < offsets; offset++) {
        double middle = m->type.kind == TVM_KIND_UINT ? (double)(1u << (m->type.bits - 1)) : 0;
        values v = values_of(m->type, zeros ? (double)offset : middle);
        double end = fmax(fabs(v.sorted[0]), fabs(v.sorted[v.count - 1]));
        for (double scale = most / end * 0.15; scale < most / end * 2.2; scale *= 1.005)
            for (int sign = 1; sign >= -1; sign -= 2) {
                tvm_dtype half = m->bf16 ? TVM_BF16 : TVM_F16;
                double rounded = tvm_decode(half, tvm_encode(half, scale)) * sign;
                double error = column_error(m, &v, rounded, group, j, importance);
                if (error < least) least = error;
                if (m->type.kind == TVM_KIND_FLOAT) break;
            }
    }
    return least;
}

static double least_of_all(const matrix *m, bool zeros, const float *importance) {
    double sum = 0;
    for (int64_t group = 0; group < m->groups; group++)
        for (int64_t j = 0; j < m->n; j++) sum += least_error(m, zeros, group, j, importance);
    return sum;
}

static void check_near_least(tvm_dtype type, bool zeros, bool heavy, double shift, int64_t rows,
                             double within) {
    matrix m = make_matrix(type, 2 * rows, 5, 2, heavy, shift);
    ck_assert_int_eq(quantize(&m, zeros, TVM_SCALES_ABSMAX, NULL), TVM_OK);
    double held = error_of(&m, zeros, NULL);
    ck_assert_int_eq(quantize(&m, zeros, TVM_SCALES_MSE, NULL), TVM_OK);
    double error = error_of(&m, zeros, NULL), least = least_of_all(&m, zeros, NULL);
    ck_assert_msg(error <= held, "%s: %g is worse than %g of absmax", m.name, error, held);
    ck_assert_msg(error <= within * least, "%s, zeros %d, heavy %d: the error is %g times the least", m.name,
                  zeros, heavy, error / least);
    free_matrix(&m);
}

/* With more bits the error is a jagged function of the scale, of which the fine search finds the lucky
 * places. */
START_TEST(near_the_least_error) {
    tvm_dtype type = lowbit_type(_i);
    double within = type.bits <= 4 ? 1.03 : type.kind == TVM_KIND_FLOAT ? 1.25 : 1.12;
    check_near_least(type, false, false, 0, 128, within);
    check_near_least(type, false, true, 0, 128, within);
    if (type.bits > 4) return;
    check_near_least(type, false, false, 0, 32, within);
    if (type.kind != TVM_KIND_UINT) return;
    /* a group of which a sample is searched first */
    if (type.bits == 3) check_near_least(type, false, true, 0, 2048, within);
    check_near_least(type, true, false, 0, 128, within);
    check_near_least(type, true, true, 0.5, 64, within);
}
END_TEST

/* Errors of rows that hardly count are given up for those that do. */
START_TEST(importance_weighs_errors) {
    tvm_dtype type = _i ? TVM_U(3) : (tvm_dtype){TVM_KIND_FLOAT, 4, 2, 1};
    enum { ROWS = 128 };
    float importance[ROWS];
    matrix m = make_matrix(type, ROWS, 6, 1, false, 0);
    for (int i = 0; i < ROWS; i++) {
        importance[i] = i % 2 ? 0.01f : 100;
        if (i % 2 == 0)
            for (int j = 0; j < 6; j++) m.weights[i * 6 + j] *= 0.25f;
    }
    bool zeros = _i == 2;
    ck_assert_int_eq(quantize(&m, zeros, TVM_SCALES_MSE, NULL), TVM_OK);
    double plain = error_of(&m, zeros, importance);
    ck_assert_int_eq(quantize(&m, zeros, TVM_SCALES_MSE, importance), TVM_OK);
    double weighed = error_of(&m, zeros, importance), least = least_of_all(&m, zeros, importance);
    ck_assert_msg(weighed < 0.5 * plain, "%g of %g", weighed, plain);
    ck_assert_msg(weighed <= 1.05 * least, "%g times the least", weighed / least);
    free_matrix(&m);
}
END_TEST

/* Weights that are codes times a scale of f16, not at the ends of the codes, lose nothing where the first
 * scale that is tried has them; and never more than without a search. */
START_TEST(codes_come_back) {
    tvm_dtype type = lowbit_type(_i);
    enum { ROWS = 64, COLUMNS = 8 };
    matrix m = make_matrix(type, ROWS, COLUMNS, 1, false, 0);
    uint64_t state = 5;
    m.bf16 = false;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double value, scale = 0.25 * (1 + i % COLUMNS / 8.0);
        do value = tvm_decode(type, (uint64_t)(next_uniform(&state) * (1u << type.bits)));
        while (!isfinite(value));
        double middle = type.kind == TVM_KIND_UINT ? (double)(1u << (type.bits - 1)) : 0;
        if (i < COLUMNS)
            value = tvm_decode(type, tvm_encode(type, type.kind == TVM_KIND_FLOAT ? 1e30 : -1e30));
        m.weights[i] = (float)((value - middle) * scale);
        if (type.exponent > 4) m.weights[i] = ldexpf(m.weights[i], -8);
    }
    ck_assert_int_eq(quantize(&m, false, TVM_SCALES_MSE, NULL), TVM_OK);
    ck_assert(error_of(&m, false, NULL) == 0);
    free_matrix(&m);
}
END_TEST

/* The transpose of [n, k], and 16-bit floats, give what rows of f32 give. */
START_TEST(weights_as_they_lie) {
    enum { K = 96, N = 77 };
    matrix m = make_matrix(TVM_U(3), K, N, 3, true, 0);
    static float turned[K * N];
    static uint16_t half[K * N];
    tvm_tensor_code code = _i ? TVM_TENSOR_BFLOAT : TVM_TENSOR_FLOAT;
    tvm_dtype type = _i ? TVM_BF16 : TVM_F16;
    for (int i = 0; i < K * N; i++) {
        half[i] = (uint16_t)tvm_encode(type, (double)m.weights[i]);
        m.weights[i] = (float)tvm_decode(type, half[i]);
        turned[i % N * K + i / N] = m.weights[i];
    }
    ck_assert_int_eq(quantize(&m, false, TVM_SCALES_MSE, NULL), TVM_OK);
    matrix other = m;
    int64_t shape[2] = {K, N}, strides[2] = {1, K}, packed[2] = {K, m.row_bytes}, groups[2] = {3, N};
    tvm_quantize_options options = {.type = "u3"};
    for (int way = 0; way < 2; way++) {
        make_results(&other);
        tvm_tensor w =
            way ? tensor_of(half, code, 16, shape) : tensor_of(turned, TVM_TENSOR_FLOAT, 32, shape);
        if (!way) w.strides = strides;
        tvm_tensor p = tensor_of(other.packed, TVM_TENSOR_UINT, 8, packed),
                   s = tensor_of(other.scales, TVM_TENSOR_FLOAT, 16, groups);
        ck_assert_int_eq(tvm_quantize(context, &options, &w, &p, &s, NULL), TVM_OK);
        ck_assert_mem_eq(other.packed, m.packed, (size_t)(K * m.row_bytes));
        ck_assert_mem_eq(other.scales, m.scales, 3 * N * 2);
        free(other.packed);
        free(other.scales);
        free(other.zeros);
    }
    free_matrix(&m);
}
END_TEST

/* ---- what is refused ---- */

typedef struct call {
    float weights[32];
    uint8_t packed[64];
    uint16_t scales[16], zeros[16];
    float importance[8];
    int64_t w_shape[2], w_strides[2], p_shape[2], s_shape[2], z_shape[2];
    tvm_tensor w, p, s, z;
    tvm_quantize_options options;
    const tvm_tensor *given_zeros;
} call;

static void make_call(call *c) {
    memset(c, 0, sizeof *c);
    c->w_shape[0] = c->p_shape[0] = 8;
    c->w_shape[1] = c->s_shape[1] = c->z_shape[1] = 4;
    c->p_shape[1] = 2;
    c->s_shape[0] = c->z_shape[0] = 2;
    c->w = tensor_of(c->weights, TVM_TENSOR_FLOAT, 32, c->w_shape);
    c->p = tensor_of(c->packed, TVM_TENSOR_UINT, 8, c->p_shape);
    c->s = tensor_of(c->scales, TVM_TENSOR_FLOAT, 16, c->s_shape);
    c->z = tensor_of(c->zeros, TVM_TENSOR_FLOAT, 16, c->z_shape);
    c->options = (tvm_quantize_options){.type = "u4"};
    c->given_zeros = &c->z;
}

static void spoil_type(call *c) {
    c->options.type = "u9";
}
static void spoil_wide_type(call *c) {
    c->options.type = "f16";
}
static void spoil_zeros(call *c) {
    c->options.type = "i4";
}
static void spoil_choice(call *c) {
    c->options.scales = (tvm_scales)2;
}
static void spoil_importance(call *c) {
    c->importance[3] = -1;
    c->options.importance = c->importance;
    c->options.importance_length = 8;
}
static void spoil_length(call *c) {
    c->options.importance = c->importance;
    c->options.importance_length = 7;
}
static void spoil_weights_type(call *c) {
    c->w.dtype.bits = 64;
}
static void spoil_weights_rank(call *c) {
    c->w.ndim = 1;
}
static void spoil_weights_strides(call *c) {
    c->w_strides[0] = 8;
    c->w_strides[1] = 1;
    c->w.strides = c->w_strides;
}
static void spoil_device(call *c) {
    c->p.device.device_type = TVM_TENSOR_CUDA;
}
static void spoil_packed(call *c) {
    c->p_shape[1] = 4;
}
static void spoil_groups(call *c) {
    c->s_shape[0] = 3;
}
static void spoil_zero_groups(call *c) {
    c->z_shape[0] = 4;
}
static void spoil_zero_type(call *c) {
    c->z.dtype.code = TVM_TENSOR_BFLOAT;
}
static void spoil_address(call *c) {
    c->s.byte_offset = 1;
}
static void spoil_shape(call *c) {
    c->w.shape = NULL;
}
static void spoil_offset(call *c) {
    c->s.byte_offset = UINT64_MAX - 1;
}
static void spoil_nan(call *c) {
    c->weights[13] = NAN;
}
static void spoil_range(call *c) {
    c->weights[13] = 1e30f;
}

static const struct {
    void (*spoil)(call *c);
    const char *says;
} refusals[] = {
    {spoil_type, "type: 'u9' is no type of weights"},
    {spoil_wide_type, "type: 'f16' is no type of weights"},
    {spoil_zeros, "zeros: zero points go with unsigned types, not with i4"},
    {spoil_choice, "scales: TVM_SCALES_MSE or TVM_SCALES_ABSMAX"},
    {spoil_importance, "importance: number 3"},
    {spoil_length, "importance: a number for each"},
    {spoil_weights_type, "weights: f32, f16 or bf16"},
    {spoil_weights_rank, "weights: a matrix"},
    {spoil_weights_strides, "weights: a row-major matrix or the transpose of one"},
    {spoil_device, "packed: a tensor in the host's memory"},
    {spoil_packed, "packed: a row-major uint8 matrix of 8 by 2"},
    {spoil_groups, "scales: a row-major matrix of k / group rows"},
    {spoil_zero_groups, "zeros: a row-major matrix of k / group rows"},
    {spoil_zero_type, "zeros: the type of scales"},
    {spoil_address, "scales: an even address"},
    {spoil_shape, "weights: a matrix"},
    {spoil_offset, "scales: an address"},
    {spoil_nan, "weight [3, 1] is NaN"},
    {spoil_range, "a scale of group 0"},
};

START_TEST(refuses) {
    call c;
    make_call(&c);
    ck_assert_int_eq(tvm_quantize(context, &c.options, &c.w, &c.p, &c.s, c.given_zeros), TVM_OK);
    refusals[_i].spoil(&c);
    ck_assert_int_ne(tvm_quantize(context, &c.options, &c.w, &c.p, &c.s, c.given_zeros), TVM_OK);
    ck_assert_msg(strstr(tvm_message(context), refusals[_i].says) != NULL, "'%s' is not said: %s",
                  refusals[_i].says, tvm_message(context));
}
END_TEST

START_TEST(takes_empty_matrices) {
    call c;
    make_call(&c);
    c.w_shape[_i] = c.p_shape[_i] = c.s_shape[_i] = c.z_shape[_i] = 0;
    ck_assert_int_eq(tvm_quantize(context, &c.options, &c.w, &c.p, &c.s, c.given_zeros), TVM_OK);
    ck_assert_int_eq(tvm_quantize(NULL, &c.options, &c.w, &c.p, &c.s, NULL), TVM_USAGE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("quantize");
    TCase *error = tcase_create("error"), *memory = tcase_create("memory"), *bad = tcase_create("bad input");
    tcase_add_loop_test(error, near_the_least_error, 0, LOWBIT_COUNT);
    tcase_add_loop_test(error, importance_weighs_errors, 0, 3);
    tcase_add_loop_test(error, codes_come_back, 0, LOWBIT_COUNT);
    tcase_add_loop_test(memory, weights_as_they_lie, 0, 2);
    tcase_add_loop_test(memory, takes_empty_matrices, 0, 2);
    tcase_add_loop_test(bad, refuses, 0, sizeof refusals / sizeof *refusals);
    TCase *cases[] = {error, memory, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
