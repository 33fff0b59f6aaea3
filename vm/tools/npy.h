/* Arrays in .npy files: NEP 1, "A Simple File Format for NumPy Arrays", versions 1.0, 2.0 and 3.0;
 * little-endian; what is written is in C order. */
#ifndef TVM_VM_NPY_H
#define TVM_VM_NPY_H

#include "diag.h"
#include "layout.h"
#include "types.h"

enum {
    TVM_NPY_TEXT_MAX = 256,
    TVM_NPY_HEADER_MAX = 512,      /* bytes before the data of a file that is written */
    TVM_NPY_HEADER_LIMIT = 1 << 20 /* of the header's text in one that is read */
};

/* The header's contents. kind is NumPy's: 'b' bool, 'i', 'u', 'f', 'c', 'V' (bytes without meaning) ... */
typedef struct tvm_npy {
    char kind;
    unsigned item; /* bytes of an element */
    unsigned rank;
    uint64_t shape[TVM_MAX_RANK];
    bool fortran;  /* neighbours in the file are those along the first dimension */
    size_t offset; /* of the data in the file */
    size_t bytes;  /* of the data */
} tvm_npy;

/* Reads the header and checks that the data is all there. `path` is named in diagnostics. TVM_FORMAT for
 * anything malformed, truncated or too long, a header of more than TVM_NPY_HEADER_LIMIT bytes among it;
 * TVM_UNSUPPORTED for big-endian, structured types and ranks above TVM_MAX_RANK; TVM_VERSION.
 */
tvm_status tvm_npy_parse(const uint8_t *file, size_t size, const char *path, tvm_npy *npy, tvm_diags *diags);

/* Returns how long the file is, as a tvm_file_extent: the bytes before the header's text, then those before
 * the data, then all. */
uint64_t tvm_npy_extent(const uint8_t *file, size_t size);

/* Tells how a file stores a tensor of this type and shape: f16 f32 f64 and integers as themselves, bool as
 * bool, bf16 as '<u2', tf32 as '<f4', low-bit types (i8 and u8 apart) as '|u1' with the last extent counting
 * bytes of the bit string. false when the shape is no array: a negative extent, a row that is not whole
 * bytes, a size beyond 64 bits. */
bool tvm_npy_of(tvm_dtype type, unsigned rank, const int64_t *shape, tvm_npy *npy);

/* Does a file with this header serve for a tensor that a file stores as `expected`? (An opaque '|V2' or
 * '|V1', as ml_dtypes writes, may be given for bf16 and low-bit types.) */
bool tvm_npy_fits(const tvm_npy *given, const tvm_npy *expected, tvm_dtype type);

/* Computes the strides of the dimensions in the file, in elements. */
void tvm_npy_steps(const tvm_npy *npy, int64_t step[TVM_MAX_RANK]);
/* Copies the array's elements from such strides to others. Where several elements have the same place, the
 * last one stays. */
void tvm_npy_arrange(const tvm_npy *npy, const int64_t *to_step, uint8_t *to, const int64_t *from_step,
                     const uint8_t *from);

/* "'<f2' (16, 64)" */
const char *tvm_npy_text(const tvm_npy *npy, char text[TVM_NPY_TEXT_MAX]);

/* The bytes of a version 1.0 file before its data; returns how many. npy->offset is not looked at. */
size_t tvm_npy_header(const tvm_npy *npy, uint8_t header[TVM_NPY_HEADER_MAX]);

/* Writes a version 1.0 file, whole or not at all. npy->offset is not looked at. */
tvm_status tvm_npy_write(const char *path, const tvm_npy *npy, const void *data, tvm_diags *diags);

#endif
