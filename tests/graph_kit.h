/* What suites of graphs share: kernels whose results plain C computes without rounding differences, and short
 * words for tensors and arguments. */
#ifndef TVM_TESTS_GRAPH_KIT_H
#define TVM_TESTS_GRAPH_KIT_H

#include "check_kit.h"
#include <string.h>

#include "tvm.h"

static const char graph_source[] =
    ".vasm 7\n"
    ".kernel scale(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %v = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], mul(%v, f)\n"
    ".end\n"
    ".kernel sum(n: i32, x: global f32[n], y: global f32[n], z: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    %y = load-global y[block.x * 128], spatial(32).local(4)\n"
    "    store-global z[block.x * 128], add(%x, %y)\n"
    ".end\n"
    ".kernel more(n: i32, x: global f32[n], y: global f32[n])\n" /* y += x */
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    %y = load-global y[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], add(%x, %y)\n"
    ".end\n"
    ".kernel own(n: i32, x: global f32[n], y: global f32[n])\n" /* y = x, by memory of the launch */
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %t = alloc-global f32[n]\n"
    "    %c = alloc-global u32[4], clean\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global %t[block.x * 128], %x\n"
    "    sync\n"
    "    %y = load-global %t[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], %y\n"
    "    %z = load-global %c[0], spatial(4).replicated(8)\n"
    ".end\n"
    ".kernel early(n: i32, w: global f32[n], x: global f32[n], y: global f32[n])\n" /* y = w + x */
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    launch-dependents\n"
    "    %w = load-global w[block.x * 128], spatial(32).local(4)\n"
    "    wait-dependency\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], add(%w, %x)\n"
    ".end\n"
    /* the same; what it reads of w early is promised to be settled */
    ".kernel settled(n: i32, w: global f32[n], x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %old = view-global w[0], [n], settled\n"
    "    launch-dependents\n"
    "    %w = load-global %old[block.x * 128], spatial(32).local(4)\n"
    "    wait-dependency\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], add(%w, %x)\n"
    ".end\n"
    /* the same; some blocks have not waited where the text reads w behind wait-dependency */
    ".kernel branch(n: i32, w: global f32[n], x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    launch-dependents\n"
    "    if block.x == 0\n"
    "        wait-dependency\n"
    "    end\n"
    "    %w = load-global w[block.x * 128], spatial(32).local(4)\n"
    "    wait-dependency\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], add(%w, %x)\n"
    ".end\n"
    ".kernel some(n: i32, count: i32, x: global f32[n], y: global f32[n])\n" /* y = x, of some blocks */
    ".warps 1\n"
    ".grid count\n"
    "    %v = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    store-global y[block.x * 128], %v\n"
    ".end\n"
    ".kernel product(m: i32, n: i32, k: i32, a: global f16[m, k], b: global f16[k, n], c: global f16[m, n])\n"
    ".warps 1\n"
    ".grid cdiv(m, 16), cdiv(n, 16)\n"
    "    %c = alloc-register f32[16, 16], init 0.0\n"
    "    for %k0 = 0 to k step 16\n"
    "        %a = load-global a[block.x * 16, %k0], [16, 16]\n"
    "        %b = load-global b[%k0, block.y * 16], [16, 16]\n"
    "        %c = mma %a, %b, %c\n"
    "    end\n"
    "    store-global c[block.x * 16, block.y * 16], cast(%c, f16)\n"
    ".end\n"
    ".kernel relu(n: i32, x: global f16[n], y: global f16[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %x = load-global x[block.x * 128], spatial(32).local(4)\n"
    "    %z = alloc-register f16[128], spatial(32).local(4), init 0.0\n"
    "    store-global y[block.x * 128], max(%x, %z)\n"
    ".end\n"
    ".kernel scale_wide(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 256)\n"
    "    %v = load-global x[block.x * 256], spatial(32).local(8)\n"
    "    store-global y[block.x * 256], mul(%v, f)\n"
    ".end\n"
    ".entry any_scale\n"
    ".case scale if n <= 256\n"
    ".case scale_wide if n > 256\n"
    ".end\n";

/* f32[n] at an address of the CPU, or of the GPU of number 0. */
typedef struct graph_vector {
    int64_t shape[1];
    tvm_tensor tensor;
} graph_vector;

static inline const tvm_tensor *vector_at(graph_vector *vector, void *data, int64_t n, int32_t device) {
    vector->shape[0] = n;
    memset(&vector->tensor, 0, sizeof vector->tensor);
    vector->tensor.data = data;
    vector->tensor.device.device_type = device;
    vector->tensor.ndim = 1;
    vector->tensor.dtype.code = TVM_TENSOR_FLOAT;
    vector->tensor.dtype.bits = 32;
    vector->tensor.dtype.lanes = 1;
    vector->tensor.shape = vector->shape;
    return &vector->tensor;
}

#define NAMED(text)                                                                                          \
    { .name = (text) }
#define INTEGER(number)                                                                                      \
    {                                                                                                        \
        .value = {.i = (number) }                                                                            \
    }
#define REAL(number)                                                                                         \
    {                                                                                                        \
        .value = {.f = (number) }                                                                            \
    }
/* A launch without an order of its own. */
#define ADD_LAUNCH(graph, name, kernel, ...)                                                                 \
    tvm_graph_add_launch(graph, name, kernel, (const tvm_graph_argument[]){__VA_ARGS__},                     \
                         sizeof((const tvm_graph_argument[]){__VA_ARGS__}) / sizeof(tvm_graph_argument),     \
                         NULL, 0)

#endif
