/* The rules of single instructions and of control: for each, programs that keep it and programs that break
 * it. */
#include "suite_kit.h"
#include "verify_case.h"

/* ---- scalars and control ---- */

BUILD(nothing) {
    (void)t;
}
BUILD(let_wrong_type) {
    INSN(&t->k, LET, t->wide, X(t->zero));
}
BUILD(let_parameter) {
    INSN(&t->k, LET, t->m, X(t->zero));
}
BUILD(let_without_result) {
    INSN(&t->k, LET, TVM_NONE, X(t->zero));
}
BUILD(let_into_tensor) {
    INSN(&t->k, LET, t->rc, X(t->zero));
}
BUILD(let_without_operand) {
    INSN0(&t->k, LET, t->i);
}
BUILD(let_two_operands) {
    INSN(&t->k, LET, t->i, X(t->zero), X(t->one));
}
BUILD(let_of_missing_expr) {
    INSN(&t->k, LET, t->i, X(12345));
}
BUILD(let_of_constant) {
    INSN(&t->k, LET, t->i, K(1));
}

BUILD(for_right) {
    loop(t, t->one, 4);
    INSN(&t->k, LET, t->i, X(kit_slot_expr(&t->k, t->j)));
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN0(&t->k, BREAK, TVM_NONE);
    INSN0(&t->k, ELSE, TVM_NONE);
    INSN0(&t->k, CONTINUE, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
    loop(t, t->one, 1);
    INSN0(&t->k, END, TVM_NONE);
    INSN0(&t->k, EXIT, TVM_NONE);
}
BUILD(for_step_zero) {
    loop(t, t->zero, 1);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(for_unroll_zero) {
    loop(t, t->one, 0);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(for_float_variable) {
    uint32_t x = kit_float(&t->k, 1);
    INSN(&t->k, FOR, t->real, X(x), X(x), X(x), K(1));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(for_mixed_types) {
    INSN(&t->k, FOR, t->j, X(t->zero), X(kit_long(&t->k, 1)), X(t->one), K(1));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(for_not_closed) {
    loop(t, t->one, 1);
}
BUILD(while_integer) {
    INSN(&t->k, WHILE, TVM_NONE, X(t->one));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(if_integer) {
    INSN(&t->k, IF, TVM_NONE, X(t->one));
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(stray_end) {
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(stray_else) {
    INSN0(&t->k, ELSE, TVM_NONE);
}
BUILD(second_else) {
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN0(&t->k, ELSE, TVM_NONE);
    INSN0(&t->k, ELSE, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(stray_break) {
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN0(&t->k, BREAK, TVM_NONE);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(stray_continue) {
    INSN0(&t->k, CONTINUE, TVM_NONE);
}
static void nest(fixture *t, unsigned depth) {
    for (unsigned i = 0; i < depth; i++) INSN(&t->k, IF, TVM_NONE, X(t->yes));
    for (unsigned i = 0; i < depth; i++) INSN0(&t->k, END, TVM_NONE);
}
BUILD(deepest) {
    nest(t, TVM_MAX_DEPTH);
}
BUILD(too_deep) {
    nest(t, TVM_MAX_DEPTH + 1);
}
BUILD(wait_too_many) {
    INSN(&t->k, WAIT_GROUP, TVM_NONE, K(TVM_MAX_PENDING + 1));
}
BUILD(sync_with_result) {
    INSN0(&t->k, SYNC, t->i);
}
BUILD(print_scalar) {
    INSN(&t->k, PRINT_TENSOR, TVM_NONE, S(t->i));
}
BUILD(bad_opcode) {
    kit_insn(&t->k, (tvm_opcode)TVM_OP_COUNT, TVM_NONE, NULL, 0);
}
BUILD(bad_result) {
    INSN(&t->k, LET, 4000, X(t->zero));
}
BUILD(bad_operands) {
    uint32_t insn = INSN(&t->k, LET, t->i, X(t->zero));
    t->k.kernel->insns[insn].first = UINT32_MAX;
}

/* ---- memory ---- */

BUILD(alloc_init_tensor) {
    INSN(&t->k, ALLOC_REGISTER, t->rc, S(t->rc));
}
BUILD(alloc_init) {
    INSN(&t->k, ALLOC_REGISTER, t->codes, X(kit_float(&t->k, 2)));
}
BUILD(shared_sub_byte) {
    kit_shared(&t->k, "bits", TVM_U(4), 1, (const uint32_t[]){64});
}
BUILD(shared_half_byte) {
    kit_shared(&t->k, "half", TVM_U(4), 1, (const uint32_t[]){63});
}
BUILD(shared_in_if) {
    uint32_t slot = kit_shared(&t->k, "late", TVM_U(8), 1, (const uint32_t[]){64});
    INSN(&t->k, IF, TVM_NONE, X(t->yes));
    INSN0(&t->k, ALLOC_SHARED, slot);
    INSN0(&t->k, END, TVM_NONE);
}
BUILD(shared_twice) {
    INSN0(&t->k, ALLOC_SHARED, t->sa);
}
BUILD(shared_freed_in_loop) {
    loop(t, t->one, 1);
    INSN(&t->k, FREE_SHARED, TVM_NONE, S(t->sa));
    INSN0(&t->k, END, TVM_NONE);
}
static void load_sa(fixture *t, uint32_t first, uint32_t second) {
    INSN(&t->k, LOAD_SHARED, t->ra, S(t->sa), X(first), X(second), X(t->zero));
}
BUILD(shared_after_free) {
    INSN(&t->k, FREE_SHARED, TVM_NONE, S(t->sa));
    load_sa(t, t->zero, t->zero);
}
BUILD(shared_freed_twice) {
    INSN(&t->k, FREE_SHARED, TVM_NONE, S(t->sa));
    INSN(&t->k, FREE_SHARED, TVM_NONE, S(t->sa));
}
BUILD(shared_before_alloc) {
    load_sa(t, t->zero, t->zero);
}
BUILD(shared_too_large) {
    INSN0(&t->k, ALLOC_SHARED, kit_shared(&t->k, "large", TVM_F64, 1, (const uint32_t[]){29056}));
}
/* Two halves that are not alive together fit. */
BUILD(shared_reused) {
    uint32_t x = kit_shared(&t->k, "x", TVM_U(8), 1, (const uint32_t[]){120 * 1024});
    uint32_t y = kit_shared(&t->k, "y", TVM_U(8), 1, (const uint32_t[]){120 * 1024});
    INSN0(&t->k, ALLOC_SHARED, x);
    INSN(&t->k, FREE_SHARED, TVM_NONE, S(x));
    INSN0(&t->k, ALLOC_SHARED, y);
}
BUILD(load_global) {
    INSN(&t->k, LOAD_GLOBAL, t->ra, S(t->a), X(t->zero), X(kit_long(&t->k, 1)), LEFT_OUT);
}
BUILD(load_global_type) {
    INSN(&t->k, LOAD_GLOBAL, t->ra, S(t->f), X(t->zero), X(t->zero), LEFT_OUT);
}
BUILD(load_global_few_indices) {
    INSN(&t->k, LOAD_GLOBAL, t->ra, S(t->a), X(t->zero));
}
BUILD(load_global_float_index) {
    INSN(&t->k, LOAD_GLOBAL, t->ra, S(t->a), X(t->zero), X(kit_float(&t->k, 1)));
}
BUILD(load_global_from_shared) {
    INSN(&t->k, LOAD_GLOBAL, t->rc, S(t->sb), X(t->zero), X(t->zero));
}
BUILD(load_global_rank) {
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_spatial(3, (const uint32_t[]){2, 4, 4}, &layout, NULL), TVM_OK);
    INSN(&t->k, LOAD_GLOBAL, kit_register(&t->k, "cube", TVM_F16, &layout), S(t->a), X(t->zero), X(t->zero),
         LEFT_OUT);
}
BUILD(store_global) {
    INSN(&t->k, STORE_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero), S(t->rc));
}
BUILD(store_global_type) {
    INSN(&t->k, STORE_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero), S(t->ra));
}
/* Pairs of u3 are 6 bits; runs of 8 are 3 bytes. */
BUILD(store_global_pairs) {
    INSN(&t->k, STORE_GLOBAL, TVM_NONE, S(t->q), X(t->zero), X(t->zero), S(t->codes));
}
BUILD(store_global_bytes) {
    tvm_layout threads, run, layout;
    ck_assert_int_eq(tvm_layout_spatial(2, (const uint32_t[]){16, 2}, &threads, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_local(2, (const uint32_t[]){1, 8}, &run, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_compose(&threads, &run, &layout, NULL), TVM_OK);
    uint32_t packed = reg(t, "packed", TVM_U(3), &layout);
    INSN(&t->k, STORE_GLOBAL, TVM_NONE, S(t->q), X(t->zero), X(t->zero), S(packed));
}
/* The same elements a thread, but the fastest digit runs down a column. */
BUILD(store_global_columns) {
    tvm_layout threads, run, layout;
    ck_assert_int_eq(tvm_layout_spatial(2, (const uint32_t[]){2, 16}, &threads, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_column_local(2, (const uint32_t[]){8, 8}, &run, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_compose(&threads, &run, &layout, NULL), TVM_OK);
    uint32_t packed = reg(t, "packed", TVM_U(3), &layout);
    INSN(&t->k, STORE_GLOBAL, TVM_NONE, S(t->q), X(t->zero), X(t->zero), S(packed));
}
BUILD(put_global) {
    INSN(&t->k, PUT_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero), S(t->rc));
}
BUILD(put_global_type) {
    INSN(&t->k, PUT_GLOBAL, TVM_NONE, S(t->a), X(t->zero), X(t->zero), S(t->ra));
}
BUILD(put_global_source) {
    INSN(&t->k, PUT_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero), S(t->ra));
}
BUILD(put_global_into_shared) {
    INSN(&t->k, PUT_GLOBAL, TVM_NONE, S(t->sb), X(t->zero), X(t->zero), S(t->rc));
}
BUILD(put_global_result) {
    INSN(&t->k, PUT_GLOBAL, t->rd, S(t->f), X(t->zero), X(t->zero), S(t->rc));
}
BUILD(take_global) {
    INSN(&t->k, TAKE_GLOBAL, t->rd, S(t->f), X(t->zero), X(kit_slot_expr(&t->k, t->i)));
}
BUILD(take_global_type) {
    INSN(&t->k, TAKE_GLOBAL, t->ra, S(t->a), X(t->zero), X(t->zero));
}
BUILD(take_global_result) {
    INSN(&t->k, TAKE_GLOBAL, t->ra, S(t->f), X(t->zero), X(t->zero));
}
BUILD(take_global_nothing) {
    INSN(&t->k, TAKE_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero));
}
BUILD(take_global_few_indices) {
    INSN(&t->k, TAKE_GLOBAL, t->rd, S(t->f), X(t->zero));
}
static uint32_t cube(fixture *t) {
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_spatial(3, (const uint32_t[]){2, 4, 4}, &layout, NULL), TVM_OK);
    return reg(t, "cube", TVM_F32, &layout);
}
BUILD(put_global_rank) {
    INSN(&t->k, PUT_GLOBAL, TVM_NONE, S(t->f), X(t->zero), X(t->zero), S(cube(t)));
}
BUILD(take_global_rank) {
    INSN(&t->k, TAKE_GLOBAL, cube(t), S(t->f), X(t->zero), X(t->zero));
}
BUILD(load_shared) {
    load_sa(t, kit_int(&t->k, 3), kit_slot_expr(&t->k, t->i));
}
BUILD(load_shared_outside) {
    load_sa(t, kit_int(&t->k, 4), t->zero);
}
BUILD(load_shared_crosses) {
    load_sa(t, t->zero, t->one);
}
BUILD(load_shared_large) {
    uint32_t small = kit_shared(&t->k, "small", TVM_F16, 2, (const uint32_t[]){8, 16});
    INSN0(&t->k, ALLOC_SHARED, small);
    INSN(&t->k, LOAD_SHARED, t->ra, S(small), X(t->zero), X(t->zero));
}
BUILD(store_shared) {
    INSN(&t->k, STORE_SHARED, TVM_NONE, S(t->sb), X(t->zero), X(t->zero), S(t->rc));
}
BUILD(store_shared_outside) {
    INSN(&t->k, STORE_SHARED, TVM_NONE, S(t->sb), X(kit_int(&t->k, -1)), X(t->zero), S(t->rc));
}
BUILD(store_shared_type) {
    INSN(&t->k, STORE_SHARED, TVM_NONE, S(t->sb), X(t->zero), X(t->zero), S(t->rb));
}
static void copy(fixture *t, uint32_t source, uint32_t rows, uint32_t columns) {
    INSN(&t->k, COPY_ASYNC, TVM_NONE, S(t->sa), X(t->zero), X(t->zero), X(t->zero), S(source), X(t->zero),
         X(t->zero), K(2), K(rows), K(columns), LEFT_OUT, LEFT_OUT);
}
BUILD(copy_async) {
    copy(t, t->a, 16, 16);
    INSN0(&t->k, COMMIT_GROUP, TVM_NONE);
    INSN(&t->k, WAIT_GROUP, TVM_NONE, K(0));
    INSN0(&t->k, SYNC, TVM_NONE);
}
BUILD(copy_async_type) {
    copy(t, t->f, 16, 16);
}
BUILD(copy_async_large) {
    copy(t, t->a, 16, 17);
}
BUILD(copy_async_zero) {
    copy(t, t->a, 0, 16);
}
BUILD(copy_async_rank) {
    INSN(&t->k, COPY_ASYNC, TVM_NONE, S(t->sa), X(t->zero), X(t->zero), X(t->zero), S(t->a), X(t->zero),
         X(t->zero), K(3), K(1), K(16), K(16), LEFT_OUT, LEFT_OUT);
}
BUILD(copy_async_evict) {
    INSN(&t->k, COPY_ASYNC, TVM_NONE, S(t->sa), X(t->zero), X(t->zero), X(t->zero), S(t->a), X(t->zero),
         X(t->zero), K(2), K(16), K(16), K(TVM_EVICT_COUNT), LEFT_OUT);
}
static void copy_by_warps(fixture *t, const uint32_t *warps, uint32_t rank) {
    tvm_operand operands[] = {S(t->sa),   X(t->zero), X(t->zero), X(t->zero), S(t->a),
                              X(t->zero), X(t->zero), K(2),       K(12),      K(16),
                              LEFT_OUT,   K(rank),    K(0),       K(0),       K(0)};
    for (uint32_t d = 0; d < rank; d++) operands[12 + d].value = warps[d];
    kit_insn(&t->k, TVM_OP_COPY_ASYNC, TVM_NONE, operands, 12 + rank);
}
BUILD(copy_async_warps) {
    copy_by_warps(t, (const uint32_t[]){1, 1}, 2);
    INSN0(&t->k, SYNC_WARP, TVM_NONE);
}
BUILD(copy_async_warps_rank) {
    copy_by_warps(t, (const uint32_t[]){1}, 1);
}
BUILD(copy_async_warps_uneven) {
    copy_by_warps(t, (const uint32_t[]){5, 1}, 2);
}
BUILD(copy_async_warps_few) {
    copy_by_warps(t, (const uint32_t[]){1, 2}, 2);
}
BUILD(copy_async_warps_many) {
    copy_by_warps(t, (const uint32_t[]){4, 4}, 2);
}
BUILD(copy_async_warps_zero) {
    copy_by_warps(t, (const uint32_t[]){1, 0}, 2);
}
BUILD(copy_async_warps_huge) {
    copy_by_warps(t, (const uint32_t[]){1, 1u << 20}, 2);
}
BUILD(sync_warp_operand) {
    INSN(&t->k, SYNC_WARP, TVM_NONE, K(1));
}
static uint32_t made(fixture *t, uint32_t extent) {
    return kit_global(&t->k, "made", TVM_U(32), extent, t->one);
}
BUILD(alloc_global) {
    uint32_t grid = kit_expr(&t->k, (tvm_expr){.op = TVM_EXPR_GRID, .type = TVM_I(32), .a = 1});
    uint32_t slot = made(t, grid);
    INSN(&t->k, ALLOC_GLOBAL, slot, K(1));
    INSN(&t->k, LOCK_SEMAPHORE, TVM_NONE, S(slot), X(t->zero), X(t->zero), X(t->one));
    INSN(&t->k, RELEASE_SEMAPHORE, TVM_NONE, S(slot), X(t->zero), X(t->zero), X(t->zero));
}
BUILD(alloc_global_flag) {
    INSN(&t->k, ALLOC_GLOBAL, made(t, t->one), K(2));
}
BUILD(alloc_global_of_block) {
    INSN(&t->k, ALLOC_GLOBAL, made(t, kit_block(&t->k, 0)), LEFT_OUT);
}
BUILD(alloc_global_of_variable) {
    uint32_t variable = kit_scalar(&t->k, "late", TVM_I(32));
    INSN(&t->k, LET, variable, X(t->zero));
    INSN(&t->k, ALLOC_GLOBAL, made(t, kit_slot_expr(&t->k, variable)), LEFT_OUT);
}
BUILD(alloc_global_late) {
    uint32_t slot = made(t, t->one);
    INSN(&t->k, LOCK_SEMAPHORE, TVM_NONE, S(slot), X(t->zero), X(t->zero), X(t->one));
    INSN(&t->k, ALLOC_GLOBAL, slot, LEFT_OUT);
}
BUILD(alloc_global_parameter) {
    INSN(&t->k, ALLOC_GLOBAL, t->a, LEFT_OUT);
}
BUILD(alloc_global_many) {
    char name[8];
    for (unsigned i = 0; i <= TVM_MAX_LAUNCH_TENSORS; i++) {
        snprintf(name, sizeof name, "g%u", i);
        INSN(&t->k, ALLOC_GLOBAL, kit_global(&t->k, name, TVM_F32, t->one, t->one), LEFT_OUT);
    }
}
BUILD(multiprocessors_in_body) {
    uint32_t count = kit_expr(&t->k, (tvm_expr){.op = TVM_EXPR_MULTIPROCESSORS, .type = TVM_I(32)});
    INSN(&t->k, LET, kit_scalar(&t->k, "late", TVM_I(32)), X(count));
}
BUILD(semaphore_float) {
    INSN(&t->k, RELEASE_SEMAPHORE, TVM_NONE, S(t->f), X(t->zero), X(t->zero), X(t->one));
}
BUILD(copy_async_short_list) {
    INSN(&t->k, COPY_ASYNC, TVM_NONE, S(t->sa), X(t->zero), X(t->zero), X(t->zero), S(t->a), X(t->zero),
         X(t->zero), K(2), K(16));
}

static const verify_case control_cases[] = {
    RIGHT(nothing),
    WRONG(let_wrong_type, "matmul: ", "let: ", "i32", "expected i64"),
    WRONG(let_parameter, "'m' is a parameter"),
    WRONG(let_without_result, "result is missing"),
    WRONG(let_into_tensor, "a scalar", "a register tensor"),
    WRONG(let_without_operand, "value is missing"),
    WRONG(let_two_operands, "2 operands, expected 1"),
    WRONG(let_of_missing_expr, "expression 12345 does not exist"),
    WRONG(let_of_constant, "value: expected a scalar expression"),
    RIGHT(for_right),
    WRONG(for_step_zero, "step is 0"),
    WRONG(for_unroll_zero, "unroll is 0, expected 1 to"),
    WRONG(for_float_variable, "loop variable", "f32"),
    WRONG(for_mixed_types, "end has type i64", "expected i32"),
    WRONG(for_not_closed, "for: ", "not closed by end"),
    WRONG(while_integer, "while: ", "i32", "expected bool"),
    WRONG(if_integer, "if: ", "i32", "expected bool"),
    WRONG(stray_end, "end: ", "no for, while, if or role"),
    WRONG(stray_else, "else: ", "no if"),
    WRONG(second_else, "else: ", "no if"),
    WRONG(stray_break, "break: ", "outside of every loop"),
    WRONG(stray_continue, "continue: ", "outside of every loop"),
    RIGHT(deepest),
    WRONG(too_deep, "nested too deeply"),
    WRONG(wait_too_many, "pending is 65"),
    WRONG(sync_with_result, "no result"),
    WRONG(print_scalar, "'%i' is a scalar, expected a register tensor"),
    WRONG(bad_opcode, "opcode", "does not exist"),
    WRONG(bad_result, "slot 4000", "does not exist"),
    WRONG(bad_operands, "operands do not exist"),
};

static const verify_case memory_cases[] = {
    RIGHT(alloc_init),
    WRONG(alloc_init_tensor, "init: expected a scalar expression"),
    RIGHT(shared_sub_byte),
    WRONG(shared_half_byte, "'half'", "whole bytes"),
    WRONG(shared_in_if, "alloc-shared: ", "inside for, while, if or role"),
    WRONG(shared_twice, "'sa' is allocated twice"),
    WRONG(shared_freed_in_loop, "free-shared: ", "inside for, while, if or role"),
    WRONG(shared_after_free, "'sa' is used after free-shared"),
    WRONG(shared_freed_twice, "'sa' is used after free-shared"),
    WRONG_RAW(shared_before_alloc, "'sa' is used before alloc-shared"),
    WRONG(shared_too_large, "bytes of shared memory", "232448"),
    RIGHT(shared_reused),
    RIGHT(load_global),
    WRONG(load_global_type, "type f32", "expected f16"),
    WRONG(load_global_few_indices, "has 2 dimensions, but 1 ind"),
    WRONG(load_global_float_index, "index 1", "f32", "expected i32 or i64"),
    WRONG(load_global_from_shared, "a shared tensor, expected a global tensor"),
    WRONG(load_global_rank, "the result has 3 dimensions, 'a' only 2"),
    RIGHT(store_global),
    WRONG(store_global_type, "' has type f16", "expected f32"),
    WRONG(store_global_pairs, "runs of 2 elements of u3", "whole bytes"),
    RIGHT(store_global_bytes),
    WRONG(store_global_columns, "runs of 1 elements of u3"),
    RIGHT(put_global),
    WRONG(put_global_type, "put-global: 'a' has type f16, expected f32"),
    WRONG(put_global_source, "' has type f16", "expected f32 as '"),
    WRONG(put_global_into_shared, "a shared tensor, expected a global tensor"),
    WRONG(put_global_result, "put-global", "no result"),
    WRONG(put_global_rank, "the tile has 3 dimensions, '", "only 2"),
    RIGHT(take_global),
    WRONG(take_global_type, "take-global: '", "' has type f16, expected f32"),
    WRONG(take_global_result, "take-global: the result has type f32", "expected f16 as declared"),
    WRONG(take_global_nothing, "take-global", "result"),
    WRONG(take_global_few_indices, "has 2 dimensions, but 1 ind"),
    WRONG(take_global_rank, "the result has 3 dimensions, '", "only 2"),
    RIGHT(load_shared),
    WRONG(load_shared_outside, "elements 4 to 4 of dimension 0, '%sa' has 0 to 3"),
    WRONG(load_shared_crosses, "elements 1 to 16 of dimension 1, '%sa' has 0 to 15"),
    WRONG(load_shared_large, "extent 16 in dimension 0", "only 8"),
    RIGHT(store_shared),
    WRONG(store_shared_outside, "elements -1 to 14 of dimension 0, '%sb' has 0 to 15"),
    WRONG(store_shared_type, "' has type f16", "expected f32 as '"),
    RIGHT(copy_async),
    WRONG(copy_async_type, "' has type f32", "expected f16 as '"),
    WRONG(copy_async_large, "extent 17 in dimension 2", "only 16"),
    WRONG(copy_async_zero, "extent is a constant from 1"),
    WRONG(copy_async_rank, "the tile has 3 dimensions, '", "only 2"),
    WRONG(copy_async_short_list, "list of 1 to 8 extents"),
    RIGHT(copy_async_warps),
    WRONG(copy_async_warps_rank, "warps has 1 entries", "expected 2"),
    WRONG(copy_async_warps_uneven, "extent 12 in dimension 0", "no multiple of 5 warps"),
    WRONG(copy_async_warps_few, "cut for 2 warps", "expected the kernel's 1"),
    WRONG(copy_async_warps_many, "cut for 16 warps", "expected the kernel's 1"),
    WRONG(copy_async_warps_zero, "extent is a constant from 1"),
    WRONG(copy_async_warps_huge, "extent 16 in dimension 1", "no multiple"),
    WRONG(sync_warp_operand, "sync-warp", "operand"),
    WRONG(copy_async_evict, "evict: expected an eviction priority"),
    RIGHT(alloc_global),
    WRONG(alloc_global_flag, "clean: expected the flag"),
    WRONG(alloc_global_of_block, "dimension 0 of 'made'", "target and the grid alone"),
    WRONG(alloc_global_of_variable, "dimension 0 of 'made'", "target and the grid alone"),
    WRONG(alloc_global_late, "'made' may be used before it is assigned"),
    WRONG(alloc_global_parameter, "'a' is a parameter"),
    WRONG(alloc_global_many, "at most 16 global tensors"),
    WRONG(multiprocessors_in_body, "multiprocessors is known to the launch alone"),
    WRONG(semaphore_float, "type f32, expected u32 or i32"),
};

CASE_TEST(control)
CASE_TEST(memory)

int main(void) {
    Suite *suite = suite_create("rules");
    TCase *rules = tcase_create("rules");
    ADD_CASES(rules, control);
    ADD_CASES(rules, memory);
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
