/* programs/matmul_u3.vasm for every weight type and several sizes, and with every option for a few types:
 * packing bit for bit, the product against the interpreter and against float64. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matmul_reference.h"
#include "suite.h"

static const struct {
    long m, n, k;
} sizes[] = {
    {1, 128, 128}, {5, 256, 384},   {17, 136, 256}, {33, 392, 512},
    {5, 72, 1664}, {16, 512, 1024}, {64, 72, 128},
};

/* The sizes for programs with options. */
enum { SIZES = sizeof sizes / sizeof *sizes, FIRST_OF_VARIANTS = 1, SIZES_OF_VARIANTS = 4 };

/* Types of each way to convert. */
static const char *const variant_types[] = {"u1", "u3", "u4", "u8", "i5", "f6_e3m2", "f8_e4m3", "f8_e6m1"};

static const matmul_variant variants[] = {
    {0, 32, 0}, {0, 64, 0},  {0, 0, 0}, {1, 32, 0}, {1, 64, 0}, {1, 128, 0}, {1, 0, 0}, {0, 32, 1},
    {0, 64, 1}, {0, 128, 1}, {0, 0, 1}, {1, 32, 1}, {1, 64, 1}, {1, 128, 1}, {1, 0, 1},
};

typedef struct problem {
    long m, n, k;
    matmul_variant variant;
    size_t a, w, s, p, c; /* elements; p in bytes */
    uint16_t *activations, *scales, *zeros;
    uint8_t *weights;
} problem;

static void *zeroed(size_t bytes) {
    void *memory = calloc(bytes + 8, 1);
    if (memory == NULL) abort();
    return memory;
}

static void make(problem *p, size_t index, weight_type weight, matmul_variant variant) {
    *p = (problem){.m = sizes[index].m, .n = sizes[index].n, .k = sizes[index].k, .variant = variant};
    p->a = (size_t)(p->m * p->k), p->w = (size_t)(p->k * p->n), p->c = (size_t)(p->m * p->n);
    p->s = (size_t)(matmul_groups(variant, p->k) * p->n);
    p->activations = zeroed(p->a * 2), p->scales = zeroed(p->s * 2), p->zeros = zeroed(p->s * 2);
    p->weights = zeroed(p->w * (size_t)weight.bits / 8);
    matmul_inputs(p->m, p->n, p->k, weight, variant, index + 1, p->activations, p->weights, p->scales,
                  p->zeros);
}

static bool near_enough(const gpu_test *test, const char *what, const problem *p, const uint16_t *c,
                        const double *expected) {
    double largest, error = matmul_error(p->c, p->variant, c, expected, &largest);
    if (error <= matmul_error_bound(p->variant)) return true;
    printf("%s: m %ld n %ld k %ld: relative Frobenius error %.3g, %s\n", test->name, p->m, p->n, p->k, error,
           what);
    return false;
}

static bool compare(const gpu_test *test, const problem *p, weight_type weight, const uint16_t *cpu,
                    const uint16_t *gpu) {
    double *expected = zeroed(p->c * sizeof(double)), *interpreted = zeroed(p->c * sizeof(double));
    matmul_expect(p->m, p->n, p->k, weight, p->variant, p->activations, p->weights, p->scales, p->zeros,
                  expected);
    for (size_t i = 0; i < p->c; i++) interpreted[i] = half_value(p->variant.bf16, cpu[i]);
    bool good = near_enough(test, "the interpreter against float64", p, cpu, expected);
    good = near_enough(test, "the GPU against float64", p, gpu, expected) && good;
    good = near_enough(test, "the GPU against the interpreter", p, gpu, interpreted) && good;
    free(expected), free(interpreted);
    return good;
}

static bool multiply(suite *s, const gpu_test *test, const problem *p, weight_type weight,
                     const uint8_t *packed) {
    tvm_dtype half = p->variant.bf16 ? TVM_BF16 : TVM_F16;
    gpu_arg args[8] = {ARG_SCALAR(p->m),
                       ARG_SCALAR(p->n),
                       ARG_SCALAR(p->k),
                       ARG_IN(half, p->a, p->activations),
                       ARG_IN(TVM_U(8), p->p, packed),
                       ARG_IN(half, p->s, p->scales)};
    size_t count = 6;
    if (p->variant.zeros) args[count++] = ARG_IN(half, p->s, p->zeros);
    size_t product = count++;
    args[product] = ARG_OUT(half, p->c);
    uint8_t *cpu[GPU_MAX_ARGS] = {0}, *gpu[GPU_MAX_ARGS] = {0};
    bool good = gpu_launch(s->cpu, test, "matmul", args, count, cpu) &&
                gpu_launch(s->gpu, test, "matmul", args, count, gpu) &&
                compare(test, p, weight, (const uint16_t *)(const void *)cpu[product],
                        (const uint16_t *)(const void *)gpu[product]);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(cpu[i]), free(gpu[i]);
    return good;
}

/* The size of `p`, which depends on the program's tiles; 0 when it cannot be told. */
static size_t packed_bytes(suite *s, const gpu_test *test, const problem *p) {
    tvm_program *code = NULL;
    tvm_kernel *pack = NULL;
    tvm_value values[4] = {{.i = p->k}, {.i = p->n}};
    int64_t shape[8];
    size_t bytes = 0;
    if (tvm_load(s->cpu, test->bytecode, test->size, &code) != TVM_OK ||
        tvm_get_kernel(code, "pack", &pack) != TVM_OK ||
        tvm_param_shape(pack, 3, values, 4, shape, &bytes) != TVM_OK)
        printf("%s: %s\n", test->name, tvm_message(s->cpu));
    tvm_program_free(code);
    return bytes;
}

static bool run_size(suite *s, const gpu_test *test, weight_type weight, size_t index) {
    problem p;
    make(&p, index, weight, *(const matmul_variant *)test->data);
    p.p = packed_bytes(s, test, &p);
    gpu_arg args[] = {ARG_SCALAR(p.k), ARG_SCALAR(p.n), ARG_IN(test->type, p.w, p.weights),
                      ARG_OUT(TVM_U(8), p.p)};
    uint8_t *packed[GPU_MAX_ARGS] = {0};
    bool good = p.p != 0 && gpu_run_both(s, test, "pack", args, 4) &&
                gpu_launch(s->gpu, test, "pack", args, 4, packed) && multiply(s, test, &p, weight, packed[3]);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(packed[i]);
    free(p.activations), free(p.scales), free(p.zeros), free(p.weights);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    char name[TVM_DTYPE_NAME_MAX];
    weight_type weight;
    if (!weight_type_parse(tvm_dtype_name(test->type, name), &weight)) return false;
    bool every = test->data == &matmul_default, good = true;
    size_t first = every ? 0 : FIRST_OF_VARIANTS, end = every ? SIZES : first + SIZES_OF_VARIANTS;
    for (size_t i = first; i < end; i++) good = run_size(s, test, weight, i) && good;
    return good;
}

static void add(suite *s, gpu_group *group, tvm_dtype type, const matmul_variant *variant) {
    char file[4096], name[TVM_DTYPE_NAME_MAX], title[128], wtype[64], rows[64];
    const char *half = variant->bf16 ? "ATYPE=bf16" : "ATYPE=f16";
    const char *defines[] = {wtype, half, rows, variant->zeros ? "ZEROS=true" : "ZEROS=false"};
    snprintf(file, sizeof file, "%s/matmul_u3.vasm", s->programs);
    tvm_dtype_name(type, name);
    snprintf(wtype, sizeof wtype, "WTYPE=%s", name);
    snprintf(rows, sizeof rows, "GROUP=%ld", variant->group);
    snprintf(title, sizeof title, "matmul %s %s %s%s", name, half, rows, variant->zeros ? " ZEROS" : "");
    gpu_test *test = gpu_add(group, title, NULL, file, defines, sizeof defines / sizeof *defines);
    test->run = run;
    test->type = type;
    test->data = variant;
}

void gpu_add_matmuls(suite *s, gpu_group *group) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX], type;
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++)
        if (tvm_dtype_is_lowbit(types[i])) add(s, group, types[i], &matmul_default);
    for (size_t t = 0; t < sizeof variant_types / sizeof *variant_types; t++) {
        if (!tvm_dtype_parse(variant_types[t], strlen(variant_types[t]), &type)) abort();
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
            if (!variants[v].zeros || type.kind == TVM_KIND_UINT) add(s, group, type, &variants[v]);
    }
}
