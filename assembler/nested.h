/* Instructions written as calls, as values of expressions (expressions.h: tvm_asm_at_nested). */
#ifndef TVM_ASSEMBLER_NESTED_H
#define TVM_ASSEMBLER_NESTED_H

#include "state.h"

bool tvm_asm_nested(tvm_asm *as, tvm_value *value);

#endif
