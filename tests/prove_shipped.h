/* The shipped programs, and their kernels that are not proved free of races on shared memory and of deadlock,
 * and why; and those whose proofs take long (tvm_prove_long). The suite compares the list with what is
 * proved, and the names and figures of tvm-memory(7) with the list. */
#ifndef TVM_TESTS_PROVE_SHIPPED_H
#define TVM_TESTS_PROVE_SHIPPED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "prove_kit.h"

/* `races`, `deadlocks`: kernels that are proved free of them, at least; `mutated`: so many of the kernels. */
typedef struct shipped_program {
    const char *name, *define;
    unsigned races, deadlocks, mutated;
} shipped_program;

static const shipped_program programs[] = {
    {"all_reduce.vasm", NULL, 3, 0, 0},
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
    {"layer_norm.vasm", "OTYPE=i8", 8, 8, 0},
    {"layer_norm_backward.vasm", NULL, 7, 7, 7},
    {"matmul.vasm", NULL, 12, 12, 9},
    {"matmul.vasm", "T=i8", 12, 12, 1},
    {"matmul_lowbit_a8.vasm", NULL, 7, 7, 0},
    {"matmul_lowbit_u4.vasm", NULL, 46, 41, 24},
    {"matmul_scaled.vasm", "BY_GROUP=true", 6, 6, 0},
    {"matmul_scaled.vasm", "EXPERTS=true", 6, 6, 0},
    {"matmul_lowbit_a8.vasm", "EXPERTS=true", 6, 6, 0},
    {"matmul_scaled.vasm", "TB=f4_e2m1", 2, 2, 0},
    {"matmul_simple.vasm", NULL, 2, 2, 2},
    {"matmul_ternary.vasm", NULL, 6, 6, 0},
    {"matmul_u3.vasm", NULL, 2, 2, 2},
    {"mla_append.vasm", NULL, 1, 1, 0},
    {"mla_decode.vasm", NULL, 0, 0, 0},
    {"qkv_lowbit.vasm", NULL, 6, 1, 0},
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

/* What is proved of a kernel that is not proved free of both. */
enum { RACES_PROVED = 1, DEADLOCKS_PROVED_IF = 2 };

typedef struct open_kernel {
    const char *name, *why; /* why: NULL: it is proved of both, which takes long */
    unsigned proved;        /* of the above */
} open_kernel;

static const char open_tensors[] = "what mma-tensor reads of shared and tensor memory";
#define RINGS    "a tile that is handed on from ring to ring, as often as shared memory tells"
#define PARTS_OF "a count of parts that other blocks add up, as far as tables in memory say which are theirs"
#define WHOLE(K)                                                                                             \
    { "matmul_lowbit_mma_" K, NULL, 0 }

static const open_kernel open_kernels[] = {
    {"attention_full64", RINGS, 0},
    {"attention_wide64", RINGS, 0},
    {"attention_wide80", RINGS, 0},
    {"attention_wide96", RINGS, 0},
    {"attention_wide128", RINGS, 0},
    {"attention_wide192", RINGS, 0},
    {"attention_wide256", RINGS, 0},
    {"attention_tensor64", open_tensors, 0},
    {"attention_tensor80", open_tensors, 0},
    {"attention_tensor96", open_tensors, 0},
    {"attention_tensor128", open_tensors, 0},
    {"attention_tensor192", open_tensors, 0},
    {"attention_tensor256", open_tensors, 0},
    {"mla_decode_pairs", RINGS, 0},
    {"attention_decode_bulk8", "teams of a ring that have parts of different lengths", RACES_PROVED},
    {"attention_decode_bulk4", "teams of a ring that have parts of different lengths", RACES_PROVED},
    {"attention_decode_columns8", PARTS_OF, RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"attention_decode_columns16", PARTS_OF, RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"attention_decode_small8", PARTS_OF, RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"attention_decode_small16", PARTS_OF, RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"mla_decode_warps64", PARTS_OF ", and copies of the queries whose waits are on other paths",
     DEADLOCKS_PROVED_IF},
    {"mla_decode_warps16", PARTS_OF ", and copies of the queries whose waits are on other paths",
     DEADLOCKS_PROVED_IF},
    {"one_step", "what other devices put", RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"two_steps", "what other devices put", RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"one_step_add", "what other devices put", RACES_PROVED | DEADLOCKS_PROVED_IF},
    {"matmul_lowbit_stream_128x256", "rounds of turns, of which there may be none", 0},
    {"matmul_lowbit_stream_256x256x2", "multicast and arrivals with a rank", 0},
    {"matmul_lowbit_tensor_32x256", open_tensors, 0},
    {"matmul_lowbit_tensor_64x256", open_tensors, 0},
    {"matmul_lowbit_tensor_128x256", open_tensors, 0},
    {"matmul_lowbit_tensor_192x256", open_tensors, 0},
    {"matmul_lowbit_a8_tensor_64x128", open_tensors, 0},
    {"matmul_lowbit_a8_tensor_128x128", open_tensors, 0},
    {"matmul_lowbit_a8_tensor_192x128", open_tensors, 0},
    {"matmul_scaled_tensor_128x64", open_tensors, 0},
    {"matmul_scaled_tensor_128x128", open_tensors, 0},
    {"matmul_scaled_tensor_128x256", open_tensors, 0},
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
#undef WHOLE

/* Is the program one that others wrote, for tests? */
static inline bool is_foreign(const shipped_program *of) {
    return strncmp(of->name, "../", 3) == 0;
}

static inline tvm_ir_program *assemble_program(const char *folder, const shipped_program *of) {
    char path[4200];
    tvm_ir_program *program = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    const tvm_assembler_options options = {.include_dirs = &folder,
                                           .include_dir_count = 1,
                                           .defines = &of->define,
                                           .define_count = of->define != NULL};
    snprintf(path, sizeof path, "%s/%s", folder, of->name);
    if (tvm_file_read(path, 1 << 20, &text, &size, NULL) == TVM_OK)
        tvm_assemble_text((const char *)text, size, path, &options, &program, NULL);
    free(text);
    return program;
}

/* NULL: it is not there. */
static inline const open_kernel *find_open(const char *name) {
    for (size_t i = 0; i < OPEN_KERNELS; i++)
        if (strcmp(open_kernels[i].name, name) == 0) return &open_kernels[i];
    return NULL;
}

/* Is the kernel open because of tensor memory? */
static inline bool is_for_tcgen05(const char *name) {
    const open_kernel *open = find_open(name);
    return open != NULL && open->why == open_tensors;
}

/* Has the manual's page the name of each kernel that is open? */
static inline bool is_in_manual(const char *top) {
    char *text = manual_text(top);
    bool good = true;
    for (size_t i = 0; i < OPEN_KERNELS && good; i++) {
        if (open_kernels[i].why == NULL) continue;
        const char *name = open_kernels[i].name, *at = strstr(text, name);
        while (at != NULL && strchr(" ,\t\n", at[strlen(name)]) == NULL) at = strstr(at + 1, name);
        if (at == NULL) fprintf(stderr, "tvm-memory(7) does not name %s\n", name);
        good = at != NULL;
    }
    free(text);
    return good;
}

#endif
