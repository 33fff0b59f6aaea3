/* The rules of the language, in two uses: the assembler asks for the type of a result, the verifier checks a
 * whole program from anywhere. */
#ifndef TVM_ISA_VERIFY_H
#define TVM_ISA_VERIFY_H

#include "typing.h"

/* Fills insn.match of every instruction; reports control that does not nest. */
tvm_status tvm_ir_kernel_match(const tvm_ir_program *program, tvm_ir_kernel *kernel, tvm_diags *diags);

/* Everything: indices, limits, names, layouts, expressions, control, types, scalars and tensors defined
 * before use on every path, tensors of the launch and shared tensors allocated once, outside of control, and
 * not used after free, shared memory within TVM_MAX_SHARED_BYTES, loop variables not assigned, store-global
 * of sub-byte types covering whole bytes. Accepts any bytes in the structs without a crash, and within a
 * bounded amount of work. Fills insn.match. All errors found are reported (at most 20), with the
 * instruction's file and line.
 */
tvm_status tvm_verify(tvm_ir_program *program, tvm_diags *diags);

#endif
