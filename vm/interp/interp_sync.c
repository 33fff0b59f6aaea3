/* Instructions that order blocks and launches. While a block waits for a semaphore or for elements that are
 * put, its worker thread sleeps. Blocks begin in the order of their index, so that blocks of a lower index
 * run or have ended. */
#include "interp_impl.h"
#include "sanitize.h"

#include <inttypes.h>
#include <time.h>

INTERP_NO_PLAN(RELEASE_SEMAPHORE)
INTERP_NO_PLAN(LOCK_SEMAPHORE)

typedef struct semaphore {
    uint32_t *word;
    uint32_t value; /* to wait for, or to set */
} semaphore;

static tvm_status find_semaphore(const interp_context *context, const interp_insn *insn, semaphore *out) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t slot = insn->operands[0].value;
    const interp_global *global = interp_global_of(context, slot);
    unsigned rank = interp_slot(k, slot)->rank;
    int64_t at = 0;
    tvm_scalar value;
    for (unsigned d = 0; d < rank; d++) {
        tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[1 + d].value, &value);
        if (status != TVM_OK) return status;
        if (value.i < 0 || value.i >= global->shape[d])
            return tvm_interp_fault(context, insn, INTERP_OUTSIDE,
                                    "%s%s: index %" PRId64 " in dimension %u: expected 0 to %" PRId64,
                                    interp_sigil(k, slot), interp_slot_name(k, slot), value.i, d,
                                    global->shape[d] - 1);
        at += value.i * global->stride[d];
    }
    tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[1 + rank].value, &value);
    *out = (semaphore){(uint32_t *)global->data + at, (uint32_t)value.u};
    return status;
}

void tvm_interp_changed(interp_run *run) {
    run->changes++;
    run->waiting = 0;
    pthread_cond_broadcast(&run->changed);
}

/* With the mutex held: for a moment, after which what a launch on another device has changed may be seen. */
static bool sleep_for_peers(interp_run *run) {
    enum { MOMENT = 20 * 1000, SECOND = 1000 * 1000 * 1000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += MOMENT;
    if (until.tv_nsec >= SECOND) {
        until.tv_sec++;
        until.tv_nsec -= SECOND;
    }
    pthread_cond_timedwait(&run->changed, &run->mutex, &until);
    return true;
}

/* With the mutex held: until there are more changes than `seen`, or the launch stops; false when all workers
 * would sleep. */
static bool sleep_until_changed(interp_run *run, uint64_t seen) {
    if (run->changes != seen) return true;
    if (run->kernel->has_peers) return sleep_for_peers(run);
    bool hope = ++run->waiting < run->working;
    while (hope && run->changes == seen) pthread_cond_wait(&run->changed, &run->mutex);
    return hope;
}

bool tvm_interp_sleep(interp_block *block) {
    interp_run *run = block->run;
    pthread_mutex_lock(&run->mutex);
    bool hope = atomic_load(&run->stop) || sleep_until_changed(run, block->seen);
    block->seen = run->changes;
    pthread_mutex_unlock(&run->mutex);
    return hope;
}

interp_wait tvm_interp_wait(interp_context *context, bool (*ready)(void *data), void *data) {
    interp_run *run = context->block->run;
    bool hope = true, is_ready = false, is_again = false;
    pthread_mutex_lock(&run->mutex);
    while (hope && !is_again && !atomic_load(&run->stop) && !(is_ready = ready(data)) &&
           !context->block->running && context->block->cluster_size == 1) {
        hope = sleep_until_changed(run, run->changes);
        is_again = run->kernel->has_peers; /* whose launches may never end: the limits are asked */
    }
    bool stops = atomic_load(&run->stop);
    pthread_mutex_unlock(&run->mutex);
    if (!hope) return INTERP_WAIT_HOPELESS;
    if (is_ready) return INTERP_WAIT_OVER;
    if (stops)
        context->state = INTERP_DONE;
    else
        interp_again(context, INTERP_AT_OTHERS);
    return INTERP_WAIT_AGAIN;
}

static bool has_value(void *data) {
    const semaphore *s = data;
    return __atomic_load_n(s->word, __ATOMIC_ACQUIRE) == s->value;
}

tvm_status tvm_interp_LOCK_SEMAPHORE(interp_context *context, const interp_insn *insn) {
    semaphore s;
    tvm_status status = find_semaphore(context, insn, &s);
    if (status != TVM_OK) return status;
    if (interp_sanitized(context)) tvm_sanitize_semaphore(context, insn, s.word);
    interp_wait wait = has_value(&s) ? INTERP_WAIT_OVER : tvm_interp_wait(context, has_value, &s);
    if (wait == INTERP_WAIT_HOPELESS)
        return tvm_interp_fault(context, insn, INTERP_DEADLOCK,
                                "deadlock: all blocks that run wait; this semaphore, which is %" PRIu32
                                ", is never released as %" PRIu32,
                                __atomic_load_n(s.word, __ATOMIC_RELAXED), s.value);
    if (wait == INTERP_WAIT_OVER && interp_sanitized(context)) return tvm_sanitize_acquire(context, s.word);
    return TVM_OK;
}

tvm_status tvm_interp_RELEASE_SEMAPHORE(interp_context *context, const interp_insn *insn) {
    interp_run *run = context->block->run;
    semaphore s;
    tvm_status status = find_semaphore(context, insn, &s);
    if (status != TVM_OK) return status;
    if (interp_sanitized(context)) tvm_sanitize_semaphore(context, insn, s.word);
    pthread_mutex_lock(&run->mutex);
    __atomic_store_n(s.word, s.value, __ATOMIC_RELEASE);
    tvm_interp_changed(run);
    pthread_mutex_unlock(&run->mutex);
    return interp_sanitized(context) ? tvm_sanitize_release(context, s.word) : TVM_OK;
}

/* ---- launches: here, one has ended before the next one begins ---- */

INTERP_NO_PLAN(LAUNCH_DEPENDENTS)
INTERP_NO_PLAN(WAIT_DEPENDENCY)

tvm_status tvm_interp_LAUNCH_DEPENDENTS(interp_context *context, const interp_insn *insn) {
    (void)context, (void)insn;
    return TVM_OK;
}

tvm_status tvm_interp_WAIT_DEPENDENCY(interp_context *context, const interp_insn *insn) {
    (void)insn;
    return interp_sanitized(context) ? tvm_sanitize_wait_dependency(context) : TVM_OK;
}
