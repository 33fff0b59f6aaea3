/* The times of all variants of matmul_lowbit: of each kernel of the program that takes a point's sizes, one
 * line a point, which bench/fit.py fits the constants of the choice to. A variant is timed with care only if
 * a short look finds it within a third of the best. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum { MOST = BENCH_JOBS * 4, LOOKS = 3, SHORT = 8 };

typedef struct variant {
    tvm_kernel *kernel;
    double looked, time; /* microseconds; 0: it does not take these sizes */
} variant;

typedef struct variants_run {
    bench b;
    decode_options options;
    variant all[MOST];
    unsigned count;
    double begun;
    FILE *out;
} variants_run;

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    (void)arg;
    if (key != ARGP_KEY_INIT) return ARGP_ERR_UNKNOWN;
    state->child_inputs[0] = state->input;
    return 0;
}

/* All kernels but `pack` and the entry itself, whose parameters are the entry's. */
static bool list(variants_run *run, decode_program *program) {
    size_t count = tvm_kernel_count(program->program);
    run->count = 0;
    for (size_t i = 0; i < count; i++) {
        tvm_kernel *kernel = tvm_kernel_at(program->program, i);
        const char *name = tvm_kernel_name(kernel);
        if (!strcmp(name, "pack") || !strcmp(name, run->options.kernel)) continue;
        if (run->count == MOST) return bench_fail(&run->b, "more than %d variants", MOST);
        run->all[run->count++] = (variant){.kernel = kernel};
    }
    return true;
}

static bool enqueue(bench *b, unsigned i, void *data) {
    return decode_problem_enqueue(b, i, data);
}

static bool measure(variants_run *run, decode_problem *problem, unsigned least, unsigned replays,
                    double *time) {
    bench_time measured;
    unsigned launches = decode_problem_launches(problem, least);
    if (!bench_measure(&run->b, enqueue, problem, launches, replays, &measured)) return false;
    *time = measured.median;
    return true;
}

/* False: the device is lost. */
static bool run_point(variants_run *run, decode_program *program, decode_problem *problem, decode_shape shape,
                      int64_t m) {
    bench *b = &run->b;
    const char *chosen = "";
    double best = 1e30;
    for (unsigned v = 0; v < run->count; v++) {
        variant *one = &run->all[v];
        one->looked = one->time = 0;
        decode_problem_set(problem, one->kernel, m);
        if (decode_problem_reserve(b, problem)) continue;
        b->rest = 0;
        if (!enqueue(b, 0, problem) || !measure(run, problem, SHORT, LOOKS, &one->looked)) return !b->lost;
        best = one->looked < best ? one->looked : best;
    }
    b->rest = run->options.rest;
    fprintf(run->out, "%s %lld %lld %lld", program->type.name, (long long)m, (long long)shape.n,
            (long long)shape.k);
    if (decode_program_variant(b, program, m, shape, &chosen)) fprintf(run->out, " entry:%s", chosen);
    for (unsigned v = 0; v < run->count; v++) {
        variant *one = &run->all[v];
        if (!one->looked) continue;
        decode_problem_set(problem, one->kernel, m);
        unsigned least = one->looked > 200 ? SHORT : BENCH_LAUNCHES;
        if (one->looked > best * 1.33)
            one->time = one->looked;
        else if (!measure(run, problem, least, 9, &one->time))
            return !b->lost;
        fprintf(run->out, " %s%s:%.3f", tvm_kernel_name(one->kernel), one->looked > best * 1.33 ? "~" : "",
                one->time);
    }
    fprintf(run->out, "\n");
    return fflush(run->out) == 0;
}

static bool run_shape(variants_run *run, decode_program *program, decode_shape shape) {
    decode_problem *problem = NULL;
    const decode_options *o = &run->options;
    int64_t most = 0;
    for (unsigned i = 0; i < o->batch_count; i++) most = o->batches[i] > most ? o->batches[i] : most;
    bool ok = decode_problem_make(&run->b, program, o, shape, most, &problem);
    for (unsigned i = 0; ok && i < o->batch_count; i++) {
        if (o->seconds > 0 && bench_seconds() - run->begun > o->seconds) break;
        ok = run_point(run, program, problem, shape, o->batches[i]);
    }
    decode_problem_free(&run->b, problem);
    return ok;
}

int main(int argc, char **argv) {
    static const struct argp_child children[] = {{&decode_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        NULL, parse_option, NULL, "The times of all variants of matmul_lowbit.", children, NULL, NULL};
    variants_run run = {.options = {.kernel = "matmul_lowbit", .timed = true, .rest = 0.03}, .out = stdout};
    decode_options *o = &run.options;
    argp_parse(&argp, argc, argv, 0, NULL, o);
    bool ok = o->cpu ? bench_open_cpu(&run.b, 0, 0, o->seed) : bench_open_gpu(&run.b, o->target, o->seed);
    run.begun = bench_seconds();
    if (ok)
        printf("# device: %s, target %u, %u multiprocessors\n", tvm_device_name(run.b.context), run.b.target,
               run.b.multiprocessors);
    for (unsigned t = 0; ok && t < o->type_count; t++) {
        decode_program program = {.type = o->types[t]};
        ok = decode_program_load(&run.b, o, &program) && list(&run, &program);
        for (unsigned s = 0; ok && s < o->shape_count; s++) ok = run_shape(&run, &program, o->shapes[s]);
        decode_program_close(&program);
    }
    if (!ok) fprintf(stderr, "variants: %s\n", run.b.why);
    bench_close(&run.b);
    return !ok;
}
