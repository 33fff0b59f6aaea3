/* Pipelined loops (isa/pipeline.h) written out: what comes after sees plain loops, rings and explicit waits.
 * A tensor that a loop with STAGES stages fills becomes a ring of as many tiles, by one more dimension in
 * front. Where a warp of its own can start the copies by TMA, the kernel is parted into roles
 * (pipeline_roles.c); else all threads copy, in groups of cp.async (pipeline_groups.c):
 *
 *     for each of the first STAGES - 1 turns: if there is such a turn, its copies; commit-group
 *     %stage = 0
 *     for %k = START to END step STEP
 *         wait-group STAGES - 2                    the copies of this turn are done
 *         sync                                     and seen by all; the turn before is over
 *         if there is a turn STAGES - 1 after this one, its copies; commit-group
 *         the body, without copies, on tile %stage
 *         %stage = %stage == STAGES - 1 ? 0 : %stage + 1
 *     end
 */
#ifndef TVM_CODEGEN_PIPELINE_LOWER_H
#define TVM_CODEGEN_PIPELINE_LOWER_H

#include "codegen.h"

typedef struct tvm_lowered {
    /* verified; its kernels, in the same order, have no pipelined loops. NULL: the program has none */
    tvm_ir_program *program;
    char **not_parted; /* by kernel: why TMA does not do the copies; NULL: it does, or there are
                          none */
    char *
        *no_products; /* by kernel: why the tensor core of tcgen05 does not do its products; NULL: it does */
} tvm_lowered;

/* What the program becomes on the target. TVM_UNSUPPORTED: a kernel would be too long. */
tvm_status tvm_pipelines_lower(const tvm_ir_program *program, tvm_target target, tvm_lowered *lowered,
                               tvm_diags *diags);
void tvm_lowered_free(tvm_lowered *lowered);

#endif
