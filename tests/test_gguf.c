/* tvm-pack --from gguf: files made here as ggml's specification says, of every type that is read; what comes
 * of them is compared with an independent dequantization. The names of tensors, what the converter changed,
 * damaged files, and files changed at random. */
#include <errno.h>
#include <inttypes.h>

#include "checkpoint_matrix_kit.h"
#include "gguf.h"
#include "gguf_kit.h"
#include "gguf_reference.h"
#include "suite_kit.h"

static gguf_file made;

/* ---- tensors of random blocks ---- */

static void fill(const gguf_kind *kind, uint8_t *data, size_t blocks) {
    for (size_t i = 0; i < blocks * kind->bytes; i++) data[i] = (uint8_t)draw(256);
    for (size_t b = 0; b < blocks; b++, data += kind->bytes) {
        for (int i = 0; i < 2 && kind->halves[i] >= 0; i++) {
            uint16_t half = (uint16_t)tvm_encode(TVM_F16, 0.0001 * ((double)draw(2000) - 900));
            memcpy(data + kind->halves[i], &half, sizeof half);
        }
        if (kind->number == 39) data[0] = (uint8_t)(100 + draw(40));
    }
}

static uint8_t *add_blocks(const char *name, const gguf_kind *kind, uint64_t rows, uint64_t columns) {
    size_t blocks = rows * columns / kind->weights;
    uint8_t *data = gguf_tensor(&made, name, kind->number, rows, columns, blocks * kind->bytes);
    fill(kind, data, blocks);
    return data;
}

/* W[i, j] of the matrix kit, from rows of blocks. */
static void expect(const gguf_kind *kind, const uint8_t *data, int rows, int columns) {
    m = (matrix){.k = columns, .n = rows};
    for (int j = 0; j < rows; j++)
        for (int i = 0; i < columns; i += (int)kind->weights) {
            float values[256];
            gguf_dequantize(kind, data + (size_t)(j * columns + i) / kind->weights * kind->bytes, values);
            for (unsigned l = 0; l < kind->weights; l++) m.weight[i + (int)l][j] = (double)values[l];
        }
}

static tvm_status import_with(tvm_dtype plain, tvm_dtype scale, const char *from, tvm_diags *diags,
                              tvm_diags *warnings) {
    checkpoint_options options = {.input = in_folder("m.gguf"),
                                  .output = in_folder("out"),
                                  .from = from,
                                  .plain = plain,
                                  .scale_type = scale,
                                  .threads = 2,
                                  .warnings = warnings};
    return tvm_checkpoint_import(&options, diags);
}

static void import_as(tvm_dtype plain, tvm_dtype scale) {
    tvm_diags diags = {0};
    tvm_status status = import_with(plain, scale, "gguf", &diags, NULL);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
}

/* ---- types ---- */

/* Written as f32, weights are those of the reference, bit for bit (but for the sign of zero). */
START_TEST(floats) {
    const gguf_kind *kind = &gguf_kinds[_i];
    gguf_start(&made, "qwen3");
    uint8_t *data = add_blocks("blk.11.ffn_up.weight", kind, 70, 256);
    gguf_write(&made, in_folder("m.gguf"));
    import_as(TVM_F32, (tvm_dtype){0});
    expect(kind, data, 70, 256);
    kit_result read = kit_read(in_folder("out"));
    const tvm_safetensor *weight = kit_find(&read, "model.layers.11.mlp.up_proj.weight", "");
    ck_assert(weight && weight->shape[0] == 70 && weight->shape[1] == 256 &&
              tvm_dtype_same(weight->type, TVM_F32));
    ck_assert_str_eq(tvm_safetensors_metadata(&read.tensors, "format"), "pt");
    for (int j = 0; j < 70; j++)
        for (int i = 0; i < 256; i++)
            ck_assert_double_eq(kit_number(&read, weight, (uint64_t)(j * 256 + i)), m.weight[i][j]);
    kit_free(&read);
}
END_TEST

static double error_of(const kit_layer *layer) {
    double lost = 0, norm = 0;
    for (int i = 0; i < m.k; i++)
        for (int j = 0; j < m.n; j++) {
            uint64_t input;
            double off = kit_weight(layer, 0, (uint64_t)i, (uint64_t)j, &input) - m.weight[i][j];
            lost += off * off;
            norm += m.weight[i][j] * m.weight[i][j];
        }
    return sqrt(lost / norm);
}

/* Written as codes they are the same, or the error is that of f16, and told. */
START_TEST(codes) {
    const gguf_kind *kind = &gguf_kinds[_i];
    gguf_start(&made, "qwen3");
    uint8_t *data = add_blocks("blk.0.ffn_up.weight", kind, 70, 256);
    gguf_write(&made, in_folder("m.gguf"));
    tvm_diags diags = {0}, warnings = {0};
    ck_assert_int_eq(import_with((tvm_dtype){0}, (tvm_dtype){0}, "auto", &diags, &warnings), TVM_OK);
    ck_assert_uint_eq(warnings.count, (size_t)!kind->exact);
    expect(kind, data, 70, 256);
    kit_result read = kit_read(in_folder("out"));
    kit_layer layer = kit_open_layer(&read, "model.layers.0.mlp.up_proj");
    const char *said = tvm_safetensors_metadata(&read.tensors, "model.layers.0.mlp.up_proj.packed");
    char from[64], error[64];
    kit_member(said, "from", from);
    ck_assert_msg(!strncmp(from, "gguf ", 5) && !strcmp(from + 5, kind->name), "%s", from);
    if (kind->exact) {
        compare_matrix(&layer, 0, 0);
        ck_assert_ptr_null(strstr(said, "\"error\""));
    } else {
        double found = error_of(&layer);
        kit_member(said, "error", error);
        ck_assert_msg(found > 1e-6 && found < 4e-4, "%s: %g", kind->name, found);
        ck_assert_double_le(fabs(strtod(error, NULL) - found), 0.02 * found);
        ck_assert_ptr_nonnull(strstr(warnings.items[0].message, "are rounded"));
    }
    tvm_diags_free(&warnings);
    kit_free(&read);
}
END_TEST

/* Groups without a scale, or with one that is nothing beside the offset. */
START_TEST(constant_groups) {
    gguf_start(&made, "qwen3");
    uint8_t *data = add_blocks("blk.0.ffn_up.weight", &gguf_kinds[1], 8, 64);
    static const uint16_t pairs[4][2] = {{0, 0x3c00}, {1, 0xc000}, {0, 0}, {0x8000, 0x3555}};
    for (int b = 0; b < 4; b++) memcpy(data + 20 * b, pairs[b], 4);
    gguf_write(&made, in_folder("m.gguf"));
    import_as((tvm_dtype){0}, (tvm_dtype){0});
    expect(&gguf_kinds[1], data, 8, 64);
    kit_result read = kit_read(in_folder("out"));
    kit_layer layer = kit_open_layer(&read, "model.layers.0.mlp.up_proj");
    for (uint64_t i = 0; i < 64; i++)
        for (uint64_t j = 0; j < 2; j++) {
            uint64_t input;
            double value = kit_weight(&layer, 0, i, j, &input), wanted = m.weight[i][j];
            ck_assert_msg(fabs(value - wanted) <= 1e-3 * fabs(wanted), "%g, not %g", value, wanted);
        }
    kit_free(&read);
}
END_TEST

/* ---- names ---- */

static float *add_vector(const char *name, int count) {
    float *values = (float *)(void *)gguf_tensor(&made, name, 0, 0, (uint64_t)count, (size_t)count * 4);
    for (int i = 0; i < count; i++) values[i] = (float)i + 0.25f;
    return values;
}

static void add_heads(uint32_t heads, uint32_t key_heads) {
    gguf_number(&made, "llama.attention.head_count", heads);
    if (key_heads) gguf_number(&made, "llama.attention.head_count_kv", key_heads);
}

/* What llama.cpp's converter does to a matrix of heads: reshape(heads, 2, size / 2).swapaxes(1, 2). */
static int converted(int row, int size) {
    int head = row / size, half = row % size / (size / 2), i = row % size % (size / 2);
    return head * size + 2 * i + half;
}

/* Llama's queries and keys: rows are put back, in codes, floats and biases. */
START_TEST(llama) {
    enum { K = 64, Q = 48, KEYS = 24, SIZE = 12 };
    gguf_start(&made, "llama");
    add_heads(Q / SIZE, KEYS / SIZE);
    uint8_t *q = add_blocks("blk.3.attn_q.weight", &gguf_kinds[4], Q, K);
    uint16_t *k = (uint16_t *)(void *)gguf_tensor(&made, "blk.3.attn_k.weight", 1, KEYS, K, KEYS * K * 2);
    for (int i = 0; i < KEYS * K; i++) k[i] = (uint16_t)i;
    add_vector("blk.3.attn_k.bias", KEYS);
    uint8_t *v = add_blocks("blk.3.attn_v.weight", &gguf_kinds[0], KEYS, K);
    add_vector("rope_freqs.weight", 6);
    add_vector("output_norm.weight", K);
    gguf_write(&made, in_folder("m.gguf"));
    import_as((tvm_dtype){0}, (tvm_dtype){0});
    kit_result read = kit_read(in_folder("out"));
    kit_layer layer = kit_open_layer(&read, "model.layers.3.self_attn.q_proj");
    static matrix stored;
    expect(&gguf_kinds[4], q, Q, K);
    stored = m;
    for (int j = 0; j < Q; j++)
        for (int i = 0; i < K; i++) m.weight[i][j] = stored.weight[i][converted(j, SIZE)];
    compare_matrix(&layer, 0, 0);
    layer = kit_open_layer(&read, "model.layers.3.self_attn.v_proj");
    expect(&gguf_kinds[0], v, KEYS, K);
    compare_matrix(&layer, 0, 0);
    const tvm_safetensor *keys = kit_find(&read, "model.layers.3.self_attn.k_proj.weight", ""),
                         *bias = kit_find(&read, "model.layers.3.self_attn.k_proj.bias", "");
    ck_assert(keys && bias && tvm_dtype_same(keys->type, TVM_F16));
    for (int j = 0; j < KEYS; j++) {
        ck_assert_mem_eq(read.bytes + keys->offset + j * K * 2, k + converted(j, SIZE) * K, K * 2);
        ck_assert_double_eq(kit_number(&read, bias, (uint64_t)j), converted(j, SIZE) + 0.25);
    }
    ck_assert_double_eq(kit_number(&read, kit_find(&read, "model.norm.weight", ""), 5), 5.25);
    ck_assert_uint_eq(read.tensors.count, 7); /* two layers of two tensors, keys, bias, norm */
    kit_free(&read);
}
END_TEST

/* Embeddings are floats; norms of Gemma are one less than in the file. */
START_TEST(gemma) {
    gguf_start(&made, _i ? "gemma2" : "gemma");
    uint8_t *data = add_blocks("token_embd.weight", &gguf_kinds[9], 70, 256);
    add_vector("blk.0.ffn_norm.weight", 3);
    add_vector("output_norm.weight", 3);
    gguf_write(&made, in_folder("m.gguf"));
    import_as((tvm_dtype){0}, _i ? TVM_BF16 : (tvm_dtype){0});
    expect(&gguf_kinds[9], data, 70, 256);
    kit_result read = kit_read(in_folder("out"));
    const tvm_safetensor *embedding = kit_find(&read, "model.embed_tokens.weight", "");
    ck_assert(embedding && embedding->shape[0] == 70);
    tvm_dtype type = _i ? TVM_BF16 : TVM_F16;
    ck_assert(tvm_dtype_same(embedding->type, type));
    for (int j = 0; j < 70; j++)
        for (int i = 0; i < 256; i++)
            ck_assert_double_eq(kit_number(&read, embedding, (uint64_t)(j * 256 + i)),
                                tvm_decode(type, tvm_encode(type, m.weight[i][j])));
    const char *norm = _i ? "model.layers.0.pre_feedforward_layernorm.weight"
                          : "model.layers.0.post_attention_layernorm.weight";
    ck_assert_double_eq(kit_number(&read, kit_find(&read, norm, ""), 2), 1.25);
    ck_assert_double_eq(kit_number(&read, kit_find(&read, "model.norm.weight", ""), 0), -0.75);
    kit_free(&read);
}
END_TEST

static const struct {
    const char *architecture, *theirs, *ours;
} names[] = {
    {"qwen2", "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"},
    {"qwen3", "blk.27.attn_k_norm.weight", "model.layers.27.self_attn.k_norm.weight"},
    {"qwen3", "blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"},
    {"qwen3", "blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight"},
    {"qwen3", "blk.1.ffn_gate.weight", "model.layers.1.mlp.gate_proj.weight"},
    {"qwen3", "blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"},
    {"qwen3", "output.weight", "lm_head.weight"},
    {"phi3", "blk.2.attn_qkv.weight", "model.layers.2.self_attn.qkv_proj.weight"},
    {"phi3", "blk.2.ffn_up.weight", "model.layers.2.mlp.gate_up_proj.weight"},
    {"gemma3", "blk.2.post_attention_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
    {"gemma3", "blk.2.post_ffw_norm.weight", "model.layers.2.post_feedforward_layernorm.weight"},
    {"olmo2", "blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
    {"glm4", "blk.3.post_attention_norm.weight", "model.layers.3.post_self_attn_layernorm.weight"},
    {"glm4", "blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
    {"qwen3moe", "blk.3.ffn_gate_inp.weight", "model.layers.3.mlp.gate.weight"},
    {"gemma2", "blk.2.ffn_up.weight", "model.layers.2.mlp.up_proj.weight"},
};

START_TEST(renames) {
    gguf_start(&made, names[_i].architecture);
    made.version = _i % 2 ? 2 : 3;
    add_vector(names[_i].theirs, 4);
    gguf_write(&made, in_folder("m.gguf"));
    import_as((tvm_dtype){0}, (tvm_dtype){0});
    kit_result read = kit_read(in_folder("out"));
    ck_assert_uint_eq(read.tensors.count, 1);
    ck_assert_str_eq(read.tensors.items[0].name, names[_i].ours);
    kit_free(&read);
}
END_TEST

/* ---- what is refused ---- */

static void a_version(void) {
    made.version = 1;
}
static void of_big_machines(void) {
    made.version = 0x03000000;
}
static void no_architecture(void) {
    made.pairs[8] = 'G';
}
static void another_architecture(void) {
    gguf_start(&made, "mamba");
}
static void another_tensor(void) {
    gguf_tensor(&made, "blk.0.ffn_gate_exps.weight", 8, 2, 32, 68);
}
static void no_heads(void) {
    gguf_start(&made, "llama");
    add_vector("output_norm.weight", 8);
}
static void wrong_heads(void) {
    gguf_start(&made, "llama");
    add_heads(5, 0);
    add_blocks("blk.0.attn_q.weight", &gguf_kinds[0], 32, 32);
}
static void many_tensors(void) {
    made.tensor_count = UINT64_C(1) << 60;
}
static void many_pairs(void) {
    made.pair_count = UINT64_MAX;
}
static void a_pair_more(void) {
    made.pair_count++;
}
static void endless_string(void) {
    memset(made.pairs + 8 + strlen("general.architecture") + 4, 0xff, 8);
}
static void endless_key(void) {
    memset(made.pairs, 0x7f, 8);
}
static void odd_value(void) {
    made.pairs[8 + strlen("general.architecture")] = 13;
}
static void nested_array(void) {
    gguf_array(&made, "deep", NULL, 0);
    made.pairs[made.pairs_size - 12] = GGUF_ARRAY;
}
static void long_array(void) {
    gguf_array(&made, "long", NULL, 0);
    made.pairs[made.pairs_size - 12] = GGUF_U32;
    made.pairs[made.pairs_size - 1] = 0x40;
}
static void odd_alignment(void) {
    gguf_number(&made, "general.alignment", 12);
}
static void wide_alignment(void) {
    gguf_number(&made, "general.alignment", 64);
    add_vector("output_norm.weight", 4);
    add_vector("blk.0.ffn_norm.weight", 4);
}
static void odd_type(void) {
    gguf_tensor(&made, "output.weight", 5, 2, 32, 64);
}
static void unread_type(void) {
    gguf_tensor(&made, "output.weight", 16, 2, 256, 132);
}
static void no_whole_blocks(void) {
    gguf_tensor(&made, "output.weight", 12, 2, 64, 288);
}
static void no_extent(void) {
    gguf_tensor(&made, "output.weight", 0, 2, 0, 4);
}
static void large_extents(void) {
    gguf_tensor(&made, "output.weight", 0, UINT64_C(1) << 62, 4, 4);
}
static void large_bytes(void) {
    gguf_tensor(&made, "output.weight", 0, UINT64_C(1) << 31, UINT64_C(1) << 31, 4);
}
static void five_extents(void) {
    made.infos[8 + strlen("blk.0.ffn_up.weight")] = 5;
}
static void beyond_the_end(void) {
    gguf_tensor(&made, "output.weight", 0, 64, 64, 0);
}
static void same_bytes(void) {
    made.infos_size -= 8;
    gguf_put(made.infos, &made.infos_size, 0, 8);
    gguf_tensor(&made, "output.weight", 0, 0, 8, 32);
    made.infos_size -= 8;
    gguf_put(made.infos, &made.infos_size, 0, 8);
}
static void same_name(void) {
    add_blocks("blk.0.ffn_up.weight", &gguf_kinds[4], 4, 32);
}
static void a_part(void) {
    gguf_number(&made, "split.count", 3);
}
static void a_bad_scale(void) {
    memset(made.data, 0x7f, 2);
}
static void a_bad_offset(void) {
    uint8_t *data = add_blocks("output.weight", &gguf_kinds[1], 4, 32);
    data[2] = 0, data[3] = 0x7c;
}
static void a_vector_of_blocks(void) {
    gguf_tensor(&made, "output.weight", 2, 0, 32, 18);
}
static void a_name_of_bytes(void) {
    gguf_tensor(&made, "output\x1b[2J.weight", 0, 0, 8, 32);
}

static const struct {
    void (*spoil)(void);
    tvm_status status;
    const char *says;
} refusals[] = {
    {a_version, TVM_UNSUPPORTED, "GGUF version 1 is not known; 2 and 3 are"},
    {of_big_machines, TVM_UNSUPPORTED, "the numbers are big-endian"},
    {no_architecture, TVM_FORMAT, "general.architecture is not there"},
    {another_architecture, TVM_UNSUPPORTED,
     "tensors of the architecture mamba have in transformers are not known"},
    {another_tensor, TVM_UNSUPPORTED, "tensor 'blk.0.ffn_gate_exps.weight' has no known name"},
    {no_heads, TVM_FORMAT, "llama.attention.head_count is not there"},
    {wrong_heads, TVM_FORMAT, "tensor 'blk.0.attn_q.weight' has 32 rows, not those of 5 heads"},
    {many_tensors, TVM_FORMAT, "1152921504606846976 tensors are said to be in"},
    {many_pairs, TVM_FORMAT, "18446744073709551615 keys"},
    {a_pair_more, TVM_FORMAT, "the name of a tensor is a string of 844424930131968 bytes; the file has 138 more"},
    {endless_string, TVM_FORMAT, "a value is a string of 18446744073709551615 bytes"},
    {endless_key, TVM_FORMAT, "a key is a string of 9187201950435737471 bytes"},
    {odd_value, TVM_FORMAT, "a value is of type 13, which there is not"},
    {nested_array, TVM_FORMAT, "an array has elements of type 9, arrays again"},
    {long_array, TVM_FORMAT, "an array has 4611686018427387904 elements"},
    {odd_alignment, TVM_FORMAT, "general.alignment is 12; a multiple of 8 is expected"},
    {wide_alignment, TVM_FORMAT, "no multiple of the alignment 64"},
    {odd_type, TVM_UNSUPPORTED, "tensor 'output.weight' is of ggml's type 5, which is not known"},
    {unread_type, TVM_UNSUPPORTED, "layer 'lm_head' (gguf): it is of type IQ2_XXS, which is not read"},
    {no_whole_blocks, TVM_FORMAT,
     "tensor 'output.weight' has rows of 64 weights, not whole blocks of 256 (Q4_K)"},
    {no_extent, TVM_FORMAT, "tensor 'output.weight' has an extent of 0"},
    {large_extents, TVM_FORMAT, "tensor 'output.weight' has an extent of 4611686018427387904"},
    {large_bytes, TVM_FORMAT, "tensor 'output.weight' is larger than any file"},
    {five_extents, TVM_FORMAT, "tensor 'blk.0.ffn_up.weight' has 5 extents; 1 to 4 are expected"},
    {beyond_the_end, TVM_FORMAT, "the file is not whole"},
    {same_bytes, TVM_FORMAT, "lie in the same bytes"},
    {same_name, TVM_FORMAT, "tensor 'model.layers.0.mlp.up_proj.weight' is in 'm.gguf', too"},
    {a_part, TVM_UNSUPPORTED, "this is one of 3 parts of a file; join them with llama-gguf-split --merge"},
    {a_bad_scale, TVM_FORMAT,
     "layer 'model.layers.0.mlp.up_proj' (gguf): the scale of group 0, column 0 is nan"},
    {a_bad_offset, TVM_FORMAT, "layer 'lm_head' (gguf): the offset of group 0, column 0 is inf"},
    {a_vector_of_blocks, TVM_FORMAT, "layer 'lm_head' (gguf): it is quantized, but a vector"},
    {a_name_of_bytes, TVM_FORMAT, "a tensor has a name of 17 bytes"},
};

/* One message, with the file's name, and no output. */
static void refused(tvm_status status, const char *says) {
    tvm_diags diags = {0};
    ck_assert_int_eq(import_with((tvm_dtype){0}, (tvm_dtype){0}, "auto", &diags, NULL), status);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, says) != NULL, "'%s' is not said: %s", says,
                  diags.items[0].message);
    ck_assert_ptr_nonnull(strstr(diags.items[0].file, "m.gguf"));
    ck_assert_int_ne(access(in_folder("out"), F_OK), 0);
    tvm_diags_free(&diags);
}

START_TEST(refuses) {
    gguf_start(&made, "qwen2");
    add_blocks("blk.0.ffn_up.weight", &gguf_kinds[4], 3, 32);
    refusals[_i].spoil();
    gguf_write(&made, in_folder("m.gguf"));
    refused(refusals[_i].status, refusals[_i].says);
}
END_TEST

/* Of a file that ends early, at any byte, something is said. */
START_TEST(refuses_short_files) {
    static uint8_t bytes[GGUF_DATA + 3 * GGUF_HEAD];
    gguf_start(&made, "qwen2");
    add_blocks("blk.0.ffn_up.weight", &gguf_kinds[4], 3, 32);
    size_t size = gguf_bytes(&made, bytes);
    for (size_t end = 4; end < size; end++) {
        tvm_gguf read;
        tvm_diags diags = {0};
        uint8_t *copy = malloc(end); /* of exactly these bytes, for the sanitizers */
        memcpy(copy, bytes, end);
        ck_assert_int_eq(tvm_gguf_read(copy, end, "m.gguf", &read, &diags), TVM_FORMAT);
        ck_assert_uint_eq(diags.count, 1);
        tvm_gguf_free(&read);
        tvm_diags_free(&diags);
        free(copy);
    }
}
END_TEST

START_TEST(refuses_other_formats) {
    gguf_start(&made, "qwen2");
    add_blocks("blk.0.ffn_up.weight", &gguf_kinds[4], 3, 32);
    gguf_write(&made, in_folder("m.gguf"));
    tvm_diags diags = {0};
    ck_assert_int_eq(import_with((tvm_dtype){0}, (tvm_dtype){0}, "awq", &diags, NULL), TVM_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "no layer of format awq is here"));
    tvm_diags_free(&diags);
}
END_TEST

/* ---- changed at random ---- */

static int rounds = 400;

START_TEST(changed_files) {
    static uint8_t bytes[GGUF_DATA + 3 * GGUF_HEAD];
    int taken = 0;
    for (int round = 0; round < rounds; round++) {
        const gguf_kind *kind = &gguf_kinds[round % GGUF_KINDS];
        gguf_start(&made, round % 3 ? "llama" : "gemma2");
        add_heads(2, 1);
        add_blocks("blk.0.attn_q.weight", kind, 16, 256);
        add_blocks("token_embd.weight", kind, 3, 256);
        add_vector("blk.0.attn_norm.weight", 16);
        size_t size = gguf_bytes(&made, bytes), head = size - made.data_size;
        for (unsigned i = draw(4); i; i--)
            bytes[draw(8) ? draw((unsigned)head) : draw((unsigned)size)] = (uint8_t)draw(256);
        if (!draw(8)) size -= draw((unsigned)size - 4);
        FILE *stream = fopen(in_folder("m.gguf"), "wb");
        ck_assert_uint_eq(fwrite(bytes, 1, size, stream), size);
        fclose(stream);
        tvm_diags diags = {0};
        tvm_status status = import_with((tvm_dtype){0}, (tvm_dtype){0}, "auto", &diags, NULL);
        ck_assert_int_eq(status == TVM_OK, diags.count == 0);
        ck_assert_int_eq(status == TVM_OK, access(in_folder("out"), F_OK) == 0);
        ck_assert_int_ne(status, TVM_NO_MEMORY);
        if (!status) {
            kit_result read = kit_read(in_folder("out"));
            kit_free(&read);
            unlink(in_folder("out"));
            taken++;
        }
        tvm_diags_free(&diags);
    }
    ck_assert_msg(taken > rounds / 5 && taken < rounds / 5 * 4, "%d of %d are taken", taken, rounds);
}
END_TEST

int main(int argc, char **argv) {
    Suite *suite = suite_create("gguf");
    TCase *good = tcase_create("types and names"), *bad = tcase_create("bad input");
    if (argc > 1) rounds = atoi(argv[1]);
    tcase_add_loop_test(good, floats, 0, GGUF_KINDS);
    tcase_add_loop_test(good, codes, 0, GGUF_KINDS);
    tcase_add_test(good, constant_groups);
    tcase_add_test(good, llama);
    tcase_add_loop_test(good, gemma, 0, 2);
    tcase_add_loop_test(good, renames, 0, sizeof names / sizeof *names);
    tcase_add_loop_test(bad, refuses, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(bad, refuses_short_files);
    tcase_add_test(bad, refuses_other_formats);
    tcase_add_test(bad, changed_files);
    TCase *cases[] = {good, bad};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        if (argc > 1) tcase_set_timeout(cases[i], 0); /* as long as its caller says */
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
