/* Places for what a graph keeps itself: temporaries, and the tensors that launches allocate for themselves.
 * Two of them share bytes where every launch that touches the one has ended before any that touches the other
 * begins. The largest goes first, each to the lowest place that is free for it (greedy by size, as in
 * Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", MLSys 2020). */
#include "graph_impl.h"

#include <stdlib.h>

typedef struct memory_item {
    uint64_t bytes, place;
    uint64_t *place_of;   /* where the place goes */
    uint64_t *users;      /* a bit a launch */
    uint64_t *before_all; /* launches that have ended when any user begins */
} memory_item;

typedef struct memory_plan {
    const tvm_graph *graph;
    memory_item *items;
    uint32_t count;
    uint64_t *bits;
    const memory_item **placed; /* ascending by place */
} memory_plan;

static uint64_t whole_units(uint64_t bytes) {
    return (bytes + (TVM_GRAPH_ALIGNMENT - 1)) / TVM_GRAPH_ALIGNMENT * TVM_GRAPH_ALIGNMENT;
}

static void add_user(const memory_plan *plan, memory_item *item, uint32_t launch) {
    const tvm_precedence *order = &plan->graph->order;
    const uint64_t *before = tvm_precedence_row(order, launch);
    bool first = true;
    for (size_t w = 0; w < order->words; w++) first = first && !item->users[w];
    for (size_t w = 0; w < order->words; w++)
        item->before_all[w] = first ? before[w] : item->before_all[w] & before[w];
    item->users[launch / 64] |= UINT64_C(1) << launch % 64;
}

static memory_item *add_item(memory_plan *plan, uint64_t bytes, uint64_t *place_of) {
    size_t words = plan->graph->order.words;
    memory_item *item = &plan->items[plan->count];
    item->bytes = whole_units(bytes);
    item->place_of = place_of;
    item->users = plan->bits + 2 * plan->count * words;
    item->before_all = item->users + words;
    plan->count++;
    return item;
}

static void find_items(memory_plan *plan) {
    const tvm_graph *graph = plan->graph;
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
        graph_tensor *tensor = graph->tensors[t];
        if (tensor->role != TVM_GRAPH_TEMPORARY || tensor->whole != t || !tensor->bytes) continue;
        memory_item *item = add_item(plan, tensor->bytes, &tensor->place);
        for (uint32_t i = 0; i < graph->launch_count; i++)
            for (uint32_t p = 0; p < graph->launches[i]->count; p++) {
                uint32_t used = graph->launches[i]->tensors[p];
                if (used != TVM_NONE && graph->tensors[used]->whole == t) add_user(plan, item, i);
            }
    }
    for (uint32_t i = 0; i < graph->launch_count; i++)
        if (graph->launches[i]->own_bytes)
            add_user(plan, add_item(plan, graph->launches[i]->own_bytes, &graph->launches[i]->own_place), i);
}

static bool all_before(const memory_plan *plan, const memory_item *a, const memory_item *b) {
    for (size_t w = 0; w < plan->graph->order.words; w++)
        if (a->users[w] & ~b->before_all[w]) return false;
    return true;
}

static int by_size(const void *a, const void *b) {
    const memory_item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->users < y->users ? -1 : x->users > y->users; /* in the order they were found */
}

static void place_item(memory_plan *plan, memory_item *item, uint32_t placed) {
    for (uint32_t i = 0; i < placed; i++) {
        const memory_item *other = plan->placed[i];
        if (all_before(plan, item, other) || all_before(plan, other, item)) continue;
        if (item->place + item->bytes <= other->place) break;
        if (other->place + other->bytes > item->place) item->place = other->place + other->bytes;
    }
    uint32_t at = placed;
    for (; at > 0 && plan->placed[at - 1]->place > item->place; at--) plan->placed[at] = plan->placed[at - 1];
    plan->placed[at] = item;
    *item->place_of = item->place;
}

tvm_status tvm_graph_plan(tvm_graph *graph, tvm_diags *diags) {
    size_t most = (size_t)graph->tensor_count + graph->launch_count + 1;
    memory_plan plan = {.graph = graph};
    plan.items = calloc(most, sizeof *plan.items);
    plan.bits = calloc(2 * most * graph->order.words, sizeof *plan.bits);
    plan.placed = calloc(most, sizeof *plan.placed);
    bool made = plan.items && plan.bits && plan.placed;
    if (made) find_items(&plan);
    if (made) qsort(plan.items, plan.count, sizeof *plan.items, by_size);
    graph->bytes = graph->unshared = 0;
    for (uint32_t i = 0; made && i < plan.count; i++) {
        memory_item *item = &plan.items[i];
        place_item(&plan, item, i);
        graph->unshared += item->bytes;
        if (item->place + item->bytes > graph->bytes) graph->bytes = item->place + item->bytes;
    }
    free(plan.items);
    free(plan.bits);
    free(plan.placed);
    return made ? TVM_OK : tvm_diag_no_memory(diags);
}
