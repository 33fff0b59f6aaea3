#include "program.h"
#include "typing.h"

#include <math.h>
#include <string.h>

/* ---- values ---- */

static tvm_scalar of_i64(int64_t value) {
    return (tvm_scalar){.i = value};
}

/* The low bits of an integer as a value of the type: sign- or zero-extended. */
static tvm_scalar wrapped(tvm_dtype type, uint64_t bits) {
    if (type.kind == TVM_KIND_BOOL) return of_i64(bits != 0);
    if (type.bits < 64) {
        unsigned unused = 64u - type.bits;
        bits <<= unused;
        bits = type.kind == TVM_KIND_INT ? (uint64_t)((int64_t)bits >> unused) : bits >> unused;
    }
    return (tvm_scalar){.u = bits};
}

/* f32 is held as the double of the same value; + - * / of two such doubles, rounded again to f32, is the
 * correctly rounded result because 53 >= 2 * 24 + 2. */
static tvm_scalar rounded(tvm_dtype type, double value) {
    return (tvm_scalar){.f = type.bits == 32 ? (double)(float)value : value};
}

static uint64_t scalar_code(tvm_dtype type, tvm_scalar value) {
    uint64_t code = value.u;
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) {
        float narrow = (float)value.f;
        uint32_t word;
        memcpy(&word, &narrow, sizeof word);
        code = word;
    }
    return type.bits < 64 ? code & ((UINT64_C(1) << type.bits) - 1) : code;
}

tvm_scalar tvm_scalar_cast(tvm_dtype to, tvm_dtype from, tvm_scalar value) {
    if (from.kind != TVM_KIND_FLOAT && to.kind != TVM_KIND_FLOAT) return wrapped(to, value.u);
    uint64_t code = tvm_cast(to, from, scalar_code(from, value), false);
    if (to.kind != TVM_KIND_FLOAT) return wrapped(to, code);
    if (to.bits == 64) return (tvm_scalar){.u = code};
    uint32_t word = (uint32_t)code;
    float narrow;
    memcpy(&narrow, &word, sizeof narrow);
    return (tvm_scalar){.f = narrow};
}

/* ---- one operator ---- */

bool tvm_expr_compares(unsigned op, bool less, bool equal, bool greater) {
    switch (op) {
    case TVM_EXPR_LT:
        return less;
    case TVM_EXPR_LE:
        return less || equal;
    case TVM_EXPR_GT:
        return greater;
    case TVM_EXPR_GE:
        return greater || equal;
    case TVM_EXPR_EQ:
        return equal;
    default:
        return !equal;
    }
}

static tvm_scalar compare(unsigned op, tvm_dtype type, tvm_scalar a, tvm_scalar b) {
    if (type.kind == TVM_KIND_FLOAT) return of_i64(tvm_expr_compares(op, a.f<b.f, a.f == b.f, a.f> b.f));
    if (type.kind == TVM_KIND_INT) return of_i64(tvm_expr_compares(op, a.i<b.i, a.i == b.i, a.i> b.i));
    return of_i64(tvm_expr_compares(op, a.u<b.u, a.u == b.u, a.u> b.u));
}

static tvm_status apply_float(unsigned op, tvm_dtype type, tvm_scalar a, tvm_scalar b, tvm_scalar *value,
                              tvm_why *why) {
    double result;
    switch (op) {
    case TVM_EXPR_NEG:
        result = -a.f;
        break;
    case TVM_EXPR_ADD:
        result = a.f + b.f;
        break;
    case TVM_EXPR_SUB:
        result = a.f - b.f;
        break;
    case TVM_EXPR_MUL:
        result = a.f * b.f;
        break;
    case TVM_EXPR_DIV:
        result = a.f / b.f;
        break;
    case TVM_EXPR_MIN:
        result = fmin(a.f, b.f);
        break;
    case TVM_EXPR_MAX:
        result = fmax(a.f, b.f);
        break;
    default:
        return tvm_refuse(why, "the operator takes no floats");
    }
    *value = rounded(type, result);
    return TVM_OK;
}

/* Toward zero; the one signed quotient that does not fit wraps to itself, with remainder 0. */
static tvm_status divide(bool remainder, tvm_dtype type, tvm_scalar a, tvm_scalar b, tvm_scalar *value,
                         tvm_why *why) {
    if (b.u == 0) return tvm_refuse(why, "division by zero");
    uint64_t result;
    if (type.kind != TVM_KIND_INT) {
        result = remainder ? a.u % b.u : a.u / b.u;
    } else if (b.i == -1) {
        result = remainder ? 0 : 0 - a.u;
    } else {
        result = (uint64_t)(remainder ? a.i % b.i : a.i / b.i);
    }
    *value = wrapped(type, result);
    return TVM_OK;
}

/* Counts are taken modulo the width, which is a power of two. */
static uint64_t shifted(unsigned op, tvm_dtype type, tvm_scalar a, tvm_scalar count) {
    unsigned by = (unsigned)(count.u & (type.bits - 1u));
    if (op == TVM_EXPR_SHL) return a.u << by;
    return type.kind == TVM_KIND_INT ? (uint64_t)(a.i >> by) : a.u >> by;
}

static tvm_status apply_integer(unsigned op, tvm_dtype type, tvm_scalar a, tvm_scalar b, tvm_scalar *value,
                                tvm_why *why) {
    bool less = type.kind == TVM_KIND_INT ? a.i < b.i : a.u < b.u;
    uint64_t result;
    switch (op) {
    case TVM_EXPR_NEG:
        result = 0 - a.u;
        break;
    case TVM_EXPR_NOT:
        result = ~a.u;
        break;
    case TVM_EXPR_ADD:
        result = a.u + b.u;
        break;
    case TVM_EXPR_SUB:
        result = a.u - b.u;
        break;
    case TVM_EXPR_MUL:
        result = a.u * b.u;
        break;
    case TVM_EXPR_AND:
        result = a.u & b.u;
        break;
    case TVM_EXPR_OR:
        result = a.u | b.u;
        break;
    case TVM_EXPR_XOR:
        result = a.u ^ b.u;
        break;
    case TVM_EXPR_SHL:
    case TVM_EXPR_SHR:
        result = shifted(op, type, a, b);
        break;
    case TVM_EXPR_MIN:
        result = less ? a.u : b.u;
        break;
    case TVM_EXPR_MAX:
        result = less ? b.u : a.u;
        break;
    case TVM_EXPR_DIV:
        return divide(false, type, a, b, value, why);
    case TVM_EXPR_MOD:
        return divide(true, type, a, b, value, why);
    case TVM_EXPR_CDIV:
        return divide(false, type, wrapped(type, a.u + b.u - 1), b, value, why);
    default:
        return tvm_refuse(why, "the operator takes no integers");
    }
    *value = wrapped(type, result);
    return TVM_OK;
}

tvm_status tvm_expr_apply(const tvm_expr *node, tvm_dtype operand_type, const tvm_scalar operands[3],
                          tvm_scalar *value, tvm_why *why) {
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        *value = of_i64(node->value.i);
        return TVM_OK;
    case TVM_EXPR_FLOAT:
        *value = (tvm_scalar){.f = node->value.f};
        return TVM_OK;
    case TVM_EXPR_SLOT:
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        return tvm_refuse(why, "the value is known only when the kernel runs");
    case TVM_EXPR_CAST:
        *value = tvm_scalar_cast(node->type, operand_type, operands[0]);
        return TVM_OK;
    case TVM_EXPR_LNOT:
        *value = of_i64(operands[0].i == 0);
        return TVM_OK;
    case TVM_EXPR_LAND:
        *value = of_i64(operands[0].i != 0 && operands[1].i != 0);
        return TVM_OK;
    case TVM_EXPR_LOR:
        *value = of_i64(operands[0].i != 0 || operands[1].i != 0);
        return TVM_OK;
    case TVM_EXPR_SELECT:
        *value = operands[0].i != 0 ? operands[1] : operands[2];
        return TVM_OK;
    default:
        break;
    }
    if (tvm_expr_is_comparison(node->op)) {
        *value = compare(node->op, operand_type, operands[0], operands[1]);
        return TVM_OK;
    }
    if (operand_type.kind == TVM_KIND_FLOAT)
        return apply_float(node->op, operand_type, operands[0], operands[1], value, why);
    return apply_integer(node->op, operand_type, operands[0], operands[1], value, why);
}

/* ---- whole expressions; the size limit of a tree bounds the recursion ---- */

/* && || and ?: evaluate only the operands that they need, so that a guard can keep a division from zero. */
static tvm_status eval_lazily(const tvm_ir_kernel *kernel, const tvm_expr *node, const tvm_eval_env *env,
                              tvm_scalar *value, tvm_why *why) {
    tvm_scalar first;
    tvm_status status = tvm_expr_eval(kernel, node->a, env, &first, why);
    if (status != TVM_OK) return status;
    if (node->op == TVM_EXPR_SELECT)
        return tvm_expr_eval(kernel, first.i != 0 ? node->b : node->c, env, value, why);
    if ((first.i != 0) == (node->op == TVM_EXPR_LOR)) {
        *value = of_i64(first.i != 0);
        return TVM_OK;
    }
    return tvm_expr_eval(kernel, node->b, env, value, why);
}

int32_t tvm_expr_of_device(const tvm_expr *node, const tvm_eval_env *env) {
    switch (node->op) {
    case TVM_EXPR_MULTIPROCESSORS:
        return env->multiprocessors;
    case TVM_EXPR_TARGET:
        return env->target;
    case TVM_EXPR_HAS:
        return tvm_traits_have(env->traits, node->a);
    default:
        return tvm_traits_limit(env->traits, node->a);
    }
}

static tvm_status eval_anew(const tvm_ir_kernel *kernel, uint32_t expr, const tvm_eval_env *env,
                            tvm_scalar *value, tvm_why *why) {
    const tvm_expr *node = &kernel->exprs[expr];
    switch (node->op) {
    case TVM_EXPR_SLOT:
        *value = env->slots[node->a];
        return TVM_OK;
    case TVM_EXPR_BLOCK:
        *value = of_i64(env->block[node->a]);
        return TVM_OK;
    case TVM_EXPR_GRID:
        *value = of_i64(env->grid[node->a]);
        return TVM_OK;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        *value = of_i64(tvm_expr_of_device(node, env));
        return TVM_OK;
    case TVM_EXPR_LAND:
    case TVM_EXPR_LOR:
    case TVM_EXPR_SELECT:
        return eval_lazily(kernel, node, env, value, why);
    default:
        break;
    }
    const uint32_t children[3] = {node->a, node->b, node->c};
    tvm_scalar operands[3] = {{0}, {0}, {0}};
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    for (unsigned i = 0; i < arity; i++) {
        tvm_status status = tvm_expr_eval(kernel, children[i], env, &operands[i], why);
        if (status != TVM_OK) return status;
    }
    tvm_dtype type = arity > 0 ? kernel->exprs[node->a].type : node->type;
    return tvm_expr_apply(node, type, operands, value, why);
}

tvm_status tvm_expr_eval(const tvm_ir_kernel *kernel, uint32_t expr, const tvm_eval_env *env,
                         tvm_scalar *value, tvm_why *why) {
    tvm_eval_kept *kept = expr < TVM_EVAL_KEPT ? env->kept : NULL;
    if (kept && kept->known[expr]) {
        *value = kept->values[expr];
        return TVM_OK;
    }
    tvm_status status = eval_anew(kernel, expr, env, value, why);
    if (kept && status == TVM_OK) {
        kept->known[expr] = true;
        kept->values[expr] = *value;
    }
    return status;
}

/* Of a node without operands. */
static unsigned leaf(const tvm_ir_kernel *kernel, const tvm_expr *node) {
    switch (node->op) {
    case TVM_EXPR_SLOT:
        return node->a < kernel->param_count ? TVM_LEAF_PARAM : TVM_LEAF_VARIABLE;
    case TVM_EXPR_BLOCK:
        return TVM_LEAF_BLOCK;
    case TVM_EXPR_GRID:
        return TVM_LEAF_GRID;
    case TVM_EXPR_MULTIPROCESSORS:
        return TVM_LEAF_MULTIPROCESSORS;
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        return TVM_LEAF_TARGET;
    default:
        return 0;
    }
}

unsigned tvm_expr_leaves(const tvm_ir_kernel *kernel, uint32_t expr) {
    const tvm_expr *node = &kernel->exprs[expr];
    const uint32_t children[3] = {node->a, node->b, node->c};
    unsigned arity = tvm_expr_op_info(node->op)->arity, leaves = leaf(kernel, node);
    for (unsigned i = 0; i < arity; i++) leaves |= tvm_expr_leaves(kernel, children[i]);
    return leaves;
}

void tvm_expr_leaves_all(const tvm_ir_kernel *kernel, uint8_t *leaves) {
    for (uint32_t e = 0; e < kernel->expr_count; e++) {
        const tvm_expr *node = &kernel->exprs[e];
        const uint32_t children[3] = {node->a, node->b, node->c};
        unsigned arity = tvm_expr_op_info(node->op)->arity;
        leaves[e] = (uint8_t)leaf(kernel, node);
        for (unsigned i = 0; i < arity; i++) leaves[e] |= leaves[children[i]];
    }
}

bool tvm_expr_is_launch_time(const tvm_ir_kernel *kernel, uint32_t expr) {
    return (tvm_expr_leaves(kernel, expr) & ~(unsigned)TVM_LEAF_LAUNCH) == 0;
}

static bool refuses_target(const tvm_ir_kernel *kernel, uint32_t expr, const tvm_eval_env *env) {
    const tvm_expr *node = &kernel->exprs[expr];
    tvm_scalar value;
    if (node->op == TVM_EXPR_LAND)
        return refuses_target(kernel, node->a, env) || refuses_target(kernel, node->b, env);
    return tvm_expr_leaves(kernel, expr) == TVM_LEAF_TARGET &&
           tvm_expr_eval(kernel, expr, env, &value, NULL) == TVM_OK && value.i == 0;
}

bool tvm_kernel_is_for(const tvm_ir_kernel *kernel, uint32_t target, const tvm_target_traits *traits) {
    const tvm_eval_env env = {.target = (int32_t)target, .traits = traits};
    if (tvm_cluster_blocks(kernel) > 1 && target != 0 && !tvm_traits_have(traits, TVM_HAS_CLUSTERS))
        return false;
    for (uint32_t i = 0; i < kernel->assume_count; i++)
        if (refuses_target(kernel, kernel->assumes[i], &env)) return false;
    return true;
}

/* ---- types ---- */

static tvm_status check_integer(const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX];
    if (!tvm_dtype_is_integer(node->type) && node->type.kind != TVM_KIND_BOOL)
        return tvm_refuse(why, "an integer constant cannot have type %s", tvm_dtype_name(node->type, name));
    bool fits = node->type.kind == TVM_KIND_BOOL
                    ? node->value.i == 0 || node->value.i == 1
                    : wrapped(node->type, (uint64_t)node->value.i).i == node->value.i;
    if (!fits)
        return tvm_refuse(why, "the constant %lld does not fit %s", (long long)node->value.i,
                          tvm_dtype_name(node->type, name));
    return TVM_OK;
}

static tvm_status check_float(const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX];
    if (node->type.kind != TVM_KIND_FLOAT)
        return tvm_refuse(why, "a float constant cannot have type %s", tvm_dtype_name(node->type, name));
    double value = node->value.f;
    const tvm_scalar given = {.f = value};
    if (tvm_scalar_cast(node->type, node->type, given).u == given.u) return TVM_OK;
    /* text has one word for all of them, of which the assembler makes one */
    if (isnan(value))
        return tvm_refuse(why, "a constant NaN of %s is positive, with all bits of the mantissa set",
                          tvm_dtype_name(node->type, name));
    return tvm_refuse(why, "the constant %.17g is not a value of f32", value);
}

static tvm_status check_of_device(const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX];
    const char *text = tvm_expr_op_info(node->op)->text;
    if (node->op == TVM_EXPR_HAS && node->a >= TVM_CAPABILITY_COUNT)
        return tvm_refuse(why, "capability %u does not exist", node->a);
    if (node->op == TVM_EXPR_LIMIT && node->a >= TVM_LIMIT_COUNT)
        return tvm_refuse(why, "limit %u does not exist", node->a);
    if (node->op == TVM_EXPR_HAS ? node->type.kind == TVM_KIND_BOOL : tvm_dtype_same(node->type, TVM_I(32)))
        return TVM_OK;
    return tvm_refuse(why, "%s has type %s, not %s", text, node->op == TVM_EXPR_HAS ? "bool" : "i32",
                      tvm_dtype_name(node->type, name));
}

static tvm_status check_leaf(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX], want[TVM_DTYPE_NAME_MAX];
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return check_integer(node, why);
    case TVM_EXPR_FLOAT:
        return check_float(node, why);
    case TVM_EXPR_SLOT:
        if (node->a >= kernel->slot_count) return tvm_refuse(why, "slot %u does not exist", node->a);
        if (kernel->slots[node->a].kind != TVM_SLOT_SCALAR)
            return tvm_refuse(why, "a tensor cannot stand in a scalar expression");
        if (!tvm_dtype_same(kernel->slots[node->a].dtype, node->type))
            return tvm_refuse(why, "a variable of type %s is read as %s",
                              tvm_dtype_name(kernel->slots[node->a].dtype, want),
                              tvm_dtype_name(node->type, name));
        return TVM_OK;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        return check_of_device(node, why);
    default:
        if (node->a > 2) return tvm_refuse(why, "axis %u is not one of x, y, z", node->a);
        if (!tvm_dtype_same(node->type, TVM_I(32)))
            return tvm_refuse(why, "block and grid have type i32, not %s", tvm_dtype_name(node->type, name));
        return TVM_OK;
    }
}

static tvm_status check_type(const tvm_expr *node, tvm_dtype expected, const char *text, tvm_why *why) {
    char found[TVM_DTYPE_NAME_MAX], want[TVM_DTYPE_NAME_MAX];
    if (tvm_dtype_same(node->type, expected)) return TVM_OK;
    return tvm_refuse(why, "%s gives %s here, not %s", text, tvm_dtype_name(expected, want),
                      tvm_dtype_name(node->type, found));
}

/* Which operand types an operator takes. */
static bool takes(unsigned op, tvm_dtype type) {
    bool number = type.kind != TVM_KIND_BOOL;
    switch (op) {
    case TVM_EXPR_NOT:
    case TVM_EXPR_MOD:
    case TVM_EXPR_SHL:
    case TVM_EXPR_SHR:
    case TVM_EXPR_AND:
    case TVM_EXPR_OR:
    case TVM_EXPR_XOR:
    case TVM_EXPR_CDIV:
        return tvm_dtype_is_integer(type);
    case TVM_EXPR_LNOT:
    case TVM_EXPR_LAND:
    case TVM_EXPR_LOR:
        return !number;
    case TVM_EXPR_EQ:
    case TVM_EXPR_NE:
    case TVM_EXPR_CAST:
        return true;
    default:
        return number;
    }
}

static tvm_status check_operands_agree(const tvm_expr *node, tvm_dtype a, tvm_dtype b, const char *text,
                                       tvm_why *why) {
    char left[TVM_DTYPE_NAME_MAX], right[TVM_DTYPE_NAME_MAX];
    if (node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_SHR) {
        if (tvm_dtype_is_integer(b)) return TVM_OK;
        return tvm_refuse(why, "the count of %s is an integer, not %s", text, tvm_dtype_name(b, right));
    }
    if (tvm_dtype_same(a, b)) return TVM_OK;
    return tvm_refuse(why, "the operands of %s have different types, %s and %s", text,
                      tvm_dtype_name(a, left), tvm_dtype_name(b, right));
}

static tvm_status check_select(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype condition = kernel->exprs[node->a].type;
    if (condition.kind != TVM_KIND_BOOL)
        return tvm_refuse(why, "the condition of ?: is bool, not %s", tvm_dtype_name(condition, name));
    tvm_status status =
        check_operands_agree(node, kernel->exprs[node->b].type, kernel->exprs[node->c].type, "?:", why);
    return status != TVM_OK ? status : check_type(node, kernel->exprs[node->b].type, "?:", why);
}

tvm_status tvm_expr_check(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why) {
    char name[TVM_DTYPE_NAME_MAX];
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    if (info == NULL) return tvm_refuse(why, "%u is not an operator of expressions", node->op);
    if (!tvm_dtype_valid(node->type) || !tvm_dtype_is_scalar(node->type))
        return tvm_refuse(why, "an expression has type bool, i32, u32, i64, u64, f32 or f64");
    if (info->arity == 0) return check_leaf(kernel, node, why);
    const uint32_t children[3] = {node->a, node->b, node->c};
    for (unsigned i = 0; i < info->arity; i++)
        if (children[i] >= kernel->expr_count)
            return tvm_refuse(why, "operand expression %u does not exist", children[i]);
    if (node->op == TVM_EXPR_SELECT) return check_select(kernel, node, why);
    const char *text = node->op == TVM_EXPR_CAST ? "a conversion" : info->text;
    tvm_dtype type = kernel->exprs[node->a].type;
    if (!takes(node->op, type))
        return tvm_refuse(why, "%s does not take %s", text, tvm_dtype_name(type, name));
    if (info->arity > 1) {
        tvm_status status = check_operands_agree(node, type, kernel->exprs[node->b].type, text, why);
        if (status != TVM_OK) return status;
    }
    if (node->op == TVM_EXPR_CAST) return TVM_OK;
    return check_type(node, tvm_expr_is_comparison(node->op) ? TVM_BOOL : type, text, why);
}
