/* What the files of the type rules share. Private to isa/. */
#ifndef TVM_ISA_RULES_H
#define TVM_ISA_RULES_H

#include "typing.h"

enum { TVM_SHAPE_TEXT_MAX = 96, TVM_RULE_NAME_MAX = 64 };

/* One instruction, its operands sorted by the entries of its row: entry e of those that are stored begins at
 * operands[at[e]]. Kinds and ranges have been checked against the row. */
typedef struct tvm_rule {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_team team; /* that does the instruction */
    const tvm_op_info *info;
    unsigned op;
    const tvm_operand *operands;
    uint32_t count;
    tvm_operand_desc desc[TVM_ROW_OPERANDS];
    uint32_t at[TVM_ROW_OPERANDS];
    tvm_result_type *type;
    tvm_why *why;
} tvm_rule;

/* One for each family of opcodes.def; a family without one does not compile. */
#define TVM_OP(number, id, mnemonic, since, class, family, ...)                                              \
    tvm_status tvm_rule_##family(const tvm_rule *rule);
#include "opcodes.def"

const char *tvm_shape_text(unsigned rank, const uint32_t *shape, char text[TVM_SHAPE_TEXT_MAX]);
/* The same, and a name, in buffers that live as long as the block around. */
#define TVM_SHAPE_TEXT(rank, shape) tvm_shape_text(rank, shape, (char[TVM_SHAPE_TEXT_MAX]){0})
#define TVM_RULE_NAME(rule, entry)  tvm_rule_name(rule, entry, (char[TVM_RULE_NAME_MAX]){0})

/* Operand of entry e: its slot (of kind SLOT), its expression's type, its number (a constant, or an
 * expression). */
const tvm_slot *tvm_rule_slot(const tvm_rule *rule, unsigned entry);
tvm_dtype tvm_rule_expr_type(const tvm_rule *rule, unsigned entry);
uint32_t tvm_rule_value(const tvm_rule *rule, unsigned entry);
bool tvm_rule_is_tensor(const tvm_rule *rule, unsigned entry);
/* Of what may be left out, also by programs of before there was such an operand. */
bool tvm_rule_is_given(const tvm_rule *rule, unsigned entry);
const tvm_layout *tvm_rule_layout(const tvm_rule *rule, unsigned entry);
/* What a message calls the operand: the name that its program gives it, `'%acc'` or `'x'`; of an expression
 * or a constant the row's, `y`. */
const char *tvm_rule_name(const tvm_rule *rule, unsigned entry, char text[TVM_RULE_NAME_MAX]);
/* Is the expression one integer constant, and which? */
bool tvm_rule_integer(const tvm_rule *rule, uint32_t expr, int64_t *value);

/* Entry e is an indexed shared tensor: does it have room for a tile of these extents, as far as is known? */
tvm_status tvm_rule_tile(const tvm_rule *rule, unsigned entry, unsigned rank, const uint32_t *tile);

/* Entry e is an indexed global or shared tensor: are the bytes of a tile of this extent in the last dimension
 * its own? It begins at a byte, as far as is known, and is whole bytes. */
tvm_status tvm_rule_whole_bytes(const tvm_rule *rule, unsigned entry, uint32_t extent);
/* Elements of this type in the register layout: does each byte of memory that they take have one owner? */
tvm_status tvm_rule_owns_bytes(const tvm_rule *rule, tvm_dtype dtype, const tvm_layout *layout);

/* Entry e is an mbarrier: may its index lie inside, as far as is known? There is no result. */
tvm_status tvm_rule_barrier_index(const tvm_rule *rule, unsigned entry);

/* Entry e is a mask, or left out: bool, broadcast to the tile within each thread; elements of the memory are
 * whole bytes. */
tvm_status tvm_rule_mask(const tvm_rule *rule, unsigned entry, unsigned memory, const tvm_layout *tile);
/* Entry e is what a load gives for elements that it does not read, or left out; elements of the memory are
 * whole bytes. */
tvm_status tvm_rule_fill(const tvm_rule *rule, unsigned entry, unsigned memory);
/* The indices of the memory that are tensors are i32 or i64 and broadcast to the tile. */
tvm_status tvm_rule_places(const tvm_rule *rule, unsigned memory, const tvm_layout *tile);
/* The register tensor, which a message calls `what`, is broadcast to the tile within each thread. */
tvm_status tvm_rule_broadcasts(const tvm_rule *rule, const tvm_slot *slot, const char *what,
                               const tvm_layout *tile);

/* Entry e is the rank of a block in its cluster, or left out: is it inside, as far as is known? */
tvm_status tvm_rule_cluster_rank(const tvm_rule *rule, unsigned entry);

/* The result is a register tensor of this type and layout, or a scalar of this type: completes *rule->type,
 * or says how what was declared differs. layout NULL: the declared one, which must be there. */
tvm_status tvm_rule_register(const tvm_rule *rule, tvm_dtype dtype, const tvm_layout *layout);
tvm_status tvm_rule_scalar(const tvm_rule *rule, tvm_dtype dtype);
tvm_status tvm_rule_nothing(const tvm_rule *rule);

#endif
