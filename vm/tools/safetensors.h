/* Tensors in .safetensors files: https://github.com/huggingface/safetensors, "Format". Eight bytes of the
 * header's length, little-endian; the header, a JSON object of names; the data, every byte of it some
 * tensor's. */
#ifndef TVM_VM_SAFETENSORS_H
#define TVM_VM_SAFETENSORS_H

#include "diag.h"
#include "layout.h"
#include "types.h"

enum { TVM_SAFETENSORS_TEXT_MAX = 256, TVM_SAFETENSORS_HEADER_MAX = 100000000 };

typedef struct tvm_safetensor {
    char *name;
    char *dtype;    /* as written: "F16" */
    tvm_dtype type; /* kind TVM_KIND_NONE: of a type that is not known here */
    unsigned rank;
    uint64_t shape[TVM_MAX_RANK];
    uint64_t offset; /* of the data in the file */
    uint64_t bytes;
} tvm_safetensor;

typedef struct tvm_safetensors {
    tvm_safetensor *items; /* in the order of their data */
    size_t count;
    char **metadata;       /* key, value, key, value ... */
    size_t metadata_count; /* of pairs */
} tvm_safetensors;

/* Reads the header of the open file and checks that the tensors are all there: lengths, offsets without
 * overlap or gap, sizes that follow from type and shape. `path` is named in diagnostics. TVM_FORMAT for
 * anything malformed, TVM_UNSUPPORTED for ranks above TVM_MAX_RANK, TVM_IO. Release with tvm_safetensors_free
 * in any case. */
tvm_status tvm_safetensors_read(int descriptor, const char *path, tvm_safetensors *out, tvm_diags *diags);
void tvm_safetensors_free(tvm_safetensors *tensors);

/* NULL when there is none of that name; the message of *_need lists those that there are. */
const tvm_safetensor *tvm_safetensors_find(const tvm_safetensors *tensors, const char *name);
tvm_status tvm_safetensors_need(const tvm_safetensors *tensors, const char *path, const char *name,
                                const tvm_safetensor **tensor, tvm_diags *diags);
const char *tvm_safetensors_metadata(const tvm_safetensors *tensors, const char *key);

/* "F16 [16, 64]" */
const char *tvm_safetensor_text(const tvm_safetensor *tensor, char text[TVM_SAFETENSORS_TEXT_MAX]);

/* The name of a type in the format; NULL when it has none. */
const char *tvm_safetensors_type(tvm_dtype type);

/* The bytes of a file before its data, malloc'ed. Sets the tensors' offsets and bytes, in the order of the
 * items; of each the name, type, rank and shape are taken, and where the type is not known dtype and bytes. */
tvm_status tvm_safetensors_header(tvm_safetensors *tensors, uint8_t **header, size_t *size, tvm_diags *diags);

/* pread of all bytes. TVM_IO with the system's reason, TVM_FORMAT when the file ends before. */
tvm_status tvm_read_at(int descriptor, const char *path, void *bytes, size_t size, uint64_t offset,
                       tvm_diags *diags);

#endif
