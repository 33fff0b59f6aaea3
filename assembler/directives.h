/* Statements that begin with a dot. */
#ifndef TVM_ASSEMBLER_DIRECTIVES_H
#define TVM_ASSEMBLER_DIRECTIVES_H

#include "state.h"

/* One for each row; token: its name. A directive without one does not compile. */
#define TVM_DIRECTIVE(name, where) bool tvm_directive_##name(tvm_asm *as, const tvm_token *token);
#include "directive_names.def"
#undef TVM_DIRECTIVE

/* The directive at the cursor. */
void tvm_asm_directive(tvm_asm *as);
/* Reports a directive that does not exist, at its name. */
void tvm_asm_unknown_directive(tvm_asm *as, const tvm_token *name);

#endif
