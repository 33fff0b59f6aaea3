/* Tables of values with named columns and rows. */
#ifndef TVM_ASSEMBLER_TABLE_H
#define TVM_ASSEMBLER_TABLE_H

#include "state.h"

/* `.row`, `.column` after a table or a row of one, as often as they stand there. */
bool tvm_asm_members(tvm_asm *as, tvm_value *value);
/* The rows that are kept, as a list. */
bool tvm_asm_rows(tvm_asm *as, const tvm_table *table, tvm_value *list);
/* Defines the columns of a row as constants. */
bool tvm_asm_define_columns(tvm_asm *as, const tvm_token *token, const tvm_value *row);

#endif
