/* What an arrival at mbarriers counts for, and which the barriers of bar can stand for.
 *
 * An arrival of a team is one of each of its warps, so that no warp waits for another; teams of different
 * sizes count for the same, the least common multiple of their warps. Where teams do nothing but arrive and
 * sync at mbarriers, the barriers of bar that the roles leave take their place: who waits there does not ask
 * again and again. */
#ifndef TVM_CODEGEN_MBARRIER_PLAN_H
#define TVM_CODEGEN_MBARRIER_PLAN_H

#include "kernel_state.h"

/* Sets team_arrivals and named of the slots. */
void tvm_mbarriers_plan(kernel_state *k);

/* How many mbarriers a slot is; and of its ALLOC_BARRIER: how many arrivals of teams end a phase, and whether
 * the first phase has ended when the kernel begins. */
uint32_t tvm_mbarrier_count(const kernel_state *k, uint32_t slot);
uint32_t tvm_mbarrier_arrivals(const kernel_state *k, const tvm_insn *alloc);
bool tvm_mbarrier_is_open(const kernel_state *k, const tvm_insn *alloc);

#endif
