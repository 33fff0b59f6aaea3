/* Printing scalar expressions and names as the assembler reads them. Private to assembler/. */
#ifndef TVM_ASSEMBLER_PRINTER_H
#define TVM_ASSEMBLER_PRINTER_H

#include "program.h"
#include "text.h"

/* `m` for a parameter, `%x` for a variable; `%m` for a parameter whose bare name would mean something else.
 */
void tvm_print_slot(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot);

/* The expression, infix, with the parentheses it needs and no others. wide: a float literal would be taken
 * for one of f64 where it stands, so that one of f32 must say so. */
void tvm_print_expr(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                    bool wide);

#endif
