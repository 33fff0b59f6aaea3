/* tvm-pack --from: forms of checkpoints that differ in their packing, in the type of their scales, or in what
 * stands beside the weights. The packers here are written from each format's definition, which they name. */
#include "checkpoint_matrix_kit.h"
#include "suite_kit.h"

static void say(const char *quantization) {
    char text[512];
    snprintf(text, sizeof text, "{\"quantization_config\": {%s}}", quantization);
    kit_write_text(in_folder("config.json"), text);
}

/* ---- GPTQ, planar ---- */

/* GPTQModel, docs/gptq_planar.md: of 32 codes that follow each other come their planes, from the lowest bits
 * up, of 4, 2 or 1 bits (2 codes of 8 have one of 8), each in whole words. Bit by bit. */
static void pack_planar(int bits, const int *codes, int count, uint32_t *words, int stride) {
    static const int planes[9][4] = {{0}, {0}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}, {4, 2, 1}, {8}};
    for (int i = 0; i < count; i++) {
        int lowest = 0;
        for (const int *width = planes[bits]; *width; lowest += *width++)
            for (int b = 0; b < *width; b++) {
                int place = i % 32 * *width + b, word = i / 32 * bits + lowest + place / 32;
                words[word * stride] |= (uint32_t)(codes[i] >> (lowest + b) & 1) << place % 32;
            }
    }
}

static void add_planar(kit_file *file) {
    int words = m.k * m.bits / 32, groups = m.k / m.group, across = m.n * m.bits / 32;
    uint32_t *qweight = kit_add(file, "x.qweight", "I32", kit_shape(words, m.n), (size_t)(words * m.n) * 4);
    uint32_t *qzeros =
        kit_add(file, "x.qzeros", "I32", kit_shape(groups, across), (size_t)(groups * across) * 4);
    add_scales(file, "x.scales", "F16");
    for (int j = 0; j < m.n; j++) {
        int column[MAX_K];
        for (int i = 0; i < m.k; i++) column[i] = m.code[i][j];
        pack_planar(m.bits, column, m.k, qweight + j, m.n);
    }
    for (int g = 0; g < groups; g++) pack_planar(m.bits, m.zero[g], m.n, qzeros + g * across, 1);
    int32_t *index = kit_add(file, "x.g_idx", "I32", kit_shape(m.k, 0), (size_t)m.k * 4);
    for (int i = 0; i < m.k; i++) index[i] = m.group_of[i];
}

/* The configuration says it, or the user. */
START_TEST(gptq_planar) {
    kit_file file = {.count = 0};
    int bits = 2 + _i / 2;
    make_matrix(128, 96, 32, bits, TVM_F16, 0);
    if (_i % 2) mix_groups();
    find_weights();
    add_planar(&file);
    kit_write(&file, in_folder("m.safetensors"));
    if (_i % 2) say("\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq_p\"");
    import_well("m.safetensors", "out", _i % 2 ? "auto" : "gptq_p");
    compare_file("out", "x", true, _i % 2, 0);
}
END_TEST

START_TEST(gptq_of_no_known_format) {
    kit_file file = {.count = 0};
    make_matrix(64, 32, 32, 4, TVM_F16, 0);
    add_planar(&file);
    kit_write(&file, in_folder("m.safetensors"));
    say("\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"");
    import_badly("m.safetensors", "auto",
                 "checkpoint_format 'marlin' is not known; gptq, gptq_v2 and gptq_p are");
    find_weights();
    import_well("m.safetensors", "out", "gptq_v2"); /* who names one knows better */
    compare_file("out", "x", true, false, 0);
}
END_TEST

/* ---- compressed-tensors: pack-quantized ---- */

/* Until 0.19 a word has 32 / bits whole codes; since 0.20 codes follow each other without a gap
 * (compressors/pack_quantized). Bit by bit. */
static int pack_string(int bits, bool dense, const int *codes, int count, uint32_t *words, int stride) {
    int a_word = 32 / bits;
    for (int i = 0; words && i < count; i++)
        for (int b = 0; b < bits; b++) {
            int place = dense ? i * bits + b : i / a_word * 32 + i % a_word * bits + b;
            words[place / 32 * stride] |= (uint32_t)(codes[i] >> b & 1) << place % 32;
        }
    return dense ? (count * bits + 31) / 32 : (count + a_word - 1) / a_word;
}

static void add_packed(kit_file *file, bool dense) {
    int words = pack_string(m.bits, dense, NULL, m.k, NULL, 1), groups = m.k / m.group;
    int down = pack_string(m.bits, dense, NULL, m.n, NULL, 1);
    uint32_t *packed =
        kit_add(file, "x.weight_packed", "I32", kit_shape(m.n, words), (size_t)(m.n * words) * 4);
    uint16_t *scales =
        kit_add(file, "x.weight_scale", "BF16", kit_shape(m.n, groups), (size_t)(m.n * groups) * 2);
    int64_t *extents = kit_add(file, "x.weight_shape", "I64", "2", 16);
    uint32_t *points =
        kit_add(file, "x.weight_zero_point", "I32", kit_shape(down, groups), (size_t)(down * groups) * 4);
    extents[0] = m.n, extents[1] = m.k;
    for (int j = 0; j < m.n; j++) {
        int row[MAX_K];
        for (int i = 0; i < m.k; i++) row[i] = m.code[i][j];
        pack_string(m.bits, dense, row, m.k, packed + j * words, 1);
        for (int g = 0; g < groups; g++) scales[j * groups + g] = m.half[g][j];
    }
    for (int g = 0; g < groups; g++) pack_string(m.bits, dense, m.zero[g], m.n, points + g, groups);
}

/* By the number of words; 130 codes of 3 bits are 13 words either way, so that the version tells. */
START_TEST(compressed_widths) {
    kit_file file = {.count = 0};
    bool dense = _i % 2, telling = _i < 16;
    int bits = telling ? 1 + _i / 2 : 3;
    make_matrix(telling ? 128 : 130, 37, telling ? 32 : 65, bits, TVM_BF16, 0);
    find_weights();
    add_packed(&file, dense);
    kit_write(&file, in_folder("m.safetensors"));
    char config[200];
    snprintf(config, sizeof config,
             "\"quant_method\": \"compressed-tensors\", %s \"config_groups\": {\"group_0\": {\"weights\": "
             "{\"num_bits\": %d}}, \"group_1\": {\"weights\": {\"num_bits\": 4}}}",
             telling ? ""
             : dense ? "\"version\": \"0.20.1\","
                     : "\"version\": \"0.9.4\",",
             bits);
    say(config);
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", true, false, 0);
}
END_TEST

START_TEST(compressed_without_a_version) {
    kit_file file = {.count = 0};
    make_matrix(130, 37, 65, 3, TVM_BF16, 0);
    add_packed(&file, true);
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", "auto",
                 "13 words may be 130 codes in more than one packing; num_bits and the version");
    say("\"quant_method\": \"compressed-tensors\", \"bits\": 6");
    import_badly("m.safetensors", "auto",
                 "13 words a row are not 130 codes of the bits that the configuration says");
}
END_TEST

/* ---- floats of 8 bits, and their scales ---- */

/* The type of the scales, the weights that share one, and what the configuration says of it. */
static const struct {
    const char *name, *dtype, *config;
    int outputs, inputs;
} scale_forms[] = {
    {"x.weight_scale", "BF16", "\"quant_method\": \"compressed-tensors\"", 128, 128},
    {"x.weight_scale", "F32",
     "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 8, \"block_structure\": [64, 96]}}}", 64,
     96},
    {"x.weight_scale_inv", "F32", "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 64]", 128, 64},
    {"x.weight_scale_inv", "F8_E8M0", "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]", 128,
     128},
    {"x.weight_scale", "U8", "\"format\": \"mxfp8-quantized\"", 1, 32},
    {"x.weight_scale", "F8_E8M0", "\"format\": \"mxfp8-quantized\"", 1, 32},
    {"x.weight_scale", "F32", "\"quant_method\": \"fp8\"", 1, 64},
};

START_TEST(fp8_scales) {
    kit_file file = {.count = 0};
    const char *dtype = scale_forms[_i].dtype;
    int outputs = scale_forms[_i].outputs, inputs = scale_forms[_i].inputs;
    make_matrix(192, 200, 32, 8, TVM_F16, -1);
    int down = (m.n + outputs - 1) / outputs, across = (m.k + inputs - 1) / inputs, count = down * across;
    size_t size = !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BF16") ? 2 : 1;
    uint8_t *weight = kit_add(&file, "x.weight", "F8_E4M3", kit_shape(m.n, m.k), (size_t)(m.n * m.k));
    uint8_t *scales =
        kit_add(&file, scale_forms[_i].name, dtype, kit_shape(down, across), (size_t)count * size);
    double values[200 * 6];
    for (int s = 0; s < count; s++) { /* numbers that f16 holds */
        float value = ldexpf(1, (int)draw(8) - 4) * (size == 1 ? 1 : 1 + (float)draw(8) / 8);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits >>= size == 4 ? 0 : size == 2 ? 16 : 23;
        memcpy(scales + (size_t)s * size, &bits, size);
        values[s] = (double)value;
    }
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            weight[j * m.k + i] = (uint8_t)(m.code[i][j] & 0xf7); /* not NaN */
            m.weight[i][j] = tvm_decode(TVM_FLOAT(8, 4, 3), weight[j * m.k + i]) *
                             values[j / outputs * across + i / inputs];
        }
    kit_write(&file, in_folder("m.safetensors"));
    say(scale_forms[_i].config);
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
}
END_TEST

/* Quark: as compressed-tensors, but that the codes are called weight. A byte's lower half comes first. */
START_TEST(mxfp4_of_quark) {
    static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
    kit_file file = {.count = 0};
    make_matrix(96, 40, 32, 4, TVM_BF16, -1);
    uint8_t *weight = kit_add(&file, _i ? "x.weight" : "x.weight_packed", "U8", "40,48", 40 * 48);
    uint8_t *scales = kit_add(&file, "x.weight_scale", "U8", "40,3", 120);
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            if (i % 32 == 0) scales[j * 3 + i / 32] = (uint8_t)draw(255);
            weight[(j * m.k + i) / 2] |= (uint8_t)(m.code[i][j] << (i % 2 * 4));
            m.weight[i][j] = ldexp(e2m1[m.code[i][j]], scales[j * 3 + i / 32] - 127);
        }
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
}
END_TEST

/* ---- bitsandbytes ---- */

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

/* The same bytes as elements of another type. */
static void store_as(kit_entry *entry, const char *dtype, size_t size) {
    snprintf(entry->dtype, sizeof entry->dtype, "%s", dtype);
    snprintf(entry->shape, sizeof entry->shape, "%zu,1", entry->bytes / size);
}

START_TEST(bitsandbytes) {
    static const char *const storages[] = {"U8", "BF16", "F32", "I8", "I32", "F16"};
    static const size_t sizes[] = {1, 2, 4, 1, 4, 2};
    kit_file file = {.count = 0};
    tvm_diags diags = {0}, warnings = {0};
    bool nested = _i == 1;
    add_bitsandbytes(&file, _i == 2 ? "fp4" : "nf4", nested);
    store_as(&file.entries[0], storages[_i], sizes[_i]);
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

/* nn.Linear8bitLt: the code 127 stands for the largest magnitude of a row of the weight [n, k]. */
static void add_int8(kit_file *file, uint8_t format) {
    make_matrix(96, 40, 96, 8, TVM_F16, -1);
    int8_t *weight = kit_add(file, "x.weight", "I8", "40,96", 40 * 96);
    float *greatest = kit_add(file, "x.SCB", "F32", "40", 160);
    *(uint8_t *)kit_add(file, "x.weight_format", "U8", "", 1) = format;
    for (int j = 0; j < m.n; j++) {
        greatest[j] = 127 * (float)m.scale[0][j];
        for (int i = 0; i < m.k; i++) {
            weight[j * m.k + i] = (int8_t)(m.code[i][j] - 128);
            m.weight[i][j] = (m.code[i][j] - 128) * m.scale[0][j];
        }
    }
}

START_TEST(bitsandbytes_int8) {
    kit_file file = {.count = 0};
    add_int8(&file, (uint8_t)_i);
    kit_write(&file, in_folder("m.safetensors"));
    if (_i) {
        import_badly("m.safetensors", "auto", "its weight_format is not 0, of codes in rows");
        return;
    }
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
}
END_TEST

/* ---- what stands beside the weights ---- */

/* A layer of NVFP4 whose inputs are multiplied by `inputs` first. */
static void add_nvfp4(kit_file *file, const double *inputs) {
    static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};
    make_matrix(64, 24, 16, 4, TVM_F16, -1);
    uint8_t *weight = kit_add(file, "x.weight", "U8", "24,32", 768);
    uint8_t *scales = kit_add(file, "x.weight_scale", "F8_E4M3", "24,4", 96);
    *(float *)kit_add(file, "x.weight_scale_2", "F32", "", 4) = 0.25F;
    uint16_t *before = kit_add(file, "x.pre_quant_scale", "BF16", "64", 128);
    for (int i = 0; i < m.k; i++) before[i] = (uint16_t)tvm_encode(TVM_BF16, inputs[i]);
    for (int j = 0; j < m.n; j++)
        for (int i = 0; i < m.k; i++) {
            if (i % 16 == 0) scales[j * 4 + i / 16] = (uint8_t)(0x30 + draw(0x20));
            weight[(j * m.k + i) / 2] |= (uint8_t)(m.code[i][j] << (i % 2 * 4));
            m.weight[i][j] = e2m1[m.code[i][j]] * tvm_decode(TVM_FLOAT(8, 4, 3), scales[j * 4 + i / 16]) *
                             0.25 * inputs[i];
        }
}

/* Model Optimizer's AWQ: what inputs are multiplied by goes into the scales, where that is exact. */
START_TEST(pre_quant_scale) {
    static const char *const says[] = {NULL, NULL,
                                       "pre_quant_scale[17] is 0.5, of another input of its group 1.5",
                                       "products of its scales and pre_quant_scale are no numbers of f16"};
    kit_file file = {.count = 0};
    double inputs[64];
    for (int i = 0; i < 64; i++) inputs[i] = _i == 0 ? 1 : _i == 3 ? 1 + 127 / 128.0 : 0.5 * (1 + i / 16 * 2);
    if (_i == 2) inputs[17] = 0.5;
    add_nvfp4(&file, inputs);
    kit_write(&file, in_folder("m.safetensors"));
    if (says[_i]) {
        import_badly("m.safetensors", "auto", says[_i]);
        return;
    }
    import_well("m.safetensors", "out", "auto");
    compare_file("out", "x", false, false, 0);
}
END_TEST

/* What is said of activations and caches is left out: of the layer, of its module, of a projection beside it.
 */
START_TEST(activations) {
    static const char *const gone[] = {"a.x.input_scale_ub", "a.x.k_scale", "a.v_scale", "a.y.k_scale"};
    kit_file file = {.count = 0};
    uint8_t *weight = kit_add(&file, "a.x.weight", "F8_E4M3", "32,16", 512);
    for (int i = 0; i < 512; i++) weight[i] = (uint8_t)draw(127);
    *(float *)kit_add(&file, "a.x.weight_scale", "F32", "1", 4) = 0.5F;
    for (int i = 0; i < 4; i++) *(float *)kit_add(&file, gone[i], "F32", "1", 4) = 2;
    kit_add(&file, "a.x.bias", "F16", "32", 64);
    kit_add(&file, "b.k_scale", "F32", "1", 4); /* not of a module with such layers */
    kit_write(&file, in_folder("m.safetensors"));
    import_well("m.safetensors", "out", "auto");
    kit_result read = kit_read(in_folder("out"));
    for (int i = 0; i < 4; i++) ck_assert_ptr_null(kit_find(&read, gone[i], ""));
    ck_assert_ptr_nonnull(kit_find(&read, "a.x.bias", ""));
    ck_assert_ptr_nonnull(kit_find(&read, "b.k_scale", ""));
    ck_assert_uint_eq(read.tensors.count, 4);
    kit_free(&read);
}
END_TEST

/* A tensor of a layer that nobody reads, and a layer that nobody knows, are not lost in silence. */
START_TEST(strangers) {
    kit_file file = {.count = 0};
    uint8_t *weight = kit_add(&file, "x.weight", "F8_E4M3", "32,16", 512);
    for (int i = 0; i < 512; i++) weight[i] = (uint8_t)draw(127);
    *(float *)kit_add(&file, "x.weight_scale", "F32", "1", 4) = 0.5F;
    if (_i == 0) kit_add(&file, "x.weight_permutation", "I32", "16", 64);
    if (_i == 1) kit_add(&file, "x.lora_A.weight", "F16", "4,16", 128);
    if (_i == 2) kit_add(&file, "y.weight", "U8", "16,16", 256);
    if (_i == 2) kit_add(&file, "y.weight_scale", "F32", "32,1", 128);
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", "auto",
                 _i == 0   ? "layer 'x' (fp8): it has a tensor 'weight_permutation'; what that does"
                 : _i == 1 ? "layer 'x' (fp8): it has a tensor 'lora_A.weight'; what that does"
                           : "layer 'y' is quantized in no known form: 'weight' is U8 [16, 16]");
}
END_TEST

/* ---- headers that lie ---- */

START_TEST(hostile_headers) {
    kit_file file = {.count = 0};
    const char *says = "its scales are of type F4";
    if (_i == 0) {
        kit_add(&file, "x.weight", "F8_E4M3", "4,4", 16);
        kit_add(&file, "x.weight_scale", "F4", "4,4", 8);
    } else if (_i == 1) {
        kit_add(&file, "x.weight_packed", "I32", "2,1", 8);
        kit_add(&file, "x.weight_scale", "F16", "2,1", 4);
        kit_add(&file, "x.weight_shape", "I64", "0,2", 0);
        says = "weight_shape is not I64 [2]";
    } else if (_i == 2) {
        kit_add(&file, "x_blocks", "U8", "0,36028797018963968,1,16", 0);
        kit_add(&file, "x_scales", "U8", "0,36028797018963968,1", 0);
        says = "it has no weights, or no scales";
    } else {
        kit_add(&file, "x.weight", "I8", "4,4", 16);
        kit_add(&file, "x.weight_scale", "F16", "4,1152921504606846976,0", 0);
        says = "it has no weights, or no scales";
    }
    kit_write(&file, in_folder("m.safetensors"));
    import_badly("m.safetensors", "auto", says);
}
END_TEST

/* ---- the files beside the weights ---- */

static void make_model(const char *place) {
    kit_file file = {.count = 0};
    char path[64];
    snprintf(path, sizeof path, "%s/m.safetensors", place);
    uint8_t *weight = kit_add(&file, "x.weight", "F8_E4M3", "32,16", 512);
    for (int i = 0; i < 512; i++) weight[i] = (uint8_t)draw(127);
    *(float *)kit_add(&file, "x.weight_scale", "F32", "1", 4) = 0.5F;
    kit_write(&file, in_folder(path));
}

/* A link stays in the folder, or leads from a snapshot of the model hub's cache to its blobs. */
START_TEST(links) {
    ck_assert_int_eq(mkdir(in_folder("hub"), 0700), 0);
    ck_assert_int_eq(mkdir(in_folder("hub/blobs"), 0700), 0);
    ck_assert_int_eq(mkdir(in_folder("hub/snapshots"), 0700), 0);
    ck_assert_int_eq(mkdir(in_folder("hub/snapshots/1"), 0700), 0);
    make_model("hub/snapshots/1");
    kit_write_text(in_folder("hub/blobs/abc"), "{\"of\": \"the cache\"}");
    kit_write_text(in_folder("hub/snapshots/1/own.json"), "{}");
    kit_write_text(in_folder("secret.json"), "{\"of\": \"the user\"}");
    ck_assert_int_eq(symlink("../../blobs/abc", in_folder("hub/snapshots/1/tokenizer.json")), 0);
    ck_assert_int_eq(symlink("own.json", in_folder("hub/snapshots/1/same.json")), 0);
    import_well("hub/snapshots/1", "made", "auto");
    struct stat info;
    ck_assert_int_eq(lstat(in_folder("made/tokenizer.json"), &info), 0);
    ck_assert(S_ISREG(info.st_mode) && info.st_size == 19);
    ck_assert_int_eq(access(in_folder("made/same.json"), F_OK), 0);
    ck_assert_int_eq(symlink("../../../secret.json", in_folder("hub/snapshots/1/more.json")), 0);
    import_badly("hub/snapshots/1", "auto", "this is a link out of the folder, to '");
    ck_assert_int_eq(rename(in_folder("hub/snapshots"), in_folder("hub/others")), 0);
    ck_assert_int_eq(unlink(in_folder("hub/others/1/more.json")), 0);
    import_badly("hub/others/1", "auto", "this is a link out of the folder, to '");
}
END_TEST

/* Nobody waits for a pipe. */
START_TEST(pipes) {
    ck_assert_int_eq(mkdir(in_folder("model"), 0700), 0);
    make_model("model");
    ck_assert_int_eq(mkfifo(in_folder("model/vocabulary.json"), 0600), 0);
    import_well("model", "made", "auto");
    ck_assert_int_eq(mkfifo(in_folder("model/n.safetensors"), 0600), 0);
    import_badly("model", "auto", "this is a named pipe, not a regular file");
    import_badly("model/n.safetensors", "auto", "this is a named pipe, not a regular file");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("checkpoint_forms");
    TCase *good = tcase_create("forms"), *bad = tcase_create("bad input");
    tcase_add_loop_test(good, gptq_planar, 0, 14);
    tcase_add_test(bad, gptq_of_no_known_format);
    tcase_add_loop_test(good, compressed_widths, 0, 18);
    tcase_add_test(bad, compressed_without_a_version);
    tcase_add_loop_test(good, fp8_scales, 0, sizeof scale_forms / sizeof *scale_forms);
    tcase_add_loop_test(good, mxfp4_of_quark, 0, 2);
    tcase_add_loop_test(good, bitsandbytes, 0, 6);
    tcase_add_loop_test(bad, refuses_bitsandbytes, 0,
                        sizeof bitsandbytes_refusals / sizeof *bitsandbytes_refusals);
    tcase_add_loop_test(good, bitsandbytes_int8, 0, 2);
    tcase_add_loop_test(good, pre_quant_scale, 0, 4);
    tcase_add_test(good, activations);
    tcase_add_loop_test(bad, strangers, 0, 3);
    tcase_add_loop_test(bad, hostile_headers, 0, 4);
    tcase_add_test(good, links);
    tcase_add_test(bad, pipes);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
