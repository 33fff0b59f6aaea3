/* Instructions written as calls, as values of expressions (expressions.h: tvm_asm_at_nested). */
#ifndef TVM_ASSEMBLER_NESTED_H
#define TVM_ASSEMBLER_NESTED_H

#include "state.h"

bool tvm_asm_nested(tvm_asm *as, tvm_value *value);
/* Is a reduction called by its word at the cursor: sum(%x, 1), max(%x, axis 1)? Words that are functions,
 * too, as max, need the name of the axis. */
bool tvm_asm_at_reduction(const tvm_asm *as, unsigned *word);
bool tvm_asm_reduction(tvm_asm *as, unsigned word, tvm_value *value);

#endif
