#include "pieces.h"

#include <string.h>

void tvm_pieces_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                   const tvm_operand *operands, tvm_pieces *out) {
    *out =
        (tvm_pieces){.op = insn->op, .count = insn->op == TVM_OP_INSERT || insn->op == TVM_OP_CONCAT ? 2 : 1};
    for (unsigned p = 0; p < out->count; p++) {
        out->slots[p] = operands[p].value;
        out->shapes[p] = tvm_slot_shape(program, &kernel->slots[operands[p].value]);
    }
    out->rank = tvm_slot_rank(program, &kernel->slots[operands[0].value]);
    const tvm_operand *next = operands + out->count;
    if (insn->op == TVM_OP_SLICE || insn->op == TVM_OP_INSERT) {
        for (uint32_t d = 0; d < out->rank && d < next->value; d++) out->offset[d] = next[1 + d].value;
        return;
    }
    out->axis = next[0].value;
    if (insn->op != TVM_OP_CONCAT) out->times = next[1].value;
    out->back = insn->op == TVM_OP_SHIFT && next[2].kind == TVM_OPERAND_CONST;
}

unsigned tvm_pieces_origin(const tvm_pieces *pieces, const uint32_t *index, uint32_t *from) {
    unsigned inside = 1;
    memcpy(from, index, pieces->rank * sizeof *from);
    switch (pieces->op) {
    case TVM_OP_SLICE:
        for (unsigned d = 0; d < pieces->rank; d++) from[d] += pieces->offset[d];
        return 0;
    case TVM_OP_INSERT:
        for (unsigned d = 0; d < pieces->rank; d++)
            if (index[d] < pieces->offset[d] || index[d] - pieces->offset[d] >= pieces->shapes[1][d])
                inside = 0;
        for (unsigned d = 0; inside && d < pieces->rank; d++) from[d] -= pieces->offset[d];
        return inside;
    case TVM_OP_CONCAT:
        if (index[pieces->axis] < pieces->shapes[0][pieces->axis]) return 0;
        from[pieces->axis] -= pieces->shapes[0][pieces->axis];
        return 1;
    case TVM_OP_REPEAT:
        from[pieces->axis] %= pieces->shapes[0][pieces->axis];
        return 0;
    case TVM_OP_SHIFT:
        if (tvm_shift_moves(pieces, index[pieces->axis]))
            from[pieces->axis] += pieces->back ? pieces->times : -pieces->times;
        return 0;
    default:
        from[pieces->axis] /= pieces->times;
        return 0;
    }
}
