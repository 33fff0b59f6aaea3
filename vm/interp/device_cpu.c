/* The interpreter as a device: host memory, launches that are done when they return. */
#include "device.h"
#include "interp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ALIGNMENT = 256, DEFAULT_REPEATS = 5 };

typedef struct cpu_device {
    unsigned threads;
    uint32_t multiprocessors;
    uint32_t target;
    char name[64];
    pthread_mutex_t lock; /* of what follows */
    tvm_sanitize_past *past;
} cpu_device;

typedef struct cpu_code {
    cpu_device *device;
    const tvm_ir_program *program;
    pthread_mutex_t lock; /* of preparing */
    _Atomic(tvm_interp_kernel *) kernels[];
} cpu_code;

static tvm_status cpu_open(const tvm_context_options *options, tvm_observer *observer, void **device,
                           tvm_diags *diags) {
    (void)observer;
    cpu_device *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return tvm_diag_no_memory(diags);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (pthread_mutex_init(&cpu->lock, NULL)) {
        free(cpu);
        return tvm_diag_no_memory(diags);
    }
    cpu->threads = options->threads ? options->threads : cores > 0 ? (unsigned)cores : 1;
    cpu->multiprocessors = options->multiprocessors ? options->multiprocessors : TVM_INTERP_MULTIPROCESSORS;
    cpu->target = options->target;
    snprintf(cpu->name, sizeof cpu->name, "interpreter, %u thread%s", cpu->threads,
             cpu->threads == 1 ? "" : "s");
    *device = cpu;
    return TVM_OK;
}

/* What the sanitizer knows of earlier launches; the caller has it alone. */
static tvm_sanitize_past *take_past(cpu_device *device) {
    pthread_mutex_lock(&device->lock);
    tvm_sanitize_past *past = device->past;
    device->past = NULL;
    pthread_mutex_unlock(&device->lock);
    return past;
}

/* Of two launches at once, which nothing orders, one is kept. */
static void keep_past(cpu_device *device, tvm_sanitize_past *past) {
    pthread_mutex_lock(&device->lock);
    tvm_sanitize_past *other = device->past;
    device->past = past;
    pthread_mutex_unlock(&device->lock);
    tvm_sanitize_past_free(other);
}

/* The caller waits for all launches, or does what does. */
static void end_past(void *device) {
    tvm_sanitize_past_free(take_past(device));
}

static void cpu_close(void *device) {
    cpu_device *cpu = device;
    end_past(device);
    pthread_mutex_destroy(&cpu->lock);
    free(cpu);
}

static const char *cpu_name(const void *device) {
    return ((const cpu_device *)device)->name;
}

static int cpu_ordinal(const void *device) {
    (void)device;
    return 0;
}

static const char *cpu_warning(const void *device) {
    (void)device;
    return NULL;
}

static uint32_t cpu_multiprocessors(const void *device) {
    return ((const cpu_device *)device)->multiprocessors;
}

static uint32_t cpu_target(const void *device) {
    return ((const cpu_device *)device)->target;
}

/* The interpreter counts turns in any code. */
static tvm_status cpu_code_open(void *device, const tvm_ir_program *program, bool counts_turns, void **code,
                                tvm_diags *diags) {
    (void)counts_turns;
    cpu_code *opened = calloc(1, sizeof *opened + program->kernel_count * sizeof opened->kernels[0]);
    if (!opened) return tvm_diag_no_memory(diags);
    if (pthread_mutex_init(&opened->lock, NULL)) {
        free(opened);
        return tvm_diag_no_memory(diags);
    }
    opened->device = device;
    opened->program = program;
    *code = opened;
    return TVM_OK;
}

static void cpu_code_close(void *code) {
    cpu_code *opened = code;
    for (uint32_t i = 0; i < opened->program->kernel_count; i++) {
        tvm_interp_kernel *kernel = atomic_load(&opened->kernels[i]);
        if (kernel) tvm_interp_free(kernel);
    }
    pthread_mutex_destroy(&opened->lock);
    free(opened);
}

static tvm_status cpu_prepare(void *code, uint32_t index, tvm_diags *diags) {
    cpu_code *opened = code;
    if (atomic_load_explicit(&opened->kernels[index], memory_order_acquire)) return TVM_OK;
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&opened->lock);
    if (!atomic_load_explicit(&opened->kernels[index], memory_order_relaxed)) {
        tvm_interp_kernel *kernel = NULL;
        status = tvm_interp_prepare(opened->program, &opened->program->kernels[index], &kernel, diags);
        if (!status) atomic_store_explicit(&opened->kernels[index], kernel, memory_order_release);
    }
    pthread_mutex_unlock(&opened->lock);
    return status;
}

static tvm_status cpu_describe(void *code, uint32_t index, tvm_kernel_info *info, tvm_diags *diags) {
    *info = (tvm_kernel_info){.target = "interpreter",
                              .threads = ((cpu_code *)code)->program->kernels[index].warps * 32,
                              .registers = -1};
    return cpu_prepare(code, index, diags);
}

static tvm_status cpu_launch(void *code, const tvm_device_launch *launch, tvm_diags *diags) {
    cpu_code *opened = code;
    tvm_status status = cpu_prepare(code, launch->kernel, diags);
    if (status) return status;
    const tvm_ir_kernel *kernel = &opened->program->kernels[launch->kernel];
    tvm_interp_arg args[TVM_MAX_PARAMS];
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        args[i].scalar = launch->scalars[i];
        args[i].data = launch->data[i];
    }
    /* of a launch without the sanitizer nothing is known, nor of those before it */
    tvm_sanitize_past *past = take_past(opened->device);
    if (!launch->sanitize) tvm_sanitize_past_free(past), past = NULL;
    tvm_interp_options options = {.threads = opened->device->threads,
                                  .multiprocessors = opened->device->multiprocessors,
                                  .target = opened->device->target,
                                  .traits = launch->shapes->env.traits,
                                  .first_block = launch->first_block,
                                  .block_count = launch->block_count,
                                  .instructions = launch->instructions,
                                  .milliseconds = launch->milliseconds,
                                  .turns = launch->turns,
                                  .cancelled = launch->cancelled,
                                  .sanitize = launch->sanitize,
                                  .past = &past,
                                  .stream = launch->stream,
                                  .counts = launch->counts};
    status = tvm_interp_run(atomic_load_explicit(&opened->kernels[launch->kernel], memory_order_acquire),
                            args, launch->grid, &options, diags);
    if (past) keep_past(opened->device, past);
    return status;
}

/* Launches may allocate: nobody captures them. */
static tvm_status cpu_reserve(void *code, const tvm_device_launch *launch, tvm_diags *diags) {
    return cpu_prepare(code, launch->kernel, diags);
}

static double now_microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static tvm_status cpu_time(void *code, const tvm_device_launch *launches, unsigned count, unsigned repeats,
                           double *microseconds, tvm_diags *diags) {
    if (!repeats) repeats = DEFAULT_REPEATS;
    double *samples = calloc(repeats, sizeof *samples);
    if (!samples) return tvm_diag_no_memory(diags);
    tvm_status status = cpu_prepare(code, launches->kernel, diags);
    for (unsigned i = 0; !status && i < repeats; i++) {
        double start = now_microseconds();
        status = cpu_launch(code, &launches[i % count], diags);
        samples[i] = now_microseconds() - start;
    }
    if (!status) *microseconds = tvm_median(samples, repeats);
    free(samples);
    return status;
}

static tvm_status cpu_synchronize(void *device, void *stream, tvm_diags *diags) {
    (void)stream, (void)diags;
    end_past(device);
    return TVM_OK;
}

static tvm_status cpu_memory_alloc(void *device, size_t bytes, void **data, tvm_diags *diags) {
    (void)device;
    size_t size = bytes ? (bytes + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    *data = bytes <= PTRDIFF_MAX - ALIGNMENT ? aligned_alloc(ALIGNMENT, size) : NULL;
    if (*data) return TVM_OK;
    return tvm_diag_add(diags, TVM_DEVICE_MEMORY, NULL, NULL, "out of memory: %zu bytes cannot be had",
                        bytes);
}

static tvm_status cpu_memory_free(void *device, void *data, tvm_diags *diags) {
    (void)diags;
    end_past(device);
    free(data);
    return TVM_OK;
}

static tvm_status cpu_memory_copy(void *device, void *to, const void *from, size_t bytes, tvm_diags *diags) {
    (void)diags;
    end_past(device);
    memcpy(to, from, bytes);
    return TVM_OK;
}

static const char *cpu_code_origin(const void *code) {
    (void)code;
    return "interpreted";
}

const tvm_device_ops tvm_device_cpu = {.kind = TVM_DEVICE_CPU,
                                       .open = cpu_open,
                                       .close = cpu_close,
                                       .name = cpu_name,
                                       .ordinal = cpu_ordinal,
                                       .warning = cpu_warning,
                                       .multiprocessors = cpu_multiprocessors,
                                       .target = cpu_target,
                                       .code_open = cpu_code_open,
                                       .code_close = cpu_code_close,
                                       .prepare = cpu_prepare,
                                       .describe = cpu_describe,
                                       .code_origin = cpu_code_origin,
                                       .launch = cpu_launch,
                                       .reserve = cpu_reserve,
                                       .time = cpu_time,
                                       .synchronize = cpu_synchronize,
                                       .memory_alloc = cpu_memory_alloc,
                                       .memory_free = cpu_memory_free,
                                       .memory_write = cpu_memory_copy,
                                       .memory_read = cpu_memory_copy};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tvm_median(double *samples, size_t count) {
    if (!count) return 0;
    qsort(samples, count, sizeof *samples, by_value);
    return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}
