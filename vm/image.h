/* A program made ready for a GPU: what a launch needs to know of each kernel, and the code for the driver. It
 * is embedded in the program, or comes from the cache, or from the code generator and a compiler of PTX. */
#ifndef TVM_VM_IMAGE_H
#define TVM_VM_IMAGE_H

#include "cache.h"
#include "codegen.h"
#include "observe.h"

typedef struct tvm_image_request {
    const tvm_ir_program *program;
    tvm_target target;      /* the best for the device */
    unsigned capability;    /* of the device: 10 major + minor */
    bool counts_turns;      /* the code counts them (codegen.h) */
    tvm_cache *cache;       /* may be NULL */
    tvm_observer *observer; /* may be NULL */
} tvm_image_request;

typedef enum tvm_image_source { TVM_IMAGE_MADE, TVM_IMAGE_CACHED, TVM_IMAGE_EMBEDDED } tvm_image_source;

typedef struct tvm_image {
    tvm_kernel_abi *kernels; /* in the program's order */
    uint32_t kernel_count;
    bool ptx;         /* code is PTX text for the driver's own compiler; else a cubin */
    const void *code; /* 16-byte aligned, NUL-terminated */
    size_t code_size; /* without the NUL */
    uint8_t *bytes;   /* what the above points into; NULL: the program */
    tvm_image_source source;
    tvm_target target;                   /* that it was made for */
    char made_by[TVM_IMAGE_MADE_BY_MAX]; /* of a cubin */
    tvm_cache_key key;
} tvm_image;

/* The code for a program is the first of these that exists: an embedded cubin for exactly the target; where a
 * cubin runs on the device and there is a compiler, a cubin from the cache or one compiled now; an embedded
 * cubin for a lower target that runs there; PTX for the driver, embedded if it is for the target or the
 * device is newer than the code generator knows. The program outlives the image. Problems of the cache, and
 * embedded code of another program or code generator, become *warnings and no failure.
 *
 * tvm_image_embedded gives what is embedded, where that is it, else an image without code; tvm_image_make the
 * rest. */
tvm_status tvm_image_embedded(const tvm_image_request *request, tvm_image *image, tvm_diags *warnings,
                              tvm_diags *diags);
tvm_status tvm_image_make(const tvm_image_request *request, tvm_image *image, tvm_diags *warnings,
                          tvm_diags *diags);
/* Compiles a module that is no single program's for the request's target and device, or takes the cubin from
 * the cache, by its PTX; the program of the request is not read. Leaves the cubin NULL where the driver is to
 * compile. */
tvm_status tvm_image_compile(const tvm_image_request *request, tvm_module *module, tvm_diags *warnings,
                             tvm_diags *diags);
void tvm_image_free(tvm_image *image);

enum { TVM_IMAGE_ORIGIN_MAX = 192 };
/* "cubin for sm_90a, from the cache, by nvJitLink 13.0". */
const char *tvm_image_origin(const tvm_image *image, char origin[TVM_IMAGE_ORIGIN_MAX]);

/* image_embedded.c: the embedded image of the wanted kind; false when there is none. `hash` is the program's.
 */
typedef enum tvm_embedded_kind {
    TVM_EMBEDDED_EXACT,  /* a cubin for the target */
    TVM_EMBEDDED_LOWER,  /* a cubin for another target that runs on the device */
    TVM_EMBEDDED_PTX_FOR /* PTX, as above */
} tvm_embedded_kind;
bool tvm_image_find_embedded(const tvm_image_request *request, const uint64_t hash[2], tvm_embedded_kind kind,
                             tvm_image *image);
/* Appends a warning of embedded code that can no longer be used, if there is any. */
void tvm_image_note_stale(const tvm_ir_program *program, const uint64_t hash[2], tvm_diags *warnings);

#endif
