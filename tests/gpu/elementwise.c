/* Element-wise instructions and reductions over random data, each arithmetic type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { COUNT = 1 << 16, TILE = 512, ROWS = 64, COLUMNS = 48 };

static const char *const names[] = {"i8",  "i16", "i32", "i64",  "u8",  "u16",
                                    "u32", "u64", "f16", "bf16", "f32", "f64"};

/* Random bit patterns; with `ordinary`, numbers of moderate size of which none is zero. */
static uint8_t *random_data(tvm_dtype type, size_t count, uint64_t state, bool ordinary) {
    uint8_t *bytes = calloc(count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    uint64_t mask = type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << type.bits) - 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        uint64_t code = (state >> 32 ^ state << 31) & mask;
        bool whole = tvm_dtype_is_integer(type);
        if (ordinary || i % 2 == 1)
            code = tvm_encode(type,
                              whole ? (double)(state >> 58) + 1 : ((double)(state >> 40) - 8388607.5) / 1e6);
        tvm_bits_set(bytes, i * type.bits, type.bits, code);
    }
    return bytes;
}

static bool run_binary(suite *s, const gpu_test *test, const char *kernel, bool ordinary_y,
                       bool result_bool) {
    tvm_dtype result = result_bool ? TVM_BOOL : test->type;
    uint8_t *x = random_data(test->type, COUNT, 1, false), *y = random_data(test->type, COUNT, 2, ordinary_y),
            *z = random_data(test->type, COUNT, 3, false);
    gpu_arg args[] = {ARG_SCALAR(COUNT), ARG_IN(test->type, COUNT, x), ARG_IN(test->type, COUNT, y),
                      ARG_IN(test->type, COUNT, z), ARG_OUT(result, 8 * COUNT)};
    bool good = gpu_run_both(s, test, kernel, args, 5);
    free(x), free(y), free(z);
    return good;
}

/* Each code of a type of 16 bits; f32 over all arguments whose result is neither 0 nor infinity, and some
 * more. What vasm(5) says of the accuracy: f32 within 2.5 units of e to the x, the interpreter's within half
 * a unit. */
static bool run_exp(suite *s, const gpu_test *test) {
    bool half = test->type.bits == 16;
    uint8_t *x = random_data(test->type, COUNT, 4, false);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t code = half ? i : tvm_encode(TVM_F32, -106 + (double)i * (196.0 / COUNT));
        if (half || i % 8) tvm_bits_set(x, i * test->type.bits, test->type.bits, code);
    }
    gpu_arg args[] = {ARG_SCALAR(COUNT), ARG_IN(test->type, COUNT, x), ARG_OUT(test->type, COUNT)};
    args[2].units = half ? 1 : 3;
    bool good = gpu_run_both(s, test, "exponential", args, 3);
    free(x);
    return good;
}

/* The order of a reduction is defined, so sums agree bit for bit. */
static bool run_reduce(suite *s, const gpu_test *test) {
    uint8_t *x = random_data(test->type, ROWS * COLUMNS, 5, true);
    gpu_arg args[] = {ARG_IN(test->type, ROWS * COLUMNS, x), ARG_OUT(test->type, 2 * ROWS),
                      ARG_OUT(test->type, 2 * COLUMNS)};
    bool good = gpu_run_both(s, test, "reduce_a", args, 3);
    good = gpu_run_both(s, test, "reduce_b", args, 3) && good;
    good = gpu_run_both(s, test, "reduce_c", args, 3) && good;
    free(x);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool whole = tvm_dtype_is_integer(test->type);
    bool good = run_binary(s, test, "arithmetic", whole, false);
    good = run_binary(s, test, "comparisons", false, true) && good;
    if (!whole && test->type.bits < 64) good = run_exp(s, test) && good;
    return run_reduce(s, test) && good;
}

static size_t head(char *to, size_t room, const char *kernel, const char *type, const char *result) {
    return (size_t)snprintf(
        to, room,
        ".kernel %s(n: i32, x: global %s[n], y: global %s[n], z: global %s[n],"
        " r: global %s[8, n])\n.warps 4\n.grid cdiv(n, %d)\n"
        "    %%i = block.x * %d\n    %%a = load-global x[%%i], auto(%d, %s)\n"
        "    %%b = load-global y[%%i], auto(%d, %s)\n    %%c = load-global z[%%i], auto(%d, %s)\n",
        kernel, type, type, type, result, TILE, TILE, TILE, type, TILE, type, TILE, type);
}

static size_t operation(char *to, size_t room, unsigned row, const char *text) {
    return (size_t)snprintf(to, room, "    %%r%u = %s\n    store-global r[%u, %%i], %%r%u\n", row, text, row,
                            row);
}

static size_t arithmetic(char *to, size_t room, const char *type, bool whole, bool has_neg) {
    static const char *const operations[] = {"add %a, %b", "sub %a, %b", "mul %a, %b",    "div %a, %b",
                                             "min %a, %b", "max %a, %b", "fma %a, %b, %c"};
    size_t at = head(to, room, "arithmetic", type, type);
    for (unsigned i = 0; i < 7; i++) at += operation(to + at, room - at, i, operations[i]);
    at += operation(to + at, room - at, 7, whole ? "mod %a, %b" : has_neg ? "neg %a" : "mul %a, %a");
    return at + (size_t)snprintf(to + at, room - at, ".end\n");
}

static size_t comparisons(char *to, size_t room, const char *type) {
    static const char *const operations[] = {"compare eq %a, %b", "compare ne %a, %b",  "compare lt %a, %b",
                                             "compare le %a, %b", "compare gt %a, %b",  "compare ge %a, %b",
                                             "compare lt %a, 3",  "where %r2, %r3, %r4"};
    size_t at = head(to, room, "comparisons", type, "bool");
    for (unsigned i = 0; i < 8; i++) at += operation(to + at, room - at, i, operations[i]);
    return at + (size_t)snprintf(to + at, room - at, ".end\n");
}

static size_t exponential(char *to, size_t room, const char *type) {
    return (size_t)snprintf(
        to, room,
        ".kernel exponential(n: i32, x: global %s[n], y: global %s[n])\n.warps 4\n"
        ".grid cdiv(n, %d)\n    %%i = block.x * %d\n    %%a = load-global x[%%i], auto(%d)\n"
        "    %%r = exp %%a\n    store-global y[%%i], %%r\n.end\n",
        type, type, TILE, TILE, TILE);
}

static size_t reduction(char *to, size_t room, const char *name, const char *type, const char *layout) {
    return (size_t)snprintf(
        to, room,
        ".kernel %s(x: global %s[%d, %d], r: global %s[2, %d, 1], c: global %s[2, 1, %d])\n.warps 4\n.grid 1\n"
        "    %%a = load-global x, %s\n"
        "    %%rs = reduce sum %%a, 1\n    store-global r[0], %%rs\n    %%rm = reduce max %%a, 1\n"
        "    store-global r[1], %%rm\n"
        "    %%cs = reduce sum %%a, 0\n    store-global c[0], %%cs\n    %%cm = reduce max %%a, 0\n"
        "    store-global c[1], %%cm\n"
        ".end\n",
        name, type, ROWS, COLUMNS, type, ROWS, type, COLUMNS, layout);
}

void gpu_add_elementwise(suite *s, gpu_group *group) {
    (void)s;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char title[64], text[16384] = ".vasm 1\n";
        size_t at = strlen(text), room = sizeof text;
        tvm_dtype type;
        if (!tvm_dtype_parse(names[i], strlen(names[i]), &type)) abort();
        bool whole = tvm_dtype_is_integer(type);
        at += arithmetic(text + at, room - at, names[i], whole, type.kind != TVM_KIND_UINT);
        at += comparisons(text + at, room - at, names[i]);
        if (!whole && type.bits < 64) at += exponential(text + at, room - at, names[i]);
        at += reduction(text + at, room - at, "reduce_a", names[i], "spatial(8, 16).local(8, 3)");
        at += reduction(text + at, room - at, "reduce_b", names[i], "local(4, 1).spatial(16, 8).local(1, 6)");
        at +=
            reduction(text + at, room - at, "reduce_c", names[i], "spatial(4, 1).local(1, 6).mma.m16n8k16.C");
        snprintf(title, sizeof title, "element-wise %s", names[i]);
        gpu_test *test = gpu_add(group, title, text, NULL, NULL, 0);
        test->run = run;
        test->type = type;
    }
}
