/* Writing pipelined loops out as other instructions: what the forms that they take share. Private to
 * pipeline_*.c. */
#ifndef TVM_CODEGEN_PIPELINE_BUILD_H
#define TVM_CODEGEN_PIPELINE_BUILD_H

#include "pipeline.h"
#include "tensor_products.h"

/* Products of the tensor core, and what stands for them (pipeline_products.c): slots. */
typedef struct product_slots {
    const tensor_products *found;     /* NULL: the warps multiply */
    uint32_t buffers;                 /* of sums: with two, the next tile's come while one's are read */
    uint32_t sums[TVM_PRODUCTS_SUMS]; /* tensors [buffers, 128, columns] in tensor memory */
    uint32_t done;                    /* mbarriers, one a buffer: the sums are complete */
    uint32_t taken;                   /* the same: they have been read; where the loop repeats, in roles */
    uint32_t buffer;                  /* the scalar: which buffer; of one only there is none */
    uint32_t adds;                    /* the scalar: 0 where the next product begins the sums */
} product_slots;

typedef struct lowering {
    tvm_ir_program *program;   /* the copy: what is written to */
    const tvm_ir_kernel *from; /* as it was */
    tvm_ir_kernel *to;
    tvm_pipeline loop; /* the one being written out; its END is 0 outside of any */
    bool *ahead;       /* tvm_pipeline_find */
    uint32_t *renamed; /* by slot: the scalar that stands for it in what is done ahead; TVM_NONE: itself */
    product_slots products;
    uint32_t stage; /* the scalar: which tile of the rings the turn has */
    uint32_t tile;  /* expression: the tile that tensors of the rings are read or written in here */
    unsigned loops; /* pipelined ones written out so far */
    unsigned depth; /* of the control around what is being written */
    bool failed;
} lowering;

/* Expressions and instructions of l->to; what cannot be made sets l->failed, and the result is any number. An
 * instruction has the place of `place`. */
uint32_t tvm_lower_node(lowering *l, tvm_expr expr);
uint32_t tvm_lower_constant(lowering *l, tvm_dtype type, int64_t value);
uint32_t tvm_lower_value(lowering *l, uint32_t slot);
uint32_t tvm_lower_binary(lowering *l, tvm_expr_op op, tvm_dtype type, uint32_t a, uint32_t b);
/* Operands that the row has behind these, and that may be left out, are none. */
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

/* Mbarriers, `extent` of them. */
uint32_t tvm_lower_barriers(lowering *l, const tvm_insn *place, const char *name, uint32_t extent, bool open);
/* An instruction that names one of them, at that index. */
void tvm_lower_barrier(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t slot, uint32_t index,
                       uint32_t pending);

/* ---- products of the tensor core (pipeline_products.c): nothing where l->products.found is NULL ---- */

/* Writes the kernel with the layouts that follow from those in which threads load the sums, and is otherwise
 * the program's own: but without its products, and zeros for slices of the sums. */
void tvm_lower_renamed(lowering *l);
/* Allocates so many buffers of sums at the beginning of the kernel, with mbarriers that say when one has been
 * taken where `takes`. */
void tvm_lower_alloc_products(lowering *l, uint32_t buffers, bool takes);
/* Of a role, or the block: the scalar that says which buffer is next. */
void tvm_lower_first_buffer(lowering *l, const tvm_insn *place);
void tvm_lower_next_buffer(lowering *l, const tvm_insn *place);
/* An instruction that names the buffer's of these mbarriers. */
void tvm_lower_buffer_barrier(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t barriers);
/* Before the turns: the next product begins the sums. At the end of a turn: the next one adds. */
void tvm_lower_begin_products(lowering *l, const tvm_insn *place);
void tvm_lower_turn_products(lowering *l, const tvm_insn *place);
/* The mma-tensor for the mma of l->from. */
void tvm_lower_product(lowering *l, uint32_t at);
/* Where the loop, the place, stood, in a role that does not run it: the sums of its turns are done. */
void tvm_lower_await_products(lowering *l, const tvm_insn *place);
/* Loads the sums that the instruction of l->from is the first to read, or takes a slice of. */
typedef struct product_load {
    bool is_last; /* there are no more of them */
    bool is_read; /* the instruction has been done with that */
} product_load;
product_load tvm_lower_load_products(lowering *l, uint32_t at);

/* ---- forms ---- */

/* A loop with groups of cp.async (pipeline_groups.c). */
void tvm_lower_groups(lowering *l, uint32_t loop);

/* A kernel with one more role, in which a warp starts the copies of its only pipelined loop by the copy
 * engine (pipeline_roles.c). False with the reason where the kernel cannot be parted so. */
bool tvm_lower_can_part(lowering *l, tvm_why *why);
void tvm_lower_roles(lowering *l, bool has_registers);

#endif
