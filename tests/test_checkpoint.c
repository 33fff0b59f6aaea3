/* tvm-pack --from: small checkpoints of each format, made here as those who publish it lay it out; what comes
 * of them is compared with the weights that they were made of. And what is refused. */
#include "checkpoint_kit.h"
#include "own_folder_kit.h"
#include "suite_kit.h"

static uint64_t state = 1;

static unsigned draw(unsigned below) {
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
static void make_matrix(int k, int n, int group, int bits, tvm_dtype half, int least_zero) {
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
static void mix_groups(void) {
    for (int i = m.k - 1; i > 0; i--) {
        int other = (int)draw((unsigned)i + 1), group = m.group_of[i];
        m.group_of[i] = m.group_of[other];
        m.group_of[other] = group;
    }
}

static void find_weights(void) {
    for (int i = 0; i < m.k; i++)
        for (int j = 0; j < m.n; j++) {
            int g = m.group_of[i];
            m.weight[i][j] = (m.code[i][j] - m.zero[g][j]) * m.scale[g][j];
        }
}

static void *add_scales(kit_file *file, const char *name, const char *dtype) {
    uint16_t *scales =
        kit_add(file, name, dtype, kit_shape(m.k / m.group, m.n), (size_t)(m.k / m.group * m.n) * 2);
    for (int g = 0; g < m.k / m.group; g++)
        for (int j = 0; j < m.n; j++) scales[g * m.n + j] = m.half[g][j];
    return scales;
}

/* ---- importing ---- */

static tvm_status import(const char *input, const char *output, const char *from, tvm_diags *diags,
                         tvm_diags *warnings) {
    checkpoint_options options = {.input = in_folder(input),
                                  .output = in_folder(output),
                                  .from = from,
                                  .threads = 2,
                                  .warnings = warnings};
    return tvm_checkpoint_import(&options, diags);
}

static void import_well(const char *input, const char *output, const char *from) {
    tvm_diags diags = {0}, warnings = {0};
    tvm_status status = import(input, output, from, &diags, &warnings);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    ck_assert_msg(warnings.count == 0, "%s", warnings.count ? warnings.items[0].message : "");
    tvm_diags_free(&diags);
}

static void import_badly(const char *input, const char *from, const char *says) {
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
static void compare_matrix(const kit_layer *layer, uint64_t index, double within) {
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

static void compare_file(const char *path, const char *name, bool zeros, bool order, double within) {
    kit_result read = kit_read(in_folder(path));
    kit_layer layer = kit_open_layer(&read, name);
    ck_assert_int_eq(layer.zeros != NULL, zeros);
    ck_assert_int_eq(layer.order != NULL, order);
    compare_matrix(&layer, 0, within);
    kit_free(&read);
}

/* ---- GPTQ ---- */

/* AutoGPTQ's loop for three bits: ten codes, one cut in two, ten, one cut in two, ten, in three words. */
static void pack_three(const int code[32], uint32_t words[3]) {
    int i = 0;
    memset(words, 0, 12);
    for (int j = 0; j < 10; j++) words[0] |= (uint32_t)code[i++] << (3 * j);
    words[0] |= (uint32_t)code[i] << 30;
    words[1] |= (uint32_t)code[i++] >> 2 & 1;
    for (int j = 0; j < 10; j++) words[1] |= (uint32_t)code[i++] << (3 * j + 1);
    words[1] |= (uint32_t)code[i] << 31;
    words[2] |= (uint32_t)code[i++] >> 1 & 3;
    for (int j = 0; j < 10; j++) words[2] |= (uint32_t)code[i++] << (3 * j + 2);
}

static void pack_words(int bits, const int *codes, int count, uint32_t *words, int stride) {
    for (int i = 0; bits == 3 && i < count / 32; i++) {
        uint32_t three[3];
        pack_three(codes + 32 * i, three);
        for (int w = 0; w < 3; w++) words[(3 * i + w) * stride] = three[w];
    }
    for (int i = 0; bits != 3 && i < count; i++)
        words[i / (32 / bits) * stride] |= (uint32_t)codes[i] << (i % (32 / bits) * bits);
}

static void add_gptq(kit_file *file, const char *name, int minus, bool g_idx) {
    char text[96];
    int words = m.k * m.bits / 32, groups = m.k / m.group;
    snprintf(text, sizeof text, "%s.qweight", name);
    uint32_t *qweight = kit_add(file, text, "I32", kit_shape(words, m.n), (size_t)(words * m.n) * 4);
    snprintf(text, sizeof text, "%s.qzeros", name);
    uint32_t *qzeros = kit_add(file, text, "I32", kit_shape(groups, m.n * m.bits / 32),
                               (size_t)(groups * m.n * m.bits / 32) * 4);
    snprintf(text, sizeof text, "%s.scales", name);
    add_scales(file, text, "F16");
    for (int j = 0; j < m.n; j++) {
        int column[MAX_K];
        for (int i = 0; i < m.k; i++) column[i] = m.code[i][j];
        pack_words(m.bits, column, m.k, qweight + j, m.n);
    }
    for (int g = 0; g < groups; g++) {
        int row[MAX_N];
        for (int j = 0; j < m.n; j++) row[j] = m.zero[g][j] - minus;
        pack_words(m.bits, row, m.n, qzeros + g * m.n * m.bits / 32, 1);
    }
    snprintf(text, sizeof text, "%s.g_idx", name);
    if (!g_idx) return;
    int32_t *index = kit_add(file, text, "I32", kit_shape(m.k, 0), (size_t)m.k * 4);
    for (int i = 0; i < m.k; i++) index[i] = m.group_of[i];
}

START_TEST(gptq) {
    static const int widths[] = {2, 3, 4, 8};
    int bits = widths[_i / 3],
        kind = _i % 3; /* symmetric; zero points; of the second version, rows in any order */
    kit_file file = {.count = 0};
    make_matrix(128, 96, 32, bits, TVM_F16, kind == 0 ? -1 : kind == 1);
    if (kind == 2) mix_groups();
    find_weights();
    add_gptq(&file, "model.layers.0.mlp.up_proj", kind<2, kind> 0);
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", kind == 2 ? "gptq_v2" : "gptq");
    compare_file("out", "model.layers.0.mlp.up_proj", kind > 0, kind == 2, 0);
}
END_TEST

/* The configuration says which version it is; without a format by name. */
START_TEST(gptq_by_configuration) {
    kit_file file = {.count = 0};
    make_matrix(64, 32, 64, 4, TVM_F16, 0);
    find_weights();
    add_gptq(&file, "x", 0, true);
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(
        in_folder(_i ? "quantize_config.json" : "config.json"),
        _i ? "{\"bits\": 4, \"group_size\": -1, \"checkpoint_format\": \"gptq_v2\"}"
           : "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
             "\"checkpoint_format\": \"gptq_v2\"}}");
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", true, false, 0);
}
END_TEST

/* ---- AWQ ---- */

static void pack_awq(const int *codes, int count, uint32_t *words) {
    static const int order_map[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int col = 0; col < count / 8; col++)
        for (int i = 0; i < 8; i++) words[col] |= (uint32_t)codes[col * 8 + order_map[i]] << (i * 4);
}

START_TEST(awq) {
    kit_file file = {.count = 0};
    make_matrix(128, 64, 64, 4, TVM_F16, _i ? 0 : -1);
    find_weights();
    uint32_t *qweight = kit_add(&file, "x.qweight", "I32", kit_shape(m.k, m.n / 8), (size_t)(m.k * m.n) / 2);
    uint32_t *qzeros = kit_add(&file, "x.qzeros", "I32", kit_shape(2, m.n / 8), (size_t)m.n);
    add_scales(&file, "x.scales", "F16");
    for (int i = 0; i < m.k; i++) pack_awq(m.code[i], m.n, qweight + i * m.n / 8);
    for (int g = 0; g < 2; g++) pack_awq(m.zero[g], m.n, qzeros + g * m.n / 8);
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", _i ? "auto" : "awq");
    compare_file("out", "x", _i, false, 0);
}
END_TEST

/* ---- compressed-tensors ---- */

/* [n, k], packed along k, as scales [n, groups] are along groups; zero points along n. */
static void add_compressed(kit_file *file, bool zeros, bool g_idx, bool shape) {
    int a_word = 32 / m.bits, words = (m.k + a_word - 1) / a_word, groups = m.k / m.group;
    int zero_words = (m.n + a_word - 1) / a_word;
    uint32_t *packed =
        kit_add(file, "x.weight_packed", "I32", kit_shape(m.n, words), (size_t)(m.n * words) * 4);
    uint16_t *scales =
        kit_add(file, "x.weight_scale", "BF16", kit_shape(m.n, groups), (size_t)(m.n * groups) * 2);
    for (int j = 0; j < m.n; j++) {
        for (int i = 0; i < m.k; i++)
            packed[j * words + i / a_word] |= (uint32_t)m.code[i][j] << (i % a_word * m.bits);
        for (int g = 0; g < groups; g++) scales[j * groups + g] = m.half[g][j];
    }
    int64_t *extents = shape ? kit_add(file, "x.weight_shape", "I64", "2", 16) : NULL;
    if (shape) extents[0] = m.n, extents[1] = m.k;
    uint32_t *points = zeros ? kit_add(file, "x.weight_zero_point", "I32", kit_shape(zero_words, groups),
                                       (size_t)(zero_words * groups) * 4)
                             : NULL;
    for (int j = 0; zeros && j < m.n; j++)
        for (int g = 0; g < groups; g++)
            points[j / a_word * groups + g] |= (uint32_t)m.zero[g][j] << (j % a_word * m.bits);
    int32_t *index =
        g_idx ? kit_add(file, "x.weight_g_idx", "I32", kit_shape(m.k, 0), (size_t)m.k * 4) : NULL;
    for (int i = 0; g_idx && i < m.k; i++) index[i] = m.group_of[i];
}

static const struct {
    int k, n, group, bits;
    bool zeros, order, shape;
} compressed_forms[] = {
    {128, 40, 32, 4, false, false, true},   {128, 37, 64, 4, true, false, true},
    {96, 24, 96, 8, false, false, true},    {96, 24, 96, 8, true, false, false},
    {128, 40, 32, 4, true, true, true},     {130, 33, 65, 3, true, false, true},
    {128, 40, 128, 4, false, false, false},
};

START_TEST(compressed_tensors) {
    kit_file file = {.count = 0};
    bool zeros = compressed_forms[_i].zeros, order = compressed_forms[_i].order;
    make_matrix(compressed_forms[_i].k, compressed_forms[_i].n, compressed_forms[_i].group,
                compressed_forms[_i].bits, TVM_BF16, zeros ? 0 : -1);
    if (order) mix_groups();
    find_weights();
    add_compressed(&file, zeros, order, compressed_forms[_i].shape);
    kit_write(&file, in_folder("m.safetensors"));
    char config[256];
    snprintf(
        config, sizeof config,
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"group_0\": "
        "{\"weights\": {\"num_bits\": %d}}}}}",
        m.bits);
    kit_write_text(in_folder("config.json"), config);
    import_well("m.safetensors", "out", _i % 2 ? "auto" : "compressed-tensors");
    compare_file("out", "x", zeros, order, 0);
}
END_TEST

/* Rows of bytes, [n, k]: i8 with a scale a column; floats with one a column, or one for all. */
START_TEST(rows_of_bytes) {
    kit_file file = {.count = 0};
    tvm_dtype type = _i ? TVM_FLOAT(8, 4, 3) : TVM_I(8);
    make_matrix(64, 48, 64, 8, TVM_BF16, -1);
    uint8_t *weight =
        kit_add(&file, "x.weight", _i ? "F8_E4M3" : "I8", kit_shape(m.n, m.k), (size_t)(m.n * m.k));
    uint16_t *scales = kit_add(&file, "x.weight_scale", "BF16", _i == 2 ? "1" : "48,1", _i == 2 ? 2 : 96);
    kit_add(&file, "x.input_scale", "F32", "1", 4);
    for (int j = 0; j < m.n; j++) {
        scales[_i == 2 ? 0 : j] = m.half[0][j];
        for (int i = 0; i < m.k; i++) {
            if (_i) m.code[i][j] &= 0xf7; /* not NaN */
            weight[j * m.k + i] = (uint8_t)m.code[i][j];
        }
    }
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++)
            m.weight[i][j] = tvm_decode(type, (uint64_t)m.code[i][j]) * m.scale[0][_i == 2 ? m.n - 1 : j];
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
    kit_result read = kit_read(in_folder("out"));
    ck_assert_ptr_null(kit_find(&read, "x", ".input_scale"));
    kit_free(&read);
}
END_TEST

/* ---- floats ---- */

static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};

/* gpt-oss: three matrices, blocks of 32 along k with an exponent each. */
START_TEST(mxfp4) {
    enum { K = 96, N = 20, STACK = 3 };
    static double expected[STACK][K][N];
    kit_file file = {.count = 0};
    uint8_t *blocks = kit_add(&file, "a.experts.up_blocks", "U8", "3,20,3,16", STACK * N * K / 2);
    uint8_t *scales = kit_add(&file, "a.experts.up_scales", "U8", "3,20,3", STACK * N * K / 32);
    kit_add(&file, "a.experts.up_bias", "BF16", "3,20", STACK * N * 2);
    for (int e = 0; e < STACK; e++)
        for (int j = 0; j < N; j++)
            for (int i = 0; i < K; i++) {
                int scale = (e * N + j) * (K / 32) + i / 32, code = (int)draw(16);
                if (i % 32 == 0) scales[scale] = (uint8_t)(_i ? draw(255) : 110 + draw(20));
                blocks[scale * 16 + i % 32 / 2] |= (uint8_t)(code << (i % 2 * 4));
                expected[e][i][j] = ldexp(e2m1[code], scales[scale] - 127);
            }
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", _i ? "auto" : "mxfp4");
    kit_result read = kit_read(in_folder("out"));
    kit_layer layer = kit_open_layer(&read, "a.experts.up");
    ck_assert_uint_eq(layer.packed->rank, 3);
    ck_assert_ptr_nonnull(kit_find(&read, "a.experts.up_bias", ""));
    ck_assert_ptr_null(kit_find(&read, "a.experts.up_scales", ""));
    for (uint64_t e = 0; e < STACK; e++) {
        make_matrix(K, N, 32, 4, TVM_BF16, -1);
        for (int i = 0; i < K; i++) memcpy(m.weight[i], expected[e][i], sizeof expected[e][i]);
        compare_matrix(&layer, e, 0);
    }
    kit_free(&read);
}
END_TEST

/* Scales of e4m3 for 16 weights, times one of all: multiplied (Model Optimizer), or divided by
 * (compressed-tensors). */
START_TEST(nvfp4) {
    kit_file file = {.count = 0};
    float global = _i ? 4096 : 0.00037f;
    make_matrix(64, 24, 16, 4, TVM_F16, -1);
    uint8_t *weight = kit_add(&file, _i ? "x.weight_packed" : "x.weight", "U8", kit_shape(m.n, m.k / 2),
                              (size_t)(m.n * m.k) / 2);
    uint8_t *scales =
        kit_add(&file, "x.weight_scale", "F8_E4M3", kit_shape(m.n, m.k / 16), (size_t)(m.n * m.k) / 16);
    float *all = kit_add(&file, _i ? "x.weight_global_scale" : "x.weight_scale_2", "F32", _i ? "1" : "", 4);
    *all = global;
    double times = (double)(_i ? 1 / global : global);
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            if (i % 16 == 0) scales[j * m.k / 16 + i / 16] = (uint8_t)draw(0x7f);
            weight[(j * m.k + i) / 2] |= (uint8_t)(m.code[i][j] << (i % 2 * 4));
            m.weight[i][j] =
                e2m1[m.code[i][j]] * tvm_decode(TVM_FLOAT(8, 4, 3), scales[j * m.k / 16 + i / 16]) * times;
        }
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 1e-15);
}
END_TEST

/* Scales of f32 for blocks of 128 by 128, the last of fewer columns; such as f16 does not hold are brought
 * into its range by a power of two, and rounded, which is said. */
START_TEST(fp8_block) {
    kit_file file = {.count = 0};
    make_matrix(256, 200, 128, 8, TVM_F16, -1);
    uint8_t *weight = kit_add(&file, "x.weight", "F8_E4M3", kit_shape(m.n, m.k), (size_t)(m.n * m.k));
    float *scales = kit_add(&file, "x.weight_scale_inv", "F32", "2,2", 16);
    for (int b = 0; b < 4; b++) scales[b] = _i ? 1e-6f * (float)(1 + b) : 0.5f + 0.25f * (float)b;
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            weight[j * m.k + i] = (uint8_t)(m.code[i][j] & 0xf7);
            m.weight[i][j] =
                tvm_decode(TVM_FLOAT(8, 4, 3), weight[j * m.k + i]) * (double)scales[j / 128 * 2 + i / 128];
        }
    kit_write(&file, in_folder("m.safetensors"));
    tvm_diags warnings = {0};
    ck_assert_int_eq(import("m.safetensors", "out", "fp8-block", NULL, &warnings), TVM_OK);
    ck_assert_uint_eq(warnings.count, (size_t)_i);
    if (_i) ck_assert_ptr_nonnull(strstr(warnings.items[0].message, "400 of 400 scales are rounded"));
    tvm_diags_free(&warnings);
    compare_file("out", "x", false, false, _i ? 0x1p-11 : 0);
}
END_TEST

/* ---- a model of several files ---- */

static void make_folders(void) {
    ck_assert_int_eq(mkdir(in_folder("model"), 0700), 0);
}

static bool file_says(const char *path, const char *text) {
    static char bytes[8192];
    FILE *stream = fopen(in_folder(path), "r");
    ck_assert_msg(stream != NULL, "there is no %s", path);
    size_t got = fread(bytes, 1, sizeof bytes - 1, stream);
    bytes[got] = '\0';
    fclose(stream);
    return strstr(bytes, text) != NULL;
}

/* A layer's tensors may lie in two files; what is not quantized is copied, types that are not known, too. */
/* ---- bitsandbytes */

/* A layer of 4 bits, codes in the order of the rows of its weight [n, k]; nested: absmax of codes, whose
 * values are squares, with a sign, and which are scaled by of 100 blocks each. `m` gets the weights. */
static void add_bitsandbytes(kit_file *file, const char *table, bool nested) {
    enum { K = 128, N = 24, BLOCK = 64, BLOCKS = N * K / BLOCK, OUTER = 100 };
    const double *values = weight_table(table);
    char name[64], text[160];
    make_matrix(K, N, BLOCK, 4, TVM_F16, 0);
    uint8_t *codes = kit_add(file, "x.weight", "U8", kit_shape(K * N / 2, 1), K * N / 2);
    float *map = kit_add(file, "x.weight.quant_map", "F32", "16", 64);
    void *absmax = nested ? kit_add(file, "x.weight.absmax", "U8", kit_shape(BLOCKS, 0), BLOCKS)
                          : kit_add(file, "x.weight.absmax", "F32", kit_shape(BLOCKS, 0), BLOCKS * 4);
    float *squares = nested ? kit_add(file, "x.weight.nested_quant_map", "F32", "256", 1024) : NULL;
    float *outer = nested ? kit_add(file, "x.weight.nested_absmax", "F32", "1", 4) : NULL;
    for (int i = 0; i < 16; i++) map[i] = (float)values[i];
    for (int i = 0; nested && i < 256; i++) squares[i] = (float)((i - 128) * abs(i - 128)) / 16384;
    if (nested) *outer = 0.5F;
    for (int b = 0; b < BLOCKS; b++) {
        unsigned code = draw(256);
        double *scale = &m.scale[b % (K / BLOCK)][b / (K / BLOCK)];
        *scale = nested ? (double)squares[code] * 0.5 + 0.75 : *scale;
        if (nested)
            ((uint8_t *)absmax)[b] = (uint8_t)code;
        else
            ((float *)absmax)[b] = (float)*scale;
    }
    for (int j = 0; j < N; j++)
        for (int i = 0; i < K; i++) {
            codes[(j * K + i) / 2] |= (uint8_t)(m.code[i][j] << (i % 2 ? 0 : 4));
            m.weight[i][j] = values[m.code[i][j]] * m.scale[i / BLOCK][j];
        }
    int length =
        snprintf(text, sizeof text,
                 "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"float16\", \"shape\": [%d, %d]%s}",
                 table, BLOCK, N, K, nested ? ", \"nested_blocksize\": 100, \"nested_offset\": 0.75" : "");
    snprintf(name, sizeof name, "x.weight.quant_state.bitsandbytes__%s", table);
    memcpy(kit_add(file, name, "U8", kit_shape(length, 0), (size_t)length), text, (size_t)length);
}

START_TEST(bitsandbytes) {
    kit_file file = {.count = 0};
    tvm_diags diags = {0}, warnings = {0};
    bool nested = _i == 1;
    add_bitsandbytes(&file, _i == 2 ? "fp4" : "nf4", nested);
    kit_write(&file, in_folder("m.safetensors"));
    ck_assert_int_eq(import("m.safetensors", "out", _i ? "auto" : "bitsandbytes", &diags, &warnings), TVM_OK);
    ck_assert_uint_eq(warnings.count, nested); /* scales that were codes of f16 stay what they are */
    compare_file("out", "x", false, false, nested ? 0x1p-11 : 0);
    tvm_diags_free(&warnings);
}
END_TEST

/* What is written in place of something in an entry: its name, or else its data from `from` on. */
static const struct {
    int entry; /* 0 the weight, 1 quant_map, 2 absmax, 3 nested_quant_map, 4 nested_absmax, 5 the state */
    const char *from, *to, *says;
} bitsandbytes_refusals[] = {
    {1, "", "1234", "quant_map[0] is 1.66"},
    {1, NULL, "x.weight.none", "quant_map is not F32 [16]"},
    {3, NULL, "x.weight.none", "nested_quant_map is not F32 [256]"},
    {4, NULL, "x.weight.none", "nested_absmax is not F32, one for each nested_blocksize scales"},
    {5, NULL, "x.weight.none", "it has no quant_state of nf4 or fp4"},
    {5, "{", "<", "its quant_state is not JSON"},
    {5, "128]", "256]", "the weight has 1536 bytes, not two codes in each of [24, 256]"},
    {5, "64,", "48,", "rows of 128 weights are no whole blocks of 48"},
    {5, "64,", "-4,", "its quant_state has no shape [n, k] and no blocksize"},
    {5, "100,", " 10,", "nested_absmax is not F32, one for each nested_blocksize scales"},
};

START_TEST(refuses_bitsandbytes) {
    kit_file file = {.count = 0};
    add_bitsandbytes(&file, "nf4", true);
    kit_entry *entry = &file.entries[bitsandbytes_refusals[_i].entry];
    const char *from = bitsandbytes_refusals[_i].from, *to = bitsandbytes_refusals[_i].to;
    char *at = from ? (*from ? strstr(entry->data, from) : entry->data) : entry->name;
    memcpy(at, to, strlen(to) + !from);
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", "auto", bitsandbytes_refusals[_i].says);
}
END_TEST

START_TEST(model_of_two_files) {
    kit_file one = {.count = 0}, two = {.count = 0};
    make_folders();
    make_matrix(64, 32, 32, 4, TVM_F16, 1);
    find_weights();
    add_gptq(&one, "layers.0.up", 1, true);
    two.entries[two.count++] = one.entries[--one.count]; /* g_idx */
    two.entries[two.count++] = one.entries[--one.count]; /* scales */
    memcpy(kit_add(&one, "layers.0.up.bias", "F16", "3", 6), "bias..", 6);
    memcpy(kit_add(&one, "norm.weight", "F32", "2", 8), "weights.", 8);
    memcpy(kit_add(&two, "strange", "F4", "10", 5), "12345", 5);
    kit_write(&one, in_folder("model/model-00001-of-00002.safetensors"));
    kit_write(&two, in_folder("model/model-00002-of-00002.safetensors"));
    kit_write_text(
        in_folder("model/config.json"),
        "{\"hidden_size\": 64, \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    kit_write_text(in_folder("model/tokenizer.json"), "{\"tokens\": []}");
    kit_write_text(in_folder("model/quantize_config.json"), "{}");
    kit_write_text(in_folder("model/model.safetensors.index.json"), "{\"weight_map\": {}}");
    import_well("model", "out", "auto");
    compare_file("out/model-00001-of-00002.safetensors", "layers.0.up", true, false, 0);
    kit_result first = kit_read(in_folder("out/model-00001-of-00002.safetensors")),
               second = kit_read(in_folder("out/model-00002-of-00002.safetensors"));
    ck_assert_str_eq(tvm_safetensors_metadata(&first.tensors, "format"), "tilusvm-model");
    ck_assert_mem_eq(first.bytes + kit_find(&first, "layers.0.up.bias", "")->offset, "bias..", 6);
    ck_assert_mem_eq(first.bytes + kit_find(&first, "norm.weight", "")->offset, "weights.", 8);
    ck_assert_mem_eq(second.bytes + kit_find(&second, "strange", "")->offset, "12345", 5);
    ck_assert_uint_eq(second.tensors.count, 1);
    kit_free(&first);
    kit_free(&second);
    ck_assert(file_says("out/model.safetensors.index.json",
                        "\"layers.0.up.packed\": \"model-00001-of-00002.safetensors\""));
    ck_assert(file_says("out/config.json", "\"quant_method\": \"tilusvm\"") &&
              file_says("out/config.json", "hidden_size"));
    ck_assert(!file_says("out/config.json", "gptq") && file_says("out/tokenizer.json", "tokens"));
    ck_assert_int_ne(access(in_folder("out/quantize_config.json"), F_OK), 0);
}
END_TEST

/* ---- what is refused ---- */

/* A model that is well but for what `spoil` does to the entries qweight, qzeros, scales, g_idx. */
static void spoiled(void (*spoil)(kit_file *file), const char *from, const char *says) {
    kit_file file = {.count = 0};
    make_matrix(64, 32, 32, 4, TVM_F16, 1);
    add_gptq(&file, "x", 1, true);
    spoil(&file);
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", from, says);
}

static void no_scales(kit_file *file) {
    snprintf(file->entries[2].name, sizeof file->entries[2].name, "x.other");
}
static void no_zeros(kit_file *file) {
    snprintf(file->entries[1].name, sizeof file->entries[1].name, "x.other");
}
static void few_scales(kit_file *file) {
    snprintf(file->entries[2].shape, sizeof file->entries[2].shape, "4,16");
}
static void three_groups(kit_file *file) {
    snprintf(file->entries[2].shape, sizeof file->entries[2].shape, "3,32");
    file->entries[2].data = realloc(file->entries[2].data, 192);
    memset(file->entries[2].data, 0, 192);
    file->entries[2].bytes = 192;
}
static void scales_of_f64(kit_file *file) {
    snprintf(file->entries[2].dtype, sizeof file->entries[2].dtype, "I16");
}
static void infinite_scale(kit_file *file) {
    ((uint16_t *)file->entries[2].data)[5] = 0x7c00;
}
static void long_zeros(kit_file *file) {
    snprintf(file->entries[1].shape, sizeof file->entries[1].shape, "1,8");
}
static void group_beyond(kit_file *file) {
    ((int32_t *)file->entries[3].data)[7] = 2;
}
static void group_negative(kit_file *file) {
    ((int32_t *)file->entries[3].data)[7] = -5;
}
static void group_too_large(kit_file *file) {
    ((int32_t *)file->entries[3].data)[7] = 1;
}
static void short_order(kit_file *file) {
    snprintf(file->entries[3].shape, sizeof file->entries[3].shape, "8,8");
}
static void nothing(kit_file *file) {
    for (int i = 0; i < 4; i++) snprintf(file->entries[i].name, sizeof file->entries[i].name, "t%d", i);
}

static const struct {
    void (*spoil)(kit_file *file);
    const char *from, *says;
} refusals[] = {
    {no_scales, "auto", "no layer of format auto is here"},
    {no_zeros, "auto", "codes of 2, 3, 4 or 8 bits are known"},
    {few_scales, "gptq", "no layer of format gptq is here"},
    {three_groups, "gptq", "64 rows do not make 3 equal groups"},
    {scales_of_f64, "gptq", "layer 'x' (gptq): scales is I16 [2, 32]; F16, BF16 or F32 [2, 32] is expected"},
    {infinite_scale, "gptq", "layer 'x' (gptq): the scale of group 0, column 5 is inf"},
    {long_zeros, "gptq", "qzeros is I32 [1, 8]; I32 [2, 8] is expected"},
    {group_beyond, "gptq", "g_idx[7] is 2; there are 2 groups"},
    {group_negative, "gptq", "g_idx[7] is -5; there are 2 groups"},
    {group_too_large, "gptq", "g_idx gives group 1 more rows than 32"},
    {short_order, "gptq", "g_idx is I32 [8, 8]; I32 [64] is expected"},
    {nothing, "auto", "no layer of format auto is here; known are auto, gptq"},
};

START_TEST(refuses_layers) {
    spoiled(refusals[_i].spoil, refusals[_i].from, refusals[_i].says);
}
END_TEST

START_TEST(refuses_files) {
    kit_file file = {.count = 0};
    make_matrix(64, 32, 32, 4, TVM_F16, 1);
    import_badly("nowhere", "auto", "No such file");
    make_folders();
    import_badly("model", "auto", "no .safetensors files");
    add_gptq(&file, "x", 1, false);
    kit_write(&file, in_folder("model/a.safetensors"));
    kit_write_text(in_folder("model/config.json"), "{\"quantization_config\": {\"quant_method\": \"hqq\"");
    import_badly("model", "auto", "this is not JSON");
    kit_write_text(in_folder("model/config.json"), "{\"quantization_config\": {\"quant_method\": \"HQQ\"}}");
    import_badly("model", "mxfp4", "the configuration says 'hqq'");
    tvm_diags diags = {0};
    ck_assert_int_eq(import("model", "model", "auto", &diags, NULL), TVM_ARGUMENT);
    tvm_diags_free(&diags);
    add_gptq(&file, "x", 1, false);
    kit_write(&file, in_folder("model/b.safetensors"));
    import_badly("model", "auto", "tensor 'x.qweight' is in 'a.safetensors', too");
    ck_assert_int_eq(truncate(in_folder("model/b.safetensors"), 700), 0);
    import_badly("model", "auto", "of the data, which has");
}
END_TEST

START_TEST(refuses_forms) {
    kit_file file = {.count = 0};
    make_matrix(64, 24, 16, 4, TVM_F16, -1);
    kit_add(&file, "x.weight", "U8", "24,32", 768);
    uint8_t *scales = kit_add(&file, "x.weight_scale", "F8_E4M3", "24,4", 96);
    scales[9] = 0x7f;
    float *all = kit_add(&file, "x.weight_scale_2", "F32", "1", 4);
    *all = _i ? 1 : NAN;
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", "auto",
                 _i ? "the scale of group 1, column 2 is nan" : "the scale of all weights is nan");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("checkpoint");
    TCase *good = tcase_create("formats"), *bad = tcase_create("bad input");
    tcase_add_loop_test(good, gptq, 0, 12);
    tcase_add_loop_test(good, gptq_by_configuration, 0, 2);
    tcase_add_loop_test(good, awq, 0, 2);
    tcase_add_loop_test(good, compressed_tensors, 0, sizeof compressed_forms / sizeof *compressed_forms);
    tcase_add_loop_test(good, rows_of_bytes, 0, 3);
    tcase_add_loop_test(good, mxfp4, 0, 2);
    tcase_add_loop_test(good, nvfp4, 0, 2);
    tcase_add_loop_test(good, fp8_block, 0, 2);
    tcase_add_loop_test(good, bitsandbytes, 0, 3);
    tcase_add_loop_test(bad, refuses_bitsandbytes, 0,
                        sizeof bitsandbytes_refusals / sizeof *bitsandbytes_refusals);
    tcase_add_test(good, model_of_two_files);
    tcase_add_loop_test(bad, refuses_layers, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(bad, refuses_files);
    tcase_add_loop_test(bad, refuses_forms, 0, 2);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        tcase_set_timeout(cases[i], 60);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
