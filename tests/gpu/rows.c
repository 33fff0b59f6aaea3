/* The shipped programs that work row by row, at sizes of all kinds: sums of whole numbers, positions and what
 * is selected bit for bit the interpreter's, functions of floats within units in the last place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { ONE = 1 };
static const double HALF = 0.5;

/* How close the GPU's results are to the interpreter's. */
typedef enum closeness {
    EXACT,
    IN_UNITS, /* of the result's last place */
    IN_TERMS  /* in units of the last place of the terms of a sum, which may cancel out: those are below 4 */
} closeness;

/* Arguments after m and n: e the number 1, h the number 1/2, x a matrix that is read, r one that is read and
 * written, w a vector, y a matrix, i an i32 for each row, v a value for each row, k and j K values and
 * indices for each, q a matrix of i8 and s an f32 for each row.
 */
typedef struct program {
    const char *file, *kernel, *arguments, *option;
    closeness close;
    size_t longest; /* row that it takes; 0: any */
} program;

static const program programs[] = {
    {"softmax", "softmax", "xy", "", IN_UNITS, 0},
    {"layer_norm", "layer_norm", "exwwy", "", IN_TERMS, 0},
    {"rms_norm", "rms_norm", "exwy", "", IN_UNITS, 0},
    {"rms_norm", "add_rms_norm", "exrwy", "", IN_UNITS, 0},
    {"rms_norm", "add_rms_norm", "exrwwy", "INNER=true", IN_TERMS, 16384},
    {"argmax", "argmax", "xi", "", EXACT, 0},
    {"reduce", "reduce", "xv", "OP=\"sum\"", EXACT, 0},
    {"reduce", "reduce", "xv", "OP=\"prod\"", EXACT, 0},
    {"reduce", "reduce", "xv", "OP=\"min\"", EXACT, 0},
    {"cumsum", "cumsum", "xy", "", EXACT, 0},
    {"topk", "topk", "xkj", "K=20", EXACT, 0},
    {"quantize_rows", "quantize_rows", "xqs", "", EXACT, 0},
    {"sample", "sample", "eehhxi", "", EXACT, 0},
    {"sample", "sample", "eehhxi", "TOPK=50", EXACT, 0},
};
static const char *const types[] = {"f16", "bf16", "f32"};
static const size_t sizes[][2] = {{3, 20},    {4, 1000},  {5, 1024},   {2, 5001},   {3, 8200},
                                  {2, 16384}, {2, 20001}, {300, 4096}, {1, 152064}, {2, 262144}};
enum { SIZES = sizeof sizes / sizeof *sizes, TOP = 20 };

/* Numbers of few values, between -2 and 2, so that there are ties. */
static void *random_codes(tvm_dtype type, size_t count, uint64_t seed) {
    uint8_t *bytes = calloc(count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value = (double)((int64_t)(seed >> 33) % 2048) / 1024 * (seed >> 63 ? -1 : 1);
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    return bytes;
}

static gpu_arg argument(char kind, tvm_dtype type, size_t m, size_t n, closeness close, void **owned) {
    unsigned units = close == EXACT ? 0 : type.bits == 32 ? 64 : 2;
    gpu_arg out = ARG_OUT(type, m * n);
    out.units = units;
    if (close == IN_TERMS) out.tolerance = ldexp(2 * units, -type.mantissa);
    switch (kind) {
    case 'e':
        return (gpu_arg)ARG_SCALAR(ONE);
    case 'h':
        return (gpu_arg)ARG_NUMBER(HALF);
    case 'w':
        *owned = random_codes(type, n, 7);
        return (gpu_arg)ARG_IN(type, n, *owned);
    case 'y':
        return out;
    case 'v':
        out.count = m;
        return out;
    case 'k':
        out.count = m * TOP;
        return out;
    case 'i':
        return (gpu_arg)ARG_OUT(TVM_I(32), m);
    case 'q':
        return (gpu_arg)ARG_OUT(TVM_I(8), m * n);
    case 's':
        return (gpu_arg)ARG_OUT(TVM_F32, m);
    case 'j':
        return (gpu_arg)ARG_OUT(TVM_I(32), m * TOP);
    case 'r':
        *owned = random_codes(type, m * n, 5);
        out.bytes = *owned;
        if (close != IN_TERMS) out.units = 0;
        return out;
    default:
        *owned = random_codes(type, m * n, 3);
        return (gpu_arg)ARG_IN(type, m * n, *owned);
    }
}

static bool run_size(suite *s, const gpu_test *test, size_t m, size_t n) {
    const program *p = test->data;
    gpu_arg args[GPU_MAX_ARGS] = {ARG_SCALAR((int64_t)m), ARG_SCALAR((int64_t)n)};
    void *owned[GPU_MAX_ARGS] = {0};
    size_t count = 2;
    for (const char *kind = p->arguments; *kind; kind++, count++)
        args[count] = argument(*kind, test->type, m, n, p->close, &owned[count]);
    bool good = gpu_run_both(s, test, p->kernel, args, count);
    if (!good) printf("%s: m %zu, n %zu\n", test->name, m, n);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(owned[i]);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool good = true;
    const program *p = test->data;
    for (size_t i = 0; i < SIZES; i++)
        if (!p->longest || sizes[i][1] <= p->longest)
            good = run_size(s, test, sizes[i][0], sizes[i][1]) && good;
    return good;
}

void gpu_add_rows(suite *s, gpu_group *group) {
    for (size_t p = 0; p < sizeof programs / sizeof *programs; p++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            char file[4096], title[128], type[16];
            const char *defines[] = {type, programs[p].option};
            snprintf(file, sizeof file, "%s/%s.vasm", s->programs, programs[p].file);
            snprintf(type, sizeof type, "T=%s", types[t]);
            snprintf(title, sizeof title, "%s %s %s", programs[p].kernel, type, programs[p].option);
            gpu_test *test = gpu_add(group, title, NULL, file, defines, programs[p].option[0] ? 2 : 1);
            test->run = run;
            test->data = &programs[p];
            if (!tvm_dtype_parse(types[t], strlen(types[t]), &test->type)) abort();
        }
}
