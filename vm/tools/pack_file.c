#include "pack_file.h"
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
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
    *array = (pack_array){.descriptor = open(path, O_RDONLY | O_CLOEXEC), .path = path};
    struct stat info;
    uint8_t start[NPY_START] = {0};
    if (array->descriptor < 0) return io_error(path, "open for reading", errno, diags);
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

/* ---- output ---- */

/* A name beside path; NULL when memory runs out. */
static char *name_beside(const char *path, unsigned attempt) {
    char *name;
    return asprintf(&name, "%s.tmp%ld.%u", path, (long)getpid(), attempt) < 0 ? NULL : name;
}

/* A file without a name goes away with its last descriptor, however the process ends. Not every file system
 * has them. */
static int open_nameless(const char *path) {
    char *folder = strdup(path);
    if (!folder) return -1;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int descriptor = open(slash ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    return descriptor;
}

static int open_named(pack_output *output) {
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        char *name = name_beside(output->path, attempt);
        if (!name) break;
        int descriptor = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) {
            output->temporary = name;
            return descriptor;
        }
        int error = errno;
        free(name);
        errno = error;
        if (error != EEXIST) break;
    }
    return -1;
}

tvm_status pack_output_open(const char *path, uint64_t size, pack_output *output, tvm_diags *diags) {
    *output = (pack_output){.descriptor = -1};
    struct stat existing;
    tvm_place place = {.file = path};
    bool exists = stat(path, &existing) == 0;
    if (exists && !S_ISREG(existing.st_mode))
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "the output must be a regular file");
    if (exists && access(path, W_OK)) return io_error(path, "open for writing", errno, diags);
    output->mode = exists ? existing.st_mode & 0777 : 0;
    /* Through a symbolic link the file it names is replaced, not the link. */
    output->path = exists ? realpath(path, NULL) : strdup(path);
    if (!output->path) return tvm_diag_no_memory(diags);
    output->descriptor = open_nameless(output->path);
    if (output->descriptor < 0) output->descriptor = open_named(output);
    if (output->descriptor < 0) return io_error(path, "open for writing", errno, diags);
    if (ftruncate(output->descriptor, (off_t)size)) return io_error(path, "write", errno, diags);
    return TVM_OK;
}

tvm_status pack_output_write(const pack_output *output, const void *bytes, size_t size, uint64_t offset,
                             tvm_diags *diags) {
    const uint8_t *at = bytes;
    while (size) {
        ssize_t put = pwrite(output->descriptor, at, size, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return io_error(output->path, "write", put ? errno : EIO, diags);
        at += put;
        size -= (size_t)put;
        offset += (uint64_t)put;
    }
    return TVM_OK;
}

static int give_name(pack_output *output) {
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", output->descriptor);
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        char *name = name_beside(output->path, attempt);
        if (!name) return ENOMEM;
        if (!linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW)) {
            output->temporary = name;
            return 0;
        }
        int error = errno;
        free(name);
        if (error != EEXIST) return error;
    }
    return EEXIST;
}

tvm_status pack_output_commit(pack_output *output, tvm_diags *diags) {
    int error = 0;
    if (output->mode && fchmod(output->descriptor, output->mode)) error = errno;
    if (!error && !output->temporary) error = give_name(output);
    int descriptor = output->descriptor;
    output->descriptor = -1;
    if (close(descriptor) && !error) error = errno;
    if (!error && rename(output->temporary, output->path)) error = errno;
    if (error) return io_error(output->path, "write", error, diags);
    free(output->temporary);
    output->temporary = NULL;
    return TVM_OK;
}

void pack_output_close(pack_output *output) {
    if (output->path && output->descriptor >= 0) close(output->descriptor);
    if (output->temporary) unlink(output->temporary);
    free(output->temporary);
    free(output->path);
    *output = (pack_output){.descriptor = -1};
}
