/* Pipelined loops (isa/pipeline.h) written out: what comes after sees plain loops, rings and explicit waits.
 * A tensor that a loop with STAGES stages fills becomes a ring of as many tiles, by one more dimension in
 * front:
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

#include "program.h"

/* *lowered is a verified program whose kernels, in the same order, have no pipelined loops; or NULL, when the
 * program has none. The caller frees it. TVM_UNSUPPORTED: a kernel would be too long. */
tvm_status tvm_pipelines_lower(const tvm_ir_program *program, tvm_ir_program **lowered, tvm_diags *diags);

#endif
