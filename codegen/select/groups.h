/* Inside the code generator: instructions that are carried out along with an earlier one. A pattern is a row
 * of a table in groups.c: it matches by what defines and what reads a value, wherever the two stand in one
 * straight run of instructions; whether it is legal is asked apart. */
#ifndef TVM_CODEGEN_GROUPS_H
#define TVM_CODEGEN_GROUPS_H

#include "emit.h"

/* For all instructions of the kernel, before emission. */
tvm_status tvm_groups_make(emitter *e);
void tvm_groups_free(emitter *e);

/* The instruction that is carried out with this one, right after it; NULL: none. */
const tvm_insn *tvm_group_next(const emitter *e, const tvm_insn *insn);
/* Where an instruction has been carried out, for its explanation, when an earlier one did it; else NULL. */
const char *tvm_group_done(const emitter *e, const tvm_insn *insn);

#endif
