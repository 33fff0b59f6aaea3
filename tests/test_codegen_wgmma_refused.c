/* mma where wgmma does not fit: it is left to mma.sync, the report says why, and the products are right
 * (wgmma_kit.h). */
#include "wgmma_kit.h"

typedef struct refusal {
    const char *name;
    shape at;
    const char *body;
    expectation expected;
    const char *why; /* part of what is said */
} refusal;

#define COPY_TO(X)                                                                                           \
    "%sx = " X "\ncopy-async %sx, gx[0, 0], [R, K]\n"                                                        \
    "commit-group\nwait-group 0\nsync\n"
#define MULTIPLY LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") STORE_Y

static const refusal refusals[] = {
    {"no swizzle",
     {"f16", 4, 16, 64, 1, 1},
     COPY_TO("alloc-shared T[R, K], row_major") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"another swizzle",
     {"f16", 4, 16, 64, 1, 1},
     COPY_TO("alloc-shared T[R, K], swizzle(3, 2, 3)") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"rows of 128 that are not cut into blocks of columns",
     {"f16", 4, 16, 128, 1, 1},
     COPY_TO("alloc-shared T[R, K], swizzle(3, 3, 4)") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"b in registers",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C LOAD_X "%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     "b is in registers"},
    {"a sync before the mma",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C LOAD_X "sync\n%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     "b is in registers"},
    {"a store before the mma",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C
     "%none = alloc-register T[R, 64], replicated(W, 2).spatial(2, 16).local(N / 2, 4), init 0.0\nsync\n" LOAD_X
     "store-shared %sx[0, 0], %none\n%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     "b is in registers"},
    {"8 columns", {"f16", 4, 8, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "8 columns"},
    {"one warp", {"f16", 1, 16, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "multiple of 4"},
    {"6 warps", {"f16", 6, 16, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "multiple of 4"},
    {"not at a multiple of 8 rows, known",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A ".for P = 0 to 2\n%acc = load-global gc[0, P * N], C\n" MMA(
         "%d", "P * 8 + 4", "0", "%acc") "store-global gy[0, P * N], %d\n.endfor\n",
     shifted_plus_c,
     "first of 8 rows"},
    {"not at a multiple of 8 rows",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A "for %p = 0 to 2\n%acc = load-global gc[0, %p * N], C\n" MMA(
         "%d", "%p * 8 + some + 1", "0", "%acc") "store-global gy[0, %p * N], %d\nend\n",
     shifted_plus_c,
     "multiple of 8 rows"},
    {"a warpgroup's rows begin between two multiples of 8",
     {"f16", 8, 16, 128, 1, 1},
     "%sx = alloc-shared T[2, 20, 64]\n.for J = 0 to 2\ncopy-async %sx[J, 0, 0], gx[0, J * 64], [R, 64]\n.endfor\n"
     "commit-group\nwait-group 0\nsync\n" HALVES("%sx[0, 0, 0]", ""),
     product_of_half,
     "first of 8 rows"},
    {"264 columns", {"f16", 4, 264, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "more than 256 columns"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

START_TEST(others_are_left_to_mma_sync) {
    const refusal *r = &refusals[_i];
    tvm_ir_program *program = assemble(&r->at, r->body);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert_msg(!strstr(module->ptx, "wgmma"), "%s", r->name);
    ck_assert_msg(is_said(module, r->why), "%s", r->name);
    make_operands(&r->at);
    run(module, 3);
    compare(&r->at, r->name, "sm_90a", r->expected);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_wgmma_refused");
    TCase *tests = tcase_create("refused");
    tcase_add_loop_test(tests, others_are_left_to_mma_sync, 0, REFUSALS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
