/* Tensors in GGUF files, versions 2 and 3, of little-endian machines: ggml, docs/gguf.md. A head of counts;
 * pairs of keys and typed values; of each tensor name, extents, type and place; the data, from a multiple of
 * the alignment on. Sizes of blocks: ggml, src/ggml-common.h. */
#ifndef TVM_VM_GGUF_H
#define TVM_VM_GGUF_H

#include "diag.h"
#include "types.h"

enum { TVM_GGUF_RANK = 4, TVM_GGUF_NAME_MAX = 256 };

/* A type of tensors: `weights` weights that follow one another are `bytes` bytes. */
typedef struct tvm_gguf_type {
    uint32_t number;
    const char *name; /* "Q4_K" */
    unsigned weights, bytes;
    tvm_dtype type; /* of those that are numbers of a standard type; else kind TVM_KIND_NONE */
} tvm_gguf_type;

typedef struct tvm_gguf_tensor {
    char name[TVM_GGUF_NAME_MAX]; /* printable ASCII */
    const tvm_gguf_type *type;
    unsigned rank;
    uint64_t shape[TVM_GGUF_RANK]; /* the extent along which weights follow one another is the last */
    uint64_t offset;               /* of the data in the file */
    uint64_t bytes;
} tvm_gguf_tensor;

/* A key and its value, which lie in the file. */
typedef struct tvm_gguf_pair {
    const uint8_t *key, *value; /* value: behind the types, and of an array behind its count */
    uint64_t key_bytes, count;  /* count: of an array's elements */
    uint32_t type, element;     /* element: of an array */
} tvm_gguf_pair;

typedef struct tvm_gguf {
    tvm_gguf_tensor *tensors; /* in the order of their data */
    size_t tensor_count;
    tvm_gguf_pair *pairs;
    size_t pair_count;
} tvm_gguf;

/* Does the file begin as GGUF files do? */
bool tvm_gguf_is(const uint8_t *bytes, size_t size);

/* Reads the head of the file's bytes, which stay where they are as long as `out` is used, and checks that the
 * tensors are all there, aligned, and each for itself. `path` is named in diagnostics. TVM_FORMAT for
 * anything malformed, TVM_UNSUPPORTED for other versions, types that are not known and files in parts.
 * Release with tvm_gguf_free in any case. */
tvm_status tvm_gguf_read(const uint8_t *bytes, size_t size, const char *path, tvm_gguf *out,
                         tvm_diags *diags);
void tvm_gguf_free(tvm_gguf *file);

/* The text, or the whole number, that a key has: false where there is no such key, or it has something else.
 * A text that is not printable ASCII, or does not fit, is none. */
bool tvm_gguf_text(const tvm_gguf *file, const char *key, char *text, size_t size);
bool tvm_gguf_number(const tvm_gguf *file, const char *key, uint64_t *number);

#endif
