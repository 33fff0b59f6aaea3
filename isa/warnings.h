/* What the assembler warns of beside errors: kinds that have names, some of them unless they are turned off.
 */
#ifndef TVM_ISA_WARNINGS_H
#define TVM_ISA_WARNINGS_H

#include "program.h"

/* Sets of kinds, a bit each: those that are on unless they are turned off, and all. */
unsigned tvm_warnings_usual(void);
unsigned tvm_warnings_all(void);
/* Adds the kind of this name to the set, or takes `no-` and its name out; false: there is no such kind. */
bool tvm_warnings_choose(unsigned *set, const char *word);
/* The words that tvm_warnings_choose takes, without those that begin with `no-`: "race or reduce". */
#define TVM_WARNINGS_WORDS "race or reduce"

/* Adds a diagnostic of status TVM_OK for each warning of these kinds about the verified program; returns
 * TVM_OK, or TVM_NO_MEMORY. */
tvm_status tvm_warnings_find(const tvm_ir_program *program, unsigned set, tvm_diags *diags);

#endif
