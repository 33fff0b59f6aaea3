/* Kernels of one or several programs as one kernel that stays on the multiprocessors (a persistent kernel): a
 * body of code for each of them, and around the bodies a loop over tasks, whose rows are in global memory.
 *
 *     rows of tasks ---> block w of W takes tasks w, w + W, w + 2 W, ..., in this order, and of each
 *                          |
 *                          waits until counters have the values that the row names; of a kernel that has
 *                          |     wait-dependency the body may begin before, and waits there
 *                          runs the kernel's body with the row's block, grid and parameters
 *                          |
 *                          raises the row's counter, when all of its threads have ended
 *
 * What a task wrote before it raised a counter is seen by those that have waited for it (release and acquire
 * of the GPU's scope). The last block to end makes all counters 0, for the next launch. All W blocks have to
 * be resident at a time. That no wait lasts for ever is to be seen to by who makes the rows: tasks that wait
 * for earlier ones alone, and a kernel whose blocks wait for each other with no more blocks than W, one after
 * the other. */
#ifndef TVM_CODEGEN_PERSISTENT_H
#define TVM_CODEGEN_PERSISTENT_H

#include "codegen.h"

/* A task: this, and behind it the parameters of its launch, which lie as the body's ABI says. A row is
 * tvm_persistent_row_bytes long, and the next one comes behind it: while a body runs, the block's next row is
 * on its way to shared memory. */
typedef struct tvm_persistent_row {
    uint32_t body;     /* the kernel, by its number among the bodies */
    uint32_t is_early; /* 1: the body itself waits, where its ABI has TVM_ABI_WAITS_FOR_DEPENDENCY; 0: it
                          begins after the wait */
    uint32_t block[3], grid[3];
    uint32_t counter;    /* bytes from the first counter to the one that the task raises, */
    uint32_t raise;      /* and by how much */
    uint32_t wait;       /* bytes from the first counter to the one that it waits for, */
    uint32_t value;      /* and the least value that it goes on with; 0: it does not wait */
    uint32_t more;       /* the first of its further waits in their table, */
    uint32_t more_count; /* and their number */
    uint32_t unused[2];
} tvm_persistent_row;
_Static_assert(sizeof(tvm_persistent_row) == 64, "as the kernel loads it");

typedef struct tvm_persistent_wait {
    uint32_t counter, value; /* as wait and value of a row */
} tvm_persistent_wait;

enum {

    TVM_PERSISTENT_COUNTER_BYTES = 128 /* from a counter to the next: each has its own line of the L2 */
};

/* The parameters of the persistent kernel, in this order and with C's layout. */
typedef struct tvm_persistent_params {
    uint64_t rows, waits, counters, times; /* addresses */
    uint32_t tasks, counter_count;         /* behind the counters is one more, which counts blocks */
} tvm_persistent_params;

/* What a kernel that notes times writes of each task at `times`, in nanoseconds. */
typedef struct tvm_persistent_times {
    uint64_t begun, waited, ended, unused;
} tvm_persistent_times;

typedef struct tvm_persistent_body {
    const tvm_ir_program *program; /* verified */
    uint32_t kernel;
} tvm_persistent_body;

/* Bytes of a row of the kernel. */
uint32_t tvm_persistent_row_bytes(const tvm_module *module);

/* The name of its entry point. */
#define TVM_PERSISTENT_NAME "tvm_persistent"

/* Translates the bodies, up to 4096, for the target. Row 0 of the module's kernels is the persistent kernel,
 * whose ABI has its threads and shared memory alone; row 1 + i has the ABI of body i. *resident: the blocks
 * of a multiprocessor that its registers are made for. TVM_UNSUPPORTED, with the kernel and the cause, for
 * kernels with clusters, tensor memory, tensor maps, prints, register counts of roles, or that the target
 * lacks; or where the rows find no room in shared memory beside what the bodies have there. */
tvm_status tvm_translate_persistent(const tvm_persistent_body *bodies, uint32_t count, tvm_target target,
                                    bool notes_times, tvm_module **module, uint32_t *resident,
                                    tvm_diags *diags);

#endif
