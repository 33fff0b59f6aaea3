/* Expressions, as all that reads them sees them: what an expression is made of asks for expressions itself.
 */
#ifndef TVM_ASSEMBLER_EXPRESSIONS_H
#define TVM_ASSEMBLER_EXPRESSIONS_H

#include "state.h"

bool tvm_asm_expression(tvm_asm *as, tvm_value *value);
/* `[e, e, ...]` after the opening bracket was consumed: up to and with the closing one. */
bool tvm_asm_list(tvm_asm *as, const char *close, tvm_value *list);
/* A static expression, checked. what: "the number of warps". */
bool tvm_asm_static_integer(tvm_asm *as, int64_t least, int64_t most, const char *what, int64_t *value);
bool tvm_asm_static(tvm_asm *as, const char *what, tvm_value *value);
/* A static condition, which may be an integer, too. */
bool tvm_asm_condition(tvm_asm *as, const char *what, bool *holds);
/* A type: the name of one, or a static name or expression in parentheses that is one. */
bool tvm_asm_type(tvm_asm *as, tvm_dtype *type);
/* Parses a text of its own, completely (-D values, ${...}). */
bool tvm_asm_expression_of_text(tvm_asm *as, const char *name, const char *text, size_t length,
                                tvm_value *value);
/* What a name that is not defined may have meant. */
bool tvm_asm_unknown_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length);

/* `mnemonic(` of an instruction that gives a register tensor, and not of a function? */
bool tvm_asm_at_nested(const tvm_asm *as, uint32_t *tokens);

#endif
