/* Addresses, alignment and bounds of a tile of a global tensor, for load-global, store-global and copy-async.
 * A coordinate of the tile is a part that depends on the thread plus a constant; the tile's r dimensions are
 * the tensor's last. */
#ifndef TVM_CODEGEN_GLOBAL_ACCESS_H
#define TVM_CODEGEN_GLOBAL_ACCESS_H

#include "emit.h"
#include "view.h"

/* The thread's part of a coordinate in one dimension of the tile. */
typedef struct thread_part {
    bool varies;      /* false: always 0 */
    reg value;        /* %r, of the prologue */
    uint64_t divisor; /* of its value in every thread */
} thread_part;

enum { GLOBAL_CACHE = 64 };

typedef struct global_access {
    emitter *e;
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
    bool whole_bytes; /* sub-byte: an index is taken to begin at a byte (store-global) */
    bool is_near; /* constant indices are part of tvm_global_offset, not of the address, where they are few
                     bytes: tiles of one tensor then have their address in common */
} global_access;

/* part and extent (tile_rank entries) have been set; the rest is found out. */
void tvm_global_open(emitter *e, global_access *g, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank);
/* Are neighbours along the last dimension neighbours in memory? */
bool tvm_global_has_rows(const global_access *g);
/* Is anything unproven? */
bool tvm_global_is_guarded(const global_access *g);
/* Alignment, in bits, of every address whose constant coordinates lead to a multiple of it; `rows` are
 * divisors of the constant coordinates in the dimensions whose stride is not constant. Below 8: sub-byte
 * elements may begin inside a byte. */
unsigned tvm_global_alignment(const global_access *g, const uint64_t rows[TVM_MAX_RANK]);
/* Elements from the base that constant coordinates add through constant strides. */
int64_t tvm_global_offset(const global_access *g, const uint32_t coordinate[TVM_MAX_RANK]);
/* The address of the constant coordinates in the dimensions without a constant stride. */
reg tvm_global_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK]);
/* The same for instructions that take constants of -2048 to 2047 bytes: a pointer in the middle of the 4096
 * bytes that the whole address lies in, and what is added to it. For elements of whole bytes. */
reg tvm_global_near_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], int64_t *add_bytes);
/* Of whole_bytes: traps where the index of the last dimension, which is not known to, begins inside a byte.
 * False: it cannot. */
bool tvm_global_guard_bytes(global_access *g);
/* The predicate of the granule that the constant coordinates lie in; false: always inside. */
bool tvm_global_predicate(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], reg *out);
/* Of the last dimension: index and thread part, and the extent; true: they are %rd, else %r, signed. */
bool tvm_global_last(global_access *g, reg *at, reg *limit);
/* Numbers that are equal for coordinates that share pointer and predicate. */
void tvm_global_key(const global_access *g, const uint32_t coordinate[TVM_MAX_RANK],
                    uint32_t key[2 * TVM_MAX_RANK]);

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
