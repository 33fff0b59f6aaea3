/* Finishing. */
#ifndef TVM_ASSEMBLER_CANONICAL_H
#define TVM_ASSEMBLER_CANONICAL_H

#include "program.h"

/* The same program with every pool in the order of a walk over the text that tvm_disassemble writes, and
 * nothing in it that is not used. NULL when out of memory. */
tvm_ir_program *tvm_asm_canonical(const tvm_ir_program *program, tvm_diags *diags);

#endif
