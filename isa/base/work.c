#include "work.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 2 << 20, TICK = 100000000 /* nanoseconds */ };

typedef struct work {
    tvm_status (*run)(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags);
    void *closure;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t ended;
    uint64_t pieces, next, done;
    uint64_t failed; /* the first piece that failed; UINT64_MAX: none */
    tvm_status status;
    tvm_diags diags; /* of it */
    unsigned started, running;
} work;

/* The next piece; false when there is none, or an earlier one has failed. */
static bool take(work *w, uint64_t *piece) {
    pthread_mutex_lock(&w->lock);
    bool any = w->next < w->pieces && w->failed == UINT64_MAX;
    if (any) *piece = w->next++;
    pthread_mutex_unlock(&w->lock);
    return any;
}

/* Takes over the diagnostics of a piece that failed, if it is the first so far. */
static void put(work *w, uint64_t piece, tvm_status status, tvm_diags *diags) {
    pthread_mutex_lock(&w->lock);
    w->done++;
    if (status && piece < w->failed) {
        tvm_diags_free(&w->diags);
        w->failed = piece;
        w->status = status;
        w->diags = *diags;
        *diags = (tvm_diags){0};
    }
    pthread_mutex_unlock(&w->lock);
    tvm_diags_free(diags);
}

static void work_on(work *w, unsigned thread) {
    uint64_t piece;
    while (take(w, &piece)) {
        tvm_diags diags = {0};
        tvm_status status = w->run(w->closure, thread, piece, &diags);
        put(w, piece, status, &diags);
    }
}

static void *thread_main(void *closure) {
    work *w = closure;
    pthread_mutex_lock(&w->lock);
    unsigned thread = w->started++;
    pthread_mutex_unlock(&w->lock);
    work_on(w, thread);
    pthread_mutex_lock(&w->lock);
    w->running--;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Until all threads have ended. */
static void watch(work *w, const tvm_work_progress *progress) {
    pthread_mutex_lock(&w->lock);
    while (w->running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&w->ended, &w->lock, &until);
        double fraction = (double)w->done / (double)w->pieces;
        pthread_mutex_unlock(&w->lock);
        if (progress && progress->show) progress->show(progress->closure, fraction);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

/* How many of the threads could be started. */
static unsigned start(work *w, unsigned threads, pthread_t *handles) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK); /* many threads, little memory */
    unsigned count = 0;
    for (; count < threads; count++) {
        pthread_mutex_lock(&w->lock);
        w->running++;
        pthread_mutex_unlock(&w->lock);
        if (!pthread_create(&handles[count], &attributes, thread_main, w)) continue;
        pthread_mutex_lock(&w->lock);
        w->running--;
        pthread_mutex_unlock(&w->lock);
        break;
    }
    pthread_attr_destroy(&attributes);
    return count;
}

tvm_status tvm_work(uint64_t pieces, unsigned threads,
                    tvm_status (*run)(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags),
                    void *closure, const tvm_work_progress *progress, tvm_diags *diags) {
    work w = {.run = run,
              .closure = closure,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .ended = PTHREAD_COND_INITIALIZER,
              .pieces = pieces,
              .failed = UINT64_MAX};
    if (!pieces) return TVM_OK;
    pthread_t *handles = calloc(threads, sizeof *handles);
    if (!handles) return tvm_diag_no_memory(diags);
    unsigned started = start(&w, threads, handles);
    if (!started) work_on(&w, 0);
    watch(&w, progress);
    for (unsigned i = 0; i < started; i++) pthread_join(handles[i], NULL);
    free(handles);
    for (size_t i = 0; i < w.diags.count; i++) {
        const tvm_diag *diag = &w.diags.items[i];
        tvm_place place = {.file = diag->file, .line = diag->line, .column = diag->column};
        tvm_diag_add(diags, diag->status, &place, diag->hint, "%s", diag->message);
    }
    if (w.status && !w.diags.count) tvm_diag_no_memory(diags);
    tvm_diags_free(&w.diags);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.ended);
    return w.status;
}

unsigned tvm_work_threads(unsigned wanted) {
    if (wanted) return wanted;
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return (unsigned)CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (unsigned)cores : 1;
}
