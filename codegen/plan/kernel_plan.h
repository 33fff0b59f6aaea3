/* The plans of a kernel, in the order in which they are made. */
#ifndef TVM_CODEGEN_KERNEL_PLAN_H
#define TVM_CODEGEN_KERNEL_PLAN_H

#include "kernel_state.h"

/* Slots, and where they lie in shared memory: k->shared_bytes may be more than a block of the target has. */
tvm_status tvm_plan_memory(kernel_state *k);
/* All else: facts and plans; after tvm_plan_memory. */
tvm_status tvm_plan_kernel(kernel_state *k);
/* Of both, also where they failed. */
void tvm_plan_free(kernel_state *k);

/* Can the TMA of the target do the copies of the kernel's pipelined loops? Else *why says why not. */
bool tvm_copies_fit_engine(const tvm_ir_program *program, uint32_t kernel, tvm_target target, tvm_why *why);

#endif
