/* Operators on values. */
#ifndef TVM_ASSEMBLER_OPERATORS_H
#define TVM_ASSEMBLER_OPERATORS_H

#include "state.h"

bool tvm_asm_unary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x, tvm_value *value);
bool tvm_asm_binary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                    const tvm_value *y, tvm_value *value);
bool tvm_asm_select(tvm_asm *as, const tvm_token *token, const tvm_value *c, const tvm_value *x,
                    const tvm_value *y, tvm_value *value);
bool tvm_asm_convert(tvm_asm *as, const tvm_token *token, tvm_dtype type, const tvm_value *x,
                     tvm_value *value);
bool tvm_asm_to_bool(tvm_asm *as, const tvm_token *token, const tvm_value *x, tvm_value *value);

#endif
