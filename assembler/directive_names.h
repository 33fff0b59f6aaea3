/* The names of directives. */
#ifndef TVM_ASSEMBLER_DIRECTIVE_NAMES_H
#define TVM_ASSEMBLER_DIRECTIVE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* In the order of directive_names.def, without the dot; NULL past the last. */
const char *tvm_asm_directive_name(size_t index);
bool tvm_asm_is_directive(const char *name, size_t length);

#endif
