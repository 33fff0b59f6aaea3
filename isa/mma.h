/* mma's operands: a and b are register tensors, or tiles of shared tensors, whose extents follow from c and
 * from each other. */
#ifndef TVM_ISA_MMA_H
#define TVM_ISA_MMA_H

#include "program.h"

/* a or b. Its matrices are [m, k] or [k, n]; in shared memory they may be stored transposed. Where a leading
 * extent is 1, or missing, the matrices of c share the operand's: it is broadcast. */
typedef struct tvm_mma_source {
    uint32_t slot;
    unsigned rank;
    uint32_t shape[TVM_MAX_RANK]; /* [.., m, k] or [.., k, n] */
    const tvm_operand *tensor;    /* the slot's operand; of a shared tensor with its indices after it */
    bool is_shared;
    bool is_transposed;
    bool is_spread; /* a tile of bytes: each 16 along k begin with 16 elements, packed (tensor_memory.h) */
    tvm_dtype type; /* of the elements */
    /* Of a shared one: the tile at the index, as it is stored. */
    unsigned tile_rank;
    uint32_t tile[TVM_MAX_RANK];
    /* Elements of the tile, in row-major order, from a matrix of the batch to the next, from one along k to
     * the next, and along the other dimension. */
    uint32_t batch_stride, k_stride, other_stride;
} tvm_mma_source;

typedef struct tvm_mma {
    tvm_mma_source a, b;
    uint32_t c;                            /* slot */
    const struct tvm_mma_types *types;     /* NULL: mma does not multiply these */
    const tvm_mma_atoms *atoms;            /* of the types, or of the scaling; NULL where those are */
    const struct tvm_mma_scaling *scaling; /* NULL: no scales, or none that go with the types */
    uint32_t scale_a, scale_b;             /* slots, TVM_NONE: none */
    uint32_t batch;                        /* matrices of c */
    unsigned leading;                      /* dimensions of the batch, */
    uint32_t extent[TVM_MAX_RANK];         /* and their extents */
    uint32_t m, n, k;                      /* of each matrix */
    bool splits_k;                         /* the matrices of a shared tile lie one after the other along k */
    bool may_reassociate;                  /* constants may be taken off the sums in place of the operand */
} tvm_mma;

/* What mma multiplies, and adds to. */
typedef enum tvm_mma_sums { TVM_MMA_F32, TVM_MMA_F16, TVM_MMA_F64, TVM_MMA_I32 } tvm_mma_sums;
typedef struct tvm_mma_types {
    tvm_dtype a, b, c; /* of a flag `tf32` that type, whatever the tensors have */
    tvm_mma_sums sums;
    const tvm_mma_atoms *atoms;
    bool is_scalar; /* f32 in full: multiplied without tensor cores */
    unsigned since; /* version of the language */
} tvm_mma_types;

/* Scales of a, [.., m, k / block], and of b, [.., k / block, n]: each element of a block along k is
 * multiplied by its scale before it is a factor. */
typedef struct tvm_mma_scaling {
    tvm_dtype type; /* of the scales */
    uint32_t block;
    const tvm_mma_atoms *operands; /* the fragments of a, b and c, */
    const tvm_mma_atoms *scales;   /* and of the scales: `k` of them for each row in a fragment of a */
} tvm_mma_scaling;

/* NULL: operands of these types have no scales of this one. */
const tvm_mma_scaling *tvm_mma_find_scaling(tvm_dtype a, tvm_dtype b, tvm_dtype scale);
/* Floats of 4, 6 or 8 bits that are multiplied in any mix. */
bool tvm_mma_is_small_float(tvm_dtype type);
/* Is it a product of such floats that not all tensor cores with f8 have: of 4 or 6 bits, with f16 sums, or
 * scales? */
bool tvm_mma_is_mixed(const tvm_mma *mma);

/* NULL: there are none such. `as_tf32`: f32 operands are read as tf32. */
const tvm_mma_types *tvm_mma_find_types(tvm_dtype a, tvm_dtype b, tvm_dtype c, bool as_tf32);
/* Row i of those, NULL past the last. */
const tvm_mma_types *tvm_mma_types_at(unsigned i);
/* The atoms for operands of this type; NULL: mma takes no such. */
const tvm_mma_atoms *tvm_mma_atoms_of(tvm_dtype operand, bool as_tf32);
/* Where an instruction's operands stand behind a; TVM_NONE: it has no scales. */
typedef struct tvm_mma_places {
    uint32_t b, c, scale_a, scale_b;
} tvm_mma_places;
tvm_mma_places tvm_mma_find_places(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                   const tvm_operand *operands, uint32_t count);
/* Of the elements of a, or b: the tensor's type, or of a tile of bytes that which type_a or type_b says. */
tvm_dtype tvm_mma_type_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          const tvm_operand *operands, uint32_t count, bool is_a);
/* The type that type_a or type_b is. */
tvm_dtype tvm_spread_dtype(tvm_spread spread);
/* Does the instruction have the flag? */
bool tvm_mma_reads_tf32(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_operand *operands, uint32_t count);

/* Reads an mma's operands, of which c is a register tensor of rank 2 or more. False when k is not known: both
 * are shared tiles and the instruction does not say it. */
bool tvm_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_operand *operands,
                  uint32_t count, tvm_mma *out);

/* The operand's matrix that goes with matrix number `matrix` of c; both are numbered in row-major order. */
uint32_t tvm_mma_matrix(const tvm_mma *mma, const tvm_mma_source *source, uint32_t matrix);
/* The number of the operand's matrices. */
uint32_t tvm_mma_matrices(const tvm_mma_source *source);

/* Do the matrices of the batch share an operand, of a verified instruction? */
bool tvm_mma_broadcasts(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_operand *operands, uint32_t count);
/* The version of the language with which its types came, of a verified instruction. */
unsigned tvm_mma_since(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_operand *operands, uint32_t count);

/* Of the operand's scales, whose layout follows from c as its own does: rank and shape. */
void tvm_mma_scale_shape(const tvm_mma *mma, bool a, unsigned *rank, uint32_t *shape);

/* The register layout of operand `a` (else b) of this shape that goes with c: each warp has what its tiles of
 * c need. Leading dimensions of c that the operand lacks, or has with extent 1, replicate it. TVM_INVALID
 * when c is no product X.C of the atom C, k no multiple of the atoms', or the rank not 2 to that of c. */
tvm_status tvm_mma_fragments(const tvm_mma_atoms *atoms, const tvm_layout *c, bool a, unsigned rank,
                             const uint32_t *shape, tvm_layout *out, tvm_why *why);

/* That layout as one of the tile in shared memory: which thread needs what. */
tvm_status tvm_mma_tile_layout(const tvm_mma *mma, bool a, const tvm_layout *fragments, tvm_layout *out,
                               tvm_why *why);

#endif
