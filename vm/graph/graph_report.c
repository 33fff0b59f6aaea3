#include "graph_impl.h"

#include <stdlib.h>
#include <string.h>

static void add_launch(tvm_text *text, const tvm_graph *graph, const graph_launch *launch) {
    const tvm_kernel *function = launch->kernel, *variant = launch->kept.variant;
    const uint32_t *grid = launch->kept.launch.grid;
    tvm_text_add(text, "%s: %s", launch->name, tvm_kernel_name(function));
    if (variant != function) tvm_text_add(text, " (%s)", tvm_kernel_name(variant));
    tvm_text_add(text, ", %u x %u x %u blocks", grid[0], grid[1], grid[2]);
    for (uint32_t i = 0; i < launch->after_count; i++)
        tvm_text_add(text, "%s%s", i ? ", " : ", after ", graph->launches[launch->after[i]]->name);
    tvm_text_puts(text, "\n");
}

tvm_status tvm_graph_describe(const tvm_graph *graph, char **text, tvm_diags *diags) {
    tvm_text made = {0};
    tvm_text_add(&made, "%s: %u launches; memory of its own: %llu bytes, %llu unshared\n", graph->name,
                 graph->launch_count, (unsigned long long)graph->bytes, (unsigned long long)graph->unshared);
    for (uint32_t i = 0; i < graph->launch_count; i++) add_launch(&made, graph, graph->launches[i]);
    if (made.failed) {
        tvm_text_free(&made);
        return tvm_diag_no_memory(diags);
    }
    *text = made.data;
    return TVM_OK;
}
