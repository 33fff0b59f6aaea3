/* Functions of expressions: those over numbers and types, and what all of them share. */
#ifndef TVM_ASSEMBLER_BUILTINS_H
#define TVM_ASSEMBLER_BUILTINS_H

#include "state.h"
#include "suggest.h"

typedef struct tvm_call {
    const tvm_token *token; /* the name */
    const char *name;
    uint32_t length;
    const tvm_value *args;
    uint32_t count;
} tvm_call;
/* *known tells whether there is such a function; false is returned for errors alone. */
bool tvm_asm_call(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known);
bool tvm_asm_is_function(const char *name, size_t length);
bool tvm_asm_arguments(tvm_asm *as, const tvm_call *call, uint32_t least, uint32_t most);
bool tvm_asm_argument_integer(tvm_asm *as, const tvm_call *call, uint32_t index, int64_t least, int64_t most,
                              int64_t *value);
/* The functions' names in the table's order; NULL past the last. */
const char *tvm_asm_function_name(size_t index);
void tvm_asm_offer_types(tvm_suggest *suggest);

#endif
