/* The interpreter: casts between all types, and views, which read the bits of registers as another type. */
#include "interp_case.h"
#include "suite_kit.h"

#include <float.h>

/* ---- casts ---- */

/* The number of a low-bit code, from the definitions of the types. */
static double lowbit_value(tvm_dtype type, unsigned code) {
    if (type.kind == TVM_KIND_UINT) return code;
    if (type.kind == TVM_KIND_INT) return code >> (type.bits - 1) ? (double)code - (1 << type.bits) : code;
    bool e4m3 = type.bits == 8 && type.exponent == 4, e5m2 = type.bits == 8 && type.exponent == 5;
    if (e4m3 && (code & 0x7f) == 0x7f) return (double)NAN;
    return float_value(type.exponent, type.mantissa, e5m2, code);
}

/* The nearest finite code, ties to the even one, by trying them all; zeros keep the sign. */
static unsigned lowbit_code(tvm_dtype type, double x) {
    unsigned best = 0;
    double distance = (double)INFINITY;
    bool floating = type.kind == TVM_KIND_FLOAT;
    bool has_nan = type.bits == 8 && (type.exponent == 4 || type.exponent == 5);
    if (isnan(x)) return !floating ? 0 : has_nan ? 0x7f : (1u << (type.bits - 1)) - 1;
    double least_value = 0, most_value = 0;
    for (unsigned code = 0; code < 1u << type.bits; code++) {
        double number = lowbit_value(type, code);
        if (number <= DBL_MAX && number > most_value) most_value = number;
        if (number >= -DBL_MAX && number < least_value) least_value = number;
    }
    x = x > most_value ? most_value : x < least_value ? least_value : x;
    for (unsigned code = 0; code < 1u << type.bits; code++) {
        double away = fabs(x - lowbit_value(type, code));
        if (!(away <= DBL_MAX)) continue; /* a NaN or an infinity */
        /* One digit is odd in every number but zero: IEEE 754 then takes the larger magnitude. */
        bool digit = floating && type.mantissa == 0 && lowbit_value(type, best) != 0;
        bool wins = digit ? fabs(lowbit_value(type, code)) > fabs(lowbit_value(type, best)) : code % 2 == 0;
        if (away < distance || (away == distance && wins)) best = code, distance = away;
    }
    if (floating && lowbit_value(type, best) == 0) best = signbit(x) ? 1u << (type.bits - 1) : 0;
    return best;
}

static void run_cast(const char *mnemonic, const char *from, const char *to, int n, void *a, void *c) {
    char text[512];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel k(n: i32, a: global %s[n], c: global %s[n])\n.warps 1\n.grid cdiv(n, 256)\n"
             "    %%x = load-global a[block.x * 256], spatial(32).local(8)\n    %%y = %s %%x, %s\n"
             "    store-global c[block.x * 256], %%y\n.end\n",
             from, to, mnemonic, to);
    run(text, VALUES(INT("n", n), TENSOR("a", a), TENSOR("c", c)));
}

START_TEST(every_lowbit_code_widens) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), seen = 0;
    for (size_t t = 0; t < count; t++) {
        char name[TVM_DTYPE_NAME_MAX];
        uint8_t a[256] = {0};
        float wide[256];
        uint16_t half[256];
        if (!tvm_dtype_is_lowbit(types[t])) continue;
        int n = types[t].bits < 3 ? 8 : 1 << types[t].bits;
        for (int i = 0; i < n; i++) bit_string_set(a, (size_t)i, types[t].bits, (uint64_t)i);
        tvm_dtype_name(types[t], name);
        run_cast("cast-lowbit", name, "f32", n, a, wide);
        run_cast("cast-lowbit", name, "f16", n, a, half);
        for (int i = 0; i < n; i++) {
            double want = lowbit_value(types[t], (unsigned)i & ((1u << types[t].bits) - 1));
            float rounded = (float)want;
            if (isnan(want))
                ck_assert(isnan(wide[i]) && (half[i] & 0x7fff) > 0x7c00);
            else {
                ck_assert_msg(memcmp(&wide[i], &rounded, 4) == 0, "%s %d: %a, want %a", name, i,
                              (double)wide[i], want);
                ck_assert_uint_eq(half[i], f16_code(want));
            }
        }
        seen++;
    }
    ck_assert_uint_ge(seen, 8 + 7 + 21);
}
END_TEST

START_TEST(floats_narrow_to_the_nearest_lowbit_code) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    enum { MOST = 256 * 6 };
    static float x[MOST];
    static uint8_t c[MOST];
    for (size_t t = 0; t < count; t++) {
        char name[TVM_DTYPE_NAME_MAX];
        int n = 0;
        if (!tvm_dtype_is_lowbit(types[t])) continue;
        for (unsigned code = 0; code < 1u << types[t].bits; code++) {
            double value = lowbit_value(types[t], code),
                   next = lowbit_value(types[t], (code + 1) & ((1u << types[t].bits) - 1));
            x[n++] = (float)value;
            x[n++] = (float)((value + next) / 2);
            x[n++] = (float)(value * 0.75 + next * 0.25);
            x[n++] = (float)(value * 1.0001);
        }
        x[n++] = 1e9f, x[n++] = -1e9f, x[n++] = INFINITY, x[n++] = -INFINITY, x[n++] = NAN;
        while (n % 8) x[n++] = 0.5f;
        tvm_dtype_name(types[t], name);
        memset(c, 0, sizeof c);
        run_cast("cast-lowbit", "f32", name, n, x, c);
        for (int i = 0; i < n; i++) {
            unsigned want = lowbit_code(types[t], x[i]);
            unsigned got = (unsigned)bit_string_get(c, (size_t)i, types[t].bits);
            ck_assert_msg(got == want, "%s of %a: got %x, want %x", name, (double)x[i], got, want);
        }
    }
}
END_TEST

START_TEST(casts_between_standard_types) {
    static const double cases[8] = {0, -1.5, 2.5, 1e10, -1e10, 255.9, -0.4, 70000};
    float f[8], back[8];
    int32_t i32[8];
    int8_t i8[8];
    uint8_t b[8];
    uint16_t half[8], brain[8];
    double d[8];
    for (int i = 0; i < 8; i++) f[i] = (float)cases[i];
    run_cast("cast", "f32", "i32", 8, f, i32);
    run_cast("cast", "f32", "i8", 8, f, i8);
    run_cast("cast", "f32", "bool", 8, f, b);
    run_cast("cast", "f32", "f16", 8, f, half);
    run_cast("cast", "f32", "bf16", 8, f, brain);
    run_cast("cast", "f16", "f32", 8, half, back);
    run_cast("cast", "bf16", "f64", 8, brain, d);
    for (int i = 0; i < 8; i++) {
        double t = trunc(cases[i]);
        ck_assert_int_eq(i32[i], t > 2147483647.0 ? 2147483647 : t < -2147483648.0 ? INT32_MIN : (int32_t)t);
        ck_assert_int_eq(i8[i], t > 127 ? 127 : t < -128 ? -128 : (int)t);
        ck_assert_uint_eq(b[i], cases[i] != 0);
        ck_assert_uint_eq(half[i], f16_code(f[i]));
        ck_assert_uint_eq(brain[i], bf16_code(f[i]));
        ck_assert_float_eq(back[i], (float)f16_value(half[i]));
        ck_assert_double_eq(d[i], bf16_value(brain[i]));
    }
    run_cast("cast", "i32", "u8", 8, i32, b);
    run_cast("cast", "i8", "f32", 8, i8, back);
    for (int i = 0; i < 8; i++) ck_assert_uint_eq(b[i], (uint8_t)(uint32_t)i32[i]);
    for (int i = 0; i < 8; i++) ck_assert_float_eq(back[i], i8[i]);
}
END_TEST

/* ---- views ---- */

/* Each thread's bits, by the layouts' functions alone: element (t, l) of `to` is bits [l*w, l*w + w) of
 * thread t. */
static void check_view(const char *from, const char *from_layout, const char *to, const char *to_layout) {
    char text[1024], codes[96];
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(to, strlen(to), &type));
    /* What is not whole bytes is stored as its codes. */
    bool whole = type.bits >= 8;
    if (whole)
        snprintf(codes, sizeof codes, "view %%y, %s, B", to);
    else
        snprintf(codes, sizeof codes, "view %%y, u%u, B\n    %%w = cast-lowbit %%w0, u8", type.bits);
    snprintf(
        text, sizeof text,
        ".vasm 1\n.layout A = %s\n.layout B = %s\n"
        ".kernel k(a: global %s[extent(A, 0), extent(A, 1)], c: global %s[extent(B, 0), extent(B, 1)])\n.warps 1\n"
        "    %%x = load-global a[0, 0], A\n    %%y = view %%x, %s, B\n"
        "    %%%s = %s\n    store-global c[0, 0], %%w\n.end\n",
        from_layout, to_layout, from, whole ? to : "u8", to, whole ? "w" : "w0", codes);
    static uint8_t a[1 << 14], c[1 << 14];
    uint32_t state = 9;
    for (size_t i = 0; i < sizeof a; i++) a[i] = (uint8_t)next_random(&state);
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 1, VALUES(TENSOR("a", a), TENSOR("c", c)));
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    free(out.output);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    const tvm_slot *source = &kernel->slots[kernel->insns[0].result],
                   *result = &kernel->slots[kernel->insns[1].result];
    const tvm_layout *A = &program->layouts[source->layout], *B = &program->layouts[result->layout];
    unsigned from_bits = source->dtype.bits, to_bits = result->dtype.bits;
    for (uint32_t t = 0; t < tvm_layout_threads(B); t++)
        for (uint32_t l = 0; l < tvm_layout_locals(B); l++)
            for (unsigned bit = 0; bit < to_bits; bit++) {
                unsigned at = l * to_bits + bit;
                uint32_t element = tvm_layout_element(A, t, at / from_bits);
                uint64_t want = bit_string_get(a, element, from_bits) >> at % from_bits & 1;
                uint64_t got =
                    bit_string_get(c, tvm_layout_element(B, t, l), to_bits < 8 ? 8 : to_bits) >> bit & 1;
                ck_assert_msg(got == want, "%s %s to %s %s: thread %u local %u bit %u", from, from_layout, to,
                              to_layout, t, l, bit);
            }
    tvm_ir_program_free(program);
}

START_TEST(views_read_the_bits_of_each_thread) {
    static const char mma_b[] = "local(2, 4).mma.m16n8k16.B"; /* 32 locals */
    check_view("u8", "spatial(32, 1).local(1, 12)", "u3", mma_b);
    check_view("u8", "spatial(1, 1).local(3, 1).spatial(1, 32).local(1, 4)", "u3", mma_b);
    check_view("u8", "column_local(4, 3).column_spatial(8, 4)", "u3", mma_b);
    check_view("u8", "spatial(32, 1).local(1, 16)", "u4", mma_b);
    check_view("u8", "spatial(32, 1).local(1, 20)", "f5_e2m2", mma_b);
    check_view("u8", "spatial(32, 1).local(1, 28)", "i7", mma_b);
    check_view("u8", "spatial(32, 1).local(1, 4)", "u1", mma_b);
    check_view("u3", "spatial(8, 4).local(1, 8)", "u8", "spatial(32, 1).local(1, 3)");
    check_view("f6_e3m2", "column_spatial(8, 4).local(1, 4)", "u8", "local(3, 1).spatial(4, 8)");
    check_view("u4", "spatial(8, 4).local(1, 8)", "i2", "spatial(4, 8).local(2, 8)");
    check_view("f32", "local(2, 2).spatial(8, 4)", "f16", "spatial(8, 4).local(2, 4)");
    check_view("f16", "column_spatial(8, 4).column_local(2, 4)", "f64", "spatial(8, 4).local(2, 1)");
    check_view("u64", "spatial(8, 4).local(1, 3)", "u3", "spatial(4, 8).local(8, 8)");
    check_view("i16", "replicated(4, 2).spatial(8, 1).local(1, 8)", "i16",
               "replicated(4, 2).spatial(1, 8).local(8, 1)");
}
END_TEST

/* By way of packed elements of `by`, whose bits are those of the bytes, to packed elements of `to`. */
static void check_packed_view(const char *by, unsigned by_locals, const char *to, unsigned to_locals) {
    char text[1024];
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(to, strlen(to), &type));
    unsigned bytes = to_locals * type.bits / 8;
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel k(a: global u8[32, %u], c: global i8[32, %u])\n.warps 1\n"
             "    %%x = load-global a[0, 0], column_local(1, 2).spatial(4, 8).local(8, %u)\n"
             "    %%y = view %%x, %s, spatial(32, 1).local(1, %u), packing pair\n"
             "    %%z = view %%y, %s, spatial(32, 1).local(1, %u), packing pair\n"
             "    %%c = cast-lowbit %%z, i8\n    store-global c[0, 0], %%c\n.end\n",
             bytes, to_locals, bytes / 16, by, by_locals, to, to_locals);
    static uint8_t a[1 << 13], c[1 << 13];
    uint32_t state = 9;
    for (size_t i = 0; i < sizeof a; i++) a[i] = (uint8_t)next_random(&state);
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 1, VALUES(TENSOR("a", a), TENSOR("c", c)));
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    free(out.output);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    const tvm_layout *A = &program->layouts[kernel->slots[kernel->insns[0].result].layout];
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t l = 0; l < to_locals; l++)
            for (unsigned bit = 0; bit < type.bits; bit++) {
                uint32_t at = tvm_packing_bit(TVM_PACKING_PAIR, type, l, bit);
                unsigned want = a[tvm_layout_element(A, t, at / 8)] >> at % 8 & 1;
                want ^= tvm_packing_complement(TVM_PACKING_PAIR, type) >> bit & 1;
                ck_assert_msg((c[t * to_locals + l] >> bit & 1u) == want,
                              "%s to %s: thread %u local %u bit %u", by, to, t, l, bit);
            }
    tvm_ir_program_free(program);
}

START_TEST(views_of_packed_elements_keep_their_bits) {
    check_packed_view("u4", 64, "u2", 128);
    check_packed_view("u4", 128, "i4", 128);
    check_packed_view("i4", 192, "i3", 256);
    check_packed_view("i3", 256, "u6", 128);
    check_packed_view("f6_e3m2", 128, "i3", 256);
    check_packed_view("i5", 256, "u5", 256);
    check_packed_view("u7", 256, "i7", 256);
    check_packed_view("f8_e4m3", 128, "i8", 128);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interp_convert");
    TCase *tests = tcase_create("interp_convert");
    tcase_add_test(tests, every_lowbit_code_widens);
    tcase_add_test(tests, floats_narrow_to_the_nearest_lowbit_code);
    tcase_add_test(tests, casts_between_standard_types);
    tcase_add_test(tests, views_read_the_bits_of_each_thread);
    tcase_add_test(tests, views_of_packed_elements_keep_their_bits);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
