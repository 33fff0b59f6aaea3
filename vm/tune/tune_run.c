/* The variants, one after the other, to the worker: each is checked and measured quickly, then those that may
 * be the best of a shape, and the default, thoroughly, taking turns. */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUICK_REPEATS = 40, BAR = 24, ROUNDS = 3 };
static const double hopeless = 1.25; /* times the best of a shape: a quick measurement is enough */

typedef struct progress {
    const tune *t;
    unsigned done, all;
    double begun;
    bool shown;
} progress;

/* "[######..................] 12/48 variants, 0:32 left" on a terminal. */
static void show(progress *p, const char *what) {
    if (p->t->options.quiet || !isatty(STDERR_FILENO)) return;
    unsigned full = p->all ? p->done * BAR / p->all : BAR;
    double each = p->done ? (tune_now() - p->begun) / p->done : 0, left = each * (p->all - p->done);
    double budget = p->t->options.seconds;
    if (budget > 0 && left > budget - (tune_now() - p->t->begun)) left = budget - (tune_now() - p->t->begun);
    fprintf(stderr, "\r[%.*s%.*s] %u/%u %s, %d:%02d left  ", (int)full, "########################",
            (int)(BAR - full), "........................", p->done, p->all, what,
            left > 0 ? (int)left / 60 : 0, left > 0 ? (int)left % 60 : 0);
    p->shown = true;
}

static void end_line(progress *p) {
    if (p->shown) fprintf(stderr, "\r\033[K");
    p->shown = false;
}

static bool out_of_time(const tune *t) {
    return t->options.seconds > 0 && tune_now() - t->begun > t->options.seconds;
}

/* A worker that a variant has brought down, or whose device a failure may have, is replaced. */
static tvm_status ask(tune *t, tune_worker *w, const tune_task *task, tune_answer *answer, tvm_diags *diags) {
    bool there = tune_worker_ask(t, w, task, answer);
    if (there && answer->state != TUNE_FAILED) return TVM_OK;
    tune_worker_stop(w);
    return tune_worker_start(t, w, diags);
}

static void take_answer(const tune *t, tune_variant *v, const tune_answer *answer) {
    v->state = answer->state;
    v->measured = true;
    snprintf(v->why, sizeof v->why, "%s", answer->why);
    if (answer->registers > v->registers) v->registers = answer->registers;
    for (unsigned s = 0; s < t->shape_count; s++) v->costs[s] = answer->costs[s];
}

static tvm_status measure_all(tune *t, tune_worker *w, tvm_diags *diags) {
    progress p = {.t = t, .begun = tune_now()};
    tvm_status status = TVM_OK;
    for (uint32_t v = 0; v < t->count; v++) p.all += t->variants[v].state == TUNE_WAITING;
    for (uint32_t v = 0; !status && v < t->count && !out_of_time(t); v++) {
        tune_variant *variant = &t->variants[v];
        tune_answer answer;
        if (variant->state != TUNE_WAITING) continue;
        show(&p, "variants");
        unsigned quick = t->options.repeats < QUICK_REPEATS ? t->options.repeats : QUICK_REPEATS;
        status = ask(t, w, &(tune_task){v, UINT32_MAX, quick}, &answer, diags);
        take_answer(t, variant, &answer);
        p.done++;
        if (!status && t->options.log) status = tune_log_write(t, diags);
    }
    end_line(&p);
    return status;
}

static double least_of(const tune *t, unsigned shape) {
    double least = INFINITY;
    for (uint32_t v = 0; v < t->count; v++)
        if (t->variants[v].state == TUNE_TIMED) least = fmin(least, t->variants[v].costs[shape]);
    return least;
}

static bool may_be_best(const tune *t, uint32_t v, unsigned shape, double least) {
    const tune_variant *variant = &t->variants[v];
    return variant->state == TUNE_TIMED && !isnan(variant->costs[shape]) &&
           (v == 0 || variant->costs[shape] <= hopeless * least);
}

/* In rounds, so that what changes on the machine meanwhile concerns all of them; the median of the rounds
 * counts. */
static tvm_status measure_again(tune *t, tune_worker *w, tvm_diags *diags) {
    progress p = {.t = t, .begun = tune_now()};
    tvm_status status = TVM_OK;
    double(*samples)[ROUNDS] = calloc(t->count, sizeof *samples);
    if (!samples) return tvm_diag_no_memory(diags);
    for (unsigned s = 0; s < t->shape_count; s++)
        for (uint32_t v = 0; v < t->count; v++) p.all += ROUNDS * may_be_best(t, v, s, least_of(t, s));
    for (unsigned s = 0; !status && s < t->shape_count && !out_of_time(t); s++) {
        double least = least_of(t, s);
        for (unsigned round = 0; round < ROUNDS; round++)
            for (uint32_t v = 0; !status && v < t->count; v++) {
                tune_answer answer;
                if (!may_be_best(t, v, s, least)) continue;
                show(&p, "measurements");
                status = ask(t, w, &(tune_task){v, s, t->options.repeats}, &answer, diags);
                if (!status && answer.state != TUNE_TIMED) take_answer(t, &t->variants[v], &answer);
                samples[v][round] = answer.costs[s];
                p.done++;
            }
        for (uint32_t v = 0; !status && v < t->count; v++) {
            if (!may_be_best(t, v, s, least)) continue;
            double *x = samples[v];
            t->variants[v].costs[s] = fmax(fmin(x[0], x[1]), fmin(fmax(x[0], x[1]), x[2]));
        }
    }
    free(samples);
    end_line(&p);
    return status;
}

tvm_status tune_measure(tune *t, tvm_diags *diags) {
    tune_worker w;
    tvm_status status = tune_worker_start(t, &w, diags);
    if (!status) status = tune_space_build(t, diags);
    if (!status && !t->options.quiet) {
        uint32_t waiting = 0;
        for (uint32_t v = 0; v < t->count; v++) waiting += t->variants[v].state == TUNE_WAITING;
        fprintf(stderr, "tvm-tune: %s: %u of %u variants to measure, built in %.1f s\n", t->device,
                (unsigned)waiting, (unsigned)t->count, tune_now() - t->begun);
    }
    if (!status) status = measure_all(t, &w, diags);
    if (!status && t->options.cost == TUNE_TIME) status = measure_again(t, &w, diags);
    tune_worker_stop(&w);
    return status;
}
