/* A graph as one persistent kernel (codegen/persistent.h): its code, and its memory: rows with the launches'
 * parameters, waits and counters. */
#ifndef TVM_VM_CUDA_TAPE_H
#define TVM_VM_CUDA_TAPE_H

#include "cuda_code.h"
#include "persistent.h"

#if CUDA_VERSION >= 12000

typedef struct cuda_tape {
    cuda_device *device;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory, times; /* times: of tasks, as codegen/persistent.h; 0: they are not noted */
    uint32_t threads, shared_bytes, workers, row_bytes;
    tvm_persistent_params params;
    void *addresses[6]; /* of the parameters */
} cuda_tape;

/* Makes the persistent kernel of the launches, which are loaded and have blocks where the tape has tasks of
 * them; launch i takes params[i]. The CUDA context is current. */
tvm_status tvm_cuda_tape_make(cuda_device *device, const tvm_device_node *nodes, uint32_t count,
                              const tvm_tape *tape, const cuda_params *params, cuda_tape **made,
                              tvm_diags *diags);
/* As a node of a CUDA graph, which is to be cooperative. */
CUDA_KERNEL_NODE_PARAMS tvm_cuda_tape_node(cuda_tape *tape);
/* Of a kernel that does not run; NULL is fine. The CUDA context is current. */
void tvm_cuda_tape_free(cuda_tape *tape);

#endif
#endif
