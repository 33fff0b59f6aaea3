/* Conversions: each low-precision type's codes to every type that cast-lowbit allows; every f16 and bf16 and
 * many f32 and i32 the other way; and casts between all pairs of standard types. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { TILE = 1024, HALVES = 1 << 16, WORDS = 1 << 18 };

static const char *const wide_names[] = {"f16", "bf16", "f32", "i32", "u8"};
enum { WIDE = sizeof wide_names / sizeof *wide_names };
static const char *const standard_names[] = {"bool", "i8",  "i16", "i32",  "i64",  "u8",  "u16",
                                             "u32",  "u64", "f16", "bf16", "tf32", "f32", "f64"};
enum { STANDARD = sizeof standard_names / sizeof *standard_names };

static tvm_dtype dtype(const char *name) {
    tvm_dtype type = {0};
    if (!tvm_dtype_parse(name, strlen(name), &type)) abort();
    return type;
}

/* Random bit patterns of a type, and, spread among them, small numbers of both signs. */
static uint8_t *random_codes(tvm_dtype type, size_t count, uint64_t state) {
    uint8_t *bytes = calloc(count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    uint64_t mask = type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << type.bits) - 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        uint64_t code = (state >> 32 ^ state << 31) & mask;
        if (type.kind == TVM_KIND_BOOL) code &= 1;
        if (i % 2 == 1) code = tvm_encode(type, (double)(int64_t)(state >> 40) / 64.0 - 131072.0);
        if (i % 4 == 3) code = tvm_encode(type, (double)(int64_t)(state >> 48) / 512.0 - 64.0);
        if (type.kind == TVM_KIND_FLOAT && type.exponent == 8 && type.mantissa == 10)
            code &= ~(uint64_t)0x1fff; /* tf32: the lower bits of an f32 are zero */
        tvm_bits_set(bytes, i * type.bits, type.bits, code);
    }
    return bytes;
}

/* All codes of up to 16 bits, over and over. */
static uint8_t *all_codes(tvm_dtype type, size_t count) {
    uint8_t *bytes = calloc(count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < count; i++)
        tvm_bits_set(bytes, i * type.bits, type.bits, i & ((UINT64_C(1) << type.bits) - 1));
    return bytes;
}

static bool cast_once(suite *s, const gpu_test *test, const char *kernel, tvm_dtype from, tvm_dtype to,
                      size_t count, const uint8_t *codes) {
    gpu_arg args[] = {ARG_SCALAR((int64_t)count), ARG_IN(from, count, codes), ARG_OUT(to, count)};
    return gpu_run_both(s, test, kernel, args, 3);
}

static bool run_lowbit(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t i = 0; i < WIDE; i++) {
        char kernel[32];
        tvm_dtype wide = dtype(wide_names[i]);
        uint8_t *codes = all_codes(test->type, TILE);
        snprintf(kernel, sizeof kernel, "to_%s", wide_names[i]);
        good = cast_once(s, test, kernel, test->type, wide, TILE, codes) && good;
        free(codes);
        size_t count = wide.bits <= 16 ? HALVES : WORDS;
        codes = wide.bits <= 16 ? all_codes(wide, count) : random_codes(wide, count, i + 1);
        snprintf(kernel, sizeof kernel, "from_%s", wide_names[i]);
        good = cast_once(s, test, kernel, wide, test->type, count, codes) && good;
        free(codes);
    }
    return good;
}

static bool run_standard(suite *s, const gpu_test *test) {
    bool good = true;
    bool exhaustive = test->type.bits <= 16 && test->type.kind != TVM_KIND_BOOL;
    size_t count = exhaustive ? HALVES : WORDS;
    uint8_t *codes = exhaustive ? all_codes(test->type, count) : random_codes(test->type, count, 99);
    for (size_t i = 0; i < STANDARD; i++) {
        char kernel[32];
        snprintf(kernel, sizeof kernel, "to_%s", standard_names[i]);
        good = cast_once(s, test, kernel, test->type, dtype(standard_names[i]), count, codes) && good;
    }
    free(codes);
    return good;
}

static size_t kernel_text(char *to, size_t room, const char *prefix, const char *suffix, const char *from,
                          const char *into, const char *op) {
    return (size_t)snprintf(to, room,
                            ".kernel %s_%s(n: i32, x: global %s[n], z: global %s[n])\n.warps 4\n"
                            ".grid cdiv(n, %d)\n.assume n %% 8 == 0\n"
                            "    %%i = block.x * %d\n    %%v = load-global x[%%i], spatial(128).local(8)\n"
                            "    %%r = %s %%v, %s\n    store-global z[%%i], %%r\n.end\n",
                            prefix, suffix, from, into, TILE, TILE, op, into);
}

static void add_lowbit(gpu_group *group, tvm_dtype type) {
    char name[TVM_DTYPE_NAME_MAX], title[64], text[16384] = ".vasm 1\n";
    size_t at = strlen(text);
    tvm_dtype_name(type, name);
    for (size_t i = 0; i < WIDE; i++) {
        at +=
            kernel_text(text + at, sizeof text - at, "to", wide_names[i], name, wide_names[i], "cast-lowbit");
        at += kernel_text(text + at, sizeof text - at, "from", wide_names[i], wide_names[i], name,
                          "cast-lowbit");
    }
    snprintf(title, sizeof title, "cast-lowbit %s", name);
    gpu_test *test = gpu_add(group, title, text, NULL, NULL, 0);
    test->run = run_lowbit;
    test->type = type;
}

static void add_standard(gpu_group *group, const char *from) {
    char title[64], text[16384] = ".vasm 1\n";
    size_t at = strlen(text);
    for (size_t i = 0; i < STANDARD; i++)
        at += kernel_text(text + at, sizeof text - at, "to", standard_names[i], from, standard_names[i],
                          "cast");
    snprintf(title, sizeof title, "cast %s", from);
    gpu_test *test = gpu_add(group, title, text, NULL, NULL, 0);
    test->run = run_standard;
    test->type = dtype(from);
}

void gpu_add_casts(suite *s, gpu_group *group) {
    (void)s;
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++)
        if (tvm_dtype_is_lowbit(types[i])) add_lowbit(group, types[i]);
    for (size_t i = 0; i < STANDARD; i++) add_standard(group, standard_names[i]);
}
