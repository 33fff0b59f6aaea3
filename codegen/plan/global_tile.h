/* Tiles of a global tensor, for load-global, store-global, copies and atomics: steps, alignment and bounds. A
 * coordinate of the tile is a part that depends on the thread plus a constant; the tile's r dimensions are
 * the tensor's last. */
#ifndef TVM_CODEGEN_GLOBAL_TILE_H
#define TVM_CODEGEN_GLOBAL_TILE_H

#include "kernel_state.h"
#include "view.h"

/* The thread's part of a coordinate in one dimension of the tile. */
typedef struct thread_part {
    bool varies;      /* false: always 0 */
    uint64_t divisor; /* of its value in every thread */
} thread_part;

typedef struct global_tile {
    const kernel_state *k;
    uint32_t slot;
    tvm_global_dim step_of[TVM_MAX_RANK]; /* by dimension of the tensor: whose step it has */
    unsigned rank, tile_rank, lead;       /* dimension d of the tile is lead + d of the tensor */
    unsigned bits;
    const tvm_operand *index; /* one expression a dimension, or a register tensor, which has no part in what
                                 follows but for the alignment: tvm_global_element adds it */
    thread_part part[TVM_MAX_RANK];
    uint32_t extent[TVM_MAX_RANK];      /* of the tile */
    bool constant_stride[TVM_MAX_RANK]; /* by dimension of the tensor */
    int64_t stride[TVM_MAX_RANK];       /* elements; of constant strides */
    uint64_t stride_divisor[TVM_MAX_RANK];
    bool proven[TVM_MAX_RANK];      /* by dimension of the tensor: never outside */
    uint64_t granule[TVM_MAX_RANK]; /* unproven: elements that are inside or outside together, counted from
                                       coordinate 0 */
    bool whole_bytes;               /* sub-byte: an index is taken to begin at a byte (store-global) */
    bool is_near; /* constants in indices are part of tvm_global_offset, not of the address, where they are
                     few bytes: tiles of one tensor then have their address in common */
} global_tile;

/* part and extent (tile_rank entries) have been set; the rest is found out. */
void tvm_global_tile_open(const kernel_state *k, global_tile *g, uint32_t slot, const tvm_operand *index,
                          unsigned tile_rank);
/* Are neighbours along the last dimension neighbours in memory? */
bool tvm_global_has_rows(const global_tile *g);
/* Is anything unproven? */
bool tvm_global_is_guarded(const global_tile *g);
/* Alignment, in bits, of every address whose constant coordinates lead to a multiple of it; `rows` are
 * divisors of the constant coordinates in the dimensions whose stride is not constant. Below 8: sub-byte
 * elements may begin inside a byte. */
unsigned tvm_global_alignment(const global_tile *g, const uint64_t rows[TVM_MAX_RANK]);
/* Elements from the base that constant coordinates add through constant strides. */
int64_t tvm_global_offset(const global_tile *g, const uint32_t coordinate[TVM_MAX_RANK]);
/* Numbers that are equal for coordinates that share pointer and predicate. */
void tvm_global_key(const global_tile *g, const uint32_t coordinate[TVM_MAX_RANK],
                    uint32_t key[2 * TVM_MAX_RANK]);

/* The expression of the tensor's extent; bytes of an element, 1 of those of less; is the index of the
 * dimension a register tensor? */
static inline uint32_t tvm_global_shape(const global_tile *g, unsigned tensor_dim) {
    return g->k->kernel->slots[g->slot].shape[tensor_dim];
}
static inline unsigned tvm_global_bytes(const global_tile *g) {
    return g->bits >= 8 ? g->bits / 8 : 1;
}
static inline bool tvm_global_is_tensor(const global_tile *g, unsigned tensor_dim) {
    return g->index[tensor_dim].kind == TVM_OPERAND_SLOT;
}
/* The step along a dimension of the tensor: its value, where that is a constant (else false), and a divisor.
 */
bool tvm_global_find_step(const global_tile *g, unsigned tensor_dim, int64_t *value, uint64_t *divisor);
bool tvm_global_has_unit_step(const global_tile *g, unsigned tensor_dim);
/* The index of the dimension, an expression, without the elements *near of it that tvm_global_offset has;
 * TVM_NONE: it has all. */
uint32_t tvm_global_far_index(const global_tile *g, unsigned tensor_dim, int64_t *near);
/* The number of the granule that the coordinates lie in, in a dimension of the tensor. */
uint32_t tvm_global_granule(const global_tile *g, unsigned d, const uint32_t coordinate[TVM_MAX_RANK]);

#endif
