/* Functions of floats, of single numbers: as the interpreter computes them of tensors, which reads the same
 * table, functions.def. */
#ifndef TVM_ISA_FUNCTIONS_H
#define TVM_ISA_FUNCTIONS_H

#include <math.h>

#include "types.h"

/* (math.h of C23 has a function rsqrt.) */
static inline double tvm_reciprocal_root(double x) {
    return 1 / sqrt(x);
}

static inline long double tvm_reciprocal_rootl(long double x) {
    return 1 / sqrtl(x);
}

/* The function of row `op` of the opcode table, of x and, if it has two operands, y, which are numbers of
 * `type`, f32 or f64, rounded to that. False: it is no function of these. */
bool tvm_function_apply(unsigned op, tvm_dtype type, double x, double y, double *result);

#endif
