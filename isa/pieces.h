/* Instructions whose result is made of pieces of tensors: slice, insert, concat, repeat, repeat-interleave,
 * shift.
 */
#ifndef TVM_ISA_PIECES_H
#define TVM_ISA_PIECES_H

#include "program.h"

typedef struct tvm_pieces {
    unsigned op; /* tvm_opcode */
    unsigned count;
    uint32_t slots[2];             /* whose elements they are */
    uint32_t offset[TVM_MAX_RANK]; /* of slice in the source, of insert in the result */
    uint32_t axis, times; /* of concat, repeat and shift; of repeat, and of shift: by how many places */
    bool back;            /* of shift */
    unsigned rank;
    const uint32_t *shapes[2];
} tvm_pieces;

void tvm_pieces_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                   const tvm_operand *operands, tvm_pieces *out);
/* Of shift: does another element come to this place along the axis? */
static inline bool tvm_shift_moves(const tvm_pieces *pieces, uint32_t at) {
    return pieces->back ? at < pieces->shapes[0][pieces->axis] - pieces->times : at >= pieces->times;
}
/* Which piece has the element of the result at `index`, and where: `from`. */
unsigned tvm_pieces_origin(const tvm_pieces *pieces, const uint32_t *index, uint32_t *from);

#endif
