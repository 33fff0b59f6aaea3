/* One operator on integers made ready for a sequence that evaluates them one after the other. */
#ifndef TVM_VM_STEP_H
#define TVM_VM_STEP_H

#include "integers.h"

/* A value from earlier ones. */
typedef struct tvm_step {
    tvm_integer_op kind;
    uint16_t a, b, c; /* numbers of values; unused ones any */
} tvm_step;

/* All but the operands' numbers, which are 0. */
TVM_INLINE tvm_step tvm_step_of(const tvm_ir_kernel *kernel, const tvm_expr *node) {
    return (tvm_step){.kind = tvm_integer_op_of(node->op, node->type, kernel->exprs[node->a].type)};
}

/* False: a division by zero. */
TVM_INLINE bool tvm_step_run(const tvm_step *step, const int64_t *values, int64_t *result) {
    return tvm_integer_apply(&step->kind, values[step->a], values[step->b], values[step->c], result);
}

#endif
