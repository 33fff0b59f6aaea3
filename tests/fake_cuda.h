/* What a test asks of the fake driver (fake_cuda.c) beyond CUDA's own functions: found with
 * dlsym(library, "fake_cuda"), a constant of this type. Every function may be called by several threads. */
#ifndef TVM_TESTS_FAKE_CUDA_H
#define TVM_TESTS_FAKE_CUDA_H

#include <stdbool.h>

typedef struct fake_cuda_control {
    /* The nth driver call from now (1: the next one) fails once with this result; 0: none does. A call that
     * releases something does so all the same, as the real ones do when they report an earlier error. */
    void (*fail_nth)(long nth, int result);
    const char *(*failed)(void); /* the function that did; NULL: none yet */

    /* Calls of one function ("cuLaunchKernel"), or of all (NULL), since the last reset. */
    long (*calls)(const char *name);
    void (*reset)(void);

    /* What was made and not released: modules, memory, streams, events, graphs, references to primary
     * contexts. */
    long (*live)(void);
    /* What a context that had met no fault still held when it was destroyed, and releases of what was not
     * there: mistakes of the caller, counted since the library was loaded. */
    long (*mistakes)(void);
    /* As another user of the context would. */
    void (*destroy)(void *context);
    void (*push)(void *context); /* onto the calling thread's stack, uncounted */
} fake_cuda_control;

#endif
