/* Variables of a kernel: which slot a name means where it stands.
 *
 * The percent sign of variables tells them from parameters. The name of an element of an array is that of the
 * array and its indices, `acc[0, 1]`, that of a field the record's and its own, `at.step`. */
#ifndef TVM_ASSEMBLER_VARIABLES_H
#define TVM_ASSEMBLER_VARIABLES_H

#include "state.h"

/* The variable of that name: NULL when there is none. Its slot is TVM_NONE when its definition failed. */
const tvm_symbol *tvm_asm_find_slot(const tvm_asm *as, const char *name, uint32_t length);
/* What is read as `%name`: a variable; with version 1 of the language a parameter as well, where no variable
 * has the name. */
const tvm_symbol *tvm_asm_find_local(const tvm_asm *as, const char *name, uint32_t length);
/* What `%name = ` assigns: in a macro, variables of the caller that are not its parameters are left out. */
const tvm_symbol *tvm_asm_find_assigned(const tvm_asm *as, const char *name, uint32_t length);
bool tvm_asm_is_array(const tvm_asm *as, const char *name, uint32_t length);
bool tvm_asm_is_record(const tvm_asm *as, const char *name, uint32_t length);
/* Creates the slot of a new name. The program knows it by that name where no other variable has it. */
bool tvm_asm_add_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                      const tvm_slot *slot, uint32_t *index);
/* A slot that no name of the text reaches, called after the variable that the statement assigns. */
bool tvm_asm_add_temporary(tvm_asm *as, const tvm_token *token, const tvm_slot *slot, uint32_t *index);
void tvm_asm_poison_slot(tvm_asm *as, const char *name, uint32_t length);
/* The name at the cursor, past the percent sign, with its fields: `at.step`. */
bool tvm_asm_variable_name(tvm_asm *as, const char **name, uint32_t *length);
/* The name at the cursor of what is read: of a variable (`local`, past its percent sign) with the indices of
 * an element. */
bool tvm_asm_read_name(tvm_asm *as, bool local, const char **name, uint32_t *length);
/* name[i, j] of an array. */
bool tvm_asm_element_name(tvm_asm *as, const tvm_token *token, const tvm_value *indices, const char **name,
                          uint32_t *length);
/* The symbol that a macro's parameter stands for: it is made where there is none. */
bool tvm_asm_locate(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    tvm_symbols **home, uint32_t *index);
void tvm_asm_forget_variables(tvm_asm *as);

/* What the name of a slot means as a value; slot is TVM_MAX_SLOTS where it means nothing. */
bool tvm_asm_slot_value(tvm_asm *as, const tvm_token *token, uint32_t slot, const char *name, uint32_t length,
                        tvm_value *value);

#endif
