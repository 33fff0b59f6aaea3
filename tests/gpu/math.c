/* Functions of floats on the GPU against long double, in units of the last place: what vasm(5) says of them.
 * All codes of f16 and bf16; of f32 and f64 any, and a row's interval densely. Prints the greatest error that
 * it found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "math_reference.h"
#include "suite.h"

enum { HALVES = 1 << 16, SINGLES = 1 << 19 };

static const char *const names[MATH_TYPES] = {"f16", "bf16", "f32", "f64"};

/* Knuth's MMIX */
static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32 ^ *state << 31;
}

static uint8_t *samples(const math_row *row, tvm_dtype type, size_t count, bool all, uint64_t state) {
    uint8_t *bytes = calloc(count, type.bits / 8);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < count; i++) {
        uint64_t code = next_random(&state);
        double at = (double)(next_random(&state) & UINT32_MAX) * 0x1p-32;
        if (all)
            code = i;
        else if (i % 4)
            code = tvm_encode(type, row->low + (row->high - row->low) * at);
        tvm_bits_set(bytes, i * type.bits, type.bits, code & UINT64_MAX >> (64 - type.bits));
    }
    return bytes;
}

typedef struct worst {
    double units, x, y, found;
} worst;

static worst measure(const math_row *row, tvm_dtype type, size_t count, const uint8_t *x, const uint8_t *y,
                     const uint8_t *r) {
    worst w = {-1, 0, 0, 0};
    for (size_t i = 0; i < count; i++) {
        double a = tvm_decode(type, tvm_bits_get(x, i * type.bits, type.bits)),
               b = tvm_decode(type, tvm_bits_get(y, i * type.bits, type.bits)),
               found = tvm_decode(type, tvm_bits_get(r, i * type.bits, type.bits));
        if (!math_counts(row, a, b)) continue;
        double units = math_error(row, type, a, b, found);
        if (units > w.units) w = (worst){units, a, b, found};
    }
    return w;
}

static bool run(suite *s, const gpu_test *test) {
    const math_row *row = test->data;
    bool half = test->type.bits == 16, good = false;
    size_t count = half ? HALVES : SINGLES;
    unsigned t = half ? test->type.exponent == 8 : test->type.bits == 64 ? MATH_F64 : 2;
    uint8_t *x = samples(row, test->type, count, half, 7), *y = samples(row, test->type, count, false, 8);
    uint8_t *outputs[GPU_MAX_ARGS] = {0};
    gpu_arg args[] = {ARG_SCALAR((int64_t)count), ARG_IN(test->type, count, x), ARG_IN(test->type, count, y),
                      ARG_OUT(test->type, count)};
    if (gpu_launch(s->gpu, test, "k", args, 4, outputs)) {
        worst w = measure(row, test->type, count, x, y, outputs[3]);
        good = w.units <= row->units[t];
        printf("%s: %.3f units at most, %g are allowed%s", test->name, w.units, row->units[t],
               good ? "\n" : ": ");
        if (!good) printf("(%a, %a) is %a\n", w.x, w.y, w.found);
    }
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(outputs[i]);
    free(x), free(y);
    return good;
}

void gpu_add_math(suite *s, gpu_group *group) {
    (void)s;
    for (size_t i = 0; i < MATH_ROWS * MATH_TYPES; i++) {
        const math_row *row = &math_rows[i / MATH_TYPES];
        const char *type = names[i % MATH_TYPES];
        if (!math_has(row, i % MATH_TYPES)) continue;
        char title[64], text[512];
        snprintf(title, sizeof title, "%s%s of %s", row->name, row->fast ? " fast" : "", type);
        snprintf(text, sizeof text,
                 ".vasm 5\n.kernel k(n: i32, x: global %s[n], y: global %s[n], r: global %s[n])\n.warps 4\n"
                 ".grid cdiv(n, 512)\n%%i = block.x * 512\n%%x = load-global x[%%i], auto(512)\n"
                 "%%y = load-global y[%%i], auto(512)\n%%r = %s %%x%s%s\nstore-global r[%%i], %%r\n.end\n",
                 type, type, type, row->name, row->binary ? ", %y" : "", row->fast ? ", fast" : "");
        gpu_test *test = gpu_add(group, title, text, NULL, NULL, 0);
        if (!tvm_dtype_parse(type, strlen(type), &test->type)) abort();
        test->run = run;
        test->data = row;
    }
}
