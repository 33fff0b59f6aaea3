/* A program from a file, be it text or bytecode. */
#ifndef TVM_ASSEMBLER_PROGRAM_FILE_H
#define TVM_ASSEMBLER_PROGRAM_FILE_H

#include "assembler.h"

/* Reads the program of a file ("-": standard input): bytecode where its first bytes or the extension .vbc say
 * so, else text, which is assembled; the options are of text alone, and definitions are refused with bytecode
 * (TVM_USAGE). *is_text (NULL: not asked) tells which it
 * was. */
tvm_status tvm_program_file_read(const char *path, const tvm_assembler_options *options, bool *is_text,
                                 tvm_ir_program **program, tvm_diags *diags);

#endif
