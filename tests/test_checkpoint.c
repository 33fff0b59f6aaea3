/* tvm-pack --from: small checkpoints of each format, made here as those who publish it lay it out; what comes
 * of them is compared with the weights that they were made of. And what is refused. */
#include "checkpoint_matrix_kit.h"
#include "suite_kit.h"

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
    {128, 40, 32, 4, true, true, true},     {132, 33, 66, 3, true, false, true},
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
    ck_assert(tvm_dtype_same(layer.scale, TVM_E8M0));
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
    kit_result read = kit_read(in_folder("out"));
    ck_assert(tvm_dtype_same(kit_open_layer(&read, "x").scale, TVM_FLOAT(8, 4, 3)));
    kit_free(&read);
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
    tcase_add_test(good, model_of_two_files);
    tcase_add_loop_test(bad, refuses_layers, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(bad, refuses_files);
    tcase_add_loop_test(bad, refuses_forms, 0, 2);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
