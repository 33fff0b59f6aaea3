/* Independent pieces of work on several threads. */
#ifndef TVM_WORK_H
#define TVM_WORK_H

#include "diag.h"

/* Told about ten times a second, by the thread that called tvm_work, how much is done. show may be NULL.
 */
typedef struct tvm_work_progress {
    void (*show)(void *closure, double fraction);
    void *closure;
} tvm_work_progress;

/* Calls run(closure, thread, piece) for every piece below `pieces`, begun in order; `thread` is below
 * `threads` and no two calls at a time have the same. When pieces fail, the diagnostics are those of the
 * first one, whichever thread came upon it. */
tvm_status tvm_work(uint64_t pieces, unsigned threads,
                    tvm_status (*run)(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags),
                    void *closure, const tvm_work_progress *progress, tvm_diags *diags);

/* `wanted`, or the cores that this process may use when it is 0. */
unsigned tvm_work_threads(unsigned wanted);

#endif
