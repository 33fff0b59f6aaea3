#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
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
    return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, NULL, "the CUDA driver cannot be used: %s (%d)",
                        text ? text : "unknown error", (int)result);
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

/* Errors that a kernel left behind; every later call in the CUDA context returns them again. */
static bool is_fault(CUresult result) {
    switch ((int)result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return true;
    default:
        return false;
    }
}

tvm_status tvm_cuda_check(const tvm_cuda_driver *driver, CUresult result, const char *call,
                          const char *kernel, tvm_diags *diags) {
    if (result == CUDA_SUCCESS) return TVM_OK;
    const char *name = NULL, *text = NULL;
    driver->error_name(result, &name);
    driver->error_string(result, &text);
    if (!name) name = "unknown error";
    if (!text) text = "unknown to this driver";
    if (is_fault(result))
        return tvm_diag_add(diags, TVM_FAULT, NULL, NULL, "kernel '%s' faulted on the GPU: %s: %s",
                            kernel ? kernel : "?", name, text);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return tvm_diag_add(diags, TVM_DEVICE_MEMORY, NULL, NULL, "%s: out of memory on the GPU (%s)", call,
                            name);
    return tvm_diag_add(diags, TVM_DRIVER, NULL, NULL, "%s failed: %s: %s", call, name, text);
}

#endif /* HAVE_CUDA_H */
