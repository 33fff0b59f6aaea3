/* Layouts: where the elements of a tensor live.
 *
 * A register layout maps (thread, local index) to an element index vector. It is held in one canonical form,
 * so that two layouts are the same function exactly if their structs compare equal (tvm_layout_equal):
 *
 *   shape    extent of each dimension
 *   modes    each dimension is split into modes, most significant first; mode_size, dimension by dimension
 *   spatial  how a thread index is built, most significant digit first: an entry >= 0 is a mode, an entry -n
 *            is a replication digit of size n (those threads hold the same element)
 *   local    how a local index is built, most significant digit first: modes
 *
 * Every mode stands exactly once in spatial or in local. Canonical: no mode or replication of size 1; two
 * modes of one dimension that are neighbours in the dimension and, in the same order, neighbours in spatial
 * (or both in local) are merged; neighbouring replication digits are merged. Nothing needs a power of two.
 *
 * Layouts are plain values: no allocation, copied by assignment, unused array entries are zero.
 * Source of the algebra: Ding et al., "Tilus: A Tile-Level GPGPU Programming Language for Low-Precision
 * Computation", ASPLOS 2026, section on algebraic layouts. */
#ifndef TVM_ISA_LAYOUT_H
#define TVM_ISA_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diag.h"
#include "types.h"

enum {
    TVM_MAX_RANK = 8,
    TVM_MAX_MODES = 32,
    TVM_MAX_THREADS = 1024,          /* of a block */
    TVM_MAX_LOCALS = 4096,           /* elements a thread holds of one register tensor */
    TVM_MAX_TILE_ELEMENTS = 1 << 20, /* elements of one register or shared tensor */
    TVM_LAYOUT_TEXT_MAX = 1024
};

typedef struct tvm_layout {
    uint32_t shape[TVM_MAX_RANK];
    uint32_t mode_size[TVM_MAX_MODES];
    int32_t spatial[TVM_MAX_MODES];
    uint8_t mode_dim[TVM_MAX_MODES]; /* the dimension of each mode, ascending */
    uint8_t local[TVM_MAX_MODES];
    uint8_t rank;
    uint8_t modes;
    uint8_t spatials;
    uint8_t locals;
} tvm_layout;

/* Builds the canonical layout from its four lists (as text `layout([shape], [modes], [spatial], [local])`).
 * TVM_INVALID with `why` when the lists do not describe a layout or exceed a limit above. */
tvm_status tvm_layout_make(unsigned rank, const uint32_t *shape, unsigned modes, const uint32_t *mode_size,
                           unsigned spatials, const int32_t *spatial, unsigned locals, const uint8_t *local,
                           tvm_layout *out, tvm_why *why);

/* Is this struct, from anywhere, a canonical layout within the limits? */
bool tvm_layout_valid(const tvm_layout *layout, tvm_why *why);

/* May a thread hold its elements in registers: are they at most TVM_MAX_LOCALS? The operations on layouts
 * below do not ask: what one of them makes of tvm_layout_whole, or on the way to another, may hold more. */
bool tvm_layout_holdable(const tvm_layout *layout, tvm_why *why);

/* Primitives over a shape. Row-major: the last dimension varies fastest; column_*: the first does. */
tvm_status tvm_layout_local(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why);
tvm_status tvm_layout_spatial(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why);
tvm_status tvm_layout_column_local(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why);
tvm_status tvm_layout_column_spatial(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why);
/* Shape of `rank` ones held by `threads` threads. */
tvm_status tvm_layout_replicated(unsigned rank, uint32_t threads, tvm_layout *out, tvm_why *why);

/* Every thread holds every element: a layout that stands for its shape, and need not be holdable. */
tvm_status tvm_layout_whole(unsigned rank, const uint32_t *shape, uint32_t threads, tvm_layout *out,
                            tvm_why *why);

/* Named atoms, by the name written in programs: "mma.m16n8k16.A", ".B" (k by n), ".C" (also D), the same of
 * m16n8k8 and m16n8k32, "ldmatrix". Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16 with
 * floating point type" (.f16/.bf16), "... mma.m16n8k8" (.tf32) and "... mma.m16n8k32" (.s8/.u8). C is one
 * layout. NULL past the last for the name list. */
tvm_status tvm_layout_atom(const char *name, size_t length, tvm_layout *out, tvm_why *why);
const char *tvm_layout_atom_name(size_t index);

/* compose: the Kronecker product outer.inner: thread = t_outer * threads(inner) + t_inner, local likewise,
 * index = i_outer * shape(inner) + i_inner in each dimension. Ranks must agree, or one is padded with leading
 * ones. */
tvm_status tvm_layout_compose(const tvm_layout *outer, const tvm_layout *inner, tvm_layout *out,
                              tvm_why *why);
/* divide: the X with X.divisor == layout (right), or divisor.X == layout (left); TVM_INVALID when there is
 * none. */
tvm_status tvm_layout_divide_right(const tvm_layout *layout, const tvm_layout *divisor, tvm_layout *out,
                                   tvm_why *why);
tvm_status tvm_layout_divide_left(const tvm_layout *layout, const tvm_layout *divisor, tvm_layout *out,
                                  tvm_why *why);
/* reduce: dimension `dim` becomes 1; its spatial modes become replication, its local modes vanish. */
tvm_status tvm_layout_reduce(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why);
tvm_status tvm_layout_squeeze(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why);
tvm_status tvm_layout_unsqueeze(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why);
/* permute: dimension d of the result is dimension order[d] of the layout. */
tvm_status tvm_layout_permute(const tvm_layout *layout, const uint32_t *order, tvm_layout *out, tvm_why *why);
/* reshape: same row-major element order over another shape; fails when a mode would be split across
 * dimensions in a way that no splitting of modes expresses. flatten: reshape to rank 1. */
tvm_status tvm_layout_reshape(const tvm_layout *layout, unsigned rank, const uint32_t *shape, tvm_layout *out,
                              tvm_why *why);
tvm_status tvm_layout_flatten(const tvm_layout *layout, tvm_layout *out, tvm_why *why);
/* concat: the dimensions of a followed by those of b; thread = t_a * threads(b) + t_b, local likewise. */
tvm_status tvm_layout_concat(const tvm_layout *a, const tvm_layout *b, tvm_layout *out, tvm_why *why);
/* A layout over `threads` threads for memory traffic: row-major, each thread holding runs of the last
 * dimension of up to 16 bytes where the shape allows, then threads, then the rest local; leftover threads
 * replicate. Fails only when the shape cannot be spread evenly (threads and elements share no usable factor
 * still succeeds by replication). */
tvm_status tvm_layout_auto(unsigned rank, const uint32_t *shape, uint32_t threads, unsigned bits,
                           tvm_layout *out, tvm_why *why);

bool tvm_layout_equal(const tvm_layout *a, const tvm_layout *b);
uint32_t tvm_layout_threads(const tvm_layout *layout);
uint32_t tvm_layout_locals(const tvm_layout *layout);
uint32_t tvm_layout_elements(const tvm_layout *layout);
uint32_t tvm_layout_replication(const tvm_layout *layout); /* threads that hold each element */
/* What a step of each mode adds to the index of its dimension; up to TVM_MAX_MODES of them. */
void tvm_layout_mode_strides(const tvm_layout *layout, uint64_t *strides);

/* (thread, local) -> index vector of `rank` entries. */
void tvm_layout_map(const tvm_layout *layout, uint32_t thread, uint32_t local, uint32_t *index);
/* The same as a row-major flat element number. */
uint32_t tvm_layout_element(const tvm_layout *layout, uint32_t thread, uint32_t local);
/* Index vector -> the local index (the same in every thread that holds it) and the lowest such thread. */
void tvm_layout_locate(const tvm_layout *layout, const uint32_t *index, uint32_t *thread, uint32_t *local);
/* Fills table[thread * locals + local] = flat element, threads*locals entries; the fast way to enumerate. */
void tvm_layout_table(const tvm_layout *layout, uint32_t *table);

/* The index is a sum of independent digits: index[d] = sum over spatial digits of thread + sum over local
 * digits. So thread part and local part separate: index(t, l) = map(t, 0) + map(0, l), per dimension.
 * Guaranteed, and relied upon by the code generator. */

/* Does each thread that holds element e of `result` also hold element e of `operand`, broadcast (dimensions
 * of the operand of extent 1, or missing leading ones, are stretched), at a local index that depends on the
 * result's local index alone? Both must have the same number of threads. If so fills
 * local_map[locals(result)] (may be NULL). This is the layout rule of every element-wise instruction. */
bool tvm_layout_broadcasts(const tvm_layout *operand, const tvm_layout *result, uint32_t *local_map,
                           tvm_why *why);

/* The layout of what is broadcast of several operands, of which none need have the whole shape: [64, 1] with
 * [1, 64]. Each dimension is spread over threads and locals as in the first operand whose extent it has. A
 * thread number's digits that no dimension takes are replication. A local index is made dimension by
 * dimension, the first one most significant, of the digits that its operand has for it, in the operand's
 * order. TVM_INVALID when the threads number otherwise, when the shapes do not broadcast, or when one digit
 * of the thread number would serve two dimensions: then no thread holds all that it needs. Whether every
 * operand broadcasts to the result, the caller asks tvm_layout_broadcasts. */
tvm_status tvm_layout_joint(const tvm_layout *const *operands, unsigned count, tvm_layout *out, tvm_why *why);

/* The rule of `view`: same threads; and wherever two threads hold the same element of `to`, they hold the
 * same bits of `from` (from_bits*locals(from) == to_bits*locals(to) is checked too). */
bool tvm_layout_viewable(const tvm_layout *from, unsigned from_bits, const tvm_layout *to, unsigned to_bits,
                         tvm_why *why);

/* The fragments that mma multiplies: atoms, of `k` elements along k. Names that are NULL: one element, of one
 * thread. */
typedef struct tvm_mma_atoms {
    const char *a, *b, *c;
    uint32_t k;
} tvm_mma_atoms;

/* The rule of mma: a, b and c are [.., m, k], [.., k, n] and [.., m, n]; the leading (batch) extents of a and
 * b are those of c, or 1 or missing where the operand is broadcast;
 * they are X.atom in the last two dimensions, and each warp (of single elements, each thread) that
 * accumulates the tile (..,i,j) of c holds tiles (..,i,k) of a and (..,k,j) of b for every k. On success
 * fills the tile counts; then the tile lists can be enumerated with tvm_mma_tile: for warp-independent tile
 * number t of c (0..tiles_c), and k, the local tile numbers in a and b. The local numbers are required to be
 * the same in all warps. A tile number is the local index of the quotient layout X; its elements are as many
 * locals as the atom has, from that multiple on. */
typedef struct tvm_mma_plan {
    tvm_layout outer_a, outer_b, outer_c; /* quotients by the atoms, of c's rank; threads() = warps */
    uint32_t tiles_c, tiles_k;
} tvm_mma_plan;
bool tvm_mma_plan_make(const tvm_mma_atoms *atoms, const tvm_layout *a, const tvm_layout *b,
                       const tvm_layout *c, tvm_mma_plan *plan, tvm_why *why);
void tvm_mma_tile(const tvm_mma_plan *plan, uint32_t tile_c, uint32_t k, uint32_t *tile_a, uint32_t *tile_b);

/* Canonical text, `layout([16, 8], [2, 8, 4, 2], [1, 2], [0, 3])`, which the assembler reads back. */
const char *tvm_layout_text(const tvm_layout *layout, char text[TVM_LAYOUT_TEXT_MAX]);

/* ---- shared layouts ---------------------------------------------------------------------------------------
 * Row-major modes with strides, in elements, then an XOR swizzle on the element offset o (CuTe's convention):
 *   o ^ (((o >> (base + shift)) & (2^bits - 1)) << base),  bits <= shift; bits == 0 means none. */
typedef struct tvm_shared_layout {
    uint32_t shape[TVM_MAX_RANK];
    uint32_t mode_size[TVM_MAX_MODES];
    uint32_t mode_stride[TVM_MAX_MODES];
    uint8_t mode_dim[TVM_MAX_MODES];
    uint8_t rank;
    uint8_t modes;
    uint8_t swizzle_base;
    uint8_t swizzle_bits;
    uint8_t swizzle_shift;
} tvm_shared_layout;

/* Canonical (adjacent modes with compatible strides merged, size-1 modes dropped); refuses overlapping
 * elements (each stride must reach past all that the smaller strides span), a span of more than
 * TVM_MAX_TILE_ELEMENTS, a swizzle that leaves the allocation. */
tvm_status tvm_shared_layout_make(unsigned rank, const uint32_t *shape, unsigned modes,
                                  const uint32_t *mode_size, const uint32_t *mode_stride, unsigned base,
                                  unsigned bits, unsigned shift, tvm_shared_layout *out, tvm_why *why);
/* The same for a part of a tensor, with the swizzle of its layout, which may lead outside of the part. */
tvm_status tvm_shared_layout_part(unsigned rank, const uint32_t *shape, unsigned modes,
                                  const uint32_t *mode_size, const uint32_t *mode_stride,
                                  const tvm_shared_layout *of, tvm_shared_layout *out, tvm_why *why);
/* A layout of either. Does the swizzle of one stay in the elements that the layout spans? */
bool tvm_shared_layout_valid(const tvm_shared_layout *layout, tvm_why *why);
tvm_status tvm_shared_layout_whole(const tvm_shared_layout *layout, tvm_why *why);
/* Do elements of so many bits, one behind the other in the order of their offsets, lie in whole bytes of the
 * last dimension? Runs of tvm_bits_whole(bits) elements, whole bytes, then stay together wherever the layout
 * puts them. True of all layouts of elements that are whole bytes. */
tvm_status tvm_shared_layout_packs(const tvm_shared_layout *layout, unsigned bits, tvm_why *why);
/* Row-major, contiguous, no swizzle. */
tvm_status tvm_shared_layout_row_major(unsigned rank, const uint32_t *shape, tvm_shared_layout *out,
                                       tvm_why *why);
/* What alloc-shared takes when none is written: row-major with the swizzle of 16-byte chunks that makes eight
 * consecutive rows of a 2-D tile hit different banks (ldmatrix), where elements are a power of two of bits
 * and the row is a power of two of at least 32 bytes; else no swizzle. Elements of 16 bits whose rows are
 * several times 128 bytes lie in blocks of columns of 128 bytes, one after the other, as wgmma wants them. */
tvm_status tvm_shared_layout_auto(unsigned rank, const uint32_t *shape, unsigned bits, tvm_shared_layout *out,
                                  tvm_why *why);
/* The same of a tensor that mma-tensor or copy-tensor reads: rows of several times 128 bytes in such blocks
 * whatever the elements' size. */
tvm_status tvm_shared_layout_for_tensor_core(unsigned rank, const uint32_t *shape, unsigned bits,
                                             tvm_shared_layout *out, tvm_why *why);
bool tvm_shared_layout_equal(const tvm_shared_layout *a, const tvm_shared_layout *b);
/* Element offset of an index vector, swizzle applied. */
uint32_t tvm_shared_layout_offset(const tvm_shared_layout *layout, const uint32_t *index);
/* Elements spanned: one more than the largest offset before the swizzle, which stays within the span. */
uint32_t tvm_shared_layout_span(const tvm_shared_layout *layout);
/* Canonical text, `shared([4, 16, 64], [4, 16, 64], [1024, 64, 1], swizzle(3, 3, 3))` (swizzle omitted if
 * none). */
const char *tvm_shared_layout_text(const tvm_shared_layout *layout, char text[TVM_LAYOUT_TEXT_MAX]);

#endif
