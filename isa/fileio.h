/* Whole files in and out, safely: the one place that opens, reads, writes and renames. */
#ifndef TVM_ISA_FILEIO_H
#define TVM_ISA_FILEIO_H

#include "diag.h"

/* Reads all of path ("-": standard input) into *bytes, malloc'ed with a NUL added that *size does not count.
 * TVM_IO with the system's reason; TVM_FORMAT when it is longer than `limit`. */
tvm_status tvm_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size, tvm_diags *diags);

/* Writes all bytes to a temporary file beside path, then renames it: path is whole or untouched. "-":
 * standard output, flushed and checked. A path that is not a regular file (a device, a pipe) is written in
 * place. */
tvm_status tvm_file_write(const char *path, const void *bytes, size_t size, tvm_diags *diags);

#endif
