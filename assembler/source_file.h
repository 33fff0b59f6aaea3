/* A program from a file, be it text or bytecode: what tvm-as, tvm-cc, tvm-run and tvm-tune begin with. */
#ifndef TVM_ASSEMBLER_SOURCE_FILE_H
#define TVM_ASSEMBLER_SOURCE_FILE_H

#include <argp.h>

#include "assembler.h"
#include "tool_files.h"

/* -D and -I, as they are given: zero-initialise, release with tvm_source_options_free. */
typedef struct tvm_source_options {
    const char **defines;
    size_t define_count;
    const char **include_dirs;
    size_t include_dir_count;
} tvm_source_options;

/* A child of a tool's parser, whose input is a tvm_source_options. */
extern const struct argp tvm_source_argp;
void tvm_source_options_free(tvm_source_options *options);

/* The assembler's options of them, by which it adds what a text includes to `files` (NULL: to none). */
tvm_assembler_options tvm_source_assembler(const tvm_source_options *options, tvm_tool_files *files);

/* tvm_program_file_read, by the options. graph: as of tvm_assembler_options. */
tvm_status tvm_source_read_file(const char *path, const tvm_source_options *options, tvm_tool_files *files,
                                tvm_graph_text **graph, bool *is_text, tvm_ir_program **program,
                                tvm_diags *diags);

#endif
