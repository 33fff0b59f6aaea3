/* Tiles of a shared tensor: an element's linear offset (modes and strides) is the sum of a thread's part, a
 * constant part and what run-time indices add; the swizzle is applied to the sum. Where the run-time part is
 * a multiple of the swizzle's period, it can be added after the swizzle, and the rest is computed once, at
 * kernel entry. */
#ifndef TVM_CODEGEN_SHARED_TILE_H
#define TVM_CODEGEN_SHARED_TILE_H

#include "kernel_state.h"

typedef struct shared_tile {
    uint32_t slot;
    const tvm_shared_layout *layout;
    const tvm_operand *index;
    unsigned rank, tile_rank, lead;
    unsigned bits; /* of an element */
    unsigned
        bytes;   /* the same; 0: it is narrower, and runs of tvm_bits_whole(bits) elements are whole bytes */
    bool linear; /* the offset is the sum of those of the index and of coordinates of the tile */
    bool fixed;  /* the run-time part does not touch the swizzle */
    uint8_t first[TVM_MAX_RANK], modes[TVM_MAX_RANK]; /* of each dimension, in the shared layout */
    uint32_t step[TVM_MAX_RANK]; /* linear: what the run-time part of an index is multiplied by */
    uint32_t constant;           /* linear offset of the constant parts of the indices */
    int64_t constant_index[TVM_MAX_RANK];
    uint64_t dynamic_divisor; /* elements, of the run-time part; 0: there is none */
    bool has_dynamic;
    uint32_t threads;
} shared_tile;

/* `extent`: of the tile, which spans the trailing dimensions. False: not linear; then
 * its elements are addressed one by one. */
bool tvm_shared_open(kernel_state *k, shared_tile *s, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank, const uint32_t *extent, uint32_t threads);
/* The same for the tile that threads have in a register layout: linear also in each thread's and each local
 * part. */
bool tvm_shared_open_layout(kernel_state *k, shared_tile *s, uint32_t slot, const tvm_operand *index,
                            const tvm_layout *layout);
/* Bytes that elements, whole ones, take. */
static inline uint32_t tvm_shared_bytes_of(const shared_tile *s, uint32_t elements) {
    return (uint32_t)((int64_t)(int32_t)elements * s->bits /
                      8); /* sums of parts may be negative in between */
}
uint32_t tvm_shared_swizzle(const tvm_shared_layout *layout, uint32_t offset);
/* Elements after which the swizzle repeats itself. */
uint64_t tvm_shared_period(const tvm_shared_layout *layout);
/* Largest power of two of elements such that aligned runs stay contiguous: 2^base under a swizzle. */
uint32_t tvm_shared_run(const shared_tile *s);
/* Alignment in elements (a power of two up to 16, of packed ones 128) of lane offsets plus the run-time part.
 */
uint32_t tvm_shared_alignment(const shared_tile *s, const uint32_t *lanes);
/* Elements of a dimension that are neighbours before the swizzle, from multiples of as many on; those of the
 * last one. */
uint32_t tvm_shared_contiguous_in(const shared_tile *s, unsigned dim);
uint32_t tvm_shared_contiguous(const shared_tile *s);
/* Greatest common divisor of the strides of the modes of the tile's dimension d; of the last dimension
 * without the mode whose elements are neighbours. */
uint32_t tvm_shared_strides(const shared_tile *s, unsigned d);
/* Linear offset of coordinates of the tile, without the indices. */
uint32_t tvm_shared_linear(const shared_tile *s, const uint32_t coordinate[TVM_MAX_RANK]);
/* Wavefronts of one warp's access beyond the least: lanes' first bytes, each `width` bits wide; active lanes
 * only. */
unsigned tvm_shared_conflicts(const uint32_t *address, unsigned lanes, unsigned width);

#endif
