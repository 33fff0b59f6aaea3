/* Writing pipelined loops out as other instructions: what the forms that they take share. Private to
 * pipeline_*.c. */
#ifndef TVM_CODEGEN_PIPELINE_BUILD_H
#define TVM_CODEGEN_PIPELINE_BUILD_H

#include "pipeline.h"

typedef struct lowering {
    tvm_ir_program *program;   /* the copy: what is written to */
    const tvm_ir_kernel *from; /* as it was */
    tvm_ir_kernel *to;
    tvm_pipeline loop; /* the one being written out; its END is 0 outside of any */
    bool *ahead;       /* tvm_pipeline_find */
    uint32_t *renamed; /* by slot: the scalar that stands for it in what is done ahead; TVM_NONE: itself */
    uint32_t stage;    /* the scalar: which tile of the rings the turn has */
    uint32_t tile;     /* expression: the tile that tensors of the rings are read or written in here */
    unsigned loops;    /* pipelined ones written out so far */
    unsigned depth;    /* of the control around what is being written */
    bool failed;
} lowering;

/* Expressions and instructions of l->to; what cannot be made sets l->failed, and the result is any number. An
 * instruction has the place of `place`. */
uint32_t tvm_lower_node(lowering *l, tvm_expr expr);
uint32_t tvm_lower_constant(lowering *l, tvm_dtype type, int64_t value);
uint32_t tvm_lower_value(lowering *l, uint32_t slot);
uint32_t tvm_lower_binary(lowering *l, tvm_expr_op op, tvm_dtype type, uint32_t a, uint32_t b);
void tvm_lower_insert(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t result,
                      const tvm_operand *operands, uint32_t count);
void tvm_lower_let(lowering *l, const tvm_insn *place, uint32_t slot, uint32_t expr);
/* With one operand, a constant. */
void tvm_lower_numbered(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t number);
/* A variable with a name that no other has: `like` and a number. */
uint32_t tvm_lower_variable(lowering *l, const char *like, tvm_slot slot);
uint32_t tvm_lower_scalar(lowering *l, const char *like, tvm_dtype type);

/* The tile after and before that of the turn, round the ring. */
uint32_t tvm_lower_tile_after(lowering *l);
uint32_t tvm_lower_tile_before(lowering *l);
/* Makes every tensor that a pipelined loop of the kernel fills a ring. */
void tvm_lower_rings(lowering *l);
/* Sets l->loop and l->ahead for the loop of this instruction. */
void tvm_lower_find(lowering *l, uint32_t loop);

/* An expression, an instruction of l->from with its scalars renamed, and its tiles in l->tile of their rings.
 */
uint32_t tvm_lower_expr(lowering *l, uint32_t expr);
void tvm_lower_copy(lowering *l, const tvm_insn *insn);

/* ---- forms ---- */

/* A loop with groups of cp.async (pipeline_groups.c). */
void tvm_lower_groups(lowering *l, uint32_t loop);

/* A kernel with one more role, in which a warp starts the copies of its only pipelined loop by the copy
 * engine (pipeline_roles.c). False with the reason where the kernel cannot be parted so. */
bool tvm_lower_can_part(lowering *l, tvm_why *why);
void tvm_lower_roles(lowering *l, bool has_registers);

#endif
