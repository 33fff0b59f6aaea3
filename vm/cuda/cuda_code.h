/* Inside the CUDA device: a program's code. */
#ifndef TVM_VM_CUDA_CODE_H
#define TVM_VM_CUDA_CODE_H

#include "cuda_device.h"
#include "cuda_scratch.h"
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

/* The parameters of one launch, each at its offset. */
typedef struct cuda_params {
    _Alignas(TVM_ABI_TENSOR_MAP_ALIGNMENT) uint8_t bytes[TVM_ABI_PARAM_BYTES];
    void *addresses[TVM_ABI_PARAMS];
} cuda_params;

/* The pool that the tensor comes from whose address a parameter is; CUDA_SCRATCH_POOLS: it is no such
 * address. */
static inline int tvm_cuda_pool_of(const tvm_abi_param *param) {
    if (param->kind == TVM_ABI_SCRATCH) return CUDA_SCRATCH_UNDEFINED;
    return param->kind == TVM_ABI_SCRATCH_CLEAN ? CUDA_SCRATCH_CLEAN : CUDA_SCRATCH_POOLS;
}

/* Loads the kernel; fails where it is not for this GPU. The CUDA context is current. */
tvm_status tvm_cuda_ensure(cuda_code *code, uint32_t kernel, tvm_diags *diags);
/* What the limits of the context ask of the code and of the GPU. `together`: all blocks have to run at a
 * time. */
tvm_status tvm_cuda_check_limits(const cuda_code *code, const tvm_device_launch *launch, bool together,
                                 tvm_diags *diags);
/* The parameters of a checked launch of loaded code. `places`: where its own tensors begin, in the order of
 * the rows that are their addresses. */
tvm_status tvm_cuda_fill_params(const cuda_code *code, const tvm_device_launch *launch,
                                const CUdeviceptr places[TVM_MAX_LAUNCH_TENSORS], cuda_params *params,
                                tvm_diags *diags);

/* cuda_trace.c: the timeline's span of a launch, around what puts it on the stream; NULL: there is none to be
 * made. The name is one of the device's. */
typedef struct cuda_traced cuda_traced;
cuda_traced *tvm_cuda_trace_launch(cuda_device *device, const char *name, CUstream stream);
void tvm_cuda_trace_launched(cuda_device *device, cuda_traced *traced);

#endif
