/* programs/matmul_lowbit.vasminc: the entry and each of its variants on the interpreter against float64, with
 * as many multiprocessors as make tiles whole and as make them shared. What compiles: test_lowbit_compiled.c.
 * Without TVM_TEST_ALL each type, variant, option, size and machine is met, but not each of them with each
 * other.
 */
#include "check_kit.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent_kit.h"
#include "lowbit_reference.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "tvm.h"
#include "type_kit.h"

static tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX];
static int lowbit_count;

static const char *lowbit_path(void) {
    static char path[5000];
    return program_path("matmul_lowbit_u4.vasm", path);
}

/* ---- the interpreter */

/* A device that launches see. */
typedef struct machine {
    unsigned target, multiprocessors;
} machine;

typedef struct runner {
    const lowbit_form *form;
    weight_type weight;
    machine on;
    tvm_context *context;
    tvm_program *code;
} runner;

static void open_defined(runner *r, const lowbit_form *f, const char *define, machine on) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU,
                                   .threads = 2,
                                   .cache_dir = "",
                                   .target = on.target,
                                   .multiprocessors = on.multiprocessors};
    size_t size = 0;
    *r = (runner){.form = f, .on = on};
    uint8_t *bytes = bytecode_of(lowbit_path(), define, &size);
    ck_assert(weight_type_parse(f->type, &r->weight));
    ck_assert_int_eq(tvm_context_create(&options, &r->context), TVM_OK);
    ck_assert_int_eq(tvm_load(r->context, bytes, size, &r->code), TVM_OK);
    free(bytes);
}

static void open_runner(runner *r, const lowbit_form *f, machine on) {
    char define[128];
    lowbit_define(f, define);
    open_defined(r, f, define, on);
}

static void close_runner(runner *r) {
    tvm_program_free(r->code);
    tvm_context_free(r->context);
}

static tvm_kernel *kernel_of(const runner *r, const char *name) {
    tvm_kernel *kernel = NULL;
    ck_assert_msg(tvm_get_kernel(r->code, name, &kernel) == TVM_OK, "%s", tvm_message(r->context));
    return kernel;
}

/* The interpreter takes the host's memory: 16 bytes aligned. */
static void *zeroed(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    ck_assert_ptr_nonnull(memory);
    return memset(memory, 0, (bytes + 64) / 64 * 64);
}

/* The operands of a product, and what it is. */
typedef struct problem {
    long m, n, k;
    uint16_t *a, *s, *z, *bias;
    uint8_t *w, *p;
    float *factor;
    double *expected;
} problem;

static void pack(const runner *r, problem *o) {
    tvm_kernel *kernel = kernel_of(r, "pack");
    tvm_value sizes[4] = {{.i = o->k}, {.i = o->n}};
    int64_t shape[8];
    size_t bytes;
    ck_assert_int_eq(tvm_param_shape(kernel, 3, sizes, 4, shape, &bytes), TVM_OK);
    ck_assert_uint_ge(bytes, (size_t)(o->k * o->n) * (size_t)r->weight.bits / 8);
    o->p = zeroed(bytes);
    ck_assert_msg(tvm_launch(kernel, NULL, (int)o->k, (int)o->n, o->w, o->p) == TVM_OK, "%s",
                  tvm_message(r->context));
}

static void make_seeded(const runner *r, problem *o, long m, long n, long k, uint64_t seed) {
    const matmul_variant options = r->form->options;
    size_t scales = (size_t)(matmul_groups(options, k) * n) * 2;
    *o = (problem){.m = m, .n = n, .k = k};
    o->a = zeroed((size_t)(m * k) * 2), o->s = zeroed(scales), o->z = zeroed(scales);
    o->factor = zeroed(sizeof(float)), *o->factor = LOWBIT_FACTOR;
    o->bias = zeroed((size_t)n * 2), o->w = zeroed((size_t)(k * n) * (size_t)r->weight.bits / 8);
    o->expected = zeroed((size_t)(m * n) * sizeof(double));
    matmul_inputs(m, n, k, r->weight, options, seed, o->a, o->w, o->s, o->z);
    matmul_expect(m, n, k, r->weight, options, o->a, o->w, o->s, o->z, o->expected);
    lowbit_bias(r->form, m, n, o->bias, o->expected);
    pack(r, o);
}

static void make_problem(const runner *r, problem *o, long m, long n, long k) {
    make_seeded(r, o, m, n, k, (uint64_t)(m + n + k));
}

static void free_problem(problem *o) {
    void *const memory[] = {o->a, o->s, o->z, o->bias, o->w, o->p, o->factor, o->expected};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

static size_t product_bytes(const runner *r, const problem *o) {
    return (size_t)(o->m * o->n) * (r->form->f32 ? 4 : 2);
}

/* The arguments of the entry and of all variants; how many. */
static size_t arguments(const runner *r, const problem *o, void *c, tvm_value values[10]) {
    size_t count = 0;
    const long sizes[] = {o->m, o->n, o->k};
    void *const tensors[] = {o->a,
                             o->p,
                             o->s,
                             r->form->options.zeros ? o->z : NULL,
                             r->form->bias ? o->bias : NULL,
                             r->form->factor ? o->factor : NULL,
                             c};
    for (size_t i = 0; i < 3; i++) values[count++] = (tvm_value){.i = sizes[i]};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i] != NULL) values[count++] = (tvm_value){.data = tensors[i]};
    return count;
}

/* The product, malloc'ed. */
static void *multiply(const runner *r, const problem *o, const char *kernel) {
    tvm_value values[10];
    void *c = zeroed(product_bytes(r, o));
    memset(c, 0x7f, product_bytes(r, o)); /* elements that are not written are no numbers */
    size_t count = arguments(r, o, c, values);
    ck_assert_msg(tvm_launchv(kernel_of(r, kernel), NULL, values, count) == TVM_OK, "%s",
                  tvm_message(r->context));
    ck_assert_int_eq(tvm_synchronize(r->context, NULL), TVM_OK);
    return c;
}

static void is_product(const runner *r, const problem *o, const void *c, const char *kernel) {
    double error = lowbit_error(r->form, (size_t)(o->m * o->n), c, o->expected);
    char define[128];
    lowbit_define(r->form, define);
    ck_assert_msg(error <= lowbit_error_bound(r->form),
                  "%s: %s, %u multiprocessors: m %ld n %ld k %ld: relative Frobenius error %g", define,
                  kernel, r->on.multiprocessors, o->m, o->n, o->k, error);
}

/* `kernel` multiplies, and twice gives the same bits. */
static void multiplies(const runner *r, const problem *o, const char *kernel) {
    void *first = multiply(r, o, kernel), *second = multiply(r, o, kernel);
    is_product(r, o, first, kernel);
    ck_assert_mem_eq(first, second, product_bytes(r, o));
    free(first), free(second);
}

/* One size of three without TVM_TEST_ALL, the one that `turn` says first. */
static void runner_multiplies(const runner *r, const char *kernel, const long (*sizes)[3], size_t count,
                              unsigned turn) {
    for (size_t i = 0; i < count; i++) {
        if (!test_takes(i + 2 * turn, 3)) continue;
        problem o;
        make_problem(r, &o, sizes[i][0], sizes[i][1], sizes[i][2]);
        multiplies(r, &o, kernel);
        free_problem(&o);
    }
}

static void form_multiplies(const lowbit_form *f, machine on, const char *kernel, const long (*sizes)[3],
                            size_t count, unsigned turn) {
    runner r;
    open_runner(&r, f, on);
    runner_multiplies(&r, kernel, sizes, count, turn);
    close_runner(&r);
}

START_TEST(every_weight_type_multiplies) {
    static const long size[][3] = {{5, 136, 384}, {17, 72, 256}};
    char name[TVM_DTYPE_NAME_MAX];
    lowbit_form f = {.type = tvm_dtype_name(lowbit[_i], name), .options = matmul_default};
    for (unsigned i = 0; i < 4; i++)
        if (test_takes((unsigned)_i + i, 4))
            form_multiplies(&f, i & 1 ? (machine){90, 3} : (machine){0}, "matmul_lowbit", &size[i >> 1], 1,
                            0);
}
END_TEST

static const char *const shapes_types[] = {"u4", "u3", "f6_e3m2"};
enum { SHAPES_TYPES = sizeof shapes_types / sizeof *shapes_types };

/* Can the grid of a variant be as large as the device, not as its tiles? Not that of clusters that share
 * tiles. */
static bool grid_depends_on_device(const char *kernel) {
    size_t length = strlen(kernel);
    return !isdigit((unsigned char)kernel[strlen("matmul_lowbit_")]) ||
           strstr(kernel, "_persistent") != NULL || strcmp(kernel + length - 2, "x1") == 0;
}

/* Variants of a test, and most there may be. */
enum { TOGETHER = 6, MOST_VARIANTS = 66 };

static void variants_multiply(const runner *r, unsigned first, unsigned turn, const long (*sizes)[3],
                              size_t count) {
    unsigned number = 0;
    for (size_t k = 0; k < tvm_kernel_count(r->code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(r->code, k));
        if (!lowbit_runs_on(kernel, r->on.target)) continue;
        unsigned v = number++;
        if (v < first || v >= first + TOGETHER ||
            !test_takes(v + turn, grid_depends_on_device(kernel) ? 3 : 1))
            continue;
        if (r->on.multiprocessors == 1 || grid_depends_on_device(kernel))
            runner_multiplies(r, kernel, sizes, count, v);
    }
    ck_assert_uint_gt(number, 0);
    ck_assert_uint_le(number, MOST_VARIANTS);
}

/* One multiprocessor has whole tiles, of three each begins and ends within some, 132 are more than there are
 * units. k = 1024 is shared out evenly, by fewer blocks than three multiprocessors have. */
START_TEST(every_variant_multiplies_every_shape) {
    enum { TURNS = MOST_VARIANTS / TOGETHER };
    static const unsigned multiprocessors[] = {1, 3, 132};
    static const long sizes[][3] = {{1, 136, 1408}, {33, 136, 1408}, {70, 1160, 256},
                                    {9, 136, 1024}, {5, 520, 384},   {8, 136, 384},
                                    {9, 520, 384},  {16, 8, 2688},   {17, 136, 384}};
    size_t count = _i < TURNS ? sizeof sizes / sizeof *sizes : 4; /* all for the first type */
    unsigned type = (unsigned)_i / TURNS;
    const lowbit_form f = {.type = shapes_types[type], .options = matmul_default};
    for (unsigned i = 0; i < sizeof multiprocessors / sizeof *multiprocessors; i++) {
        runner r;
        open_runner(&r, &f, (machine){90, multiprocessors[i]});
        variants_multiply(&r, (unsigned)_i % TURNS * TOGETHER, i + type, sizes, count);
        close_runner(&r);
    }
}
END_TEST

static const lowbit_form large_forms[] = {
    {"u4", {1, 64, 1}, true, false, false},       {"u4", {0, 32, 0}, false, false, false},
    {"u4", {0, 0, 0}, true, false, false},        {"u4", {0, 0, 1}, false, true, false},
    {"u2", {0, 64, 1}, false, false, false},      {"i5", {1, 64, 0}, true, false, false},
    {"u6", {0, 128, 1}, true, false, false},      {"f3_e1m1", {0, 128, 0}, false, false, false},
    {"f8_e4m3", {0, 32, 0}, false, false, false}, {"f8_e5m2", {1, 64, 0}, false, false, false},
    {"f4_e2m1", {0, 16, 0}, true, false, true},   {"u3", {1, 16, 1}, false, false, false},
    {"fp4", {1, 32, 0}, true, false, false},      {"f8_e5m2", {0, 64, 0}, false, false, true},
    {"u8", {0, 128, 1}, true, true, false},       {"f8_e6m1", {0, 32, 0}, true, false, false},
};
enum { LARGE_FORMS = sizeof large_forms / sizeof *large_forms };

/* Those for more than 16 rows, where other options are other ways to take the scales. */
START_TEST(large_variants_multiply) {
    static const long sizes[][3] = {{17, 136, 1408}, {70, 584, 640}};
    const lowbit_form *f = &large_forms[_i];
    runner r;
    open_runner(&r, f, (machine){90, 5});
    for (size_t k = 0; k < tvm_kernel_count(r.code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(r.code, k));
        if (lowbit_rows(kernel) > 16 && lowbit_runs_on(kernel, 90) &&
            test_takes((unsigned)k + (unsigned)_i, 5))
            runner_multiplies(&r, kernel, sizes, 2, 0);
    }
    close_runner(&r);
    form_multiplies(f, (machine){90, 132}, "matmul_lowbit", sizes, 2, 0);
}
END_TEST

/* Those with tcgen05, of tiles that are whole and that two blocks or more share: of each type of weights, and
 * with each of the options. */
static void tensor_variants_multiply(const lowbit_form *f, unsigned turn) {
    static const unsigned multiprocessors[] = {1, 3, 5};
    static const long sizes[][3] = {{33, 264, 640}, {70, 584, 256}, {17, 136, 1408}, {200, 72, 128}};
    runner r;
    open_runner(&r, f, (machine){100, multiprocessors[turn % 3]});
    unsigned found = 0;
    for (size_t k = 0; k < tvm_kernel_count(r.code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(r.code, k));
        if (lowbit_is_tensor(kernel) && test_takes(found++ + turn, 4))
            runner_multiplies(&r, kernel, &sizes[turn % 2], 3, turn / 4);
    }
    ck_assert_uint_gt(found, 0);
    close_runner(&r);
}

START_TEST(tensor_variants_multiply_every_type) {
    char name[TVM_DTYPE_NAME_MAX];
    lowbit_form f = {.type = tvm_dtype_name(lowbit[_i], name), .options = matmul_default};
    f.options.bf16 = lowbit[_i].exponent >= 5;
    tensor_variants_multiply(&f, (unsigned)_i);
}
END_TEST

START_TEST(tensor_variants_multiply_every_form) {
    static const lowbit_form forms[] = {
        {"u4", {1, 64, 1}, true, false, false},  {"u4", {0, 32, 0}, false, false, false},
        {"u4", {0, 0, 1}, false, false, true},   {"i5", {1, 64, 0}, true, false, false},
        {"u3", {1, 16, 1}, false, false, true},  {"f4_e2m1", {0, 16, 0}, true, false, true},
        {"fp4", {1, 32, 0}, true, false, false}, {"u8", {1, 128, 1}, true, false, false},
    };
    tensor_variants_multiply(&forms[_i], (unsigned)_i);
}
END_TEST

/* Rows of tiles share the multiprocessors evenly, have some left over, or are more than there are of them. */
START_TEST(rows_of_tiles_share_the_device) {
    static const unsigned multiprocessors[] = {2, 5, 16};
    static const long sizes[][3] = {{270, 264, 512}, {390, 136, 384}, {641, 72, 256}};
    const lowbit_form f = {.type = _i & 1 ? "u8" : "u4", .options = matmul_default};
    runner r;
    open_runner(&r, &f, (machine){80, multiprocessors[_i]});
    for (size_t k = 0; k < tvm_kernel_count(r.code); k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(r.code, k));
        if (lowbit_is_for_all(kernel) && lowbit_rows(kernel) > 16 &&
            test_takes((unsigned)k + (unsigned)_i, 2))
            runner_multiplies(&r, kernel, sizes, 3, (unsigned)k);
    }
    close_runner(&r);
    form_multiplies(&f, (machine){80, multiprocessors[_i]}, "matmul_lowbit", sizes, 3, (unsigned)_i);
}
END_TEST

static const matmul_variant options[] = {
    {0, 32, 0},  {0, 64, 0}, {0, 0, 0},  {1, 32, 0},  {1, 128, 0}, {1, 0, 0},  {0, 32, 1},
    {0, 128, 1}, {0, 0, 1},  {1, 64, 1}, {1, 128, 1}, {1, 0, 1},   {0, 16, 0}, {1, 16, 1},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* Each with and without a bias and f32 in turn, through the entry for a large device and for one with small
 * variants. */
START_TEST(every_option_multiplies) {
    static const char *const types[] = {"u4", "u3", "i5", "f6_e3m2", "f8_e6m1", "u8", "nf4"};
    static const long sizes[][3] = {{3, 136, 384}, {16, 72, 1408}, {33, 136, 384}};
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
        unsigned turn = t + (unsigned)_i;
        lowbit_form f = {types[t], options[_i], turn & 1, turn >> 1 & 1, turn % 3 == 0};
        if (!test_takes(turn, 3) || (f.options.zeros && f.type[0] != 'u')) continue;
        if (f.options.group == 16 && strcmp(f.type, "f8_e6m1") == 0) f.options.bf16 = true;
        form_multiplies(&f, (machine){90, 3}, "matmul_lowbit", sizes, 3, t);
        form_multiplies(&f, (machine){80, 4}, "matmul_lowbit", sizes, 3, t + 1);
    }
}
END_TEST

static const lowbit_form invariant_forms[] = {
    {"u4", {0, 128, 0}, false, false, false},
    {"u4", {0, 128, 0}, false, true, false}, /* in f32, which shows each sum's
                                  last bit */
    {"u8", {0, 128, 1}, true, false, false},
    {"u3", {1, 64, 0}, false, true, false},
    {"f8_e6m1", {0, 32, 0}, false, true, false},
    {"nf4", {0, 64, 0}, false, false, false},
};
enum { INVARIANT_FORMS = sizeof invariant_forms / sizeof *invariant_forms };

/* With BATCH_INVARIANT rows have the same bits, however many are beside them. */
START_TEST(rows_do_not_depend_on_the_batch) {
    enum { M = 129, N = 136, K = 640 };
    static const long batches[] = {1, 3, 17, 64};
    static const machine machines[] = {{90, 3}, {80, 4}};
    const lowbit_form *f = &invariant_forms[_i / 2];
    char define[160];
    runner r;
    problem o;
    lowbit_define(f, define);
    snprintf(define + strlen(define), 32, " BATCH_INVARIANT=true");
    open_defined(&r, f, define, machines[_i % 2]);
    make_problem(&r, &o, M, N, K);
    uint16_t *rows = o.a;
    size_t row = product_bytes(&r, &o) / M;
    uint8_t *all = multiply(&r, &o, "matmul_lowbit");
    is_product(&r, &o, all, "matmul_lowbit");
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        o.m = batches[i];
        uint8_t *some = multiply(&r, &o, "matmul_lowbit");
        ck_assert_msg(memcmp(some, all, (size_t)o.m * row) == 0, "%s: %ld rows", define, o.m);
        free(some);
    }
    o.m = 1, o.a = rows + (M - 1) * K;
    uint8_t *last = multiply(&r, &o, "matmul_lowbit");
    ck_assert_mem_eq(last, all + (M - 1) * row, row);
    o.a = rows;
    free(all), free(last);
    free_problem(&o);
    close_runner(&r);
}
END_TEST

/* Weights that are read before the launch before has ended: the same bits, where tiles of up to 8 rows have
 * more than four steps. */
START_TEST(early_weights_are_the_same) {
    static const long sizes[][3] = {{5, 136, 5248}, {16, 520, 384}, {40, 72, 2688}};
    static const machine machines[] = {{90, 3}, {90, 132}, {0, 4}};
    const lowbit_form f = {.type = "u4", .options = {.group = 128, .zeros = 1}, .bias = true};
    runner late, early;
    open_runner(&late, &f, machines[_i]);
    open_defined(&early, &f, "WTYPE=u4 ZEROS=true BIAS=true EARLY=true", machines[_i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem o;
        make_problem(&late, &o, sizes[i][0], sizes[i][1], sizes[i][2]);
        void *expected = multiply(&late, &o, "matmul_lowbit"), *found = multiply(&early, &o, "matmul_lowbit");
        is_product(&early, &o, found, "matmul_lowbit");
        ck_assert_mem_eq(found, expected, product_bytes(&late, &o));
        free(expected), free(found);
        free_problem(&o);
    }
    close_runner(&late);
    close_runner(&early);
}
END_TEST

/* By four warps a block, and in whole tiles where their steps are few. */
START_TEST(early_launches_multiply) {
    static const char *const defines[] = {"WTYPE=u4 EARLY=true",
                                          "WTYPE=f6_e3m2 ATYPE=bf16 GROUP=32 EARLY=true"};
    static const lowbit_form forms[] = {{"u4", {0, 128, 0}, false, false, false},
                                        {"f6_e3m2", {1, 32, 0}, false, false, false}};
    static const long sizes[][3] = {{5, 136, 1408}, {3, 20488, 256}, {5, 136, 1408}};
    runner r;
    open_defined(&r, &forms[_i], defines[_i], (machine){90, _i == 0 ? 3 : 132});
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem o;
        make_problem(&r, &o, sizes[i][0], sizes[i][1], sizes[i][2]);
        const char *kernel = i == 0 ? "matmul_lowbit_mma_8x64x4" : "matmul_lowbit";
        uint8_t *found = multiply(&r, &o, kernel);
        is_product(&r, &o, found, kernel);
        free(found);
        free_problem(&o);
    }
    close_runner(&r);
}
END_TEST

/* ---- stacks of experts */

enum { EXPERTS = 5 };

/* Stacks of EXPERTS matrices, and what all rows times each of them are. */
typedef struct stacks {
    problem of[EXPERTS];
    void *p, *s, *z, *bias;
    float *factor;
    const char *gate; /* GATE, or NULL */
    int32_t *rows;    /* with GATHER: a row is that of half of its number; one number is that of none */
} stacks;

/* The tensors of the problems, one behind the other. */
static void *stacked(void *const parts[EXPERTS], size_t bytes) {
    uint8_t *whole = zeroed(EXPERTS * bytes);
    for (size_t i = 0; i < EXPERTS; i++) memcpy(whole + i * bytes, parts[i], bytes);
    return whole;
}

static void make_stacks(const runner *r, stacks *o, long m, long n, long k, const char *gate) {
    const matmul_variant how = r->form->options;
    void *p[EXPERTS], *s[EXPERTS], *z[EXPERTS], *bias[EXPERTS];
    o->factor = zeroed(EXPERTS * sizeof(float)), o->gate = gate, o->rows = NULL;
    for (size_t i = 0; i < EXPERTS; i++) {
        problem *one = &o->of[i];
        make_seeded(r, one, m, n, k, 7 + i);
        memcpy(one->a, o->of[0].a, (size_t)(m * k) * 2);
        memset(one->expected, 0, (size_t)(m * n) * sizeof(double));
        matmul_expect(m, n, k, r->weight, how, one->a, one->w, one->s, one->z, one->expected);
        lowbit_bias(r->form, m, n, one->bias, one->expected);
        p[i] = one->p, s[i] = one->s, z[i] = one->z, bias[i] = one->bias, o->factor[i] = *one->factor;
    }
    const size_t scales = (size_t)(matmul_groups(how, k) * n) * 2;
    o->p = stacked(p, (size_t)((n + 63) / 64 * 64 * k) * (size_t)r->weight.bits / 8);
    o->s = stacked(s, scales), o->z = stacked(z, scales), o->bias = stacked(bias, (size_t)n * 2);
}

static void free_stacks(stacks *o) {
    for (size_t i = 0; i < EXPERTS; i++) free_problem(&o->of[i]);
    free(o->p), free(o->s), free(o->z), free(o->bias), free(o->factor), free(o->rows);
}

/* The expert of a row by the definition, or -1: offsets are cut to 0 to m, and none is less than one before
 * it. */
static int expert_of(const int32_t *offsets, long m, long row) {
    long begin = 0;
    for (int e = -1; e < EXPERTS; e++) {
        long end = offsets[e + 1] < 0 ? 0 : offsets[e + 1] > m ? m : offsets[e + 1];
        if (end < begin) end = begin;
        if (row >= begin && row < end) return e;
        begin = end;
    }
    return -1;
}

/* What is stored of the sums of a row, n or, with a gate, n / 2 of them: in the place of these. */
static void stored_of(const char *gate, long n, double *row) {
    if (gate == NULL) return;
    for (long i = 0; i < n / 2; i++) {
        double a = row[2 * i], b = row[2 * i + 1];
        bool clamped = strcmp(gate, "clamped") == 0;
        if (clamped) a = fmin(a, 7), b = fmax(fmin(b, 7), -7) + 1;
        row[i] = a / (1 + exp(clamped ? -1.702 * a : -a)) * b;
    }
}

static size_t stacks_arguments(const runner *r, const stacks *o, int32_t *offsets, void *c,
                               tvm_value values[14]) {
    const problem *one = &o->of[0];
    const long sizes[] = {one->m, one->n, one->k, EXPERTS, one->m, 2};
    void *const tensors[] = {one->a,
                             offsets,
                             o->rows,
                             o->p,
                             o->s,
                             r->form->options.zeros ? o->z : NULL,
                             r->form->bias ? o->bias : NULL,
                             r->form->factor ? o->factor : NULL,
                             c};
    size_t count = 0;
    for (size_t i = 0; i < (o->rows != NULL ? 6 : 4); i++) values[count++] = (tvm_value){.i = sizes[i]};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i] != NULL) values[count++] = (tvm_value){.data = tensors[i]};
    return count;
}

static void gather_rows(stacks *o) {
    const int32_t m = (int32_t)o->of[0].m;
    o->rows = zeroed((size_t)m * sizeof *o->rows);
    for (int32_t i = 0; i < m; i++) o->rows[i] = (i * 37 + 11) % (2 * m);
    o->rows[m / 2] = 2000000000;
}

/* Each row is multiplied by its expert's matrix, and rows of none are not written. */
static void rows_have_experts(const runner *r, const stacks *o, const int32_t *given, const char *kernel) {
    const problem *one = &o->of[0];
    const size_t stored = (size_t)one->n / (o->gate != NULL ? 2 : 1),
                 of_row = stored * (r->form->f32 ? 4 : 2);
    double *row_of = zeroed((size_t)one->n * sizeof(double));
    int32_t offsets[EXPERTS + 1] __attribute__((aligned(64)));
    memcpy(offsets, given, sizeof offsets);
    uint8_t *c = zeroed((size_t)one->m * of_row);
    memset(c, 0x7f, (size_t)one->m * of_row);
    tvm_value values[14];
    size_t count = stacks_arguments(r, o, offsets, c, values);
    ck_assert_msg(tvm_launchv(kernel_of(r, kernel), NULL, values, count) == TVM_OK, "%s: %s", kernel,
                  tvm_message(r->context));
    for (long row = 0; row < one->m; row++) {
        int e = expert_of(offsets, one->m, row);
        const uint8_t *found = c + (size_t)row * of_row;
        if (e < 0) {
            for (size_t i = 0; i < of_row; i++) ck_assert_msg(found[i] == 0x7f, "%s: row %ld", kernel, row);
        } else if (o->rows == NULL || o->rows[row] < 2 * one->m) {
            long from = o->rows != NULL ? o->rows[row] / 2 : row;
            memcpy(row_of, o->of[e].expected + from * one->n, (size_t)one->n * sizeof(double));
            stored_of(o->gate, one->n, row_of);
            double error = lowbit_error(r->form, stored, found, row_of);
            ck_assert_msg(error <= 2 * lowbit_error_bound(r->form), "%s: row %ld of expert %d: %g", kernel,
                          row, e, error);
        }
    }
    free(c), free(row_of);
}

/* All rows at one expert, experts without rows or with one, and offsets that are none. */
static const int32_t offsets_of_70[][EXPERTS + 1] = {
    {0, 70, 70, 70, 70, 70},         {0, 0, 33, 33, 34, 70}, {3, 19, 19, 40, 41, 66}, {0, 40, 20, 50, 45, 70},
    {-7, -9, 35, 2000000000, 5, 70}, {0, 0, 0, 0, 0, 70},    {70, 0, 70, 70, 70, 70}};
static const int32_t offsets_of_5[][EXPERTS + 1] = {
    {0, 1, 2, 3, 4, 5}, {0, 0, 5, 5, 5, 5}, {0, 2, 2, 2, 4, 4}, {5, 4, 3, 2, 1, 0}};
#define OFFSETS(of) (sizeof(of) / sizeof *(of))

START_TEST(rows_of_experts_multiply) {
    static const machine machines[] = {{0, 4}, {90, 3}, {90, 132}, {100, 132}};
    const lowbit_form f = {.type = "u4", .options = {.group = 64, .zeros = 1}, .bias = true};
    runner r;
    open_defined(&r, &f, "WTYPE=u4 GROUP=64 ZEROS=true BIAS=true EXPERTS=true", machines[_i]);
    stacks o;
    make_stacks(&r, &o, 5, 200, 640, NULL);
    for (size_t i = 0; i < OFFSETS(offsets_of_5); i++)
        rows_have_experts(&r, &o, offsets_of_5[i], "matmul_lowbit");
    free_stacks(&o);
    make_stacks(&r, &o, 70, 72, 320, NULL);
    for (size_t i = 0; i < OFFSETS(offsets_of_70); i++)
        if (test_takes(i + (unsigned)_i, 2)) rows_have_experts(&r, &o, offsets_of_70[i], "matmul_lowbit");
    free_stacks(&o);
    close_runner(&r);
}
END_TEST

enum { STACK_FORMS = 6, STACK_MACHINES = 3 };

/* Every kernel with EXPERTS of a program; one launch of each in the sanitizer. */
START_TEST(every_variant_has_experts) {
    static const machine machines[STACK_MACHINES] = {{90, 3}, {90, 132}, {100, 3}};
    static const lowbit_form of[STACK_FORMS] = {
        {.type = "u4", .options = {.group = 128}},
        {.type = "f4_e2m1", .options = {.group = 32, .bf16 = 1}, .bias = true},
        {.type = "u3", .options = {.group = 64}, .factor = true},
        {.type = "u4", .options = {.group = 128}},
        {.type = "f4_e2m1", .options = {.group = 32, .bf16 = 1}, .bias = true},
        {.type = "u4", .options = {.group = 64}}};
    static const char *const defines[STACK_FORMS] = {
        "WTYPE=u4 EXPERTS=true",
        "WTYPE=f4_e2m1 ATYPE=bf16 GROUP=32 BIAS=true EXPERTS=true",
        "WTYPE=u3 GROUP=64 FACTOR=true EXPERTS=true EARLY=true",
        "WTYPE=u4 EXPERTS=true GATE=\"silu\"",
        ("WTYPE=f4_e2m1 ATYPE=bf16 GROUP=32 BIAS=true EXPERTS=true "
         "GATE=\"clamped\""),
        "WTYPE=u4 GROUP=64 EXPERTS=true GATHER=true"};
    static const char *const gates[STACK_FORMS] = {NULL, NULL, NULL, "silu", "clamped", NULL};
    const int form = _i / STACK_MACHINES;
    runner r;
    open_defined(&r, &of[form], defines[form], machines[_i % STACK_MACHINES]);
    stacks o;
    make_stacks(&r, &o, 70, 136, 384, gates[form]);
    if (strstr(defines[form], "GATHER") != NULL) gather_rows(&o);
    for (size_t i = 0; i < tvm_kernel_count(r.code); i++) {
        const char *name = tvm_kernel_name(tvm_kernel_at(r.code, i));
        /* those by mma.sync are alike on both targets */
        if (!lowbit_runs_on(name, r.on.target) || (r.on.target == 100 && !lowbit_is_tensor(name))) continue;
        for (size_t j = 0; j < OFFSETS(offsets_of_70); j++)
            if (test_takes(i + 2 * j + (unsigned)_i, 6)) rows_have_experts(&r, &o, offsets_of_70[j], name);
        if (!test_takes(i + (unsigned)_i, 3)) continue;
        ck_assert_int_eq(tvm_set_sanitizer(r.context, TVM_SANITIZE_TEXT), TVM_OK);
        rows_have_experts(&r, &o, offsets_of_70[(i + (unsigned)_i) % OFFSETS(offsets_of_70)], name);
        ck_assert_int_eq(tvm_set_sanitizer(r.context, TVM_SANITIZE_OFF), TVM_OK);
    }
    free_stacks(&o);
    close_runner(&r);
}
END_TEST

/* ---- the entry */

/* The bits are those of the variant that it names. */
START_TEST(the_entry_is_a_variant) {
    static const long sizes[][3] = {{1, 64, 128},  {8, 520, 384},    {9, 136, 1408},  {16, 520, 384},
                                    {33, 72, 256}, {17, 20488, 128}, {40, 20488, 128}};
    static const machine machines[] = {{0, 4}, {80, 3}, {90, 3}, {100, 132}};
    const lowbit_form f = {.type = "u4", .options = matmul_default};
    runner r;
    open_runner(&r, &f, machines[_i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!test_takes(i + (unsigned)_i, 2)) continue;
        problem o;
        tvm_value values[10];
        const char *name = NULL;
        make_problem(&r, &o, sizes[i][0], sizes[i][1], sizes[i][2]);
        size_t count = arguments(&r, &o, o.p, values);
        ck_assert_int_eq(tvm_kernel_variant(kernel_of(&r, "matmul_lowbit"), values, count, &name), TVM_OK);
        ck_assert_str_ne(name, "matmul_lowbit");
        void *chosen = multiply(&r, &o, "matmul_lowbit"), *named = multiply(&r, &o, name);
        ck_assert_mem_eq(chosen, named, product_bytes(&r, &o));
        free(chosen), free(named);
        free_problem(&o);
    }
    close_runner(&r);
}
END_TEST

/* The status of a launch of the entry with these sizes; no tensor is looked at. */
static tvm_status launch_sizes(const runner *r, int m, int n, int k) {
    static uint16_t memory[64] __attribute__((aligned(64)));
    return tvm_launch(kernel_of(r, "matmul_lowbit"), NULL, m, n, k, memory, memory, memory, memory);
}

START_TEST(impossible_sizes_are_refused) {
    const lowbit_form f = {.type = "u3", .options = matmul_default};
    const machine machines[] = {{0}, {90, 132}};
    runner r;
    open_runner(&r, &f, machines[_i]);
    ck_assert_int_eq(launch_sizes(&r, 1, 128, 100), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(r.context), "k = 100") != NULL, "%s", tvm_message(r.context));
    ck_assert_int_eq(launch_sizes(&r, 33, 13, 128), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(r.context), "n = 13") != NULL, "%s", tvm_message(r.context));
    ck_assert_int_eq(launch_sizes(&r, -1, 128, 128), TVM_ARGUMENT);
    ck_assert_int_eq(launch_sizes(&r, 0, 128, 128), TVM_OK); /* nothing to do */
    close_runner(&r);
}
END_TEST

/* A variant that needs sm_90 says so where it is launched by name. */
START_TEST(large_variants_are_for_sm_90) {
    const lowbit_form f = {.type = "u3", .options = matmul_default};
    runner r;
    problem o;
    tvm_value values[10];
    open_runner(&r, &f, (machine){80, 4});
    make_problem(&r, &o, 1, 64, 128);
    size_t count = arguments(&r, &o, o.p, values);
    ck_assert_int_eq(tvm_launchv(kernel_of(&r, "matmul_lowbit_mma_8x64x8"), NULL, values, count),
                     TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(r.context), "target") != NULL, "%s", tvm_message(r.context));
    free_problem(&o);
    close_runner(&r);
}
END_TEST

static Suite *lowbit_suite(void) {
    Suite *suite = suite_create("matmul_lowbit");
    TCase *run = tcase_create("interpreter");
    tcase_add_loop_test(run, every_weight_type_multiplies, 0, lowbit_count);
    tcase_add_loop_test(run, every_variant_multiplies_every_shape, 0,
                        SHAPES_TYPES * MOST_VARIANTS / TOGETHER);
    tcase_add_loop_test(run, large_variants_multiply, 0, LARGE_FORMS);
    tcase_add_loop_test(run, tensor_variants_multiply_every_type, 0, lowbit_count);
    tcase_add_loop_test(run, tensor_variants_multiply_every_form, 0, 8);
    tcase_add_loop_test(run, rows_of_tiles_share_the_device, 0, 3);
    tcase_add_loop_test(run, every_option_multiplies, 0, OPTIONS);
    tcase_add_loop_test(run, early_weights_are_the_same, 0, 3);
    tcase_add_loop_test(run, early_launches_multiply, 0, 2);
    tcase_add_loop_test(run, the_entry_is_a_variant, 0, 4);
    tcase_add_loop_test(run, impossible_sizes_are_refused, 0, 2);
    tcase_add_test(run, large_variants_are_for_sm_90);
    suite_add_tcase(suite, run);
    TCase *batches = tcase_create("batches"), *experts = tcase_create("experts");
    tcase_add_loop_test(batches, rows_do_not_depend_on_the_batch, 0, 2 * INVARIANT_FORMS);
    suite_add_tcase(suite, batches);
    tcase_add_loop_test(experts, rows_of_experts_multiply, 0, 4);
    tcase_add_loop_test(experts, every_variant_has_experts, 0, STACK_FORMS * STACK_MACHINES);
    suite_add_tcase(suite, experts);
    return suite;
}

int main(void) {
    lowbit_count = lowbit_types(lowbit);
    return run_suite(lowbit_suite());
}
