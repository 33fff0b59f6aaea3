/* Functions of expressions that make layouts, or ask of them. */
#ifndef TVM_ASSEMBLER_LAYOUT_BUILTINS_H
#define TVM_ASSEMBLER_LAYOUT_BUILTINS_H

#include "call.h"

extern const tvm_builtin tvm_layout_builtins[];
/* `x . y` */
bool tvm_asm_compose(tvm_asm *as, const tvm_token *token, const tvm_value *x, const tvm_value *y,
                     tvm_value *value);

#endif
