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
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "extent_kit.h"
#include "shipped_kit.h"
#include "smt_ptx.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum {
    NODES = 120,
    TEXT_MAX = 16384,
    SLOTS = 24,
    STEPS = 100000000,
    ONE_OF = 8,
    MOST_UNKNOWN = 0,
    KNOWN_MAX = 1 << 16
};

/* An expression as a kernel of its own: its scalars are parameters p0, p1, ... in the order in which they
 * appear. */
typedef struct extract {
    const tvm_ir_kernel *kernel;
    uint32_t slots[SLOTS];
    unsigned slot_count;
    tvm_text text;
    bool refused; /* it has something that is not taken */
} extract;

typedef struct tally {
    unsigned proved, unknown, others;
} tally;

static uint64_t known[KNOWN_MAX];
static size_t known_count;

/* ---- the text of an expression ---- */

static const char *type_name(tvm_dtype type) {
    static char name[TVM_DTYPE_NAME_MAX];
    return tvm_dtype_name(type, name);
}

static unsigned parameter_of(extract *x, uint32_t slot) {
    for (unsigned i = 0; i < x->slot_count; i++)
        if (x->slots[i] == slot) return i;
    if (x->slot_count == SLOTS) {
        x->refused = true;
        return 0;
    }
    x->slots[x->slot_count] = slot;
    return x->slot_count++;
}

static void write_expression(extract *x, uint32_t expr);

static void write_leaf(extract *x, const tvm_expr *node) {
    static const char axes[] = "xyz";
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        if (node->type.kind == TVM_KIND_BOOL)
            tvm_text_add(&x->text, node->value.i ? "true" : "false");
        else
            tvm_text_add(&x->text, "%s(%" PRId64 ")", type_name(node->type), node->value.i);
        x->refused |= node->value.i == INT64_MIN || (node->value.i < 0 && node->type.kind == TVM_KIND_UINT);
        break;
    case TVM_EXPR_SLOT:
        tvm_text_add(&x->text, "p%u", parameter_of(x, node->a));
        break;
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
        tvm_text_add(&x->text, "%s.%c", node->op == TVM_EXPR_BLOCK ? "block" : "grid", axes[node->a]);
        break;
    default:
        x->refused = true;
    }
}

static void write_node(extract *x, const tvm_expr *node, const tvm_expr_info *info) {
    bool call = info->precedence == TVM_EXPR_CALL;
    if (node->op == TVM_EXPR_SELECT) {
        tvm_text_add(&x->text, "(");
        write_expression(x, node->a);
        tvm_text_add(&x->text, " ? ");
        write_expression(x, node->b);
        tvm_text_add(&x->text, " : ");
        write_expression(x, node->c);
    } else if (info->arity == 1) {
        tvm_text_add(&x->text, "%s(", node->op == TVM_EXPR_CAST ? type_name(node->type) : info->text);
        write_expression(x, node->a);
    } else {
        tvm_text_add(&x->text, "%s(", call ? info->text : "");
        write_expression(x, node->a);
        tvm_text_add(&x->text, call ? ", " : " %s ", info->text);
        write_expression(x, node->b);
    }
    tvm_text_add(&x->text, ")");
}

static void write_expression(extract *x, uint32_t expr) {
    const tvm_expr *node = &x->kernel->exprs[expr];
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    if (node->type.kind == TVM_KIND_FLOAT) x->refused = true;
    if (x->refused) return;
    if (info->arity == 0)
        write_leaf(x, node);
    else
        write_node(x, node, info);
}

/* ---- what it means ---- */

typedef struct meaning {
    const extract *x;
    const smt_launch *launch;
    Z3_solver premises; /* of what is asked of the values: no divisor is 0 */
} meaning;

static Z3_ast mean(const meaning *m, uint32_t expr);

static Z3_ast mean_leaf(const meaning *m, const tvm_expr *node) {
    if (node->op == TVM_EXPR_BLOCK) return m->launch->block[node->a];
    if (node->op == TVM_EXPR_GRID) return m->launch->grid[node->a];
    if (node->op == TVM_EXPR_INTEGER && node->type.kind == TVM_KIND_BOOL)
        return node->value.i ? Z3_mk_true(m->launch->z3) : Z3_mk_false(m->launch->z3);
    if (node->op == TVM_EXPR_INTEGER)
        return smt_constant(m->launch->z3, node->type.bits, (uint64_t)node->value.i);
    for (unsigned i = 0; i < m->x->slot_count; i++)
        if (m->x->slots[i] == node->a) {
            Z3_ast value = m->launch->params[i];
            if (node->type.kind != TVM_KIND_BOOL) return value;
            return Z3_mk_not(m->launch->z3,
                             Z3_mk_eq(m->launch->z3, value, smt_constant(m->launch->z3, 32, 0)));
        }
    ck_abort_msg("a scalar that the text does not have");
    return NULL;
}

static Z3_ast mean_cast(const meaning *m, const tvm_expr *node) {
    Z3_context z3 = m->launch->z3;
    tvm_dtype from = m->x->kernel->exprs[node->a].type;
    Z3_ast a = mean(m, node->a);
    if (node->type.kind == TVM_KIND_BOOL)
        return from.kind == TVM_KIND_BOOL ? a
                                          : Z3_mk_not(z3, Z3_mk_eq(z3, a, smt_constant(z3, from.bits, 0)));
    if (from.kind == TVM_KIND_BOOL) return smt_number(z3, a, node->type.bits);
    return smt_resize(z3, a, node->type.bits, from.kind == TVM_KIND_INT);
}

/* Toward zero; a divisor is not 0. */
static Z3_ast mean_division(const meaning *m, const tvm_expr *node, Z3_ast a, Z3_ast b) {
    Z3_context z3 = m->launch->z3;
    bool is_signed = node->type.kind == TVM_KIND_INT;
    Z3_ast one = smt_constant(z3, node->type.bits, 1);
    Z3_solver_assert(z3, m->premises, Z3_mk_not(z3, Z3_mk_eq(z3, b, smt_constant(z3, node->type.bits, 0))));
    if (node->op == TVM_EXPR_CDIV) a = Z3_mk_bvsub(z3, Z3_mk_bvadd(z3, a, b), one);
    if (node->op == TVM_EXPR_MOD) return is_signed ? Z3_mk_bvsrem(z3, a, b) : Z3_mk_bvurem(z3, a, b);
    return is_signed ? Z3_mk_bvsdiv(z3, a, b) : Z3_mk_bvudiv(z3, a, b);
}

/* The count modulo the width, which is a power of two. */
static Z3_ast mean_shift(const meaning *m, const tvm_expr *node, Z3_ast a, Z3_ast b) {
    Z3_context z3 = m->launch->z3;
    unsigned bits = node->type.bits;
    b = Z3_mk_bvurem(z3, smt_resize(z3, b, bits, false), smt_constant(z3, bits, bits));
    if (node->op == TVM_EXPR_SHL) return Z3_mk_bvshl(z3, a, b);
    return node->type.kind == TVM_KIND_INT ? Z3_mk_bvashr(z3, a, b) : Z3_mk_bvlshr(z3, a, b);
}

static Z3_ast mean_binary(const meaning *m, const tvm_expr *node) {
    Z3_context z3 = m->launch->z3;
    Z3_ast a = mean(m, node->a), b = mean(m, node->b), both[2] = {a, b};
    tvm_dtype of = m->x->kernel->exprs[node->a].type;
    bool is_signed = of.kind == TVM_KIND_INT;
    static const char *const tests[] = {[TVM_EXPR_LT] = "lt", [TVM_EXPR_LE] = "le", [TVM_EXPR_GT] = "gt",
                                        [TVM_EXPR_GE] = "ge", [TVM_EXPR_EQ] = "eq", [TVM_EXPR_NE] = "ne"};
    if (tvm_expr_is_comparison(node->op)) return smt_compare(z3, tests[node->op], is_signed, a, b);
    switch (node->op) {
    case TVM_EXPR_ADD:
        return Z3_mk_bvadd(z3, a, b);
    case TVM_EXPR_SUB:
        return Z3_mk_bvsub(z3, a, b);
    case TVM_EXPR_MUL:
        return Z3_mk_bvmul(z3, a, b);
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        return smt_either(z3, node->op == TVM_EXPR_MIN, is_signed, a, b);
    case TVM_EXPR_SHL:
    case TVM_EXPR_SHR:
        return mean_shift(m, node, a, b);
    case TVM_EXPR_AND:
        return Z3_mk_bvand(z3, a, b);
    case TVM_EXPR_OR:
        return Z3_mk_bvor(z3, a, b);
    case TVM_EXPR_XOR:
        return Z3_mk_bvxor(z3, a, b);
    case TVM_EXPR_LAND:
        return Z3_mk_and(z3, 2, both);
    case TVM_EXPR_LOR:
        return Z3_mk_or(z3, 2, both);
    default:
        return mean_division(m, node, a, b);
    }
}

static Z3_ast mean(const meaning *m, uint32_t expr) {
    const tvm_expr *node = &m->x->kernel->exprs[expr];
    Z3_context z3 = m->launch->z3;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
    case TVM_EXPR_SLOT:
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
        return mean_leaf(m, node);
    case TVM_EXPR_CAST:
        return mean_cast(m, node);
    case TVM_EXPR_NEG:
        return Z3_mk_bvneg(z3, mean(m, node->a));
    case TVM_EXPR_NOT:
        return Z3_mk_bvnot(z3, mean(m, node->a));
    case TVM_EXPR_LNOT:
        return Z3_mk_not(z3, mean(m, node->a));
    case TVM_EXPR_SELECT:
        return Z3_mk_ite(z3, mean(m, node->a), mean(m, node->b), mean(m, node->c));
    default:
        return mean_binary(m, node);
    }
}

/* ---- a kernel ---- */

/* Has the assumption no scalars but parameters that the expression has? */
static bool is_of_expression(const extract *x, uint32_t expr) {
    extract of = {.kernel = x->kernel};
    write_expression(&of, expr);
    bool all = !of.refused && x->kernel->exprs[expr].size <= NODES;
    for (unsigned i = 0; i < of.slot_count && all; i++) {
        bool has = false;
        for (unsigned j = 0; j < x->slot_count; j++) has |= x->slots[j] == of.slots[i];
        all = has && of.slots[i] < x->kernel->param_count;
    }
    tvm_text_free(&of.text);
    return all;
}

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
    tvm_text_add(&x->text, ".vasm 7\n.kernel k(");
    for (unsigned i = 0; i < x->slot_count; i++)
        tvm_text_add(&x->text, "p%u: %s, ", i, type_name(x->kernel->slots[x->slots[i]].dtype));
    const char *stored = type.bits == 64 && type.kind != TVM_KIND_BOOL ? "i64" : "i32";
    tvm_text_add(&x->text, "g0: i32, g1: i32, g2: i32, z: global %s[1])\n.warps 1\n.grid g0, g1, g2\n",
                 stored);
    for (unsigned i = 0; i < x->slot_count && no_negative; i++)
        if (x->kernel->slots[x->slots[i]].dtype.kind == TVM_KIND_INT)
            tvm_text_add(&x->text, ".assume p%u >= 0\n", i);
    for (uint32_t i = 0; i < x->kernel->assume_count; i++) {
        if (!is_of_expression(x, x->kernel->assumes[i])) continue;
        tvm_text_add(&x->text, ".assume ");
        write_expression(x, x->kernel->assumes[i]);
        tvm_text_add(&x->text, "\n");
    }
    tvm_text_add(&x->text, "    %%r = alloc-register %s[1], replicated(32), init %s(%s)\n", stored, stored,
                 value.data ? value.data : "");
    tvm_text_add(&x->text, "    store-global z[0], %%r\n.end\n");
    tvm_text_free(&value);
    return !x->refused && !x->text.failed && (is_integer(type) || type.kind == TVM_KIND_BOOL);
}

static bool is_new(const extract *x) {
    uint64_t hash = XXH3_64bits(x->text.data, x->text.size);
    for (size_t i = hash % KNOWN_MAX; known_count < KNOWN_MAX / 2; i = (i + 1) % KNOWN_MAX) {
        if (known[i] == hash) return false;
        if (known[i] != 0) continue;
        known[i] = hash;
        known_count++;
        break;
    }
    return true;
}

/* ---- a proof ---- */

static Z3_ast variable(Z3_context z3, const char *name, unsigned number, unsigned bits) {
    char text[16];
    snprintf(text, sizeof text, "%s%u", name, number);
    return Z3_mk_const(z3, Z3_mk_string_symbol(z3, text), Z3_mk_bv_sort(z3, bits));
}

/* Of one that is not negative the sign is known to be 0, so that terms are simpler. */
static Z3_ast unsigned_variable(Z3_context z3, const char *name, unsigned number, unsigned bits) {
    return Z3_mk_zero_ext(z3, 1, variable(z3, name, number, bits - 1));
}

/* The values that a launch can have: CUDA C++ Programming Guide, "Technical Specifications", for the grid. */
static void begin_launch(const extract *x, bool no_negative, smt_launch *launch, Z3_solver solver) {
    static const uint64_t most[3] = {INT32_MAX, 65535, 65535};
    Z3_context z3 = launch->z3;
    unsigned at = 0;
    for (; at < x->slot_count; at++) {
        tvm_dtype type = x->kernel->slots[x->slots[at]].dtype;
        unsigned bits = type.kind == TVM_KIND_BOOL ? 32 : type.bits;
        bool no_sign = no_negative && type.kind == TVM_KIND_INT;
        Z3_ast value = no_sign ? unsigned_variable(z3, "p", at, bits) : variable(z3, "p", at, bits);
        launch->params[at] = value;
        if (type.kind == TVM_KIND_BOOL)
            Z3_solver_assert(z3, solver, Z3_mk_bvule(z3, value, smt_constant(z3, bits, 1)));
    }
    for (unsigned i = 0; i < 3; i++) {
        launch->grid[i] = launch->params[at + i] = unsigned_variable(z3, "grid", i, 32);
        launch->block[i] = unsigned_variable(z3, "block", i, 32);
        Z3_solver_assert(z3, solver, Z3_mk_bvule(z3, launch->grid[i], smt_constant(z3, 32, most[i])));
        Z3_solver_assert(z3, solver, Z3_mk_bvult(z3, launch->block[i], launch->grid[i]));
    }
    launch->params[at + 3] = variable(z3, "z", 0, 64);
}

static void assert_assumptions(const meaning *m) {
    for (uint32_t i = 0; i < m->x->kernel->assume_count; i++)
        if (is_of_expression(m->x, m->x->kernel->assumes[i]))
            Z3_solver_assert(m->launch->z3, m->premises, mean(m, m->x->kernel->assumes[i]));
}

/* What the PTX stores, as wide as the expression; NULL: unknown. */
static Z3_ast stored_value(const smt_ptx *s, unsigned bits) {
    if (s->unknown[0] || s->stored_count != bits / 32) return NULL;
    if (s->stored_whole) return s->stored_whole;
    return bits == 32 ? s->stored[0] : Z3_mk_concat(s->launch->z3, s->stored[1], s->stored[0]);
}

static Z3_solver new_solver(Z3_context z3) {
    Z3_solver solver = Z3_mk_solver(z3);
    Z3_solver_inc_ref(z3, solver);
    Z3_params limits = Z3_mk_params(z3);
    Z3_params_inc_ref(z3, limits);
    Z3_params_set_uint(z3, limits, Z3_mk_string_symbol(z3, "rlimit"), STEPS);
    Z3_solver_set_params(z3, solver, limits);
    Z3_params_dec_ref(z3, limits);
    return solver;
}

/* Can they differ: where the premises hold, or, where that is too hard, anywhere? A proof of what holds
 * anywhere is one, a difference there is none. */
static Z3_lbool can_differ(Z3_context z3, Z3_solver premises, Z3_ast a, Z3_ast b) {
    Z3_ast differ = Z3_simplify(z3, Z3_mk_not(z3, Z3_mk_eq(z3, a, b)));
    if (Z3_get_bool_value(z3, differ) == Z3_L_FALSE) return Z3_L_FALSE;
    Z3_solver_assert(z3, premises, differ);
    Z3_lbool differs = Z3_solver_check(z3, premises);
    if (differs != Z3_L_UNDEF) return differs;
    Z3_solver anywhere = new_solver(z3);
    Z3_solver_assert(z3, anywhere, differ);
    differs = Z3_solver_check(z3, anywhere);
    Z3_solver_dec_ref(z3, anywhere);
    return differs == Z3_L_FALSE ? Z3_L_FALSE : Z3_L_UNDEF;
}

static void print_failure(Z3_context z3, Z3_solver solver, Z3_lbool differs, const extract *x,
                          const char *unknown, const char *ptx) {
    printf("%s: %s\n%s%s\n", differs == Z3_L_TRUE ? "refuted" : "unknown", unknown, x->text.data, ptx);
    if (differs != Z3_L_TRUE) return;
    Z3_model model = Z3_solver_get_model(z3, solver);
    Z3_model_inc_ref(z3, model);
    printf("where\n%s\n", Z3_model_to_string(z3, model));
    Z3_model_dec_ref(z3, model);
}

/* Z3_L_FALSE: proved. */
static Z3_lbool prove(const extract *x, uint32_t expr, bool no_negative, const char *ptx) {
    Z3_config config = Z3_mk_config();
    smt_launch launch = {.z3 = Z3_mk_context(config)};
    Z3_context z3 = launch.z3;
    Z3_del_config(config);
    Z3_solver solver = new_solver(z3);
    begin_launch(x, no_negative, &launch, solver);
    const meaning m = {x, &launch, solver};
    assert_assumptions(&m);
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
    if (taken && is_new(&x) && test_takes(known_count, ONE_OF)) {
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
