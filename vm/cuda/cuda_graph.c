/* Kernel nodes need CUDA 12.0, in which a kernel's parameters came to the interface that is used;
 * programmatic dependencies need 12.3: before, a launch begins when the one before it has ended. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_code.h"
#include "cuda_tape.h"

#if CUDA_VERSION >= 12000

enum { ALIGNMENT = 256 }; /* of a launch's own tensors */

typedef struct cuda_node {
    CUgraphNode node;
    bool is_empty;     /* nothing runs */
    bool is_together;  /* its blocks wait for each other, and all have to run at a time */
    bool is_early;     /* the one that it waits for need not have ended */
    CUdeviceptr clean; /* memory of its clean tensors, which stays zero between launches */
    uint64_t clean_bytes;
} cuda_node;

typedef struct cuda_graph {
    cuda_device *device;
    CUgraph graph;
    CUgraphExec exec;
    const char *name;   /* of the timeline; the device's copies */
    const char *kernel; /* of a fault */
    unsigned turns;     /* the limit that its launches have */
    cuda_tape *tape;    /* the launches are one persistent kernel; NULL: each is a node */
    uint32_t count;
    cuda_node nodes[];
} cuda_graph;

/* ---- a launch ---- */

static bool is_empty(const tvm_device_launch *launch) {
    return !launch->grid[0] || !launch->grid[1] || !launch->grid[2];
}

/* Of the current arguments; all but the node. */
static cuda_node form_of(const tvm_device_node *from) {
    const cuda_code *code = from->code;
    const cuda_kernel *kernel = &code->kernels[from->launch->kernel];
    cuda_node form = {.is_empty = is_empty(from->launch)};
    form.is_together = !form.is_empty && from->launch->co_resident && kernel->waits;
    form.is_early = !form.is_empty && !form.is_together && from->early &&
                    kernel->abi.flags & TVM_ABI_WAITS_FOR_DEPENDENCY;
    for (uint32_t i = 0; i < kernel->abi.param_count; i++)
        if (tvm_cuda_pool_of(&kernel->abi.params[i]) == CUDA_SCRATCH_CLEAN)
            form.clean_bytes += (from->launch->tensor_bytes[kernel->abi.params[i].index] + (ALIGNMENT - 1)) /
                                ALIGNMENT * ALIGNMENT;
    return form;
}

/* The launch's parameters; its own tensors lie one after the other in the two memories. */
static tvm_status fill(const cuda_node *node, const tvm_device_node *from, cuda_params *params,
                       tvm_diags *diags) {
    const cuda_code *code = from->code;
    const tvm_kernel_abi *abi = &code->kernels[from->launch->kernel].abi;
    CUdeviceptr next[CUDA_SCRATCH_POOLS], places[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = 0;
    next[CUDA_SCRATCH_UNDEFINED] = (CUdeviceptr)(uintptr_t)from->memory;
    next[CUDA_SCRATCH_CLEAN] = node->clean;
    for (uint32_t i = 0; i < abi->param_count; i++) {
        int pool = tvm_cuda_pool_of(&abi->params[i]);
        if (pool == CUDA_SCRATCH_POOLS) continue;
        places[count++] = next[pool];
        next[pool] +=
            (from->launch->tensor_bytes[abi->params[i].index] + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    }
    return tvm_cuda_fill_params(code, from->launch, places, params, diags);
}

static CUDA_KERNEL_NODE_PARAMS params_of(const tvm_device_node *from, cuda_params *params) {
    const cuda_kernel *kernel = &((const cuda_code *)from->code)->kernels[from->launch->kernel];
    return (CUDA_KERNEL_NODE_PARAMS){.func = kernel->function,
                                     .gridDimX = from->launch->grid[0],
                                     .gridDimY = from->launch->grid[1],
                                     .gridDimZ = from->launch->grid[2],
                                     .blockDimX = kernel->abi.threads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .sharedMemBytes = kernel->abi.shared_bytes,
                                     .kernelParams = params->addresses};
}

/* ---- making ---- */

/* Zeros, which are there when it returns. */
static tvm_status make_clean(cuda_device *device, cuda_node *node, tvm_diags *diags) {
    const tvm_cuda_driver *driver = &device->driver;
    CUstream stream = NULL;
    if (!node->clean_bytes) return TVM_OK;
    CUresult result = driver->memory_alloc(&node->clean, node->clean_bytes);
    if (result) return tvm_cuda_result(device, result, "cuMemAlloc", diags);
    result = driver->stream_create(&stream, CU_STREAM_NON_BLOCKING);
    if (result) return tvm_cuda_result(device, result, "cuStreamCreate", diags);
    result = driver->memory_set(node->clean, 0, node->clean_bytes, stream);
    if (!result) result = driver->stream_synchronize(stream);
    driver->stream_destroy(stream);
    return tvm_cuda_result(device, result, "cuMemsetD8Async", diags);
}

/* The dependency of a launch that waits itself for what it needs of the one before it. */
static CUresult depend_early(const cuda_graph *graph, CUgraphNode before, CUgraphNode node) {
#if CUDA_VERSION >= 12030
    CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                            .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    return graph->device->driver.graph_depend(graph->graph, &before, &node, &edge, 1);
#else
    (void)graph, (void)before, (void)node;
    return CUDA_ERROR_NOT_SUPPORTED;
#endif
}

static bool can_depend_early(const cuda_graph *graph) {
#if CUDA_VERSION >= 12030
    return graph->device->driver.graph_depend != NULL;
#else
    (void)graph;
    return false;
#endif
}

static tvm_status make_cooperative(const cuda_graph *graph, CUgraphNode node, tvm_diags *diags) {
    const CUkernelNodeAttrValue together = {.cooperative = 1};
    CUresult result =
        graph->device->driver.graph_node_attribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &together);
    return tvm_cuda_result(graph->device, result, "cuGraphKernelNodeSetAttribute", diags);
}

static tvm_status add_kernel(cuda_graph *graph, cuda_node *node, const tvm_device_node *from,
                             const CUgraphNode *after, tvm_diags *diags) {
    cuda_device *device = graph->device;
    const tvm_cuda_driver *driver = &device->driver;
    cuda_params params;
    tvm_status status = tvm_cuda_check_limits(from->code, from->launch, node->is_together, diags);
    if (!status) status = make_clean(device, node, diags);
    if (!status) status = fill(node, from, &params, diags);
    if (status) return status;
    const CUDA_KERNEL_NODE_PARAMS made = params_of(from, &params);
    size_t count = node->is_early ? 0 : from->after_count;
    CUresult result = driver->graph_add_kernel(&node->node, graph->graph, after, count, &made);
    if (result) return tvm_cuda_result(device, result, "cuGraphAddKernelNode", diags);
    if (node->is_early) result = depend_early(graph, after[0], node->node);
    if (result) return tvm_cuda_result(device, result, "cuGraphAddDependencies", diags);
    return node->is_together ? make_cooperative(graph, node->node, diags) : TVM_OK;
}

static tvm_status add_node(cuda_graph *graph, uint32_t index, const tvm_device_node *from, tvm_diags *diags) {
    cuda_node *node = &graph->nodes[index];
    tvm_status status = tvm_cuda_ensure(from->code, from->launch->kernel, diags);
    if (status) return status;
    CUgraphNode *after = calloc((size_t)from->after_count + 1, sizeof *after);
    if (!after) return tvm_diag_no_memory(diags);
    for (uint32_t i = 0; i < from->after_count; i++) after[i] = graph->nodes[from->after[i]].node;
    *node = form_of(from);
    if (node->is_early) node->is_early = can_depend_early(graph) && !graph->nodes[from->after[0]].is_empty;
    if (from->launch->turns) graph->turns = from->launch->turns;
    if (node->is_empty)
        status = tvm_cuda_result(
            graph->device,
            graph->device->driver.graph_add_empty(&node->node, graph->graph, after, from->after_count),
            "cuGraphAddEmptyNode", diags);
    else
        status = add_kernel(graph, node, from, after, diags);
    free(after);
    return status;
}

/* ---- one kernel ---- */

static tvm_status fill_launch(cuda_graph *graph, uint32_t index, const tvm_device_node *from,
                              cuda_params *params, tvm_diags *diags) {
    cuda_node *node = &graph->nodes[index];
    tvm_status status = tvm_cuda_ensure(from->code, from->launch->kernel, diags);
    if (status) return status;
    *node = form_of(from);
    if (node->is_empty) return TVM_OK;
    if (from->launch->turns) graph->turns = from->launch->turns;
    status = tvm_cuda_check_limits(from->code, from->launch, false, diags);
    if (!status) status = make_clean(graph->device, node, diags);
    return status ? status : fill(node, from, params, diags);
}

static tvm_status add_tape(cuda_graph *graph, const tvm_device_node *nodes, const tvm_tape *tape,
                           tvm_diags *diags) {
    CUgraphNode node;
    cuda_params *params = aligned_alloc(_Alignof(cuda_params), (graph->count + (size_t)1) * sizeof *params);
    if (!params) return tvm_diag_no_memory(diags);
    memset(params, 0, (graph->count + (size_t)1) * sizeof *params);
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && i < graph->count; i++)
        status = fill_launch(graph, i, &nodes[i], &params[i], diags);
    if (!status)
        status = tvm_cuda_tape_make(graph->device, nodes, graph->count, tape, params, &graph->tape, diags);
    free(params);
    if (status) return status;
    const CUDA_KERNEL_NODE_PARAMS made = tvm_cuda_tape_node(graph->tape);
    CUresult result = graph->device->driver.graph_add_kernel(&node, graph->graph, NULL, 0, &made);
    if (result) return tvm_cuda_result(graph->device, result, "cuGraphAddKernelNode", diags);
    return make_cooperative(graph, node, diags);
}

/* ---- the whole ---- */

static tvm_status name_graph(cuda_graph *graph, const char *name, tvm_diags *diags) {
    char text[300];
    snprintf(text, sizeof text, "one of graph %.255s", name);
    graph->name = tvm_cuda_intern(graph->device, name);
    graph->kernel = tvm_cuda_intern(graph->device, text);
    return graph->name && graph->kernel ? TVM_OK : tvm_diag_no_memory(diags);
}

static void release(cuda_graph *graph) {
    const tvm_cuda_driver *driver = &graph->device->driver;
    if (graph->exec) driver->graph_exec_destroy(graph->exec);
    if (graph->graph) driver->graph_destroy(graph->graph);
    tvm_cuda_tape_free(graph->tape);
    for (uint32_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].clean) driver->memory_free(graph->nodes[i].clean);
    free(graph);
}

static tvm_status build(cuda_graph *graph, const char *name, const tvm_device_node *nodes,
                        const tvm_tape *tape, tvm_diags *diags) {
    cuda_device *device = graph->device;
    const tvm_cuda_driver *driver = &device->driver;
    tvm_status status = name_graph(graph, name, diags);
    if (!status)
        status = tvm_cuda_result(device, driver->graph_create(&graph->graph, 0), "cuGraphCreate", diags);
    if (!status && tape) status = add_tape(graph, nodes, tape, diags);
    for (uint32_t i = 0; !status && !tape && i < graph->count; i++)
        status = add_node(graph, i, &nodes[i], diags);
    if (!status)
        status = tvm_cuda_result(device, driver->graph_instantiate(&graph->exec, graph->graph, 0),
                                 "cuGraphInstantiate", diags);
    return status;
}

static bool has_graphs(const tvm_cuda_driver *driver) {
    return driver->graph_create && driver->graph_add_kernel && driver->graph_add_empty &&
           driver->graph_node_attribute && driver->graph_set_kernel;
}

tvm_status tvm_cuda_graph_open(void *opened, const char *name, const tvm_device_node *nodes, uint32_t count,
                               const tvm_tape *tape, void **made, tvm_diags *diags) {
    cuda_device *device = opened;
    if (!has_graphs(&device->driver))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "the driver lacks cuGraphAddKernelNode: graphs need one for CUDA 12.0 or newer");
    cuda_graph *graph = calloc(1, sizeof *graph + count * sizeof graph->nodes[0]);
    if (!graph) return tvm_diag_no_memory(diags);
    graph->device = device;
    graph->count = count;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) {
        free(graph);
        return status;
    }
    /* While a thread captures a stream, too: allocating and clearing are no part of what it captures. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = !device->driver.capture_mode(&mode);
    status = build(graph, name, nodes, tape, diags);
    if (status) release(graph);
    if (relaxed) device->driver.capture_mode(&mode);
    tvm_cuda_leave(device, pushed);
    if (!status) *made = graph;
    return status;
}

void tvm_cuda_graph_close(void *opened) {
    cuda_graph *graph = opened;
    cuda_device *device = graph->device;
    bool pushed;
    /* The first call may report what an earlier launch did. Where the context is gone, so is what the driver
     * has of it: what the host keeps is freed all the same. */
    if (tvm_cuda_enter(device, &pushed, NULL)) tvm_cuda_enter(device, &pushed, NULL);
    release(graph);
    tvm_cuda_leave(device, pushed);
}

/* ---- other arguments ---- */

/* What a graph that is made cannot change of a node. */
static bool same_form(const cuda_graph *graph, const cuda_node *node, const cuda_node *form,
                      const tvm_device_node *from) {
    bool early = form->is_early && can_depend_early(graph) && !graph->nodes[from->after[0]].is_empty;
    return node->is_empty == form->is_empty && node->is_together == form->is_together &&
           node->is_early == early && node->clean_bytes >= form->clean_bytes;
}

static tvm_status set(cuda_graph *graph, cuda_node *node, const tvm_device_node *from, bool *rebuild,
                      tvm_diags *diags) {
    tvm_status status = tvm_cuda_ensure(from->code, from->launch->kernel, diags);
    if (status) return status;
    const cuda_node form = form_of(from);
    *rebuild = !same_form(graph, node, &form, from);
    if (*rebuild || node->is_empty) return TVM_OK;
    cuda_params params;
    status = tvm_cuda_check_limits(from->code, from->launch, node->is_together, diags);
    if (!status) status = fill(node, from, &params, diags);
    if (status) return status;
    const CUDA_KERNEL_NODE_PARAMS made = params_of(from, &params);
    CUresult result = graph->device->driver.graph_set_kernel(graph->exec, node->node, &made);
    return tvm_cuda_result(graph->device, result, "cuGraphExecKernelNodeSetParams", diags);
}

tvm_status tvm_cuda_graph_set(void *opened, uint32_t index, const tvm_device_node *node, bool *rebuild,
                              tvm_diags *diags) {
    cuda_graph *graph = opened;
    bool pushed;
    *rebuild = graph->tape != NULL;
    if (graph->tape) return TVM_OK;
    tvm_status status = tvm_cuda_enter(graph->device, &pushed, diags);
    if (status) return status;
    status = set(graph, &graph->nodes[index], node, rebuild, diags);
    tvm_cuda_leave(graph->device, pushed);
    return status;
}

uint64_t tvm_cuda_graph_times(const void *graph) {
    const cuda_tape *tape = ((const cuda_graph *)graph)->tape;
    return tape ? tape->times : 0;
}

/* ---- launching ---- */

tvm_status tvm_cuda_graph_launch(void *opened, void *stream, tvm_diags *diags) {
    const cuda_graph *graph = opened;
    cuda_device *device = graph->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    cuda_traced *traced = tvm_cuda_trace_launch(device, graph->name, stream);
    status =
        tvm_cuda_result(device, device->driver.graph_launch(graph->exec, stream), "cuGraphLaunch", diags);
    if (!status && atomic_load_explicit(&device->launched, memory_order_relaxed) != graph->kernel)
        atomic_store_explicit(&device->launched, graph->kernel, memory_order_relaxed);
    if (!status && atomic_load_explicit(&device->turns, memory_order_relaxed) != graph->turns)
        atomic_store_explicit(&device->turns, graph->turns, memory_order_relaxed);
    if (traced) tvm_cuda_trace_launched(device, traced);
    tvm_cuda_leave(device, pushed);
    return status;
}

#else /* a cuda.h without the interface */

tvm_status tvm_cuda_graph_open(void *device, const char *name, const tvm_device_node *nodes, uint32_t count,
                               const tvm_tape *tape, void **graph, tvm_diags *diags) {
    (void)device, (void)name, (void)nodes, (void)count, (void)tape, (void)graph;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "build with the cuda.h of CUDA 12.0 or newer",
                        "this build makes no CUDA graphs");
}

tvm_status tvm_cuda_graph_set(void *graph, uint32_t index, const tvm_device_node *node, bool *rebuild,
                              tvm_diags *diags) {
    (void)graph, (void)index, (void)node, (void)rebuild, (void)diags;
    return TVM_UNSUPPORTED;
}

tvm_status tvm_cuda_graph_launch(void *graph, void *stream, tvm_diags *diags) {
    (void)graph, (void)stream, (void)diags;
    return TVM_UNSUPPORTED;
}

void tvm_cuda_graph_close(void *graph) {
    (void)graph;
}

uint64_t tvm_cuda_graph_times(const void *graph) {
    (void)graph;
    return 0;
}

#endif
#endif /* HAVE_CUDA_H */
