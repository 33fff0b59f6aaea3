/* mbarriers (PTX ISA, "mbarrier"), and the barriers of bar that stand for them (plan/mbarrier_plan.h). Each
 * thread keeps the parity of the phase that it waits for next, a bit an mbarrier. */
#ifndef TVM_CODEGEN_MBARRIER_H
#define TVM_CODEGEN_MBARRIER_H

#include "emit.h"

/* Sets the first parities at kernel entry. */
void tvm_mbarriers_begin(emitter *e);

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
