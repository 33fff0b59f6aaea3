/* Open layouts while a kernel is read: see infer.h. */
#ifndef TVM_ASSEMBLER_INFER_OPEN_H
#define TVM_ASSEMBLER_INFER_OPEN_H

#include "state.h"
#include "typing.h"

/* The whole layout of a shape: each of the team's threads holds every element. */
bool tvm_infer_whole(unsigned rank, const uint32_t *shape, tvm_team team, tvm_layout *layout, tvm_why *why);

bool tvm_asm_is_open(const tvm_asm *as, uint32_t slot);
/* Is one of the operands an open register tensor? */
bool tvm_asm_has_open(const tvm_asm *as, const tvm_operand *operands, uint32_t count);
/* As tvm_infer, for the type and shape alone. */
tvm_status tvm_asm_infer_shape(tvm_asm *as, const tvm_insn *insn, const tvm_operand *operands,
                               tvm_result_type *type, tvm_why *why);
/* Remembers where a new slot was made and whether it is open; where the last instruction stands. */
bool tvm_asm_note_slot(tvm_asm *as, const tvm_token *token, uint32_t slot, const tvm_result_type *type);
bool tvm_asm_note_insn(tvm_asm *as, const tvm_token *token);
/* A register variable is assigned once more: the shapes must agree, and the layouts where both are known. A
 * layout that is written decides an open variable. */
bool tvm_asm_same_layout(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                         uint32_t slot, const tvm_result_type *type);
void tvm_asm_forget_open(tvm_asm *as);
void tvm_asm_free_open(tvm_asm *as);

#endif
