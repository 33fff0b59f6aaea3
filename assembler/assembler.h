/* Text to program and back. */
#ifndef TVM_ASSEMBLER_H
#define TVM_ASSEMBLER_H

#include "program.h"
#include "text.h"

typedef struct tvm_assembler_options {
    const char *const *defines; /* "NAME=VALUE", each overriding the .const of that name */
    size_t define_count;
    const char *const *include_dirs; /* searched after the including file's own folder */
    size_t include_dir_count;
    tvm_text *layouts; /* NULL, or what gets a listing of the tensors' layouts and of why they have them */
} tvm_assembler_options;

/* Assembles and verifies. `name` is the file named in diagnostics and against whose folder .include is
 * resolved ("-" or NULL: the current folder). options may be NULL. Several errors are reported in one run. On
 * success *program is the caller's (tvm_ir_program_free). */
tvm_status tvm_assemble_text(const char *text, size_t length, const char *name,
                             const tvm_assembler_options *options, tvm_ir_program **program,
                             tvm_diags *diags);

/* Text that assembles to the same program (line table aside). *text is malloc'ed and NUL-terminated. */
tvm_status tvm_disassemble(const tvm_ir_program *program, char **text, tvm_diags *diags);

/* Evaluates a layout expression on its own and returns its picture (malloc'ed): tvm-as --print-layout. */
tvm_status tvm_print_layout(const char *expression, char **picture, tvm_diags *diags);

/* A picture (malloc'ed) of the words of a block of a low-precision type in each packing: tvm-as
 * --print-packing. */
tvm_status tvm_print_packing(const char *type, char **picture, tvm_diags *diags);

#endif
