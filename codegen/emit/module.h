/* Inside the code generator: a module being made of a program. module.c owns its text, to which
 * kernel.c adds one kernel after the other. */
#ifndef TVM_CODEGEN_MODULE_H
#define TVM_CODEGEN_MODULE_H

#include "codegen.h"
#include "text.h"

/* What the kernels of a module add up to. */
typedef struct module_text {
    tvm_text globals; /* at module scope: the strings that are printed */
    tvm_text kernels; /* the entry points */
    bool uses_vprintf;
    unsigned ptx_version; /* 84: 8.4; that some instruction needs beyond the target's */
    tvm_translate_options options;
} module_text;

/* A copy of the string that lives as long as the module; NULL when out of memory. */
const char *tvm_module_keep(tvm_module *module, const char *string);

/* The ABI of a kernel before its code is made: all that the target alone says of it. */
tvm_kernel_abi tvm_module_abi_of(const tvm_ir_kernel *kernel, tvm_target target);

/* Names of the kernels, and why there is no code for those of other targets; false: out of memory. */
bool tvm_module_start(tvm_module *module, const tvm_ir_program *program);
/* The PTX, of what the kernels have added. */
tvm_status tvm_module_finish(tvm_module *module, const module_text *parts, tvm_diags *diags);

#endif
