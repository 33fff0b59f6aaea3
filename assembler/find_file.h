/* Files that a text names. */
#ifndef TVM_ASSEMBLER_FIND_FILE_H
#define TVM_ASSEMBLER_FIND_FILE_H

#include "state.h"

/* The path of a file: beside the file that names it, then in each -I folder. In scratch memory; NULL after an
 * error at the token: there is none. */
const char *tvm_asm_find_file(tvm_asm *as, const tvm_token *token, const char *file);

/* The source of that path, if it has been read. */
const tvm_source *tvm_asm_known_source(const tvm_asm *as, const char *path);

#endif
