/* programs/matmul_u3.vasm for every weight type and several sizes: packing bit for bit, the product against
 * the interpreter and against float64. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matmul_reference.h"
#include "suite.h"

static const struct {
    long m, n, k;
} sizes[] = {
    {1, 128, 128}, {5, 256, 384}, {17, 136, 256}, {33, 392, 512}, {16, 512, 1024}, {64, 72, 128},
};

typedef struct problem {
    long m, n, k;
    size_t a, w, s, p, c; /* elements; p in bytes */
    uint16_t *activations, *scales;
    uint8_t *weights, *zeros;
} problem;

static void *zeroed(size_t bytes) {
    void *memory = calloc(bytes + 8, 1);
    if (memory == NULL) abort();
    return memory;
}

static void make(problem *p, long m, long n, long k, weight_type weight, uint64_t seed) {
    *p = (problem){.m = m, .n = n, .k = k};
    p->a = (size_t)(m * k), p->w = (size_t)(k * n), p->s = (size_t)(k / GROUP * n), p->c = (size_t)(m * n);
    p->activations = zeroed(p->a * 2), p->scales = zeroed(p->s * 2);
    p->weights = zeroed(p->w * (size_t)weight.bits / 8);
    matmul_inputs(m, n, k, weight, seed, p->activations, p->weights, p->scales);
}

static bool exact_enough(const gpu_test *test, const char *where, const problem *p, weight_type weight,
                         const uint16_t *c) {
    double *expected = zeroed(p->c * sizeof(double)), largest;
    matmul_expect(p->m, p->n, p->k, weight, p->activations, p->weights, p->scales, expected);
    double error = matmul_error(p->c, c, expected, &largest);
    free(expected);
    if (error <= 1e-3) return true;
    printf("%s: m %ld n %ld k %ld: relative Frobenius error %.3g on %s\n", test->name, p->m, p->n, p->k,
           error, where);
    return false;
}

static bool multiply(suite *s, const gpu_test *test, const problem *p, weight_type weight,
                     const uint8_t *packed) {
    gpu_arg args[] = {ARG_SCALAR(p->m),
                      ARG_SCALAR(p->n),
                      ARG_SCALAR(p->k),
                      ARG_IN(TVM_F16, p->a, p->activations),
                      ARG_IN(TVM_U(8), p->p, packed),
                      ARG_IN(TVM_F16, p->s, p->scales),
                      ARG_OUT(TVM_F16, p->c)};
    uint8_t *cpu[GPU_MAX_ARGS] = {0}, *gpu[GPU_MAX_ARGS] = {0};
    bool good =
        gpu_launch(s->cpu, test, "matmul", args, 7, cpu) && gpu_launch(s->gpu, test, "matmul", args, 7, gpu);
    good = good && exact_enough(test, "the interpreter", p, weight, (const uint16_t *)(const void *)cpu[6]);
    good = good && exact_enough(test, "the GPU", p, weight, (const uint16_t *)(const void *)gpu[6]);
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
    make(&p, sizes[index].m, sizes[index].n, sizes[index].k, weight, index + 1);
    p.p = packed_bytes(s, test, &p);
    gpu_arg args[] = {ARG_SCALAR(p.k), ARG_SCALAR(p.n), ARG_IN(test->type, p.w, p.weights),
                      ARG_OUT(TVM_U(8), p.p)};
    uint8_t *packed[GPU_MAX_ARGS] = {0};
    bool good = p.p != 0 && gpu_run_both(s, test, "pack", args, 4) &&
                gpu_launch(s->gpu, test, "pack", args, 4, packed) && multiply(s, test, &p, weight, packed[3]);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(packed[i]);
    free(p.activations), free(p.scales), free(p.weights);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    char name[TVM_DTYPE_NAME_MAX];
    weight_type weight;
    if (!weight_type_parse(tvm_dtype_name(test->type, name), &weight)) return false;
    bool good = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) good = run_size(s, test, weight, i) && good;
    return good;
}

void gpu_add_matmuls(suite *s, gpu_group *group) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    char file[4096];
    snprintf(file, sizeof file, "%s/matmul_u3.vasm", s->programs);
    for (size_t i = 0; i < count; i++) {
        char name[TVM_DTYPE_NAME_MAX], title[64], define[64];
        const char *defines[] = {define};
        if (!tvm_dtype_is_lowbit(types[i])) continue;
        snprintf(title, sizeof title, "matmul %s", tvm_dtype_name(types[i], name));
        snprintf(define, sizeof define, "WTYPE=%s", name);
        gpu_test *test = gpu_add(group, title, NULL, file, defines, 1);
        test->run = run;
        test->type = types[i];
    }
}
