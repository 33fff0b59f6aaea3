/* Scratch memory: the shared memory behind a block's tensors, by which instructions pass values from warp to
 * warp. Threads write their part of it between tvm_scratch_begin and tvm_scratch_publish, and read after
 * that.
 *
 * What was read there must not be overwritten while a slower warp still reads: there are two buffers for
 * those that need little, which take turns, so that the barrier of one use orders the reads of the one
 * before; a use that cannot know so begins with a barrier of its own. */
#ifndef TVM_CODEGEN_SCRATCH_H
#define TVM_CODEGEN_SCRATCH_H

#include "emit.h"

/* Where bytes are counted from: the block's shared memory, of teams that run the same code moved on to their
 * own. */
reg tvm_scratch_base(emitter *e);

/* What may be written: bytes [result, result + bytes) from there on. */
uint32_t tvm_scratch_begin(emitter *e, uint64_t bytes);
/* All threads of the team see what was written. */
void tvm_scratch_publish(emitter *e);
/* Here come together paths whose last uses differ, or are not known yet: those of a loop's turns. */
void tvm_scratch_join(emitter *e);

#endif
