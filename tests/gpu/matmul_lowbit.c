/* programs/matmul_lowbit_u4.vasm: every weight type through the entry, every variant by its name for a few,
 * options for a few, twice for the same bits; against float64, and against the interpreter with this GPU's
 * target and multiprocessors, which shares tiles out among the blocks as the GPU does. The interpreter takes
 * by far the longest: of the variants it runs each one at a few sizes, in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lowbit_reference.h"
#include "suite.h"

typedef struct lowbit_size {
    long m, n, k;
} lowbit_size;

static const lowbit_size sizes[] = {
    {1, 72, 128},  {5, 136, 384},   {8, 520, 1408},  {16, 392, 640},
    {17, 8, 2688}, {33, 264, 1664}, {50, 1160, 384},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* More units than blocks, which so end within tiles, for all variants on GPUs of 60 to 200 multiprocessors;
 * tiles for each of them and a few more. */
static const lowbit_size large_sizes[] = {{5, 1544, 8320}, {20, 9608, 1408}, {70, 4616, 2176}};
enum { LARGE_SIZES = sizeof large_sizes / sizeof *large_sizes };

static const lowbit_form variant_forms[] = {
    {"u4", {0, 128, 0}, false, false, false},    {"u3", {0, 128, 0}, false, false, false},
    {"u8", {0, 128, 0}, false, false, false},    {"f6_e3m2", {0, 128, 0}, false, false, false},
    {"u4", {1, 64, 1}, true, false, false},      {"u4", {0, 32, 0}, true, false, false},
    {"u2", {0, 0, 1}, false, false, false},      {"i5", {0, 64, 0}, true, false, false},
    {"f4_e2m1", {0, 16, 0}, false, false, true}, {"u3", {1, 16, 1}, true, false, false},
    {"nf4", {0, 64, 0}, false, false, false},    {"f8_e5m2", {0, 128, 0}, false, false, false},
};
enum { VARIANT_FORMS = sizeof variant_forms / sizeof *variant_forms };

static const lowbit_form forms[] = {
    {"u4", {1, 128, 0}, false, false, false},     {"u4", {0, 32, 1}, true, false, false},
    {"u4", {1, 64, 1}, true, true, false},        {"u4", {0, 0, 1}, false, true, false},
    {"u1", {0, 64, 0}, true, true, false},        {"u2", {1, 32, 1}, true, false, false},
    {"u3", {0, 128, 1}, true, true, false},       {"u6", {0, 128, 1}, true, true, false},
    {"u8", {0, 128, 1}, true, true, false},       {"u8", {1, 0, 1}, true, false, false},
    {"u8", {0, 32, 0}, false, true, false},       {"i5", {1, 0, 0}, true, true, false},
    {"i5", {0, 64, 0}, true, true, false},        {"i8", {0, 0, 0}, false, true, false},
    {"f6_e3m2", {1, 64, 0}, false, false, false}, {"f6_e3m2", {0, 32, 0}, true, true, false},
    {"f8_e4m3", {0, 0, 0}, true, 1, false},       {"f8_e4m3", {1, 128, 0}, true, true, false},
    {"f8_e6m1", {1, 32, 0}, true, true, false},   {"f8_e6m1", {0, 0, 0}, true, 1, false},
    {"f5_e2m2", {0, 64, 0}, false, true, false},  {"u8", {0, 16, 1}, false, false, false},
    {"f4_e2m1", {1, 16, 0}, true, true, true},    {"fp4", {0, 128, 0}, true, false, false},
    {"nf4", {1, 64, 0}, true, false, false},      {"nf4", {0, 0, 0}, false, true, true},
};

/* Put through one build whose rows do not depend on how many there are. */
static const lowbit_form invariant_forms[] = {
    {"u4", {0, 128, 0}, false, false, false},
    {"u3", {1, 64, 0}, false, true, false},
    {"u8", {0, 128, 1}, true, false, false},
    {"f8_e6m1", {0, 32, 0}, false, true, false},
};
enum { INVARIANT_FORMS = sizeof invariant_forms / sizeof *invariant_forms };

/* What a test runs: a form; the variants by name as well. */
typedef struct lowbit_data {
    lowbit_form form;
    bool variants;
    size_t turn; /* of the variants that the interpreter runs */
    char type[TVM_DTYPE_NAME_MAX];
} lowbit_data;

/* A test's program where it runs. */
typedef struct lowbit_run {
    suite *s;
    const gpu_test *test;
    const lowbit_data *data;
    tvm_program *gpu, *model;
} lowbit_run;

typedef struct problem {
    const lowbit_form *form;
    weight_type weight;
    lowbit_size size;
    size_t a, w, s, p, c; /* elements; p in bytes */
    uint16_t *activations, *scales, *zeros, *bias;
    uint8_t *weights, *packed, *poison;
    double *expected;
} problem;

static void *zeroed(size_t bytes) {
    void *memory = calloc(bytes + 8, 1);
    if (memory == NULL) abort();
    return memory;
}

static void make(problem *o, const lowbit_form *form, weight_type weight, lowbit_size size) {
    const matmul_variant options = form->options;
    long m = size.m, n = size.n, k = size.k;
    *o = (problem){.form = form, .weight = weight, .size = size};
    o->a = (size_t)(m * k), o->w = (size_t)(k * n), o->c = (size_t)(m * n);
    o->s = (size_t)(matmul_groups(options, k) * n);
    o->activations = zeroed(o->a * 2), o->scales = zeroed(o->s * 2), o->zeros = zeroed(o->s * 2);
    o->bias = zeroed((size_t)n * 2), o->weights = zeroed(o->w * (size_t)weight.bits / 8);
    o->poison = zeroed(o->c * 4), o->expected = zeroed(o->c * sizeof(double));
    memset(o->poison, 0x7f, o->c * 4); /* elements that are not written are no numbers */
    matmul_inputs(m, n, k, weight, options, (uint64_t)(m + n + k), o->activations, o->weights, o->scales,
                  o->zeros);
    matmul_expect(m, n, k, weight, options, o->activations, o->weights, o->scales, o->zeros, o->expected);
    lowbit_bias(form, m, n, o->bias, o->expected);
}

static void free_problem(problem *o) {
    void *const memory[] = {o->activations, o->scales, o->zeros,  o->bias,
                            o->weights,     o->packed, o->poison, o->expected};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

/* The extents of a tensor parameter on this context; false with the reason printed. */
static bool shape_of(tvm_context *context, tvm_program *code, const gpu_test *test, const char *kernel,
                     size_t index, const tvm_value *values, size_t count, int64_t shape[8], size_t *bytes) {
    tvm_kernel *function = NULL;
    bool good = tvm_get_kernel(code, kernel, &function) == TVM_OK &&
                tvm_param_shape(function, index, values, count, shape, bytes) == TVM_OK;
    if (!good) printf("%s: %s\n", test->name, tvm_message(context));
    return good;
}

static bool load(tvm_context *context, const gpu_test *test, tvm_program **code) {
    bool good = tvm_load(context, test->bytecode, test->size, code) == TVM_OK;
    if (!good) printf("%s: %s\n", test->name, tvm_message(context));
    return good;
}

/* Packs on the GPU and on the interpreter, to the same bytes. */
static bool pack(const lowbit_run *r, problem *o) {
    tvm_value values[4] = {{.i = o->size.k}, {.i = o->size.n}};
    int64_t shape[8];
    suite *s = r->s;
    uint8_t *cpu[GPU_MAX_ARGS] = {0}, *gpu[GPU_MAX_ARGS] = {0};
    if (!shape_of(s->model, r->model, r->test, "pack", 3, values, 4, shape, &o->p)) return false;
    const gpu_arg args[] = {ARG_SCALAR(o->size.k), ARG_SCALAR(o->size.n),
                            ARG_IN(r->test->type, o->w, o->weights), ARG_OUT(TVM_U(8), o->p)};
    bool good = gpu_launch_code(s->model, r->model, r->test, "pack", args, 4, cpu) &&
                gpu_launch_code(s->gpu, r->gpu, r->test, "pack", args, 4, gpu) &&
                gpu_same(r->test->name, "packed weights", &args[3], cpu[3], gpu[3]);
    o->packed = gpu[3], gpu[3] = NULL;
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(cpu[i]), free(gpu[i]);
    return good;
}

/* The product there, malloc'ed; NULL with the reason printed. */
static uint8_t *multiply(const lowbit_run *r, bool on_gpu, const problem *o, const char *kernel) {
    tvm_dtype half = o->form->options.bf16 ? TVM_BF16 : TVM_F16;
    gpu_arg args[GPU_MAX_ARGS] = {ARG_SCALAR(o->size.m),
                                  ARG_SCALAR(o->size.n),
                                  ARG_SCALAR(o->size.k),
                                  ARG_IN(half, o->a, o->activations),
                                  ARG_IN(TVM_U(8), o->p, o->packed),
                                  ARG_IN(half, o->s, o->scales)};
    uint8_t *outputs[GPU_MAX_ARGS] = {0};
    const float factor = LOWBIT_FACTOR;
    size_t count = 6;
    if (o->form->options.zeros) args[count++] = ARG_IN(half, o->s, o->zeros);
    if (o->form->bias) args[count++] = ARG_IN(half, (size_t)o->size.n, o->bias);
    if (o->form->factor) args[count++] = ARG_IN(TVM_F32, 1, (const uint8_t *)&factor);
    args[count] = ARG_IN(o->form->f32 ? TVM_F32 : half, o->c, o->poison);
    bool good = gpu_launch_code(on_gpu ? r->s->gpu : r->s->model, on_gpu ? r->gpu : r->model, r->test, kernel,
                                args, count + 1, outputs);
    uint8_t *c = outputs[count];
    outputs[count] = NULL;
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(outputs[i]);
    if (!good) free(c);
    return good ? c : NULL;
}

static bool near_enough(const gpu_test *test, const problem *o, const char *kernel, const char *what,
                        const uint8_t *c, const double *expected) {
    double error = lowbit_error(o->form, o->c, c, expected);
    if (error <= lowbit_error_bound(o->form)) return true;
    printf("%s: %s: m %ld n %ld k %ld: relative Frobenius error %.3g, %s\n", test->name, kernel, o->size.m,
           o->size.n, o->size.k, error, what);
    return false;
}

static bool interpret(const lowbit_run *r, const problem *o, const char *kernel, const uint8_t *gpu) {
    uint8_t *cpu = multiply(r, false, o, kernel);
    double *interpreted = zeroed(o->c * sizeof(double));
    for (size_t i = 0; cpu != NULL && i < o->c; i++) interpreted[i] = lowbit_value(o->form, cpu, i);
    bool good = cpu != NULL &&
                near_enough(r->test, o, kernel, "the interpreter against float64", cpu, o->expected) &&
                near_enough(r->test, o, kernel, "the GPU against the interpreter", gpu, interpreted);
    free(interpreted), free(cpu);
    return good;
}

static bool check_kernel(const lowbit_run *r, const problem *o, const char *kernel, bool interpreted) {
    uint8_t *gpu[2] = {multiply(r, true, o, kernel), multiply(r, true, o, kernel)};
    bool good = gpu[0] != NULL && gpu[1] != NULL;
    if (good && memcmp(gpu[0], gpu[1], o->c * (o->form->f32 ? 4 : 2)) != 0) {
        printf("%s: %s: m %ld n %ld k %ld: other bits the second time\n", r->test->name, kernel, o->size.m,
               o->size.n, o->size.k);
        good = false;
    }
    good = good && near_enough(r->test, o, kernel, "the GPU against float64", gpu[0], o->expected) &&
           (!interpreted || interpret(r, o, kernel, gpu[0]));
    free(gpu[0]), free(gpu[1]);
    return good;
}

/* Those that this GPU has. */
static bool check_variants(const lowbit_run *r, const problem *o, size_t size) {
    size_t count = tvm_kernel_count(r->gpu), every = size < SIZES ? SIZES : count;
    bool good = true;
    for (size_t k = 0; k < count; k++) {
        const char *kernel = tvm_kernel_name(tvm_kernel_at(r->gpu, k));
        if (!lowbit_runs_on(kernel, r->s->target) || !gpu_has_room(tvm_kernel_at(r->gpu, k))) continue;
        good = check_kernel(r, o, kernel, (k + size + r->data->turn) % every == 0) && good;
    }
    return good;
}

static bool run_size(const lowbit_run *r, size_t index) {
    weight_type weight;
    problem o;
    if (!weight_type_parse(r->data->form.type, &weight)) return false;
    make(&o, &r->data->form, weight, index < SIZES ? sizes[index] : large_sizes[index - SIZES]);
    bool good = pack(r, &o) && check_kernel(r, &o, "matmul_lowbit", index < SIZES) &&
                (!r->data->variants || check_variants(r, &o, index));
    free_problem(&o);
    return good;
}

static bool open_run(lowbit_run *r, suite *s, const gpu_test *test) {
    *r = (lowbit_run){.s = s, .test = test, .data = test->data};
    return load(s->gpu, test, &r->gpu) && load(s->model, test, &r->model);
}

static void close_run(lowbit_run *r) {
    tvm_program_free(r->gpu);
    tvm_program_free(r->model);
}

static bool run(suite *s, const gpu_test *test) {
    lowbit_run r;
    bool good = open_run(&r, s, test);
    size_t count = good && r.data->variants ? SIZES + LARGE_SIZES : SIZES;
    for (size_t i = 0; good && i < count; i++) good = run_size(&r, i);
    close_run(&r);
    return good;
}

/* The rows of a product of 129 have the same bits in products of fewer rows. */
static bool run_invariant(suite *s, const gpu_test *test) {
    static const long batches[] = {1, 3, 17, 64};
    const lowbit_data *data = test->data;
    const lowbit_size size = {129, 1160, 1408};
    weight_type weight;
    problem o;
    lowbit_run r;
    if (!weight_type_parse(data->form.type, &weight)) return false;
    make(&o, &data->form, weight, size);
    bool good = open_run(&r, s, test) && pack(&r, &o) && check_kernel(&r, &o, "matmul_lowbit", true);
    uint8_t *all = good ? multiply(&r, true, &o, "matmul_lowbit") : NULL;
    size_t row = (size_t)size.n * (data->form.f32 ? 4 : 2);
    for (size_t i = 0; all != NULL && i < sizeof batches / sizeof *batches; i++) {
        o.size.m = batches[i], o.a = (size_t)(batches[i] * size.k), o.c = (size_t)(batches[i] * size.n);
        uint8_t *some = multiply(&r, true, &o, "matmul_lowbit");
        bool same = some != NULL && memcmp(some, all, (size_t)batches[i] * row) == 0;
        if (!same) printf("%s: other bits with %ld rows\n", test->name, batches[i]);
        good = good && same;
        free(some);
    }
    free(all);
    free_problem(&o);
    close_run(&r);
    return good;
}

/* ---- 2^20 rows and a few, whose activations and products are more than 2^31 elements each */

enum { MANY = (1 << 20) + 3, PERIOD = 67, PERIODS = 64, STRETCH = 300 };

/* Rows of activations that repeat, written a few periods at a time. */
static bool write_rows(const lowbit_run *r, const problem *o, uint8_t *data) {
    size_t row = (size_t)o->size.k * 2, rows = (size_t)PERIOD * PERIODS;
    uint8_t *some = zeroed(rows * row);
    bool good = true;
    for (size_t i = 0; i < rows; i++)
        memcpy(some + i * row, o->activations + i % PERIOD * (size_t)o->size.k, row);
    for (size_t at = 0; good && at < MANY; at += rows) {
        size_t count = MANY - at < rows ? MANY - at : rows;
        good = tvm_memory_write(r->s->gpu, data + at * row, some, count * row) == TVM_OK;
    }
    free(some);
    return good;
}

/* The rows from `first` on, a stretch of them, against those of the period. */
static bool check_stretch(const lowbit_run *r, const problem *o, const uint8_t *c, size_t first) {
    size_t n = (size_t)o->size.n, wrong = 0;
    uint16_t *found = zeroed(STRETCH * n * 2);
    bool good = tvm_memory_read(r->s->gpu, found, c + first * n * 2, STRETCH * n * 2) == TVM_OK;
    for (size_t i = 0; good && i < STRETCH; i++) {
        double error = lowbit_error(o->form, n, found + i * n, o->expected + (first + i) % PERIOD * n);
        if (!(error <= lowbit_error_bound(o->form)) && wrong++ == 0)
            printf("%s: row %zu: relative Frobenius error %.3g\n", r->test->name, first + i, error);
    }
    free(found);
    return good && wrong == 0;
}

static bool run_many(suite *s, const gpu_test *test) {
    const lowbit_data *data = test->data;
    const lowbit_size size = {PERIOD, 2056, 2176};
    const size_t far = (size_t)1 << 31, k = (size_t)size.k, n = (size_t)size.n;
    const size_t stretches[] = {0, far / k - STRETCH / 2, far / n - STRETCH / 2, MANY - STRETCH};
    void *memory[4] = {NULL}; /* a, p, s, c */
    weight_type weight;
    problem o;
    lowbit_run r;
    tvm_kernel *kernel = NULL;
    if (!weight_type_parse(data->form.type, &weight)) return false;
    make(&o, &data->form, weight, size);
    bool good = open_run(&r, s, test) && pack(&r, &o);
    const size_t bytes[] = {(size_t)MANY * k * 2, o.p, o.s * 2, (size_t)MANY * n * 2};
    for (size_t i = 0; good && i < 4; i++) good = tvm_memory_alloc(s->gpu, bytes[i], &memory[i]) == TVM_OK;
    good = good && write_rows(&r, &o, memory[0]) &&
           tvm_memory_write(s->gpu, memory[1], o.packed, bytes[1]) == TVM_OK &&
           tvm_memory_write(s->gpu, memory[2], o.scales, bytes[2]) == TVM_OK;
    tvm_value values[] = {{.i = MANY},         {.i = size.n},       {.i = size.k},      {.data = memory[0]},
                          {.data = memory[1]}, {.data = memory[2]}, {.data = memory[3]}};
    good = good && tvm_get_kernel(r.gpu, "matmul_lowbit", &kernel) == TVM_OK &&
           tvm_launchv(kernel, NULL, values, sizeof values / sizeof *values) == TVM_OK &&
           tvm_synchronize(s->gpu, NULL) == TVM_OK;
    if (!good) printf("%s: %s\n", test->name, tvm_message(s->gpu));
    for (size_t i = 0; good && i < sizeof stretches / sizeof *stretches; i++)
        good = check_stretch(&r, &o, memory[3], stretches[i]);
    for (size_t i = 0; i < 4; i++)
        if (memory[i] != NULL) tvm_memory_free(s->gpu, memory[i]);
    free_problem(&o);
    close_run(&r);
    return good;
}

/* The program with the form's definitions, and one more if it is not NULL. */
static gpu_test *add(suite *s, gpu_group *group, lowbit_data *data, const lowbit_form *form, bool variants,
                     const char *more) {
    char file[4096], define[128], title[160], *save = NULL;
    const char *defines[10];
    size_t count = 0;
    snprintf(file, sizeof file, "%s/matmul_lowbit_u4.vasm", s->programs);
    *data = (lowbit_data){.form = *form, .variants = variants};
    snprintf(data->type, sizeof data->type, "%s", form->type);
    data->form.type = data->type;
    lowbit_define(form, define);
    snprintf(title, sizeof title, "matmul_lowbit%s %s %s", variants ? " variants" : "", define,
             more ? more : "");
    for (char *next = strtok_r(define, " ", &save); next != NULL; next = strtok_r(NULL, " ", &save))
        defines[count++] = next;
    if (more != NULL) defines[count++] = more;
    gpu_test *test = gpu_add(group, title, NULL, file, defines, count);
    const char *codes = weight_table(data->type) ? "u4" : data->type;
    if (!tvm_dtype_parse(codes, strlen(codes), &test->type)) abort();
    test->run = run;
    test->data = data;
    return test;
}

void gpu_add_lowbits(suite *s, gpu_group *group) {
    enum { FORMS = sizeof forms / sizeof *forms };
    static const lowbit_form many_rows = {"u4", {0, 128, 0}, false, false, false};
    static lowbit_data data[TVM_DTYPE_COUNT_MAX + VARIANT_FORMS + FORMS + INVARIANT_FORMS + 1];
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    char name[TVM_DTYPE_NAME_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!tvm_dtype_is_lowbit(types[i])) continue;
        tvm_dtype_name(types[i], name);
        add(s, group, &data[used++], &(lowbit_form){.type = name, .options = matmul_default}, false, NULL);
    }
    for (size_t i = 0; i < VARIANT_FORMS; i++) {
        add(s, group, &data[used], &variant_forms[i], true, i % 3 == 2 ? "EARLY=true" : NULL);
        data[used++].turn = 5 * i;
    }
    for (size_t i = 0; i < FORMS; i++) add(s, group, &data[used++], &forms[i], false, NULL);
    for (size_t i = 0; i < INVARIANT_FORMS; i++)
        add(s, group, &data[used++], &invariant_forms[i], false, "BATCH_INVARIANT=true")->run = run_invariant;
    gpu_test *many = add(s, group, &data[used], &many_rows, false, NULL);
    many->run = run_many;
    many->few = true;
}
