/* Warnings about reductions of what lies outside of a tensor. */
#ifndef TVM_ISA_WARN_REDUCE_H
#define TVM_ISA_WARN_REDUCE_H

#include "program.h"

/* A reduce along a dimension in which the tile of a load-global may lie outside of its tensor in part, where
 * what the elements outside have become changes the result: zeros in a maximum, a minimum or a product, other
 * numbers, such as exp(0), in any operation. A load with a mask or a fill is left alone, and so is what
 * `where` or compare have replaced. Only element-wise instructions, conversions and relayouts are followed.
 * The program has been verified. Adds a warning (a diagnostic of status TVM_OK) for each reduce; returns
 * TVM_OK, or TVM_NO_MEMORY. */
tvm_status tvm_warn_reductions(const tvm_ir_program *program, tvm_diags *diags);

#endif
