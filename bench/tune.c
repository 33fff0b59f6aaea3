/* Which variant of matmul_lowbit is best where: for each type of weights, linear layer of the models
 * (tune_layers) and number of rows every kernel matmul_lowbit_NAME that the program has is checked as
 * decode checks, and timed as decode times, the variants taking turns. The times go to a table of text, which
 * later runs complete, and from it to programs/matmul_lowbit_table.vasminc, the cases of the entry that are
 * better than its rule. See tune --help and bench/NOTES. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

enum { KEY_RESUME = 256, KEY_FROM, KEY_TABLE, KEY_INCLUDE, KEY_GAIN };
enum {
    FILES = 16,
    WIDTHS = 8,
    QUICK_LAUNCHES = 8,
    QUICK_REPLAYS = 3,
    CPU_MULTIPROCESSORS = 4,
    CPU_TARGET = 90
};
static const double hopeless = 1.25; /* times the best: a quick measurement is enough */

typedef struct tune_options {
    decode_options decode;
    const char *read[FILES], *table, *include;
    unsigned read_count;
    bool measure;
    double gain;
} tune_options;

static const struct argp_option argp_options[] = {
    {"resume", KEY_RESUME, "FILE", 0, "do not measure again what stands in this table", 0},
    {"from", KEY_FROM, "FILE", 0, "do not measure at all, only choose by this table", 0},
    {"table", KEY_TABLE, "FILE", 0, "write the times, with those that were read", 0},
    {"include", KEY_INCLUDE, "FILE", 0, "write the cases, for .include", 0},
    {"gain", KEY_GAIN, "PERCENT", 0, "that a case must be better than the rule (default: 2)", 0},
    {0}};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    tune_options *o = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->decode;
        return 0;
    case KEY_FROM:
    case KEY_RESUME:
        if (o->read_count == FILES) argp_error(state, "%s: too many tables", arg);
        o->read[o->read_count++] = arg;
        if (key == KEY_FROM) o->measure = false;
        return 0;
    case KEY_TABLE:
        o->table = arg;
        return 0;
    case KEY_INCLUDE:
        o->include = arg;
        return 0;
    case KEY_GAIN:
        o->gain = strtod(arg, &end);
        if (end == arg || *end || !(o->gain >= 0))
            argp_error(state, "--gain %s: a percentage is expected", arg);
        return 0;
    case ARGP_KEY_END:
        if (o->decode.cpu && (o->table || o->include || o->read_count))
            argp_error(state, "--cpu: there are no times on the interpreter");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void set_defaults(decode_options *o) {
    static const int64_t batches[] = {1, 8, 16, 32, 64};
    static const decode_shape small[] = {{256, 512}, {520, 384}};
    if (!o->type_count) {
        value_types(o->types);
        o->type_count = WIDTHS; /* u1 to u8 come first */
    }
    if (!o->batch_count) {
        memcpy(o->batches, batches, sizeof batches);
        o->batch_count = sizeof batches / sizeof *batches;
    }
    if (o->shape_count) return;
    if (o->cpu) {
        memcpy(o->shapes, small, sizeof small);
        o->shape_count = sizeof small / sizeof *small;
        return;
    }
    for (unsigned i = 0; i < TUNE_LAYERS; i++) o->shapes[i] = tune_layers[i].shape;
    o->shape_count = TUNE_LAYERS;
}

/* ---- the run ---- */

typedef struct tune_run {
    bench b;
    tune_options options;
    tune_table table;
    double begun;
    unsigned done, left, failures; /* points; left: out of time */
} tune_run;

/* What is measured at a point: a variant. */
typedef struct contender {
    tvm_kernel *kernel;
    decode_problem *problem;
    int64_t m;
    tune_time *time;
} contender;

static bool enqueue(bench *b, unsigned i, void *data) {
    contender *c = data;
    decode_problem_set(c->problem, c->kernel, c->m);
    return decode_problem_enqueue(b, i, c->problem);
}

/* Medians of `replays` replays, of all in turn. */
static bool measure(bench *b, contender *const *who, unsigned count, unsigned launches, unsigned replays) {
    bench_job jobs[TUNE_VARIANTS] = {0};
    bench_time times[TUNE_VARIANTS];
    for (unsigned i = 0; i < count; i++)
        jobs[i] = (bench_job){enqueue, who[i], decode_problem_launches(who[i]->problem, launches)};
    if (!bench_measure_in_turn(b, jobs, count, replays, times)) return false;
    for (unsigned i = 0; i < count; i++) who[i]->time->microseconds = times[i].median;
    return true;
}

/* All quickly, then those that may be the best. */
static bool measure_point(bench *b, contender *contenders, unsigned count) {
    contender *who[TUNE_VARIANTS];
    double least = INFINITY;
    unsigned some = 0;
    for (unsigned i = 0; i < count; i++)
        if (!isnan(contenders[i].time->microseconds)) who[some++] = &contenders[i];
    if (!some) return true;
    if (!measure(b, who, some, QUICK_LAUNCHES, QUICK_REPLAYS)) return false;
    for (unsigned i = 0; i < some; i++) least = fmin(least, who[i]->time->microseconds);
    unsigned good = 0;
    for (unsigned i = 0; i < some; i++)
        if (who[i]->time->microseconds <= hopeless * least) who[good++] = who[i];
    return measure(b, who, good, BENCH_LAUNCHES, BENCH_REPLAYS);
}

/* Is the kernel for these sizes, and right? Its time becomes 0 then, else NAN. False: nothing more can be
 * done.
 */
static bool check(tune_run *run, contender *c) {
    bench *b = &run->b;
    double error;
    decode_problem_set(c->problem, c->kernel, c->m);
    tvm_status status = decode_problem_reserve(b, c->problem);
    bool right = !status && decode_problem_check(b, c->problem, &error);
    c->time->microseconds = right ? 0 : NAN;
    if (right || status == TVM_ARGUMENT) return true;
    fprintf(stderr, "tune: %s, m %lld: %s\n", tvm_kernel_name(c->kernel), (long long)c->m, b->why);
    run->failures++;
    return !b->lost;
}

static void print_checked(const tune_row *row) {
    printf("%-8s m %2lld, n %lld, k %lld:", row->type, (long long)row->m, (long long)row->shape.n,
           (long long)row->shape.k);
    for (unsigned i = 0; i < row->count; i++)
        printf(" %s %s", row->times[i].variant, isnan(row->times[i].microseconds) ? "-" : "right");
    printf("\n");
}

/* ---- a type ---- */

typedef struct variants {
    tvm_kernel *kernels[TUNE_VARIANTS];
    const char *names[TUNE_VARIANTS];
    unsigned count;
} variants;

static bool find_variants(bench *b, tvm_program *program, variants *v) {
    v->count = 0;
    for (size_t i = 0; i < tvm_kernel_count(program); i++) {
        tvm_kernel *kernel = tvm_kernel_at(program, i);
        const char *name = tvm_kernel_name(kernel);
        if (strncmp(name, TUNE_ENTRY "_", strlen(TUNE_ENTRY "_"))) continue;
        const char *variant = name + strlen(TUNE_ENTRY "_");
        if (v->count == TUNE_VARIANTS || strlen(variant) >= TUNE_NAME)
            return bench_fail(b, "more variants than %d, or long names", TUNE_VARIANTS);
        v->kernels[v->count] = kernel;
        v->names[v->count++] = variant;
    }
    return v->count || bench_fail(b, "the program has no kernel " TUNE_ENTRY "_NAME");
}

static bool is_known(const tune_run *run, const variants *v, const char *type, decode_shape shape,
                     int64_t m) {
    const tune_row *row = tune_table_find(&run->table, type, m, shape);
    bool known = row != NULL;
    for (unsigned i = 0; known && i < v->count; i++) known = tune_row_time(row, v->names[i]) != NULL;
    return known;
}

static bool run_point(tune_run *run, const variants *v, decode_problem *problem, tune_row *row) {
    contender contenders[TUNE_VARIANTS];
    row->count = v->count;
    for (unsigned i = 0; i < v->count; i++) {
        memcpy(row->times[i].variant, v->names[i], strlen(v->names[i]) + 1);
        contenders[i] = (contender){v->kernels[i], problem, row->m, &row->times[i]};
        if (!check(run, &contenders[i])) return false;
    }
    run->done++;
    if (!run->options.decode.timed) {
        print_checked(row);
        return true;
    }
    if (!measure_point(&run->b, contenders, v->count) || !tune_table_put(&run->b, &run->table, row))
        return false;
    tune_print_row(row, stdout);
    return true;
}

static bool out_of_time(const tune_run *run) {
    double limit = run->options.decode.seconds;
    return limit > 0 && bench_seconds() - run->begun > limit;
}

static bool run_shape(tune_run *run, decode_program *program, const variants *v, decode_shape shape) {
    const decode_options *o = &run->options.decode;
    decode_problem *problem = NULL;
    int64_t max_m = 0;
    bool ok = true;
    for (unsigned i = 0; i < o->batch_count; i++)
        if (!is_known(run, v, program->type.name, shape, o->batches[i]) && o->batches[i] > max_m)
            max_m = o->batches[i];
    if (!max_m) return true;
    for (unsigned i = 0; ok && i < o->batch_count; i++) {
        tune_row row = {.m = o->batches[i], .shape = shape};
        memcpy(row.type, program->type.name, sizeof row.type);
        if (is_known(run, v, row.type, shape, row.m)) continue;
        if (out_of_time(run)) {
            run->left++;
            continue;
        }
        ok = (problem || decode_problem_make(&run->b, program, o, shape, max_m, &problem)) &&
             run_point(run, v, problem, &row);
    }
    decode_problem_free(&run->b, problem);
    return (!run->options.table || tune_table_write(&run->b, &run->table, run->options.table)) && ok;
}

static bool run_type(tune_run *run, value_type type) {
    bench *b = &run->b;
    const decode_options *o = &run->options.decode;
    decode_program program = {.type = type};
    variants v;
    fprintf(stderr, "tune: %.0f s: %s\n", bench_seconds() - run->begun, type.name);
    bool ok = decode_program_load(b, o, &program) && find_variants(b, program.program, &v);
    for (unsigned s = 0; ok && s < o->shape_count; s++) ok = run_shape(run, &program, &v, o->shapes[s]);
    decode_program_close(&program);
    return ok;
}

/* ---- all ---- */

static bool open_device(tune_run *run) {
    bench *b = &run->b;
    const decode_options *o = &run->options.decode;
    tune_table *t = &run->table, here = {0};
    if (o->cpu) return bench_open_cpu(b, CPU_MULTIPROCESSORS, CPU_TARGET, o->seed);
    if (!bench_open(b, false, o->seed)) return false;
    b->rest = o->rest;
    snprintf(here.device, sizeof here.device, "%.127s", tvm_device_name(b->context));
    here.multiprocessors = b->multiprocessors, here.target = b->target;
    if (*t->device && (strcmp(t->device, here.device) || t->multiprocessors != here.multiprocessors ||
                       t->target != here.target))
        return bench_fail(b, "the table is of another device, %s", t->device);
    memcpy(t->device, here.device, sizeof t->device);
    t->multiprocessors = here.multiprocessors, t->target = here.target;
    tune_print_heading(t, stdout);
    return true;
}

static bool measure_all(tune_run *run) {
    const decode_options *o = &run->options.decode;
    if (!open_device(run)) return false;
    for (unsigned i = 0; i < o->type_count && !run->b.lost; i++) {
        if (run_type(run, o->types[i])) continue;
        fprintf(stderr, "tune: %s: %s\n", o->types[i].name, run->b.why);
        run->failures++;
    }
    fprintf(stderr, "tune: %u points, %u failures, %u left out for lack of time, %.0f s\n", run->done,
            run->failures, run->left, bench_seconds() - run->begun);
    return true;
}

static bool run_all(tune_run *run, const char *command) {
    const tune_options *o = &run->options;
    for (unsigned i = 0; i < o->read_count; i++)
        if (!tune_table_read(&run->b, &run->table, o->read[i])) return false;
    if (o->measure && !measure_all(run)) return false;
    if (o->decode.cpu) return true;
    if (!o->measure && o->table && !tune_table_write(&run->b, &run->table, o->table)) return false;
    const tune_cases_options cases = {&o->decode, o->include, command, o->gain};
    return tune_cases_write(&run->b, &run->table, &cases);
}

/* The command line, by the program's own name. */
static char *command_of(int argc, char **argv) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    fprintf(out, "bench/tune");
    for (int i = 1; i < argc; i++) fprintf(out, " %s", argv[i]);
    fclose(out);
    return text;
}

int main(int argc, char **argv) {
    static const struct argp_child common[] = {{&decode_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        argp_options,
        parse_option,
        NULL,
        "Measures every variant of matmul_lowbit, and writes which is best where.\v"
        "By default: u1 to u8; the linear layers of Llama-3.3-70B, Qwen2.5-32B and Gemma-2-9B; 1, 8, 16, 32 and "
        "64 rows; programs/matmul_lowbit_u4.vasm with another WTYPE.\n\n"
        "Exit status: 0 every variant was right where it ran, 1 one was not, 2 wrong usage.",
        common,
        NULL,
        NULL};
    tune_run *run = calloc(1, sizeof *run);
    char *command = command_of(argc, argv);
    if (!run || !command) return 1;
    run->begun = bench_seconds();
    run->options = (tune_options){.decode = {.program = "programs/matmul_lowbit_u4.vasm",
                                             .kernel = TUNE_ENTRY,
                                             .defines = {"TABLE=false"},
                                             .define_count = 1,
                                             .timed = true,
                                             .checked = true,
                                             .seed = (uint64_t)(run->begun * 1e9)},
                                  .measure = true,
                                  .gain = 2};
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &run->options);
    set_defaults(&run->options.decode);
    bool ok = run_all(run, command);
    if (!ok) fprintf(stderr, "tune: %s\n", run->b.why);
    ok = ok && !run->failures;
    tune_table_free(&run->table);
    bench_close(&run->b);
    free(command);
    free(run);
    return ok ? 0 : 1;
}
