/* What follows from a target's record: this program has a table of targets of its own, which the linker takes
 * in the place of codegen/targets.c. Each of its rows but the first two is a target that does not exist:
 * sm_90a, and one thing less, or an architecture after all others. */
#include "check_kit.h"
#include <stdio.h>
#include <string.h>

#include "assembler_kit.h"
#include "suite_kit.h"
#include "target.h"
#include "translate_kit.h"

#define HAS(id) (UINT64_C(1) << TVM_HAS_##id)
#define ALL     ((UINT64_C(1) << TVM_CAPABILITY_COUNT) - 1)
#define ROOM    (227 * 1024)

const tvm_target_record tvm_target_records[] = {
    {{80, '\0'}, 80, {HAS(LDMATRIX) | HAS(CP_ASYNC), {163 * 1024, 65536}}, 0, false},
    {{90, 'a'}, 81, {ALL, {ROOM, 65536}}, 0, false},
    {{90, 'm'}, 81, {ALL & ~HAS(WGMMA), {ROOM, 65536}}, 0, false},
    {{90, 'c'}, 81, {ALL & ~HAS(CLUSTERS), {ROOM, 65536}}, 0, false},
    {{90, 'b'}, 81, {ALL & ~HAS(BULK), {ROOM, 65536}}, 0, false},
    {{90, 's'}, 81, {ALL, {64 * 1024, 65536}}, 0, false},
    {{90, 'r'}, 81, {ALL, {ROOM, 32768}}, 0, false},
    {{90, 't'}, 81, {ALL & ~HAS(TCGEN05), {ROOM, 65536}}, 0, false},
    {{90, 'i'}, 81, {ALL & ~HAS(TCGEN05_I8), {ROOM, 65536}}, 0, false},
    {{90, 'u'}, 81, {ALL & ~HAS(MULTICAST), {ROOM, 65536}}, 0, false},
    {{90, 'l'}, 81, {ALL & ~HAS(LAUNCH_CONTROL), {ROOM, 65536}}, 0, false},
    {{90, 'f'}, 81, {ALL & ~HAS(WGMMA), {ROOM, 65536}}, 91, false},
    {{91, '\0'}, 83, {HAS(LDMATRIX), {ROOM, 65536}}, 0, false},
    {{92, '\0'}, 83, {HAS(LDMATRIX), {ROOM, 65536}}, 0, true},
};
const size_t tvm_target_record_count = sizeof tvm_target_records / sizeof *tvm_target_records;

static bool says(const tvm_module *module, const char *what) {
    return strstr(module->ptx, what) != NULL;
}

/* ---- products ---- */

#define PRODUCT                                                                                                   \
    ".vasm 7\n.kernel product(k: i32, a: global f16[64, k], b: global f16[k, 128], c: global f32[64, 128])\n"     \
    ".warps 4\n.grid 1\n.assume k >= 0, k % 64 == 0\n"                                                            \
    "%a = alloc-shared f16[64, 64]\n%b = alloc-shared f16[64, 128]\n%c = alloc-register f32[64, 128], init 0.0\n" \
    "for %k = 0 to k step 64 pipeline 3\ncopy-async %a, a[0, %k]\ncopy-async %b, b[%k, 0]\n"                      \
    "%c = mma %a, %b, %c, k 64\nend\nstore-global c[0, 0], %c\n.end\n"

START_TEST(products_are_wgmma_where_the_record_has_it) {
    tvm_ir_program *program = assemble(PRODUCT);
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_90m");
    ck_assert(says(with, "wgmma.mma_async") && !says(with, "mma.sync"));
    ck_assert(says(without, "mma.sync") && !says(without, "wgmma"));
    ck_assert(says(without, "cp.async.bulk.tensor"));
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(copies_are_the_threads_own_where_the_record_has_no_copy_engine) {
    tvm_ir_program *program = assemble(PRODUCT);
    tvm_module *module = translate(program, "sm_90b");
    ck_assert(says(module, "cp.async.c") && !says(module, "cp.async.bulk"));
    ck_assert(says(module, ".version 8.1\n.target sm_90b\n"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(matrices_are_stored_one_by_one_where_the_record_has_no_stmatrix) {
    tvm_ir_program *program = assemble(
        ".vasm 3\n.kernel k(x: global f16[32, 32], y: global f16[32, 32])\n.warps 1\n.grid 1\n"
        "%s = alloc-shared f16[32, 32]\n%x = load-global x[0, 0], local(2, 4).mma.m16n8k16.C\n"
        "store-shared %s[0, 0], %x\nsync\n%y = load-shared %s[0, 0], local(4, 1).spatial(8, 4).local(1, 8)\n"
        "store-global y[0, 0], %y\n.end\n");
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_91");
    ck_assert(says(with, "stmatrix"));
    ck_assert(!says(without, "stmatrix") && says(without, "st.shared") && says(without, ".version 8.3\n"));
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- clusters ---- */

START_TEST(without_clusters_no_instruction_is_of_one) {
    static const char *const words[] = {
        "barrier.cluster",  "fence.mbarrier_init", "reqnctapercluster", "mapa",
        ".acquire.cluster", ".release.cluster",    "cluster_ctarank",   "multicast"};
    tvm_ir_program *program = assemble(
        ".vasm 7\n.kernel pair(x: global i32[64])\n.warps 1\n.cluster 2\n.grid 2\n"
        "%s = alloc-shared i32[32]\n%x = load-global x[block.x * 32], spatial(32)\n"
        "store-shared %s[0], %x\nsync-cluster\n%y = load-cluster %s[0], 1 - cluster.rank, spatial(32)\n"
        "store-global x[block.x * 32], %y\n.end\n"
        ".kernel alone(x: global i32[1024], y: global i32[32])\n.warps 1\n.grid 1\n"
        "%s = alloc-shared i32[1024]\n%b = alloc-barrier [1], arrivals 1\n"
        "copy-bulk %s[0], x[0], [1024], barrier %b[0]\narrive-barrier %b[0]\nwait-barrier %b[0]\n"
        "%x = load-shared %s[0], spatial(32)\n%i = iota i32[32], axis 0, layout spatial(32)\n"
        "atomic add y[%i], %x, scope cluster\n.end\n");
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_90c");
    ck_assert_uint_eq(with->kernels[0].abi.absence, TVM_ABI_PRESENT);
    ck_assert_uint_eq(without->kernels[0].abi.absence, TVM_ABI_OTHER_TARGET);
    ck_assert(says(with, "barrier.cluster") && says(with, "fence.mbarrier_init"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(!says(without, words[i]), "%s in\n%s", words[i], without->ptx);
    ck_assert(says(without, "cp.async.bulk") && says(without, "red.relaxed.cta"));
    char *report = NULL;
    ck_assert_int_eq(tvm_report(program, without, &report, NULL), TVM_OK);
    ck_assert_msg(strstr(report, "it has clusters, which sm_90a is the first to have"), "%s", report);
    free(report);
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(each_block_copies_all_where_the_record_has_no_multicast) {
    tvm_ir_program *program = assemble(
        ".vasm 7\n.kernel k(x: global i32[1024], y: global i32[32])\n.warps 1\n.cluster 2\n.grid 2\n"
        "%s = alloc-shared i32[1024]\n%b = alloc-barrier [1]\nsync-cluster\n"
        "copy-bulk %s[0], x[0], [1024], barrier %b[0], multicast all\narrive-barrier %b[0]\nwait-barrier %b[0]\n"
        "store-global y[0], load-shared(%s[0], spatial(32))\nsync-cluster\n.end\n");
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_90u");
    ck_assert(says(with, ".multicast::cluster"));
    ck_assert(!says(without, "multicast") && says(without, "cp.async.bulk"));
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- blocks that have not begun ---- */

START_TEST(no_launch_is_canceled_where_the_record_has_no_launch_control) {
    tvm_ir_program *program = assemble(
        ".vasm 7\n.kernel k(n: i32, y: global i32[n])\n.warps 1\n.grid n\n%t = block.x\n"
        "while %t >= 0\nstore-global y[%t], alloc-register(i32[1], init 1)\n%t = cancel-block\nend\n.end\n");
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_90l");
    ck_assert(says(with, "clusterlaunchcontrol.try_cancel.async") && says(with, "mbarrier.init"));
    ck_assert(!says(without, "clusterlaunchcontrol") && !says(without, "mbarrier"));
    ck_assert_uint_gt(with->kernels[0].abi.shared_bytes, 0);
    ck_assert_uint_eq(without->kernels[0].abi.shared_bytes, 0);
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- tensor memory ---- */

#define TENSOR(type, sums, row)                                                                              \
    ".vasm 7\n.kernel k(y: global " sums "[128, 48])\n.warps 4\n.grid 1\n"                                   \
    "%a = alloc-shared " type "[128, " row "]\n%b = alloc-shared " type "[48, " row "]\n"                    \
    "%done = alloc-barrier [1]\n%d = alloc-tensor " sums "[128, 48]\n"                                       \
    "mma-tensor %d, %a, %b, transpose_b, accumulate false\ncommit-tensor %done\nwait-barrier %done\n"        \
    "store-global y, load-tensor(%d, [128, 48])\n.end\n"

/* PTX ISA, "Instruction descriptor" (format of d from bit 4, of a from 7, of b from 10, n / 8 from 17, m / 16
 * from 24) and "Shared Memory Descriptor" (of its upper half: the stride in 16 bytes, version 1 from bit 14,
 * the swizzle of 128 bytes, 2, from 29). */
START_TEST(tensor_memory_is_of_targets_that_have_it) {
    tvm_ir_program *halves = assemble(TENSOR("bf16", "f32", "64")),
                   *integers = assemble(TENSOR("i8", "i32", "128"));
    tvm_module *with = translate(halves, "sm_90a"), *without = translate(halves, "sm_90t"),
               *bytes = translate(integers, "sm_90a"), *none = NULL;
    char form[64], *report = NULL;
    tvm_diags diags = {0};
    tvm_target target;
    snprintf(form, sizeof form, "0x%x;", 1 << 4 | 1 << 7 | 1 << 10 | 48 / 8 << 17 | 128 / 16 << 24);
    ck_assert(says(with, "tcgen05.mma.cta_group::1.kind::f16") && says(with, form));
    snprintf(form, sizeof form, ", %u;", (unsigned)(2U << 29 | 1U << 14 | 8 * 128 / 16));
    ck_assert(says(with, form));
    snprintf(form, sizeof form, "0x%x;", 2 << 4 | 1 << 7 | 1 << 10 | 48 / 8 << 17 | 128 / 16 << 24);
    ck_assert(says(bytes, "tcgen05.mma.cta_group::1.kind::i8") && says(bytes, form));
    ck_assert_uint_eq(without->kernels[0].abi.absence, TVM_ABI_OTHER_TARGET);
    ck_assert_int_eq(tvm_report(halves, without, &report, NULL), TVM_OK);
    ck_assert_msg(strstr(report, "it has tensor memory, which sm_90a is the first to have"), "%s", report);
    ck_assert_int_eq(tvm_target_parse("sm_90i", &target, NULL), TVM_OK);
    ck_assert_int_eq(tvm_translate(integers, target, &none, &diags), TVM_UNSUPPORTED);
    ck_assert_str_eq(diags.items[0].message, "sm_90i has no tcgen05.mma of integers");
    free(report);
    tvm_diags_free(&diags);
    tvm_module_free(with), tvm_module_free(without), tvm_module_free(bytes);
    tvm_ir_program_free(halves), tvm_ir_program_free(integers);
}
END_TEST

/* ---- limits ---- */

START_TEST(shared_memory_is_the_records) {
    tvm_ir_program *program = assemble(
        ".vasm 1\n.kernel k(x: global f32[32768])\n.warps 4\n.grid 1\n%s = alloc-shared f32[128, 256], row_major\n"
        "%x = load-global x[0], local(256).spatial(128)\n%v = view %x, f32, local(1, 256).spatial(128, 1)\n"
        "store-shared %s[0, 0], %v\n.end\n");
    tvm_diags diags = {0};
    tvm_module *with = translate(program, "sm_90a"), *without = translate(program, "sm_90s");
    ck_assert_int_eq(tvm_module_check(program, with, &diags), TVM_OK);
    ck_assert_int_eq(tvm_module_check(program, without, &diags), TVM_UNSUPPORTED);
    ck_assert_str_eq(diags.items[0].message,
                     "kernel k needs 131072 bytes of shared memory; a block on sm_90s has at most 65536");
    ck_assert(!says(without, ".entry"));
    tvm_diags_free(&diags);
    tvm_module_free(with), tvm_module_free(without);
    tvm_ir_program_free(program);
}
END_TEST

/* A thread of 128 starts with 65536 / 128, but no more than 256, registers: 240 is fewer. Of half as many
 * registers of the multiprocessor none are to be given back. */
START_TEST(roles_change_the_registers_that_the_record_gives_them) {
    tvm_ir_program *program = assemble(
        ".vasm 3\n.kernel k(x: global i32[32])\n.warps 8\n.grid 1\n"
        "role few warps 0 to 4 registers 120\n%x = load-global x[0], spatial(32).replicated(4)\nend\n"
        "role many warps 4 to 8 registers 128\n%y = load-global x[0], spatial(32).replicated(4)\nend\n.end\n");
    tvm_module *plenty = translate(program, "sm_90a"), *half = translate(program, "sm_90r"),
               *none = translate(program, "sm_90m");
    ck_assert(says(plenty, "setmaxnreg.dec.sync.aligned.u32 128"));
    ck_assert(says(half, "setmaxnreg.dec.sync.aligned.u32 120") && !says(half, "u32 128"));
    ck_assert(!says(none, "setmaxnreg"));
    tvm_module_free(plenty), tvm_module_free(half), tvm_module_free(none);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- what programs ask ---- */

START_TEST(kernels_that_ask_for_what_a_target_lacks_are_left_out) {
    static const struct {
        const char *target;
        bool wgmma, large;
    } rows[] = {
        {"sm_80", false, false}, {"sm_90a", true, true}, {"sm_90m", false, true}, {"sm_90s", true, false}};
    tvm_ir_program *program = assemble(
        ".vasm 7\n.let large = limit(shared_memory) >= 200 * 1024\n"
        ".kernel products(x: global i32[1])\n.warps 1\n.grid 1\n.assume has(wgmma)\nexit\n.end\n"
        ".kernel room(x: global i32[1])\n.warps 1\n.grid 1\n.assume large\nexit\n.end\n"
        ".kernel other(x: global i32[1])\n.warps 1\n.grid 1\n.assume !has(wgmma) || !large\nexit\n.end\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tvm_module *module = translate(program, rows[i].target);
        const bool expected[] = {rows[i].wgmma, rows[i].large, !rows[i].wgmma || !rows[i].large};
        for (unsigned k = 0; k < 3; k++)
            ck_assert_msg((module->kernels[k].abi.absence == TVM_ABI_PRESENT) == expected[k], "%s, kernel %u",
                          rows[i].target, k);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* ---- names and devices ---- */

START_TEST(a_row_is_all_that_names_and_devices_need) {
    tvm_target target, list[8];
    char name[16];
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_target_for_device(9, 1, &target, NULL), TVM_OK);
    ck_assert_str_eq(tvm_target_name(target, name), "sm_91");
    ck_assert_int_eq(tvm_target_for_device(9, 7, &target, NULL), TVM_OK);
    ck_assert_str_eq(tvm_target_name(target, name), "sm_92"); /* PTX of the nearest one before */
    ck_assert_int_eq(tvm_target_for_device(8, 9, &target, NULL), TVM_OK);
    ck_assert_str_eq(tvm_target_name(target, name), "sm_80");
    ck_assert_ptr_null(tvm_target_traits_for(0));
    ck_assert_ptr_null(tvm_target_traits_for(75));
    ck_assert(!tvm_traits_have(tvm_target_traits_for(91), TVM_HAS_WGMMA));
    ck_assert_uint_eq(tvm_target_list(list, 8), 4);
    ck_assert_uint_eq(list[2].arch, 91);
    ck_assert_int_eq(tvm_target_parse("sm_100a", &target, &diags), TVM_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "known are sm_80, sm_90a, sm_90m, "));
    tvm_diags_free(&diags);
}
END_TEST

/* 95 has no row. */
START_TEST(rows_say_which_devices_run_their_code) {
    static const struct {
        tvm_target target;
        unsigned capability;
        bool cubin, ptx;
    } rows[] = {
        {{90, 'a'}, 90, true, true},   {{90, 'a'}, 91, false, false}, {{90, 'f'}, 90, true, true},
        {{90, 'f'}, 91, true, true},   {{90, 'f'}, 92, false, false}, {{90, 'f'}, 95, false, false},
        {{90, 'f'}, 80, false, false}, {{91, '\0'}, 91, true, true},  {{91, '\0'}, 90, false, false},
        {{91, '\0'}, 92, false, true}, {{91, '\0'}, 95, true, true},  {{92, '\0'}, 92, true, true},
        {{92, '\0'}, 95, false, true}, {{80, '\0'}, 95, false, true}, {{91, '\0'}, 100, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[16];
        tvm_target_name(rows[i].target, name);
        ck_assert_msg(tvm_target_cubin_runs(rows[i].target, rows[i].capability) == rows[i].cubin, "%s on %u",
                      name, rows[i].capability);
        ck_assert_msg(tvm_target_ptx_runs(rows[i].target, rows[i].capability) == rows[i].ptx, "%s on %u",
                      name, rows[i].capability);
    }
    ck_assert(tvm_target_is_later((tvm_target){90, 'f'}, (tvm_target){90, 'a'}));
    ck_assert(!tvm_target_is_later((tvm_target){90, 'f'}, (tvm_target){90, 'f'}));
    ck_assert(!tvm_target_is_later((tvm_target){80, '\0'}, (tvm_target){90, 'a'}));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("targets");
    TCase *tests = suite_case(suite, "all");
    tcase_add_test(tests, products_are_wgmma_where_the_record_has_it);
    tcase_add_test(tests, copies_are_the_threads_own_where_the_record_has_no_copy_engine);
    tcase_add_test(tests, matrices_are_stored_one_by_one_where_the_record_has_no_stmatrix);
    tcase_add_test(tests, without_clusters_no_instruction_is_of_one);
    tcase_add_test(tests, each_block_copies_all_where_the_record_has_no_multicast);
    tcase_add_test(tests, no_launch_is_canceled_where_the_record_has_no_launch_control);
    tcase_add_test(tests, tensor_memory_is_of_targets_that_have_it);
    tcase_add_test(tests, shared_memory_is_the_records);
    tcase_add_test(tests, roles_change_the_registers_that_the_record_gives_them);
    tcase_add_test(tests, kernels_that_ask_for_what_a_target_lacks_are_left_out);
    tcase_add_test(tests, rows_say_which_devices_run_their_code);
    tcase_add_test(tests, a_row_is_all_that_names_and_devices_need);
    return run_suite(suite);
}
