/* Who makes a cubin of PTX: nvJitLink in this process where its library is found, else the ptxas program,
 * else nobody here: then the driver's own compiler is left to do it. */
#ifndef TVM_CODEGEN_PTX_COMPILER_H
#define TVM_CODEGEN_PTX_COMPILER_H

#include "codegen.h"

typedef enum tvm_ptx_compiler_kind {
    TVM_PTX_BY_DRIVER,
    TVM_PTX_BY_NVJITLINK,
    TVM_PTX_BY_PTXAS
} tvm_ptx_compiler_kind;

typedef struct tvm_ptx_compiler {
    tvm_ptx_compiler_kind kind;
    char *path;    /* of the library or program; NULL for the driver */
    char *version; /* what ptxas says of itself, once asked; else NULL */
} tvm_ptx_compiler;

/* The first there is of: $TVM_PTXAS, a program; $TVM_NVJITLINK, a library ("none": no library); nvJitLink in
 * <configured prefix>, $CUDA_HOME, $LD_LIBRARY_PATH, /usr/local/cuda and the system's library folders; ptxas
 * as tvm_ptxas_find does. One that was asked for and is missing goes to *warnings. Opens and runs nothing. */
tvm_status tvm_ptx_compiler_find(tvm_ptx_compiler *compiler, tvm_diags *warnings, tvm_diags *diags);
/* The ptxas program at this path. */
tvm_status tvm_ptx_compiler_ptxas(const char *path, tvm_ptx_compiler *compiler, tvm_diags *diags);
void tvm_ptx_compiler_free(tvm_ptx_compiler *compiler);

/* Fills version, by running ptxas unless that has been done. Of nvJitLink nothing need be asked. */
tvm_status tvm_ptx_compiler_ask(tvm_ptx_compiler *compiler, tvm_diags *diags);

/* Fills the module's cubin, resource usage and made_by. Where nvJitLink fails, as one older than the PTX or
 * the target does, ptxas is tried if there is one; for a module that sets registers it comes first. TVM_PTXAS
 * with what the compiler said; TVM_NO_PTXAS when the compiler is the driver. */
tvm_status tvm_ptx_compile(const tvm_ptx_compiler *compiler, tvm_module *module, tvm_diags *diags);

#endif
