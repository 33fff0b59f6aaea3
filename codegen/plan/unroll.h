/* How often the bodies of loops are copied. */
#ifndef TVM_CODEGEN_UNROLL_H
#define TVM_CODEGEN_UNROLL_H

#include "kernel_state.h"

/* Sets k->loops. */
tvm_status tvm_loops_plan(kernel_state *k);

#endif
