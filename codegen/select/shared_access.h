/* Addresses in a shared tensor: an element's linear offset (modes and strides) is the sum of a thread's part,
 * a constant part and what run-time indices add; the swizzle is applied to the sum. Where the run-time part
 * is a multiple of the swizzle's period, it can be added after the swizzle, and the rest is computed once, at
 * kernel entry. */
#ifndef TVM_CODEGEN_SHARED_ACCESS_H
#define TVM_CODEGEN_SHARED_ACCESS_H

#include "emit.h"

enum { SHARED_GROUPS = 128 };

typedef struct shared_tile {
    emitter *e;
    uint32_t slot;
    const tvm_shared_layout *layout;
    const tvm_operand *index;
    unsigned rank, tile_rank, lead;
    unsigned bytes; /* of an element */
    bool linear;    /* the offset is the sum of those of the index and of coordinates of the tile */
    bool fixed;     /* the run-time part does not touch the swizzle */
    uint8_t first[TVM_MAX_RANK], modes[TVM_MAX_RANK]; /* of each dimension, in the shared layout */
    uint32_t step[TVM_MAX_RANK]; /* linear: what the run-time part of an index is multiplied by */
    uint32_t constant;           /* linear offset of the constant parts of the indices */
    int64_t constant_index[TVM_MAX_RANK];
    uint64_t dynamic_divisor; /* elements, of the run-time part; 0: there is none */
    bool has_dynamic;
    bool guarded; /* an index is tested: tvm_shared_guard */
    reg dynamic;  /* %r: linear offset of the run-time part, in elements */
    uint32_t threads;
} shared_tile;

/* linear offset by thread, and how it is computed. */
typedef struct shared_lanes {
    uint32_t offset[TVM_MAX_THREADS];
    bool varies;
    reg value; /* %r, elements */
    struct {
        uint32_t constant;
        reg address; /* %r, bytes, of the instruction */
    } groups[SHARED_GROUPS];
    unsigned group_count;
} shared_lanes;

/* `extent`: of the tile, which spans the trailing dimensions. False: not linear; then
 * tvm_shared_address_of_coordinates is the way. */
bool tvm_shared_open(emitter *e, shared_tile *s, uint32_t slot, const tvm_operand *index, unsigned tile_rank,
                     const uint32_t *extent, uint32_t threads);
/* The same for the tile that threads have in a register layout: linear also in each thread's and each local
 * part. */
bool tvm_shared_open_layout(emitter *e, shared_tile *s, uint32_t slot, const tvm_operand *index,
                            const tvm_layout *layout);

/* Traps where a tile of these extents (the tensor's last dimensions) at run-time indices is not inside of its
 * shared tensor; emits nothing for what is proved. Whatever reads or writes a shared tile calls it first.
 * True: something is tested. */
bool tvm_shared_guard(emitter *e, uint32_t slot, const tvm_operand *index, unsigned tile_rank,
                      const uint32_t *tile);

uint32_t tvm_shared_swizzle(const tvm_shared_layout *layout, uint32_t offset);
/* Largest power of two of elements such that aligned runs stay contiguous: 2^base under a swizzle. */
uint32_t tvm_shared_run(const shared_tile *s);
/* Alignment in elements (a power of two up to 16) of lane offsets plus the run-time part. */
uint32_t tvm_shared_alignment(const shared_tile *s, const shared_lanes *lanes);

/* Elements of a dimension that are neighbours before the swizzle, from multiples of as many on; those of the
 * last one. */
uint32_t tvm_shared_contiguous_in(const shared_tile *s, unsigned dim);
uint32_t tvm_shared_contiguous(const shared_tile *s);
/* Greatest common divisor of the strides of the modes of the tile's dimension d; of the last dimension
 * without the mode whose elements are neighbours. */
uint32_t tvm_shared_strides(const shared_tile *s, unsigned d);

/* The run-time part of the indices as a linear offset, in elements. */
reg tvm_shared_dynamic(shared_tile *s);

/* What coordinate `at` (a %r, of which no digit is shared with what is added to it) of the tile's dimension d
 * adds to the linear offset; false: nothing. */
bool tvm_shared_part(const shared_tile *s, unsigned d, reg at, reg *offset);
/* Linear offset of coordinates of the tile, without the indices. */
uint32_t tvm_shared_linear(const shared_tile *s, const uint32_t coordinate[TVM_MAX_RANK]);
/* The address of lane offset + constant + run-time part: a register and a number of bytes to add. */
reg tvm_shared_address(shared_tile *s, shared_lanes *lanes, uint32_t constant, uint32_t *plus);

/* The address of coordinates in registers (%r; name[0] == 0: none) plus constants, whatever the layout. */
reg tvm_shared_address_of_coordinates(shared_tile *s, const reg coordinate[TVM_MAX_RANK],
                                      const uint32_t constant[TVM_MAX_RANK]);

/* Adds to a linear offset (name[0] == 0: 0) what a position in a dimension of the tensor, a %r, adds; `unit`
 * times. */
void tvm_shared_add_position(const shared_tile *s, unsigned dim, reg position, uint32_t unit, reg *offset);
/* The address of a linear offset; the tensor's shared_offset is to be added. */
reg tvm_shared_address_of_offset(shared_tile *s, reg offset);

/* Wavefronts of one warp's access beyond the least: lanes' first bytes, each `width` bits wide; active lanes
 * only. */
unsigned tvm_shared_conflicts(const uint32_t *address, unsigned lanes, unsigned width);

#endif
