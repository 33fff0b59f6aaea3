/* The checks of a launch, prepared once: the expressions of a kernel's assumes, grid and shapes in the order
 * of their evaluation, each node once, so that a valid launch costs little more than the arithmetic. Where
 * the plan finds a fault, or does not support an expression, tvm_launch_check checks again and says why. */
#ifndef TVM_VM_LAUNCH_PLAN_H
#define TVM_VM_LAUNCH_PLAN_H

#include "launch.h"

enum { TVM_PLAN_VALUES = 256 };

typedef struct tvm_launch_plan tvm_launch_plan;

/* *plan stays NULL when the expressions have what a plan does not support: floats, or very many nodes.
 * Release with free. TVM_NO_MEMORY. */
tvm_status tvm_launch_plan_make(const tvm_ir_kernel *kernel, tvm_launch_plan **plan, tvm_diags *diags);

/* The values of a launch's expressions. */
typedef struct tvm_launch_values {
    bool known;
    int64_t values[TVM_PLAN_VALUES];
} tvm_launch_values;

/* Returns true, also as values->known, when tvm_launch_check would find no fault; env->grid is then what it
 * would set. False means that tvm_launch_check has to be called. A NULL plan gives false. */
bool tvm_launch_plan_run(const tvm_launch_plan *plan, tvm_launch_env *env, tvm_launch_values *values);
/* After a run that returned true: gives what tvm_launch_shape would give for a tensor that is a parameter or
 * one of the launch. */
void tvm_launch_plan_shape(const tvm_launch_plan *plan, const tvm_launch_values *values, uint32_t slot,
                           int64_t shape[TVM_MAX_RANK], uint64_t *bytes);

/* Where the extents of a checked launch's tensors come from: its plan's values where they are known, else its
 * expressions. */
typedef struct tvm_launch_shapes {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    const tvm_launch_plan *plan;
    tvm_launch_env env;
    tvm_launch_values values;
} tvm_launch_shapes;
/* As tvm_launch_shape. */
tvm_status tvm_launch_shapes_find(const tvm_launch_shapes *shapes, uint32_t slot, int64_t shape[TVM_MAX_RANK],
                                  uint64_t *bytes, tvm_diags *diags);

#endif
