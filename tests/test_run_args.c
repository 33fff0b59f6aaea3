/* tvm-run's words NAME=VALUE, the numbers among them, and the tensors that it makes. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run_args.h"
#include "suite_kit.h"

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static const struct word {
    const char *word, *name;
    tvm_run_source source;
    const char *text, *out; /* NULL: not looked at, none */
    uint64_t seed;
} words[] = {
    {"m=16", "m", TVM_RUN_TEXT, "16", NULL, 0},
    {"_x1=-2.5e3", "_x1", TVM_RUN_TEXT, "-2.5e3", NULL, 0},
    {"a=@in.npy", "a", TVM_RUN_FILE, "in.npy", NULL, 0},
    {"a=@-", "a", TVM_RUN_FILE, "-", NULL, 0},
    {"a=@x=1,y.npy", "a", TVM_RUN_FILE, "x=1,y.npy", NULL, 0},
    {"a=@in.npy,out:o.npy", "a", TVM_RUN_FILE, "in.npy", "o.npy", 0},
    {"a=out:o.npy", "a", TVM_RUN_ZEROS, NULL, "o.npy", 0},
    {"a=out:o,out:p", "a", TVM_RUN_ZEROS, NULL, "o,out:p", 0},
    {"a=rand", "a", TVM_RUN_RAND, NULL, NULL, 0},
    {"a=rand:7", "a", TVM_RUN_RAND, NULL, NULL, 7},
    {"a=rand:0x10,out:o.npy", "a", TVM_RUN_RAND, NULL, "o.npy", 16},
    {"a=zeros", "a", TVM_RUN_ZEROS, NULL, NULL, 0},
    {"a=iota,out:o.npy", "a", TVM_RUN_IOTA, NULL, "o.npy", 0},
    {"a=random", "a", TVM_RUN_TEXT, "random", NULL, 0},
};

START_TEST(reads_words) {
    const struct word *row = &words[_i];
    tvm_run_args args = {0};
    ck_assert(tvm_run_is_arg(row->word));
    ck_assert_int_eq(tvm_run_args_add(&args, row->word, NULL), TVM_OK);
    ck_assert_uint_eq(args.count, 1);
    const tvm_run_arg *arg = &args.items[0];
    ck_assert_str_eq(arg->name, row->name);
    ck_assert_int_eq(arg->source, row->source);
    if (row->text) ck_assert_str_eq(arg->text, row->text);
    if (row->out)
        ck_assert_str_eq(arg->out, row->out);
    else
        ck_assert_ptr_null(arg->out);
    ck_assert_int_eq(arg->seeded, row->seed != 0);
    ck_assert_uint_eq(arg->seed, row->seed);
    tvm_run_args_free(&args);
}
END_TEST

START_TEST(refuses_malformed_words) {
    static const char *const malformed[] = {
        "",         "=3",        "m",         "3m=1",         "a b=1",
        "./a=1",    "m=",        "a=@",       "a=out:",       "a=rand:",
        "a=rand:x", "a=rand:-1", "a=rand:1x", "a=zeros,out:", "a=rand:99999999999999999999"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        tvm_run_args args = {0};
        tvm_diags diags = {0};
        ck_assert_msg(tvm_run_args_add(&args, malformed[i], &diags) == TVM_USAGE, "'%s'", malformed[i]);
        ck_assert_uint_eq(diags.count, 1);
        tvm_diags_free(&diags);
        tvm_run_args_free(&args);
    }
}
END_TEST

START_TEST(refuses_a_name_twice) {
    tvm_run_args args = {0};
    ck_assert_int_eq(tvm_run_args_add(&args, "m=1", NULL), TVM_OK);
    ck_assert_int_eq(tvm_run_args_add(&args, "mm=1", NULL), TVM_OK);
    ck_assert_int_eq(tvm_run_args_add(&args, "m=1", NULL), TVM_USAGE);
    tvm_run_args_free(&args);
}
END_TEST

static tvm_status number(const char *text, const char *type, tvm_value *value, tvm_diags *diags) {
    tvm_run_arg arg = {.name = "x", .text = text, .source = TVM_RUN_TEXT};
    return tvm_run_number(&arg, type_of(type), value, diags);
}

START_TEST(reads_integers) {
    static const struct {
        const char *text, *type;
        int64_t value;
    } rows[] = {{"0", "i32", 0},
                {"-2147483648", "i32", INT32_MIN},
                {"2147483647", "i32", INT32_MAX},
                {"0x7fffffff", "i32", INT32_MAX},
                {"4294967295", "u32", UINT32_MAX},
                {"-9223372036854775808", "i64", INT64_MIN},
                {"18446744073709551615", "u64", -1},
                {"-0", "u32", 0},
                {"true", "bool", 1},
                {"0", "bool", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tvm_value value;
        ck_assert_int_eq(number(rows[i].text, rows[i].type, &value, NULL), TVM_OK);
        ck_assert_int_eq(value.i, rows[i].value);
    }
}
END_TEST

START_TEST(reads_floats) {
    tvm_value value;
    ck_assert_int_eq(number("-2.5e1", "f32", &value, NULL), TVM_OK);
    ck_assert_double_eq(value.f, -25.0);
    ck_assert_int_eq(number("inf", "f64", &value, NULL), TVM_OK);
    ck_assert(isinf(value.f));
    ck_assert_int_eq(number("3", "f64", &value, NULL), TVM_OK);
    ck_assert_double_eq(value.f, 3.0);
}
END_TEST

START_TEST(refuses_what_does_not_fit) {
    static const char *const rows[][2] = {{"2147483648", "i32"},
                                          {"-2147483649", "i32"},
                                          {"4294967296", "u32"},
                                          {"-1", "u32"},
                                          {"9223372036854775808", "i64"},
                                          {"-1", "u64"},
                                          {"2", "bool"},
                                          {"yes", "bool"},
                                          {"1.5", "i32"},
                                          {"x", "i32"},
                                          {" 1", "i32"},
                                          {"1 ", "i32"},
                                          {"-", "i32"},
                                          {"--1", "i32"},
                                          {"1.5x", "f32"},
                                          {"x", "f32"},
                                          {" 1", "f32"},
                                          {"18446744073709551616", "u64"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tvm_value value;
        tvm_diags diags = {0};
        ck_assert_msg(number(rows[i][0], rows[i][1], &value, &diags) == TVM_ARGUMENT, "'%s'", rows[i][0]);
        ck_assert(strstr(diags.items[0].message, rows[i][1]) != NULL);
        tvm_diags_free(&diags);
    }
    tvm_run_arg tensor = {.name = "x", .text = "zeros", .source = TVM_RUN_ZEROS};
    tvm_value value;
    ck_assert_int_eq(tvm_run_number(&tensor, TVM_F32, &value, NULL), TVM_ARGUMENT);
}
END_TEST

enum { COUNT = 5000 };

/* One random tensor of a type: within range, spread over it, the same for the same seed and not for another.
 */
static void check_random(tvm_dtype type) {
    size_t bytes = ((size_t)COUNT * type.bits + 7) / 8;
    uint8_t *data = malloc(bytes), *again = malloc(bytes);
    tvm_run_arg arg = {.source = TVM_RUN_RAND};
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(type, name);
    tvm_run_fill(&arg, type, COUNT, 3, data);
    tvm_run_fill(&arg, type, COUNT, 4, again);
    ck_assert_msg(memcmp(data, again, bytes) != 0, "%s", name);
    arg.seeded = true;
    arg.seed = 3;
    tvm_run_fill(&arg, type, COUNT, 4, again);
    ck_assert_mem_eq(data, again, bytes);
    bool continuous = type.kind == TVM_KIND_FLOAT && type.bits > 8;
    double sum = 0, largest = 0;
    bool seen[256] = {0};
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t code = tvm_bits_get(data, i * type.bits, type.bits);
        double value = tvm_decode(type, code);
        ck_assert_msg(isfinite(value), "%s %zu", name, i);
        if (continuous) ck_assert_msg(value >= -1.0 && value < 1.0, "%s %g", name, value);
        sum += value;
        largest = fmax(largest, fabs(value));
        if (type.bits <= 8) seen[code] = true;
    }
    if (continuous) ck_assert_msg(fabs(sum / COUNT) < 0.05 && largest > 0.98, "%s", name);
    for (unsigned code = 0; type.bits <= 8 && code < 1u << type.bits; code++) {
        bool drawn = type.kind == TVM_KIND_BOOL ? code < 2 : isfinite(tvm_decode(type, code));
        ck_assert_msg(seen[code] == drawn, "%s code %u", name, code);
    }
    free(again);
    free(data);
}

START_TEST(random_tensors) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count; i++) check_random(types[i]);
}
END_TEST

START_TEST(iota_tensors) {
    tvm_run_arg arg = {.source = TVM_RUN_IOTA};
    uint8_t u3[9], bools[5];
    float floats[9];
    int16_t shorts[9];
    static const uint8_t expected[9] = {0x88, 0xc6, 0xfa, 0x88, 0xc6,
                                        0xfa, 0x88, 0xc6, 0xfa}; /* 0..7 three times */
    tvm_run_fill(&arg, type_of("u3"), 24, 0, u3);
    ck_assert_mem_eq(u3, expected, sizeof u3);
    tvm_run_fill(&arg, TVM_F32, 9, 0, (uint8_t *)floats);
    tvm_run_fill(&arg, type_of("i16"), 9, 0, (uint8_t *)shorts);
    for (int i = 0; i < 9; i++) {
        ck_assert_float_eq(floats[i], (float)i);
        ck_assert_int_eq(shorts[i], i);
    }
    tvm_run_fill(&arg, TVM_BOOL, 5, 0, bools);
    for (int i = 0; i < 5; i++) ck_assert_uint_eq(bools[i], i % 2);
}
END_TEST

START_TEST(zero_tensors) {
    tvm_run_arg arg = {.source = TVM_RUN_ZEROS};
    uint8_t data[3] = {1, 2, 3};
    tvm_run_fill(&arg, type_of("u3"), 8, 0, data);
    ck_assert(!data[0] && !data[1] && !data[2]);
    tvm_run_fill(&arg, TVM_F32, 0, 0, data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("run_args");
    TCase *cases = tcase_create("run_args");
    tcase_add_loop_test(cases, reads_words, 0, sizeof words / sizeof *words);
    tcase_add_test(cases, refuses_malformed_words);
    tcase_add_test(cases, refuses_a_name_twice);
    tcase_add_test(cases, reads_integers);
    tcase_add_test(cases, reads_floats);
    tcase_add_test(cases, refuses_what_does_not_fit);
    tcase_add_test(cases, random_tensors);
    tcase_add_test(cases, iota_tensors);
    tcase_add_test(cases, zero_tensors);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
