/* Copies that may be under way when a block ends. What waits for a copy may stand in another role than what
 * starts it, and how often either comes may depend on arguments. */
#ifndef TVM_CODEGEN_DRAINS_H
#define TVM_CODEGEN_DRAINS_H

#include "program.h"
#include "codegen.h"

/* Sets undrained[slot] for the slots of mbarriers at which copies of the copy engine complete, unless it is
 * proved that every phase that a copy belongs to is waited for before the block ends. False: out of memory.
 */
bool tvm_drains_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_target target,
                     bool *undrained);

#endif
