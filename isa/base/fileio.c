#include "fileio.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static tvm_status io_error(tvm_diags *diags, const char *path, const char *doing, int error) {
    const tvm_place place = {.file = strcmp(path, "-") == 0 ? NULL : path};
    return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot %s: %s", doing, strerror(error));
}

/* ---- opening ---- */

/* A pipe with a name in a file system may never get a writer, or two readers: only one without a name, such
 * as standard input or a shell's <(command), has the writer that it was made with. */
static bool is_named_pipe(int descriptor, const struct stat *info) {
    struct statfs system;
    return S_ISFIFO(info->st_mode) && (fstatfs(descriptor, &system) || system.f_type != PIPEFS_MAGIC);
}

tvm_status tvm_file_open(const char *path, int *descriptor, tvm_diags *diags) {
    struct stat info;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) return io_error(diags, path, "open for reading", errno);
    tvm_status status = fstat(opened, &info) ? io_error(diags, path, "open for reading", errno) : TVM_OK;
    const tvm_place place = {.file = path};
    if (!status && is_named_pipe(opened, &info))
        status = tvm_diag_add(diags, TVM_IO, &place, "standard input can be a pipe: - < PIPE",
                              "this is a named pipe, not a regular file");
    if (!status && !S_ISREG(info.st_mode) && fcntl(opened, F_SETFL, 0))
        status = io_error(diags, path, "open for reading", errno);
    if (status)
        close(opened);
    else
        *descriptor = opened;
    return status;
}

/* ---- reading ---- */

typedef struct buffer {
    uint8_t *bytes;
    size_t size;
    size_t capacity; /* one is kept for the NUL */
} buffer;

static bool buffer_reserve(buffer *into, size_t capacity) {
    uint8_t *moved = realloc(into->bytes, capacity);
    if (moved == NULL) return false;
    into->bytes = moved;
    into->capacity = capacity;
    return true;
}

/* What to allocate for `end` bytes and a NUL: of a regular file no more than it has, of one that may never
 * end no more than 64 KiB before its bytes say that it is longer. */
static size_t useful_capacity(int descriptor, size_t end, bool told) {
    struct stat info;
    bool regular = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= 0;
    uintmax_t there = regular ? (uintmax_t)info.st_size + 1 : told ? end : 1 << 16;
    return (size_t)(there < end ? there : end) + 1;
}

/* How far to read: a byte more than the file may have, so that one that goes on shows. 0 when all is read
 * that says something. */
static size_t reading_end(const buffer *into, size_t limit, tvm_file_extent *extent) {
    uint64_t whole = extent != NULL ? extent(into->bytes, into->size) : limit;
    if (whole < into->size) return 0;
    return (whole < limit ? (size_t)whole : limit) + 1;
}

static tvm_status read_descriptor(int descriptor, const char *path, size_t limit, tvm_file_extent *extent,
                                  buffer *into, tvm_diags *diags) {
    const tvm_place place = {.file = strcmp(path, "-") == 0 ? NULL : path};
    size_t end = 0;
    for (;;) {
        if (into->size == end) {
            if ((end = reading_end(into, limit, extent)) == 0) break;
            size_t capacity = useful_capacity(descriptor, end, extent != NULL);
            if (capacity > into->capacity && !buffer_reserve(into, capacity))
                return tvm_diag_no_memory(diags);
        }
        if (into->size + 1 == into->capacity && !buffer_reserve(into, into->capacity * 2))
            return tvm_diag_no_memory(diags);
        size_t room = into->capacity - into->size - 1, rest = end - into->size;
        ssize_t got = read(descriptor, into->bytes + into->size, room < rest ? room : rest);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_error(diags, path, "read", errno);
        if (got == 0) break;
        into->size += (size_t)got;
        if (into->size > limit)
            return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "the file is longer than %zu bytes", limit);
    }
    into->bytes[into->size] = '\0';
    return TVM_OK;
}

tvm_status tvm_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size, tvm_diags *diags) {
    return tvm_file_read_extent(path, limit, NULL, bytes, size, diags);
}

tvm_status tvm_file_read_extent(const char *path, size_t limit, tvm_file_extent *extent, uint8_t **bytes,
                                size_t *size, tvm_diags *diags) {
    bool standard = strcmp(path, "-") == 0;
    int descriptor = STDIN_FILENO;
    tvm_status status = standard ? TVM_OK : tvm_file_open(path, &descriptor, diags);
    if (status != TVM_OK) return status;
    buffer into = {0};
    status = read_descriptor(descriptor, path, limit, extent, &into, diags);
    if (!standard) close(descriptor);
    if (status != TVM_OK) {
        free(into.bytes);
        return status;
    }
    *bytes = into.bytes;
    *size = into.size;
    return TVM_OK;
}

/* ---- writing ---- */

static tvm_status write_standard_output(const void *bytes, size_t size, tvm_diags *diags) {
    if (fwrite(bytes, 1, size, stdout) != size || fflush(stdout) != 0)
        return io_error(diags, "-", "write to standard output", errno);
    return TVM_OK;
}

static tvm_status write_in_place(const char *path, const void *bytes, size_t size, tvm_diags *diags) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return io_error(diags, path, "open for writing", errno);
    int error = tvm_write_all(descriptor, bytes, size);
    if (close(descriptor) != 0 && error == 0) error = errno;
    return error == 0 ? TVM_OK : io_error(diags, path, "write", error);
}

tvm_status tvm_file_write(const char *path, const void *bytes, size_t size, tvm_diags *diags) {
    if (strcmp(path, "-") == 0) return write_standard_output(bytes, size, diags);
    struct stat existing;
    if (stat(path, &existing) == 0 && !S_ISREG(existing.st_mode))
        return write_in_place(path, bytes, size, diags);
    tvm_output output;
    tvm_status status = tvm_output_open(path, 0, &output, diags);
    if (status == TVM_OK) status = tvm_output_write(&output, bytes, size, 0, diags);
    if (status == TVM_OK) status = tvm_output_commit(&output, diags);
    tvm_output_close(&output);
    return status;
}
