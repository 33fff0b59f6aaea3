/* The public interface on a GPU: a bound function called from many threads at once, each on a stream of its
 * own, and tensors as callers describe them; results are compared with the interpreter's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#ifdef HAVE_CUDA_H
#include "cuda_driver.h"
#endif

enum { THREADS = 16, ROUNDS = 40, LENGTH = 4096 };

static const char source[] = ".vasm 1\n"
                             ".kernel affine(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
                             ".warps 4\n"
                             ".grid cdiv(n, 512)\n"
                             ".assume n % 4 == 0\n"
                             "    %vx = load-global x[block.x * 512], auto(512)\n"
                             "    %vy = load-global y[block.x * 512], auto(512)\n"
                             "    %vr = fma %vx, f, %vy\n"
                             "    store-global y[block.x * 512], %vr\n"
                             ".end\n";

typedef int (*affine_function)(void *stream, int32_t n, float f, const float *x, float *y);

/* The program on both devices. */
typedef struct pair {
    suite *s;
    tvm_program *on_cpu, *on_gpu;
    tvm_kernel *cpu_kernel, *gpu_kernel;
    affine_function cpu, gpu;
} pair;

static bool bind_on(tvm_context *context, const gpu_test *test, tvm_program **program, tvm_kernel **kernel,
                    affine_function *affine) {
    tvm_bind_options first = {.stream_parameter = 1};
    tvm_function function = NULL;
    bool good = tvm_load(context, test->bytecode, test->size, program) == TVM_OK &&
                tvm_get_kernel(*program, "affine", kernel) == TVM_OK &&
                tvm_bind_with(*kernel, &first, &function) == TVM_OK;
    if (!good) printf("%s: %s: %s\n", test->name, tvm_device_name(context), tvm_message(context));
    *affine = (affine_function)function;
    return good;
}

static bool open_pair(pair *p, suite *s, const gpu_test *test) {
    *p = (pair){.s = s};
    return bind_on(s->cpu, test, &p->on_cpu, &p->cpu_kernel, &p->cpu) &&
           bind_on(s->gpu, test, &p->on_gpu, &p->gpu_kernel, &p->gpu);
}

static void close_pair(pair *p) {
    tvm_program_free(p->on_cpu);
    tvm_program_free(p->on_gpu);
}

/* ---- many threads ---- */

typedef struct worker {
    pthread_t thread;
    const pair *p;
    unsigned number;
    void *stream;
    bool good;
} worker;

static bool gpu_round(const worker *w, int32_t n, float f, const float *x, float *y, void *const device[2]) {
    tvm_context *gpu = w->p->s->gpu;
    size_t bytes = (size_t)n * sizeof *x;
    return !tvm_memory_write(gpu, device[0], x, bytes) && !tvm_memory_write(gpu, device[1], y, bytes) &&
           !tvm_synchronize(gpu, NULL) && !w->p->gpu(w->stream, n, f, device[0], device[1]) &&
           !w->p->gpu(w->stream, n, -2 * f, device[0], device[1]) && !tvm_synchronize(gpu, w->stream) &&
           !tvm_memory_read(gpu, y, device[1], bytes);
}

static void *work(void *pointer) {
    worker *w = pointer;
    tvm_context *gpu = w->p->s->gpu;
    _Alignas(16) float x[LENGTH], y[LENGTH], expected[LENGTH];
    void *device[2] = {NULL, NULL};
    w->good = !tvm_memory_alloc(gpu, sizeof x, &device[0]) && !tvm_memory_alloc(gpu, sizeof y, &device[1]);
    for (unsigned round = 0; w->good && round < ROUNDS; round++) {
        int32_t n = (int32_t)(LENGTH - 4 * (round * 7 + w->number));
        float f = (float)(w->number * ROUNDS + round) / 64;
        for (int i = 0; i < LENGTH; i++) {
            x[i] = (float)(i * (int)(w->number + 1) % 1009) / 8;
            y[i] = expected[i] = (float)(i % 31) + (float)round;
        }
        w->good = gpu_round(w, n, f, x, y, device);
        if (!w->good) printf("thread %u: %s\n", w->number, tvm_message(gpu));
        w->good = w->good && !w->p->cpu(NULL, n, f, x, expected) && !w->p->cpu(NULL, n, -2 * f, x, expected);
        if (w->good && memcmp(y, expected, sizeof y)) {
            printf("thread %u, round %u: the GPU's result is not the interpreter's\n", w->number, round);
            w->good = false;
        }
        if (w->good &&
            w->p->gpu(w->stream, 4 * (int)w->number + 2, f, device[0], device[1]) != TVM_ARGUMENT) {
            printf("thread %u: what the kernel does not assume was launched\n", w->number);
            w->good = false;
        }
    }
    for (int i = 0; i < 2; i++) tvm_memory_free(gpu, device[i]);
    return NULL;
}

/* Streams that the default one does not wait for; without cuda.h the default stream for all. */
static bool make_streams(worker workers[THREADS], bool make) {
#ifdef HAVE_CUDA_H
    tvm_cuda_driver driver;
    CUcontext context;
    CUdevice device;
    bool good = tvm_cuda_driver_open(&driver, NULL) == TVM_OK && !driver.device_get(&device, 0) &&
                !driver.primary_retain(&context, device) && !driver.context_push(context);
    for (int i = 0; good && i < THREADS; i++) {
        CUstream stream = workers[i].stream;
        good =
            !(make ? driver.stream_create(&stream, CU_STREAM_NON_BLOCKING) : driver.stream_destroy(stream));
        workers[i].stream = make ? stream : NULL;
    }
    if (good) good = !driver.context_pop(&context) && !driver.primary_release(device);
    return good;
#else
    (void)workers, (void)make;
    return true;
#endif
}

static bool run_threads(suite *s, const gpu_test *test) {
    pair p;
    worker workers[THREADS] = {{0}};
    bool good = open_pair(&p, s, test) && make_streams(workers, true);
    for (unsigned i = 0; good && i < THREADS; i++) {
        workers[i].p = &p;
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) abort();
    }
    for (unsigned i = 0; workers[0].p && i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        good = good && workers[i].good;
    }
    if (workers[0].p) good = make_streams(workers, false) && good;
    close_pair(&p);
    return good;
}

/* ---- tensors ---- */

static bool refused(const pair *p, tvm_value values[4], const char *word) {
    tvm_status status = tvm_launchv(p->gpu_kernel, NULL, values, 4);
    if (status == TVM_ARGUMENT && strstr(tvm_message(p->s->gpu), word)) return true;
    printf("tensors: status %d, '%s' does not say '%s'\n", (int)status, tvm_message(p->s->gpu), word);
    return false;
}

static bool launch_tensors(const pair *p, void *device, float *host, size_t bytes) {
    int64_t shape[1] = {LENGTH / 2};
    tvm_tensor x = {.data = device, .ndim = 1, .shape = shape}, y;
    x.device.device_type = TVM_TENSOR_CUDA;
    x.dtype.code = TVM_TENSOR_FLOAT;
    x.dtype.bits = 32;
    x.dtype.lanes = 1;
    y = x;
    y.byte_offset = bytes / 2;
    tvm_value values[4] = {{.i = LENGTH / 2}, {.f = 1.5}, {.tensor = &x}, {.tensor = &y}};
    tvm_context *gpu = p->s->gpu;
    bool good = !tvm_memory_write(gpu, device, host, bytes) && !tvm_launchv(p->gpu_kernel, NULL, values, 4) &&
                !tvm_synchronize(gpu, NULL) && !tvm_memory_read(gpu, host, device, bytes);
    if (!good) printf("tensors: %s\n", tvm_message(gpu));
    y.device.device_type = TVM_TENSOR_CPU;
    good = refused(p, values, "is on the CPU") && good;
    y.device = x.device;
    y.device.device_id = 7;
    good = refused(p, values, "cuda:7") && good;
    y.device = x.device;
    shape[0]--;
    return refused(p, values, "float32[2047]") && good;
}

static bool run_tensors(suite *s, const gpu_test *test) {
    pair p;
    _Alignas(16) static float found[LENGTH], expected[LENGTH];
    void *device = NULL;
    bool good = open_pair(&p, s, test) && !tvm_memory_alloc(s->gpu, sizeof found, &device);
    for (int i = 0; i < LENGTH; i++) found[i] = expected[i] = (float)(i % 257) / 4;
    good = good && launch_tensors(&p, device, found, sizeof found);
    good = good && !p.cpu(NULL, LENGTH / 2, 1.5f, expected, expected + LENGTH / 2);
    if (good && memcmp(found, expected, sizeof found)) {
        printf("tensors: the GPU's result is not the interpreter's\n");
        good = false;
    }
    if (device) tvm_memory_free(s->gpu, device);
    close_pair(&p);
    return good;
}

void gpu_add_interface(suite *s, gpu_group *group) {
    (void)s;
    gpu_add(group, "a bound function in 16 threads", source, NULL, NULL, 0)->run = run_threads;
    gpu_add(group, "tensors as callers describe them", source, NULL, NULL, 0)->run = run_tensors;
}
