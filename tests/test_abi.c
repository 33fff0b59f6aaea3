/* A kernel's ABI: where parameters lie, that it survives being written as numbers, and that it says what the
 * code is. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* ---- the table ---- */

START_TEST(parameters_lie_at_multiples_of_their_width) {
    tvm_kernel_abi abi = {0};
    static const struct {
        tvm_abi_kind kind;
        unsigned width;
        uint32_t offset;
    } rows[] = {
        {TVM_ABI_INTEGER, 4, 0},
        {TVM_ABI_TENSOR, 8, 8},
        {TVM_ABI_FLOAT, 4, 16},
        {TVM_ABI_TENSOR_MAP, 128, 64},
        {TVM_ABI_MULTIPROCESSORS, 4, 192},
        {TVM_ABI_SCRATCH, 8, 200},
        {TVM_ABI_TENSOR_MAP, 128, 256},
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_uint_eq(tvm_abi_add(&abi, rows[i].kind, rows[i].width, i), i);
        ck_assert_uint_eq(abi.params[i].offset, rows[i].offset);
        ck_assert_uint_eq(abi.params[i].index, i);
    }
    ck_assert_uint_eq(abi.param_bytes, 256 + 128);
    ck_assert_uint_eq(tvm_abi_find(&abi, TVM_ABI_TENSOR_MAP, 3), 3);
    ck_assert_uint_eq(tvm_abi_find(&abi, TVM_ABI_TENSOR_MAP, 6), 6);
    ck_assert_uint_eq(tvm_abi_find(&abi, TVM_ABI_TARGET, 0), TVM_NONE);
}
END_TEST

START_TEST(the_room_for_parameters_ends) {
    tvm_kernel_abi maps = {0}, words = {0};
    for (unsigned i = 0; i < TVM_ABI_PARAM_BYTES / TVM_ABI_TENSOR_MAP_BYTES; i++)
        ck_assert_uint_eq(tvm_abi_add(&maps, TVM_ABI_TENSOR_MAP, TVM_ABI_TENSOR_MAP_BYTES, i), i);
    ck_assert_uint_eq(tvm_abi_add(&maps, TVM_ABI_INTEGER, 4, 0), TVM_NONE);
    ck_assert_uint_eq(maps.param_bytes, TVM_ABI_PARAM_BYTES);
    for (uint32_t i = 0; i < TVM_ABI_PARAMS; i++)
        ck_assert_uint_eq(tvm_abi_add(&words, TVM_ABI_INTEGER, 4, i), i);
    ck_assert_uint_eq(tvm_abi_add(&words, TVM_ABI_INTEGER, 4, 0), TVM_NONE);
    ck_assert_uint_eq(words.param_count, TVM_ABI_PARAMS);
}
END_TEST

/* ---- what the code generator makes ---- */

static const char source[] = ".vasm 1\n"
                             ".kernel f(b: bool, d: f64, x: global f32[32], s: f32, l: u64)\n"
                             ".warps 1\n"
                             ".grid 4\n"
                             "%clean = alloc-global f32[32], clean\n"
                             "%any = alloc-global f32[grid.x, multiprocessors + target]\n"
                             "%v = load-global x, spatial(32)\n"
                             "store-global %any[block.x, 0], %v\n"
                             "if b\n"
                             "    wait-dependency\n"
                             "end\n"
                             ".end\n"
                             ".kernel h(x: global f32[32])\n"
                             ".warps 2\n"
                             ".assume target >= 90\n"
                             "launch-dependents\n"
                             ".end\n";

static const tvm_abi_param rows[] = {
    {TVM_ABI_INTEGER, 4, 0, 0},  {TVM_ABI_FLOAT, 8, 1, 8},
    {TVM_ABI_TENSOR, 8, 2, 16},  {TVM_ABI_FLOAT, 4, 3, 24},
    {TVM_ABI_INTEGER, 8, 4, 32}, {TVM_ABI_SCRATCH_CLEAN, 8, 0, 40},
    {TVM_ABI_SCRATCH, 8, 1, 48}, {TVM_ABI_MULTIPROCESSORS, 4, 0, 56},
    {TVM_ABI_TARGET, 4, 0, 60},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void check_rows(const tvm_kernel_abi *abi) {
    ck_assert_uint_eq(abi->param_count, ROWS);
    ck_assert_uint_eq(abi->param_bytes, 64);
    for (unsigned i = 0; i < ROWS; i++) {
        ck_assert_uint_eq(abi->params[i].kind, rows[i].kind);
        ck_assert_uint_eq(abi->params[i].width, rows[i].width);
        ck_assert_uint_eq(abi->params[i].index, rows[i].index);
        ck_assert_uint_eq(abi->params[i].offset, rows[i].offset);
    }
}

START_TEST(it_says_what_the_entry_point_takes) {
    tvm_ir_program *program = assemble(source);
    tvm_module *module = translate(program, "sm_90a");
    const tvm_kernel_abi *f = &module->kernels[0].abi, *h = &module->kernels[1].abi;
    check_rows(f);
    ck_assert_uint_eq(f->threads, 32);
    ck_assert_uint_eq(h->threads, 64);
    for (unsigned d = 0; d < 3; d++) ck_assert_uint_eq(f->cluster[d], 1);
    ck_assert_ptr_nonnull(strstr(module->ptx, ".entry f(\n"
                                              "\t.param .b32 param_0,\n\t.param .b64 param_1,\n"
                                              "\t.param .b64 param_2,\n\t.param .b32 param_3,\n"
                                              "\t.param .b64 param_4,\n\t.param .b64 param_5,\n"
                                              "\t.param .b64 param_6,\n\t.param .b32 param_7,\n"
                                              "\t.param .b32 param_8\n)"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* Code without griddepcontrol.wait must not begin before the launch before it has ended. */
START_TEST(dependency_flags_are_those_of_the_code) {
    static const struct {
        const char *target;
        uint32_t f, h, absence_of_h;
    } made[] = {{"sm_80", 0, 0, TVM_ABI_OTHER_TARGET},
                {"sm_90", TVM_ABI_WAITS_FOR_DEPENDENCY, TVM_ABI_LAUNCHES_DEPENDENTS, TVM_ABI_PRESENT}};
    tvm_ir_program *program = assemble(source);
    for (unsigned i = 0; i < 2; i++) {
        tvm_module *module = translate(program, made[i].target);
        ck_assert_uint_eq(module->kernels[0].abi.flags, made[i].f);
        ck_assert_uint_eq(module->kernels[1].abi.flags, made[i].h);
        ck_assert_uint_eq(module->kernels[1].abi.absence, made[i].absence_of_h);
        ck_assert_int_eq(strstr(module->ptx, "griddepcontrol.wait") != NULL, made[i].f != 0);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(it_survives_being_numbers) {
    static const char *const targets[] = {"sm_80", "sm_90a"};
    tvm_ir_program *program = assemble(source);
    for (unsigned t = 0; t < 2; t++) {
        tvm_module *module = translate(program, targets[t]);
        tvm_kernel_abi *read;
        uint32_t *words, count;
        ck_assert_int_eq(tvm_module_abi(module, &words, &count, NULL), TVM_OK);
        ck_assert_int_eq(tvm_abi_decode(words, count, program, module->target.arch,
                                        tvm_target_traits_of(module->target), &read),
                         TVM_OK);
        for (unsigned k = 0; k < 2; k++) ck_assert_mem_eq(&read[k], &module->kernels[k].abi, sizeof *read);
        check_rows(&read[0]);
        free(read);
        ck_assert_int_eq(tvm_abi_decode(words, count - 1, program, module->target.arch,
                                        tvm_target_traits_of(module->target), &read),
                         TVM_FORMAT);
        ck_assert_int_eq(
            tvm_abi_decode(words, count, program, t ? 80 : 90, tvm_target_traits_for(t ? 80 : 90), &read),
            TVM_FORMAT);
        ck_assert_ptr_null(read);
        free(words);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("abi");
    TCase *cases = tcase_create("abi");
    tcase_add_test(cases, parameters_lie_at_multiples_of_their_width);
    tcase_add_test(cases, the_room_for_parameters_ends);
    tcase_add_test(cases, it_says_what_the_entry_point_takes);
    tcase_add_test(cases, dependency_flags_are_those_of_the_code);
    tcase_add_test(cases, it_survives_being_numbers);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
