/* programs/matmul.vasm: its variants, of all types, with each part of the epilogue, on the interpreter and
 * as generated code on the PTX machine, against float64; the same bits for a row whatever the rows beside it;
 * put through ptxas without a spill. */
#include "check_kit.h"
#include <math.h>
#include <string.h>

#include "kernel_code_kit.h"
#include "suite_kit.h"

/* a and b are random in [low, -low); sums may be wrong by `bound` and a unit of c. */
typedef struct form {
    const char *define, *a, *b, *c;
    double low, bound;
    bool scales, bias, residual;
    enum { NONE, RELU, SILU } act;
} form;

static const form forms[] = {
    {"T=f16", "f16", "f16", "f16", -1, 2e-4, false, false, false, NONE},
    {"T=bf16 SCALES=true BIAS=true", "bf16", "bf16", "bf16", -1, 2e-4, true, true, false, NONE},
    {"T=f16 ACT=relu RESIDUAL=true", "f16", "f16", "f16", -1, 2e-4, false, false, true, RELU},
    {"T=f16 SCALES=true BIAS=true ACT=silu RESIDUAL=true", "f16", "f16", "f16", -1, 2e-4, true, true, true,
     SILU},
    {"T=f8_e4m3 SCALES=true", "f8_e4m3", "f8_e4m3", "f16", -2, 4e-4, true, false, false, NONE},
    {"T=f8_e5m2 TB=f8_e4m3 OTYPE=f32 BIAS=true", "f8_e5m2", "f8_e4m3", "f32", -2, 1e-4, false, true, false,
     NONE},
    {"T=f8_e4m3 TB=f8_e5m2 OTYPE=bf16", "f8_e4m3", "f8_e5m2", "bf16", -2, 1e-4, false, false, false, NONE},
    {"T=i8 BIAS=true ACT=silu RESIDUAL=true", "i8", "i8", "f16", -128, 2e-4, true, true, true, SILU},
    {"T=i8 SCALES=false OTYPE=f32", "i8", "i8", "f32", -128, 0, false, false, false, NONE},
    {"T=u8 TB=i8 OTYPE=bf16", "u8", "i8", "bf16", -200, 2e-4, true, false, false, NONE},
    {"T=f32 BIAS=true RESIDUAL=true", "f32", "f32", "f32", -1, 1e-4, false, true, true, NONE},
};
enum { FORMS = sizeof forms / sizeof *forms };
static const char *const kernels[] = {
    "matmul",         "matmul_plain",   "matmul_plain64",   "matmul_plain128",  "matmul_wide",
    "matmul_wide224", "matmul_wide192", "matmul_wide160",   "matmul_wide128",   "matmul_wide96",
    "matmul_wide64",  "matmul_low",     "matmul_tensor256", "matmul_tensor128", "matmul_tensor64"};
enum { KERNELS = sizeof kernels / sizeof *kernels, FIRST_PLAIN = 1, FIRST_WIDE = 4, FIRST_TENSOR = 12 };
static const size_t sizes[][3] = {{1, 8, 16}, {130, 264, 80}, {257, 72, 208}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static double activation(double x, const form *f) {
    return f->act == RELU ? fmax(x, 0) : f->act == SILU ? x / (1 + exp(-x)) : x;
}

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

typedef struct operands {
    kit_tensor *a, *b, *sa, *sb, *bias, *r, *c;
} operands;

/* What is multiplied: of an f32 what is left of it without its lower 13 bits. */
static double factor(const kit_tensor *t, size_t i) {
    if (t->type.bits != 32) return t->values[i];
    float value = (float)t->values[i];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~UINT32_C(0x1fff);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static operands make(kernel_kit *k, const form *f, const size_t size[3]) {
    size_t m = size[0], n = size[1], depth = size[2];
    double scale = f->low < -100 ? 0.005 : 0.5;
    operands o = {0};
    kit_clear(k);
    for (unsigned i = 0; i < 3; i++) kit_scalar(k, (double)size[i]);
    o.a = kit_input(k, type_of(f->a), m * depth, f->a[0] == 'u' ? 0 : f->low, -f->low);
    o.b = kit_input(k, type_of(f->b), n * depth, f->low, -f->low);
    if (f->scales)
        o.sa = kit_input(k, TVM_F32, m, scale, 4 * scale), o.sb = kit_input(k, TVM_F32, n, scale, 2 * scale);
    if (f->bias) o.bias = kit_input(k, TVM_F32, n, -2, 2);
    if (f->residual) o.r = kit_input(k, type_of(f->c), m * n, -4, 4);
    o.c = kit_tensor_new(k, type_of(f->c), m * n);
    return o;
}

static double expected(const operands *o, const form *f, size_t i, size_t j, size_t n, size_t depth) {
    double sum = 0;
    for (size_t l = 0; l < depth; l++) sum += factor(o->a, i * depth + l) * factor(o->b, j * depth + l);
    if (f->scales) sum *= o->sa->values[i] * o->sb->values[j];
    if (f->bias) sum += o->bias->values[j];
    sum = activation(sum, f);
    return f->residual ? sum + o->r->values[i * n + j] : sum;
}

static void compare(const operands *o, const form *f, const size_t size[3], const double *wanted,
                    const char *where) {
    double unit = o->c->type.bits == 32 ? 0x1p-22 : o->c->type.mantissa == 7 ? 0x1p-8 : 0x1p-11;
    for (size_t i = 0; i < size[0] * size[1]; i++) {
        double bound = f->bound > 0 ? unit * fabs(wanted[i]) + f->bound : 0;
        ck_assert_msg(fabs(o->c->values[i] - wanted[i]) <= bound,
                      "%s, %s: %zu x %zu x %zu: element %zu is %.9g, expected %.9g", where, f->define,
                      size[0], size[1], size[2], i, o->c->values[i], wanted[i]);
    }
}

START_TEST(each_variant_multiplies) {
    const form *f = &forms[_i];
    char path[5000];
    kernel_kit k = kit_open("matmul.vasm", f->define);
    tvm_ir_program *program = assemble_file(program_path("matmul.vasm", path), f->define);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t *size = sizes[s];
        operands o = make(&k, f, size);
        double *wanted = calloc(size[0] * size[1], sizeof *wanted);
        ck_assert_ptr_nonnull(wanted);
        for (size_t i = 0; i < size[0] * size[1]; i++)
            wanted[i] = expected(&o, f, i / size[1], i % size[1], size[1], size[2]);
        for (size_t v = 0; v < KERNELS; v++) {
            if (v > FIRST_WIDE && v % SIZES != s) continue;
            kit_launch(&k, kernels[v]);
            compare(&o, f, size, wanted, kernels[v]);
        }
        if (s == 1) {
            /* each type with another one of them */
            const char *wide = kernels[FIRST_WIDE + _i % (FIRST_TENSOR - FIRST_WIDE)];
            kit_execute(&k, o.c, program, wide, "sm_90a");
            compare(&o, f, size, wanted, wide);
            const char *plain = kernels[FIRST_PLAIN + _i % (FIRST_WIDE - FIRST_PLAIN)];
            kit_execute(&k, o.c, program, plain, _i & 1 ? "sm_89" : "sm_80");
            compare(&o, f, size, wanted, plain);
            const char *tensor = kernels[FIRST_TENSOR + _i % (KERNELS - FIRST_TENSOR)];
            kit_execute(&k, o.c, program, tensor, "sm_100a");
            compare(&o, f, size, wanted, tensor);
        }
        free(wanted);
    }
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

/* The first row of a product is that of the product with the other rows left out. */
START_TEST(rows_do_not_depend_on_each_other) {
    enum { M = 150, N = 72, K = 144 };
    static const size_t size[] = {M, N, K};
    kernel_kit k = kit_open("matmul.vasm", forms[0].define);
    double row[N];
    operands o = make(&k, &forms[0], size);
    kit_launch(&k, kernels[_i]);
    for (unsigned j = 0; j < N; j++) row[j] = o.c->values[j];
    k.arguments[0].i = 1;
    kit_launch(&k, kernels[_i]);
    ck_assert_mem_eq(row, o.c->values, sizeof row);
    kit_close(&k);
}
END_TEST

/* As narrow a tile as fills 132 multiprocessors, where the tensor cores are wgmma's. */
START_TEST(the_width_of_a_tile_fills_the_device) {
    static const struct {
        int64_t m, n, k;
        unsigned multiprocessors, target;
        const char *kernel;
    } choices[] = {
        {4096, 4096, 4096, 132, 90, "matmul_wide"},       {512, 8192, 8192, 132, 90, "matmul_wide"},
        {512, 28672, 4096, 132, 90, "matmul_wide224"},    {512, 6144, 4096, 132, 90, "matmul_wide192"},
        {512, 5120, 5120, 132, 90, "matmul_wide160"},     {512, 4096, 4096, 132, 90, "matmul_wide128"},
        {256, 6144, 4096, 132, 90, "matmul_wide96"},      {128, 8192, 8192, 132, 90, "matmul_wide64"},
        {64, 8192, 8192, 132, 90, "matmul_low"},          {64, 8192, 8192, 132, 80, "matmul_plain"},
        {128, 8192, 8192, 132, 80, "matmul_plain64"},     {4096, 4096, 4096, 108, 80, "matmul_plain128"},
        {256, 4096, 4096, 16, 90, "matmul_wide"},         {0, 8, 16, 132, 90, "matmul_wide"},
        {8192, 8192, 4096, 148, 100, "matmul_tensor256"}, {1, 8192, 8192, 148, 100, "matmul_tensor64"},
    };
    char path[5000];
    size_t size = 0;
    uint8_t *bytes = bytecode_of(program_path("matmul.vasm", path), "T=f16", &size);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        tvm_context_options options = {.device = TVM_DEVICE_CPU,
                                       .threads = 1,
                                       .cache_dir = "",
                                       .multiprocessors = choices[i].multiprocessors,
                                       .target = choices[i].target};
        const tvm_value values[] = {
            {.i = choices[i].m}, {.i = choices[i].n}, {.i = choices[i].k}, {0}, {0}, {0}};
        tvm_context *context = NULL;
        tvm_program *program = NULL;
        tvm_kernel *kernel = NULL;
        const char *name = NULL;
        ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
        ck_assert_int_eq(tvm_load(context, bytes, size, &program), TVM_OK);
        ck_assert_int_eq(tvm_get_kernel(program, "matmul", &kernel), TVM_OK);
        ck_assert_int_eq(tvm_kernel_variant(kernel, values, 6, &name), TVM_OK);
        ck_assert_str_eq(name, choices[i].kernel);
        tvm_program_free(program);
        tvm_context_free(context);
    }
    free(bytes);
}
END_TEST

/* One of each type for two targets, and two for the others. */
static const struct {
    const char *target;
    unsigned form;
} compiled[] = {
    {"sm_90a", 1},  {"sm_90a", 5},  {"sm_90a", 7},  {"sm_90a", 10}, {"sm_80", 1},   {"sm_80", 3},
    {"sm_80", 5},   {"sm_80", 7},   {"sm_80", 10},  {"sm_89", 5},   {"sm_89", 3},   {"sm_100a", 7},
    {"sm_100a", 3}, {"sm_100a", 4}, {"sm_103a", 1}, {"sm_120a", 5}, {"sm_120a", 3},
};
enum { COMPILED = sizeof compiled / sizeof *compiled };

START_TEST(compiles) {
    char path[5000];
    const char *define = forms[compiled[_i].form].define;
    tvm_ir_program *program = assemble_file(program_path("matmul.vasm", path), define);
    compiles_without_spills(program, define, compiled[_i].target);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(other_types_are_refused) {
    static const char *const refused[][2] = {
        {"T=f64", "T must be f16, bf16"},
        {"T=f16 TB=bf16", "TB must be T"},
        {"T=i8 TB=f8_e4m3", "TB must be T"},
        {"T=f16 OTYPE=i8", "OTYPE must be f16, bf16 or f32"},
    };
    char path[5000];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        is_refused(program_path("matmul.vasm", path), refused[i][0], refused[i][1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("matmul");
    TCase *tests = tcase_create("matmul");
    tcase_add_loop_test(tests, each_variant_multiplies, 0, FORMS);
    tcase_add_loop_test(tests, rows_do_not_depend_on_each_other, 0, KERNELS);
    tcase_add_test(tests, the_width_of_a_tile_fills_the_device);
    tcase_add_loop_test(tests, compiles, 0, COMPILED);
    tcase_add_test(tests, other_types_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
