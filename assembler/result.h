/* What an instruction gives. */
#ifndef TVM_ASSEMBLER_RESULT_H
#define TVM_ASSEMBLER_RESULT_H

#include "state.h"
#include "typing.h"

/* A nested instruction that was read and not written: what consumes it says where the result goes. */
typedef struct tvm_pending {
    unsigned op;
    const tvm_token *token;
    const tvm_operand *operands;
    uint32_t count;
    tvm_result_type type;
} tvm_pending;

bool tvm_asm_emit(tvm_asm *as, const tvm_token *token, unsigned op, uint32_t result,
                  const tvm_operand *operands, uint32_t count);
/* Infers, makes or checks the slot of the result, and appends the instruction. */
bool tvm_asm_finish(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result_token,
                    const char *result_name, uint32_t result_length, const tvm_operand *operands,
                    uint32_t count, tvm_result_type *type);
/* Where the layout of what a value waits for does not follow from its operands, it is inferred: of this
 * shape. */
bool tvm_asm_open_unless_follows(tvm_asm *as, tvm_value *value, unsigned rank, const uint32_t *shape);
/* Writes the instruction that a value waits for, if it does, with a temporary variable as its result. */
bool tvm_asm_settle(tvm_asm *as, tvm_value *value);

#endif
