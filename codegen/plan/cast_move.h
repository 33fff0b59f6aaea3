/* When a conversion of integers changes no bit of a tensor: its code is moves. */
#ifndef TVM_CODEGEN_CAST_MOVE_H
#define TVM_CODEGEN_CAST_MOVE_H

#include "types.h"

/* From one type to another of the same packing; lowbit: by cast-lowbit, which saturates. */
static inline bool tvm_cast_keeps_bits(tvm_dtype from, tvm_dtype to, bool lowbit) {
    bool integers = tvm_dtype_is_integer(from) && tvm_dtype_is_integer(to);
    bool saturates = to.bits < 8 || (to.bits == 8 && lowbit);
    return integers && from.bits == to.bits && (!saturates || from.kind == to.kind);
}

#endif
