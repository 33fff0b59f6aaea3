/* A file that comes into being whole or not at all, however the process ends. */
#ifndef TVM_OUTPUT_H
#define TVM_OUTPUT_H

#include <stdio.h>

#include "diag.h"

/* A file that has no name until it is committed, where the file system has such files (open(2), O_TMPFILE);
 * elsewhere a temporary beside its path. */
typedef struct tvm_output {
    int descriptor;  /* -1: none */
    char *path;      /* what it will be, or replace */
    char *temporary; /* its name before that, or NULL */
    unsigned mode;   /* permissions of the file that it replaces */
    bool replaces;   /* there is a file at path */
    bool standard;   /* it is standard output, to which it is copied when it is committed */
} tvm_output;

/* `size` is how long the file will be, which a full disk or a limit refuses here; 0 where it is not known.
 * Through a symbolic link the file that it names is replaced, and its permissions are kept. "-" is
 * standard output: the bytes, which are written in any order, wait in a file without a name in $TMPDIR.
 * TVM_IO with the system's reason, also where path is not a regular file. Release with tvm_output_close in
 * any case. */
tvm_status tvm_output_open(const char *path, uint64_t size, tvm_output *output, tvm_diags *diags);
/* May be called by several threads at once. */
tvm_status tvm_output_write(const tvm_output *output, const void *bytes, size_t size, uint64_t offset,
                            tvm_diags *diags);
/* Gives the file its name. */
tvm_status tvm_output_commit(tvm_output *output, tvm_diags *diags);
/* Without a commit nothing is left. */
void tvm_output_close(tvm_output *output);

/* Removes the temporaries of all outputs of the process: for a handler of a signal that ends it, and safe
 * there (signal-safety(7)). */
void tvm_output_remove_temporaries(void);

/* A stream to a file that grows while it is written, such as a log ("-": standard output); NULL and errno
 * where it cannot be opened. A file-size limit is an error of the stream, as below. */
FILE *tvm_output_stream(const char *path, bool append);

/* Writes all bytes where the descriptor stands: 0 or the error's number. A file-size limit (setrlimit(2)) is
 * EFBIG: its signal, SIGXFSZ, would end the process of whoever called the library. */
int tvm_write_all(int descriptor, const void *bytes, size_t size);

#endif
