#include "tape.h"

#include <stdlib.h>

typedef struct verifier {
    const tvm_graph *graph;
    const tvm_tape *tape;
    tvm_diags *diags;
    tvm_precedence order; /* of the tasks */
    tvm_touch *touches;   /* of the tasks; subjects are tensors */
    size_t touch_count;
    uint32_t *writers;      /* of each tensor that is no part, the tasks that write to it, in their order: */
    size_t *writers_before; /* those of lower tensors; one more than there are tensors */
    bool found;
    tvm_touch a, b; /* of the first two tasks that break a rule */
} verifier;

static const char *launch_name(const verifier *v, uint32_t task) {
    return v->graph->launches[v->tape->tasks[task].launch]->name;
}

__attribute__((format(printf, 3, 4))) static tvm_status refuse(const verifier *v, uint32_t task,
                                                               const char *format, ...) {
    size_t from = v->diags ? v->diags->count : 0;
    va_list arguments;
    va_start(arguments, format);
    tvm_diag_addv(v->diags, TVM_INVALID, NULL, NULL, format, arguments);
    va_end(arguments);
    if (v->diags) tvm_graph_prefix(v->diags, from, "tape: task %u: ", task);
    return TVM_INVALID;
}

/* ---- rows ---- */

static tvm_status check_row(const verifier *v, uint32_t index) {
    const tvm_tape *tape = v->tape;
    const tvm_tape_task *task = &tape->tasks[index];
    if (task->launch >= v->graph->launch_count)
        return refuse(v, index, "there is no launch %u", task->launch);
    const uint32_t *grid = v->graph->launches[task->launch]->kept.launch.grid;
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    if (!task->count || task->first >= blocks || task->count > blocks - task->first)
        return refuse(v, index, "%u blocks from block %u on are not within the %llu of launch '%s'",
                      task->count, task->first, (unsigned long long)blocks, launch_name(v, index));
    if (task->first_wait > tape->wait_count || task->wait_count > tape->wait_count - task->first_wait)
        return refuse(v, index, "its waits are not within the tape's %u", tape->wait_count);
    if (task->counter >= tape->counter_count)
        return refuse(v, index, "there is no counter %u", task->counter);
    for (uint32_t w = 0; w < task->wait_count; w++)
        if (tape->waits[task->first_wait + w].counter >= tape->counter_count)
            return refuse(v, index, "there is no counter %u", tape->waits[task->first_wait + w].counter);
    return TVM_OK;
}

static int by_blocks(const void *a, const void *b) {
    const tvm_tape_task *x = *(const tvm_tape_task *const *)a, *y = *(const tvm_tape_task *const *)b;
    if (x->launch != y->launch) return x->launch < y->launch ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Each block of each launch is in one task. */
static tvm_status check_blocks(const verifier *v, const tvm_tape_task **tasks) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < v->tape->task_count; i++) tasks[i] = &v->tape->tasks[i];
    if (v->tape->task_count) qsort(tasks, v->tape->task_count, sizeof(const tvm_tape_task *), by_blocks);
    for (uint32_t i = 0; i < v->graph->launch_count; i++) {
        const uint32_t *grid = v->graph->launches[i]->kept.launch.grid;
        uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2], at = 0;
        for (; next < v->tape->task_count && tasks[next]->launch == i; next++) {
            if (tasks[next]->first < at)
                return refuse(v, (uint32_t)(tasks[next] - v->tape->tasks),
                              "block %u of launch '%s' is in another task, too", tasks[next]->first,
                              v->graph->launches[i]->name);
            if (tasks[next]->first > at) break;
            at += tasks[next]->count;
        }
        if (at < blocks)
            return tvm_diag_add(v->diags, TVM_INVALID, NULL, NULL,
                                "tape: block %llu of launch '%s' is in no task", (unsigned long long)at,
                                v->graph->launches[i]->name);
    }
    return TVM_OK;
}

static tvm_status check_rows(const verifier *v) {
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && i < v->tape->task_count; i++) status = check_row(v, i);
    if (status) return status;
    const tvm_tape_task **tasks = calloc((size_t)v->tape->task_count + 1, sizeof(const tvm_tape_task *));
    if (!tasks) return tvm_diag_no_memory(v->diags);
    status = check_blocks(v, tasks);
    free(tasks);
    return status;
}

/* ---- waits ---- */

/* What must have ended when the wait has: the tasks without which the counter cannot have reached the value.
 */
static void add_order(verifier *v, uint32_t index, const tvm_tape_wait *wait, uint64_t all) {
    for (uint32_t i = 0; i < index; i++) {
        const tvm_tape_task *task = &v->tape->tasks[i];
        if (task->counter == wait->counter && all - task->raise < wait->value)
            tvm_precedence_add(&v->order, i, index);
    }
}

/* raised: by all tasks, so_far: by those before this one; of each counter. */
static tvm_status check_waits(verifier *v, const uint64_t *raised, uint64_t *so_far) {
    for (uint32_t i = 0; i < v->tape->task_count; i++) {
        const tvm_tape_task *task = &v->tape->tasks[i];
        for (uint32_t w = 0; w < task->wait_count; w++) {
            const tvm_tape_wait *wait = &v->tape->waits[task->first_wait + w];
            if (raised[wait->counter] < wait->value)
                return refuse(v, i, "of launch '%s' waits for %u of counter %u, which never exceeds %llu",
                              launch_name(v, i), wait->value, wait->counter,
                              (unsigned long long)raised[wait->counter]);
            if (so_far[wait->counter] < wait->value)
                return refuse(
                    v, i,
                    "of launch '%s' waits for %u of counter %u, which the tasks before it raise to %llu: "
                    "where one block takes the tasks, it waits for ever",
                    launch_name(v, i), wait->value, wait->counter, (unsigned long long)so_far[wait->counter]);
            add_order(v, i, wait, raised[wait->counter]);
        }
        so_far[task->counter] += task->raise;
    }
    return TVM_OK;
}

static tvm_status find_order(verifier *v) {
    tvm_status status = tvm_precedence_make(&v->order, v->tape->task_count, v->diags);
    uint64_t *raised = calloc(2 * (size_t)v->tape->counter_count + 1, sizeof *raised);
    if (!status && !raised) status = tvm_diag_no_memory(v->diags);
    for (uint32_t i = 0; !status && i < v->tape->task_count; i++)
        raised[v->tape->tasks[i].counter] += v->tape->tasks[i].raise;
    if (!status) status = check_waits(v, raised, raised + v->tape->counter_count);
    free(raised);
    return status;
}

/* ---- memory ---- */

static bool is_temporary(const graph_tensor *tensor) {
    return tensor->role == TVM_GRAPH_TEMPORARY;
}

/* What the launch's kernel touches, for each of its tasks. */
static tvm_status find_touches(verifier *v) {
    const tvm_graph *graph = v->graph;
    size_t most = 1;
    for (uint32_t i = 0; i < v->tape->task_count; i++)
        most += graph->launches[v->tape->tasks[i].launch]->count;
    v->touches = calloc(most, sizeof *v->touches);
    if (!v->touches) return tvm_diag_no_memory(v->diags);
    for (uint32_t i = 0; i < v->tape->task_count; i++) {
        const graph_launch *launch = graph->launches[v->tape->tasks[i].launch];
        for (uint32_t p = 0; p < launch->count; p++) {
            if (launch->tensors[p] == TVM_NONE || !launch->accesses[p]) continue;
            const graph_tensor *tensor = graph->tensors[launch->tensors[p]],
                               *whole = graph->tensors[tensor->whole];
            uint64_t begin = tvm_graph_address(tensor), room = whole->bytes;
            if (tensor->offset > room || tensor->bytes > room - tensor->offset ||
                (is_temporary(tensor) && (whole->place > graph->bytes || room > graph->bytes - whole->place)))
                return refuse(v, i, "launch '%s' touches '%s' outside of its memory", launch->name,
                              tensor->name);
            v->touches[v->touch_count++] = (tvm_touch){.begin = begin,
                                                       .end = begin + tensor->bytes,
                                                       .item = i,
                                                       .subject = launch->tensors[p],
                                                       .writes = launch->accesses[p] & TVM_PARAM_WRITTEN};
        }
    }
    return TVM_OK;
}

static bool is_written(const verifier *v, const tvm_touch *touch, uint32_t *whole) {
    *whole = v->graph->tensors[touch->subject]->whole;
    return touch->writes;
}

/* The touches are in the order of their tasks. */
static tvm_status find_writers(verifier *v) {
    uint32_t count = v->graph->tensor_count, whole;
    v->writers_before = calloc(count + (size_t)1, sizeof *v->writers_before);
    v->writers = calloc(v->touch_count + 1, sizeof *v->writers);
    if (!v->writers || !v->writers_before) return tvm_diag_no_memory(v->diags);
    for (size_t t = 0; t < v->touch_count; t++)
        if (is_written(v, &v->touches[t], &whole)) v->writers_before[whole]++;
    size_t sum = 0;
    for (uint32_t i = 0; i <= count; i++) {
        size_t of = v->writers_before[i];
        v->writers_before[i] = sum;
        sum += of;
    }
    for (size_t t = 0; t < v->touch_count; t++)
        if (is_written(v, &v->touches[t], &whole))
            v->writers[v->writers_before[whole]++] = v->touches[t].item;
    for (uint32_t i = count; i > 0; i--) v->writers_before[i] = v->writers_before[i - 1];
    v->writers_before[0] = 0;
    return TVM_OK;
}

static bool reads(const verifier *v, uint32_t task, uint32_t tensor) {
    const graph_launch *launch = v->graph->launches[v->tape->tasks[task].launch];
    for (uint32_t p = 0; p < launch->count; p++)
        if (launch->tensors[p] == tensor && launch->accesses[p] & TVM_PARAM_READ) return true;
    return false;
}

/* Task a, which writes other tensors' bytes, has ended before task b reads a temporary there: then it also
 * has before what wrote the temporary. */
static bool is_alive(const verifier *v, const tvm_touch *a, const tvm_touch *b) {
    uint32_t whole = v->graph->tensors[b->subject]->whole;
    if (!a->writes || v->graph->tensors[a->subject]->whole == whole ||
        !is_temporary(v->graph->tensors[whole]) || !reads(v, b->item, b->subject))
        return true;
    for (size_t i = v->writers_before[whole]; i < v->writers_before[whole + 1]; i++)
        if (v->writers[i] < b->item && tvm_precedence_has(&v->order, v->writers[i], b->item) &&
            !tvm_precedence_has(&v->order, a->item, v->writers[i]))
            return false;
    return true;
}

/* Keeps the first pair of tasks that breaks a rule. */
static bool check_pair(void *closure, const tvm_touch *a, const tvm_touch *b) {
    verifier *v = closure;
    if (v->tape->tasks[a->item].launch == v->tape->tasks[b->item].launch) return true;
    bool later = v->found && (b->item > v->b.item || (b->item == v->b.item && a->item > v->a.item));
    bool ordered = tvm_precedence_has(&v->order, a->item, b->item);
    if (later || (ordered && is_alive(v, a, b))) return true;
    v->found = true;
    v->a = *a, v->b = *b;
    return true;
}

static tvm_status refuse_pair(const verifier *v) {
    const tvm_touch *a = &v->a, *b = &v->b;
    const char *first = v->graph->tensors[a->subject]->name, *second = v->graph->tensors[b->subject]->name;
    if (tvm_precedence_has(&v->order, a->item, b->item))
        return refuse(v, b->item, "launch '%s' reads '%s', in whose bytes launch '%s' has written '%s' since",
                      launch_name(v, b->item), second, launch_name(v, a->item), first);
    return refuse(
        v, b->item,
        "launch '%s' %s '%s' where launch '%s' in task %u %s '%s', and neither task waits for the other",
        launch_name(v, b->item), b->writes ? "writes" : "reads", second, launch_name(v, a->item), a->item,
        a->writes ? "writes" : "reads", first);
}

tvm_status tvm_tape_verify(const tvm_graph *graph, const tvm_tape *tape, tvm_diags *diags) {
    verifier v = {.graph = graph, .tape = tape, .diags = diags};
    if (tape->task_count > TVM_TAPE_MOST_TASKS)
        return tvm_diag_add(diags, TVM_INVALID, NULL, NULL, "tape: it has %u tasks, and %d is the most",
                            tape->task_count, (int)TVM_TAPE_MOST_TASKS);
    tvm_status status = check_rows(&v);
    if (!status) status = find_order(&v);
    if (!status) status = find_touches(&v);
    if (!status) status = find_writers(&v);
    if (!status) {
        tvm_touches_meet(v.touches, v.touch_count, check_pair, &v);
        if (v.found) status = refuse_pair(&v);
    }
    free(v.touches);
    free(v.writers);
    free(v.writers_before);
    tvm_precedence_free(&v.order);
    return status;
}
