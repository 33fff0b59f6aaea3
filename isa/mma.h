/* mma's operands: a and b are register tensors, or tiles of shared tensors, whose extents follow from c and
 * from each other. */
#ifndef TVM_ISA_MMA_H
#define TVM_ISA_MMA_H

#include "program.h"

/* a or b. Its matrices are [m, k] or [k, n]; in shared memory they may be stored transposed. */
typedef struct tvm_mma_source {
    uint32_t slot;
    const tvm_operand *tensor; /* the slot's operand; of a shared tensor with its indices after it */
    bool is_shared;
    bool is_transposed;
    /* Of a shared one: the tile at the index, as it is stored. */
    unsigned tile_rank;
    uint32_t tile[TVM_MAX_RANK];
    /* Elements of the tile, in row-major order, from a matrix of the batch to the next, from one along k to
     * the next, and along the other dimension. */
    uint32_t batch_stride, k_stride, other_stride;
} tvm_mma_source;

typedef struct tvm_mma {
    tvm_mma_source a, b;
    uint32_t c;           /* slot */
    uint32_t batch;       /* matrices of each operand */
    uint32_t m, n, k;     /* of each matrix */
    bool splits_k;        /* the matrices of a shared tile lie one after the other along k */
    bool may_reassociate; /* constants may be taken off the sums in place of the operand */
} tvm_mma;

/* Reads an mma's operands, of which c is a register tensor of rank 2 or more. False when k is not known: both
 * are shared tiles and the instruction does not say it. */
bool tvm_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_operand *operands,
                  uint32_t count, tvm_mma *out);

/* The register layout of operand `a` (else b) with k elements along k that goes with c: each warp has what
 * its tiles of c need. TVM_INVALID when c is no product X.mma.m16n8k16.C, or k no multiple of 16. */
tvm_status tvm_mma_fragments(const tvm_layout *c, bool a, uint32_t k, tvm_layout *out, tvm_why *why);

/* That layout as one of the tile in shared memory: which thread needs what. */
tvm_status tvm_mma_tile_layout(const tvm_mma *mma, bool a, const tvm_layout *fragments, tvm_layout *out,
                               tvm_why *why);

#endif
