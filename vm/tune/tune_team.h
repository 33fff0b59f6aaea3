/* tvm-tune: the seats that measure. Seat 0 is this process's worker; with MPI, rank 0 has a seat for each
 * other rank's. */
#ifndef TVM_TUNE_TEAM_H
#define TVM_TUNE_TEAM_H

#include "tune.h"

typedef struct tune_team tune_team;

typedef enum tune_event_kind {
    TUNE_NOTHING, /* for a while */
    TUNE_ANSWERED,
    TUNE_LOST /* what the seat was given must be given to another */
} tune_event_kind;

typedef struct tune_event {
    tune_event_kind kind;
    unsigned seat;
    tune_answer answer;
} tune_event;

/* Starts this process's worker, by which the tune's device is known. */
tvm_status tune_team_open(tune *t, tune_team **team, tvm_diags *diags);
void tune_team_close(tune_team *team);
/* Ends the other ranks where no team was opened. */
void tune_team_send_away(tune *t);
unsigned tune_team_seats(const tune_team *team);
/* Is the seat there, and without a task? */
bool tune_team_is_idle(const tune_team *team, unsigned seat);
void tune_team_give(tune_team *team, unsigned seat, const tune_task *task);
/* Gets the next event, or none after a tenth of a second. */
tvm_status tune_team_wait(tune_team *team, tune_event *event, tvm_diags *diags);
/* Answers the reports of the other ranks, which have no task yet. */
void tune_team_greet(tune_team *team);
/* The life of a rank that is not 0: it does what rank 0 orders, until the end. Where it could not begin
 * (`status`, with the reason in diags), rank 0 is told. */
tvm_status tune_team_serve(tune *t, tvm_status status, tvm_diags *diags);

#endif
