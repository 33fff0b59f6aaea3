/* nvJitLink, the CUDA toolkit's library that compiles PTX: opened at run time, nothing of it needed to build.
 */
#ifndef TVM_CODEGEN_NVJITLINK_H
#define TVM_CODEGEN_NVJITLINK_H

#include "codegen.h"

/* *path is malloc'ed. TVM_NO_PTXAS when there is none, with a diagnostic when $TVM_NVJITLINK names one that
 * is not there; TVM_NO_MEMORY. */
tvm_status tvm_nvjitlink_find(char **path, tvm_diags *diags);

/* Fills the module's cubin, resource usage and made_by; may be called by several threads at once. The library
 * stays in the process. TVM_PTXAS with what the library said, also when it cannot be opened. */
tvm_status tvm_nvjitlink(tvm_module *module, const char *path, tvm_diags *diags);

#endif
