/* Inside the code generator: a module being made of a program. module.c makes it and owns its text; kernel.c
 * adds one kernel after the other. */
#ifndef TVM_CODEGEN_MODULE_H
#define TVM_CODEGEN_MODULE_H

#include "emit.h"

/* What the kernels of a module add up to. */
typedef struct module_text {
    tvm_text globals; /* at module scope: the strings that are printed */
    tvm_text kernels; /* the entry points */
    bool uses_vprintf;
    unsigned ptx_version;      /* 84: 8.4; that some instruction needs beyond the target's */
    struct tvm_claims *claims; /* claims.h; or NULL */
} module_text;

/* A copy of the string that lives as long as the module; NULL when out of memory. */
const char *tvm_module_keep(tvm_module *module, const char *string);

/* Translates a kernel of the program, which has no pipelined loops: appends its text, and fills its row of
 * module->kernels. not_parted: why TMA does not do what was such a loop's copies, for the report,
 * or NULL. */
tvm_status tvm_emit_kernel(const tvm_ir_program *program, uint32_t kernel, const char *not_parted,
                           tvm_module *module, module_text *out, tvm_diags *diags);

/* Can the TMA of the target do the copies of the kernel's pipelined loops? Else *why says why not. */
bool tvm_copies_fit_engine(const tvm_ir_program *program, uint32_t kernel, tvm_target target, tvm_why *why);

#endif
