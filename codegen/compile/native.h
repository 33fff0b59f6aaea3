/* The target of this machine's GPU. */
#ifndef TVM_CODEGEN_NATIVE_H
#define TVM_CODEGEN_NATIVE_H

#include "codegen.h"

/* Like tvm_target_parse, and takes "native": the target of the first GPU that the CUDA driver sees here. Then
 * it fails with TVM_NO_DEVICE, where there is no driver or no GPU, or TVM_UNSUPPORTED, where the GPU is older
 * than all targets. Makes no context on the GPU. */
tvm_status tvm_target_parse_native(const char *text, tvm_target *target, tvm_diags *diags);

#endif
