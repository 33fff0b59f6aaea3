/* What finds the groups of a kernel: see groups.h. */
#ifndef TVM_CODEGEN_PATTERNS_H
#define TVM_CODEGEN_PATTERNS_H

#include "kernel_state.h"

/* For all instructions of the kernel, before code is written. */
tvm_status tvm_groups_make(kernel_state *k);

#endif
