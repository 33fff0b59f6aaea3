/* An entry's table made ready for a device: which kernel a launch runs. */
#ifndef TVM_VM_VARIANTS_H
#define TVM_VM_VARIANTS_H

#include <stdatomic.h>

#include "launch.h"

typedef struct tvm_variants tvm_variants;

/* The shared memory of the device's blocks, and what kernels need of it. A kernel's need is computed when it
 * is first to be launched, since that takes as long as a part of its translation. */
typedef struct tvm_room {
    uint64_t has; /* bytes of shared memory of a block */
    /* computes what a block of the kernel needs; NULL: every kernel fits */
    tvm_status (*ask)(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags);
    const void *code;
    atomic_uchar *answers; /* by kernel of the program: tvm_room_answer, of several threads at a time */
} tvm_room;

typedef enum tvm_room_answer { TVM_ROOM_NOT_ASKED, TVM_ROOM_FITS, TVM_ROOM_TOO_BIG } tvm_room_answer;

/* Makes the table for launches on env's device; env's scalars are not read. Cases whose kernels need more
 * shared memory than a block may have are skipped. The entry and the room's answers must outlive the table.
 * Release with tvm_variants_free. */
tvm_status tvm_variants_make(const tvm_ir_program *program, const tvm_ir_entry *entry,
                             const tvm_launch_env *env, const tvm_room *room, tvm_variants **variants,
                             tvm_diags *diags);
void tvm_variants_free(tvm_variants *variants); /* NULL is fine */

/* *index becomes the case that is taken: of the first choice that has a case whose condition holds and whose
 * kernel fits, the least costly such case, the first of equals. TVM_ARGUMENT when no case is such, with a
 * message that names the values and the nearest case, and when a condition, or the cost of a case whose
 * condition holds, cannot be evaluated; a case whose kernel does not fit needs neither. It takes some tens of
 * nanoseconds for arguments that came before, or where a few comparisons decide, and some hundreds for new
 * arguments where formulas decide. It allocates nothing, unless a kernel is chosen for the
 * first time. */
tvm_status tvm_variants_choose(const tvm_variants *variants, const tvm_launch_env *env, uint32_t *index,
                               tvm_diags *diags);

/* Adds a line for each case with a cost whose condition holds, with the cost, and for the case that is
 * chosen: "case 2: rows, cost 120, taken". Fails as the choice does. */
tvm_status tvm_variants_costs(const tvm_variants *variants, const tvm_launch_env *env, tvm_text *out,
                              tvm_diags *diags);

/* Sets possible[i] for each case: may arguments exist for which it is chosen on this device? Conditions on
 * the device alone are evaluated; nothing is assumed of the parameters. It fails with TVM_NO_MEMORY. */
tvm_status tvm_variants_possible(const tvm_variants *variants, bool *possible, tvm_diags *diags);

/* Refuses a launch that no case serves, because no case whose kernel fits has a condition that holds. The
 * message names the case whose condition holds and whose kernel does not fit, with what it needs. Where there
 * is none, it names the nearest case: the one with the fewest comparisons that this device can never meet,
 * then with the fewest that fail, then whose constants are nearest to the values, relative to the constants.
 */
tvm_status tvm_variants_refuse(const tvm_ir_program *program, const tvm_ir_entry *entry,
                               const tvm_launch_env *env, const tvm_room *room, tvm_diags *diags);

/* Computes whether the kernel fits, unless that is known. */
tvm_status tvm_room_for(const tvm_room *room, uint32_t kernel, bool *fits, tvm_diags *diags);

#endif
