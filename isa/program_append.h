/* Building without sharing: for a reader that has indices from elsewhere to keep. Private to isa/. */
#ifndef TVM_ISA_PROGRAM_APPEND_H
#define TVM_ISA_PROGRAM_APPEND_H

#include "program.h"

/* Each appends a copy and returns its index, or TVM_NONE when memory or a limit is exhausted. */
uint32_t tvm_append_string(tvm_ir_program *program, const char *text, size_t length);
uint32_t tvm_append_layout(tvm_ir_program *program, const tvm_layout *layout);
uint32_t tvm_append_shared_layout(tvm_ir_program *program, const tvm_shared_layout *layout);
uint32_t tvm_append_expr(tvm_ir_kernel *kernel, const tvm_expr *expr);

/* Nodes of `node` written out as a tree, from the sizes of its operands, which must be below `count`;
 * saturates at UINT16_MAX. 0 when an operand is not below `count`. */
uint16_t tvm_expr_tree_size(const tvm_expr *exprs, uint32_t count, const tvm_expr *node);

#endif
