/* tvm-run of a graph: its parameters are bound as those of a kernel. */
#ifndef TVM_VM_RUN_GRAPH_H
#define TVM_VM_RUN_GRAPH_H

#include "graph_source.h"
#include "run_bind.h"

typedef struct tvm_run_graph {
    tvm_graph *graph; /* owns what it was made of */
    bool persistent, verbose;
} tvm_run_graph;

/* Makes and finishes the graph on a binding of its head, whose tensors are on the device. Takes the source,
 * also when it fails. Verbose: prints its report to standard error. */
tvm_status tvm_run_graph_make(tvm_run_graph *run, tvm_graph_source *source, const tvm_run_binding *binding,
                              tvm_diags *diags);
tvm_status tvm_run_graph_launch(const tvm_run_graph *run, const tvm_run_binding *binding, tvm_diags *diags);
void tvm_run_graph_free(tvm_run_graph *run);

#endif
