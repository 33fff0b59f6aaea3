/* Combining two elements in reduce and scan. */
#ifndef TVM_CODEGEN_REDUCE_OP_H
#define TVM_CODEGEN_REDUCE_OP_H

#include "emit.h"
#include "reduce_plan.h"

/* "add.rn"; of argmax and argmin "max" and "min". */
const char *tvm_reduce_name(const reduce_op *op);
/* The type that it takes, "f32". */
const char *tvm_reduce_suffix(const reduce_op *op);
/* x and y combined, registers of the compute type. */
reg tvm_reduce_pair(emitter *e, const reduce_op *op, reg x, reg y);
/* The value of another lane: mode "bfly" with a mask, or "idx" with a lane, as `by`. */
reg tvm_reduce_shuffle(emitter *e, const reduce_op *op, const char *mode, reg value, const char *by);
/* As an immediate: what combined with any value gives that value, bit for bit; or (`is_result`) what stands
 * for the combination of no elements: 0, 1, the least or greatest value, all bits. */
const char *tvm_reduce_neutral(const reduce_op *op, bool is_result, char text[24]);

#endif
