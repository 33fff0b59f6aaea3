/* programs/attention_decode.vasm, kv_append.vasm and attention_merge.vasm on the interpreter, against
 * float64: every type of cache, every option, lengths and windows at the edges of tiles; and through ptxas
 * without a spill. */
#include "check_kit.h"

#include "decode_kit.h"
#include "decode_pairs.h"
#include "kernel_kit.h"
#include "suite_kit.h"

static tvm_context *context_of(unsigned multiprocessors, unsigned target) {
    tvm_context *context = NULL;
    tvm_context_options options = {.device = TVM_DEVICE_CPU,
                                   .threads = 1,
                                   .cache_dir = "",
                                   .multiprocessors = multiprocessors,
                                   .target = target};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    return context;
}

/* Opens, attends and compares, on so many multiprocessors: that is how the tokens are cut into parts. */
static void attends_by(const char *kernel, const decode_form *form, const decode_shape *shape,
                       unsigned multiprocessors, unsigned target) {
    decode_run r;
    tvm_context *context = context_of(multiprocessors, target);
    bool good = decode_open(&r, context, programs_folder(), form, shape) && decode_attend(&r, kernel) &&
                decode_compare(&r);
    ck_assert_msg(good, "%s: %s %s %s d %d page %d, %d queries, %d heads of %d, window %d: %s", kernel,
                  form->a, form->k ? form->k : "", form->v ? form->v : "", r.form.d, r.form.page,
                  shape->queries, shape->heads, shape->kv_heads, shape->window, r.why);
    decode_close(&r);
    tvm_context_free(context);
}

static void attends(const decode_form *form, const decode_shape *shape, unsigned multiprocessors,
                    unsigned target) {
    attends_by("attention_decode", form, shape, multiprocessors, target);
}

/* ---- Shapes ---- */

static const decode_shape shapes[] = {
    {3, 1, 1, 1, 0, {0, 1, 77}}, {2, 1, 8, 2, 0, {130, 64}},
    {1, 1, 16, 2, 0, {300}},     {2, 1, 16, 1, 0, {65, 15}},
    {2, 2, 8, 2, 0, {100, 1}},   {1, 8, 4, 1, 0, {200}},
    {2, 3, 32, 2, 0, {47, 19}},  {2, 1, 4, 1, 5, {140, 3}},
    {2, 4, 4, 2, 33, {129, 48}}, {5, 1, 4, 2, 100, {0, 16, 17, 99, 260}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const int page_sizes[] = {16, 32, 64, 128};

START_TEST(attention_of_any_shape) {
    const decode_shape *shape = &shapes[_i];
    decode_form form = {
        .a = "f16", .d = 64, .page = page_sizes[_i % 4], .lse = true, .sinks = _i % 2, .early = _i % 3 == 1};
    for (unsigned multiprocessors = 1; multiprocessors <= 4; multiprocessors += 3)
        attends(&form, shape, multiprocessors, multiprocessors == 4 ? 90 : 80);
    attends_by("attention_decode_cluster8", &form, shape, 1, 90);
    attends_by(_i % 2 ? "attention_decode_cluster4" : "attention_decode_cluster2", &form, shape, 1, 90);
}
END_TEST

/* A block's part has more units than there are stages. */
START_TEST(attention_of_a_cluster_in_turns) {
    static const decode_form in_turns[] = {
        {.a = "f16", .page = 16, .early = true},
        {.a = "bf16", .page = 64, .lse = true},
        {.a = "f16", .k = "u4", .v = "u4", .d = 64, .page = 128, .early = true}};
    static const decode_shape of[] = {
        {1, 2, 2, 1, 0, {1100}}, {1, 1, 2, 1, 900, {1203}}, {1, 1, 2, 1, 0, {2500}}};
    attends_by("attention_decode_cluster2", &in_turns[_i], &of[_i], 1, 90);
}
END_TEST

/* ---- Types and options ---- */

static const decode_form forms[] = {
    {.a = "bf16"},
    {.a = "f16", .d = 256, .rope = true, .qkv = true, .early = true},
    {.a = "f16", .k = "f8_e4m3", .v = "f8_e4m3"},
    {.a = "bf16", .k = "f8_e4m3", .v = "f8_e5m2", .k_group = -1, .v_group = -1},
    {.a = "f16", .k = "f8_e5m2", .v = "u8", .lse = true},
    {.a = "f16", .k = "i8", .v = "i8", .v_group = 64},
    {.a = "f16", .k = "u8", .v = "u8", .k_zeros = true, .v_zeros = true, .rope = true, .qkv = true},
    {.a = "f16",
     .k = "u4",
     .v = "u4",
     .rope = true,
     .qkv = true,
     .soft_cap = true,
     .lse = true,
     .early = true},
    {.a = "bf16", .k = "u4", .v = "u4", .k_zeros = true, .v_zeros = true, .k_group = 32, .v_group = 32},
    {.a = "f16", .k = "i4", .v = "f4_e2m1", .k_group = 64, .v_group = 32},
    {.a = "f16", .k = "f4_e2m1", .v = "i4", .d = 256, .rope = true},
    {.a = "f16", .k = "u4", .v = "u3", .channels = true},
    {.a = "f16", .k = "u4", .v = "u2", .channels = true, .k_zeros = true, .v_zeros = true, .v_group = 32},
    {.a = "f16", .k = "u3", .v = "u2", .k_zeros = true, .v_zeros = true, .k_group = 64},
    {.a = "bf16", .k = "u2", .v = "u1", .k_zeros = true, .v_zeros = true, .v_group = 64},
    {.a = "f16", .k = "f6_e3m2", .v = "f5_e2m2", .d = 64},
    {.a = "f16", .k = "u6", .v = "f8_e6m1", .d = 64},
    {.a = "f16", .k = "f16", .v = "u4", .d = 96},
    {.a = "bf16", .d = 256, .lse = true},
    {.a = "bf16", .k = "f8_e4m3", .v = "bf16", .channels = true, .d = 80},
};
enum { FORMS = sizeof forms / sizeof *forms };

START_TEST(attention_to_any_types) {
    static const decode_shape small = {2, 1, 4, 2, 0, {150, 37}}, several = {2, 3, 8, 2, 70, {90, 131}};
    decode_form form = forms[_i];
    form.page = page_sizes[_i % 4];
    if (_i % 2)
        attends_by("attention_decode_cluster8", &form, &small, 2, 90);
    else
        attends(&form, &several, 3, 80);
}
END_TEST

/* The rows hold every pair that they leave out no reason for; a variant that a cache or shape does not have
 * is left to the entry. */
static bool has_pair(unsigned first, unsigned second, unsigned a, unsigned b) {
    for (size_t i = 0; i < DECODE_ROWS; i++)
        if (decode_rows[i][first] == (char)('0' + a) && decode_rows[i][second] == (char)('0' + b))
            return true;
    return false;
}

/* Of heads of 80, the second width: keys of kinds 3 to 5, values of kinds 2, 3 and 5, and turned keys. */
static bool is_served(unsigned kind, unsigned choice) {
    return kind == 0   ? choice < 3 || choice > 5
           : kind == 1 ? choice < 2 || choice == 4
                       : kind != 9 || choice == 0;
}

START_TEST(the_rows_hold_every_pair) {
    enum { WIDTH = 2, OF_80 = 1 };
    for (unsigned first = 0; first < DECODE_KINDS; first++)
        for (unsigned second = first + 1; second < DECODE_KINDS; second++)
            for (unsigned a = 0; a < decode_choices[first]; a++)
                for (unsigned b = 0; b < decode_choices[second]; b++) {
                    if ((first == WIDTH && a == OF_80 && !is_served(second, b)) ||
                        (second == WIDTH && b == OF_80 && !is_served(first, a)))
                        continue;
                    ck_assert_msg(has_pair(first, second, a, b), "no row has %u of %u and %u of %u", a, first,
                                  b, second);
                }
}
END_TEST

START_TEST(attention_with_every_pair_of_choices) {
    decode_choice c = decode_choose(decode_rows[_i]);
    bool small = c.variant && strcmp(c.variant, "small8") == 0;
    bool has_variant = c.variant && !small;
    char kernel[64] = "attention_decode";
    decode_run r;
    tvm_kernel *variant = NULL;
    tvm_context *context = context_of(3, small ? 80 : 90);
    bool good = decode_open(&r, context, programs_folder(), &c.form, &c.shape);
    if (has_variant) snprintf(kernel, sizeof kernel, "attention_decode_%s", c.variant);
    if (good && has_variant &&
        (tvm_get_kernel(r.decode, kernel, &variant) != TVM_OK ||
         (strstr(kernel, "heads8") && c.shape.kv_heads % 8)))
        strcpy(kernel, "attention_decode");
    good = good && decode_attend(&r, kernel) && decode_compare(&r);
    ck_assert_msg(good, "row %s, %s: %s", decode_rows[_i], kernel, r.why);
    decode_close(&r);
    tvm_context_free(context);
}
END_TEST

/* A warp for each of eight heads. On 20 multiprocessors the parts of the long sequence are put together in
 * two steps. */
START_TEST(attention_of_eight_heads_a_block) {
    static const decode_form eight[] = {
        {.a = "f16", .k = "f8_e4m3", .page = 32, .lse = true},
        {.a = "f16", .k = "u4", .v = "u4", .page = 16, .sinks = true},
        {.a = "bf16", .k = "f8_e4m3", .v = "u2", .v_zeros = true, .page = 64}};
    static const decode_shape shape = {3, 1, 8, 8, 0, {900, 0, 40}}, several = {2, 4, 16, 8, 70, {290, 131}};
    attends_by("attention_decode_heads8", &eight[_i], &shape, 20, 90);
    attends_by("attention_decode_heads8", &eight[_i], &several, 3, 90);
}
END_TEST

/* Equal lengths: blocks begin where heads or pieces of them do. And lengths that only look equal, as the
 * first is the mean: blocks begin among the units that pieces have none for. */
START_TEST(attention_of_equal_lengths) {
    static const decode_form form = {.a = "f16", .d = 64, .page = 16},
                             eight = {.a = "f16", .k = "f8_e4m3", .v = "f8_e4m3", .d = 64, .page = 16};
    if (_i == 0) {
        attends_by("attention_decode_bulk4", &form, &(decode_shape){3, 1, 2, 1, 0, {448, 192, 704}}, 5, 90);
        attends_by("attention_decode_bulk4", &form, &(decode_shape){2, 1, 2, 1, 0, {640, 640}}, 5, 90);
    } else {
        attends_by("attention_decode_heads8", &eight, &(decode_shape){2, 1, 8, 8, 0, {96, 96}}, 3, 90);
    }
}
END_TEST

/* ---- What is refused ---- */

/* With one number of a tensor of i32 changed, 0 the table, 1 the lengths: by each variant, those that have
 * that `target` and what it chooses itself. */
static void is_fault(unsigned which, int at, double value, unsigned target) {
    static const decode_shape shape = {2, 1, 16, 8, 0, {40, 37}};
    static const char *const hopper[] = {"attention_decode",
                                         "attention_decode_cluster8",
                                         "attention_decode_heads8",
                                         "attention_decode_bulk8",
                                         "attention_decode_bulk4",
                                         "attention_decode_columns8",
                                         NULL},
                             *const others[] = {"attention_decode", "attention_decode_small8", NULL};
    decode_form form = {.a = "f16", .k = "u4", .v = "u4", .d = 64};
    decode_run r;
    tvm_context *context = context_of(2, target);
    ck_assert_msg(decode_open(&r, context, programs_folder(), &form, &shape), "%s", r.why);
    decode_tensor *t = which == 0 ? &r.table : &r.lengths;
    t->values[at] = value;
    ck_assert(decode_write(&r, t));
    for (const char *const *kernel = target == 90 ? hopper : others; *kernel; kernel++) {
        r.why[0] = '\0';
        ck_assert_msg(!decode_attend(&r, *kernel) && strstr(r.why, "range"), "%s: %s", *kernel, r.why);
    }
    decode_close(&r);
    tvm_context_free(context);
}

START_TEST(pages_and_lengths_out_of_range_are_faults) {
    for (unsigned target = 80; target <= 90; target += 10) {
        is_fault(0, 1, -1, target);
        is_fault(0, 2, 1000, target);
        is_fault(1, 1, 49, target);
        is_fault(1, 0, -1, target);
    }
}
END_TEST

START_TEST(impossible_options_are_refused) {
    static const char *const options[][2] = {
        {"PAGE=24", "PAGE must be 16, 32, 64 or 128"},
        {"D=72", "D must be a multiple of 16 up to 256"},
        {"KTYPE=bf16", "KTYPE must be ATYPE or of at most 8 bits"},
        {"VTYPE=u4 VGROUP=24", "VGROUP must be a multiple of 16 that divides D, or 0"},
        {"KTYPE=i4 KZEROS=true", "KZEROS goes with unsigned keys that have scales"},
        {"OTYPE=f64", "OTYPE must be ATYPE or f32"},
    };
    char path[5000];
    program_path("attention_decode.vasm", path);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        is_refused(path, options[i][0], options[i][1]);
}
END_TEST

/* ---- The choice ---- */

/* Of 32 heads, 8 in the cache, of 128 elements, on 132 multiprocessors: what was fastest on an H200 or H100.
 */
static const struct {
    const char *define;
    int batch, tokens;
    const char *variant;
} choices[] = {
    {"ATYPE=f16", 1, 512, "cluster8"},    {"ATYPE=f16", 1, 4096, "cluster8"},
    {"ATYPE=f16", 1, 8192, "bulk8"},      {"ATYPE=f16", 16, 2048, "bulk4"},
    {"ATYPE=f16", 1, 65536, "bulk4"},     {"KTYPE=f8_e4m3", 1, 4096, "cluster8"},
    {"KTYPE=f8_e4m3", 16, 4096, "bulk8"}, {"KTYPE=f8_e4m3", 32, 4096, "bulk4"},
    {"KTYPE=u4", 1, 2048, "cluster8"},    {"KTYPE=u4", 1, 65536, "bulk8"},
    {"KTYPE=u4", 64, 4096, "heads8"},     {"KTYPE=u2", 64, 8192, "heads8"},
    {"ATYPE=f16", 2, 2048, "cluster4"},   {"ATYPE=f16", 1, 5008, "cluster8"},
    {"KTYPE=u4", 2, 2048, "cluster4"},    {"KTYPE=u4", 4, 2048, "bulk8"},
    {"KTYPE=u4", 4, 1136, "cluster2"},    {"KTYPE=u4", 2, 5136, "bulk8"},
};
enum { CHOICES = sizeof choices / sizeof *choices };

START_TEST(the_choice_is_what_was_fastest) {
    const char *name = NULL, *type = strchr(choices[_i].define, '=') + 1;
    char text[64], expected[64];
    const char *defines[] = {choices[_i].define, text};
    bool is_plain = choices[_i].define[0] == 'A';
    snprintf(text, sizeof text, "VTYPE=%s", type);
    snprintf(expected, sizeof expected, "attention_decode_%s", choices[_i].variant);
    tvm_context *context = context_of(132, 90);
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    char path[5000];
    uint8_t *source = NULL;
    size_t size = 0;
    ck_assert_int_eq(
        tvm_file_read(program_path("attention_decode.vasm", path), 1 << 20, &source, &size, NULL), TVM_OK);
    tvm_assemble_options options = {.name = path, .defines = defines, .define_count = is_plain ? 1 : 2};
    ck_assert_msg(tvm_assemble(context, (const char *)source, size, &options, &program) == TVM_OK, "%s",
                  tvm_message(context));
    ck_assert_int_eq(tvm_get_kernel(program, "attention_decode", &kernel), TVM_OK);
    const int scalars[] = {choices[_i].batch, 1, 32, 8, 1 << 20, choices[_i].tokens / 16, 0};
    enum { SCALARS = sizeof scalars / sizeof *scalars, PARAMETERS = SCALARS + 6 };
    tvm_value values[PARAMETERS] = {{0}};
    for (size_t i = 0; i < SCALARS; i++) values[i].i = scalars[i];
    values[SCALARS].f = 0.1;
    ck_assert_uint_eq(tvm_param_count(kernel), PARAMETERS);
    ck_assert_msg(tvm_kernel_variant(kernel, values, PARAMETERS, &name) == TVM_OK, "%s",
                  tvm_message(context));
    ck_assert_str_eq(name, expected);
    free(source);
    tvm_program_free(program);
    tvm_context_free(context);
}
END_TEST

/* What nothing serves is refused before it runs, with what the arguments must be. */
static const struct {
    decode_shape shape;
    const char *message[2];
} unserved[] = {
    {{1, 1, 5, 2, 0, {40}}, {"heads % kv_heads == 0", "heads = 5, kv_heads = 2"}},
    {{1, 65, 2, 2, 0, {80}}, {"queries <= 64", "queries = 65"}},
    {{1, 1, 2, 2, -1, {40}}, {"window >= 0", "window = -1"}},
};
enum { UNSERVED = sizeof unserved / sizeof *unserved };

START_TEST(what_nothing_serves_is_refused_with_what_is_served) {
    decode_form form = {.a = "f16", .d = 64};
    for (unsigned target = 80; target <= 90; target += 10) {
        decode_run r;
        tvm_context *context = context_of(2, target);
        ck_assert_msg(decode_open(&r, context, programs_folder(), &form, &unserved[_i].shape), "%s", r.why);
        ck_assert(!decode_attend(&r, "attention_decode"));
        for (size_t i = 0; i < 2; i++)
            ck_assert_msg(strstr(r.why, unserved[_i].message[i]) != NULL, "%s", r.why);
        decode_close(&r);
        tvm_context_free(context);
    }
}
END_TEST

/* ---- attention_merge ---- */

static const size_t merges[][4] = {
    {1, 3, 2, 64}, {3, 2, 5, 128}, {8, 1, 3, 80}, {2, 3, 1, 1000}, {5, 4, 1, 37}};
enum { MERGES = sizeof merges / sizeof *merges };

START_TEST(merged_parts_are_the_whole) {
    kernel_kit k = kit_open("attention_merge.vasm", _i == 0   ? "T=f16"
                                                    : _i == 1 ? "T=bf16 OTYPE=f32 SINKS=true"
                                                              : "T=f32");
    for (size_t m = 0; m < MERGES; m++) {
        size_t parts = merges[m][0], rows = merges[m][1] * merges[m][2], d = merges[m][3];
        kit_clear(&k);
        for (size_t i = 0; i < 4; i++) kit_scalar(&k, (double)merges[m][i]);
        kit_tensor *x = kit_input(&k,
                                  _i == 0   ? TVM_F16
                                  : _i == 1 ? TVM_BF16
                                            : TVM_F32,
                                  parts * rows * d, -1, 1);
        kit_tensor *lse = kit_input(&k, TVM_F32, parts * rows, -6, 3);
        for (size_t i = 0; i < parts; i++) lse->values[i * rows] = -INFINITY;
        kit_write(&k, lse);
        kit_tensor *sinks = _i == 1 ? kit_input(&k, TVM_F32, merges[m][2], -9, 9) : NULL;
        kit_tensor *out = kit_tensor_new(&k, _i == 0 ? TVM_F16 : TVM_F32, rows * d);
        kit_tensor *out_lse = kit_tensor_new(&k, TVM_F32, rows);
        kit_launch(&k, "attention_merge");
        for (size_t row = 0; row < rows; row++) {
            double total = sinks ? exp(sinks->values[row % merges[m][2]]) : 0;
            for (size_t i = 0; i < parts; i++) total += exp(lse->values[i * rows + row]);
            ck_assert(total == 0 ? out_lse->values[0] == -INFINITY
                                 : fabs(out_lse->values[row] - log(total)) < 1e-5);
            for (size_t j = 0; j < d; j++) {
                double want = 0;
                for (size_t i = 0; i < parts && row != 0; i++)
                    want += x->values[(i * rows + row) * d + j] * exp(lse->values[i * rows + row]) / total;
                ck_assert_double_eq_tol(out->values[row * d + j], want, _i == 0 ? 4e-4 : 2e-6);
            }
        }
    }
    kit_close(&k);
}
END_TEST

/* ---- Machine code ---- */

static const char *const compiled[][3] = {
    {"attention_decode.vasm", "ATYPE=f16", "sm_80"},
    {"attention_decode.vasm", "EARLY=true", "sm_90a"},
    {"attention_decode.vasm", "SINKS=true LSE=true", "sm_90a"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 SINKS=true EARLY=true", "sm_90a"},
    {"attention_decode.vasm", "D=64 SINKS=true", "sm_80"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 KZEROS=true VZEROS=true LSE=true", "sm_90a"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 D=256", "sm_90a"},
    {"attention_decode.vasm", "ATYPE=f16 D=256", "sm_89"},
    {"attention_decode.vasm", "KTYPE=u8 VTYPE=u4 D=256", "sm_80"},
    {"attention_decode.vasm", "KTYPE=u3 VTYPE=u2 PAGE=64 SOFT_CAP=true", "sm_120a"},
    {"attention_decode.vasm", "KTYPE=f8_e4m3 VTYPE=f8_e4m3", "sm_100a"},
    {"attention_decode.vasm", "KTYPE=u2 VTYPE=u2 KZEROS=true VZEROS=true", "sm_80"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=f8_e5m2 KCHANNELS=true PAGE=32", "sm_89"},
    {"attention_decode.vasm", "KTYPE=u3 VTYPE=u3 LSE=true", "sm_90a"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 KGROUP=32 VGROUP=32", "sm_90a"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 VGROUP=32", "sm_90a"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 KGROUP=32 VGROUP=32 KZEROS=true VZEROS=true", "sm_90a"},
    {"kv_append.vasm", "ROPE=true", "sm_89"},
    {"kv_append.vasm", "QKV=true KTYPE=u4 VTYPE=u4 EARLY=true", "sm_90a"},
    {"kv_append.vasm", "QKV=true D=256", "sm_90a"},
    {"kv_append.vasm", "KTYPE=u4 VTYPE=u4 KZEROS=true VZEROS=true", "sm_90a"},
    {"attention_merge.vasm", "T=f16", "sm_90a"},
};
enum { COMPILED = sizeof compiled / sizeof *compiled };

/* Caches with scales of groups, all of them: minutes. */
START_TEST(every_cache_compiles) {
    static const char *const types[] = {"u2", "u3", "u4", "u8", "f4_e2m1", "f8_e4m3"};
    static const long groups[] = {16, 32, 64, 128};
    char path[5000], define[160];
    for (unsigned form = 0; form < 4 * 4 * 2; form++) {
        bool zeros = form & 1;
        long keys = groups[form >> 1 & 3], values = groups[form >> 3];
        if (zeros && types[_i][0] != 'u') continue;
        if (types[_i][1] == '3' && (keys < 64 || values < 64)) continue; /* no whole blocks of the packing */
        snprintf(define, sizeof define, "KTYPE=%s VTYPE=%s KGROUP=%ld VGROUP=%ld KZEROS=%s VZEROS=%s",
                 types[_i], types[_i], keys, values, zeros ? "true" : "false", zeros ? "true" : "false");
        tvm_ir_program *program = assemble_file(program_path("attention_decode.vasm", path), define);
        compiles_without_spills(program, define, "sm_90a");
        tvm_ir_program_free(program);
    }
}
END_TEST

START_TEST(programs_compile_without_spills) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path(compiled[_i][0], path), compiled[_i][1]);
    compiles_without_spills(program, compiled[_i][1], compiled[_i][2]);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention_decode");
    TCase *tests = tcase_create("attention_decode");
    TCase *refused = tcase_create("refused");
    tcase_add_loop_test(tests, attention_of_any_shape, 0, SHAPES);
    tcase_add_loop_test(tests, attention_of_a_cluster_in_turns, 0, 3);
    tcase_add_loop_test(tests, attention_to_any_types, 0, FORMS);
    tcase_add_test(tests, the_rows_hold_every_pair);
    tcase_add_loop_test(tests, attention_with_every_pair_of_choices, 0, DECODE_ROWS);
    tcase_add_loop_test(tests, attention_of_eight_heads_a_block, 0, 3);
    tcase_add_loop_test(tests, attention_of_equal_lengths, 0, 2);
    tcase_add_test(refused, pages_and_lengths_out_of_range_are_faults);
    tcase_add_test(refused, impossible_options_are_refused);
    tcase_add_loop_test(refused, what_nothing_serves_is_refused_with_what_is_served, 0, UNSERVED);
    tcase_add_loop_test(refused, the_choice_is_what_was_fastest, 0, CHOICES);
    tcase_add_loop_test(tests, merged_parts_are_the_whole, 0, 3);
    tcase_add_loop_test(tests, programs_compile_without_spills, 0, COMPILED);
    if (test_exhaustively()) tcase_add_loop_test(tests, every_cache_compiles, 0, 6);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, refused);
    return run_suite(suite);
}
