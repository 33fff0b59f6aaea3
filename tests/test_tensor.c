/* Tensors as callers describe them, DLPack's way: every way to get one right and wrong, on the interpreter.
 */
#include "check_kit.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite_kit.h"
#include "tvm.h"

/* The layout that DLPack 1.1's dlpack.h declares, for a C compiler: what any producer hands over. */
typedef struct dl_device {
    int device_type; /* an enum */
    int32_t device_id;
} dl_device;
typedef struct dl_data_type {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} dl_data_type;
typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_data_type dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor;

static const char source[] = ".vasm 1\n"
                             ".kernel scale(n: i32, f: f32, x: global f32[n, 8], y: global f32[n, 8])\n"
                             ".warps 1\n"
                             ".grid cdiv(n, 16)\n"
                             "    %vx = load-global x[block.x * 16, 0], spatial(16, 2).local(1, 4)\n"
                             "    %vy = mul %vx, f\n"
                             "    store-global y[block.x * 16, 0], %vy\n"
                             ".end\n";

static tvm_context *context;
static tvm_program *program;
static tvm_kernel *kernel;

static void load(const char *text) {
    tvm_program_free(program);
    tvm_status status = tvm_assemble(context, text, strlen(text), NULL, &program);
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
    kernel = tvm_kernel_at(program, 0);
}

static void setup(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    load(source);
}

static void teardown(void) {
    tvm_program_free(program);
    tvm_context_free(context);
    program = NULL;
}

static _Alignas(64) char memory[4096];

static tvm_status launch(const tvm_tensor *x, const tvm_tensor *y) {
    tvm_value values[] = {{.i = 4}, {.f = 2}, {.tensor = x}, {.tensor = y}};
    return tvm_launchv(kernel, NULL, values, 4);
}

/* Refused, and the message says all of these (up to the first NULL). */
static void assert_refused(tvm_status status, const char *a, const char *b, const char *c) {
    const char *const words[] = {a, b, c};
    const char *message = tvm_message(context);
    ck_assert_msg(status == TVM_ARGUMENT, "status %d, message '%s'", status, message);
    for (int i = 0; i < 3 && words[i]; i++)
        ck_assert_msg(strstr(message, words[i]) != NULL, "'%s' does not say '%s'", message, words[i]);
}

#define F32                                                                                                  \
    { .code = 2, .bits = 32, .lanes = 1 }
#define CPU_TENSOR .device = {.device_type = 1}, .ndim = 2, .dtype = F32

START_TEST(has_the_layout_of_dlpack) {
    ck_assert_uint_eq(sizeof(tvm_tensor), sizeof(dl_tensor));
    ck_assert_uint_eq(offsetof(tvm_tensor, data), offsetof(dl_tensor, data));
    ck_assert_uint_eq(offsetof(tvm_tensor, device.device_type), offsetof(dl_tensor, device.device_type));
    ck_assert_uint_eq(offsetof(tvm_tensor, device.device_id), offsetof(dl_tensor, device.device_id));
    ck_assert_uint_eq(offsetof(tvm_tensor, ndim), offsetof(dl_tensor, ndim));
    ck_assert_uint_eq(offsetof(tvm_tensor, dtype.code), offsetof(dl_tensor, dtype.code));
    ck_assert_uint_eq(offsetof(tvm_tensor, dtype.bits), offsetof(dl_tensor, dtype.bits));
    ck_assert_uint_eq(offsetof(tvm_tensor, dtype.lanes), offsetof(dl_tensor, dtype.lanes));
    ck_assert_uint_eq(offsetof(tvm_tensor, shape), offsetof(dl_tensor, shape));
    ck_assert_uint_eq(offsetof(tvm_tensor, strides), offsetof(dl_tensor, strides));
    ck_assert_uint_eq(offsetof(tvm_tensor, byte_offset), offsetof(dl_tensor, byte_offset));
}
END_TEST

START_TEST(launches_with_tensors) {
    int64_t shape[] = {4, 8}, strides[] = {8, 1};
    float *all = (float *)(void *)memory;
    tvm_tensor x = {.data = memory, CPU_TENSOR, .shape = shape};
    tvm_tensor y = {.data = memory, CPU_TENSOR, .shape = shape, .strides = strides, .byte_offset = 128};
    for (int i = 0; i < 32; i++) all[i] = (float)i;
    ck_assert_msg(launch(&x, &y) == TVM_OK, "%s", tvm_message(context));
    for (int i = 0; i < 32; i++) ck_assert_float_eq(all[32 + i], 2.0f * (float)i);
    y.device.device_type = TVM_TENSOR_CUDA_HOST;
    x.device.device_type = TVM_TENSOR_CUDA_MANAGED;
    ck_assert_int_eq(launch(&x, &y), TVM_OK);
    /* Addresses and tensors together; other members of a value with a tensor are not looked at. */
    tvm_value values[] = {
        {.i = 4}, {.f = -1}, {.data = memory, .bytes = 128}, {.tensor = &y, .data = memory + 1, .bytes = 1}};
    ck_assert_int_eq(tvm_launchv(kernel, NULL, values, 4), TVM_OK);
    ck_assert_float_eq(all[63], -31);
    size_t bytes = 0;
    int64_t declared[8];
    ck_assert_int_eq(tvm_param_shape(kernel, 2, values, 4, declared, &bytes), TVM_OK);
    ck_assert_uint_eq(bytes, 128);
}
END_TEST

START_TEST(strides_of_what_is_not_walked_say_nothing) {
    int64_t row[] = {1, 8}, odd[] = {77, 1}, none[] = {0, 8}, wild[] = {-3, 5};
    tvm_tensor x = {.data = memory, CPU_TENSOR, .shape = row, .strides = odd}, empty = {CPU_TENSOR};
    tvm_value values[] = {{.i = 1}, {.f = 2}, {.tensor = &x}, {.tensor = &x}};
    ck_assert_int_eq(tvm_launchv(kernel, NULL, values, 4), TVM_OK);
    empty.shape = none;
    empty.strides = wild;
    values[0].i = 0;
    values[2].tensor = values[3].tensor = &empty; /* without data */
    ck_assert_int_eq(tvm_launchv(kernel, NULL, values, 4), TVM_OK);
}
END_TEST

START_TEST(one_dimension_with_all_elements_is_any_shape) {
    int64_t flat[] = {32}, wrong[][1] = {{31}, {33}, {-32}, {INT64_MAX}}, spread[] = {2};
    float *all = (float *)(void *)memory;
    tvm_tensor x = {.data = memory, CPU_TENSOR, .shape = flat}, y = x;
    x.ndim = y.ndim = 1;
    y.byte_offset = 128;
    for (int i = 0; i < 32; i++) all[i] = (float)i;
    ck_assert_msg(launch(&x, &y) == TVM_OK, "%s", tvm_message(context));
    for (int i = 0; i < 32; i++) ck_assert_float_eq(all[32 + i], 2.0f * (float)i);
    x.strides = spread;
    assert_refused(launch(&x, &y), "'x'", "stride 0 is to be 1", "is 2");
    x.strides = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        x.shape = wrong[i];
        assert_refused(launch(&x, &y), "'x'", "f32[4, 8]", "float32[");
    }
}
END_TEST

START_TEST(refuses_wrong_shapes) {
    int64_t right[] = {4, 8}, fewer[] = {3, 8}, wider[] = {4, 16}, three[] = {1, 4, 8}, negative[] = {4, -8};
    tvm_tensor good = {.data = memory, CPU_TENSOR, .shape = right}, x = good;
    x.shape = fewer;
    assert_refused(launch(&x, &good), "'x'", "f32[4, 8]", "float32[3, 8]");
    assert_refused(launch(&good, &x), "kernel 'scale'", "'y'", "float32[3, 8]");
    x.shape = wider;
    assert_refused(launch(&x, &good), "'x'", "f32[4, 8]", "float32[4, 16]");
    x.shape = negative;
    assert_refused(launch(&x, &good), "'x'", "[4, -8]", NULL);
    x.shape = three;
    x.ndim = 3;
    assert_refused(launch(&x, &good), "'x'", "f32[4, 8]", "float32[1, 4, 8]");
    x.ndim = 1;
    assert_refused(launch(&x, &good), "'x'", "float32[1]", NULL);
    x.ndim = 0;
    assert_refused(launch(&x, &good), "'x'", "float32[]", NULL);
    x.ndim = -1;
    assert_refused(launch(&x, &good), "'x'", "rank -1", NULL);
    x.ndim = INT32_MAX;
    assert_refused(launch(&x, &good), "'x'", "rank 2147483647", NULL);
    x.ndim = 2;
    x.shape = NULL;
    assert_refused(launch(&x, &good), "'x'", "without a shape", NULL);
}
END_TEST

START_TEST(refuses_wrong_types) {
    static const struct {
        uint8_t code, bits;
        uint16_t lanes;
        const char *text;
    } wrong[] = {{2, 16, 1, "float16[4, 8]"},       {2, 64, 1, "float64[4, 8]"},
                 {0, 32, 1, "int32[4, 8]"},         {1, 8, 1, "uint8[4, 8]"},
                 {4, 16, 1, "bfloat16[4, 8]"},      {6, 8, 1, "bool8[4, 8]"},
                 {2, 32, 2, "float32x2[4, 8]"},     {2, 32, 0, "float32x0[4, 8]"},
                 {10, 8, 1, "float8_e4m3fn[4, 8]"}, {5, 64, 1, "type code 5, bits 64"},
                 {255, 255, 65535, "type code 255"}};
    int64_t shape[] = {4, 8};
    tvm_tensor good = {.data = memory, CPU_TENSOR, .shape = shape};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tvm_tensor x = good;
        x.dtype.code = wrong[i].code;
        x.dtype.bits = wrong[i].bits;
        x.dtype.lanes = wrong[i].lanes;
        assert_refused(launch(&x, &good), "'x'", "f32[4, 8]", wrong[i].text);
    }
}
END_TEST

START_TEST(refuses_what_is_not_contiguous) {
    int64_t shape[] = {4, 8}, padded[] = {16, 1}, transposed[] = {1, 4}, broadcast[] = {0, 1},
            back[] = {-8, 1};
    tvm_tensor good = {.data = memory, CPU_TENSOR, .shape = shape}, x = good;
    x.strides = padded;
    assert_refused(launch(&x, &good), "'x'", "stride 0 is to be 8", "is 16");
    x.strides = transposed;
    assert_refused(launch(&x, &good), "'x'", "stride 1 is to be 1", "is 4");
    x.strides = broadcast;
    assert_refused(launch(&x, &good), "'x'", "stride 0 is to be 8", "is 0");
    x.strides = back;
    assert_refused(launch(&good, &x), "'y'", "contiguous", "is -8");
}
END_TEST

START_TEST(refuses_wrong_places) {
    int64_t shape[] = {4, 8};
    tvm_tensor good = {.data = memory, CPU_TENSOR, .shape = shape}, x = good;
    x.device.device_type = TVM_TENSOR_CUDA;
    x.device.device_id = 3;
    assert_refused(launch(&x, &good), "'x'", "on the CPU", "cuda:3");
    x.device.device_type = 10; /* ROCm */
    assert_refused(launch(&x, &good), "'x'", "on the CPU", "device of type 10");
    x = good;
    x.byte_offset = 4;
    assert_refused(launch(&x, &good), "'x'", "16-byte aligned", NULL);
    x.data = memory + 4;
    x.byte_offset = 12;
    ck_assert_int_eq(launch(&x, &good), TVM_OK);
    x.data = NULL;
    assert_refused(launch(&x, &good), "'x'", "NULL", NULL);
    x.data = memory;
    x.byte_offset = UINT64_MAX - 15; /* behind the end of all addresses */
    assert_refused(launch(&x, &good), "'x'", "NULL", NULL);
}
END_TEST

/* What a tensor of a type may be described as: the code and bits of its elements, and how many of them the
 * last extent counts for 16 elements. */
typedef struct described {
    const char *type;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t last;
    int right;
} described;

static const described types[] = {
    {"f16", 2, 16, 1, 16, 1},     {"bf16", 4, 16, 1, 16, 1},    {"tf32", 2, 32, 1, 16, 1},
    {"f32", 2, 32, 1, 16, 1},     {"f32", 2, 32, 4, 4, 1},      {"f64", 2, 64, 1, 16, 1},
    {"i16", 0, 16, 1, 16, 1},     {"u32", 1, 32, 1, 16, 1},     {"i64", 0, 64, 1, 16, 1},
    {"bool", 6, 8, 1, 16, 1},     {"u8", 1, 8, 1, 16, 1},       {"i8", 0, 8, 1, 16, 1},
    {"i8", 1, 8, 1, 16, 1},       {"u3", 1, 3, 1, 16, 1},       {"u3", 1, 8, 1, 6, 1},
    {"u4", 1, 4, 1, 16, 1},       {"u4", 1, 4, 2, 8, 1},        {"u4", 1, 8, 1, 8, 1},
    {"i5", 0, 5, 1, 16, 1},       {"i5", 1, 8, 1, 10, 1},       {"u1", 1, 1, 8, 2, 1},
    {"f8_e4m3", 10, 8, 1, 16, 1}, {"f8_e5m2", 12, 8, 1, 16, 1}, {"f6_e2m3", 15, 6, 1, 16, 1},
    {"f6_e3m2", 16, 6, 1, 16, 1}, {"f6_e3m2", 1, 8, 1, 12, 1},  {"f4_e2m1", 17, 4, 2, 8, 1},
    {"f8_e4m3", 1, 8, 1, 16, 1},  {"f3_e1m1", 1, 8, 1, 6, 1},   {"f16", 4, 16, 1, 16, 0},
    {"f16", 1, 8, 1, 32, 0},      {"bf16", 2, 16, 1, 16, 0},    {"u8", 0, 8, 1, 16, 0},
    {"bool", 1, 8, 1, 16, 0},     {"i16", 1, 16, 1, 16, 0},     {"u3", 1, 3, 1, 15, 0},
    {"u3", 1, 8, 1, 16, 0},       {"u3", 0, 3, 1, 16, 0},       {"u4", 1, 4, 2, 16, 0},
    {"i5", 1, 5, 1, 16, 0},       {"f8_e4m3", 12, 8, 1, 16, 0}, {"f8_e5m2", 10, 8, 1, 16, 0},
    {"f7_e3m3", 2, 7, 1, 16, 0},  {"f8_e4m3", 2, 8, 1, 16, 0},  {"f6_e3m2", 15, 6, 1, 16, 0},
};

START_TEST(knows_the_types) {
    const described *d = &types[_i];
    char text[256];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel k(n: i32, x: global %s[2, n])\n.warps 1\n.grid 1\n    sync\n.end\n", d->type);
    load(text);
    int64_t shape[] = {2, d->last};
    tvm_tensor x = {.data = memory, CPU_TENSOR, .shape = shape};
    x.dtype.code = d->code;
    x.dtype.bits = d->bits;
    x.dtype.lanes = d->lanes;
    tvm_value values[] = {{.i = 16}, {.tensor = &x}};
    tvm_status status = tvm_launchv(kernel, NULL, values, 2);
    ck_assert_msg(status == (d->right ? TVM_OK : TVM_ARGUMENT), "%s: %s", d->type, tvm_message(context));
    if (!d->right) ck_assert(strstr(tvm_message(context), d->type) != NULL);
}
END_TEST

START_TEST(bit_strings_are_named_in_the_message) {
    int64_t shape[] = {2, 7};
    load(".vasm 1\n.kernel k(n: i32, w: global u3[2, n])\n.warps 1\n.grid 1\n    sync\n.end\n");
    tvm_tensor w = {.data = memory, CPU_TENSOR, .shape = shape};
    w.dtype.code = 1;
    w.dtype.bits = 8;
    tvm_value values[] = {{.i = 16}, {.tensor = &w}};
    assert_refused(tvm_launchv(kernel, NULL, values, 2), "'w'", "u3[2, 16] or uint8[2, 6]", "is uint8[2, 7]");
}
END_TEST

START_TEST(tensors_of_rank_0) {
    load(".vasm 1\n.kernel k(x: global f32[1])\n.warps 1\n.grid 1\n    sync\n.end\n");
    int64_t one[] = {1};
    tvm_tensor x = {.data = memory, CPU_TENSOR, .shape = one};
    tvm_value value = {.tensor = &x};
    x.ndim = 1;
    ck_assert_int_eq(tvm_launchv(kernel, NULL, &value, 1), TVM_OK);
    x.ndim = 0;
    assert_refused(tvm_launchv(kernel, NULL, &value, 1), "'x'", "f32[1]", "float32[]");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tensor");
    TCase *cases = tcase_create("tensor");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, has_the_layout_of_dlpack);
    tcase_add_test(cases, launches_with_tensors);
    tcase_add_test(cases, strides_of_what_is_not_walked_say_nothing);
    tcase_add_test(cases, one_dimension_with_all_elements_is_any_shape);
    tcase_add_test(cases, refuses_wrong_shapes);
    tcase_add_test(cases, refuses_wrong_types);
    tcase_add_test(cases, refuses_what_is_not_contiguous);
    tcase_add_test(cases, refuses_wrong_places);
    tcase_add_loop_test(cases, knows_the_types, 0, (int)(sizeof types / sizeof *types));
    tcase_add_test(cases, bit_strings_are_named_in_the_message);
    tcase_add_test(cases, tensors_of_rank_0);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
