/* Tiles of shared memory that threads load as they stored them. A program needs no barrier there, as each
 * thread gets what it wrote itself; by ldmatrix or stmatrix it is other threads of the warp that read or
 * write it. */
#ifndef TVM_CODEGEN_OWN_READS_H
#define TVM_CODEGEN_OWN_READS_H

#include "kernel_state.h"

/* tensor: the operand of the instruction that loads. May it be reached from a store-shared to the tensor in
 * the same layout without a sync or sync-warp? */
bool tvm_reads_own(kernel_state *k, const tvm_operand *tensor, const tvm_layout *layout);

#endif
