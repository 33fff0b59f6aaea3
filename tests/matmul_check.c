/* Inputs for the demonstration's matmul, and its result checked in float64. Reads and writes .npy on its
 * own: nothing here comes from the library that it checks.
 *
 *   matmul_check make DIR m n k TYPE            writes DIR/a.npy, w.npy, s.npy (random)
 *   matmul_check compare DIR m n k TYPE C.npy   relative Frobenius error; exit status 1 above 1e-3 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matmul_reference.h"

enum { GROUP = 128 }; /* of matmul_default */

static void die(const char *what, const char *name) {
    fprintf(stderr, "matmul_check: %s%s\n", what, name);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (memory == NULL) die("out of memory", "");
    return memory;
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

static void make(const char *dir, long m, long n, long k, weight_type type) {
    size_t row = (size_t)n * (size_t)type.bits / 8;
    uint16_t *a = allocate((size_t)(m * k) * 2), *s = allocate((size_t)(k / GROUP * n) * 2);
    uint8_t *w = allocate((size_t)k * row);
    matmul_inputs(m, n, k, type, matmul_default, 0, a, w, s, NULL);
    write_npy(dir, "a.npy", "<f2", m, k, a, (size_t)(m * k) * 2);
    write_npy(dir, "s.npy", "<f2", k / GROUP, n, s, (size_t)(k / GROUP * n) * 2);
    write_npy(dir, "w.npy", "|u1", k, (long)row, w, (size_t)k * row);
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
    double *expected = allocate((size_t)(m * n) * sizeof(double)), largest;
    matmul_expect(m, n, k, type, matmul_default, a, w, s, NULL, expected);
    double error = matmul_error((size_t)(m * n), matmul_default, c, expected, &largest);
    printf("relative Frobenius error %.3g (f16 output alone rounds to about 2e-4), largest absolute %.3g\n",
           error, largest);
    free(a), free(s), free(w), free(c), free(expected);
    return error <= matmul_error_bound(matmul_default) ? 0 : 1; /* NaN fails */
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
    weight_type type;
    if (!weight_type_parse(argv[6], &type)) die("unknown type ", argv[6]);
    if (!making) return compare(argv[2], m, n, k, type, argv[7]);
    make(argv[2], m, n, k, type);
    return 0;
}
