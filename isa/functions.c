#include "functions.h"

#include "program.h"

/* Rounded once more: see vm/interp/interp_loops.c. */
static double of_f32(unsigned op, double x, double y, bool *known) {
    switch (op) {
#define TVM_FUNCTION(id, name, function, wide)                                                               \
    case TVM_OP_##id:                                                                                        \
        return (double)(float)function(x);
#define TVM_FUNCTION_2(id, name, function, wide)                                                             \
    case TVM_OP_##id:                                                                                        \
        return (double)(float)function(x, y);
#include "functions.def"
    default:
        *known = false;
        return 0;
    }
}

static double of_f64(unsigned op, double x, double y, bool *known) {
    switch (op) {
#define TVM_FUNCTION(id, name, function, wide)                                                               \
    case TVM_OP_##id:                                                                                        \
        return (double)wide(x);
#define TVM_FUNCTION_2(id, name, function, wide)                                                             \
    case TVM_OP_##id:                                                                                        \
        return (double)wide(x, y);
#include "functions.def"
    default:
        *known = false;
        return 0;
    }
}

bool tvm_function_apply(unsigned op, tvm_dtype type, double x, double y, double *result) {
    bool known = tvm_dtype_same(type, TVM_F32) || tvm_dtype_same(type, TVM_F64);
    *result = (tvm_dtype_same(type, TVM_F64) ? of_f64 : of_f32)(op, x, y, &known);
    return known;
}
