/* Inside the code generator: the ptxas driver with its time limit as a parameter. */
#ifndef TVM_CODEGEN_PTXAS_H
#define TVM_CODEGEN_PTXAS_H

#include "codegen.h"

enum { TVM_PTXAS_LIMIT_MS = 120 * 1000 };

/* tvm_ptxas with a limit; a ptxas that runs longer is killed with all that it started. */
tvm_status tvm_ptxas_within(tvm_module *module, const char *path, unsigned limit_ms, tvm_diags *diags);

/* Finds nvdisasm: beside this ptxas, then where ptxas is looked for, TVM_PTXAS not among it. *path is
 * malloc'ed. TVM_NOT_FOUND with a message that names where it looked. */
tvm_status tvm_nvdisasm_find(const char *ptxas, char **path, tvm_diags *diags);

/* Reads registers, spills, stack and losses of the module's kernels out of what `ptxas -v` printed. */
void tvm_ptxas_read_usage(tvm_module *module, const char *output);

#endif
