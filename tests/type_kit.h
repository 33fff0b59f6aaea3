/* The types that suites loop over. */
#ifndef TVM_TESTS_TYPE_KIT_H
#define TVM_TESTS_TYPE_KIT_H

#include "types.h"

/* The low-precision types in the order of the table; returns how many. */
static inline int lowbit_types(tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX]) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    int lowbit_count = 0;
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++)
        if (tvm_dtype_is_lowbit(types[i])) lowbit[lowbit_count++] = types[i];
    return lowbit_count;
}

#endif
