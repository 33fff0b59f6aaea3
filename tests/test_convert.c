/* Conversions between codes and numbers, against tables of all values of a type (convert_reference.h). */
#include "convert_reference.h"

/* ---- floats ---- */

START_TEST(decode_every_code) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types), tables = 0;
    for (size_t t = 0; t < count; t++) {
        if (!has_table(types[t])) continue;
        char name[TVM_DTYPE_NAME_MAX];
        size_t wrong = 0;
        for (uint64_t code = 0; code < UINT64_C(1) << types[t].bits; code++)
            wrong += !same_number(tvm_decode(types[t], code), reference_value(types[t], code));
        ck_assert_msg(wrong == 0, "%zu codes of %s", wrong, tvm_dtype_name(types[t], name));
        tables++;
    }
    ck_assert_uint_eq(tables, 29); /* 27 of 3 to 8 bits, f16, bf16 */
}
END_TEST

/* The magnitudes that the documents print, and small types written out. */
START_TEST(well_known_values) {
    static const struct {
        tvm_dtype type;
        uint64_t code;
        double value;
    } cases[] = {
        {{TVM_KIND_FLOAT, 8, 4, 3}, 0x7e, 448},
        {{TVM_KIND_FLOAT, 8, 4, 3}, 0x08, 0.015625},
        {{TVM_KIND_FLOAT, 8, 4, 3}, 0x07, 0.013671875},
        {{TVM_KIND_FLOAT, 8, 4, 3}, 0x01, 0.001953125},
        {{TVM_KIND_FLOAT, 8, 4, 3}, 0x78, 256},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0x7b, 57344},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0x04, 0x1p-14},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0x03, 0x1.8p-15},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0x01, 0x1p-16},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0x7c, INFINITY},
        {{TVM_KIND_FLOAT, 8, 5, 2}, 0xfc, -INFINITY},
        {{TVM_KIND_FLOAT, 6, 3, 2}, 0x1f, 28},
        {{TVM_KIND_FLOAT, 6, 3, 2}, 0x04, 0.25},
        {{TVM_KIND_FLOAT, 6, 3, 2}, 0x03, 0.1875},
        {{TVM_KIND_FLOAT, 6, 3, 2}, 0x01, 0.0625},
        {{TVM_KIND_FLOAT, 6, 2, 3}, 0x1f, 7.5},
        {{TVM_KIND_FLOAT, 6, 2, 3}, 0x08, 1},
        {{TVM_KIND_FLOAT, 6, 2, 3}, 0x07, 0.875},
        {{TVM_KIND_FLOAT, 6, 2, 3}, 0x01, 0.125},
        {{TVM_KIND_FLOAT, 8, 7, 0}, 0x7f, 0x1p64},
        {{TVM_KIND_FLOAT, 8, 7, 0}, 0x01, 0x1p-62},
        {{TVM_KIND_FLOAT, 8, 3, 4}, 0x7f, 31},
        {{TVM_KIND_FLOAT, 16, 5, 10}, 0x7bff, 65504},
        {{TVM_KIND_FLOAT, 16, 5, 10}, 0x0001, 0x1p-24},
        {{TVM_KIND_FLOAT, 16, 8, 7}, 0x3f80, 1},
        {{TVM_KIND_FLOAT, 16, 8, 7}, 0x0001, 0x1p-133},
        {{TVM_KIND_FLOAT, 32, 8, 10}, 0x3f802000, 1.0009765625},
        {{TVM_KIND_FLOAT, 32, 8, 10}, 0x00002000, 0x1p-136},
        {{TVM_KIND_FLOAT, 32, 8, 10}, 0xff800000, -INFINITY},
        {{TVM_KIND_FLOAT, 32, 8, 23}, 0x00000001, 0x1p-149},
        {{TVM_KIND_FLOAT, 64, 11, 52}, 1, 0x1p-1074},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_double_eq(tvm_decode(cases[i].type, cases[i].code), cases[i].value);
        bool saturates = isinf(cases[i].value) && cases[i].type.bits == 8;
        if (!saturates) ck_assert_uint_eq(tvm_encode(cases[i].type, cases[i].value), cases[i].code);
    }
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6}, e1m1[4] = {0, 1, 2, 3},
                        e2m0[4] = {0, 1, 2, 4};
    for (unsigned code = 0; code < 16; code++) {
        double value = code & 8 ? -e2m1[code & 7] : e2m1[code];
        ck_assert(same_number(tvm_decode(TVM_FLOAT(4, 2, 1), code), value));
    }
    for (unsigned code = 0; code < 4; code++) {
        ck_assert_double_eq(tvm_decode(TVM_FLOAT(3, 1, 1), code), e1m1[code]);
        ck_assert_double_eq(tvm_decode(TVM_FLOAT(3, 2, 0), code), e2m0[code]);
    }
    static const uint8_t nans[] = {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff};
    for (size_t i = 0; i < sizeof nans; i++) {
        ck_assert(isnan(tvm_decode(TVM_FLOAT(8, 5, 2), nans[i])));
        ck_assert_int_eq(isnan(tvm_decode(TVM_FLOAT(8, 4, 3), nans[i])), (nans[i] & 0x7f) == 0x7f);
    }
}
END_TEST

/* Rounding changes its result only at the values half-way between neighbours: each of them, and the doubles
 * next to it, and each value itself, of both signs. */
static size_t wrong_at_boundaries(const table *of) {
    uint64_t sign = UINT64_C(1) << (of->type.bits - 1);
    size_t wrong = 0;
    for (unsigned code = 0; code < of->count; code++) {
        double value = of->values[code];
        wrong += tvm_encode(of->type, value) != code;
        wrong += tvm_encode(of->type, -value) != (code | sign);
        if (code + 1 == of->count) break;
        double half_way = (value + of->values[code + 1]) / 2;
        wrong += tvm_encode(of->type, half_way) != tie(of, code);
        wrong += tvm_encode(of->type, -half_way) != (tie(of, code) | sign);
        wrong += tvm_encode(of->type, nextafter(half_way, 0)) != code;
        wrong += tvm_encode(of->type, -nextafter(half_way, 0)) != (code | sign);
        wrong += tvm_encode(of->type, nextafter(half_way, INFINITY)) != code + 1;
        wrong += tvm_encode(of->type, -nextafter(half_way, INFINITY)) != ((code + 1) | sign);
    }
    return wrong;
}

static size_t wrong_beyond_the_end(const table *of) {
    uint64_t sign = UINT64_C(1) << (of->type.bits - 1);
    unsigned top = of->count - 1;
    double greatest = of->values[top], half = (greatest - of->values[top - 1]) / 2;
    uint64_t over = of->type.bits == 16 ? top + 1 : top; /* infinity, or saturated */
    uint64_t nan = has_nan(of->type) ? sign - 1 : top;
    const double beyond[] = {greatest + half, 2 * greatest, 0x1p1000, DBL_MAX, INFINITY};
    size_t wrong = tvm_encode(of->type, nextafter(greatest + half, 0)) != top;
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        wrong += tvm_encode(of->type, beyond[i]) != over;
        wrong += tvm_encode(of->type, -beyond[i]) != (over | sign);
    }
    wrong += tvm_encode(of->type, NAN) != nan;
    wrong += tvm_encode(of->type, -NAN) != nan;
    wrong += tvm_encode(of->type, DBL_TRUE_MIN) != 0;
    wrong += tvm_encode(of->type, -DBL_TRUE_MIN) != sign;
    return wrong;
}

START_TEST(encode_floats) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types);
    for (size_t t = 0; t < count; t++) {
        if (!has_table(types[t])) continue;
        char name[TVM_DTYPE_NAME_MAX];
        tvm_dtype_name(types[t], name);
        build_table(&shared_table, types[t]);
        size_t wrong = wrong_at_boundaries(&shared_table);
        ck_assert_msg(wrong == 0, "%zu at the boundaries of %s", wrong, name);
        wrong = wrong_beyond_the_end(&shared_table);
        ck_assert_msg(wrong == 0, "%zu beyond the end of %s", wrong, name);
        for (int i = 0; i < 2000; i++) {
            double value = ldexp((double)(int64_t)random_bits(), (int)(random_bits() % 160) - 150);
            wrong += tvm_encode(types[t], value) != search_code(&shared_table, value);
        }
        ck_assert_msg(wrong == 0, "%zu random values to %s", wrong, name);
    }
}
END_TEST

START_TEST(encode_wide_floats) {
    static const double edges[] = {0.0,
                                   -0.0,
                                   1,
                                   -1,
                                   FLT_MAX,
                                   -FLT_MAX,
                                   0x1.ffffffp127,
                                   0x1.fffffefffffffp127,
                                   0x1.ffep127,
                                   0x1.ffdp127,
                                   0x1.ff8p127,
                                   INFINITY,
                                   -INFINITY,
                                   NAN,
                                   DBL_MAX,
                                   DBL_TRUE_MIN,
                                   DBL_MIN,
                                   FLT_MIN,
                                   FLT_TRUE_MIN,
                                   0x1p-150,
                                   0x1.0000001p-150,
                                   0x1p-137,
                                   0x1.8p-136,
                                   0x1.002p0,
                                   0x1.006p0,
                                   0x1.0020000001p0};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        ck_assert_uint_eq(tvm_encode(TVM_F64, edges[i]), f64_code(edges[i]));
        ck_assert_uint_eq(tvm_encode(TVM_F32, edges[i]), f32_code((float)edges[i]));
        ck_assert_uint_eq(tvm_encode(TVM_TF32, edges[i]), tf32_code(edges[i]));
    }
    size_t wrong = 0;
    for (int i = 0; i < 200000; i++) {
        uint64_t word = random_bits();
        double any, near;
        memcpy(&any, &word, sizeof any);
        /* of float's range, with few bits beyond float's, so that ties come up */
        near = ldexp((double)(word >> 38), (int)(word % 300) - 180);
        wrong += tvm_encode(TVM_F64, any) != f64_code(any);
        wrong += tvm_encode(TVM_F32, any) != f32_code((float)any);
        wrong += tvm_encode(TVM_F32, near) != f32_code((float)near);
        near = ldexp((double)(word >> 51), (int)(word % 300) - 170);
        wrong += tvm_encode(TVM_TF32, near) != tf32_code(near);
        wrong += tvm_encode(TVM_TF32, any) != tf32_code(any);
        wrong += !same_number(tvm_decode(TVM_F64, word), any);
        wrong += !same_number(tvm_decode(TVM_F32, (uint32_t)word), (double)f32_value((uint32_t)word));
        wrong +=
            !same_number(tvm_decode(TVM_TF32, (uint32_t)word), reference_value(TVM_TF32, (uint32_t)word));
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* ---- the inline conversions ---- */

START_TEST(sixteen_bits_to_f32) {
    size_t wrong = 0;
    for (unsigned code = 0; code < 65536; code++) {
        wrong += !same_number((double)tvm_f16_to_f32((uint16_t)code), reference_value(TVM_F16, code));
        wrong += !same_number((double)tvm_bf16_to_f32((uint16_t)code), reference_value(TVM_BF16, code));
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* Every boundary of rounding, and the floats and doubles next to it. */
static size_t wrong_inline_at_boundaries(const table *of, uint16_t (*from_f32)(float),
                                         uint16_t (*from_f64)(double)) {
    size_t wrong = 0;
    for (unsigned code = 0; code + 1 < of->count; code++) {
        double half_way = (of->values[code] + of->values[code + 1]) / 2;
        float half_way_f32 = (float)half_way; /* exact: one bit more */
        uint16_t at_tie = (uint16_t)tie(of, code);
        wrong += from_f32((float)of->values[code]) != code;
        wrong += from_f32(half_way_f32) != at_tie;
        wrong += from_f32(-half_way_f32) != (at_tie | 0x8000);
        wrong += from_f32(nextafterf(half_way_f32, 0)) != code;
        wrong += from_f32(nextafterf(half_way_f32, INFINITY)) != code + 1;
        wrong += from_f64(of->values[code]) != code;
        wrong += from_f64(half_way) != at_tie;
        wrong += from_f64(-half_way) != (at_tie | 0x8000);
        wrong += from_f64(nextafter(half_way, 0)) != code;
        wrong += from_f64(nextafter(half_way, INFINITY)) != code + 1;
    }
    return wrong;
}

static size_t wrong_inline_samples(const table *of, uint16_t (*from_f32)(float),
                                   uint16_t (*from_f64)(double)) {
    size_t wrong = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 9973) {
        float value = f32_value((uint32_t)bits);
        wrong += from_f32(value) != search_code(of, (double)value);
    }
    for (int i = 0; i < 200000; i++) {
        uint64_t word = random_bits();
        double value = ldexp((double)(int64_t)word, (int)(word % 330) - 230);
        wrong += from_f64(value) != search_code(of, value);
    }
    const double edges[] = {0.0,        -0.0,           FLT_MAX,   -FLT_MAX, FLT_TRUE_MIN, FLT_MIN,
                            65504,      65519.99609375, 65520,     65536,    0x1.fep127,   0x1.fefffep127,
                            0x1.ffp127, INFINITY,       -INFINITY, NAN,      -NAN};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        wrong += from_f32((float)edges[i]) != search_code(of, edges[i]);
        wrong += from_f64(edges[i]) != search_code(of, edges[i]);
    }
    const double wide[] = {DBL_MAX, -DBL_MAX, DBL_TRUE_MIN,       -DBL_TRUE_MIN,        DBL_MIN,
                           0x1p128, 0x1p-150, 65519.999999999993, 0x1.fefffffffffffp127};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        wrong += from_f64(wide[i]) != search_code(of, wide[i]);
    return wrong;
}

START_TEST(to_sixteen_bits) {
    build_table(&shared_table, TVM_F16);
    ck_assert_uint_eq(shared_table.count, 31744);
    ck_assert_uint_eq(wrong_inline_at_boundaries(&shared_table, tvm_f32_to_f16, tvm_f64_to_f16), 0);
    ck_assert_uint_eq(wrong_inline_samples(&shared_table, tvm_f32_to_f16, tvm_f64_to_f16), 0);
    build_table(&shared_table, TVM_BF16);
    ck_assert_uint_eq(shared_table.count, 32640);
    ck_assert_uint_eq(wrong_inline_at_boundaries(&shared_table, tvm_f32_to_bf16, tvm_f64_to_bf16), 0);
    ck_assert_uint_eq(wrong_inline_samples(&shared_table, tvm_f32_to_bf16, tvm_f64_to_bf16), 0);
    /* Rounded to f32 first, these would become ties, and then round down. */
    ck_assert_uint_eq(tvm_f64_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    ck_assert_uint_eq(tvm_f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    /* Signalling NaNs, and NaNs whose upper mantissa bits are all zero. */
    ck_assert_uint_eq(tvm_f32_to_f16(f32_value(0x7f800001)), 0x7fff);
    ck_assert_uint_eq(tvm_f32_to_f16(f32_value(0xffffffff)), 0x7fff);
    ck_assert_uint_eq(tvm_f32_to_bf16(f32_value(0xff800001)), 0x7fff);
    ck_assert_uint_eq(tvm_f32_to_bf16(f32_value(0x7fffffff)), 0x7fff);
}
END_TEST

/* ---- integers and bool ---- */

START_TEST(decode_integers) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types), seen = 0;
    for (size_t t = 0; t < count; t++) {
        if (!tvm_dtype_is_integer(types[t]) || types[t].bits > 16) continue;
        int64_t range = INT64_C(1) << types[t].bits;
        bool is_signed = types[t].kind == TVM_KIND_INT;
        size_t wrong = 0;
        for (int64_t code = 0; code < range; code++) {
            int64_t value = is_signed && code >= range / 2 ? code - range : code;
            wrong += !same_number(tvm_decode(types[t], (uint64_t)code), (double)value);
            wrong += tvm_encode(types[t], (double)value) != (uint64_t)code;
        }
        ck_assert_uint_eq(wrong, 0);
        seen++;
    }
    ck_assert_uint_eq(seen, 17);
    ck_assert_double_eq(tvm_decode(TVM_I(32), 0x80000000), -2147483648.0);
    ck_assert_double_eq(tvm_decode(TVM_U(32), 0xffffffff), 4294967295.0);
    ck_assert_double_eq(tvm_decode(TVM_I(64), UINT64_MAX), -1);
    ck_assert_double_eq(tvm_decode(TVM_I(64), UINT64_C(1) << 63), -0x1p63);
    ck_assert_double_eq(tvm_decode(TVM_U(64), UINT64_MAX), 0x1p64);
    ck_assert_double_eq(tvm_decode(TVM_U(64), 9007199254740993u), 9007199254740992.0); /* tie to even */
    ck_assert_double_eq(tvm_decode(TVM_I(64), 9007199254740995u), 9007199254740996.0);
    ck_assert_double_eq(tvm_decode(TVM_BOOL, 0), 0);
    ck_assert_double_eq(tvm_decode(TVM_BOOL, 1), 1);
}
END_TEST

/* Ties, ends of the integer types and what lies just beyond them. */
static const double integer_edges[] = {0.0,
                                       -0.0,
                                       0.25,
                                       0.5,
                                       0.75,
                                       1.5,
                                       2.5,
                                       3.5,
                                       -0.25,
                                       -0.5,
                                       -0.75,
                                       -1.5,
                                       -2.5,
                                       -3.5,
                                       127,
                                       127.4,
                                       127.5,
                                       128,
                                       254.5,
                                       255.5,
                                       256,
                                       -128,
                                       -128.5,
                                       -129,
                                       32767.5,
                                       65535.5,
                                       2147483646.5,
                                       2147483647.5,
                                       2147483648.0,
                                       4294967294.5,
                                       4294967295.5,
                                       0x1p53,
                                       0x1p53 + 2,
                                       0x1p62,
                                       0x1.fffffffffffffp62,
                                       0x1p63,
                                       0x1.fffffffffffffp63,
                                       0x1p64,
                                       0x1p65,
                                       0x1p1000,
                                       DBL_MAX,
                                       -0x1p62,
                                       -0x1p63,
                                       -0x1.0000000000001p63,
                                       -0x1p64,
                                       -0x1p1000,
                                       INFINITY,
                                       -INFINITY,
                                       NAN,
                                       DBL_TRUE_MIN,
                                       -DBL_TRUE_MIN,
                                       0x1.fffffffffffffp-2,
                                       0x1.0000000000001p-1,
                                       -2147483648.5,
                                       -2147483649.0};

START_TEST(encode_integers) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types);
    for (size_t t = 0; t < count; t++) {
        if (types[t].kind == TVM_KIND_FLOAT) continue;
        char name[TVM_DTYPE_NAME_MAX];
        for (size_t i = 0; i < sizeof integer_edges / sizeof integer_edges[0]; i++)
            ck_assert_msg(tvm_encode(types[t], integer_edges[i]) ==
                              reference_code(NULL, types[t], integer_edges[i], true),
                          "%a to %s", integer_edges[i], tvm_dtype_name(types[t], name));
    }
    ck_assert_uint_eq(tvm_encode(TVM_U(3), 2.5), 2);
    ck_assert_uint_eq(tvm_encode(TVM_U(3), 9), 7);
    ck_assert_uint_eq(tvm_encode(TVM_I(3), -9), 4);
    ck_assert_uint_eq(tvm_encode(TVM_BOOL, NAN), 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("convert");
    TCase *tests = tcase_create("convert");
    tcase_add_test(tests, decode_every_code);
    tcase_add_test(tests, well_known_values);
    tcase_add_test(tests, encode_floats);
    tcase_add_test(tests, encode_wide_floats);
    tcase_add_test(tests, sixteen_bits_to_f32);
    tcase_add_test(tests, to_sixteen_bits);
    tcase_add_test(tests, decode_integers);
    tcase_add_test(tests, encode_integers);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
