/* The interpreter: sums of products (mma) and along an axis (reduce), in the order in which they are added.
 */
#include "interp_case.h"
#include "suite_kit.h"

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
    Suite *suite = suite_create("interp_sums");
    TCase *tests = tcase_create("interp_sums");
    tcase_add_test(tests, mma_multiplies_tiles_of_any_number);
    tcase_add_test(tests, mma_adds_in_the_order_of_k);
    tcase_add_test(tests, mma_products_are_exact);
    tcase_add_test(tests, reduce_combines_in_its_order);
    tcase_add_test(tests, reduce_of_other_types);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
