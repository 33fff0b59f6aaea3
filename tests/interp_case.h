/* What the tests of the interpreter share: programs from text, launches with named arguments, and numbers
 * that are computed by other means than the library's. */
#ifndef INTERP_CASE_H
#define INTERP_CASE_H

#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "interp.h"
#include "launch.h"

typedef struct binding {
    const char *name;
    int64_t i;
    double f;
    void *data;
} binding;

#define INT(n, x)    ((binding){.name = (n), .i = (x)})
#define REAL(n, x)   ((binding){.name = (n), .f = (x)})
#define TENSOR(n, x) ((binding){.name = (n), .data = (x)})
#define VALUES(...)  (const binding[]){__VA_ARGS__}, sizeof((const binding[]){__VA_ARGS__}) / sizeof(binding)

/* What a launch did. */
typedef struct outcome {
    tvm_status status;
    char message[512]; /* of the first diagnostic */
    unsigned line;
    size_t diagnostics;
    char *output; /* of print-tensor; malloc'ed */
    size_t output_size;
} outcome;

static inline void bind(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const binding *values,
                        size_t count, tvm_interp_arg *args, tvm_scalar *scalars) {
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const char *name = tvm_string(program, kernel->slots[p].name);
        size_t v = 0;
        while (v < count && strcmp(values[v].name, name) != 0) v++;
        ck_assert_msg(v < count, "no value for %s", name);
        args[p] = (tvm_interp_arg){.data = values[v].data};
        if (kernel->slots[p].dtype.kind == TVM_KIND_FLOAT)
            args[p].scalar.f = values[v].f;
        else
            args[p].scalar.i = values[v].i;
        scalars[p] = args[p].scalar;
    }
}

/* Launches kernel `name` (NULL: the first) on `threads` host threads. */
static inline outcome launch(const tvm_ir_program *program, const char *name, unsigned threads,
                             const binding *values, size_t count) {
    const tvm_ir_kernel *kernel = name ? tvm_find_kernel(program, name) : &program->kernels[0];
    tvm_interp_arg args[TVM_MAX_PARAMS];
    tvm_scalar scalars[TVM_MAX_PARAMS];
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    tvm_diags diags = {0};
    outcome out = {0};
    tvm_interp_kernel *ready = NULL;
    FILE *stream = open_memstream(&out.output, &out.output_size);
    ck_assert_ptr_nonnull(stream);
    ck_assert_ptr_nonnull(kernel);
    bind(program, kernel, values, count, args, scalars);
    out.status = tvm_launch_check(program, kernel, &env, &diags);
    if (out.status == TVM_OK) {
        const tvm_interp_options options = {.threads = threads, .output = stream};
        ck_assert_int_eq(tvm_interp_prepare(program, kernel, &ready, &diags), TVM_OK);
        out.status = tvm_interp_run(ready, args, env.grid, &options, &diags);
        tvm_interp_free(ready);
    }
    fclose(stream);
    out.diagnostics = diags.count;
    if (diags.count) {
        snprintf(out.message, sizeof out.message, "%s", diags.items[0].message);
        out.line = diags.items[0].line;
    }
    tvm_diags_free(&diags);
    return out;
}

/* Assembles and launches the first kernel on one host thread. */
static inline outcome attempt(const char *text, const binding *values, size_t count) {
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 1, values, count);
    tvm_ir_program_free(program);
    return out;
}

/* The same, and it must succeed; output is dropped. */
static inline void run(const char *text, const binding *values, size_t count) {
    outcome out = attempt(text, values, count);
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    free(out.output);
}

/* The same, and it must fail while it runs, with this message. */
static inline void run_fails(const char *text, const char *message, const binding *values, size_t count) {
    outcome out = attempt(text, values, count);
    ck_assert_int_eq(out.status, TVM_FAULT);
    ck_assert_uint_eq(out.diagnostics, 1);
    ck_assert_str_eq(out.message, message);
    free(out.output);
}

static inline uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8 ^ *state << 11;
}

/* A float of any format with `exponent` and `mantissa` bits, with infinity and NaN as in IEEE 754 when
 * `special`. */
static inline double float_value(unsigned exponent, unsigned mantissa, bool special, uint64_t code) {
    unsigned e = (unsigned)(code >> mantissa) & ((1u << exponent) - 1);
    uint64_t m = code & ((UINT64_C(1) << mantissa) - 1);
    int bias = (1 << (exponent - 1)) - 1;
    double sign = code >> (exponent + mantissa) & 1 ? -1.0 : 1.0;
    if (special && e == (1u << exponent) - 1) return m ? (double)NAN : sign * (double)INFINITY;
    if (e == 0) return sign * ldexp((double)m, 1 - bias - (int)mantissa);
    return sign * ldexp((double)(m + (UINT64_C(1) << mantissa)), (int)e - bias - (int)mantissa);
}

static inline double f16_value(uint16_t code) {
    return float_value(5, 10, true, code);
}
static inline double bf16_value(uint16_t code) {
    return float_value(8, 7, true, code);
}

/* Nearest code of a 16-bit format, ties to even, by frexp and rint. */
static inline uint16_t half_code(unsigned exponent, unsigned mantissa, long double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int bias = (1 << (exponent - 1)) - 1, e;
    if (isnan(x)) return 0x7fff;
    long double magnitude = fabsl(x);
    uint16_t infinity = (uint16_t)(((1u << exponent) - 1) << mantissa);
    if (isinf(magnitude)) return sign | infinity;
    if (magnitude == 0) return sign;
    frexpl(magnitude, &e);
    int unit = (e - 1 < 1 - bias ? 1 - bias : e - 1) - (int)mantissa;
    long double steps = rintl(ldexpl(magnitude, -unit));
    /* The code of a positive number counts the steps from zero. */
    long double code = steps + (unit + (int)mantissa - (1 - bias)) * (long double)(1 << mantissa);
    return sign | (code >= infinity ? infinity : (uint16_t)code);
}

static inline uint16_t f16_code(long double x) {
    return half_code(5, 10, x);
}
static inline uint16_t bf16_code(long double x) {
    return half_code(8, 7, x);
}

static inline uint64_t bit_string_get(const uint8_t *string, size_t element, unsigned bits) {
    uint64_t code = 0;
    for (unsigned b = 0; b < bits; b++) {
        size_t bit = element * bits + b;
        code |= (uint64_t)(string[bit / 8] >> bit % 8 & 1) << b;
    }
    return code;
}

static inline void bit_string_set(uint8_t *string, size_t element, unsigned bits, uint64_t code) {
    for (unsigned b = 0; b < bits; b++) {
        size_t bit = element * bits + b;
        string[bit / 8] = (uint8_t)((string[bit / 8] & ~(1u << bit % 8)) | (code >> b & 1) << bit % 8);
    }
}

#endif
