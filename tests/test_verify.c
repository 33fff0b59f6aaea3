/* What the verifier asks of a whole program: values on every path, structure, limits; and how it reports. */
#include "suite_kit.h"
#include "verify_case.h"

/* ---- values on every path ---- */

BUILD(undefined_tensor) {
    INSN(&t->k, ADD, t->rd, S(t->rc), S(t->rc));
}
BUILD(undefined_scalar) {
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
}
static void both_branches(fixture *t, bool otherwise) {
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN(&t->k, LET, t->j, X(t->one));
    INSN0(&t->k, ELSE, TVM_NONE);
    if (otherwise) INSN(&t->k, LET, t->j, X(t->zero));
    INSN0(&t->k, END, TVM_NONE);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
}
BUILD(defined_in_both) {
    both_branches(t, true);
}
BUILD(defined_in_one) {
    both_branches(t, false);
}
BUILD(defined_or_left) {
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN(&t->k, LET, t->j, X(t->one));
    INSN0(&t->k, ELSE, TVM_NONE);
    INSN0(&t->k, EXIT, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
}
BUILD(defined_in_a_loop) {
    INSN(&t->k, WHILE, TVM_NONE, X(t->yes));
    INSN(&t->k, LET, t->j, X(t->one));
    INSN0(&t->k, END, TVM_NONE);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
}
BUILD(defined_before_break) {
    INSN(&t->k, WHILE, TVM_NONE, X(t->yes));
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN0(&t->k, BREAK, TVM_NONE);
    INSN0(&t->k, ELSE, TVM_NONE);
    INSN(&t->k, LET, t->j, X(t->one));
    INSN0(&t->k, END, TVM_NONE);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(loop_variable_after) {
    INSN(&t->k, LET, t->j, X(t->one));
    loop(t, t->one, 1);
    INSN0(&t->k, END, TVM_NONE);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
}
/* In the second turn of the outer loop the inner one has taken the variable. */
BUILD(loop_variable_of_last_turn) {
    INSN(&t->k, LET, t->j, X(t->one));
    INSN(&t->k, WHILE, TVM_NONE, X(t->yes));
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
    loop(t, t->one, 1);
    INSN0(&t->k, END, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(loop_variable_assigned) {
    loop(t, t->one, 1);
    INSN(&t->k, LET, t->j, X(t->one));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(loop_variable_nested) {
    loop(t, t->one, 1);
    loop(t, t->one, 1);
    INSN0(&t->k, END, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
}

/* ---- structure ---- */

BUILD(kernel_name) {
    t->k.kernel->name = kit_string(&t->k, "mat mul");
}
BUILD(kernel_name_missing) {
    t->k.kernel->name = TVM_NONE;
}
BUILD(kernel_names) {
    tvm_ir_program_add_kernel(t->k.program, kit_string(&t->k, "matmul"));
}
BUILD(slot_name) {
    kit_scalar(&t->k, "9lives", TVM_I(32));
}
BUILD(slot_names) {
    kit_scalar(&t->k, "i", TVM_I(32));
}
BUILD(parameter_names) {
    t->k.kernel->slots[1].name = t->k.kernel->slots[0].name;
}
BUILD(variable_named_as_a_parameter) {
    kit_scalar(&t->k, tvm_string(t->k.program, t->k.kernel->slots[0].name), TVM_I(32));
}
BUILD(slot_name_long) {
    char name[TVM_MAX_NAME + 2];
    memset(name, 'x', sizeof name);
    name[TVM_MAX_NAME + 1] = '\0';
    kit_scalar(&t->k, name, TVM_I(32));
}
BUILD(param_is_word) {
    t->k.kernel->slots[t->m].name = kit_string(&t->k, "u3");
}
BUILD(local_is_word) {
    kit_scalar(&t->k, "u3", TVM_I(32));
}
BUILD(string_control) {
    kit_string(&t->k, "a\nb");
}
BUILD(string_utf8) {
    kit_string(&t->k, "\xc3\x28");
}
BUILD(string_right) {
    kit_string(&t->k, "gr\xc3\xb6\xc3\x9f"
                      "e \xe2\x82\xac.vasm");
}
BUILD(no_warps) {
    t->k.kernel->warps = 0;
}
BUILD(many_warps) {
    t->k.kernel->warps = 33;
}
BUILD(layout_threads) {
    t->k.kernel->warps = 2;
}
BUILD(slot_type) {
    t->k.kernel->slots[t->rc].dtype = TVM_U(13);
}
BUILD(scalar_type) {
    t->k.kernel->slots[t->i].dtype = TVM_F16;
}
BUILD(slot_kind) {
    t->k.kernel->slots[t->rc].kind = 77;
}
BUILD(local_global) {
    kit_global(&t->k, "g", TVM_F16, t->one, t->one);
}
BUILD(slot_layout) {
    t->k.kernel->slots[t->rc].layout = 99;
}
BUILD(global_rank) {
    t->k.kernel->slots[t->a].rank = 9;
}
BUILD(global_shape) {
    t->k.kernel->slots[t->a].shape[1] = t->k.kernel->expr_count;
}
BUILD(global_shape_type) {
    t->k.kernel->slots[t->a].shape[1] = kit_float(&t->k, 1);
}
BUILD(global_shape_unsigned) {
    const tvm_expr five = {.op = TVM_EXPR_INTEGER, .type = TVM_U(32), .value.i = 5};
    t->k.kernel->slots[t->a].shape[1] = tvm_ir_kernel_expr(t->k.kernel, &five);
}
BUILD(operator_of_constants) {
    t->k.kernel->grid[1] = kit_binary(&t->k, TVM_EXPR_ADD, TVM_I(32), kit_int(&t->k, 2147483647), t->one);
}
BUILD(grid_of_local) {
    t->k.kernel->grid[1] = kit_slot_expr(&t->k, t->i);
}
BUILD(grid_of_block) {
    t->k.kernel->grid[1] = kit_block(&t->k, 0);
}
BUILD(assume_integer) {
    tvm_ir_kernel_add_assume(t->k.kernel, t->one);
}
BUILD(assume_right) {
    tvm_ir_kernel_add_assume(t->k.kernel, t->yes);
}
BUILD(layout_invalid) {
    t->k.program->layouts[0].rank = 200;
}
BUILD(layout_not_canonical) {
    t->k.program->layouts[0].shape[0]++;
}
BUILD(shared_layout_invalid) {
    t->k.program->shared_layouts[0].swizzle_bits = 9;
}
BUILD(expr_forward) {
    t->k.kernel->exprs[t->yes].b = t->yes;
}
BUILD(expr_operator) {
    t->k.kernel->exprs[t->yes].op = 250;
}
BUILD(expr_slot) {
    uint32_t expr = kit_slot_expr(&t->k, t->i);
    t->k.kernel->exprs[expr].a = t->rc;
}
BUILD(expr_too_large) {
    uint32_t expr = t->one;
    for (unsigned level = 0; level < 9; level++)
        expr = kit_binary(&t->k, TVM_EXPR_ADD, TVM_I(32), expr, expr);
    uint32_t last = kit_binary(&t->k, TVM_EXPR_ADD, TVM_I(32), t->one, t->zero);
    t->k.kernel->exprs[last].a = t->k.kernel->exprs[last].b = expr; /* 2047 nodes */
}
BUILD(insn_file) {
    uint32_t insn = INSN0(&t->k, SYNC, TVM_NONE);
    t->k.kernel->insns[insn].file = 5000;
}

static const verify_case flow_cases[] = {
    WRONG_RAW(undefined_tensor, "add: ", "'rc' may be used before it is assigned"),
    WRONG(undefined_scalar, "'j' may be used before it is assigned"),
    RIGHT(defined_in_both),
    WRONG(defined_in_one, "'j' may be used"),
    RIGHT(defined_or_left),
    WRONG(defined_in_a_loop, "'j' may be used"),
    RIGHT(defined_before_break),
    WRONG(loop_variable_after, "'j' may be used"),
    WRONG(loop_variable_of_last_turn, "'j' may be used"),
    WRONG(loop_variable_assigned, "'j' is the variable of a loop"),
    WRONG(loop_variable_nested, "'j' is the variable of a loop"),
};

static const verify_case structure_cases[] = {
    WRONG(kernel_name, "a kernel", "'mat mul'", "not an identifier"),
    WRONG(kernel_name_missing, "a kernel", "not an identifier"),
    WRONG(kernel_names, "two kernels are named 'matmul'"),
    WRONG(slot_name, "'9lives'", "not an identifier"),
    WRONG(slot_names, "two variables are named 'i'"),
    WRONG(parameter_names, "two parameters are named"),
    RIGHT(variable_named_as_a_parameter),
    WRONG(slot_name_long, "not an identifier", "255"),
    WRONG(param_is_word, "cannot be named 'u3'"),
    RIGHT(local_is_word),
    WRONG(string_control, "control characters"),
    WRONG(string_utf8, "UTF-8"),
    RIGHT(string_right),
    WRONG(no_warps, "0 warps"),
    WRONG(many_warps, "33 warps, expected 1 to 32"),
    WRONG(layout_threads, "'ra' is for 32 threads, the kernel has 64"),
    WRONG(slot_type, "'rc' has a type that does not exist"),
    WRONG(scalar_type, "scalar 'i' has type f16"),
    WRONG(slot_kind, "'rc'", "a variable is a scalar"),
    WRONG(local_global, "global tensor 'g' is never allocated"),
    WRONG(slot_layout, "'rc' has layout 99"),
    WRONG(global_rank, "'a' has rank 9"),
    WRONG(global_shape, "dimension 1 of 'a'", "does not exist"),
    WRONG(global_shape_type, "dimension 1 of 'a' has type f32"),
    WRONG(global_shape_unsigned, "dimension 1 of 'a' has type u32, expected i32 or i64"),
    WRONG(operator_of_constants, "an operator of constants alone"),
    WRONG(grid_of_local, "grid", "scalar parameters"),
    WRONG(grid_of_block, "grid", "scalar parameters"),
    WRONG(assume_integer, "assume has type i32, expected bool"),
    RIGHT(assume_right),
    WRONG(layout_invalid, "layout 0"),
    WRONG(layout_not_canonical, "layout 0"),
    WRONG(shared_layout_invalid, "shared layout 0"),
    WRONG(expr_forward, "does not come after its operands"),
    WRONG(expr_operator, "not an operator"),
    WRONG(expr_slot, "tensor cannot stand in a scalar expression"),
    WRONG(expr_too_large, "more than 1024"),
    WRONG(insn_file, "string 5000, its file"),
};

CASE_TEST(flow)
CASE_TEST(structure)

/* ---- what the verifier reports, and fills ---- */

START_TEST(test_place_of_an_error) {
    fixture t;
    tvm_diags diags = {0};
    start(&t);
    define_all(&t);
    uint32_t insn = INSN(&t.k, LET, t.wide, X(t.zero));
    t.k.kernel->insns[insn].file = kit_string(&t.k, "matmul.vasm");
    t.k.kernel->insns[insn].line = 42;
    ck_assert_int_eq(tvm_verify(t.k.program, &diags), TVM_INVALID);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_str_eq(diags.items[0].file, "matmul.vasm");
    ck_assert_uint_eq(diags.items[0].line, 42);
    ck_assert_str_eq(diags.items[0].message,
                     "matmul: let: the result has type i32, expected i64 as declared");
    tvm_diags_free(&diags);
    kit_end(&t.k);
}
END_TEST

START_TEST(test_all_errors_up_to_twenty) {
    for (unsigned errors = 3; errors < 40; errors += 30) {
        fixture t;
        tvm_diags diags = {0};
        start(&t);
        for (unsigned i = 0; i < errors; i++) INSN(&t.k, LET, t.wide, X(t.zero));
        ck_assert_int_eq(tvm_verify(t.k.program, &diags), TVM_INVALID);
        ck_assert_uint_eq(diags.count, errors < 20 ? errors : 20);
        tvm_diags_free(&diags);
        kit_end(&t.k);
    }
}
END_TEST

/* Then it has no array of them. */
START_TEST(test_no_operand_in_the_kernel) {
    kit t;
    tvm_diags diags = {0};
    kit_start(&t, "k");
    INSN0(&t, IF, TVM_NONE);
    INSN0(&t, END, TVM_NONE);
    ck_assert_ptr_null(t.kernel->operands);
    ck_assert_int_eq(tvm_verify(t.program, &diags), TVM_INVALID);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "if: condition is missing"));
    tvm_diags_free(&diags);
    kit_end(&t);
}
END_TEST

START_TEST(test_match) {
    fixture t;
    tvm_diags diags = {0};
    start(&t);
    uint32_t for_ = INSN(&t.k, FOR, t.j, X(t.zero), X(t.one), X(t.one), K(1));
    uint32_t if_ = INSN(&t.k, IF, TVM_NONE, X(t.yes));
    uint32_t break_ = INSN0(&t.k, BREAK, TVM_NONE);
    uint32_t else_ = INSN0(&t.k, ELSE, TVM_NONE);
    uint32_t continue_ = INSN0(&t.k, CONTINUE, TVM_NONE);
    uint32_t end_if = INSN0(&t.k, END, TVM_NONE);
    uint32_t sync = INSN0(&t.k, SYNC, TVM_NONE);
    uint32_t end_for = INSN0(&t.k, END, TVM_NONE);
    ck_assert_int_eq(tvm_verify(t.k.program, &diags), TVM_OK);
    const tvm_insn *insns = t.k.kernel->insns;
    ck_assert_uint_eq(insns[for_].match, end_for);
    ck_assert_uint_eq(insns[if_].match, else_);
    ck_assert_uint_eq(insns[break_].match, for_);
    ck_assert_uint_eq(insns[else_].match, end_if);
    ck_assert_uint_eq(insns[continue_].match, for_);
    ck_assert_uint_eq(insns[end_if].match, if_);
    ck_assert_uint_eq(insns[sync].match, TVM_NONE);
    ck_assert_uint_eq(insns[end_for].match, for_);
    kit_end(&t.k);
}
END_TEST

/* The assembler asks before there is a variable. */
START_TEST(test_inferred_types) {
    fixture t;
    start(&t);
    const tvm_operand operands[] = {K(TVM_SUM), S(t.rc), K(0)};
    tvm_insn insn = {.op = TVM_OP_REDUCE, .result = TVM_NONE, .count = 3};
    tvm_result_type type = {0};
    tvm_why why = {""};
    ck_assert_int_eq(
        tvm_infer(t.k.program, t.k.kernel, tvm_block_team(t.k.kernel), &insn, operands, &type, &why), TVM_OK);
    ck_assert_int_eq(type.kind, TVM_SLOT_REGISTER);
    ck_assert(tvm_dtype_same(type.dtype, TVM_F32));
    ck_assert(type.has_layout && tvm_layout_equal(&type.layout, &t.row));
    const tvm_operand both[] = {S(t.row_sum), S(t.rc)};
    insn = (tvm_insn){.op = TVM_OP_ADD, .result = TVM_NONE, .count = 2};
    type = (tvm_result_type){0};
    ck_assert_int_eq(tvm_infer(t.k.program, t.k.kernel, tvm_block_team(t.k.kernel), &insn, both, &type, &why),
                     TVM_OK);
    ck_assert(tvm_layout_equal(&type.layout, &t.k.c));
    const tvm_operand value[] = {X(t.yes)};
    insn = (tvm_insn){.op = TVM_OP_LET, .result = TVM_NONE, .count = 1};
    type = (tvm_result_type){0};
    ck_assert_int_eq(
        tvm_infer(t.k.program, t.k.kernel, tvm_block_team(t.k.kernel), &insn, value, &type, &why), TVM_OK);
    ck_assert_int_eq(type.kind, TVM_SLOT_SCALAR);
    ck_assert(tvm_dtype_same(type.dtype, TVM_BOOL));
    kit_end(&t.k);
}
END_TEST

/* Large shared layouts cost a step an element: many of them are refused instead of checked for minutes. */
START_TEST(test_work_is_bounded) {
    kit t;
    tvm_diags diags = {0};
    kit_start(&t, "k");
    for (uint32_t i = 0; i < 1000; i++) {
        tvm_shared_layout layout;
        memset(&layout, 0, sizeof layout);
        ck_assert_int_eq(tvm_shared_layout_row_major(2, (const uint32_t[]){256, 3000 + i}, &layout, NULL),
                         TVM_OK);
        tvm_ir_program_shared_layout(t.program, &layout);
    }
    ck_assert_int_eq(tvm_verify(t.program, &diags), TVM_INVALID);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "too large to verify"));
    tvm_diags_free(&diags);
    kit_end(&t);
}
END_TEST

/* Instructions that repeat cost little: the largest kernel is not too large. */
START_TEST(test_large_kernels_are_fine) {
    fixture t;
    tvm_diags diags = {0};
    start(&t);
    define_all(&t);
    while (t.k.kernel->insn_count < TVM_MAX_INSNS) INSN(&t.k, MMA, t.rc, S(t.ra), S(t.rb), S(t.rc));
    ck_assert_int_eq(tvm_verify(t.k.program, &diags), TVM_OK);
    kit_end(&t.k);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("verify");
    TCase *rules = tcase_create("rules");
    ADD_CASES(rules, flow);
    ADD_CASES(rules, structure);
    suite_add_tcase(suite, rules);
    TCase *whole = tcase_create("whole programs");
    tcase_add_test(whole, test_place_of_an_error);
    tcase_add_test(whole, test_all_errors_up_to_twenty);
    tcase_add_test(whole, test_match);
    tcase_add_test(whole, test_no_operand_in_the_kernel);
    tcase_add_test(whole, test_inferred_types);
    tcase_add_test(whole, test_work_is_bounded);
    tcase_add_test(whole, test_large_kernels_are_fine);
    suite_add_tcase(suite, whole);
    return run_suite(suite);
}
