/* Names: how they are read, and what static names and those of parameters mean. */
#ifndef TVM_ASSEMBLER_NAMES_H
#define TVM_ASSEMBLER_NAMES_H

#include "state.h"

/* The text of a name token with ${...} pasted in; false on error. Lives in scratch memory or the source. */
bool tvm_asm_name(tvm_asm *as, const tvm_token *token, const char **text, uint32_t *length);
bool tvm_asm_expect_name(tvm_asm *as, const char *what, const char **text, uint32_t *length);
/* Makes an unknown static name silent in the current scope; it may still be defined there. */
void tvm_asm_poison_name(tvm_asm *as, const char *name, uint32_t length);
/* Defines a static name in the current scope. */
bool tvm_asm_define(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    const tvm_value *value);
/* May this name be given to something? Reports why not. */
bool tvm_asm_check_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length);
/* The parameter of that name: NULL when there is none. Its slot is TVM_NONE when its definition failed. */
const tvm_symbol *tvm_asm_find_parameter(const tvm_asm *as, const char *name, uint32_t length);
bool tvm_asm_add_parameter(tvm_asm *as, const char *name, uint32_t length, const tvm_slot *slot);
void tvm_asm_poison_parameter(tvm_asm *as, const char *name, uint32_t length);
/* -D wins over the first .const or .tune of that name at top level: the value becomes what it gives. *given
 * (may be NULL): it gives one. */
bool tvm_asm_overridden(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        tvm_value *value, bool *given);

#endif
