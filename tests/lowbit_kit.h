/* The types of 1 to 8 bits, by a number. */
#ifndef TVM_TESTS_LOWBIT_KIT_H
#define TVM_TESTS_LOWBIT_KIT_H

#include "types.h"

/* u1..u7 and u8, i2..i7 and i8, and the floats of 3 to 8 bits in every split */
enum { LOWBIT_COUNT = 7 + 1 + 6 + 1 + 27 };

/* Kind TVM_KIND_NONE for a number behind the last. */
static inline tvm_dtype lowbit_type(int index) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++)
        if (tvm_dtype_is_lowbit(types[i]) && index-- == 0) return types[i];
    return (tvm_dtype){0};
}

#endif
