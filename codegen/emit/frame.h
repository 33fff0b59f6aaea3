/* What stands around a kernel's code: where it finds its block, the grid and its parameters, how it waits for
 * the launches before it, and where it ends. Of an entry point these are special registers, parameters,
 * griddepcontrol and exit. Of a body of a persistent kernel (persistent.h), whose blocks run the bodies of
 * one task after the other, they are registers and a record in shared memory that the kernel sets for each
 * task, counters of the blocks that have ended, and a label. */
#ifndef TVM_CODEGEN_FRAME_H
#define TVM_CODEGEN_FRAME_H

#include "emit.h"

/* The registers of a persistent kernel that hold what belongs to a task; no kernel's own are named so. */
enum {
    /* of 32 bits, %t */
    FRAME_BLOCK,      /* the block's index: x, y, z */
    FRAME_GRID = 3,   /* the grid's extents: x, y, z */
    FRAME_WAIT = 6,   /* bytes from the first counter to the one that the task waits for, */
    FRAME_VALUE,      /* and the value that it has to reach */
    FRAME_MORE,       /* the first of the task's further waits, */
    FRAME_MORE_COUNT, /* and their number */
    FRAME_COUNTER,    /* bytes from the first counter to the one that the task raises, */
    FRAME_RAISE,      /* and by how much */
    FRAME_TASK,       /* the task's number in the tape */
    FRAME_THREAD,     /* the thread's in the block */
    FRAME_ROW,        /* where the task's row is in shared memory, */
    FRAME_NEXT_ROW,   /* and the next one's */
    FRAME_WORDS,
    /* of 64 bits, %td: addresses */
    FRAME_COUNTERS = 0, /* of the first counter */
    FRAME_STAMPS,       /* of the task's times */
    FRAME_ADDRESSES
};

/* Bytes from a row to the parameters of its launch, which end it. */
enum { FRAME_PARAMS = 64 };

/* The barrier at which all threads of a persistent kernel meet between two bodies, the last one that PTX has.
 */
enum { FRAME_BARRIER = 15 };

/* The times of a task, in nanoseconds of %globaltimer. */
typedef enum frame_time { FRAME_BEGUN, FRAME_WAITED, FRAME_ENDED, FRAME_TIMES = 4 } frame_time;

/* A body while it is translated. */
typedef struct body_frame {
    uint32_t end;      /* the label behind it */
    bool notes_times;  /* frame_time */
    const char *wrong; /* set: why the kernel cannot be a body; NULL: it can */
} body_frame;

/* "%ctaid.x", "%nctaid.x", or what stands for it. */
const char *tvm_frame_block(const emitter *e, unsigned axis, char text[16]);
const char *tvm_frame_grid(const emitter *e, unsigned axis, char text[16]);
/* "ld.param.b32 out, [param_3];", or what stands for it, where the ABI's row is of that type. */
const char *tvm_frame_param(const emitter *e, uint32_t row, const char *type, reg out, char text[64]);
/* The operands of barrier `number` for all threads of the block. */
const char *tvm_frame_barrier(const emitter *e, uint32_t number, char text[32]);

/* Registers and labels of a wait. */
typedef struct frame_wait {
    reg first, differs; /* predicates; `first` is set in the one thread that asks */
    reg found, address, waits;
    uint32_t again, more; /* labels */
} frame_wait;
/* Appends the wait of one thread for the counters of its task, whose registers are used up by it. */
void tvm_frame_wait_text(const frame_wait *wait, tvm_text *out);
/* Appends the note of a time by the thread for which `first` is set. */
void tvm_frame_stamp(reg first, reg time, frame_time number, tvm_text *out);

#endif
