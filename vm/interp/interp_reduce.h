/* What combines elements in reduce and scan. */
#ifndef TVM_VM_INTERP_REDUCE_H
#define TVM_VM_INTERP_REDUCE_H

#include "types.h"

typedef enum reduce_class { REDUCE_FLOAT, REDUCE_DOUBLE, REDUCE_SIGNED, REDUCE_UNSIGNED } reduce_class;

/* f16, bf16 and f32 as f32; integers in 64 bits: a wide sum wraps to the narrower one. */
typedef struct reduce_value {
    union {
        float f;
        double d;
        int64_t i;
        uint64_t u;
    };
    uint32_t position; /* of argmax and argmin */
} reduce_value;

typedef struct interp_reduction {
    tvm_dtype type;
    uint32_t operation; /* tvm_reduction */
    reduce_class class;
} interp_reduction;

interp_reduction tvm_interp_reduction(tvm_dtype type, uint32_t operation);
reduce_value tvm_interp_reduce_read(const interp_reduction *r, const void *containers, size_t at);
/* Rounded to the type; not of positions. */
void tvm_interp_reduce_write(const interp_reduction *r, void *containers, size_t at, reduce_value value);
reduce_value tvm_interp_combine(const interp_reduction *r, reduce_value a, reduce_value b);
/* The combination of no elements: 0, 1, the least or the greatest value, all bits. */
reduce_value tvm_interp_neutral(const interp_reduction *r);

#endif
