#include "gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "assembler.h"
#include "fileio.h"
#include "vbc.h"

/* ---- failures ---- */

bool bench_fail(bench *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->why, sizeof b->why, format, arguments);
    va_end(arguments);
    return false;
}

bool bench_ok(bench *b, tvm_status status, const char *what) {
    if (status == TVM_OK) return true;
    if (status == TVM_FAULT) b->lost = b->cuda;
    return bench_fail(b, "%s: %s", what, tvm_message(b->context));
}

bool bench_driver_ok(bench *b, CUresult result, const char *what) {
    tvm_diags diags = {0};
    tvm_status status = tvm_cuda_check(&b->driver, result, what, NULL, 0, &diags);
    if (status == TVM_OK) return true;
    if (status == TVM_FAULT) b->lost = true;
    bench_fail(b, "%s: %s", what, diags.count ? diags.items[0].message : "failed");
    tvm_diags_free(&diags);
    return false;
}

/* ---- the device ---- */

static bool find_properties(bench *b) {
    int processors = 0, l2 = 0, major = 0, minor = 0;
    __typeof__(b->driver.device_attribute) get = b->driver.device_attribute;
    CUresult result = get(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, b->device);
    if (!result) result = get(&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, b->device);
    if (!result) result = get(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, b->device);
    if (!result) result = get(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, b->device);
    if (major < 9) b->launch_ex = NULL;
    b->target = (unsigned)(10 * major + minor);
    b->multiprocessors = processors > 0 ? (unsigned)processors : 1;
    b->l2 = l2 > 0 ? (size_t)l2 : 0;
    return bench_driver_ok(b, result, "cuDeviceGetAttribute");
}

static bool open_driver(bench *b) {
    tvm_diags diags = {0};
    if (tvm_cuda_driver_open(&b->driver, &diags)) {
        bench_fail(b, "%s", diags.count ? diags.items[0].message : "there is no CUDA driver");
        tvm_diags_free(&diags);
        return false;
    }
    void *address = dlsym(b->driver.library, "cuLaunchKernelEx");
    memcpy(&b->launch_ex, &address, sizeof address);
    CUcontext primary;
    if (!bench_driver_ok(b, b->driver.device_get(&b->device, 0), "cuDeviceGet") ||
        !bench_driver_ok(b, b->driver.primary_retain(&primary, b->device), "cuDevicePrimaryCtxRetain"))
        return false;
    b->retained = true;
    return bench_driver_ok(b, b->driver.context_push(primary), "cuCtxPushCurrent") &&
           bench_driver_ok(b, b->driver.stream_create(&b->stream, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate") &&
           find_properties(b);
}

bool bench_open(bench *b, bool cpu, uint64_t seed) {
    return cpu ? bench_open_cpu(b, 0, 0, seed) : bench_open_gpu(b, 0, seed);
}

bool bench_open_gpu(bench *b, unsigned target, uint64_t seed) {
    *b = (bench){.cuda = true, .random = seed ? seed : 1};
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .target = target};
    if (!open_driver(b) || !bench_ok(b, tvm_context_create(&options, &b->context), "context")) return false;
    if (target) b->target = target;
    return true;
}

bool bench_open_cpu(bench *b, unsigned multiprocessors, unsigned target, uint64_t seed) {
    *b = (bench){.multiprocessors = multiprocessors, .target = target, .random = seed ? seed : 1};
    tvm_context_options options = {
        .device = TVM_DEVICE_CPU, .multiprocessors = multiprocessors, .target = target};
    return bench_ok(b, tvm_context_create(&options, &b->context), "context");
}

void bench_close(bench *b) {
    CUcontext popped;
    tvm_context_free(b->context);
    if (b->stream) b->driver.stream_destroy(b->stream);
    if (b->retained) {
        b->driver.context_pop(&popped);
        b->driver.primary_release(b->device);
    }
    if (b->driver.library) tvm_cuda_driver_close(&b->driver);
}

/* ---- random numbers, time ---- */

uint64_t bench_random(bench *b) { /* xorshift64* (Vigna 2016) */
    b->random ^= b->random >> 12;
    b->random ^= b->random << 25;
    b->random ^= b->random >> 27;
    return b->random * UINT64_C(2685821657736338717);
}

void bench_fill_random(bench *b, void *to, size_t bytes) {
    uint8_t *at = to;
    for (; bytes >= 8; bytes -= 8, at += 8) memcpy(at, &(uint64_t){bench_random(b)}, 8);
    memcpy(at, &(uint64_t){bench_random(b)}, bytes);
}

double bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory ---- */

bool bench_alloc(bench *b, size_t bytes, void **data) {
    *data = NULL;
    return bench_ok(b, tvm_memory_alloc(b->context, bytes ? bytes : 1, data), "device memory");
}

void bench_free(bench *b, void *data) {
    if (data) tvm_memory_free(b->context, data);
}

bool bench_write(bench *b, void *to, const void *from, size_t bytes) {
    return bench_ok(b, tvm_memory_write(b->context, to, from, bytes), "upload");
}

bool bench_read(bench *b, void *to, const void *from, size_t bytes) {
    return bench_ok(b, tvm_memory_read(b->context, to, from, bytes), "download");
}

bool bench_wait(bench *b) {
    return bench_ok(b, tvm_synchronize(b->context, b->stream), "run");
}

bool bench_copies_make(bench *b, size_t bytes, bench_copies *copies) {
    size_t count = 3 * b->l2 / (bytes ? bytes : 1) + 1;
    if (count < 3) count = 3;
    if (count > BENCH_COPIES_MAX) count = BENCH_COPIES_MAX;
    if (!b->cuda) count = 1;
    *copies = (bench_copies){.bytes = bytes};
    while (copies->count < count)
        if (bench_alloc(b, bytes, &copies->at[copies->count]))
            copies->count++;
        else
            return false;
    return true;
}

void bench_copies_free(bench *b, bench_copies *copies) {
    for (unsigned i = 0; i < copies->count; i++) bench_free(b, copies->at[i]);
    *copies = (bench_copies){0};
}

unsigned bench_copies_launches(const bench_copies *copies, unsigned least) {
    if (copies->bytes > BENCH_LARGE && least > BENCH_LEAST_LARGE) least = BENCH_LEAST_LARGE;
    return (least + copies->count - 1) / copies->count * copies->count;
}

/* ---- programs ---- */

static bool assemble(bench *b, const char *path, const tvm_assembler_options *options,
                     tvm_program **program) {
    tvm_diags diags = {0};
    uint8_t *text = NULL, *bytes = NULL;
    size_t length, size;
    tvm_ir_program *ir = NULL;
    tvm_status status = tvm_file_read(path, 1 << 24, &text, &length, &diags);
    if (!status) status = tvm_assemble_text((const char *)text, length, path, options, &ir, &diags);
    if (!status) status = tvm_vbc_write(ir, true, &bytes, &size, &diags);
    if (status)
        bench_fail(b, "%s: %s", path, diags.count ? diags.items[0].message : "out of memory");
    else if (!bench_ok(b, tvm_load(b->context, bytes, size, program), path))
        status = TVM_INVALID;
    tvm_diags_free(&diags);
    tvm_ir_program_free(ir);
    free(text);
    free(bytes);
    return !status;
}

bool bench_load(bench *b, const char *path, const char *const *defines, size_t define_count,
                tvm_program **program) {
    tvm_assembler_options options = {.defines = defines, .define_count = define_count};
    size_t length = strlen(path);
    *program = NULL;
    if (length > 5 && !strcmp(path + length - 5, ".vasm")) return assemble(b, path, &options, program);
    return bench_ok(b, tvm_load_file(b->context, path, program), path);
}

/* ---- times ---- */

typedef struct timer {
    CUgraph graph;
    CUgraphExec exec;
    CUevent start, stop;
} timer;

static bool timer_make(bench *b, timer *t, const bench_job *job) {
    if (!bench_driver_ok(b, b->driver.event_create(&t->start, CU_EVENT_DEFAULT), "cuEventCreate") ||
        !bench_driver_ok(b, b->driver.event_create(&t->stop, CU_EVENT_DEFAULT), "cuEventCreate") ||
        !bench_driver_ok(b, b->driver.capture_begin(b->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                         "cuStreamBeginCapture"))
        return false;
    bool enqueued = true;
    for (unsigned i = 0; enqueued && i < job->launches; i++) enqueued = job->enqueue(b, i, job->data);
    CUresult ended = b->driver.capture_end(b->stream, &t->graph);
    return enqueued && bench_driver_ok(b, ended, "cuStreamEndCapture") &&
           bench_driver_ok(b, b->driver.graph_instantiate(&t->exec, t->graph, 0), "cuGraphInstantiate");
}

static void timer_free(bench *b, timer *t) {
    if (t->exec) b->driver.graph_exec_destroy(t->exec);
    if (t->graph) b->driver.graph_destroy(t->graph);
    if (t->start) b->driver.event_destroy(t->start);
    if (t->stop) b->driver.event_destroy(t->stop);
}

static bool replay(bench *b, const timer *t, double *milliseconds) {
    float elapsed = 0;
    CUresult result = b->driver.event_record(t->start, b->stream);
    if (!result) result = b->driver.graph_launch(t->exec, b->stream);
    if (!result) result = b->driver.event_record(t->stop, b->stream);
    if (!result) result = b->driver.event_synchronize(t->stop);
    if (!result) result = b->driver.event_elapsed(&elapsed, t->start, t->stop);
    *milliseconds = (double)elapsed;
    return bench_driver_ok(b, result, "replay");
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A board at its power limit lowers its clocks: what a measurement finds depends on what ran before it. */
static void take_rest(const bench *b) {
    double whole;
    long nanoseconds = (long)(1e9 * modf(b->rest, &whole));
    if (b->rest > 0) nanosleep(&(struct timespec){.tv_sec = (time_t)whole, .tv_nsec = nanoseconds}, NULL);
}

bool bench_measure_in_turn(bench *b, const bench_job *jobs, unsigned count, unsigned replays,
                           bench_time *times) {
    timer timers[BENCH_JOBS] = {0};
    double samples[BENCH_JOBS][BENCH_WARM_UP + BENCH_REPLAYS];
    if (replays > BENCH_REPLAYS) replays = BENCH_REPLAYS;
    bool ok = count <= BENCH_JOBS ? bench_wait(b) : bench_fail(b, "more than %d jobs", BENCH_JOBS);
    for (unsigned j = 0; ok && j < count; j++) ok = timer_make(b, &timers[j], &jobs[j]);
    if (ok) take_rest(b);
    for (unsigned i = 0; ok && i < BENCH_WARM_UP + replays; i++)
        for (unsigned j = 0; ok && j < count; j++) ok = replay(b, &timers[j], &samples[j][i]);
    for (unsigned j = 0; j < count && j < BENCH_JOBS; j++) timer_free(b, &timers[j]);
    for (unsigned j = 0; ok && j < count; j++) {
        double *taken = samples[j] + BENCH_WARM_UP;
        qsort(taken, replays, sizeof *taken, ascending);
        times[j].median = taken[replays / 2] * 1e3 / jobs[j].launches;
        times[j].least = taken[0] * 1e3 / jobs[j].launches;
    }
    return ok;
}

bool bench_measure(bench *b, bench_enqueue *enqueue, void *data, unsigned launches, unsigned replays,
                   bench_time *time) {
    return bench_measure_in_turn(b, &(bench_job){enqueue, data, launches}, 1, replays, time);
}
