/* What the assembler warns of beside errors: kinds that have names, some of them unless they are turned off.
 */
#ifndef TVM_ASSEMBLER_WARNINGS_H
#define TVM_ASSEMBLER_WARNINGS_H

#include "program.h"

/* Sets of kinds, a bit each, that are turned on or off; the others are as usual. */
typedef struct tvm_warnings {
    unsigned on, off;
} tvm_warnings;

/* Turns the kind of this name on, or off behind `no-`; false: there is no such kind. */
bool tvm_warnings_choose(tvm_warnings *chosen, const char *word);
/* The words that tvm_warnings_choose takes, without those that begin with `no-`: "prove, race or reduce". */
#define TVM_WARNINGS_WORDS "prove, race or reduce"

/* Adds a diagnostic of status TVM_OK for each warning about the verified program, of a text of that version
 * of the language; returns TVM_OK, or TVM_NO_MEMORY. */
tvm_status tvm_warnings_find(const tvm_ir_program *program, const tvm_warnings *chosen, unsigned version,
                             tvm_diags *diags);

#endif
