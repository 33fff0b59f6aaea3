/* The beginning of files with loops over vectors: code for vector instructions at any level of -O, one
 * instance of a loop for each set of them, and the choice among them at run time. Functions inlined into the
 * loops (convert.h) must be declared after this: gcc inlines only between functions of the same options. A
 * product is not contracted into the sum after it: results would depend on the compiler. */
#ifndef TVM_VM_VECTOR_H
#define TVM_VM_VECTOR_H

#include <stdbool.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define VECTOR_X86 1
#define TARGET_256 __attribute__((target("avx2,fma,f16c")))
#if defined(__clang__)
#define TARGET_512                                                                                           \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), min_vector_width(512)))
#else
#define TARGET_512                                                                                           \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")))
#endif

/* Every processor that has AVX2 has F16C. */
static inline bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static inline bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
}

/* Calls NAME_avx512, NAME_avx2 or NAME_baseline. */
#define DISPATCH(name, arguments)                                                                            \
    do {                                                                                                     \
        if (has_avx512())                                                                                    \
            name##_avx512 arguments;                                                                         \
        else if (has_avx2())                                                                                 \
            name##_avx2 arguments;                                                                           \
        else                                                                                                 \
            name##_baseline arguments;                                                                       \
    } while (0)
#else
#define DISPATCH(name, arguments) name##_baseline arguments
#endif

#endif
