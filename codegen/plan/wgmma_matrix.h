/* Private to wgmma: how an operand lies in shared memory, as a matrix descriptor says it (PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Shared Memory Layout"). It is made of pieces of 16 bytes: along k, of
 * a row (of a along m, of b along n), eight rows below each other; or, where the operand is stored
 * transposed, along the rows, of a step of k, eight steps below each other. `width` bytes of these lie beside
 * each other: 128, 64 or 32 under the swizzle of as many bytes, else 16. */
#ifndef TVM_CODEGEN_WGMMA_MATRIX_H
#define TVM_CODEGEN_WGMMA_MATRIX_H

#include "mma_operands.h"
#include "shared_tile.h"

enum {
    WGMMA_THREADS = 128, /* of a warpgroup */
    WGMMA_ROWS = 8,      /* eights of rows of a */
    WGMMA_COLUMNS = 32,  /* eights of columns of b, at most */
    WGMMA_STEP = 32      /* bytes along k of one wgmma */
};

typedef struct wgmma_matrix {
    uint32_t width, period;   /* bytes; the swizzle repeats after as many, else 16 */
    bool is_transposed;       /* contiguous along m or n, not along k */
    uint32_t leading, stride; /* bytes: the descriptor's byte offsets of the leading and stride dimension */
    uint32_t eights;          /* of rows */
    uint32_t groups[TVM_MAX_THREADS / WGMMA_THREADS]; /* byte offset of each warpgroup's from the first's */
    bool varies;                                      /* some are not 0 */
} wgmma_matrix;

/* Operand a (else b) of an mma, which lies in shared memory. */
typedef struct wgmma_operand {
    bool is_a;
    shared_tile tile;
    const tvm_layout *layout; /* of the tile: which thread would need what */
    tvm_layout atom;          /* a fragment */
} wgmma_operand;

/* Opens it with what is known where code is being written. False: its place is no sum of what indices, warps,
 * lanes and fragments add. */
bool tvm_wgmma_open(kernel_state *k, const mma_operands *o, bool is_a, wgmma_operand *out);

/* What its fragments have in common, but for eights: NULL, or why no descriptor says it. */
const char *tvm_wgmma_find_matrix(const wgmma_operand *o, wgmma_matrix *matrix);

/* The byte offset of the first element of a fragment (its local number) in the first warp, from where the
 * tile begins. */
uint32_t tvm_wgmma_offset(const wgmma_operand *o, uint32_t fragment);

/* Eights of rows begin at these byte offsets: NULL, or why they are no matrix. */
const char *tvm_wgmma_find_eights(wgmma_matrix *matrix, const uint32_t *at, uint32_t count);
/* Those of a are the rows of four warps. */
const char *tvm_wgmma_find_rows(const wgmma_operand *o, wgmma_matrix *matrix);

/* May a matrix begin at this byte offset, in every warpgroup? */
const char *tvm_wgmma_check_beginning(const wgmma_operand *o, const wgmma_matrix *matrix, uint32_t offset);

#endif
