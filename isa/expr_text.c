#include "expr_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    tvm_text *out;
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
} printer;

/* What a literal's surroundings make of it when it does not say its type. */
typedef enum context { BY_DEFAULT, AS_F64, ADAPTS } context;

static void print(const printer *p, uint32_t expr, unsigned least, context how);

const char *tvm_reserved_word(size_t index) {
    static const char *const words[] = {"true",      "false",           "inf",   "nan", "block", "grid",
                                        "row_major", "multiprocessors", "target"};
    return index < sizeof words / sizeof *words ? words[index] : NULL;
}

bool tvm_is_reserved(const char *name, size_t length) {
    const char *word;
    for (size_t i = 0; (word = tvm_reserved_word(i)); i++)
        if (strlen(word) == length && memcmp(word, name, length) == 0) return true;
    return false;
}

/* A scalar parameter whose name means something else where a statement or an expression begins is written
 * `(name)`. */
void tvm_print_slot(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                    uint32_t slot) {
    const char *name = tvm_string(program, kernel->slots[slot].name);
    size_t length = strlen(name);
    bool bare = !tvm_is_reserved(name, length) && tvm_op_by_name(name, length) == TVM_OP_COUNT;
    if (slot >= kernel->param_count)
        tvm_text_add(out, "%%%s", name);
    else
        tvm_text_add(out, bare || kernel->slots[slot].kind != TVM_SLOT_SCALAR ? "%s" : "(%s)", name);
}

static bool is_literal(const tvm_expr *node) {
    return node->op == TVM_EXPR_INTEGER || node->op == TVM_EXPR_FLOAT;
}

/* ---- literals ---- */

/* The shortest decimal that reads back as the value. */
static void float_text(char text[64], tvm_dtype type, double value) {
    if (isnan(value) || isinf(value)) {
        snprintf(text, 64, "%s%s", signbit(value) ? "-" : "", isnan(value) ? "nan" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 64, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (type.bits == 32) back = (double)(float)back;
        if (back == value) break;
    }
    if (!strpbrk(text, ".e")) snprintf(text + strlen(text), 64 - strlen(text), ".0");
}

void tvm_print_scalar(tvm_text *out, tvm_dtype type, tvm_scalar value) {
    char text[64];
    if (type.kind == TVM_KIND_FLOAT) {
        float_text(text, type, value.f);
        tvm_text_puts(out, text);
    } else if (type.kind == TVM_KIND_BOOL) {
        tvm_text_puts(out, value.i ? "true" : "false");
    } else if (type.kind == TVM_KIND_UINT) {
        tvm_text_add(out, "%" PRIu64, value.u);
    } else {
        tvm_text_add(out, "%" PRId64, value.i);
    }
}

static bool is_least(const tvm_expr *node) {
    return node->type.kind == TVM_KIND_INT && node->value.i == INT64_MIN;
}

static bool needs_type(const tvm_expr *node, context how) {
    if (node->type.kind == TVM_KIND_BOOL) return false;
    if (is_least(node)) return true;
    if (how == ADAPTS) return false;
    if (node->op == TVM_EXPR_FLOAT) return node->type.bits != 32 || how == AS_F64;
    return !tvm_dtype_same(node->type, TVM_I(32));
}

static void print_literal(const printer *p, const tvm_expr *node, context how) {
    bool typed = needs_type(node, how);
    tvm_scalar value = {.i = node->value.i};
    if (node->op == TVM_EXPR_FLOAT) value.f = node->value.f;
    if (typed) tvm_text_add(p->out, "%s(", TVM_DTYPE_TEXT(node->type));
    if (is_least(node)) /* as an unsigned number: negating its magnitude would not fit */
        tvm_text_puts(p->out, "0x8000000000000000");
    else
        tvm_print_scalar(p->out, node->type, value);
    if (typed) tvm_text_puts(p->out, ")");
}

/* ---- operators ---- */

/* A literal takes the type of its neighbour if that has one of its own. */
static context beside(const printer *p, uint32_t neighbour) {
    return is_literal(&p->kernel->exprs[neighbour]) ? BY_DEFAULT : ADAPTS;
}

static void print_infix(const printer *p, const tvm_expr *node, const tvm_expr_info *info) {
    bool shift = node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_SHR;
    print(p, node->a, info->precedence, shift ? BY_DEFAULT : beside(p, node->b));
    tvm_text_add(p->out, " %s ", info->text);
    print(p, node->b, info->precedence + 1, shift ? BY_DEFAULT : beside(p, node->a));
}

static void print_select(const printer *p, const tvm_expr *node, const tvm_expr_info *info) {
    print(p, node->a, info->precedence + 1, BY_DEFAULT);
    tvm_text_puts(p->out, " ? ");
    print(p, node->b, 0, beside(p, node->c));
    tvm_text_puts(p->out, " : ");
    print(p, node->c, info->precedence, beside(p, node->b));
}

static void print_call(const printer *p, const tvm_expr *node, const tvm_expr_info *info) {
    if (node->op == TVM_EXPR_CAST) {
        tvm_text_add(p->out, "%s(", TVM_DTYPE_TEXT(node->type));
        print(p, node->a, 0, BY_DEFAULT);
    } else {
        tvm_text_add(p->out, "%s(", info->text);
        print(p, node->a, 0, beside(p, node->b));
        tvm_text_puts(p->out, ", ");
        print(p, node->b, 0, beside(p, node->a));
    }
    tvm_text_puts(p->out, ")");
}

static void print_operator(const printer *p, const tvm_expr *node) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    if (info->precedence == TVM_EXPR_CALL) {
        print_call(p, node, info);
    } else if (info->arity == 1) {
        tvm_text_puts(p->out, info->text);
        print(p, node->a, info->precedence, BY_DEFAULT);
    } else if (info->arity == 2) {
        print_infix(p, node, info);
    } else {
        print_select(p, node, info);
    }
}

/* In parentheses if it binds less than `least`. The size limit of an expression bounds the recursion. */
static void print(const printer *p, uint32_t expr, unsigned least, context how) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    switch (node->op) {
    case TVM_EXPR_INTEGER:
    case TVM_EXPR_FLOAT:
        print_literal(p, node, how);
        return;
    case TVM_EXPR_SLOT:
        tvm_print_slot(p->out, p->program, p->kernel, node->a);
        return;
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
        tvm_text_add(p->out, "%s.%c", node->op == TVM_EXPR_BLOCK ? "block" : "grid", (char)('x' + node->a));
        return;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
        tvm_text_puts(p->out, tvm_expr_op_info(node->op)->text);
        return;
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        tvm_text_add(p->out, "%s(%s)", tvm_expr_op_info(node->op)->text,
                     node->op == TVM_EXPR_HAS ? tvm_capability_name(node->a) : tvm_limit_name(node->a));
        return;
    default:
        break;
    }
    bool parentheses = tvm_expr_op_info(node->op)->precedence < least;
    if (parentheses) tvm_text_puts(p->out, "(");
    print_operator(p, node);
    if (parentheses) tvm_text_puts(p->out, ")");
}

void tvm_print_expr(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                    bool wide) {
    printer p = {out, program, kernel};
    print(&p, expr, 0, wide ? AS_F64 : BY_DEFAULT);
}

void tvm_print_comparison(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          uint32_t expr, tvm_expr_op op) {
    printer p = {out, program, kernel};
    print_infix(&p, &kernel->exprs[expr], tvm_expr_op_info(op));
}
