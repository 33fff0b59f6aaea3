/* What kernels and entries have in common while they are read. */
#ifndef TVM_ASSEMBLER_HEAD_H
#define TVM_ASSEMBLER_HEAD_H

#include "state.h"

/* The name of a kernel or entry that begins here. */
bool tvm_asm_launch_name(tvm_asm *as, const char *what, const char **name, uint32_t *length);
void tvm_asm_kernel_open(tvm_asm *as, const tvm_token *token);
void tvm_asm_kernel_close(tvm_asm *as); /* without a check */
/* Reports an instruction before .warps, once. */
bool tvm_asm_check_warps(tvm_asm *as, const tvm_token *token);

#endif
