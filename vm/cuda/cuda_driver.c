#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *symbol;
    size_t offset;
    bool optional;
} functions[] = {
#define ROW(member, function, symbol) {symbol, offsetof(tvm_cuda_driver, member), false},
    TVM_CUDA_FUNCTIONS(ROW)
#undef ROW
#define ROW(member, function, symbol) {symbol, offsetof(tvm_cuda_driver, member), true},
        TVM_CUDA_OPTIONAL_FUNCTIONS(ROW)
#undef ROW
};

static tvm_status find_functions(tvm_cuda_driver *driver, tvm_diags *diags) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(driver->library, functions[i].symbol);
        if (!address && !functions[i].optional)
            return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, "a driver for CUDA 11.4 or newer is needed",
                                "the CUDA driver lacks %s", functions[i].symbol);
        memcpy((char *)driver + functions[i].offset, &address, sizeof address);
    }
    return TVM_OK;
}

static tvm_status initialise(const tvm_cuda_driver *driver, tvm_diags *diags) {
    CUresult result = driver->init(0);
    if (result == CUDA_SUCCESS) return TVM_OK;
    const char *text = NULL;
    driver->error_string(result, &text);
    return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, tvm_status_advice(TVM_NO_DEVICE),
                        "the CUDA driver cannot be used: %s (%d)", text ? text : "unknown error",
                        (int)result);
}

tvm_status tvm_cuda_driver_open(tvm_cuda_driver *driver, tvm_diags *diags) {
    *driver = (tvm_cuda_driver){0};
    /* NODELETE: the driver's own threads outlive a dlclose. */
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!driver->library) {
        const char *reason = dlerror();
        bool absent = !reason || strstr(reason, "No such file");
        return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, NULL, "there is no CUDA driver: %s",
                            absent ? "libcuda.so.1 is not installed" : reason);
    }
    tvm_status status = find_functions(driver, diags);
    if (!status) status = initialise(driver, diags);
    if (status) tvm_cuda_driver_close(driver);
    return status;
}

void tvm_cuda_driver_close(tvm_cuda_driver *driver) {
    if (driver->library) dlclose(driver->library);
    *driver = (tvm_cuda_driver){0};
}

/* What the driver's errors are to a caller; all others are TVM_DRIVER. The advice is that of the status where
 * a row has none. Numbers stand for errors that the cuda.h of CUDA 11.4 does not name yet. */
static const struct error_row {
    int error;
    tvm_status status;
    const char *advice;
} error_rows[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, TVM_DEVICE_MEMORY, NULL},
    {CUDA_ERROR_DEINITIALIZED, TVM_CONTEXT, "the process is ending: the driver takes no more calls"},
    {36 /* CALL_REQUIRES_NEWER_DRIVER */, TVM_DRIVER_OLD, NULL},
    {46 /* DEVICE_UNAVAILABLE */, TVM_NO_DEVICE,
     "another process has the GPU for itself, or an earlier error made it unavailable: see nvidia-smi -q"},
    {CUDA_ERROR_NO_DEVICE, TVM_NO_DEVICE, NULL},
    {CUDA_ERROR_INVALID_IMAGE, TVM_IMAGE, NULL},
    {CUDA_ERROR_INVALID_CONTEXT, TVM_CONTEXT, NULL},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, TVM_IMAGE, NULL},
    {CUDA_ERROR_ECC_UNCORRECTABLE, TVM_DEVICE_LOST, NULL},
    {CUDA_ERROR_INVALID_PTX, TVM_IMAGE, NULL},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, TVM_DEVICE_LOST, NULL},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, TVM_NO_PTXAS, NULL},
    {222 /* UNSUPPORTED_PTX_VERSION */, TVM_DRIVER_OLD, NULL},
    {226 /* CONTAINED */, TVM_FAULT, NULL},
    {CUDA_ERROR_INVALID_HANDLE, TVM_DRIVER,
     "the stream, or the context that it was made in, was destroyed, or is not that of the tvm_context"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, TVM_FAULT, NULL},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, TVM_RESOURCES, NULL},
    {CUDA_ERROR_LAUNCH_TIMEOUT, TVM_TIMEOUT, NULL},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, TVM_CONTEXT, NULL},
    {CUDA_ERROR_ASSERT, TVM_FAULT, NULL},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, TVM_FAULT, NULL},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, TVM_FAULT, NULL},
    {CUDA_ERROR_MISALIGNED_ADDRESS, TVM_FAULT, NULL},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, TVM_FAULT, NULL},
    {CUDA_ERROR_INVALID_PC, TVM_FAULT, NULL},
    {CUDA_ERROR_LAUNCH_FAILED, TVM_FAULT, NULL},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, TVM_RESOURCES, NULL},
    {721 /* TENSOR_MEMORY_LEAK */, TVM_FAULT, NULL},
    {912 /* INVALID_CLUSTER_SIZE */, TVM_RESOURCES, NULL},
};

static const struct error_row *row_of(CUresult result) {
    static const struct error_row other = {.status = TVM_DRIVER};
    for (size_t i = 0; i < sizeof error_rows / sizeof *error_rows; i++)
        if (error_rows[i].error == (int)result) return &error_rows[i];
    return &other;
}

tvm_status tvm_cuda_status(CUresult result) {
    return result == CUDA_SUCCESS ? TVM_OK : row_of(result)->status;
}

tvm_status tvm_cuda_check(const tvm_cuda_driver *driver, CUresult result, const char *call,
                          const char *kernel, unsigned turns, tvm_diags *diags) {
    if (result == CUDA_SUCCESS) return TVM_OK;
    const struct error_row *row = row_of(result);
    const char *advice = row->advice ? row->advice : tvm_status_advice(row->status);
    const char *name = NULL, *text = NULL;
    driver->error_name(result, &name);
    driver->error_string(result, &text);
    if (!name) name = "unknown error";
    if (!text) text = "unknown to this driver";
    char limit[96] = "";
    if (kernel && turns)
        snprintf(limit, sizeof limit, ", which ends so, too, where its budget of %u turns is used up", turns);
    if (row->status == TVM_FAULT || row->status == TVM_TIMEOUT)
        return tvm_diag_add(diags, row->status, NULL, advice, "%s, seen by %s: %s (%d): %s%s%s%s%s",
                            tvm_status_text(row->status), call, name, (int)result, text,
                            kernel ? "; the kernel launched last is '" : "", kernel ? kernel : "",
                            kernel ? "'" : "", limit);
    return tvm_diag_add(diags, row->status, NULL, advice, "%s: %s failed: %s (%d): %s",
                        tvm_status_text(row->status), call, name, (int)result, text);
}

#endif /* HAVE_CUDA_H */
