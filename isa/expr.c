#include "integers.h"

#include <math.h>
#include <string.h>

/* ---- values ---- */

static tvm_scalar of_i64(int64_t value) {
    return (tvm_scalar){.i = value};
}

static tvm_scalar wrapped(tvm_dtype type, uint64_t bits) {
    return of_i64(
        tvm_integer_wrapped(type.kind == TVM_KIND_BOOL ? 1 : type.bits, type.kind == TVM_KIND_INT, bits));
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

/* Nothing holds of a NaN but that it differs. */
static bool compare_floats(unsigned op, double a, double b) {
    switch (op) {
    case TVM_EXPR_LT:
        return a < b;
    case TVM_EXPR_LE:
        return a <= b;
    case TVM_EXPR_GT:
        return a > b;
    case TVM_EXPR_GE:
        return a >= b;
    case TVM_EXPR_EQ:
        return a == b;
    default:
        return a != b;
    }
}

static double compute_float(unsigned op, double a, double b) {
    switch (op) {
    case TVM_EXPR_ADD:
        return a + b;
    case TVM_EXPR_SUB:
        return a - b;
    case TVM_EXPR_MUL:
        return a * b;
    case TVM_EXPR_DIV:
        return a / b;
    case TVM_EXPR_MIN:
        return fmin(a, b);
    case TVM_EXPR_MAX:
        return fmax(a, b);
    default: /* NEG */
        return -a;
    }
}

tvm_status tvm_expr_apply(const tvm_expr *node, tvm_dtype operand_type, const tvm_scalar operands[3],
                          tvm_scalar *value, tvm_why *why) {
    const tvm_scalar *o = operands;
    if (node->op == TVM_EXPR_INTEGER || node->op == TVM_EXPR_FLOAT) {
        *value = node->op == TVM_EXPR_FLOAT ? (tvm_scalar){.f = node->value.f} : of_i64(node->value.i);
        return TVM_OK;
    }
    if (tvm_expr_arity(node) == 0) return tvm_refuse(why, "the value is known only when the kernel runs");
    if (!tvm_expr_takes_type(node->op, operand_type))
        return tvm_refuse(why, "the operator takes no %s",
                          operand_type.kind == TVM_KIND_FLOAT ? "floats" : "integers");
    if (node->op == TVM_EXPR_CAST) {
        *value = tvm_scalar_cast(node->type, operand_type, o[0]);
    } else if (node->op == TVM_EXPR_SELECT) {
        *value = o[0].i != 0 ? o[1] : o[2];
    } else if (operand_type.kind != TVM_KIND_FLOAT) {
        const tvm_integer_op kind = tvm_integer_op_of(node->op, node->type, operand_type);
        if (!tvm_integer_apply(&kind, o[0].i, o[1].i, o[2].i, &value->i))
            return tvm_refuse(why, "division by zero");
    } else if (tvm_expr_is_comparison(node->op)) {
        *value = of_i64(compare_floats(node->op, o[0].f, o[1].f));
    } else {
        *value = rounded(operand_type, compute_float(node->op, o[0].f, o[1].f));
    }
    return TVM_OK;
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
    tvm_scalar operands[3] = {{0}, {0}, {0}};
    unsigned arity = tvm_expr_arity(node);
    for (unsigned i = 0; i < arity; i++) {
        tvm_status status = tvm_expr_eval(kernel, node->operands[i], env, &operands[i], why);
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

bool tvm_expr_reads(const tvm_ir_kernel *kernel, uint32_t expr, uint32_t slot) {
    const tvm_expr *node = &kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT) return node->a == slot;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (tvm_expr_reads(kernel, node->operands[i], slot)) return true;
    return false;
}

unsigned tvm_expr_leaves(const tvm_ir_kernel *kernel, uint32_t expr) {
    const tvm_expr *node = &kernel->exprs[expr];
    unsigned arity = tvm_expr_arity(node), leaves = leaf(kernel, node);
    for (unsigned i = 0; i < arity; i++) leaves |= tvm_expr_leaves(kernel, node->operands[i]);
    return leaves;
}

void tvm_expr_leaves_all(const tvm_ir_kernel *kernel, uint8_t *leaves) {
    for (uint32_t e = 0; e < kernel->expr_count; e++) {
        const tvm_expr *node = &kernel->exprs[e];
        unsigned arity = tvm_expr_arity(node);
        leaves[e] = (uint8_t)leaf(kernel, node);
        for (unsigned i = 0; i < arity; i++) leaves[e] |= leaves[node->operands[i]];
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
    if (target != 0 && !tvm_traits_have(traits, TVM_HAS_TCGEN05) && tvm_has_tensor_memory(kernel))
        return false;
    for (uint32_t i = 0; i < kernel->assume_count; i++)
        if (refuses_target(kernel, kernel->assumes[i], &env)) return false;
    return true;
}
