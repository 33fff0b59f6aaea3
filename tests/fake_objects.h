/* What the driver without a GPU (fake_cuda.c, which alone includes this) keeps: its contexts, what was made
 * in each and not released, how often each function was called, and which call is to fail. */
#ifndef TVM_TESTS_FAKE_OBJECTS_H
#define TVM_TESTS_FAKE_OBJECTS_H

#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

typedef void fake_release(void *handle);

typedef struct fake_function {
    struct fake_function *next;
    char name[256];
} fake_function;

struct CUmod_st {
    fake_function *functions;
};

/* A graph's nodes: a launch's line, "" of one that runs nothing; they go with the graph. */
typedef struct fake_node {
    struct fake_node *next;
    struct CUgraph_st *graph;
    unsigned number;
    char text[480];
} fake_node;

struct CUgraph_st {
    fake_node *nodes; /* the last one first */
    unsigned count;
};

/* The primary contexts of the devices; `foreign` stands for all others, of which a test makes the handles. */
typedef struct fake_context {
    int references;
    atomic_bool destroyed;
    atomic_bool launched;
    atomic_int fault;
} fake_context;

/* What was made in a context and not released: a free slot has no handle. */
typedef struct fake_object {
    _Atomic(void *) handle;
    _Atomic(fake_context *) context;
    _Atomic(fake_release *) release;
} fake_object;

enum { STACK = 16, DEVICES = 4, NAMES = 128, OBJECTS = 4096 };
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;
static _Thread_local int captured = -1; /* launches of the capture under way */
static _Thread_local CUstream capturing;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static fake_context primaries[DEVICES], foreign;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of references to the primary ones, and of failing */

/* What every call does is counted without a lock and in relaxed order: a lock here would order the threads of
 * the program under test, and hide its races from ThreadSanitizer. */
static fake_object objects[OBJECTS];
static struct {
    _Atomic(const char *) name;
    atomic_long calls;
} names[NAMES];
static atomic_long mistakes, call_count, fail_in;
static atomic_int fail_result;
static _Atomic(const char *) failed_name;

#define GET(object)        atomic_load_explicit(&(object), memory_order_relaxed)
#define SET(object, value) atomic_store_explicit(&(object), value, memory_order_relaxed)
#define ADD(object, value) atomic_fetch_add_explicit(&(object), value, memory_order_relaxed)

/* ---- counting and failing ---- */

static void count_name(const char *name) {
    for (int i = 0; i < NAMES; i++) {
        const char *none = NULL;
        bool taken = GET(names[i].name) ? false
                                        : atomic_compare_exchange_strong_explicit(&names[i].name, &none, name,
                                                                                  memory_order_relaxed,
                                                                                  memory_order_relaxed);
        if (!taken && strcmp(GET(names[i].name), name)) continue;
        ADD(names[i].calls, 1);
        return;
    }
}

static CUresult enter(const char *name) {
    CUresult result = CUDA_SUCCESS;
    ADD(call_count, 1);
    count_name(name);
    if (!GET(fail_in)) return result;
    pthread_mutex_lock(&lock);
    if (GET(fail_in) && ADD(fail_in, -1) == 1) {
        SET(failed_name, name);
        result = (CUresult)GET(fail_result);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The start of a call that does nothing when it fails. */
#define ENTER()                                                                                              \
    do {                                                                                                     \
        CUresult entered = enter(__func__);                                                                  \
        if (entered) return entered;                                                                         \
    } while (0)

static void control_fail(long nth, int result) {
    SET(fail_result, result);
    SET(failed_name, NULL);
    SET(fail_in, nth);
}

static const char *control_failed(void) {
    return GET(failed_name);
}

static long control_calls(const char *name) {
    if (!name) return GET(call_count);
    for (int i = 0; i < NAMES && GET(names[i].name); i++)
        if (!strcmp(GET(names[i].name), name)) return GET(names[i].calls);
    return 0;
}

static void control_reset(void) {
    SET(call_count, 0);
    for (int i = 0; i < NAMES; i++) SET(names[i].calls, 0);
}

static long control_live(void) {
    long count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES; i++) count += primaries[i].references;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < OBJECTS; i++) count += GET(objects[i].handle) != NULL;
    return count;
}

static long control_mistakes(void) {
    return GET(mistakes);
}

/* ---- objects ---- */

static fake_context *context_of(CUcontext context) {
    for (int i = 0; i < DEVICES; i++)
        if ((void *)context == (void *)&primaries[i]) return &primaries[i];
    return &foreign;
}

static fake_context *current(void) {
    return depth ? context_of(stack[depth - 1]) : NULL;
}

/* False, and handle released, when there are too many. */
static bool keep(void *handle, fake_release *release) {
    for (int i = 0; i < OBJECTS; i++) {
        void *none = NULL;
        if (GET(objects[i].handle) ||
            !atomic_compare_exchange_strong_explicit(&objects[i].handle, &none, handle, memory_order_relaxed,
                                                     memory_order_relaxed))
            continue;
        SET(objects[i].context, current());
        SET(objects[i].release, release);
        return true;
    }
    release(handle);
    return false;
}

static bool drop(void *handle) {
    for (int i = 0; handle && i < OBJECTS; i++) {
        if (GET(objects[i].handle) != handle) continue;
        fake_release *release = GET(objects[i].release);
        SET(objects[i].handle, NULL); /* before the address may come back as another object's */
        release(handle);
        return true;
    }
    ADD(mistakes, 1);
    return false;
}

/* The context with what is in it. */
static void end_context(fake_context *context) {
    for (int i = 0; i < OBJECTS; i++) {
        if (!GET(objects[i].handle) || GET(objects[i].context) != context) continue;
        if (!atomic_load(&context->fault) && !context->destroyed) ADD(mistakes, 1);
        GET(objects[i].release)(GET(objects[i].handle));
        SET(objects[i].handle, NULL);
    }
    atomic_store(&context->fault, 0);
    atomic_store(&context->launched, false);
}

static void control_destroy(void *handle) {
    fake_context *context = context_of(handle);
    pthread_mutex_lock(&lock);
    context->destroyed = true;
    end_context(context);
    pthread_mutex_unlock(&lock);
}

static void control_push(void *context) {
    if (depth < STACK) stack[depth++] = context;
}

const fake_cuda_control fake_cuda = {.fail_nth = control_fail,
                                     .failed = control_failed,
                                     .calls = control_calls,
                                     .reset = control_reset,
                                     .live = control_live,
                                     .mistakes = control_mistakes,
                                     .destroy = control_destroy,
                                     .push = control_push};

#endif
