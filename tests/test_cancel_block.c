/* cancel-block: the code for sm_100a on the tests' PTX machine, which cancels the last blocks of a grid where
 * the interpreter takes the next ones, in many orders of the warps: each tile is done once, whatever the
 * grid. */
#include "assembler_kit.h"
#include "compare_kit.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* All warps do a tile, and ask; or a role asks, and hands the tiles on. */
static const char text[] =
    ".vasm 7\n"
    ".kernel whole(n: i32, y: global i32[n, 64])\n"
    ".warps 2\n"
    ".grid n\n"
    "    %t = block.x\n"
    "    while %t >= 0\n"
    "        store-global y[%t, 0], load-global(y[%t, 0], spatial(1, 64)) + 1 + %t\n"
    "        %t = cancel-block\n"
    "    end\n"
    ".end\n"
    ".kernel role(n: i32, y: global i32[n, 64])\n"
    ".warps 3\n"
    ".grid n\n"
    "    %tiles = alloc-shared i32[2]\n"
    "    %full = alloc-barrier [2]\n"
    "    %empty = alloc-barrier [2], open\n"
    "    role asks warps 2 to 3\n"
    "        %t = block.x\n"
    "        %s = 0\n"
    "        while %t >= 0\n"
    "            wait-barrier %empty[%s]\n"
    "            store-shared %tiles[%s], alloc-register(i32[1], init %t)\n"
    "            arrive-barrier %full[%s]\n"
    "            %t = cancel-block\n"
    "            %s = 1 - %s\n"
    "        end\n"
    "        wait-barrier %empty[%s]\n"
    "        store-shared %tiles[%s], alloc-register(i32[1], init -1)\n"
    "        arrive-barrier %full[%s]\n"
    "    end\n"
    "    role adds warps 0 to 2\n"
    "        %s = 0\n"
    "        wait-barrier %full[0]\n"
    "        %t = load-scalar %tiles[0]\n"
    "        while %t >= 0\n"
    "            store-global y[%t, 0], load-global(y[%t, 0], spatial(1, 64)) + 1 + %t\n"
    "            arrive-barrier %empty[%s]\n"
    "            %s = 1 - %s\n"
    "            wait-barrier %full[%s]\n"
    "            %t = load-scalar %tiles[%s]\n"
    "        end\n"
    "    end\n"
    ".end\n";

enum { ROW = 64, MOST = 9, ORDERS = 8, STEPS = 100 * 1000 };

static void check_rows(const int32_t *y, uint32_t n) {
    for (uint32_t i = 0; i < n * ROW; i++) ck_assert_int_eq(y[i], (int32_t)(1 + i / ROW));
}

/* Returns how many blocks have been canceled. */
static uint32_t run_code(const tvm_module *module, const tvm_ir_program *program, const char *name,
                         uint32_t n, uint64_t order) {
    static int32_t y[MOST * ROW];
    const tvm_ir_kernel *kernel = tvm_find_kernel(program, name);
    const uint64_t values[2] = {n, (uint64_t)(uintptr_t)y};
    tvm_scalar scalars[2] = {{.i = (int64_t)n}};
    tvm_launch_env env = {.scalars = scalars, .grid = {(int32_t)n, 1, 1}};
    memset(y, 0, sizeof y);
    ptx_machine machine = ptx_load(module->ptx, name, module->kernels[kernel - program->kernels].abi.threads);
    machine.order = order;
    machine.steps_most = STEPS;
    ptx_allow(&machine, (uint8_t *)y, n * ROW * sizeof *y);
    ptx_launch(&machine, module, program, kernel, &env, values, values);
    ck_assert_msg(!machine.fault[0] && !machine.trapped, "%s", machine.fault);
    uint32_t canceled = machine.canceled;
    ptx_free(&machine);
    check_rows(y, n);
    return canceled;
}

START_TEST(each_tile_is_done_once) {
    static const char *const names[] = {"whole", "role"};
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_100a");
    const char *name = names[_i];
    for (uint32_t n = 1; n <= MOST; n += 4) {
        int32_t y[MOST * ROW] = {0};
        tvm_interp_arg args[2] = {{.scalar.i = (int64_t)n}, {.data = y}};
        const uint32_t grid[3] = {n, 1, 1};
        run_interpreter(program, name, args, grid);
        check_rows(y, n);
        for (uint64_t order = 0; order <= ORDERS; order++)
            ck_assert_uint_eq(run_code(module, program, name, n, order), n - 1);
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cancel_block");
    TCase *tests = suite_case(suite, "orders");
    tcase_add_loop_test(tests, each_tile_is_done_once, 0, 2);
    return run_suite(suite);
}
