/* Pipelined loops: `for %k = START to END step STEP pipeline STAGES`.
 *
 * Such a loop does what the plain loop does in which each copy-async is finished, and seen by all threads of
 * its team, before the instruction that follows it. The code generator starts the copies of an iteration
 * STAGES - 1 iterations ahead, into a ring of as many tiles. tvm_pipeline_find checks that this is allowed
 * for all values: where the copies read, and whether they are executed, depends on nothing that an earlier
 * iteration changes. */
#ifndef TVM_ISA_PIPELINE_H
#define TVM_ISA_PIPELINE_H

#include "program.h"

enum {
    TVM_MAX_STAGES = 16,
    TVM_PIPELINE_TENSORS = 16, /* shared tensors that the copies of a loop fill */
    TVM_FOR_PIPELINE = 4       /* the operand of `for` */
};

typedef struct tvm_pipeline {
    uint32_t loop, end; /* instructions: FOR and its END */
    uint32_t stages;
    uint32_t tensors[TVM_PIPELINE_TENSORS]; /* slots */
    uint32_t tensor_count;
} tvm_pipeline;

/* The number of stages of a `for`; 0: it is not pipelined, or no `for`. */
uint32_t tvm_pipeline_stages(const tvm_ir_kernel *kernel, const tvm_insn *insn);

/* Finds what the loop of instruction `loop` copies. *ahead (an element an instruction of the kernel, zeroed
 * by the caller) becomes true of the copies in its body, and of the instructions there that compute a scalar
 * on which a copy depends: those that run ahead of an iteration. TVM_INVALID, *why and *at, the instruction
 * that is wrong. */
tvm_status tvm_pipeline_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t loop,
                             tvm_pipeline *pipeline, bool *ahead, uint32_t *at, tvm_why *why);
/* The effects of the instruction's row, of which it reads no shared memory where it names none. */
unsigned tvm_pipeline_effects(const tvm_ir_kernel *kernel, const tvm_insn *insn);
/* Is slot among the tensors? */
bool tvm_pipeline_fills(const tvm_pipeline *pipeline, uint32_t slot);

#endif
