/* Scalar expressions, names and values as a program says them: for listings and for messages. */
#ifndef TVM_ISA_EXPR_TEXT_H
#define TVM_ISA_EXPR_TEXT_H

#include "program.h"
#include "text.h"

/* true false inf nan block grid and their like: words that an expression understands before any name. */
bool tvm_is_reserved(const char *name, size_t length);
/* Each of these words; NULL past the last. */
const char *tvm_reserved_word(size_t index);

/* `m` for a parameter, `%x` for a variable; `%m` for a parameter whose bare name would mean something else.
 */
void tvm_print_slot(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot);

/* The expression, infix, with the parentheses it needs and no others. wide: a float literal would be taken
 * for one of f64 where it stands, so that one of f32 must say so. */
void tvm_print_expr(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                    bool wide);

/* The comparison `expr` with another comparison's operator in place of its own. */
void tvm_print_comparison(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          uint32_t expr, tvm_expr_op op);

/* A value without its type: 12, true, the shortest decimal that reads back as the float. */
void tvm_print_scalar(tvm_text *out, tvm_dtype type, tvm_scalar value);

#endif
