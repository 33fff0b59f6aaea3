/* What a launch costs the CPU: cuLaunchKernel alone, tvm_launch, tvm_launchv with values and with tensors,
 * and a bound function, all with the same cubin and arguments, taking turns in one run on one core. Each
 * sample is one call, with the clock read before and after; the queue is emptied, unmeasured, before it can
 * fill.
 *
 *   launch_cost matmul_TYPE.vbc [SAMPLES]     100,000 samples each by default */
#include <sched.h>

#include "bare.h"
#include "tvm.h"

enum { M = 16, N = 256, K = 256, QUEUE = 100, WAYS = 5, DEFAULT_SAMPLES = 100000 };

static const char *const names[WAYS] = {"cuLaunchKernel", "tvm_launch", "tvm_launchv", "tvm_launchv, tensors",
                                        "bound function"};

typedef int (*matmul_function)(void *stream, int32_t m, int32_t n, int32_t k, void *a, void *p, void *s,
                               void *c);

typedef struct launcher {
    tvm_cuda_driver driver;
    CUstream stream;
    CUfunction function;
    bare_code code;
    tvm_context *context;
    tvm_kernel *kernel;
    matmul_function bound;
    void *data[4];
    tvm_value values[7], tensors[7];
    tvm_tensor tensor[4];
    int64_t shape[4][8];
} launcher;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "launch_cost: %s: %s\n", what, why);
    exit(1);
}

static void need(const launcher *l, tvm_status status, const char *what) {
    if (status) fail(what, tvm_message(l->context));
}

static void cuda(CUresult result, const char *what) {
    if (!result) return;
    char text[32];
    snprintf(text, sizeof text, "error %d", (int)result);
    fail(what, text);
}

static int bare(launcher *l) {
    int32_t sizes[3] = {M, N, K};
    void *arguments[7] = {&sizes[0],   &sizes[1],   &sizes[2],  &l->data[0],
                          &l->data[1], &l->data[2], &l->data[3]};
    /* One block: the CPU does not pay for the others. */
    return (int)l->driver.launch(l->function, 1, 1, 1, l->code.threads, 1, 1, l->code.shared_bytes, l->stream,
                                 arguments, NULL);
}

static int call(launcher *l, int way) {
    switch (way) {
    case 0:
        return bare(l);
    case 1:
        return tvm_launch(l->kernel, l->stream, M, N, K, l->data[0], l->data[1], l->data[2], l->data[3]);
    case 2:
        return tvm_launchv(l->kernel, l->stream, l->values, 7);
    case 3:
        return tvm_launchv(l->kernel, l->stream, l->tensors, 7);
    default:
        return l->bound(l->stream, M, N, K, l->data[0], l->data[1], l->data[2], l->data[3]);
    }
}

static void open_bare(launcher *l, const char *path) {
    tvm_diags diags = {0};
    CUdevice device;
    CUcontext context;
    CUmodule module;
    int major = 0, minor = 0;
    tvm_status status = tvm_cuda_driver_open(&l->driver, &diags);
    if (!status) {
        cuda(l->driver.device_get(&device, 0), "cuDeviceGet");
        cuda(l->driver.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
             "attribute");
        cuda(l->driver.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
             "attribute");
        status = bare_translate(path, "matmul", major, minor, &l->code, &diags);
    }
    if (status) {
        tvm_diags_print(&diags, stderr, "launch_cost", false);
        exit(1);
    }
    cuda(l->driver.primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(l->driver.context_push(context), "cuCtxPushCurrent");
    cuda(bare_load(&l->driver, &l->code, "matmul", &module, &l->function), "cuModuleLoadData");
    cuda(l->driver.stream_create(&l->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* The tensors as a framework would hand them over; weights are bytes. */
static void describe(launcher *l, size_t i, int64_t *shape, size_t bytes) {
    static const tvm_tensor f16 = {.device = {TVM_TENSOR_CUDA, 0}, .dtype = {TVM_TENSOR_FLOAT, 16, 1}};
    tvm_param_info info;
    need(l, tvm_param(l->kernel, 3 + i, &info), "tvm_param");
    memcpy(l->shape[i], shape, sizeof l->shape[i]);
    l->tensor[i] = f16;
    l->tensor[i].data = l->data[i];
    l->tensor[i].ndim = (int32_t)info.rank;
    l->tensor[i].shape = l->shape[i];
    if (info.bits < 16) {
        int64_t rows = 1;
        for (unsigned d = 0; d + 1 < info.rank; d++) rows *= shape[d];
        l->tensor[i].dtype.code = TVM_TENSOR_UINT;
        l->tensor[i].dtype.bits = 8;
        l->shape[i][info.rank - 1] = (int64_t)bytes / rows;
    }
    l->tensors[3 + i].tensor = &l->tensor[i];
}

static void open_tvm(launcher *l, const char *path) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA};
    tvm_bind_options first = {.stream_parameter = 1};
    tvm_program *program = NULL;
    tvm_function function = NULL;
    need(l, tvm_context_create(&options, &l->context), "tvm_context_create");
    need(l, tvm_load_file(l->context, path, &program), path);
    need(l, tvm_get_kernel(program, "matmul", &l->kernel), "tvm_get_kernel");
    need(l, tvm_prepare(l->kernel), "tvm_prepare");
    need(l, tvm_bind_with(l->kernel, &first, &function), "tvm_bind");
    l->bound = (matmul_function)function;
    const int64_t sizes[3] = {M, N, K};
    for (int i = 0; i < 3; i++) l->values[i].i = l->tensors[i].i = sizes[i];
    for (size_t i = 0; i < 4; i++) {
        int64_t shape[8] = {0};
        size_t bytes;
        need(l, tvm_param_shape(l->kernel, 3 + i, l->values, 7, shape, &bytes), "tvm_param_shape");
        need(l, tvm_memory_alloc(l->context, bytes, &l->data[i]), "tvm_memory_alloc");
        l->values[3 + i] = (tvm_value){.data = l->data[i], .bytes = bytes};
        describe(l, i, shape, bytes);
    }
}

static void stay_on_a_core(void) {
    cpu_set_t set;
    int core = sched_getcpu();
    CPU_ZERO(&set);
    CPU_SET(core < 0 ? 0 : core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fprintf(stderr, "launch_cost: the thread could not be pinned\n");
}

int main(int argc, char **argv) {
    static launcher l;
    int samples = argc == 3 ? atoi(argv[2]) : DEFAULT_SAMPLES;
    if (argc < 2 || argc > 3 || samples < 1) {
        fprintf(stderr, "usage: launch_cost matmul_TYPE.vbc [SAMPLES]\n");
        return 2;
    }
    double *times[WAYS];
    stay_on_a_core();
    open_bare(&l, argv[1]);
    open_tvm(&l, argv[1]);
    for (int way = 0; way < WAYS; way++) {
        times[way] = calloc((size_t)samples, sizeof *times[way]);
        if (!times[way]) fail("calloc", "out of memory");
        for (int i = 0; i < QUEUE; i++)
            if (call(&l, way)) fail(names[way], way ? tvm_message(l.context) : "failed");
        cuda(l.driver.stream_synchronize(l.stream), "cuStreamSynchronize");
    }
    for (int i = 0; i < samples; i += QUEUE)
        for (int way = 0; way < WAYS; way++) {
            for (int j = i; j < i + QUEUE && j < samples; j++) {
                double start = microseconds();
                int status = call(&l, way);
                times[way][j] = microseconds() - start;
                if (status) fail(names[way], "failed");
            }
            cuda(l.driver.stream_synchronize(l.stream), "cuStreamSynchronize");
        }
    double first = median(times[0], (size_t)samples);
    printf("%s, median of %d calls each\n", tvm_device_name(l.context), samples);
    for (int way = 0; way < WAYS; way++) {
        double us = median(times[way], (size_t)samples);
        printf("%-22s %7.3f us  %+7.3f us\n", names[way], us, us - first);
        free(times[way]);
    }
    return 0;
}
