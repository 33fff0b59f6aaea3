/* The tensors that an import writes, and the pieces of them that threads write one by one. */
#ifndef TVM_VM_CHECKPOINT_PARTS_H
#define TVM_VM_CHECKPOINT_PARTS_H

#include "checkpoint_impl.h"
#include "output.h"

typedef enum ck_part_kind {
    CK_PART_COPY,
    CK_PART_ROWS, /* a copy of moved rows, or of other numbers */
    CK_PART_PACKED,
    CK_PART_SCALES,
    CK_PART_ZEROS,
    CK_PART_ORDER,
    CK_PART_MULTIPLIER,
    CK_PART_VALUES,  /* weights as floats, [n, k] */
    CK_PART_QWEIGHT, /* from here on those of other programs: checkpoint_export.h */
    CK_PART_QZEROS,
    CK_PART_QZEROS_LESS_1,
    CK_PART_G_IDX,
    CK_PART_WEIGHT_PACKED,
    CK_PART_WEIGHT_SCALE,
    CK_PART_WEIGHT_SHAPE,
    CK_PART_ZERO_POINT
} ck_part_kind;

/* A tensor of the output. */
typedef struct ck_part {
    ck_part_kind kind;
    const ck_layer *layer;
    const ck_tensor *source; /* of a copy */
    size_t output;           /* the file */
    uint64_t first_piece;    /* among those of all parts */
    uint64_t offset;         /* in the file */
} ck_part;

/* The number of pieces that a part has. */
uint64_t ck_part_pieces(const ck_part *part);
/* Bytes of memory that writing a piece of it takes. */
size_t ck_part_memory(const ck_part *part);
/* Writes piece `number` of the part to its file. */
tvm_status ck_write_piece(const ck_part *part, const tvm_output *output, uint64_t number, uint8_t *memory,
                          tvm_diags *diags);

/* Bytes of a row of packed codes. */
uint64_t ck_row_bytes(const ck_layer *layer);

#endif
