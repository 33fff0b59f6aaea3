/* Warnings about kernels that do not fit into the registers. */
#ifndef TVM_CODEGEN_WARN_REGISTERS_H
#define TVM_CODEGEN_WARN_REGISTERS_H

#include "codegen.h"

/* Of a module that has been compiled: adds a warning for each kernel that spills, or of whose wgmma the
 * compiler says that they run one after the other. It stands where the largest register tensor is assigned
 * first, and names the largest ones. TVM_OK, or TVM_NO_MEMORY. */
tvm_status tvm_warn_registers(const tvm_ir_program *program, const tvm_module *module, tvm_diags *diags);

#endif
