/* The assembler: what each part of the language becomes. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "assembler_kit.h"
#include "suite_kit.h"
#include "verify.h"

/* ---- static expressions: seen as the constant that a variable is set to ---- */

static int64_t static_value_with(const char *expression, const tvm_assembler_options *options,
                                 const char *definitions) {
    char text[2048];
    snprintf(text, sizeof text, ".vasm 1\n%s\n.kernel f()\n.warps 1\n%%v = i64(%s)\n.end\n", definitions,
             expression);
    tvm_ir_program *program = assemble_with(text, options);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    ck_assert_uint_eq(kernel->expr_count, 1);
    ck_assert_uint_eq(kernel->exprs[0].op, TVM_EXPR_INTEGER);
    int64_t value = kernel->exprs[0].value.i;
    tvm_ir_program_free(program);
    return value;
}

static int64_t static_value(const char *expression) {
    return static_value_with(expression, NULL, "");
}

static const struct {
    const char *text;
    int64_t value;
} static_cases[] = {
    {"1 + 2 * 3", 7},
    {"(1 + 2) * 3", 9},
    {"10 - 4 - 3", 3},
    {"2 * 3 % 4", 2},
    {"7 / 2", 3},
    {"-7 / 2", -3},
    {"-7 % 4", -3},
    {"9223372036854775807", INT64_MAX},
    {"-9223372036854775807 - 1", INT64_MIN},
    {"0xFFFFFFFFFFFFFFFF", -1},
    {"1 << 4 | 3", 19},
    {"6 & 3 ^ 1", 3},
    {"~0 & 0xFF", 255},
    {"0b1010_0001", 161},
    {"1_000", 1000},
    {"3 > 2 ? 5 : 6", 5},
    {"3 < 2 ? 5 : 1 ? 8 : 9", 8},
    {"(3 == 3) + (2 != 2) + (1 <= 1)", 2},
    {"!0 + !5", 1},
    {"(1 && 2) + (0 || 0)", 1},
    {"cdiv(9, 4)", 3},
    {"min(4, 3, 9) + max(1, 2)", 5},
    {"gcd(12, 18)", 6},
    {"abs(-5)", 5},
    {"log2(64)", 6},
    {"len([1, 2, 3])", 3},
    {"[4, 5, 6][1]", 5},
    {"bits(u3) + bits(f16)", 19},
    {"bits(bool)", 8},
    {"pair_exponent(f6_e3m2) * 10000 + pair_exponent(f6_e2m3) * 100 + pair_exponent(u4)", 120600},
    {"exponent_bits(f6_e3m2) * 10 + mantissa_bits(f6_e3m2)", 32},
    {"bias(f16)", 15},
    {"is_float(f4_e2m1) + is_signed(i4) + is_unsigned(u4) + is_lowbit(u8) + is_lowbit(f16)", 4},
    {"(u3 == u3) * 2 + (u3 == i3)", 2},
    {"local(2, 3) == local([2, 3]) ? 1 : 0", 1},
    {"threads(spatial(4, 8)) + locals(local(2, 3))", 38},
    {"extent(local(5, 7), 1) + rank(local(1, 1, 1))", 10},
    {"i32(7.9)", 7},
    {"u32(4294967295) / 2", 2147483647},
    {"i64(5) + i32(1)", 6},
};

START_TEST(test_static_expressions) {
    ck_assert_int_eq(static_value(static_cases[_i].text), static_cases[_i].value);
}
END_TEST

START_TEST(test_constants_and_defines) {
    const char *definitions = ".const A = 3, B = A * 2\n.const T = u3";
    const char *given[] = {"A=5", "T=f6_e3m2"};
    tvm_assembler_options options = {.defines = given, .define_count = 2};
    ck_assert_int_eq(static_value_with("A * 100 + B * 10 + bits(T)", NULL, definitions), 363);
    ck_assert_int_eq(static_value_with("A * 100 + B * 10 + bits(T)", &options, definitions), 606);
}
END_TEST

START_TEST(test_last_define_wins) {
    const char *given[] = {"A=5", "A=6 + 1"};
    tvm_assembler_options options = {.defines = given, .define_count = 2};
    ck_assert_int_eq(static_value_with("A", &options, ".const A = 1"), 7);
}
END_TEST

/* ---- run-time expressions: evaluated for given parameters ---- */

enum { M = 100, N = 7 };

static tvm_scalar run_value(const char *expression, tvm_dtype *type) {
    char body[1024];
    snprintf(body, sizeof body, "%%r = %s", expression);
    tvm_ir_program *program = assemble_body(body);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_scalar slots[16] = {{.i = M},          {.i = N}, {.i = INT64_C(1) << 40},
                            {.i = 4000000000}, {.i = 1}, {.f = 1.5}};
    tvm_eval_env env = {.slots = slots, .block = {2, 3, 4}, .grid = {5, 6, 7}};
    tvm_scalar value;
    tvm_why why;
    ck_assert_int_eq(
        tvm_expr_eval(kernel, tvm_operands(kernel, insn_at(program, 0))->value, &env, &value, &why), TVM_OK);
    *type = slot_named(program, "r")->dtype;
    tvm_ir_program_free(program);
    return value;
}

static const struct {
    const char *text;
    const char *type;
    int64_t value;
} run_cases[] = {
    {"m + n * 2", "i32", 114},
    {"(m + n) * 2", "i32", 214},
    {"m - n - 1", "i32", 92},
    {"m - (n - 1)", "i32", 94},
    {"m %n", "i32", 2},
    {"m / n", "i32", 14},
    {"cdiv(m, 8)", "i32", 13},
    {"min(m, n) + max(m, n)", "i32", 107},
    {"m > n", "bool", 1},
    {"m > n && n == 8 || b", "bool", 1},
    {"!b", "bool", 0},
    {"m > n ? m : n", "i32", 100},
    {"b ? n : 3", "i32", 7},
    {"-m", "i32", -100},
    {"~n", "i32", -8},
    {"n << 2", "i32", 28},
    {"l >> 38", "i64", 4},
    {"l + m", "i64", (INT64_C(1) << 40) + 100},
    {"u + m", "i64", 4000000100},
    {"u / 2", "u32", 2000000000},
    {"m + 5000000000", "i64", 5000000100},
    {"i64(m) * 100000000", "i64", 10000000000},
    {"i32(x)", "i32", 1},
    {"x > 1", "bool", 1},
    {"b + 1", "i32", 2},
    {"block.x + block.y * 10 + block.z * 100", "i32", 432},
    {"grid.x + grid.y * 10 + grid.z * 100", "i32", 765},
    {"m & 0xF | 16", "i32", 20},
    {"m ^ n", "i32", 99},
    {"7", "i32", 7},
    {"5000000000", "i64", 5000000000},
    {"true", "bool", 1},
};

START_TEST(test_run_time_expressions) {
    tvm_dtype type;
    char name[TVM_DTYPE_NAME_MAX];
    tvm_scalar value = run_value(run_cases[_i].text, &type);
    ck_assert_str_eq(tvm_dtype_name(type, name), run_cases[_i].type);
    ck_assert_int_eq(value.i, run_cases[_i].value);
}
END_TEST

START_TEST(test_run_time_floats) {
    tvm_dtype type;
    ck_assert_double_eq(run_value("x * 2 + 0.25", &type).f, 3.25);
    ck_assert(tvm_dtype_same(type, TVM_F32));
    ck_assert_double_eq(run_value("f64(0.1)", &type).f, 0.1);
    ck_assert(tvm_dtype_same(type, TVM_F64));
    ck_assert_double_eq(run_value("f64(x) + 0.1", &type).f, 1.6);
    ck_assert_double_eq(run_value("0.1", &type).f, (double)0.1f);
}
END_TEST

/* ---- layouts ---- */

static void check_layout(const char *expression, const tvm_layout *expected) {
    char text[1024];
    snprintf(
        text, sizeof text,
        ".vasm 1\n.layout T = %s\n.kernel f(a: global f32[64, 64, 64])\n.warps threads(T) / 32\n%%r = load-global "
        "a, T\n.end\n",
        expression);
    tvm_ir_program *program = assemble(text);
    ck_assert_msg(tvm_layout_equal(&program->layouts[slot_named(program, "r")->layout], expected), "%s",
                  expression);
    tvm_ir_program_free(program);
}

/* The composition's definition, element by element. */
START_TEST(test_layout_composition) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(a: global f32[64, 64])\n.warps 1\n"
                 "%r = load-global a[1, 2], local(2, 1).spatial(8, 4).local(1, 2)\n.end\n");
    const tvm_layout *layout = &program->layouts[slot_named(program, "r")->layout];
    ck_assert_uint_eq(layout->shape[0], 16);
    ck_assert_uint_eq(layout->shape[1], 8);
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t l = 0; l < 4; l++) {
            uint32_t index[TVM_MAX_RANK];
            tvm_layout_map(layout, t, l, index);
            ck_assert_uint_eq(index[0], l / 2 * 8 + t / 4);
            ck_assert_uint_eq(index[1], t % 4 * 2 + l % 2);
        }
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_layout_functions) {
    tvm_layout a, b, expected;
    tvm_why why;
    ck_assert_int_eq(tvm_layout_spatial(2, (uint32_t[]){8, 4}, &a, &why), TVM_OK);
    check_layout("spatial(8, 4)", &a);
    ck_assert_int_eq(tvm_layout_column_spatial(2, (uint32_t[]){8, 4}, &b, &why), TVM_OK);
    check_layout("column_spatial(8, 4)", &b);
    check_layout("column-spatial(8, 4)", &b);
    ck_assert_int_eq(tvm_layout_permute(&a, (uint32_t[]){1, 0}, &expected, &why), TVM_OK);
    check_layout("permute(spatial(8, 4), [1, 0])", &expected);
    ck_assert_int_eq(tvm_layout_flatten(&a, &expected, &why), TVM_OK);
    check_layout("flatten(spatial(8, 4))", &expected);
    check_layout("reshape(spatial(8, 4), 32)", &expected);
    ck_assert_int_eq(tvm_layout_reduce(&a, 1, &expected, &why), TVM_OK);
    check_layout("reduce(spatial(8, 4), 1)", &expected);
    ck_assert_int_eq(tvm_layout_squeeze(&expected, 1, &b, &why), TVM_OK);
    check_layout("squeeze(reduce(spatial(8, 4), 1), 1)", &b);
    check_layout("reduce(unsqueeze(spatial(8, 4), 2), 2)", &(tvm_layout){.shape = {8, 4, 1},
                                                                         .mode_size = {8, 4},
                                                                         .spatial = {0, 1},
                                                                         .mode_dim = {0, 1},
                                                                         .rank = 3,
                                                                         .modes = 2,
                                                                         .spatials = 2});
    check_layout("divide(spatial(8, 4).local(2, 2), local(2, 2))", &a);
    check_layout("left_divide(local(2, 2).spatial(8, 4), local(2, 2))", &a);
    check_layout("concat(spatial(8), spatial(4))", &a);
    check_layout("layout([8, 4], [8, 4], [0, 1], [])", &a);
    ck_assert_int_eq(tvm_layout_replicated(2, 32, &expected, &why), TVM_OK);
    check_layout("replicated(32, 2)", &expected);
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.A", 14, &expected, &why), TVM_OK);
    check_layout("mma.m16n8k16.A", &expected);
    ck_assert_int_eq(tvm_layout_compose(&a, &expected, &b, &why), TVM_OK);
    check_layout("spatial(1, 1).mma.m16n8k16.A", &expected);
}
END_TEST

START_TEST(test_auto_layouts) {
    tvm_ir_program *program =
        assemble_body("%p = alloc-register f32[16, 32]\n"
                      "%q = alloc-register f16[16, 32], auto(16, 32, f16), init 1\n"
                      "%s = alloc-shared f16[16, 64]\n"
                      "%t = alloc-shared f16[16, 64], row_major\n"
                      "%u2 = alloc-shared f16[16, 64], swizzle(3, 3, 3)\n"
                      "%v = alloc-shared f16[16, 64], shared([16, 64], [16, 64], [72, 1])");
    tvm_layout layout;
    tvm_shared_layout shared;
    tvm_why why;
    const uint32_t shape[] = {16, 32}, shared_shape[] = {16, 64};
    ck_assert_int_eq(tvm_layout_auto(2, shape, 32, 32, &layout, &why), TVM_OK);
    ck_assert(tvm_layout_equal(&program->layouts[slot_named(program, "p")->layout], &layout));
    ck_assert_int_eq(tvm_layout_auto(2, shape, 32, 16, &layout, &why), TVM_OK);
    ck_assert(tvm_layout_equal(&program->layouts[slot_named(program, "q")->layout], &layout));
    ck_assert_int_eq(tvm_shared_layout_auto(2, shared_shape, 16, &shared, &why), TVM_OK);
    ck_assert(tvm_shared_layout_equal(&program->shared_layouts[slot_named(program, "s")->layout], &shared));
    const tvm_shared_layout *t = &program->shared_layouts[slot_named(program, "t")->layout];
    const tvm_shared_layout *u = &program->shared_layouts[slot_named(program, "u2")->layout];
    const tvm_shared_layout *v = &program->shared_layouts[slot_named(program, "v")->layout];
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t j = 0; j < 64; j++) {
            uint32_t at = i * 64 + j;
            ck_assert_uint_eq(tvm_shared_layout_offset(t, (uint32_t[]){i, j}), at);
            ck_assert_uint_eq(tvm_shared_layout_offset(u, (uint32_t[]){i, j}), at ^ (i % 8 << 3));
            ck_assert_uint_eq(tvm_shared_layout_offset(v, (uint32_t[]){i, j}), i * 72 + j);
        }
    tvm_ir_program_free(program);
}
END_TEST

/* ---- instructions ---- */

START_TEST(test_kernel_header) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel first()\n.warps 2\n.end\n"
                 ".kernel second(w: global u3[k, cdiv(n, 4), 8], k: i32,\n    n: i64)\n"
                 ".warps 32\n.grid cdiv(k, 4), n * 2\n.assume n % 8 == 0, k > 0\n.assume k\n.end\n");
    ck_assert_uint_eq(program->kernel_count, 2);
    const tvm_ir_kernel *kernel = tvm_find_kernel(program, "second");
    ck_assert_uint_eq(kernel->warps, 32);
    ck_assert_uint_eq(kernel->param_count, 3);
    ck_assert_uint_eq(kernel->slots[0].kind, TVM_SLOT_GLOBAL);
    ck_assert(tvm_dtype_same(kernel->slots[0].dtype, TVM_U(3)));
    ck_assert_uint_eq(kernel->slots[0].rank, 3);
    ck_assert_uint_eq(kernel->assume_count, 3);
    ck_assert_uint_eq(kernel->grid[2], TVM_NONE);
    tvm_scalar slots[3] = {{.i = 0}, {.i = 10}, {.i = 9}}, value;
    tvm_eval_env env = {.slots = slots};
    tvm_why why;
    const uint32_t exprs[] = {kernel->slots[0].shape[0], kernel->slots[0].shape[1], kernel->slots[0].shape[2],
                              kernel->grid[0],           kernel->grid[1],           kernel->assumes[0],
                              kernel->assumes[1],        kernel->assumes[2]};
    const int64_t values[] = {10, 3, 8, 3, 18, 0, 1, 1};
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_int_eq(tvm_expr_eval(kernel, exprs[i], &env, &value, &why), TVM_OK);
        ck_assert_int_eq(value.i, values[i]);
    }
    tvm_ir_program_free(program);
}
END_TEST

static int64_t constant_operand(const tvm_ir_program *program, const tvm_insn *insn, uint32_t index) {
    const tvm_operand *operand = &tvm_operands(&program->kernels[0], insn)[index];
    ck_assert_uint_eq(operand->kind, TVM_OPERAND_EXPR);
    const tvm_expr *node = &program->kernels[0].exprs[operand->value];
    ck_assert_uint_eq(node->op, TVM_EXPR_INTEGER);
    return node->value.i;
}

START_TEST(test_indices_and_tiles) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(a: global f16[64, 64, 64])\n.warps 1\n%s = alloc-shared f16[4, 16, 32]\n"
                 "copy-async %s[3], a[5, 6]\n"
                 "copy-async %s[1, 2], a, tile [8, 32]\n"
                 "copy-async %s, a[1], [2, 4, 8]\n.end\n");
    const tvm_insn *first = insn_at(program, 1), *second = insn_at(program, 2), *third = insn_at(program, 3);
    const uint32_t starts[] = {3, 0, 0, 5, 6, 0};
    const tvm_operand *operands = tvm_operands(&program->kernels[0], first);
    ck_assert_uint_eq(first->count, 1 + 3 + 1 + 3 + 3 + 1 + 1);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(constant_operand(program, first, 1 + i), starts[i]);
        ck_assert_int_eq(constant_operand(program, first, 5 + i), starts[3 + i]);
    }
    ck_assert_uint_eq(operands[8].value, 2);
    ck_assert_uint_eq(operands[9].value, 16);
    ck_assert_uint_eq(operands[10].value, 32);
    operands = tvm_operands(&program->kernels[0], second);
    ck_assert_int_eq(constant_operand(program, second, 2), 2);
    ck_assert_uint_eq(operands[8].value, 2);
    ck_assert_uint_eq(operands[9].value, 8);
    operands = tvm_operands(&program->kernels[0], third);
    ck_assert_uint_eq(operands[8].value, 3);
    ck_assert_uint_eq(operands[11].value, 8);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_warps_of_a_copy) {
    static const char *const operands[] = {
        "warps [2, 3]",
        "[4, 6], warps [2, 3]",
        "tile [4, 6], evict normal, warps [2, 3]",
        "evict first, warps [2, 3]",
    };
    for (unsigned i = 0; i < sizeof operands / sizeof *operands; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 ".vasm 1\n.kernel f(a: global f16[64, 64])\n.warps 6\n%%s = alloc-shared f16[3, 4, 6]\n"
                 "copy-async %%s[1], a[5], %s\nsync-warp\n.end\n",
                 operands[i]);
        tvm_ir_program *program = assemble(text);
        const tvm_insn *copy = insn_at(program, 1);
        const tvm_operand *list = tvm_operands(&program->kernels[0], copy) + 1 + 3 + 1 + 2;
        const uint32_t values[] = {2, 4, 6, i == 3 ? TVM_EVICT_FIRST : TVM_EVICT_NORMAL, 2, 2, 3};
        ck_assert_uint_eq(copy->count, 1 + 3 + 1 + 2 + 7);
        for (unsigned o = 0; o < 7; o++)
            if (o != 3 || i >= 2) ck_assert_uint_eq(list[o].value, values[o]);
        if (i < 2) ck_assert_uint_eq(list[3].kind, TVM_OPERAND_NONE);
        ck_assert_uint_eq(insn_at(program, 2)->op, TVM_OP_SYNC_WARP);
        tvm_ir_program_free(program);
    }
}
END_TEST

START_TEST(test_scalar_operands) {
    tvm_ir_program *program = assemble_body("%r = alloc-register f64[8, 4], spatial(8, 4), init 0.1\n"
                                            "%s = add 0.1, %r\n"
                                            "%t = alloc-register f32[8, 4], layout spatial(8, 4)\n"
                                            "%v = max (m + 1) * 2, %t\n"
                                            "%w = min(m, n)\n"
                                            "%y = compare lt, %t, 2\n"
                                            "%z = where %y, %t, 1.0\n"
                                            "%o = reduce max, %t, 1");
    const tvm_ir_kernel *kernel = &program->kernels[0];
    const tvm_operand *init = tvm_operands(kernel, insn_at(program, 0));
    ck_assert(tvm_dtype_same(kernel->exprs[init->value].type, TVM_F64));
    ck_assert_double_eq(kernel->exprs[init->value].value.f, 0.1);
    ck_assert_double_eq(kernel->exprs[tvm_operands(kernel, insn_at(program, 1))->value].value.f, 0.1);
    ck_assert_uint_eq(tvm_operands(kernel, insn_at(program, 2))->kind, TVM_OPERAND_NONE);
    ck_assert_uint_eq(insn_at(program, 3)->op, TVM_OP_MAX);
    ck_assert_uint_eq(insn_at(program, 4)->op, TVM_OP_LET);
    ck_assert_uint_eq(tvm_operands(kernel, insn_at(program, 5))->value, TVM_LT);
    ck_assert(tvm_dtype_same(slot_named(program, "y")->dtype, TVM_BOOL));
    ck_assert_uint_eq(tvm_operands(kernel, insn_at(program, 7))->value, TVM_REDUCE_MAX);
    ck_assert_uint_eq(tvm_slot_shape(program, slot_named(program, "o"))[1], 1);
    tvm_ir_program_free(program);
}
END_TEST

static void check_ops(const tvm_ir_program *program, const uint16_t *ops, uint32_t count) {
    ck_assert_uint_eq(program->kernels[0].insn_count, count);
    for (uint32_t i = 0; i < count; i++) ck_assert_uint_eq(insn_at(program, i)->op, ops[i]);
}

START_TEST(test_control) {
    tvm_ir_program *program =
        assemble_body("for %i = 0 to n step 2 unroll 4\n"
                      "  while %i < 3\n break\n end\n"
                      "  if m\n continue\n elif n == 1\n exit\n elif n == 2\n sync\n else\n sync\n end\n"
                      "end");
    const uint16_t ops[] = {TVM_OP_FOR,  TVM_OP_WHILE, TVM_OP_BREAK, TVM_OP_END,  TVM_OP_IF,  TVM_OP_CONTINUE,
                            TVM_OP_ELSE, TVM_OP_IF,    TVM_OP_EXIT,  TVM_OP_ELSE, TVM_OP_IF,  TVM_OP_SYNC,
                            TVM_OP_ELSE, TVM_OP_SYNC,  TVM_OP_END,   TVM_OP_END,  TVM_OP_END, TVM_OP_END};
    check_ops(program, ops, sizeof ops / sizeof *ops);
    const tvm_operand *operands = tvm_operands(&program->kernels[0], insn_at(program, 0));
    ck_assert_int_eq(constant_operand(program, insn_at(program, 0), 2), 2);
    ck_assert_uint_eq(operands[3].value, 4);
    ck_assert_uint_eq(insn_at(program, 0)->match, 17);
    ck_assert_uint_eq(insn_at(program, 4)->match, 6);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_loop_types) {
    tvm_ir_program *program = assemble_body(
        "for %i = 0 to l\nend\nfor %j = 0 to m step 4\nend\n%k = u32(0)\nfor %h = %k to 9\nend");
    ck_assert(tvm_dtype_same(slot_named(program, "i")->dtype, TVM_I(64)));
    ck_assert(tvm_dtype_same(slot_named(program, "j")->dtype, TVM_I(32)));
    ck_assert(tvm_dtype_same(slot_named(program, "h")->dtype, TVM_U(32)));
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_assignment_types) {
    tvm_ir_program *program = assemble_body("%i = l\n%i = 3\n%i = m\n%i = u\n%f = 1.0\n%f = 2\n%c = b");
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(
            tvm_dtype_same(kernel->exprs[tvm_operands(kernel, insn_at(program, i))->value].type, TVM_I(64)));
    ck_assert_double_eq(kernel->exprs[tvm_operands(kernel, insn_at(program, 5))->value].value.f, 2.0);
    ck_assert(tvm_dtype_same(slot_named(program, "c")->dtype, TVM_BOOL));
    tvm_ir_program_free(program);
}
END_TEST

/* ---- directives ---- */

START_TEST(test_static_if) {
    static const char *const branches =
        ".if A == 1\nwait-group 10\n.elif A == 2\nwait-group 20\n"
        ".if A == 2\nwait-group 21\n.else\nwait-group 22\n.endif\n"
        ".elif A == 2\nwait-group 23\n.else\nwait-group 30\nthis is not read\n.endif\n";
    for (int a = 1; a <= 2; a++) {
        char text[1024];
        snprintf(text, sizeof text, ".vasm 1\n.const A = %d\n.kernel f()\n.warps 1\n%s.end\n", a, branches);
        tvm_ir_program *program = assemble(text);
        ck_assert_uint_eq(program->kernels[0].insn_count, a == 1 ? 1u : 2u);
        ck_assert_uint_eq(tvm_operands(&program->kernels[0], insn_at(program, 0))->value, a == 1 ? 10u : 20u);
        if (a == 2) ck_assert_uint_eq(tvm_operands(&program->kernels[0], insn_at(program, 1))->value, 21);
        tvm_ir_program_free(program);
    }
}
END_TEST

START_TEST(test_static_for) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.for T = [u3, f16]\n.kernel copy_${T}(a: global T[64, 64])\n.warps 1\n"
                 ".for i = 0 to 2\n.for j = 5 to 0 step -2\n.const S = i * 10 + j\n"
                 "wait-group S\n%v${i}_${j + 1} = S\n.endfor\n.endfor\n"
                 ".for never = 3 to 3\nnonsense\n.endfor\n.end\n.endfor\n");
    ck_assert_uint_eq(program->kernel_count, 2);
    ck_assert_ptr_nonnull(tvm_find_kernel(program, "copy_u3"));
    const tvm_ir_kernel *kernel = tvm_find_kernel(program, "copy_f16");
    ck_assert(tvm_dtype_same(kernel->slots[0].dtype, TVM_F16));
    ck_assert_uint_eq(kernel->insn_count, 12);
    const uint32_t expected[] = {5, 3, 1, 15, 13, 11};
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(tvm_operands(kernel, &kernel->insns[2 * i])->value, expected[i]);
    ck_assert_str_eq(tvm_string(program, kernel->slots[1].name), "v0_6");
    ck_assert_str_eq(tvm_string(program, kernel->slots[6].name), "v1_2");
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_statement_ends) {
    tvm_ir_program *program = assemble(".vasm 1 ; comment\n\n.const A = 1, // more\n  B = 2 # and more\n"
                                       ".kernel f(m: i32,\r\n  n: i32 ; between\n)\n.warps \\\n 4\n"
                                       "%x = (m +\n  n)\nwait-group A +\\\nB\n.end");
    ck_assert_uint_eq(program->kernels[0].warps, 4);
    ck_assert_uint_eq(tvm_operands(&program->kernels[0], insn_at(program, 1))->value, 3);
    ck_assert_uint_eq(insn_at(program, 1)->line, 12);
    tvm_ir_program_free(program);
}
END_TEST

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_include) {
    char folder[] = "/tmp/tvm-include-XXXXXX", beside[64], elsewhere[64], main_name[64], missing[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(beside, sizeof beside, "%s/beside.inc", folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/d.inc", folder);
    snprintf(main_name, sizeof main_name, "%s/main.vasm", folder);
    write_file(beside, ".vasm 1\n.const A = 4\n");
    write_file(elsewhere, ".kernel g()\n.warps A\nsync\n.end\n.include \"x\"");
    const char *text = ".vasm 1\n.include \"beside.inc\"\n.kernel f()\n.warps A\n.end\n";
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_assemble_text(text, strlen(text), main_name, NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(program->kernels[0].warps, 4);
    tvm_ir_program_free(program);
    const char *folders[] = {"/nonexistent", folder};
    tvm_assembler_options options = {.include_dirs = folders, .include_dir_count = 2};
    text = ".vasm 1\n.const A = 2\n.include \"d.inc\"\n";
    ck_assert_int_ne(
        tvm_assemble_text(text, strlen(text), "/elsewhere/main.vasm", &options, &program, &diags), TVM_OK);
    ck_assert_ptr_null(program);
    ck_assert_uint_eq(diags.count, 1);
    snprintf(missing, sizeof missing, "%s/d.inc", folder);
    ck_assert_str_eq(diags.items[0].file, missing);
    ck_assert_uint_eq(diags.items[0].line, 5);
    ck_assert_uint_eq(diags.items[0].column, 10);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "cannot find 'x'"));
    ck_assert_ptr_nonnull(strstr(diags.items[0].hint, "included from /elsewhere/main.vasm:3"));
    tvm_diags_free(&diags);
    unlink(beside);
    unlink(elsewhere);
    rmdir(folder);
}
END_TEST

START_TEST(test_include_of_itself_ends) {
    char name[] = "/tmp/tvm-self-XXXXXX";
    char text[128];
    int descriptor = mkstemp(name);
    ck_assert_int_ge(descriptor, 0);
    close(descriptor);
    snprintf(text, sizeof text, ".vasm 1\n.include \"%s\"\n", name);
    write_file(name, text);
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), name, NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "nested deeper than 32"));
    tvm_diags_free(&diags);
    unlink(name);
}
END_TEST

/* ---- pictures ---- */

static tvm_status print_layout(const char *expression, char **picture, tvm_diags *diags) {
    return tvm_print_layout(&(tvm_picture_request){.expression = expression}, picture, diags);
}

START_TEST(test_print_layout) {
    char *picture;
    tvm_diags diags = {0};
    ck_assert_int_eq(print_layout("spatial(2, 2).local(1, 2)", &picture, &diags), TVM_OK);
    ck_assert_ptr_nonnull(strstr(picture, "3: 1"));
    free(picture);
    ck_assert_int_ne(print_layout("spatial(2", &picture, &diags), TVM_OK);
    ck_assert_ptr_null(picture);
    ck_assert_int_ne(print_layout("u3", &picture, &diags), TVM_OK);
    ck_assert_int_ne(print_layout("%x", &picture, &diags), TVM_OK);
    ck_assert_int_ne(print_layout("block.x", &picture, &diags), TVM_OK);
    ck_assert_int_ne(print_layout("auto(2, 2)", &picture, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 5);
    tvm_diags_free(&diags);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *make_suite(void) {
    Suite *suite = suite_create("assembler");
    TCase *expressions = tcase_create("expressions");
    tcase_add_loop_test(expressions, test_static_expressions, 0, COUNT(static_cases));
    tcase_add_test(expressions, test_constants_and_defines);
    tcase_add_test(expressions, test_last_define_wins);
    tcase_add_loop_test(expressions, test_run_time_expressions, 0, COUNT(run_cases));
    tcase_add_test(expressions, test_run_time_floats);
    tcase_add_test(expressions, test_layout_composition);
    tcase_add_test(expressions, test_layout_functions);
    tcase_add_test(expressions, test_auto_layouts);
    suite_add_tcase(suite, expressions);
    TCase *statements = tcase_create("statements");
    tcase_add_test(statements, test_kernel_header);
    tcase_add_test(statements, test_indices_and_tiles);
    tcase_add_test(statements, test_warps_of_a_copy);
    tcase_add_test(statements, test_scalar_operands);
    tcase_add_test(statements, test_control);
    tcase_add_test(statements, test_loop_types);
    tcase_add_test(statements, test_assignment_types);
    tcase_add_test(statements, test_static_if);
    tcase_add_test(statements, test_static_for);
    tcase_add_test(statements, test_statement_ends);
    tcase_add_test(statements, test_include);
    tcase_add_test(statements, test_include_of_itself_ends);
    tcase_add_test(statements, test_print_layout);
    suite_add_tcase(suite, statements);
    return suite;
}

int main(void) {
    return run_suite(make_suite());
}
