/* One kernel to PTX. */
#ifndef TVM_CODEGEN_KERNEL_H
#define TVM_CODEGEN_KERNEL_H

#include "emit.h"
#include "frame.h"
#include "module.h"

/* Translates a kernel of the program, which has no pipelined loops: appends its text, and fills its row of
 * module->kernels. */
tvm_status tvm_emit_kernel(const tvm_ir_program *program, uint32_t kernel, left_alone left,
                           tvm_module *module, module_text *out, tvm_diags *diags);

/* Classes of registers, as the emitter counts them. */
enum { TVM_REGISTER_CLASSES = 7 };
/* Declares that many registers of each class. */
void tvm_declare_registers(const uint32_t counts[TVM_REGISTER_CLASSES], tvm_text *out);

/* Translates a kernel as a body of a persistent kernel (frame.h), which the target has: appends its text,
 * fills *code, and raises the counts of registers to those that it needs, and *next_label past its labels. */
typedef struct body_text {
    body_frame frame;
    uint32_t counts[TVM_REGISTER_CLASSES];
    uint32_t next_label;
    bool uses_engine;    /* some of its copies are the copy engine's */
    uint32_t *mbarriers; /* where they are in shared memory, malloc'ed */
    uint32_t mbarrier_count;
    tvm_text text;
} body_text;
tvm_status tvm_emit_body(const tvm_ir_program *program, uint32_t kernel, left_alone left, tvm_module *module,
                         tvm_kernel_code *code, body_text *body, module_text *out, tvm_diags *diags);

/* Emits the instructions [first, last) of the kernel. */
tvm_status tvm_emit_range(emitter *e, uint32_t first, uint32_t last);

/* An error of translation, with the place of the instruction being emitted. */
tvm_status tvm_emit_error(emitter *e, tvm_status status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
