/* tvm-pack --from: MLX, whose weights are code * scale + bias; weights of checkpoints written as floats; and
 * formats that are not read, each of which is named, with what to do. */
#include "checkpoint_matrix_kit.h"
#include "suite_kit.h"

/* ---- MLX ---- */

/* Scales and biases of f16 such that -bias / scale is a whole number: the zero point. */
static void make_affine(int k, int n, int group, int bits) {
    make_matrix(k, n, group, bits, TVM_F16, 0);
    for (int g = 0; g < k / group; g++)
        for (int j = 0; j < n; j++) {
            m.scale[g][j] = (1 + draw(7)) * 0x1p-10;
            m.half[g][j] = (uint16_t)tvm_encode(TVM_F16, m.scale[g][j]);
        }
    find_weights();
}

/* A row's codes are one string of bits, low ones first (mlx/backend/cpu/quantized.cpp: extract_bits). */
static void add_mlx(kit_file *file, const char *name) {
    char text[96];
    int words = m.k * m.bits / 32, groups = m.k / m.group;
    snprintf(text, sizeof text, "%s.weight", name);
    uint32_t *weight = kit_add(file, text, "U32", kit_shape(m.n, words), (size_t)(m.n * words) * 4);
    snprintf(text, sizeof text, "%s.scales", name);
    uint16_t *scales = kit_add(file, text, "F16", kit_shape(m.n, groups), (size_t)(m.n * groups) * 2);
    snprintf(text, sizeof text, "%s.biases", name);
    uint16_t *biases = kit_add(file, text, "F16", kit_shape(m.n, groups), (size_t)(m.n * groups) * 2);
    for (int j = 0; j < m.n; j++) {
        for (int i = 0; i < m.k * m.bits; i++)
            weight[j * words + i / 32] |= (uint32_t)(m.code[i / m.bits][j] >> i % m.bits & 1) << i % 32;
        for (int g = 0; g < groups; g++) {
            scales[j * groups + g] = m.half[g][j];
            biases[j * groups + g] = (uint16_t)tvm_encode(TVM_F16, -m.zero[g][j] * m.scale[g][j]);
        }
    }
}

/* Weights of -1, 0 and 1 as transformers packs them, times `scale`. */
static void add_bitnet(kit_file *file, double scale, const char *dtype, tvm_dtype type) {
    m = (matrix){.k = 128, .n = 40, .group = 128, .bits = 2};
    uint8_t *weight = kit_add(file, "x.weight", "U8", kit_shape(m.n / 4, m.k), (size_t)(m.n / 4 * m.k));
    uint16_t *half = kit_add(file, "x.weight_scale", dtype, "1", 2);
    *half = (uint16_t)tvm_encode(type, scale);
    for (int i = 0; i < m.k; i++)
        for (int j = 0; j < m.n; j++) {
            int code = (int)draw(3);
            weight[j % (m.n / 4) * m.k + i] |= (uint8_t)(code << 2 * (j / (m.n / 4)));
            m.weight[i][j] = code - 1;
        }
}

/* By linear_class weights are multiplied by their scale, or divided. */
START_TEST(bitnet) {
    kit_file file = {.count = 0};
    add_bitnet(&file, 1.75, "BF16", TVM_BF16);
    for (int i = 0; i < m.k; i++)
        for (int j = 0; j < m.n; j++) m.weight[i][j] *= _i ? 1.75 : (double)(1 / 1.75F);
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(
        in_folder("config.json"),
        _i ? "{\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": \"autobitlinear\"}}"
           : "{\"quantization_config\": {\"quant_method\": \"bitnet\"}}");
    import_well("m.safetensors", "out", _i ? "auto" : "bitnet");
    compare_file("out", "x", false, false, 0);
}
END_TEST

static const struct {
    double scale;
    const char *config, *says;
    uint8_t byte;
} bitnet_refusals[] = {
    {0, "bitnet", "weight_scale is 0", 0},
    {1, "other", "quant_method is not bitnet; --from=bitnet reads it so", 0},
    {1, "bitnet", "weight[0, 0] is 48, which has a code of 3", 0x30},
};

START_TEST(refuses_bitnet) {
    kit_file file = {.count = 0};
    char config[128];
    add_bitnet(&file, bitnet_refusals[_i].scale, "F16", TVM_F16);
    if (bitnet_refusals[_i].byte) *(uint8_t *)file.entries[0].data = bitnet_refusals[_i].byte;
    kit_write(&file, in_folder("m.safetensors"));
    snprintf(config, sizeof config, "{\"quantization_config\": {\"quant_method\": \"%s\"}}",
             bitnet_refusals[_i].config);
    kit_write_text(in_folder("config.json"), config);
    import_badly("m.safetensors", "auto", bitnet_refusals[_i].says);
}
END_TEST

static const int mlx_forms[][2] = {{2, 64}, {3, 64}, {4, 32}, {4, 64}, {4, 128}, {5, 32}, {6, 64}, {8, 32}};

START_TEST(mlx) {
    kit_file file = {.count = 0};
    int bits = mlx_forms[_i][0], group = mlx_forms[_i][1];
    char config[128];
    make_affine(128, 40, group, bits);
    add_mlx(&file, "x");
    kit_add(&file, "x.bias", "F16", "40", 80);
    kit_write(&file, in_folder("m.safetensors"));
    snprintf(config, sizeof config, "{\"%s\": {\"group_size\": %d, \"bits\": %d, \"mode\": \"affine\"}}",
             _i % 2 ? "quantization" : "quantization_config", group, bits);
    kit_write_text(in_folder("config.json"), config);
    import_well("m.safetensors", "out", _i % 2 ? "auto" : "mlx");
    compare_file("out", "x", true, false, 0);
    kit_result read = kit_read(in_folder("out"));
    ck_assert_ptr_nonnull(kit_find(&read, "x.bias", ""));
    ck_assert_ptr_null(kit_find(&read, "x.biases", ""));
    kit_free(&read);
}
END_TEST

/* Layers of several widths, by their names; the embedding becomes floats. */
START_TEST(mlx_of_two_widths) {
    kit_file file = {.count = 0};
    make_affine(128, 40, 64, 4);
    add_mlx(&file, "x");
    matrix *four = malloc(sizeof m);
    *four = m;
    make_affine(128, 40, 64, 6);
    add_mlx(&file, "model.embed_tokens");
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(
        in_folder("config.json"),
        "{\"quantization\": {\"group_size\": 64, \"bits\": 4, \"model.embed_tokens\": {\"group_size\": 64, "
        "\"bits\": 6}, \"other\": false}}");
    tvm_diags warnings = {0};
    ck_assert_int_eq(import("m.safetensors", "out", "auto", NULL, &warnings), TVM_OK);
    kit_result read = kit_read(in_folder("out"));
    const tvm_safetensor *embedding = kit_find(&read, "model.embed_tokens.weight", "");
    ck_assert(embedding && tvm_dtype_same(embedding->type, TVM_F16));
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++)
            ck_assert_double_eq(kit_number(&read, embedding, (uint64_t)(j * m.k + i)), m.weight[i][j]);
    kit_free(&read);
    m = *four;
    free(four);
    compare_file("out", "x", true, false, 0);
    tvm_diags_free(&warnings);
}
END_TEST

/* Mode mxfp4: e2m1 and powers of two, no biases. */
START_TEST(mlx_mxfp4) {
    static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
    kit_file file = {.count = 0};
    make_matrix(64, 24, 32, 4, TVM_F16, -1);
    uint32_t *weight = kit_add(&file, "x.weight", "U32", "24,8", 24 * 32);
    uint8_t *scales = kit_add(&file, "x.scales", "U8", "24,2", 48);
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            uint8_t *scale = &scales[j * 2 + i / 32];
            if (i % 32 == 0) *scale = (uint8_t)(110 + draw(20));
            weight[j * 8 + i / 8] |= (uint32_t)m.code[i][j] << i % 8 * 4;
            m.weight[i][j] = ldexp(e2m1[m.code[i][j]], *scale - 127);
        }
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(in_folder("config.json"),
                   "{\"quantization\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\"}}");
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
}
END_TEST

static const struct {
    const char *config, *says;
} mlx_refusals[] = {
    {"{}", "16 words and 2 groups a row are no codes of a width that it has; the bits and group_size"},
    {"{\"quantization\": {\"group_size\": 32, \"bits\": 4}}", "are no codes of a width that it has"},
    {"{\"quantization\": {\"group_size\": 64, \"bits\": 4, \"a\": {\"group_size\": 32, \"bits\": 8}}}",
     "16 words and 2 groups a row are codes of more than one width"},
};

START_TEST(refuses_mlx) {
    kit_file file = {.count = 0};
    make_affine(128, 40, 64, 4);
    add_mlx(&file, "x");
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(in_folder("config.json"), mlx_refusals[_i].config);
    import_badly("m.safetensors", "auto", mlx_refusals[_i].says);
}
END_TEST

START_TEST(refuses_mlx_tensors) {
    kit_file file = {.count = 0};
    make_affine(128, 40, 64, 4);
    add_mlx(&file, "x");
    const char *says = "";
    if (_i == 0) {
        snprintf(file.entries[2].name, sizeof file.entries[2].name, "x.other");
        says = "of the modes without biases only mxfp4 is read; convert the model in mode affine";
        snprintf(file.entries[1].dtype, sizeof file.entries[1].dtype, "U8");
        file.entries[1].bytes /= 2;
    } else if (_i == 1) {
        snprintf(file.entries[2].shape, sizeof file.entries[2].shape, "2,40");
        says = "biases is F16 [2, 40]; F16, BF16 or F32 [40, 2] is expected";
    } else {
        snprintf(file.entries[0].shape, sizeof file.entries[0].shape, "1,40,16");
        says = "stacks of matrices are not read";
    }
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(in_folder("config.json"), "{\"quantization\": {\"group_size\": 64, \"bits\": 4}}");
    import_badly("m.safetensors", "auto", says);
}
END_TEST

/* ---- floats ---- */

static void import_floats(tvm_dtype type) {
    checkpoint_options options = {.input = in_folder("m.safetensors"),
                                  .output = in_folder("out"),
                                  .from = "auto",
                                  .plain = type,
                                  .threads = 2};
    tvm_diags diags = {0};
    tvm_status status = tvm_checkpoint_import(&options, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "");
}

/* GPTQ with act-order: in the order of the inputs. */
START_TEST(floats) {
    static const tvm_dtype types[] = {TVM_F32, TVM_F16, TVM_BF16};
    kit_file file = {.count = 0};
    tvm_dtype type = types[_i % 3];
    make_matrix(128, 72, 32, 4, TVM_F16, 1);
    if (_i >= 3) mix_groups();
    find_weights();
    uint32_t *qweight = kit_add(&file, "x.qweight", "I32", "16,72", 16 * 72 * 4),
             *qzeros = kit_add(&file, "x.qzeros", "I32", "4,9", 4 * 9 * 4);
    add_scales(&file, "x.scales", "F16");
    int32_t *index = kit_add(&file, "x.g_idx", "I32", "128", 512);
    for (int i = 0; i < m.k; i++) {
        index[i] = m.group_of[i];
        for (int j = 0; j < m.n; j++) qweight[i / 8 * m.n + j] |= (uint32_t)m.code[i][j] << i % 8 * 4;
    }
    for (int g = 0; g < 4; g++)
        for (int j = 0; j < m.n; j++) qzeros[g * 9 + j / 8] |= (uint32_t)(m.zero[g][j] - 1) << j % 8 * 4;
    kit_write(&file, in_folder("m.safetensors"));
    import_floats(type);
    kit_result read = kit_read(in_folder("out"));
    const tvm_safetensor *weight = kit_find(&read, "x.weight", "");
    ck_assert(weight && weight->shape[0] == 72 && weight->shape[1] == 128 &&
              tvm_dtype_same(weight->type, type));
    ck_assert_uint_eq(read.tensors.count, 1);
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++)
            ck_assert_double_eq(kit_number(&read, weight, (uint64_t)(j * m.k + i)),
                                tvm_decode(type, tvm_encode(type, m.weight[i][j])));
    kit_free(&read);
}
END_TEST

/* Of a folder whose weights are floats again the configuration says nothing of quantization. */
START_TEST(configuration_of_floats) {
    kit_file file = {.count = 0};
    ck_assert_int_eq(mkdir(in_folder("model"), 0700), 0);
    memset(kit_add(&file, "x.weight", "F8_E4M3", "32,16", 512), 0x31, 512);
    *(float *)kit_add(&file, "x.weight_scale", "F32", "1", 4) = 0.5F;
    kit_write(&file, in_folder("model/m.safetensors"));
    kit_write_text(in_folder("model/config.json"),
                   "{\"hidden_size\": 16, \"quantization_config\": {\"quant_method\": \"fp8\"}}");
    checkpoint_options options = {.input = in_folder("model"),
                                  .output = in_folder("out"),
                                  .from = "auto",
                                  .plain = TVM_BF16,
                                  .threads = 2};
    ck_assert_int_eq(tvm_checkpoint_import(&options, NULL), TVM_OK);
    char text[256] = "";
    FILE *stream = fopen(in_folder("out/config.json"), "r");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, stream), 0);
    fclose(stream);
    ck_assert(strstr(text, "hidden_size") && !strstr(text, "quantization_config"));
    kit_result read = kit_read(in_folder("out/m.safetensors"));
    ck_assert_double_eq(kit_number(&read, kit_find(&read, "x.weight", ""), 511), 0.5625 / 2);
    kit_free(&read);
}
END_TEST

START_TEST(floats_beyond_their_range) {
    kit_file file = {.count = 0};
    memset(kit_add(&file, "x.weight", "F8_E4M3", "32,16", 512), 0x7e, 512);
    *(float *)kit_add(&file, "x.weight_scale", "F32", "1", 4) = 1000;
    kit_write(&file, in_folder("m.safetensors"));
    checkpoint_options options = {
        .input = in_folder("m.safetensors"), .output = in_folder("out"), .from = "auto", .plain = TVM_F16};
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_checkpoint_import(&options, &diags), TVM_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "a weight is 448000, beyond the range of f16"));
    tvm_diags_free(&diags);
}
END_TEST

/* ---- formats that are not read ---- */

static const struct {
    const char *tensor, *dtype, *method, *says;
} strangers[] = {
    {"layers.0.q._weight_qdata", "I32", "torchao", "layer 'layers.0.q' is of torchao, whose packings"},
    {"q.weight:_data", "U8", "torchao", "layer 'q' is of torchao, whose packings"},
    {"layers.0.q.W_q", "U8", "hqq", "layer 'layers.0.q' is of HQQ, whose groups"},
    {"layers.0.q.trellis", "I16", "exl3", "layer 'layers.0.q' is of EXL3, whose codes of a trellis"},
    {"q.q_weight", "I32", "", "layer 'q' is of EXL2, whose groups of different widths"},
    {"q.codebooks", "F16", "aqlm", "layer 'q' is of AQLM, whose codebooks"},
    {"q.Qidxs", "I16", "", "layer 'q' is of QuIP#, whose lattice codes"},
    {"q.centroids.weight", "F16", "vptq", "layer 'q' is of VPTQ, whose codebooks"},
    {"q.other", "F16", "hqq", "the model is of HQQ, whose groups"},
    {"q.other", "F16", "exl3", "the model is of EXL3, whose codes"},
    {"q.other", "F16", "eetq",
     "no layer of format auto is here; the configuration says 'eetq'; known are auto, gptq"},
};

START_TEST(refuses_strangers) {
    kit_file file = {.count = 0};
    char config[128];
    bool byte = !strcmp(strangers[_i].dtype, "U8");
    size_t bytes = byte ? 64 : !strcmp(strangers[_i].dtype, "I32") ? 256 : 128;
    kit_add(&file, "norm.weight", "F16", "4", 8);
    kit_add(&file, strangers[_i].tensor, strangers[_i].dtype, "8,8", bytes);
    kit_write(&file, in_folder("m.safetensors"));
    snprintf(config, sizeof config, "{\"quantization_config\": {\"quant_method\": \"%s\"}}",
             strangers[_i].method);
    kit_write_text(in_folder("config.json"), config);
    import_badly("m.safetensors", "auto", strangers[_i].says);
    if (_i < 10)
        import_badly("m.safetensors", "auto",
                     "quantize the model that it was made of, with tilusvm.quantize_");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("checkpoint_others");
    TCase *good = tcase_create("formats"), *bad = tcase_create("bad input");
    tcase_add_loop_test(good, mlx, 0, sizeof mlx_forms / sizeof *mlx_forms);
    tcase_add_loop_test(good, bitnet, 0, 2);
    tcase_add_loop_test(bad, refuses_bitnet, 0, sizeof bitnet_refusals / sizeof *bitnet_refusals);
    tcase_add_test(good, mlx_of_two_widths);
    tcase_add_test(good, mlx_mxfp4);
    tcase_add_loop_test(bad, refuses_mlx, 0, sizeof mlx_refusals / sizeof *mlx_refusals);
    tcase_add_loop_test(bad, refuses_mlx_tensors, 0, 3);
    tcase_add_loop_test(good, floats, 0, 6);
    tcase_add_test(good, configuration_of_floats);
    tcase_add_test(bad, floats_beyond_their_range);
    tcase_add_loop_test(bad, refuses_strangers, 0, sizeof strangers / sizeof *strangers);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
