/* An entry's table made ready for a device: which kernel a launch runs. */
#ifndef TVM_VM_VARIANTS_H
#define TVM_VM_VARIANTS_H

#include "launch.h"

typedef struct tvm_variants tvm_variants;

/* What blocks of the device have no room for. */
typedef struct tvm_room {
    uint64_t *needs; /* by kernel of the program: bytes of shared memory; NULL: there is room for all */
    uint64_t has;    /* bytes of shared memory of a block */
} tvm_room;

/* The table for launches with this env's device; its scalars are not looked at. Cases whose kernels need more
 * than there is room for are passed over. The entry and the room's numbers must stay. Release with
 * tvm_variants_free. */
tvm_status tvm_variants_make(const tvm_ir_program *program, const tvm_ir_entry *entry,
                             const tvm_launch_env *env, const tvm_room *room, tvm_variants **variants,
                             tvm_diags *diags);
void tvm_variants_free(tvm_variants *variants); /* NULL is fine */

/* *index is the first case whose condition holds. TVM_ARGUMENT when none does, with a message that names the
 * values and the nearest case, and when a condition cannot be evaluated. Takes a few nanoseconds a comparison
 * that it meets; allocates nothing. */
tvm_status tvm_variants_choose(const tvm_variants *variants, const tvm_launch_env *env, uint32_t *index,
                               tvm_diags *diags);

/* Are there arguments for which it might be chosen on this device? What the device alone decides has been
 * decided; of the parameters nothing is assumed. */
bool tvm_variants_possible(const tvm_variants *variants, uint32_t index);

/* Refuses a launch that no case serves: of every one that there is room for, the condition does not hold. The
 * one of the others whose condition holds is told with what it needs; else the nearest case is the one with
 * the fewest comparisons that fail, those that this device can never meet counting first; of equals the one
 * whose constants are nearest to the values, relative to the constants. */
tvm_status tvm_variants_refuse(const tvm_ir_program *program, const tvm_ir_entry *entry,
                               const tvm_launch_env *env, const tvm_room *room, tvm_diags *diags);

static inline bool tvm_has_room(const tvm_room *room, uint32_t kernel) {
    return !room->needs || room->needs[kernel] <= room->has;
}

#endif
