/* Inside the code generator: which instructions assign a slot and which read it. */
#ifndef TVM_CODEGEN_USES_H
#define TVM_CODEGEN_USES_H

#include "kernel_state.h"

typedef struct slot_use {
    uint32_t assigned;     /* instructions that have it as result */
    uint32_t definition;   /* the last of them */
    uint32_t first, count; /* readers: uses->readers[first .. first + count), an entry an operand */
} slot_use;
typedef struct slot_uses {
    slot_use *slots;
    uint32_t *readers; /* instructions */
} slot_uses;
tvm_status tvm_slot_uses_make(kernel_state *k);
void tvm_slot_uses_free(kernel_state *k);

/* The only instruction that assigns a slot, or NULL. */
const tvm_insn *tvm_slot_definition(const kernel_state *k, uint32_t slot);
/* Reader i < uses->slots[slot].count. */
const tvm_insn *tvm_slot_reader(const kernel_state *k, uint32_t slot, uint32_t i);
/* Is the register tensor zero wherever it is read? */
bool tvm_slot_is_zero(const kernel_state *k, uint32_t slot);
/* Proof that the elements of an integer register tensor are from 0 to `most`, wherever it is read: their type
 * has no others, or they are cast from such elements or masked. */
bool tvm_slot_elements_at_most(const kernel_state *k, uint32_t slot, int64_t most);
#endif
