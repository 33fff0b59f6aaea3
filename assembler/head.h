/* What kernels and entries have in common while they are read. */
#ifndef TVM_ASSEMBLER_HEAD_H
#define TVM_ASSEMBLER_HEAD_H

#include "state.h"

/* The name of a kernel or entry that begins here. */
bool tvm_asm_launch_name(tvm_asm *as, const char *what, const char **name, uint32_t *length);
/* "kernel", "entry" or "graph". */
const char *tvm_asm_what_is_open(const tvm_asm *as);
/* The parameters of a kernel or graph, `(list)` or `: SIGNATURE`, up to the end of the statement; after an
 * error the names from token `from` on cause no more of them. */
bool tvm_asm_parameters(tvm_asm *as, const tvm_token *token, uint32_t from);
void tvm_asm_kernel_open(tvm_asm *as, const tvm_token *token);
/* Behind a graph the assembler goes on with the text's own kernels. */
void tvm_asm_graph_leave(tvm_asm *as);
void tvm_asm_kernel_close(tvm_asm *as); /* without a check */
/* Reports an instruction before .warps, once. */
bool tvm_asm_check_warps(tvm_asm *as, const tvm_token *token);

#endif
