#include "node.h"

#include "verify.h"

static bool is_constant(const tvm_ir_kernel *kernel, uint32_t expr) {
    unsigned op = kernel->exprs[expr].op;
    return op == TVM_EXPR_INTEGER || op == TVM_EXPR_FLOAT;
}

/* False: it has no value. */
static bool fold(const tvm_ir_kernel *kernel, tvm_expr *node) {
    const uint32_t operands[3] = {node->a, node->b, node->c};
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    tvm_scalar values[3] = {{0}}, result;
    for (unsigned i = 0; i < arity; i++) {
        if (!is_constant(kernel, operands[i])) return true;
        const tvm_expr *of = &kernel->exprs[operands[i]];
        if (of->op == TVM_EXPR_FLOAT)
            values[i].f = of->value.f;
        else
            values[i].i = of->value.i;
    }
    tvm_why why;
    if (arity == 0) return true;
    if (tvm_expr_apply(node, kernel->exprs[node->a].type, values, &result, &why) != TVM_OK) return false;
    bool is_float = node->type.kind == TVM_KIND_FLOAT;
    *node = (tvm_expr){.op = is_float ? TVM_EXPR_FLOAT : TVM_EXPR_INTEGER, .type = node->type};
    if (is_float)
        node->value.f = result.f;
    else
        node->value.i = result.i;
    return true;
}

uint32_t generate_node(tvm_ir_kernel *kernel, tvm_expr node) {
    tvm_why why;
    if (node.op == TVM_EXPR_SELECT && is_constant(kernel, node.a))
        return kernel->exprs[node.a].value.i ? node.b : node.c;
    if (tvm_expr_check(kernel, &node, &why) != TVM_OK || !fold(kernel, &node)) return TVM_NONE;
    return tvm_ir_kernel_expr(kernel, &node);
}
