/* Functions of expressions. */
#ifndef TVM_ASSEMBLER_BUILTINS_H
#define TVM_ASSEMBLER_BUILTINS_H

#include "call.h"
#include "suggest.h"

/* *known tells whether there is such a function; false is returned for errors alone. */
bool tvm_asm_call(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known);
bool tvm_asm_is_function(const char *name, size_t length);
/* In the tables' order; NULL past the last. */
const char *tvm_asm_function_name(size_t index);
void tvm_asm_offer_types(tvm_suggest *suggest);

#endif
