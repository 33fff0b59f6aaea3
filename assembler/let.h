/* .let. */
#ifndef TVM_ASSEMBLER_LET_H
#define TVM_ASSEMBLER_LET_H

#include "state.h"

/* The value of a .let. */
bool tvm_asm_let_value(tvm_asm *as, const tvm_token *token, const tvm_value *let, tvm_value *value);

#endif
