/* Calls of functions in expressions. */
#ifndef TVM_ASSEMBLER_CALL_H
#define TVM_ASSEMBLER_CALL_H

#include "state.h"

typedef struct tvm_call {
    const tvm_token *token; /* the name */
    const char *name;
    uint32_t length;
    const tvm_value *args;
    uint32_t count;
} tvm_call;

/* A function, and how many arguments it takes. A table of them ends with a name that is NULL. */
typedef struct tvm_builtin {
    const char *name;
    bool (*function)(tvm_asm *as, const tvm_call *call, tvm_value *value);
    uint8_t least, most;
} tvm_builtin;

bool tvm_asm_arguments(tvm_asm *as, const tvm_call *call, uint32_t least, uint32_t most);
bool tvm_asm_argument_integer(tvm_asm *as, const tvm_call *call, uint32_t index, int64_t least, int64_t most,
                              int64_t *value);

#endif
