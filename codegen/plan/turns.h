/* What the loops of a kernel take off the budget of turns, where its code counts them (tvm-memory(7), "Turns").
 * Whether a launch has turns enough does not depend on where the code counts them, as long as it counts all
 * that come: a loop that makes all of its turns once it has begun takes them at once, and one with constantly
 * many of them is part of the turns of the loop around it. So most inner loops count nothing in their turns. */
#ifndef TVM_CODEGEN_TURNS_H
#define TVM_CODEGEN_TURNS_H

#include "kernel_state.h"

/* Of a loop. */
typedef struct turn_plan {
    uint64_t each; /* what a turn of it takes: 1, and what the loops in its body take that have no plan of
                      their own; UINT64_MAX: that, or more */
    bool whole;    /* once it has begun, it makes all of its turns */
    bool in_outer; /* the loop around it takes its turns, too */
} turn_plan;

/* Sets k->turns, by the insn of what opens the loop, unless the code counts nothing. */
tvm_status tvm_turns_plan(kernel_state *k);
/* a * b, or UINT64_MAX. */
uint64_t tvm_turns_times(uint64_t a, uint64_t b);

#endif
