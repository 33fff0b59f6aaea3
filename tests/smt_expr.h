/* Expressions of the bytecode as terms of bit vectors, for proofs by Z3: what an expression means, from the
 * comments of isa/expr.def alone, the values that a launch can have, and the text of a kernel of its own in
 * which the scalars of a part of another kernel are parameters. */
#ifndef TVM_TESTS_SMT_EXPR_H
#define TVM_TESTS_SMT_EXPR_H

#include "check_kit.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "program.h"
#include "smt_ptx.h"
#include "text.h"

/* NODES: of an expression that is taken; STEPS: of Z3 for the value of an expression. */
enum { NODES = 120, SLOTS = 24, STEPS = 100000000, KNOWN_MAX = 1 << 16 };

/* An expression as a kernel of its own: its scalars are parameters p0, p1, ... in the order in which they
 * appear. */
typedef struct extract {
    const tvm_ir_kernel *kernel;
    uint32_t slots[SLOTS];
    unsigned slot_count;
    tvm_text text;
    bool refused;   /* it has something that is not taken */
    bool is_extent; /* of a parameter: what the grid is stands there as a parameter */
} extract;

/* ---- the text of an expression ---- */

static const char *type_name(tvm_dtype type) {
    static char name[TVM_DTYPE_NAME_MAX];
    return tvm_dtype_name(type, name);
}

static inline unsigned parameter_of(extract *x, uint32_t slot) {
    for (unsigned i = 0; i < x->slot_count; i++)
        if (x->slots[i] == slot) return i;
    if (x->slot_count == SLOTS) {
        x->refused = true;
        return 0;
    }
    x->slots[x->slot_count] = slot;
    return x->slot_count++;
}

static inline void write_expression(extract *x, uint32_t expr);

static inline void write_leaf(extract *x, const tvm_expr *node) {
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
        if (node->op == TVM_EXPR_GRID && x->is_extent) {
            tvm_text_add(&x->text, "g%u", node->a);
            break;
        }
        tvm_text_add(&x->text, "%s.%c", node->op == TVM_EXPR_BLOCK ? "block" : "grid", axes[node->a]);
        break;
    default:
        x->refused = true;
    }
}

static inline void write_node(extract *x, const tvm_expr *node, const tvm_expr_info *info) {
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

static inline void write_expression(extract *x, uint32_t expr) {
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

static inline Z3_ast mean(const meaning *m, uint32_t expr);

static inline Z3_ast mean_leaf(const meaning *m, const tvm_expr *node) {
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

static inline Z3_ast mean_cast(const meaning *m, const tvm_expr *node) {
    Z3_context z3 = m->launch->z3;
    tvm_dtype from = m->x->kernel->exprs[node->a].type;
    Z3_ast a = mean(m, node->a);
    if (node->type.kind == TVM_KIND_BOOL)
        return from.kind == TVM_KIND_BOOL ? a
                                          : Z3_mk_not(z3, Z3_mk_eq(z3, a, smt_constant(z3, from.bits, 0)));
    if (from.kind == TVM_KIND_BOOL) return smt_number(z3, a, node->type.bits);
    return smt_resize(z3, a, node->type.bits, from.kind == TVM_KIND_INT);
}

/* Is the sign known to be 0? */
static inline bool is_unsigned_term(Z3_context z3, Z3_ast a) {
    uint64_t sign = 1;
    unsigned top = smt_bits(z3, a) - 1;
    Z3_ast bit = Z3_simplify(z3, Z3_mk_extract(z3, top, top, a));
    return Z3_is_numeral_ast(z3, bit) && Z3_get_numeral_uint64(z3, bit, &sign) && sign == 0;
}

/* Toward zero; a divisor is not 0. */
static inline Z3_ast mean_division(const meaning *m, const tvm_expr *node, Z3_ast a, Z3_ast b) {
    Z3_context z3 = m->launch->z3;
    bool is_signed = node->type.kind == TVM_KIND_INT;
    Z3_ast one = smt_constant(z3, node->type.bits, 1);
    Z3_solver_assert(z3, m->premises, Z3_mk_not(z3, Z3_mk_eq(z3, b, smt_constant(z3, node->type.bits, 0))));
    if (node->op == TVM_EXPR_CDIV) a = Z3_mk_bvsub(z3, Z3_mk_bvadd(z3, a, b), one);
    is_signed = is_signed && !(is_unsigned_term(z3, a) && is_unsigned_term(z3, b));
    if (node->op == TVM_EXPR_MOD) return is_signed ? Z3_mk_bvsrem(z3, a, b) : Z3_mk_bvurem(z3, a, b);
    return is_signed ? Z3_mk_bvsdiv(z3, a, b) : Z3_mk_bvudiv(z3, a, b);
}

/* The count modulo the width, which is a power of two. */
static inline Z3_ast mean_shift(const meaning *m, const tvm_expr *node, Z3_ast a, Z3_ast b) {
    Z3_context z3 = m->launch->z3;
    unsigned bits = node->type.bits;
    b = Z3_mk_bvurem(z3, smt_resize(z3, b, bits, false), smt_constant(z3, bits, bits));
    if (node->op == TVM_EXPR_SHL) return Z3_mk_bvshl(z3, a, b);
    return node->type.kind == TVM_KIND_INT ? Z3_mk_bvashr(z3, a, b) : Z3_mk_bvlshr(z3, a, b);
}

static inline Z3_ast mean_binary(const meaning *m, const tvm_expr *node) {
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

static inline Z3_ast mean(const meaning *m, uint32_t expr) {
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

/* ---- a kernel of its own ---- */

/* Has the assumption no scalars but parameters that the expression has? */
static inline bool is_of_expression(const extract *x, uint32_t expr) {
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

/* The parameters, up to the tensors. */
static inline void write_parameters(extract *x) {
    tvm_text_add(&x->text, ".vasm 7\n.kernel k(");
    for (unsigned i = 0; i < x->slot_count; i++)
        tvm_text_add(&x->text, "p%u: %s, ", i, type_name(x->kernel->slots[x->slots[i]].dtype));
    tvm_text_add(&x->text, "g0: i32, g1: i32, g2: i32");
}

static inline void write_assumptions(extract *x, bool no_negative) {
    for (unsigned i = 0; i < x->slot_count && no_negative; i++)
        if (x->kernel->slots[x->slots[i]].dtype.kind == TVM_KIND_INT)
            tvm_text_add(&x->text, ".assume p%u >= 0\n", i);
    for (uint32_t i = 0; i < x->kernel->assume_count; i++) {
        if (!is_of_expression(x, x->kernel->assumes[i])) continue;
        tvm_text_add(&x->text, ".assume ");
        write_expression(x, x->kernel->assumes[i]);
        tvm_text_add(&x->text, "\n");
    }
}

/* Texts that have been looked at. */
typedef struct known_texts {
    uint64_t hashes[KNOWN_MAX];
    size_t count;
} known_texts;

static inline bool is_new(known_texts *known, const extract *x) {
    uint64_t hash = XXH3_64bits(x->text.data, x->text.size);
    for (size_t i = hash % KNOWN_MAX; known->count < KNOWN_MAX / 2; i = (i + 1) % KNOWN_MAX) {
        if (known->hashes[i] == hash) return false;
        if (known->hashes[i] != 0) continue;
        known->hashes[i] = hash;
        known->count++;
        break;
    }
    return true;
}

/* ---- a proof ---- */

static inline Z3_ast variable(Z3_context z3, const char *name, unsigned number, unsigned bits) {
    char text[16];
    snprintf(text, sizeof text, "%s%u", name, number);
    return Z3_mk_const(z3, Z3_mk_string_symbol(z3, text), Z3_mk_bv_sort(z3, bits));
}

/* Of one that is not negative the sign is known to be 0, so that terms are simpler. */
static inline Z3_ast unsigned_variable(Z3_context z3, const char *name, unsigned number, unsigned bits) {
    return Z3_mk_zero_ext(z3, 1, variable(z3, name, number, bits - 1));
}

/* The values that a launch can have: CUDA C++ Programming Guide, "Technical Specifications", for the grid. */
static inline void begin_launch(const extract *x, bool no_negative, smt_launch *launch, Z3_solver solver) {
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

/* Has the expression a product, a quotient or a remainder of what is no number? */
static inline bool has_products(const tvm_ir_kernel *kernel, uint32_t expr) {
    const tvm_expr *node = &kernel->exprs[expr];
    bool has = node->op == TVM_EXPR_MUL && kernel->exprs[node->a].op != TVM_EXPR_INTEGER &&
               kernel->exprs[node->b].op != TVM_EXPR_INTEGER;
    has = has || ((node->op == TVM_EXPR_DIV || node->op == TVM_EXPR_CDIV || node->op == TVM_EXPR_MOD) &&
                  kernel->exprs[node->b].op != TVM_EXPR_INTEGER);
    for (unsigned i = 0; i < tvm_expr_op_info(node->op)->arity && !has; i++)
        has = has_products(kernel, node->operands[i]);
    return has;
}

/* Those with such products, or the others, or all. */
typedef enum kinds { WITHOUT_PRODUCTS = 1, WITH_PRODUCTS = 2, ALL_KINDS = 3 } kinds;

static inline void assert_assumptions(const meaning *m, kinds which) {
    for (uint32_t i = 0; i < m->x->kernel->assume_count; i++) {
        uint32_t expr = m->x->kernel->assumes[i];
        if (!is_of_expression(m->x, expr)) continue;
        if (which & (has_products(m->x->kernel, expr) ? WITH_PRODUCTS : WITHOUT_PRODUCTS))
            Z3_solver_assert(m->launch->z3, m->premises, mean(m, expr));
    }
}

static inline Z3_solver new_solver(Z3_context z3, unsigned steps) {
    Z3_solver solver = Z3_mk_solver(z3);
    Z3_solver_inc_ref(z3, solver);
    Z3_params limits = Z3_mk_params(z3);
    Z3_params_inc_ref(z3, limits);
    Z3_params_set_uint(z3, limits, Z3_mk_string_symbol(z3, "rlimit"), steps);
    Z3_solver_set_params(z3, solver, limits);
    Z3_params_dec_ref(z3, limits);
    return solver;
}

/* Can they differ: where the premises hold, or, where that is too hard, anywhere? A proof of what holds
 * anywhere is one, a difference there is none. */
static inline Z3_lbool can_differ(Z3_context z3, Z3_solver premises, Z3_ast a, Z3_ast b) {
    Z3_ast differ = Z3_simplify(z3, Z3_mk_not(z3, Z3_mk_eq(z3, a, b)));
    if (Z3_get_bool_value(z3, differ) == Z3_L_FALSE) return Z3_L_FALSE;
    Z3_solver_assert(z3, premises, differ);
    Z3_lbool differs = Z3_solver_check(z3, premises);
    if (differs != Z3_L_UNDEF) return differs;
    Z3_solver anywhere = new_solver(z3, STEPS);
    Z3_solver_assert(z3, anywhere, differ);
    differs = Z3_solver_check(z3, anywhere);
    Z3_solver_dec_ref(z3, anywhere);
    return differs == Z3_L_FALSE ? Z3_L_FALSE : Z3_L_UNDEF;
}

static inline void print_failure(Z3_context z3, Z3_solver solver, Z3_lbool differs, const extract *x,
                                 const char *unknown, const char *ptx) {
    printf("%s: %s\n%s%s\n", differs == Z3_L_TRUE ? "refuted" : "unknown", unknown, x->text.data, ptx);
    if (differs != Z3_L_TRUE) return;
    Z3_model model = Z3_solver_get_model(z3, solver);
    Z3_model_inc_ref(z3, model);
    printf("where\n%s\n", Z3_model_to_string(z3, model));
    Z3_model_dec_ref(z3, model);
}

#endif
