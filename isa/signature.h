/* Signatures: what a launch of a kernel takes. The kernels of an entry have the same one. */
#ifndef TVM_ISA_SIGNATURE_H
#define TVM_ISA_SIGNATURE_H

#include "program.h"

/* Do two kernels take the same arguments: names, kinds, types and ranks, in one order, and with `shapes` also
 * the same expressions for extents and strides? TVM_INVALID with *why, which begins with what `kernel` has.
 * The head of an entry has no shapes. */
tvm_status tvm_same_signature(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_ir_kernel *other, bool shapes, tvm_why *why);

/* The nodes that a comparison with the kernel's shapes goes over at most. */
uint64_t tvm_signature_work(const tvm_ir_kernel *kernel);

#endif
