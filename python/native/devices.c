/* Contexts, and launches on the interpreter, which can be interrupted. */
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

tvm_context *py_context(py_state *state, unsigned place) {
    if (state->contexts[place]) return state->contexts[place];
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .ordinal = (int)place - 1};
    tvm_context *context = NULL;
    if (place == PY_INTERPRETER) options = state->interpreter;
    tvm_status status = tvm_context_create(&options, &context);
    if (status) {
        py_raise(state, status, context);
        tvm_context_free(context);
        return NULL;
    }
    return state->contexts[place] = context;
}

static int gpu_place(py_state *state, long ordinal) {
    if (ordinal >= 0 && ordinal < PY_MOST_GPUS) return 1 + (int)ordinal;
    py_raise_format(state, TVM_NOT_FOUND, "there is no device cuda:%ld", ordinal);
    return -1;
}

static int place_of_text(py_state *state, const char *text) {
    if (!strcmp(text, "cpu")) return PY_INTERPRETER;
    if (!strcmp(text, "cuda")) return 1;
    if (!strncmp(text, "cuda:", 5) && text[5] >= '0' && text[5] <= '9') {
        char *end;
        long ordinal = strtol(text + 5, &end, 10);
        if (!*end) return gpu_place(state, ordinal);
    }
    py_raise_format(state, TVM_USAGE, "a device is \"cpu\", \"cuda\" or \"cuda:N\", not \"%s\"", text);
    return -1;
}

int py_place_of(py_state *state, PyObject *device) {
    if (PyLong_Check(device)) {
        long ordinal = PyLong_AsLong(device);
        return ordinal == -1 && PyErr_Occurred() ? -1 : gpu_place(state, ordinal);
    }
    PyObject *text = PyObject_Str(device);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    int place = bytes ? place_of_text(state, PyBytes_AsString(bytes)) : -1;
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    return place;
}

/* ---- a launch on a thread of its own, beside which this one listens for signals ---- */

typedef struct interpreted {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    tvm_context *context;
    tvm_kernel *kernel;
    const tvm_value *values;
    size_t count;
    tvm_status status;
    char *message;
} interpreted;

static void launch(interpreted *run) {
    run->status = tvm_launchv(run->kernel, NULL, run->values, run->count);
    /* a thread's message is its own */
    run->message = run->status ? strdup(tvm_message(run->context)) : NULL;
}

static void *launch_thread(void *argument) {
    interpreted *run = argument;
    launch(run);
    pthread_mutex_lock(&run->lock);
    run->done = true;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

/* Waits for the end, at most so long; is it there? */
static bool wait_for(interpreted *run, long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int result = 0;
    pthread_mutex_lock(&run->lock);
    while (!run->done && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&run->ended, &run->lock, &until);
    bool done = run->done;
    pthread_mutex_unlock(&run->lock);
    return done;
}

/* With the GIL: signals' handlers run here, if this is the main thread. One that raises ends the launch. */
static void listen(interpreted *run) {
    bool done = false, cancelled = false;
    while (!done) {
        Py_BEGIN_ALLOW_THREADS;
        done = wait_for(run, 50);
        Py_END_ALLOW_THREADS;
        /* A launch that has only begun to begin does not hear it: it is told again. */
        if (!done && !cancelled) cancelled = PyErr_CheckSignals() != 0;
        if (!done && cancelled) tvm_cancel(run->context);
    }
}

tvm_status py_interpret(tvm_context *context, tvm_kernel *kernel, const tvm_value *values, size_t count,
                        char **message) {
    interpreted run = {.context = context, .kernel = kernel, .values = values, .count = count};
    pthread_condattr_t attributes;
    pthread_t thread;
    pthread_mutex_init(&run.lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&run.ended, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&thread, NULL, launch_thread, &run)) {
        Py_BEGIN_ALLOW_THREADS;
        launch(&run); /* no thread to be had: no signal is heard */
        Py_END_ALLOW_THREADS;
    } else {
        listen(&run);
        pthread_join(thread, NULL);
    }
    pthread_cond_destroy(&run.ended);
    pthread_mutex_destroy(&run.lock);
    *message = run.message;
    return run.status;
}
