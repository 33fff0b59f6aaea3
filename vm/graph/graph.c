#include "graph_impl.h"

#include <stdlib.h>
#include <string.h>

#include "view.h"

/* ---- messages ---- */

void tvm_graph_prefix(tvm_diags *diags, size_t from, const char *format, ...) {
    char *prefix = NULL, *told;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&prefix, format, arguments);
    va_end(arguments);
    for (size_t i = from; length >= 0 && i < diags->count; i++) {
        char *old = diags->items[i].message;
        if (!old || asprintf(&told, "%s%s", prefix, old) < 0) continue;
        diags->items[i].message = told;
        free(old);
    }
    if (length >= 0) free(prefix);
}

/* Ends a public call that has locked the graph. */
static tvm_status finish(tvm_graph *graph, tvm_status status, tvm_diags *diags) {
    if (status) tvm_graph_prefix(diags, 0, "graph '%s': ", graph->name);
    pthread_mutex_unlock(&graph->lock);
    return tvm_context_finish(graph->context, status, diags);
}

static tvm_status begin(tvm_graph *graph, bool finished, tvm_diags *diags) {
    pthread_mutex_lock(&graph->lock);
    if (graph->state == GRAPH_FAILED)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                            "tvm_graph_finish has failed: it can only be freed");
    if ((graph->state == GRAPH_FINISHED) == finished) return TVM_OK;
    return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                        finished ? "it is not finished" : "it is finished: nothing can be added");
}

/* ---- making and freeing ---- */

tvm_status tvm_graph_create(tvm_context *context, const char *name, tvm_graph **graph) {
    if (!context || !name || !graph) return tvm_context_missing(context, __func__);
    *graph = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (status) return tvm_context_finish(context, status, &diags);
    tvm_graph *made = calloc(1, sizeof *made);
    char *copy = made ? strdup(name) : NULL;
    if (!copy || pthread_mutex_init(&made->lock, NULL)) {
        free(copy);
        free(made);
        return tvm_context_finish(context, tvm_diag_no_memory(&diags), &diags);
    }
    made->context = context;
    made->name = copy;
    *graph = made;
    return tvm_context_finish(context, TVM_OK, &diags);
}

static void launch_free(graph_launch *launch) {
    free(launch->name);
    free(launch->tensors);
    free(launch->scalars);
    free(launch->accesses);
    free(launch->values);
    free(launch->after);
    free(launch);
}

void tvm_graph_free(tvm_graph *graph) {
    if (!graph) return;
    const tvm_device_ops *ops = graph->context->ops;
    if (graph->device_graph) ops->graph_close(graph->device_graph);
    if (graph->memory) ops->memory_free(graph->context->device, graph->memory, NULL);
    for (uint32_t i = 0; i < graph->launch_count; i++) launch_free(graph->launches[i]);
    for (uint32_t i = 0; i < graph->tensor_count; i++) free(graph->tensors[i]->name), free(graph->tensors[i]);
    for (uint32_t i = 0; i < graph->scalar_count; i++) free(graph->scalars[i]->name), free(graph->scalars[i]);
    free(graph->launches);
    free(graph->tensors);
    free(graph->scalars);
    tvm_precedence_free(&graph->order);
    pthread_mutex_destroy(&graph->lock);
    if (graph->release) graph->release(graph->kept);
    free(graph->name);
    free(graph);
}

void tvm_graph_keep(tvm_graph *graph, void *kept, void (*release)(void *kept)) {
    graph->kept = kept;
    graph->release = release;
}

/* Room for one more pointer in an array, which grows by doubling. */
static bool grow(void *array, uint32_t count) {
    void **items;
    memcpy(&items, array, sizeof items);
    if (count && count & (count - 1)) return true;
    void *grown = reallocarray(items, count ? 2 * (size_t)count : 1, sizeof(void *));
    if (grown) memcpy(array, &grown, sizeof grown);
    return grown != NULL;
}

/* ---- names ---- */

static uint32_t find_tensor(const tvm_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (!strcmp(graph->tensors[i]->name, name)) return i;
    return TVM_NONE;
}

static uint32_t find_scalar(const tvm_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->scalar_count; i++)
        if (!strcmp(graph->scalars[i]->name, name)) return i;
    return TVM_NONE;
}

static uint32_t find_launch(const tvm_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->launch_count; i++)
        if (!strcmp(graph->launches[i]->name, name)) return i;
    return TVM_NONE;
}

/* Tensors and scalars share their names, which arguments are. */
static tvm_status check_new(const tvm_graph *graph, const char *name, uint32_t count, tvm_diags *diags) {
    if (!*name) return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "a name is empty");
    if (find_tensor(graph, name) != TVM_NONE || find_scalar(graph, name) != TVM_NONE)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "there is a '%s' already", name);
    if (count >= TVM_GRAPH_MOST)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                            "'%s' is one more than the %d that a graph may have", name, (int)TVM_GRAPH_MOST);
    return TVM_OK;
}

/* ---- tensors ---- */

/* The bytes that the elements reach over, as a launch counts them; false: it is none that a launch takes. */
static bool reach(const tvm_tensor *tensor, uint64_t *bytes) {
    int64_t contiguous[TVM_MAX_RANK], span, step = 1;
    uint64_t bits = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
    *bytes = 0;
    if (tensor->ndim < 0 || tensor->ndim > TVM_MAX_RANK || (tensor->ndim && !tensor->shape) || !bits)
        return false;
    for (int32_t d = tensor->ndim; d-- > 0;) {
        contiguous[d] = step;
        if (tensor->shape[d] < 0 ||
            __builtin_mul_overflow(step, tensor->shape[d] ? tensor->shape[d] : 1, &step))
            return false;
    }
    if (!tvm_strided_span((unsigned)tensor->ndim, tensor->shape,
                          tensor->strides ? tensor->strides : contiguous, &span) ||
        span > TVM_ELEMENTS_MAX)
        return false;
    *bytes = ((uint64_t)span * bits + 7) / 8;
    return true;
}

static void copy_tensor(graph_tensor *to, const tvm_tensor *from) {
    to->tensor = *from;
    for (int32_t d = 0; d < from->ndim; d++) {
        to->shape[d] = from->shape[d];
        if (from->strides) to->strides[d] = from->strides[d];
    }
    to->tensor.shape = to->shape;
    to->tensor.strides = from->strides ? to->strides : NULL;
}

/* Adds it; the caller fills in what is a part's. */
static tvm_status add_tensor(tvm_graph *graph, const char *name, tvm_graph_role role,
                             const tvm_tensor *tensor, graph_tensor **added, tvm_diags *diags) {
    uint64_t bytes;
    tvm_status status = check_new(graph, name, graph->tensor_count, diags);
    if (status) return status;
    if (!reach(tensor, &bytes))
        return tvm_diag_add(
            diags, TVM_ARGUMENT, NULL, NULL,
            "tensor '%s' has no type, or a shape that no launch takes: a rank above %d, a negative "
            "extent or stride, or more than 2^40 elements",
            name, (int)TVM_MAX_RANK);
    graph_tensor *made = calloc(1, sizeof *made);
    char *copy = made ? strdup(name) : NULL;
    if (!copy || !grow(&graph->tensors, graph->tensor_count)) {
        free(copy);
        free(made);
        return tvm_diag_no_memory(diags);
    }
    made->name = copy;
    made->role = role;
    made->bytes = bytes;
    made->whole = graph->tensor_count;
    copy_tensor(made, tensor);
    graph->tensors[graph->tensor_count++] = made;
    *added = made;
    return TVM_OK;
}

/* Where the context's kernels look for tensors. */
static void place_on_device(const tvm_graph *graph, tvm_tensor *tensor) {
    const tvm_context *context = graph->context;
    bool gpu = context->ops->kind == TVM_DEVICE_CUDA;
    memset(&tensor->device, 0, sizeof tensor->device);
    tensor->device.device_type = gpu ? TVM_TENSOR_CUDA : TVM_TENSOR_CPU;
    if (gpu) tensor->device.device_id = context->ops->ordinal(context->device);
}

tvm_status tvm_graph_add_tensor(tvm_graph *graph, const char *name, tvm_graph_role role,
                                const tvm_tensor *tensor) {
    if (!graph || !name || !tensor || (unsigned)role > TVM_GRAPH_TEMPORARY)
        return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    graph_tensor *added;
    bool temporary = role == TVM_GRAPH_TEMPORARY;
    tvm_status status = begin(graph, false, &diags);
    if (!status && temporary && tensor->strides)
        status = tvm_diag_add(&diags, TVM_ARGUMENT, NULL, "declare a part with strides",
                              "temporary '%s' has strides: it is row-major and contiguous", name);
    if (!status) status = add_tensor(graph, name, role, tensor, &added, &diags);
    if (!status && temporary) {
        added->tensor.data = NULL;
        added->tensor.byte_offset = 0;
        place_on_device(graph, &added->tensor);
    }
    return finish(graph, status, &diags);
}

static void move_part(const tvm_graph *graph, graph_tensor *part) {
    const tvm_tensor *whole = &graph->tensors[part->whole]->tensor;
    part->tensor.data = whole->data;
    part->tensor.device = whole->device;
    part->tensor.byte_offset = whole->byte_offset + part->offset;
}

static tvm_status add_part(tvm_graph *graph, const char *name, const char *whole, const tvm_tensor *tensor,
                           tvm_diags *diags) {
    uint32_t of = find_tensor(graph, whole);
    uint64_t bytes, end, offset = tensor->byte_offset;
    graph_tensor *part;
    if (of == TVM_NONE)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "there is no tensor '%s' for '%s' to be a part of",
                            whole, name);
    if (reach(tensor, &bytes) &&
        (offset % TVM_GRAPH_PART_ALIGNMENT || __builtin_add_overflow(offset, bytes, &end) ||
         end > graph->tensors[of]->bytes))
        return tvm_diag_add(
            diags, TVM_ARGUMENT, NULL, NULL,
            "part '%s' is %llu bytes from byte %llu on, which is to be a multiple of %d and with them "
            "within the %llu bytes of '%s'",
            name, (unsigned long long)bytes, (unsigned long long)offset, (int)TVM_GRAPH_PART_ALIGNMENT,
            (unsigned long long)graph->tensors[of]->bytes, whole);
    tvm_status status = add_tensor(graph, name, graph->tensors[of]->role, tensor, &part, diags);
    if (status) return status;
    part->offset = offset + graph->tensors[of]->offset;
    part->whole = graph->tensors[of]->whole;
    move_part(graph, part);
    return TVM_OK;
}

tvm_status tvm_graph_add_part(tvm_graph *graph, const char *name, const char *whole, const tvm_tensor *part) {
    if (!graph || !name || !whole || !part)
        return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_status status = begin(graph, false, &diags);
    if (!status) status = add_part(graph, name, whole, part, &diags);
    return finish(graph, status, &diags);
}

/* The launches that use a tensor or, by its number, a scalar have other arguments. */
static void make_stale(tvm_graph *graph, uint32_t whole, uint32_t scalar) {
    for (uint32_t i = 0; i < graph->launch_count; i++) {
        graph_launch *launch = graph->launches[i];
        for (uint32_t p = 0; p < launch->count; p++) {
            uint32_t tensor = launch->tensors[p];
            bool moved = tensor != TVM_NONE && graph->tensors[tensor]->whole == whole;
            if (scalar != TVM_NONE && launch->scalars[p] == scalar) {
                launch->values[p] = graph->scalars[scalar]->value;
                moved = true;
            }
            launch->is_stale = launch->is_stale || moved;
        }
    }
    graph->is_stale = true;
}

/* The same type, shape and place of each element: strides that are left out are row-major. */
static bool same_form(const tvm_tensor *a, const tvm_tensor *b) {
    int64_t step = 1;
    bool same = a->ndim == b->ndim && a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits &&
                a->dtype.lanes == b->dtype.lanes && (!a->ndim || b->shape);
    for (int32_t d = a->ndim; same && d-- > 0;) {
        int64_t mine = a->strides ? a->strides[d] : step, others = b->strides ? b->strides[d] : step;
        same = a->shape[d] == b->shape[d] && (a->shape[d] == 1 || mine == others);
        step *= a->shape[d];
    }
    return same;
}

static tvm_status set_tensor(tvm_graph *graph, const char *name, const tvm_tensor *tensor, tvm_diags *diags) {
    uint32_t index = find_tensor(graph, name);
    if (index == TVM_NONE) return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "there is no tensor '%s'", name);
    graph_tensor *own = graph->tensors[index];
    if (own->whole != index || own->role == TVM_GRAPH_TEMPORARY)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "'%s' is %s: where it lies is not the caller's",
                            name, own->whole != index ? "a part" : "a temporary");
    if (!same_form(&own->tensor, tensor))
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "tensor '%s' has another type, shape or strides than it was declared with", name);
    own->tensor.data = tensor->data;
    own->tensor.device = tensor->device;
    own->tensor.byte_offset = tensor->byte_offset;
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (i != index && graph->tensors[i]->whole == index) move_part(graph, graph->tensors[i]);
    make_stale(graph, index, TVM_NONE);
    graph->has_changed = true;
    return TVM_OK;
}

tvm_status tvm_graph_set_tensor(tvm_graph *graph, const char *name, const tvm_tensor *tensor) {
    if (!graph || !name || !tensor) return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_status status = begin(graph, true, &diags);
    if (!status) status = set_tensor(graph, name, tensor, &diags);
    return finish(graph, status, &diags);
}

tvm_status tvm_graph_get_role(tvm_graph *graph, const char *name, tvm_graph_role *role) {
    if (!graph || !name || !role) return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    pthread_mutex_lock(&graph->lock);
    uint32_t index = find_tensor(graph, name);
    tvm_status status = TVM_OK;
    if (index == TVM_NONE)
        status = tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "there is no tensor '%s'", name);
    else
        *role = graph->tensors[index]->role;
    return finish(graph, status, &diags);
}

/* ---- scalars ---- */

static tvm_status add_scalar(tvm_graph *graph, const char *name, const char *type, const tvm_value *value,
                             tvm_diags *diags) {
    tvm_status status = check_new(graph, name, graph->scalar_count, diags);
    if (status) return status;
    graph_scalar *made = calloc(1, sizeof *made);
    char *copy = made ? strdup(name) : NULL;
    if (!copy || !grow(&graph->scalars, graph->scalar_count)) {
        free(copy);
        free(made);
        return tvm_diag_no_memory(diags);
    }
    made->name = copy;
    made->value = (tvm_value){.i = value->i, .f = value->f};
    snprintf(made->type, sizeof made->type, "%s", type);
    graph->scalars[graph->scalar_count++] = made;
    return TVM_OK;
}

tvm_status tvm_graph_add_scalar(tvm_graph *graph, const char *name, const char *type,
                                const tvm_value *value) {
    if (!graph || !name || !type || !value)
        return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_status status = begin(graph, false, &diags);
    if (!status) status = add_scalar(graph, name, type, value, &diags);
    return finish(graph, status, &diags);
}

tvm_status tvm_graph_set_scalar(tvm_graph *graph, const char *name, const tvm_value *value) {
    if (!graph || !name || !value) return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_status status = begin(graph, true, &diags);
    uint32_t index = status ? TVM_NONE : find_scalar(graph, name);
    if (!status && index == TVM_NONE)
        status = tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "there is no scalar '%s'", name);
    if (!status && tvm_graph_is_other_kind(*graph->scalars[index]->type == 'f', value))
        status = tvm_diag_add(&diags, TVM_ARGUMENT, NULL, NULL, "scalar '%s' is %s", name,
                              graph->scalars[index]->type);
    if (!status) {
        graph->scalars[index]->value = (tvm_value){.i = value->i, .f = value->f};
        make_stale(graph, TVM_NONE, index);
    }
    return finish(graph, status, &diags);
}

/* ---- launches ---- */

static tvm_status take_argument(const tvm_graph *graph, graph_launch *launch, uint32_t p,
                                const tvm_graph_argument *argument, tvm_diags *diags) {
    const tvm_kernel *kernel = launch->kernel;
    const char *param = tvm_string(kernel->code->program, kernel->kernel->slots[p].name),
               *name = argument->name;
    bool is_tensor = kernel->kernel->slots[p].kind == TVM_SLOT_GLOBAL;
    if (name && is_tensor) launch->tensors[p] = find_tensor(graph, name);
    if (name && !is_tensor) launch->scalars[p] = find_scalar(graph, name);
    if (name && (is_tensor ? launch->tensors : launch->scalars)[p] == TVM_NONE)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "parameter '%s' is a %s, and there is no %s '%s'",
                            param, is_tensor ? "tensor" : "scalar", is_tensor ? "tensor" : "scalar", name);
    launch->values[p] = (tvm_value){.i = argument->value.i, .f = argument->value.f};
    if (!name) return TVM_OK;
    if (is_tensor) {
        launch->values[p] = (tvm_value){.tensor = &graph->tensors[launch->tensors[p]]->tensor};
        launch->accesses[p] = (uint8_t)tvm_param_accesses(kernel, p);
        return TVM_OK;
    }
    const graph_scalar *scalar = graph->scalars[launch->scalars[p]];
    if (strcmp(scalar->type, kernel->type_names[p]))
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "scalar '%s' is %s, and parameter '%s' is %s",
                            name, scalar->type, param, kernel->type_names[p]);
    launch->values[p] = scalar->value;
    return TVM_OK;
}

static tvm_status take_arguments(const tvm_graph *graph, graph_launch *launch,
                                 const tvm_graph_argument *arguments, size_t count, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    if (launch->kernel->code->context != graph->context)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "kernel '%s' is of another context",
                            tvm_kernel_name(launch->kernel));
    if (count != launch->count)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s' takes %u arguments, %zu were given",
                            tvm_kernel_name(launch->kernel), launch->count, count);
    for (uint32_t p = 0; !status && p < launch->count; p++)
        status = take_argument(graph, launch, p, &arguments[p], diags);
    return status;
}

static tvm_status take_after(const tvm_graph *graph, graph_launch *launch, const char *const *after,
                             size_t count, tvm_diags *diags) {
    for (size_t i = 0; i < count; i++) {
        launch->after[i] = find_launch(graph, after[i]);
        if (launch->after[i] == TVM_NONE)
            return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                                "there is no launch '%s' before it to come after", after[i]);
    }
    launch->after_count = (uint32_t)count;
    return TVM_OK;
}

static graph_launch *launch_new(const char *name, tvm_kernel *kernel, size_t after) {
    graph_launch *launch = calloc(1, sizeof *launch);
    if (!launch) return NULL;
    size_t count = tvm_param_count(kernel), room = count + 1;
    launch->name = strdup(name);
    launch->kernel = kernel;
    launch->count = (uint32_t)count;
    launch->tensors = malloc(room * sizeof *launch->tensors);
    launch->scalars = malloc(room * sizeof *launch->scalars);
    launch->accesses = calloc(room, sizeof *launch->accesses);
    launch->values = calloc(room, sizeof *launch->values);
    launch->after = calloc(after + 1, sizeof *launch->after);
    launch->is_stale = true;
    if (!launch->name || !launch->tensors || !launch->scalars || !launch->accesses || !launch->values ||
        !launch->after) {
        launch_free(launch);
        return NULL;
    }
    memset(launch->tensors, 0xff, room * sizeof *launch->tensors); /* TVM_NONE */
    memset(launch->scalars, 0xff, room * sizeof *launch->scalars);
    return launch;
}

static void note_used(const tvm_graph *graph, const graph_launch *launch) {
    for (uint32_t p = 0; p < launch->count; p++) {
        if (launch->tensors[p] != TVM_NONE) graph->tensors[launch->tensors[p]]->is_used = true;
        if (launch->tensors[p] != TVM_NONE)
            graph->tensors[graph->tensors[launch->tensors[p]]->whole]->is_used = true;
        if (launch->scalars[p] != TVM_NONE) graph->scalars[launch->scalars[p]]->is_used = true;
    }
}

static tvm_status add_launch(tvm_graph *graph, graph_launch *launch, const tvm_graph_argument *arguments,
                             size_t count, const char *const *after, size_t after_count, tvm_diags *diags) {
    if (find_launch(graph, launch->name) != TVM_NONE)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "there is such a launch already");
    if (graph->launch_count >= TVM_GRAPH_MOST)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "it is one more than the %d that a graph may have",
                            (int)TVM_GRAPH_MOST);
    tvm_status status = take_arguments(graph, launch, arguments, count, diags);
    if (!status) status = take_after(graph, launch, after, after_count, diags);
    if (!status) status = tvm_graph_check_launch(graph, launch, diags);
    if (!status && !grow(&graph->launches, graph->launch_count)) status = tvm_diag_no_memory(diags);
    if (status) return status;
    graph->launches[graph->launch_count++] = launch;
    note_used(graph, launch);
    return TVM_OK;
}

tvm_status tvm_graph_add_launch(tvm_graph *graph, const char *name, tvm_kernel *kernel,
                                const tvm_graph_argument *arguments, size_t count, const char *const *after,
                                size_t after_count) {
    if (!graph || !name || !kernel || (count && !arguments) || (after_count && !after))
        return tvm_context_missing(graph ? graph->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_status status = begin(graph, false, &diags);
    graph_launch *launch = status ? NULL : launch_new(name, kernel, after_count);
    if (!status && !launch) status = tvm_diag_no_memory(&diags);
    if (!status) {
        status = add_launch(graph, launch, arguments, count, after, after_count, &diags);
        if (status) launch_free(launch);
        if (status) tvm_graph_prefix(&diags, 0, "launch '%s': ", name);
    }
    return finish(graph, status, &diags);
}

/* ---- the whole ---- */

tvm_status tvm_graph_set_persistent(tvm_graph *graph) {
    if (!graph) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = begin(graph, false, &diags);
    if (!status) graph->is_persistent = true;
    return finish(graph, status, &diags);
}

tvm_status tvm_graph_finish(tvm_graph *graph) {
    if (!graph) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = begin(graph, false, &diags);
    if (!status) {
        status = tvm_graph_find_order(graph, &diags);
        if (!status) status = tvm_graph_make_ready(graph, &diags);
        graph->state = status ? GRAPH_FAILED : GRAPH_FINISHED;
    }
    return finish(graph, status, &diags);
}

tvm_status tvm_graph_launch(tvm_graph *graph, void *stream) {
    if (!graph) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_observer *observer = &graph->context->observer;
    tvm_status status = begin(graph, true, &diags);
    if (!status) {
        tvm_span span = tvm_span_begin(observer, TVM_SPAN_GRAPH, graph->name);
        status = tvm_graph_run(graph, stream, &diags);
        tvm_span_end(observer, &span);
    }
    return finish(graph, status, &diags);
}

tvm_status tvm_graph_report(tvm_graph *graph, char **text) {
    if (!graph || !text) return tvm_context_missing(graph ? graph->context : NULL, __func__);
    *text = NULL;
    tvm_diags diags = {0};
    tvm_status status = begin(graph, true, &diags);
    if (!status) status = tvm_graph_describe(graph, text, &diags);
    return finish(graph, status, &diags);
}
