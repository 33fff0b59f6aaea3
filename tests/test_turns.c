/* The budget of turns: programs that would never end do, in the interpreter and as code for sm_80 and sm_90a
 * that counts, executed by ptx_machine.h; and both count alike, to the turn. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "device.h"
#include "interp.h"
#include "launch.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { BUDGET = 300, PLENTY = 100 * 1000, STEPS = 1000 * 1000, ELEMENTS = 64, MULTIPROCESSORS = 2 };

static const char *const targets[] = {"sm_80", "sm_90a"};
enum { TARGETS = sizeof targets / sizeof *targets };

/* ---- running ---- */

typedef struct run {
    tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_launch_env env;
    tvm_scalar scalars[2];
    _Alignas(16) uint32_t data[ELEMENTS];
} run;

/* Of a program whose last kernel is k(n: i32, x: global u32[64]). */
static void open_run(run *r, const char *text, int32_t n) {
    *r = (run){.program = assemble(text)};
    r->kernel = &r->program->kernels[r->program->kernel_count - 1];
    r->scalars[0].i = n;
    r->env = (tvm_launch_env){.scalars = r->scalars, .multiprocessors = MULTIPROCESSORS};
}

/* What the interpreter says, "" if nothing; counts may be NULL. */
static tvm_status interpret(run *r, uint32_t turns, tvm_launch_counts *counts, char message[400]) {
    tvm_interp_kernel *ready = NULL;
    tvm_diags diags = {0};
    const tvm_interp_arg args[2] = {{.scalar = r->scalars[0]}, {.data = r->data}};
    const tvm_interp_options options = {
        .threads = 1, .multiprocessors = MULTIPROCESSORS, .turns = turns, .counts = counts};
    r->env.target = 0;
    r->env.traits = NULL;
    memset(r->data, 0, sizeof r->data);
    ck_assert_int_eq(tvm_launch_check(r->program, r->kernel, &r->env, NULL), TVM_OK);
    ck_assert_int_eq(tvm_interp_prepare(r->program, r->kernel, &ready, NULL), TVM_OK);
    tvm_status status = tvm_interp_run(ready, args, r->env.grid, &options, &diags);
    snprintf(message, 400, "%s", diags.count ? diags.items[0].message : "");
    tvm_interp_free(ready);
    tvm_diags_free(&diags);
    return status;
}

/* As counting code: does it trap? */
static bool traps(run *r, const char *target, uint32_t turns) {
    tvm_module *module = translate_with(r->program, target, &(tvm_translate_options){.counts_turns = true});
    const tvm_kernel_code *code = &module->kernels[r->kernel - r->program->kernels];
    ptx_machine m = ptx_load(module->ptx, code->name, code->abi.threads);
    const uint64_t values[2] = {r->scalars[0].u, (uint64_t)(uintptr_t)r->data};
    ptx_own own;
    r->env.target = module->target.arch;
    r->env.traits = tvm_target_traits_of(module->target);
    memset(r->data, 0, sizeof r->data);
    ck_assert_int_eq(tvm_launch_check(r->program, r->kernel, &r->env, NULL), TVM_OK);
    ptx_allow(&m, (const uint8_t *)r->data, sizeof r->data);
    ptx_own_make(&own, &m, r->program, r->kernel, &r->env);
    m.asks_again = true;
    m.steps_most = STEPS;
    m.turns = turns;
    ptx_launch(&m, module, r->program, r->kernel, &r->env, values, own.place);
    ck_assert_msg(!m.fault[0], "%s: %s", target, m.fault);
    bool trapped = m.trapped;
    ptx_free(&m);
    ptx_own_free(&own);
    tvm_module_free(module);
    return trapped;
}

static bool is_for(const run *r, const char *name) {
    tvm_target target;
    ck_assert_int_eq(tvm_target_parse(name, &target, NULL), TVM_OK);
    return tvm_kernel_is_for(r->kernel, target.arch, tvm_target_traits_of(target));
}

/* ---- what never ends ---- */

#define KERNEL(version, warps, more, body)                                                                   \
    ".vasm " version "\n.kernel k(n: i32, x: global u32[64])\n.warps " warps "\n" more "\n" body ".end\n"

static const struct hostile {
    const char *name, *text;
    const char *says; /* the interpreter: that the budget is used up, unless it knows better */
} hostile[] = {
    {"a while without an end", KERNEL("7", "2", ".grid 1", "while n > 0\nend\n"), NULL},
    {"a while that goes on", KERNEL("7", "1", ".grid 1", "while n > 0\nif n > 1\ncontinue\nend\nend\n"),
     NULL},
    {"2^31 turns", KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 0 to n\n%s = %s + %i\nend\n"), NULL},
    {"2^31 turns between constants",
     KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 0 to 2147483647\n%s = %s + %i\nend\n"), NULL},
    {"many turns of 64 bits",
     KERNEL("7", "1", ".grid 1",
            "%s = i64(0)\nfor %i = i64(0) to i64(n) * i64(n) step 3\n%s = %s + %i\nend\n"),
     NULL},
    {"turns by powers of two of 64 bits",
     KERNEL("7", "1", ".grid 1",
            "%s = i64(0)\nfor %i = i64(0) to i64(n) * i64(n) step 4\n%s = %s + %i\nend\n"),
     NULL},
    {"loops in loops",
     KERNEL(
         "7", "1", ".grid 1",
         "%s = 0\nfor %h = 0 to 65536\nfor %i = 0 to 65536\nfor %j = 0 to 65536\n%s = %s + %j\nend\nend\nend\n"),
     NULL},
    {"a step that is not known",
     KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 0 to n step (n - 2147483646)\n%s = %s + %i\nend\n"), NULL},
    {"an mbarrier where nobody arrives",
     KERNEL("3", "2", ".grid 1", "%b = alloc-barrier [1]\nwait-barrier %b[0]\n"), "deadlock"},
    {"a team that misses a meeting",
     KERNEL("3", "2", ".grid 1",
            "%all = alloc-barrier [1], arrivals 2\nrole both warps 0 to 2 by 1\n"
            "for %i = role.index to 3\nsync-barrier %all\nend\nend\n"),
     "deadlock"},
    {"a role that ends early",
     KERNEL("3", "2", ".grid 1",
            "%full = alloc-barrier [1]\nrole give warps 0 to 1\narrive-barrier %full[0]\nend\n"
            "role take warps 1 to 2\nfor %i = 0 to 2\nwait-barrier %full[0]\nend\nend\n"),
     "deadlock"},
    {"a role that never ends",
     KERNEL(
         "3", "4", ".grid 1",
         "%full = alloc-barrier [1]\nrole give warps 0 to 2\nwhile n > 0\nend\narrive-barrier %full[0]\nend\n"
         "role take warps 2 to 4\nwait-barrier %full[0]\nend\nsync\n"),
     NULL},
    {"a semaphore that nobody releases",
     KERNEL("3", "2", ".grid 1", "%s = alloc-global u32[1], clean\nlock-semaphore %s[0], 1\n"), "deadlock"},
    {"elements that nobody puts",
     KERNEL("3", "1", ".grid 1",
            "%p = alloc-global f32[1, 32], clean\n%w = take-global %p[0, 0], local(1, 1).spatial(1, 32)\n"),
     "deadlock"},
    {"a block of a cluster that ends early",
     KERNEL("3", "1", ".cluster 2\n.grid 2",
            "%b = alloc-barrier [1]\nsync-cluster\nif cluster.rank == 0\nwait-barrier %b[0]\nend\n"),
     "deadlock"},
    {"copies in a loop without an end",
     KERNEL("7", "1", ".grid 1",
            "%t = alloc-shared u32[32]\nwhile n > 0\ncopy-async %t[0], x[0], [32]\ncommit-group\nend\n"),
     NULL},
};

START_TEST(what_never_ends_does) {
    const struct hostile *h = &hostile[_i];
    char message[400];
    run r;
    open_run(&r, h->text, INT32_MAX);
    tvm_status status = interpret(&r, BUDGET, NULL, message);
    ck_assert_msg(status == (h->says ? TVM_FAULT : TVM_LIMIT), "%s: status %d, %s", h->name, (int)status,
                  message);
    ck_assert_msg(strstr(message, h->says ? h->says : "the budget of 300 turns is used up"), "%s: %s",
                  h->name, message);
    for (unsigned t = 0; t < TARGETS; t++)
        if (is_for(&r, targets[t]))
            ck_assert_msg(traps(&r, targets[t], BUDGET), "%s: %s goes on", h->name, targets[t]);
    tvm_ir_program_free(r.program);
}
END_TEST

/* ---- what ends ---- */

#define STORE "%t = alloc-register u32[32], spatial(32), init u32(%s)\nstore-global x[0], %t\n"

static const struct ending {
    const char *name, *text;
    uint32_t turns[3]; /* for n = 0, 1 and 5, counted by hand */
    bool asks;         /* code asks mbarriers, in vain, too */
} endings[] = {
    {"a loop",
     KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 0 to n\n%s = %s + %i\nend\n" STORE),
     {0, 1, 5},
     false},
    {"steps of 3",
     KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 1 to 3 * n step 3\n%s = %s + %i\nend\n" STORE),
     {0, 1, 5},
     false},
    {"a step that is not known",
     KERNEL("7", "1", ".grid 1", "%s = 0\nfor %i = 0 to 12 step (n + 1)\n%s = %s + %i\nend\n" STORE),
     {12, 6, 2},
     false},
    {"64 bits",
     KERNEL("7", "1", ".grid 1",
            "%s = 0\nfor %i = i64(-8) to i64(n) step 4\n%s = %s + i32(%i)\nend\n"
            "for %j = u64(n) to u64(20) step 7\n%s = %s + i32(%j)\nend\n" STORE),
     {2 + 3, 3 + 3, 4 + 3},
     false},
    {"constant loops in a loop",
     KERNEL("7", "1", ".grid 1",
            "%s = 0\nfor %i = 0 to n\nfor %j = 0 to 3\n%s = %s + %j\nfor %k = 0 to 8 step 4 unroll 2\n"
            "%s = %s + %k\nend\nend\nend\n" STORE),
     {0, 10, 50},
     false},
    {"under a condition",
     KERNEL(
         "7", "1", ".grid 1",
         "%s = 0\nfor %i = 0 to n\nif %i % 2 == 1\nfor %j = 0 to 3\n%s = %s + %j\nend\nelse\n%s = %s + 1\nend\n"
         "end\n" STORE),
     {0, 1, 5 + 6},
     false},
    {"continue before a constant loop",
     KERNEL(
         "7", "1", ".grid 1",
         "%s = 0\nfor %i = 0 to n\nif %i % 2 == 1\ncontinue\nend\nfor %j = 0 to 3\n%s = %s + %j\nend\nend\n" STORE),
     {0, 4, 5 + 9},
     false},
    {"break",
     KERNEL(
         "7", "1", ".grid 1",
         "%s = 0\nfor %i = 0 to 2000000000 unroll 4\nif %i == n\nbreak\nend\nfor %j = 0 to 2\n%s = %s + %j\nend\n"
         "end\n" STORE),
     {1, 1 + 2 + 1, 6 + 10},
     false},
    {"break out of an unrolled loop",
     KERNEL("7", "1", ".grid 1",
            "%s = 0\nfor %i = 0 to 4 unroll 4\n%s = %s + %i\nif %i == n\nbreak\nend\nend\n" STORE),
     {1, 2, 4},
     false},
    {"the end of the block in a loop",
     KERNEL("7", "1", ".grid 1",
            "%s = 0\nfor %h = 0 to 9\nfor %i = 0 to 9\n%s = %s + %i\nif %s > n\nexit\nend\nend\nend\n" STORE),
     {1 + 2, 1 + 3, 1 + 4},
     false},
    {"while",
     KERNEL(
         "7", "1", ".grid 1",
         "%s = 0\nwhile %s < 2 * n\n%s = %s + 1\nif %s == 4\n%s = 5\ncontinue\nend\nfor %j = 0 to 2\n%j2 = %j\nend\n"
         "end\n" STORE),
     {0, 2 + 4, 3 + 6 + 1 + 5 + 10},
     false},
    {"roles",
     KERNEL(
         "7", "4", ".grid 2",
         "%s = 0\nfor %h = 0 to n\n%s = %s + %h\nend\n"
         "role a warps 0 to 2 by 1\nfor %i = 0 to n\n%p = %i\nend\nend\n"
         "role c warps 1 to 4\nfor %j = 0 to n + 1\n%q = %j\nend\nend\n"
         "for %k = 0 to 2\n%s = %s + %k\nend\n"
         "%t = alloc-register u32[32], replicated(4, 1).spatial(32), init u32(%s)\nstore-global x[0], %t\n"),
     {1 + 2, 1 + 1 + 2 + 2, 5 + 5 + 6 + 2},
     false},
    {"a ring",
     KERNEL(
         "7", "2", ".grid 1",
         "%full = alloc-barrier [2]\n%empty = alloc-barrier [2], open\nrole give warps 0 to 1\nfor %i = 0 to n\n"
         "wait-barrier %empty[%i % 2]\narrive-barrier %full[%i % 2]\nend\nend\n"
         "role take warps 1 to 2\nfor %i = 0 to n\nwait-barrier %full[%i % 2]\narrive-barrier %empty[%i % 2]\nend\n"
         "end\n"),
     {0, 1, 5},
     true},
    {"a pipelined loop",
     KERNEL("7", "1", ".grid 1",
            "%t = alloc-shared u32[8]\n%a = alloc-register u32[8], replicated(4, 1).spatial(8), init 0\n"
            "for %i = 0 to 8 * n step 8 pipeline 3\ncopy-async %t[0], x[%i], [8]\n"
            "%a = %a + load-shared(%t[0], [8])\nend\nstore-global x[0], %a\n"),
     {0, 1, 5},
     true},
};

START_TEST(what_ends_counts_alike) {
    static const int32_t sizes[3] = {0, 1, 5};
    const struct ending *e = &endings[_i];
    for (unsigned i = 0; i < 3; i++) {
        char message[400];
        uint32_t turns = e->turns[i], after[ELEMENTS];
        tvm_launch_counts counts = {0};
        run r;
        open_run(&r, e->text, sizes[i]);
        ck_assert_msg(interpret(&r, turns, &counts, message) == TVM_OK, "%s: %s", e->name, message);
        ck_assert_msg(counts.turns == turns, "%s, n = %d: %d turns", e->name, (int)sizes[i],
                      (int)counts.turns);
        memcpy(after, r.data, sizeof after);
        if (turns > 1) ck_assert_int_eq(interpret(&r, turns - 1, NULL, message), TVM_LIMIT);
        for (unsigned t = 0; t < TARGETS; t++) {
            bool trapped = traps(&r, targets[t], e->asks ? PLENTY : turns);
            ck_assert_msg(!trapped, "%s, n = %d: %s traps", e->name, (int)sizes[i], targets[t]);
            ck_assert_msg(memcmp(after, r.data, sizeof after) == 0, "%s: %s has another result", e->name,
                          targets[t]);
            if (turns > 1)
                ck_assert_msg(traps(&r, targets[t], turns - 1), "%s, n = %d: %s goes on", e->name,
                              (int)sizes[i], targets[t]);
        }
        tvm_ir_program_free(r.program);
    }
}
END_TEST

/* Of the options, what the code is without it: nothing of it remains. */
START_TEST(without_the_option_nothing_is_counted) {
    tvm_ir_program *program = assemble(hostile[0].text);
    tvm_module *plain = translate(program, "sm_90a"),
               *counted = translate_with(program, "sm_90a", &(tvm_translate_options){.counts_turns = true});
    ck_assert_uint_eq(tvm_abi_find(&plain->kernels[0].abi, TVM_ABI_TURNS, 0), TVM_NONE);
    ck_assert_uint_eq(tvm_abi_find(&counted->kernels[0].abi, TVM_ABI_TURNS, 0), 2);
    ck_assert_ptr_null(strstr(plain->ptx, "trap"));
    ck_assert_ptr_nonnull(strstr(counted->ptx, "trap"));
    tvm_module_free(plain);
    tvm_module_free(counted);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("turns");
    TCase *tests = suite_case(suite, "turns");
    tcase_add_loop_test(tests, what_never_ends_does, 0, sizeof hostile / sizeof *hostile);
    tcase_add_loop_test(tests, what_ends_counts_alike, 0, sizeof endings / sizeof *endings);
    tcase_add_test(tests, without_the_option_nothing_is_counted);
    return run_suite(suite);
}
