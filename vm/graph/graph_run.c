#include <stdlib.h>

#include "tape.h"

/* An address that is none: of tensors whose place is not known while arguments are checked. */
#define UNPLACED ((void *)(uintptr_t)TVM_GRAPH_ALIGNMENT)

static bool is_own(const graph_tensor *tensor) {
    return tensor->role == TVM_GRAPH_TEMPORARY;
}

static void *at(const tvm_graph *graph, uint64_t place) {
    return (char *)graph->memory + place;
}

/* Gives temporaries their places in the graph's memory. */
static void place_temporaries(const tvm_graph *graph) {
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        graph_tensor *tensor = graph->tensors[i];
        if (!is_own(tensor)) continue;
        tensor->tensor.data = graph->memory ? at(graph, graph->tensors[tensor->whole]->place) : UNPLACED;
        tensor->tensor.byte_offset = tensor->offset;
    }
}

/* Checks the arguments of the launches that have changed. */
static tvm_status keep_launches(tvm_graph *graph, tvm_diags *diags) {
    for (uint32_t i = 0; i < graph->launch_count; i++) {
        graph_launch *launch = graph->launches[i];
        if (!launch->is_stale) continue;
        size_t from = diags->count;
        const tvm_kernel *before = launch->kept.variant;
        tvm_status status = tvm_launch_keep(launch->kernel, launch->values, &launch->kept, diags);
        if (launch->kept.variant != before) graph->has_changed = true;
        if (!status) continue;
        tvm_graph_prefix(diags, from, "launch '%s': ", launch->name);
        return status;
    }
    return TVM_OK;
}

/* What the device asks for a launch's own tensors, but for clean ones; the interpreter has them itself. */
static uint64_t own_bytes(const tvm_graph *graph, const graph_launch *launch) {
    const tvm_kernel *variant = launch->kept.variant;
    uint64_t bytes = 0;
    for (uint32_t i = 0; graph->context->ops->graph_open && i < variant->tensor_count; i++)
        if (!variant->tensors[i].clean)
            bytes += (launch->kept.args.tensor_bytes[i] + (TVM_GRAPH_ALIGNMENT - 1)) / TVM_GRAPH_ALIGNMENT *
                     TVM_GRAPH_ALIGNMENT;
    return bytes;
}

static void close_device_graph(tvm_graph *graph) {
    if (graph->device_graph) graph->context->ops->graph_close(graph->device_graph);
    graph->device_graph = NULL;
}

/* Plans the memory and replaces what there was, which nothing may use any more. */
static tvm_status renew_memory(tvm_graph *graph, tvm_diags *diags) {
    const tvm_device_ops *ops = graph->context->ops;
    tvm_status status = tvm_graph_plan(graph, diags);
    if (!status && graph->memory && ops->drain) status = ops->drain(graph->context->device, diags);
    if (status) return status;
    close_device_graph(graph);
    if (graph->memory) ops->memory_free(graph->context->device, graph->memory, NULL);
    graph->memory = NULL;
    for (uint32_t i = 0; i < graph->launch_count; i++) graph->launches[i]->is_stale = true;
    graph->has_changed = true;
    if (graph->bytes) status = ops->memory_alloc(graph->context->device, graph->bytes, &graph->memory, diags);
    if (!status) place_temporaries(graph);
    return status;
}

/* Does a launch need more for its own tensors than was planned? */
static bool needs_more(tvm_graph *graph) {
    bool more = false;
    for (uint32_t i = 0; i < graph->launch_count; i++) {
        graph_launch *launch = graph->launches[i];
        uint64_t bytes = own_bytes(graph, launch);
        more = more || bytes > launch->own_bytes;
        if (bytes > launch->own_bytes) launch->own_bytes = bytes;
    }
    return more;
}

static tvm_status prepare_launches(const tvm_graph *graph, tvm_diags *diags) {
    tvm_context *context = graph->context;
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && i < graph->launch_count; i++) {
        const tvm_kernel *variant = graph->launches[i]->kept.variant;
        size_t from = diags->count;
        tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_PREPARE, tvm_kernel_name(variant));
        status = context->ops->prepare(variant->code->device_code, variant->index, diags);
        tvm_span_end(&context->observer, &span);
        if (status) tvm_graph_prefix(diags, from, "launch '%s': ", graph->launches[i]->name);
    }
    return status;
}

/* Tensors of the caller may have no address yet: all else of them is checked. */
tvm_status tvm_graph_make_ready(tvm_graph *graph, tvm_diags *diags) {
    place_temporaries(graph);
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (!graph->tensors[i]->tensor.data) graph->tensors[i]->tensor.data = UNPLACED;
    tvm_status status = keep_launches(graph, diags);
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i]->tensor.data == UNPLACED) graph->tensors[i]->tensor.data = NULL;
    if (status) return status;
    needs_more(graph);
    status = renew_memory(graph, diags);
    graph->is_stale = true;
    return status ? status : prepare_launches(graph, diags);
}

static tvm_status check_places(const tvm_graph *graph, tvm_diags *diags) {
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const graph_tensor *tensor = graph->tensors[i];
        if (tensor->whole == i && tensor->bytes && !is_own(tensor) && !tensor->tensor.data)
            return tvm_diag_add(diags, TVM_USAGE, NULL, "tvm_graph_set_tensor tells",
                                "where '%s' lies is not known", tensor->name);
    }
    return TVM_OK;
}

static tvm_device_node node_of(const tvm_graph *graph, const graph_launch *launch) {
    return (tvm_device_node){.code = launch->kept.variant->code->device_code,
                             .name = launch->name,
                             .launch = &launch->kept.launch,
                             .after = launch->after,
                             .after_count = launch->after_count,
                             .early = launch->early,
                             .memory = launch->own_bytes ? at(graph, launch->own_place) : NULL};
}

/* The tape that a persistent kernel runs: tasks of a block each, so that blocks that wait for each other are
 * all under way. */
static tvm_status make_tape(const tvm_graph *graph, tvm_tape *tape, tvm_diags *diags) {
    tvm_status status = tvm_tape_make(graph, 1, tape, diags);
    if (!status) status = tvm_tape_verify(graph, tape, diags);
    if (!status) tape->notes_times = graph->notes_times;
    return status;
}

static tvm_status open_device_graph(tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags) {
    const tvm_device_ops *ops = graph->context->ops;
    tvm_device_node *nodes = calloc(graph->launch_count, sizeof *nodes);
    if (!nodes) return tvm_diag_no_memory(diags);
    for (uint32_t i = 0; i < graph->launch_count; i++) nodes[i] = node_of(graph, graph->launches[i]);
    tvm_status status = ops->graph_open(graph->context->device, graph->name, nodes, graph->launch_count, tape,
                                        &graph->device_graph, diags);
    free(nodes);
    return status;
}

/* The device's graph with the arguments of now: where it cannot take them it is made anew. */
static tvm_status set_device_graph(tvm_graph *graph, const tvm_tape *tape, const bool *early,
                                   tvm_diags *diags) {
    const tvm_device_ops *ops = graph->context->ops;
    bool rebuild = !graph->device_graph;
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && !rebuild && i < graph->launch_count; i++) {
        graph_launch *launch = graph->launches[i];
        if (!launch->is_stale && launch->early == early[i]) continue;
        const tvm_device_node node = node_of(graph, launch);
        size_t from = diags->count;
        status = ops->graph_set(graph->device_graph, i, &node, &rebuild, diags);
        if (status) tvm_graph_prefix(diags, from, "launch '%s': ", launch->name);
    }
    if (status || !rebuild) return status;
    if (graph->device_graph) status = ops->drain(graph->context->device, diags);
    if (status) return status;
    close_device_graph(graph);
    return open_device_graph(graph, tape, diags);
}

/* After it every launch has been checked with the arguments of now. Where it fails, launches stay stale. */
static tvm_status settle(tvm_graph *graph, bool *early, tvm_diags *diags) {
    tvm_status status = check_places(graph, diags);
    for (uint32_t i = 0; i < graph->launch_count; i++) early[i] = graph->launches[i]->early;
    if (!status) status = keep_launches(graph, diags);
    if (!status && needs_more(graph)) {
        status = renew_memory(graph, diags);
        if (!status) status = keep_launches(graph, diags);
    }
    if (!status && graph->has_changed) status = tvm_graph_check_addresses(graph, diags);
    tvm_tape tape = {0};
    if (!status && graph->is_persistent) status = make_tape(graph, &tape, diags);
    if (!status && graph->context->ops->graph_open)
        status = set_device_graph(graph, graph->is_persistent ? &tape : NULL, early, diags);
    tvm_tape_free(&tape);
    for (uint32_t i = 0; !status && i < graph->launch_count; i++) graph->launches[i]->is_stale = false;
    if (!status) graph->is_stale = graph->has_changed = false;
    return status;
}

tvm_status tvm_graph_settle(tvm_graph *graph, tvm_diags *diags) {
    if (!graph->is_stale) return TVM_OK;
    bool *early = calloc(graph->launch_count, sizeof *early);
    if (!early) return tvm_diag_no_memory(diags);
    tvm_status status = settle(graph, early, diags);
    free(early);
    return status;
}

tvm_status tvm_graph_run(tvm_graph *graph, void *stream, tvm_diags *diags) {
    const tvm_device_ops *ops = graph->context->ops;
    tvm_status status = tvm_graph_settle(graph, diags);
    if (status || ops->graph_open)
        return status ? status : ops->graph_launch(graph->device_graph, stream, diags);
    for (uint32_t i = 0; !status && i < graph->launch_count; i++) {
        size_t from = diags->count;
        status = tvm_launch_kept(&graph->launches[i]->kept, stream, diags);
        if (status) tvm_graph_prefix(diags, from, "launch '%s': ", graph->launches[i]->name);
    }
    return status;
}
