/* .if and .for: what the loop over statements asks of them. */
#ifndef TVM_ASSEMBLER_BRANCHES_H
#define TVM_ASSEMBLER_BRANCHES_H

#include "state.h"

/* Is the cursor behind the statement of a .for of one line? */
bool tvm_asm_at_line_end(const tvm_asm *as);
/* Goes back to the body of a .for with its next value, or on behind it. */
bool tvm_asm_next_iteration(tvm_asm *as, tvm_frame *frame);

#endif
