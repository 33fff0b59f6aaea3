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

/* Reads the program of a file ("-": standard input): bytecode where its first bytes or the extension .vbc say
 * so, else text, which is assembled; the options are of text alone. *is_text (NULL: not asked) tells which it
 * was. */
tvm_status tvm_source_read_file(const char *path, const tvm_source_options *options, tvm_tool_files *files,
                                bool *is_text, tvm_ir_program **program, tvm_diags *diags);

#endif
