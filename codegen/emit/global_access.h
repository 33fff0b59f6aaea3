/* Addresses of a tile of a global tensor (plan/global_tile.h), and tests whether they lie inside. */
#ifndef TVM_CODEGEN_GLOBAL_ACCESS_H
#define TVM_CODEGEN_GLOBAL_ACCESS_H

#include "emit.h"
#include "global_tile.h"

enum { GLOBAL_CACHE = 64 };

/* A tile that is accessed where code is being written. tile.part and tile.extent (tile_rank entries) and part
 * are set by who opens it. */
typedef struct global_access {
    emitter *e;
    global_tile tile;
    reg part[TVM_MAX_RANK]; /* %r, of the prologue: the thread's part of a coordinate, where it varies */
    /* The address of the tile's constant parts 0 is base + moving. In a loop base is what the innermost one
     * leaves alone, rows are added to it, so that they are computed before the loop, and moving is what the
     * loop changes. */
    reg base, moving; /* %rd; moving.name[0] == 0: nothing */
    bool has_base;
    /* predicates by dimension and granule, pointers by row, of this instruction */
    struct {
        unsigned dim;
        uint32_t granule;
        reg value;
    } predicates[GLOBAL_CACHE];
    unsigned predicate_count;
    struct {
        int64_t rows[TVM_MAX_RANK], bytes;
        reg value;
    } pointers[GLOBAL_CACHE];
    unsigned pointer_count;
} global_access;

void tvm_global_open(emitter *e, global_access *g, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank);
/* The address of the constant coordinates in the dimensions without a constant stride. */
reg tvm_global_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK]);
/* The same for instructions that take constants of -2048 to 2047 bytes: a pointer in the middle of the 4096
 * bytes that the whole address lies in, and what is added to it. For coordinates at whole bytes. */
reg tvm_global_near_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], int64_t *add_bytes);
/* Of whole_bytes: traps where the index of the last dimension, which is not known to, begins inside a byte.
 * False: it cannot. */
bool tvm_global_guard_bytes(global_access *g);
/* The predicate of the granule that the constant coordinates lie in; false: always inside. */
bool tvm_global_predicate(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], reg *out);
/* Of the last dimension: index and thread part, and the extent; true: they are %rd, else %r, signed. */
bool tvm_global_last(global_access *g, reg *at, reg *limit);

/* What a load with an eviction priority adds: to the opcode after `.global`, and after its operands; both may
 * be "". */
typedef struct cache_hint {
    const char *level1; /* of loads to registers alone */
    const char *level2;
    char policy[16]; /* ", %rd5" */
} cache_hint;
/* operand: of kind E. */
cache_hint tvm_cache_hint(emitter *e, const tvm_operand *operand);

/* Of a dimension whose index is a tensor: what an element of that, a %r of i32 or a %rd of i64, adds to the
 * address, in bytes, and whether it lies inside. */
reg tvm_global_element(global_access *g, unsigned tensor_dim, reg index, bool is_wide, reg *inside);

/* index + thread part of a dimension of the tile, as %rd, and the stride of a dimension of the tensor in
 * elements, as %rd. */
reg tvm_global_position(global_access *g, unsigned tensor_dim);
reg tvm_global_stride(global_access *g, unsigned tensor_dim);

#endif
