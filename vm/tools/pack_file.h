/* What tvm-pack reads: an array in a .npy or .safetensors file, part by part. */
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

#endif
