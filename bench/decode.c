/* Decode matmuls against the read floor and cuBLAS, in one run: for each type of weights, shape and batch the
 * time of a launch of `matmul_lowbit`, of a kernel that only reads as many bytes (packed weights, scales,
 * zero points and activations), and of cuBLASLt's f16 matmul; medians of replays of CUDA graphs of 40
 * launches or more over rotating copies of the data, larger than three times the L2. Before it is timed, each
 * point is compared with a float64 reference on fresh random data, and with itself on another copy, bit for
 * bit. See decode --help and bench/NOTES. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum { KEY_KERNEL = 256, KEY_CHAIN, KEY_JSON, KEY_SVG, KEY_PEERS, KEY_CHECK, KEY_NO_CHECK, KEY_NO_CUBLAS };

static const struct argp_option argp_options[] = {
    {"programs", 'p', "DIR", 0, "take DIR/matmul_lowbit_TYPE.vbc (default: the current folder)", 0},
    {"kernel", KEY_KERNEL, "NAME", 0, "the kernel to measure (default: matmul_lowbit)", 0},
    {"chain", KEY_CHAIN, "COUNT", OPTION_ARG_OPTIONAL,
     "chains of COUNT (40) matmuls, each of the last one's result, in one graph", 0},
    {"json", KEY_JSON, "FILE", 0, "write all numbers", 0},
    {"svg", KEY_SVG, "FILE", 0, "draw time over floor by type and shape", 0},
    {"peers", KEY_PEERS, "FILE", 0, "times of others, a JSON object a line (bench/decode_triton.py)", 0},
    {"check", KEY_CHECK, NULL, 0, "check only", 0},
    {"no-check", KEY_NO_CHECK, NULL, 0, "time without a check, for profilers", 0},
    {"no-cublas", KEY_NO_CUBLAS, NULL, 0, "leave cuBLAS out", 0},
    {0}};

/* ---- the command line ---- */

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    decode_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = o;
        return 0;
    case 'p':
        snprintf(o->pattern, sizeof o->pattern, "%s/matmul_lowbit_%%s.vbc", arg);
        o->program = o->pattern;
        return 0;
    case KEY_KERNEL:
        o->kernel = arg;
        return 0;
    case KEY_CHAIN:
        o->chain = arg ? (unsigned)strtoul(arg, NULL, 10) : BENCH_LAUNCHES;
        if (!o->chain || o->chain > 256)
            argp_error(state, "--chain %s: 1 to 256 is expected", arg ? arg : "");
        return 0;
    case KEY_JSON:
        o->json = arg;
        return 0;
    case KEY_SVG:
        o->svg = arg;
        return 0;
    case KEY_PEERS:
        o->peers = arg;
        return 0;
    case KEY_CHECK:
        o->timed = false;
        return 0;
    case KEY_NO_CHECK:
        o->checked = false;
        return 0;
    case KEY_NO_CUBLAS:
        o->cublas_too = false;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void set_defaults(decode_options *o) {
    static const decode_shape shapes[] = {{8192, 8192},  {10240, 8192}, {57344, 8192},
                                          {8192, 28672}, {5120, 5120},  {27648, 5120}};
    static const int64_t batches[] = {1, 4, 8, 16, 32, 64};
    if (!o->type_count) o->type_count = value_types(o->types);
    if (!o->shape_count) {
        memcpy(o->shapes, shapes, sizeof shapes);
        o->shape_count = o->chain ? 1 : sizeof shapes / sizeof *shapes;
    }
    if (!o->batch_count) {
        memcpy(o->batches, batches, sizeof batches);
        o->batch_count = sizeof batches / sizeof *batches;
    }
}

/* ---- the run ---- */

typedef struct decode_run {
    bench b;
    decode_options options;
    decode_program programs[DECODE_TYPES];
    bench_floor *floor;
    decode_cublas *cublas;
    decode_report *report;
    double begun, cublas_first[DECODE_BATCHES], cublas_best[DECODE_BATCHES];
    unsigned done, left; /* points; left: out of time */
} decode_run;

static bool out_of_time(const decode_run *run) {
    return run->options.seconds > 0 && bench_seconds() - run->begun > run->options.seconds;
}

static decode_point empty_point(const decode_run *run, unsigned type, decode_shape shape, unsigned batch) {
    return (decode_point){.type = run->options.types[type],
                          .m = run->options.batches[batch],
                          .n = shape.n,
                          .k = shape.k,
                          .floor = NAN,
                          .floor_pdl = NAN,
                          .ours = NAN,
                          .ours_least = NAN,
                          .cublas = run->cublas_first[batch],
                          .cublas_best = run->cublas_best[batch],
                          .error = NAN};
}

static bool add_failure(decode_run *run, unsigned type, decode_shape shape, unsigned batch, const char *why) {
    decode_point point = empty_point(run, type, shape, batch);
    snprintf(point.why, sizeof point.why, "%.255s", why);
    return decode_report_add(&run->b, run->report, &point);
}

/* All batches of a type and shape. A failure of one is a row of the table; false: nothing more can be done.
 */
static bool run_type(decode_run *run, unsigned type, decode_shape shape) {
    bench *b = &run->b;
    const decode_options *o = &run->options;
    decode_program *program = &run->programs[type];
    decode_problem *problem = NULL;
    int64_t max_m = 0;
    for (unsigned i = 0; i < o->batch_count; i++) max_m = o->batches[i] > max_m ? o->batches[i] : max_m;
    program->type = o->types[type];
    if (!program->tried) decode_program_load(b, o, program);
    if (*program->why) return add_failure(run, type, shape, 0, program->why);
    bool ok = decode_problem_make(b, program, o, shape, max_m, &problem);
    if (!ok)
        ok = add_failure(run, type, shape, 0, b->why);
    else
        for (unsigned i = 0; ok && !b->lost && i < o->batch_count; i++) {
            if (out_of_time(run)) {
                run->left++;
                continue;
            }
            decode_point point = empty_point(run, type, shape, i);
            if (!decode_problem_run(b, problem, run->floor, o->batches[i], &point))
                snprintf(point.why, sizeof point.why, "%.255s", b->why);
            ok = decode_report_add(b, run->report, &point);
            run->done++;
        }
    decode_problem_free(b, problem);
    return ok && !b->lost && decode_report_write(b, run->report);
}

static void run_cublas(decode_run *run, decode_shape shape) {
    bench *b = &run->b;
    for (unsigned i = 0; i < run->options.batch_count; i++) run->cublas_first[i] = run->cublas_best[i] = NAN;
    if (!run->cublas) return;
    if (!decode_cublas_run(b, run->cublas, shape, run->options.batches, run->options.batch_count,
                           run->cublas_first, run->cublas_best))
        fprintf(stderr, "decode: %s\n", b->why);
}

static bool run_all(decode_run *run) {
    const decode_options *o = &run->options;
    for (unsigned s = 0; s < o->shape_count; s++) {
        if (!out_of_time(run)) run_cublas(run, o->shapes[s]);
        for (unsigned t = 0; t < o->type_count; t++) {
            if (run->b.lost) return false;
            if (out_of_time(run)) {
                run->left += o->batch_count;
                continue;
            }
            fprintf(stderr, "decode: %.0f s: shape %u of %u, type %u of %u: %s\n",
                    bench_seconds() - run->begun, s + 1, o->shape_count, t + 1, o->type_count,
                    o->types[t].name);
            if (!run_type(run, t, o->shapes[s])) return false;
        }
    }
    return true;
}

static bool open_all(decode_run *run) {
    bench *b = &run->b;
    const decode_options *o = &run->options;
    if (!(o->cpu ? bench_open_cpu(b, 0, 0, o->seed) : bench_open_gpu(b, o->target, o->seed))) return false;
    b->rest = o->rest;
    run->floor = bench_floor_open();
    run->report = decode_report_open(b, o, tvm_device_name(b->context));
    if (!run->floor || !run->report) return bench_fail(b, "out of memory");
    fprintf(stderr, "decode: %s, seed %#llx\n", tvm_device_name(b->context), (unsigned long long)o->seed);
    if (o->timed && o->cublas_too && !decode_cublas_open(b, &run->cublas)) {
        fprintf(stderr, "decode: %s; the table is without cuBLAS\n", b->why);
        decode_cublas_close(b, run->cublas);
        run->cublas = NULL;
    }
    return true;
}

int main(int argc, char **argv) {
    static const struct argp_child common[] = {{&decode_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        argp_options,
        parse_option,
        NULL,
        "Measures decode matmuls against the read floor and cuBLAS, after checking them.\v"
        "By default: all 42 types; the shapes 8192x8192, 10240x8192, 57344x8192, 8192x28672, 5120x5120 and "
        "27648x5120, of a chain 8192x8192; 1, 4, 8, 16, 32 and 64 rows.\n\n"
        "Exit status: 0 every point was right and measured, 1 one was not, 2 wrong usage.",
        common,
        NULL,
        NULL};
    decode_run *run = calloc(1, sizeof *run);
    if (!run) return 1;
    run->begun = bench_seconds();
    run->options = (decode_options){.program = "matmul_lowbit_%s.vbc",
                                    .kernel = "matmul_lowbit",
                                    .timed = true,
                                    .checked = true,
                                    .cublas_too = true,
                                    .seed = (uint64_t)(run->begun * 1e9)};
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &run->options);
    set_defaults(&run->options);
    bool ok = open_all(run) && run_all(run);
    if (!ok) fprintf(stderr, "decode: %s\n", run->b.why);
    if (run->report) {
        unsigned failures = decode_report_failures(run->report);
        if (!ok && !decode_report_write(&run->b, run->report)) fprintf(stderr, "decode: %s\n", run->b.why);
        fprintf(stderr, "decode: %u points, %u failures, %u left out for lack of time, %.0f s\n", run->done,
                failures, run->left, bench_seconds() - run->begun);
        ok = ok && !failures;
    }
    for (unsigned i = 0; i < DECODE_TYPES; i++) decode_program_close(&run->programs[i]);
    decode_cublas_close(&run->b, run->cublas);
    bench_floor_close(&run->b, run->floor);
    decode_report_close(run->report);
    bench_close(&run->b);
    free(run);
    return ok ? 0 : 1;
}
