/* Rank 0 hands tasks out; every other rank reports, twice a second at least, and gets one order for each
 * report. So an order goes only to a rank that has just reported, and a rank that is silent for a while is
 * lost: others do its tasks. If it was only slow, it gets its seat back with its next report. */
#include "tune_team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fileio.h"
#include "tune_ranks.h"

static const double beat = 0.5, silence = 3, patience = 60, turn = 0.1; /* seconds */
enum { NAP_MS = 20, FILE_LIMIT = 256 << 20 };

typedef struct report {
    bool busy, answers;
    tune_device device; /* its text is empty until it is known */
    tvm_status status;  /* of opening it; then the text says why */
    tune_answer answer;
} report;

typedef enum order_kind { ORDER_NOTHING, ORDER_FILE, ORDER_TASK, ORDER_END } order_kind;
typedef struct order {
    order_kind kind;
    tune_task task; /* of a file, the variant it is */
    uint64_t bytes; /* that follow */
} order;

typedef enum seat_state {
    SEAT_STARTING,
    SEAT_IDLE,
    SEAT_BUSY,
    SEAT_LOST,
    SEAT_REFUSED,
    SEAT_GONE
} seat_state;
typedef struct seat {
    seat_state state;
    tune_task task;
    bool handed, owed; /* is the task with it; does its last report wait for an order? */
    double heard;
    bool *has; /* by variant: the file */
} seat;

struct tune_team {
    tune *t;
    tune_worker worker;
    unsigned count;
    seat *seats;
};

/* ---- rank 0: a seat ---- */

static bool send_order(tune_team *team, unsigned number, const order *o, const uint8_t *bytes) {
    seat *s = &team->seats[number];
    s->owed = false;
    return tune_ranks_send((int)number, o, sizeof *o, silence) &&
           (!o->bytes || tune_ranks_send((int)number, bytes, o->bytes, patience));
}

/* The reference is made from the first file that a rank has: it goes before the others. */
static bool send_file(tune_team *team, unsigned number, uint32_t variant) {
    char path[TUNE_TEXT];
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (tvm_file_read(tune_path(team->t, variant, path), FILE_LIMIT, &bytes, &size, NULL)) return false;
    const order o = {ORDER_FILE, {.variant = variant}, size};
    bool sent = send_order(team, number, &o, bytes);
    if (sent) free(bytes); /* else MPI may still read it */
    team->seats[number].has[variant] = true;
    return sent;
}

static void reply(tune_team *team, unsigned number) {
    seat *s = &team->seats[number];
    order o = {.kind = ORDER_NOTHING};
    if (!s->owed) return;
    if (s->state == SEAT_REFUSED) {
        o.kind = ORDER_END;
        s->state = SEAT_GONE;
    }
    if (s->state == SEAT_BUSY && !s->handed) {
        uint32_t first = tune_first_built(team->t);
        if (!s->has[first] || !s->has[s->task.variant]) {
            send_file(team, number, s->has[first] ? s->task.variant : first);
            return;
        }
        s->handed = true;
        o = (order){ORDER_TASK, s->task, 0};
    }
    send_order(team, number, &o, NULL);
}

/* Is the rank's device as good as this one, so that times compare? Its number does not matter. */
static bool is_alike(const tune_device *a, const tune_device *b) {
    size_t length = strcspn(a->text, "(");
    return a->target == b->target && a->multiprocessors == b->multiprocessors && a->is_gpu == b->is_gpu &&
           (!a->is_gpu || (length == strcspn(b->text, "(") && !strncmp(a->text, b->text, length)));
}

static void meet(tune_team *team, unsigned number, const report *r) {
    seat *s = &team->seats[number];
    if (!r->device.text[0]) return;
    s->state = SEAT_IDLE;
    if (!r->status && is_alike(&team->t->device, &r->device)) return;
    s->state = SEAT_REFUSED;
    tune_say(team->t,
             r->status ? "rank %u takes no part: %s" : "rank %u takes no part: it has another device, %s",
             number, r->device.text);
}

/* True: something has happened. */
static bool take_report(tune_team *team, tune_event *event) {
    report r;
    int from = tune_ranks_receive(TUNE_ANY_RANK, &r, sizeof r, 0);
    if (from < 1 || (unsigned)from >= team->count) return false;
    seat *s = &team->seats[from];
    s->heard = tune_now();
    s->owed = true;
    if (s->state == SEAT_STARTING) {
        meet(team, (unsigned)from, &r);
    } else if (s->state == SEAT_LOST && !r.busy) {
        s->state = SEAT_IDLE; /* what it has to say is not wanted any more */
    } else if (s->state == SEAT_BUSY && s->handed && r.answers) {
        s->state = SEAT_IDLE;
        *event = (tune_event){TUNE_ANSWERED, (unsigned)from, r.answer};
    }
    return true;
}

static bool find_lost(tune_team *team, tune_event *event) {
    for (unsigned i = 1; i < team->count; i++) {
        seat *s = &team->seats[i];
        if ((s->state != SEAT_BUSY && s->state != SEAT_IDLE) || tune_now() - s->heard < silence) continue;
        if (s->state == SEAT_BUSY) *event = (tune_event){.kind = TUNE_LOST, .seat = i};
        s->state = SEAT_LOST;
        tune_say(team->t, "rank %u is lost: nothing was heard of it for %g s; others do what it had", i,
                 silence);
        return true;
    }
    return false;
}

void tune_team_greet(tune_team *team) {
    tune_event event;
    while (team->count > 1 && take_report(team, &event)) continue;
    for (unsigned i = 1; i < team->count; i++) reply(team, i);
}

/* ---- rank 0: the team ---- */

unsigned tune_team_seats(const tune_team *team) {
    return team->count;
}

bool tune_team_is_idle(const tune_team *team, unsigned number) {
    return team->seats[number].state == SEAT_IDLE;
}

void tune_team_give(tune_team *team, unsigned number, const tune_task *task) {
    seat *s = &team->seats[number];
    s->state = SEAT_BUSY;
    s->task = *task;
    s->handed = false;
    if (number == 0) tune_worker_give(&team->worker, task);
}

/* A worker that a variant has brought down, or whose device a failure may have, is replaced. */
static tvm_status take_own(tune_team *team, tune_event *event, tvm_diags *diags) {
    seat *s = &team->seats[0];
    if (s->state != SEAT_BUSY || !tune_worker_take(team->t, &team->worker, &event->answer, 5)) return TVM_OK;
    s->state = SEAT_IDLE;
    event->kind = TUNE_ANSWERED;
    event->seat = 0;
    return tune_worker_renew(team->t, &team->worker, &event->answer, diags);
}

tvm_status tune_team_wait(tune_team *team, tune_event *event, tvm_diags *diags) {
    double end = tune_now() + turn;
    event->kind = TUNE_NOTHING;
    while (tune_now() < end) {
        for (unsigned i = 1; i < team->count; i++) reply(team, i);
        tvm_status status = take_own(team, event, diags);
        if (status || event->kind != TUNE_NOTHING) return status;
        bool heard = team->count > 1 && take_report(team, event);
        if (event->kind != TUNE_NOTHING || (team->count > 1 && !heard && find_lost(team, event)))
            return TVM_OK;
        if (heard) return TVM_OK; /* the seat may be idle now */
        if (team->seats[0].state != SEAT_BUSY) nanosleep(&(struct timespec){.tv_nsec = 1000000L}, NULL);
    }
    return TVM_OK;
}

tvm_status tune_team_open(tune *t, tune_team **team, tvm_diags *diags) {
    tune_team *made = calloc(1, sizeof *made);
    *team = made;
    if (!made) return tvm_diag_no_memory(diags);
    made->t = t;
    made->count = (unsigned)t->ranks.size;
    made->worker = tune_no_worker;
    made->seats = calloc(made->count, sizeof *made->seats);
    if (!made->seats) return tvm_diag_no_memory(diags);
    made->seats[0].state = SEAT_IDLE;
    for (unsigned i = 1; i < made->count; i++) {
        made->seats[i].heard = tune_now();
        made->seats[i].has = calloc(t->count, sizeof *made->seats[i].has);
        if (!made->seats[i].has) return tvm_diag_no_memory(diags);
    }
    return tune_worker_start(t, &made->worker, diags);
}

/* Tells it to end, unless it has not said yet whether it takes part: of one that does not the reason is told.
 */
static void send_end(tune_team *team, unsigned number, const report *r) {
    const order end = {.kind = ORDER_END}, nothing = {.kind = ORDER_NOTHING};
    seat *s = &team->seats[number];
    if (s->state == SEAT_STARTING && team->t->device.text[0]) meet(team, number, r);
    bool over = s->state != SEAT_STARTING || !team->t->device.text[0];
    if (send_order(team, number, over ? &end : &nothing, NULL) && over) s->state = SEAT_GONE;
}

/* The others leave when they have been told to; those that say nothing for too long are not waited for. */
static void dismiss(tune_team *team) {
    const report none = {.busy = true};
    double until = tune_now() + 2 * silence;
    for (unsigned i = 1; i < team->count; i++)
        if (team->seats[i].owed) send_end(team, i, &none);
    while (tune_now() < until) {
        report r;
        unsigned left = 0;
        for (unsigned i = 1; i < team->count; i++)
            left += team->seats[i].state != SEAT_LOST && team->seats[i].state != SEAT_GONE;
        if (left == 0) return;
        int from = tune_ranks_receive(TUNE_ANY_RANK, &r, sizeof r, turn);
        if (from < 1 || (unsigned)from >= team->count) continue;
        send_end(team, (unsigned)from, &r);
        if (team->seats[from].state == SEAT_STARTING) until = tune_now() + patience; /* it is there */
    }
}

void tune_team_send_away(tune *t) {
    tune_team team = {.t = t, .count = (unsigned)t->ranks.size};
    team.seats = calloc(team.count, sizeof *team.seats);
    if (team.seats) dismiss(&team);
    free(team.seats);
}

void tune_team_close(tune_team *team) {
    if (!team) return;
    if (team->seats) dismiss(team);
    for (unsigned i = 1; team->seats && i < team->count; i++) free(team->seats[i].has);
    tune_worker_stop(&team->worker);
    free(team->seats);
    free(team);
}

/* ---- another rank ---- */

static tvm_status take_file(const tune *t, const order *o, tvm_diags *diags) {
    char path[TUNE_TEXT];
    uint8_t *bytes = o->bytes <= FILE_LIMIT ? malloc(o->bytes + 1) : NULL;
    if (!bytes || o->task.variant >= t->count) return tvm_diag_no_memory(diags);
    tvm_status status = TVM_OK;
    if (tune_ranks_receive(0, bytes, o->bytes, patience) != 0)
        status = tvm_diag_add(diags, TVM_IO, NULL, NULL, "rank 0 has sent half a file");
    if (!status) status = tvm_file_write(tune_path(t, o->task.variant, path), bytes, o->bytes, diags);
    free(bytes);
    return status;
}

/* Until there is something to report: the answer, or for a beat none. */
static tvm_status work(tune *t, tune_worker *w, bool *busy, const order *o, report *r, tvm_diags *diags) {
    *r = (report){.device = t->device};
    if (*busy && tune_worker_take(t, w, &r->answer, (int)(beat * 1e3))) {
        r->answers = true;
        *busy = false;
    } else if (!*busy && o->kind == ORDER_NOTHING) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
    }
    r->busy = *busy;
    return r->answers ? tune_worker_renew(t, w, &r->answer, diags) : TVM_OK;
}

tvm_status tune_team_serve(tune *t, tvm_status status, tvm_diags *diags) {
    tune_worker w = tune_no_worker;
    report r = {.busy = true}; /* rank 0 knows that this one is there before the device is open */
    order o = {.kind = ORDER_NOTHING};
    bool opened = false, busy = false;
    tvm_status later = TVM_OK;
    while (!later && tune_ranks_send(0, &r, sizeof r, patience) &&
           tune_ranks_receive(0, &o, sizeof o, patience) == 0 && o.kind != ORDER_END) {
        if (!opened) {
            opened = true;
            if (!status) status = tune_worker_start(t, &w, diags);
            r = (report){.status = status, .device = t->device};
            if (status) snprintf(r.device.text, sizeof r.device.text, "%s", diags->items[0].message);
            continue;
        }
        if (o.kind == ORDER_FILE) later = take_file(t, &o, diags);
        if (o.kind == ORDER_TASK) tune_worker_give(&w, &o.task), busy = true;
        if (!later) later = work(t, &w, &busy, &o, &r, diags);
    }
    tune_worker_stop(&w);
    tvm_diags_free(diags); /* rank 0 has said what it knows */
    return TVM_OK;
}
