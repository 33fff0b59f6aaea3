/* Inner loops of the element-wise instructions: one function for an operation and an element type. */
#ifndef TVM_VM_INTERP_LOOPS_H
#define TVM_VM_INTERP_LOOPS_H

#include "program.h"

/* result[i] = operation(operands[0][i * steps[0]], ...) for i below count, over containers. A step is 1, or 0
 * for an operand that stays the same. result may be an operand whose step is 1. */
typedef void (*interp_loop_function)(size_t count, void *result, const void *const operands[3],
                                     const size_t steps[3]);

/* Of an element-wise row (TVM_OP_ELEMENT); NULL when it does not take the type. */
interp_loop_function tvm_interp_element_loop(unsigned op, tvm_dtype type);
/* TVM_GT and TVM_GE are the others with their operands exchanged. NULL when the type has no such operation.
 */
interp_loop_function tvm_interp_compare_loop(tvm_compare compare, tvm_dtype type); /* EQ NE LT LE */
interp_loop_function tvm_interp_where_loop(unsigned bytes); /* of a container; operands: condition, x, y */

/* min and max of floats: of a NaN and a number the number; -0 is below +0. */
float tvm_interp_max_f32(float a, float b);
double tvm_interp_max_f64(double a, double b);

#endif
