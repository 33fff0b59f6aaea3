/* Instructions, read by the operand list of their row of the opcode table. */
#ifndef TVM_ASSEMBLER_INSTRUCTION_H
#define TVM_ASSEMBLER_INSTRUCTION_H

#include "state.h"

/* Longest mnemonic of the version of the language at the cursor: its opcode and how many tokens; TVM_OP_COUNT
 * if there is none. */
unsigned tvm_asm_mnemonic(const tvm_asm *as, uint32_t *tokens);
/* The hyphenated word at the cursor, whatever it means. */
uint32_t tvm_asm_word(const tvm_asm *as, const char **text, uint32_t *length);
bool tvm_asm_instruction(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result,
                         const char *result_name, uint32_t result_length);
/* Reads the operands of a nested instruction, up to and with the closing parenthesis. word: the number of the
 * word that its first operand is, where what is called says it; else poison. An instruction that gives a
 * scalar, or an element-wise one of scalars alone, is written, and its result is the value. */
bool tvm_asm_nested_operands(tvm_asm *as, const tvm_token *token, unsigned op, tvm_value word,
                             tvm_value *value);
/* May the element-wise instruction be of constants alone here, where a value must be known when the program
 * is assembled? Then it is computed, as the interpreter does, and may stand outside of kernels. */
bool tvm_asm_of_constants(const tvm_asm *as, unsigned op);
/* The instruction of an operator or function whose operands are tensors, or tensors and scalars; static ones
 * are numbers, lists of numbers, and the numbers of words. */
bool tvm_asm_tensor_operation(tvm_asm *as, unsigned op, const tvm_token *token, const tvm_value *operands,
                              uint32_t count, tvm_value *value);

#endif
