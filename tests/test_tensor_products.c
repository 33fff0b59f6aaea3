/* Products that the tensor core of tcgen05 does for plain mma. Random kernels whose mma stands in a pipelined
 * loop, on a target with tcgen05: types, extents, operands that lie either way, steps of k in one product or
 * in several, one tile or one after the other, copies by TMA or by all threads, sums that are read whole,
 * with a row or a column beside them, or in slices, and loops without a turn. All become products of the
 * tensor core, and the code for sm_100a does on the tests' PTX machine, bit for bit, what the interpreter
 * does. programs/matmul_simple.vasm, against float64; and why other kernels do not become such.
 *
 *   test_tensor_products [PROGRAMS [FIRST_SEED]]    40 programs */
#include "check_kit.h"
#include <math.h>

#include "compare_kit.h"
#include "kernel_code_kit.h"
#include "suite_kit.h"
#include "text.h"

static uint64_t programs = 40, first_seed = 1;

typedef struct kind {
    const char *a, *b, *sum, *flag;
    unsigned bytes; /* of an element of a and b */
    bool turns;     /* may lie with k not last */
} kind;
static const kind kinds[] = {{"f16", "f16", "f32", "", 2, true},
                             {"bf16", "bf16", "f32", "", 2, true},
                             {"f32", "f32", "f32", ", tf32", 4, false},
                             {"f8_e4m3", "f8_e5m2", "f32", "", 1, false},
                             {"i8", "u8", "i32", "", 1, false}};
enum { KINDS = sizeof kinds / sizeof *kinds, LINES = 128, TILES = 3, MOST_BYTES = 128 << 10 };

typedef struct maker {
    uint64_t state;
    tvm_text text;
    const kind *kind;
    unsigned warps, columns, step, stages, sums, tiles, k;
    bool turn_a, turn_b, stays, by_threads;
    enum { WHOLE, COLUMNS, ROWS, SLICES, ENDS } end;
} maker;

static unsigned below(maker *m, unsigned n) {
    m->state = m->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(m->state >> 33) % n;
}

static bool one_in(maker *m, unsigned n) {
    return below(m, n) == 0;
}

/* Whole rows, of which slices of columns are a thread's own. */
static void put_layout(maker *m, const char *name, unsigned columns) {
    tvm_text_add(&m->text, ".layout %s = spatial(%u, 1).local(%u, %u).mma.m16n8k16.C\n", name, m->warps,
                 8 / m->warps, columns / 8);
}

static void put_head(maker *m) {
    const kind *of = m->kind;
    unsigned all = m->sums * m->columns;
    tvm_text_add(&m->text, ".vasm 7\n");
    put_layout(m, "SUMS", m->columns);
    put_layout(m, "PART", m->columns / 2);
    tvm_text_add(&m->text, ".kernel k(tiles: i32, k: i32, ");
    tvm_text_add(&m->text, m->turn_a ? "a: global %s[k, tiles * 128], " : "a: global %s[tiles * 128, k], ",
                 of->a);
    tvm_text_add(&m->text, m->turn_b ? "b: global %s[%u, k], " : "b: global %s[k, %u], ", of->b,
                 m->turn_b ? all : all);
    tvm_text_add(&m->text, "r: global %s[%u], y: global %s[tiles * 128, %u])\n.warps %u\n.grid %s\n", of->sum,
                 all > LINES * TILES ? all : LINES * TILES, of->sum, all, m->warps,
                 m->stays ? "1" : "max(tiles, 1)");
    tvm_text_add(&m->text, ".assume k >= 0, tiles >= 0, k %% %u == 0\n", 32 / of->bytes);
    if (m->by_threads) tvm_text_add(&m->text, "    if tiles > 1000\n        exit\n    end\n");
    if (m->turn_a)
        tvm_text_add(&m->text, "    %%sa = alloc-shared %s[%u, 128]\n", of->a, m->step);
    else
        tvm_text_add(&m->text, "    %%sa = alloc-shared %s[128, %u]\n", of->a, m->step);
    for (unsigned s = 0; s < m->sums; s++)
        tvm_text_add(&m->text, "    %%sb%u = alloc-shared %s[%u, %u]\n", s, of->b,
                     m->turn_b ? m->columns : m->step, m->turn_b ? m->step : m->columns);
}

static void put_loop(maker *m) {
    const char *tile = m->stays ? "%t" : "block.x";
    unsigned parts = m->step * m->kind->bytes > 32 && one_in(m, 2) ? 2 : 1, k = m->step / parts;
    for (unsigned s = 0; s < m->sums; s++)
        tvm_text_add(&m->text,
                     m->end == SLICES ? "    %%c%u = alloc-register %s[128, %u], SUMS\n"
                                      : "    %%c%u = alloc-register %s[128, %u]\n",
                     s, m->kind->sum, m->columns);
    tvm_text_add(&m->text, "    for %%k0 = 0 to k step %u pipeline %u\n", m->step, m->stages);
    tvm_text_add(&m->text,
                 m->turn_a ? "    copy-async %%sa, a[%%k0, %s * 128]\n"
                           : "    copy-async %%sa, a[%s * 128, %%k0]\n",
                 tile);
    for (unsigned s = 0; s < m->sums; s++)
        tvm_text_add(&m->text,
                     m->turn_b ? "    copy-async %%sb%u, b[%u, %%k0]\n"
                               : "    copy-async %%sb%u, b[%%k0, %u]\n",
                     s, s * m->columns);
    for (unsigned p = 0; p < parts; p++)
        for (unsigned s = 0; s < m->sums; s++) {
            tvm_text_add(&m->text,
                         m->turn_a ? "    %%c%u = mma %%sa[%u, 0], " : "    %%c%u = mma %%sa[0, %u], ", s,
                         p * k);
            tvm_text_add(&m->text, m->turn_b ? "%%sb%u[0, %u]" : "%%sb%u[%u, 0]", s, p * k);
            tvm_text_add(&m->text, ", %%c%u%s%s, k %u%s\n", s, m->turn_a ? ", transpose_a" : "",
                         m->turn_b ? ", transpose_b" : "", k, m->kind->flag);
        }
    tvm_text_add(&m->text, "    end\n");
}

static void put_end(maker *m) {
    const char *tile = m->stays ? "%t" : "block.x";
    unsigned part = m->end == SLICES ? m->columns / 2 : m->columns;
    for (unsigned s = 0; s < m->sums; s++)
        for (unsigned c = 0; c < m->columns; c += part) {
            unsigned at = s * m->columns + c;
            tvm_text_add(&m->text, "    store-global y[%s * 128, %u], ", tile, at);
            if (m->end == SLICES)
                tvm_text_add(&m->text, "slice(%%c%u, [0, %u], [128, %u], PART)\n", s, c, part);
            else if (m->end == COLUMNS)
                tvm_text_add(&m->text, "%%c%u + unsqueeze(load-global(r[%u], [%u]), 0)\n", s, at, part);
            else if (m->end == ROWS)
                tvm_text_add(&m->text, "%%c%u * unsqueeze(load-global(r[%s * 128], [128]), 1)\n", s, tile);
            else
                tvm_text_add(&m->text, "%%c%u\n", s);
        }
}

/* malloc'ed. */
static char *make_text(maker *m) {
    unsigned least = 32 / m->kind->bytes;
    m->warps = one_in(m, 2) ? 8 : 4;
    m->columns = 32 * (1 + below(m, 4));
    m->step = least << below(m, 3);
    m->turn_a = m->kind->turns && one_in(m, 3);
    m->turn_b = !m->kind->turns || one_in(m, 2);
    if (!m->turn_b) m->columns = 32U << below(m, 3); /* whole swizzled blocks */
    m->stages = 1 + below(m, 4);
    m->sums = 1 + one_in(m, 4);
    while ((LINES + m->sums * m->columns) * m->step * m->kind->bytes * m->stages > MOST_BYTES) m->stages--;
    m->stays = one_in(m, 2);
    m->by_threads = one_in(m, 3);
    m->tiles = below(m, TILES + 1);
    m->k = one_in(m, 6) ? 0 : least * (1 + below(m, 12));
    m->end = below(m, ENDS);
    put_head(m);
    if (m->stays) tvm_text_add(&m->text, "    for %%t = 0 to tiles\n");
    put_loop(m);
    put_end(m);
    if (m->stays) tvm_text_add(&m->text, "    end\n");
    tvm_text_add(&m->text, ".end\n");
    char *text = strdup(tvm_text_string(&m->text));
    ck_assert_ptr_nonnull(text);
    tvm_text_free(&m->text);
    return text;
}

/* Numbers of few digits, whose sums no order rounds: integers to 15, floats to 4 in steps of a quarter. */
static uint8_t *operand(maker *m, const char *name, size_t count) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    uint8_t *bytes = calloc(count + 1, type.bits / 8);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < count; i++) {
        double value = type.kind == TVM_KIND_FLOAT ? ((double)below(m, 33) - 16) / 4 : below(m, 16);
        if (type.kind == TVM_KIND_INT) value -= 8;
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    return bytes;
}

enum { ARGUMENTS = 6, FIRST_TENSOR = 2 };

static void run_code(const tvm_ir_program *program, const tvm_module *module, const tvm_interp_arg *args,
                     const size_t bytes[ARGUMENTS]) {
    const tvm_kernel_code *code = &module->kernels[0];
    tvm_scalar scalars[ARGUMENTS] = {{0}};
    uint64_t values[ARGUMENTS];
    tvm_target target;
    ck_assert_int_eq(tvm_target_parse("sm_100a", &target, NULL), TVM_OK);
    tvm_launch_env env = {.scalars = scalars,
                          .multiprocessors = 2,
                          .target = target.arch,
                          .traits = tvm_target_traits_of(target)};
    for (unsigned i = 0; i < FIRST_TENSOR; i++) scalars[i] = args[i].scalar;
    ck_assert_int_eq(tvm_launch_check(program, &program->kernels[0], &env, NULL), TVM_OK);
    ptx_machine machine = ptx_load(module->ptx, code->name, code->abi.threads);
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        values[i] = i < FIRST_TENSOR ? args[i].scalar.u : (uint64_t)(uintptr_t)args[i].data;
        if (i >= FIRST_TENSOR) ptx_allow(&machine, args[i].data, bytes[i]);
    }
    ptx_launch(&machine, module, program, &program->kernels[0], &env, values, NULL);
    ck_assert_msg(!machine.fault[0] && !machine.trapped, "%s", machine.fault);
    ptx_free(&machine);
}

static void check(maker *m, const char *text, const tvm_ir_program *program) {
    size_t all = (size_t)m->sums * m->columns, results = (size_t)m->tiles * LINES * all,
           beside = all > LINES * TILES ? all : LINES * TILES;
    uint8_t *a = operand(m, m->kind->a, (size_t)m->tiles * LINES * m->k),
            *b = operand(m, m->kind->b, all * m->k), *r = operand(m, m->kind->sum, beside),
            *want = calloc(results + 1, 4), *found = calloc(results + 1, 4);
    const size_t bytes[ARGUMENTS] = {
        0,          0,          (size_t)m->tiles * LINES * m->k * m->kind->bytes, all * m->k * m->kind->bytes,
        4 * beside, 4 * results};
    const uint32_t grid[3] = {m->stays || !m->tiles ? 1 : m->tiles, 1, 1};
    ck_assert(want && found);
    tvm_interp_arg args[ARGUMENTS] = {
        {.scalar.i = m->tiles}, {.scalar.i = m->k}, {.data = a}, {.data = b}, {.data = r}, {.data = want}};
    run_interpreter(program, "k", args, grid);
    tvm_module *module = translate(program, "sm_100a");
    bool taken = strstr(module->ptx, "tcgen05.mma") && !strstr(module->ptx, "mma.sync");
    bool parted = strstr(module->ptx, "cp.async.bulk.tensor") != NULL;
    args[ARGUMENTS - 1].data = found;
    run_code(program, module, args, bytes);
    if (!taken || memcmp(want, found, 4 * results) != 0) fprintf(stderr, "%s", text);
    ck_assert(taken);
    ck_assert(parted == (!m->by_threads && m->stages > 1));
    compare_tensors("products", (tvm_dtype){TVM_KIND_UINT, 32, 0, 0}, found, want, results);
    tvm_module_free(module);
    free(a), free(b), free(r), free(want), free(found);
}

static tvm_ir_program *program_of(const char *text) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    if (tvm_assemble_text(text, strlen(text), "products.vasm", NULL, &program, &diags) != TVM_OK) {
        fprintf(stderr, "%s", text);
        tvm_diags_print(&diags, stderr, "products", false);
    }
    ck_assert_ptr_nonnull(program);
    tvm_diags_free(&diags);
    return program;
}

START_TEST(the_code_does_what_the_interpreter_does) {
    for (uint64_t seed = first_seed; seed < first_seed + programs; seed++) {
        maker m = {.state = seed * UINT64_C(0x9e3779b97f4a7c15), .kind = &kinds[seed % KINDS]};
        char *text = make_text(&m);
        tvm_ir_program *program = program_of(text);
        check(&m, text, program);
        tvm_ir_program_free(program);
        free(text);
    }
}
END_TEST

/* m, n and k that end in tiles, of one tile and of several, and of no turn and no row. */
START_TEST(matmul_simple_needs_no_word) {
    static const size_t sizes[][3] = {{128, 128, 64}, {130, 264, 200}, {1, 8, 8}, {40, 72, 0}, {0, 8, 16}};
    char path[5000];
    kernel_kit k = kit_open("matmul_simple.vasm", "T=f16");
    tvm_ir_program *program = assemble_file(program_path("matmul_simple.vasm", path), "T=f16");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t m = sizes[s][0], n = sizes[s][1], depth = sizes[s][2];
        kit_clear(&k);
        for (unsigned i = 0; i < 3; i++) kit_scalar(&k, (double)sizes[s][i]);
        const kit_tensor *a = kit_input(&k, TVM_F16, m * depth, -1, 1),
                         *b = kit_input(&k, TVM_F16, depth * n, -1, 1);
        kit_tensor *c = kit_tensor_new(&k, TVM_F16, m * n);
        kit_execute(&k, c, program, "matmul_128", "sm_100a");
        for (size_t i = 0; i < m * n; i++) {
            double sum = 0;
            for (size_t l = 0; l < depth; l++) sum += a->values[i / n * depth + l] * b->values[l * n + i % n];
            ck_assert_double_eq_tol(c->values[i], sum, 1e-5 + 0x1p-11 * fabs(sum));
        }
    }
    tvm_ir_program_free(program);
    kit_close(&k);
}
END_TEST

/* A kernel that becomes products of the tensor core, but for one thing; %s: before the loop, in it before and
 * behind the product, and after it. */
static const char refused_form[] =
    ".vasm 7\n.const M = %u, N = %u, WARPS = %u\n"
    ".kernel k(k: i32, a: global f16[256, k], b: global f16[256, k], y: global f32[256, 256])\n"
    ".warps WARPS\n.grid 1\n.assume k %% 64 == 0\n"
    "    %%sa = alloc-shared f16[M, 64]\n    %%sb = alloc-shared f16[N, 64]\n"
    "    %%c = alloc-register f32[M, N], init %s\n    %%x = 0\n"
    "    for %%k0 = 0 to k step 64 pipeline 3\n        copy-async %%sa, a[0, %%k0]\n"
    "        copy-async %%sb, b[0, %%k0]\n        %s\n"
    "        %%c = mma %%sa, %%sb, %%c, transpose_b, k 64\n        %s\n    end\n    %s\n"
    "    store-global y, %%c\n.end\n";

START_TEST(others_are_left_to_the_warps) {
    static const struct {
        unsigned m, n, warps;
        const char *init, *before, *behind, *after, *why;
    } all[] = {
        {128, 64, 4, "0.0", "", "", "", NULL},
        {64, 64, 4, "0.0", "", "", "", "sums have other than 128 rows"},
        {128, 24, 4, "0.0", "", "", "", "columns are no multiple of 16 up to 256"},
        {128, 64, 2, "0.0", "", "", "", "warps are no multiple of 4"},
        {128, 64, 4, "1.0", "", "", "", "sums begin with other than zeros"},
        {128, 64, 4, "-0.0", "", "", "", "sums begin with other than zeros"},
        {128, 64, 4, "0.0", "", "%c = %c * 2.0", "", "beside its products the pipelined loop has mul"},
        {128, 64, 4, "0.0", "%x = %k0", "", "store-global y[0, 0], alloc-register(f32[1, 1], init f32(%x))",
         "a scalar of the pipelined loop is read outside of it"},
        {128, 64, 4, "0.0", "", "",
         "%sz = alloc-shared f16[M, 64]\n    %c = mma %sz, %sz, %c, transpose_b, k 64",
         "a product stands outside of the pipelined loop"},
        {128, 64, 8, "0.0", "", "", "%r = reduce sum, %c, 1\n    store-global y, %r",
         "decides what reduce gives"},
        {128, 64, 8, "0.0", "", "", "%v = view %c, u8, spatial(256, 1).local(1, 128)",
         "decides what view gives"},
        {128, 64, 8, "0.0", "", "", "%t = transpose %c\n    store-global y, %t",
         "a layout beside the sums does not follow from theirs"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[2048];
        snprintf(text, sizeof text, refused_form, all[i].m, all[i].n, all[i].warps, all[i].init,
                 all[i].before, all[i].behind, all[i].after);
        tvm_ir_program *program = program_of(text);
        tvm_module *module = translate(program, "sm_100a");
        const tvm_kernel_code *code = &module->kernels[0];
        bool told = false;
        for (size_t s = 0; s < code->selection_count; s++)
            told = told || (all[i].why && strstr(code->selections[s].refused, all[i].why));
        ck_assert_msg(told == (all[i].why != NULL), "%zu: %s", i, all[i].why ? all[i].why : "refused");
        ck_assert((strstr(module->ptx, "tcgen05") == NULL) == (all[i].why != NULL));
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) programs = strtoull(argv[1], NULL, 0);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 0);
    Suite *suite = suite_create("tensor_products");
    TCase *tests = suite_case(suite, "random");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, the_code_does_what_the_interpreter_does);
    tcase_add_test(tests, matmul_simple_needs_no_word);
    tcase_add_test(tests, others_are_left_to_the_warps);
    return run_suite(suite);
}
