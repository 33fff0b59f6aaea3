/* programs/sample.vasm on the interpreter against float64: what top-k and top-p leave from a sorted row, the
 * token from the running sum and a Philox of the test's own; and through ptxas without a spill. */
#include <math.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { TYPES = 3, TOP = 50 };

static const char *const type_names[TYPES] = {"f16", "bf16", "f32"};
/* What sums of weights may be off, relative to all of them. */
static const double SLACK = 4e-6;
static const double SEED = 1234567890123456, OFFSET = 0xfffffffe;

typedef struct choice {
    double temperature, top_p;
} choice;
static const choice choices[] = {{1, 1}, {0.5, 0.9}, {2, 0.5}, {0, 0.5}, {1, 0}, {1e-42, 0.75}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* ---- the reference ---- */

/* In [0, 1), of the first two words of Philox 4x32-10 at that counter. */
static double drawn(uint64_t seed, uint64_t counter) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    for (unsigned round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)c[0] * 0xd2511f53, odd = (uint64_t)c[2] * 0xcd9e8d57;
        uint32_t next[4] = {(uint32_t)(odd >> 32) ^ c[1] ^ key[0], (uint32_t)odd,
                            (uint32_t)(even >> 32) ^ c[3] ^ key[1], (uint32_t)even};
        memcpy(c, next, sizeof c);
        key[0] += 0x9e3779b9, key[1] += 0xbb67ae85;
    }
    return ((double)c[0] * 0x1p21 + (double)(c[1] >> 11)) * 0x1p-53;
}

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

typedef struct row {
    const double *logits; /* without NaN and +inf */
    size_t n;
    double greatest, temperature;
} row;

static double weight(const row *r, size_t j, double least) {
    if (r->logits[j] < least || r->logits[j] == -INFINITY) return 0;
    return r->temperature == 0 ? r->logits[j] == r->greatest
                               : exp((r->logits[j] - r->greatest) / r->temperature);
}

/* The least value that top-k and then top-p leave. */
static double least_left(const row *r, size_t top_k, double top_p) {
    double *sorted = malloc(r->n * sizeof *sorted), total = 0, sum = 0;
    ck_assert_ptr_nonnull(sorted);
    memcpy(sorted, r->logits, r->n * sizeof *sorted);
    qsort(sorted, r->n, sizeof *sorted, descending);
    double least = sorted[top_k > 0 && top_k < r->n ? top_k - 1 : r->n - 1];
    size_t j = 0;
    for (size_t i = 0; i < r->n; i++) total += weight(r, i, least);
    while (j < r->n) {
        double value = sorted[j], each = exp((value - r->greatest) / r->temperature);
        for (; j < r->n && sorted[j] == value; j++) sum += each;
        if (sum >= top_p * total || value == least) break;
    }
    least = fmax(least, sorted[j - 1]);
    free(sorted);
    return least;
}

/* Does the number `u` of [0, 1) fall to the token, up to SLACK, when nothing below `least` is left? */
static bool falls_to(const row *r, double least, double u, size_t token) {
    double before = 0, total = 0;
    for (size_t j = 0; j < r->n; j++) {
        if (j == token) before = total;
        total += weight(r, j, least);
    }
    double own = weight(r, token, least), slack = SLACK * total;
    return own > 0 && u * total >= before - slack && u * total < before + own + slack;
}

static void check_row(const char *what, row r, const choice *c, size_t top_k, uint64_t counter,
                      double token) {
    r.greatest = -INFINITY;
    for (size_t j = 0; j < r.n; j++) r.greatest = fmax(r.greatest, r.logits[j]);
    size_t first = 0;
    while (r.logits[first] != r.greatest) first++;
    bool right = token == (double)first;
    if (r.greatest > -INFINITY && c->temperature > 0) {
        double u = drawn((uint64_t)SEED, counter), p = fmin(c->top_p, 1);
        ck_assert(token >= 0 && token < (double)r.n);
        right = falls_to(&r, least_left(&r, top_k, p - SLACK), u, (size_t)token) ||
                falls_to(&r, least_left(&r, top_k, p + SLACK), u, (size_t)token);
    }
    ck_assert_msg(right, "%s: n %zu, top-k %zu, top-p %g, temperature %g, counter %llx: token %g", what, r.n,
                  top_k, c->top_p, c->temperature, (unsigned long long)counter, token);
}

/* ---- the program ---- */

/* Rows of a kind each: spread out, many ties, with NaN and infinities, one number alone, nothing. */
static void fill_rows(kernel_kit *k, kit_tensor *x, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double *v = &x->values[i * n + j], other = j % 5 ? -INFINITY : NAN;
            *v = 12 * kit_random(k) - 6;
            if (i % 5 == 1) *v = floor(*v);
            if (i % 5 == 2 && j % 3) *v = j % 3 == 1 ? NAN : -INFINITY;
            if (i % 5 == 3 && j != n / 2) *v = other;
            if (i % 5 == 4) *v = other;
        }
    kit_write(k, x);
    for (size_t j = 0; j < m * n; j++)
        if (isnan(x->values[j])) x->values[j] = -INFINITY;
}

static kit_tensor *sample(kernel_kit *k, const choice *c, tvm_dtype type, size_t m, size_t n,
                          kit_tensor **tokens) {
    kit_clear(k);
    const double scalars[] = {(double)m, (double)n, SEED, OFFSET, c->temperature, c->top_p};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) kit_scalar(k, scalars[i]);
    kit_tensor *x = kit_tensor_new(k, type, m * n);
    *tokens = kit_tensor_new(k, TVM_I(32), m);
    return x;
}

static kernel_kit open_sample(unsigned type, size_t top_k, tvm_dtype *dtype, char define[48]) {
    snprintf(define, 48, "T=%s TOPK=%zu", type_names[type], top_k);
    ck_assert(tvm_dtype_parse(type_names[type], strlen(type_names[type]), dtype));
    return kit_open("sample.vasm", define);
}

START_TEST(the_token_is_that_of_float64) {
    static const size_t shapes[][2] = {{1, 1}, {5, 77}, {5, 1000}, {2, 8200}, {1, 20001}};
    unsigned type = (unsigned)_i % TYPES;
    size_t top_k = _i < TYPES ? 0 : TOP;
    tvm_dtype dtype;
    char define[48];
    kernel_kit k = open_sample(type, top_k, &dtype, define);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t c = 0; c < CHOICES; c++) {
            size_t m = shapes[s][0], n = shapes[s][1];
            kit_tensor *tokens, *x = sample(&k, &choices[c], dtype, m, n, &tokens);
            fill_rows(&k, x, m, n);
            double *logits = x->values;
            x->values = calloc(m * n + 1, sizeof *x->values);
            ck_assert_ptr_nonnull(x->values);
            kit_launch(&k, "sample");
            for (size_t i = 0; i < m; i++)
                check_row(define, (row){&logits[i * n], n, 0, choices[c].temperature}, &choices[c], top_k,
                          (uint64_t)OFFSET + i, tokens->values[i]);
            free(logits);
        }
    kit_close(&k);
    if (top_k == 0) return;
    tvm_ir_program *program = assemble_file(program_path("sample.vasm", (char[5000]){""}), define);
    compiles_without_spills(program, define, "sm_80");
    compiles_without_spills(program, define, "sm_90a");
    compiles_without_spills(program, define, "sm_120a");
    tvm_ir_program_free(program);
}
END_TEST

/* Equal weights are exact: token floor(u n). With +inf among the logits it is one of these. */
START_TEST(equal_logits_are_drawn_alike) {
    enum { M = 2, N = 152065 };
    static const choice all = {0.25, 0.5};
    tvm_dtype dtype;
    char define[48];
    kernel_kit k = open_sample((unsigned)_i, _i == 1 ? 7 : 0, &dtype, define);
    kit_tensor *tokens, *x = sample(&k, &all, dtype, M, N, &tokens);
    for (size_t j = 0; j < (size_t)M * N; j++)
        x->values[j] = j % N % 2 && j / N == M - 1 ? INFINITY : j % 3 ? 0.0 : -0.0;
    kit_write(&k, x);
    kit_launch(&k, "sample");
    for (size_t i = 0; i < M; i++) {
        double u = drawn((uint64_t)SEED, (uint64_t)OFFSET + i);
        double want = i == M - 1 ? 2 * floor(u * (double)(N / 2)) + 1 : floor(u * N);
        ck_assert_msg(tokens->values[i] == want, "%s: row %zu: %g, not %g", define, i, tokens->values[i],
                      want);
    }
    kit_close(&k);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sample");
    TCase *tests = tcase_create("sample");
    tcase_add_loop_test(tests, the_token_is_that_of_float64, 0, 2 * TYPES);
    tcase_add_loop_test(tests, equal_logits_are_drawn_alike, 0, TYPES);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
