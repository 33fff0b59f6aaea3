/* tvm-pack --to: what was quantized here, or elsewhere, as GPTQ's and compressed-tensors' tensors. They are
 * read back as these programs define them, bit by bit, and by the importer. */
#include "checkpoint_matrix_kit.h"
#include "suite_kit.h"

/* ---- a layer of ours ---- */

/* The .safetensors file m of the matrix, of which tilusvm-weights(5) says what is in it; with zero points, an
 * order. */
static void add_ours(const char *path, const char *type, bool zeros, bool order, const char *more) {
    tvm_dtype kind;
    ck_assert(tvm_dtype_parse(type, strlen(type), &kind));
    int width = (m.n * m.bits + 7) / 8, groups = m.k / m.group, next[MAX_K] = {0};
    size_t packed_bytes = (size_t)(m.k * width), scales_bytes = (size_t)(groups * m.n) * 2;
    char header[2048];
    uint8_t *packed = calloc(packed_bytes, 1);
    uint16_t halves[MAX_K][MAX_N];
    int32_t inputs[MAX_K];
    for (int i = 0; i < m.k;
         i++) { /* row of W: those of group 0, in their order, then those of group 1 ... */
        int row = m.group_of[i] * m.group + next[m.group_of[i]]++;
        inputs[row] = i;
        for (int b = 0; b < m.n * m.bits; b++)
            packed[row * width + b / 8] |=
                (uint8_t)(((unsigned)m.code[i][b / m.bits] >> b % m.bits & 1) << b % 8);
    }
    size_t at = scales_bytes, size = 0;
    size = (size_t)snprintf(
        header, sizeof header,
        "{\"__metadata__\":{\"format\":\"tilusvm-model\",\"version\":\"1\",\"x.packed\":\"{\\\"type\\\":\\\"%s\\\","
        "\\\"shape\\\":\\\"%d,%d\\\",\\\"group\\\":\\\"%d\\\",\\\"packing\\\":\\\"rows\\\",\\\"zero\\\":\\\"\\\"%s}\"},"
        "\"x.scales\":{\"dtype\":\"F16\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}",
        type, m.k, m.n, m.group, more, groups, m.n, at);
    if (zeros)
        size +=
            (size_t)snprintf(header + size, sizeof header - size,
                             ",\"x.zeros\":{\"dtype\":\"F16\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
                             groups, m.n, at, at + scales_bytes);
    at += zeros ? scales_bytes : 0;
    if (order)
        size += (size_t)snprintf(header + size, sizeof header - size,
                                 ",\"x.order\":{\"dtype\":\"I32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
                                 m.k, at, at + (size_t)m.k * 4);
    at += order ? (size_t)m.k * 4 : 0;
    size += (size_t)snprintf(header + size, sizeof header - size,
                             ",\"x.packed\":{\"dtype\":\"U8\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
                             m.k, width, at, at + packed_bytes);
    at += packed_bytes;
    size += (size_t)snprintf(
        header + size, sizeof header - size,
        ",\"lm_head.weight\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[%zu,%zu]}}", at, at + 4);
    FILE *stream = fopen(in_folder(path), "wb");
    ck_assert_ptr_nonnull(stream);
    fwrite(&(uint64_t){size}, 8, 1, stream);
    fwrite(header, 1, size, stream);
    for (int g = 0; g < groups; g++) fwrite(m.half[g], 2, (size_t)m.n, stream);
    for (int g = 0; g < groups; g++)
        for (int j = 0; j < m.n; j++) halves[g][j] = (uint16_t)tvm_encode(TVM_F16, m.zero[g][j]);
    for (int g = 0; zeros && g < groups; g++) fwrite(halves[g], 2, (size_t)m.n, stream);
    if (order) fwrite(inputs, 4, (size_t)m.k, stream);
    fwrite(packed, 1, packed_bytes, stream);
    fwrite("head", 1, 4, stream);
    ck_assert_int_eq(fclose(stream), 0);
    free(packed);
}

static tvm_status export_to(const char *input, const char *output, const char *to, tvm_diags *diags) {
    checkpoint_options options = {
        .input = in_folder(input), .output = in_folder(output), .from = "tilusvm", .to = to, .threads = 2};
    return tvm_checkpoint_import(&options, diags);
}

static void export_well(const char *input, const char *output, const char *to) {
    tvm_diags diags = {0};
    tvm_status status = export_to(input, output, to, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "");
}

static uint32_t word(const kit_result *read, const tvm_safetensor *tensor, int index) {
    uint32_t value;
    memcpy(&value, read->bytes + tensor->offset + 4 * index, sizeof value);
    return value;
}

/* Bits of a string that begins with word `first`; the next is `step` on. */
static int string_at(const kit_result *read, const tvm_safetensor *tensor, int first, int step, int bit,
                     int bits) {
    int code = 0;
    for (int b = 0; b < bits; b++, bit++)
        code |= (int)(word(read, tensor, first + bit / 32 * step) >> bit % 32 & 1) << b;
    return code;
}

static const struct {
    const char *type;
    int bits, group;
    bool zeros, order, zero_at_0;
} forms[] = {
    {"u4", 4, 32, true, false, false},  {"u4", 4, 32, true, true, true},  {"u4", 4, 64, false, false, false},
    {"i4", 4, 32, false, true, false},  {"u2", 2, 32, true, false, true}, {"u8", 8, 128, true, false, false},
    {"i8", 8, 32, false, false, false}, {"u3", 3, 32, true, true, false}, {"u3", 3, 64, false, false, false},
};
enum { FORMS = sizeof forms / sizeof *forms, COMPRESSED_FORMS = 7 };

static int unsigned_code(int form, int i, int j) {
    return forms[form].type[0] == 'i' ? m.code[i][j] ^ 1 << (m.bits - 1) : m.code[i][j];
}

static void make_form(int form) {
    make_matrix(128, 96, forms[form].group, forms[form].bits, TVM_F16,
                forms[form].zeros ? !forms[form].zero_at_0 : -1);
    if (forms[form].zero_at_0) m.zero[0][0] = 0;
    if (forms[form].order) mix_groups();
    find_weights();
    for (int i = 0; i < m.k && forms[form].type[0] == 'i'; i++)
        for (int j = 0; j < m.n; j++)
            m.weight[i][j] = (unsigned_code(form, i, j) - (1 << (m.bits - 1))) * m.scale[m.group_of[i]][j];
    ck_assert_int_eq(mkdir(in_folder("model"), 0700), 0);
    kit_write_text(in_folder("model/config.json"),
                   "{\"hidden_size\": 96, \"quantization_config\": {\"version\": 1}}");
    add_ours("model/model.safetensors", forms[form].type, forms[form].zeros, forms[form].order, "");
}

static bool says(const char *path, const char *text) {
    static char bytes[4096];
    FILE *stream = fopen(in_folder(path), "r");
    ck_assert_ptr_nonnull(stream);
    bytes[fread(bytes, 1, sizeof bytes - 1, stream)] = '\0';
    fclose(stream);
    return strstr(bytes, text) != NULL;
}

START_TEST(gptq) {
    make_form(_i);
    export_well("model", "out", "gptq");
    kit_result read = kit_read(in_folder("out/model.safetensors"));
    const tvm_safetensor *qweight = kit_find(&read, "x.qweight", ""),
                         *qzeros = kit_find(&read, "x.qzeros", ""), *scales = kit_find(&read, "x.scales", ""),
                         *g_idx = kit_find(&read, "x.g_idx", "");
    ck_assert(qweight && qzeros && scales && g_idx && kit_find(&read, "lm_head.weight", ""));
    ck_assert_uint_eq(read.tensors.count, 5);
    for (int i = 0; i < m.k; i++) {
        ck_assert_uint_eq(word(&read, g_idx, i), (uint32_t)m.group_of[i]);
        for (int j = 0; j < m.n; j++)
            ck_assert_int_eq(string_at(&read, qweight, j, m.n, i * m.bits, m.bits), unsigned_code(_i, i, j));
    }
    for (int g = 0; g < m.k / m.group; g++)
        for (int j = 0; j < m.n; j++) {
            int stored = string_at(&read, qzeros, g * m.n * m.bits / 32, 1, j * m.bits, m.bits);
            ck_assert_int_eq(stored, m.zero[g][j] - !forms[_i].zero_at_0);
            ck_assert_double_eq(kit_number(&read, scales, (uint64_t)(g * m.n + j)), m.scale[g][j]);
        }
    ck_assert(says("out/config.json", forms[_i].zero_at_0 ? "\"checkpoint_format\": \"gptq_v2\""
                                                          : "\"checkpoint_format\": \"gptq\""));
    ck_assert(says("out/config.json", forms[_i].order ? "\"desc_act\": true" : "\"desc_act\": false"));
    ck_assert(says("out/config.json", "hidden_size") && !says("out/config.json", "\"version\""));
    kit_free(&read);
    import_well("out", "again", "auto");
    compare_file("again/model.safetensors", "x", forms[_i].zeros, forms[_i].order, 0);
}
END_TEST

START_TEST(compressed_tensors) {
    make_form(_i);
    export_well("model", "out", "compressed-tensors");
    kit_result read = kit_read(in_folder("out/model.safetensors"));
    const tvm_safetensor *packed = kit_find(&read, "x.weight_packed", ""),
                         *scales = kit_find(&read, "x.weight_scale", ""),
                         *zeros = kit_find(&read, "x.weight_zero_point", ""),
                         *shape = kit_find(&read, "x.weight_shape", ""),
                         *g_idx = kit_find(&read, "x.weight_g_idx", "");
    int groups = m.k / m.group;
    ck_assert(packed && scales && shape && (zeros != NULL) == forms[_i].zeros &&
              (g_idx != NULL) == forms[_i].order);
    ck_assert(kit_number(&read, shape, 0) == m.n && kit_number(&read, shape, 1) == m.k);
    for (int j = 0; j < m.n; j++) {
        for (int i = 0; i < m.k; i++)
            ck_assert_int_eq(string_at(&read, packed, j * m.k * m.bits / 32, 1, i * m.bits, m.bits),
                             unsigned_code(_i, i, j));
        for (int g = 0; g < groups; g++) {
            ck_assert_double_eq(kit_number(&read, scales, (uint64_t)(j * groups + g)), m.scale[g][j]);
            if (zeros) ck_assert_int_eq(string_at(&read, zeros, g, groups, j * m.bits, m.bits), m.zero[g][j]);
        }
    }
    for (int i = 0; g_idx && i < m.k; i++) ck_assert_uint_eq(word(&read, g_idx, i), (uint32_t)m.group_of[i]);
    ck_assert(says("out/config.json", "\"format\": \"pack-quantized\"") &&
              says("out/config.json", "\"lm_head\""));
    ck_assert(says("out/config.json", forms[_i].zeros ? "\"symmetric\": false" : "\"symmetric\": true"));
    ck_assert(says("out/config.json",
                   forms[_i].group == 128 ? "\"strategy\": \"channel\"" : "\"strategy\": \"group\""));
    kit_free(&read);
    import_well("out", "again", "auto");
    compare_file("again/model.safetensors", "x", forms[_i].zeros, forms[_i].order, 0);
}
END_TEST

/* A file that is read and written again is what it was; floats of it are its weights. */
START_TEST(ours_again) {
    make_form(_i);
    import_well("model", "out", "tilusvm");
    compare_file("out/model.safetensors", "x", forms[_i].zeros, forms[_i].order, 0);
}
END_TEST

static const struct {
    const char *type;
    int bits, group;
    bool zeros;
    const char *to, *says;
} refusals[] = {
    {"f4_e2m1", 4, 32, false, "gptq",
     "layer 'x' (tilusvm): it is of f4_e2m1; gptq has integers of 2, 3, 4 or 8 bits"},
    {"u5", 5, 32, false, "gptq", "it is of u5; gptq has integers"},
    {"u3", 3, 32, false, "compressed-tensors",
     "it is of u3; compressed-tensors has integers of 2, 4 or 8 bits"},
    {"u4", 4, 32, true, "gptq",
     "the zero point of group 1, column 2 is 16; gptq has whole ones from 0 to 15"},
    {"u4", 4, 32, true, "compressed-tensors", "the zero point of group 1, column 2 is 16"},
};

START_TEST(refuses) {
    tvm_diags diags = {0};
    make_matrix(128, 96, refusals[_i].group, refusals[_i].bits, TVM_F16, refusals[_i].zeros ? 1 : -1);
    if (refusals[_i].zeros) m.zero[1][2] = 16;
    add_ours("m.safetensors", refusals[_i].type, refusals[_i].zeros, false, "");
    ck_assert_int_eq(export_to("m.safetensors", "out", refusals[_i].to, &diags), TVM_UNSUPPORTED);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, refusals[_i].says) != NULL, "%s", diags.items[0].message);
    ck_assert_int_ne(access(in_folder("out"), F_OK), 0);
    tvm_diags_free(&diags);
}
END_TEST

/* Damaged files of ours. */
static const struct {
    const char *type, *more, *says;
    int change;
} damages[] = {
    {"u4", ",\\\"shape\\\":\\\"128\\\"", "the metadata do not describe it", 0},
    {"u4", ",\\\"shape\\\":\\\"128,18446744073709551615\\\"", "the metadata do not describe it", 0},
    {"u4", ",\\\"group\\\":\\\"0\\\"", "the metadata do not describe it", 0},
    {"u4", ",\\\"type\\\":\\\"f32\\\"", "the metadata do not describe it", 0},
    {"u4", ",\\\"shape\\\":\\\"64,96\\\"", "packed is U8 [128, 48]; [64, 48] is expected", 0},
    {"u4", ",\\\"group\\\":\\\"16\\\"", "scales is F16 [4, 96]; [8, 96] is expected", 0},
    {"u4", ",\\\"packing\\\":\\\"program\\\"", "its codes are laid out for a program", 0},
    {"u4", "", "order is no permutation of the inputs", 1},
    {"u4", "", "order is no permutation of the inputs", 2},
};

START_TEST(refuses_damaged) {
    make_matrix(128, 96, 32, 4, TVM_F16, 1);
    add_ours("m.safetensors", damages[_i].type, true, true, damages[_i].more);
    if (damages[_i].change) {
        kit_result read = kit_read(in_folder("m.safetensors"));
        const tvm_safetensor *order = kit_find(&read, "x.order", "");
        int32_t value = damages[_i].change == 1 ? 128 : (int32_t)word(&read, order, 0);
        FILE *stream = fopen(in_folder("m.safetensors"), "r+b");
        ck_assert_int_eq(fseek(stream, (long)order->offset + 4 * 77, SEEK_SET), 0);
        fwrite(&value, 4, 1, stream);
        fclose(stream);
        kit_free(&read);
    }
    import_badly("m.safetensors", "tilusvm", damages[_i].says);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("checkpoint_export");
    TCase *good = tcase_create("formats"), *bad = tcase_create("bad input");
    tcase_add_loop_test(good, gptq, 0, FORMS);
    tcase_add_loop_test(good, compressed_tensors, 0, COMPRESSED_FORMS);
    tcase_add_loop_test(good, ours_again, 0, FORMS);
    tcase_add_loop_test(bad, refuses, 0, sizeof refusals / sizeof *refusals);
    tcase_add_loop_test(bad, refuses_damaged, 0, sizeof damages / sizeof *damages);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
