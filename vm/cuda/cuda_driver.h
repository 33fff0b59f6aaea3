/* The CUDA driver, opened at run time: one binary works with and without it. */
#ifndef TVM_VM_CUDA_DRIVER_H
#define TVM_VM_CUDA_DRIVER_H

#include <cuda.h>

#include "diag.h"

/* A row a function: member, the declaration in cuda.h that has its type, the symbol. Symbols are spelled out,
 * since the versions that cuda.h maps names to may be newer than the driver. All exist since CUDA 11.4. */
#define TVM_CUDA_FUNCTIONS(X)                                                                                \
    X(init, cuInit, "cuInit")                                                                                \
    X(error_name, cuGetErrorName, "cuGetErrorName")                                                          \
    X(error_string, cuGetErrorString, "cuGetErrorString")                                                    \
    X(device_count, cuDeviceGetCount, "cuDeviceGetCount")                                                    \
    X(device_get, cuDeviceGet, "cuDeviceGet")                                                                \
    X(device_name, cuDeviceGetName, "cuDeviceGetName")                                                       \
    X(device_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute")                                        \
    X(primary_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                  \
    X(primary_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")                            \
    X(context_get, cuCtxGetCurrent, "cuCtxGetCurrent")                                                       \
    X(context_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                                 \
    X(context_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                                    \
    X(context_device, cuCtxGetDevice, "cuCtxGetDevice")                                                      \
    X(context_synchronize, cuCtxSynchronize, "cuCtxSynchronize")                                             \
    X(module_load, cuModuleLoadDataEx, "cuModuleLoadDataEx")                                                 \
    X(module_unload, cuModuleUnload, "cuModuleUnload")                                                       \
    X(module_function, cuModuleGetFunction, "cuModuleGetFunction")                                           \
    X(function_get, cuFuncGetAttribute, "cuFuncGetAttribute")                                                \
    X(function_set, cuFuncSetAttribute, "cuFuncSetAttribute")                                                \
    X(launch, cuLaunchKernel, "cuLaunchKernel")                                                              \
    X(launch_together, cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel")                               \
    X(active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                            \
      "cuOccupancyMaxActiveBlocksPerMultiprocessor")                                                         \
    X(memory_alloc, cuMemAlloc, "cuMemAlloc_v2")                                                             \
    X(memory_free, cuMemFree, "cuMemFree_v2")                                                                \
    X(memory_write, cuMemcpyHtoD, "cuMemcpyHtoD_v2")                                                         \
    X(memory_read, cuMemcpyDtoH, "cuMemcpyDtoH_v2")                                                          \
    X(memory_set, cuMemsetD8Async, "cuMemsetD8Async")                                                        \
    X(stream_create, cuStreamCreate, "cuStreamCreate")                                                       \
    X(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2")                                                 \
    X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize")                                        \
    X(stream_capturing, cuStreamIsCapturing, "cuStreamIsCapturing")                                          \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode")                  \
    X(capture_begin, cuStreamBeginCapture, "cuStreamBeginCapture_v2")                                        \
    X(capture_end, cuStreamEndCapture, "cuStreamEndCapture")                                                 \
    X(graph_instantiate, cuGraphInstantiate, "cuGraphInstantiateWithFlags")                                  \
    X(graph_launch, cuGraphLaunch, "cuGraphLaunch")                                                          \
    X(graph_destroy, cuGraphDestroy, "cuGraphDestroy")                                                       \
    X(graph_exec_destroy, cuGraphExecDestroy, "cuGraphExecDestroy")                                          \
    X(event_create, cuEventCreate, "cuEventCreate")                                                          \
    X(event_destroy, cuEventDestroy, "cuEventDestroy_v2")                                                    \
    X(event_record, cuEventRecord, "cuEventRecord")                                                          \
    X(event_synchronize, cuEventSynchronize, "cuEventSynchronize")                                           \
    X(event_elapsed, cuEventElapsedTime, "cuEventElapsedTime")

/* The same for functions that a driver, or the cuda.h of the build, may lack, which are then NULL. */
#if CUDA_VERSION >= 11080
#define TVM_CUDA_FUNCTIONS_11_8(X)                                                                           \
    X(launch_with, cuLaunchKernelEx, "cuLaunchKernelEx")                                                     \
    X(active_clusters, cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters")
#else
#define TVM_CUDA_FUNCTIONS_11_8(X)
#endif
#if CUDA_VERSION >= 12000
#define TVM_CUDA_FUNCTIONS_12_0(X)                                                                           \
    X(tensor_map_encode, cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled")                                   \
    X(graph_create, cuGraphCreate, "cuGraphCreate")                                                          \
    X(graph_add_kernel, cuGraphAddKernelNode, "cuGraphAddKernelNode_v2")                                     \
    X(graph_add_empty, cuGraphAddEmptyNode, "cuGraphAddEmptyNode")                                           \
    X(graph_node_attribute, cuGraphKernelNodeSetAttribute, "cuGraphKernelNodeSetAttribute")                  \
    X(graph_set_kernel, cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2")
#else
#define TVM_CUDA_FUNCTIONS_12_0(X)
#endif
#if CUDA_VERSION >= 12030
#define TVM_CUDA_FUNCTIONS_12_3(X) X(graph_depend, cuGraphAddDependencies_v2, "cuGraphAddDependencies_v2")
#else
#define TVM_CUDA_FUNCTIONS_12_3(X)
#endif
#define TVM_CUDA_OPTIONAL_FUNCTIONS(X)                                                                       \
    TVM_CUDA_FUNCTIONS_11_8(X) TVM_CUDA_FUNCTIONS_12_0(X) TVM_CUDA_FUNCTIONS_12_3(X)

typedef struct tvm_cuda_driver {
    void *library;
#define TVM_CUDA_MEMBER(member, function, symbol) __typeof__(function) *member;
    TVM_CUDA_FUNCTIONS(TVM_CUDA_MEMBER)
    TVM_CUDA_OPTIONAL_FUNCTIONS(TVM_CUDA_MEMBER)
#undef TVM_CUDA_MEMBER
} tvm_cuda_driver;

/* Opens libcuda.so.1 and initialises it. TVM_NO_DEVICE when there is none, it is too old, or it finds no GPU.
 */
tvm_status tvm_cuda_driver_open(tvm_cuda_driver *driver, tvm_diags *diags);
void tvm_cuda_driver_close(tvm_cuda_driver *driver);

/* The status that a caller gets for the result of a driver call: TVM_OK for CUDA_SUCCESS; the statuses of
 * tvm_status.h from TVM_FAULT on for what a caller can act upon; else TVM_DRIVER. */
tvm_status tvm_cuda_status(CUresult result);

/* The same with a diagnostic: the call, the driver's name and text of the error, and what to do. A fault or
 * timeout is that of a kernel that ran before: it comes with the name of `kernel`, the one launched last (may
 * be NULL), and its limit of turns (0: it had none). */
tvm_status tvm_cuda_check(const tvm_cuda_driver *driver, CUresult result, const char *call,
                          const char *kernel, unsigned turns, tvm_diags *diags);

#endif
