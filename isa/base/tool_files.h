/* The files that a tool reads and writes: what its outputs may be called and may replace. */
#ifndef TVM_TOOL_FILES_H
#define TVM_TOOL_FILES_H

#include <sys/types.h>

#include "diag.h"

/* What an output holds. Extensions that mean another kind are refused (tool_files.c has the table). */
typedef enum tvm_file_kind {
    TVM_FILE_BYTECODE,
    TVM_FILE_PROGRAM, /* vasm(5) */
    TVM_FILE_PTX,
    TVM_FILE_CUBIN,
    TVM_FILE_REPORT, /* as text */
    TVM_FILE_HTML,
    TVM_FILE_SVG,
    TVM_FILE_JSON,
    TVM_FILE_NPY,
    TVM_FILE_SAFETENSORS,
    TVM_FILE_FOLDER, /* of files that are none of the inputs either */
    TVM_FILE_KINDS
} tvm_file_kind;

typedef struct tvm_tool_file {
    char *path;
    dev_t device;
    ino_t inode;
    bool output;
} tvm_tool_file;

/* Zero-initialise; release with tvm_tool_files_free. Files are told apart by device and inode, so that links
 * are the files that they lead to. */
typedef struct tvm_tool_files {
    tvm_tool_file *items;
    size_t count;
    bool failed; /* no memory: tvm_tool_writes says so */
} tvm_tool_files;

/* An input: a file, "-" (standard input), or a folder and the files in it. One that is not there is left to
 * who opens it. */
void tvm_tool_reads(tvm_tool_files *files, const char *path);
/* The same of FILE or FILE:NAME, a tensor of a file. */
void tvm_tool_reads_tensor(tvm_tool_files *files, const char *path);

/* An output, before anything is written: a file, there or not, "-" (standard output), or a folder, there or
 * not. TVM_USAGE where it is an input or an output that was named before, where its extension means another
 * kind, and for bytes that are no text to a terminal. An input that is named after the output may be replaced
 * by it: that is how a tool updates a file. */
tvm_status tvm_tool_writes(tvm_tool_files *files, const char *path, tvm_file_kind kind, tvm_diags *diags);

void tvm_tool_files_free(tvm_tool_files *files);

#endif
