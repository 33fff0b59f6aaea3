/* Teams, below the language: layouts are for the threads of a team, it waits at a barrier of its own, its
 * threads are numbered from its first warp; and the tests' PTX machine runs warps that part. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "barrier.h"
#include "hoist.h"
#include "ptx_machine.h"
#include "suite_kit.h"
#include "verify.h"

/* A kernel of 4 warps, which then has 8. */
static tvm_ir_program *half_of_eight(void) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(x: global f32[128], y: global f32[64, 64])\n.warps 4\n.grid 1\n"
                 "%v = load-global x, spatial(128)\n%w = add %v, %v\n"
                 "%s = alloc-shared f32[64, 64]\n"
                 "copy-async %s, y[0, 0], [64, 64], warps [2, 2]\n.end\n");
    program->kernels[0].warps = 8;
    return program;
}

static tvm_status infer(const tvm_ir_program *program, tvm_team team, tvm_opcode op, tvm_why *why) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        tvm_result_type type = {.kind = TVM_SLOT_NONE};
        if (kernel->insns[i].op == op)
            return tvm_infer(program, kernel, team, &kernel->insns[i],
                             tvm_operands(kernel, &kernel->insns[i]), &type, why);
    }
    ck_abort_msg("there is no such instruction");
    return TVM_INVALID;
}

START_TEST(layouts_are_for_the_threads_of_a_team) {
    tvm_ir_program *program = half_of_eight();
    tvm_why why;
    ck_assert_int_eq(infer(program, (tvm_team){4, 4}, TVM_OP_ADD, &why), TVM_OK);
    ck_assert_int_eq(infer(program, (tvm_team){0, 4}, TVM_OP_COPY_ASYNC, &why), TVM_OK);
    ck_assert_int_eq(infer(program, (tvm_team){2, 2}, TVM_OP_ADD, &why), TVM_INVALID);
    ck_assert_str_eq(why.text, "the layout of '%v' is for 128 threads, the team has 64 (2 warps)");
    ck_assert_int_eq(infer(program, (tvm_team){2, 2}, TVM_OP_COPY_ASYNC, &why), TVM_INVALID);
    ck_assert_str_eq(why.text, "the tile is cut for 4 warps, expected the team's 2");
    ck_assert_int_eq(infer(program, tvm_block_team(&program->kernels[0]), TVM_OP_ADD, &why), TVM_INVALID);
    ck_assert_str_eq(why.text, "the layout of '%v' is for 128 threads, the kernel has 256 (8 warps)");
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(a_team_has_a_barrier_and_numbers_of_its_own) {
    tvm_ir_program *program = half_of_eight();
    kernel_state k = {.program = program, .kernel = &program->kernels[0]};
    emitter block = {.k = &k, .team = {0, 8}}, team = {.k = &k, .team = {4, 4}, .barrier = 3};
    emitter *both[] = {&block, &team};
    const char *const barriers[] = {"\tbar.sync 0;\n", "\tbar.sync 3, 128;\n"};
    const char *const numbers[] = {"\tmov.u32 %r0, %tid.x;\n",
                                   "\tmov.u32 %r0, %tid.x;\n\tsub.u32 %r1, %r0, 128;\n"};
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(tvm_hoist_make(both[i]), TVM_OK);
        tvm_emit_thread_barrier(both[i]);
        ck_assert_str_eq(tvm_text_string(&both[i]->body), barriers[i]);
        tvm_thread_id(both[i]);
        ck_assert_str_eq(tvm_text_string(&both[i]->prologue), numbers[i]);
        tvm_hoist_free(both[i]);
        tvm_text_free(&both[i]->body);
        tvm_text_free(&both[i]->prologue);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* ---- warps that part ---- */

/* Two teams of two warps write 100 + t and 1000 + t, each waits at its own barrier and reads what its other
 * warp wrote; then all wait, and read what the other team wrote. Every thread of the second team has counted
 * to its warp's number. */
static const char two_teams[] = ".visible .entry f(\n\t.param .b64 param_0\n)\n.maxntid 128, 1, 1\n{\n"
                                "\t.reg .pred %p<3>;\n\t.reg .b32 %r<20>;\n\t.reg .b64 %rd<4>;\n"
                                "\tmov.u32 %r0, %tid.x;\n"
                                "\tld.param.b64 %rd0, [param_0];\n"
                                "\tmov.u32 %r1, tvm_smem;\n"
                                "\tshl.b32 %r2, %r0, 2;\n"
                                "\tadd.u32 %r3, %r1, %r2;\n"
                                "\txor.b32 %r4, %r2, 128;\n"
                                "\tadd.u32 %r4, %r4, %r1;\n"
                                "\tshr.u32 %r5, %r0, 5;\n"
                                "\tmov.u32 %r6, 0;\n"
                                "\tsetp.ge.u32 %p0, %r0, 64;\n"
                                "\t@%p0 bra $L0;\n"
                                "\tadd.u32 %r7, %r0, 100;\n"
                                "\tst.shared.b32 [%r3], %r7;\n"
                                "\tbar.sync 1, 64;\n"
                                "\tld.shared.b32 %r8, [%r4];\n"
                                "\tbra.uni $L2;\n"
                                "$L0:\n"
                                "\tadd.u32 %r7, %r0, 1000;\n"
                                "\tst.shared.b32 [%r3], %r7;\n"
                                "$L1:\n"
                                "\tadd.u32 %r6, %r6, 1;\n"
                                "\tsetp.lt.u32 %p1, %r6, %r5;\n"
                                "\t@%p1 bra $L1;\n"
                                "\tbar.sync 2, 64;\n"
                                "\tld.shared.b32 %r8, [%r4];\n"
                                "$L2:\n"
                                "\tbar.sync 0;\n"
                                "\txor.b32 %r9, %r2, 256;\n"
                                "\tadd.u32 %r9, %r9, %r1;\n"
                                "\tld.shared.b32 %r10, [%r9];\n"
                                "\tcvt.u64.u32 %rd1, %r2;\n"
                                "\tadd.u64 %rd2, %rd0, %rd1;\n"
                                "\tst.global.b32 [%rd2], %r8;\n"
                                "\tst.global.b32 [%rd2+512], %r10;\n"
                                "\tst.global.b32 [%rd2+1024], %r6;\n"
                                "\tret;\n}\n";

START_TEST(warps_that_part_meet_at_their_barriers) {
    static uint32_t out[3][128];
    ptx_machine m = ptx_load(two_teams, "f", 128);
    m.params[0] = (uint64_t)(uintptr_t)out;
    ptx_run(&m);
    for (unsigned t = 0; t < 128; t++) {
        unsigned other = t ^ 32, across = t ^ 64;
        ck_assert_uint_eq(out[0][t], other + (other < 64 ? 100 : 1000));
        ck_assert_uint_eq(out[1][t], across + (across < 64 ? 100 : 1000));
        ck_assert_uint_eq(out[2][t], t < 64 ? 0 : t / 32);
    }
    ptx_free(&m);
}
END_TEST

static unsigned count_of(const char *text, const char *part) {
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) count++;
    return count;
}

static tvm_module *translate(const char *text) {
    tvm_ir_program *program = assemble(text);
    tvm_target target;
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_target_parse("sm_90a", &target, NULL), TVM_OK);
    ck_assert_int_eq(tvm_translate(program, target, &module, NULL), TVM_OK);
    tvm_ir_program_free(program);
    return module;
}

/* The copy engine writes a ring, whose stages a consumer gives back. `write`: what it does before the
 * arrival. */
static unsigned count_fences(const char *write) {
    char text[1024];
    snprintf(
        text, sizeof text,
        ".vasm 4\n.kernel f(n: i32, x: global f16[n, 64], y: global f16[64, 64])\n.warps 8\n.grid 1\n"
        "%%s = alloc-shared f16[2, 64, 64]\n%%full = alloc-barrier [2]\n%%empty = alloc-barrier [2], open\n"
        "role load warps 0 to 4\nfor %%i = 0 to n\nwait-barrier %%empty[%%i %% 2]\n"
        "copy-bulk %%s[%%i %% 2], x[%%i * 64, 0], barrier %%full[%%i %% 2]\narrive-barrier %%full[%%i %% 2]\n"
        "end\nend\nrole use warps 4 to 8\nfor %%i = 0 to n\nwait-barrier %%full[%%i %% 2]\n"
        "%%v = load-shared %%s[%%i %% 2], spatial(16, 8).local(4, 8)\n%s"
        "arrive-barrier %%empty[%%i %% 2]\nend\nend\n.end\n",
        write);
    tvm_module *module = translate(text);
    ck_assert_ptr_nonnull(strstr(module->ptx, "cp.async.bulk.tensor"));
    unsigned count = count_of(module->ptx, "fence.proxy.async");
    tvm_module_free(module);
    return count;
}

START_TEST(an_arrival_is_fenced_where_threads_may_have_written) {
    static const char *const store = "store-shared %s[%i % 2, 0, 0], %v\n";
    char once[128], after[128];
    unsigned least = count_fences("");
    snprintf(once, sizeof once, "%ssync\n", store);
    snprintf(after, sizeof after, "if %%i > 3\n%ssync\n%send\n", store, store);
    ck_assert_uint_eq(count_fences(store), least + 1);
    ck_assert_uint_eq(count_fences(once), least + 1);  /* at the sync, not again */
    ck_assert_uint_eq(count_fences(after), least + 2); /* on one path into the arrival */
}
END_TEST

/* It reads shared memory alone, be it by the copy engine or by the threads. */
START_TEST(a_bulk_store_is_no_write_of_shared_memory) {
    static const char *const sends = "store-bulk y[0, 0], %s[%i % 2]\nwait-bulk 0, read\n",
                             *const adds = "reduce-bulk add, y[0, 0], %s[%i % 2]\nwait-bulk 0, read\n";
    char both[192];
    unsigned least = count_fences("");
    ck_assert_uint_eq(count_fences(sends), least);
    ck_assert_uint_eq(count_fences(adds), least);
    snprintf(both, sizeof both, "store-shared %%s[%%i %% 2, 0, 0], %%v\nsync\n%s", sends);
    ck_assert_uint_eq(count_fences(both), least + 1); /* at the sync: what the copy engine is to read */
}
END_TEST

/* Roles that run beside each other, in this order of the text; what the first one wrote is its own. */
static unsigned count_role_fences(const char *one, const char *other) {
    char text[1024];
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel f(n: i32, x: global f16[n, 64])\n.warps 8\n.grid 1\n"
             "%%s = alloc-shared f16[2, 64, 64]\n%%b = alloc-barrier [2]\n%s%s.end\n",
             one, other);
    tvm_module *module = translate(text);
    unsigned count = count_of(module->ptx, "fence.proxy.async");
    tvm_module_free(module);
    return count;
}

START_TEST(a_role_does_not_fence_what_another_wrote) {
    static const char *const writes =
        "role writes warps 0 to 4\ncopy-bulk %s[0], x[0, 0], barrier %b[0]\narrive-barrier %b[0]\n"
        "wait-barrier %b[0]\n"
        "store-shared %s[1, 0, 0], alloc-register(f16[64, 64], spatial(16, 8).local(4, 8))\nend\n";
    static const char *const arrives = "role arrives warps 4 to 8\nfor %i = 0 to n\narrive-barrier %b[1]\n"
                                       "wait-barrier %b[1]\nend\nend\n";
    static const char *const both = "sync\nfor %i = 0 to n\nsync\nend\n";
    unsigned least = count_role_fences(arrives, writes);
    ck_assert_uint_eq(count_role_fences(writes, arrives), least);
    ck_assert_uint_gt(count_role_fences(writes, both), least); /* the whole block's does */
}
END_TEST

/* Blocks that give tiles back to each other; `write`: what the second one does besides. */
static tvm_module *translate_pair(const char *write) {
    char text[1024];
    snprintf(
        text, sizeof text,
        ".vasm 3\n.kernel f(n: i32, x: global f16[n, 64], y: global f16[n, 64])\n.warps 8\n.cluster 2\n.grid 2\n"
        "%%s = alloc-shared f16[2, 64, 64]\n%%full = alloc-barrier [2]\n"
        "%%empty = alloc-barrier [2], arrivals 2, open\nsync-cluster\n"
        "role load warps 0 to 4\nfor %%i = 0 to n\nwait-barrier %%empty[%%i %% 2]\n"
        "copy-bulk %%s[%%i %% 2], x[%%i * 64, 0], barrier %%full[%%i %% 2], multicast all\n"
        "arrive-barrier %%full[%%i %% 2]\nend\nend\n"
        "role use warps 4 to 8\nfor %%i = 0 to n\nwait-barrier %%full[%%i %% 2]\n"
        "%%v = load-shared %%s[%%i %% 2], spatial(16, 8).local(4, 8)\n%s"
        "arrive-barrier %%empty[%%i %% 2], rank 0\narrive-barrier %%empty[%%i %% 2], rank 1\nend\nend\n.end\n",
        write);
    return translate(text);
}

/* Its shared memory is reached for until both are done, and read by the copy engine. */
START_TEST(a_team_that_ends_its_block_waits_for_the_cluster) {
    tvm_module *module = translate_pair("store-bulk y[max(%i, 0) * 64, 0], %s[%i % 2]\nwait-bulk 0, read\n");
    unsigned returns = count_of(module->ptx, "\tret;");
    ck_assert_uint_gt(returns, 1);
    ck_assert_uint_eq(count_of(module->ptx, "wait_group.read 0;\n\tbarrier.cluster.arrive.release.aligned;\n"
                                            "\tbarrier.cluster.wait.acquire.aligned;\n\tret;"),
                      returns);
    tvm_module_free(module);
}
END_TEST

/* What was written another block may read after the arrival and the wait for it; what was only read needs no
 * fence. */
START_TEST(a_far_arrival_is_a_release_where_blocks_tell_each_other) {
    tvm_module *quiet = translate_pair(""), *tells = translate_pair("store-global x[%i * 64, 0], %v\n");
    ck_assert_uint_eq(count_of(quiet->ptx, "mbarrier.arrive.shared::cluster"), 2);
    ck_assert_uint_eq(count_of(tells->ptx, "mbarrier.arrive.release.cluster.shared::cluster"), 2);
    /* %full is arrived at by the own block alone */
    ck_assert_uint_eq(count_of(quiet->ptx, "try_wait.parity.acquire.cluster"), 0);
    ck_assert_uint_eq(count_of(tells->ptx, "try_wait.parity.acquire.cluster"), 1);
    tvm_module_free(quiet);
    tvm_module_free(tells);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("teams");
    TCase *cases = tcase_create("teams");
    tcase_add_test(cases, layouts_are_for_the_threads_of_a_team);
    tcase_add_test(cases, a_team_has_a_barrier_and_numbers_of_its_own);
    tcase_add_test(cases, warps_that_part_meet_at_their_barriers);
    tcase_add_test(cases, an_arrival_is_fenced_where_threads_may_have_written);
    tcase_add_test(cases, a_bulk_store_is_no_write_of_shared_memory);
    tcase_add_test(cases, a_role_does_not_fence_what_another_wrote);
    tcase_add_test(cases, a_team_that_ends_its_block_waits_for_the_cluster);
    tcase_add_test(cases, a_far_arrival_is_a_release_where_blocks_tell_each_other);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
