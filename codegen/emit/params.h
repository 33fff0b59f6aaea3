/* Inside the code generator: a kernel's parameters, declared and hidden. Whoever needs a hidden one adds a
 * row to the kernel's ABI (e->code->abi) when it does; the entry point is written last, from the rows. */
#ifndef TVM_CODEGEN_PARAMS_H
#define TVM_CODEGEN_PARAMS_H

#include "emit.h"

/* Rows for the declared parameters and the tensors of the launch, and their loads into the slots' registers.
 */
void tvm_params_load(emitter *e);
/* The parameter of a kind that stands for no slot, in a register of kernel entry. */
reg tvm_params_hidden(emitter *e, tvm_abi_kind kind);
/* out = a leaf that the device gives (tvm_expr_is_of_device). */
void tvm_emit_load_device(emitter *e, const tvm_expr *node, reg out);
/* The list of parameters of the entry point. */
void tvm_params_write(const tvm_kernel_abi *abi, tvm_text *out);

#endif
