/* matmul_lowbit, matmul_scaled and matmul_lowbit_a8 with EXPERTS: every kernel with rows of experts that are
 * few, many or none, and with offsets that are none, against the interpreter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lowbit_reference.h"
#include "suite.h"

enum { EXPERTS = 5, N = 392, K = 384, MOST = 300 };

typedef struct form {
    const char *type, *gate, *half;
    int group;
    bool bias;
} form;

static const form forms[] = {{"u4", "none", "f16", 128, false},
                             {"f4_e2m1", "clamped", "bf16", 32, true},
                             {"u3", "silu", "f16", 64, false},
                             {"u8", "none", "bf16", 128, true}};

/* With activations of 8 bits: `bits` of a weight; group 0: a column has one scale. */
typedef struct narrow_form {
    const char *name, *defines[4];
    const char *type;
    unsigned bits, group;
    bool bias;
} narrow_form;

static const narrow_form narrow_forms[] = {
    {"matmul_scaled", {"BIAS=true"}, "f8_e4m3", 8, 128, true},
    {"matmul_scaled", {"BY_GROUP=true"}, "f8_e4m3", 8, 128, false},
    {"matmul_scaled", {"GROUP=0"}, "f8_e4m3", 8, 0, false},
    {"matmul_scaled", {"GROUP=0", "T=i8", "BIAS=true"}, "i8", 8, 0, true},
    {"matmul_scaled", {"T=i8", "BY_GROUP=true", "OTYPE=f32"}, "i8", 8, 128, false},
    {"matmul_lowbit_a8", {"OTYPE=bf16"}, "i8", 4, 128, false},
    {"matmul_lowbit_a8", {"OTYPE=bf16", "GROUP=0", "BIAS=true"}, "i8", 4, 0, true},
    {"matmul_lowbit_a8", {"OTYPE=bf16", "ATYPE=f8_e4m3", "WTYPE=f4_e2m1"}, "f8_e4m3", 4, 128, false},
    {"matmul_lowbit_a8", {"OTYPE=f32", "WTYPE=u5"}, "i8", 5, 128, false}};

static const int32_t offsets[][EXPERTS + 1] = {{0, MOST, MOST, MOST, MOST, MOST},
                                               {0, 0, 131, 131, 132, MOST},
                                               {3, 19, 19, 240, 241, 266},
                                               {0, 40, 20, 250, 45, MOST},
                                               {-7, -9, 35, 2000000000, 5, MOST}};

/* Numbers of few values, between -2 and 2 times `scale`. */
static void *random_numbers(tvm_dtype type, size_t count, double scale, uint64_t seed) {
    uint8_t *bytes = calloc(count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value = (double)((int64_t)(seed >> 33) % 2048) / 1024 * (seed >> 63 ? -1 : 1);
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value * scale));
    }
    return bytes;
}

/* One kernel there and on the interpreter. Sums are of K products below 2 times 8 times 2 / 64. */
static bool same(suite *s, const gpu_test *test, tvm_program *gpu, tvm_program *model, const char *kernel,
                 const gpu_arg *args, size_t count) {
    uint8_t *found[GPU_MAX_ARGS] = {0}, *wanted[GPU_MAX_ARGS] = {0};
    bool good = gpu_launch_code(s->gpu, gpu, test, kernel, args, count, found) &&
                gpu_launch_code(s->model, model, test, kernel, args, count, wanted) &&
                gpu_same(test->name, kernel, &args[count - 1], wanted[count - 1], found[count - 1]);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(found[i]), free(wanted[i]);
    return good;
}

static bool run_offsets(suite *s, const gpu_test *test, tvm_program *gpu, tvm_program *model, size_t index) {
    const form *f = test->data;
    const tvm_dtype half = test->type;
    weight_type weight;
    if (!weight_type_parse(f->type, &weight)) return false;
    const size_t packed = (size_t)EXPERTS * ((N + 63) / 64) * 64 * K * weight.bits / 8;
    const size_t scales = (size_t)EXPERTS * (size_t)(K / f->group) * N;
    void *owned[] = {random_numbers(half, MOST * K, 1, 1), random_numbers(TVM_U(8), packed, 64, 2),
                     random_numbers(half, scales, 1.0 / 64, 3), random_numbers(half, EXPERTS * N, 1, 4)};
    gpu_arg args[GPU_MAX_ARGS] = {ARG_SCALAR(MOST),
                                  ARG_SCALAR(N),
                                  ARG_SCALAR(K),
                                  ARG_SCALAR(EXPERTS),
                                  ARG_IN(half, MOST * K, owned[0]),
                                  ARG_IN(TVM_I(32), EXPERTS + 1, offsets[index]),
                                  ARG_IN(TVM_U(8), packed, owned[1]),
                                  ARG_IN(half, scales, owned[2])};
    size_t count = 8;
    if (f->bias) args[count++] = (gpu_arg)ARG_IN(half, EXPERTS * N, owned[3]);
    args[count] = (gpu_arg)ARG_OUT(half, (size_t)MOST * (strcmp(f->gate, "none") == 0 ? N : N / 2));
    args[count++].tolerance = 0.03;
    bool good = true;
    for (size_t i = 0; i < tvm_kernel_count(gpu); i++) {
        const char *name = tvm_kernel_name(tvm_kernel_at(gpu, i));
        if (!lowbit_runs_on(name, s->target) || !gpu_has_room(tvm_kernel_at(gpu, i))) continue;
        good = same(s, test, gpu, model, name, args, count) && good;
    }
    good = same(s, test, gpu, model, "matmul_lowbit", args, count) && good;
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    return good;
}

/* Those by wgmma and tcgen05, and for other targets `_plain`. */
static bool narrow_runs_on(const char *kernel, unsigned target) {
    if (strstr(kernel, "_tensor_") != NULL) return target >= 100 && target < 120;
    return strstr(kernel, "_plain") != NULL ? target != 90 : target == 90;
}

/* Integers have the interpreter's bits; the tensor cores add f8 with fewer than an f32 has. */
static bool run_narrow(suite *s, const gpu_test *test, tvm_program *gpu, tvm_program *model, size_t index) {
    const narrow_form *f = test->data;
    const bool scaled = strcmp(f->name, "matmul_scaled") == 0, whole = f->type[0] == 'i';
    const double most = whole ? 60 : 1;
    const size_t columns = (N + 63) / 64 * 64, groups = f->group == 0 ? 1 : K / f->group;
    const size_t weights = (size_t)EXPERTS * (scaled ? N : columns) * K * f->bits / 8;
    const size_t of_a = MOST * (scaled ? groups : 1);
    const size_t of_b = EXPERTS * groups * (scaled && f->group != 0 ? (N + 127) / 128 : N);
    void *owned[] = {random_numbers(test->type, MOST * K, most, 1),
                     scaled ? random_numbers(test->type, weights, most, 2)
                            : random_numbers(TVM_U(8), weights, 64, 2),
                     random_numbers(TVM_F32, of_a, 1.0 / 16, 3), random_numbers(TVM_F32, of_b, 1.0 / 16, 4),
                     random_numbers(TVM_F32, EXPERTS * N, 1, 5)};
    gpu_arg args[GPU_MAX_ARGS] = {ARG_SCALAR(MOST),
                                  ARG_SCALAR(N),
                                  ARG_SCALAR(K),
                                  ARG_SCALAR(EXPERTS),
                                  ARG_IN(test->type, MOST * K, owned[0]),
                                  ARG_IN(TVM_I(32), EXPERTS + 1, offsets[index]),
                                  ARG_IN(scaled ? test->type : TVM_U(8), weights, owned[1]),
                                  ARG_IN(TVM_F32, of_a, owned[2]),
                                  ARG_IN(TVM_F32, of_b, owned[3])};
    size_t count = 9;
    if (f->bias) args[count++] = (gpu_arg)ARG_IN(TVM_F32, EXPERTS * N, owned[4]);
    const bool wide = strstr(test->name, "OTYPE=f32") != NULL;
    args[count] = (gpu_arg)ARG_OUT(wide ? TVM_F32 : TVM_BF16, (size_t)MOST * N);
    args[count++].tolerance = whole ? 0 : 0.03;
    bool good = true;
    for (size_t i = 0; i < tvm_kernel_count(gpu); i++) {
        const char *name = tvm_kernel_name(tvm_kernel_at(gpu, i));
        if (strcmp(name, "pack") == 0 || strcmp(name, f->name) == 0) continue;
        if (!narrow_runs_on(name, s->target) || !gpu_has_room(tvm_kernel_at(gpu, i))) continue;
        good = same(s, test, gpu, model, name, args, count) && good;
    }
    good = same(s, test, gpu, model, f->name, args, count) && good;
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    return good;
}

typedef bool of_offsets(suite *s, const gpu_test *test, tvm_program *gpu, tvm_program *model, size_t index);

static bool run_each(suite *s, const gpu_test *test, of_offsets *each) {
    tvm_program *gpu = NULL, *model = NULL;
    bool good = tvm_load(s->gpu, test->bytecode, test->size, &gpu) == TVM_OK &&
                tvm_load(s->model, test->bytecode, test->size, &model) == TVM_OK;
    if (!good) printf("%s: %s\n", test->name, tvm_message(gpu == NULL ? s->gpu : s->model));
    for (size_t i = 0; good && i < sizeof offsets / sizeof *offsets; i++) good = each(s, test, gpu, model, i);
    tvm_program_free(gpu);
    tvm_program_free(model);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    return run_each(s, test, run_offsets);
}

static bool run_eight(suite *s, const gpu_test *test) {
    return run_each(s, test, run_narrow);
}

void gpu_add_experts(suite *s, gpu_group *group) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        char file[4096], title[128], type[32], half[32], size[32], gate[32];
        snprintf(file, sizeof file, "%s/matmul_lowbit_u4.vasm", s->programs);
        snprintf(type, sizeof type, "WTYPE=%s", f->type);
        snprintf(half, sizeof half, "ATYPE=%s", f->half);
        snprintf(size, sizeof size, "GROUP=%d", f->group);
        snprintf(gate, sizeof gate, "GATE=\"%s\"", f->gate);
        const char *defines[] = {"EXPERTS=true", type, half, size, gate, "BIAS=true"};
        snprintf(title, sizeof title, "experts %s %s %s %s", f->type, f->half, size, f->gate);
        gpu_test *test = gpu_add(group, title, NULL, file, defines, f->bias ? 6 : 5);
        test->run = run;
        test->data = f;
        if (!tvm_dtype_parse(f->half, strlen(f->half), &test->type)) abort();
    }
}

void gpu_add_experts8(suite *s, gpu_group *group) {
    for (size_t i = 0; i < sizeof narrow_forms / sizeof *narrow_forms; i++) {
        const narrow_form *f = &narrow_forms[i];
        char file[4096], title[128] = "";
        snprintf(file, sizeof file, "%s/%s.vasm", s->programs, f->name);
        const char *defines[5] = {"EXPERTS=true"};
        size_t count = 1, at = (size_t)snprintf(title, sizeof title, "experts %s", f->name);
        for (size_t d = 0; d < 4 && f->defines[d] != NULL; d++, count++) {
            defines[count] = f->defines[d];
            at += (size_t)snprintf(title + at, sizeof title - at, " %s", f->defines[d]);
        }
        gpu_test *test = gpu_add(group, title, NULL, file, defines, count);
        test->run = run_eight;
        test->data = f;
        if (!tvm_dtype_parse(f->type, strlen(f->type), &test->type)) abort();
    }
}
