/* Sixteen threads that load, prepare, launch, fail and wait at once, in shared contexts and in their own, on
 * several devices: each result right, each message its own thread's. Built with --enable-tsan, free of data
 * races. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <pthread.h>

#include "cuda_kit.h"
#include "suite_kit.h"

enum { THREADS = 16, ROUNDS = 24, ELEMENTS = 256, CONTEXTS = 4 };

static cuda_kit kit;

typedef struct shared {
    tvm_context *contexts[CONTEXTS];
    tvm_program *programs[CONTEXTS];
    pthread_barrier_t start;
    bool computes; /* results are those of the interpreter; the fake driver leaves memory as it is */
    bool traces;   /* thread 0 begins and ends timelines meanwhile */
} shared;

typedef struct worker {
    shared *all;
    unsigned number;
    pthread_t thread;
    const char *wrong; /* NULL: all was right */
} worker;

static void setup(void) {
    kit_setup(&kit);
}

static void teardown(void) {
    if (kit.driver) {
        ck_assert_int_eq(kit.driver->live(), 0);
        ck_assert_int_eq(kit.driver->mistakes(), 0);
    }
    kit_teardown(&kit);
}

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) return #condition;                                                                 \
    } while (0)

/* One launch on memory of this thread, and one that fails. */
static const char *use(tvm_context *context, tvm_program *program, bool computes, float factor) {
    float from[ELEMENTS], to[ELEMENTS] = {0};
    void *x = NULL, *y = NULL;
    char name[32];
    tvm_kernel *kernel = NULL, *none = NULL;
    for (int i = 0; i < ELEMENTS; i++) from[i] = (float)i;
    MUST(!tvm_get_kernel(program, "scale", &kernel) && !tvm_prepare(kernel));
    MUST(!tvm_memory_alloc(context, sizeof from, &x) && !tvm_memory_alloc(context, sizeof from, &y));
    MUST(!tvm_memory_write(context, x, from, sizeof from) && !tvm_memory_write(context, y, to, sizeof to));
    MUST(!tvm_launch(kernel, NULL, ELEMENTS, (double)factor, x, y) && !tvm_synchronize(context, NULL));
    /* Memory of a stream: one that all share, one of this thread's own. */
    tvm_kernel *tensors = NULL;
    MUST(!tvm_get_kernel(program, "tensors", &tensors));
    MUST(!tvm_launch(tensors, NULL, 1 + (int)factor) && !tvm_launch(tensors, from, 1 + (int)factor));
    snprintf(name, sizeof name, "missing %g", (double)factor);
    MUST(tvm_get_kernel(program, name, &none) == TVM_NOT_FOUND);
    MUST(strstr(tvm_message(context), name));
    MUST(!tvm_memory_read(context, to, y, sizeof to) && !*tvm_message(context));
    for (int i = 0; i < ELEMENTS; i++) MUST(to[i] == (computes ? factor * from[i] : 0));
    MUST(!tvm_memory_free(context, x) && !tvm_memory_free(context, y));
    return NULL;
}

/* A context and a program of this thread's own. */
static const char *use_own(const shared *all, float factor) {
    tvm_context_options options = {.device = tvm_device(all->contexts[0]),
                                   .ordinal = (int)factor % 2,
                                   .threads = 2,
                                   .cache_dir = kit.cache};
    if (all->computes) options.ordinal = 0;
    tvm_context *context = NULL;
    tvm_program *program = NULL;
    const char *wrong = tvm_context_create(&options, &context) ? "tvm_context_create" : NULL;
    if (!wrong && tvm_load(context, kit.bytecode, kit.bytecode_size, &program)) wrong = "tvm_load";
    if (!wrong) wrong = use(context, program, all->computes, factor);
    tvm_program_free(program);
    tvm_context_free(context);
    return wrong;
}

/* A program of this thread's own in a context that is shared. */
static const char *use_copy(tvm_context *context, bool computes, float factor) {
    tvm_program *program = NULL;
    MUST(!tvm_load(context, kit.bytecode, kit.bytecode_size, &program));
    const char *wrong = use(context, program, computes, factor);
    tvm_program_free(program);
    return wrong;
}

static void *work(void *closure) {
    worker *w = closure;
    shared *all = w->all;
    char path[96];
    snprintf(path, sizeof path, "%s/trace.json", kit.folder);
    pthread_barrier_wait(&all->start);
    for (unsigned round = 0; round < ROUNDS && !w->wrong; round++) {
        unsigned i = (w->number + round) % CONTEXTS;
        float factor = (float)(w->number * ROUNDS + round + 1);
        bool traces = all->traces && w->number == 0;
        if (traces && tvm_trace_start(all->contexts[1], path)) w->wrong = "tvm_trace_start";
        if (!w->wrong && round % 4 == 0) w->wrong = use_copy(all->contexts[i], all->computes, factor);
        if (!w->wrong) w->wrong = use(all->contexts[i], all->programs[i], all->computes, factor);
        if (!w->wrong && round == ROUNDS / 2) w->wrong = use_own(all, factor);
        if (traces && !w->wrong && tvm_trace_stop(all->contexts[1])) w->wrong = "tvm_trace_stop";
    }
    return NULL;
}

static void run(tvm_device_kind kind, bool traces) {
    shared all = {.computes = kind == TVM_DEVICE_CPU, .traces = traces};
    worker workers[THREADS];
    ck_assert_int_eq(pthread_barrier_init(&all.start, NULL, THREADS), 0);
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    for (int i = 0; i < CONTEXTS; i++) {
        tvm_context_options options = {.device = kind,
                                       .ordinal = kind == TVM_DEVICE_CUDA ? i % 2 : 0,
                                       .threads = 2,
                                       .cache_dir = kit.cache};
        ck_assert_int_eq(tvm_context_create(&options, &all.contexts[i]), TVM_OK);
        ck_assert_int_eq(tvm_load(all.contexts[i], kit.bytecode, kit.bytecode_size, &all.programs[i]),
                         TVM_OK);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.all = &all, .number = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < CONTEXTS; i++) {
        tvm_program_free(all.programs[i]);
        tvm_context_free(all.contexts[i]);
    }
    pthread_barrier_destroy(&all.start);
    for (int i = 0; i < THREADS; i++)
        ck_assert_msg(!workers[i].wrong, "thread %d: %s", i, workers[i].wrong ? workers[i].wrong : "");
}

START_TEST(interpreter) {
    run(TVM_DEVICE_CPU, false);
}
END_TEST

START_TEST(interpreter_with_timelines) {
    run(TVM_DEVICE_CPU, true);
}
END_TEST

#ifdef HAVE_CUDA_H

START_TEST(gpu) {
    run(TVM_DEVICE_CUDA, false);
}
END_TEST

START_TEST(gpu_with_timelines) {
    run(TVM_DEVICE_CUDA, true);
}
END_TEST

#endif

int main(void) {
    Suite *suite = suite_create("threads");
    TCase *cases = tcase_create("threads");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, interpreter);
    tcase_add_test(cases, interpreter_with_timelines);
#ifdef HAVE_CUDA_H
    tcase_add_test(cases, gpu);
    tcase_add_test(cases, gpu_with_timelines);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
