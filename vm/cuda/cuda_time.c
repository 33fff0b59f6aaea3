/* Device time of a launch: replays of a CUDA graph of several launches between two events. In a graph the
 * launches follow each other without the host, whose own time would else hide that of a short kernel. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_code.h"
#include "cuda_scratch.h"

#include <stdlib.h>

/* of one set of tensors, and of several, whose number they are a multiple of */
enum { LAUNCHES_PER_GRAPH = 20, LAUNCHES_IN_TURN = 40, DEFAULT_REPEATS = 200 };

typedef struct cuda_launches {
    const tvm_device_launch *items;
    unsigned count, per_graph;
} cuda_launches;

typedef struct cuda_timer {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUevent start, stop;
} cuda_timer;

static void timing_free(cuda_device *device, cuda_timer *timer) {
    const tvm_cuda_driver *driver = &device->driver;
    if (timer->exec) driver->graph_exec_destroy(timer->exec);
    if (timer->graph) driver->graph_destroy(timer->graph);
    if (timer->start) driver->event_destroy(timer->start);
    if (timer->stop) driver->event_destroy(timer->stop);
    if (!timer->stream) return;
    driver->stream_synchronize(timer->stream);
    tvm_cuda_scratch_drop(device, timer->stream);
    driver->stream_destroy(timer->stream);
}

/* Launches into a capture, which is ended in any case. */
static tvm_status capture(cuda_code *code, const cuda_launches *launches, cuda_timer *timer,
                          tvm_diags *diags) {
    cuda_device *device = code->device;
    const tvm_cuda_driver *driver = &device->driver;
    tvm_status status =
        tvm_cuda_result(device, driver->capture_begin(timer->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                        "cuStreamBeginCapture", diags);
    if (status) return status;
    for (unsigned i = 0; !status && i < launches->per_graph; i++)
        status = tvm_cuda_enqueue(code, &launches->items[i % launches->count], timer->stream, diags);
    CUresult result = driver->capture_end(timer->stream, &timer->graph);
    return status ? status : tvm_cuda_result(device, result, "cuStreamEndCapture", diags);
}

static tvm_status timing_make(cuda_code *code, const cuda_launches *launches, cuda_timer *timer,
                              tvm_diags *diags) {
    cuda_device *device = code->device;
    const tvm_cuda_driver *driver = &device->driver;
    CUresult result = driver->stream_create(&timer->stream, CU_STREAM_NON_BLOCKING);
    if (!result) result = driver->event_create(&timer->start, CU_EVENT_DEFAULT);
    if (!result) result = driver->event_create(&timer->stop, CU_EVENT_DEFAULT);
    tvm_status status = tvm_cuda_result(device, result, "cuEventCreate", diags);
    if (!status) status = tvm_cuda_make_room(code, launches->items, timer->stream, diags);
    if (!status) status = capture(code, launches, timer, diags);
    if (!status)
        status = tvm_cuda_result(device, driver->graph_instantiate(&timer->exec, timer->graph, 0),
                                 "cuGraphInstantiate", diags);
    return status;
}

/* One replay, in microseconds a launch. */
static tvm_status replay(cuda_device *device, const cuda_timer *timer, unsigned launches,
                         double *microseconds, tvm_diags *diags) {
    const tvm_cuda_driver *driver = &device->driver;
    float milliseconds = 0;
    CUresult result = driver->event_record(timer->start, timer->stream);
    if (!result) result = driver->graph_launch(timer->exec, timer->stream);
    if (!result) result = driver->event_record(timer->stop, timer->stream);
    if (!result) result = driver->event_synchronize(timer->stop);
    if (!result) result = driver->event_elapsed(&milliseconds, timer->start, timer->stop);
    *microseconds = (double)milliseconds * 1e3 / launches;
    return tvm_cuda_result(device, result, "cuGraphLaunch", diags);
}

static tvm_status measure(cuda_code *code, const cuda_launches *launches, double *samples, unsigned count,
                          tvm_diags *diags) {
    cuda_device *device = code->device;
    cuda_timer timer = {0};
    double warm_up;
    tvm_status status =
        tvm_cuda_result(device, device->driver.context_synchronize(), "cuCtxSynchronize", diags);
    if (!status) status = timing_make(code, launches, &timer, diags);
    if (!status) status = replay(device, &timer, launches->per_graph, &warm_up, diags);
    for (unsigned i = 0; !status && i < count; i++)
        status = replay(device, &timer, launches->per_graph, &samples[i], diags);
    timing_free(device, &timer);
    return status;
}

tvm_status tvm_cuda_time(void *code, const tvm_device_launch *launches, unsigned launch_count,
                         unsigned repeats, double *microseconds, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    if (!repeats) repeats = DEFAULT_REPEATS;
    cuda_launches all = {launches, launch_count, LAUNCHES_PER_GRAPH};
    if (launch_count > 1) all.per_graph = (LAUNCHES_IN_TURN + launch_count - 1) / launch_count * launch_count;
    unsigned count = repeats / all.per_graph + (repeats % all.per_graph != 0);
    double *samples = calloc(count, sizeof *samples);
    if (!samples) return tvm_diag_no_memory(diags);
    bool pushed;
    tvm_status status = tvm_cuda_prepare(code, launches->kernel, diags);
    if (!status) status = tvm_cuda_enter(device, &pushed, diags);
    if (!status) {
        status = measure(code, &all, samples, count, diags);
        tvm_cuda_leave(device, pushed);
    }
    if (!status) *microseconds = tvm_median(samples, count);
    free(samples);
    return status;
}

#endif /* HAVE_CUDA_H */
