/* Programs on a GPU: kernels become functions of the driver. The code embedded in a program is one module,
 * which is loaded for all kernels when the first is asked for. Without embedded code each kernel is a
 * program, an entry of the cache and a module of its own, which is compiled when the kernel is first asked
 * for; of an entry's variants only those that launches choose are compiled. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_code.h"
#include "cuda_scratch.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>

/* ---- modules; the CUDA context is current ---- */

enum { LOG_BYTES = 4096 };

static CUresult load_module(const cuda_code *code, const tvm_image *image, CUmodule *module,
                            char log[LOG_BYTES]) {
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    log[0] = '\0';
    /* While this or another thread captures a stream, too: loading is no part of the graph. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = !code->device->driver.capture_mode(&mode);
    CUresult result = code->device->driver.module_load(module, image->code, 2, options, values);
    if (relaxed) code->device->driver.capture_mode(&mode);
    log[LOG_BYTES - 1] = '\0';
    if (result) *module = NULL;
    return result;
}

static tvm_status load_image(const cuda_code *code, const tvm_image *image, CUmodule *module,
                             tvm_diags *diags) {
    char log[LOG_BYTES];
    tvm_observer *observer = code->device->observer;
    tvm_span span = tvm_span_begin(observer, TVM_SPAN_LOAD, image->ptx ? "PTX" : "cubin");
    CUresult result = load_module(code, image, module, log);
    tvm_span_end(observer, &span);
    if (!result || !log[0]) return tvm_cuda_result(code->device, result, "cuModuleLoadDataEx", diags);
    tvm_status status = tvm_cuda_status(result);
    if (image->ptx && status == TVM_IMAGE) status = TVM_PTXAS;
    return tvm_diag_add(diags, status, NULL,
                        status == TVM_PTXAS ? "no ptxas was found, so that the driver's compiler was used"
                                            : tvm_status_advice(status),
                        "%s (error %d): %s", tvm_status_text(TVM_IMAGE), (int)result, log);
}

static void unload_module(const cuda_code *code, CUmodule *module) {
    if (*module) code->device->driver.module_unload(*module);
    *module = NULL;
}

/* Above 48 KiB a kernel has to ask for its shared memory: CUDA C Programming Guide, "Shared Memory" of 7.x
 * and later. */
enum { SHARED_UNASKED = 48 * 1024 };

/* A multiprocessor divides one memory between shared memory and its L1 cache as the kernel on it prefers, and
 * anew only once it is empty (CUDA C++ Programming Guide, "Shared Memory" of compute capability 8.x and
 * later). Left alone the driver gives a kernel just what its blocks take, beside which those of the next
 * kernel may have no room: one whose resident blocks have more than any may have unasked prefers all that
 * there is. */
static tvm_status prefer_shared(cuda_device *device, const cuda_kernel *kernel, uint32_t resident,
                                tvm_diags *diags) {
    if ((uint64_t)kernel->abi.shared_bytes * resident <= SHARED_UNASKED) return TVM_OK;
    CUresult result =
        device->driver.function_set(kernel->function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                    CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    return tvm_cuda_result(device, result, "cuFuncSetAttribute", diags);
}

static tvm_status find_kernel(cuda_code *code, uint32_t index, CUmodule module, const tvm_kernel_abi *abi,
                              tvm_diags *diags) {
    cuda_device *device = code->device;
    cuda_kernel *kernel = &code->kernels[index];
    const char *name = tvm_string(code->program, code->program->kernels[index].name);
    kernel->abi = *abi;
    if (kernel->abi.absence) return TVM_OK;
    kernel->name = tvm_cuda_intern(device, name);
    if (!kernel->name) return tvm_diag_no_memory(diags);
    kernel->waits = tvm_kernel_waits(&code->program->kernels[index]);
    tvm_status status =
        tvm_cuda_result(device, device->driver.module_function(&kernel->function, module, name),
                        "cuModuleGetFunction", diags);
    if (!status) status = prefer_shared(device, kernel, code->program->kernels[index].resident, diags);
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

static void forget_kernel(cuda_code *code, cuda_kernel *kernel) {
    tvm_cuda_tensor_maps_close(code->device, kernel->maps);
    kernel->maps = NULL;
    unload_module(code, &kernel->module);
}

void tvm_cuda_unload(cuda_code *code) {
    bool pushed, any = code->module != NULL;
    for (uint32_t k = 0; k < code->program->kernel_count; k++) any = any || code->kernels[k].module;
    if (!any || tvm_cuda_enter(code->device, &pushed, NULL)) return;
    for (uint32_t k = 0; k < code->program->kernel_count; k++) forget_kernel(code, &code->kernels[k]);
    tvm_cuda_scratch_forget(code->device, code);
    unload_module(code, &code->module);
    tvm_cuda_leave(code->device, pushed);
}

static tvm_image_request request_of(const cuda_code *code, const tvm_ir_program *program) {
    const cuda_device *device = code->device;
    return (tvm_image_request){.program = program,
                               .target = device->target,
                               .capability = device->capability,
                               .counts_turns = code->counts_turns,
                               .cache = device->cache,
                               .observer = device->observer};
}

/* code->lock is held. */
static void tell_origin(cuda_code *code, const tvm_image *image) {
    if (atomic_load_explicit(&code->told, memory_order_relaxed)) return;
    tvm_image_origin(image, code->origin);
    atomic_store_explicit(&code->told, true, memory_order_release);
}

/* ---- what is embedded; code->lock is held ---- */

static tvm_status load_embedded(cuda_code *code, tvm_diags *warnings, tvm_diags *diags) {
    tvm_image image;
    tvm_image_request request = request_of(code, code->program);
    tvm_status status = tvm_image_embedded(&request, &image, warnings, diags);
    if (status || !image.code) return status;
    if (load_image(code, &image, &code->module, NULL)) {
        tvm_diag_add(warnings, TVM_DRIVER, NULL, NULL,
                     "the driver refuses the code embedded in the program, which is translated instead");
        tvm_image_free(&image);
        return TVM_OK;
    }
    uint32_t count = code->program->kernel_count;
    for (uint32_t k = 0; !status && k < count; k++)
        status = find_kernel(code, k, code->module, &image.kernels[k], diags);
    for (uint32_t k = 0; k < count; k++) {
        if (status)
            forget_kernel(code, &code->kernels[k]);
        else
            atomic_store_explicit(&code->kernels[k].loaded, true, memory_order_release);
    }
    if (status)
        unload_module(code, &code->module);
    else
        tell_origin(code, &image);
    tvm_image_free(&image);
    return status;
}

/* Looks once for all kernels. */
static tvm_status try_embedded(cuda_code *code, tvm_diags *warnings, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&code->lock);
    if (!code->embedded_tried) {
        status = load_embedded(code, warnings, diags);
        code->embedded_tried = !status;
    }
    pthread_mutex_unlock(&code->lock);
    return status;
}

/* ---- one kernel; its lock is held ---- */

/* An image that is not new and that the driver refuses is made anew, once: what it was made for may have
 * changed. */
static tvm_status make_and_load(cuda_code *code, const tvm_ir_program *program, CUmodule *module,
                                tvm_image *image, tvm_diags *warnings, tvm_diags *diags) {
    tvm_image_request request = request_of(code, program);
    tvm_status status = tvm_image_make(&request, image, warnings, diags);
    if (status || image->kernels[0].absence) return status;
    if (image->source == TVM_IMAGE_MADE) return load_image(code, image, module, diags);
    if (load_image(code, image, module, NULL) == TVM_OK) return TVM_OK;
    tvm_cache_drop(code->device->cache, image->key);
    tvm_image_free(image);
    status = tvm_image_make(&request, image, warnings, diags);
    return status ? status : load_image(code, image, module, diags);
}

static tvm_status load_kernel(cuda_code *code, uint32_t index, tvm_diags *warnings, tvm_diags *diags) {
    cuda_kernel *kernel = &code->kernels[index];
    tvm_image image = {0};
    tvm_ir_program *alone = tvm_ir_program_clone_kernel(code->program, index);
    if (!alone) return tvm_diag_no_memory(diags);
    tvm_status status = make_and_load(code, alone, &kernel->module, &image, warnings, diags);
    if (!status) status = find_kernel(code, index, kernel->module, &image.kernels[0], diags);
    if (status) {
        forget_kernel(code, kernel);
    } else {
        pthread_mutex_lock(&code->lock);
        if (!kernel->abi.absence) tell_origin(code, &image);
        pthread_mutex_unlock(&code->lock);
        atomic_store_explicit(&kernel->loaded, true, memory_order_release);
    }
    tvm_image_free(&image);
    tvm_ir_program_free(alone);
    return status;
}

tvm_status tvm_cuda_load(cuda_code *code, uint32_t index, tvm_diags *diags) {
    cuda_kernel *kernel = &code->kernels[index];
    tvm_diags warnings = {0};
    tvm_status status = TVM_OK;
    if (atomic_load_explicit(&kernel->loaded, memory_order_acquire)) return TVM_OK;
    if (code->program->image_count && !code->counts_turns) status = try_embedded(code, &warnings, diags);
    if (!status) {
        pthread_mutex_lock(&kernel->lock);
        if (!atomic_load_explicit(&kernel->loaded, memory_order_acquire))
            status = load_kernel(code, index, &warnings, diags);
        pthread_mutex_unlock(&kernel->lock);
    }
    tvm_cuda_warn(code->device, &warnings);
    tvm_diags_free(&warnings);
    return status;
}

#endif /* HAVE_CUDA_H */
