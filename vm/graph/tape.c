#include "tape.h"

#include <stdlib.h>
#include <string.h>

static uint64_t blocks_of(const graph_launch *launch) {
    const uint32_t *grid = launch->kept.launch.grid;
    return (uint64_t)grid[0] * grid[1] * grid[2];
}

void tvm_tape_free(tvm_tape *tape) {
    free(tape->tasks);
    free(tape->waits);
    *tape = (tvm_tape){0};
}

/* Marks the launches with blocks that launch `index` waits for: through one without blocks it waits for what
 * that waits for. */
static void mark_waits(const tvm_graph *graph, uint32_t index, bool *marks) {
    const graph_launch *launch = graph->launches[index];
    for (uint32_t i = 0; i < launch->after_count; i++) marks[launch->after[i]] = true;
    for (uint32_t i = index; i-- > 0;) {
        const graph_launch *before = graph->launches[i];
        if (!marks[i] || blocks_of(before)) continue;
        marks[i] = false;
        for (uint32_t a = 0; a < before->after_count; a++) marks[before->after[a]] = true;
    }
}

static tvm_status add_waits(const tvm_graph *graph, uint32_t index, tvm_tape *tape, tvm_diags *diags) {
    bool *marks = calloc(graph->launch_count, sizeof *marks);
    tvm_tape_wait *waits =
        reallocarray(tape->waits, (size_t)tape->wait_count + graph->launch_count, sizeof *waits);
    if (waits) tape->waits = waits;
    if (marks && waits) {
        mark_waits(graph, index, marks);
        for (uint32_t i = 0; i < index; i++)
            if (marks[i])
                waits[tape->wait_count++] =
                    (tvm_tape_wait){.counter = i, .value = (uint32_t)blocks_of(graph->launches[i])};
    }
    free(marks);
    return marks && waits ? TVM_OK : tvm_diag_no_memory(diags);
}

static tvm_status add_tasks(const tvm_graph *graph, uint32_t index, uint32_t size, tvm_tape *tape,
                            tvm_diags *diags) {
    uint32_t blocks = (uint32_t)blocks_of(graph->launches[index]), first_wait = tape->wait_count;
    tvm_status status = add_waits(graph, index, tape, diags);
    for (uint32_t at = 0; !status && at < blocks; at += size) {
        uint32_t count = blocks - at < size ? blocks - at : size;
        tape->tasks[tape->task_count++] = (tvm_tape_task){.launch = index,
                                                          .first = at,
                                                          .count = count,
                                                          .first_wait = first_wait,
                                                          .wait_count = tape->wait_count - first_wait,
                                                          .counter = index,
                                                          .raise = count};
        if (blocks - at <= size) break; /* at + size may not fit */
    }
    return status;
}

tvm_status tvm_tape_make(const tvm_graph *graph, uint32_t blocks, tvm_tape *tape, tvm_diags *diags) {
    uint64_t tasks = 0;
    bool fits = blocks > 0;
    *tape = (tvm_tape){.counter_count = graph->launch_count};
    for (uint32_t i = 0; fits && i < graph->launch_count; i++) {
        uint64_t count = blocks_of(graph->launches[i]);
        fits = count <= UINT32_MAX;
        tasks += count / blocks + (count % blocks != 0);
    }
    if (!fits || tasks > TVM_TAPE_MOST_TASKS)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, "put more blocks into a task",
                            "tasks of %u blocks are more than the %d that a tape may have", blocks,
                            (int)TVM_TAPE_MOST_TASKS);
    tape->tasks = calloc(tasks + 1, sizeof *tape->tasks);
    tvm_status status = tape->tasks ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t i = 0; !status && i < graph->launch_count; i++)
        if (blocks_of(graph->launches[i])) status = add_tasks(graph, i, blocks, tape, diags);
    if (status) tvm_tape_free(tape);
    return status;
}
