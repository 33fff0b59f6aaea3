/* Scratch memory on a GPU: the memory of the tensors that kernels allocate for a launch. It belongs to a
 * stream, so that launches that may overlap never share it; launches on one stream follow each other. Clean
 * memory belongs to one program, so that no other finds what a program leaves in it. Blocks of memory are
 * kept until the device is closed, clean ones until their program is freed, since launches under way and
 * captured graphs hold their addresses. */
#ifndef TVM_VM_CUDA_SCRATCH_H
#define TVM_VM_CUDA_SCRATCH_H

#include "cuda_device.h"

/* Clean memory is zero between launches; other scratch memory is undefined. */
enum { CUDA_SCRATCH_UNDEFINED, CUDA_SCRATCH_CLEAN, CUDA_SCRATCH_POOLS };

/* Addresses, 256-byte aligned, of at least bytes[i] bytes of each pool for launches of a program (which
 * `code` stands for) on the stream (0 for 0 bytes). Where the memory is there already nothing is locked or
 * allocated. Otherwise the function allocates it and waits for the stream, or, while that is being captured,
 * for a stream of its own; it fails with TVM_DEVICE_MEMORY. The CUDA context is current. */
tvm_status tvm_cuda_scratch_get(cuda_device *device, CUstream stream, const void *code,
                                const uint64_t bytes[CUDA_SCRATCH_POOLS],
                                CUdeviceptr address[CUDA_SCRATCH_POOLS], tvm_diags *diags);

/* Frees the memory of a stream that is about to be destroyed and on which nothing runs. */
void tvm_cuda_scratch_drop(cuda_device *device, CUstream stream);

/* Frees the clean memory of a program that is about to be freed and of which nothing runs. The CUDA context
 * is current. */
void tvm_cuda_scratch_forget(cuda_device *device, const void *code);

/* Frees everything. The CUDA context is current. */
void tvm_cuda_scratch_free(cuda_device *device);

#endif
