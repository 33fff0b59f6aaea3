/* Parts of register tensors: `%x[0:16, :]`, `%x[:, None]`, `%x[2]`. */
#ifndef TVM_ASSEMBLER_PARTS_H
#define TVM_ASSEMBLER_PARTS_H

#include "state.h"

/* The part of the tensor *value; the cursor is behind the bracket, the token. Each item of the list is for a
 * dimension: a range `from:end`, of which either may be left out; an index, which leaves the dimension out;
 * or None, a new dimension of extent 1. Dimensions without an item are whole. */
bool tvm_asm_part(tvm_asm *as, const tvm_token *token, tvm_value *value);

#endif
