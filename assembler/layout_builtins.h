/* Functions of expressions over layouts. */
#ifndef TVM_ASSEMBLER_LAYOUT_BUILTINS_H
#define TVM_ASSEMBLER_LAYOUT_BUILTINS_H

#include "builtins.h"

bool tvm_asm_call_layout(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known);
bool tvm_asm_is_layout_function(const char *name, size_t length);
const char *tvm_asm_layout_function_name(size_t index);
/* `x . y` */
bool tvm_asm_compose(tvm_asm *as, const tvm_token *token, const tvm_value *x, const tvm_value *y,
                     tvm_value *value);

#endif
