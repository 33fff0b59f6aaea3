/* programs/matmul.vasm: the types and the parts of the epilogue, and programs/matmul_simple.vasm, at sizes of
 * one and of many tiles; sums of whole numbers bit for bit the interpreter's, those of f8 as near as the
 * adders of the tensor cores let them be; twice for the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* Operands are random in [-range, range). Of `file`, or matmul. */
typedef struct product {
    const char *defines[6], *a, *b, *c;
    double range, tolerance;
    bool scales, bias, residual;
    const char *file;
} product;

static const product products[] = {
    {{"T=f16"}, "f16", "f16", "f16", 1, 0x1p-9, false, false, false, NULL},
    {{"T=bf16", "SCALES=true", "BIAS=true"}, "bf16", "bf16", "bf16", 1, 0x1p-7, true, true, false, NULL},
    {{"T=f16", "SCALES=true", "BIAS=true", "ACT=\"silu\"", "RESIDUAL=true"},
     "f16",
     "f16",
     "f16",
     1,
     0x1p-9,
     true,
     true,
     true,
     NULL},
    {{"T=f8_e4m3", "SCALES=true"}, "f8_e4m3", "f8_e4m3", "f16", 1, 0x1p-6, true, false, false, NULL},
    {{"T=f8_e5m2", "TB=f8_e4m3", "BIAS=true", "ACT=\"gelu\""},
     "f8_e5m2",
     "f8_e4m3",
     "f16",
     1,
     0x1p-6,
     false,
     true,
     false,
     NULL},
    {{"T=f8_e4m3", "TB=f8_e5m2", "OTYPE=f32"},
     "f8_e4m3",
     "f8_e5m2",
     "f32",
     1,
     0x1p-6,
     false,
     false,
     false,
     NULL},
    {{"T=i8", "BIAS=true", "RESIDUAL=true"}, "i8", "i8", "f16", 127, 0, true, true, true, NULL},
    {{"T=i8", "SCALES=false", "OTYPE=f32"}, "i8", "i8", "f32", 127, 0, false, false, false, NULL},
    {{"T=u8", "TB=i8", "OTYPE=bf16"}, "u8", "i8", "bf16", 127, 0, true, false, false, NULL},
    {{"T=f32", "BIAS=true"}, "f32", "f32", "f32", 1, 0x1p-12, false, true, false, NULL},
    {{"T=f16"}, "f16", "f16", "f16", 1, 0x1p-9, false, false, false, "matmul_simple"},
    {{"T=bf16"}, "bf16", "bf16", "bf16", 1, 0x1p-7, false, false, false, "matmul_simple"},
};
enum { PRODUCTS = sizeof products / sizeof *products };
static const long sizes[][3] = {{1, 8, 16}, {130, 264, 80}, {257, 72, 208}, {64, 256, 512}, {300, 1032, 336}};

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    if (!tvm_dtype_parse(name, strlen(name), &type)) abort();
    return type;
}

/* An argument of that many random elements; the memory goes to *owned. */
static gpu_arg random_input(tvm_dtype type, long count, double low, double high, void **owned) {
    uint64_t seed = (uint64_t)count * UINT64_C(0x9e3779b97f4a7c15) + type.bits;
    uint8_t *bytes = calloc((size_t)count * type.bits / 8 + 8, 1);
    if (bytes == NULL) abort();
    for (size_t i = 0; i < (size_t)count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's MMIX */
        double value = low + (high - low) * (double)(seed >> 11) * 0x1p-53;
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    *owned = bytes;
    return (gpu_arg)ARG_IN(type, (size_t)count, bytes);
}

/* Of matmul.vasm on sm_90a. */
static const char *const wide[] = {"matmul_wide",    "matmul_wide224", "matmul_wide192", "matmul_wide160",
                                   "matmul_wide128", "matmul_wide96",  "matmul_wide64",  "matmul_low"};
enum { WIDE = sizeof wide / sizeof *wide, WIDE_TARGET = 90, WIDE_K = 208 /* the interpreter takes long */ };

/* On the GPU as in the interpreter, and twice for the same bits. */
static bool check_kernel(suite *s, const gpu_test *test, const char *kernel, const gpu_arg *args,
                         size_t count) {
    return gpu_run_both(s, test, kernel, args, count) && gpu_run_again(s, test, kernel, args, count);
}

static bool run_size(suite *s, const gpu_test *test, const long size[3]) {
    const product *p = test->data;
    tvm_dtype c = type_of(p->c);
    long m = size[0], n = size[1], k = size[2];
    double scale = p->range > 1 ? 0.004 : 0.5;
    gpu_arg args[GPU_MAX_ARGS] = {ARG_SCALAR(m), ARG_SCALAR(n), ARG_SCALAR(k)};
    void *owned[GPU_MAX_ARGS] = {0};
    size_t count = 3;
    args[count] = random_input(type_of(p->a), m * k, p->a[0] == 'u' ? 0 : -p->range, p->range, &owned[count]),
    count++;
    args[count] = random_input(type_of(p->b), n * k, -p->range, p->range, &owned[count]), count++;
    if (p->scales) {
        args[count] = random_input(TVM_F32, m, scale, 2 * scale, &owned[count]), count++;
        args[count] = random_input(TVM_F32, n, scale, 2 * scale, &owned[count]), count++;
    }
    if (p->bias) args[count] = random_input(TVM_F32, n, -1, 1, &owned[count]), count++;
    if (p->residual) args[count] = random_input(c, m * n, -1, 1, &owned[count]), count++;
    args[count] = (gpu_arg)ARG_OUT(c, (size_t)(m * n));
    args[count++].tolerance = p->tolerance;
    const char *other = p->file ? "matmul_128" : "matmul_plain";
    /* The plain kernel refuses f8 where there is wgmma, as no case takes it there. */
    bool refused = s->target == WIDE_TARGET && p->file == NULL && strncmp(p->a, "f8", 2) == 0;
    bool good = check_kernel(s, test, "matmul", args, count) &&
                (refused || check_kernel(s, test, other, args, count));
    for (size_t v = 0; v < WIDE && good && !p->file && s->target == WIDE_TARGET && k <= WIDE_K; v++)
        good = check_kernel(s, test, wide[v], args, count);
    if (!good) printf("%s: m %ld, n %ld, k %ld\n", test->name, m, n, k);
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(owned[i]);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) good = run_size(s, test, sizes[i]) && good;
    return good;
}

void gpu_add_products(suite *s, gpu_group *group) {
    for (size_t p = 0; p < PRODUCTS; p++) {
        const char *name = products[p].file ? products[p].file : "matmul";
        char file[4096], title[128];
        size_t count = 0;
        snprintf(title, sizeof title, "%s", name);
        for (; count < 6 && products[p].defines[count] != NULL; count++) {
            size_t used = strlen(title);
            snprintf(title + used, sizeof title - used, " %s", products[p].defines[count]);
        }
        snprintf(file, sizeof file, "%s/%s.vasm", s->programs, name);
        gpu_test *test = gpu_add(group, title, NULL, file, products[p].defines, count);
        test->run = run;
        test->data = &products[p];
    }
}
