/* The plan of a kernel's launch checks against tvm_launch_check, which evaluates the expressions one by one:
 * over many arguments, what the plan passes is right with the same grid, and what is right the plan passes,
 * but for divisions by zero that are not evaluated. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "launch.h"
#include "launch_plan.h"
#include "suite_kit.h"

enum { MULTIPROCESSORS = 132, TARGET = 90 };

static tvm_ir_program *program;
static tvm_launch_plan *plan;

static void load(const char *text) {
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(text, strlen(text), "plan.vasm", NULL, &program, &diags);
    if (status) tvm_diags_print(&diags, stderr, "test_launch_plan", false);
    ck_assert_int_eq(status, TVM_OK);
    ck_assert_int_eq(tvm_launch_plan_make(&program->kernels[0], &plan, &diags), TVM_OK);
}

static void unload(void) {
    free(plan);
    tvm_ir_program_free(program);
    plan = NULL;
    program = NULL;
}

typedef struct tally {
    unsigned right, wrong, asked; /* asked: right, but not told by the plan */
} tally;

static void try_shapes(const tvm_launch_env *env, const tvm_launch_values *values) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t p = 0; p < kernel->slot_count; p++) {
        int64_t shape[TVM_MAX_RANK] = {0}, expected[TVM_MAX_RANK] = {0};
        uint64_t bytes, right;
        if (kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        ck_assert_int_eq(tvm_launch_shape(program, kernel, p, env, expected, &right, NULL), TVM_OK);
        tvm_launch_plan_shape(plan, values, p, shape, &bytes);
        ck_assert_mem_eq(shape, expected, sizeof shape);
        ck_assert_uint_eq(bytes, right);
    }
}

/* Of the scalars, also the shapes of the tensors that the launch makes. */
static bool check(tvm_launch_env *env) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_launch_tensor made[TVM_MAX_LAUNCH_TENSORS];
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes, count = tvm_launch_tensors(kernel, made);
    if (tvm_launch_check(program, kernel, env, NULL)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (tvm_launch_shape(program, kernel, made[i].slot, env, shape, &bytes, NULL)) return false;
    return true;
}

static void try(const tvm_scalar *scalars, tally *t) {
    tvm_launch_env env = {.scalars = scalars,
                          .multiprocessors = MULTIPROCESSORS,
                          .target = TARGET,
                          .traits = tvm_target_traits_for(TARGET),
                          .grid = {7, 7, 7}};
    tvm_launch_env expected = {.scalars = scalars,
                               .multiprocessors = MULTIPROCESSORS,
                               .target = TARGET,
                               .traits = tvm_target_traits_for(TARGET)};
    tvm_launch_values values;
    bool passed = tvm_launch_plan_run(plan, &env, &values);
    ck_assert(passed == values.known);
    bool right = check(&expected);
    if (passed) {
        ck_assert_msg(right, "passes %lld %lld", (long long)scalars[0].i, (long long)scalars[1].i);
        ck_assert_mem_eq(env.grid, expected.grid, sizeof env.grid);
        try_shapes(&expected, &values);
    }
    t->right += right;
    t->wrong += !right;
    t->asked += right && !passed;
}

/* Every pair of numbers where something turns. */
static tally try_pairs(int64_t low, int64_t high, bool is_signed) {
    static const int64_t numbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      7,
                                      8,
                                      9,
                                      12,
                                      31,
                                      32,
                                      33,
                                      64,
                                      100,
                                      127,
                                      128,
                                      255,
                                      1000,
                                      65535,
                                      65536,
                                      999999,
                                      2147483640,
                                      2147483647,
                                      4294967295,
                                      4294967296,
                                      1099511627776,
                                      1099511627777,
                                      INT64_MAX};
    enum { COUNT = sizeof numbers / sizeof *numbers };
    tally t = {0};
    for (int a = 0; a < 2 * COUNT; a++)
        for (int b = 0; b < 2 * COUNT; b++) {
            tvm_scalar scalars[TVM_MAX_PARAMS] = {{0}};
            scalars[0].i = a < COUNT ? numbers[a] : -numbers[a - COUNT];
            scalars[1].i = b < COUNT ? numbers[b] : -numbers[b - COUNT];
            bool fits = true;
            for (int i = 0; i < 2; i++)
                fits = fits && (high == INT64_MAX || (scalars[i].i >= low && scalars[i].i <= high)) &&
                       (is_signed || scalars[i].i >= 0);
            if (fits) try(scalars, &t);
        }
    ck_assert_ptr_nonnull(plan);
    ck_assert_uint_gt(t.right, 0);
    ck_assert_uint_gt(t.wrong, 0);
    return t;
}

static void kernel_of(const char *type, const char *grid, const char *assumes, const char *shape, tally *t) {
    char text[1024];
    bool wide = strstr(type, "64") != NULL, is_signed = type[0] == 'i';
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel k(a: %s, b: %s, x: global f16[%s])\n.warps 1\n.grid %s\n.assume %s\n    "
             "sync\n.end\n",
             type, type, shape, grid, assumes);
    load(text);
    *t = wide        ? try_pairs(INT64_MIN, INT64_MAX, is_signed)
         : is_signed ? try_pairs(INT32_MIN, INT32_MAX, true)
                     : try_pairs(0, UINT32_MAX, false);
    unload();
}

static const char *const types[] = {"i32", "u32", "i64", "u64"};

START_TEST(agrees_on_arithmetic) {
    tally t;
    kernel_of(types[_i], "cdiv(a, 8), b", "a % 4 == 0, b > 0", "a, b * 2", &t);
    ck_assert_uint_eq(t.asked, 0);
    kernel_of(types[_i], "(a + b) * 3 - b, min(a, b), max(a, b)", "a != b || a <= 8", "a - b, b / 3", &t);
    ck_assert_uint_eq(t.asked, 0);
    kernel_of(types[_i], "a << 2, b >> 1", "(a & b) < 64, (a ^ b) >= 0, (a | 1) > 0", "~(~a), a >> 3", &t);
    ck_assert_uint_eq(t.asked, 0);
    kernel_of(types[_i], "a > 9 && b < 1000 ? a : b + 1, b", "!(a == 100)", "(b >> (a & 3)) << 1", &t);
    ck_assert_uint_eq(t.asked, 0);
    kernel_of(types[_i], "i32(a), u32(b)", "i64(a) + i64(b) >= 0, u64(a) < 1 << 20", "i32(a) + i32(b)", &t);
    ck_assert_uint_eq(t.asked, 0);
}
END_TEST

/* A division that a guard keeps from zero is evaluated by the plan, which then leaves the launch to the
 * other. */
START_TEST(agrees_on_division_by_zero) {
    tally t;
    kernel_of(types[_i], "cdiv(a, b)", "a % b == 0", "a / b", &t);
    ck_assert_uint_eq(t.asked, 0);
    kernel_of(types[_i], "4", "b == 0 || a % b < 5", "b != 0 ? a / b : 3", &t);
    ck_assert_uint_gt(t.asked, 0);
    ck_assert_uint_lt(t.asked, t.right);
}
END_TEST

START_TEST(agrees_on_rows_of_bits) {
    tally t = {0};
    load(".vasm 1\n.kernel k(a: i32, b: i32, x: global u3[a, b], y: global u4[b])\n.warps 1\n.grid a\n"
         "    sync\n.end\n");
    for (int64_t a = -1; a < 3; a++)
        for (int64_t b = -2; b < 20; b++) {
            tvm_scalar scalars[TVM_MAX_PARAMS] = {{.i = a}, {.i = b}};
            try(scalars, &t);
        }
    ck_assert_uint_eq(t.right, 3 * 3); /* b = 0, 8, 16 */
    ck_assert_uint_eq(t.asked, 0);
    unload();
}
END_TEST

START_TEST(agrees_on_bool_parameters) {
    tally t = {0};
    load(".vasm 1\n.kernel k(a: bool, b: bool)\n.warps 1\n.grid a ? 3 : 0, i32(b) + 1\n"
         ".assume !a || b, a == b || b\n    sync\n.end\n");
    for (int64_t a = 0; a < 4; a++) {
        tvm_scalar scalars[TVM_MAX_PARAMS] = {{.i = a & 1}, {.i = a >> 1}};
        try(scalars, &t);
    }
    ck_assert_uint_eq(t.right, 3);
    ck_assert_uint_eq(t.asked, 0);
    unload();
}
END_TEST

/* Leaves of the device, and tensors of the launch, whose extents read the grid. */
START_TEST(agrees_on_what_the_device_gives) {
    tally t = {0};
    load(".vasm 1\n.kernel k(a: i32, b: i32, x: global f16[a])\n.warps 1\n"
         ".grid min(a, 2 * multiprocessors), b\n.assume a % multiprocessors < 100\n"
         ".assume a != target, a + b < 7 * target\n"
         "    %s = alloc-global f32[grid.x * grid.y, b + multiprocessors]\n"
         "    %t = alloc-global u3[grid.x - 2, target - 82]\n"
         "    sync\n.end\n");
    ck_assert_ptr_nonnull(plan);
    for (int64_t a = -2; a < 700; a++)
        for (int64_t b = -140; b < 20; b += 20) {
            tvm_scalar scalars[TVM_MAX_PARAMS] = {{.i = a}, {.i = b}};
            try(scalars, &t);
        }
    ck_assert_uint_gt(t.right, 0);
    ck_assert_uint_gt(t.wrong, 0);
    ck_assert_uint_eq(t.asked, 0);
    unload();
}
END_TEST

START_TEST(floats_have_no_plan) {
    tvm_scalar scalars[TVM_MAX_PARAMS] = {{.f = 2}};
    tvm_launch_env env = {.scalars = scalars};
    load(".vasm 1\n.kernel k(a: f32)\n.warps 1\n.grid 1\n.assume a > 1.5\n    sync\n.end\n");
    ck_assert_ptr_null(plan);
    tvm_launch_values values;
    ck_assert(!tvm_launch_plan_run(plan, &env, &values));
    unload();
}
END_TEST

/* More nodes than a plan has room for. */
START_TEST(very_long_expressions_have_no_plan) {
    char text[8192] = ".vasm 1\n.kernel k(a: i32)\n.warps 1\n.grid a";
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " + a %% %d", i + 1000);
    strcat(text, "\n    sync\n.end\n");
    load(text);
    ck_assert_ptr_null(plan);
    unload();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("launch plan");
    TCase *cases = tcase_create("launch plan");
    tcase_add_loop_test(cases, agrees_on_arithmetic, 0, 4);
    tcase_add_loop_test(cases, agrees_on_division_by_zero, 0, 4);
    tcase_add_test(cases, agrees_on_rows_of_bits);
    tcase_add_test(cases, agrees_on_bool_parameters);
    tcase_add_test(cases, agrees_on_what_the_device_gives);
    tcase_add_test(cases, floats_have_no_plan);
    tcase_add_test(cases, very_long_expressions_have_no_plan);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
