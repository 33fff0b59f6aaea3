/* A libcuda.so.1 without a GPU, for tests of the CUDA device: memory is the host's, launches are written to a
 * log and do nothing; everything made is kept count of, and the nth call can be made to fail (fake_cuda.h).
 * Environment, read at each call:
 *   FAKE_CUDA_LOG      file that a line is appended to for what the driver was asked to do
 *   FAKE_CUDA_PARAMS   how to print a launch's parameters: a letter each, i l f d p t (int, 64-bit, float,
 *                      double, address, tensor map)
 *   FAKE_CUDA_INIT     the result of cuInit
 *   FAKE_CUDA_FAULT    the error that the next waiting after a launch finds, and every call in that context
 *                      from then on
 *   FAKE_CUDA_REFUSE   modules are refused with a log: with this error, CUDA_ERROR_INVALID_PTX if it is 1
 *   FAKE_CUDA_SHARED   bytes of shared memory that a block may ask for; no bound by default
 *   FAKE_CUDA_CC       compute capability, "90" by default
 *   FAKE_CUDA_DEVICES  how many there are, 1 by default, at most 4
 *   FAKE_CUDA_MULTIPROCESSORS  132 by default
 *   FAKE_CUDA_RESIDENT  blocks of a kernel that a multiprocessor runs at a time, or clusters that the GPU
 * does, 2 by default FAKE_CUDA_NO_EARLY  set: no launch may overlap another one FAKE_CUDA_MEMORY   set:
 * allocations and memsets are logged, too */
#include "fake_objects.h"

/* The driver's table asks for the first version, which cuda.h of CUDA 13 no longer declares. */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop);

/* ---- the environment ---- */

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

/* ---- errors: name, text ---- */

#define ERRORS(X)                                                                                            \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                          \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                             \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                            \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                            \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                  \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")              \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                                   \
    X(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                                \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")    \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                  \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                         \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                  \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                               \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

CUresult cuGetErrorName(CUresult error, const char **text) {
    ENTER();
#define NAME(error_name, error_text)                                                                         \
    if (error == error_name) *text = #error_name;
    ERRORS(NAME)
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    ENTER();
#define TEXT(error_name, error_text)                                                                         \
    if (error == error_name) *text = error_text;
    ERRORS(TEXT)
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

static int device_count(void) {
    int count = setting("FAKE_CUDA_DEVICES", 1);
    return count < DEVICES ? count : DEVICES;
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    ENTER();
    return (CUresult)setting("FAKE_CUDA_INIT", 0);
}

CUresult cuDeviceGetCount(int *count) {
    ENTER();
    *count = device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    ENTER();
    snprintf(name, (size_t)length, "Fake GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    int cc = setting("FAKE_CUDA_CC", 90);
    (void)device;
    ENTER();
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? cc / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? cc % 10
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
                 ? setting("FAKE_CUDA_MULTIPROCESSORS", 132)
                 : 0;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    say("retain\n");
    pthread_mutex_lock(&lock);
    CUresult fault = (CUresult)atomic_load(&primaries[device].fault);
    if (!fault) {
        primaries[device].references++;
        primaries[device].destroyed = false;
        *context = (CUcontext)(void *)&primaries[device];
    }
    pthread_mutex_unlock(&lock);
    return fault;
}

/* The last reference ends the context, and with it a fault. */
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult entered = enter(__func__);
    say("release\n");
    pthread_mutex_lock(&lock);
    fake_context *context = &primaries[device];
    if (!context->references)
        ADD(mistakes, 1);
    else if (--context->references == 0)
        end_context(context);
    pthread_mutex_unlock(&lock);
    return entered;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    ENTER();
    if (depth == STACK) return CUDA_ERROR_INVALID_VALUE;
    if (GET(context_of(context)->destroyed)) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    CUresult entered = enter(__func__);
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return entered;
}

/* Of what needs a current context: its fault, once it has been met. */
static CUresult in_context(void) {
    fake_context *context = current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    return GET(context->destroyed) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : (CUresult)GET(context->fault);
}

/* A call that makes, or does, something. */
#define ENTER_CONTEXT()                                                                                      \
    do {                                                                                                     \
        ENTER();                                                                                             \
        if (in_context()) return in_context();                                                               \
    } while (0)

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER_CONTEXT();
    fake_context *context = current();
    *device = context == &foreign ? 0 : (int)(context - primaries);
    return CUDA_SUCCESS;
}

static CUresult meet_fault(void) {
    fake_context *context = current();
    if (context && GET(context->launched)) SET(context->fault, setting("FAKE_CUDA_FAULT", 0));
    return in_context();
}

CUresult cuCtxSynchronize(void) {
    ENTER_CONTEXT();
    return meet_fault();
}

/* What a releasing call returns: it releases whatever it has to report, but not in a context that is gone. */
static CUresult release(CUresult entered, void *handle) {
    if (in_context()) return in_context();
    if (!drop(handle)) return CUDA_ERROR_INVALID_HANDLE;
    return entered;
}

/* ---- modules ---- */

static void release_module(void *handle) {
    CUmodule module = handle;
    while (module->functions) {
        fake_function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    free(module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values) {
    ENTER_CONTEXT();
    bool elf = !memcmp(image, "\177ELF", 4), ptx = !elf && strstr(image, ".version");
    say("load %s\n", elf ? "cubin" : ptx ? "ptx" : "nonsense");
    int refuse = setting("FAKE_CUDA_REFUSE", 0);
    if (refuse) {
        for (unsigned i = 0; i < count; i++)
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy(values[i], "line 7: fake log");
        return refuse == 1 ? CUDA_ERROR_INVALID_PTX : (CUresult)refuse;
    }
    if (!elf && !ptx) return CUDA_ERROR_INVALID_IMAGE;
    CUmodule made = calloc(1, sizeof *made);
    if (!made || !keep(made, release_module)) return CUDA_ERROR_OUT_OF_MEMORY;
    *module = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult entered = enter(__func__);
    say("unload\n");
    return release(entered, module);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER_CONTEXT();
    fake_function *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->next = module->functions;
    module->functions = made;
    *function = (CUfunction)(void *)made;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER_CONTEXT();
    say("attribute %s %d %d\n", ((fake_function *)(void *)function)->name, (int)attribute, value);
    bool shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    return shared && value > setting("FAKE_CUDA_SHARED", INT32_MAX) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* As a kernel with 40 registers, 16 bytes of local and none of static shared memory. */
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)function;
    ENTER_CONTEXT();
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS           ? 40
             : attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? 16
                                                               : 0;
    return CUDA_SUCCESS;
}

/* What a tensor map holds here: what it was made of, "address type[extents] strides box swizzle promotion",
 * the innermost dimension first. */
typedef struct fake_map {
    char text[sizeof(CUtensorMap)];
} fake_map;

/* What the CUDA Driver API says of the types 16U4_ALIGN16B and 16U6_ALIGN16B, 14 and 15, beside that. */
static bool is_spread_map(const void *address, cuuint32_t rank, const cuuint64_t *extents,
                          const cuuint64_t *strides, const cuuint32_t *box, CUtensorMapSwizzle swizzle) {
    bool good = (uintptr_t)address % 32 == 0 && extents[0] % 128 == 0 && box[0] == 128 &&
                (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
    for (cuuint32_t d = 1; good && d < rank; d++) good = strides[d - 1] % 32 == 0;
    return good;
}

static bool is_tensor_map(const CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                          const void *address, const cuuint64_t *extents, const cuuint64_t *strides,
                          const cuuint32_t *box, CUtensorMapSwizzle swizzle) {
    static const unsigned sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    bool spreads = (int)type == 14 || (int)type == 15;
    if (spreads && (rank < 1 || rank > 5 || !is_spread_map(address, rank, extents, strides, box, swizzle)))
        return false;
    if (spreads) type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    bool good = rank >= 1 && rank <= 5 && (uintptr_t)map % 64 == 0 && address &&
                (uintptr_t)address % 16 == 0 && (size_t)type < sizeof sizes / sizeof *sizes;
    for (cuuint32_t d = 0; good && d < rank; d++) {
        good = extents[d] >= 1 && extents[d] <= (cuuint64_t)1 << 32 && box[d] >= 1 && box[d] <= 256;
        if (d > 0) good = good && strides[d - 1] % 16 == 0 && strides[d - 1] < (cuuint64_t)1 << 40;
    }
    unsigned row = good ? box[0] * sizes[type] : 0;
    unsigned span = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? UINT32_MAX : 16U << swizzle;
    return good && row % 16 == 0 && row <= span;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    ENTER();
    if (!is_tensor_map(map, type, rank, address, extents, strides, box, swizzle) || interleave || fill)
        return CUDA_ERROR_INVALID_VALUE;
    fake_map made = {{0}};
    FILE *text = fmemopen(made.text, sizeof made.text, "w");
    if (!text) return CUDA_ERROR_OUT_OF_MEMORY;
    fprintf(text, "%p %d", address, (int)type);
    for (cuuint32_t d = 0; d < rank; d++)
        fprintf(text, "%c%llu", d ? ',' : '[', (unsigned long long)extents[d]);
    fprintf(text, "]");
    for (cuuint32_t d = 1; d < rank; d++) fprintf(text, " %llu", (unsigned long long)strides[d - 1]);
    for (cuuint32_t d = 0; d < rank; d++) fprintf(text, "%s%u", d ? "x" : " ", steps[d] == 1 ? box[d] : 0);
    fprintf(text, " %d %d", (int)swizzle, (int)promotion);
    fclose(text);
    memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

static void write_params(FILE *to, void **params) {
    const char *letters = getenv("FAKE_CUDA_PARAMS");
    for (unsigned i = 0; letters && letters[i]; i++) {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        if (letters[i] == 't') {
            fake_map map;
            memcpy(&map, params[i], sizeof map);
            fprintf(to, " {%s}", map.text);
            continue;
        }
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

/* As a kernel of few registers and little shared memory. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared) {
    (void)function, (void)shared;
    ENTER_CONTEXT();
    if (threads < 1) return CUDA_ERROR_INVALID_VALUE;
    *blocks = setting("FAKE_CUDA_RESIDENT", 2);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
    (void)function;
    ENTER_CONTEXT();
    if (config->blockDimX < 1) return CUDA_ERROR_INVALID_VALUE;
    *clusters = setting("FAKE_CUDA_RESIDENT", 2);
    return CUDA_SUCCESS;
}

/* The launch itself checks nothing, to tell what the caller has checked. */
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                   void **params) {
    ENTER_CONTEXT();
    say("together ");
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
    (void)extra;
    ENTER_CONTEXT();
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
    SET(current()->launched, true);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    ENTER_CONTEXT();
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
    ENTER_CONTEXT();
    void *data = NULL;
    if (captured >= 0 && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (getenv("FAKE_CUDA_MEMORY")) say("alloc %zu\n", bytes);
    if (bytes <= (size_t)1 << 40) data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!data || !keep(data, free)) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)(uintptr_t)data;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
    CUresult entered = enter(__func__);
    return release(entered, (void *)(uintptr_t)address);
}

static bool is_captured(CUstream stream) {
    return captured >= 0 && stream == capturing;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
    ENTER_CONTEXT();
    if (is_captured(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (getenv("FAKE_CUDA_MEMORY")) say("set %d %zu\n", value, bytes);
    memset((void *)(uintptr_t)address, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER_CONTEXT();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    ENTER_CONTEXT();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return meet_fault();
}

/* ---- streams, graphs, events ---- */

static CUresult make(void **handle) {
    void *made = malloc(1);
    if (!made || !keep(made, free)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = made;
    return CUDA_SUCCESS;
}

static void release_graph(void *handle) {
    CUgraph graph = handle;
    while (graph->nodes) {
        fake_node *next = graph->nodes->next;
        free(graph->nodes);
        graph->nodes = next;
    }
    free(graph);
}

static CUresult make_graph(CUgraph *graph) {
    CUgraph made = calloc(1, sizeof *made);
    if (!made || !keep(made, release_graph)) return CUDA_ERROR_OUT_OF_MEMORY;
    *graph = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT();
    return make((void **)stream);
}

CUresult cuStreamDestroy(CUstream stream) {
    CUresult entered = enter(__func__);
    return release(entered, stream);
}

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER_CONTEXT();
    if (is_captured(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return meet_fault();
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    ENTER_CONTEXT();
    *status = is_captured(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER();
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* A stream has its context with it: none need be current. */
static CUresult in_stream(void) {
    return current() ? in_context() : CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    (void)mode;
    ENTER();
    if (in_stream()) return in_stream();
    capturing = stream;
    captured = 0;
    return CUDA_SUCCESS;
}

/* A failure ends the capture too. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    (void)stream;
    CUresult entered = enter(__func__);
    say("captured %d\n", captured);
    captured = -1;
    if (entered || in_stream()) return entered ? entered : in_stream();
    return make_graph(graph);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT();
    return make_graph(graph);
}

/* "node 2 after 0 1: launch ..." */
static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                         const char *text) {
    fake_node *made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->graph = graph;
    made->number = graph->count++;
    made->next = graph->nodes;
    graph->nodes = made;
    say("node %u", made->number);
    for (size_t i = 0; i < count; i++)
        say("%s %u", i ? "" : " after", ((const fake_node *)(const void *)after[i])->number);
    say(": %s\n", text);
    *node = (CUgraphNode)(void *)made;
    return CUDA_SUCCESS;
}

static CUresult describe_node(const CUDA_KERNEL_NODE_PARAMS *params, char text[480]) {
    FILE *line = fmemopen(text, 480, "w");
    if (!params->gridDimX || !params->gridDimY || !params->gridDimZ || !params->blockDimX || !line) {
        if (line) fclose(line);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fprintf(line, "%s %u,%u,%u %u %u", ((fake_function *)(void *)params->func)->name, params->gridDimX,
            params->gridDimY, params->gridDimZ, params->blockDimX, params->sharedMemBytes);
    write_params(line, params->kernelParams);
    fclose(line);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *params) {
    char text[480] = "";
    ENTER_CONTEXT();
    CUresult result = describe_node(params, text);
    return result ? result : add_node(node, graph, after, count, text);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count) {
    ENTER_CONTEXT();
    return add_node(node, graph, after, count, "nothing");
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *edges, size_t count) {
    ENTER_CONTEXT();
    for (size_t i = 0; i < count; i++) {
        const fake_node *a = (const void *)from[i], *b = (const void *)to[i];
        if (a->graph != graph || b->graph != graph) return CUDA_ERROR_INVALID_VALUE;
        say("edge %u %u port %d type %d\n", a->number, b->number, edges ? edges[i].from_port : 0,
            edges ? edges[i].type : 0);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value) {
    ENTER_CONTEXT();
    say("node %u with %d %d\n", ((fake_node *)(void *)node)->number, (int)attribute, value->cooperative);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS *params) {
    char text[480] = "";
    (void)exec;
    ENTER_CONTEXT();
    CUresult result = describe_node(params, text);
    if (!result) say("set %u: %s\n", ((fake_node *)(void *)node)->number, text);
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)graph, (void)flags;
    ENTER_CONTEXT();
    return make((void **)exec);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    (void)exec, (void)stream;
    ENTER_CONTEXT();
    say("replay\n");
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUresult entered = enter(__func__);
    if (in_stream()) return in_stream();
    return drop(graph) ? entered : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult entered = enter(__func__);
    return release(entered, exec);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT();
    return make((void **)event);
}

CUresult cuEventDestroy(CUevent event) {
    CUresult entered = enter(__func__);
    return release(entered, event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)event, (void)stream;
    ENTER_CONTEXT();
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    (void)event;
    ENTER_CONTEXT();
    return meet_fault();
}

/* 2, 4, 6, ... milliseconds. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop) {
    static atomic_int calls;
    (void)start, (void)stop;
    ENTER_CONTEXT();
    *milliseconds = 2.0f * (float)(atomic_fetch_add(&calls, 1) + 1);
    return CUDA_SUCCESS;
}
