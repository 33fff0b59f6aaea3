/* A graph from its text: what the assembler has read (graph_text.h), with the programs loaded, becomes a
 * tvm_graph once the scalars have values. */
#ifndef TVM_VM_GRAPH_SOURCE_H
#define TVM_VM_GRAPH_SOURCE_H

#include "graph_text.h"
#include "runtime.h"

typedef struct tvm_graph_source tvm_graph_source;

/* Loads the programs of a text, and the kernels that stand in it (`own`). Takes both, also when it fails. */
tvm_status tvm_graph_source_load(tvm_context *context, tvm_graph_text *text, tvm_ir_program *own,
                                 tvm_graph_source **source, tvm_diags *diags);
/* NULL is fine. */
void tvm_graph_source_free(tvm_graph_source *source);

/* Its parameters are those of the graph. Nothing launches it. */
tvm_kernel *tvm_graph_source_head(const tvm_graph_source *source);

/* Makes the graph, up to tvm_graph_finish. A value for each parameter of the head; a tensor's may lack data,
 * which tvm_graph_set_tensor then gives. On success the graph owns the source. */
tvm_status tvm_graph_source_make(tvm_graph_source *source, const tvm_value *values, tvm_graph **graph,
                                 tvm_diags *diags);

#endif
