/* The check of the tensors that callers describe. */
#ifndef TVM_VM_TENSOR_H
#define TVM_VM_TENSOR_H

#include "runtime.h"

/* Is the first element at an address: data and byte_offset do not lie more than all memory apart? */
static inline bool tvm_tensor_is_addressable(const tvm_tensor *tensor) {
    return tensor->byte_offset <= UINTPTR_MAX - (uintptr_t)tensor->data;
}

/* The address of the first element; NULL where it has none. */
static inline void *tvm_tensor_data(const tvm_tensor *tensor) {
    bool has = tensor->data && tvm_tensor_is_addressable(tensor);
    return has ? (char *)tensor->data + tensor->byte_offset : NULL;
}

/* The type as callers have it: that of DLPack, else (elements narrower than a byte) uint8, of which the last
 * dimension has as many as its elements take. */
tvm_tensor_dtype tvm_tensor_type(tvm_dtype type);

/* Is the tensor what parameter `param` declares, whose extents are `shape`: type, shape, on the context's
 * device, with the strides declared, or (NULL) row-major and contiguous, then also as one dimension?
 * TVM_ARGUMENT with the parameter, what is expected and what was found. */
tvm_status tvm_tensor_check(const tvm_kernel *function, uint32_t param, const int64_t shape[TVM_MAX_RANK],
                            const int64_t *stride, const tvm_tensor *tensor, tvm_diags *diags);

#endif
