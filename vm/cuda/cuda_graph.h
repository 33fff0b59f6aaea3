/* Graphs as CUDA graphs, of explicit kernel nodes; the members of tvm_device_ops. */
#ifndef TVM_VM_CUDA_GRAPH_H
#define TVM_VM_CUDA_GRAPH_H

#include "device.h"

tvm_status tvm_cuda_graph_open(void *device, const char *name, const tvm_device_node *nodes, uint32_t count,
                               void **graph, tvm_diags *diags);
tvm_status tvm_cuda_graph_set(void *graph, uint32_t index, const tvm_device_node *node, bool *rebuild,
                              tvm_diags *diags);
tvm_status tvm_cuda_graph_launch(void *graph, void *stream, tvm_diags *diags);
void tvm_cuda_graph_close(void *graph);

#endif
