/* vLLM's Marlin kernels of mixtures of experts, u4 in groups of 128 with bf16, and how its host chooses among them,
 * behind a plain function, for experts_peers.py --rivals marlin:LIBRARY. It is built where vLLM's sources are (V here,
 * 0.19.0), with empty files in the place of torch's headers, one object to a height of tiles:
 *
 *   mkdir -p S/torch S/ATen/cuda S/c10/cuda
 *   touch S/torch/all.h S/torch/library.h S/ATen/cuda/CUDAContext.h S/c10/cuda/CUDAGuard.h
 *   echo SELECT > S/kernel_selector.h
 *   sed '/^torch::Tensor/,$d; /registration/d' V/csrc/moe/marlin_moe_wna16/ops.cu > S/marlin_mm.h
 *   F="-O3 -std=c++17 -arch=sm_90a -static-global-template-stub=false --expt-relaxed-constexpr -Xcompiler -fPIC
 *      -DMARLIN_NAMESPACE_NAME=marlin_moe_wna16 -IS -IV/csrc -IV/csrc/moe/marlin_moe_wna16"
 *   for rows in 8 16 32 48 64; do nvcc $F -DROWS=$rows -c marlin_moe_glue.cu -o $rows.o; done
 *   nvcc $F -c marlin_moe_glue.cu -o host.o && nvcc -shared -cudart static -o libmarlin_moe.so *.o
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

template <typename... Parts> void refuse(const char *condition, Parts &&...parts) {
    std::ostringstream text;
    (text << ... << parts);
    fprintf(stderr, "marlin: %s: %s\n", condition, text.str().c_str());
    abort();
}
#define TORCH_CHECK(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition)) refuse(#condition, ##__VA_ARGS__);                                                           \
    } while (0)
#define BF16 vllm::kBFloat16.id()
/* of so many threads, rows, columns and rows of W; tiles of 8 rows are halves of those of 16 */
#define TILE(threads, rows, n, k)                                                                                      \
    Marlin<BF16, vllm::kU4B8.id(), BF16, BF16, threads, (rows + 15) / 16, n / 16, k / 16, rows == 8, 4, 8, false>

#ifdef ROWS
#include "kernel.h"
#include "marlin_template.h"
namespace marlin_moe_wna16 {
#if ROWS <= 16
template __global__ void TILE(256, ROWS, 128, 128)(MARLIN_KERNEL_PARAMS);
#else
template __global__ void TILE(256, ROWS, 256, 64)(MARLIN_KERNEL_PARAMS);
#endif
template __global__ void TILE(128, ROWS, 128, 64)(MARLIN_KERNEL_PARAMS);
template __global__ void TILE(128, ROWS, 64, 128)(MARLIN_KERNEL_PARAMS);
} // namespace marlin_moe_wna16
#else
#define IF_TILE(t, rows, n, k)                                                                                         \
    if (threads == t && thread_m_blocks == (rows + 15) / 16 && thread_n_blocks == n / 16 &&                            \
        thread_k_blocks == k / 16 && m_block_size_8 == (rows == 8) && group_blocks == 8)                               \
        kernel = TILE(t, rows, n, k);
#define SELECT_SMALL(rows) IF_TILE(256, rows, 128, 128) IF_TILE(128, rows, 128, 64) IF_TILE(128, rows, 64, 128)
#define SELECT_LARGE(rows) IF_TILE(256, rows, 256, 64) IF_TILE(128, rows, 128, 64) IF_TILE(128, rows, 64, 128)
#define SELECT SELECT_SMALL(8) SELECT_SMALL(16) SELECT_LARGE(32) SELECT_LARGE(48) SELECT_LARGE(64)
#include "marlin_mm.h"

/* Rows places[i] of a [m, k] times the matrix experts[i / height] of w [count, k / 16, n * 2], to the same rows of c
 * [m, n]; padded [1]: how many places there are. All on the device; stream: a CUDA stream; parts: f32, 4 * height * 256
 * (twice that of 8 rows) to a multiprocessor; locks: i32, 4 to one, zeros. */
extern "C" void marlin_moe(const void *a, const void *w, void *c, void *parts, void *scales, void *places,
                           void *experts, void *padded, void *weights, void *locks, int height, int count, int m, int n,
                           int k, int multiprocessors, void *stream) {
    marlin_moe_wna16::marlin_mm(a, w, c, parts, nullptr, nullptr, scales, nullptr, nullptr, nullptr, nullptr, nullptr,
                                places, experts, padded, weights, height, count, 1, false, m, n, k, locks,
                                vllm::kBFloat16, vllm::kU4B8, vllm::kBFloat16, vllm::kBFloat16, false, false, true,
                                false, k / 128, 128, 0, (cudaStream_t)stream, -1, -1, multiprocessors, -1, false, true,
                                false);
}
#endif
