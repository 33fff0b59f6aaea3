/* tvm-pack's files: an array in a .npy or .safetensors file to read parts of, and an output that is whole or
 * absent. */
#ifndef TVM_VM_PACK_FILE_H
#define TVM_VM_PACK_FILE_H

#include "safetensors.h"

/* An array in an open file. */
typedef struct pack_array {
    int descriptor;
    const char *path;
    const char *name; /* of the tensor; NULL in a .npy file */
    tvm_dtype type;
    unsigned rank;
    uint64_t shape[TVM_MAX_RANK];
    uint64_t offset;         /* of the first element in the file */
    tvm_safetensors tensors; /* all that are in the file; none of a .npy file */
} pack_array;

/* tensor NULL: the only one of a .safetensors file. Types that tvm_safetensors_type does not name are
 * refused; '|V2' of a .npy file is bf16, as ml_dtypes writes it. Release with pack_array_close in any case.
 */
tvm_status pack_array_open(const char *path, const char *tensor, pack_array *array, tvm_diags *diags);
void pack_array_close(pack_array *array);
/* "F16 [16, 64]" */
const char *pack_array_text(const pack_array *array, char text[TVM_SAFETENSORS_TEXT_MAX]);

/* An output file that has no name until it is whole. */
typedef struct pack_output {
    int descriptor;
    char *path;      /* what it will replace */
    char *temporary; /* a name that it has before, where the file system wants one; else NULL */
    unsigned mode;
} pack_output;
tvm_status pack_output_open(const char *path, uint64_t size, pack_output *output, tvm_diags *diags);
tvm_status pack_output_write(const pack_output *output, const void *bytes, size_t size, uint64_t offset,
                             tvm_diags *diags);
/* Gives the file its name. */
tvm_status pack_output_commit(pack_output *output, tvm_diags *diags);
/* Without a commit nothing is left. */
void pack_output_close(pack_output *output);

#endif
