/* Whole files in and out, safely: the one place that opens, reads, writes and renames. */
#ifndef TVM_FILEIO_H
#define TVM_FILEIO_H

#include "diag.h"

/* Opens path for reading, without waiting for anybody: a named pipe, whose writer may never come, is refused.
 * The caller closes *descriptor. TVM_IO with the system's reason. */
tvm_status tvm_file_open(const char *path, int *descriptor, tvm_diags *diags);

/* Reads all of path ("-": standard input) into *bytes, malloc'ed with a NUL added that *size does not count.
 * TVM_IO with the system's reason; TVM_FORMAT when it is longer than `limit`. */
tvm_status tvm_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size, tvm_diags *diags);

/* How long a file of some format is, as far as its first `size` bytes say (`bytes` may be NULL when there are
 * none): more than `size` when so many must be seen to say more, or are the whole; else no more is worth
 * reading, be it that this is the whole or that it is not of the format. */
typedef uint64_t tvm_file_extent(const uint8_t *bytes, size_t size);

/* The same of a file that says itself how long it is. What goes on after its end, such as a device that has
 * none, is read for one byte more, which is for the format's parser to refuse. */
tvm_status tvm_file_read_extent(const char *path, size_t limit, tvm_file_extent *extent, uint8_t **bytes,
                                size_t *size, tvm_diags *diags);

/* path is whole or untouched, and nothing else is left (output.h). "-": standard output, flushed and checked.
 * A path that is not a regular file (a device, a pipe) is written in place. */
tvm_status tvm_file_write(const char *path, const void *bytes, size_t size, tvm_diags *diags);

#endif
