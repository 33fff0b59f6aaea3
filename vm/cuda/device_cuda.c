/* An NVIDIA GPU as a device: opening, memory, waiting. Programs and launches: cuda_code.c and cuda_time.c. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_device.h"
#include "cuda_graph.h"
#include "cuda_scratch.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the device's files share ---- */

tvm_status tvm_cuda_result(cuda_device *device, CUresult result, const char *call, tvm_diags *diags) {
    if (result == CUDA_SUCCESS) return TVM_OK;
    return tvm_cuda_check(&device->driver, result, call, atomic_load(&device->launched),
                          atomic_load(&device->turns), diags);
}

tvm_status tvm_cuda_enter(cuda_device *device, bool *pushed, tvm_diags *diags) {
    CUcontext current = NULL;
    *pushed = false;
    if (device->driver.context_get(&current) == CUDA_SUCCESS && current == device->context) return TVM_OK;
    tvm_status status =
        tvm_cuda_result(device, device->driver.context_push(device->context), "cuCtxPushCurrent", diags);
    *pushed = status == TVM_OK;
    return status;
}

void tvm_cuda_leave(cuda_device *device, bool pushed) {
    CUcontext popped;
    if (pushed) device->driver.context_pop(&popped);
}

const char *tvm_cuda_intern(cuda_device *device, const char *name) {
    pthread_mutex_lock(&device->lock);
    cuda_name *known = device->names;
    while (known && strcmp(known->text, name)) known = known->next;
    if (!known) {
        size_t length = strlen(name) + 1;
        known = malloc(sizeof *known + length);
        if (known) {
            memcpy(known->text, name, length);
            known->next = device->names;
            device->names = known;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return known ? known->text : NULL;
}

void tvm_cuda_warn(cuda_device *device, const tvm_diags *warnings) {
    if (!warnings->count) return;
    for (size_t i = 0; i < warnings->count; i++)
        tvm_log(device->observer, TVM_LOG_WARN, "%s", warnings->items[i].message);
    pthread_mutex_lock(&device->lock);
    if (!atomic_load(&device->warning)) atomic_store(&device->warning, tvm_message_text(TVM_IO, warnings));
    pthread_mutex_unlock(&device->lock);
}

/* ---- opening ---- */

static tvm_status choose_ordinal(cuda_device *cuda, int ordinal, tvm_diags *diags) {
    int count = 0;
    tvm_status status = tvm_cuda_result(cuda, cuda->driver.device_count(&count), "cuDeviceGetCount", diags);
    if (status) return status;
    if (ordinal < 0 || ordinal >= count)
        return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, NULL, "there is no GPU cuda:%d: the driver sees %d",
                            ordinal, count);
    return tvm_cuda_result(cuda, cuda->driver.device_get(&cuda->device, ordinal), "cuDeviceGet", diags);
}

/* The GPU's name and what code to make for it: the best that there is, or that for capability `asked`. */
static tvm_status identify(cuda_device *cuda, unsigned asked, tvm_diags *diags) {
    const tvm_cuda_driver *driver = &cuda->driver;
    int major = 0, minor = 0, multiprocessors = 0;
    char gpu[256] = "";
    CUresult result =
        driver->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cuda->device);
    if (!result)
        result = driver->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cuda->device);
    if (!result)
        result = driver->device_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                          cuda->device);
    if (!result) result = driver->device_name(gpu, sizeof gpu, cuda->device);
    tvm_status status = tvm_cuda_result(cuda, result, "cuDeviceGetAttribute", diags);
    if (!status) status = tvm_target_for_device(major, minor, &cuda->target, diags);
    if (status) return status;
    cuda->capability = 10 * (unsigned)major + (unsigned)minor;
    if (asked) status = tvm_target_asked(asked, cuda->capability, &cuda->target, diags);
    if (status) return status;
    gpu[sizeof gpu - 1] = '\0';
    cuda->multiprocessors = multiprocessors > 0 ? (uint32_t)multiprocessors : 1;
    snprintf(cuda->name, sizeof cuda->name, "%s (cuda:%d, %s)", gpu, (int)cuda->device,
             tvm_target_name(cuda->target, cuda->target_name));
    return TVM_OK;
}

static tvm_status device_of_context(cuda_device *cuda, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(cuda, &pushed, diags);
    if (status) return status;
    status = tvm_cuda_result(cuda, cuda->driver.context_device(&cuda->device), "cuCtxGetDevice", diags);
    tvm_cuda_leave(cuda, pushed);
    return status;
}

static tvm_status open_context(cuda_device *cuda, const tvm_context_options *options, tvm_diags *diags) {
    if (options->cuda_context) {
        cuda->context = options->cuda_context;
        tvm_status status = device_of_context(cuda, diags);
        return status ? status : identify(cuda, options->target, diags);
    }
    tvm_status status = choose_ordinal(cuda, options->ordinal, diags);
    if (!status) status = identify(cuda, options->target, diags);
    if (!status)
        status = tvm_cuda_result(cuda, cuda->driver.primary_retain(&cuda->context, cuda->device),
                                 "cuDevicePrimaryCtxRetain", diags);
    cuda->primary = status == TVM_OK;
    return status;
}

static void free_scratch(cuda_device *cuda) {
    bool pushed;
    if (!atomic_load(&cuda->scratch)) return;
    /* Where the context is gone, so is the memory: what the host keeps of it is freed all the same. */
    tvm_cuda_enter(cuda, &pushed, NULL);
    tvm_cuda_scratch_free(cuda);
    tvm_cuda_leave(cuda, pushed);
}

static void cuda_close(void *device) {
    cuda_device *cuda = device;
    free_scratch(cuda);
    if (cuda->primary) cuda->driver.primary_release(cuda->device);
    tvm_cuda_driver_close(&cuda->driver);
    tvm_cache_close(cuda->cache);
    while (cuda->names) {
        cuda_name *name = cuda->names;
        cuda->names = name->next;
        free(name);
    }
    free(atomic_load(&cuda->warning));
    pthread_mutex_destroy(&cuda->scratch_lock);
    pthread_mutex_destroy(&cuda->lock);
    free(cuda);
}

static bool make_locks(cuda_device *cuda) {
    if (pthread_mutex_init(&cuda->lock, NULL)) return false;
    if (!pthread_mutex_init(&cuda->scratch_lock, NULL)) return true;
    pthread_mutex_destroy(&cuda->lock);
    return false;
}

static tvm_status cuda_open(const tvm_context_options *options, tvm_observer *observer, void **device,
                            tvm_diags *diags) {
    cuda_device *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return tvm_diag_no_memory(diags);
    cuda->observer = observer;
    if (!make_locks(cuda)) {
        free(cuda);
        return tvm_diag_no_memory(diags);
    }
    tvm_status status = tvm_cuda_driver_open(&cuda->driver, diags);
    if (!status) status = open_context(cuda, options, diags);
    if (status) {
        cuda_close(cuda);
        return status;
    }
    tvm_diags warnings = {0};
    cuda->cache = tvm_cache_open(options->cache_dir, 0, &warnings);
    tvm_cuda_warn(cuda, &warnings);
    tvm_diags_free(&warnings);
    *device = cuda;
    return TVM_OK;
}

static const char *cuda_device_name(const void *device) {
    return ((const cuda_device *)device)->name;
}

static int cuda_ordinal(const void *device) {
    return (int)((const cuda_device *)device)->device;
}

static const char *cuda_warning(const void *device) {
    return atomic_load(&((const cuda_device *)device)->warning);
}

static uint32_t cuda_multiprocessors(const void *device) {
    return ((const cuda_device *)device)->multiprocessors;
}

static uint32_t cuda_target(const void *device) {
    return ((const cuda_device *)device)->target.arch;
}

static const tvm_target *cuda_code_target(const void *device) {
    return &((const cuda_device *)device)->target;
}

static unsigned cuda_capability(const void *device) {
    return ((const cuda_device *)device)->capability;
}

/* ---- memory and waiting ---- */

static tvm_status cuda_synchronize(void *device, void *stream, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    const tvm_cuda_driver *driver = &((cuda_device *)device)->driver;
    status = tvm_cuda_result(device, driver->stream_synchronize(stream), "cuStreamSynchronize", diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

static tvm_status cuda_drain(void *device, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = tvm_cuda_result(device, ((cuda_device *)device)->driver.context_synchronize(),
                             "cuCtxSynchronize", diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

static tvm_status cuda_memory_alloc(void *device, size_t bytes, void **data, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    const tvm_cuda_driver *driver = &((cuda_device *)device)->driver;
    CUdeviceptr address = 0;
    CUresult result = driver->memory_alloc(&address, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status = tvm_diag_add(diags, TVM_DEVICE_MEMORY, NULL, tvm_status_advice(TVM_DEVICE_MEMORY),
                              "%s: cuMemAlloc of %zu bytes failed: CUDA_ERROR_OUT_OF_MEMORY",
                              tvm_status_text(TVM_DEVICE_MEMORY), bytes);
    else
        status = tvm_cuda_result(device, result, "cuMemAlloc", diags);
    tvm_cuda_leave(device, pushed);
    *data = (void *)(uintptr_t)address;
    return status;
}

static tvm_status cuda_memory_free(void *device, void *data, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    const tvm_cuda_driver *driver = &((cuda_device *)device)->driver;
    status = tvm_cuda_result(device, driver->memory_free((CUdeviceptr)(uintptr_t)data), "cuMemFree", diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

static tvm_status cuda_memory_write(void *device, void *to, const void *from, size_t bytes,
                                    tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    const tvm_cuda_driver *driver = &((cuda_device *)device)->driver;
    status = tvm_cuda_result(device, driver->memory_write((CUdeviceptr)(uintptr_t)to, from, bytes),
                             "cuMemcpyHtoD", diags);
    /* The copy of pageable memory may still be under way, unseen by streams that do not wait for the default
     * one (CUDA Driver API, "API synchronization behavior"). */
    if (status == TVM_OK)
        status = tvm_cuda_result(device, driver->stream_synchronize(NULL), "cuStreamSynchronize", diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

static tvm_status cuda_memory_read(void *device, void *to, const void *from, size_t bytes, tvm_diags *diags) {
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    const tvm_cuda_driver *driver = &((cuda_device *)device)->driver;
    status = tvm_cuda_result(device, driver->memory_read(to, (CUdeviceptr)(uintptr_t)from, bytes),
                             "cuMemcpyDtoH", diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

const tvm_device_ops tvm_device_cuda = {.kind = TVM_DEVICE_CUDA,
                                        .open = cuda_open,
                                        .close = cuda_close,
                                        .name = cuda_device_name,
                                        .ordinal = cuda_ordinal,
                                        .warning = cuda_warning,
                                        .multiprocessors = cuda_multiprocessors,
                                        .target = cuda_target,
                                        .code_target = cuda_code_target,
                                        .capability = cuda_capability,
                                        .code_open = tvm_cuda_code_open,
                                        .code_close = tvm_cuda_code_close,
                                        .shared_bytes = tvm_cuda_shared_bytes,
                                        .shared_need = tvm_cuda_shared_need,
                                        .prepare = tvm_cuda_prepare,
                                        .describe = tvm_cuda_describe,
                                        .code_origin = tvm_cuda_code_origin,
                                        .launch = tvm_cuda_launch,
                                        .reserve = tvm_cuda_reserve,
                                        .time = tvm_cuda_time,
                                        .synchronize = cuda_synchronize,
                                        .graph_open = tvm_cuda_graph_open,
                                        .graph_set = tvm_cuda_graph_set,
                                        .graph_launch = tvm_cuda_graph_launch,
                                        .graph_close = tvm_cuda_graph_close,
                                        .drain = cuda_drain,
                                        .trace_begin = tvm_cuda_trace_begin,
                                        .trace_end = tvm_cuda_trace_end,
                                        .memory_alloc = cuda_memory_alloc,
                                        .memory_free = cuda_memory_free,
                                        .memory_write = cuda_memory_write,
                                        .memory_read = cuda_memory_read};

#endif /* HAVE_CUDA_H */
