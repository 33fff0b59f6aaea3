/* Inputs for the demonstration's matmul, and its result checked in float64. Decodes types, f16 and .npy on
 * its own: nothing here comes from the library that it checks.
 *
 *   matmul_check make DIR m n k TYPE            writes DIR/a.npy, w.npy, s.npy (random)
 *   matmul_check compare DIR m n k TYPE C.npy   relative Frobenius error; exit status 1 above 1e-3 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 128 };

typedef struct weight_type {
    char kind; /* u, i or f */
    int bits, exponent, mantissa;
} weight_type;

static void die(const char *what, const char *name) {
    fprintf(stderr, "matmul_check: %s%s\n", what, name);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (memory == NULL) die("out of memory", "");
    return memory;
}

static weight_type parse_type(const char *name) {
    weight_type type = {0};
    if (sscanf(name, "f%d_e%dm%d", &type.bits, &type.exponent, &type.mantissa) == 3)
        type.kind = 'f';
    else if (sscanf(name, "%c%d", &type.kind, &type.bits) != 2 || (type.kind != 'u' && type.kind != 'i'))
        die("unknown type ", name);
    if (type.bits < 1 || type.bits > 8) die("unknown type ", name);
    return type;
}

static double pow2(int exponent) {
    return ldexp(1.0, exponent);
}

/* Codes that the demonstration's weights avoid. OCP: f8_e5m2 has infinity and NaN, f8_e4m3 NaN only. Types
 * with more than five bits of exponent reach beyond f16, in which products are formed: their weights stay
 * within [2^-8, 2^8). */
static int is_avoided(weight_type type, unsigned code) {
    if (type.kind != 'f') return 0;
    if (type.bits == 8 && type.exponent == 5 && type.mantissa == 2) return (code & 0x7c) == 0x7c;
    if (type.bits == 8 && type.exponent == 4 && type.mantissa == 3) return (code & 0x7f) == 0x7f;
    int exponent = (int)(code >> type.mantissa) & ((1 << type.exponent) - 1);
    int bias = (1 << (type.exponent - 1)) - 1;
    return type.exponent > 5 && (exponent < bias - 8 || exponent >= bias + 8);
}

static double weight_value(weight_type type, unsigned code) {
    if (type.kind == 'u') return (double)code - pow2(type.bits - 1);
    if (type.kind == 'i') return code >> (type.bits - 1) ? (double)code - pow2(type.bits) : (double)code;
    unsigned fraction = code & ((1u << type.mantissa) - 1);
    int exponent = (int)(code >> type.mantissa) & ((1 << type.exponent) - 1);
    int bias = (1 << (type.exponent - 1)) - 1;
    double magnitude = exponent == 0
                           ? fraction * pow2(1 - bias - type.mantissa)
                           : (fraction + pow2(type.mantissa)) * pow2(exponent - bias - type.mantissa);
    return code >> (type.bits - 1) ? -magnitude : magnitude;
}

static double half_value(uint16_t code) {
    int exponent = code >> 10 & 31;
    double fraction = code & 1023;
    double magnitude = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                       : exponent     ? (fraction + 1024) * pow2(exponent - 25)
                                      : fraction * pow2(-24);
    return code >> 15 ? -magnitude : magnitude;
}

static void write_npy(const char *dir, const char *name, const char *dtype, long rows, long columns,
                      const void *data, size_t bytes) {
    char path[4096], header[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) die("cannot write ", path);
    int length =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%ld, %ld), }",
                 dtype, rows, columns);
    memset(header + length, ' ', sizeof header - (size_t)length);
    header[117] = '\n';
    const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    size_t written = fwrite(start, 1, 10, file) + fwrite(header, 1, 118, file) + fwrite(data, 1, bytes, file);
    if (fclose(file) != 0 || written != 128 + bytes) die("cannot write ", path);
}

/* Reads the last `bytes` of a file: its data, whatever the header's length. */
static void *read_npy(const char *path, size_t bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die("cannot read ", path);
    void *data = allocate(bytes);
    if (fseek(file, -(long)bytes, SEEK_END) != 0 || fread(data, 1, bytes, file) != bytes)
        die("short file ", path);
    fclose(file);
    return data;
}

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t next_random(void) { /* xorshift64* (Vigna 2016) */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

static unsigned get_bits(const uint8_t *bytes, size_t bit, int width) {
    unsigned code = 0;
    for (int i = 0; i < width; i++)
        code |= (unsigned)(bytes[(bit + (size_t)i) / 8] >> (bit + (size_t)i) % 8 & 1) << i;
    return code;
}

static void make(const char *dir, long m, long n, long k, weight_type type) {
    size_t row = (size_t)n * (size_t)type.bits / 8;
    uint16_t *a = allocate((size_t)(m * k) * 2), *s = allocate((size_t)(k / GROUP * n) * 2);
    uint8_t *w = allocate((size_t)k * row);
    for (long i = 0; i < m * k; i++) { /* magnitudes in [2^-5, 2), either sign */
        uint64_t r = next_random();
        a[i] = (uint16_t)((r >> 63) << 15 | (10 + (r >> 40) % 6) << 10 | (r >> 20 & 1023));
    }
    for (long i = 0; i < k / GROUP * n; i++) { /* [2^-8, 2^-6) */
        uint64_t r = next_random();
        s[i] = (uint16_t)((7 + (r >> 40) % 2) << 10 | (r >> 20 & 1023));
    }
    for (size_t i = 0; i < (size_t)(k * n); i++) {
        unsigned code;
        do code = (unsigned)(next_random() >> 32) & ((1u << type.bits) - 1);
        while (is_avoided(type, code));
        for (int b = 0; b < type.bits; b++) {
            size_t bit = i * (size_t)type.bits + (size_t)b;
            w[bit / 8] = (uint8_t)(w[bit / 8] | (code >> b & 1) << bit % 8);
        }
    }
    write_npy(dir, "a.npy", "<f2", m, k, a, (size_t)(m * k) * 2);
    write_npy(dir, "s.npy", "<f2", k / GROUP, n, s, (size_t)(k / GROUP * n) * 2);
    write_npy(dir, "w.npy", type.kind == 'i' && type.bits == 8 ? "|i1" : "|u1", k, (long)row, w,
              (size_t)k * row);
    free(a), free(s), free(w);
}

static int compare(const char *dir, long m, long n, long k, weight_type type, const char *result) {
    char path[4096];
    size_t row = (size_t)n * (size_t)type.bits / 8;
    snprintf(path, sizeof path, "%s/a.npy", dir);
    uint16_t *a = read_npy(path, (size_t)(m * k) * 2);
    snprintf(path, sizeof path, "%s/s.npy", dir);
    uint16_t *s = read_npy(path, (size_t)(k / GROUP * n) * 2);
    snprintf(path, sizeof path, "%s/w.npy", dir);
    uint8_t *w = read_npy(path, (size_t)k * row);
    uint16_t *c = read_npy(result, (size_t)(m * n) * 2);
    double *expected = allocate((size_t)(m * n) * sizeof(double)),
           *activation = allocate((size_t)(m * k) * sizeof(double));
    for (long i = 0; i < m * k; i++) activation[i] = half_value(a[i]);
    for (long l = 0; l < k; l++)
        for (long j = 0; j < n; j++) {
            double weight =
                weight_value(type, get_bits(w, (size_t)(l * n + j) * (size_t)type.bits, type.bits)) *
                half_value(s[l / GROUP * n + j]);
            for (long i = 0; i < m; i++) expected[i * n + j] += activation[i * k + l] * weight;
        }
    double difference = 0, norm = 0, largest = 0;
    for (long i = 0; i < m * n; i++) {
        double d = half_value(c[i]) - expected[i];
        difference += d * d, norm += expected[i] * expected[i];
        if (!(fabs(d) <= largest)) largest = fabs(d);
    }
    double error = sqrt(difference / norm);
    printf("relative Frobenius error %.3g (f16 output alone rounds to about 2e-4), largest absolute %.3g\n",
           error, largest);
    free(a), free(s), free(w), free(c), free(expected), free(activation);
    return error <= 1e-3 ? 0 : 1; /* NaN fails */
}

int main(int argc, char **argv) {
    int making = argc == 7 && strcmp(argv[1], "make") == 0;
    if (!making && !(argc == 8 && strcmp(argv[1], "compare") == 0)) {
        fprintf(stderr, "usage: matmul_check make DIR m n k TYPE | compare DIR m n k TYPE C.npy\n");
        return 2;
    }
    long m = atol(argv[3]), n = atol(argv[4]), k = atol(argv[5]);
    if (m < 1 || n < 8 || n % 8 || k < GROUP || k % GROUP)
        die("sizes: m >= 1, n a multiple of 8, k of 128", "");
    weight_type type = parse_type(argv[6]);
    if (!making) return compare(argv[2], m, n, k, type, argv[7]);
    make(argv[2], m, n, k, type);
    return 0;
}
