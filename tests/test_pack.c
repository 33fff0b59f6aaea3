/* tvm-pack: codes and scales against a plain computation of both, layouts against the interpreter running the
 * kernel, the way back, what is refused, and how much memory it takes. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assembler.h"
#include "lowbit_kit.h"
#include "npy.h"
#include "own_folder_kit.h"
#include "pack.h"
#include "pack_vector.h"
#include "safetensors.h"
#include "suite_kit.h"
#include "tvm.h"
#include "vbc.h"

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- inputs ---- */

/* Codes of a 16- or 32-bit float type, or bytes. */
static void write_npy(const char *path, tvm_dtype type, uint64_t rows, uint64_t columns, const void *data) {
    tvm_npy npy = {.kind = tvm_dtype_same(type, TVM_BF16) ? 'V'
                           : type.kind == TVM_KIND_FLOAT  ? 'f'
                           : type.kind == TVM_KIND_INT    ? 'i'
                                                          : 'u',
                   .item = type.bits / 8u,
                   .rank = 2,
                   .shape = {rows, columns}};
    npy.bytes = rows * columns * npy.item;
    ck_assert_int_eq(tvm_npy_write(path, &npy, data, NULL), TVM_OK);
}

/* Rounds the values to the type, in place, and writes them. */
static void write_weights(const char *path, tvm_dtype type, uint64_t rows, uint64_t columns, double *values,
                          bool transposed) {
    uint8_t *data = malloc(rows * columns * 4);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < columns; j++) {
            uint64_t code = tvm_encode(type, values[i * columns + j]);
            values[i * columns + j] = tvm_decode(type, code);
            tvm_container_set(type, data, transposed ? j * rows + i : i * columns + j, code);
        }
    write_npy(path, type, transposed ? columns : rows, transposed ? rows : columns, data);
    free(data);
}

static double *random_weights(uint64_t count, double size, uint64_t seed) {
    double *values = malloc(count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (uint64_t i = 0; i < count; i++) values[i] = ((double)next_random(&seed) * 0x1p-30 - 1) * size;
    return values;
}

/* ---- results ---- */

typedef struct packed {
    tvm_safetensors tensors;
    uint8_t *file;
} packed;

static packed read_packed(const char *path) {
    packed read;
    struct stat info;
    int descriptor = open(path, O_RDONLY);
    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq(tvm_safetensors_read(descriptor, path, &read.tensors, NULL), TVM_OK);
    fstat(descriptor, &info);
    read.file = malloc((size_t)info.st_size);
    ck_assert_ptr_nonnull(read.file);
    ck_assert_int_eq(tvm_read_at(descriptor, path, read.file, (size_t)info.st_size, 0, NULL), TVM_OK);
    close(descriptor);
    return read;
}

static const uint8_t *data_of(const packed *read, const char *name) {
    const tvm_safetensor *tensor = tvm_safetensors_find(&read->tensors, name);
    ck_assert_ptr_nonnull(tensor);
    return read->file + tensor->offset;
}

static void free_packed(packed *read) {
    tvm_safetensors_free(&read->tensors);
    free(read->file);
}

static void pack_well(const pack_options *options) {
    tvm_diags diags = {0};
    tvm_status status = tvm_pack(options, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    tvm_diags_free(&diags);
}

static bool folder_has(const char *name) {
    struct stat info;
    return stat(in_folder(name), &info) == 0;
}

static int files_in_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "test -z \"$(ls -A %s | grep -v '^[wspm][.]')\"", folder);
    return system(command);
}

/* Refused with this text, and nothing is left behind. */
static void pack_badly(const pack_options *options, const char *says) {
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_pack(options, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, says) != NULL, "'%s' is not said: %s", says,
                  diags.items[0].message);
    tvm_diags_free(&diags);
    ck_assert(!folder_has("out"));
    ck_assert_int_eq(files_in_folder(), 0);
}

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
    ck_assert_msg(scale == expected, "scale [%d, %d] is %g, not %g", (int)g, (int)j, scale, expected);
    double offset = offset_of(s, scale, least);
    if (s->own) {
        double zero =
            tvm_decode(s->scale_type, tvm_container_get(s->scale_type, data_of(read, "zeros"), g * s->n + j));
        ck_assert_msg(zero == offset, "zero [%d, %d] is %g, not %g", (int)g, (int)j, zero, offset);
    }
    for (uint64_t i = g * s->group; i < (g + 1) * s->group; i++) {
        double weight = weights[i * s->n + j];
        unsigned code =
            (unsigned)tvm_bits_get(data_of(read, "packed"), (i * row_of(s) + j) * s->type.bits, s->type.bits);
        unsigned right = reference_code(s->type, weight, scale, offset);
        ck_assert_msg(code == right, "code [%d, %d] of %g / %g is %u, not %u", (int)i, (int)j, weight, scale,
                      code, right);
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
            ck_assert_uint_eq(tvm_bits_get(data_of(&read, "packed"), bit, s->type.bits), 0);
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
                ck_assert_uint_eq(codes[i], tvm_encode(type, tvm_decode(half, row[i])));
        }
    }
}
END_TEST

/* ---- the way back ---- */

static double *unpack_to(const pack_options *packing, tvm_dtype to, const char *name, uint64_t count) {
    pack_options options = {.input = packing->output,
                            .output = in_folder(name),
                            .layout = packing->layout,
                            .type = to,
                            .threads = 2};
    tvm_diags diags = {0};
    tvm_status status = tvm_unpack(&options, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    tvm_diags_free(&diags);
    FILE *stream = fopen(options.output, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t bytes = count * to.bits / 8;
    uint8_t *data = malloc(bytes);
    double *values = malloc(count * sizeof *values);
    ck_assert(data && values);
    ck_assert_int_eq(fseek(stream, -(long)bytes, SEEK_END), 0);
    ck_assert_uint_eq(fread(data, 1, bytes, stream), bytes);
    fclose(stream);
    for (uint64_t i = 0; i < count; i++) values[i] = tvm_decode(to, tvm_container_get(to, data, i));
    free(data);
    unlink(options.output);
    return values;
}

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
    for (uint64_t i = 0; i < count; i++) ck_assert(before[i] == weights[i]);
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
        ck_assert_msg(back[i] == weights[i], "weight %d: %g became %g", (int)i, weights[i], back[i]);
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
        ck_assert_double_eq(back[i], value * scale);
    }
}

/* Rows that end inside a byte are filled up; those of 9001 columns are cut into several pieces. */
START_TEST(fills_rows_to_whole_bytes) {
    static const uint64_t columns[] = {1, 7, 10, 9001};
    tvm_dtype type = lowbit_type(_i);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
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

/* ---- layouts ---- */

static void assemble(const char *path, const char *text, size_t size, const char *name, const char *define) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_assembler_options options = {.defines = &define, .define_count = define != NULL};
    tvm_status status = tvm_assemble_text(text, size, name, &options, &program, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    ck_assert_int_eq(tvm_vbc_write_file(program, path, false, NULL), TVM_OK);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

static void assemble_matmul(const char *path, tvm_dtype type) {
    const char *top = getenv("srcdir");
    char define[64], name[TVM_DTYPE_NAME_MAX], source[512], text[4096];
    snprintf(define, sizeof define, "WTYPE=%s", tvm_dtype_name(type, name));
    snprintf(source, sizeof source, "%s/programs/matmul_u3.vasm", top ? top : ".");
    FILE *stream = fopen(source, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t size = fread(text, 1, sizeof text, stream);
    fclose(stream);
    assemble(path, text, size, source, define);
}

/* What the interpreter makes of rows of bit strings. */
static uint8_t *pack_by_kernel(const char *program, int64_t k, int64_t n, const uint8_t *rows, size_t bytes) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2};
    tvm_context *context;
    tvm_program *code;
    tvm_kernel *pack;
    tvm_value values[4] = {{.i = 0}};
    uint8_t *result = calloc(bytes, 1);
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_load_file(context, program, &code), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(code, "pack", &pack), TVM_OK);
    for (size_t p = 0; p < 4; p++) {
        tvm_param_info info;
        ck_assert_int_eq(tvm_param(pack, p, &info), TVM_OK);
        values[p].i = *info.name == 'k' ? k : n;
        if (!info.is_tensor) continue;
        size_t size = *info.name == 'w' ? (size_t)(k * n) * info.bits / 8 : bytes;
        ck_assert_int_eq(tvm_memory_alloc(context, size, &values[p].data), TVM_OK);
        if (*info.name == 'w')
            ck_assert_int_eq(tvm_memory_write(context, values[p].data, rows, size), TVM_OK);
    }
    ck_assert_int_eq(tvm_launchv(pack, NULL, values, 4), TVM_OK);
    for (size_t p = 0; p < 4; p++) {
        tvm_param_info info;
        tvm_param(pack, p, &info);
        if (*info.name == 'p') tvm_memory_read(context, result, values[p].data, bytes);
        if (info.is_tensor) tvm_memory_free(context, values[p].data);
    }
    tvm_program_free(code);
    tvm_context_free(context);
    return result;
}

/* Packs in plain rows and as the program says; the kernel brings the one to the other. */
static void check_layout(const char *program, tvm_dtype type, uint64_t k, uint64_t n, bool transpose) {
    double *weights = random_weights(k * n, 0.3, k + n);
    write_weights(in_folder("w.npy"), TVM_F16, k, n, weights, transpose);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = type,
                            .group = 64,
                            .scale_type = TVM_F16,
                            .transpose = transpose,
                            .threads = 2};
    pack_well(&options);
    packed plain = read_packed(options.output);
    options.layout = program;
    pack_well(&options);
    packed laid = read_packed(options.output);
    const tvm_safetensor *tensor = tvm_safetensors_find(&laid.tensors, "packed");
    uint8_t *expected =
        pack_by_kernel(program, (int64_t)k, (int64_t)n, data_of(&plain, "packed"), tensor->bytes);
    ck_assert_mem_eq(data_of(&laid, "packed"), expected, tensor->bytes);
    ck_assert_mem_eq(data_of(&laid, "scales"), data_of(&plain, "scales"), k / 64 * n * 2);
    double *back = unpack_to(&options, TVM_F32, "back.npy", k * n);
    options.layout = NULL;
    pack_well(&options);
    double *same = unpack_to(&options, TVM_F32, "back.npy", k * n);
    for (uint64_t i = 0; i < k * n; i++) ck_assert(back[i] == same[i]);
    free(back);
    free(same);
    free(expected);
    free_packed(&plain);
    free_packed(&laid);
    free(weights);
}

START_TEST(layout_of_the_matmul) {
    static const char *const names[] = {"u1", "u2", "u3", "u4", "u5", "u7", "u8", "i6", "f6_e3m2", "f8_e4m3"};
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(names[_i], strlen(names[_i]), &type));
    assemble_matmul(in_folder("m.vbc"), type);
    check_layout(in_folder("m.vbc"), type, 256, 264, false);
    check_layout(in_folder("m.vbc"), type, 128, 8, true);
}
END_TEST

/* Tiles down the columns, of sizes that are no powers of two, halves of codes far apart. */
static const char odd_layout[] =
    ".vasm 1\n"
    ".kernel pack(n: i32, k: i32, p: global u8[cdiv(n, 24), cdiv(k, 32), 384], w: global u4[k, n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 24), cdiv(k, 32)\n"
    ".assume n % 8 == 0, k % 4 == 0\n"
    "    %c = load-global w[block.y * 32, block.x * 24], spatial(32, 1).local(1, 24)\n"
    "    %q = view %c, u8, spatial(32).local(12)\n"
    "    %low = where %mask, %q, %q\n"
    "    store-global p[block.x, block.y, 0], %q\n"
    ".end\n";

START_TEST(layout_down_the_columns) {
    char text[sizeof odd_layout];
    strcpy(text, odd_layout);
    char *line = strstr(text, "    %low");
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n') + 1) + 1);
    assemble(in_folder("m.vbc"), text, strlen(text), "odd.vasm", NULL);
    check_layout(in_folder("m.vbc"), TVM_U(4), 192, 64, false);
    check_layout(in_folder("m.vbc"), TVM_U(4), 64, 24, true);
    check_layout(in_folder("m.vbc"), TVM_U(4), 64, 8, false);
}
END_TEST

static const struct bad_layout {
    const char *signature, *body, *says;
} bad_layouts[] = {
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%v = load-global w[block.y, block.x * 32], spatial(1, 32)\n"
     "%o = alloc-register u8[1, 32], spatial(1, 32), init 1\n"
     "%s = add %v, %o\nstore-global p[block.y, block.x * 32], %s\n",
     "by itself"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n + n / 32]",
     "%v = load-global w[block.y, block.x * 32], spatial(1, 32)\n"
     "%o = alloc-register u8[1, 1], replicated(32, 2), init 1\n"
     "store-global p[block.y, block.x * 33], %v\nstore-global p[block.y, block.x * 33 + 32], %o\n",
     "no weight's"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%o = alloc-register u8[1, 32], spatial(1, 32), init 0\nstore-global p[block.y, block.x * 32], %o\n",
     "not all bits"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%v = load-global w[block.y, 0], spatial(1, 32)\nstore-global p[block.y, block.x * 32], %v\n",
     "by itself"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[64, 64]",
     "%v = load-global w[block.y, 0], spatial(1, 32)\nstore-global p[block.y, block.x * 32], %v\n", "grow"},
    {"k: i32, n: i32, w: global f16[k, n], p: global u8[k, 2 * n]", "", "8 bits or less"},
    {"k: i32, n: i32, w: global u8[n, k], p: global u8[k, n]", "", "it must be"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u16[k, n]", "", "it must be"},
    {"k: i32, n: i32, w: global u8[k, n]", "", "it must be"},
};

START_TEST(refuses_layouts) {
    const struct bad_layout *row = &bad_layouts[_i];
    char text[1024];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel pack(%s)\n.warps 1\n.grid cdiv(n, 32), k\n.assume n %% 32 == 0\n%s.end\n",
             row->signature, row->body);
    assemble(in_folder("m.vbc"), text, strlen(text), "bad.vasm", NULL);
    double *weights = random_weights(64 * 64, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 64, 64, weights, false);
    free(weights);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .layout = in_folder("m.vbc"),
                            .scale_type = TVM_F16};
    pack_badly(&options, row->says);
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

/* ---- bad input ---- */

START_TEST(refuses_weights_that_are_not_finite) {
    static const double strange[] = {NAN, INFINITY, -INFINITY};
    static const char *const says[] = {"is NaN", "is infinite", "is infinite"};
    static const tvm_dtype sources[] = {
        {TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_FLOAT, 16, 8, 7}, {TVM_KIND_FLOAT, 32, 8, 23}};
    for (unsigned i = 0; i < 18; i++) {
        double *weights = random_weights(512 * 24, 1, i);
        weights[300 * 24 + 17] = weights[400 * 24 + 2] = strange[i % 3];
        bool transpose = i >= 9;
        write_weights(in_folder("w.npy"), sources[i / 3 % 3], 512, 24, weights, transpose);
        free(weights);
        pack_options options = {.input = in_folder("w.npy"),
                                .output = in_folder("out"),
                                .type = TVM_U(4),
                                .group = 128,
                                .scale_type = TVM_F16,
                                .transpose = transpose,
                                .threads = 2};
        char text[64];
        snprintf(text, sizeof text, "weight [%d, %d] %s", transpose ? 17 : 300, transpose ? 300 : 17,
                 says[i % 3]);
        pack_badly(&options, text);
        options.group = 0;
        pack_badly(&options, text);
    }
}
END_TEST

START_TEST(refuses_what_does_not_fit) {
    double *weights = random_weights(64 * 20, 1, 1);
    weights[3 * 20 + 1] = 1e30;
    write_weights(in_folder("w.npy"), TVM_F32, 64, 20, weights, false);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(4),
                            .group = 32,
                            .scale_type = TVM_F16};
    pack_badly(&options, "the scale of group 0, column 1 is beyond the range of f16");
    options.group = 48;
    pack_badly(&options, "a group of 48 rows does not divide k, which is 64");
    options.group = 32;
    options.type = TVM_F16;
    pack_badly(&options, "f16 is no type of weights");
    options.type = TVM_I(4);
    options.own_zeros = true;
    pack_badly(&options, "goes with unsigned types");
    options.own_zeros = false;
    options.type = (tvm_dtype){0};
    pack_badly(&options, "neither a type nor a layout");
    options.type = TVM_U(4);
    options.tensor = "a";
    pack_badly(&options, "a .npy file has no tensors");
    options.tensor = NULL;
    options.layout = in_folder("w.npy");
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_pack(&options, &diags), TVM_OK);
    tvm_diags_free(&diags);
    assemble_matmul(in_folder("m.vbc"), TVM_U(3));
    options.layout = in_folder("m.vbc");
    pack_badly(&options, "the type is u4, but the layout of");
    options.type = TVM_U(3);
    pack_badly(&options, "n % 8 == 0");
    write_npy(in_folder("w.npy"), TVM_U(8), 4, 4, weights);
    options.layout = NULL;
    pack_badly(&options, "the array is U8 [4, 4]; F32, F16 or BF16 is expected");
    free(weights);
}
END_TEST

static void write_text(const char *path, const char *text, size_t size) {
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(text, 1, size, stream), size);
    fclose(stream);
}

START_TEST(refuses_malformed_files) {
    pack_options options = {
        .input = in_folder("w.bin"), .output = in_folder("out"), .type = TVM_U(4), .scale_type = TVM_F16};
    write_text(options.input, "short", 5);
    pack_badly(&options, "not a .safetensors file");
    write_text(options.input, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    pack_badly(&options, "truncated");
    write_text(options.input, "\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14);
    pack_badly(&options, "malformed .npy header");
    write_text(options.input, "\x93NUMPY\x01\x00\x02\x00{}", 12);
    pack_badly(&options, "missing");
    double *weights = random_weights(64 * 8, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 64, 8, weights, false);
    free(weights);
    ck_assert_int_eq(truncate(in_folder("w.npy"), 1000), 0);
    options.input = in_folder("w.npy");
    pack_badly(&options, "truncated");
    options.input = in_folder("w.none");
    pack_badly(&options, "cannot open");
}
END_TEST

START_TEST(refuses_to_unpack) {
    double *weights = random_weights(128 * 16, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 128, 16, weights, false);
    free(weights);
    assemble_matmul(in_folder("m.vbc"), TVM_U(4));
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("p.tvmw"),
                            .layout = in_folder("m.vbc"),
                            .scale_type = TVM_F16};
    pack_well(&options);
    pack_options back = {.input = in_folder("p.tvmw"), .output = in_folder("out")};
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "m.vbc"));
    tvm_diags_free(&diags);
    assemble_matmul(in_folder("m.vbc"), TVM_U(3));
    back.layout = in_folder("m.vbc");
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "the layout of"));
    tvm_diags_free(&diags);
    back.input = in_folder("w.npy");
    ck_assert_int_ne(tvm_unpack(&back, &diags), TVM_OK);
    tvm_diags_free(&diags);
    ck_assert(!folder_has("out"));
}
END_TEST

/* ---- size ---- */

/* Sparse files of 768 MiB: a small part of them is in memory at any time, whatever the group and the order of
 * the file. */
START_TEST(takes_little_memory) {
    static const struct {
        uint64_t rows, columns, group;
        bool transpose;
    } inputs[] = {{65536, 6144, 128, false}, {65536, 6144, 0, true}};
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
    ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 128 << 10); /* KiB */
    ck_assert(folder_has("out"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pack");
    TCase *codes = tcase_create("codes"), *back = tcase_create("back"), *layouts = tcase_create("layouts");
    TCase *bad = tcase_create("bad input"), *size = tcase_create("size");
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
    tcase_add_loop_test(layouts, layout_of_the_matmul, 0, 10);
    tcase_add_test(layouts, layout_down_the_columns);
    tcase_add_loop_test(layouts, refuses_layouts, 0, sizeof bad_layouts / sizeof bad_layouts[0]);
    tcase_add_test(bad, refuses_weights_that_are_not_finite);
    tcase_add_test(bad, refuses_activations);
    tcase_add_test(bad, refuses_what_does_not_fit);
    tcase_add_test(bad, refuses_malformed_files);
    tcase_add_test(bad, refuses_to_unpack);
    tcase_add_loop_test(size, takes_little_memory, 0, 2);
    TCase *cases[] = {codes, back, layouts, bad, size};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        tcase_set_timeout(cases[i], 120);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
