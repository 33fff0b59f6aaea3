/* Hands the variants out to the seats that measure. Each variant is checked and measured quickly on every
 * shape; then for each shape those that may be the best, and the default, are measured thoroughly, in rounds.
 * Measurements that are compared are one job, which one seat does, so that the times of a shape's best come
 * from one GPU. */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune_team.h"

enum { QUICK_REPEATS = 40, ROUNDS = 3 };
static const double hopeless = 1.25; /* times the best of a shape: a quick measurement is enough */

typedef struct job {
    uint32_t shape;     /* UINT32_MAX: all */
    uint32_t *variants; /* taking turns */
    double *samples;    /* by task: round, then variant */
    uint32_t variant_count, task_count, done;
    bool begun;
} job;

typedef struct run {
    tune *t;
    tune_team *team;
    job *jobs;
    uint32_t count;
    unsigned repeats;
    tune_progress progress;
    job **held; /* by seat */
} run;

static bool out_of_time(const tune *t) {
    return t->options.seconds > 0 && tune_now() - t->begun > t->options.seconds;
}

static void jobs_free(run *r) {
    for (uint32_t j = 0; j < r->count; j++) free(r->jobs[j].variants), free(r->jobs[j].samples);
    free(r->jobs);
    free(r->held);
}

static bool job_make(job *j, uint32_t shape, uint32_t variants, uint32_t rounds) {
    *j = (job){.shape = shape, .variant_count = variants, .task_count = variants * rounds};
    j->variants = malloc((variants + 1) * sizeof *j->variants);
    j->samples = malloc((j->task_count + 1) * sizeof *j->samples);
    return j->variants && j->samples;
}

static void take_answer(const tune *t, uint32_t number, unsigned seat, const tune_answer *answer) {
    tune_variant *v = &t->variants[number];
    v->state = answer->state;
    v->measured = true;
    v->rank = (int)seat;
    snprintf(v->why, sizeof v->why, "%s", answer->why);
    if (answer->registers > v->registers) v->registers = answer->registers;
    for (unsigned s = 0; s < t->shape_count; s++) v->costs[s] = answer->costs[s];
}

/* Every idle seat goes on with the job that it holds, or begins another. */
static bool hand_out(run *r) {
    bool any = false;
    for (unsigned s = 0; s < tune_team_seats(r->team); s++) {
        if (!r->held[s] && tune_team_is_idle(r->team, s) && !out_of_time(r->t))
            for (uint32_t j = 0; j < r->count && !r->held[s]; j++)
                if (!r->jobs[j].begun) r->held[s] = &r->jobs[j];
        job *held = r->held[s];
        any = any || held;
        if (!held || !tune_team_is_idle(r->team, s)) continue;
        held->begun = true;
        const tune_task task = {held->variants[held->done % held->variant_count], held->shape, r->repeats};
        tune_team_give(r->team, s, &task);
    }
    return any;
}

/* For a shape the median of the rounds counts; a variant that failed meanwhile has no cost. */
static void finish(run *r, const job *j) {
    for (uint32_t i = 0; j->shape != UINT32_MAX && i < j->variant_count; i++) {
        const double *x = &j->samples[i], y = x[j->variant_count], z = x[2 * j->variant_count];
        r->t->variants[j->variants[i]].costs[j->shape] = fmax(fmin(*x, y), fmin(fmax(*x, y), z));
    }
}

static void take(run *r, const tune_event *event) {
    job *held = r->held[event->seat];
    if (event->kind == TUNE_LOST) {
        r->progress.done -= held->done;
        held->done = 0;
        held->begun = false;
        r->held[event->seat] = NULL;
        return;
    }
    uint32_t variant = held->variants[held->done % held->variant_count];
    bool thorough = held->shape != UINT32_MAX;
    if (thorough) held->samples[held->done] = event->answer.costs[held->shape];
    if (!thorough || event->answer.state != TUNE_TIMED)
        take_answer(r->t, variant, event->seat, &event->answer);
    r->progress.done++;
    if (++held->done < held->task_count) return;
    finish(r, held);
    r->held[event->seat] = NULL;
}

static tvm_status run_jobs(run *r, const char *what, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    r->progress = (tune_progress){.t = r->t, .what = what, .begun = tune_now()};
    for (uint32_t j = 0; j < r->count; j++) r->progress.all += r->jobs[j].task_count;
    r->held = calloc(tune_team_seats(r->team), sizeof *r->held);
    if (!r->held) return tvm_diag_no_memory(diags);
    while (!status && hand_out(r)) {
        tune_event event;
        tune_progress_show(&r->progress);
        status = tune_team_wait(r->team, &event, diags);
        if (event.kind == TUNE_NOTHING) continue;
        take(r, &event);
        if (!status && r->t->options.log) status = tune_log_write(r->t, diags);
    }
    tune_progress_end(r->t);
    return status;
}

static tvm_status measure_all(tune *t, tune_team *team, tvm_diags *diags) {
    run r = {.t = t,
             .team = team,
             .repeats = t->options.repeats < QUICK_REPEATS ? t->options.repeats : QUICK_REPEATS};
    r.jobs = calloc(t->count, sizeof *r.jobs);
    bool ok = r.jobs != NULL;
    for (uint32_t v = 0; ok && v < t->count; v++) {
        if (t->variants[v].state != TUNE_WAITING) continue;
        ok = job_make(&r.jobs[r.count], UINT32_MAX, 1, 1);
        if (ok) r.jobs[r.count].variants[0] = v;
        r.count++;
    }
    tvm_status status = ok ? run_jobs(&r, "variants", diags) : tvm_diag_no_memory(diags);
    jobs_free(&r);
    return status;
}

static bool may_be_best(const tune *t, uint32_t v, unsigned shape, double least) {
    const tune_variant *variant = &t->variants[v];
    return variant->state == TUNE_TIMED && !isnan(variant->costs[shape]) &&
           (v == 0 || variant->costs[shape] <= hopeless * least);
}

static double least_of(const tune *t, unsigned shape) {
    double least = INFINITY;
    for (uint32_t v = 0; v < t->count; v++)
        if (t->variants[v].state == TUNE_TIMED) least = fmin(least, t->variants[v].costs[shape]);
    return least;
}

/* Measures in rounds, so that changes of the machine meanwhile affect all variants. */
static tvm_status measure_again(tune *t, tune_team *team, tvm_diags *diags) {
    run r = {.t = t, .team = team, .repeats = t->options.repeats};
    r.jobs = calloc(t->shape_count, sizeof *r.jobs);
    bool ok = r.jobs != NULL;
    for (unsigned s = 0; ok && s < t->shape_count; s++) {
        double least = least_of(t, s);
        uint32_t count = 0;
        for (uint32_t v = 0; v < t->count; v++) count += may_be_best(t, v, s, least);
        if (!count) continue;
        job *j = &r.jobs[r.count++];
        ok = job_make(j, s, count, ROUNDS);
        count = 0;
        for (uint32_t v = 0; ok && v < t->count; v++)
            if (may_be_best(t, v, s, least)) j->variants[count++] = v;
    }
    tvm_status status = ok ? run_jobs(&r, "measurements", diags) : tvm_diag_no_memory(diags);
    jobs_free(&r);
    return status;
}

/* ---- all ---- */

typedef struct building {
    tune_team *team;
    tune_progress progress;
} building;

static void while_building(void *data, unsigned done, unsigned all) {
    building *b = data;
    b->progress.done = done;
    b->progress.all = all;
    tune_progress_show(&b->progress);
    tune_team_greet(b->team);
}

static void say_shares(const tune *t) {
    char shares[TUNE_TEXT] = "";
    size_t at = 0;
    for (int r = 0; r < t->ranks.size && at < sizeof shares - 16; r++) {
        unsigned count = 0;
        for (uint32_t v = 0; v < t->count; v++) count += t->variants[v].rank == r;
        at += (size_t)snprintf(shares + at, sizeof shares - at, "%s%u", r ? ", " : "", count);
    }
    if (t->ranks.size > 1) tune_say(t, "%d ranks have measured %s variants", t->ranks.size, shares);
}

tvm_status tune_measure(tune *t, tvm_diags *diags) {
    tune_team *team = NULL;
    tvm_status status = tune_team_open(t, &team, diags);
    if (!status) status = tune_check_device(t, diags);
    building b = {team, {.t = t, .what = "built", .begun = tune_now()}};
    if (!status) status = tune_space_build(t, while_building, &b, diags);
    if (!status) {
        uint32_t waiting = 0;
        for (uint32_t v = 0; v < t->count; v++) waiting += t->variants[v].state == TUNE_WAITING;
        tune_say(t, "%s: %u of %u variants to measure, built in %.1f s", t->device.text, (unsigned)waiting,
                 (unsigned)t->count, tune_now() - t->begun);
        status = measure_all(t, team, diags);
    }
    if (!status && t->options.cost == TUNE_TIME) status = measure_again(t, team, diags);
    if (!status) say_shares(t);
    tune_team_close(team);
    return status;
}
