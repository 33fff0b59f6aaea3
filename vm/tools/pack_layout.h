/* How a program's kernel pack(k, n, w: global T[k, n], p: global u8[...]) lays weights out: found by running
 * it.
 *
 * p must be a grid of tiles, each the bits of a tile of w, moved, some of them complemented: the same way in
 * every tile. Rows and
 * columns of w past its edge are zero codes. */
#ifndef TVM_VM_PACK_LAYOUT_H
#define TVM_VM_PACK_LAYOUT_H

#include "pack_vector.h"
#include "program.h"

typedef struct pack_layout {
    tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    uint32_t k, n, w, p; /* parameters */
    tvm_dtype type;
    uint32_t rows, columns; /* of w, a tile */
    size_t bytes;           /* of p, a tile */
    bool down;              /* tiles are numbered down the columns; else along the rows */
    pack_moves moves;
    void *tables;         /* what moves points to */
    uint32_t *complement; /* a tile of zero codes: what its words are xor'ed with */
    char hash[33];        /* of the program, hexadecimal */
} pack_layout;

/* kernel NULL: "pack". The interpreter runs on `threads` threads (0: one a core). TVM_UNSUPPORTED when the
 * kernel is no such permutation, with the reason. Release with pack_layout_free in any case. */
tvm_status pack_layout_open(const char *path, const char *kernel, unsigned threads, pack_layout *layout,
                            tvm_diags *diags);
void pack_layout_free(pack_layout *layout);

/* Shape of p for these k, n. TVM_ARGUMENT when the kernel does not take them. */
tvm_status pack_layout_shape(const pack_layout *layout, int64_t k, int64_t n, int64_t shape[TVM_MAX_RANK],
                             unsigned *rank, uint64_t *bytes, tvm_diags *diags);

/* Where a tile begins in p, which is k by n. */
static inline uint64_t pack_layout_place(const pack_layout *layout, uint64_t k, uint64_t n, uint64_t row,
                                         uint64_t column) {
    uint64_t down = (k + layout->rows - 1) / layout->rows,
             across = (n + layout->columns - 1) / layout->columns;
    return (layout->down ? column * down + row : row * across + column) * layout->bytes;
}

/* Bytes of scratch that pack_layout_tile needs. */
static inline size_t pack_layout_scratch(const pack_layout *layout) {
    return layout->moves.words * 5;
}
/* codes: rows*columns codes, row after row; tile: bytes. scratch is 4-byte aligned. */
void pack_layout_tile(const pack_layout *layout, const uint8_t *codes, void *scratch, uint8_t *tile);
/* The way back; tile is 4-byte aligned and holds a whole number of words. */
void pack_layout_untile(const pack_layout *layout, const void *tile, uint8_t *codes);

#endif
