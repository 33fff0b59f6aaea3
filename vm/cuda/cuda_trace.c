/* The timeline of the GPU: an event before and after every launch, read when the timeline ends. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_code.h"

#include <stdlib.h>

enum { LAUNCHES_MAX = 1 << 16, STREAMS_MAX = 256 };

struct cuda_traced {
    cuda_traced *next;
    const char *name; /* the device's copy */
    CUstream stream;
    CUevent start, stop;
    bool done;     /* the launching thread is done with it */
    bool recorded; /* stop was */
    bool left;     /* the timeline ended before: it is the launching thread's to free */
};

typedef struct cuda_trace {
    CUevent origin;
    int64_t origin_ns; /* when it was reached */
    cuda_traced *first, **last;
    unsigned count;
    unsigned long long dropped; /* launches above LAUNCHES_MAX, or that no event could be had for */
} cuda_trace;

/* ---- at a launch ---- */

static bool make_events(const tvm_cuda_driver *driver, cuda_traced *traced) {
    if (driver->event_create(&traced->start, CU_EVENT_DEFAULT)) return false;
    if (driver->event_create(&traced->stop, CU_EVENT_DEFAULT)) {
        driver->event_destroy(traced->start);
        return false;
    }
    if (!driver->event_record(traced->start, traced->stream)) return true;
    driver->event_destroy(traced->start);
    driver->event_destroy(traced->stop);
    return false;
}

static void traced_free(const tvm_cuda_driver *driver, cuda_traced *traced) {
    driver->event_destroy(traced->start);
    driver->event_destroy(traced->stop);
    free(traced);
}

/* In the list, or freed. */
static cuda_traced *keep(cuda_device *device, cuda_traced *traced) {
    bool kept = false;
    pthread_mutex_lock(&device->lock);
    cuda_trace *trace = device->trace;
    if (trace && traced && trace->count < LAUNCHES_MAX) {
        *trace->last = traced;
        trace->last = &traced->next;
        trace->count++;
        kept = true;
    } else if (trace) {
        trace->dropped++;
    }
    pthread_mutex_unlock(&device->lock);
    if (kept || !traced) return kept ? traced : NULL;
    traced_free(&device->driver, traced);
    return NULL;
}

cuda_traced *tvm_cuda_trace_launch(cuda_device *device, const char *name, CUstream stream) {
    const tvm_cuda_driver *driver = &device->driver;
    if (!(atomic_load_explicit(&device->observer->active, memory_order_relaxed) & TVM_OBSERVE_TRACE))
        return NULL;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = driver->stream_capturing(stream, &capturing);
    if (result || capturing != CU_STREAM_CAPTURE_STATUS_NONE) return NULL;
    cuda_traced *traced = calloc(1, sizeof *traced);
    if (traced) {
        traced->name = name;
        traced->stream = stream;
        if (!make_events(driver, traced)) {
            free(traced);
            traced = NULL;
        }
    }
    return keep(device, traced);
}

void tvm_cuda_trace_launched(cuda_device *device, cuda_traced *traced) {
    bool recorded = !device->driver.event_record(traced->stop, traced->stream);
    pthread_mutex_lock(&device->lock);
    traced->done = true;
    traced->recorded = recorded;
    bool left = traced->left;
    pthread_mutex_unlock(&device->lock);
    if (left) traced_free(&device->driver, traced);
}

/* ---- begin and end ---- */

static tvm_status make_origin(cuda_device *device, cuda_trace *trace, tvm_diags *diags) {
    const tvm_cuda_driver *driver = &device->driver;
    CUresult result = driver->event_create(&trace->origin, CU_EVENT_DEFAULT);
    if (result) return tvm_cuda_result(device, result, "cuEventCreate", diags);
    result = driver->event_record(trace->origin, NULL);
    if (!result) result = driver->event_synchronize(trace->origin);
    trace->origin_ns = tvm_now_ns();
    if (result) driver->event_destroy(trace->origin);
    return tvm_cuda_result(device, result, "cuEventRecord", diags);
}

tvm_status tvm_cuda_trace_begin(void *opened, tvm_diags *diags) {
    cuda_device *device = opened;
    cuda_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return tvm_diag_no_memory(diags);
    trace->last = &trace->first;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (!status) {
        status = make_origin(device, trace, diags);
        tvm_cuda_leave(device, pushed);
    }
    if (status) {
        free(trace);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    device->trace = trace;
    pthread_mutex_unlock(&device->lock);
    return TVM_OK;
}

/* The row of a stream: 0 the default stream's, then in the order of their first launches. */
static unsigned row_of(CUstream streams[STREAMS_MAX], CUstream stream) {
    unsigned row = 0;
    if (!stream) return 0;
    do row++;
    while (row < STREAMS_MAX - 1 && streams[row] && streams[row] != stream);
    streams[row] = stream;
    return row;
}

static CUresult emit(cuda_device *device, const cuda_trace *trace, const cuda_traced *traced, unsigned row) {
    const tvm_cuda_driver *driver = &device->driver;
    float after = 0, length = 0; /* milliseconds */
    CUresult result = driver->event_synchronize(traced->stop);
    if (!result) result = driver->event_elapsed(&after, trace->origin, traced->start);
    if (!result) result = driver->event_elapsed(&length, traced->start, traced->stop);
    if (result) return result;
    int64_t start = trace->origin_ns + (int64_t)((double)after * 1e6);
    tvm_trace_device_span(device->observer, traced->name, row, start,
                          start + (int64_t)((double)length * 1e6));
    return CUDA_SUCCESS;
}

/* The oldest launch whose thread is done with it; those that are not are left to their threads. */
static cuda_traced *take(cuda_device *device, cuda_trace *trace) {
    pthread_mutex_lock(&device->lock);
    while (trace->first && !trace->first->done) {
        cuda_traced *other = trace->first;
        trace->first = other->next;
        other->left = true;
    }
    cuda_traced *traced = trace->first;
    if (traced) trace->first = traced->next;
    pthread_mutex_unlock(&device->lock);
    return traced;
}

/* With a current context. */
static tvm_status finish(cuda_device *device, cuda_trace *trace, tvm_diags *diags) {
    const tvm_cuda_driver *driver = &device->driver;
    CUstream streams[STREAMS_MAX] = {NULL};
    CUresult result = CUDA_SUCCESS;
    for (cuda_traced *traced = take(device, trace); traced; traced = take(device, trace)) {
        if (!result && traced->recorded)
            result = emit(device, trace, traced, row_of(streams, traced->stream));
        traced_free(driver, traced);
    }
    driver->event_destroy(trace->origin);
    if (trace->dropped)
        tvm_log(device->observer, TVM_LOG_WARN, "the timeline lacks %llu launches", trace->dropped);
    return tvm_cuda_result(device, result, "cuEventElapsedTime", diags);
}

tvm_status tvm_cuda_trace_end(void *opened, tvm_diags *diags) {
    cuda_device *device = opened;
    pthread_mutex_lock(&device->lock);
    cuda_trace *trace = device->trace;
    device->trace = NULL;
    pthread_mutex_unlock(&device->lock);
    if (!trace) return TVM_OK;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (!status) {
        status = finish(device, trace, diags);
        tvm_cuda_leave(device, pushed);
    }
    /* Without the context: what is the driver's went with it. */
    for (cuda_traced *traced = take(device, trace); traced; traced = take(device, trace)) free(traced);
    free(trace);
    return status;
}

#endif /* HAVE_CUDA_H */
