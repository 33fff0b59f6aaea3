/* Inside the code generator: the ptxas driver with its time limit as a parameter. */
#ifndef TVM_CODEGEN_PTXAS_H
#define TVM_CODEGEN_PTXAS_H

#include "codegen.h"

enum { TVM_PTXAS_LIMIT_MS = 120 * 1000 };

/* tvm_ptxas with a limit; a ptxas that runs longer is killed with all that it started. */
tvm_status tvm_ptxas_within(tvm_module *module, const char *path, unsigned limit_ms, tvm_diags *diags);

/* Reads registers, spills, stack and losses of the module's kernels out of what `ptxas -v` printed. */
void tvm_ptxas_read_usage(tvm_module *module, const char *output);

#endif
