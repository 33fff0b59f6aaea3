/* The rules of instructions that compute: conversions, mma, element-wise operations, reductions. */
#include "suite_kit.h"
#include "verify_case.h"

/* ---- conversions ---- */

BUILD(view) {
    INSN(&t->k, VIEW, kit_register(&t->k, "v", TVM_U(16), &t->k.a), S(t->ra));
}
BUILD(view_bool) {
    INSN(&t->k, VIEW, kit_register(&t->k, "v", TVM_U(8), &t->k.c), S(t->mask));
}
BUILD(view_bits) {
    INSN(&t->k, VIEW, kit_register(&t->k, "v", TVM_U(8), &t->k.a), S(t->ra));
}
static void cast(fixture *t, tvm_opcode op, tvm_dtype to, uint32_t from) {
    const tvm_slot *slot = &t->k.kernel->slots[from];
    tvm_layout layout = t->k.program->layouts[slot->layout];
    const tvm_operand operand = S(from);
    kit_insn(&t->k, op, kit_register(&t->k, "converted", to, &layout), &operand, 1);
}
BUILD(cast_right) {
    cast(t, TVM_OP_CAST, TVM_U(8), t->rc);
}
BUILD(cast_bool) {
    cast(t, TVM_OP_CAST, TVM_BOOL, t->rc);
}
BUILD(cast_of_lowbit) {
    cast(t, TVM_OP_CAST, TVM_F16, t->codes);
}
BUILD(lowbit_right) {
    cast(t, TVM_OP_CAST_LOWBIT, TVM_F16, t->codes);
}
BUILD(lowbit_both) {
    cast(t, TVM_OP_CAST_LOWBIT, TVM_FLOAT(6, 3, 2), t->codes);
}
BUILD(lowbit_neither) {
    cast(t, TVM_OP_CAST_LOWBIT, TVM_BF16, t->ra);
}
BUILD(lowbit_double) {
    cast(t, TVM_OP_CAST_LOWBIT, TVM_F64, t->codes);
}
BUILD(cast_layout) {
    INSN(&t->k, CAST, kit_register(&t->k, "v", TVM_F32, &t->k.a), S(t->rb));
}

/* ---- compute ---- */

static void mma(fixture *t, uint32_t a, uint32_t b, uint32_t c) {
    INSN(&t->k, MMA, t->rd, S(a), S(b), S(c));
}
BUILD(mma_right) {
    mma(t, t->ra, t->rb, t->rc);
}
BUILD(mma_type_a) {
    mma(t, reg(t, "v", TVM_I(32), &t->k.a), t->rb, t->rc);
}
BUILD(mma_type_b) {
    mma(t, t->ra, reg(t, "v", TVM_BF16, &t->k.b), t->rc);
}
BUILD(mma_type_c) {
    mma(t, t->ra, t->rb, reg(t, "v", TVM_BF16, &t->k.c));
}
static tvm_layout spread(unsigned rows, unsigned columns) {
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_auto(2, (const uint32_t[]){rows, columns}, 32, 16, &layout, NULL), TVM_OK);
    return layout;
}
BUILD(mma_shape_a) {
    tvm_layout layout = spread(16, 64);
    mma(t, reg(t, "v", TVM_F16, &layout), t->rb, t->rc);
}
BUILD(mma_shape_b) {
    tvm_layout layout = spread(16, 16);
    mma(t, t->ra, reg(t, "v", TVM_F16, &layout), t->rc);
}
BUILD(mma_layout) {
    tvm_layout layout = spread(16, 16);
    mma(t, reg(t, "v", TVM_F16, &layout), t->rb, t->rc);
}
BUILD(add) {
    INSN(&t->k, ADD, t->rd, S(t->rc), S(t->rc));
}
BUILD(add_scalar) {
    INSN(&t->k, SUB, t->rd, X(t->one), S(t->rc));
}
BUILD(add_broadcast) {
    INSN(&t->k, MUL, t->rd, S(t->row_sum), S(t->rc));
}
BUILD(add_scalars) {
    INSN(&t->k, ADD, t->rd, X(t->one), X(t->one));
}
BUILD(add_types) {
    INSN(&t->k, ADD, t->rd, S(t->rc), S(reg(t, "v", TVM_F16, &t->k.c)));
}
BUILD(add_shapes) {
    INSN(&t->k, ADD, t->ra, S(t->ra), S(t->rb));
}
BUILD(add_bool) {
    INSN(&t->k, ADD, t->mask, S(t->mask), S(t->mask));
}
BUILD(add_layouts) {
    tvm_layout layout = spread(16, 8);
    INSN(&t->k, ADD, t->rd, S(t->rc), S(reg(t, "v", TVM_F32, &layout)));
}
BUILD(add_result_layout) {
    tvm_layout layout = spread(16, 8);
    INSN(&t->k, ADD, kit_register(&t->k, "v", TVM_F32, &layout), S(t->rc), S(t->rc));
}
BUILD(add_result_shape) {
    INSN(&t->k, ADD, t->row_sum, S(t->rc), S(t->rc));
}
BUILD(add_result_type) {
    INSN(&t->k, ADD, t->mask, S(t->rc), S(t->rc));
}
BUILD(add_outer) {
    tvm_layout column;
    ck_assert_int_eq(tvm_layout_reduce(&t->k.c, 1, &column, NULL), TVM_OK);
    INSN(&t->k, ADD, t->rd, S(reg(t, "v", TVM_F32, &column)), S(t->row_sum));
}
/* Row after row in place of the fragment's order: each thread holds what it needs. */
BUILD(add_result_order) {
    tvm_layout layout = t->k.c;
    ck_assert_uint_eq(layout.locals, 2);
    uint8_t kept = layout.local[0];
    layout.local[0] = layout.local[1];
    layout.local[1] = kept;
    INSN(&t->k, ADD, kit_register(&t->k, "v", TVM_F32, &layout), S(t->rc), S(t->rc));
}
BUILD(add_outer_threads) {
    tvm_layout column, row, layout = spread(16, 8);
    ck_assert_int_eq(tvm_layout_reduce(&layout, 1, &column, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_reduce(&t->k.c, 0, &row, NULL), TVM_OK);
    INSN(&t->k, ADD, t->rd, S(reg(t, "v", TVM_F32, &column)), S(reg(t, "w", TVM_F32, &row)));
}
BUILD(mod_floats) {
    INSN(&t->k, MOD, t->rd, S(t->rc), S(t->rc));
}
BUILD(mod_bools) {
    INSN(&t->k, MOD, t->mask, S(t->mask), S(t->mask));
}
BUILD(fma_right) {
    INSN(&t->k, FMA, t->rd, S(t->rc), X(t->one), S(t->row_sum));
}
BUILD(fma_scalars) {
    INSN(&t->k, FMA, t->rd, X(t->one), X(t->one), X(t->one));
}
BUILD(neg_unsigned) {
    uint32_t v = reg(t, "v", TVM_U(32), &t->k.c);
    INSN(&t->k, NEG, v, S(v));
}
BUILD(exp_double) {
    uint32_t v = reg(t, "v", TVM_F64, &t->k.c);
    INSN(&t->k, EXP, v, S(v));
}
BUILD(exp_integer) {
    uint32_t v = reg(t, "v", TVM_I(32), &t->k.c);
    INSN(&t->k, EXP, v, S(v));
}
BUILD(exp_right) {
    INSN(&t->k, EXP, t->rd, S(t->rc));
}
BUILD(compare_right) {
    INSN(&t->k, COMPARE, t->mask, K(TVM_LE), S(t->rc), S(t->row_sum));
}
BUILD(compare_operation) {
    INSN(&t->k, COMPARE, t->mask, K(TVM_COMPARE_COUNT), S(t->rc), S(t->rc));
}
BUILD(compare_result) {
    INSN(&t->k, COMPARE, t->rd, K(TVM_LE), S(t->rc), S(t->rc));
}
BUILD(where_right) {
    INSN(&t->k, WHERE, t->rd, S(t->mask), S(t->row_sum), X(t->zero));
}
BUILD(where_scalars) {
    INSN(&t->k, WHERE, kit_register(&t->k, "v", TVM_I(32), &t->k.c), S(t->mask), X(t->one), X(t->zero));
}
BUILD(where_mixed_scalars) {
    INSN(&t->k, WHERE, t->rd, S(t->mask), X(kit_float(&t->k, 1)), X(t->zero));
}
BUILD(where_condition) {
    INSN(&t->k, WHERE, t->rd, S(t->rc), S(t->rc), S(t->rc));
}
BUILD(reduce_right) {
    INSN(&t->k, REDUCE, t->row_sum, K(TVM_SUM), S(t->rc), K(0));
}
BUILD(reduce_axis) {
    INSN(&t->k, REDUCE, t->row_sum, K(TVM_SUM), S(t->rc), K(2));
}
BUILD(reduce_operation) {
    INSN(&t->k, REDUCE, t->row_sum, K(TVM_REDUCTION_COUNT), S(t->rc), K(0));
}
BUILD(reduce_type) {
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_reduce(&t->k.a, 0, &layout, NULL), TVM_OK);
    INSN(&t->k, REDUCE, kit_register(&t->k, "v", TVM_U(3), &layout), K(TVM_SUM), S(t->codes), K(0));
}

static const verify_case compute_cases[] = {
    RIGHT(view),
    WRONG(view_bool, "bool"),
    WRONG(view_bits, "view: ", "bits"),
    RIGHT(cast_right),
    RIGHT(cast_bool),
    WRONG(cast_of_lowbit, "u3 to f16", "cast-lowbit"),
    RIGHT(lowbit_right),
    RIGHT(lowbit_both),
    WRONG(lowbit_neither, "neither f16 nor bf16"),
    WRONG(lowbit_double, "u3 to f64"),
    WRONG(cast_layout, "shape 16x8, expected 16x16"),
    RIGHT(mma_right),
    WRONG(
        mma_type_a,
        "' has type i32, expected f16, bf16, tf32, f32, f64, i8, u8, f8_e4m3, f8_e5m2, f6_e2m3, f6_e3m2 or f4_e2m1"),
    WRONG(mma_type_b, "' has type bf16, expected f16 as '"),
    WRONG(mma_type_c, "' has type bf16, expected f32 or f16"),
    WRONG(mma_shape_a, "matmul: ", "mma: ", "' has shape 16x64, expected 16x16"),
    WRONG(mma_shape_b, "' has shape 16x16, expected k x 8 as '"),
    WRONG(mma_layout, "mma: ", "mma.m16n8k16.A"),
    RIGHT(add),
    RIGHT(add_scalar),
    RIGHT(add_broadcast),
    WRONG(add_scalars, "expected a register tensor", "all are scalars"),
    WRONG(add_types, "'%v' has type f16, expected f32 as '%rc'"),
    WRONG(add_shapes, "'%rb' has shape 16x8", "16x16"),
    WRONG(add_bool, "has type bool, expected i8..i64, u8..u64, f16, bf16, f32 or f64"),
    WRONG(add_layouts, "layout of '%v'"),
    WRONG(add_result_layout, "layout of '%rc'"),
    RIGHT(add_result_order),
    WRONG(add_result_shape, "shape 16x8, expected 1x8"),
    WRONG(add_result_type, "type f32, expected bool"),
    RIGHT(add_outer),
    WRONG(add_outer_threads, "layout of '%v'"),
    RIGHT(mod_floats),
    WRONG(mod_bools, "has type bool, expected"),
    RIGHT(fma_right),
    WRONG(fma_scalars, "all are scalars"),
    WRONG(neg_unsigned, "'%v' has type u32"),
    RIGHT(exp_double),
    WRONG(exp_integer, "'%v' has type i32, expected f16, bf16, f32 or f64"),
    RIGHT(exp_right),
    RIGHT(compare_right),
    WRONG(compare_operation, "operation: expected a comparison"),
    WRONG(compare_result, "type bool, expected f32"),
    RIGHT(where_right),
    RIGHT(where_scalars),
    WRONG(where_mixed_scalars, "y has type i32, expected f32 as x"),
    WRONG(where_condition, "' has type f32, expected bool"),
    RIGHT(reduce_right),
    WRONG(reduce_axis, "there is no axis 2: '", "' has 2 dimensions, counted from 0"),
    WRONG(reduce_operation, "operation: expected a reduction"),
    WRONG(reduce_type, "' has type u3"),
};

CASE_TEST(compute)

int main(void) {
    Suite *suite = suite_create("rules_compute");
    TCase *rules = tcase_create("rules");
    ADD_CASES(rules, compute);
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
