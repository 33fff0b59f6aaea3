/* Casts between every two types, against tables of all values of a type (convert_reference.h). */
#include "convert_reference.h"

/* How the cast of an exactly known value is defined, for sources of which every code is an exact double. */
static uint64_t reference_cast(const table *of, tvm_dtype to, tvm_dtype from, double value, bool lowbit) {
    bool narrow = to.bits < 8 || (to.bits == 8 && lowbit);
    bool to_integer = to.kind == TVM_KIND_INT || to.kind == TVM_KIND_UINT;
    if (to_integer && from.kind != TVM_KIND_FLOAT && !narrow)
        return to.bits == 64 ? (uint64_t)(int64_t)value : (uint64_t)(int64_t)value % (UINT64_C(1) << to.bits);
    return reference_code(of, to, value, narrow);
}

static double source_value(tvm_dtype from, uint64_t code) {
    if (from.kind == TVM_KIND_FLOAT) return reference_value(from, code);
    if (from.kind == TVM_KIND_INT && code >> (from.bits - 1)) return (double)code - ldexp(1, from.bits);
    return (double)code;
}

static size_t wrong_casts(const table *of, tvm_dtype to, tvm_dtype from) {
    uint64_t codes = from.kind == TVM_KIND_BOOL ? 2 : UINT64_C(1) << from.bits;
    uint64_t step = from.bits == 16 ? 7 : 1;
    size_t wrong = 0;
    for (uint64_t code = 0; code < codes; code += step) {
        double value = source_value(from, code);
        if (tvm_dtype_same(to, from) &&
            tvm_dtype_is_lowbit(to)) { /* repacking keeps a NaN's sign and payload */
            wrong += tvm_cast(to, from, code, false) != code || tvm_cast(to, from, code, true) != code;
            continue;
        }
        wrong += tvm_cast(to, from, code, false) != reference_cast(of, to, from, value, false);
        wrong += tvm_cast(to, from, code, true) != reference_cast(of, to, from, value, true);
    }
    return wrong;
}

/* Every pair of types whose source has at most 16 bits. */
START_TEST(cast_from_narrow_types) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types);
    for (size_t t = 0; t < count; t++) {
        if (has_table(types[t])) build_table(&shared_table, types[t]);
        for (size_t f = 0; f < count; f++) {
            if (types[f].bits > 16) continue;
            char to[TVM_DTYPE_NAME_MAX], from[TVM_DTYPE_NAME_MAX];
            size_t wrong = wrong_casts(&shared_table, types[t], types[f]);
            ck_assert_msg(wrong == 0, "%zu codes of %s to %s", wrong, tvm_dtype_name(types[f], from),
                          tvm_dtype_name(types[t], to));
        }
    }
}
END_TEST

/* From f32, f64 and 32-bit integers to every type: values near the ends and half-way values of small types.
 */
START_TEST(cast_from_wide_types) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = all_types(types);
    for (size_t t = 0; t < count; t++) {
        if (has_table(types[t])) build_table(&shared_table, types[t]);
        size_t wrong = 0;
        for (int i = 0; i < 4000; i++) {
            uint64_t word = random_bits();
            double wide = i % 9 ? ldexp((double)(int64_t)word, (int)(word % 150) - 130) : NAN;
            if (i % 10 == 1) wide = copysign(INFINITY, wide);
            if (i % 5 == 0) wide = ldexp(rint(ldexp((double)(int64_t)word, -56)), -1 - i % 3);
            double narrow = (double)(float)wide;
            uint32_t code = (uint32_t)(word >> (word % 32));
            bool lowbit = i % 2;
            const table *of = &shared_table;
            wrong += tvm_cast(types[t], TVM_F64, f64_code(wide), lowbit) !=
                     reference_cast(of, types[t], TVM_F64, wide, lowbit);
            wrong += tvm_cast(types[t], TVM_F32, f32_code((float)narrow), lowbit) !=
                     reference_cast(of, types[t], TVM_F32, narrow, lowbit);
            wrong += tvm_cast(types[t], TVM_U(32), code, lowbit) !=
                     reference_cast(of, types[t], TVM_U(32), code, lowbit);
            wrong += tvm_cast(types[t], TVM_I(32), code, lowbit) !=
                     reference_cast(of, types[t], TVM_I(32), (double)(int32_t)code, lowbit);
        }
        char name[TVM_DTYPE_NAME_MAX];
        ck_assert_msg(wrong == 0, "%zu to %s", wrong, tvm_dtype_name(types[t], name));
    }
}
END_TEST

/* 64-bit integers, of which a double does not hold all bits: one rounding. */
START_TEST(cast_from_64_bits) {
    size_t wrong = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t code = random_bits() >> (i % 64);
        if (i % 3 == 0) code &= UINT64_MAX << (i % 50); /* ties */
        int64_t value = (int64_t)code;
        wrong += tvm_cast(TVM_F32, TVM_U(64), code, false) != f32_code((float)code);
        wrong += tvm_cast(TVM_F32, TVM_I(64), code, false) != f32_code((float)value);
        wrong += tvm_cast(TVM_F64, TVM_U(64), code, false) != f64_code((double)code);
        wrong += tvm_cast(TVM_F64, TVM_I(64), code, false) != f64_code((double)value);
        wrong += tvm_cast(TVM_I(32), TVM_I(64), code, false) != (uint32_t)code;
        wrong += tvm_cast(TVM_U(16), TVM_I(64), code, false) != (uint16_t)code;
        wrong += tvm_cast(TVM_I(64), TVM_U(64), code, false) != code;
        wrong += tvm_cast(TVM_U(4), TVM_U(64), code, true) != (code > 15 ? 15 : code);
        wrong += tvm_cast(TVM_I(8), TVM_I(64), code, true) != (uint8_t)(value > 127    ? 127
                                                                        : value < -128 ? -128
                                                                                       : value);
        wrong += tvm_cast(TVM_BOOL, TVM_U(64), code, false) != (code != 0);
    }
    ck_assert_uint_eq(wrong, 0);
    /* Half-way between two bf16 and one more: rounding to double first would lose the one and go to even. */
    ck_assert_uint_eq(tvm_cast(TVM_BF16, TVM_U(64), (UINT64_C(1) << 62) + (UINT64_C(1) << 54), false),
                      0x5e80);
    ck_assert_uint_eq(tvm_cast(TVM_BF16, TVM_U(64), (UINT64_C(1) << 62) + (UINT64_C(1) << 54) + 1, false),
                      0x5e81);
    ck_assert_uint_eq(tvm_cast(TVM_TF32, TVM_I(64), (UINT64_C(1) << 62) + (UINT64_C(1) << 51) + 1, false),
                      0x5e802000);
    ck_assert_uint_eq(tvm_cast(TVM_F16, TVM_I(64), 65519, false), 0x7bff);
    ck_assert_uint_eq(tvm_cast(TVM_F16, TVM_I(64), 65520, false), 0x7c00);
    ck_assert_uint_eq(tvm_cast(TVM_F16, TVM_I(64), (uint64_t)INT64_C(-65520), false), 0xfc00);
    ck_assert_uint_eq(tvm_cast(TVM_FLOAT(4, 2, 1), TVM_U(64), UINT64_MAX, true), 7);
}
END_TEST

/* The edges that the definition of cast names, by hand. */
START_TEST(cast_examples) {
    static const struct {
        tvm_dtype to, from;
        uint64_t code;
        bool lowbit;
        uint64_t expected;
    } cases[] = {
        {{TVM_KIND_INT, 8, 0, 0}, {TVM_KIND_INT, 32, 0, 0}, 0x181, false, 0x81},       /* 385 wraps */
        {{TVM_KIND_INT, 8, 0, 0}, {TVM_KIND_INT, 32, 0, 0}, 0x181, true, 0x7f},        /* or saturates */
        {{TVM_KIND_UINT, 8, 0, 0}, {TVM_KIND_INT, 32, 0, 0}, 0xffffffff, false, 0xff}, /* -1 */
        {{TVM_KIND_UINT, 8, 0, 0}, {TVM_KIND_INT, 32, 0, 0}, 0xffffffff, true, 0},
        {{TVM_KIND_INT, 64, 0, 0}, {TVM_KIND_INT, 3, 0, 0}, 4, false, UINT64_MAX - 3}, /* -4 */
        {{TVM_KIND_UINT, 64, 0, 0}, {TVM_KIND_INT, 8, 0, 0}, 0xff, false, UINT64_MAX},
        {{TVM_KIND_UINT, 3, 0, 0}, {TVM_KIND_INT, 8, 0, 0}, 0xff, false, 0}, /* low-bit: saturates */
        {{TVM_KIND_INT, 2, 0, 0}, {TVM_KIND_BOOL, 8, 0, 0}, 1, false, 1},
        {{TVM_KIND_INT, 32, 0, 0}, {TVM_KIND_BOOL, 8, 0, 0}, 0xff, false, 1}, /* any bits but zero are true */
        {{TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_BOOL, 8, 0, 0}, 2, false, 0x3c00},
        {{TVM_KIND_INT, 32, 0, 0},
         {TVM_KIND_FLOAT, 32, 8, 23},
         0xc0200000,
         false,
         0xfffffffe},                                                                 /* -2.5 -> -2 */
        {{TVM_KIND_INT, 8, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x40600000, false, 3}, /* 3.5 */
        {{TVM_KIND_INT, 8, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x40600000, true, 4},
        {{TVM_KIND_UINT, 4, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x40200000, false, 2}, /* 2.5 */
        {{TVM_KIND_UINT, 32, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x7f800000, false, 0xffffffff},
        {{TVM_KIND_INT, 64, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x7fc00000, false, 0}, /* NaN */
        {{TVM_KIND_INT, 64, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0xff800000, false, UINT64_C(1) << 63},
        {{TVM_KIND_BOOL, 8, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x7fc00000, false, 1},
        {{TVM_KIND_BOOL, 8, 0, 0}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x80000000, false, 0}, /* -0 */
        {{TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_FLOAT, 8, 4, 3}, 0xff, true, 0x7fff},  /* NaN */
        {{TVM_KIND_FLOAT, 8, 4, 3}, {TVM_KIND_FLOAT, 16, 5, 10}, 0xfc00, true, 0xfe},  /* -infinity -> -448 */
        {{TVM_KIND_FLOAT, 8, 5, 2}, {TVM_KIND_FLOAT, 16, 5, 10}, 0x7c00, true, 0x7b},
        {{TVM_KIND_FLOAT, 4, 2, 1}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x7fc00000, true, 7}, /* NaN -> 6 */
        {{TVM_KIND_FLOAT, 4, 2, 1}, {TVM_KIND_FLOAT, 32, 8, 23}, 0x80000000, true, 8}, /* -0 */
        {{TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_FLOAT, 8, 7, 0}, 0x7f, true, 0x7c00},  /* 2^64 */
        {{TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_UINT, 8, 0, 0}, 255, false, 0x5bf8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t result = tvm_cast(cases[i].to, cases[i].from, cases[i].code, cases[i].lowbit);
        ck_assert_msg(result == cases[i].expected, "case %zu: %llx", i, (unsigned long long)result);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("casts");
    TCase *tests = tcase_create("casts");
    tcase_add_test(tests, cast_from_narrow_types);
    tcase_add_test(tests, cast_from_wide_types);
    tcase_add_test(tests, cast_from_64_bits);
    tcase_add_test(tests, cast_examples);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
