/* Which products of a kernel the tensor core of tcgen05 can do in the place of its warps, with sums in tensor
 * memory: those of its pipelined loop, where nothing but these products touches the sums until the loop has
 * ended, and both operands are tiles of shared memory. lower/pipeline_products.c writes them so.
 *
 * This file finds what is so and what is legal. Nothing asks whether it pays: no GPU has measured it, and one
 * thread's tcgen05.mma does what mma.sync takes all warps for. */
#ifndef TVM_CODEGEN_TENSOR_PRODUCTS_H
#define TVM_CODEGEN_TENSOR_PRODUCTS_H

#include "kernel_state.h"

enum { TVM_PRODUCTS_SUMS = 8, TVM_PRODUCTS_READS = 32 };

/* A register tensor that products of the loop add to, which is zero before it. */
typedef struct tensor_sums {
    uint32_t slot, columns; /* of 32 bits each */
    uint32_t made;          /* its alloc-register */
} tensor_sums;

/* What threads load of sums: all of them, before the instruction that first reads them; or, where nothing but
 * slices reads them, what each slice takes, in its place. */
typedef struct tensor_read {
    uint32_t sums; /* which */
    uint32_t at;   /* the instruction, of those that stand where the loop does */
    bool is_slice;
    uint32_t slot, column, columns; /* of the register tensor; of the sums, from the first column on */
    tvm_layout before, layout;      /* as the program has it, and as it comes from tensor memory */
} tensor_read;

typedef struct tensor_products {
    uint32_t loop, end; /* the pipelined one's FOR and END */
    bool repeats;       /* it stands in another loop */
    uint32_t count;
    tensor_sums sums[TVM_PRODUCTS_SUMS];
    uint32_t read_count;
    tensor_read reads[TVM_PRODUCTS_READS];
    uint32_t columns; /* of all sums */
} tensor_products;

/* Of the kernel as the program has it. False with the reason: its mma stay instructions of the warps. */
bool tvm_tensor_products_find(const tvm_ir_program *program, uint32_t kernel, tvm_target target,
                              tensor_products *out, tvm_why *why);
/* Does the layout, of a register tensor of the kernel, follow from that of what is loaded? Then *out is what
 * it becomes. */
bool tvm_tensor_renames(const tensor_products *products, const tvm_layout *layout, tvm_layout *out);

#endif
