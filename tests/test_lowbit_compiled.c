/* programs/matmul_lowbit.vasminc as text and as machine code: every weight type and the options go together,
 * and through ptxas without a spill; what does not go together is refused. */
#include "check_kit.h"
#include <stdio.h>
#include <string.h>

#include "extent_kit.h"
#include "lowbit_reference.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "type_kit.h"

static tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX];
static int lowbit_count;

static const char *lowbit_path(void) {
    static char path[5000];
    return program_path("matmul_lowbit_u4.vasm", path);
}

/* ---- ptxas */

static void defined_compiles(const char *definitions, const char *more, const char *target) {
    char define[256];
    snprintf(define, sizeof define, "%s %s", definitions, more);
    tvm_ir_program *program = assemble_file(lowbit_path(), define);
    compiles_without_spills(program, define, target);
    tvm_ir_program_free(program);
}

/* One of the kernels that the entry has with these definitions, if it has it. */
static void shipped_compiles(const char *define, const char *kernel) {
    char name[128], only[128];
    snprintf(name, sizeof name, "matmul_lowbit%s", kernel);
    snprintf(only, sizeof only, "ONLY=\"%s\"", kernel);
    tvm_ir_program *program = assemble_file(lowbit_path(), define);
    bool ships = tvm_find_kernel(program, name) != NULL;
    tvm_ir_program_free(program);
    if (ships) defined_compiles(define, only, "sm_90a");
}

/* Of the kernels that the entry has with these definitions number `which`, counted round, and, unless `step`
 * is 0, each that is so many further on. */
static void some_compile(const char *define, unsigned which, unsigned step) {
    tvm_ir_program *program = assemble_file(lowbit_path(), define);
    char only[160];
    const char *prefix = "matmul_lowbit";
    uint32_t first = strcmp(tvm_string(program, program->kernels[0].name), "pack") == 0;
    ck_assert_uint_gt(program->kernel_count, first);
    uint32_t count = program->kernel_count - first;
    for (uint32_t k = which % (step ? step : count); k < count; k += step ? step : count) {
        const char *kernel = tvm_string(program, program->kernels[first + k].name);
        ck_assert_int_eq(strncmp(kernel, prefix, strlen(prefix)), 0);
        snprintf(only, sizeof only, "ONLY=\"%s\"", kernel + strlen(prefix));
        defined_compiles(define, only, "sm_90a");
    }
    tvm_ir_program_free(program);
}

/* One kernel of `step`, which other forms have others of; all where all is tested. */
static void compiles(const char *define, unsigned turn, unsigned step) {
    some_compile(define, turn, step);
    if (test_all()) defined_compiles(define, "", "sm_90a");
}

enum { STEP = 7 };

/* Of types of a kind one kernel of seven; of each other type one, or all where all is tested. */
START_TEST(every_weight_type_compiles_for_sm_90a) {
    char name[TVM_DTYPE_NAME_MAX], define[64];
    snprintf(define, sizeof define, "WTYPE=%s", tvm_dtype_name(lowbit[_i], name));
    compiles(define, (unsigned)_i, lowbit_is_of_a_kind(lowbit[_i]) ? STEP : 0);
}
END_TEST

/* Those with tcgen05, one of each type, and one of each way in which scales and zero points are had. */
static void tensor_compiles(const char *define, unsigned turn) {
    static const char *const kernels[] = {"_tensor_32x256", "_tensor_64x256", "_tensor_128x256",
                                          "_tensor_192x256"};
    static const char *const targets[] = {"sm_100a", "sm_103a", "sm_110a"};
    char only[64];
    for (unsigned i = 0; i < 4; i++) {
        if (!test_takes(turn + i, 4)) continue;
        snprintf(only, sizeof only, "ONLY=\"%s\"", kernels[i]);
        defined_compiles(define, only, targets[(turn + i) % 3]);
    }
}

START_TEST(tensor_variants_compile) {
    static const char *const forms[] = {"WTYPE=u4 ATYPE=bf16 GROUP=32 ZEROS=true BIAS=true FACTOR=true",
                                        "WTYPE=u7 GROUP=16 ZEROS=true", "WTYPE=u4 BOOK=\"nf4\" BIAS=true",
                                        "WTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 FACTOR=true"};
    char name[TVM_DTYPE_NAME_MAX], define[64];
    snprintf(define, sizeof define, "WTYPE=%s ATYPE=bf16", tvm_dtype_name(lowbit[_i], name));
    tensor_compiles(define, (unsigned)_i);
    if ((size_t)_i < sizeof forms / sizeof *forms) tensor_compiles(forms[_i], (unsigned)_i);
}
END_TEST

/* Those that have no register to spare, or for want of one do not ship. */
START_TEST(tight_kernels_compile) {
    static const char *const tight[][2] = {{"WTYPE=u1", "_32x256x3"},
                                           {"WTYPE=f7_e2m4", "_32x256x3"},
                                           {"WTYPE=u3 GROUP=32", "_mma_16x256x1"},
                                           {"WTYPE=i3 GROUP=32", "_mma_16x256x1"},
                                           {"WTYPE=u8 ATYPE=bf16", "_128x192x2_persistent"}};
    for (size_t i = 0; i < sizeof tight / sizeof *tight; i++) shipped_compiles(tight[i][0], tight[i][1]);
}
END_TEST

/* Every kernel of every type, with each type of activations, group, zero points, and the options that Python
 * knows: an hour. */
START_TEST(everything_that_ships_compiles) {
    static const long groups[] = {128, 0, 64, 32, 16};
    static const char *const more[] = {"",
                                       "BIAS=true FACTOR=true",
                                       "EARLY=true",
                                       "BATCH_INVARIANT=true",
                                       "EXPERTS=true",
                                       "EXPERTS=true EARLY=true"};
    char name[TVM_DTYPE_NAME_MAX], define[192];
    bool beyond_f16 = lowbit[_i].exponent > 5 || (lowbit[_i].exponent == 5 && lowbit[_i].mantissa < 2);
    tvm_dtype_name(lowbit[_i], name);
    for (unsigned form = 0; form < 5 * 2 * 2; form++) {
        bool bf16 = form & 1, zeros = form >> 1 & 1;
        long group = groups[form / 4];
        if ((zeros && name[0] != 'u') || (group == 16 && !bf16 && beyond_f16)) continue;
        for (size_t m = 0; m < (group == 128 ? sizeof more / sizeof *more : 1); m++) {
            snprintf(define, sizeof define, "WTYPE=%s ATYPE=%s GROUP=%ld ZEROS=%s %s", name,
                     bf16 ? "bf16" : "f16", group, zeros ? "true" : "false", more[m]);
            defined_compiles(define, "", "sm_90a");
        }
    }
}
END_TEST

/* matmul_lowbit_u4.vasm is put through ptxas for every target by test_programs. */
START_TEST(few_types_compile_for_other_targets) {
    static const char *const types[] = {"u2", "u8", "f6_e3m2"}, *const targets[] = {"sm_80", "sm_89",
                                                                                    "sm_100a"};
    char define[64];
    snprintf(define, sizeof define, "WTYPE=%s", types[_i / 3]);
    defined_compiles(define, "", targets[_i % 3]);
}
END_TEST

static const lowbit_form compiled_forms[] = {
    {"u4", {1, 128, 0}, false, false, false},     {"u4", {0, 32, 1}, true, false, false},
    {"u4", {1, 64, 1}, true, true, false},        {"u4", {0, 0, 1}, false, true, false},
    {"u1", {0, 128, 0}, true, false, false},      {"u2", {1, 32, 1}, true, false, false},
    {"i5", {0, 128, 0}, false, true, false},      {"u6", {0, 128, 1}, true, false, false},
    {"u8", {0, 128, 1}, true, true, false},       {"u8", {1, 0, 1}, true, false, false},
    {"u8", {0, 64, 0}, false, true, false},       {"i5", {1, 0, 0}, true, true, false},
    {"f6_e3m2", {1, 64, 0}, false, false, false}, {"f8_e7m0", {1, 32, 0}, true, 1, false},
    {"f8_e7m0", {0, 0, 0}, true, 1, false},       {"u4", {0, 64, 1}, true, false, false},
    {"u4", {0, 32, 0}, false, false, false},      {"u2", {0, 128, 1}, true, false, false},
    {"u8", {1, 32, 1}, true, false, false},       {"u8", {0, 0, 1}, false, false, false},
    {"f4_e2m1", {1, 128, 0}, true, false, false}, {"u5", {0, 64, 1}, true, true, false},
    {"f4_e2m1", {0, 16, 0}, false, false, true},  {"u3", {1, 16, 1}, true, false, false},
    {"nf4", {0, 64, 0}, false, false, false},     {"nf4", {1, 128, 0}, true, false, true},
    {"u8", {0, 16, 0}, true, false, true},        {"u4", {0, 32, 1}, false, true, true},
    {"u5", {0, 64, 1}, false, false, false},      {"u1", {0, 32, 1}, true, false, false},
};
enum { COMPILED_FORMS = sizeof compiled_forms / sizeof *compiled_forms };

START_TEST(options_compile_for_sm_90a) {
    char define[192];
    lowbit_define(&compiled_forms[_i], define);
    compiles(define, (unsigned)_i, STEP);
}
END_TEST

START_TEST(batch_invariant_programs_compile) {
    static const char *const defines[] = {"WTYPE=u4", "WTYPE=u8 ZEROS=true",
                                          "WTYPE=f8_e6m1 GROUP=32 OTYPE=f32"};
    defined_compiles(defines[_i], "BATCH_INVARIANT=true", "sm_90a");
}
END_TEST

START_TEST(stacks_of_experts_compile) {
    static const char *const defines[] = {"WTYPE=u4",
                                          "WTYPE=f4_e2m1 ATYPE=bf16 GROUP=32 BIAS=true",
                                          "WTYPE=u3 GROUP=64 ZEROS=true FACTOR=true",
                                          "WTYPE=u4 GROUP=64 BOOK=\"nf4\"",
                                          "WTYPE=f4_e2m1 ATYPE=bf16 GROUP=32 STYPE=e8m0 BIAS=true",
                                          "WTYPE=f4_e2m1 ATYPE=bf16 GROUP=16 STYPE=f8_e4m3 FACTOR=true"};
    defined_compiles(defines[_i], "EXPERTS=true", "sm_90a");
}
END_TEST

/* Those with tcgen05, one of nine of each form without TVM_TEST_ALL. */
START_TEST(tensor_stacks_compile) {
    static const char *const defines[] = {
        "WTYPE=u8 ZEROS=true BIAS=true", "WTYPE=f4_e2m1 ATYPE=bf16 GROUP=32 STYPE=e8m0 BIAS=true",
        "WTYPE=u4 GROUP=64 BOOK=\"nf4\"", "WTYPE=u3 ATYPE=bf16 ZEROS=true GATE=\"silu\"",
        "WTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 FACTOR=true"};
    static const unsigned rows[] = {32, 80, 128, 144, 160, 192, 64, 96, 112};
    static const char *const targets[] = {"sm_100a", "sm_103a", "sm_110a"};
    char only[64];
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!test_takes(2 * (unsigned)_i + i, 9)) continue;
        snprintf(only, sizeof only, "EXPERTS=true ONLY=\"_tensor_%ux256\"", rows[i]);
        defined_compiles(defines[_i], only, targets[i % 3]);
    }
}
END_TEST

/* ---- what the assembler makes of them */

START_TEST(generated_files_are_the_matmul) {
    generated_is_defined("matmul_lowbit", "u4", lowbit[_i]);
}
END_TEST

/* What a block needs of shared memory grows with the options; all of them have room. Without TVM_TEST_ALL
 * each set of options is met, and each type, but not each with each other. */
START_TEST(options_go_together) {
    static const long groups[] = {32, 64, 128, 0, 16};
    enum { SETS = 40 };
    char name[TVM_DTYPE_NAME_MAX], define[128];
    bool of_a_kind = lowbit_is_of_a_kind(lowbit[_i]);
    unsigned step = test_all() ? (of_a_kind ? 1 : 7) : of_a_kind ? 11 : SETS;
    tvm_dtype_name(lowbit[_i], name);
    for (unsigned i = (unsigned)_i % step; i < SETS; i += step) {
        bool f32 = i >> 2 & 1;
        lowbit_form f = {name, {i & 1, groups[i >> 3], i >> 1 & 1}, !f32, f32, i % 3 == 0};
        if (f.options.zeros && name[0] != 'u') continue;
        bool beyond_f16 = lowbit[_i].exponent > 5 || (lowbit[_i].exponent == 5 && lowbit[_i].mantissa < 2);
        if (f.options.group == 16 && !f.options.bf16 && beyond_f16) continue;
        lowbit_define(&f, define);
        tvm_ir_program_free(assemble_file(lowbit_path(), define));
    }
}
END_TEST

START_TEST(tables_go_with_all_variants) {
    static const long groups[] = {32, 64, 128, 0, 16};
    char define[128];
    snprintf(define, sizeof define, "BOOK=\"%s\" GROUP=%ld ATYPE=%s", _i % 2 ? "nf4" : "fp4", groups[_i],
             _i % 2 ? "f16" : "bf16");
    tvm_ir_program_free(assemble_file(lowbit_path(), define));
}
END_TEST

START_TEST(impossible_options_are_refused) {
    static const char *const refused[][2] = {
        {"ATYPE=f32", "ATYPE must be f16 or bf16"},
        {"ATYPE=bf16 OTYPE=f16", "OTYPE must be ATYPE or f32"},
        {"GROUP=8", "GROUP must be 16, 32, 64, 128 or 0"},
        {"GROUP=256", "GROUP must be 16, 32, 64, 128 or 0"},
        {"WTYPE=f6_e5m0 GROUP=16", "groups of 16 of weights that f16 does not hold need ATYPE=bf16"},
        {"WTYPE=i4 ZEROS=true", "ZEROS goes with unsigned weights"},
        {"WTYPE=f6_e3m2 ZEROS=true", "ZEROS goes with unsigned weights"},
        {"BOOK=\"nf3\"", "BOOK must be none, nf4, fp4 or e2m1"},
        {"WTYPE=u3 BOOK=\"nf4\"", "BOOK goes with u4, without ZEROS"},
        {"WTYPE=u4 ZEROS=true BOOK=\"fp4\"", "BOOK goes with u4, without ZEROS"},
        {"WTYPE=u4 EXPERTS=true GATHER=true EARLY=true", "GATHER goes with EXPERTS, without EARLY"},
        {"WTYPE=u4 EXPERTS=true BATCH_INVARIANT=true", "EXPERTS goes without BATCH_INVARIANT"},
        {"WTYPE=u4 EXPERTS=true NORM=true",
         "EXPERTS goes with neither NORM, RESIDUAL, POSTNORM nor PROLOGUE"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        is_refused(lowbit_path(), refused[i][0], refused[i][1]);
}
END_TEST

static Suite *compiled_suite(void) {
    Suite *suite = suite_create("lowbit_compiled");
    TCase *compile = tcase_create("ptxas"), *tight = tcase_create("tight"), *text = tcase_create("text");
    tcase_add_loop_test(compile, every_weight_type_compiles_for_sm_90a, 0, lowbit_count);
    tcase_add_loop_test(compile, tensor_variants_compile, 0, lowbit_count);
    if (test_exhaustively()) tcase_add_loop_test(compile, everything_that_ships_compiles, 0, lowbit_count);
    tcase_add_loop_test(compile, few_types_compile_for_other_targets, 0, 9);
    tcase_add_loop_test(compile, options_compile_for_sm_90a, 0, COMPILED_FORMS);
    tcase_add_loop_test(compile, stacks_of_experts_compile, 0, 6);
    tcase_add_loop_test(compile, tensor_stacks_compile, 0, 5);
    tcase_add_loop_test(compile, batch_invariant_programs_compile, 0, 3);
    suite_add_tcase(suite, compile);
    tcase_add_test(tight, tight_kernels_compile);
    suite_add_tcase(suite, tight);
    tcase_add_loop_test(text, generated_files_are_the_matmul, 0, lowbit_count);
    tcase_add_loop_test(text, options_go_together, 0, lowbit_count);
    tcase_add_loop_test(text, tables_go_with_all_variants, 0, 5);
    tcase_add_test(text, impossible_options_are_refused);
    suite_add_tcase(suite, text);
    return suite;
}

int main(void) {
    lowbit_count = lowbit_types(lowbit);
    return run_suite(compiled_suite());
}
