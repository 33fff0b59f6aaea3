/* Scalar expressions to PTX. What has one value during the whole kernel is computed once, at its entry. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "frame.h"
#include "operations.h"
#include "params.h"

static const char *bits_type(tvm_dtype type) {
    return type.kind != TVM_KIND_BOOL && type.bits == 64 ? "b64" : "b32";
}

/* A constant in the class of tvm_read_element. */
static reg emit_code(emitter *e, tvm_dtype type, uint64_t code) {
    reg out;
    if (type.kind == TVM_KIND_FLOAT && type.bits == 64) {
        out = tvm_new_fd(e);
        tvm_emit(e, "mov.f64 %s, 0d%016" PRIX64 ";", out.name, code);
    } else if (type.bits == 64) {
        out = tvm_new_rd(e);
        tvm_emit(e, "mov.b64 %s, 0x%" PRIx64 ";", out.name, code);
    } else if (type.kind == TVM_KIND_FLOAT && type.bits == 32) {
        out = tvm_new_f(e);
        tvm_emit(e, "mov.f32 %s, 0f%08" PRIX64 ";", out.name, code);
    } else if (type.kind == TVM_KIND_FLOAT && type.bits == 16) {
        out = tvm_new_h(e);
        tvm_emit(e, "mov.b16 %s, 0x%04" PRIx64 ";", out.name, code);
    } else {
        out = tvm_new_r(e);
        tvm_emit(e, "mov.b32 %s, 0x%" PRIx64 ";", out.name, code & UINT32_MAX);
    }
    return out;
}

static uint64_t integer_code(tvm_dtype type, int64_t value) {
    return type.bits >= 64 ? (uint64_t)value : (uint64_t)value & ((UINT64_C(1) << type.bits) - 1);
}

/* The bits of a constant expression in its own type. */
static bool constant_code(const emitter *e, uint32_t expr, uint64_t *code) {
    const tvm_expr *node = node_of(e->k, expr);
    int64_t value;
    if (node->op == TVM_EXPR_FLOAT) {
        *code = tvm_encode(node->type, node->value.f);
        return true;
    }
    if (node->type.kind == TVM_KIND_FLOAT || !tvm_fact_constant(e->k, expr, &value)) return false;
    *code = integer_code(node->type, value);
    return true;
}

static void emit_comparison(emitter *e, const tvm_expr *node, const char *destination) {
    tvm_dtype type = node_of(e->k, node->a)->type;
    reg a = tvm_emit_expr(e, node->a), b = tvm_emit_expr(e, node->b);
    unsigned test =
        node->op < TVM_EXPR_EQ ? node->op - TVM_EXPR_LT + TVM_LT : node->op - TVM_EXPR_EQ + TVM_EQ;
    tvm_emit(e, "setp.%s.%s %s, %s, %s;", tvm_test_name((tvm_compare)test, type), tvm_arithmetic_suffix(type),
             destination, a.name, b.name);
}

reg tvm_emit_condition(emitter *e, uint32_t expr) {
    const tvm_expr *node = node_of(e->k, expr);
    reg p = tvm_new_pred(e);
    if (tvm_expr_is_comparison(node->op) && !tvm_fact_stable(e->k, expr)) {
        emit_comparison(e, node, p.name);
        return p;
    }
    if (node->op == TVM_EXPR_LAND || node->op == TVM_EXPR_LOR) {
        reg a = tvm_emit_condition(e, node->a), b = tvm_emit_condition(e, node->b);
        tvm_emit(e, "%s.pred %s, %s, %s;", node->op == TVM_EXPR_LAND ? "and" : "or", p.name, a.name, b.name);
        return p;
    }
    if (node->op == TVM_EXPR_LNOT) {
        reg a = tvm_emit_condition(e, node->a);
        tvm_emit(e, "not.pred %s, %s;", p.name, a.name);
        return p;
    }
    reg value = tvm_emit_expr(e, expr);
    tvm_dtype type = node->type;
    if (type.kind == TVM_KIND_FLOAT)
        tvm_emit(e, "setp.neu.%s %s, %s, %s;", tvm_arithmetic_suffix(type), p.name, value.name,
                 type.bits == 64 ? "0d0000000000000000" : "0f00000000");
    else
        tvm_emit(e, "setp.ne.%s %s, %s, 0;", tvm_arithmetic_suffix(type), p.name, value.name);
    return p;
}

/* A power of two as the right operand: shifts and masks instead of a division, where the left is not
 * negative. */
static bool divide_by_power(emitter *e, const tvm_expr *node, reg a, reg out) {
    int64_t by;
    if (!tvm_fact_constant(e->k, node->b, &by) || by <= 0 || (by & (by - 1)) != 0) return false;
    if (node->type.kind == TVM_KIND_FLOAT || !tvm_fact_not_negative(e->k, node->a)) return false;
    unsigned shift = 0;
    while ((INT64_C(1) << shift) < by) shift++;
    if (node->op == TVM_EXPR_DIV)
        tvm_emit(e, "shr.%s %s, %s, %u;", node->type.bits == 64 ? "u64" : "u32", out.name, a.name, shift);
    else
        tvm_emit(e, "and.%s %s, %s, %" PRId64 ";", bits_type(node->type), out.name, a.name, by - 1);
    return true;
}

static void emit_shift(emitter *e, const tvm_expr *node, reg a, reg b, reg out) {
    tvm_dtype count_type = node_of(e->k, node->b)->type;
    reg count = tvm_new_r(e);
    if (count_type.bits == 64 && count_type.kind != TVM_KIND_BOOL) {
        reg narrow = tvm_new_r(e);
        tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, b.name);
        b = narrow;
    }
    tvm_emit(e, "and.b32 %s, %s, %u;", count.name, b.name, node->type.bits == 64 ? 63 : 31);
    if (node->op == TVM_EXPR_SHL)
        tvm_emit(e, "shl.%s %s, %s, %s;", bits_type(node->type), out.name, a.name, count.name);
    else
        tvm_emit(e, "shr.%s %s, %s, %s;", tvm_arithmetic_suffix(node->type), out.name, a.name, count.name);
}

static void emit_cdiv(emitter *e, const tvm_expr *node, reg a, reg b, reg out) {
    const char *type = tvm_arithmetic_suffix(node->type);
    reg sum = tvm_new_element(e, node->type), less = tvm_new_element(e, node->type);
    tvm_emit(e, "add.%s %s, %s, %s;", type, sum.name, a.name, b.name);
    tvm_emit(e, "add.%s %s, %s, -1;", node->type.bits == 64 ? "s64" : "s32", less.name, sum.name);
    tvm_emit(e, "div.%s %s, %s, %s;", type, out.name, less.name, b.name);
}

/* The element-wise operation that the operator means, of one element; without its care for a divisor of 0,
 * which is an error here. */
static void emit_arithmetic(emitter *e, const tvm_expr *node, reg a, reg b, reg out) {
    const operation *o = tvm_operation_of(tvm_expr_op_info(node->op)->instruction);
    const char *type = tvm_arithmetic_suffix(node->type);
    if (node->type.kind != TVM_KIND_FLOAT && (node->op == TVM_EXPR_DIV || node->op == TVM_EXPR_MOD))
        tvm_emit(e, "%s.%s %s, %s, %s;", node->op == TVM_EXPR_DIV ? "div" : "rem", type, out.name, a.name,
                 b.name);
    else if (node->op == TVM_EXPR_LAND || node->op == TVM_EXPR_LOR)
        tvm_emit(e, "%s.b32 %s, %s, %s;", node->op == TVM_EXPR_LAND ? "and" : "or", out.name, a.name, b.name);
    else
        tvm_emit_sequence_to(e, tvm_operation_single(o, false, node->type),
                             (sequence_type){type, 'r', node->type.bits}, (reg[3]){a, b}, out);
}

/* Of a word not by neg, nor by sub from 0: ptxas 13.0 makes one instruction of two min or max, for sm_90 and
 * sm_100, and forgets that their operands are negated. */
static void emit_negated(emitter *e, tvm_dtype type, reg a, reg out) {
    if (type.kind != TVM_KIND_BOOL && type.bits == 64) {
        tvm_emit(e, "neg.s64 %s, %s;", out.name, a.name);
        return;
    }
    reg others = tvm_new_r(e);
    tvm_emit(e, "not.b32 %s, %s;", others.name, a.name);
    tvm_emit(e, "add.s32 %s, %s, 1;", out.name, others.name);
}

/* 0 - x, and x * -1. */
static bool is_negation(const emitter *e, const tvm_expr *node) {
    int64_t value;
    if (node->op == TVM_EXPR_SUB) return tvm_fact_constant(e->k, node->a, &value) && value == 0;
    return node->op == TVM_EXPR_MUL && tvm_fact_constant(e->k, node->b, &value) && value == -1;
}

reg tvm_least_operand(emitter *e, uint32_t expr, reg value) {
    const tvm_expr *node = &e->k->kernel->exprs[expr];
    bool one = (node->op == TVM_EXPR_FLOAT && node->value.f == 1) ||
               (node->op == TVM_EXPR_INTEGER && node->value.i == 1);
    return one ? tvm_hidden_word(e, tvm_f32_bits(1)) : value;
}

static void emit_binary(emitter *e, const tvm_expr *node, reg out) {
    reg a = tvm_emit_expr(e, node->a), b = tvm_emit_expr(e, node->b);
    if (node->op == TVM_EXPR_MIN && node->type.kind == TVM_KIND_FLOAT && node->type.bits == 32) {
        a = tvm_least_operand(e, node->a, a);
        b = tvm_least_operand(e, node->b, b);
    }
    if (node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_SHR)
        emit_shift(e, node, a, b, out);
    else if (node->op == TVM_EXPR_CDIV)
        emit_cdiv(e, node, a, b, out);
    else if (node->type.kind != TVM_KIND_FLOAT && is_negation(e, node))
        emit_negated(e, node->type, node->op == TVM_EXPR_SUB ? b : a, out);
    else if ((node->op != TVM_EXPR_DIV && node->op != TVM_EXPR_MOD) || !divide_by_power(e, node, a, out))
        emit_arithmetic(e, node, a, b, out);
}

static void emit_unary(emitter *e, const tvm_expr *node, reg out) {
    reg a = tvm_emit_expr(e, node->a);
    const char *type = tvm_arithmetic_suffix(node->type);
    if (node->op == TVM_EXPR_NOT)
        tvm_emit(e, "not.%s %s, %s;", bits_type(node->type), out.name, a.name);
    else if (node->op == TVM_EXPR_LNOT)
        tvm_emit(e, "xor.b32 %s, %s, 1;", out.name, a.name);
    else if (node->type.kind == TVM_KIND_FLOAT)
        tvm_emit(e, "neg.%s %s, %s;", type, out.name, a.name);
    else
        emit_negated(e, node->type, a, out);
}

static void emit_select(emitter *e, const tvm_expr *node, reg out) {
    reg p = tvm_emit_condition(e, node->a);
    reg a = tvm_emit_expr(e, node->b), b = tvm_emit_expr(e, node->c);
    const char *type =
        node->type.kind == TVM_KIND_FLOAT ? tvm_arithmetic_suffix(node->type) : bits_type(node->type);
    tvm_emit(e, "selp.%s %s, %s, %s, %s;", type, out.name, a.name, b.name, p.name);
}

static reg emit_node(emitter *e, const tvm_expr *node) {
    if (node->op == TVM_EXPR_SLOT) {
        const slot_fact *fact = &e->k->facts->slots[node->a];
        if (fact->stable && fact->definition != TVM_NONE) return tvm_emit_expr(e, fact->definition);
        reg value = {""};
        memcpy(value.name, e->slots[node->a].reg, sizeof value.name);
        return value;
    }
    if (node->op == TVM_EXPR_CAST)
        return tvm_emit_convert(e, node->type, node_of(e->k, node->a)->type, tvm_emit_expr(e, node->a),
                                false);
    reg out = tvm_new_element(e, node->type);
    if (node->op == TVM_EXPR_BLOCK || node->op == TVM_EXPR_GRID) {
        char text[16];
        tvm_emit(e, "mov.u32 %s, %s;", out.name,
                 node->op == TVM_EXPR_BLOCK ? tvm_frame_block(e, node->a, text)
                                            : tvm_frame_grid(e, node->a, text));
    } else if (tvm_expr_is_of_device(node->op)) {
        tvm_emit_load_device(e, node, out);
    } else if (tvm_expr_is_comparison(node->op)) {
        reg p = tvm_new_pred(e);
        emit_comparison(e, node, p.name);
        tvm_emit(e, "selp.b32 %s, 1, 0, %s;", out.name, p.name);
    } else if (node->op == TVM_EXPR_SELECT) {
        emit_select(e, node, out);
    } else if (node->op == TVM_EXPR_NEG || node->op == TVM_EXPR_NOT || node->op == TVM_EXPR_LNOT) {
        emit_unary(e, node, out);
    } else {
        emit_binary(e, node, out);
    }
    return out;
}

static void exchange(emitter *e) {
    tvm_text body = e->body;
    e->body = e->prologue;
    e->prologue = body;
    e->values.in_prologue = !e->values.in_prologue;
}

reg tvm_emit_expr(emitter *e, uint32_t expr) {
    expr_values *c = &e->values;
    uint64_t code;
    if (c->stable[expr].name[0]) return c->stable[expr];
    /* Literals are not kept in registers: ptxas makes them immediates where they are used. */
    if (constant_code(e, expr, &code)) return emit_code(e, node_of(e->k, expr)->type, code);
    if (tvm_fact_stable(e->k, expr)) {
        bool enter = !c->in_prologue;
        unsigned conditions = tvm_fact_set_aside(e->k, 0);
        if (enter) exchange(e);
        reg value = emit_node(e, node_of(e->k, expr));
        if (enter) exchange(e);
        tvm_fact_leave(e->k, conditions);
        c->stable[expr] = value;
        return value;
    }
    if (c->local_stamp[expr] == c->stamp) return c->local[expr];
    reg value = emit_node(e, node_of(e->k, expr));
    c->local[expr] = value;
    c->local_stamp[expr] = c->stamp;
    return value;
}

reg tvm_emit_expr_as(emitter *e, uint32_t expr, tvm_dtype type, bool lowbit) {
    tvm_dtype from = node_of(e->k, expr)->type;
    uint64_t code;
    if (constant_code(e, expr, &code)) return emit_code(e, type, tvm_cast(type, from, code, lowbit));
    return tvm_emit_convert(e, type, from, tvm_emit_expr(e, expr), lowbit);
}
