/* The tensor maps of a kernel's launches, which describe tensors to TMA; they are made from a tensor's
 * address and extents as the kernel's ABI says. The maps of the last launches are kept, so that a launch with
 * the same tensors neither makes maps, allocates nor locks. */
#ifndef TVM_VM_CUDA_TENSOR_MAP_H
#define TVM_VM_CUDA_TENSOR_MAP_H

#include "cuda_device.h"

typedef struct cuda_tensor_maps cuda_tensor_maps;

/* Makes the cache of the maps of a kernel's ABI; NULL where it has none. The CUDA context is current.
 * TVM_UNSUPPORTED where the driver makes no tensor maps. */
tvm_status tvm_cuda_tensor_maps_open(cuda_device *device, const tvm_ir_program *program,
                                     const tvm_ir_kernel *kernel, const tvm_kernel_abi *abi,
                                     cuda_tensor_maps **maps, tvm_diags *diags);
/* Of a kernel of which no launch is under way; NULL is fine. The CUDA context is current. */
void tvm_cuda_tensor_maps_close(cuda_device *device, cuda_tensor_maps *maps);

/* Writes the TVM_ABI_TENSOR_MAP_BYTES of map number `map` of the ABI, for a tensor that begins at `address`.
 * TVM_ARGUMENT with the tensor and the rule that it breaks. */
tvm_status tvm_cuda_tensor_map_get(cuda_tensor_maps *maps, uint32_t map, uint64_t address,
                                   const tvm_launch_shapes *shapes, void *out, tvm_diags *diags);

#endif
