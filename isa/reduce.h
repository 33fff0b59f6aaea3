/* What reductions are of: read from the operands of an instruction. */
#ifndef TVM_ISA_REDUCE_H
#define TVM_ISA_REDUCE_H

#include "program.h"

/* The dimensions that a `reduce` with these operands (operation, source, axis, also) combines: bit d is
 * dimension d. */
static inline uint32_t tvm_reduce_axes(const tvm_operand *operands, uint32_t count) {
    uint32_t axes = UINT32_C(1) << operands[2].value;
    if (count > 3 && operands[3].kind == TVM_OPERAND_CONST)
        for (uint32_t i = 1; i <= operands[3].value; i++) axes |= UINT32_C(1) << operands[3 + i].value;
    return axes;
}

/* argmax or argmin: the result is a position, not a value. */
static inline bool tvm_reduce_is_position(uint32_t operation) {
    return operation == TVM_REDUCE_ARGMAX || operation == TVM_REDUCE_ARGMIN;
}

#endif
