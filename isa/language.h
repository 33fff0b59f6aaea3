/* Versions of the language, which bytecode names: rows of the opcode table, their operands, operators of
 * expressions and sections of the container each say with which version they came. */
#ifndef TVM_ISA_LANGUAGE_H
#define TVM_ISA_LANGUAGE_H

#include "program.h"

/* The latest that this library knows. */
enum {
    TVM_LANGUAGE_VERSION = 7,
    TVM_LANGUAGE_OF_STRIDES = 3,    /* strides of parameters */
    TVM_LANGUAGE_OF_CLUSTERS = 3,   /* .cluster: in the container a part of each kernel from here on */
    TVM_LANGUAGE_OF_SHAPES = 6,     /* the kernels of an entry have parameters of the same shapes */
    TVM_LANGUAGE_OF_RECORDS = 7,    /* .signature and records of variables: of the text alone */
    TVM_LANGUAGE_OF_GRAPHS = 7,     /* .graph and .program: of the text alone */
    TVM_LANGUAGE_OF_TENSORS = 7,    /* parts of tensors, reductions by name, functions of scalars: likewise */
    TVM_LANGUAGE_OF_TRAITS = 7,     /* has(...) and limit(...): operators of expressions */
    TVM_LANGUAGE_OF_BROADCASTS = 7, /* operands of mma that the matrices of a batch share */
    TVM_LANGUAGE_OF_JOINTS = 7,     /* views of shared tensors that join dimensions that are no neighbours */
    TVM_LANGUAGE_OF_SPREAD = 7,     /* copies of elements of 4 and 6 bits to bytes */
    TVM_LANGUAGE_OF_PACKED = 7,     /* shared tensors of elements narrower than a byte */
    TVM_LANGUAGE_OF_COSTS = 7       /* costs of cases: in the container a part of each case from here on */
};

/* The version that a reader of the verified program must know: the highest of all that it uses, 1 at least.
 */
unsigned tvm_language_needed(const tvm_ir_program *program);

/* How many operands of the instruction a program of this version has, which uses nothing that is later: those
 * at the end that came later are left out. */
uint32_t tvm_language_operands(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                               const tvm_insn *insn, unsigned version);

/* How many operands at the end of a row's instructions came after this version: an instruction that was
 * written then does not have them, and is one that leaves them out. */
unsigned tvm_language_later_operands(const tvm_op_info *info, unsigned version);

#endif
