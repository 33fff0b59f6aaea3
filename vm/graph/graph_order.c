#include "graph_impl.h"

#include <stdlib.h>

/* ---- touches ---- */

tvm_touch *tvm_graph_touches(const tvm_graph *graph, const uint64_t *places, size_t *count) {
    size_t most = 1;
    for (uint32_t i = 0; i < graph->launch_count; i++) most += graph->launches[i]->count;
    tvm_touch *touches = calloc(most, sizeof *touches);
    *count = 0;
    for (uint32_t i = 0; touches && i < graph->launch_count; i++) {
        const graph_launch *launch = graph->launches[i];
        for (uint32_t p = 0; p < launch->count; p++) {
            if (launch->tensors[p] == TVM_NONE || !launch->accesses[p]) continue;
            const graph_tensor *tensor = graph->tensors[launch->tensors[p]];
            uint64_t at = places[tensor->whole] + tensor->offset;
            touches[(*count)++] = (tvm_touch){.begin = at,
                                              .end = at + tensor->bytes,
                                              .item = i,
                                              .subject = launch->tensors[p],
                                              .writes = launch->accesses[p] & TVM_PARAM_WRITTEN};
        }
    }
    return touches;
}

/* Each whole tensor in an address space where none meets another; by the addresses of now where `real`. */
static uint64_t *places_of(const tvm_graph *graph, bool real) {
    uint64_t *places = calloc((size_t)graph->tensor_count + 1, sizeof *places), next = 0;
    for (uint32_t i = 0; places && i < graph->tensor_count; i++) {
        places[i] = real ? tvm_graph_address(graph->tensors[i]) : next;
        next += graph->tensors[i]->bytes;
    }
    return places;
}

/* ---- a launch when it is added ---- */

/* How far the bytes from `begin` on are written by the launches so far; `end` where all are. */
static uint64_t written_up_to(const tvm_graph *graph, uint32_t whole, uint64_t begin, uint64_t end) {
    for (uint64_t best = begin; begin < end; begin = best) {
        for (uint32_t i = 0; i < graph->launch_count; i++) {
            const graph_launch *launch = graph->launches[i];
            for (uint32_t p = 0; p < launch->count; p++) {
                if (!(launch->accesses[p] & TVM_PARAM_WRITTEN)) continue;
                const graph_tensor *tensor = graph->tensors[launch->tensors[p]];
                uint64_t last = tensor->offset + tensor->bytes;
                if (tensor->whole == whole && tensor->offset <= begin && last > best) best = last;
            }
        }
        if (best == begin) return begin;
    }
    return end;
}

static tvm_status check_access(const tvm_graph *graph, const graph_launch *launch, uint32_t p,
                               tvm_diags *diags) {
    const graph_tensor *tensor = graph->tensors[launch->tensors[p]];
    const char *param = tvm_string(launch->kernel->code->program, launch->kernel->kernel->slots[p].name);
    if (tensor->role == TVM_GRAPH_INPUT && launch->accesses[p] & TVM_PARAM_WRITTEN)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, "declare it as state, or as an output",
                            "kernel '%s' writes '%s', which is the input '%s'",
                            tvm_kernel_name(launch->kernel), param, tensor->name);
    if (tensor->role != TVM_GRAPH_OUTPUT && tensor->role != TVM_GRAPH_TEMPORARY) return TVM_OK;
    uint64_t end = tensor->offset + tensor->bytes;
    if (!(launch->accesses[p] & TVM_PARAM_READ_FIRST) ||
        written_up_to(graph, tensor->whole, tensor->offset, end) == end)
        return TVM_OK;
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL,
                        tensor->role == TVM_GRAPH_OUTPUT ? "declare it as state where what it holds counts"
                                                         : "add the launch that writes it first",
                        "kernel '%s' reads '%s', the %s '%s', which no launch before it has %swritten",
                        tvm_kernel_name(launch->kernel), param,
                        tensor->role == TVM_GRAPH_OUTPUT ? "output" : "temporary", tensor->name,
                        written_up_to(graph, tensor->whole, tensor->offset, end) > tensor->offset ? "wholly "
                                                                                                  : "");
}

tvm_status tvm_graph_check_launch(const tvm_graph *graph, const graph_launch *launch, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (uint32_t p = 0; !status && p < launch->count; p++)
        if (launch->tensors[p] != TVM_NONE) status = check_access(graph, launch, p, diags);
    return status;
}

/* ---- what waits for what ---- */

static bool note_pair(void *closure, const tvm_touch *a, const tvm_touch *b) {
    tvm_precedence *direct = closure;
    direct->before[b->item * direct->words + a->item / 64] |= UINT64_C(1) << a->item % 64;
    return true;
}

/* Of those that launch `index` has to follow, those that no other of them follows: the latest first. */
static tvm_status reduce(tvm_graph *graph, uint32_t index, const tvm_precedence *direct, tvm_diags *diags) {
    graph_launch *launch = graph->launches[index];
    uint32_t *after = calloc((size_t)index + 1, sizeof *after), count = 0;
    if (!after) return tvm_diag_no_memory(diags);
    for (uint32_t i = index; i-- > 0;) {
        if (!tvm_precedence_has(direct, i, index) || tvm_precedence_has(&graph->order, i, index)) continue;
        tvm_precedence_add(&graph->order, i, index);
        after[count++] = i;
    }
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t other = after[i];
        after[i] = after[count - 1 - i];
        after[count - 1 - i] = other;
    }
    free(launch->after);
    launch->after = after;
    launch->after_count = count;
    return TVM_OK;
}

static tvm_status find_order(tvm_graph *graph, tvm_precedence *direct, tvm_diags *diags) {
    uint64_t *places = places_of(graph, false);
    size_t count = 0;
    tvm_touch *touches = places ? tvm_graph_touches(graph, places, &count) : NULL;
    free(places);
    if (!touches) return tvm_diag_no_memory(diags);
    tvm_touches_meet(touches, count, note_pair, direct);
    free(touches);
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && i < graph->launch_count; i++) {
        const graph_launch *launch = graph->launches[i];
        for (uint32_t a = 0; a < launch->after_count; a++)
            note_pair(direct, &(tvm_touch){.item = launch->after[a]}, &(tvm_touch){.item = i});
        status = reduce(graph, i, direct, diags);
    }
    return status;
}

static tvm_status check_used(const tvm_graph *graph, tvm_diags *diags) {
    if (!graph->launch_count) return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "it has no launch");
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const graph_tensor *tensor = graph->tensors[i];
        if (!tensor->is_used)
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "no launch takes tensor '%s'", tensor->name);
        if (tensor->whole != i || tensor->role != TVM_GRAPH_OUTPUT) continue;
        uint64_t end = written_up_to(graph, i, 0, tensor->bytes);
        if (end < tensor->bytes)
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "no launch writes output '%s'%s",
                                tensor->name, end ? " to its end" : "");
    }
    for (uint32_t i = 0; i < graph->scalar_count; i++)
        if (!graph->scalars[i]->is_used)
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "no launch takes scalar '%s'",
                                graph->scalars[i]->name);
    return TVM_OK;
}

tvm_status tvm_graph_find_order(tvm_graph *graph, tvm_diags *diags) {
    tvm_precedence direct = {0};
    tvm_status status = check_used(graph, diags);
    if (!status) status = tvm_precedence_make(&graph->order, graph->launch_count, diags);
    if (!status) status = tvm_precedence_make(&direct, graph->launch_count, diags);
    if (!status) status = find_order(graph, &direct, diags);
    tvm_precedence_free(&direct);
    return status;
}

/* ---- addresses ---- */

typedef struct meeting {
    const tvm_graph *graph;
    bool found;
    tvm_touch a, b; /* the first two that nothing orders */
} meeting;

static bool look_for_order(void *closure, const tvm_touch *a, const tvm_touch *b) {
    meeting *m = closure;
    if (tvm_precedence_has(&m->graph->order, a->item, b->item)) return true;
    bool earlier = a->item < m->a.item || (a->item == m->a.item && b->item < m->b.item);
    if (!m->found || earlier) m->a = *a, m->b = *b;
    m->found = true;
    return true;
}

static const char *does(const tvm_touch *touch) {
    return touch->writes ? "writes" : "reads";
}

static tvm_status refuse_meeting(const meeting *m, tvm_diags *diags) {
    const tvm_graph *graph = m->graph;
    const char *first = graph->launches[m->a.item]->name, *second = graph->launches[m->b.item]->name;
    return tvm_diag_add(
        diags, TVM_ARGUMENT, NULL,
        "let the tensors lie apart, or add the second launch with the first one in `after`",
        "launch '%s' %s '%s' and launch '%s' %s '%s', which have bytes in common, and neither launch "
        "waits for the other",
        first, does(&m->a), graph->tensors[m->a.subject]->name, second, does(&m->b),
        graph->tensors[m->b.subject]->name);
}

/* May what the launch does before it waits run beside all other launches? A temporary's bytes are others',
 * too. */
static bool may_be_early(const tvm_graph *graph, uint32_t index, const tvm_touch *touches, size_t count) {
    const graph_launch *launch = graph->launches[index];
    const tvm_kernel *variant = launch->kept.variant;
    if (launch->after_count != 1) return false;
    for (uint32_t i = 0; i < variant->tensor_count; i++)
        if (tvm_param_accesses(variant, variant->tensors[i].slot) &
            (TVM_PARAM_READ_EARLY | TVM_PARAM_WRITTEN_EARLY))
            return false;
    for (uint32_t p = 0; p < launch->count; p++) {
        unsigned early = launch->accesses[p] & (TVM_PARAM_READ_EARLY | TVM_PARAM_WRITTEN_EARLY);
        if (!early) continue;
        const graph_tensor *tensor = graph->tensors[launch->tensors[p]];
        uint64_t begin = tvm_graph_address(tensor), end = begin + tensor->bytes;
        for (size_t t = 0; t < count; t++)
            if (touches[t].item != index && touches[t].begin < end && begin < touches[t].end &&
                (touches[t].writes || early & TVM_PARAM_WRITTEN_EARLY))
                return false;
    }
    return true;
}

tvm_status tvm_graph_check_addresses(tvm_graph *graph, tvm_diags *diags) {
    uint64_t *places = places_of(graph, true);
    size_t count = 0;
    tvm_touch *touches = places ? tvm_graph_touches(graph, places, &count) : NULL;
    free(places);
    if (!touches) return tvm_diag_no_memory(diags);
    meeting m = {.graph = graph};
    tvm_touches_meet(touches, count, look_for_order, &m);
    for (uint32_t i = 0; !m.found && i < graph->launch_count; i++)
        graph->launches[i]->early = may_be_early(graph, i, touches, count);
    free(touches);
    return m.found ? refuse_meeting(&m, diags) : TVM_OK;
}
