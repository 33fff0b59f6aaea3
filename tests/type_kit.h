/* The types that suites loop over. */
#ifndef TVM_TESTS_TYPE_KIT_H
#define TVM_TESTS_TYPE_KIT_H

#include <string.h>

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

/* Of each width and each way to convert one; the others differ in constants alone. */
static inline bool lowbit_is_of_a_kind(tvm_dtype type) {
    static const char *const types[] = {"u1",      "u2",      "u3",      "u4",      "u5",      "u6",
                                        "u7",      "u8",      "i5",      "f3_e1m1", "f4_e2m1", "f5_e2m2",
                                        "f6_e3m2", "f7_e2m4", "f8_e4m3", "f8_e5m2", "f8_e7m0"};
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(type, name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i], name) == 0) return true;
    return false;
}

#endif
