/* How an operand of mma-tensor, or of copy-tensor, lies in shared memory, as the matrix descriptor of tcgen05
 * says it (PTX ISA, "Shared Memory Descriptor" and "Canonical Layouts"): the forms are those of wgmma
 * (wgmma_matrix.h). */
#ifndef TVM_CODEGEN_TENSOR_MATRIX_H
#define TVM_CODEGEN_TENSOR_MATRIX_H

#include "shared_tile.h"

typedef struct tensor_matrix {
    shared_tile tile;
    bool k_first;             /* the tile's first dimension is k */
    bool is_transposed;       /* 16 bytes lie along m or n, not along k */
    uint32_t step;            /* bytes of k of one row that an instruction takes: 32, or 16 of a copy */
    uint32_t rows, steps;
    uint32_t width;           /* bytes beside each other under the swizzle, 32 to 128; 16: there is none */
    uint32_t leading, stride; /* bytes: the descriptor's */
} tensor_matrix;

/* The tile at the tensor's index, its rows those of a, of b the columns; step: as in tensor_matrix. NULL, or why
 * no descriptor says it. */
const char *tvm_tensor_matrix_find(kernel_state *k, const tvm_operand *tensor, const uint32_t tile[2],
                                   bool k_first, uint32_t step, tensor_matrix *out);
/* Bytes from the beginning of the tensor to where the step begins, without the run-time part. */
int32_t tvm_tensor_matrix_start(const tensor_matrix *matrix, uint32_t step);
/* The upper half of the descriptor; of the lower one all but the address, in units of 16 bytes, that is
 * added. */
uint32_t tvm_tensor_matrix_high(const tensor_matrix *matrix);
uint32_t tvm_tensor_matrix_low(const tensor_matrix *matrix);

#endif
