/* tvm-pack: codes and scales against a plain computation of both, the way back, and how much memory it takes.
 */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lowbit_kit.h"
#include "pack_kit.h"
#include "pack_vector.h"
#include "suite_kit.h"
#include "tvm.h"

/* ---- the plain computation ---- */

static double largest(tvm_dtype type, int sign) {
    double most = 0;
    for (unsigned code = 0; code < 1u << type.bits; code++) {
        double value = tvm_decode(type, code);
        if (isfinite(value) && value * sign > most) most = value * sign;
    }
    return most;
}

static double reference_scale(tvm_dtype type, bool own, tvm_dtype scale_type, double greatest, double least) {
    double scale, middle = type.kind == TVM_KIND_UINT ? (double)(1 << (type.bits - 1)) : 0;
    double most = fmax(greatest, -least);
    if (own)
        scale = (greatest - least) / (double)((1 << type.bits) - 1);
    else if (type.kind == TVM_KIND_UINT && type.bits == 1)
        scale = -least >= greatest ? -least : -greatest;
    else
        scale = fmax(greatest / (largest(type, 1) - middle), -least / (largest(type, -1) + middle));
    if (tvm_dtype_same(scale_type, TVM_F16) && type.exponent >= 4 && scale < 0x1p-14 && most >= 0x1p-14)
        scale = 0x1p-14;
    return tvm_decode(scale_type, tvm_encode(scale_type, scale));
}

/* Of two codes as near as each other: the even one for integers (counted from the zero point); for floats the
 * one with an even mantissa, or of larger magnitude where there is none but half of the least one is even. */
static bool wins_tie(tvm_dtype type, unsigned code, unsigned other, double offset, double value,
                     double rival) {
    if (type.kind != TVM_KIND_FLOAT) return fmod(value - offset, 2) == 0;
    if (type.mantissa) return code % 2 == 0;
    if (value == 0 || rival == 0) return value == 0;
    (void)other;
    return fabs(value) > fabs(rival);
}

static unsigned reference_code(tvm_dtype type, double weight, double scale, double offset) {
    unsigned best = 0;
    double nearest = INFINITY, chosen = 0;
    if (scale == 0) scale = 0x1p900;
    for (unsigned code = 0; code < 1u << type.bits; code++) {
        double value = tvm_decode(type, code);
        if (!isfinite(value) || (type.kind == TVM_KIND_FLOAT && signbit(value) != signbit(weight * scale)))
            continue;
        double distance = fabs(weight - (value - offset) * scale);
        if (distance < nearest ||
            (distance == nearest && wins_tie(type, code, best, offset, value, chosen))) {
            best = code;
            nearest = distance;
            chosen = value;
        }
    }
    return best;
}

typedef struct setting {
    tvm_dtype type, scale_type;
    bool own;
    uint64_t k, n, group;
} setting;

static double offset_of(const setting *s, double scale, double least) {
    double middle = s->type.kind == TVM_KIND_UINT ? (double)(1 << (s->type.bits - 1)) : 0;
    if (!s->own) return middle;
    return scale == 0 ? 0 : fmin(nearbyint(-least / scale), (double)((1 << s->type.bits) - 1));
}

/* Elements of a row of plain output: as many as fill whole bytes. */
static uint64_t row_of(const setting *s) {
    uint64_t columns = s->n;
    while (columns * s->type.bits % 8) columns++;
    return columns;
}

/* A column of a group of plain output. */
static void compare_group(const setting *s, const packed *read, const double *weights, uint64_t g,
                          uint64_t j) {
    double greatest = 0, least = 0;
    for (uint64_t i = g * s->group; i < (g + 1) * s->group; i++) {
        greatest = fmax(greatest, weights[i * s->n + j]);
        least = fmin(least, weights[i * s->n + j]);
    }
    double expected = reference_scale(s->type, s->own, s->scale_type, greatest, least);
    double scale =
        tvm_decode(s->scale_type, tvm_container_get(s->scale_type, data_of(read, "scales"), g * s->n + j));
    if (scale != expected) ck_abort_msg("scale [%d, %d] is %g, not %g", (int)g, (int)j, scale, expected);
    double offset = offset_of(s, scale, least);
    if (s->own) {
        double zero =
            tvm_decode(s->scale_type, tvm_container_get(s->scale_type, data_of(read, "zeros"), g * s->n + j));
        if (zero != offset) ck_abort_msg("zero [%d, %d] is %g, not %g", (int)g, (int)j, zero, offset);
    }
    for (uint64_t i = g * s->group; i < (g + 1) * s->group; i++) {
        double weight = weights[i * s->n + j];
        unsigned code =
            (unsigned)tvm_bits_get(data_of(read, "packed"), (i * row_of(s) + j) * s->type.bits, s->type.bits);
        unsigned right = reference_code(s->type, weight, scale, offset);
        if (code != right)
            ck_abort_msg("code [%d, %d] of %g / %g is %u, not %u", (int)i, (int)j, weight, scale, code,
                         right);
    }
}

static void compare_plain(const setting *s, const double *weights, const char *path) {
    packed read = read_packed(path);
    char name[TVM_DTYPE_NAME_MAX];
    ck_assert_str_eq(tvm_safetensors_metadata(&read.tensors, "type"), tvm_dtype_name(s->type, name));
    ck_assert_str_eq(tvm_safetensors_metadata(&read.tensors, "layout"), "plain");
    ck_assert_ptr_eq(tvm_safetensors_find(&read.tensors, "zeros") ? weights : NULL, s->own ? weights : NULL);
    for (uint64_t g = 0; g < s->k / s->group; g++)
        for (uint64_t j = 0; j < s->n; j++) compare_group(s, &read, weights, g, j);
    const tvm_safetensor *codes = tvm_safetensors_find(&read.tensors, "packed");
    ck_assert_uint_eq(codes->shape[1], row_of(s) * s->type.bits / 8);
    for (uint64_t i = 0; i < s->k; i++)
        for (uint64_t j = s->n; j < row_of(s); j++) {
            uint64_t bit = (i * row_of(s) + j) * s->type.bits;
            if (tvm_bits_get(data_of(&read, "packed"), bit, s->type.bits)) ck_abort_msg("row %d", (int)i);
        }
    free_packed(&read);
}

START_TEST(knows_all_types) {
    ck_assert_int_ne(lowbit_type(LOWBIT_COUNT - 1).kind, TVM_KIND_NONE);
    ck_assert_int_eq(lowbit_type(LOWBIT_COUNT).kind, TVM_KIND_NONE);
}
END_TEST

/* Random weights of every source and scale type; some columns of zeros, of one sign, of ties. */
static void check_quantizing(tvm_dtype type, tvm_dtype source, tvm_dtype scale_type, bool own, bool transpose,
                             double size) {
    setting s = {type, scale_type, own, 48, 40, 16};
    double *weights = random_weights(s.k * s.n, size, type.bits + 7u);
    for (uint64_t i = 0; i < s.k; i++) {
        weights[i * s.n + 3] = i < 16 ? 0 : fabs(weights[i * s.n + 3]);
        weights[i * s.n + 5] = -fabs(weights[i * s.n + 5]);
        /* multiples of half a step of the scale */
        weights[i * s.n + 6] = size * (double)((int)(i % 16) - 8) / 16;
    }
    write_weights(in_folder("w.npy"), source, s.k, s.n, weights, transpose);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = type,
                            .group = s.group,
                            .own_zeros = own,
                            .scale_type = scale_type,
                            .transpose = transpose,
                            .threads = 2};
    pack_well(&options);
    compare_plain(&s, weights, in_folder("out"));
    free(weights);
}

START_TEST(nearest_codes) {
    tvm_dtype type = lowbit_type(_i);
    check_quantizing(type, TVM_F16, TVM_F16, false, false, 0.1);
    check_quantizing(type, TVM_F32, TVM_BF16, false, true, 3);
    check_quantizing(type, TVM_BF16, TVM_F16, false, false, 700);
    if (type.kind == TVM_KIND_UINT) {
        check_quantizing(type, TVM_F16, TVM_F16, true, false, 0.1);
        check_quantizing(type, TVM_F32, TVM_BF16, true, false, 3);
        check_quantizing(type, TVM_BF16, TVM_BF16, true, true, 5e-7);
    }
    check_quantizing(type, TVM_BF16, TVM_BF16, false, false, 1e-25); /* scales that are not moderate */
}
END_TEST

/* Every f16 and every bf16 that is finite, divided by 1: pack_codes against tvm_encode; two-dimensional
 * strides. */
START_TEST(every_half) {
    tvm_dtype type = lowbit_type(_i);
    pack_coder coder = tvm_pack_coder_make(type);
    for (int source = 0; source < 2; source++) {
        tvm_dtype half = source ? TVM_BF16 : TVM_F16;
        enum { COUNT = 1 << 16 };
        static uint16_t row[COUNT];
        static uint8_t codes[COUNT];
        static float divisors[COUNT], offsets[COUNT];
        for (unsigned i = 0; i < COUNT; i++) {
            row[i] = isfinite(tvm_decode(half, i)) ? (uint16_t)i : 0;
            divisors[i] = 1;
        }
        pack_rows rows = {.data = row, .stride = COUNT, .rows = 1, .columns = COUNT};
        pack_divisors by = {.divisors = divisors, .reciprocals = divisors, .offsets = offsets};
        for (int moderate = 0; moderate < 2; moderate++) {
            by.moderate = moderate;
            tvm_pack_codes(&coder, source ? PACK_BF16 : PACK_F16, &rows, &by, codes, COUNT);
            for (unsigned i = 0; i < COUNT; i++)
                if (codes[i] != tvm_encode(type, tvm_decode(half, row[i])))
                    ck_abort_msg("%04x became %02x", row[i], codes[i]);
        }
    }
}
END_TEST

/* ---- the way back ---- */

/* A file's weights, group by group, are what tvm_quantize makes of them in memory: rows or their transpose,
 * in one piece or in several, and the rows' importance from a file. */
static void check_searched(bool own, bool transpose, bool weighed) {
    enum { K = 192, N = 1100, GROUP = 64 };
    static double weights[K * N];
    static float floats[K * N], importance[K];
    static uint8_t codes[K * N];
    static uint16_t scales[K / GROUP * N], zeros[K / GROUP * N];
    uint64_t seed = 9;
    for (int i = 0; i < K * N; i++) {
        weights[i] = 0;
        for (int t = 0; t < 4; t++) weights[i] += (double)next_random(&seed) * 0x1p-31 - 0.5;
    }
    for (int i = 0; i < K; i++) importance[i] = (float)(1 + i % 5);
    write_weights(in_folder("w.npy"), TVM_F16, K, N, weights, transpose);
    for (int i = 0; i < K * N; i++) floats[i] = (float)weights[i];
    write_npy(in_folder("p.npy"), TVM_F32, K, 1, importance);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(2),
                            .group = GROUP,
                            .own_zeros = own,
                            .scale_type = TVM_F16,
                            .search = true,
                            .activations = weighed ? in_folder("p.npy") : NULL,
                            .transpose = transpose,
                            .threads = 2};
    pack_well(&options);
    packed read = read_packed(in_folder("out"));
    int64_t shape[2] = {K, N}, bytes[2] = {K, N / 4}, groups[2] = {K / GROUP, N};
    tvm_tensor w = {floats, {TVM_TENSOR_CPU, 0}, 2, {TVM_TENSOR_FLOAT, 32, 1}, shape, NULL, 0}, p = w, s = w,
               z;
    p.data = codes, p.shape = bytes, p.dtype = (tvm_tensor_dtype){TVM_TENSOR_UINT, 8, 1};
    s.data = scales, s.shape = groups, s.dtype.bits = 16;
    z = s, z.data = zeros;
    tvm_context *context;
    tvm_context_options cpu = {.device = TVM_DEVICE_CPU};
    tvm_quantize_options how = {.type = "u2"};
    if (weighed) how.importance = importance, how.importance_length = K;
    ck_assert_int_eq(tvm_context_create(&cpu, &context), TVM_OK);
    ck_assert_int_eq(tvm_quantize(context, &how, &w, &p, &s, own ? &z : NULL), TVM_OK);
    tvm_context_free(context);
    ck_assert_mem_eq(data_of(&read, "packed"), codes, K * N / 4);
    ck_assert_mem_eq(data_of(&read, "scales"), scales, sizeof scales);
    if (own) ck_assert_mem_eq(data_of(&read, "zeros"), zeros, sizeof zeros);
    free_packed(&read);
}

START_TEST(searches_scales) {
    check_searched(false, false, false);
    check_searched(true, true, false);
    check_searched(false, true, true);
    check_searched(true, false, true);
}
END_TEST

START_TEST(refuses_activations) {
    static double weights[64];
    static float numbers[8];
    write_weights(in_folder("w.npy"), TVM_F16, 8, 8, weights, false);
    write_npy(in_folder("p.npy"), TVM_F32, 7, 1, numbers);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(2),
                            .group = 8,
                            .scale_type = TVM_F16,
                            .search = true,
                            .activations = in_folder("p.npy")};
    pack_badly(&options, "8 numbers of F32, F16 or BF16 are expected");
    numbers[5] = -1;
    write_npy(in_folder("p.npy"), TVM_F32, 1, 8, numbers);
    pack_badly(&options, "number 5 of the activations");
    write_npy(in_folder("p.npy"), TVM_U(8), 1, 8, numbers);
    pack_badly(&options, "8 numbers of F32, F16 or BF16 are expected");
    options.activations = in_folder("nothing.npy");
    pack_badly(&options, "No such file");
}
END_TEST

/* Weights (code - offset) * scale in which the codes' ends occur come back as they were. */
static void check_identity(tvm_dtype type, bool own, tvm_dtype scale_type, const char *layout, uint64_t k,
                           uint64_t n) {
    enum { GROUP = 32 };
    uint64_t seed = type.bits, count = k * n;
    double *weights = random_weights(count, 1, 1);
    double middle = type.kind == TVM_KIND_UINT ? (double)(1 << (type.bits - 1)) : 0;
    double most = largest(type, 1);
    for (uint64_t i = 0; i < count; i++) {
        double value, scale = ldexp((double)(1025 + i / n / GROUP * 64 + i % n * 5 % 777), -10);
        if (tvm_dtype_same(scale_type, TVM_BF16)) scale = tvm_decode(TVM_BF16, tvm_encode(TVM_BF16, scale));
        do value = tvm_decode(type, next_random(&seed) & ((1u << type.bits) - 1));
        while (!isfinite(value));
        double offset = own ? (double)(i % n % (1u << type.bits)) : middle;
        if (i / n % GROUP == 0) value = type.kind == TVM_KIND_UINT ? 0 : most;
        if (i / n % GROUP == 1 && own) value = most;
        weights[i] = (value - offset) * scale;
        if (type.exponent > 4) weights[i] = ldexp(weights[i], -8);
    }
    double *before = malloc(count * sizeof *before);
    ck_assert_ptr_nonnull(before);
    memcpy(before, weights, count * sizeof *before);
    write_weights(in_folder("w.npy"), TVM_F32, k, n, weights, false);
    ck_assert_mem_eq(before, weights, count * sizeof *before);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .layout = layout,
                            .type = type,
                            .group = GROUP,
                            .own_zeros = own,
                            .scale_type = scale_type,
                            .threads = 2};
    pack_well(&options);
    double *back = unpack_to(&options, TVM_F32, "back.npy", count);
    for (uint64_t i = 0; i < count; i++)
        if (back[i] != weights[i]) ck_abort_msg("weight %d: %g became %g", (int)i, weights[i], back[i]);
    free(back);
    free(before);
    free(weights);
}

START_TEST(identity_of_representable_weights) {
    tvm_dtype type = lowbit_type(_i);
    /* f16 scales of types with wide exponents have a floor, which is another scale than the one chosen here
     */
    if (type.exponent <= 4) check_identity(type, false, TVM_F16, NULL, 64, 24);
    check_identity(type, false, TVM_BF16, NULL, 64, 24);
    if (type.kind == TVM_KIND_UINT) {
        check_identity(type, true, TVM_F16, NULL, 64, 24);
        check_identity(type, true, TVM_BF16, NULL, 64, 24);
    }
}
END_TEST

START_TEST(unpacks_to_any_float) {
    double *weights = random_weights(64 * 24, 2, 9);
    write_weights(in_folder("w.npy"), TVM_F16, 64, 24, weights, false);
    pack_options options = {
        .input = in_folder("w.npy"), .output = in_folder("out"), .type = TVM_U(8), .scale_type = TVM_F16};
    pack_well(&options);
    double *f32 = unpack_to(&options, TVM_F32, "back.npy", 64 * 24);
    double *f16 = unpack_to(&options, TVM_F16, "back.safetensors", 64 * 24);
    double *bf16 = unpack_to(&options, TVM_BF16, "back.npy", 64 * 24);
    for (int i = 0; i < 64 * 24; i++) {
        ck_assert_double_le(fabs(f32[i] - weights[i]), 2.0 / 128 * 0.51);
        ck_assert_double_eq(f16[i], tvm_decode(TVM_F16, tvm_encode(TVM_F16, f32[i])));
        ck_assert_double_eq(bf16[i], tvm_decode(TVM_BF16, tvm_encode(TVM_BF16, f32[i])));
    }
    free(f32);
    free(f16);
    free(bf16);
    free(weights);
}
END_TEST

/* Each value is its code's times the scale, the code found where rows of whole bytes have it. */
static void compare_unpacked(const setting *s, const packed *read, const double *back) {
    for (uint64_t i = 0; i < s->k * s->n; i++) {
        double scale = tvm_decode(TVM_F16, tvm_container_get(TVM_F16, data_of(read, "scales"), i % s->n));
        uint64_t bit = (i / s->n * row_of(s) + i % s->n) * s->type.bits;
        double value = tvm_decode(s->type, tvm_bits_get(data_of(read, "packed"), bit, s->type.bits));
        if (s->type.kind == TVM_KIND_UINT) value -= 1 << (s->type.bits - 1);
        if (back[i] != value * scale) ck_abort_msg("%g is not %g", back[i], value * scale);
    }
}

/* Rows that end inside a byte are filled up; those of 9001 columns are cut into several pieces, which depends
 * on the bits alone. */
START_TEST(fills_rows_to_whole_bytes) {
    static const uint64_t columns[] = {10, 1, 7, 9001};
    tvm_dtype type = lowbit_type(_i);
    size_t sizes = type.kind == TVM_KIND_UINT ? sizeof columns / sizeof *columns : 1;
    for (size_t c = 0; c < sizes; c++)
        for (int transpose = 0; transpose < 2; transpose++) {
            setting s = {type, TVM_F16, false, 4, columns[c], 4};
            double *weights = random_weights(s.k * s.n, 1, (uint64_t)_i + c);
            write_weights(in_folder("w.npy"), TVM_F32, s.k, s.n, weights, transpose);
            pack_options options = {.input = in_folder("w.npy"),
                                    .output = in_folder("out"),
                                    .type = type,
                                    .group = s.group,
                                    .scale_type = TVM_F16,
                                    .transpose = transpose,
                                    .threads = 2};
            pack_well(&options);
            compare_plain(&s, weights, in_folder("out"));
            packed read = read_packed(in_folder("out"));
            char filled[32];
            snprintf(filled, sizeof filled, "%d", (int)row_of(&s));
            const char *said = tvm_safetensors_metadata(&read.tensors, "columns");
            if (row_of(&s) == s.n)
                ck_assert_ptr_null(said);
            else
                ck_assert_str_eq(said, filled);
            double *back = unpack_to(&options, TVM_F32, "back.npy", s.k * s.n);
            compare_unpacked(&s, &read, back);
            free(back);
            free_packed(&read);
            free(weights);
        }
}
END_TEST

/* Weights far below the least f16: their scales are 0, which is said; zeros are not counted. */
START_TEST(says_when_scales_underflow) {
    enum { K = 64, N = 2000, GROUP = 16 };
    double *weights = random_weights(K * N, 1, 5);
    for (int i = 0; i < K * N; i++) {
        int group = i / N / GROUP, column = i % N;
        if (group == 1 && column >= 700 && column < 703) weights[i] = 1e-9;
        if (group == 3 && column < 5) weights[i] = -1e-9;
        if (group == 2 && column % 2) weights[i] = column % 4 == 1 ? -0.0 : 0;
    }
    write_weights(in_folder("w.npy"), TVM_F32, K, N, weights, false);
    tvm_diags warnings = {0};
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(4),
                            .group = GROUP,
                            .scale_type = TVM_F16,
                            .threads = 3,
                            .warnings = &warnings};
    pack_well(&options);
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert_str_eq(
        warnings.items[0].message,
        "8 of 8000 scales underflow to 0 in f16, so that their weights become 0: the first is that "
        "of group 1, column 700");
    tvm_diags_free(&warnings);
    options.scale_type = TVM_BF16;
    pack_well(&options);
    ck_assert_uint_eq(warnings.count, 0);
    free(weights);
}
END_TEST

/* ---- codes given ---- */

START_TEST(takes_codes) {
    uint8_t codes[8 * 16], bits[8 * 6];
    uint16_t scales[2 * 16];
    memset(bits, 0, sizeof bits);
    for (unsigned i = 0; i < sizeof codes; i++) {
        codes[i] = (uint8_t)(i * 5 % 8);
        tvm_bits_set(bits, i * 3, 3, codes[i]);
    }
    for (unsigned i = 0; i < 32; i++) scales[i] = (uint16_t)(0x3c00 + i);
    write_npy(in_folder("w.npy"), TVM_U(8), 8, 16, codes);
    write_npy(in_folder("s.npy"), TVM_F16, 2, 16, scales);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .scales = in_folder("s.npy"),
                            .type = TVM_U(3),
                            .given = PACK_CODES,
                            .scale_type = TVM_F16};
    pack_well(&options);
    packed read = read_packed(options.output);
    ck_assert_mem_eq(data_of(&read, "packed"), bits, sizeof bits);
    ck_assert_mem_eq(data_of(&read, "scales"), scales, sizeof scales);
    ck_assert_str_eq(tvm_safetensors_metadata(&read.tensors, "group"), "4");
    free_packed(&read);
    write_npy(in_folder("p.npy"), TVM_U(8), 8, 6, bits);
    options.input = in_folder("p.npy");
    options.given = PACK_BIT_STRINGS;
    pack_well(&options);
    read = read_packed(options.output);
    ck_assert_mem_eq(data_of(&read, "packed"), bits, sizeof bits);
    free_packed(&read);
    unlink(options.output);
    codes[40] = 8;
    write_npy(in_folder("w.npy"), TVM_U(8), 8, 16, codes);
    options.input = in_folder("w.npy");
    options.given = PACK_CODES;
    pack_badly(&options, "weight [2, 8] is 8, which is no code of u3");
}
END_TEST

START_TEST(takes_signed_codes) {
    int8_t codes[2 * 8] = {-4, -3, -2, -1, 0, 1, 2, 3, 3, 2, 1, 0, -1, -2, -3, -4};
    write_npy(in_folder("w.npy"), TVM_I(8), 2, 8, codes);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_I(3),
                            .given = PACK_CODES,
                            .scale_type = TVM_F16};
    pack_well(&options);
    packed read = read_packed(options.output);
    for (unsigned i = 0; i < 16; i++)
        ck_assert(tvm_decode(TVM_I(3), tvm_bits_get(data_of(&read, "packed"), i * 3, 3)) == codes[i]);
    ck_assert_ptr_null(tvm_safetensors_find(&read.tensors, "scales"));
    free_packed(&read);
    unlink(options.output);
    codes[9] = -5;
    write_npy(in_folder("w.npy"), TVM_I(8), 2, 8, codes);
    pack_badly(&options, "weight [1, 1] is -5, which is no code of i3");
}
END_TEST

/* ---- size ---- */

/* Sparse files of 96 MiB: a small part of them is in memory at any time, whatever the group and the order of
 * the file. */
START_TEST(takes_little_memory) {
    static const struct {
        uint64_t rows, columns, group;
        bool transpose;
    } inputs[] = {{8192, 6144, 128, false}, {8192, 6144, 0, true}};
    uint8_t header[TVM_NPY_HEADER_MAX];
    tvm_npy npy = {.kind = 'f', .item = 2, .rank = 2, .shape = {inputs[_i].rows, inputs[_i].columns}};
    size_t size = tvm_npy_header(&npy, header);
    write_text(in_folder("w.npy"), (const char *)header, size);
    ck_assert_int_eq(truncate(in_folder("w.npy"), (off_t)(size + inputs[_i].rows * inputs[_i].columns * 2)),
                     0);
    struct rusage before,
        after; /* of this process, which Check forks; a sanitizer takes its own share before */
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(2),
                            .group = inputs[_i].group,
                            .scale_type = TVM_F16,
                            .transpose = inputs[_i].transpose,
                            .threads = 2};
    getrusage(RUSAGE_SELF, &before);
    pack_well(&options);
    getrusage(RUSAGE_SELF, &after);
    ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 32 << 10); /* KiB */
    ck_assert(folder_has("out"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pack");
    TCase *codes = tcase_create("codes"), *back = tcase_create("back"), *size = tcase_create("size");
    tcase_add_test(codes, knows_all_types);
    tcase_add_loop_test(codes, nearest_codes, 0, LOWBIT_COUNT);
    tcase_add_loop_test(codes, every_half, 0, LOWBIT_COUNT);
    tcase_add_test(codes, searches_scales);
    tcase_add_test(codes, says_when_scales_underflow);
    tcase_add_test(codes, takes_codes);
    tcase_add_test(codes, takes_signed_codes);
    tcase_add_loop_test(back, identity_of_representable_weights, 0, LOWBIT_COUNT);
    tcase_add_test(back, unpacks_to_any_float);
    tcase_add_loop_test(back, fills_rows_to_whole_bytes, 0, LOWBIT_COUNT);
    tcase_add_loop_test(size, takes_little_memory, 0, 2);
    tcase_add_test(codes, refuses_activations);
    TCase *cases[] = {codes, back, size};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
