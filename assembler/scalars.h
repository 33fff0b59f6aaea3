/* Scalars as expressions of the kernel. */
#ifndef TVM_ASSEMBLER_SCALARS_H
#define TVM_ASSEMBLER_SCALARS_H

#include "state.h"

/* The type a scalar has at run time: its own, or of a literal i32 (i64 where it does not fit) or f32. */
tvm_dtype tvm_asm_type_of(const tvm_asm *as, const tvm_value *value);
/* The common type of operands. */
tvm_dtype tvm_asm_common(const tvm_asm *as, const tvm_value *x, const tvm_value *y);
/* May a value of one scalar type become the other without loss of any value? */
bool tvm_asm_widens(tvm_dtype from, tvm_dtype to);

/* Becomes the value one of the type where such a variable is assigned: literals that it can hold do, others
 * only widen. */
bool tvm_asm_adapts(const tvm_asm *as, const tvm_value *value, tvm_dtype to);
/* Adds a node to the kernel after its type has been checked; an error at token when it does not fit or limits
 * are met. */
bool tvm_asm_node(tvm_asm *as, const tvm_token *token, const tvm_expr *node, tvm_value *value);
/* A scalar as an expression node of a type: constants are made of it, others cast where they differ. */
bool tvm_asm_lower(tvm_asm *as, const tvm_token *token, const tvm_value *value, tvm_dtype type,
                   uint32_t *expr);
/* A scalar as an expression of its own type. */
bool tvm_asm_lower_own(tvm_asm *as, const tvm_token *token, const tvm_value *value, uint32_t *expr);
/* Can a launch evaluate the expression? leaves: what it may read beside TVM_LEAF_LAUNCH; what: "a grid
 * extent". */
bool tvm_asm_launch_time(tvm_asm *as, const tvm_token *token, uint32_t expr, unsigned leaves,
                         const char *what);

#endif
