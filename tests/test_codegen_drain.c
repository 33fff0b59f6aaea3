/* The end of a block with copies under way: the generated code waits for them, however the block ends, unless
 * it is proved that each has been waited for. The machine of ptx_machine.h faults where a block ends before.
 */
#include "check_kit.h"
#include <stdio.h>
#include <string.h>

#include "assembler_kit.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

#define TILE      "%s = alloc-shared f32[4, 64], row_major\n"
#define BEGIN     TILE "%b = alloc-barrier [2]\n"
#define COPY(at)  "copy-bulk %s[" at ", 0], x[" at ", 0], tile [64], barrier %b[" at "]\n"
#define READY(at) COPY(at) "arrive-barrier %b[" at "]\n"
#define PAIR      ".cluster 2\n.grid 2\n"
#define RING(produce, consume)                                                                               \
    TILE "%b = alloc-barrier [2]\n%e = alloc-barrier [2], open\n"                                            \
         "role load warps 0 to 1\n%i = 0\n" produce "end\nrole use warps 1 to 2\n%j = 0\n" consume "end\n"
#define TWO(consume, other)                                                                                  \
    TILE "%b = alloc-barrier [2]\n%e = alloc-barrier [2], arrivals 2, open\n"                                \
         "role load warps 0 to 1\nfor %i = 0 to n\n" FILL "end\nend\n"                                       \
         "role use warps 1 to 2\n" consume "end\nrole other warps 2 to 3\n" other "end\n"
#define FILL  "wait-barrier %e[%i % 2]\n" READY("%i % 2")
#define DRAIN "wait-barrier %b[%j % 2]\narrive-barrier %e[%j % 2]\n"

/* A kernel of n and x, which is launched with n = 0, 1, 2 and 3. */
typedef struct ending {
    const char *head, *body;
    bool is_proved; /* nothing is to be done in the end */
} ending;

static const ending endings[] = {
    /* in one team */
    {".grid 1\n", BEGIN READY("0") "wait-barrier %b[0]\n", true},
    {".grid 1\n", BEGIN "for %i = 0 to n\n" READY("%i % 2") "wait-barrier %b[%i % 2]\nend\n", true},
    {".grid 1\n",
     BEGIN "for %i = 0 to n\n" READY("0") READY("1") "wait-barrier %b[0]\nwait-barrier %b[1]\nend\n", true},
    {".grid 1\n", BEGIN READY("0"), false},
    {".grid 1\n", BEGIN COPY("1"), false},
    {".grid 1\n", BEGIN "if n > 1\n" READY("0") "end\n", false},
    {".grid 1\n", BEGIN READY("0") "for %i = 0 to min(n, 1)\nwait-barrier %b[0]\nend\n", false},
    {".grid 1\n", BEGIN READY("0") "if n == 2\nexit\nend\nwait-barrier %b[0]\n", false},
    {".grid 1\n", BEGIN "if n == 2\nexit\nend\n" READY("0") "wait-barrier %b[0]\n" READY("1"), false},
    {".grid 1\n", "if n == 2\nexit\nend\n" BEGIN READY("0"), false},
    {".grid 1\n", BEGIN "for %i = 0 to n\n" READY("0") "if %i == 1\nbreak\nend\nwait-barrier %b[0]\nend\n",
     false},
    {".grid 1\n",
     TILE "%b = alloc-barrier [2], arrivals 3\n" READY("0") "for %i = 0 to n\narrive-barrier %b[0]\nend\n",
     false},
    {".grid 1\n",
     BEGIN "for %i = 0 to n\narrive-barrier %b[1]\nwait-barrier %b[1]\nend\n" READY(
         "1") "wait-barrier %b[1]\n" COPY("1"),
     false},
    {".grid 1\n", TILE "%b = alloc-barrier [2], open\nwait-barrier %b[0]\n" READY("0"), false},
    {".grid 1\n", BEGIN COPY("0") "sync-barrier %b[0]\n" READY("0"), false},
    /* in roles */
    {".grid 1\n", RING("for %i = 0 to n\n" FILL "end\n", "for %j = 0 to n\n" DRAIN "end\n"), true},
    {".grid 1\n",
     RING("while %i < n\n" FILL "%i = %i + 1\nif %i == 2\nbreak\nend\nend\n",
          "while %j < n\n" DRAIN "%j = %j + 1\nif %j == 2\nbreak\nend\nend\n"),
     true},
    {".grid 1\n", TWO("for %j = 0 to n\n" DRAIN "end\n", "for %j = 0 to n\n" DRAIN "end\n"), true},
    {".grid 1\n",
     TWO("for %j = 0 to n\narrive-barrier %e[%j % 2]\nend\n",
         "if n > 1\nwait-barrier %b[0]\nend\nfor %j = 0 to n\narrive-barrier %e[%j % 2]\nend\n"),
     false},
    {".grid 1\n", RING("for %i = 0 to n + 1\n" FILL "end\n", "for %j = 0 to n\n" DRAIN "end\n"), false},
    {".grid 1\n",
     RING("while %i < n\n" FILL "%i = %i + 1\nend\n",
          "while %j < n\n" DRAIN "%j = %j + 1\nif %j == 2\nbreak\nend\nend\n"),
     false},
    {".grid 1\n", RING("while %i < n\n" FILL "%i = %i + 1\nend\n", "arrive-barrier %e[%j]\n"), false},
    {".grid 1\n",
     TILE "%b = alloc-barrier [2]\nrole load warps 0 to 2 by 1\nif role.index == 0 || n > 1\n" READY(
         "role.index") "end\nend\n",
     false},
    {".grid 1\n",
     TILE "%b = alloc-barrier [2]\nrole load warps 0 to 1\n" READY("0") "end\nwait-barrier %b[0]\n", false},
    /* in clusters */
    {PAIR,
     BEGIN "sync-cluster\ncopy-cluster %s[0, 0], 1 - cluster.rank, %s[2, 0], tile [64], barrier %b[0]\n",
     false},
    {PAIR,
     BEGIN "sync-cluster\ncopy-cluster %s[0, 0], 1 - cluster.rank, %s[2, 0], tile [64], barrier %b[0]\n"
           "arrive-barrier %b[0], rank 1 - cluster.rank\nif n > 1\nwait-barrier %b[0]\nend\n",
     false},
    {PAIR,
     BEGIN "sync-cluster\ncopy-bulk %s[0, 0], x[0, 0], tile [64], barrier %b[0], multicast all\n"
           "arrive-barrier %b[0]\nif n > 1\nwait-barrier %b[0]\nend\n",
     false},
    {PAIR,
     BEGIN "sync-cluster\ncopy-bulk %s[0, 0], x[0, 0], tile [64], barrier %b[0], multicast all\n"
           "arrive-barrier %b[0]\nwait-barrier %b[0]\n",
     true}};
enum { ENDINGS = sizeof endings / sizeof *endings, MOST = 3 };

static void run(const tvm_ir_program *program, const tvm_module *module, int64_t n, uint8_t *x,
                size_t bytes) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_scalar scalars[2] = {{.i = n}};
    tvm_launch_env env = {
        .scalars = scalars, .multiprocessors = 1, .target = 90, .traits = tvm_target_traits_for(90)};
    const uint64_t values[2] = {(uint64_t)n, (uint64_t)(uintptr_t)x}, tensors[1] = {0};
    ck_assert_int_eq(tvm_launch_check(program, kernel, &env, NULL), TVM_OK);
    ptx_machine m = ptx_load(module->ptx, "k", module->kernels[0].abi.threads);
    ptx_allow(&m, x, bytes);
    ptx_launch(&m, module, program, kernel, &env, values, tensors);
    ck_assert_msg(!m.fault[0] && !m.trapped, "n = %d: %s", (int)n, m.trapped ? "a trap" : m.fault);
    ptx_free(&m);
}

START_TEST(no_block_ends_before_its_copies) {
    static float x[4][64];
    char text[4096];
    snprintf(text, sizeof text, ".vasm 5\n.kernel k(n: i32, x: global f32[4, 64])\n.warps 3\n%s%s.end\n",
             endings[_i].head, endings[_i].body);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_90a");
    bool drains = strstr(module->ptx, "red.relaxed.cta") || strstr(module->ptx, "div.u32");
    ck_assert_msg(drains != endings[_i].is_proved, "%s\n%s", text, module->ptx);
    for (int64_t n = 0; n <= MOST; n++) run(program, module, n, (uint8_t *)x, sizeof x);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("drains");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, no_block_ends_before_its_copies, 0, ENDINGS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
