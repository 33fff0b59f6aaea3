/* The checks of a launch made ready once: the expressions of a kernel's assumes, grid and shapes in the order
 * of their evaluation, each node once, so that a launch that is right pays for little more than the
 * arithmetic. What it finds wrong, and what it does not take, is for tvm_launch_check, which says why. */
#ifndef TVM_VM_LAUNCH_PLAN_H
#define TVM_VM_LAUNCH_PLAN_H

#include "program.h"

typedef struct tvm_launch_plan tvm_launch_plan;

/* *plan stays NULL when the expressions need more than it takes: floats, or very many nodes. Release with
 * free. TVM_NO_MEMORY. */
tvm_status tvm_launch_plan_make(const tvm_ir_kernel *kernel, tvm_launch_plan **plan, tvm_diags *diags);

/* True: tvm_launch_check would find nothing wrong, and grid is what it would set. False: it has to be asked.
 * A NULL plan is false. */
bool tvm_launch_plan_run(const tvm_launch_plan *plan, const tvm_scalar *scalars, uint32_t grid[3]);

#endif
