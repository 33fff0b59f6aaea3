/* Programs on a GPU, and launches of their kernels. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_code.h"
#include "cuda_scratch.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>

static void free_code(cuda_code *code, bool locked) {
    while (code->locks) pthread_mutex_destroy(&code->kernels[--code->locks].lock);
    if (locked) pthread_mutex_destroy(&code->lock);
    free(code);
}

tvm_status tvm_cuda_code_open(void *device, const tvm_ir_program *program, bool counts_turns, void **code,
                              tvm_diags *diags) {
    cuda_code *opened = calloc(1, sizeof *opened + program->kernel_count * sizeof opened->kernels[0]);
    if (!opened) return tvm_diag_no_memory(diags);
    opened->device = device;
    opened->program = program;
    opened->counts_turns = counts_turns;
    bool locked = !pthread_mutex_init(&opened->lock, NULL);
    while (locked && opened->locks < program->kernel_count &&
           !pthread_mutex_init(&opened->kernels[opened->locks].lock, NULL))
        opened->locks++;
    *code = opened;
    if (locked && opened->locks == program->kernel_count) return TVM_OK;
    free_code(opened, locked);
    *code = NULL;
    return tvm_diag_no_memory(diags);
}

void tvm_cuda_code_close(void *code) {
    tvm_cuda_unload(code);
    free_code(code, true);
}

uint64_t tvm_cuda_shared_bytes(const void *code) {
    return tvm_target_shared_bytes(((const cuda_code *)code)->device->target);
}

tvm_status tvm_cuda_shared_need(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags) {
    const cuda_code *opened = code;
    const tvm_ir_program *program = opened->program;
    tvm_target target = opened->device->target;
    *needs = 0;
    if (!tvm_kernel_is_for(&program->kernels[kernel], target.arch, tvm_target_traits_of(target)))
        return TVM_OK;
    return tvm_kernel_shared_bytes(program, &program->kernels[kernel], target, needs, diags);
}

const char *tvm_cuda_code_origin(const void *code) {
    const cuda_code *opened = code;
    return atomic_load_explicit(&opened->told, memory_order_acquire) ? opened->origin : "";
}

tvm_status tvm_cuda_ensure(cuda_code *code, uint32_t kernel, tvm_diags *diags) {
    tvm_status status = tvm_cuda_load(code, kernel, diags);
    if (status || !code->kernels[kernel].abi.absence) return status;
    const tvm_kernel_abi *abi = &code->kernels[kernel].abi;
    const char *name = tvm_string(code->program, code->program->kernels[kernel].name);
    if (abi->absence == TVM_ABI_TOO_BIG)
        return tvm_diag_add(
            diags, TVM_RESOURCES, NULL, tvm_status_advice(TVM_RESOURCES),
            "kernel '%s' needs %u bytes of shared memory, more than a block has on this GPU (%s)", name,
            (unsigned)abi->shared_bytes, code->device->target_name);
    bool clusters = tvm_cluster_blocks(&code->program->kernels[kernel]) > 1 &&
                    !tvm_target_has(code->device->target, TVM_HAS_CLUSTERS);
    bool tensors = tvm_has_tensor_memory(&code->program->kernels[kernel]) &&
                   !tvm_target_has(code->device->target, TVM_HAS_TCGEN05);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "kernel '%s' is not for %s: %s", name,
                        code->device->target_name,
                        clusters  ? "it has clusters, which sm_90 is the first to have"
                        : tensors ? "it has tensor memory, which sm_100a is the first to have"
                                  : "it assumes another target");
}

tvm_status tvm_cuda_prepare(void *code, uint32_t kernel, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = tvm_cuda_ensure(code, kernel, diags);
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
    status = tvm_cuda_ensure(loaded, kernel, diags);
    if (!status)
        status = tvm_cuda_result(loaded->device, describe(loaded, &loaded->kernels[kernel], info),
                                 "cuFuncGetAttribute", diags);
    tvm_cuda_leave(loaded->device, pushed);
    return status;
}

/* ---- launching ---- */

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
        int pool = tvm_cuda_pool_of(param);
        if (pool == CUDA_SCRATCH_POOLS) continue;
        places[count++] = total[pool];
        total[pool] += (launch->tensor_bytes[param->index] + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    }
    if (!count) return TVM_OK;
    tvm_status status = tvm_cuda_scratch_get(code->device, stream, code, total, base, diags);
    for (uint32_t i = 0, n = 0; !status && n < count; i++) {
        int pool = tvm_cuda_pool_of(&abi->params[i]);
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
    case TVM_ABI_CAPABILITY:
        return tvm_target_has(device->target, (tvm_capability)param->index);
    case TVM_ABI_LIMIT:
        return (uint32_t)tvm_traits_limit(tvm_target_traits_of(device->target), param->index);
    case TVM_ABI_TURNS:
        return launch->turns ? launch->turns : UINT32_MAX;
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
        if (tvm_cuda_pool_of(row) == CUDA_SCRATCH_POOLS) continue;
        if (row->index == tensor - declared->param_count) return places[place];
        place++;
    }
    return 0;
}

tvm_status tvm_cuda_fill_params(const cuda_code *code, const tvm_device_launch *launch,
                                const CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS], cuda_params *params,
                                tvm_diags *diags) {
    const cuda_kernel *kernel = &code->kernels[launch->kernel];
    const tvm_ir_kernel *declared = &code->program->kernels[launch->kernel];
    const CUdeviceptr *place = places;
    tvm_status status = TVM_OK;
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

static tvm_status make_params(const cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                              cuda_params *params, tvm_diags *diags) {
    CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS];
    tvm_status status = place_tensors(code, launch, stream, places, diags);
    return status ? status : tvm_cuda_fill_params(code, launch, places, params, diags);
}

#if CUDA_VERSION >= 11080
static CUlaunchConfig config_of(const cuda_kernel *kernel, const tvm_device_launch *launch) {
    return (CUlaunchConfig){.gridDimX = launch->grid[0],
                            .gridDimY = launch->grid[1],
                            .gridDimZ = launch->grid[2],
                            .blockDimX = kernel->abi.threads,
                            .blockDimY = 1,
                            .blockDimZ = 1,
                            .sharedMemBytes = kernel->abi.shared_bytes};
}
#endif

/* A launch that need not wait for the one before it to end; CUDA_ERROR_NOT_SUPPORTED where there is no such
 * thing. */
static CUresult launch_early(const cuda_device *device, const cuda_kernel *kernel,
                             const tvm_device_launch *launch, CUstream stream, void **addresses) {
#if CUDA_VERSION >= 11080
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = config_of(kernel, launch);
    config.hStream = stream, config.attrs = &attribute, config.numAttrs = 1;
    if (device->driver.launch_with)
        return device->driver.launch_with(&config, kernel->function, addresses, NULL);
#else
    (void)device, (void)kernel, (void)launch, (void)stream, (void)addresses;
#endif
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Written only when it changes: threads that launch the same kernel share the line. */
static void note_launched(cuda_device *device, const cuda_kernel *kernel, const tvm_device_launch *launch) {
    if (atomic_load_explicit(&device->launched, memory_order_relaxed) != kernel->name)
        atomic_store_explicit(&device->launched, kernel->name, memory_order_relaxed);
    if (atomic_load_explicit(&device->turns, memory_order_relaxed) != launch->turns)
        atomic_store_explicit(&device->turns, launch->turns, memory_order_relaxed);
}

/* How many blocks of the launch run at a time on a GPU that has nothing else to do. */
static CUresult find_resident(const cuda_device *device, const cuda_kernel *kernel,
                              const tvm_device_launch *launch, uint64_t *blocks) {
    const uint32_t *cluster = kernel->abi.cluster;
    int count = 0;
    uint64_t times = device->multiprocessors;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (cluster[0] * cluster[1] * cluster[2] == 1) {
        result = device->driver.active_blocks(&count, kernel->function, (int)kernel->abi.threads,
                                              kernel->abi.shared_bytes);
    } else {
#if CUDA_VERSION >= 11080
        const CUlaunchConfig config = config_of(kernel, launch);
        if (device->driver.active_clusters)
            result = device->driver.active_clusters(&count, kernel->function, &config);
#endif
        times = (uint64_t)cluster[0] * cluster[1] * cluster[2];
    }
    (void)launch;
    *blocks = count > 0 ? times * (uint64_t)count : 0;
    return result;
}

tvm_status tvm_cuda_check_limits(const cuda_code *code, const tvm_device_launch *launch, bool together,
                                 tvm_diags *diags) {
    const cuda_kernel *kernel = &code->kernels[launch->kernel];
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1], most;
    if (launch->turns && !code->counts_turns)
        return tvm_diag_add(diags, TVM_LIMIT, NULL, "load the program again",
                            "kernel '%s': the context limits turns, and the code does not count them: the "
                            "program was loaded before the limit was set",
                            kernel->name);
    if (!together) return TVM_OK;
    CUresult result = find_resident(code->device, kernel, launch, &most);
    if (result) return tvm_cuda_result(code->device, result, "cuOccupancyMaxActiveBlocks", diags);
    if (!__builtin_mul_overflow(blocks, launch->grid[2], &blocks) && blocks <= most) return TVM_OK;
    return tvm_diag_add(
        diags, TVM_LIMIT, NULL, NULL,
        "kernel '%s': its blocks wait for each other, and of %u x %u x %u no more than %llu run "
        "at a time on this GPU: the context's limits ask that all do",
        kernel->name, (unsigned)launch->grid[0], (unsigned)launch->grid[1], (unsigned)launch->grid[2],
        (unsigned long long)most);
}

/* Cooperative: the driver begins no block before all have room, whatever else runs. */
static tvm_status launch_together(cuda_device *device, const cuda_kernel *kernel,
                                  const tvm_device_launch *launch, CUstream stream, void **addresses,
                                  tvm_diags *diags) {
    CUresult result = device->driver.launch_together(kernel->function, launch->grid[0], launch->grid[1],
                                                     launch->grid[2], kernel->abi.threads, 1, 1,
                                                     kernel->abi.shared_bytes, stream, addresses);
    if (result) return tvm_cuda_result(device, result, "cuLaunchCooperativeKernel", diags);
    note_launched(device, kernel, launch);
    return TVM_OK;
}

tvm_status tvm_cuda_enqueue(cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                            tvm_diags *diags) {
    const cuda_kernel *kernel = &code->kernels[launch->kernel];
    cuda_device *device = code->device;
    cuda_params params;
    bool together = launch->co_resident && kernel->waits;
    tvm_status status = tvm_cuda_check_limits(code, launch, together, diags);
    if (!status) status = make_params(code, launch, stream, &params, diags);
    if (status) return status;
    if (together) return launch_together(device, kernel, launch, stream, params.addresses, diags);
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (kernel->abi.flags & TVM_ABI_WAITS_FOR_DEPENDENCY)
        result = launch_early(device, kernel, launch, stream, params.addresses);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = device->driver.launch(kernel->function, launch->grid[0], launch->grid[1], launch->grid[2],
                                       kernel->abi.threads, 1, 1, kernel->abi.shared_bytes, stream,
                                       params.addresses, NULL);
    if (result) return tvm_cuda_result(device, result, "cuLaunchKernel", diags);
    note_launched(device, kernel, launch);
    return TVM_OK;
}

tvm_status tvm_cuda_launch(void *code, const tvm_device_launch *launch, tvm_diags *diags) {
    cuda_device *device = ((cuda_code *)code)->device;
    bool pushed;
    tvm_status status = tvm_cuda_enter(device, &pushed, diags);
    if (status) return status;
    status = tvm_cuda_ensure(code, launch->kernel, diags);
    cuda_traced *traced =
        status ? NULL
               : tvm_cuda_trace_launch(device, ((cuda_code *)code)->kernels[launch->kernel].name,
                                       launch->stream);
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
    status = tvm_cuda_ensure(code, launch->kernel, diags);
    if (!status) status = tvm_cuda_make_room(code, launch, launch->stream, diags);
    tvm_cuda_leave(device, pushed);
    return status;
}

#endif /* HAVE_CUDA_H */
