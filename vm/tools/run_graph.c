#include "run_graph.h"

#include <stdlib.h>
#include <string.h>

static tvm_status failed(const tvm_run_binding *binding, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(binding->context)) : TVM_OK;
}

static tvm_status print_report(const tvm_run_graph *run, const tvm_run_binding *binding, tvm_diags *diags) {
    char *text = NULL;
    tvm_status status = failed(binding, tvm_graph_report(run->graph, &text), diags);
    for (const char *line = text; !status && *line; line += strcspn(line, "\n") + 1)
        fprintf(stderr, "tvm-run: %.*s\n", (int)strcspn(line, "\n"), line);
    free(text);
    return status;
}

tvm_status tvm_run_graph_make(tvm_run_graph *run, tvm_graph_source *source, const tvm_run_binding *binding,
                              tvm_diags *diags) {
    tvm_status status = tvm_graph_source_make(source, binding->values, &run->graph, diags);
    if (status) {
        tvm_graph_source_free(source);
        return status;
    }
    if (run->persistent) status = failed(binding, tvm_graph_set_persistent(run->graph), diags);
    if (!status) status = failed(binding, tvm_graph_finish(run->graph), diags);
    return !status && run->verbose ? print_report(run, binding, diags) : status;
}

tvm_status tvm_run_graph_launch(const tvm_run_graph *run, const tvm_run_binding *binding, tvm_diags *diags) {
    return failed(binding, tvm_graph_launch(run->graph, NULL), diags);
}

void tvm_run_graph_free(tvm_run_graph *run) {
    tvm_graph_free(run->graph);
    run->graph = NULL;
}
