/* One operand of an instruction. instruction.c walks the operand list of the instruction's row. */
#ifndef TVM_ASSEMBLER_OPERAND_H
#define TVM_ASSEMBLER_OPERAND_H

#include "state.h"
#include "typing.h"

/* A scalar operand whose node is made once all operands are known: a literal takes part in f64 arithmetic as
 * f64. */
typedef struct tvm_deferred {
    uint32_t at;    /* operand */
    bool converted; /* to the elements' type */
    const tvm_token *token;
    tvm_value value;
} tvm_deferred;

/* An instruction being read. */
typedef struct tvm_reading {
    unsigned op;
    const tvm_op_info *info;
    const tvm_token *token;
    tvm_operand operands[TVM_INSN_OPERANDS];
    uint32_t count;
    tvm_deferred scalars[TVM_INSN_OPERANDS];
    uint32_t scalar_count;
    bool wide;         /* something is f64 */
    bool nested;       /* in parentheses, as a value */
    tvm_dtype element; /* of the tensors that scalars are broadcast to; kind NONE: there is none yet */
    tvm_result_type type;
    bool relayouts;      /* =U is given */
    bool extents_follow; /* those of a view are left out */
    bool has_shape;      /* =t */
    uint32_t shape[TVM_MAX_RANK];
    uint32_t rank;
    uint32_t tile_slot; /* first indexed shared tensor, and the number of indices given */
    uint32_t tile_given;
} tvm_reading;

/* Adds the operand at the cursor, which is behind its name if that is written; a flag is its name. */
bool tvm_asm_read_operand(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc);
/* Adds the default of an operand that the statement leaves out. */
bool tvm_asm_leave_out(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc);
/* Adds a static value: a number, a list of numbers, or the number of a word; or what tvm_asm_push_value adds.
 */
bool tvm_asm_push_given(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                        tvm_value *value);
/* May scalars stand in place of all tensors? Then the result is a scalar. */
bool tvm_asm_takes_scalars(const tvm_asm *as, const tvm_reading *r);
/* Adds a value that is a register tensor, or a scalar where one may stand. */
bool tvm_asm_push_value(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                        tvm_value *value);
/* Is the operand's name written before it? */
bool tvm_asm_operand_named(const tvm_asm *as, const tvm_operand_desc *desc);
/* Is the cursor at a register tensor, and the list of its part (parts.h) behind that? */
bool tvm_asm_at_part(tvm_asm *as);
/* Does the layout of the tile that is loaded follow from what it is broadcast to? */
bool tvm_asm_loads_beside(const tvm_asm *as, const tvm_reading *r);

/* ---- the result's type, shape and shared layout (operand_shape.c) ---- */

/* `f32[16, 128]`; `f32[grid.x, n]`; `[4]` */
bool tvm_asm_read_typed_shape(tvm_asm *as, tvm_reading *r);
bool tvm_asm_read_global_type(tvm_asm *as, tvm_reading *r);
bool tvm_asm_read_barriers(tvm_asm *as, tvm_reading *r);
bool tvm_asm_read_shared_layout(tvm_asm *as, tvm_reading *r);
/* The shape in row-major order. */
bool tvm_asm_plain_order(tvm_asm *as, tvm_reading *r);
/* Is this the shape that was written, if one was? */
bool tvm_asm_same_shape(tvm_asm *as, const tvm_token *token, const tvm_reading *r, unsigned rank,
                        const uint32_t *shape);

/* ---- views (operand_view.c) ---- */

/* `[k, n]`: the extents of a view of a global tensor. Left out they are those of what it views. */
bool tvm_asm_read_view_extents(tvm_asm *as, tvm_reading *r);
bool tvm_asm_leave_out_view_extents(tvm_asm *as, tvm_reading *r);
/* `[1, m]` or `row_major`, the word before it read. */
bool tvm_asm_read_view_strides(tvm_asm *as, tvm_reading *r);
/* An order, operand `at`, has been read: where the extents were left out, they are those of the dimensions
 * that it names. */
bool tvm_asm_order_extents(tvm_asm *as, tvm_reading *r, uint32_t at);

#endif
