/* A device: what a context needs of the machine that runs kernels. Two implementations, the interpreter and
 * CUDA; nothing outside of them knows which one it talks to. Every function but open and close may be called
 * by several threads at once. */
#ifndef TVM_VM_DEVICE_H
#define TVM_VM_DEVICE_H

#include <stdatomic.h>

#include "launch_plan.h"
#include "observe.h"
#include "program.h"
#include "tape_rows.h"
#include "tvm.h"

/* What the interpreter counts of a launch: instructions, each once for its team; bytes that are inside of the
 * tensors, as often as they are touched; executions of each of the kernel's instructions (NULL: not wanted).
 */
typedef struct tvm_launch_counts {
    uint64_t instructions, blocks;
    uint64_t turns; /* of loops, of the warp that makes the most */
    uint64_t global_read, global_written, shared_read, shared_written;
    uint64_t *executed;
} tvm_launch_counts;

/* One launch. The arguments have been checked against the kernel and the grid holds at least one block.
 * scalars[i] or data[i] is the value of parameter i, tensor_bytes[i] the size of tensor i of the launch;
 * shapes has the extents of both. */
typedef struct tvm_device_launch {
    uint32_t kernel; /* index in the program */
    const tvm_scalar *scalars;
    void *const *data;
    const uint64_t *tensor_bytes;
    const tvm_launch_shapes *shapes;
    uint32_t grid[3];
    void *stream;
    uint32_t turns;   /* of loops, that a warp may make; 0: any number */
    bool co_resident; /* all blocks must run at a time, if they wait for each other */
    /* of the interpreter, see tvm_interp_options */
    uint64_t first_block, block_count;
    uint64_t instructions;
    unsigned milliseconds;
    const atomic_uint *cancelled;
    tvm_sanitize sanitize;
    tvm_launch_counts *counts; /* added to; NULL: nothing is counted */
} tvm_device_launch;

/* A launch of a graph that the device runs as one. */
typedef struct tvm_device_node {
    void *code; /* of the launch's program */
    const char *name;
    const tvm_device_launch *launch; /* whose grid may have no block: nothing runs then */
    const uint32_t *after;           /* the earlier launches of the graph that it waits for */
    uint32_t after_count;
    bool early; /* it may begin before the one that it waits for has ended, if its code waits for that itself
                 */
    void *
        memory; /* for the tensors of the launch that are not clean, each at the next multiple of 256 bytes */
} tvm_device_node;

typedef struct tvm_device_ops {
    tvm_device_kind kind;
    /* TVM_NO_DEVICE when there is no such device or no driver, TVM_UNSUPPORTED when this build or the code
     * generator does not know it: TVM_DEVICE_AUTO then goes on to the next device. The observer outlives the
     * device. */
    tvm_status (*open)(const tvm_context_options *options, tvm_observer *observer, void **device,
                       tvm_diags *diags);
    void (*close)(void *device);
    const char *(*name)(const void *device);
    int (*ordinal)(const void *device); /* among the machine's devices of the kind */
    /* The warning of a problem that made no call fail (a cache that cannot be used); NULL: there was none. */
    const char *(*warning)(const void *device);
    uint32_t (*multiprocessors)(const void *device);
    uint32_t (*target)(const void *device); /* 80, 89, 90, ...: the architecture that code is made for */
    /* What its code is made for, and its compute capability, 10 major + minor; NULL: it runs no code. */
    const struct tvm_target *(*code_target)(const void *device);
    unsigned (*capability)(const void *device);

    /* A program on the device, whose launches can only have a limit of turns where its code counts them.
     * code_open is cheap; prepare translates and loads once per program or kernel,
     * in the first caller; launch prepares where that has not been done. The program outlives its code. */
    tvm_status (*code_open)(void *device, const tvm_ir_program *program, bool counts_turns, void **code,
                            tvm_diags *diags);
    void (*code_close)(void *code);
    /* The bytes of shared memory that a block may have, and that a block of a kernel needs; computing the
     * latter takes as long as a part of its translation. NULL where blocks may have any number. */
    uint64_t (*shared_bytes)(const void *code);
    tvm_status (*shared_need)(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags);
    tvm_status (*prepare)(void *code, uint32_t kernel, tvm_diags *diags);
    /* Of a kernel, prepared if need be; strings live as long as the device. */
    tvm_status (*describe)(void *code, uint32_t kernel, tvm_kernel_info *info, tvm_diags *diags);
    /* See tvm_code_origin. */
    const char *(*code_origin)(const void *code);
    tvm_status (*launch)(void *code, const tvm_device_launch *launch, tvm_diags *diags);
    /* Prepares, and allocates the memory that this launch needs; the tensors' data is not read. */
    tvm_status (*reserve)(void *code, const tvm_device_launch *launch, tvm_diags *diags);
    /* Times `count` launches of one kernel with the same scalars, which run one after the other, again and
     * again. */
    tvm_status (*time)(void *code, const tvm_device_launch *launches, unsigned count, unsigned repeats,
                       double *microseconds, tvm_diags *diags);
    tvm_status (*synchronize)(void *device, void *stream, tvm_diags *diags);

    /* Graphs; NULL where their launches are made one after the other. graph_open prepares the launches'
     * kernels; name, nodes and tape need not outlive the call. With a tape, which has been verified and whose
     * tasks are of one block each, the graph is one persistent kernel; TVM_UNSUPPORTED where the device
     * cannot run it so, TVM_LIMIT where blocks that wait for each other would not be resident at a time.
     * graph_set gives a node other arguments, also another kernel of the same program, for launches of the
     * graph from now on. *rebuild: the graph cannot take them, and has to be opened anew. The device is one
     * context's, whose caller takes care that one thread at a time uses a graph. */
    tvm_status (*graph_open)(void *device, const char *name, const tvm_device_node *nodes, uint32_t count,
                             const tvm_tape *tape, void **graph, tvm_diags *diags);
    tvm_status (*graph_set)(void *graph, uint32_t index, const tvm_device_node *node, bool *rebuild,
                            tvm_diags *diags);
    tvm_status (*graph_launch)(void *graph, void *stream, tvm_diags *diags);
    /* Of a graph that does not run. */
    void (*graph_close)(void *graph);
    /* Waits for all that the device does. */
    tvm_status (*drain)(void *device, tvm_diags *diags);

    /* The timeline's spans of the device, from begin to end; NULL where launches are done when they return.
     */
    tvm_status (*trace_begin)(void *device, tvm_diags *diags);
    tvm_status (*trace_end)(void *device, tvm_diags *diags);

    tvm_status (*memory_alloc)(void *device, size_t bytes, void **data, tvm_diags *diags);
    tvm_status (*memory_free)(void *device, void *data, tvm_diags *diags);
    tvm_status (*memory_write)(void *device, void *to, const void *from, size_t bytes, tvm_diags *diags);
    tvm_status (*memory_read)(void *device, void *to, const void *from, size_t bytes, tvm_diags *diags);
} tvm_device_ops;

extern const tvm_device_ops tvm_device_cpu;
extern const tvm_device_ops tvm_device_cuda; /* without cuda.h: one whose open says so */

/* The median of `count` samples, which it sorts. */
double tvm_median(double *samples, size_t count);

#endif
