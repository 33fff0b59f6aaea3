/* A target's record: what it has. Whoever selects instructions asks for a capability, never for an
 * architecture. */
#ifndef TVM_CODEGEN_TARGET_H
#define TVM_CODEGEN_TARGET_H

#include "codegen.h"

typedef struct tvm_target_record {
    tvm_target target;
    unsigned ptx; /* the least version of PTX that has it: 81 is 8.1 */
    tvm_target_traits traits;
    unsigned last; /* of a feature of a family: the last architecture that runs its code, or 0: its own */
    bool is_tegra; /* its cubins run on no other GPU, and no other's on it */
} tvm_target_record;

/* All targets (targets.c), the oldest architecture first. */
extern const tvm_target_record tvm_target_records[];
extern const size_t tvm_target_record_count;

/* The target's record; that of the oldest target where there is none. Never NULL. */
const tvm_target_record *tvm_target_record_of(tvm_target target);
/* The first target that has the capability; the last one where none has. */
const tvm_target_record *tvm_target_first_with(tvm_capability capability);

/* setmaxnreg pays, and is used, where products are wgmma, and in kernels with tensor memory: warpgroups that
 * add sums up need more registers than a thread starts with. */
bool tvm_target_moves_registers(tvm_target target, const tvm_ir_kernel *kernel);

#endif
