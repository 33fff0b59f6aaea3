/* Scalars, as far as the certificate names them. */
#include "check_impl.h"

enum { MOST = 1 << 16 };

static check_value any(void) {
    return (check_value){0};
}

static check_value exact(int64_t v) {
    return (check_value){.kind = CHECK_EXACT, .v = v};
}

static bool is_whole(tvm_dtype type) {
    return (tvm_dtype_is_integer(type) && !(type.kind == TVM_KIND_UINT && type.bits == 64)) ||
           type.kind == TVM_KIND_BOOL;
}

static int64_t type_max(tvm_dtype type) {
    unsigned bits = type.kind == TVM_KIND_INT ? type.bits - 1u : type.bits;
    return bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1;
}

/* Of a class with a number: what does not wrap. */
static check_value of_class(const tvm_expr *node, check_value a, check_value b) {
    if (a.kind != CHECK_CLASS && node->op == TVM_EXPR_ADD) {
        check_value swap = a;
        a = b;
        b = swap;
    }
    if (a.kind != CHECK_CLASS || b.kind != CHECK_EXACT || b.v < 0 || b.v > MOST) return any();
    const int64_t most = type_max(node->type);
    check_value value = a;
    switch (node->op) {
    case TVM_EXPR_ADD:
        if (a.high > most - b.v) return any();
        value.high += b.v;
        value.v = (a.v + b.v) % a.modulus;
        return value;
    case TVM_EXPR_DIV:
        if (b.v == 0 || a.modulus % b.v) return any();
        value.high /= b.v;
        value.v /= b.v;
        value.modulus /= (uint32_t)b.v;
        return value;
    case TVM_EXPR_MOD:
        return b.v != 0 && a.modulus % b.v == 0 ? exact(a.v % b.v) : any();
    case TVM_EXPR_AND:
        return (b.v & (b.v + 1)) == 0 && a.modulus % (b.v + 1) == 0 ? exact(a.v % (b.v + 1)) : any();
    default:
        return any();
    }
}

check_value tvm_check_eval(const checker *c, const check_state *state, uint32_t expr) {
    const tvm_expr *node = &c->kernel->exprs[expr];
    const unsigned arity = tvm_expr_arity(node);
    if (node->op == TVM_EXPR_INTEGER) return is_whole(node->type) ? exact(node->value.i) : any();
    if (node->op == TVM_EXPR_SLOT)
        return c->scalar_of[node->a] >= 0 ? state->values[c->scalar_of[node->a]] : any();
    if (arity == 0 || !is_whole(node->type) || !is_whole(c->kernel->exprs[node->a].type)) return any();
    check_value values[3];
    tvm_scalar operands[3] = {{0}, {0}, {0}}, result;
    bool known = true;
    for (unsigned i = 0; i < arity; i++) {
        values[i] = tvm_check_eval(c, state, node->operands[i]);
        known = known && values[i].kind == CHECK_EXACT;
        operands[i].i = values[i].v;
    }
    if (known) {
        bool made = tvm_expr_apply(node, c->kernel->exprs[node->a].type, operands, &result, NULL) == TVM_OK;
        return made ? exact(result.i) : any();
    }
    return arity == 2 ? of_class(node, values[0], values[1]) : any();
}

void tvm_check_assign(const checker *c, check_state *state, uint32_t slot, check_value value) {
    if (slot == TVM_NONE || c->scalar_of[slot] < 0) return;
    state->values[c->scalar_of[slot]] = is_whole(c->kernel->slots[slot].dtype) ? value : any();
}

bool tvm_check_includes(const check_value *wide, const check_value *value) {
    if (wide->kind == CHECK_ANY) return true;
    if (wide->kind == CHECK_EXACT) return value->kind == CHECK_EXACT && value->v == wide->v;
    if (value->kind == CHECK_EXACT)
        return value->v >= 0 && value->v <= wide->high && value->v % wide->modulus == wide->v;
    return value->kind == CHECK_CLASS && value->high <= wide->high && value->modulus % wide->modulus == 0 &&
           value->v % wide->modulus == wide->v;
}

/* ---- loops ---- */

/* A number; 0: another expression, or no step of a loop. */
static int64_t step_of(const checker *c, const tvm_insn *loop) {
    const tvm_expr *step = &c->kernel->exprs[tvm_operands(c->kernel, loop)[2].value];
    bool plain = step->op == TVM_EXPR_INTEGER && step->value.i >= 1 && step->value.i <= INT32_MAX;
    return plain ? step->value.i : 0;
}

/* The sum is a mathematical integer, by vasm(5): it does not wrap. */
check_value tvm_check_next_turn(const checker *c, const check_state *state, const tvm_insn *loop) {
    int64_t step = step_of(c, loop);
    if (c->scalar_of[loop->result] < 0 || step == 0) return any();
    check_value value = state->values[c->scalar_of[loop->result]];
    int64_t *last = value.kind == CHECK_CLASS ? &value.high : &value.v;
    if (value.kind == CHECK_ANY || *last > INT64_MAX - step) return any();
    *last += step;
    if (value.kind == CHECK_CLASS) value.v = (value.v + step % value.modulus) % value.modulus;
    return value;
}

int tvm_check_decides(const checker *c, const check_state *state, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    if (insn->op != TVM_OP_FOR) {
        check_value condition = tvm_check_eval(c, state, operands[0].value);
        return condition.kind == CHECK_EXACT ? condition.v != 0 : -1;
    }
    /* what the end is was found before the first turn: a number alone is it still */
    const tvm_expr *end = &c->kernel->exprs[operands[1].value];
    if (c->scalar_of[insn->result] < 0 || end->op != TVM_EXPR_INTEGER || !is_whole(end->type)) return -1;
    const check_value *variable = &state->values[c->scalar_of[insn->result]];
    return variable->kind == CHECK_EXACT ? variable->v < end->value.i : -1;
}

void tvm_check_goes_on(const checker *c, check_state *state, const tvm_insn *loop) {
    if (loop->op != TVM_OP_FOR || c->scalar_of[loop->result] < 0) return;
    check_value *variable = &state->values[c->scalar_of[loop->result]];
    const tvm_expr *end = &c->kernel->exprs[tvm_operands(c->kernel, loop)[1].value];
    int64_t most = end->op == TVM_EXPR_INTEGER ? end->value.i : type_max(end->type);
    if (variable->kind == CHECK_CLASS && most > 0 && variable->high >= most) variable->high = most - 1;
}
