/* Inside the CUDA device: a program's code. */
#ifndef TVM_VM_CUDA_CODE_H
#define TVM_VM_CUDA_CODE_H

#include "cuda_device.h"
#include "cuda_tensor_map.h"
#include "image.h"

typedef struct cuda_kernel {
    atomic_bool loaded;   /* what follows the lock is there */
    pthread_mutex_t lock; /* of loading it */
    CUmodule module;      /* its own; NULL: it is in the program's */
    CUfunction function;
    const char *name; /* the device's copy */
    bool waits;       /* its blocks wait for each other */
    tvm_kernel_abi abi;
    cuda_tensor_maps *maps; /* NULL: it takes none */
} cuda_kernel;

typedef struct cuda_code {
    cuda_device *device;
    const tvm_ir_program *program;
    bool counts_turns;
    pthread_mutex_t lock; /* of what follows, up to the kernels; taken after a kernel's */
    bool embedded_tried;
    CUmodule module; /* of what is embedded in the program; NULL: not loaded, or there is none that serves */
    atomic_bool told;
    char origin[TVM_IMAGE_ORIGIN_MAX]; /* where the first kernel that was loaded comes from */
    uint32_t locks;                    /* of kernels, that were made */
    cuda_kernel kernels[];
} cuda_code;

/* cuda_load.c: makes and loads a kernel, the first caller for all; other threads may load others meanwhile.
 * One that is not for the device is loaded with an absence for its ABI. The CUDA context is current. */
tvm_status tvm_cuda_load(cuda_code *code, uint32_t kernel, tvm_diags *diags);
void tvm_cuda_unload(cuda_code *code);

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
