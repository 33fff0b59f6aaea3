#include "native.h"

#include <dlfcn.h>
#include <string.h>

/* ---- the CUDA Driver API, of which these three functions have been the same since CUDA 2 ---- */

enum { SUCCESS = 0, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* CUdevice_attribute */

typedef struct driver {
    int (*init)(unsigned flags);
    int (*device)(int *device, int ordinal);
    int (*attribute)(int *value, int attribute, int device);
} driver;

static bool resolve(void *library, const char *symbol, void *function) {
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found); /* ISO C has no conversion of object to function pointers */
    return found != NULL;
}

static bool ask(void *library, int *major, int *minor) {
    driver d;
    int device;
    return resolve(library, "cuInit", &d.init) && resolve(library, "cuDeviceGet", &d.device) &&
           resolve(library, "cuDeviceGetAttribute", &d.attribute) && d.init(0) == SUCCESS &&
           d.device(&device, 0) == SUCCESS && d.attribute(major, CAPABILITY_MAJOR, device) == SUCCESS &&
           d.attribute(minor, CAPABILITY_MINOR, device) == SUCCESS;
}

tvm_status tvm_target_parse_native(const char *text, tvm_target *target, tvm_diags *diags) {
    int major, minor;
    if (strcmp(text, "native") != 0) return tvm_target_parse(text, target, diags);
    /* NODELETE: the driver's own threads outlive a dlclose. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool found = library && ask(library, &major, &minor);
    if (library) dlclose(library);
    if (found) return tvm_target_for_device(major, minor, target, diags);
    return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, "name the target, such as sm_90a",
                        "the target native is that of this machine's GPU: %s",
                        library ? "the CUDA driver sees none" : "there is no CUDA driver");
}
