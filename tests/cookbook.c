/* What the programs of tilusvm-cookbook(7) compute, as plain C with sums in double, for tvm-run --check: each
 * function has the name and the parameters of a kernel. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static double from_f16(uint16_t code) {
    int exponent = code >> 10 & 31, fraction = code & 1023;
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return code >> 15 ? -size : size;
}

/* Of finite numbers within the range of f16: to the nearest, ties to even. */
static uint16_t to_f16(double x) {
    double size = fabs(x);
    int exponent = size < ldexp(1, -14) ? -14 : ilogb(size);
    double steps = nearbyint(ldexp(size, 10 - exponent)); /* an exponent more where they are 2048 */
    return (uint16_t)((x < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + (int)steps);
}

/* Element [i, j] of a[m, k] b[k, n]. */
static double product(int32_t n, int32_t k, const uint16_t *a, const uint16_t *b, int32_t i, int32_t j) {
    double sum = 0;
    for (int32_t p = 0; p < k; p++) sum += from_f16(a[i * k + p]) * from_f16(b[p * n + j]);
    return sum;
}

void bias_gelu(int32_t m, int32_t n, int32_t k, const uint16_t *a, const uint16_t *b, const uint16_t *bias,
               uint16_t *c) {
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) {
            double x = product(n, k, a, b, i, j) + from_f16(bias[j]);
            c[i * n + j] = to_f16(x / 2 * (1 + erf(x / sqrt(2))));
        }
}

void split_k(int32_t m, int32_t n, int32_t k, const uint16_t *a, const uint16_t *b, float *c) {
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) c[i * n + j] = (float)product(n, k, a, b, i, j);
}

void grouped(int32_t m, int32_t n, int32_t k, int32_t experts, const uint16_t *a, const int32_t *e,
             const uint16_t *w, uint16_t *c) {
    (void)experts;
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++)
            c[i * n + j] = to_f16(product(n, k, a, w + (size_t)e[i / 64] * (size_t)k * (size_t)n, i, j));
}

/* Codes of 0, which are weights of -8 scales in groups of 128. */
void own(int32_t m, int32_t n, int32_t k, const uint16_t *a, const uint8_t *p, const uint16_t *s,
         const uint16_t *gain, float *c) {
    (void)p;
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) {
            double sum = 0;
            for (int32_t q = 0; q < k; q++) {
                double x = fmin(fmax(from_f16(a[i * k + q]), -0.5), 0.5);
                sum -= 8 * from_f16(s[q / 128 * n + j]) * from_f16(to_f16(x * from_f16(gain[q])));
            }
            c[i * n + j] = (float)tanh(sum);
        }
}

void w8a8(int32_t m, int32_t n, int32_t k, const int8_t *a, const int8_t *b, const float *sa, const float *sb,
          float *c) {
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int32_t p = 0; p < k; p++) sum += a[i * k + p] * b[j * k + p];
            c[i * n + j] = (float)((double)sum * (double)sa[i] * (double)sb[j]);
        }
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* By sorting: the elements that are not below the one at which the likeliest come to p. */
void top_p(int32_t m, int32_t n, float p, const float *x, float *y) {
    float *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return;
    for (int32_t i = 0; i < m; i++) {
        const float *row = x + i * n;
        for (int32_t j = 0; j < n; j++) sorted[j] = row[j];
        qsort(sorted, (size_t)n, sizeof *sorted, descending);
        double all = 0, sum = 0;
        for (int32_t j = 0; j < n; j++) all += exp((double)sorted[j] - sorted[0]);
        int32_t last = 0;
        while (last < n && sum < (double)p * all) sum += exp((double)sorted[last++] - sorted[0]);
        float least = sorted[last > 0 ? last - 1 : 0];
        double kept = 0;
        for (int32_t j = 0; j < n; j++) kept += row[j] >= least ? exp((double)row[j] - sorted[0]) : 0;
        for (int32_t j = 0; j < n; j++)
            y[i * n + j] = row[j] >= least ? (float)(exp((double)row[j] - sorted[0]) / kept) : 0;
    }
    free(sorted);
}

void prefix(int32_t n, const float *x, float *y) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) y[i] = (float)(sum += (double)x[i]);
}

void turned(int32_t m, int32_t n, const float *x, float *y) {
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) y[j * m + i] = x[i * n + j];
}

void down(int32_t m, int32_t n, int32_t k, const uint16_t *a, const uint16_t *b, float *y) {
    split_k(m, n, k, a, b, y);
}
