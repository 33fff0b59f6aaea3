/* Kernels whose results show the order in which blocks execute atomic operations: fetched values, sums of
 * floats. Clusters take turns, so that the order is the same in every run, on any number of host threads.
 * There are as many lanes as the launch sees multiprocessors; n lanes run every n-th cluster each, one after
 * the other. The lanes execute one atomic operation each, in the order of their numbers; instructions between
 * two such operations run at any time. A lane that waits for its turn occupies no thread. */
#include <stdlib.h>

#include "interp_impl.h"

typedef enum lane_state {
    LANE_READY,   /* may go on */
    LANE_RUNS,    /* in a thread */
    LANE_AT_TURN, /* goes on when its turn comes */
    LANE_ENDED
} lane_state;

typedef struct lane {
    lane_state state;
    uint64_t number;       /* of its cluster, which has begun if it has memory */
    interp_block *cluster; /* NULL: it has none */
} lane;

/* All under the mutex of the run, but what lanes that run do. */
typedef struct interp_turns {
    uint32_t turn, count, ended; /* turn: the lane's whose it is */
    lane *lanes;
    interp_block **spare; /* memory that no lane has */
    uint32_t spares;
} interp_turns;

bool tvm_interp_take_turn(interp_context *context) {
    interp_block *cluster = context->block->cluster;
    if (!context->block->run->turns) return true;
    bool has_turn = cluster->has_turn;
    cluster->has_turn = false;
    return has_turn;
}

/* To the next lane that has not ended. */
static void pass_turn(interp_run *run) {
    interp_turns *turns = run->turns;
    if (turns->ended == turns->count) return;
    do turns->turn = (turns->turn + 1) % turns->count;
    while (turns->lanes[turns->turn].state == LANE_ENDED);
    pthread_cond_broadcast(&run->changed);
}

void tvm_interp_pass_turn(interp_context *context) {
    interp_run *run = context->block->run;
    if (!run->turns) return;
    pthread_mutex_lock(&run->mutex);
    pass_turn(run);
    pthread_mutex_unlock(&run->mutex);
}

/* The first lane that can go on, from the one on whose turn it is; NULL: none can. */
static lane *choose_lane(const interp_turns *turns) {
    for (uint32_t i = 0; i < turns->count; i++) {
        lane *l = &turns->lanes[(turns->turn + i) % turns->count];
        if (l->state == LANE_READY || (l->state == LANE_AT_TURN && i == 0)) return l;
    }
    return NULL;
}

/* The mutex is not held. */
static bool give_memory(interp_run *run, lane *l) {
    if (l->cluster) return true;
    l->cluster = calloc(TVM_MAX_CLUSTER, sizeof *l->cluster);
    if (!l->cluster) return tvm_interp_no_memory(run), false;
    return tvm_interp_cluster_make(l->cluster, run);
}

/* Of a lane whose cluster has ended. */
static void next_cluster(interp_run *run, lane *l) {
    interp_turns *turns = run->turns;
    l->number += turns->count;
    l->state = LANE_READY;
    if (l->cluster) turns->spare[turns->spares++] = l->cluster;
    l->cluster = NULL;
    if (l->number < run->blocks / tvm_cluster_blocks(run->kernel->kernel)) return;
    l->state = LANE_ENDED;
    turns->ended++;
    if (l == &turns->lanes[turns->turn]) pass_turn(run);
}

/* Goes on with the lane until it waits or its cluster has ended; the mutex is held before and after. */
static tvm_status run_lane(interp_run *run, lane *l) {
    interp_turns *turns = run->turns;
    bool begins = l->cluster == NULL, waits = false, has_turn = l->state == LANE_AT_TURN;
    if (begins && turns->spares) l->cluster = turns->spare[--turns->spares];
    l->state = LANE_RUNS;
    pthread_mutex_unlock(&run->mutex);
    tvm_status status = give_memory(run, l) ? TVM_OK : TVM_NO_MEMORY;
    if (status == TVM_OK && begins) tvm_interp_cluster_begin(l->cluster, l->number);
    if (status == TVM_OK) {
        l->cluster->has_turn = has_turn;
        status = tvm_interp_cluster_go(l->cluster, &waits);
    }
    pthread_mutex_lock(&run->mutex);
    if (waits)
        l->state = LANE_AT_TURN;
    else
        next_cluster(run, l);
    pthread_cond_broadcast(&run->changed);
    return status;
}

static void *worker(void *argument) {
    interp_run *run = argument;
    interp_turns *turns = run->turns;
    pthread_mutex_lock(&run->mutex);
    while (turns->ended < turns->count && !atomic_load(&run->stop)) {
        lane *l = choose_lane(turns);
        if (!l)
            pthread_cond_wait(&run->changed, &run->mutex);
        else if (run_lane(run, l) != TVM_OK)
            break;
    }
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

static void end_turns(interp_turns *turns) {
    for (uint32_t i = 0; turns->lanes && i < turns->count; i++)
        if (turns->lanes[i].cluster) turns->spare[turns->spares++] = turns->lanes[i].cluster;
    for (uint32_t i = 0; i < turns->spares; i++) {
        tvm_interp_cluster_free(turns->spare[i]);
        free(turns->spare[i]);
    }
    free(turns->lanes);
    free(turns->spare);
}

void tvm_interp_run_turns(interp_run *run, unsigned threads) {
    uint32_t size = tvm_cluster_blocks(run->kernel->kernel);
    uint64_t first = run->first / size, clusters = run->blocks / size - first;
    uint32_t lanes =
        run->options->multiprocessors ? run->options->multiprocessors : TVM_INTERP_MULTIPROCESSORS;
    interp_turns turns = {.count = clusters < lanes ? (uint32_t)clusters : lanes};
    turns.lanes = calloc(turns.count, sizeof *turns.lanes);
    turns.spare = calloc(turns.count, sizeof(interp_block *));
    if (turns.lanes && turns.spare) {
        for (uint32_t i = 0; i < turns.count; i++) turns.lanes[i].number = first + i;
        run->turns = &turns;
        tvm_interp_work(run, threads < turns.count ? threads : turns.count, worker);
        run->turns = NULL;
    } else {
        tvm_interp_no_memory(run);
    }
    end_turns(&turns);
}
