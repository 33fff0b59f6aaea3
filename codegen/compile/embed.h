/* Code made ahead of time and kept in the program's bytecode file. */
#ifndef TVM_CODEGEN_EMBED_H
#define TVM_CODEGEN_EMBED_H

#include "ptx_compiler.h"

enum { TVM_EMBED_MAX = 16 }; /* targets */

/* "sm_80,sm_90a" -> targets, each once, native among them; "none" is an empty list. TVM_UNSUPPORTED,
 * TVM_USAGE, TVM_NO_DEVICE. */
tvm_status tvm_embed_parse(const char *list, tvm_target targets[TVM_EMBED_MAX], size_t *count,
                           tvm_diags *diags);

/* Replaces the program's images: a cubin for each target, then, for GPUs that none of these runs on, PTX of
 * the lowest architecture of each major number among them and of the highest, without what only an
 * architecture or a family has, so that a GPU finds PTX that is no further from it than it need be. A program
 * that needs such gets no PTX. Translates and compiles with `jobs` threads (0: one a processor). On failure
 * the program has no images. */
tvm_status tvm_embed(tvm_ir_program *program, const tvm_target *targets, size_t count,
                     const tvm_ptx_compiler *compiler, unsigned jobs, tvm_diags *diags);

#endif
