/* Running a program's text. */
#ifndef TVM_ASSEMBLER_RUN_H
#define TVM_ASSEMBLER_RUN_H

#include "state.h"

bool tvm_asm_push_source(tvm_asm *as, const tvm_source *source, uint32_t opener);
void tvm_asm_run(tvm_asm *as);

#endif
