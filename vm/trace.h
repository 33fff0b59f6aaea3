/* Inside observe.c: the timeline's file. */
#ifndef TVM_VM_TRACE_H
#define TVM_VM_TRACE_H

#include "observe.h"

/* A span of the calling thread. */
void tvm_trace_host_span(tvm_observer *observer, const char *name, const char *detail, int64_t start,
                         int64_t end);

#endif
