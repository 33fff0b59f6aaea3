/* The shared memory of the other blocks of a cluster, where each tensor and mbarrier lies as in this one. */
#ifndef TVM_CODEGEN_CLUSTER_H
#define TVM_CODEGEN_CLUSTER_H

#include "emit.h"

/* Does the instruction read or write another block's tile at once? (copy-cluster does later.) */
bool tvm_cluster_access(const tvm_ir_kernel *kernel, const tvm_insn *insn);
/* May the kernel's threads store to the shared memory of other blocks? Asked before any code is written:
 * where the instruction stands more may be known, so that a copy that counts here may be the engine's there.
 */
bool tvm_stores_far(emitter *e);
/* Traps where the rank, an expression, is none of the cluster's; true: it is tested. */
bool tvm_emit_cluster_guard(emitter *e, uint32_t rank);
/* What an address of shared memory (%r) is in the block of that rank, for accesses of .shared::cluster. */
reg tvm_emit_cluster_address(emitter *e, reg address, uint32_t rank);
/* All threads of the cluster's blocks wait for each other. */
void tvm_emit_cluster_meet(emitter *e);
/* Where a block ends: it waits for the others of its cluster, if they may reach for its shared memory. */
void tvm_emit_cluster_end(emitter *e);

#endif
