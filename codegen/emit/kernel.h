/* One kernel to PTX. */
#ifndef TVM_CODEGEN_KERNEL_H
#define TVM_CODEGEN_KERNEL_H

#include "emit.h"
#include "module.h"

/* Translates a kernel of the program, which has no pipelined loops: appends its text, and fills its row of
 * module->kernels. */
tvm_status tvm_emit_kernel(const tvm_ir_program *program, uint32_t kernel, left_alone left,
                           tvm_module *module, module_text *out, tvm_diags *diags);

/* Emits the instructions [first, last) of the kernel. */
tvm_status tvm_emit_range(emitter *e, uint32_t first, uint32_t last);

/* An error of translation, with the place of the instruction being emitted. */
tvm_status tvm_emit_error(emitter *e, tvm_status status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
