/* Scratch memory by stream. Owners are found without a lock: the list only grows, and an owner's memory is
 * replaced as a whole by a larger block. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_scratch.h"

#include <stdlib.h>

/* Growing doubles, so that all blocks ever made for a stream take less than twice the last one. */
enum { GRANULE = 1 << 16, GROWTH = 2 };

typedef struct scratch_block {
    struct scratch_block *older;
    CUdeviceptr address;
    uint64_t bytes;
} scratch_block;

struct cuda_scratch {
    struct cuda_scratch *next;
    _Atomic(uintptr_t) stream;
    uintptr_t thread; /* see key_of */
    const void *code; /* of clean memory: the program's; else NULL */
    _Atomic(scratch_block *) newest;
};

/* No stream: the owner may be given to another one. */
#define NO_STREAM UINTPTR_MAX

typedef struct scratch_key {
    uintptr_t stream, thread;
    const void *code;
} scratch_key;

/* One handle stands for the default stream of every thread that uses it. */
static scratch_key key_of(CUstream stream, unsigned pool, const void *code) {
    bool per_thread = stream == CU_STREAM_PER_THREAD;
    return (scratch_key){(uintptr_t)stream, per_thread ? (uintptr_t)pthread_self() : 0,
                         pool == CUDA_SCRATCH_CLEAN ? code : NULL};
}

static cuda_scratch *find(cuda_device *device, scratch_key key) {
    cuda_scratch *owner = atomic_load_explicit(&device->scratch, memory_order_acquire);
    while (owner && (atomic_load_explicit(&owner->stream, memory_order_acquire) != key.stream ||
                     owner->thread != key.thread || owner->code != key.code))
        owner = owner->next;
    return owner;
}

static bool address_of(cuda_device *device, scratch_key key, uint64_t bytes, CUdeviceptr *address) {
    *address = 0;
    if (!bytes) return true;
    cuda_scratch *owner = find(device, key);
    const scratch_block *block = owner ? atomic_load_explicit(&owner->newest, memory_order_acquire) : NULL;
    if (!block || block->bytes < bytes) return false;
    *address = block->address;
    return true;
}

/* ---- making; the lock is held ---- */

static cuda_scratch *add_owner(cuda_device *device, scratch_key key) {
    cuda_scratch *owner = find(device, (scratch_key){NO_STREAM, 0, key.code});
    if (owner && !key.thread) {
        atomic_store_explicit(&owner->stream, key.stream, memory_order_release);
        return owner;
    }
    owner = calloc(1, sizeof *owner);
    if (!owner) return NULL;
    owner->thread = key.thread;
    owner->code = key.code;
    atomic_init(&owner->stream, key.stream);
    owner->next = atomic_load_explicit(&device->scratch, memory_order_relaxed);
    atomic_store_explicit(&device->scratch, owner, memory_order_release);
    return owner;
}

/* Zeros that every stream sees. */
static tvm_status clear_on(cuda_device *device, CUstream stream, const scratch_block *block,
                           tvm_diags *diags) {
    CUresult result = device->driver.memory_set(block->address, 0, block->bytes, stream);
    if (result) return tvm_cuda_result(device, result, "cuMemsetD8Async", diags);
    return tvm_cuda_result(device, device->driver.stream_synchronize(stream), "cuStreamSynchronize", diags);
}

/* What is captured is not done: then a stream of its own clears. */
static tvm_status clear(cuda_device *device, CUstream stream, bool capturing, const scratch_block *block,
                        tvm_diags *diags) {
    if (!capturing) return clear_on(device, stream, block, diags);
    CUstream own;
    CUresult result = device->driver.stream_create(&own, CU_STREAM_NON_BLOCKING);
    if (result) return tvm_cuda_result(device, result, "cuStreamCreate", diags);
    tvm_status status = clear_on(device, own, block, diags);
    device->driver.stream_destroy(own);
    return status;
}

static tvm_status add_block(cuda_device *device, CUstream stream, bool capturing, cuda_scratch *owner,
                            uint64_t bytes, tvm_diags *diags) {
    scratch_block *old = atomic_load_explicit(&owner->newest, memory_order_relaxed);
    if (old && old->bytes >= bytes) return TVM_OK; /* another thread was here first */
    scratch_block *block = calloc(1, sizeof *block);
    if (!block) return tvm_diag_no_memory(diags);
    block->older = old;
    block->bytes = old && GROWTH * old->bytes > bytes ? GROWTH * old->bytes : bytes;
    block->bytes = (block->bytes + (GRANULE - 1)) / GRANULE * GRANULE;
    CUresult result = device->driver.memory_alloc(&block->address, block->bytes);
    tvm_status status = TVM_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status =
            tvm_diag_add(diags, TVM_DEVICE_MEMORY, NULL, NULL,
                         "out of memory on the GPU: %llu bytes for the tensors of a launch cannot be had",
                         (unsigned long long)block->bytes);
    else
        status = tvm_cuda_result(device, result, "cuMemAlloc", diags);
    if (status) {
        free(block);
        return status;
    }
    if (owner->code) status = clear(device, stream, capturing, block, diags);
    if (status) {
        device->driver.memory_free(block->address);
        free(block);
        return status;
    }
    atomic_store_explicit(&owner->newest, block, memory_order_release);
    return TVM_OK;
}

static tvm_status add_blocks(cuda_device *device, CUstream stream, bool capturing, const void *code,
                             const uint64_t bytes[CUDA_SCRATCH_POOLS], tvm_diags *diags) {
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&device->scratch_lock);
    for (unsigned p = 0; !status && p < CUDA_SCRATCH_POOLS; p++) {
        scratch_key key = key_of(stream, p, code);
        if (!bytes[p]) continue;
        cuda_scratch *owner = find(device, key);
        if (!owner) owner = add_owner(device, key);
        status =
            owner ? add_block(device, stream, capturing, owner, bytes[p], diags) : tvm_diag_no_memory(diags);
    }
    pthread_mutex_unlock(&device->scratch_lock);
    return status;
}

/* While a stream is being captured, too: allocating and clearing are no part of the graph, which the thread
 * has to say by its capture mode. */
static tvm_status make(cuda_device *device, CUstream stream, const void *code,
                       const uint64_t bytes[CUDA_SCRATCH_POOLS], tvm_diags *diags) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = device->driver.stream_capturing(stream, &capturing);
    if (result) return tvm_cuda_result(device, result, "cuStreamIsCapturing", diags);
    result = device->driver.capture_mode(&mode);
    if (result) return tvm_cuda_result(device, result, "cuThreadExchangeStreamCaptureMode", diags);
    tvm_status status =
        add_blocks(device, stream, capturing != CU_STREAM_CAPTURE_STATUS_NONE, code, bytes, diags);
    device->driver.capture_mode(&mode);
    return status;
}

tvm_status tvm_cuda_scratch_get(cuda_device *device, CUstream stream, const void *code,
                                const uint64_t bytes[CUDA_SCRATCH_POOLS],
                                CUdeviceptr address[CUDA_SCRATCH_POOLS], tvm_diags *diags) {
    for (bool made = false;; made = true) {
        bool there = true;
        for (unsigned p = 0; there && p < CUDA_SCRATCH_POOLS; p++)
            there = address_of(device, key_of(stream, p, code), bytes[p], &address[p]);
        if (there) return TVM_OK;
        if (made)
            return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "the stream was destroyed during a launch");
        tvm_status status = make(device, stream, code, bytes, diags);
        if (status) return status;
    }
}

/* ---- freeing ---- */

static void free_blocks(cuda_device *device, cuda_scratch *owner) {
    scratch_block *block = atomic_exchange(&owner->newest, NULL);
    while (block) {
        scratch_block *older = block->older;
        device->driver.memory_free(block->address);
        free(block);
        block = older;
    }
}

/* Frees what the owners of this stream and program have, NO_STREAM or NULL for any. */
static void drop(cuda_device *device, scratch_key key) {
    pthread_mutex_lock(&device->scratch_lock);
    for (cuda_scratch *owner = atomic_load(&device->scratch); owner; owner = owner->next) {
        if (key.stream != NO_STREAM &&
            (atomic_load(&owner->stream) != key.stream || owner->thread != key.thread))
            continue;
        if (key.code && owner->code != key.code) continue;
        free_blocks(device, owner);
        if (!owner->thread) atomic_store_explicit(&owner->stream, NO_STREAM, memory_order_release);
    }
    pthread_mutex_unlock(&device->scratch_lock);
}

void tvm_cuda_scratch_drop(cuda_device *device, CUstream stream) {
    drop(device, key_of(stream, CUDA_SCRATCH_UNDEFINED, NULL));
}

void tvm_cuda_scratch_forget(cuda_device *device, const void *code) {
    drop(device, (scratch_key){NO_STREAM, 0, code});
}

void tvm_cuda_scratch_free(cuda_device *device) {
    cuda_scratch *owner = atomic_load(&device->scratch);
    while (owner) {
        cuda_scratch *next = owner->next;
        free_blocks(device, owner);
        free(owner);
        owner = next;
    }
    atomic_store(&device->scratch, NULL);
}

#endif /* HAVE_CUDA_H */
