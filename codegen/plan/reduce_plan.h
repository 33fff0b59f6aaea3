/* How reduce combines the elements of its axes: see emit/emit_reduce.c. */
#ifndef TVM_CODEGEN_REDUCE_PLAN_H
#define TVM_CODEGEN_REDUCE_PLAN_H

#include "kernel_state.h"

/* What combines two elements in reduce and scan. */
typedef struct reduce_op {
    uint32_t operation; /* tvm_reduction */
    tvm_dtype type;     /* of the elements */
    tvm_dtype compute;  /* f32 for f16 and bf16 */
} reduce_op;

static inline reduce_op tvm_reduce_op(tvm_dtype type, uint32_t operation) {
    return (reduce_op){.operation = operation, .type = type, .compute = tvm_is_half(type) ? TVM_F32 : type};
}

/* Outputs of a thread that are exchanged at a time, where there is memory for so many. */
enum { REDUCE_CHUNK = 16 };

/* A digit of the thread number that counts along the reduced axes, and how many of its low bits the shuffles
 * have dealt with. */
typedef struct axis_digit {
    uint32_t size, stride;
    uint32_t shuffled;
} axis_digit;

typedef struct reduction {
    reduce_op op;
    uint32_t axes;
    bool is_position;
    uint32_t source, result, locals, outputs;
    const tvm_layout *layout;
    axis_digit digits[TVM_MAX_MODES]; /* most significant first */
    unsigned digit_count;
    uint32_t partials;
    bool tree;
    uint32_t lane_masks[5];
    unsigned shuffles;
    uint32_t exchanged; /* partial results left after the shuffles */
    bool votes;         /* one bool of all threads of several warps: the barrier combines them */
    uint32_t threads;
    uint32_t places;  /* threads, or warps where each has one partial result of an output */
    uint32_t chunk;   /* outputs exchanged at a time */
    uint32_t scratch; /* of the chunk: bytes from the start of the block's shared memory */
} reduction;

void tvm_reduce_plan(reduction *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_insn *insn);
uint32_t tvm_reduce_value_bytes(const reduction *r);
/* Of an output in scratch memory, values and positions. */
uint32_t tvm_reduce_output_bytes(const reduction *r);
/* Outputs exchanged at a time where `taken` bytes of the block's shared memory are taken: fewer than
 * REDUCE_CHUNK where there is too little left. */
uint32_t tvm_reduce_chunk(const reduction *r, tvm_target target, uint64_t taken);

#endif
