/* How much scratch memory (emit/scratch.h) instructions need. */
#ifndef TVM_CODEGEN_SCRATCH_NEED_H
#define TVM_CODEGEN_SCRATCH_NEED_H

#include "kernel_state.h"

enum {
    SCRATCH_SMALL = 1024, /* bytes: up to here there is a second buffer */
    PRINT_PIECE = 31,     /* values of one vprintf, which takes 32 arguments */
    PRINT_VALUE_BYTES = 8 /* of an argument */
};

/* Bytes that an instruction needs where the tensors take `taken` bytes of the block's memory; 0: none. */
uint64_t tvm_scratch_need(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          tvm_target target, uint64_t taken);
/* The same of families with the effect SCRATCH, which their plans have. */
uint64_t tvm_pieces_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                            tvm_target target, uint64_t taken);
uint64_t tvm_reduce_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                            tvm_target target, uint64_t taken);
uint64_t tvm_relayout_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_insn *insn, tvm_target target, uint64_t taken);
uint64_t tvm_scan_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          tvm_target target, uint64_t taken);
/* How many of `most` of `each` bytes fit at a time, and one at least, where the tensors take `taken` bytes.
 */
uint32_t tvm_scratch_chunk(uint32_t most, uint64_t each, tvm_target target, uint64_t taken);

#endif
