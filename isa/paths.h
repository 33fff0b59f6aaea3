/* What paths bring to each instruction of a kernel: one walk over structured control, for every analysis that
 * follows a set of facts from instruction to instruction. */
#ifndef TVM_PATHS_H
#define TVM_PATHS_H

#include "program.h"

/* A state is a set of facts, of which a state of zeros has none; that is also what a path brings that does
 * not exist. `context` is the analysis' own.
 *
 * The walk is repeated until no head of a loop has more facts than in the turn before: the facts that hold
 * for any number of turns. A break brings its facts behind the loop, a continue to its head, and behind
 * either, as behind an exit, nothing comes until paths meet again. Behind a role comes what was before it,
 * where no path comes to its end. */
typedef struct tvm_paths {
    const tvm_ir_kernel *kernel;
    void *context;
    size_t size; /* bytes of a state */
    /* Paths meet: adds the facts of `other`; had *into less before? */
    bool (*meet)(void *context, void *into, const void *other);
    /* What the instruction makes of the facts that come to it: those of a loop come to its head, in any turn.
     */
    void (*step)(void *context, uint32_t at, void *state);
    /* The end of a role; NULL: it changes nothing. */
    void (*leave_role)(void *context, void *state);
    bool loops_run; /* each loop has one turn at least */
} tvm_paths;

/* False: out of memory. */
bool tvm_paths_walk(const tvm_paths *paths);

#endif
