/* The shipped programs, and their kernels that are not proved free of races on shared memory and of deadlock,
 * and why; and those that take long (tvm_prove_long). The suite compares the list with what is proved, and
 * tvm-memory(7) with the list. */
#ifndef TVM_TESTS_PROVE_SHIPPED_H
#define TVM_TESTS_PROVE_SHIPPED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"

/* `races`, `deadlocks`: kernels that are proved free of them, at least; `mutated`: so many of the kernels. */
typedef struct shipped_program {
    const char *name, *define;
    unsigned races, deadlocks, mutated;
} shipped_program;

static const shipped_program programs[] = {
    {"argmax.vasm", NULL, 5, 5, 5},
    {"bucket.vasm", NULL, 9, 9, 9},
    {"attention.vasm", NULL, 6, 6, 0},
    {"attention_backward.vasm", NULL, 20, 20, 0},
    {"attention_decode.vasm", NULL, 8, 3, 3},
    {"attention_merge.vasm", NULL, 6, 6, 0},
    {"combine.vasm", NULL, 2, 2, 0},
    {"causal_conv.vasm", NULL, 2, 2, 0},
    {"column_sums.vasm", NULL, 2, 2, 2},
    {"cross_entropy.vasm", NULL, 4, 4, 4},
    {"cumsum.vasm", NULL, 5, 5, 0},
    {"dequantize_lowbit.vasm", NULL, 1, 1, 0},
    {"embedding.vasm", NULL, 2, 2, 0},
    {"gated_delta.vasm", "NORM=true", 8, 8, 0},
    {"embedding_backward.vasm", NULL, 2, 2, 0},
    {"histogram.vasm", NULL, 4, 4, 1},
    {"index_scores.vasm", NULL, 1, 1, 0},
    {"kv_append.vasm", NULL, 2, 2, 0},
    {"layer_norm.vasm", NULL, 11, 11, 11},
    {"layer_norm_backward.vasm", NULL, 7, 7, 7},
    {"matmul.vasm", NULL, 12, 12, 9},
    {"matmul.vasm", "T=i8", 12, 12, 1},
    {"matmul_lowbit_a8.vasm", NULL, 7, 7, 0},
    {"matmul_lowbit_u4.vasm", NULL, 46, 41, 24},
    {"matmul_scaled.vasm", "BY_GROUP=true", 6, 6, 0},
    {"matmul_scaled.vasm", "TB=f4_e2m1", 2, 2, 0},
    {"matmul_simple.vasm", NULL, 2, 2, 2},
    {"matmul_ternary.vasm", NULL, 6, 6, 0},
    {"matmul_u3.vasm", NULL, 2, 2, 2},
    {"mla_append.vasm", NULL, 1, 1, 0},
    {"mla_decode.vasm", NULL, 0, 0, 0},
    {"quantize_rows.vasm", NULL, 18, 18, 18},
    {"reduce.vasm", NULL, 4, 4, 0},
    {"rms_norm.vasm", NULL, 18, 18, 18},
    {"rms_norm_backward.vasm", NULL, 7, 7, 7},
    {"rope.vasm", NULL, 5, 5, 0},
    {"route.vasm", NULL, 9, 9, 2},
    {"sample.vasm", NULL, 2, 2, 2},
    {"scatter_add.vasm", NULL, 2, 2, 0},
    {"softmax.vasm", NULL, 12, 12, 12},
    {"state_space.vasm", "SOFTPLUS=true", 3, 3, 0},
    {"swiglu.vasm", NULL, 3, 3, 0},
    {"topk.vasm", NULL, 3, 3, 3},
    {"swiglu_backward.vasm", NULL, 2, 2, 0},
    {"topk_set.vasm", NULL, 1, 1, 0},
    {"transpose.vasm", NULL, 2, 2, 0},
    {"vector_add.vasm", NULL, 1, 1, 0},
    {"widen_lowbit.vasm", NULL, 1, 1, 0},
    {"accept.vasm", NULL, 1, 1, 0},
    {"probabilities.vasm", NULL, 2, 2, 0},
    {"../tests/foreign/attention_backward.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/convolution.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/convolution_halo.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/cross_entropy.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/fft.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/linear_attention.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/mla_decode.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/moe_u4.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/mxfp4.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/sgmv.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/split_k.vasm", NULL, 1, 1, 1},
    {"../tests/foreign/verify.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/w8a8.vasm", NULL, 1, 1, 0},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

typedef struct open_kernel {
    const char *name, *why; /* why: NULL: it takes long */
} open_kernel;

#define RINGS    "a tile that is handed on from ring to ring, as often as shared memory tells"
#define PARTS_OF "a count of parts that other blocks add up, as far as tables in memory say which are theirs"
#define TENSORS  "what mma-tensor reads of shared and tensor memory"
#define WHOLE(K)                                                                                             \
    { "matmul_lowbit_mma_" K, NULL }

static const open_kernel open_kernels[] = {
    {"attention_full64", RINGS},
    {"attention_wide64", RINGS},
    {"attention_wide80", RINGS},
    {"attention_wide96", RINGS},
    {"attention_wide128", RINGS},
    {"attention_wide192", RINGS},
    {"attention_wide256", RINGS},
    {"attention_tensor64", TENSORS},
    {"attention_tensor80", TENSORS},
    {"attention_tensor96", TENSORS},
    {"attention_tensor128", TENSORS},
    {"attention_tensor192", TENSORS},
    {"attention_tensor256", TENSORS},
    {"mla_decode_pairs", RINGS},
    {"attention_decode_bulk8", "teams of a ring that have parts of different lengths"},
    {"attention_decode_bulk4", "teams of a ring that have parts of different lengths"},
    {"attention_decode_columns8", PARTS_OF},
    {"attention_decode_columns16", PARTS_OF},
    {"attention_decode_small8", PARTS_OF},
    {"attention_decode_small16", PARTS_OF},
    {"mla_decode_warps64", PARTS_OF ", and copies of the queries whose waits are on other paths"},
    {"mla_decode_warps16", PARTS_OF ", and copies of the queries whose waits are on other paths"},
    {"one_step", "what other devices put"},
    {"two_steps", "what other devices put"},
    {"one_step_add", "what other devices put"},
    {"matmul_lowbit_stream_128x256", "rounds of turns, of which there may be none"},
    {"matmul_lowbit_stream_256x256x2", "multicast and arrivals with a rank"},
    {"matmul_lowbit_tensor_32x256", TENSORS},
    {"matmul_lowbit_tensor_64x256", TENSORS},
    {"matmul_lowbit_tensor_128x256", TENSORS},
    {"matmul_lowbit_tensor_192x256", TENSORS},
    {"matmul_lowbit_a8_tensor_64x128", TENSORS},
    {"matmul_lowbit_a8_tensor_128x128", TENSORS},
    {"matmul_lowbit_a8_tensor_192x128", TENSORS},
    {"matmul_scaled_tensor_128x64", TENSORS},
    {"matmul_scaled_tensor_128x128", TENSORS},
    {"matmul_scaled_tensor_128x256", TENSORS},
    WHOLE("64x256x1"),
    WHOLE("64x256x2"),
    WHOLE("32x256x1"),
    WHOLE("32x256x2"),
    WHOLE("16x256x1"),
    WHOLE("16x64x8"),
    WHOLE("8x64x8"),
    WHOLE("16x64x4_sm80"),
    WHOLE("8x128x2_sm80"),
    WHOLE("16x256x1_sm80"),
    WHOLE("32x256x1_sm80"),
    WHOLE("32x256x2_sm80"),
    WHOLE("64x128x2_sm80"),
    WHOLE("64x256x1_sm80"),
    WHOLE("64x256x2_sm80"),
    WHOLE("128x128x1_sm80"),
    WHOLE("128x256x1_sm80"),
};
enum { OPEN_KERNELS = sizeof open_kernels / sizeof *open_kernels };

#undef RINGS
#undef PARTS_OF
#undef TENSORS
#undef WHOLE

/* NULL: it is not there. */
static inline const open_kernel *find_open(const char *name) {
    for (size_t i = 0; i < OPEN_KERNELS; i++)
        if (strcmp(open_kernels[i].name, name) == 0) return &open_kernels[i];
    return NULL;
}

/* Has the manual's page the name of each kernel that is open? */
static inline bool is_in_manual(const char *top) {
    char path[4200];
    uint8_t *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/man/tvm-memory.7", top);
    bool good = tvm_file_read(path, 1 << 20, &text, &size, NULL) == TVM_OK;
    for (size_t i = 0; i < OPEN_KERNELS && good; i++) {
        if (open_kernels[i].why == NULL) continue;
        const char *name = open_kernels[i].name;
        bool there = false;
        for (size_t at = 0; at + strlen(name) < size && !there; at++)
            there = memcmp(text + at, name, strlen(name)) == 0 &&
                    strchr(" ,\t\n", text[at + strlen(name)]) != NULL;
        if (!there) fprintf(stderr, "tvm-memory(7) does not name %s\n", name);
        good = there;
    }
    free(text);
    return good;
}

#endif
