/* What a context records of its work: log lines (TILUSVM_LOG), a timeline (tvm_trace_start) and NVTX ranges.
 * All of it belongs to a context, and costs one load and a branch where it is off. */
#ifndef TVM_VM_OBSERVE_H
#define TVM_VM_OBSERVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "diag.h"
#include "tvm.h"

/* A row a kind of span: identifier, name, the level at which the log tells of it. */
#define TVM_SPAN_TABLE(X)                                                                                    \
    X(TRANSLATE, "translate", TVM_LOG_INFO)                                                                  \
    X(PTXAS, "ptxas", TVM_LOG_INFO)                                                                          \
    X(LOAD, "load", TVM_LOG_INFO)                                                                            \
    X(PREPARE, "prepare", TVM_LOG_DEBUG)                                                                     \
    X(GRAPH, "graph", TVM_LOG_DEBUG)                                                                         \
    X(LAUNCH, "launch", TVM_LOG_DEBUG)                                                                       \
    X(SYNCHRONIZE, "synchronize", TVM_LOG_DEBUG)

typedef enum tvm_span_kind {
#define TVM_SPAN_ENUM(id, name, level) TVM_SPAN_##id,
    TVM_SPAN_TABLE(TVM_SPAN_ENUM)
#undef TVM_SPAN_ENUM
} tvm_span_kind;

enum { TVM_OBSERVE_LOG = 1, TVM_OBSERVE_TRACE = 2, TVM_OBSERVE_NVTX = 4 };

typedef struct tvm_observer {
    atomic_uint active; /* TVM_OBSERVE_*: what spans are for; 0: nothing */
    tvm_log_level level;
    void (*log)(void *closure, tvm_log_level level, const char *text);
    void *closure;
    FILE *log_file; /* NULL: standard error */

    pthread_mutex_t lock; /* of what follows, and of lines in the log's file */
    FILE *trace;          /* NULL: there is no timeline */
    bool trace_begun;     /* an event was written */
    int64_t origin;       /* of the timeline, in nanoseconds of CLOCK_MONOTONIC */
} tvm_observer;

/* Reads the options and the environment. */
tvm_status tvm_observer_open(tvm_observer *observer, const tvm_context_options *options, tvm_diags *diags);
void tvm_observer_close(tvm_observer *observer);

void tvm_log(tvm_observer *observer, tvm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The timeline as Chrome's trace events in JSON: "Trace Event Format", the object form with complete events.
 */
tvm_status tvm_observer_trace(tvm_observer *observer, const char *path, tvm_diags *diags);
tvm_status tvm_observer_trace_end(tvm_observer *observer, tvm_diags *diags);
/* A span of the GPU. Times in nanoseconds of CLOCK_MONOTONIC; `stream` numbers its row. */
void tvm_trace_device_span(tvm_observer *observer, const char *name, unsigned stream, int64_t start,
                           int64_t end);

/* A span of the calling thread, for the timeline. */
void tvm_trace_host_span(tvm_observer *observer, const char *name, const char *detail, int64_t start,
                         int64_t end);

int64_t tvm_now_ns(void); /* CLOCK_MONOTONIC */

/* Work of the calling thread, from begin to end, in that order within a thread. */
typedef struct tvm_span {
    unsigned active; /* as it was at the begin */
    tvm_span_kind kind;
    const char *detail; /* a kernel's name, a target, ...: must live until the end */
    int64_t start;
} tvm_span;

void tvm_span_open(const tvm_observer *observer, tvm_span *span);
void tvm_span_close(tvm_observer *observer, const tvm_span *span);

/* observer may be NULL. */
static inline tvm_span tvm_span_begin(const tvm_observer *observer, tvm_span_kind kind, const char *detail) {
    tvm_span span = {.kind = kind, .detail = detail};
    if (observer) span.active = atomic_load_explicit(&observer->active, memory_order_relaxed);
    if (span.active) tvm_span_open(observer, &span);
    return span;
}

static inline void tvm_span_end(tvm_observer *observer, const tvm_span *span) {
    if (span->active) tvm_span_close(observer, span);
}

#endif
