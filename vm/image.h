/* A program made ready for a GPU target: what a launch needs to know of each kernel, and the code for the
 * driver. Comes from the cache, else from the code generator and ptxas. */
#ifndef TVM_VM_IMAGE_H
#define TVM_VM_IMAGE_H

#include "cache.h"
#include "codegen.h"
#include "observe.h"

typedef struct tvm_image_kernel {
    uint32_t threads;
    uint32_t shared_bytes; /* dynamic shared memory of a launch */
} tvm_image_kernel;

typedef struct tvm_image {
    const tvm_image_kernel *kernels; /* in the program's order */
    uint32_t kernel_count;
    bool ptx;         /* code is PTX text for the driver's own compiler, for want of a ptxas; else a cubin */
    const void *code; /* 16-byte aligned, NUL-terminated */
    size_t code_size; /* without the NUL */
    uint8_t *bytes;   /* what the above points into */
    bool cached;
    tvm_cache_key key;
} tvm_image;

/* cache and observer may be NULL. Trouble with the cache goes to *warnings and stops nothing. */
tvm_status tvm_image_make(const tvm_ir_program *program, tvm_target target, const tvm_cache *cache,
                          tvm_observer *observer, tvm_image *image, tvm_diags *warnings, tvm_diags *diags);
void tvm_image_free(tvm_image *image);

#endif
