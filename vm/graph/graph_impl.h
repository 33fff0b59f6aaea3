/* The structure of a graph; private to graph*.c and tape*.c.
 *
 *     graph.c          making: tensors, scalars and launches by name
 *     graph_order.c    what waits for what; what is checked of the whole
 *     graph_memory.c   the memory of temporaries
 *     graph_run.c      arguments made ready, and launches
 *     graph_report.c   the description
 *     order.c          order and memory of any such items
 *     tape*.c          the graph as one kernel would run it: made, verified, run on the interpreter */
#ifndef TVM_GRAPH_IMPL_H
#define TVM_GRAPH_IMPL_H

#include <pthread.h>

#include "call_kept.h"
#include "order.h"
#include "runtime.h"
#include "tensor.h"

enum {
    TVM_GRAPH_MOST = 4096,     /* tensors, scalars, launches: of each */
    TVM_GRAPH_ALIGNMENT = 256, /* of temporaries */
    TVM_GRAPH_PART_ALIGNMENT = 16
};

typedef struct graph_tensor {
    char *name;
    tvm_graph_role role;
    uint32_t whole;         /* the tensor that it is a part of; else its own number */
    uint64_t offset, bytes; /* of a part: from the whole's first byte; what its elements reach over */
    bool is_used;
    uint64_t place; /* of a temporary: from the begin of the graph's memory */
    tvm_tensor tensor;
    int64_t shape[TVM_MAX_RANK], strides[TVM_MAX_RANK];
} graph_tensor;

typedef struct graph_scalar {
    char *name;
    char type[TVM_DTYPE_NAME_MAX];
    bool is_used;
    tvm_value value;
} graph_scalar;

typedef struct graph_launch {
    char *name;
    tvm_kernel *kernel;
    uint32_t count;    /* of parameters; for each: */
    uint32_t *tensors; /* TVM_NONE: none of the graph's */
    uint32_t *scalars; /* the same */
    uint8_t *accesses; /* TVM_PARAM_* */
    tvm_value *values;
    uint32_t *after; /* launches that it directly waits for, ascending; first what the caller says */
    uint32_t after_count;
    bool is_stale;                 /* its arguments have changed */
    bool early;                    /* tvm_device_node */
    uint64_t own_bytes, own_place; /* memory that is planned for its own tensors */
    tvm_kept_launch kept;
} graph_launch;

struct tvm_graph {
    tvm_context *context;
    char *name;
    pthread_mutex_t lock; /* of all that follows */
    graph_tensor **tensors;
    graph_scalar **scalars;
    graph_launch **launches;
    uint32_t tensor_count, scalar_count, launch_count;
    enum { GRAPH_OPEN, GRAPH_FINISHED, GRAPH_FAILED } state;
    bool is_stale;      /* a launch's arguments have changed */
    bool has_changed;   /* a tensor lies elsewhere, or a launch runs another variant: since the addresses were
                           checked */
    bool is_persistent; /* a device runs it as one persistent kernel */
    bool notes_times;   /* which notes when its tasks begin and end */
    tvm_precedence order;     /* of the launches */
    void *memory;             /* of the temporaries, and the launches' own tensors */
    uint64_t bytes, unshared; /* of it; of what lies there, one after the other */
    void *kept;               /* what lives as long as the graph; NULL: nothing */
    void (*release)(void *kept);
    void *device_graph; /* NULL: none is made, or launches are made one after the other */
};

/* The address of a tensor's first byte; 0: not known. */
static inline uint64_t tvm_graph_address(const graph_tensor *tensor) {
    return (uint64_t)(uintptr_t)tvm_tensor_data(&tensor->tensor);
}

/* The graph owns what is kept from here on, such as its programs, and releases it at its end. */
void tvm_graph_keep(tvm_graph *graph, void *kept, void (*release)(void *kept));

/* Was a float given for an integer, or an integer for a float? */
static inline bool tvm_graph_is_other_kind(bool is_float, const tvm_value *value) {
    return is_float ? value->i && value->f == 0 : !value->i && value->f != 0;
}

/* Puts a text before the messages from number `from` on. */
void tvm_graph_prefix(tvm_diags *diags, size_t from, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* graph_order.c: the touches of all launches, malloc'ed; subjects are tensors. `places` has the address of
 * each whole tensor, by number. NULL: out of memory. */
tvm_touch *tvm_graph_touches(const tvm_graph *graph, const uint64_t *places, size_t *count);
/* Whether all bytes that the launch reads before it writes them were written by earlier ones; TVM_ARGUMENT.
 */
tvm_status tvm_graph_check_launch(const tvm_graph *graph, const graph_launch *launch, tvm_diags *diags);
/* Fills the launches' `after` and the order, and checks that all is used and outputs are written. */
tvm_status tvm_graph_find_order(tvm_graph *graph, tvm_diags *diags);
/* Whether launches that touch the same memory, by the addresses of now, are ordered: TVM_ARGUMENT. Sets
 * `early`. */
tvm_status tvm_graph_check_addresses(tvm_graph *graph, tvm_diags *diags);

/* graph_memory.c: plans places for temporaries and launches' own tensors; sets the sizes. */
tvm_status tvm_graph_plan(tvm_graph *graph, tvm_diags *diags);

/* graph_run.c: the checks of a graph whose order is known, its memory and kernels. */
tvm_status tvm_graph_make_ready(tvm_graph *graph, tvm_diags *diags);
/* Makes the launches ready with the arguments of now, where they have changed. */
tvm_status tvm_graph_settle(tvm_graph *graph, tvm_diags *diags);
/* Launches it, after its arguments have been made ready where they have changed. */
tvm_status tvm_graph_run(tvm_graph *graph, void *stream, tvm_diags *diags);

/* graph_report.c: tvm_graph_report's text. */
tvm_status tvm_graph_describe(const tvm_graph *graph, char **text, tvm_diags *diags);

#endif
