/* Launches that own tensors (alloc-global) on a GPU: two streams with many launches in flight, and a captured
 * graph that is replayed; every result is compared with the interpreter's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#ifdef HAVE_CUDA_H
#include "cuda_driver.h"
#endif

enum { STREAMS = 2, LAUNCHES = 64, BLOCKS = 97, WIDTH = 128, LENGTH = BLOCKS * WIDTH, REPLAYS = 5 };

/* y becomes the running sum over x's blocks, times f, plus y: each block waits for the one before it. x comes by
 * the copy engine, with a tensor map of the launch's, while launches before this one still run. */
static const char source[] = ".vasm 3\n"
                             ".kernel running(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
                             ".warps 1\n"
                             ".grid n / 128\n"
                             ".assume n % 128 == 0\n"
                             "    %part = alloc-global f32[grid.x, 128]\n"
                             "    %ready = alloc-global u32[grid.x], clean\n"
                             "    %in = alloc-shared f32[128]\n"
                             "    %came = alloc-barrier [1]\n"
                             "    launch-dependents\n"
                             "    copy-bulk %in, x[block.x * 128], barrier %came\n"
                             "    arrive-barrier %came\n"
                             "    wait-dependency\n"
                             "    wait-barrier %came\n"
                             "    %sum = load-shared %in, auto(128)\n"
                             "    if block.x > 0\n"
                             "        lock-semaphore %ready[block.x - 1], 1\n"
                             "        %before = load-global %part[block.x - 1, 0], auto(128)\n"
                             "        %sum = add %sum, %before\n"
                             "        release-semaphore %ready[block.x - 1], 0\n"
                             "    end\n"
                             "    store-global %part[block.x, 0], %sum\n"
                             "    if block.x < grid.x - 1\n"
                             "        release-semaphore %ready[block.x], 1\n"
                             "    end\n"
                             "    %old = load-global y[block.x * 128], auto(128)\n"
                             "    %new = fma %sum, f, %old\n"
                             "    store-global y[block.x * 128], %new\n"
                             ".end\n";

#ifdef HAVE_CUDA_H

/* One stream's work: x stays, y goes through all launches. */
typedef struct lane {
    CUstream stream;
    void *x, *y;
    _Alignas(16) float first[LENGTH];
    _Alignas(16) float expected[LENGTH];
    _Alignas(16) float found[LENGTH];
} lane;

typedef struct streams_run {
    suite *s;
    const gpu_test *test;
    tvm_cuda_driver driver;
    tvm_program *on_cpu, *on_gpu;
    tvm_kernel *cpu, *gpu;
    lane lanes[STREAMS];
} streams_run;

static bool fail(const streams_run *r, const char *what) {
    printf("%s: %s: %s\n", r->test->name, what, tvm_message(r->s->gpu));
    return false;
}

static float factor(unsigned lane_number, unsigned launch) {
    return (float)(lane_number + 1) / (float)(launch + 2);
}

static tvm_status launch(tvm_kernel *kernel, void *stream, float f, void *x, void *y) {
    const tvm_value values[4] = {{.i = LENGTH}, {.f = (double)f}, {.data = x}, {.data = y}};
    return tvm_launchv(kernel, stream, values, 4);
}

static bool open_lane(streams_run *r, unsigned number, unsigned rounds) {
    lane *l = &r->lanes[number];
    tvm_context *gpu = r->s->gpu;
    _Alignas(16) static float y[LENGTH];
    for (int i = 0; i < LENGTH; i++) {
        l->first[i] = (float)((i * 37 + (int)number * 11) % 255 - 127) / 64;
        y[i] = (float)(i % 13);
    }
    if (r->driver.stream_create(&l->stream, CU_STREAM_NON_BLOCKING)) return fail(r, "stream");
    if (tvm_memory_alloc(gpu, sizeof l->first, &l->x) || tvm_memory_alloc(gpu, sizeof y, &l->y) ||
        tvm_memory_write(gpu, l->x, l->first, sizeof l->first) || tvm_memory_write(gpu, l->y, y, sizeof y))
        return fail(r, "memory");
    memcpy(l->expected, y, sizeof y);
    for (unsigned i = 0; i < rounds; i++)
        if (launch(r->cpu, NULL, factor(number, i % LAUNCHES), l->first, l->expected))
            return fail(r, "interpreter");
    return true;
}

static bool same(streams_run *r, unsigned number) {
    lane *l = &r->lanes[number];
    if (tvm_synchronize(r->s->gpu, l->stream) || tvm_memory_read(r->s->gpu, l->found, l->y, sizeof l->found))
        return fail(r, "run");
    if (!memcmp(l->found, l->expected, sizeof l->found)) return true;
    printf("%s: stream %u: the GPU's result is not the interpreter's\n", r->test->name, number);
    return false;
}

static bool open_run(streams_run *r) {
    CUcontext context;
    CUdevice device;
    return tvm_cuda_driver_open(&r->driver, NULL) == TVM_OK && !r->driver.device_get(&device, 0) &&
           !r->driver.primary_retain(&context, device) && !r->driver.context_push(context) &&
           !tvm_load(r->s->cpu, r->test->bytecode, r->test->size, &r->on_cpu) &&
           !tvm_load(r->s->gpu, r->test->bytecode, r->test->size, &r->on_gpu) &&
           !tvm_get_kernel(r->on_cpu, "running", &r->cpu) && !tvm_get_kernel(r->on_gpu, "running", &r->gpu);
}

static void close_run(streams_run *r) {
    CUcontext context;
    CUdevice device;
    for (unsigned i = 0; i < STREAMS; i++) {
        lane *l = &r->lanes[i];
        if (l->stream) r->driver.stream_destroy(l->stream);
        if (l->x) tvm_memory_free(r->s->gpu, l->x);
        if (l->y) tvm_memory_free(r->s->gpu, l->y);
    }
    tvm_program_free(r->on_cpu);
    tvm_program_free(r->on_gpu);
    if (r->driver.context_pop && !r->driver.context_pop(&context) && !r->driver.device_get(&device, 0))
        r->driver.primary_release(device);
}

static bool two_streams(streams_run *r) {
    bool good = true;
    for (unsigned i = 0; good && i < STREAMS; i++) good = open_lane(r, i, LAUNCHES);
    for (unsigned l = 0; good && l < LAUNCHES; l++)
        for (unsigned i = 0; good && i < STREAMS; i++)
            if (launch(r->gpu, r->lanes[i].stream, factor(i, l), r->lanes[i].x, r->lanes[i].y))
                good = fail(r, "launch");
    for (unsigned i = 0; good && i < STREAMS; i++) good = same(r, i);
    return good;
}

static bool capture(streams_run *r, CUgraphExec *exec) {
    lane *l = &r->lanes[0];
    CUgraph graph;
    const tvm_value values[4] = {{.i = LENGTH}, {.f = 1}, {.data = l->x}, {.data = l->y}};
    if (tvm_prepare(r->gpu) || tvm_reserve(r->gpu, l->stream, values, 4)) return fail(r, "reserve");
    if (r->driver.capture_begin(l->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) return fail(r, "capture");
    for (unsigned i = 0; i < LAUNCHES; i++)
        if (launch(r->gpu, l->stream, factor(0, i), l->x, l->y)) return fail(r, "captured launch");
    bool good = !r->driver.capture_end(l->stream, &graph) && !r->driver.graph_instantiate(exec, graph, 0);
    if (good) r->driver.graph_destroy(graph);
    return good || fail(r, "graph");
}

static bool replayed(streams_run *r) {
    CUgraphExec exec = NULL;
    bool good = open_lane(r, 0, LAUNCHES * REPLAYS) && capture(r, &exec);
    for (unsigned i = 0; good && i < REPLAYS; i++)
        if (r->driver.graph_launch(exec, r->lanes[0].stream)) good = fail(r, "replay");
    good = good && same(r, 0);
    if (exec) r->driver.graph_exec_destroy(exec);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool (*const *body)(streams_run *) = test->data;
    streams_run *r = calloc(1, sizeof *r);
    if (!r) return false;
    r->s = s;
    r->test = test;
    bool good = open_run(r) ? (*body)(r) : fail(r, "open");
    close_run(r);
    free(r);
    return good;
}

void gpu_add_streams(suite *s, gpu_group *group) {
    static bool (*const bodies[])(streams_run *) = {two_streams, replayed};
    static const char *const names[] = {"two streams", "a graph replayed"};
    (void)s;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        gpu_test *test = gpu_add(group, names[i], source, "streams.vasm", NULL, 0);
        test->run = run;
        test->data = &bodies[i];
    }
}

#else

void gpu_add_streams(suite *s, gpu_group *group) {
    (void)s, (void)group, (void)source;
}

#endif
