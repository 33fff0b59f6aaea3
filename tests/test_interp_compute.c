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

/* ---- mma ---- */

static void check_mma(unsigned m, unsigned n, unsigned k, bool bf16) {
    char text[1024];
    const char *type = bf16 ? "bf16" : "f16";
    snprintf(
        text, sizeof text,
        ".vasm 1\n.const M = %u, N = %u, K = %u\n"
        ".kernel k(a: global %s[M, K], b: global %s[K, N], c: global f32[M, N], d: global f32[M, N])\n.warps 1\n"
        "    %%ra = load-global a[0, 0], local(M / 16, K / 16).mma.m16n8k16.A\n"
        "    %%rb = load-global b[0, 0], local(K / 16, N / 8).mma.m16n8k16.B\n"
        "    %%rc = load-global c[0, 0], local(M / 16, N / 8).mma.m16n8k16.C\n"
        "    %%rd = mma %%ra, %%rb, %%rc\n    %%rc = mma %%ra, %%rb, %%rd\n    store-global c[0, 0], %%rc\n"
        "    store-global d[0, 0], %%rd\n.end\n",
        m, n, k, type, type);
    static uint16_t a[64 * 64], b[64 * 64];
    static float c[64 * 64], start[64 * 64], d[64 * 64];
    uint32_t state = m * n + k;
    for (unsigned i = 0; i < m * k; i++)
        a[i] = (bf16 ? bf16_code : f16_code)((int32_t)next_random(&state) * 0x1p-28L);
    for (unsigned i = 0; i < k * n; i++)
        b[i] = (bf16 ? bf16_code : f16_code)((int32_t)next_random(&state) * 0x1p-30L);
    for (unsigned i = 0; i < m * n; i++) c[i] = start[i] = (float)(int32_t)next_random(&state) * 0x1p-26f;
    run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c), TENSOR("d", d)));
    for (unsigned i = 0; i < m; i++)
        for (unsigned j = 0; j < n; j++) {
            volatile float sum = start[i * n + j];
            for (int pass = 0; pass < 2; pass++) {
                for (unsigned p = 0; p < k; p++) {
                    double x = bf16 ? bf16_value(a[i * k + p]) : f16_value(a[i * k + p]);
                    double y = bf16 ? bf16_value(b[p * n + j]) : f16_value(b[p * n + j]);
                    sum = (float)(sum + x * y);
                }
                if (pass == 0) ck_assert_float_eq_tol(d[i * n + j], sum, 1e-4f);
            }
            ck_assert_float_eq_tol(c[i * n + j], sum, 1e-4f);
        }
}

START_TEST(mma_multiplies_tiles_of_any_number) {
    static const unsigned sizes[][3] = {{16, 8, 16}, {16, 64, 16}, {32, 40, 48}, {48, 24, 64}, {64, 56, 32}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        check_mma(sizes[s][0], sizes[s][1], sizes[s][2], false);
        check_mma(sizes[s][0], sizes[s][1], sizes[s][2], true);
    }
}
END_TEST

/* Products are added to c in the order of k: numbers whose sum depends on it. Powers of two, so that each
 * product is exact and each sum a plain float addition. */
START_TEST(mma_adds_in_the_order_of_k) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(a: global f16[16, 32], b: global f16[32, 8], c: global f32[16, 8])\n"
        ".warps 1\n"
        "    %ra = load-global a[0, 0], local(1, 2).mma.m16n8k16.A\n"
        "    %rb = load-global b[0, 0], local(2, 1).mma.m16n8k16.B\n"
        "    %rc = load-global c[0, 0], mma.m16n8k16.C\n"
        "    %rc = mma %ra, %rb, %rc\n"
        "    store-global c[0, 0], %rc\n"
        ".end\n";
    uint16_t a[16 * 32], b[32 * 8];
    float c[128], start[128];
    uint32_t state = 77;
    for (int i = 0; i < 16 * 32; i++)
        a[i] = f16_code(ldexpl(next_random(&state) & 1 ? 1 : -1, (int)(next_random(&state) % 28) - 14));
    for (int i = 0; i < 32 * 8; i++)
        b[i] = f16_code(ldexpl(next_random(&state) & 1 ? 1 : -1, (int)(next_random(&state) % 28) - 14));
    for (int i = 0; i < 128; i++) c[i] = start[i] = ldexpf(1, i % 30);
    run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c)));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            volatile float sum = start[i * 8 + j];
            for (int p = 0; p < 32; p++)
                sum = sum + (float)(f16_value(a[i * 32 + p]) * f16_value(b[p * 8 + j]));
            ck_assert_float_eq(c[i * 8 + j], sum);
        }
}
END_TEST

/* Products beyond the exponents of f32, and below its subnormals, are exact: codes of any exponent against
 * the C library's fma. The extents leave no width of vectors unused. */
static void check_exact_products(bool bf16, uint32_t *state) {
    enum { M = 16, NARROW = 40, DEEP = 16 };
    static const char text[] =
        ".vasm 1\n.kernel k(a: global %s[16, 16], b: global %s[16, 40], c: global f32[16, 40])\n.warps 1\n"
        "    %%ra = load-global a[0, 0], mma.m16n8k16.A\n"
        "    %%rb = load-global b[0, 0], local(1, 5).mma.m16n8k16.B\n"
        "    %%rc = load-global c[0, 0], local(1, 5).mma.m16n8k16.C\n"
        "    %%rc = mma %%ra, %%rb, %%rc\n    store-global c[0, 0], %%rc\n.end\n";
    char program[640];
    uint16_t a[M * DEEP], b[DEEP * NARROW], infinity = bf16 ? 0x7f80 : 0x7c00;
    float c[M * NARROW], want[M * NARROW];
    const char *type = bf16 ? "bf16" : "f16";
    snprintf(program, sizeof program, text, type, type);
    for (unsigned i = 0; i < M * DEEP; i++) do
            a[i] = (uint16_t)next_random(state);
        while ((a[i] & infinity) == infinity);
    for (unsigned i = 0; i < DEEP * NARROW; i++) do
            b[i] = (uint16_t)next_random(state);
        while ((b[i] & infinity) == infinity);
    for (unsigned i = 0; i < M * NARROW; i++) {
        uint32_t bits = next_random(state);
        if (i % 7 == 0) bits = 0x7f800000; /* infinity, which a product must not turn into a NaN */
        memcpy(&c[i], &bits, sizeof bits);
        if (isnan(c[i])) c[i] = 0;
        want[i] = c[i];
        for (unsigned p = 0; p < DEEP; p++) {
            uint16_t x = a[i / NARROW * DEEP + p], y = b[p * NARROW + i % NARROW];
            want[i] = bf16 ? fmaf((float)bf16_value(x), (float)bf16_value(y), want[i])
                           : fmaf((float)f16_value(x), (float)f16_value(y), want[i]);
        }
    }
    run(program, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c)));
    for (unsigned i = 0; i < M * NARROW; i++)
        ck_assert_msg(isnan(want[i]) ? isnan(c[i]) : memcmp(&c[i], &want[i], sizeof *c) == 0,
                      "%s, element %u: %a, not %a", type, i, c[i], want[i]);
}

START_TEST(mma_products_are_exact) {
    uint32_t state = 9;
    for (int round = 0; round < 20; round++) {
        check_exact_products(false, &state);
        check_exact_products(true, &state);
    }
}
END_TEST

/* ---- reduce ---- */

typedef struct part {
    uint32_t place; /* along the axis, of the thread's first element */
    float value;
} part;

static int by_place(const void *a, const void *b) {
    uint32_t x = ((const part *)a)->place, y = ((const part *)b)->place;
    return (x > y) - (x < y);
}

/* One output, from the (thread, local) table: each thread its own, then the threads' partial sums. */
static float reduced(const tvm_layout *layout, const uint32_t *table, const float *a, unsigned axis,
                     uint32_t output) {
    part parts[TVM_MAX_THREADS];
    uint32_t count = 0, inner = 1, locals = tvm_layout_locals(layout);
    for (unsigned d = axis + 1; d < layout->rank; d++) inner *= layout->shape[d];
    for (uint32_t t = 0; t < tvm_layout_threads(layout); t++) {
        bool any = false;
        volatile float sum = 0;
        for (uint32_t l = 0; l < locals; l++) {
            uint32_t e = table[t * locals + l];
            if (e / inner / layout->shape[axis] * inner + e % inner != output) continue;
            sum = any ? sum + a[e] : a[e];
            any = true;
        }
        uint32_t index[TVM_MAX_RANK];
        tvm_layout_map(layout, t, 0, index);
        bool known = false;
        for (uint32_t p = 0; p < count; p++) known = known || parts[p].place == index[axis];
        if (any && !known) parts[count++] = (part){index[axis], sum};
    }
    qsort(parts, count, sizeof *parts, by_place);
    volatile float sum = parts[0].value;
    bool tree = (count & (count - 1)) == 0;
    for (uint32_t p = 1; p < count && !tree; p++) sum = sum + parts[p].value;
    for (; tree && count > 1; count /= 2)
        for (uint32_t p = 0; p < count / 2; p++) {
            sum = parts[2 * p].value + parts[2 * p + 1].value;
            parts[p].value = sum;
        }
    return tree ? parts[0].value : sum;
}

static void check_reduce(const char *layout_text, unsigned warps, unsigned rank, unsigned axis) {
    char text[1024], shape[128] = "", one[128] = "", zeros[32] = "";
    for (unsigned d = 0; d < rank; d++) {
        char piece[32];
        snprintf(piece, sizeof piece, "%sextent(L, %u)", d ? ", " : "", d);
        strcat(shape, piece);
        if (d == axis) snprintf(piece, sizeof piece, "%s1", d ? ", " : "");
        strcat(one, piece);
        strcat(zeros, d ? ", 0" : "0");
    }
    snprintf(
        text, sizeof text,
        ".vasm 1\n.layout L = %s\n.kernel k(a: global f32[%s], c: global f32[%s], d: global f32[%s])\n.warps %u\n"
        "    %%x = load-global a[%s], L\n    %%y = reduce sum %%x, %u\n    store-global c[%s], %%y\n"
        "    %%z = reduce max %%x, %u\n    store-global d[%s], %%z\n.end\n",
        layout_text, shape, one, one, warps, zeros, axis, zeros, axis, zeros);
    static float a[8192], c[8192], d[8192];
    static uint32_t table[TVM_MAX_THREADS * 64];
    uint32_t state = warps + axis;
    for (size_t i = 0; i < 8192; i++)
        a[i] = (float)(int32_t)next_random(&state) * ldexpf(1, (int)(next_random(&state) % 30) - 40);
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 1, VALUES(TENSOR("a", a), TENSOR("c", c), TENSOR("d", d)));
    ck_assert_msg(out.status == TVM_OK, "%s", out.message);
    free(out.output);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    const tvm_layout *layout = &program->layouts[kernel->slots[kernel->insns[0].result].layout];
    tvm_layout_table(layout, table);
    uint32_t inner = 1, elements = tvm_layout_elements(layout);
    for (unsigned i = axis + 1; i < rank; i++) inner *= layout->shape[i];
    for (uint32_t o = 0; o < elements / layout->shape[axis]; o++) {
        float want = reduced(layout, table, a, axis, o), most = -INFINITY;
        ck_assert_msg(c[o] == want, "%s axis %u output %u: got %a, want %a", layout_text, axis, o,
                      (double)c[o], (double)want);
        for (uint32_t e = 0; e < elements; e++)
            if (e / inner / layout->shape[axis] * inner + e % inner == o && a[e] > most) most = a[e];
        ck_assert_float_eq(d[o], most);
    }
    tvm_ir_program_free(program);
}

START_TEST(reduce_combines_in_its_order) {
    static const struct {
        const char *layout;
        unsigned warps, rank;
    } cases[] = {{"spatial(8, 4).local(2, 8)", 1, 2},
                 {"local(2, 2).spatial(4, 8).local(1, 3)", 1, 2},
                 {"column_local(4, 2).column_spatial(8, 4)", 1, 2},
                 {"spatial(2, 2).local(2, 1).spatial(4, 2).column_local(3, 2)", 1, 2},
                 {"column_spatial(4, 4).local(3, 2).spatial(1, 2)", 1, 2},
                 {"spatial(32, 3).local(2, 2)", 3, 2},
                 {"spatial(4, 24)", 3, 2},
                 {"mma.m16n8k16.C", 1, 2},
                 {"spatial(1, 2).local(2, 2).mma.m16n8k16.A", 2, 2},
                 {"replicated(2, 2).spatial(4, 4).local(1, 5)", 1, 2},
                 {"local(2, 1, 3).spatial(2, 4, 4).local(2, 2, 1)", 1, 3},
                 {"spatial(32)", 1, 1},
                 {"local(64).replicated(32)", 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned axis = 0; axis < cases[i].rank; axis++)
            check_reduce(cases[i].layout, cases[i].warps, cases[i].rank, axis);
}
END_TEST

/* f16 is summed in f32 and rounded once; integers wrap in their own type. */
START_TEST(reduce_of_other_types) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(a: global f16[64], b: global i8[64], c: global u16[64], x: global f16[1],\n"
        "          y: global i8[1], z: global u16[1], w: global i8[1])\n"
        ".warps 1\n"
        "    %ra = load-global a[0], replicated(32).local(64)\n"
        "    %rb = load-global b[0], spatial(32).local(2)\n"
        "    %rc = load-global c[0], local(2).spatial(32)\n"
        "    %rx = reduce sum %ra, 0\n"
        "    %ry = reduce sum %rb, 0\n"
        "    %rz = reduce max %rc, 0\n"
        "    %rw = reduce max %rb, 0\n"
        "    store-global x[0], %rx\n"
        "    store-global y[0], %ry\n"
        "    store-global z[0], %rz\n"
        "    store-global w[0], %rw\n"
        ".end\n";
    uint16_t a[64], c[64], x, z;
    int8_t b[64], y, w;
    int total = 0, largest = -128;
    for (int i = 0; i < 64; i++) {
        a[i] = f16_code(2048 + i % 3 * 2);
        b[i] = (int8_t)(i * 5 - 200);
        c[i] = (uint16_t)(40000 + i * 7 % 64);
        total += b[i];
        largest = b[i] > largest ? b[i] : largest;
    }
    for (int i = 32; i < 64; i++) a[i] = f16_code(-2047); /* f16 alone would lose the small parts */
    float sum = 0;
    for (int i = 0; i < 64; i++) sum += (float)f16_value(a[i]);
    run(text, VALUES(TENSOR("a", a), TENSOR("b", b), TENSOR("c", c), TENSOR("x", &x), TENSOR("y", &y),
                     TENSOR("z", &z), TENSOR("w", &w)));
    ck_assert_uint_eq(x, f16_code(sum));
    ck_assert_int_eq(y, (int8_t)(uint8_t)(unsigned)total);
    ck_assert_uint_eq(z, 40063);
    ck_assert_int_eq(w, largest);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interp_compute");
    TCase *tests = tcase_create("interp_compute");
    tcase_set_timeout(tests, 240);
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
    tcase_add_test(tests, every_lowbit_code_widens);
    tcase_add_test(tests, floats_narrow_to_the_nearest_lowbit_code);
    tcase_add_test(tests, casts_between_standard_types);
    tcase_add_test(tests, views_read_the_bits_of_each_thread);
    tcase_add_test(tests, mma_multiplies_tiles_of_any_number);
    tcase_add_test(tests, mma_adds_in_the_order_of_k);
    tcase_add_test(tests, mma_products_are_exact);
    tcase_add_test(tests, reduce_combines_in_its_order);
    tcase_add_test(tests, reduce_of_other_types);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
