#include "pack_file.h"
#include "fileio.h"
#include "npy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NPY_START = 12 };

/* ---- arrays ---- */

static tvm_status io_error(const char *path, const char *doing, int error, tvm_diags *diags) {
    tvm_place place = {.file = path};
    return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot %s: %s", doing, strerror(error));
}

static bool npy_type(const tvm_npy *npy, tvm_dtype *type) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count && i < TVM_DTYPE_COUNT_MAX; i++) {
        tvm_npy stands;
        if (!tvm_safetensors_type(types[i]) || !tvm_npy_of(types[i], 0, NULL, &stands)) continue;
        bool bf16 = tvm_dtype_same(types[i], TVM_BF16);
        *type = types[i];
        if (npy->item == stands.item && npy->kind == (bf16 ? 'V' : stands.kind)) return true;
    }
    return false;
}

static tvm_status open_npy(pack_array *array, uint64_t size, const uint8_t start[NPY_START],
                           tvm_diags *diags) {
    /* of the whole file nothing but the header is looked at; one that is none is refused by its start */
    uint64_t length = tvm_npy_extent(start, NPY_START);
    if (length < NPY_START) length = NPY_START;
    tvm_place place = {.file = array->path};
    uint8_t *header = malloc(length);
    if (!header) return tvm_diag_no_memory(diags);
    tvm_npy npy;
    memcpy(header, start, NPY_START);
    tvm_status status =
        tvm_read_at(array->descriptor, array->path, header + NPY_START, length - NPY_START, NPY_START, diags);
    if (!status) status = tvm_npy_parse(header, size, array->path, &npy, diags);
    free(header);
    if (status) return status;
    char text[TVM_NPY_TEXT_MAX];
    if (npy.fortran && npy.rank > 1)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, "numpy: numpy.ascontiguousarray(a)",
                            "the array is in Fortran order; C order is needed");
    if (!npy_type(&npy, &array->type))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL, "an array of %s cannot be taken",
                            tvm_npy_text(&npy, text));
    array->rank = npy.rank;
    memcpy(array->shape, npy.shape, sizeof array->shape);
    array->offset = npy.offset;
    return TVM_OK;
}

static tvm_status open_safetensors(pack_array *array, const char *name, tvm_diags *diags) {
    tvm_place place = {.file = array->path};
    const tvm_safetensor *tensor;
    tvm_status status = tvm_safetensors_read(array->descriptor, array->path, &array->tensors, diags);
    if (status) return status;
    if (!name && array->tensors.count != 1)
        return tvm_diag_add(diags, TVM_ARGUMENT, &place, "--tensor NAME chooses one",
                            "the file has %zu tensors", array->tensors.count);
    status = tvm_safetensors_need(&array->tensors, array->path, name ? name : array->tensors.items[0].name,
                                  &tensor, diags);
    if (status) return status;
    if (tensor->type.kind == TVM_KIND_NONE)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL,
                            "tensor '%.80s' is of type %.40s, which is not known", tensor->name,
                            tensor->dtype);
    array->name = tensor->name;
    array->type = tensor->type;
    array->rank = tensor->rank;
    memcpy(array->shape, tensor->shape, sizeof array->shape);
    array->offset = tensor->offset;
    return TVM_OK;
}

tvm_status pack_array_open(const char *path, const char *tensor, pack_array *array, tvm_diags *diags) {
    *array = (pack_array){.descriptor = -1, .path = path};
    struct stat info;
    uint8_t start[NPY_START] = {0};
    tvm_status status = tvm_file_open(path, &array->descriptor, diags);
    if (status) return status;
    if (fstat(array->descriptor, &info)) return io_error(path, "read", errno, diags);
    tvm_place place = {.file = path};
    if (!S_ISREG(info.st_mode))
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "this is not a regular file");
    if (pread(array->descriptor, start, sizeof start, 0) < 0) return io_error(path, "read", errno, diags);
    if (memcmp(start, "\x93NUMPY", 6)) return open_safetensors(array, tensor, diags);
    if (tensor)
        return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL,
                            "a .npy file has no tensors to name, such as '%s'", tensor);
    return open_npy(array, (uint64_t)info.st_size, start, diags);
}

void pack_array_close(pack_array *array) {
    if (array->path && array->descriptor >= 0) close(array->descriptor);
    tvm_safetensors_free(&array->tensors);
    *array = (pack_array){.descriptor = -1};
}

const char *pack_array_text(const pack_array *array, char text[TVM_SAFETENSORS_TEXT_MAX]) {
    char dtype[16] = "";
    const char *name = tvm_safetensors_type(array->type);
    snprintf(dtype, sizeof dtype, "%s", name ? name : "?");
    tvm_safetensor tensor = {.dtype = dtype, .rank = array->rank};
    memcpy(tensor.shape, array->shape, sizeof tensor.shape);
    return tvm_safetensor_text(&tensor, text);
}
