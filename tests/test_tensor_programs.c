/* Random kernels with products in tensor memory: types, extents, operands that lie either way or in tensor
 * memory, sums in several tensors, added to, changed by threads and added to again, loaded in layouts of
 * every kind. The interpreter's results are those of the code for sm_100a on the tests' PTX machine, bit for
 * bit.
 *
 *   test_tensor_programs [PROGRAMS [FIRST_SEED]]    40 programs */
#include "assembler_kit.h"
#include "compare_kit.h"
#include "suite_kit.h"
#include "text.h"
#include "translate_kit.h"

static uint64_t programs = 40, first_seed = 1;

typedef struct kind {
    const char *a, *b, *sum;
    unsigned bytes; /* of an element of a and b */
    bool turns;     /* may lie with k not last */
} kind;
static const kind kinds[] = {{"f16", "f16", "f32", 2, true},
                             {"bf16", "bf16", "f32", 2, true},
                             {"tf32", "tf32", "f32", 4, false},
                             {"f8_e4m3", "f8_e5m2", "f32", 1, true},
                             {"f8_e5m2", "f8_e5m2", "f32", 1, true},
                             {"i8", "u8", "i32", 1, true},
                             {"u8", "i8", "i32", 1, true}};
enum { KINDS = sizeof kinds / sizeof *kinds, LINES = 128 };

typedef struct maker {
    uint64_t state;
    tvm_text text;
    const kind *kind;
    unsigned warps, columns, k, sums;
    bool turn_a, turn_b, a_in_tensor;
} maker;

static unsigned below(maker *m, unsigned n) {
    m->state = m->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(m->state >> 33) % n;
}

static bool one_in(maker *m, unsigned n) {
    return below(m, n) == 0;
}

/* A layout of the team's threads for [128, columns], as the instructions of tensor memory take them. */
static void put_layout(maker *m, unsigned columns, bool fragments) {
    if (m->warps == 8) tvm_text_add(&m->text, "spatial(1, 2).");
    unsigned each = columns / (m->warps / 4);
    if (fragments)
        tvm_text_add(&m->text, "spatial(4, 1).local(2, %u).mma.m16n8k16.C", each / 8);
    else
        tvm_text_add(&m->text, "spatial(128, 1).local(1, %u)", each);
}

/* Products of one sum: all of k, or two parts of it, which begin in blocks of 128 bytes where there are more.
 */
static void put_products(maker *m, unsigned sum, bool adds) {
    unsigned block = 128 / m->kind->bytes, step = m->k > block ? block : 32 / m->kind->bytes,
             parts = m->k / step, cut = parts > 1 ? below(m, parts) * step : 0;
    const unsigned ends[3] = {0, cut, m->k};
    for (unsigned i = cut ? 0 : 1; i < 2; i++) {
        unsigned from = cut ? ends[i] : 0, count = ends[i + 1] - from;
        tvm_text_add(&m->text, "    mma-tensor %%d[%u], ", sum);
        if (m->a_in_tensor)
            tvm_text_add(&m->text, "%%ta[0, %u]", from);
        else
            tvm_text_add(&m->text, m->turn_a ? "%%sa[%u, 0]" : "%%sa[0, %u]", from);
        tvm_text_add(&m->text, m->turn_b ? ", %%sb[0, %u]" : ", %%sb[%u, 0]", from);
        tvm_text_add(&m->text, "%s%s, k %u%s\n", m->turn_a ? ", transpose_a" : "",
                     m->turn_b ? ", transpose_b" : "", count,
                     adds || (cut && i == 1) ? "" : ", accumulate false");
    }
}

static void put_commit(maker *m) {
    tvm_text_add(&m->text, "    commit-tensor %%done\n    wait-barrier %%done\n");
}

/* The sum in registers, whole or in parts of its columns; `more` is added, and it is stored back. */
static void put_change(maker *m, unsigned sum) {
    unsigned least = 8 * m->warps / 4,
             part = m->columns % (2 * least) == 0 && one_in(m, 2) ? m->columns / 2 : m->columns;
    bool fragments = one_in(m, 2);
    if (part < m->columns) tvm_text_add(&m->text, "    for %%c%u = 0 to %u step %u\n", sum, m->columns, part);
    const char *at = part < m->columns ? ", 0, %c" : "";
    tvm_text_add(&m->text, "    %%v%u = load-tensor %%d[%u%s", sum, sum, at);
    if (*at) tvm_text_add(&m->text, "%u", sum);
    tvm_text_add(&m->text, "], ");
    put_layout(m, part, fragments);
    tvm_text_add(&m->text, "\n    store-tensor %%d[%u%s", sum, at);
    if (*at) tvm_text_add(&m->text, "%u", sum);
    tvm_text_add(&m->text, "], %%v%u + 1\n", sum);
    if (*at) tvm_text_add(&m->text, "    end\n");
}

static void put_result(maker *m, unsigned sum) {
    tvm_text_add(&m->text, "    store-global y[%u, 0], load-tensor(%%d[%u], ", sum * LINES, sum);
    if (one_in(m, 3))
        tvm_text_add(&m->text, "[%u, %u]", LINES, m->columns);
    else
        put_layout(m, m->columns, one_in(m, 2));
    tvm_text_add(&m->text, ")\n");
}

static void put_operands(maker *m) {
    unsigned ra = m->turn_a ? m->k : LINES, ca = m->turn_a ? LINES : m->k, rb = m->turn_b ? m->columns : m->k,
             cb = m->turn_b ? m->k : m->columns;
    tvm_text_add(
        &m->text,
        ".vasm 7\n.kernel k(a: global %s[%u, %u], b: global %s[%u, %u], y: global %s[%u, %u])\n"
        ".warps %u\n.grid 1\n    %%done = alloc-barrier [1]\n    %%sa = alloc-shared %s[%u, %u]\n"
        "    %%sb = alloc-shared %s[%u, %u]\n    store-shared %%sa, load-global(a, auto(%u, %u))\n"
        "    store-shared %%sb, load-global(b, auto(%u, %u))\n    %%d = alloc-tensor %s[%u, %u, %u]\n",
        m->kind->a, ra, ca, m->kind->b, rb, cb, m->kind->sum, m->sums * LINES, m->columns, m->warps,
        m->kind->a, ra, ca, m->kind->b, rb, cb, ra, ca, rb, cb, m->kind->sum, m->sums, LINES, m->columns);
    if (m->a_in_tensor)
        tvm_text_add(&m->text, "    %%ta = alloc-tensor %s[%u, %u]\n", m->kind->a, LINES, m->k);
    tvm_text_add(&m->text, "    sync\n");
    if (m->a_in_tensor && one_in(m, 2)) {
        tvm_text_add(&m->text, "    copy-tensor %%ta, %%sa, [%u, %u]\n", LINES, m->k);
    } else if (m->a_in_tensor) {
        tvm_text_add(&m->text, "    store-tensor %%ta, load-shared(%%sa, ");
        put_layout(m, m->k, false);
        tvm_text_add(&m->text, ")\n    sync\n");
    }
}

/* malloc'ed. */
static char *make_text(maker *m) {
    unsigned step = 32 / m->kind->bytes;
    m->warps = one_in(m, 3) ? 8 : 4;
    m->columns = 16 * (1 + below(m, 8));
    m->k = step << below(m, 4);
    m->turn_a = m->kind->turns && one_in(m, 3);
    m->turn_b = !m->kind->turns || !one_in(m, 3);
    if (!m->turn_b) m->columns = 16U << below(m, 4); /* whole swizzled blocks */
    m->sums = 1 + below(m, m->columns > 64 ? 2 : 3);
    m->a_in_tensor = !m->turn_a && one_in(m, 3);
    put_operands(m);
    for (unsigned s = 0; s < m->sums; s++) put_products(m, s, false);
    put_commit(m);
    if (one_in(m, 2)) {
        for (unsigned s = 0; s < m->sums; s++)
            if (one_in(m, 2)) put_change(m, s);
        tvm_text_add(&m->text, "    sync\n");
        for (unsigned s = m->sums; s-- > 0;)
            if (one_in(m, 2)) put_products(m, s, true);
        put_commit(m);
    }
    for (unsigned s = 0; s < m->sums; s++) put_result(m, s);
    tvm_text_add(&m->text, ".end\n");
    char *text = strdup(tvm_text_string(&m->text));
    ck_assert_ptr_nonnull(text);
    tvm_text_free(&m->text);
    return text;
}

/* Numbers of few digits: integers to 15, floats to 4 in steps of a quarter. */
static uint8_t *operand(maker *m, const char *name, size_t count) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    uint8_t *bytes = calloc(count, type.bits / 8);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < count; i++) {
        double value = type.kind == TVM_KIND_FLOAT ? ((double)below(m, 33) - 16) / 4 : below(m, 16);
        if (type.kind == TVM_KIND_INT) value -= 8;
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    return bytes;
}

static void check(maker *m, const char *text, const tvm_ir_program *program) {
    size_t results = (size_t)m->sums * LINES * m->columns, bytes = 4 * results;
    uint8_t *a = operand(m, m->kind->a, (size_t)LINES * m->k),
            *b = operand(m, m->kind->b, (size_t)m->columns * m->k), *want = calloc(1, bytes),
            *found = calloc(1, bytes);
    ck_assert(want && found);
    tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = want}};
    run_interpreter(program, "k", args, one_block);
    tvm_module *module = translate(program, "sm_100a");
    args[2].data = found;
    run_translated(module, "k", args, 3, one_block);
    if (memcmp(want, found, bytes) != 0) fprintf(stderr, "%s", text);
    compare_tensors("tensor memory", (tvm_dtype){TVM_KIND_UINT, 32, 0, 0}, found, want, results);
    tvm_module_free(module);
    free(a), free(b), free(want), free(found);
}

START_TEST(the_code_does_what_the_interpreter_does) {
    uint64_t made = 0;
    for (uint64_t seed = first_seed; seed < first_seed + programs; seed++) {
        maker m = {.state = seed * UINT64_C(0x9e3779b97f4a7c15), .kind = &kinds[seed % KINDS]};
        tvm_diags diags = {0};
        tvm_ir_program *program = NULL;
        char *text = make_text(&m);
        if (tvm_assemble_text(text, strlen(text), "tensor.vasm", NULL, &program, &diags) != TVM_OK) {
            fprintf(stderr, "%s", text);
            tvm_diags_print(&diags, stderr, "tensor", false);
        }
        ck_assert_ptr_nonnull(program);
        check(&m, text, program);
        made++;
        tvm_ir_program_free(program);
        tvm_diags_free(&diags);
        free(text);
    }
    ck_assert_uint_eq(made, programs);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) programs = strtoull(argv[1], NULL, 0);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 0);
    Suite *suite = suite_create("tensor_programs");
    TCase *tests = suite_case(suite, "random");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, the_code_does_what_the_interpreter_does);
    return run_suite(suite);
}
