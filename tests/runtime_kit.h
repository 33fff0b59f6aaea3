/* What suites of the public interface share: kernels that refuse some arguments or take every scalar. */
#ifndef TVM_TESTS_RUNTIME_KIT_H
#define TVM_TESTS_RUNTIME_KIT_H

#include "check_kit.h"

#include "tvm.h"

/* y = x * f, for an n that 4 divides. */
#define SCALE_KERNEL                                                                                         \
    ".kernel scale(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"                                    \
    ".warps 1\n"                                                                                             \
    ".grid cdiv(n, 128)\n"                                                                                   \
    ".assume n % 4 == 0\n"                                                                                   \
    "    %vx = load-global x[block.x * 128], spatial(32).local(4)\n"                                         \
    "    %vy = mul %vx, f\n"                                                                                 \
    "    store-global y[block.x * 128], %vy\n"                                                               \
    ".end\n"
/* Row i of out is scalar i. */
#define SCALARS_KERNEL                                                                                       \
    ".kernel scalars(b: bool, i: i32, u: u32, l: i64, w: u64, f: f32, d: f64, out: global f64[7, 32])\n"     \
    ".warps 1\n"                                                                                             \
    ".grid 1\n"                                                                                              \
    "    %vb = alloc-register f64[1, 32], spatial(1, 32), init b\n"                                          \
    "    store-global out[0, 0], %vb\n"                                                                      \
    "    %vi = alloc-register f64[1, 32], spatial(1, 32), init i\n"                                          \
    "    store-global out[1, 0], %vi\n"                                                                      \
    "    %vu = alloc-register f64[1, 32], spatial(1, 32), init u\n"                                          \
    "    store-global out[2, 0], %vu\n"                                                                      \
    "    %vl = alloc-register f64[1, 32], spatial(1, 32), init l\n"                                          \
    "    store-global out[3, 0], %vl\n"                                                                      \
    "    %vw = alloc-register f64[1, 32], spatial(1, 32), init w\n"                                          \
    "    store-global out[4, 0], %vw\n"                                                                      \
    "    %vf = alloc-register f64[1, 32], spatial(1, 32), init f\n"                                          \
    "    store-global out[5, 0], %vf\n"                                                                      \
    "    %vd = alloc-register f64[1, 32], spatial(1, 32), init d\n"                                          \
    "    store-global out[6, 0], %vd\n"                                                                      \
    ".end\n"

/* What the kernel of scalars has written. */
static inline void assert_scalars(const double *out, const double expected[7]) {
    for (int row = 0; row < 7; row++)
        for (int column = 0; column < 32; column++)
            ck_assert_double_eq(out[row * 32 + column], expected[row]);
}

static inline tvm_kernel *kernel_named(tvm_program *program, const char *name) {
    tvm_kernel *kernel = NULL;
    ck_assert_int_eq(tvm_get_kernel(program, name, &kernel), TVM_OK);
    ck_assert_str_eq(tvm_kernel_name(kernel), name);
    return kernel;
}

#endif
