/* A libcuda.so.1 without a GPU, for tests of the CUDA device: memory is the host's, launches are written to a
 * log and do nothing. Environment, read at each call: FAKE_CUDA_LOG     file that a line is appended to for
 * what the driver was asked to do FAKE_CUDA_PARAMS  how to print a launch's parameters: a letter each, i l f
 * d p (int, 64-bit, float, double, address) FAKE_CUDA_INIT    the result of cuInit FAKE_CUDA_FAULT   the
 * error that the next waiting after a launch finds, and every call from then on FAKE_CUDA_REFUSE  set:
 * modules are refused, with a log FAKE_CUDA_CC      compute capability, "90" by default
 * FAKE_CUDA_MULTIPROCESSORS  132 by default
 * FAKE_CUDA_NO_EARLY  set: no launch may overlap another one
 * FAKE_CUDA_MEMORY  set: allocations and memsets are logged, too */
#include <cuda.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's table asks for the first version, which cuda.h of CUDA 13 no longer declares. */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop);

typedef struct fake_function {
    struct fake_function *next;
    char name[256];
} fake_function;

struct CUmod_st {
    fake_function *functions;
};

enum { STACK = 16 };
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;
static atomic_bool launched;
static atomic_int fault;
static char primary;
static _Thread_local int captured = -1; /* launches of the capture under way */
static _Thread_local CUstream capturing;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(log, format, arguments);
    va_end(arguments);
    fclose(log);
}

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* What every call returns: the fault, once it has been met. */
static CUresult state(void) {
    return (CUresult)atomic_load(&fault);
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    return (CUresult)setting("FAKE_CUDA_INIT", 0);
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text =
        error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "another error";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return state();
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return state();
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    snprintf(name, (size_t)length, "Fake GPU");
    return state();
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    int cc = setting("FAKE_CUDA_CC", 90);
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? cc / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? cc % 10
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
                 ? setting("FAKE_CUDA_MULTIPROCESSORS", 132)
                 : 0;
    return state();
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    say("retain\n");
    *context = (CUcontext)(void *)&primary;
    return state();
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    (void)device;
    say("release\n");
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    if (depth == STACK) return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

/* Of what needs a current context. */
static CUresult in_context(void) {
    return depth ? state() : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return in_context();
}

static CUresult meet_fault(void) {
    if (atomic_load(&launched)) atomic_store(&fault, setting("FAKE_CUDA_FAULT", 0));
    return in_context();
}

CUresult cuCtxSynchronize(void) {
    return meet_fault();
}

/* ---- modules ---- */

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values) {
    bool elf = !memcmp(image, "\177ELF", 4), ptx = strstr(image, ".version") != NULL;
    say("load %s\n", elf ? "cubin" : ptx ? "ptx" : "nonsense");
    if (getenv("FAKE_CUDA_REFUSE")) {
        for (unsigned i = 0; i < count; i++)
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy(values[i], "line 7: fake log");
        return CUDA_ERROR_INVALID_PTX;
    }
    if (!elf && !ptx) return CUDA_ERROR_INVALID_IMAGE;
    *module = calloc(1, sizeof **module);
    return *module ? in_context() : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleUnload(CUmodule module) {
    while (module->functions) {
        fake_function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    free(module);
    say("unload\n");
    return in_context();
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    fake_function *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->next = module->functions;
    module->functions = made;
    *function = (CUfunction)(void *)made;
    return in_context();
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    say("attribute %s %d %d\n", ((fake_function *)(void *)function)->name, (int)attribute, value);
    return in_context();
}

/* As a kernel with 40 registers, 16 bytes of local and none of static shared memory. */
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS           ? 40
             : attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? 16
                                                               : 0;
    return in_context();
}

static void write_params(FILE *to, void **params) {
    const char *letters = getenv("FAKE_CUDA_PARAMS");
    for (unsigned i = 0; letters && letters[i]; i++) {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        memcpy(&i32, params[i], sizeof i32);
        memcpy(&f32, params[i], sizeof f32);
        if (letters[i] == 'i') fprintf(to, " %d", i32);
        if (letters[i] == 'f') fprintf(to, " %.9g", (double)f32);
        if (letters[i] == 'i' || letters[i] == 'f') continue;
        memcpy(&i64, params[i], sizeof i64);
        memcpy(&f64, params[i], sizeof f64);
        if (letters[i] == 'd') fprintf(to, " %.17g", f64);
        if (letters[i] == 'l') fprintf(to, " %lld", (long long)i64);
        if (letters[i] == 'p') fprintf(to, " %#llx", (unsigned long long)i64);
    }
}

/* A line is written at once: launches may come from several threads. */
static void say_launch(const char *launch, void **params) {
    char *text = NULL;
    size_t size = 0;
    FILE *line = getenv("FAKE_CUDA_LOG") ? open_memstream(&text, &size) : NULL;
    if (!line) return;
    fputs(launch, line);
    write_params(line, params);
    fclose(line);
    say("%s\n", text);
    free(text);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
    (void)extra;
    if (in_context()) return in_context();
    if (!gx || !gy || !gz || !bx) return CUDA_ERROR_INVALID_VALUE;
    if (captured >= 0) {
        captured++;
        return CUDA_SUCCESS;
    }
    if (getenv("FAKE_CUDA_LOG")) {
        char launch[384];
        snprintf(launch, sizeof launch, "launch %s %u,%u,%u %u,%u,%u %u %s",
                 ((fake_function *)(void *)function)->name, gx, gy, gz, bx, by, bz, shared,
                 stream ? "stream" : "default");
        say_launch(launch, params);
    }
    atomic_store(&launched, true);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    if (getenv("FAKE_CUDA_NO_EARLY")) return CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < config->numAttrs; i++)
        say("with %d %d ", (int)config->attrs[i].id,
            config->attrs[i].value.programmaticStreamSerializationAllowed);
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                          config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream,
                          params, extra);
}

/* ---- memory: what is above 1 TiB is too much ---- */

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    void *data = NULL;
    if (captured >= 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (getenv("FAKE_CUDA_MEMORY")) say("alloc %zu\n", bytes);
    if (bytes <= (size_t)1 << 40) data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    *address = (CUdeviceptr)(uintptr_t)data;
    return data ? in_context() : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr address) {
    free((void *)(uintptr_t)address);
    return in_context();
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
    (void)stream;
    if (getenv("FAKE_CUDA_MEMORY")) say("set %d %zu\n", value, bytes);
    memset((void *)(uintptr_t)address, value, bytes);
    return in_context();
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return in_context();
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return meet_fault();
}

/* ---- streams, graphs, events: every handle is an allocation, so that a leak shows ---- */

static CUresult make(void **handle) {
    *handle = malloc(1);
    return *handle ? in_context() : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    (void)flags;
    return make((void **)stream);
}

CUresult cuStreamDestroy(CUstream stream) {
    free(stream);
    return in_context();
}

CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return meet_fault();
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = captured >= 0 && stream == capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                   : CU_STREAM_CAPTURE_STATUS_NONE;
    return in_context();
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    (void)mode;
    capturing = stream;
    captured = 0;
    return in_context();
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    (void)stream;
    say("captured %d\n", captured);
    captured = -1;
    return make((void **)graph);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)graph, (void)flags;
    return make((void **)exec);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    (void)exec, (void)stream;
    say("replay\n");
    return in_context();
}

CUresult cuGraphDestroy(CUgraph graph) {
    free(graph);
    return in_context();
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    free(exec);
    return in_context();
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    return make((void **)event);
}

CUresult cuEventDestroy(CUevent event) {
    free(event);
    return in_context();
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)event, (void)stream;
    return in_context();
}

CUresult cuEventSynchronize(CUevent event) {
    (void)event;
    return meet_fault();
}

/* 2, 4, 6, ... milliseconds. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop) {
    static atomic_int calls;
    (void)start, (void)stop;
    *milliseconds = 2.0f * (float)(atomic_fetch_add(&calls, 1) + 1);
    return in_context();
}
