/* The program in memory: the opcode table, sharing of equal entries, scalar expressions against C's own
 * arithmetic. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "language.h"
#include "program.h"
#include "program_kit.h"
#include "suite_kit.h"
#include "verify.h"

/* xorshift64*, so that every run takes the same values. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* ---- opcodes ---- */

START_TEST(test_mnemonics) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        const char *mnemonic = tvm_op(op)->mnemonic;
        ck_assert_uint_eq(tvm_op_by_name(mnemonic, strlen(mnemonic)), op);
    }
    ck_assert_uint_eq(tvm_op_by_name("load-global", 11), TVM_OP_LOAD_GLOBAL);
    ck_assert_uint_eq(tvm_op_by_name("cast", 4), TVM_OP_CAST);
    ck_assert_uint_eq(tvm_op_by_name("cast-lowbit", 11), TVM_OP_CAST_LOWBIT);
    ck_assert_uint_eq(tvm_op_by_name("load", 4), TVM_OP_COUNT);
    ck_assert_uint_eq(tvm_op_by_name("", 0), TVM_OP_COUNT);
    ck_assert_ptr_null(tvm_op(TVM_OP_COUNT));
    ck_assert_uint_eq(tvm_op(TVM_OP_MMA)->result, TVM_SLOT_REGISTER);
    ck_assert_uint_eq(tvm_op(TVM_OP_SYNC)->effects, TVM_EFFECT_BARRIER);
    ck_assert_uint_eq(tvm_op(TVM_OP_ALLOC_GLOBAL)->class, TVM_CLASS_ALLOCATE);
    ck_assert_uint_eq(tvm_op(TVM_OP_VIEW)->traits, TVM_TRAIT_BESIDE | TVM_TRAIT_PACKED | TVM_TRAIT_MEMO);
    ck_assert_str_eq(tvm_op(TVM_OP_SUB)->family, "BINARY");
}
END_TEST

typedef struct expected_operand {
    const char *name;
    char kind;
    bool indexed, stored, optional;
} expected_operand;

static void check_operands(unsigned op, const expected_operand *expected, size_t count) {
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    for (size_t i = 0; i < count; i++) {
        ck_assert(tvm_operand_next(&cursor, &desc));
        ck_assert_uint_eq(desc.name_length, strlen(expected[i].name));
        ck_assert_mem_eq(desc.name, expected[i].name, desc.name_length);
        ck_assert_int_eq(desc.kind, expected[i].kind);
        ck_assert_int_eq(desc.indexed, expected[i].indexed);
        ck_assert_int_eq(desc.stored, expected[i].stored);
        ck_assert_int_eq(desc.optional, expected[i].optional);
    }
    ck_assert(!tvm_operand_next(&cursor, &desc));
}

START_TEST(test_operand_lists) {
    static const expected_operand alloc[] = {{"type", 't', false, false, false},
                                             {"layout", 'L', false, false, true},
                                             {"init", 'x', false, true, true}};
    static const expected_operand copy[] = {{"target", 's', true, true, false},
                                            {"source", 'g', true, true, false},
                                            {"tile", 'A', false, true, false},
                                            {"evict", 'E', false, true, true},
                                            {"warps", 'A', false, true, true}};
    static const expected_operand global[] = {{"type", 'G', false, false, false},
                                              {"clean", 'F', false, true, true}};
    static const expected_operand compare[] = {{"operation", 'C', false, true, false},
                                               {"x", 'b', false, true, false},
                                               {"y", 'b', false, true, false},
                                               {"layout", 'L', false, false, true}};
    check_operands(TVM_OP_ALLOC_REGISTER, alloc, 3);
    check_operands(TVM_OP_COPY_ASYNC, copy, 5);
    check_operands(TVM_OP_ALLOC_GLOBAL, global, 2);
    check_operands(TVM_OP_COMPARE, compare, 4);
    check_operands(TVM_OP_SYNC, NULL, 0);
}
END_TEST

/* An operand with @2 came with version 2: it is at the end, and instructions of before do not have it. */
START_TEST(test_later_operands) {
    static const tvm_op_info row = {.since = 1, .operands = "source:g[] layout:=L evict:E?@2 tile:A?@12"};
    const char *cursor = row.operands;
    tvm_operand_desc desc;
    const unsigned since[] = {0, 0, 2, 12};
    for (unsigned i = 0; i < 4; i++) {
        ck_assert(tvm_operand_next(&cursor, &desc));
        ck_assert_uint_eq(desc.since, since[i]);
        ck_assert(desc.optional == (i >= 2));
    }
    ck_assert(!tvm_operand_next(&cursor, &desc));
    ck_assert_uint_eq(tvm_op_operands_max(&row), 1 + TVM_MAX_RANK + 1 + 1 + TVM_MAX_RANK);
    ck_assert_uint_eq(tvm_language_later_operands(&row, 1), 2);
    ck_assert_uint_eq(tvm_language_later_operands(&row, 2), 1);
    ck_assert_uint_eq(tvm_language_later_operands(&row, 12), 0);
}
END_TEST

/* A program needs the version of the latest of what it uses. */
START_TEST(test_language_needed) {
    static const struct {
        const char *body;
        unsigned version;
    } programs[] = {{"%r = add %a, %a", 1},
                    {"%r = add %a, %row", 1},
                    {"%r = abs %a", 2},
                    {"%r = add %column, %row", 2},
                    {"%d = mma %x, %y, %z", 1},
                    {"%d = mma %x, %s, %z", 2},
                    {"%c = alloc-register f32[1, 16, 8], unsqueeze(mma.m16n8k16.C, 0)\n%d = mma %x, %y, %c", 7},
                    {"%r = neg %a\nif n > 1\n%t = abs %a\nend", 2}};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        char text[1024];
        tvm_diags diags = {0};
        tvm_ir_program *program = NULL;
        snprintf(
            text, sizeof text,
            ".vasm 2\n.kernel k(n: i32)\n.warps 1\n.grid 1\n%%a = alloc-register f32[4, 8], spatial(4, 8)\n"
            "%%row = alloc-register f32[1, 8], reduce(spatial(4, 8), 0)\n"
            "%%x = alloc-register f16[16, 16], mma.m16n8k16.A\n"
            "%%y = alloc-register f16[16, 8], mma.m16n8k16.B\n"
            "%%z = alloc-register f32[16, 8], mma.m16n8k16.C\n%%s = alloc-shared f16[16, 8]\n"
            "%%column = alloc-register f32[4, 1], reduce(spatial(4, 8), 1)\n%s\n.end\n",
            programs[i].body);
        ck_assert_int_eq(tvm_assemble_text(text, strlen(text), "needed", NULL, &program, &diags), TVM_OK);
        ck_assert_uint_eq(tvm_language_needed(program), programs[i].version);
        tvm_ir_program_free(program);
    }
}
END_TEST

/* What came later than its row may be left out, and has nothing older after it. Nothing is newer than the
 * language. */
START_TEST(test_versions) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        const tvm_op_info *info = tvm_op(op);
        const char *cursor = info->operands;
        tvm_operand_desc desc;
        unsigned latest = info->since;
        ck_assert(info->since >= 1 && info->since <= TVM_LANGUAGE_VERSION);
        while (tvm_operand_next(&cursor, &desc)) {
            bool is_later = desc.since > 0 && desc.kind != 'm';
            ck_assert(desc.since == 0 || desc.since > info->since);
            ck_assert(!is_later || desc.optional);
            ck_assert(is_later ? desc.since >= latest : latest == info->since);
            if (is_later) latest = desc.since;
        }
        ck_assert_uint_le(latest, TVM_LANGUAGE_VERSION);
    }
    for (unsigned op = 0; op < TVM_EXPR_COUNT; op++)
        ck_assert_uint_le(tvm_expr_op_info(op)->since, TVM_LANGUAGE_VERSION);
}
END_TEST

/* ---- sharing ---- */

START_TEST(test_equal_entries_are_shared) {
    kit t;
    kit_start(&t, "k");
    ck_assert_uint_eq(kit_string(&t, "abc"), kit_string(&t, "abc"));
    ck_assert_uint_ne(kit_string(&t, "abc"), kit_string(&t, "abd"));
    ck_assert_uint_eq(tvm_ir_program_string(t.program, "abcx", 3), kit_string(&t, "abc"));
    ck_assert_str_eq(tvm_string(t.program, kit_string(&t, "abd")), "abd");
    ck_assert_str_eq(tvm_string(t.program, TVM_NONE), "");
    ck_assert_uint_eq(tvm_ir_program_layout(t.program, &t.a), tvm_ir_program_layout(t.program, &t.a));
    ck_assert_uint_ne(tvm_ir_program_layout(t.program, &t.a), tvm_ir_program_layout(t.program, &t.c));
    ck_assert_uint_eq(kit_int(&t, 7), kit_int(&t, 7));
    ck_assert_uint_ne(kit_int(&t, 7), kit_int(&t, 8));
    uint32_t one = kit_int(&t, 1), sum = kit_binary(&t, TVM_EXPR_ADD, TVM_I(32), one, one);
    ck_assert_uint_eq(sum, kit_binary(&t, TVM_EXPR_ADD, TVM_I(32), one, one));
    ck_assert_uint_ne(sum, kit_binary(&t, TVM_EXPR_SUB, TVM_I(32), one, one));
    ck_assert_uint_ne(kit_float(&t, 0.0), kit_float(&t, -0.0));
    kit_end(&t);
}
END_TEST

START_TEST(test_many_strings_keep_their_index) {
    enum { COUNT = 5000 };
    tvm_ir_program *program = tvm_ir_program_new();
    char text[32];
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < COUNT; i++) {
            int length = snprintf(text, sizeof text, "name%u", i);
            ck_assert_uint_eq(tvm_ir_program_string(program, text, (size_t)length), i);
        }
    ck_assert_uint_eq(program->string_count, COUNT);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_expression_size_is_limited) {
    kit t;
    kit_start(&t, "k");
    uint32_t expr = kit_int(&t, 1);
    /* A sum of a node with itself doubles the tree: 1, 3, 7, ..., 1023 nodes fit in 1024. */
    for (unsigned level = 1; level < 10; level++) {
        expr = kit_binary(&t, TVM_EXPR_ADD, TVM_I(32), expr, expr);
        ck_assert_uint_eq(t.kernel->exprs[expr].size, (1u << (level + 1)) - 1);
    }
    tvm_expr more = {.op = TVM_EXPR_ADD, .type = TVM_I(32), .a = expr, .b = expr};
    ck_assert_uint_eq(tvm_ir_kernel_expr(t.kernel, &more), TVM_NONE);
    tvm_expr dangling = {.op = TVM_EXPR_NEG, .type = TVM_I(32), .a = t.kernel->expr_count};
    ck_assert_uint_eq(tvm_ir_kernel_expr(t.kernel, &dangling), TVM_NONE);
    kit_end(&t);
}
END_TEST

START_TEST(test_find_kernel) {
    kit t;
    kit_start(&t, "first");
    uint32_t second = tvm_ir_program_add_kernel(t.program, kit_string(&t, "second"));
    ck_assert_ptr_eq(tvm_find_kernel(t.program, "second"), &t.program->kernels[second]);
    ck_assert_ptr_null(tvm_find_kernel(t.program, "third"));
    kit_end(&t);
}
END_TEST

/* ---- expressions ---- */

static tvm_status apply(unsigned op, tvm_dtype result, tvm_dtype type, tvm_scalar a, tvm_scalar b,
                        tvm_scalar *value) {
    const tvm_expr node = {.op = (uint8_t)op, .type = result};
    const tvm_scalar operands[3] = {a, b, {0}};
    tvm_why why = {""};
    return tvm_expr_apply(&node, type, operands, value, &why);
}

static int64_t apply_i(unsigned op, tvm_dtype type, int64_t a, int64_t b) {
    tvm_scalar value = {0};
    bool comparison = op >= TVM_EXPR_LT && op <= TVM_EXPR_NE;
    ck_assert_int_eq(
        apply(op, comparison ? TVM_BOOL : type, type, (tvm_scalar){.i = a}, (tvm_scalar){.i = b}, &value),
        TVM_OK);
    return value.i;
}

/* What C's unsigned arithmetic of the same width gives, as the type's value. */
#define CHECK_WIDTH(TYPE, UTYPE, DTYPE)                                                                      \
    static void check_##TYPE(TYPE a, TYPE b) {                                                               \
        const tvm_dtype d = DTYPE;                                                                           \
        const UTYPE ua = (UTYPE)a, ub = (UTYPE)b;                                                            \
        const unsigned bits = sizeof(TYPE) * 8, by = (unsigned)(ub % bits);                                  \
        ck_assert_int_eq(apply_i(TVM_EXPR_ADD, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(UTYPE)(ua + ub)); \
        ck_assert_int_eq(apply_i(TVM_EXPR_SUB, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(UTYPE)(ua - ub)); \
        ck_assert_int_eq(apply_i(TVM_EXPR_MUL, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(UTYPE)(ua * ub)); \
        ck_assert_int_eq(apply_i(TVM_EXPR_NEG, d, (int64_t)a, 0), (int64_t)(TYPE)(UTYPE)(0 - ua));           \
        ck_assert_int_eq(apply_i(TVM_EXPR_NOT, d, (int64_t)a, 0), (int64_t)(TYPE)~ua);                       \
        ck_assert_int_eq(apply_i(TVM_EXPR_AND, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(ua & ub));        \
        ck_assert_int_eq(apply_i(TVM_EXPR_OR, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(ua | ub));         \
        ck_assert_int_eq(apply_i(TVM_EXPR_XOR, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(ua ^ ub));        \
        ck_assert_int_eq(apply_i(TVM_EXPR_SHL, d, (int64_t)a, (int64_t)b),                                   \
                         (int64_t)(TYPE)(UTYPE)(ua << by));                                                  \
        ck_assert_int_eq(apply_i(TVM_EXPR_SHR, d, (int64_t)a, (int64_t)b), (int64_t)(TYPE)(a >> by));        \
        ck_assert_int_eq(apply_i(TVM_EXPR_MIN, d, (int64_t)a, (int64_t)b), (int64_t)(a < b ? a : b));        \
        ck_assert_int_eq(apply_i(TVM_EXPR_MAX, d, (int64_t)a, (int64_t)b), (int64_t)(a > b ? a : b));        \
        ck_assert_int_eq(apply_i(TVM_EXPR_LT, d, (int64_t)a, (int64_t)b), a < b);                            \
        ck_assert_int_eq(apply_i(TVM_EXPR_LE, d, (int64_t)a, (int64_t)b), a <= b);                           \
        ck_assert_int_eq(apply_i(TVM_EXPR_GT, d, (int64_t)a, (int64_t)b), a > b);                            \
        ck_assert_int_eq(apply_i(TVM_EXPR_GE, d, (int64_t)a, (int64_t)b), a >= b);                           \
        ck_assert_int_eq(apply_i(TVM_EXPR_EQ, d, (int64_t)a, (int64_t)b), a == b);                           \
        ck_assert_int_eq(apply_i(TVM_EXPR_NE, d, (int64_t)a, (int64_t)b), a != b);                           \
        if (b == 0 || b == (TYPE)-1) return;                                                                 \
        ck_assert_int_eq(apply_i(TVM_EXPR_DIV, d, (int64_t)a, (int64_t)b), (int64_t)(a / b));                \
        ck_assert_int_eq(apply_i(TVM_EXPR_MOD, d, (int64_t)a, (int64_t)b), (int64_t)(a % b));                \
        ck_assert_int_eq(apply_i(TVM_EXPR_CDIV, d, (int64_t)a, (int64_t)b),                                  \
                         (int64_t)((TYPE)(UTYPE)(ua + ub - 1) / b));                                         \
    }
CHECK_WIDTH(int32_t, uint32_t, TVM_I(32))
CHECK_WIDTH(uint32_t, uint32_t, TVM_U(32))
CHECK_WIDTH(int64_t, uint64_t, TVM_I(64))
CHECK_WIDTH(uint64_t, uint64_t, TVM_U(64))

START_TEST(test_integer_operators_match_c) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     31,
                                     32,
                                     33,
                                     63,
                                     64,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     UINT64_C(1) << 62,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 1};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    uint64_t seed = 1;
    for (unsigned i = 0; i < 4000; i++) {
        uint64_t a = i < EDGES * EDGES ? edges[i / EDGES] : next_random(&seed);
        uint64_t b = i < EDGES * EDGES ? edges[i % EDGES] : next_random(&seed) >> (i % 64);
        check_int32_t((int32_t)a, (int32_t)b);
        check_uint32_t((uint32_t)a, (uint32_t)b);
        check_int64_t((int64_t)a, (int64_t)b);
        check_uint64_t(a, b);
    }
}
END_TEST

START_TEST(test_division_at_the_edges) {
    tvm_scalar value;
    ck_assert_int_eq(apply_i(TVM_EXPR_DIV, TVM_I(32), INT32_MIN, -1), INT32_MIN);
    ck_assert_int_eq(apply_i(TVM_EXPR_MOD, TVM_I(32), INT32_MIN, -1), 0);
    ck_assert_int_eq(apply_i(TVM_EXPR_DIV, TVM_I(64), INT64_MIN, -1), INT64_MIN);
    ck_assert_int_eq(apply_i(TVM_EXPR_MOD, TVM_I(64), INT64_MIN, -1), 0);
    ck_assert_int_eq(apply_i(TVM_EXPR_DIV, TVM_I(32), -7, 2), -3);
    ck_assert_int_eq(apply_i(TVM_EXPR_MOD, TVM_I(32), -7, 2), -1);
    ck_assert_int_eq(apply_i(TVM_EXPR_CDIV, TVM_I(32), 7, 2), 4);
    ck_assert_int_eq(apply_i(TVM_EXPR_CDIV, TVM_U(32), 8, 8), 1);
    static const unsigned ops[] = {TVM_EXPR_DIV, TVM_EXPR_MOD, TVM_EXPR_CDIV};
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(
            apply(ops[i], TVM_U(32), TVM_U(32), (tvm_scalar){.i = 5}, (tvm_scalar){.i = 0}, &value),
            TVM_INVALID);
}
END_TEST

START_TEST(test_float_operators_match_c) {
    static const float samples[] = {0.0f,   -0.0f,   1.0f,   -1.5f,    3.1415927f, 1e-30f,
                                    -3e30f, 3.4e38f, 1e-45f, INFINITY, NAN};
    enum { COUNT = sizeof samples / sizeof samples[0] };
    for (unsigned i = 0; i < COUNT * COUNT; i++) {
        volatile float a = samples[i / COUNT], b = samples[i % COUNT];
        const struct {
            unsigned op;
            float expected;
        } cases[] = {{TVM_EXPR_ADD, a + b},
                     {TVM_EXPR_SUB, a - b},
                     {TVM_EXPR_MUL, a * b},
                     {TVM_EXPR_DIV, a / b},
                     {TVM_EXPR_NEG, -a}};
        for (unsigned c = 0; c < 5; c++) {
            tvm_scalar value;
            ck_assert_int_eq(
                apply(cases[c].op, TVM_F32, TVM_F32, (tvm_scalar){.f = a}, (tvm_scalar){.f = b}, &value),
                TVM_OK);
            if (isnan(cases[c].expected))
                ck_assert(isnan(value.f));
            else
                ck_assert(value.f == cases[c].expected && !signbit(value.f) == !signbit(cases[c].expected));
        }
    }
    tvm_scalar value;
    ck_assert_int_eq(
        apply(TVM_EXPR_LT, TVM_BOOL, TVM_F64, (tvm_scalar){.f = NAN}, (tvm_scalar){.f = 1}, &value), TVM_OK);
    ck_assert_int_eq(value.i, 0);
    ck_assert_int_eq(
        apply(TVM_EXPR_NE, TVM_BOOL, TVM_F64, (tvm_scalar){.f = NAN}, (tvm_scalar){.f = 1}, &value), TVM_OK);
    ck_assert_int_eq(value.i, 1);
    ck_assert_int_eq(
        apply(TVM_EXPR_MIN, TVM_F64, TVM_F64, (tvm_scalar){.f = NAN}, (tvm_scalar){.f = 1}, &value), TVM_OK);
    ck_assert(value.f == 1);
}
END_TEST

START_TEST(test_casts_of_scalars) {
    const tvm_dtype i32 = TVM_I(32), u32 = TVM_U(32), i64 = TVM_I(64), u64 = TVM_U(64);
    ck_assert_int_eq(tvm_scalar_cast(i32, i64, (tvm_scalar){.i = INT64_C(0x1ffffffff)}).i, -1);
    ck_assert_int_eq(tvm_scalar_cast(u32, i64, (tvm_scalar){.i = -1}).i, INT64_C(0xffffffff));
    ck_assert_int_eq(tvm_scalar_cast(i64, i32, (tvm_scalar){.i = -5}).i, -5);
    ck_assert_uint_eq(tvm_scalar_cast(u64, i32, (tvm_scalar){.i = -1}).u, UINT64_MAX);
    ck_assert_int_eq(tvm_scalar_cast(i64, u32, (tvm_scalar){.i = INT64_C(0xffffffff)}).i,
                     INT64_C(0xffffffff));
    ck_assert_int_eq(tvm_scalar_cast(TVM_BOOL, i64, (tvm_scalar){.i = INT64_C(1) << 40}).i, 1);
    ck_assert_int_eq(tvm_scalar_cast(i32, TVM_F32, (tvm_scalar){.f = -2.9}).i, -2);
    ck_assert_int_eq(tvm_scalar_cast(i32, TVM_F64, (tvm_scalar){.f = 1e20}).i, INT32_MAX);
    ck_assert_int_eq(tvm_scalar_cast(u32, TVM_F64, (tvm_scalar){.f = -3}).i, 0);
    ck_assert_int_eq(tvm_scalar_cast(i64, TVM_F32, (tvm_scalar){.f = NAN}).i, 0);
    ck_assert(tvm_scalar_cast(TVM_F32, i32, (tvm_scalar){.i = 16777217}).f == 16777216.0);
    ck_assert(tvm_scalar_cast(TVM_F64, u64, (tvm_scalar){.u = UINT64_MAX}).f == 18446744073709551616.0);
    ck_assert(tvm_scalar_cast(TVM_F32, TVM_F64, (tvm_scalar){.f = 0.1}).f == (double)0.1f);
    ck_assert(tvm_scalar_cast(TVM_F64, TVM_F32, (tvm_scalar){.f = (double)0.1f}).f == (double)0.1f);
}
END_TEST

/* (block.x * 16 + p) % 7 < grid.y ? p / (p - 3) : i32(i64(p) << 33 >> 33) */
START_TEST(test_evaluation_of_a_tree) {
    kit t;
    kit_start(&t, "k");
    uint32_t p = kit_scalar(&t, "p", TVM_I(32));
    t.kernel->param_count = 1;
    const tvm_dtype i32 = TVM_I(32), i64 = TVM_I(64);
    uint32_t pe = kit_slot_expr(&t, p);
    uint32_t x = kit_binary(&t, TVM_EXPR_ADD, i32,
                            kit_binary(&t, TVM_EXPR_MUL, i32, kit_block(&t, 0), kit_int(&t, 16)), pe);
    uint32_t grid = kit_expr(&t, (tvm_expr){.op = TVM_EXPR_GRID, .type = i32, .a = 1});
    uint32_t condition =
        kit_binary(&t, TVM_EXPR_LT, TVM_BOOL, kit_binary(&t, TVM_EXPR_MOD, i32, x, kit_int(&t, 7)), grid);
    uint32_t quotient =
        kit_binary(&t, TVM_EXPR_DIV, i32, pe, kit_binary(&t, TVM_EXPR_SUB, i32, pe, kit_int(&t, 3)));
    uint32_t by = kit_int(&t, 33);
    uint32_t shifts =
        kit_binary(&t, TVM_EXPR_SHR, i64, kit_binary(&t, TVM_EXPR_SHL, i64, kit_cast(&t, i64, pe), by), by);
    uint32_t tree = kit_expr(&t, (tvm_expr){.op = TVM_EXPR_SELECT,
                                            .type = i32,
                                            .a = condition,
                                            .b = quotient,
                                            .c = kit_cast(&t, i32, shifts)});
    for (int32_t value = -20; value < 20; value++)
        for (int32_t block = 0; block < 5; block++) {
            tvm_scalar slots[1] = {{.i = value}}, result = {0};
            tvm_eval_env env = {.slots = slots, .block = {block, 9, 9}, .grid = {9, 3, 9}};
            tvm_why why = {""};
            tvm_status status = tvm_expr_eval(t.kernel, tree, &env, &result, &why);
            bool first = (block * 16 + value) % 7 < 3;
            if (first && value == 3) {
                /* Only the branch that is taken divides. */
                ck_assert_int_eq(status, TVM_INVALID);
                ck_assert_ptr_nonnull(strstr(why.text, "zero"));
                continue;
            }
            ck_assert_int_eq(status, TVM_OK);
            ck_assert_int_eq(result.i, first ? value / (value - 3) : (int32_t)((uint32_t)value << 1) / 2);
        }
    ck_assert(!tvm_expr_is_launch_time(t.kernel, tree));
    ck_assert(tvm_expr_is_launch_time(t.kernel, quotient));
    kit_end(&t);
}
END_TEST

START_TEST(test_guards_keep_a_division_from_zero) {
    kit t;
    kit_start(&t, "k");
    uint32_t p = kit_scalar(&t, "p", TVM_I(32));
    t.kernel->param_count = 1;
    uint32_t pe = kit_slot_expr(&t, p), zero = kit_int(&t, 0);
    uint32_t quotient = kit_binary(&t, TVM_EXPR_DIV, TVM_I(32), kit_int(&t, 12), pe);
    uint32_t large = kit_binary(&t, TVM_EXPR_GT, TVM_BOOL, quotient, kit_int(&t, 3));
    uint32_t both =
        kit_binary(&t, TVM_EXPR_LAND, TVM_BOOL, kit_binary(&t, TVM_EXPR_NE, TVM_BOOL, pe, zero), large);
    uint32_t either =
        kit_binary(&t, TVM_EXPR_LOR, TVM_BOOL, kit_binary(&t, TVM_EXPR_EQ, TVM_BOOL, pe, zero), large);
    for (int32_t value = -1; value < 6; value++) {
        tvm_scalar slots[1] = {{.i = value}}, result = {0};
        tvm_eval_env env = {.slots = slots};
        tvm_why why = {""};
        ck_assert_int_eq(tvm_expr_eval(t.kernel, both, &env, &result, &why), TVM_OK);
        ck_assert_int_eq(result.i, value != 0 && 12 / value > 3);
        ck_assert_int_eq(tvm_expr_eval(t.kernel, either, &env, &result, &why), TVM_OK);
        ck_assert_int_eq(result.i, value == 0 || 12 / value > 3);
    }
    kit_end(&t);
}
END_TEST

START_TEST(test_types_of_expressions) {
    kit t;
    kit_start(&t, "k");
    uint32_t i = kit_int(&t, 1), f = kit_float(&t, 1), b = kit_binary(&t, TVM_EXPR_LT, TVM_BOOL, i, i);
    const struct {
        tvm_expr node;
        const char *words; /* NULL: right */
    } cases[] = {
        {{.op = TVM_EXPR_ADD, .type = TVM_I(32), .a = i, .b = i}, NULL},
        {{.op = TVM_EXPR_ADD, .type = TVM_I(32), .a = i, .b = f}, "different types"},
        {{.op = TVM_EXPR_ADD, .type = TVM_I(64), .a = i, .b = i}, "i64"},
        {{.op = TVM_EXPR_ADD, .type = TVM_BOOL, .a = b, .b = b}, "does not take bool"},
        {{.op = TVM_EXPR_MOD, .type = TVM_F32, .a = f, .b = f}, "does not take f32"},
        {{.op = TVM_EXPR_SHL, .type = TVM_I(32), .a = i, .b = f}, "count"},
        {{.op = TVM_EXPR_LAND, .type = TVM_BOOL, .a = b, .b = i}, "different types"},
        {{.op = TVM_EXPR_LNOT, .type = TVM_BOOL, .a = i}, "does not take i32"},
        {{.op = TVM_EXPR_LT, .type = TVM_I(32), .a = i, .b = i}, "bool"},
        {{.op = TVM_EXPR_EQ, .type = TVM_BOOL, .a = b, .b = b}, NULL},
        {{.op = TVM_EXPR_SELECT, .type = TVM_I(32), .a = b, .b = i, .c = i}, NULL},
        {{.op = TVM_EXPR_SELECT, .type = TVM_I(32), .a = i, .b = i, .c = i}, "condition"},
        {{.op = TVM_EXPR_SELECT, .type = TVM_I(32), .a = b, .b = i, .c = f}, "different types"},
        {{.op = TVM_EXPR_CAST, .type = TVM_F64, .a = b}, NULL},
        {{.op = TVM_EXPR_CAST, .type = TVM_F16, .a = i}, "expression has type"},
        {{.op = TVM_EXPR_NEG, .type = TVM_I(32), .a = 99}, "does not exist"},
        {{.op = TVM_EXPR_SLOT, .type = TVM_I(32), .a = 5}, "does not exist"},
        {{.op = TVM_EXPR_BLOCK, .type = TVM_I(32), .a = 3}, "axis"},
        {{.op = TVM_EXPR_INTEGER, .type = TVM_U(32), .value.i = -1}, "does not fit"},
        {{.op = TVM_EXPR_INTEGER, .type = TVM_U(64), .value.i = -1}, NULL},
        {{.op = TVM_EXPR_INTEGER, .type = TVM_BOOL, .value.i = 2}, "does not fit"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.f = 0.1}, "f32"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F64, .value.f = 0.1}, NULL},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.f = -0.0}, NULL},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.f = -INFINITY}, NULL},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.i = 0x7fffffffe0000000}, NULL},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.i = (int64_t)0xffffffffe0000000}, "NaN of f32"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.i = 0x7ff8000000000000}, "NaN of f32"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.i = 0x7fffffffffffffff}, "NaN of f32"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F64, .value.i = 0x7fffffffffffffff}, NULL},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F64, .value.i = (int64_t)0xffffffffffffffff}, "NaN of f64"},
        {{.op = TVM_EXPR_FLOAT, .type = TVM_F64, .value.i = 0x7ff0000000000001}, "NaN of f64"},
        {{.op = TVM_EXPR_COUNT, .type = TVM_I(32)}, "operator"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        tvm_why why = {""};
        tvm_status status = tvm_expr_check(t.kernel, &cases[c].node, &why);
        ck_assert_msg(status == (cases[c].words == NULL ? TVM_OK : TVM_INVALID), "case %zu: %s", c, why.text);
        if (cases[c].words != NULL)
            ck_assert_msg(strstr(why.text, cases[c].words) != NULL, "case %zu: %s", c, why.text);
    }
    kit_end(&t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("program");
    TCase *table = tcase_create("opcodes");
    tcase_add_test(table, test_mnemonics);
    tcase_add_test(table, test_operand_lists);
    tcase_add_test(table, test_later_operands);
    tcase_add_test(table, test_language_needed);
    tcase_add_test(table, test_versions);
    suite_add_tcase(suite, table);
    TCase *sharing = tcase_create("sharing");
    tcase_add_test(sharing, test_equal_entries_are_shared);
    tcase_add_test(sharing, test_many_strings_keep_their_index);
    tcase_add_test(sharing, test_expression_size_is_limited);
    tcase_add_test(sharing, test_find_kernel);
    suite_add_tcase(suite, sharing);
    TCase *exprs = tcase_create("expressions");
    tcase_add_test(exprs, test_integer_operators_match_c);
    tcase_add_test(exprs, test_division_at_the_edges);
    tcase_add_test(exprs, test_float_operators_match_c);
    tcase_add_test(exprs, test_casts_of_scalars);
    tcase_add_test(exprs, test_evaluation_of_a_tree);
    tcase_add_test(exprs, test_guards_keep_a_division_from_zero);
    tcase_add_test(exprs, test_types_of_expressions);
    suite_add_tcase(suite, exprs);
    return run_suite(suite);
}
