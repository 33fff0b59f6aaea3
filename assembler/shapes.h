/* Shapes: of tiles, static ones; of global tensors, which a launch evaluates. */
#ifndef TVM_ASSEMBLER_SHAPES_H
#define TVM_ASSEMBLER_SHAPES_H

#include "state.h"

/* A list of positive extents (or one nested level of it), as for local(...), [..] of a type, a tile. */
bool tvm_asm_extents(tvm_asm *as, const tvm_token *token, const tvm_value *items, uint32_t count,
                     const char *what, unsigned most, uint32_t *extents, uint32_t *extent_count);
/* The layout auto(...). */
bool tvm_asm_auto_layout(tvm_asm *as, const tvm_token *token, unsigned rank, const uint32_t *shape,
                         unsigned bits, tvm_layout *layout);
/* An extent of a global tensor or a grid, an integer of type i32 or i64; `leaves` as of tvm_expr_leaves,
 * beside what every launch-time expression may have. */
bool tvm_asm_extent(tvm_asm *as, const tvm_token *token, const tvm_value *value, unsigned leaves,
                    const char *what, uint32_t *expr);
/* `n, grid.x]`: the shape of a global tensor, past its bracket. */
bool tvm_asm_global_shape(tvm_asm *as, unsigned leaves, uint32_t *rank, uint32_t shape[TVM_MAX_RANK]);
/* The strides, past their bracket, of one of that rank. */
bool tvm_asm_global_strides(tvm_asm *as, unsigned leaves, uint32_t rank, uint32_t stride[TVM_MAX_RANK]);

#endif
