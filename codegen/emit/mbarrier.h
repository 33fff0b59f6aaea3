/* mbarriers (PTX ISA, "mbarrier"). An arrival of a team is one of each of its warps, so that no warp waits
 * for another; teams of different sizes count for the same, the least common multiple of their warps. Each
 * thread keeps the parity of the phase that it waits for next, a bit an mbarrier.
 *
 * Where teams do nothing but arrive and sync at them, the barriers of bar that the roles leave take their
 * place: who waits there does not ask again and again. */
#ifndef TVM_CODEGEN_MBARRIER_H
#define TVM_CODEGEN_MBARRIER_H

#include "emit.h"

/* Finds what an arrival counts for, by slot, and sets the first parities at kernel entry. */
void tvm_mbarriers_plan(emitter *e);

/* An mbarrier: `[address + plus]` in shared memory. */
typedef struct mbarrier {
    reg address; /* %r */
    uint32_t plus;
    reg number; /* of it among its slot's, %r; name[0] == 0: it is `constant` */
    uint32_t constant;
    bool guarded; /* its index is tested */
} mbarrier;
mbarrier tvm_mbarrier_find(emitter *e, const tvm_operand *operand);

#endif
