/* The interpreter: what is computed on register tensors, against loops over plain numbers. */
#include "interp_case.h"
#include "suite_kit.h"

#include <float.h>

/* ---- element-wise ---- */

/* A type by name with the numbers of its codes, computed here. */
typedef struct number_type {
    const char *name;
    unsigned bytes;
    char class; /* i u h b f d */
} number_type;

static const number_type number_types[] = {
    {"i8", 1, 'i'},  {"i16", 2, 'i'}, {"i32", 4, 'i'}, {"i64", 8, 'i'},  {"u8", 1, 'u'},  {"u16", 2, 'u'},
    {"u32", 4, 'u'}, {"u64", 8, 'u'}, {"f16", 2, 'h'}, {"bf16", 2, 'b'}, {"f32", 4, 'f'}, {"f64", 8, 'd'}};
enum { TYPES = sizeof number_types / sizeof *number_types, N = 512 };

static uint64_t load_code(const number_type *type, const void *array, size_t i) {
    uint64_t code = 0;
    memcpy(&code, (const char *)array + i * type->bytes, type->bytes);
    return code;
}

static long double number(const number_type *type, uint64_t code) {
    unsigned unused = 64 - 8 * type->bytes;
    float single;
    double twice;
    switch (type->class) {
    case 'i':
        return (long double)((int64_t)(code << unused) >> unused);
    case 'u':
        return (long double)code;
    case 'h':
        return f16_value((uint16_t)code);
    case 'b':
        return bf16_value((uint16_t)code);
    case 'f':
        memcpy(&single, &code, sizeof single);
        return single;
    default:
        memcpy(&twice, &code, sizeof twice);
        return twice;
    }
}

/* Code of a result that was computed exactly (or to 64 digits): integers wrap, floats are rounded. */
static uint64_t code_of(const number_type *type, long double x) {
    float single = (float)x;
    double twice = (double)x;
    uint64_t code = 0;
    switch (type->class) {
    case 'h':
        return f16_code(x);
    case 'b':
        return bf16_code(x);
    case 'f':
        memcpy(&code, &single, sizeof single);
        return code;
    case 'd':
        memcpy(&code, &twice, sizeof twice);
        return code;
    default:
        code = x < 0 ? -(uint64_t)-x : (uint64_t)x;
        return code & (UINT64_MAX >> (64 - 8 * type->bytes));
    }
}

static bool is_integer(const number_type *type) {
    return type->class == 'i' || type->class == 'u';
}

/* Integers small enough that long double holds every result, and the extremes; floats of every kind. */
static void fill(const number_type *type, void *array, uint32_t *state) {
    for (size_t i = 0; i < N; i++) {
        uint64_t code = (uint64_t)next_random(state) << 32 | next_random(state);
        if (type->class == 'f' && i % 4)
            code = code_of(type, ldexpl((long double)(int32_t)code, (int)(i % 40) - 40));
        if (type->class == 'd') code = code_of(type, ldexpl((long double)(int32_t)code, (int)(i % 40) - 40));
        if (is_integer(type) && type->bytes == 8)
            code = (uint64_t)((int64_t)code >> 34) & (type->class == 'i' ? UINT64_MAX : 0xffffffffu);
        if (i < 8)
            code =
                (uint64_t)((i & 1) | (i & 2 ? ~0ull << 1 : 0) | (i & 4 ? 1ull << (8 * type->bytes - 1) : 0));
        if (i < 8 && is_integer(type) && type->bytes == 8) code = i - (type->class == 'i' ? 4 : 0);
        memcpy((char *)array + i * type->bytes, &code, type->bytes);
    }
}

/* Equal, where any NaN is as good as another. */
static bool same(const number_type *type, uint64_t a, uint64_t b) {
    if (a == b) return true;
    return !is_integer(type) && isnan(number(type, a)) && isnan(number(type, b));
}

static long double least(long double a, long double b) {
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}

static long double reference(const char *operation, const number_type *type, long double a, long double b) {
    bool whole = is_integer(type);
    if (strcmp(operation, "add") == 0) return a + b;
    if (strcmp(operation, "sub") == 0) return a - b;
    if (strcmp(operation, "mul") == 0) return a * b;
    if (strcmp(operation, "min") == 0) return least(a, b);
    if (strcmp(operation, "max") == 0) return -least(-a, -b);
    if (strcmp(operation, "mod") == 0) return b == 0 ? a : fmodl(a, b);
    return !whole ? a / b : b == 0 ? -1 : truncl(a / b);
}

/* x87 rounds twice when a result of 64 digits becomes a double: leave f64 to the operations that are exact
 * there. */
static bool reference_is_exact(const char *operation, const number_type *type) {
    return type->class != 'd' || strcmp(operation, "min") == 0 || strcmp(operation, "max") == 0;
}

START_TEST(binary_operations_in_every_type) {
    static const char *const operations[] = {"add", "sub", "mul", "div", "mod", "min", "max"};
    static uint64_t a[N], b[N], c[N];
    uint32_t state = 1;
    for (size_t t = 0; t < TYPES; t++)
        for (size_t o = 0; o < 7; o++) {
            const number_type *type = &number_types[t];
            if (strcmp(operations[o], "mod") == 0 && !is_integer(type)) continue;
            char text[512];
            snprintf(text, sizeof text,
                     ".vasm 1\n.kernel k(a: global %s[512], b: global %s[512], c: global %s[512])\n.warps 1\n"
                     "    %%x = load-global a[0], auto(512)\n    %%y = load-global b[0], auto(512)\n"
                     "    %%x = %s %%x, %%y\n    store-global c[0], %%x\n.end\n",
                     type->name, type->name, type->name, operations[o]);
            fill(type, a, &state);
            fill(type, b, &state);
            run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c)));
            for (size_t i = 0; i < N; i++) {
                long double x = number(type, load_code(type, a, i)), y = number(type, load_code(type, b, i));
                uint64_t want = code_of(type, reference(operations[o], type, x, y));
                double dx = (double)x, dy = (double)y, exact[] = {dx + dy, dx - dy, dx * dy, dx / dy};
                if (!reference_is_exact(operations[o], type)) memcpy(&want, &exact[o], sizeof want);
                uint64_t got = load_code(type, c, i);
                ck_assert_msg(same(type, got, want), "%s %s %La, %La: got %llx, want %llx", operations[o],
                              type->name, x, y, (unsigned long long)got, (unsigned long long)want);
            }
        }
}
END_TEST

START_TEST(comparisons_and_where_in_every_type) {
    static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    static uint64_t a[N], b[N], c[N];
    static uint8_t d[N];
    uint32_t state = 2;
    for (size_t t = 0; t < TYPES; t++)
        for (size_t o = 0; o < 6; o++) {
            const number_type *type = &number_types[t];
            char text[640];
            snprintf(
                text, sizeof text,
                ".vasm 1\n.kernel k(a: global %s[512], b: global %s[512], c: global %s[512], d: global bool[512])\n"
                ".warps 1\n    %%x = load-global a[0], auto(512)\n    %%y = load-global b[0], auto(512)\n"
                "    %%m = compare %s %%x, %%y\n    %%z = where %%m, %%y, 3\n"
                "    store-global c[0], %%z\n    store-global d[0], %%m\n.end\n",
                type->name, type->name, type->name, names[o]);
            fill(type, a, &state);
            fill(type, b, &state);
            for (size_t i = 0; i < N; i += 5)
                memcpy((char *)b + i * type->bytes, (char *)a + i * type->bytes, type->bytes);
            run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c), TENSOR("d", d)));
            for (size_t i = 0; i < N; i++) {
                long double x = number(type, load_code(type, a, i)), y = number(type, load_code(type, b, i));
                bool holds[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
                ck_assert_uint_eq(d[i], holds[o]);
                ck_assert(
                    same(type, load_code(type, c, i), holds[o] ? load_code(type, b, i) : code_of(type, 3)));
            }
        }
}
END_TEST

START_TEST(neg_and_exp) {
    static uint64_t a[N], b[N], c[N];
    uint32_t state = 3;
    for (size_t t = 0; t < TYPES; t++) {
        const number_type *type = &number_types[t];
        bool exponential = type->class == 'h' || type->class == 'b' || type->class == 'f';
        char text[512];
        if (type->class == 'u') continue;
        snprintf(text, sizeof text,
                 ".vasm 1\n.kernel k(a: global %s[512], b: global %s[512], c: global %s[512])\n.warps 1\n"
                 "    %%x = load-global a[0], auto(512)\n    %%y = neg %%x\n    store-global b[0], %%y\n"
                 "    %%z = %s %%x\n    store-global c[0], %%z\n.end\n",
                 type->name, type->name, type->name, exponential ? "exp" : "neg");
        fill(type, a, &state);
        run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c)));
        for (size_t i = 0; i < N; i++) {
            long double x = number(type, load_code(type, a, i));
            ck_assert(same(type, load_code(type, b, i), code_of(type, -x)));
            if (exponential) ck_assert(same(type, load_code(type, c, i), code_of(type, expl(x))));
        }
    }
}
END_TEST

/* The exact x*y + z of f16 as an integer of units of 2^-48, rounded by looking for the nearest code. */
static uint16_t f16_fma(uint16_t x, uint16_t y, uint16_t z) {
    __int128 exact = (__int128)(int64_t)ldexp(f16_value(x), 24) * (int64_t)ldexp(f16_value(y), 24) +
                     (__int128)(int64_t)ldexp(f16_value(z), 24) * (1 << 24);
    __int128 magnitude = exact < 0 ? -exact : exact;
    unsigned low = 0,
             high = 0x7c00; /* the largest code that is not above the value; 0x7c00 stands for 2^16 */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        __int128 at = (__int128)(int64_t)ldexp(f16_value((uint16_t)middle), 24) * (1 << 24);
        if (at <= magnitude)
            low = middle;
        else
            high = middle;
    }
    __int128 below = (__int128)(int64_t)ldexp(f16_value((uint16_t)low), 24) * (1 << 24);
    __int128 above = low == 0x7bff ? (__int128)1 << 64
                                   : (__int128)(int64_t)ldexp(f16_value((uint16_t)(low + 1)), 24) * (1 << 24);
    __int128 twice = 2 * magnitude, middle = below + above;
    unsigned code = twice < middle || (twice == middle && low % 2 == 0) ? low : low + 1;
    return (uint16_t)(code | (exact < 0 ? 0x8000 : 0));
}

static const char fma_text[] =
    ".vasm 1\n"
    ".kernel k(a: global %s[512], b: global %s[512], c: global %s[512], d: global %s[512])\n"
    ".warps 1\n"
    "    %%x = load-global a[0], auto(512)\n"
    "    %%y = load-global b[0], auto(512)\n"
    "    %%z = load-global c[0], auto(512)\n"
    "    %%r = fma %%x, %%y, %%z\n"
    "    store-global d[0], %%r\n"
    ".end\n";

static void run_fma(const char *type, void *a, void *b, void *c, void *d) {
    char text[640];
    snprintf(text, sizeof text, fma_text, type, type, type, type);
    run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c), TENSOR("d", d)));
}

START_TEST(fma_rounds_once_in_f16) {
    uint16_t a[N], b[N], c[N], d[N];
    uint32_t state = 4;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < N; i++) {
            a[i] = (uint16_t)next_random(&state);
            b[i] = (uint16_t)next_random(&state);
            c[i] = (uint16_t)next_random(&state);
            if ((a[i] & 0x7c00) == 0x7c00) a[i] ^= 0x4000;
            if ((b[i] & 0x7c00) == 0x7c00) b[i] ^= 0x4000;
            if ((c[i] & 0x7c00) == 0x7c00) c[i] ^= 0x4000;
        }
        run_fma("f16", a, b, c, d);
        for (int i = 0; i < N; i++) {
            uint16_t want = f16_fma(a[i], b[i], c[i]);
            bool zero = (want & 0x7fff) == 0 && (d[i] & 0x7fff) == 0;
            ck_assert_msg(zero || d[i] == want, "%04x %04x %04x: got %04x want %04x", a[i], b[i], c[i], d[i],
                          want);
        }
    }
}
END_TEST

/* A product half-way between two bf16, and an addend far below: only its sign tells which way to round. */
START_TEST(fma_of_bf16_sees_the_smallest_addend) {
    uint16_t a[N], b[N], c[N], d[N];
    for (int i = 0; i < N; i++) {
        a[i] = bf16_code(1.5L);
        b[i] = bf16_code(1 + (i / 8 % 64 * 2 + 1) / 128.0L); /* odd: the product has 9 digits and more */
        c[i] = bf16_code(ldexpl(i & 1 ? -1 : 1, -120 - (i & 6)));
        if (i & 1 && i & 8) c[i] = 0;
    }
    run_fma("bf16", a, b, c, d);
    for (int i = 0; i < N; i++) {
        /* Twice the sticky bits: the product in units of 2^-20, then a digit for what is beyond. */
        long double product = (long double)bf16_value(a[i]) * bf16_value(b[i]);
        double z = bf16_value(c[i]);
        long double moved = z > 0 ? product + ldexpl(1, -40) : z < 0 ? product - ldexpl(1, -40) : product;
        ck_assert_uint_eq(d[i], bf16_code(moved));
    }
}
END_TEST

START_TEST(fma_of_other_types) {
    float a[N], b[N], c[N], d[N];
    double e[N], f[N], g[N], h[N];
    int32_t p[N], q[N], r[N], s[N];
    uint32_t state = 5;
    for (int i = 0; i < N; i++) {
        a[i] = ldexpf((float)(int32_t)next_random(&state), -30);
        b[i] = ldexpf((float)(int32_t)next_random(&state), -30);
        c[i] = i % 2 ? -a[i] * b[i] : ldexpf((float)(int32_t)next_random(&state), -30);
        e[i] = a[i] + 0x1p-50, f[i] = b[i] - 0x1p-51, g[i] = i % 2 ? -e[i] * f[i] : c[i];
        p[i] = (int32_t)next_random(&state), q[i] = (int32_t)next_random(&state),
        r[i] = (int32_t)next_random(&state);
    }
    run_fma("f32", a, b, c, d);
    run_fma("f64", e, f, g, h);
    run_fma("i32", p, q, r, s);
    for (int i = 0; i < N; i++) {
        /* The product of two floats is exact in double, and so is what remains of it when most cancels. */
        if (i % 2) ck_assert_float_eq(d[i], (float)((double)a[i] * b[i] + c[i]));
        ck_assert_double_eq(h[i], fma(e[i], f[i], g[i]));
        ck_assert_uint_eq((uint32_t)s[i], (uint32_t)p[i] * (uint32_t)q[i] + (uint32_t)r[i]);
    }
}
END_TEST

/* ---- broadcasting ---- */

/* x op y for x[8, 3, 16] and y of every shape that broadcasts, either way round; and scalars. */
START_TEST(operands_broadcast) {
    static const unsigned masks[] = {0, 1, 2, 3, 4, 5, 6, 7}; /* which dimensions y keeps */
    static float a[8 * 3 * 16], b[8 * 3 * 16], c[8 * 3 * 16], d[8 * 3 * 16];
    for (int i = 0; i < 8 * 3 * 16; i++) a[i] = (float)i, b[i] = (float)(1000 * (i + 1));
    for (size_t m = 0; m < 8; m++) {
        unsigned e0 = masks[m] & 1 ? 8 : 1, e1 = masks[m] & 2 ? 3 : 1, e2 = masks[m] & 4 ? 16 : 1;
        char text[1024], layout[128] = "L";
        if (e0 == 1) strcpy(layout, "reduce(L, 0)");
        if (e1 == 1)
            memmove(layout + 7, layout, strlen(layout) + 1), memcpy(layout, "reduce(", 7),
                strcat(layout, ", 1)");
        if (e2 == 1)
            memmove(layout + 7, layout, strlen(layout) + 1), memcpy(layout, "reduce(", 7),
                strcat(layout, ", 2)");
        snprintf(
            text, sizeof text,
            ".vasm 1\n.layout L = local(1, 3, 1).spatial(8, 1, 4).local(1, 1, 4)\n"
            ".kernel k(f: f32, a: global f32[8, 3, 16], b: global f32[%u, %u, %u], c: global f32[8, 3, 16],\n"
            "          d: global f32[8, 3, 16])\n.warps 1\n"
            "    %%x = load-global a[0, 0, 0], L\n    %%y = load-global b[0, 0, 0], %s\n"
            "    %%s = sub %%x, %%y\n    %%t = sub %%y, %%x\n    %%t = mul 2, %%t\n    %%t = add %%t, f\n"
            "    %%t = fma %%y, %%t, %%x\n"
            "    store-global c[0, 0, 0], %%s\n    store-global d[0, 0, 0], %%t\n.end\n",
            e0, e1, e2, layout);
        run(text, VALUES(REAL("f", 0.5), TENSOR("a", a), TENSOR("b", b), TENSOR("c", c), TENSOR("d", d)));
        for (unsigned i = 0; i < 8; i++)
            for (unsigned j = 0; j < 3; j++)
                for (unsigned l = 0; l < 16; l++) {
                    unsigned at = (i * 3 + j) * 16 + l;
                    float x = a[at],
                          y = b[((e0 > 1 ? i : 0) * e1 + (e1 > 1 ? j : 0)) * e2 + (e2 > 1 ? l : 0)];
                    ck_assert_float_eq(c[at], x - y);
                    ck_assert_float_eq(d[at], fmaf(y, 2 * (y - x) + 0.5f, x));
                }
    }
}
END_TEST

START_TEST(lower_ranks_broadcast_in_front) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(a: global i32[4, 32], b: global i32[32], c: global i32[4, 32])\n"
                               ".warps 1\n"
                               "    %x = load-global a[0, 0], local(4, 1).spatial(1, 32)\n"
                               "    %y = load-global b[0], spatial(32)\n"
                               "    %m = compare lt %x, %y\n"
                               "    %z = where %m, %y, %x\n"
                               "    store-global c[0, 0], %z\n"
                               ".end\n";
    int32_t a[128], b[32], c[128];
    for (int i = 0; i < 128; i++) a[i] = i * 7 % 50;
    for (int i = 0; i < 32; i++) b[i] = i;
    run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c)));
    for (int i = 0; i < 128; i++) ck_assert_int_eq(c[i], a[i] < i % 32 ? i % 32 : a[i]);
}
END_TEST

START_TEST(where_takes_two_scalars) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(x: i64, a: global i32[32], c: global i64[32], d: global bool[32])\n"
                               ".warps 1\n"
                               "    %v = load-global a[0], spatial(32)\n"
                               "    %m = compare ge %v, 16\n"
                               "    %p = where %m, x, x + 1\n"
                               "    %q = where %m, false, true\n"
                               "    store-global c[0], %p\n"
                               "    store-global d[0], %q\n"
                               ".end\n";
    int32_t a[32];
    int64_t c[32], x = INT64_C(1) << 40;
    uint8_t d[32];
    for (int i = 0; i < 32; i++) a[i] = i * 3;
    run(text, VALUES(INT("x", x), TENSOR("a", a), TENSOR("c", c), TENSOR("d", d)));
    for (int i = 0; i < 32; i++) ck_assert_int_eq(c[i], a[i] >= 16 ? x : x + 1);
    for (int i = 0; i < 32; i++) ck_assert_uint_eq(d[i], a[i] < 16);
}
END_TEST

/* ---- alloc-register ---- */

START_TEST(init_values_are_converted) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(x: f32, n: i32, a: global u3[32], b: global f16[32], c: global i16[32],\n"
        "          d: global f64[32], e: global u8[32])\n"
        ".warps 1\n"
        "    %ra = alloc-register u3[32], spatial(4).replicated(8).local(8), init x\n"
        "    %rb = alloc-register f16[32], spatial(32), init x\n"
        "    %rc = alloc-register i16[32], spatial(32), init n\n"
        "    %rd = alloc-register f64[32], spatial(32), init n\n"
        "    %re = alloc-register u8[32], spatial(32)\n"
        "    store-global a[0], %ra\n"
        "    store-global b[0], %rb\n"
        "    store-global c[0], %rc\n"
        "    store-global d[0], %rd\n"
        "    store-global e[0], %re\n"
        ".end\n";
    uint8_t a[12], e[32];
    uint16_t b[32];
    int16_t c[32];
    double d[32];
    memset(e, 0xff, sizeof e);
    run(text, VALUES(REAL("x", 5.5), INT("n", -65537), TENSOR("a", a), TENSOR("b", b), TENSOR("c", c),
                     TENSOR("d", d), TENSOR("e", e)));
    for (size_t i = 0; i < 32; i++) {
        ck_assert_uint_eq(bit_string_get(a, i, 3), 6); /* half to even */
        ck_assert_uint_eq(b[i], f16_code(5.5L));
        ck_assert_int_eq(c[i], -1);
        ck_assert_double_eq(d[i], -65537);
        ck_assert_uint_eq(e[i], 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interp_compute");
    TCase *tests = tcase_create("interp_compute");
    tcase_add_test(tests, binary_operations_in_every_type);
    tcase_add_test(tests, comparisons_and_where_in_every_type);
    tcase_add_test(tests, neg_and_exp);
    tcase_add_test(tests, fma_rounds_once_in_f16);
    tcase_add_test(tests, fma_of_bf16_sees_the_smallest_addend);
    tcase_add_test(tests, fma_of_other_types);
    tcase_add_test(tests, operands_broadcast);
    tcase_add_test(tests, lower_ranks_broadcast_in_front);
    tcase_add_test(tests, where_takes_two_scalars);
    tcase_add_test(tests, init_values_are_converted);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
