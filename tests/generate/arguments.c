#include "generate/arguments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "generate.h"

enum { MULTIPROCESSORS = 2, ALIGNMENT = 64, MOST_BYTES = 1 << 24 };

static const char *name_of(const generate_launch *l, uint32_t p) {
    return tvm_string(l->program, l->kernel->slots[p].name);
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

/* ---- arguments ---- */

static tvm_scalar scalar(const char *name, unsigned set) {
    static const int64_t n[GENERATE_SETS] = {40, 8, 64},
                         c[GENERATE_SETS] = {(INT64_C(1) << 33) + 5, -7, INT64_C(-0x123456789ab)};
    static const double f[GENERATE_SETS] = {1.5, -0.375, 1000.0625}, e[GENERATE_SETS] = {-0.75, 3e40, 0.1};
    switch (name[0]) {
    case 'n':
        return (tvm_scalar){.i = n[set]};
    case 'c':
        return (tvm_scalar){.i = c[set]};
    case 'd':
        return (tvm_scalar){.i = set == 0 ? INT64_C(4000000000) : 3 + set};
    case 'f':
        return (tvm_scalar){.f = f[set]};
    case 'e':
        return (tvm_scalar){.f = e[set]};
    default:
        return (tvm_scalar){.i = set != 1};
    }
}

/* Any bits; where they would say nothing of the type, a number. */
static uint64_t raw(tvm_dtype type, uint64_t *state) {
    uint64_t bits = generate_bits(state), kind = bits >> 61;
    double number = ((double)(bits >> 20 & 0xffff) - 32767.5) / 2048;
    if (type.kind == TVM_KIND_BOOL) return bits & 1;
    if (kind < 2 || tvm_dtype_same(type, TVM_TF32)) return tvm_encode(type, number);
    if (kind == 2) return tvm_encode(type, (double)(bits & 7));
    return type.bits == 64 ? bits : bits & ((UINT64_C(1) << type.bits) - 1);
}

static uint64_t element(const char *name, tvm_dtype type, uint64_t *state) {
    if (begins(name, "raw")) return raw(type, state);
    uint64_t bits = generate_bits(state) >> 20;
    if (begins(name, "scale")) return tvm_encode(type, (double)(1 << bits % 3));
    if (begins(name, "index")) return tvm_encode(type, (double)(bits % 32));
    return tvm_encode(type, type.kind == TVM_KIND_UINT || type.kind == TVM_KIND_BOOL
                                ? (double)(bits % 5)
                                : (double)(bits % 9) - 4);
}

static void fill(generate_launch *l, uint32_t p) {
    const char *name = name_of(l, p);
    tvm_dtype type = l->kernel->slots[p].dtype;
    uint64_t state = 1000 * (p + 1) + l->set;
    if (begins(name, "zero") || begins(name, "out") || begins(name, "near")) {
        memset(l->tensors[p], begins(name, "zero") ? 0 : 0x5a, l->bytes[p]);
        return;
    }
    memset(l->tensors[p], 0, l->bytes[p]);
    for (uint64_t i = 0; i < l->bytes[p] * 8 / type.bits; i++)
        tvm_bits_set(l->tensors[p], i * type.bits, type.bits, element(name, type, &state));
}

bool generate_launch_make(generate_launch *l, const tvm_ir_program *program, uint32_t kernel, unsigned set,
                          uint32_t target, tvm_diags *diags) {
    *l = (generate_launch){.program = program, .kernel = &program->kernels[kernel], .set = set};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->kernel->slots[p].kind == TVM_SLOT_SCALAR) l->scalars[p] = scalar(name_of(l, p), set);
    l->env = (tvm_launch_env){.scalars = l->scalars,
                              .multiprocessors = MULTIPROCESSORS,
                              .target = target,
                              .traits = tvm_target_traits_for(target)};
    if (tvm_launch_check(program, l->kernel, &l->env, diags) != TVM_OK) return false;
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        int64_t shape[TVM_MAX_RANK];
        if (l->kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        if (tvm_launch_shape(program, l->kernel, p, &l->env, shape, &l->bytes[p], diags) != TVM_OK ||
            l->bytes[p] > MOST_BYTES)
            return false;
        l->tensors[p] = aligned_alloc(ALIGNMENT, (l->bytes[p] + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
        if (l->tensors[p] == NULL) abort();
    }
    generate_launch_fill(l);
    return true;
}

void generate_launch_fill(generate_launch *l) {
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->tensors[p]) fill(l, p);
}

void generate_launch_free(generate_launch *l) {
    for (uint32_t p = 0; p < TVM_MAX_PARAMS; p++) {
        free(l->tensors[p]);
        l->tensors[p] = NULL;
    }
}

tvm_status generate_launch_interpret(generate_launch *l, const tvm_interp_kernel *ready,
                                     uint64_t instructions, tvm_sanitize sanitize, tvm_diags *diags) {
    tvm_interp_arg args[TVM_MAX_PARAMS];
    FILE *nowhere = fopen("/dev/null", "w");
    const tvm_interp_options options = {.threads = 1,
                                        .multiprocessors = MULTIPROCESSORS,
                                        .target = l->env.target,
                                        .traits = l->env.traits,
                                        .instructions = instructions,
                                        .sanitize = sanitize,
                                        .output = nowhere};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        args[p] = (tvm_interp_arg){.scalar = l->scalars[p], .data = l->tensors[p]};
    tvm_status status = tvm_interp_run(ready, args, l->env.grid, &options, diags);
    if (nowhere) fclose(nowhere);
    return status;
}

/* ---- results ---- */

static bool near(tvm_dtype type, uint64_t a, uint64_t b, unsigned units) {
    if (a == b) return true;
    if (type.kind != TVM_KIND_FLOAT) return false;
    double x = tvm_decode(type, a), y = tvm_decode(type, b);
    if (isnan(x) && isnan(y)) return true;
    if (units == 0 || !isfinite(x) || !isfinite(y)) return false;
    uint64_t apart = a > b ? a - b : b - a;
    return (signbit(x) == signbit(y) && apart <= units) || fabs(x - y) <= units * 0x1p-22;
}

bool generate_same(const generate_launch *l, uint32_t p, const uint8_t *expected, const uint8_t *found,
                   tvm_why *why) {
    tvm_dtype type = l->kernel->slots[p].dtype;
    const char *name = name_of(l, p);
    unsigned units = begins(name, "near") ? (unsigned)strtoul(name + strlen("near"), NULL, 10) : 0;
    if (memcmp(expected, found, l->bytes[p]) == 0) return true;
    for (uint64_t i = 0; i < l->bytes[p] * 8 / type.bits; i++) {
        uint64_t a = tvm_bits_get(expected, i * type.bits, type.bits),
                 b = tvm_bits_get(found, i * type.bits, type.bits);
        if (near(type, a, b, units)) continue;
        snprintf(why->text, sizeof why->text, "%s, element %llu: 0x%llx (%.9g), expected 0x%llx (%.9g)", name,
                 (unsigned long long)i, (unsigned long long)b, tvm_decode(type, b), (unsigned long long)a,
                 tvm_decode(type, a));
        return false;
    }
    return true;
}

bool generate_launches_same(const generate_launch *expected, const generate_launch *found, tvm_why *why) {
    for (uint32_t p = 0; p < expected->kernel->param_count; p++)
        if (expected->tensors[p] && !generate_same(expected, p, expected->tensors[p], found->tensors[p], why))
            return false;
    return true;
}
