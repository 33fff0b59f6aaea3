/* Macros. */
#ifndef TVM_ASSEMBLER_MACRO_H
#define TVM_ASSEMBLER_MACRO_H

#include "state.h"

/* .macro: its body is executed from its tokens. */
typedef struct tvm_macro_parameter {
    tvm_word name;
    bool variable;    /* written with a percent sign: stands for a variable of the caller */
    uint32_t initial; /* token of the value when it is left out; 0: it must be given */
} tvm_macro_parameter;

typedef struct tvm_macro {
    tvm_word name;
    const tvm_source *source;
    unsigned version; /* of the language, at .macro */
    uint32_t body;    /* token */
    const tvm_macro_parameter *parameters;
    uint32_t count;
} tvm_macro;

/* The macro that a statement `NAME(` calls, or NULL. */
const tvm_macro *tvm_asm_macro_at(tvm_asm *as);
void tvm_asm_call_macro(tvm_asm *as, const tvm_macro *macro);

#endif
