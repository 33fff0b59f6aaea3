/* A small random matrix of codes and scales, of which tests make checkpoints, and what an import makes of
 * them. One test process has one matrix. */
#ifndef TVM_TESTS_CHECKPOINT_MATRIX_KIT_H
#define TVM_TESTS_CHECKPOINT_MATRIX_KIT_H

#include "checkpoint_kit.h"
#include "own_folder_kit.h"

static uint64_t state = 1;

static inline unsigned draw(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* ---- the weights ---- */

enum { MAX_K = 256, MAX_N = 256, MAX_STACK = 3 };

/* W[k, n] = (code - zero) * scale of the row's group, by input and column. */
typedef struct matrix {
    int k, n, group, bits;
    int code[MAX_K][MAX_N];
    int zero[MAX_K][MAX_N]; /* by group and column; so are scales, which are codes of f16 or whatever the test
                               says */
    uint16_t half[MAX_K][MAX_N];
    double scale[MAX_K][MAX_N];
    int group_of[MAX_K];
    double weight[MAX_K][MAX_N];
} matrix;

static matrix m;

/* Random codes and scales of f16 or bf16; zero points from `least` on, or the middle. */
static inline void make_matrix(int k, int n, int group, int bits, tvm_dtype half, int least_zero) {
    m = (matrix){.k = k, .n = n, .group = group, .bits = bits};
    for (int g = 0; g < k / group; g++)
        for (int j = 0; j < n; j++) {
            m.half[g][j] = (uint16_t)tvm_encode(half, 0.001 * (1 + (double)draw(1000)));
            m.scale[g][j] = tvm_decode(half, m.half[g][j]);
            m.zero[g][j] = least_zero < 0 ? 1 << (bits - 1)
                                          : least_zero + (int)draw((1u << bits) - (unsigned)least_zero);
        }
    for (int i = 0; i < k; i++) {
        m.group_of[i] = i / group;
        for (int j = 0; j < n; j++) m.code[i][j] = (int)draw(1u << bits);
    }
}

/* Groups of rows that lie anywhere. */
static inline void mix_groups(void) {
    for (int i = m.k - 1; i > 0; i--) {
        int other = (int)draw((unsigned)i + 1), group = m.group_of[i];
        m.group_of[i] = m.group_of[other];
        m.group_of[other] = group;
    }
}

static inline void find_weights(void) {
    for (int i = 0; i < m.k; i++)
        for (int j = 0; j < m.n; j++) {
            int g = m.group_of[i];
            m.weight[i][j] = (m.code[i][j] - m.zero[g][j]) * m.scale[g][j];
        }
}

static inline void *add_scales(kit_file *file, const char *name, const char *dtype) {
    uint16_t *scales =
        kit_add(file, name, dtype, kit_shape(m.k / m.group, m.n), (size_t)(m.k / m.group * m.n) * 2);
    for (int g = 0; g < m.k / m.group; g++)
        for (int j = 0; j < m.n; j++) scales[g * m.n + j] = m.half[g][j];
    return scales;
}

/* ---- importing ---- */

static inline tvm_status import(const char *input, const char *output, const char *from, tvm_diags *diags,
                                tvm_diags *warnings) {
    checkpoint_options options = {.input = in_folder(input),
                                  .output = in_folder(output),
                                  .from = from,
                                  .threads = 2,
                                  .warnings = warnings};
    return tvm_checkpoint_import(&options, diags);
}

static inline void import_well(const char *input, const char *output, const char *from) {
    tvm_diags diags = {0}, warnings = {0};
    tvm_status status = import(input, output, from, &diags, &warnings);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    ck_assert_msg(warnings.count == 0, "%s", warnings.count ? warnings.items[0].message : "");
    tvm_diags_free(&diags);
}

static inline void import_badly(const char *input, const char *from, const char *says) {
    tvm_diags diags = {0};
    struct stat info;
    ck_assert_int_ne(import(input, "out", from, &diags, NULL), TVM_OK);
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, says) != NULL, "'%s' is not said: %s", says,
                  diags.items[0].message);
    ck_assert_int_ne(stat(in_folder("out"), &info), 0);
    tvm_diags_free(&diags);
}

/* Are they the weights of the matrix, exactly or within a part of themselves? */
static inline void compare_matrix(const kit_layer *layer, uint64_t index, double within) {
    ck_assert_uint_eq(layer->k, (uint64_t)m.k);
    ck_assert_uint_eq(layer->n, (uint64_t)m.n);
    char seen[MAX_K] = {0};
    for (uint64_t i = 0; i < layer->k; i++)
        for (uint64_t j = 0; j < layer->n; j++) {
            uint64_t input;
            double value = kit_weight(layer, index, i, j, &input);
            ck_assert_uint_lt(input, layer->k);
            double wanted = m.weight[input][j];
            ck_assert_msg(fabs(value - wanted) <= within * fabs(wanted), "W[%d, %d] is %.17g, not %.17g",
                          (int)input, (int)j, value, wanted);
            seen[input] = 1;
        }
    for (int i = 0; i < m.k; i++) ck_assert(seen[i]);
}

static inline void compare_file(const char *path, const char *name, bool zeros, bool order, double within) {
    kit_result read = kit_read(in_folder(path));
    kit_layer layer = kit_open_layer(&read, name);
    ck_assert_int_eq(layer.zeros != NULL, zeros);
    ck_assert_int_eq(layer.order != NULL, order);
    compare_matrix(&layer, 0, within);
    kit_free(&read);
}

#endif
