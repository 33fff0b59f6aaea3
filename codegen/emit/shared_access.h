/* Addresses in shared tensors: code that computes where a tile (plan/shared_tile.h), or an element of it,
 * lies. */
#ifndef TVM_CODEGEN_SHARED_ACCESS_H
#define TVM_CODEGEN_SHARED_ACCESS_H

#include "emit.h"
#include "shared_tile.h"

enum { SHARED_GROUPS = 128 };

/* A tile that is accessed where code is being written. */
typedef struct shared_access {
    emitter *e;
    shared_tile tile;
    bool guarded; /* an index is tested: tvm_shared_guard */
    reg dynamic;  /* %r: linear offset of the run-time part, in elements; name[0] == 0: not made yet */
} shared_access;

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

/* Opens the tile: see tvm_shared_open. */
bool tvm_shared_access_open(emitter *e, shared_access *a, uint32_t slot, const tvm_operand *index,
                            unsigned tile_rank, const uint32_t *extent, uint32_t threads);

/* Traps where a tile of these extents (the tensor's last dimensions) at run-time indices is not inside of its
 * shared tensor, or begins inside a byte; emits nothing for what is proved. Whatever reads or writes a shared
 * tile calls it first. True: something is tested. */
bool tvm_shared_guard(emitter *e, uint32_t slot, const tvm_operand *index, unsigned tile_rank,
                      const uint32_t *tile);

/* The bytes of so many elements (%r) that are narrower than a byte: whole bytes. */
reg tvm_shared_packed_bytes(emitter *e, const shared_tile *s, reg elements);

/* The run-time part of the indices as a linear offset, in elements. */
reg tvm_shared_dynamic(shared_access *a);

/* What coordinate `at` (a %r, of which no digit is shared with what is added to it) of the tile's dimension d
 * adds to the linear offset; false: nothing. */
bool tvm_shared_part(emitter *e, const shared_tile *s, unsigned d, reg at, reg *offset);
/* The address of lane offset + constant + run-time part: a register and a number of bytes to add. */
reg tvm_shared_address(shared_access *a, shared_lanes *lanes, uint32_t constant, uint32_t *plus);

/* The address of coordinates in registers (%r; name[0] == 0: none) plus constants, whatever the layout. */
reg tvm_shared_address_of_coordinates(shared_access *a, const reg coordinate[TVM_MAX_RANK],
                                      const uint32_t constant[TVM_MAX_RANK]);

/* Adds to a linear offset (name[0] == 0: 0) what a position in a dimension of the tensor, a %r, adds; `unit`
 * times. */
void tvm_shared_add_position(emitter *e, const shared_tile *s, unsigned dim, reg position, uint32_t unit,
                             reg *offset);
/* The address of a linear offset; the tensor's shared_offset is to be added. */
reg tvm_shared_address_of_offset(shared_access *a, reg offset);

#endif
