/* Graphs as CUDA graphs, of explicit kernel nodes; the members of tvm_device_ops. */
#ifndef TVM_VM_CUDA_GRAPH_H
#define TVM_VM_CUDA_GRAPH_H

#include "device.h"

tvm_status tvm_cuda_graph_open(void *device, const char *name, const tvm_device_node *nodes, uint32_t count,
                               const tvm_tape *tape, void **graph, tvm_diags *diags);
tvm_status tvm_cuda_graph_set(void *graph, uint32_t index, const tvm_device_node *node, bool *rebuild,
                              tvm_diags *diags);
tvm_status tvm_cuda_graph_launch(void *graph, void *stream, tvm_diags *diags);
void tvm_cuda_graph_close(void *graph);
/* Of a persistent kernel that notes times: the address on the device of a tvm_persistent_times a task; 0. */
uint64_t tvm_cuda_graph_times(const void *graph);

#endif
