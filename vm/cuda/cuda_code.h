/* Inside the CUDA device: a program's code. */
#ifndef TVM_VM_CUDA_CODE_H
#define TVM_VM_CUDA_CODE_H

#include "cuda_device.h"
#include "cuda_tensor_map.h"
#include "image.h"

typedef struct cuda_kernel {
    CUfunction function;
    const char *name; /* the device's copy */
    tvm_kernel_abi abi;
    cuda_tensor_maps *maps; /* NULL: it takes none */
} cuda_kernel;

typedef struct cuda_code {
    cuda_device *device;
    const tvm_ir_program *program;
    pthread_mutex_t lock; /* of loading */
    atomic_bool loaded;
    CUmodule module;
    char origin[TVM_IMAGE_ORIGIN_MAX]; /* where the module comes from */
    cuda_kernel kernels[];
} cuda_code;

/* Makes the memory that the launch takes on the stream. */
tvm_status tvm_cuda_make_room(cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                              tvm_diags *diags);

/* Puts a checked launch of loaded code on a stream of the current CUDA context. */
tvm_status tvm_cuda_enqueue(cuda_code *code, const tvm_device_launch *launch, CUstream stream,
                            tvm_diags *diags);

/* cuda_trace.c: the timeline's span of a launch, around tvm_cuda_enqueue; NULL: there is none to be made. */
typedef struct cuda_traced cuda_traced;
cuda_traced *tvm_cuda_trace_launch(cuda_code *code, const tvm_device_launch *launch);
void tvm_cuda_trace_launched(cuda_device *device, cuda_traced *traced);

#endif
