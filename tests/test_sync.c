/* Blocks that wait for each other, in the interpreter with any number of threads and as PTX run block by
 * block: tensors of the launch, semaphores, tiles that are put and taken, deadlocks. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "abi_kit.h"
#include "codegen.h"
#include "interp_case.h"
#include "ptx_machine.h"
#include "suite_kit.h"
#include "translate_kit.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { TARGETS = sizeof targets / sizeof *targets };

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

/* n blocks, with a tensor s of n elements or rows, of which `type` is type and shape. */
static void assert_stuck(const stuck *row, const char *type) {
    static uint32_t s[100 * 32];
    char text[512];
    snprintf(text, sizeof text, ".vasm 1\n.kernel f(n: i32, s: global %s)\n.warps 1\n.grid n\n%s\n.end\n",
             type, row->body);
    tvm_ir_program *program = assemble(text);
    for (unsigned t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
        memset(s, 0, sizeof s);
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

START_TEST(waiting_for_nothing_is_a_fault) {
    assert_stuck(&stuck_rows[_i], "u32[n]");
}
END_TEST

/* Blocks in the order of their index never wait, so that they can be run one after the other. */
START_TEST(the_generated_code_takes_turns) {
    static int32_t y[CHAINS][32], sum[CHAINS][32], turn[CHAINS];
    tvm_ir_program *program = assemble(chain);
    tvm_module *module = translate(program, targets[_i]);
    memset(turn, 0, sizeof turn);
    ptx_machine m = ptx_load(module->ptx, "f", module->kernels[0].abi.threads);
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
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(s: global u32[4], x: global i32[32])\n.warps 1\n.grid 1\n"
                 "lock-semaphore s[2], 1\n%v = load-global x, spatial(32)\n"
                 "store-global x, %v\nrelease-semaphore s[2], 0\n.end\n");
    tvm_module *module = translate(program, "sm_80");
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

/* ---- tiles that are put and taken ---- */

/* Sums of the columns of x: each block adds a row to what it takes of those before it, along a chain; and up
 * a tree, in elements that several threads hold, two of a node's below it. */
#define ROWS32 "(n: i32, x: global f32[n, 32], y: global f32[1, 32])\n"
static const char *const column_sums[] = {
    ".vasm 1\n.kernel f" ROWS32 ".warps 1\n"
    ".grid n\n"
    "%part = alloc-global f32[n, 32], clean\n"
    "%sum = load-global x[block.x], spatial(1, 32)\n"
    "if block.x > 0\n"
    "    %more = take-global %part[block.x - 1], spatial(1, 32)\n"
    "    %sum = add %sum, %more\n"
    "end\n"
    "if block.x == n - 1\n"
    "    store-global y, %sum\n"
    "else\n"
    "    put-global %part[block.x], %sum\n"
    "end\n"
    ".end\n",
    ".vasm 1\n.kernel f" ROWS32 ".warps 2\n"
    ".grid n\n"
    "%part = alloc-global f32[n, 32], clean\n"
    "%node = n - 1 - block.x\n"
    "%sum = load-global x[block.x], replicated(4, 2).spatial(1, 8).replicated(2, 2).local(1, 4)\n"
    "for %below = 2 * %node + 1 to min(2 * %node + 3, n)\n"
    "    %more = take-global %part[n - 1 - %below], replicated(4, 2).spatial(1, 8).replicated(2, 2).local(1, 4)\n"
    "    %sum = add %sum, %more\n"
    "end\n"
    "if %node == 0\n"
    "    store-global y, %sum\n"
    "else\n"
    "    put-global %part[block.x], %sum\n"
    "end\n"
    ".end\n"};

enum { ROWS = 300, COLUMN_SUMS = 2, THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };

/* Small integers, so that sums are exact in any order; a column of zeros among them, which are put as well.
 */
static void fill_rows(float x[ROWS][32], float want[32]) {
    memset(want, 0, 32 * sizeof *want);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 32; j++) {
            x[i][j] = j == 7 ? 0.0F : (float)((i * 7 + j * 13) % 61 - 20);
            want[j] += x[i][j];
        }
}

static void check_sums(const float found[32], const float want[32]) {
    for (unsigned j = 0; j < 32; j++)
        ck_assert_msg(found[j] == want[j], "column %u: %g, not %g", j, (double)found[j], (double)want[j]);
}

START_TEST(tiles_are_passed_on) {
    static float x[ROWS][32], want[32], y[32];
    tvm_ir_program *program = assemble(column_sums[_i / THREAD_COUNTS]);
    fill_rows(x, want);
    memset(y, 0xcc, sizeof y);
    const binding values[] = {INT("n", ROWS), TENSOR("x", x), TENSOR("y", y)};
    outcome out = launch(program, NULL, thread_counts[_i % THREAD_COUNTS], values, 3);
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    check_sums(y, want);
    free(out.output);
    tvm_ir_program_free(program);
}
END_TEST

/* Runs the blocks of kernel f, of a grid of one dimension, one after the other: the values of its parameters,
 * then the addresses of the tensors of the launch. */
static void run_in_order(const tvm_ir_program *program, const tvm_module *module, uint32_t blocks,
                         const uint64_t *values) {
    ptx_machine m = ptx_load(module->ptx, "f", module->kernels[0].abi.threads);
    abi_set(&module->kernels[0].abi, values, values + program->kernels[0].param_count, NULL, NULL, m.params,
            sizeof m.params / sizeof *m.params);
    m.grid[0] = blocks;
    for (m.block[0] = 0; m.block[0] < blocks; m.block[0]++) ptx_run(&m);
    ptx_free(&m);
}

START_TEST(the_generated_code_passes_tiles_on) {
    static float x[ROWS][32], want[32], y[32], part[ROWS][32];
    tvm_ir_program *program = assemble(column_sums[_i / TARGETS]);
    tvm_module *module = translate(program, targets[_i % TARGETS]);
    fill_rows(x, want);
    memset(part, 0, sizeof part);
    const uint64_t params[] = {ROWS, (uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y,
                               (uint64_t)(uintptr_t)part};
    run_in_order(program, module, ROWS, params);
    check_sums(y, want);
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned j = 0; j < 32; j++) ck_assert_uint_eq(tvm_f32_bits(part[i][j]), 0);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* Every bit arrives as it was put, but zero, which is -0 from then on. */
static const char hand_over[] =
    ".vasm 1\n.kernel f(x: global f32[32], y: global f32[32])\n.warps 1\n.grid 2\n"
    "%part = alloc-global f32[32], clean\n"
    "if block.x == 0\n"
    "    %v = load-global x, spatial(32)\n"
    "    put-global %part, %v\n"
    "else\n"
    "    %w = take-global %part, spatial(32)\n"
    "    store-global y, %w\n"
    "end\n"
    ".end\n";
static const uint32_t particular[32] = {
    0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f800000, 0xff800000,
    0x7fc00000, 0x7fc01234, 0xffc00001, 0x7f800001, 0xffffffff, 0x7fffffff, 0x3f800000, 0x7f7fffff};

static void check_particular(const uint32_t found[32]) {
    for (unsigned i = 0; i < 32; i++) ck_assert_uint_eq(found[i], particular[i] ? particular[i] : 0x80000000);
}

START_TEST(every_value_arrives) {
    static uint32_t x[32], y[32], part[32];
    tvm_ir_program *program = assemble(hand_over);
    memcpy(x, particular, sizeof x);
    for (unsigned t = 0; t < THREAD_COUNTS; t++) {
        const binding values[] = {TENSOR("x", x), TENSOR("y", y)};
        memset(y, 0xcc, sizeof y);
        outcome out = launch(program, NULL, thread_counts[t], values, 2);
        ck_assert_msg(out.status == TVM_OK, "%s", out.message);
        check_particular(y);
        free(out.output);
    }
    for (unsigned t = 0; t < TARGETS; t++) {
        tvm_module *module = translate(program, targets[t]);
        const uint64_t params[] = {(uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y, (uint64_t)(uintptr_t)part};
        memset(y, 0xcc, sizeof y);
        run_in_order(program, module, 2, params);
        check_particular(y);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* Nobody puts; a block of a higher index would have to; half of a tile is put; the last block has ended; the
 * fault of another block ends the waiting; an element is put twice; what was put stays. */
#define ROW "spatial(1, 32)"
static const stuck exchange_rows[] = {
    {"%v = take-global s[block.x], " ROW, "elements of s that this one waits for are never put", 5},
    {"%v = take-global s[n - 1 - block.x], " ROW "\nput-global s[block.x], %v", "deadlock", 5},
    {"%v = alloc-register f32[1, 32], " ROW ", init 1.0\nif block.x == 0\nput-global s[0], %v\nelse\n"
     "%w = take-global s[0], local(2, 1)." ROW "\nend",
     "never put", 9},
    {"%v = alloc-register f32[1, 32], " ROW
     ", init 1.0\nif block.x < n - 1\nput-global s[0, block.x * 32], %v\n"
     "else\n%w = take-global s[1], " ROW "\nend",
     "never put", 9},
    {"if block.x % 2 == 0\n%v = take-global s[0], " ROW "\nend\n%q = 1 / (block.x - 1)", "", 0},
    {"%v = alloc-register f32[1, 32], " ROW "\nput-global s[block.x], %v\nput-global s[block.x], %v",
     "put-global: s: an element that was put before has not been taken", 7},
};

START_TEST(a_take_of_what_is_not_put_is_a_fault) {
    assert_stuck(&exchange_rows[_i], "f32[n, 32]");
}
END_TEST

START_TEST(what_is_left_in_a_clean_tensor_is_a_fault) {
    tvm_ir_program *program = assemble(".vasm 1\n.kernel f(n: i32)\n.warps 1\n.grid n\n"
                                       "%p = alloc-global f32[n, 32], clean\n"
                                       "%v = alloc-register f32[1, 32], " ROW "\n"
                                       "if block.x == 2\nput-global %p[block.x], %v\nend\n.end\n");
    for (unsigned t = 0; t < THREAD_COUNTS; t++) {
        const binding values[] = {INT("n", 5)};
        outcome out = launch(program, NULL, thread_counts[t], values, 1);
        ck_assert_int_eq(out.status, TVM_FAULT);
        ck_assert_msg(strstr(out.message, "'%p' is not zero at the end of the launch: element 64 of 160"),
                      "%s", out.message);
        ck_assert_uint_eq(out.line, 5);
        free(out.output);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* Tiles of which nothing lies in the tensor, as it has no elements or by their index, and edges: nothing is
 * put, nothing waited for, and zeros are taken. The blocks are begun in order, so that one thread runs them.
 */
static const char outside[] =
    ".vasm 1\n.kernel f(n: i32, y: global f32[3, 64], e: global f32[n, 4])\n.warps 1\n.grid 2\n"
    "%part = alloc-global f32[2, 5], clean\n"
    "%v = alloc-register f32[2, 32], local(2, 1)." ROW ", init 3.0\n"
    "if block.x == 0\n"
    "    put-global %part[-7, 0], %v\n"
    "    put-global %part[2, 0], %v\n"
    "    put-global %part[0, -32], %v\n"
    "    put-global %part[-1, -30], %v\n"
    "    put-global e[0, 0], %v\n"
    "else\n"
    "    %a = take-global %part[-1, -30], local(2, 1)." ROW "\n"
    "    store-global y[0, 0], %a\n"
    "    %b = take-global e[0, 0], " ROW "\n"
    "    store-global y[2, 0], %b\n"
    "    %c = take-global %part[2, 5], local(2, 1)." ROW "\n"
    "    store-global y[0, 32], %c\n"
    "    %d = take-global %part[i64(1) << 40, 0], " ROW "\n"
    "    store-global y[2, 32], %d\n"
    "end\n"
    ".end\n";

static void check_outside(const float y[3][64]) {
    for (unsigned i = 0; i < 3; i++)
        for (unsigned j = 0; j < 64; j++)
            ck_assert_msg(y[i][j] == (i == 1 && (j == 30 || j == 31) ? 3.0F : 0.0F), "y[%u, %u] is %g", i, j,
                          (double)y[i][j]);
}

START_TEST(nothing_is_waited_for_outside_of_the_tensor) {
    static float y[3][64], part[2][5];
    tvm_ir_program *program = assemble(outside);
    const binding values[] = {INT("n", 0), TENSOR("y", y), TENSOR("e", NULL)};
    memset(y, 0xcc, sizeof y);
    outcome out = launch(program, NULL, 1, values, 3);
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    check_outside((const float(*)[64])y);
    free(out.output);
    for (unsigned t = 0; t < TARGETS; t++) {
        tvm_module *module = translate(program, targets[t]);
        const uint64_t params[] = {0, (uint64_t)(uintptr_t)y, 0, (uint64_t)(uintptr_t)part};
        memset(y, 0xcc, sizeof y);
        run_in_order(program, module, 2, params);
        check_outside((const float(*)[64])y);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* What makes a take safe: it asks for all of the tile until all is there, and only then empties it; where
 * several threads hold an element, a barrier stands between, and nowhere else. Nothing needs more than
 * relaxed order. */
static const struct exchange_order {
    const char *layout;
    const char *steps[10];
    unsigned barriers;
} exchange_orders[] = {
    {"local(1, 2).spatial(1, 32)",
     {"createpolicy.fractional.L2::evict_last.b64", "st.relaxed.gpu.global.L2::cache_hint.b32 [", "$L",
      "ld.relaxed.gpu.global.L2::cache_hint.b32 ", "min.u32", " bra $L", "bar.warp.sync",
      "st.relaxed.gpu.global.L2::cache_hint.b32 ["},
     0},
    {"replicated(2, 2).spatial(1, 16).local(1, 4)",
     {"createpolicy.fractional.L2::evict_last.b64", "st.relaxed.gpu.global.L2::cache_hint.v4.b32 [", "$L",
      "ld.relaxed.gpu.global.L2::cache_hint.v4.b32 {", "min.u32", " bra $L", "bar.sync 0;",
      "st.relaxed.gpu.global.L2::cache_hint.v4.b32 ["},
     1},
};

START_TEST(the_order_of_a_put_and_a_take) {
    const struct exchange_order *row = &exchange_orders[_i];
    char text[512];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel f(x: global f32[2, 64], y: global f32[2, 64])\n.warps 1\n.grid 1\n"
             "%%v = alloc-register f32[1, 64], %s\nput-global x[0], %%v\n%%w = take-global y[1], %s\n.end\n",
             row->layout, row->layout);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_80");
    const char *at = module->ptx;
    unsigned barriers = 0;
    for (unsigned i = 0; row->steps[i]; i++) {
        const char *found = strstr(at, row->steps[i]);
        ck_assert_msg(found != NULL, "%s is not where it belongs:\n%s", row->steps[i], module->ptx);
        at = found + strlen(row->steps[i]);
    }
    for (at = module->ptx; (at = strstr(at, "bar.sync")); at++) barriers++;
    ck_assert_uint_eq(barriers, row->barriers);
    ck_assert_ptr_null(strstr(module->ptx, "fence"));
    ck_assert_ptr_null(strstr(module->ptx, "membar"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sync");
    TCase *cases = tcase_create("sync");
    tcase_add_loop_test(cases, blocks_take_turns, 0, sizeof thread_counts / sizeof *thread_counts);
    tcase_add_loop_test(cases, waiting_for_nothing_is_a_fault, 0, sizeof stuck_rows / sizeof *stuck_rows);
    tcase_add_loop_test(cases, the_generated_code_takes_turns, 0, TARGETS);
    tcase_add_test(cases, the_order_of_a_lock_and_a_release);
    tcase_add_loop_test(cases, tiles_are_passed_on, 0, COLUMN_SUMS * THREAD_COUNTS);
    tcase_add_loop_test(cases, the_generated_code_passes_tiles_on, 0, COLUMN_SUMS * TARGETS);
    tcase_add_test(cases, every_value_arrives);
    tcase_add_loop_test(cases, a_take_of_what_is_not_put_is_a_fault, 0,
                        sizeof exchange_rows / sizeof *exchange_rows);
    tcase_add_test(cases, what_is_left_in_a_clean_tensor_is_a_fault);
    tcase_add_test(cases, nothing_is_waited_for_outside_of_the_tensor);
    tcase_add_loop_test(cases, the_order_of_a_put_and_a_take, 0,
                        sizeof exchange_orders / sizeof *exchange_orders);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
