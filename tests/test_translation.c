/* The PTX of scalar expressions computes what the bytecode says, for all values: each integer expression of
 * every shipped kernel, as a kernel of its own that stores it, with the kernel's assumptions, is proved by Z3
 * as an equation of bit vectors. What an expression means is written here once more, from the comments of
 * isa/expr.def alone; what PTX means is in smt_ptx.h.
 *
 * Every expression is proved twice: as it is, and with no parameter negative, where divisions and remainders
 * are shifts and masks. Not taken are floats, what only a launch knows, and expressions of more than NODES
 * nodes. An expression that Z3 does not decide in STEPS of its own, or whose PTX is not understood, is
 * unknown, and no more may be that are than MOST_UNKNOWN. */
#include "check_kit.h"
#include <glob.h>

#include "extent_kit.h"
#include "shipped_kit.h"
#include "smt_expr.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { ONE_OF = 8, MOST_UNKNOWN = 0 };

typedef struct tally {
    unsigned proved, unknown, others;
} tally;

static known_texts known;

/* ---- a kernel ---- */

static bool is_integer(tvm_dtype type) {
    return type.kind == TVM_KIND_INT || type.kind == TVM_KIND_UINT;
}

/* The program that stores the expression; false: it is not taken. */
static bool write_program(extract *x, uint32_t expr, bool no_negative) {
    tvm_dtype type = x->kernel->exprs[expr].type;
    tvm_text value = {0};
    write_expression(x, expr);
    value = x->text;
    x->text = (tvm_text){0};
    write_parameters(x);
    const char *stored = type.bits == 64 && type.kind != TVM_KIND_BOOL ? "i64" : "i32";
    tvm_text_add(&x->text, ", z: global %s[1])\n.warps 1\n.grid g0, g1, g2\n", stored);
    write_assumptions(x, no_negative);
    tvm_text_add(&x->text, "    %%r = alloc-register %s[1], replicated(32), init %s(%s)\n", stored, stored,
                 value.data ? value.data : "");
    tvm_text_add(&x->text, "    store-global z[0], %%r\n.end\n");
    tvm_text_free(&value);
    return !x->refused && !x->text.failed && (is_integer(type) || type.kind == TVM_KIND_BOOL);
}

/* ---- a proof ---- */

/* What the PTX stores, as wide as the expression; NULL: unknown. */
static Z3_ast stored_value(const smt_ptx *s, unsigned bits) {
    if (s->unknown[0] || s->stored_count != bits / 32) return NULL;
    if (s->stored_whole) return s->stored_whole;
    return bits == 32 ? s->stored[0] : Z3_mk_concat(s->launch->z3, s->stored[1], s->stored[0]);
}

/* Z3_L_FALSE: proved. */
static Z3_lbool prove(const extract *x, uint32_t expr, bool no_negative, const char *ptx) {
    Z3_config config = Z3_mk_config();
    smt_launch launch = {.z3 = Z3_mk_context(config)};
    Z3_context z3 = launch.z3;
    Z3_del_config(config);
    Z3_solver solver = new_solver(z3, STEPS);
    begin_launch(x, no_negative, &launch, solver);
    const meaning m = {x, &launch, solver};
    assert_assumptions(&m, ALL_KINDS);
    Z3_ast expected = mean(&m, expr);
    if (x->kernel->exprs[expr].type.kind == TVM_KIND_BOOL) expected = smt_number(z3, expected, 32);
    smt_ptx *s = smt_run(&launch, ptx);
    Z3_ast stored = stored_value(s, smt_bits(z3, expected));
    Z3_lbool differs = stored ? can_differ(z3, solver, stored, expected) : Z3_L_UNDEF;
    if (differs != Z3_L_FALSE) print_failure(z3, solver, differs, x, s->unknown, ptx);
    smt_free(s);
    Z3_solver_dec_ref(z3, solver);
    Z3_del_context(z3);
    return differs;
}

/* What is proved of the expression's PTX, with `to` in place of `from` where that is not NULL. */
static Z3_lbool translate_and_prove(const extract *x, uint32_t expr, bool no_negative, const char *from,
                                    const char *to) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(x->text.data, x->text.size, "expression", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_msg(status == TVM_OK, "refused:\n%s", x->text.data);
    tvm_module *module = translate(program, "sm_90a");
    char *ptx = strdup(module->ptx), *at = from ? strstr(ptx, from) : NULL;
    ck_assert_msg(!from || (at && strlen(from) == strlen(to)), "no %s in:\n%s", from, ptx);
    if (at) memcpy(at, to, strlen(to));
    Z3_lbool differs = prove(x, expr, no_negative, ptx);
    free(ptx);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    return differs;
}

static void check_expression(const tvm_ir_kernel *kernel, uint32_t expr, bool no_negative, tally *t) {
    extract x = {.kernel = kernel};
    bool taken = kernel->exprs[expr].size <= NODES && write_program(&x, expr, no_negative);
    if (!taken) t->others++;
    if (taken && is_new(&known, &x) && test_takes(known.count, ONE_OF)) {
        Z3_lbool differs = translate_and_prove(&x, expr, no_negative, NULL, NULL);
        ck_assert_msg(differs != Z3_L_TRUE, "the PTX computes something else");
        t->proved += differs == Z3_L_FALSE;
        t->unknown += differs == Z3_L_UNDEF;
    }
    tvm_text_free(&x.text);
}

static void check_program(const char *path, tally *t) {
    tvm_ir_program *program = assemble_file(path, "");
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        for (uint32_t e = 0; e < kernel->expr_count; e++)
            if (tvm_expr_op_info(kernel->exprs[e].op)->arity > 0)
                for (int no_negative = 0; no_negative < 2; no_negative++)
                    check_expression(kernel, e, no_negative, t);
    }
    tvm_ir_program_free(program);
}

START_TEST(expressions_of_shipped_programs_are_proved) {
    char pattern[5000];
    glob_t found;
    tally t = {0};
    ck_assert_int_eq(glob(program_path("*.vasm", pattern), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) check_program(found.gl_pathv[i], &t);
    globfree(&found);
    printf("%u proved, %u unknown; %u are floats, of a launch or too large\n", t.proved, t.unknown, t.others);
    ck_assert_uint_gt(t.proved, 100);
    ck_assert_uint_le(t.unknown, MOST_UNKNOWN);
}
END_TEST

/* ---- what is wrong is refuted ---- */

/* An expression of i32 a and b, i64 c and u32 d, and a part of its PTX that is exchanged for another. */
typedef struct fault {
    const char *expression, *from, *to;
    bool no_negative;
} fault;

static const fault faults[] = {
    {"a + b * 3", "add.s32", "sub.s32", false},
    {"a / b", "div.s32", "div.u32", false},
    {"a / b", "%r0, %r1;\n\tst", "%r1, %r0;\n\tst", false},
    {"a % 8 + b", "and.b32 %r2, %r0, 7", "and.b32 %r2, %r0, 3", true},
    {"a / 4", "shr.u32 %r1, %r0, 2", "shr.u32 %r1, %r0, 3", true},
    {"c >> (a & 63)", "shr.s64", "shr.u64", false},
    {"i64(a) + c", "cvt.s64.s32", "cvt.u64.u32", false},
    {"c + 1", "{%r0, %r1}, %rd2", "{%r1, %r0}, %rd2", false},
    {"min(a, b)", "min.s32", "max.s32", false},
    {"a < b ? a : b + 1", "setp.lt", "setp.le", false},
    {"cdiv(d, 5)", "add.s32", "sub.s32", false},
    {"c - i64(d)", "cvt.u64.u32", "cvt.s64.s32", false},
    {"a > 2 && b > 3", "and.b32", "xor.b32", false},
};

START_TEST(wrong_ptx_is_refuted) {
    const fault *f = &faults[_i];
    char text[1000];
    tvm_ir_program *program = NULL;
    int size =
        snprintf(text, sizeof text,
                 ".vasm 7\n.kernel k(a: i32, b: i32, c: i64, d: u32, z: global i64[1])\n.warps 1\n.grid 1\n"
                 "    %%x = i64(%s)\n    %%r = alloc-register i64[1], replicated(32), init %%x\n"
                 "    store-global z[0], %%r\n.end\n",
                 f->expression);
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(text, (size_t)size, "fault", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    uint32_t expr = 0;
    for (uint32_t e = 1; e < kernel->expr_count; e++)
        if (kernel->exprs[e].size > kernel->exprs[expr].size) expr = e;
    if (kernel->exprs[expr].op == TVM_EXPR_CAST) expr = kernel->exprs[expr].a;
    extract x = {.kernel = kernel};
    ck_assert(write_program(&x, expr, f->no_negative));
    ck_assert_int_eq(translate_and_prove(&x, expr, f->no_negative, NULL, NULL), Z3_L_FALSE);
    ck_assert_int_eq(translate_and_prove(&x, expr, f->no_negative, f->from, f->to), Z3_L_TRUE);
    tvm_text_free(&x.text);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("translation");
    TCase *tests = suite_case(suite, "translation");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, wrong_ptx_is_refuted, 0, sizeof faults / sizeof *faults);
    tcase_add_test(tests, expressions_of_shipped_programs_are_proved);
    return run_suite(suite);
}
