/* Programs on a GPU: loading them and launching their kernels. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDA_H

#include "cuda_code.h"
#include "cuda_scratch.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>

tvm_status tvm_cuda_code_open(void *device, const tvm_ir_program *program, void **code, tvm_diags *diags) {
    cuda_code *opened = calloc(1, sizeof *opened + program->kernel_count * sizeof opened->kernels[0]);
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

static void unload(cuda_code *code) {
    bool pushed;
    if (!code->module || tvm_cuda_enter(code->device, &pushed, NULL)) return;
    for (uint32_t k = 0; k < code->program->kernel_count; k++) {
        tvm_cuda_tensor_maps_close(code->device, code->kernels[k].maps);
        code->kernels[k].maps = NULL;
    }
    tvm_cuda_scratch_forget(code->device, code);
    code->device->driver.module_unload(code->module);
    code->module = NULL;
    tvm_cuda_leave(code->device, pushed);
}

void tvm_cuda_code_close(void *code) {
    unload(code);
    pthread_mutex_destroy(&((cuda_code *)code)->lock);
    free(code);
}

tvm_status tvm_cuda_shared_memory(const void *code, uint64_t *needs, uint64_t *has, tvm_diags *diags) {
    const cuda_code *opened = code;
    const tvm_ir_program *program = opened->program;
    tvm_target target = opened->device->target;
    tvm_status status = TVM_OK;
    *has = tvm_target_shared_bytes(target);
    for (uint32_t k = 0; !status && k < program->kernel_count; k++)
        if (tvm_kernel_is_for(&program->kernels[k], target.arch))
            status = tvm_kernel_shared_bytes(program, &program->kernels[k], target, &needs[k], diags);
    return status;
}

/* ---- loading; the CUDA context is current, the lock is held ---- */

enum { LOG_BYTES = 4096 };

static CUresult load_module(cuda_code *code, const tvm_image *image, char log[LOG_BYTES]) {
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    log[0] = '\0';
    /* While this or another thread captures a stream, too: loading is no part of the graph. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = !code->device->driver.capture_mode(&mode);
    CUresult result = code->device->driver.module_load(&code->module, image->code, 2, options, values);
    if (relaxed) code->device->driver.capture_mode(&mode);
    log[LOG_BYTES - 1] = '\0';
    if (result) code->module = NULL;
    return result;
}

static tvm_status load_image(cuda_code *code, const tvm_image *image, tvm_diags *diags) {
    char log[LOG_BYTES];
    tvm_observer *observer = code->device->observer;
    tvm_span span = tvm_span_begin(observer, TVM_SPAN_LOAD, image->ptx ? "PTX" : "cubin");
    CUresult result = load_module(code, image, log);
    tvm_span_end(observer, &span);
    if (!result || !log[0]) return tvm_cuda_result(code->device, result, "cuModuleLoadDataEx", diags);
    tvm_status status = tvm_cuda_status(result);
    if (image->ptx && status == TVM_IMAGE) status = TVM_PTXAS;
    return tvm_diag_add(diags, status, NULL,
                        status == TVM_PTXAS ? "no ptxas was found, so that the driver's compiler was used"
                                            : tvm_status_advice(status),
                        "%s (error %d): %s", tvm_status_text(TVM_IMAGE), (int)result, log);
}

/* An image that is not new and that the driver refuses is made anew, once: what it was made for may have
 * changed. */
static tvm_status make_and_load(cuda_code *code, tvm_image *image, tvm_diags *warnings, tvm_diags *diags) {
    cuda_device *device = code->device;
    tvm_image_request request = {.program = code->program,
                                 .target = device->target,
                                 .capability = device->capability,
                                 .cache = device->cache,
                                 .observer = device->observer};
    tvm_status status = tvm_image_make(&request, image, warnings, diags);
    if (status) return status;
    if (image->source == TVM_IMAGE_MADE) return load_image(code, image, diags);
    if (load_image(code, image, NULL) == TVM_OK) return TVM_OK;
    if (image->source == TVM_IMAGE_EMBEDDED) {
        request.not_embedded = true;
        tvm_diag_add(warnings, TVM_DRIVER, NULL, NULL,
                     "the driver refuses the code embedded in the program, which is translated instead");
    } else {
        tvm_cache_drop(device->cache, image->key);
    }
    tvm_image_free(image);
    status = tvm_image_make(&request, image, warnings, diags);
    return status ? status : load_image(code, image, diags);
}

/* Above 48 KiB a kernel has to ask for its shared memory: CUDA C Programming Guide, "Shared Memory" of 7.x
 * and later. */
enum { SHARED_UNASKED = 48 * 1024 };

static tvm_status find_kernel(cuda_code *code, uint32_t index, const tvm_image *image, tvm_diags *diags) {
    cuda_device *device = code->device;
    cuda_kernel *kernel = &code->kernels[index];
    const char *name = tvm_string(code->program, code->program->kernels[index].name);
    kernel->abi = image->kernels[index];
    if (kernel->abi.absence) return TVM_OK;
    kernel->name = tvm_cuda_intern(device, name);
    if (!kernel->name) return tvm_diag_no_memory(diags);
    tvm_status status =
        tvm_cuda_result(device, device->driver.module_function(&kernel->function, code->module, name),
                        "cuModuleGetFunction", diags);
    if (!status)
        status = tvm_cuda_tensor_maps_open(device, code->program, &code->program->kernels[index],
                                           &kernel->abi, &kernel->maps, diags);
    if (status || kernel->abi.shared_bytes <= SHARED_UNASKED) return status;
    CUresult result = device->driver.function_set(
        kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)kernel->abi.shared_bytes);
    if (result != CUDA_ERROR_INVALID_VALUE)
        return tvm_cuda_result(device, result, "cuFuncSetAttribute", diags);
    kernel->abi.absence = TVM_ABI_TOO_BIG; /* code for another target, whose blocks have more */
    return TVM_OK;
}

static tvm_status load(cuda_code *code, tvm_diags *diags) {
    tvm_image image = {0};
    tvm_diags warnings = {0};
    tvm_status status = make_and_load(code, &image, &warnings, diags);
    for (uint32_t i = 0; !status && i < image.kernel_count; i++) status = find_kernel(code, i, &image, diags);
    if (status)
        unload(code);
    else
        tvm_image_origin(&image, code->origin);
    tvm_cuda_warn(code->device, &warnings);
    tvm_diags_free(&warnings);
    tvm_image_free(&image);
    return status;
}

const char *tvm_cuda_code_origin(const void *code) {
    const cuda_code *opened = code;
    return atomic_load_explicit(&opened->loaded, memory_order_acquire) ? opened->origin : "";
}

/* The code in the current CUDA context, by the first caller for all. */
static tvm_status ensure_loaded(cuda_code *code, tvm_diags *diags) {
    if (atomic_load_explicit(&code->loaded, memory_order_acquire)) return TVM_OK;
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&code->lock);
    if (!atomic_load_explicit(&code->loaded, memory_order_relaxed)) {
        status = load(code, diags);
        if (!status) atomic_store_explicit(&code->loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&code->lock);
    return status;
}

/* Of one kernel, though a program is translated as a whole. */
static tvm_status ensure_kernel(cuda_code *code, uint32_t kernel, tvm_diags *diags) {
    tvm_status status = ensure_loaded(code, diags);
    if (status || !code->kernels[kernel].abi.absence) return status;
    const tvm_kernel_abi *abi = &code->kernels[kernel].abi;
    const char *name = tvm_string(code->program, code->program->kernels[kernel].name);
    if (abi->absence == TVM_ABI_TOO_BIG)
        return tvm_diag_add(
            diags, TVM_RESOURCES, NULL, tvm_status_advice(TVM_RESOURCES),
            "kernel '%s' needs %u bytes of shared memory, more than a block has on this GPU (%s)", name,
            (unsigned)abi->shared_bytes, code->device->target_name);
    bool clusters = tvm_cluster_blocks(&code->program->kernels[kernel]) > 1 &&
                    code->device->target.arch < TVM_CLUSTER_TARGET;
    return tvm_diag_add(
        diags, TVM_UNSUPPORTED, NULL, NULL, "kernel '%s' is not for %s: %s", name, code->device->target_name,
        clusters ? "it has clusters, which sm_90 is the first to have" : "it assumes another target");
}

tvm_status tvm_cuda_prepare(void *code, uint32_t kernel, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = ensure_kernel(code, kernel, diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

static CUresult describe(const cuda_code *code, const cuda_kernel *kernel, tvm_kernel_info *info) {
    const tvm_cuda_driver *driver = &code->device->driver;
    int shared = 0, local = 0;
    CUresult result = driver->function_get(&info->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->function);
    if (!result)
        result = driver->function_get(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function);
    if (!result) result = driver->function_get(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel->function);
    info->target = code->device->target_name;
    info->threads = kernel->abi.threads;
    info->shared_bytes = (size_t)shared + kernel->abi.shared_bytes;
    info->local_bytes = (size_t)local;
    return result;
}

tvm_status tvm_cuda_describe(void *code, uint32_t kernel, tvm_kernel_info *info, tvm_diags *diags) {
    cuda_code *loaded = code;
    bool pushed;
    tvm_status status = tvm_cuda_enter(loaded->device, &pushed, diags);
    if (status) return status;
    status = ensure_kernel(loaded, kernel, diags);
    if (!status)
        status = tvm_cuda_result(loaded->device, describe(loaded, &loaded->kernels[kernel], info),
                                 "cuFuncGetAttribute", diags);
    tvm_cuda_leave(loaded->device, pushed);
    return status;
}

/* ---- launching ---- */

/* The parameters of one launch, each at its offset. */
typedef struct cuda_params {
    _Alignas(TVM_ABI_TENSOR_MAP_ALIGNMENT) uint8_t bytes[TVM_ABI_PARAM_BYTES];
    void *addresses[TVM_ABI_PARAMS];
} cuda_params;

static int pool_of(const tvm_abi_param *param) {
    if (param->kind == TVM_ABI_SCRATCH) return CUDA_SCRATCH_UNDEFINED;
    return param->kind == TVM_ABI_SCRATCH_CLEAN ? CUDA_SCRATCH_CLEAN : CUDA_SCRATCH_POOLS;
}

/* Where the tensors of a launch begin, in the order of the rows that are their addresses; 0 bytes take no
 * memory. */
static tvm_status place_tensors(const cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                                CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS], tvm_diags *diags) {
    enum { ALIGNMENT = 256 };
    const tvm_kernel_abi *abi = &code->kernels[launch->kernel].abi;
    uint64_t total[CUDA_SCRATCH_POOLS + 1] = {0};
    CUdeviceptr base[CUDA_SCRATCH_POOLS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        int pool = pool_of(param);
        if (pool == CUDA_SCRATCH_POOLS) continue;
        places[count++] = total[pool];
        total[pool] += (launch->tensor_bytes[param->index] + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    }
    if (!count) return TVM_OK;
    tvm_status status = tvm_cuda_scratch_get(code->device, stream, code, total, base, diags);
    for (uint32_t i = 0, n = 0; !status && n < count; i++) {
        int pool = pool_of(&abi->params[i]);
        if (pool != CUDA_SCRATCH_POOLS) places[n++] += base[pool];
    }
    return status;
}

tvm_status tvm_cuda_make_room(cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                              tvm_diags *diags) {
    CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS];
    return place_tensors(code, launch, stream, places, diags);
}

/* The value of a parameter, of the row's width, in the first bytes. */
static uint64_t param_value(const cuda_device *device, const tvm_device_launch *launch,
                            const tvm_abi_param *param, const CUdeviceptr **place) {
    union {
        float f32;
        double f64;
        uint64_t bits;
    } value = {.bits = 0};
    switch ((tvm_abi_kind)param->kind) {
    case TVM_ABI_FLOAT:
        if (param->width == 4)
            value.f32 = (float)launch->scalars[param->index].f;
        else
            value.f64 = launch->scalars[param->index].f;
        return value.bits;
    case TVM_ABI_TENSOR:
        return (uint64_t)(uintptr_t)launch->data[param->index];
    case TVM_ABI_SCRATCH:
    case TVM_ABI_SCRATCH_CLEAN:
        return *(*place)++;
    case TVM_ABI_MULTIPROCESSORS:
        return device->multiprocessors;
    case TVM_ABI_TARGET:
        return device->target.arch;
    default:
        return launch->scalars[param->index].u;
    }
}

/* Where the tensor of a map begins. */
static uint64_t map_address(const cuda_kernel *kernel, const tvm_ir_kernel *declared,
                            const tvm_device_launch *launch, const tvm_abi_param *param,
                            const CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS]) {
    uint32_t tensor = kernel->abi.maps[param->index].tensor, place = 0;
    if (tensor < declared->param_count) return (uint64_t)(uintptr_t)launch->data[tensor];
    for (uint32_t i = 0; i < kernel->abi.param_count; i++) {
        const tvm_abi_param *row = &kernel->abi.params[i];
        if (pool_of(row) == CUDA_SCRATCH_POOLS) continue;
        if (row->index == tensor - declared->param_count) return places[place];
        place++;
    }
    return 0;
}

static tvm_status make_params(const cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                              cuda_params *params, tvm_diags *diags) {
    const cuda_kernel *kernel = &code->kernels[launch->kernel];
    const tvm_ir_kernel *declared = &code->program->kernels[launch->kernel];
    CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS];
    const CUdeviceptr *place = places;
    tvm_status status = place_tensors(code, launch, stream, places, diags);
    for (uint32_t i = 0; !status && i < kernel->abi.param_count; i++) {
        const tvm_abi_param *param = &kernel->abi.params[i];
        params->addresses[i] = params->bytes + param->offset;
        if (param->kind == TVM_ABI_TENSOR_MAP) {
            status = tvm_cuda_tensor_map_get(kernel->maps, param->index,
                                             map_address(kernel, declared, launch, param, places),
                                             launch->shapes, params->addresses[i], diags);
            continue;
        }
        uint64_t value = param_value(code->device, launch, param, &place);
        memcpy(params->addresses[i], &value, param->width == 4 ? 4 : 8); /* a little-endian host's */
    }
    return status;
}

/* A launch that need not wait for the one before it to end; CUDA_ERROR_NOT_SUPPORTED where there is no such
 * thing. */
static CUresult launch_early(const cuda_device *device, const cuda_kernel *kernel,
                             const tvm_device_launch *launch, CUstream stream, void **addresses) {
#if CUDA_VERSION >= 11080
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {.gridDimX = launch->grid[0],
                                   .gridDimY = launch->grid[1],
                                   .gridDimZ = launch->grid[2],
                                   .blockDimX = kernel->abi.threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = kernel->abi.shared_bytes,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    if (device->driver.launch_with)
        return device->driver.launch_with(&config, kernel->function, addresses, NULL);
#else
    (void)device, (void)kernel, (void)launch, (void)stream, (void)addresses;
#endif
    return CUDA_ERROR_NOT_SUPPORTED;
}

tvm_status tvm_cuda_enqueue(cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                            tvm_diags *diags) {
    const cuda_kernel *kernel = &code->kernels[launch->kernel];
    cuda_device *device = code->device;
    cuda_params params;
    tvm_status status = make_params(code, launch, stream, &params, diags);
    if (status) return status;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (kernel->abi.flags & TVM_ABI_WAITS_FOR_DEPENDENCY)
        result = launch_early(device, kernel, launch, stream, params.addresses);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = device->driver.launch(kernel->function, launch->grid[0], launch->grid[1], launch->grid[2],
                                       kernel->abi.threads, 1, 1, kernel->abi.shared_bytes, stream,
                                       params.addresses, NULL);
    if (result) return tvm_cuda_result(device, result, "cuLaunchKernel", diags);
    /* Written only when it changes: threads that launch the same kernel share the line. */
    if (atomic_load_explicit(&device->launched, memory_order_relaxed) != kernel->name)
        atomic_store_explicit(&device->launched, kernel->name, memory_order_relaxed);
    return TVM_OK;
}

tvm_status tvm_cuda_launch(void *code, const tvm_device_launch *launch, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = ensure_kernel(code, launch->kernel, diags);
    cuda_traced *traced = status ? NULL : tvm_cuda_trace_launch(code, launch);
    if (!status) status = tvm_cuda_enqueue(code, launch, launch->stream, diags);
    if (traced) tvm_cuda_trace_launched(device, traced);
    tvm_cuda_leave(device, pushed);
    return status;
}

tvm_status tvm_cuda_reserve(void *code, const tvm_device_launch *launch, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = ensure_kernel(code, launch->kernel, diags);
    if (!status) status = tvm_cuda_make_room(code, launch, launch->stream, diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

#endif /* HAVE_CUDA_H */
