/* Tensor memory: 128 lanes of 512 columns, 32 bits each, of a block (PTX ISA, "Tensor Memory"). A tensor
 * there has shape [.., 128, n]: the last but one dimension is the lane, elements of the last one lie one
 * behind the other in columns, as many in a column as 32 bits have, and matrices of the leading dimensions
 * stand beside each other. Of a shape [.., 64, n] row r is lane r / 16 * 32 + r mod 16, so that each warp
 * reaches 16 rows (PTX ISA, "Layout F"); nothing has the other lanes of its columns. */
#ifndef TVM_ISA_TENSOR_MEMORY_H
#define TVM_ISA_TENSOR_MEMORY_H

#include "mma.h"
#include "program.h"

enum { TVM_TENSOR_LANES = 128, TVM_TENSOR_HALF = 64, TVM_TENSOR_COLUMNS = 512, TVM_TENSOR_COLUMN_BITS = 32 };

/* 128 or 64: the rows of a matrix of a slot of kind TENSOR. */
static inline uint32_t tvm_tensor_rows(const tvm_ir_program *program, const tvm_slot *slot) {
    return tvm_slot_shape(program, slot)[tvm_slot_rank(program, slot) - 2];
}

/* Columns of one matrix of a slot of kind TENSOR, and of all of them: a multiple of 8. */
uint32_t tvm_tensor_matrix_columns(const tvm_ir_program *program, const tvm_slot *slot);
uint32_t tvm_tensor_columns(const tvm_ir_program *program, const tvm_slot *slot);

/* ---- loads and stores ---- */

/* A shape of tcgen05.ld and tcgen05.st (PTX ISA, "Tensor Memory Load and Store Instructions"): the lanes and
 * columns that one of them takes at least, and the registers of a thread for these. */
typedef struct tvm_tensor_shape {
    const char *name;
    uint8_t lanes, columns, words;
    uint8_t most; /* times that one instruction takes it, along the columns */
} tvm_tensor_shape;

/* What one such shape takes: from which lane of the warp's 32 on, from which column on of those of the warp,
 * and which words of a thread's elements are its registers. */
enum { TVM_TENSOR_UNIT_WORDS = 4 };
typedef struct tvm_tensor_unit {
    uint16_t lane, column;
    uint16_t words[TVM_TENSOR_UNIT_WORDS];
} tvm_tensor_unit;

typedef struct tvm_tensor_access {
    const tvm_tensor_shape *shape;
    uint32_t count;
    tvm_tensor_unit units[TVM_TENSOR_COLUMNS]; /* by lane, then by column */
} tvm_tensor_access;

/* How the threads of a team load or store a tile of all rows, of elements of so many bits, that they have in
 * the layout. Warp w reaches the lanes from 32 * (w mod 4) on alone. TVM_INVALID: no instruction does it so.
 */
tvm_status tvm_tensor_access_find(const tvm_layout *layout, unsigned bits, tvm_team team,
                                  tvm_tensor_access *out, tvm_why *why);
/* The layout of a tile of `columns` elements that the threads of the team have when none is written: of 128
 * rows each thread has one, 64 rows are in fragments of mma; each warpgroup has its part of the columns. */
tvm_status tvm_tensor_layout(uint32_t rows, uint32_t columns, tvm_team team, tvm_layout *out, tvm_why *why);

/* ---- elements of 4 and 6 bits in bytes (PTX ISA, "Sub-byte Types"; "Packing format") ---- */

/* Sixteen elements fill the beginning of 16 bytes, one behind the other. copy-bulk and copy-async make such
 * tiles of u8 of a global tensor of these types: rows of whole 128 elements, which is what TMA takes at once.
 */
enum { TVM_SPREAD_TOGETHER = 16, TVM_SPREAD_ROW = 128 };
bool tvm_tensor_spreads(tvm_dtype shared, tvm_dtype global);
/* Does the copy-bulk or copy-async? */
bool tvm_copy_spreads(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn);

/* ---- products ---- */

/* An operand, its index behind it, and the tile there. */
typedef struct tvm_tensor_tile {
    const tvm_operand *tensor; /* NULL: there is none */
    uint32_t tile[2];
    bool is_shared, is_transposed;
    bool is_spread; /* a tile of bytes: each 16 along k have 16 elements of the type, packed, at their
                       beginning */
    tvm_dtype type; /* of the elements */
} tvm_tensor_tile;

typedef struct tvm_tensor_mma {
    tvm_tensor_tile d, a, b;
    tvm_tensor_tile scale_a, scale_b;
    const tvm_operand *accumulate; /* of kind EXPR, or NONE: it adds */
    uint32_t m, n, k;              /* m: of one block, 128 or 64, as d has it */
    uint32_t blocks; /* 2: of a pair, of which each has its m rows of a and d, and half of the columns of b */
    bool folds;      /* of a pair with 64 rows of a each (PTX ISA, "Layout B"): d is [128, n / 2], whose lanes
                        from 64 on have the columns from n / 2 on */
    uint32_t step;   /* k of one instruction: as many elements as 32 bytes have */
    const tvm_mma_types *types;     /* NULL: there are none such */
    const tvm_mma_scaling *scaling; /* NULL: no scales, or none that go with the types */
} tvm_tensor_mma;

/* Reads the operands of an mma-tensor, whose tensors have two dimensions at least. */
void tvm_tensor_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                         const tvm_operand *operands, tvm_tensor_mma *out);

/* Is it a copy-tensor, mma-tensor or commit-tensor of a pair of blocks, whose ranks in the cluster differ in
 * the last bit? Both come to it; the tensor core does it once, for both. */
bool tvm_tensor_is_pair(const tvm_ir_kernel *kernel, const tvm_insn *insn);

/* Bytes along k of one instruction. */
enum { TVM_TENSOR_STEP = 32 };

/* ---- scales (PTX ISA, "tcgen05 Block Scaling") ---- */

/* Scales are bytes. Four of a row, which follow each other along k, are a column; rows are lanes modulo 32,
 * and 32 rows a column; each of the four quarters of the lanes has all of them. */
enum { TVM_TENSOR_SCALE_ROWS = 32, TVM_TENSOR_SCALES = 4 };
/* Columns that four scales of so many rows take. */
static inline uint32_t tvm_tensor_scale_columns(uint32_t rows) {
    return (rows + TVM_TENSOR_SCALE_ROWS - 1) / TVM_TENSOR_SCALE_ROWS;
}
/* Where in the tile, whose rows are lanes, number `block` along k of a row's scales is: the byte of the lane
 * row mod 32, and of those 32, 64 and 96 further. */
static inline uint32_t tvm_tensor_scale_place(uint32_t rows, uint32_t row, uint32_t block) {
    uint32_t column =
        block / TVM_TENSOR_SCALES * tvm_tensor_scale_columns(rows) + row / TVM_TENSOR_SCALE_ROWS;
    return TVM_TENSOR_SCALES * column + block % TVM_TENSOR_SCALES;
}

#endif
