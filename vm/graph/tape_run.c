#include "tape.h"

#include <stdlib.h>

static tvm_status check_launch(const graph_launch *launch, tvm_diags *diags) {
    const tvm_kernel *variant = launch->kept.variant;
    const char *why = NULL;
    if (variant->tensor_count) why = "share memory that they allocate";
    if (tvm_kernel_waits(variant->kernel)) why = "wait for each other";
    if (!why) return TVM_OK;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                        "tape: the blocks of launch '%s' %s: they are not to be cut into tasks", launch->name,
                        why);
}

static tvm_status check_tape(const tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    if (graph->context->ops->kind != TVM_DEVICE_CPU)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "tape: the interpreter alone runs tapes");
    for (uint32_t i = 0; !status && i < graph->launch_count; i++)
        status = check_launch(graph->launches[i], diags);
    for (uint32_t i = 0; !status && i < tape->task_count; i++) {
        const tvm_tape_task *task = &tape->tasks[i];
        const graph_launch *launch = graph->launches[task->launch];
        uint32_t cluster = tvm_cluster_blocks(launch->kept.variant->kernel);
        if (task->first % cluster || task->count % cluster)
            status = tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                                  "tape: task %u is no whole clusters of launch '%s', which are %u blocks", i,
                                  launch->name, cluster);
    }
    return status;
}

static bool is_ready(const tvm_tape *tape, const tvm_tape_task *task, const uint64_t *counters) {
    for (uint32_t w = 0; w < task->wait_count; w++) {
        const tvm_tape_wait *wait = &tape->waits[task->first_wait + w];
        if (counters[wait->counter] < wait->value) return false;
    }
    return true;
}

static tvm_status run_task(tvm_graph *graph, const tvm_tape_task *task, tvm_diags *diags) {
    tvm_kept_launch *kept = &graph->launches[task->launch]->kept;
    size_t from = diags ? diags->count : 0;
    kept->launch.first_block = task->first;
    kept->launch.block_count = task->count;
    tvm_status status = tvm_launch_kept(kept, NULL, diags);
    kept->launch.first_block = kept->launch.block_count = 0;
    if (status && diags) tvm_graph_prefix(diags, from, "launch '%s': ", graph->launches[task->launch]->name);
    return status;
}

/* Until all have run; one of them is always ready, as the verification has found. */
static tvm_status run_tasks(tvm_graph *graph, const tvm_tape *tape, uint64_t *counters, bool *done,
                            tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (uint32_t ran = 0; !status && ran < tape->task_count; ran++) {
        uint32_t last = tape->task_count;
        while (last-- > 0)
            if (!done[last] && is_ready(tape, &tape->tasks[last], counters)) break;
        if (last == UINT32_MAX)
            return tvm_diag_add(diags, TVM_INVALID, NULL, NULL, "tape: %u tasks wait for ever",
                                tape->task_count - ran);
        status = run_task(graph, &tape->tasks[last], diags);
        counters[tape->tasks[last].counter] += tape->tasks[last].raise;
        done[last] = true;
    }
    return status;
}

tvm_status tvm_tape_run(tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags) {
    tvm_status status = tvm_graph_settle(graph, diags);
    if (!status) status = check_tape(graph, tape, diags);
    if (status) return status;
    uint64_t *counters = calloc((size_t)tape->counter_count + 1, sizeof *counters);
    bool *done = calloc((size_t)tape->task_count + 1, sizeof *done);
    status = counters && done ? run_tasks(graph, tape, counters, done, diags) : tvm_diag_no_memory(diags);
    free(counters);
    free(done);
    return status;
}
