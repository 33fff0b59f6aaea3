/* Every program that ships: assembled for its variants, verified, translated and put through ptxas without a
 * spill; the matmul for every weight type on the interpreter against float64. */
#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "fileio.h"
#include "matmul_reference.h"
#include "tvm.h"
#include "vbc.h"

enum { TIMEOUT = 600 };

static const char *const every_target[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { TARGETS = sizeof every_target / sizeof *every_target };
/* On the targets other than sm_90a: one type of each way to convert. */
static const char *const few_types[] = {"u3", "i4", "u8", "f6_e3m2", "f8_e4m3", "f8_e6m1"};
enum { FEW = sizeof few_types / sizeof *few_types };

static tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX];
static int lowbit_count;

static const char *programs_folder(void) {
    static char folder[4096];
    const char *top = getenv("srcdir");
    snprintf(folder, sizeof folder, "%s/programs", top != NULL ? top : ".");
    return folder;
}

/* Each definition may be NULL. */
static tvm_ir_program *assemble_file(const char *path, const char *define, const char *define2) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    const char *defines[] = {define, define2};
    tvm_assembler_options options = {.defines = defines,
                                     .define_count = (define != NULL) + (define2 != NULL)};
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, &diags), TVM_OK);
    tvm_status status = tvm_assemble((const char *)text, size, path, &options, &program, &diags);
    tvm_diags_print(&diags, stderr, "test_programs", false);
    ck_assert_msg(status == TVM_OK, "%s with %s is refused", path, define != NULL ? define : "no definition");
    tvm_diags_free(&diags);
    free(text);
    return program;
}

static tvm_ir_program *assemble_matmul(const char *type) {
    char path[5000], define[64];
    snprintf(path, sizeof path, "%s/matmul_u3.vasm", programs_folder());
    snprintf(define, sizeof define, "WTYPE=%s", type);
    return assemble_file(path, define, NULL);
}

/* ---- ptxas */

static void compiles_without_spills(const tvm_ir_program *program, const char *what,
                                    const char *target_name) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, &diags), TVM_OK);
    tvm_status status = tvm_translate(program, target, &module, &diags);
    char *ptxas = NULL;
    bool found = tvm_ptxas_find(&ptxas, NULL) == TVM_OK; /* without one, the translation alone is tested */
    if (status == TVM_OK && found) status = tvm_ptxas(module, ptxas, &diags);
    tvm_diags_print(&diags, stderr, "test_programs", false);
    ck_assert_msg(status == TVM_OK, "%s for %s", what, target_name);
    for (size_t k = 0; found && k < module->kernel_count; k++) {
        const tvm_kernel_code *code = &module->kernels[k];
        ck_assert_msg(code->spill_stores == 0 && code->spill_loads == 0,
                      "%s for %s: kernel %s spills %d bytes stored, %d loaded", what, target_name, code->name,
                      code->spill_stores, code->spill_loads);
        ck_assert_int_gt(code->registers, 0);
    }
    free(ptxas);
    tvm_module_free(module);
}

START_TEST(every_weight_type_compiles_for_sm_90a) {
    char name[TVM_DTYPE_NAME_MAX];
    tvm_ir_program *program = assemble_matmul(tvm_dtype_name(lowbit[_i], name));
    compiles_without_spills(program, name, "sm_90a");
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(matmul_compiles_for_every_target) {
    const char *type = few_types[_i / TARGETS], *target = every_target[_i % TARGETS];
    tvm_ir_program *program = assemble_matmul(type);
    compiles_without_spills(program, type, target);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(every_program_compiles_as_it_is) {
    char pattern[5000];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.vasm", programs_folder());
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        tvm_ir_program *program = assemble_file(found.gl_pathv[i], NULL, NULL);
        compiles_without_spills(program, found.gl_pathv[i], every_target[_i]);
        tvm_ir_program_free(program);
    }
    globfree(&found);
}
END_TEST

/* Tiles other than the default: BM, BN and the number of warps and stages. */
START_TEST(tiles_are_parameters) {
    static const char *const defines[][2] = {{"BM=32", NULL},        {"BM=64", "STAGES=4"},
                                             {"BN=128", "STAGES=4"}, {"BN=32", "WARPS=2"},
                                             {"STAGES=2", NULL},     {"WARPS=8", NULL}};
    char path[5000];
    snprintf(path, sizeof path, "%s/matmul_u3.vasm", programs_folder());
    for (size_t i = 0; i < sizeof defines / sizeof *defines; i++) {
        tvm_ir_program *program = assemble_file(path, defines[i][0], defines[i][1]);
        compiles_without_spills(program, defines[i][0], "sm_90a");
        tvm_ir_program_free(program);
    }
}
END_TEST

/* ---- the interpreter */

typedef struct runner {
    tvm_context *context;
    tvm_program *code;
} runner;

static void open_runner(runner *r, const char *type) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = ""};
    tvm_ir_program *program = assemble_matmul(type);
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_vbc_write(program, true, &bytes, &size, NULL), TVM_OK);
    ck_assert_int_eq(tvm_context_create(&options, &r->context), TVM_OK);
    ck_assert_int_eq(tvm_load(r->context, bytes, size, &r->code), TVM_OK);
    tvm_ir_program_free(program);
    free(bytes);
}

static void close_runner(runner *r) {
    tvm_program_free(r->code);
    tvm_context_free(r->context);
}

static void *device_memory(runner *r, size_t bytes, const void *contents) {
    void *data = NULL;
    ck_assert_int_eq(tvm_memory_alloc(r->context, bytes, &data), TVM_OK);
    if (contents != NULL) ck_assert_int_eq(tvm_memory_write(r->context, data, contents, bytes), TVM_OK);
    return data;
}

/* The relative Frobenius error of one product against float64. */
static double matmul_error_of(runner *r, const char *type, long m, long n, long k) {
    weight_type weight;
    ck_assert(weight_type_parse(type, &weight));
    size_t a_bytes = (size_t)(m * k) * 2, s_bytes = (size_t)(k / GROUP * n) * 2,
           c_bytes = (size_t)(m * n) * 2;
    size_t w_bytes = (size_t)(k * n) * (size_t)weight.bits / 8;
    uint16_t *a = malloc(a_bytes), *s = malloc(s_bytes), *c = malloc(c_bytes);
    uint8_t *w = calloc(w_bytes, 1);
    double *expected = calloc((size_t)(m * n), sizeof *expected), largest;
    ck_assert(a != NULL && s != NULL && c != NULL && w != NULL && expected != NULL);
    matmul_inputs(m, n, k, weight, (uint64_t)(m + n + k), a, w, s);
    tvm_kernel *pack, *matmul;
    tvm_value sizes[4] = {{.i = k}, {.i = n}};
    int64_t shape[8];
    size_t p_bytes;
    ck_assert_int_eq(tvm_get_kernel(r->code, "pack", &pack), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(r->code, "matmul", &matmul), TVM_OK);
    ck_assert_int_eq(tvm_param_shape(pack, 3, sizes, 4, shape, &p_bytes), TVM_OK);
    void *da = device_memory(r, a_bytes, a), *ds = device_memory(r, s_bytes, s),
         *dw = device_memory(r, w_bytes, w), *dp = device_memory(r, p_bytes, NULL),
         *dc = device_memory(r, c_bytes, NULL);
    ck_assert_msg(tvm_launch(pack, NULL, (int)k, (int)n, dw, dp) == TVM_OK, "%s", tvm_message(r->context));
    ck_assert_msg(tvm_launch(matmul, NULL, (int)m, (int)n, (int)k, da, dp, ds, dc) == TVM_OK, "%s",
                  tvm_message(r->context));
    ck_assert_int_eq(tvm_synchronize(r->context, NULL), TVM_OK);
    ck_assert_int_eq(tvm_memory_read(r->context, c, dc, c_bytes), TVM_OK);
    matmul_expect(m, n, k, weight, a, w, s, expected);
    double error = matmul_error((size_t)(m * n), c, expected, &largest);
    void *memory[] = {da, ds, dw, dp, dc};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) tvm_memory_free(r->context, memory[i]);
    free(a), free(s), free(c), free(w), free(expected);
    return error;
}

START_TEST(every_weight_type_multiplies) {
    char name[TVM_DTYPE_NAME_MAX];
    runner r;
    tvm_dtype_name(lowbit[_i], name);
    open_runner(&r, name);
    double error = matmul_error_of(&r, name, 5, 136, 256);
    ck_assert_msg(error <= 1e-3, "%s: relative Frobenius error %g", name, error);
    close_runner(&r);
}
END_TEST

START_TEST(sizes_and_edges) {
    static const long sizes[][3] = {{1, 128, 128},  {16, 256, 512},  {17, 8, 128},
                                    {33, 392, 384}, {128, 64, 1024}, {1, 8, 128}};
    runner r;
    open_runner(&r, "u3");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double error = matmul_error_of(&r, "u3", sizes[i][0], sizes[i][1], sizes[i][2]);
        ck_assert_msg(error <= 1e-3, "m %ld n %ld k %ld: relative Frobenius error %g", sizes[i][0],
                      sizes[i][1], sizes[i][2], error);
    }
    close_runner(&r);
}
END_TEST

START_TEST(impossible_sizes_are_refused) {
    runner r;
    tvm_kernel *matmul;
    uint16_t memory[64] __attribute__((aligned(16))) = {0};
    open_runner(&r, "u3");
    ck_assert_int_eq(tvm_get_kernel(r.code, "matmul", &matmul), TVM_OK);
    ck_assert_int_eq(tvm_launch(matmul, NULL, 1, 128, 100, memory, memory, memory, memory), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(r.context), "k = 100"));
    ck_assert_int_eq(tvm_launch(matmul, NULL, 1, 13, 128, memory, memory, memory, memory), TVM_ARGUMENT);
    ck_assert_int_eq(tvm_launch(matmul, NULL, -1, 128, 128, memory, memory, memory, memory), TVM_ARGUMENT);
    close_runner(&r);
}
END_TEST

static Suite *programs_suite(void) {
    Suite *suite = suite_create("programs");
    TCase *compile = tcase_create("ptxas"), *run = tcase_create("interpreter");
    tcase_set_timeout(compile, TIMEOUT);
    tcase_add_loop_test(compile, every_weight_type_compiles_for_sm_90a, 0, lowbit_count);
    tcase_add_loop_test(compile, matmul_compiles_for_every_target, 0, FEW * TARGETS);
    tcase_add_loop_test(compile, every_program_compiles_as_it_is, 0, TARGETS);
    tcase_add_test(compile, tiles_are_parameters);
    suite_add_tcase(suite, compile);
    tcase_set_timeout(run, TIMEOUT);
    tcase_add_loop_test(run, every_weight_type_multiplies, 0, lowbit_count);
    tcase_add_test(run, sizes_and_edges);
    tcase_add_test(run, impossible_sizes_are_refused);
    suite_add_tcase(suite, run);
    return suite;
}

int main(void) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++)
        if (tvm_dtype_is_lowbit(types[i])) lowbit[lowbit_count++] = types[i];
    SRunner *all = srunner_create(programs_suite());
    srunner_run_all(all, CK_ENV);
    int failed = srunner_ntests_failed(all);
    srunner_free(all);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
