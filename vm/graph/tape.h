/* A graph as one kernel can run it, which stays on the multiprocessors (a persistent kernel): a tape of tasks
 * in memory. A task is some of the blocks of one launch. A block of the kernel takes tasks of the tape in
 * its order, whichever they are; of each it waits until the counters that the task names have reached their
 * values; runs the task's blocks one after the other; and raises the task's counter. What the blocks of a
 * task have written is visible before the counter is raised, and what a task reads is read after its waits
 * (release and acquire).
 *
 * The rows are those that the kernel would read: words of 32 bits, a task 32 bytes. The interpreter
 * runs a tape task by task. The verification is that of a tape whoever made it: it rests on the tasks, the
 * launches' grids and what their kernels touch, and on nothing that made the tape. */
#ifndef TVM_GRAPH_TAPE_H
#define TVM_GRAPH_TAPE_H

#include "graph_impl.h"
#include "tape_rows.h"

enum { TVM_TAPE_MOST_TASKS = 1 << 14 };

/* Makes the tape of a graph whose arguments are ready: tasks of `blocks` blocks, the launches in their order;
 * a counter a launch, which counts the blocks that have ended. TVM_ARGUMENT where that are more tasks than a
 * tape may have. Release with tvm_tape_free, also a zero-initialised one. */
tvm_status tvm_tape_make(const tvm_graph *graph, uint32_t blocks, tvm_tape *tape, tvm_diags *diags);
void tvm_tape_free(tvm_tape *tape);

/* Is this a tape of the graph? All blocks of each launch are in one task each. Every wait ends, however few
 * blocks take tasks: its counter reaches the value by tasks that stand before it (so the waits have no
 * cycle). Two tasks of different launches that touch the same bytes, one of them writing, are ordered by
 * waits. A temporary is read while it is alive: nothing else was written to its bytes since it was written.
 * All that is touched lies within the graph's memory, or within what the caller has declared. TVM_INVALID
 * with the task, the launches and the tensors. */
tvm_status tvm_tape_verify(const tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags);

/* Runs a verified tape of a graph on the interpreter, as any number of blocks may run it: of the tasks whose
 * counters have reached their values always the last of the tape, so that nothing but counters orders them.
 * TVM_UNSUPPORTED on a GPU, and of kernels whose blocks wait for each other or share memory that they
 * allocate: each of these asks for blocks of one launch that run at the same time, or for memory that
 * outlives a task. */
tvm_status tvm_tape_run(tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags);

#endif
