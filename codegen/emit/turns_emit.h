/* The budget of turns in the code: a register has what is left of it, and a trap ends a launch that takes
 * more. Where the kernel's code counts nothing (kernel_state.h), nothing is written. */
#ifndef TVM_CODEGEN_TURNS_EMIT_H
#define TVM_CODEGEN_TURNS_EMIT_H

#include "emit.h"
#include "turns.h"

/* At kernel entry. */
void tvm_turns_begin(emitter *e);
/* What a loop takes, whose instruction has this number; NULL: nothing, or nothing of its own. */
const turn_plan *tvm_turns_of(const emitter *e, uint32_t loop);
/* Takes that many. */
void tvm_emit_turns(emitter *e, uint64_t turns);
/* Takes `each` times a number in a register, %r or, where it is wide, %rd. */
void tvm_emit_turns_each(emitter *e, reg turns, bool wide, uint64_t each);

/* Goes to the label where the predicate holds (or else does not): the way back of what waits and asks again.
 * All threads of the warp come here. Counted, an ask takes a turn, and a warp asks again as a whole. */
void tvm_emit_ask_again(emitter *e, reg predicate, bool when, uint32_t label);

#endif
