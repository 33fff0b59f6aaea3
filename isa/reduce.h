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

/* A `scan`: operation, source, axis, exclusive, reverse. */
typedef struct tvm_scan {
    uint32_t operation, source, axis;
    bool exclusive, reverse;
} tvm_scan;

static inline tvm_scan tvm_scan_of(const tvm_operand *operands, uint32_t count) {
    return (tvm_scan){.operation = operands[0].value,
                      .source = operands[1].value,
                      .axis = operands[2].value,
                      .exclusive = count > 3 && operands[3].kind == TVM_OPERAND_CONST,
                      .reverse = count > 4 && operands[4].kind == TVM_OPERAND_CONST};
}

/* Do threads count the mode, or locals? */
static inline bool tvm_mode_is_spatial(const tvm_layout *layout, unsigned mode) {
    for (unsigned i = 0; i < layout->spatials; i++)
        if (layout->spatial[i] == (int32_t)mode) return true;
    return false;
}

#endif
