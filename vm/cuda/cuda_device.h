/* Inside the CUDA device: the open device and what its files share. */
#ifndef TVM_VM_CUDA_DEVICE_H
#define TVM_VM_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "codegen.h"
#include "cuda_driver.h"
#include "device.h"
#include "observe.h"

/* Names outlive the programs they come from: a fault may be seen after its program was freed. */
typedef struct cuda_name {
    struct cuda_name *next;
    char text[];
} cuda_name;

typedef struct cuda_scratch cuda_scratch;

typedef struct cuda_device {
    tvm_cuda_driver driver;
    CUdevice device;
    CUcontext context;
    bool primary; /* the context is the device's primary one, retained */
    tvm_target target;
    unsigned capability; /* 10 major + minor */
    uint32_t multiprocessors;
    char target_name[16];
    tvm_cache *cache;
    tvm_observer *observer;
    pthread_mutex_t lock;            /* of names and of warning being set */
    cuda_name *names;                /* of kernels */
    pthread_mutex_t scratch_lock;    /* of scratch memory being made */
    _Atomic(cuda_scratch *) scratch; /* cuda_scratch.h: the first of a list */
    _Atomic(const char *) launched;  /* the name of the kernel launched last */
    atomic_uint turns;               /* the limit of turns that it had; 0: none */
    _Atomic(char *) warning;
    char name[320];
    struct cuda_trace *trace; /* cuda_trace.c */
} cuda_device;

/* Makes the device's context current for this thread if it is not; *pushed is what cuda_leave is to be given.
 */
tvm_status tvm_cuda_enter(cuda_device *device, bool *pushed, tvm_diags *diags);
void tvm_cuda_leave(cuda_device *device, bool pushed);

/* tvm_cuda_check with the kernel launched last. */
tvm_status tvm_cuda_result(cuda_device *device, CUresult result, const char *call, tvm_diags *diags);

/* The device's own copy of a kernel's name; NULL when out of memory. */
const char *tvm_cuda_intern(cuda_device *device, const char *name);
/* Keeps the first warning of the device's life. */
void tvm_cuda_warn(cuda_device *device, const tvm_diags *warnings);

/* cuda_trace.c: the timeline; members of tvm_device_ops. */
tvm_status tvm_cuda_trace_begin(void *device, tvm_diags *diags);
tvm_status tvm_cuda_trace_end(void *device, tvm_diags *diags);

/* cuda_code.c: programs on the device; the members of tvm_device_ops. */
tvm_status tvm_cuda_code_open(void *device, const tvm_ir_program *program, bool counts_turns, void **code,
                              tvm_diags *diags);
void tvm_cuda_code_close(void *code);
uint64_t tvm_cuda_shared_bytes(const void *code);
tvm_status tvm_cuda_shared_need(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags);
tvm_status tvm_cuda_prepare(void *code, uint32_t kernel, tvm_diags *diags);
tvm_status tvm_cuda_describe(void *code, uint32_t kernel, tvm_kernel_info *info, tvm_diags *diags);
const char *tvm_cuda_code_origin(const void *code);
tvm_status tvm_cuda_launch(void *code, const tvm_device_launch *launch, tvm_diags *diags);
tvm_status tvm_cuda_reserve(void *code, const tvm_device_launch *launch, tvm_diags *diags);
tvm_status tvm_cuda_time(void *code, const tvm_device_launch *launches, unsigned count, unsigned repeats,
                         double *microseconds, tvm_diags *diags);

#endif
