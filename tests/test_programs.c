/* Every program that ships: assembled for its variants, verified, translated and put through ptxas without a
 * spill; the matmul for every weight type and its options on the interpreter against float64. */
#include "check_kit.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matmul_reference.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "tvm.h"
#include "type_kit.h"

static const char *const every_target[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { TARGETS = sizeof every_target / sizeof *every_target };
/* On the targets other than sm_90a: one type of each way to convert. */
static const char *const few_types[] = {"u3", "i4", "u8", "f6_e3m2", "f8_e4m3", "f8_e6m1"};
enum { FEW = sizeof few_types / sizeof *few_types };

/* The matmul's options, with types of each kind. */
typedef struct variant {
    const char *type;
    matmul_variant options;
} variant;

static const char *const variant_types[] = {"u1", "u3",      "u4",      "u7",      "u8",      "i2",     "i5",
                                            "i8", "f4_e2m1", "f6_e3m2", "f8_e4m3", "f8_e5m2", "f7_e6m0"};
static const char *const compiled_variant_types[] = {"u3", "u8", "f6_e3m2"};
static const long groups[] = {32, 64, 128, 0};
enum {
    VARIANT_TYPES = sizeof variant_types / sizeof *variant_types,
    COMPILED_VARIANT_TYPES = sizeof compiled_variant_types / sizeof *compiled_variant_types,
    GROUP_SIZES = sizeof groups / sizeof *groups,
    OPTIONS = 2 * GROUP_SIZES * 2 /* at most, of one type */
};
static variant variants[VARIANT_TYPES * OPTIONS], compiled_variants[COMPILED_VARIANT_TYPES * OPTIONS];
static int variant_count, compiled_variant_count;

static tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX];
static int lowbit_count;

static const char *matmul_path(void) {
    static char path[5000];
    return program_path("matmul_u3.vasm", path);
}

static tvm_ir_program *assemble_matmul(const char *type) {
    char define[64];
    snprintf(define, sizeof define, "WTYPE=%s", type);
    return assemble_file(matmul_path(), define);
}

static void variant_define(const variant *v, char define[128]) {
    snprintf(define, 128, "WTYPE=%s ATYPE=%s GROUP=%ld ZEROS=%s", v->type, v->options.bf16 ? "bf16" : "f16",
             v->options.group, v->options.zeros ? "true" : "false");
}

static void add_variants(const char *type, variant *list, int *count) {
    for (int i = 0; i < OPTIONS; i++) {
        matmul_variant options = {.bf16 = i & 1, .zeros = i >> 1 & 1, .group = groups[i / 4]};
        if (!options.zeros || type[0] == 'u') list[(*count)++] = (variant){type, options};
    }
}

/* ---- ptxas */

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

START_TEST(every_variant_compiles_for_sm_90a) {
    char define[128];
    variant_define(&compiled_variants[_i], define);
    tvm_ir_program *program = assemble_file(matmul_path(), define);
    compiles_without_spills(program, define, "sm_90a");
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(variants_compile_for_other_targets) {
    static const char *const defines[] = {"WTYPE=u3 ATYPE=bf16 GROUP=32 ZEROS=true",
                                          "WTYPE=u8 ATYPE=f16 GROUP=64 ZEROS=true",
                                          "WTYPE=f6_e3m2 ATYPE=bf16 GROUP=0"};
    const char *define = defines[_i / 2], *target = _i % 2 == 0 ? "sm_80" : "sm_100a";
    tvm_ir_program *program = assemble_file(matmul_path(), define);
    compiles_without_spills(program, define, target);
    tvm_ir_program_free(program);
}
END_TEST

/* A build within the source folder puts the generated files, matmul_TYPE and matmul_lowbit_TYPE, beside the
 * others: those are for generated_files_are_the_matmul. */
static bool is_generated(const char *path) {
    const char *name = strrchr(path, '/') + 1;
    if (!strcmp(name, "matmul_u3.vasm") || !strcmp(name, "matmul_lowbit_u4.vasm") ||
        strncmp(name, "matmul_", 7) != 0)
        return false;
    const char *type = name + (strncmp(name, "matmul_lowbit_", 14) == 0 ? 14 : 7);
    return strchr("uif", type[0]) != NULL && type[1] >= '1' && type[1] <= '8';
}

static void compile_all(const char *pattern, const char *target) {
    glob_t found;
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_generated(found.gl_pathv[i])) continue;
        tvm_ir_program *program = assemble_file(found.gl_pathv[i], "");
        compiles_without_spills(program, found.gl_pathv[i], target);
        tvm_ir_program_free(program);
    }
    globfree(&found);
}

START_TEST(every_program_compiles_as_it_is) {
    char pattern[5000];
    compile_all(program_path("*.vasm", pattern), every_target[_i]);
    compile_all(program_path("tutorial/*.vasm", pattern), every_target[_i]);
}
END_TEST

/* Options of the router that need most registers. */
START_TEST(routers_compile) {
    static const struct {
        const char *define, *target;
    } routers[] = {
        {"EXPERTS=256 SCORE=sigmoid BIAS=true RENORMALIZE=true GROUPS=8 TOP_GROUPS=4", "sm_90a"},
        {"EXPERTS=512 TOP=16 BIAS=true", "sm_80"},
        {"EXPERTS=480 TOP=16 BIAS=true GROUPS=12 TOP_GROUPS=8 T=bf16", "sm_100a"},
    };
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path("route.vasm", path), routers[_i].define);
    compiles_without_spills(program, routers[_i].define, routers[_i].target);
    tvm_ir_program_free(program);
}
END_TEST

/* Tiles other than the default: BM, BN and the number of warps and stages. */
START_TEST(tiles_are_parameters) {
    static const char *const defines[] = {"BM=32",         "BM=64 STAGES=4", "BN=128 STAGES=4",
                                          "BN=32 WARPS=2", "STAGES=2",       "WARPS=8"};
    for (size_t i = 0; i < sizeof defines / sizeof *defines; i++) {
        tvm_ir_program *program = assemble_file(matmul_path(), defines[i]);
        compiles_without_spills(program, defines[i], "sm_90a");
        tvm_ir_program_free(program);
    }
}
END_TEST

/* ---- what the assembler makes of them */

/* The build makes a file for each type but u3. */
START_TEST(generated_files_are_the_matmul) {
    generated_is_defined("matmul", "u3", lowbit[_i]);
}
END_TEST

START_TEST(impossible_options_are_refused) {
    static const char *const refused[][2] = {
        {"ATYPE=f32", "ATYPE must be f16 or bf16"},
        {"GROUP=16", "BK of 32"},
        {"GROUP=96", "BK * BN of 1024 * WARPS"},
        {"GROUP=64 BK=128", "GROUP must be BK"},
        {"WTYPE=i4 ZEROS=true", "ZEROS goes with unsigned weights"},
        {"WTYPE=f6_e3m2 ZEROS=true", "ZEROS goes with unsigned weights"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        is_refused(matmul_path(), refused[i][0], refused[i][1]);
}
END_TEST

/* ---- the interpreter */

typedef struct runner {
    tvm_context *context;
    tvm_program *code;
} runner;

static void open_runner(runner *r, const char *define) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = ""};
    tvm_ir_program *program = assemble_file(matmul_path(), define);
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

/* The matmul's operands on the host and where the kernels see them. */
typedef struct operands {
    size_t a_bytes, s_bytes, c_bytes, w_bytes;
    uint16_t *a, *s, *z, *c;
    uint8_t *w;
    void *da, *ds, *dz, *dw, *dp, *dc;
} operands;

static void make_operands(runner *r, operands *o, const variant *v, weight_type weight, long m, long n,
                          long k) {
    size_t scales = (size_t)(matmul_groups(v->options, k) * n);
    *o = (operands){.a_bytes = (size_t)(m * k) * 2,
                    .s_bytes = scales * 2,
                    .c_bytes = (size_t)(m * n) * 2,
                    .w_bytes = (size_t)(k * n) * (size_t)weight.bits / 8};
    o->a = malloc(o->a_bytes), o->s = malloc(o->s_bytes), o->z = malloc(o->s_bytes),
    o->c = malloc(o->c_bytes);
    o->w = calloc(o->w_bytes, 1);
    ck_assert(o->a != NULL && o->s != NULL && o->z != NULL && o->c != NULL && o->w != NULL);
    matmul_inputs(m, n, k, weight, v->options, (uint64_t)(m + n + k), o->a, o->w, o->s, o->z);
    o->da = device_memory(r, o->a_bytes, o->a), o->ds = device_memory(r, o->s_bytes, o->s);
    o->dz = v->options.zeros ? device_memory(r, o->s_bytes, o->z) : NULL;
    o->dw = device_memory(r, o->w_bytes, o->w), o->dc = device_memory(r, o->c_bytes, NULL);
}

static void free_operands(runner *r, operands *o) {
    void *memory[] = {o->da, o->ds, o->dz, o->dw, o->dp, o->dc};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i] != NULL) tvm_memory_free(r->context, memory[i]);
    free(o->a), free(o->s), free(o->z), free(o->c), free(o->w);
}

/* The relative Frobenius error of one product against float64. */
static double matmul_error_of(runner *r, const variant *v, long m, long n, long k) {
    weight_type weight;
    operands o;
    tvm_kernel *pack, *matmul;
    tvm_value sizes[4] = {{.i = k}, {.i = n}};
    int64_t shape[8];
    size_t p_bytes;
    ck_assert(weight_type_parse(v->type, &weight));
    make_operands(r, &o, v, weight, m, n, k);
    ck_assert_int_eq(tvm_get_kernel(r->code, "pack", &pack), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(r->code, "matmul", &matmul), TVM_OK);
    ck_assert_int_eq(tvm_param_shape(pack, 3, sizes, 4, shape, &p_bytes), TVM_OK);
    o.dp = device_memory(r, p_bytes, NULL);
    ck_assert_msg(tvm_launch(pack, NULL, (int)k, (int)n, o.dw, o.dp) == TVM_OK, "%s",
                  tvm_message(r->context));
    tvm_status status = v->options.zeros
                            ? tvm_launch(matmul, NULL, (int)m, (int)n, (int)k, o.da, o.dp, o.ds, o.dz, o.dc)
                            : tvm_launch(matmul, NULL, (int)m, (int)n, (int)k, o.da, o.dp, o.ds, o.dc);
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(r->context));
    ck_assert_int_eq(tvm_synchronize(r->context, NULL), TVM_OK);
    ck_assert_int_eq(tvm_memory_read(r->context, o.c, o.dc, o.c_bytes), TVM_OK);
    double *expected = calloc((size_t)(m * n), sizeof *expected), largest;
    ck_assert_ptr_nonnull(expected);
    matmul_expect(m, n, k, weight, v->options, o.a, o.w, o.s, o.z, expected);
    double error = matmul_error((size_t)(m * n), v->options, o.c, expected, &largest);
    free(expected);
    free_operands(r, &o);
    return error;
}

/* All of the sizes with one program. */
static void multiplies(const variant *v, const long (*sizes)[3], size_t count) {
    char define[128];
    runner r;
    variant_define(v, define);
    open_runner(&r, define);
    for (size_t i = 0; i < count; i++) {
        double error = matmul_error_of(&r, v, sizes[i][0], sizes[i][1], sizes[i][2]);
        ck_assert_msg(error <= matmul_error_bound(v->options),
                      "%s: m %ld n %ld k %ld: relative Frobenius error %g", define, sizes[i][0], sizes[i][1],
                      sizes[i][2], error);
    }
    close_runner(&r);
}

START_TEST(every_weight_type_multiplies) {
    static const long size[][3] = {{5, 136, 256}};
    char name[TVM_DTYPE_NAME_MAX];
    multiplies(&(variant){tvm_dtype_name(lowbit[_i], name), matmul_default}, size, 1);
}
END_TEST

START_TEST(every_variant_multiplies) {
    /* The last: more steps than stages, whatever the group. */
    static const long sizes[][3] = {
        {1, 136, 384}, {5, 136, 256}, {17, 136, 384}, {33, 264, 256}, {5, 72, 1664}};
    multiplies(&variants[_i], sizes, sizeof sizes / sizeof *sizes);
}
END_TEST

START_TEST(sizes_and_edges) {
    static const long sizes[][3] = {{1, 128, 128},  {16, 256, 512},  {17, 8, 128},
                                    {33, 392, 384}, {128, 64, 1024}, {1, 8, 128}};
    multiplies(&(variant){"u3", matmul_default}, sizes, sizeof sizes / sizeof *sizes);
}
END_TEST

START_TEST(impossible_sizes_are_refused) {
    runner r;
    tvm_kernel *matmul;
    uint16_t memory[64] __attribute__((aligned(16))) = {0};
    open_runner(&r, "WTYPE=u3");
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
    TCase *compile = tcase_create("ptxas"), *text = tcase_create("text"), *run = tcase_create("interpreter");
    tcase_add_loop_test(compile, every_weight_type_compiles_for_sm_90a, 0, lowbit_count);
    tcase_add_loop_test(compile, matmul_compiles_for_every_target, 0, FEW * TARGETS);
    tcase_add_loop_test(compile, every_variant_compiles_for_sm_90a, 0, compiled_variant_count);
    tcase_add_loop_test(compile, variants_compile_for_other_targets, 0, 6);
    tcase_add_loop_test(compile, every_program_compiles_as_it_is, 0, TARGETS);
    tcase_add_loop_test(compile, routers_compile, 0, 3);
    tcase_add_test(compile, tiles_are_parameters);
    suite_add_tcase(suite, compile);
    tcase_add_loop_test(text, generated_files_are_the_matmul, 0, lowbit_count);
    tcase_add_test(text, impossible_options_are_refused);
    suite_add_tcase(suite, text);
    tcase_add_loop_test(run, every_weight_type_multiplies, 0, lowbit_count);
    tcase_add_loop_test(run, every_variant_multiplies, 0, variant_count);
    tcase_add_test(run, sizes_and_edges);
    tcase_add_test(run, impossible_sizes_are_refused);
    suite_add_tcase(suite, run);
    return suite;
}

int main(void) {
    lowbit_count = lowbit_types(lowbit);
    for (size_t i = 0; i < VARIANT_TYPES; i++) add_variants(variant_types[i], variants, &variant_count);
    for (size_t i = 0; i < COMPILED_VARIANT_TYPES; i++)
        add_variants(compiled_variant_types[i], compiled_variants, &compiled_variant_count);
    return run_suite(programs_suite());
}
