/* Stands for device_cuda.c in a build without cuda.h. */
#include "config.h"
#ifndef HAVE_CUDA_H

#include "device.h"

static tvm_status none_open(const tvm_context_options *options, tvm_observer *observer, void **device,
                            tvm_diags *diags) {
    (void)options, (void)observer, (void)device;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "configure --with-cuda=DIR names a CUDA toolkit",
                        "this build has no GPU support: it was built without cuda.h");
}

/* No device is ever opened, so that nothing else is called. */
const tvm_device_ops tvm_device_cuda = {.kind = TVM_DEVICE_CUDA, .open = none_open};

#endif
