/* Blocks that wait for each other, in the interpreter with any number of threads and as PTX run block by
 * block: tensors of the launch, semaphores, deadlocks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "interp_case.h"
#include "ptx_machine.h"

/* A block adds 1 to n to what the blocks before it left, in a tensor of the launch that only they wrote: each
 * of them a chain of `chains`, all through one clean tensor. */
static const char chain[] = ".vasm 1\n"
                            ".kernel f(n: i32, chains: i32, y: global i32[chains, 32])\n"
                            ".warps 1\n"
                            ".grid chains, n\n"
                            "%sum = alloc-global i32[grid.x, 32]\n"
                            "%turn = alloc-global i32[chains], clean\n"
                            "%add = alloc-register i32[1, 32], spatial(1, 32), init block.y + 1\n"
                            "lock-semaphore %turn[block.x], block.y\n"
                            "if block.y > 0\n"
                            "    %before = load-global %sum[block.x], spatial(1, 32)\n"
                            "    %add = add %add, %before\n"
                            "end\n"
                            "if block.y == grid.y - 1\n"
                            "    store-global y[block.x, 0], %add\n"
                            "    release-semaphore %turn[block.x], 0\n"
                            "else\n"
                            "    store-global %sum[block.x, 0], %add\n"
                            "    release-semaphore %turn[block.x], block.y + 1\n"
                            "end\n"
                            ".end\n";

enum { CHAINS = 3, LENGTH = 500 };
static const unsigned thread_counts[] = {1, 2, 3, 8, 64};

START_TEST(blocks_take_turns) {
    int32_t y[CHAINS][32];
    tvm_ir_program *program = assemble(chain);
    memset(y, 0xcc, sizeof y);
    const binding values[] = {INT("n", LENGTH), INT("chains", CHAINS), TENSOR("y", y)};
    outcome out = launch(program, NULL, thread_counts[_i], values, 3);
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    for (unsigned c = 0; c < CHAINS; c++)
        for (unsigned i = 0; i < 32; i++) ck_assert_int_eq(y[c][i], LENGTH * (LENGTH + 1) / 2);
    free(out.output);
    tvm_ir_program_free(program);
}
END_TEST

/* What is wrong with each: nobody releases; a block of a higher index would have to; the last block has
 * ended; the fault of another block ends the waiting. */
typedef struct stuck {
    const char *body, *message;
    uint32_t line;
} stuck;
static const stuck stuck_rows[] = {
    {"lock-semaphore s[block.x], 1", "never released as 1", 5},
    {"lock-semaphore s[n - 1 - block.x], 1\nrelease-semaphore s[block.x], 1", "deadlock", 5},
    {"if block.x == 0\nlock-semaphore s[0], u32(4000000000)\nend", "never released as 4000000000", 6},
    {"if block.x % 2 == 0\nlock-semaphore s[0], 9\nend\n%v = 1 / (block.x - 1)", "", 0},
};

START_TEST(waiting_for_nothing_is_a_fault) {
    const stuck *row = &stuck_rows[_i];
    char text[512];
    snprintf(text, sizeof text, ".vasm 1\n.kernel f(n: i32, s: global u32[n])\n.warps 1\n.grid n\n%s\n.end\n",
             row->body);
    tvm_ir_program *program = assemble(text);
    for (unsigned t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
        uint32_t s[100] = {0};
        const binding values[] = {INT("n", 100), TENSOR("s", s)};
        outcome out = launch(program, NULL, thread_counts[t], values, 2);
        ck_assert_int_eq(out.status, TVM_FAULT);
        ck_assert_msg(strstr(out.message, row->message) != NULL, "%s", out.message);
        ck_assert_msg(strstr(out.message, "f: block (") != NULL, "%s", out.message);
        if (row->line) ck_assert_uint_eq(out.line, row->line);
        free(out.output);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* Blocks in the order of their index never wait, so that they can be run one after the other. */
START_TEST(the_generated_code_takes_turns) {
    static const char *const targets[] = {"sm_80", "sm_90a", "sm_100a"};
    static int32_t y[CHAINS][32], sum[CHAINS][32], turn[CHAINS];
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    tvm_ir_program *program = assemble(chain);
    ck_assert_int_eq(tvm_target_parse(targets[_i], &target, &diags), TVM_OK);
    ck_assert_int_eq(tvm_translate(program, target, &module, &diags), TVM_OK);
    memset(turn, 0, sizeof turn);
    ptx_machine m = ptx_load(module->ptx, "f", module->kernels[0].threads);
    const uint64_t params[] = {LENGTH, CHAINS, (uint64_t)(uintptr_t)y, (uint64_t)(uintptr_t)sum,
                               (uint64_t)(uintptr_t)turn};
    memcpy(m.params, params, sizeof params);
    const uint32_t grid[3] = {CHAINS, LENGTH, 1};
    memcpy(m.grid, grid, sizeof m.grid);
    for (m.block[1] = 0; m.block[1] < LENGTH; m.block[1]++)
        for (m.block[0] = 0; m.block[0] < CHAINS; m.block[0]++) ptx_run(&m);
    for (unsigned c = 0; c < CHAINS; c++) {
        ck_assert_int_eq(turn[c], 0);
        for (unsigned i = 0; i < 32; i++) ck_assert_int_eq(y[c][i], LENGTH * (LENGTH + 1) / 2);
    }
    ptx_free(&m);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* The order that makes a semaphore one: barrier, acquire, barrier for a lock; barrier, release. */
START_TEST(the_order_of_a_lock_and_a_release) {
    static const char *const steps[] = {
        "ld.acquire.gpu.global.b32", "bra", "bar.sync", "ld.global.b32", "st.global.b32", "bar.sync 0;",
        "st.release.gpu.global.b32"};
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(s: global u32[4], x: global i32[32])\n.warps 1\n.grid 1\n"
                 "lock-semaphore s[2], 1\n%v = load-global x, spatial(32)\n"
                 "store-global x, %v\nrelease-semaphore s[2], 0\n.end\n");
    ck_assert_int_eq(tvm_target_parse("sm_80", &target, &diags), TVM_OK);
    ck_assert_int_eq(tvm_translate(program, target, &module, &diags), TVM_OK);
    const char *at = module->ptx;
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *found = strstr(at, steps[i]);
        ck_assert_msg(found != NULL, "%s is not where it belongs:\n%s", steps[i], module->ptx);
        at = found + strlen(steps[i]);
    }
    ck_assert_ptr_null(strstr(module->ptx, ".nc"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sync");
    TCase *cases = tcase_create("sync");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, blocks_take_turns, 0, sizeof thread_counts / sizeof *thread_counts);
    tcase_add_loop_test(cases, waiting_for_nothing_is_a_fault, 0, sizeof stuck_rows / sizeof *stuck_rows);
    tcase_add_loop_test(cases, the_generated_code_takes_turns, 0, 3);
    tcase_add_test(cases, the_order_of_a_lock_and_a_release);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
