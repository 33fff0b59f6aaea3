/* The data types: which exist, their names, properties and containers. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite_kit.h"
#include "types.h"

static const char *const standard_names[] = {"bool", "i8",  "i16",  "i32",  "i64", "u8",  "u16", "u32",
                                             "u64",  "f16", "bf16", "tf32", "f32", "f64", "e8m0"};
static const char *const lowbit_names[] = {
    "u1",      "u2",      "u3",      "u4",      "u5",      "u6",      "u7",      "i2",
    "i3",      "i4",      "i5",      "i6",      "i7",      "f3_e1m1", "f3_e2m0", "f4_e1m2",
    "f4_e2m1", "f4_e3m0", "f5_e1m3", "f5_e2m2", "f5_e3m1", "f5_e4m0", "f6_e1m4", "f6_e2m3",
    "f6_e3m2", "f6_e4m1", "f6_e5m0", "f7_e1m5", "f7_e2m4", "f7_e3m3", "f7_e4m2", "f7_e5m1",
    "f7_e6m0", "f8_e1m6", "f8_e2m5", "f8_e3m4", "f8_e4m3", "f8_e5m2", "f8_e6m1", "f8_e7m0"};

enum {
    STANDARD = sizeof standard_names / sizeof standard_names[0],
    LOWBIT = sizeof lowbit_names / sizeof lowbit_names[0],
    ALL = STANDARD + LOWBIT
};

static tvm_dtype named(const char *name) {
    tvm_dtype type = {0};
    ck_assert_msg(tvm_dtype_parse(name, strlen(name), &type), "%s", name);
    return type;
}

static bool among(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

START_TEST(list_is_complete) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    ck_assert_uint_eq(ALL, 55);
    ck_assert_uint_eq(tvm_dtype_list(NULL, 0), ALL);
    ck_assert_uint_eq(tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), ALL);
    for (size_t i = 0; i < ALL; i++) {
        char name[TVM_DTYPE_NAME_MAX];
        tvm_dtype_name(types[i], name);
        ck_assert(tvm_dtype_valid(types[i]));
        if (i < STANDARD)
            ck_assert(among(name, standard_names, STANDARD));
        else
            ck_assert(among(name, lowbit_names, LOWBIT));
        for (size_t j = 0; j < i; j++) ck_assert(!tvm_dtype_same(types[i], types[j]));
    }
}
END_TEST

START_TEST(list_respects_capacity) {
    tvm_dtype types[4] = {{0}, {0}, {0}, {9, 9, 9, 9}};
    ck_assert_uint_eq(tvm_dtype_list(types, 3), ALL);
    ck_assert(tvm_dtype_valid(types[2]));
    ck_assert_uint_eq(types[3].kind, 9);
}
END_TEST

START_TEST(names_round_trip) {
    for (size_t i = 0; i < ALL; i++) {
        const char *expected = i < STANDARD ? standard_names[i] : lowbit_names[i - STANDARD];
        char name[TVM_DTYPE_NAME_MAX];
        tvm_dtype type = named(expected);
        ck_assert(tvm_dtype_valid(type));
        ck_assert_ptr_eq(tvm_dtype_name(type, name), name);
        ck_assert_str_eq(name, expected);
    }
}
END_TEST

START_TEST(names_mean_the_fields) {
    for (size_t i = 0; i < LOWBIT; i++) {
        unsigned bits = 0, exponent = 0, mantissa = 0;
        char letter;
        sscanf(lowbit_names[i], "%c%u_e%um%u", &letter, &bits, &exponent, &mantissa);
        tvm_dtype type = named(lowbit_names[i]);
        ck_assert_uint_eq(type.kind, letter == 'f'   ? TVM_KIND_FLOAT
                                     : letter == 'i' ? TVM_KIND_INT
                                                     : TVM_KIND_UINT);
        ck_assert_uint_eq(type.bits, bits);
        ck_assert_uint_eq(type.exponent, exponent);
        ck_assert_uint_eq(type.mantissa, mantissa);
    }
    ck_assert(tvm_dtype_same(named("bool"), TVM_BOOL));
    ck_assert(tvm_dtype_same(named("i8"), TVM_I(8)));
    ck_assert(tvm_dtype_same(named("u64"), TVM_U(64)));
    ck_assert(tvm_dtype_same(named("f16"), TVM_F16));
    ck_assert(tvm_dtype_same(named("bf16"), TVM_BF16));
    ck_assert(tvm_dtype_same(named("tf32"), TVM_TF32));
    ck_assert(tvm_dtype_same(named("f32"), TVM_F32));
    ck_assert(tvm_dtype_same(named("f64"), TVM_F64));
}
END_TEST

START_TEST(other_names_are_refused) {
    static const char *const wrong[] = {
        "",        "u",       "i",       "f",        "u0",     "u9",       "u10",      "u08",     "u03",
        "U3",      "i0",      "i1",      "i9",       "i128",   "f8",       "f3",       "f64 ",    " f64",
        "f16x",    "bool8",   "boo",     "float",    "half",   "e4m3",     "f8e4m3",   "f8_e4m4", "f8_e0m7",
        "f2_e1m0", "f9_e4m4", "f8_m3e4", "f8_e4m3x", "f8_e4m", "f8_e04m3", "f8_e4m03", "f8-e4m3", "f6_e3m3",
        "f4_e4m0", "f0_e0m0", "f8_e/m8", "f8_e:m3",  "i-2",    "u+3",      "f8_e8m0",  "f8_E4M3", "u3\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tvm_dtype type = {7, 7, 7, 7};
        ck_assert_msg(!tvm_dtype_parse(wrong[i], strlen(wrong[i]), &type), "'%s'", wrong[i]);
    }
    tvm_dtype type;
    ck_assert(!tvm_dtype_parse("u3", 3, &type)); /* with its zero byte */
    ck_assert(tvm_dtype_parse("u32", 2, &type)); /* only `length` bytes count */
    ck_assert(tvm_dtype_same(type, TVM_U(3)));
    ck_assert(tvm_dtype_parse("bf16[8]", 4, &type));
    ck_assert(tvm_dtype_same(type, TVM_BF16));
}
END_TEST

/* Parsing must not read beyond the bytes given: exact-size copies let a memory checker see it. */
START_TEST(parse_reads_only_the_text) {
    for (size_t i = 0; i < ALL; i++) {
        const char *name = i < STANDARD ? standard_names[i] : lowbit_names[i - STANDARD];
        for (size_t length = 0; length <= strlen(name); length++) {
            char *copy = malloc(length ? length : 1);
            ck_assert_ptr_nonnull(copy);
            memcpy(copy, name, length);
            tvm_dtype type;
            bool known = length > 0 && tvm_dtype_parse(copy, length, &type);
            char prefix[16];
            snprintf(prefix, sizeof prefix, "%.*s", (int)length, name);
            ck_assert_int_eq(known,
                             among(prefix, standard_names, STANDARD) || among(prefix, lowbit_names, LOWBIT));
            free(copy);
        }
    }
}
END_TEST

/* Of every combination of members that a file may hold, exactly the named types are valid. */
START_TEST(only_named_types_are_valid) {
    static const uint8_t tails[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,   9,   10,
                                    11, 12, 22, 23, 24, 51, 52, 53, 127, 128, 255};
    size_t valid = 0, misjudged = 0;
    for (unsigned kind = 0; kind < 256; kind += kind < 6 ? 1 : 83)
        for (unsigned bits = 0; bits < 256; bits++)
            for (size_t e = 0; e < sizeof tails; e++)
                for (size_t m = 0; m < sizeof tails; m++) {
                    tvm_dtype type = {(uint8_t)kind, (uint8_t)bits, tails[e], tails[m]};
                    if (!tvm_dtype_valid(type)) {
                        misjudged += tvm_dtype_is_lowbit(type) || tvm_dtype_is_scalar(type);
                        continue;
                    }
                    valid++;
                    char name[TVM_DTYPE_NAME_MAX];
                    ck_assert(tvm_dtype_same(named(tvm_dtype_name(type, name)), type));
                }
    ck_assert_uint_eq(valid, ALL);
    ck_assert_uint_eq(misjudged, 0);
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype invalid = {255, 255, 255, 255};
    tvm_dtype_name(invalid, name);
    ck_assert_uint_lt(strlen(name), TVM_DTYPE_NAME_MAX);
    ck_assert(!tvm_dtype_parse(name, strlen(name), &invalid));
}
END_TEST

START_TEST(classes_of_types) {
    static const char *const arithmetic[] = {"i8",  "i16", "i32", "i64",  "u8",  "u16",
                                             "u32", "u64", "f16", "bf16", "f32", "f64"};
    static const char *const scalars[] = {"bool", "i32", "u32", "i64", "u64", "f32", "f64"};
    for (size_t i = 0; i < ALL; i++) {
        const char *name = i < STANDARD ? standard_names[i] : lowbit_names[i - STANDARD];
        tvm_dtype type = named(name);
        bool lowbit = i >= STANDARD || strcmp(name, "u8") == 0 || strcmp(name, "i8") == 0;
        bool integer = name[0] == 'u' || name[0] == 'i';
        ck_assert_int_eq(tvm_dtype_is_lowbit(type), lowbit);
        ck_assert_int_eq(tvm_dtype_is_integer(type), integer);
        ck_assert_int_eq(tvm_dtype_is_arithmetic(type),
                         among(name, arithmetic, sizeof arithmetic / sizeof arithmetic[0]));
        ck_assert_int_eq(tvm_dtype_is_scalar(type), among(name, scalars, sizeof scalars / sizeof scalars[0]));
    }
}
END_TEST

START_TEST(containers) {
    static const struct {
        const char *name;
        unsigned bytes;
    } cases[] = {{"bool", 1}, {"i8", 1},  {"u16", 2},  {"i32", 4}, {"u64", 8}, {"f16", 2},
                 {"bf16", 2}, {"f32", 4}, {"tf32", 4}, {"f64", 8}, {"e8m0", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_uint_eq(tvm_dtype_container(named(cases[i].name)), cases[i].bytes);
    for (size_t i = 0; i < LOWBIT; i++) ck_assert_uint_eq(tvm_dtype_container(named(lowbit_names[i])), 1);
}
END_TEST

/* Biases, NaN and infinity as the IEEE 754, OFP8 and MX documents print them. */
START_TEST(float_properties) {
    static const struct {
        const char *name;
        int bias;
        bool infinity, nan;
    } cases[] = {{"f16", 15, true, true},       {"bf16", 127, true, true},    {"tf32", 127, true, true},
                 {"f32", 127, true, true},      {"f64", 1023, true, true},    {"f8_e4m3", 7, false, true},
                 {"f8_e5m2", 15, true, true},   {"f6_e3m2", 3, false, false}, {"f6_e2m3", 1, false, false},
                 {"f4_e2m1", 1, false, false},  {"f8_e3m4", 3, false, false}, {"f8_e6m1", 31, false, false},
                 {"f8_e7m0", 63, false, false}, {"f8_e1m6", 0, false, false}, {"f3_e1m1", 0, false, false},
                 {"f3_e2m0", 1, false, false},  {"f7_e4m2", 7, false, false}, {"f7_e5m1", 15, false, false},
                 {"e8m0", 127, false, true},    {"f5_e4m0", 7, false, false}, {"f6_e5m0", 15, false, false},
                 {"f8_e2m5", 1, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tvm_dtype type = named(cases[i].name);
        ck_assert_int_eq(tvm_float_bias(type), cases[i].bias);
        ck_assert_int_eq(tvm_float_has_infinity(type), cases[i].infinity);
        ck_assert_int_eq(tvm_float_has_nan(type), cases[i].nan);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("types");
    TCase *cases = tcase_create("types");
    tcase_add_test(cases, list_is_complete);
    tcase_add_test(cases, list_respects_capacity);
    tcase_add_test(cases, names_round_trip);
    tcase_add_test(cases, names_mean_the_fields);
    tcase_add_test(cases, other_names_are_refused);
    tcase_add_test(cases, parse_reads_only_the_text);
    tcase_add_test(cases, only_named_types_are_valid);
    tcase_add_test(cases, classes_of_types);
    tcase_add_test(cases, containers);
    tcase_add_test(cases, float_properties);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
