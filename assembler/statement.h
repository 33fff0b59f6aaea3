/* Statements of a kernel. */
#ifndef TVM_ASSEMBLER_STATEMENT_H
#define TVM_ASSEMBLER_STATEMENT_H

#include "state.h"

void tvm_asm_statement(tvm_asm *as); /* in a kernel, not a directive */
bool tvm_asm_instruction(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result,
                         const char *result_name, uint32_t result_length);
/* The words that begin statements with a syntax of their own; NULL past the last. */
const char *tvm_asm_own_word(size_t index);

#endif
