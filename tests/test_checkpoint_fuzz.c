/* tvm-pack --from on checkpoints whose headers, data and configurations have been changed at random, from a
 * fixed seed: what is refused says why and leaves nothing, what is taken is a file that can be read. With a
 * number as its argument the test makes so many of them, for a longer run with sanitizers. */
#include <inttypes.h>

#include "checkpoint_matrix_kit.h"
#include "suite_kit.h"

enum { ROUNDS = 1000, TENSORS = 8, RANK = 6, BYTES_MOST = 1 << 16 };

typedef struct tensor {
    char name[64], dtype[16];
    unsigned rank;
    uint64_t shape[RANK];
    uint8_t data[BYTES_MOST];
    size_t bytes;
} tensor;

static tensor tensors[TENSORS];
static int count, rounds = ROUNDS;

static const char *const models[] = {
    "x.qweight I32 8,32 x.qzeros I32 2,4 x.scales F16 2,32 x.g_idx I32 64",
    "x.qweight I32 64,4 x.qzeros I32 2,4 x.scales F16 2,32",
    "x.weight_packed I32 24,8 x.weight_scale BF16 24,2 x.weight_shape I64 2 x.weight_zero_point I32 3,2 "
    "x.weight_g_idx I32 64",
    "x.weight I8 24,64 x.weight_scale F16 24,1 x.weight_zero_point I8 24,1 x.bias F16 24",
    "x_blocks U8 2,24,2,16 x_scales U8 2,24,2 x_bias F16 2,24",
    "x.weight U8 24,32 x.weight_scale F8_E4M3 24,4 x.weight_scale_2 F32 1 x.pre_quant_scale BF16 64",
    "x.weight_packed U8 24,32 x.weight_scale U8 24,2 x.input_scale F32 1",
    "x.weight F8_E4M3 24,64 x.weight_scale U8 24,2 x.k_scale F32 1",
    "x.weight F8_E4M3 200,192 x.weight_scale_inv F32 2,2",
    "x.weight F8_E4M3 200,192 x.weight_scale BF16 2,2",
    "x.weight U8 768,1 x.weight.absmax U8 24 x.weight.quant_map F32 16 x.weight.nested_absmax F32 1 "
    "x.weight.nested_quant_map F32 256 x.weight.quant_state.bitsandbytes__nf4 U8 200",
    "x.weight I8 24,64 x.SCB F32 24 x.weight_format U8 1",
    "x.weight U32 24,8 x.scales F16 24,1 x.biases F16 24,1",
};
enum { MODELS = sizeof models / sizeof *models };

static const struct {
    const char *name;
    unsigned bytes; /* 0: it is not known */
} types[] = {{"U8", 1},   {"I8", 1},  {"F16", 2},     {"BF16", 2},    {"F32", 4},
             {"I32", 4},  {"I64", 8}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F64", 8},
             {"BOOL", 1}, {"U16", 2}, {"F4", 0},      {"F8_E5M2", 1}, {"F6_E2M3", 0}};
enum { TYPES = sizeof types / sizeof *types };

static void fill(tensor *t) {
    static const char json[] = "{\"shape\": [24, 64], \"blocksize\": 64, \"nested_blocksize\": 256, "
                               "\"nested_offset\": 0.5, \"quant_type\": \"nf4\"}";
    for (size_t i = 0; i < t->bytes; i++) t->data[i] = (uint8_t)draw(64);
    if (strstr(t->name, "weight_shape"))
        for (unsigned d = 0; d < 2; d++) memcpy(t->data + 8 * d, &(int64_t){d ? 64 : 24}, 8);
    if (strstr(t->name, ".quant_map"))
        for (int i = 0; i < 16; i++) memcpy(t->data + 4 * i, &(float){(float)weight_table("nf4")[i]}, 4);
    if (strstr(t->name, "quant_state")) snprintf(memset(t->data, ' ', t->bytes), t->bytes, "%s", json);
    if (strstr(t->name, "quant_state")) t->data[strlen(json)] = ' ';
    if (strstr(t->name, "zero_point") || strstr(t->name, "weight_format")) memset(t->data, 0, t->bytes);
    for (size_t i = 0; strstr(t->name, "g_idx") && i < t->bytes / 4; i++)
        memcpy(t->data + 4 * i, &(uint32_t){(uint32_t)i / 32}, 4);
}

/* What type and shape make, where that is little; else it stays what it was, which the reader refuses. */
static void set_bytes(tensor *t) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < TYPES; i++)
        if (!strcmp(t->dtype, types[i].name)) bytes = types[i].bytes;
    if (!bytes) return;
    for (unsigned d = 0; d < t->rank; d++)
        if (__builtin_mul_overflow(bytes, t->shape[d], &bytes)) bytes = UINT64_MAX;
    for (unsigned d = 0; d < t->rank; d++)
        if (!t->shape[d]) bytes = 0;
    if (bytes <= BYTES_MOST) t->bytes = (size_t)bytes;
}

static void make_model(const char *text) {
    char shape[32];
    int length;
    for (count = 0;
         sscanf(text, "%63s %15s %31s%n", tensors[count].name, tensors[count].dtype, shape, &length) == 3;
         text += length) {
        tensor *t = &tensors[count++];
        t->rank = 0;
        for (char *at = shape; *at; at += *at == ',') t->shape[t->rank++] = strtoull(at, &at, 10);
        set_bytes(t);
        fill(t);
    }
}

static void mutate(void) {
    static const uint64_t extents[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       8,
                                       16,
                                       31,
                                       32,
                                       33,
                                       63,
                                       64,
                                       65,
                                       96,
                                       128,
                                       1u << 31,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 55,
                                       UINT64_C(1) << 62,
                                       INT64_MAX};
    static const char *const ends[] = {".weight",
                                       ".weight_scale",
                                       ".scales",
                                       ".qweight",
                                       ".weight_g_idx",
                                       ".weight_shape",
                                       ".pre_quant_scale",
                                       ".SCB",
                                       ".weight_scale_inv",
                                       ".bias",
                                       ".weight_zero_point",
                                       ".weight.absmax",
                                       ".weight_packed",
                                       ".other"};
    tensor *t = &tensors[draw((unsigned)count)];
    switch (draw(7)) {
    case 0:
        strcpy(t->dtype, types[draw(TYPES)].name);
        break;
    case 1:
    case 2:
        if (t->rank) t->shape[draw(t->rank)] = extents[draw(sizeof extents / sizeof *extents)];
        break;
    case 3:
        if (draw(2) && t->rank < RANK)
            t->shape[t->rank++] = extents[draw(15)];
        else if (t->rank)
            t->rank--;
        break;
    case 4:
        for (unsigned i = 0; t->bytes && i < 4; i++) t->data[draw((unsigned)t->bytes)] = (uint8_t)draw(256);
        break;
    case 5:
        snprintf(t->name, sizeof t->name, "x%s", ends[draw(sizeof ends / sizeof *ends)]);
        break;
    default:
        *t = tensors[--count];
        break;
    }
    set_bytes(t);
}

static void write_model(void) {
    static const char *const configs[] = {
        "{}",
        "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"gptq_p\"}}",
        "{\"quantization_config\": {\"bits\": 4, \"group_size\": 64, \"x\": {\"bits\": 3, \"group_size\": 32}}}",
        "{\"quantization_config\": {\"bits\": 3, \"version\": \"0.20\", \"weight_block_size\": [1, 7]}}",
        ("{\"quantization_config\": {\"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 7,"
         " \"block_structure\": [9223372036854775807, 3]}}}}}"),
        "{\"quantization_config\": {\"bits\": -1, \"config_groups\": [], \"weight_block_size\": [0, \"\"]}}",
    };
    kit_file file = {.count = 0};
    for (int i = 0; i < count; i++) {
        char shape[160] = "";
        int at = 0;
        for (unsigned d = 0; d < tensors[i].rank; d++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%" PRIu64, d ? "," : "",
                           tensors[i].shape[d]);
        char name[64], dtype[16]; /* copies, as the compiler takes a member's text to reach into the next */
        snprintf(name, sizeof name, "%.63s", tensors[i].name);
        snprintf(dtype, sizeof dtype, "%.15s", tensors[i].dtype);
        void *data = kit_add(&file, name, dtype, "", tensors[i].bytes);
        snprintf(file.entries[i].shape, sizeof file.entries[i].shape, "%.63s", shape);
        memcpy(data, tensors[i].data, tensors[i].bytes);
    }
    kit_write(&file, in_folder("m.safetensors"));
    kit_write_text(in_folder("config.json"), configs[draw(8) < 4 ? 0 : draw(6)]);
}

START_TEST(changed_checkpoints) {
    int taken = 0;
    for (int round = 0; round < rounds; round++) {
        tvm_diags diags = {0}, warnings = {0};
        make_model(models[round % MODELS]);
        for (unsigned i = draw(4); i && count; i--) mutate();
        write_model();
        tvm_status status = import("m.safetensors", "out", "auto", &diags, &warnings);
        ck_assert_int_eq(status == TVM_OK, diags.count == 0);
        ck_assert_int_eq(status == TVM_OK, access(in_folder("out"), F_OK) == 0);
        if (!status) {
            kit_result read = kit_read(in_folder("out"));
            kit_free(&read);
            unlink(in_folder("out"));
            taken++;
        }
        ck_assert_int_ne(status, TVM_NO_MEMORY);
        tvm_diags_free(&diags);
        tvm_diags_free(&warnings);
    }
    ck_assert_msg(taken > rounds / 5 && taken < rounds / 5 * 4, "%d of %d are taken", taken, rounds);
}
END_TEST

int main(int argc, char **argv) {
    Suite *suite = suite_create("checkpoint_fuzz");
    TCase *tcase = tcase_create("changed");
    if (argc > 1) rounds = atoi(argv[1]);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, changed_checkpoints);
    if (argc > 1) tcase_set_timeout(tcase, 0); /* as long as its caller says */
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
