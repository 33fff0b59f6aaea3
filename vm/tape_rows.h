/* The rows of a tape (graph/tape.h): what a device needs of it to run it. */
#ifndef TVM_VM_TAPE_ROWS_H
#define TVM_VM_TAPE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tvm_tape_task {
    uint32_t launch;                 /* of the graph: kernel and arguments */
    uint32_t first, count;           /* its blocks, numbered along x, then y, then z */
    uint32_t first_wait, wait_count; /* of the tape's waits */
    uint32_t counter, raise;         /* the counter that it raises, and by how much */
    uint32_t unused;                 /* 0 */
} tvm_tape_task;
_Static_assert(sizeof(tvm_tape_task) == 32, "a task is a sector of the L2");

/* A counter, 0 at first, that must have reached a value. */
typedef struct tvm_tape_wait {
    uint32_t counter, value;
} tvm_tape_wait;

typedef struct tvm_tape {
    tvm_tape_task *tasks;
    tvm_tape_wait *waits;
    uint32_t task_count, wait_count, counter_count;
    bool notes_times; /* a device that runs it notes when tasks begin, have waited and end */
} tvm_tape;

#endif
