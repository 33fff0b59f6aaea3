/* An entry's table made ready for a device: which kernel a launch runs. */
#ifndef TVM_VM_VARIANTS_H
#define TVM_VM_VARIANTS_H

#include <stdatomic.h>

#include "launch.h"

typedef struct tvm_variants tvm_variants;

/* What blocks of the device have room for: asked of a kernel when it is first to be launched, as to ask takes
 * as long as a part of its translation. */
typedef struct tvm_room {
    uint64_t has; /* bytes of shared memory of a block */
    /* what a block of the kernel needs of it; NULL: there is room for all */
    tvm_status (*ask)(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags);
    const void *code;
    atomic_uchar *answers; /* by kernel of the program: tvm_room_answer, of several threads at a time */
} tvm_room;

typedef enum tvm_room_answer { TVM_ROOM_NOT_ASKED, TVM_ROOM_FITS, TVM_ROOM_TOO_BIG } tvm_room_answer;

/* The table for launches with this env's device; its scalars are not looked at. Cases whose kernels need more
 * than there is room for are passed over. The entry and the room's answers must stay. Release with
 * tvm_variants_free. */
tvm_status tvm_variants_make(const tvm_ir_program *program, const tvm_ir_entry *entry,
                             const tvm_launch_env *env, const tvm_room *room, tvm_variants **variants,
                             tvm_diags *diags);
void tvm_variants_free(tvm_variants *variants); /* NULL is fine */

/* *index is the first case whose condition holds and whose kernel there is room for. TVM_ARGUMENT when none
 * does, with a message that names the values and the nearest case, and when a condition cannot be evaluated.
 * Takes some tens of nanoseconds for arguments that were there before, or where a few comparisons decide,
 * some hundreds for new ones where formulas do; allocates nothing, unless a kernel is chosen for the first
 * time. */
tvm_status tvm_variants_choose(const tvm_variants *variants, const tvm_launch_env *env, uint32_t *index,
                               tvm_diags *diags);

/* possible[i], of each case: are there arguments for which it might be chosen on this device? What the device
 * alone decides has been decided; of the parameters nothing is assumed. TVM_NO_MEMORY. */
tvm_status tvm_variants_possible(const tvm_variants *variants, bool *possible, tvm_diags *diags);

/* Refuses a launch that no case serves: of every one that there is room for, the condition does not hold. The
 * one of the others whose condition holds is told with what it needs; else the nearest case is the one with
 * the fewest comparisons that fail, those that this device can never meet counting first; of equals the one
 * whose constants are nearest to the values, relative to the constants. */
tvm_status tvm_variants_refuse(const tvm_ir_program *program, const tvm_ir_entry *entry,
                               const tvm_launch_env *env, const tvm_room *room, tvm_diags *diags);

/* Asks, unless it is known. */
tvm_status tvm_room_for(const tvm_room *room, uint32_t kernel, bool *fits, tvm_diags *diags);

#endif
