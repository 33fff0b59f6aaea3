/* The log, the timeline and NVTX ranges of a context: what a user sees of them. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "cuda_kit.h"
#include "suite_kit.h"

static cuda_kit kit;
static char log_path[96], trace_path[96];
static tvm_context *context;
static tvm_program *program;
static char collected[65536];
static pthread_mutex_t collecting = PTHREAD_MUTEX_INITIALIZER;

/* "1 text\n" for each line. */
static void collect(void *closure, tvm_log_level level, const char *text) {
    pthread_mutex_lock(&collecting);
    size_t length = strlen(collected);
    snprintf(collected + length, sizeof collected - length, "%d %s %s\n", (int)level, (const char *)closure,
             text);
    pthread_mutex_unlock(&collecting);
}

static void setup(void) {
    kit_setup(&kit);
    snprintf(log_path, sizeof log_path, "%s/log", kit.folder);
    snprintf(trace_path, sizeof trace_path, "%s/trace.json", kit.folder);
    collected[0] = '\0';
}

static void teardown(void) {
    tvm_program_free(program);
    tvm_context_free(context);
    kit_teardown(&kit);
}

static tvm_status launch(void) {
    static _Alignas(16) float x[16], y[16];
    tvm_kernel *kernel = NULL;
    ck_assert_int_eq(tvm_get_kernel(program, "scale", &kernel), TVM_OK);
    return tvm_launch(kernel, NULL, 16, 2.0, (void *)x, (void *)y);
}

/* Creates, loads, prepares, launches, waits; the kernel is called "scale". */
static void run(tvm_device_kind kind, tvm_context_options options) {
    tvm_kernel *kernel = NULL;
    options.device = kind;
    options.cache_dir = kit.cache;
    ck_assert_msg(!tvm_context_create(&options, &context), "%s", tvm_message(context));
    if (options.log_closure == trace_path) ck_assert_int_eq(tvm_trace_start(context, trace_path), TVM_OK);
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &program), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(program, "scale", &kernel), TVM_OK);
    ck_assert_int_eq(tvm_prepare(kernel), TVM_OK);
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_OK);
}

static const char *text_of(const char *path) {
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = '\0';
    if (file) fclose(file);
    return text;
}

static int count_of(const char *text, const char *word) {
    int count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) count++;
    return count;
}

/* ---- the log ---- */

START_TEST(nothing_is_said_by_default) {
    setenv("TILUSVM_LOG_FILE", log_path, 1);
    unsetenv("TILUSVM_LOG");
    run(TVM_DEVICE_CPU, (tvm_context_options){0});
    ck_assert_int_ne(access(log_path, F_OK), 0);
}
END_TEST

START_TEST(levels_of_the_environment) {
    static const struct {
        const char *name;
        int errors, infos, debugs;
    } levels[] = {
        {"off", 0, 0, 0}, {"error", 1, 0, 0}, {"warn", 1, 0, 0}, {"info", 1, 1, 0}, {"DEBUG", 1, 1, 3}};
    setenv("TILUSVM_LOG_FILE", log_path, 1);
    setenv("TILUSVM_LOG", levels[_i].name, 1);
    run(TVM_DEVICE_CPU, (tvm_context_options){0});
    tvm_kernel *kernel;
    ck_assert_int_eq(tvm_get_kernel(program, "no such kernel", &kernel), TVM_NOT_FOUND);
    const char *text = text_of(log_path);
    ck_assert_int_eq(count_of(text, "tilusvm error: the program has no kernel 'no such kernel'"),
                     levels[_i].errors);
    ck_assert_int_eq(count_of(text, "tilusvm info: running on interpreter"), levels[_i].infos);
    ck_assert_int_eq(count_of(text, "tilusvm debug: "), levels[_i].debugs);
    ck_assert_int_eq(count_of(text, "tilusvm debug: launch scale: "), levels[_i].debugs != 0);
    ck_assert_int_eq(count_of(text, "\n"), levels[_i].errors + levels[_i].infos + levels[_i].debugs);
}
END_TEST

START_TEST(an_unknown_level_is_told) {
    setenv("TILUSVM_LOG_FILE", log_path, 1);
    setenv("TILUSVM_LOG", "loud", 1);
    run(TVM_DEVICE_CPU, (tvm_context_options){0});
    ck_assert_int_eq(
        count_of(text_of(log_path), "TILUSVM_LOG=loud is none of error, warn, info, debug and off"), 1);
    tvm_context *other = NULL;
    tvm_context_options options = {.log_level = (tvm_log_level)77};
    ck_assert_int_eq(tvm_context_create(&options, &other), TVM_USAGE);
    tvm_context_free(other);
}
END_TEST

START_TEST(the_callback_takes_the_log) {
    setenv("TILUSVM_LOG_FILE", log_path, 1);
    setenv("TILUSVM_LOG", "error", 1);
    run(TVM_DEVICE_CPU,
        (tvm_context_options){.log = collect, .log_closure = log_path, .log_level = TVM_LOG_DEBUG});
    ck_assert_int_ne(access(log_path, F_OK), 0);
    char expected[128];
    snprintf(expected, sizeof expected, "%d %s launch scale: ", (int)TVM_LOG_DEBUG, log_path);
    ck_assert_msg(strstr(collected, expected) != NULL, "%s", collected);
}
END_TEST

/* Two contexts of a process have each its own log. */
START_TEST(contexts_do_not_share_a_log) {
    unsetenv("TILUSVM_LOG");
    tvm_context *quiet = NULL;
    ck_assert_int_eq(tvm_context_create(&(tvm_context_options){.device = TVM_DEVICE_CPU}, &quiet), TVM_OK);
    run(TVM_DEVICE_CPU, (tvm_context_options){.log = collect, .log_closure = log_path});
    ck_assert_str_eq(collected, "");
    ck_assert_int_eq(tvm_memory_alloc(quiet, SIZE_MAX, &(void *){NULL}), TVM_DEVICE_MEMORY);
    ck_assert_str_eq(collected, "");
    ck_assert_int_eq(tvm_memory_alloc(context, SIZE_MAX, &(void *){NULL}), TVM_DEVICE_MEMORY);
    ck_assert_int_eq(count_of(collected, "\n"), 1);
    tvm_context_free(quiet);
}
END_TEST

/* ---- the timeline ---- */

typedef struct span {
    const char *name, *of;
    double start, end;
    bool device;
} span;

/* The complete events of a name; the last one in *found. */
static int spans_of(json_t *trace, const char *name, bool device, span *found) {
    int count = 0;
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X")) continue;
        bool is_device = json_integer_value(json_object_get(event, "pid")) != getpid();
        if (is_device != device || strcmp(json_string_value(json_object_get(event, "name")), name)) continue;
        found->start = json_number_value(json_object_get(event, "ts"));
        found->end = found->start + json_number_value(json_object_get(event, "dur"));
        found->of = json_string_value(json_object_get(json_object_get(event, "args"), "of"));
        count++;
    }
    return count;
}

static json_t *read_trace(void) {
    json_error_t error;
    json_t *trace = json_load_file(trace_path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(trace != NULL, "%s: %s", trace_path, error.text);
    return trace;
}

START_TEST(timeline_of_the_interpreter) {
    span prepare = {0}, launched = {0}, none = {0};
    run(TVM_DEVICE_CPU, (tvm_context_options){.log_closure = trace_path});
    ck_assert_int_eq(tvm_trace_start(context, trace_path), TVM_USAGE);
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_trace_stop(context), TVM_OK);
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_trace_stop(context), TVM_USAGE);
    json_t *trace = read_trace();
    ck_assert_int_eq(spans_of(trace, "prepare", false, &prepare), 1);
    ck_assert_int_eq(spans_of(trace, "launch", false, &launched), 2);
    ck_assert_int_eq(spans_of(trace, "translate", false, &none), 0);
    ck_assert_str_eq(launched.of, "scale");
    ck_assert(prepare.start >= 0 && prepare.end >= prepare.start && launched.start >= prepare.end);
    json_decref(trace);
}
END_TEST

START_TEST(timeline_that_cannot_be_written) {
    run(TVM_DEVICE_CPU, (tvm_context_options){0});
    ck_assert_int_eq(tvm_trace_start(context, "/nowhere/trace.json"), TVM_IO);
    ck_assert(strstr(tvm_message(context), "/nowhere/trace.json") != NULL);
    ck_assert_int_eq(tvm_trace_start(context, "/dev/full"), TVM_OK);
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_trace_stop(context), TVM_IO);
    ck_assert_int_eq(tvm_trace_start(context, trace_path), TVM_OK);
    tvm_program_free(program); /* freeing the context ends the timeline */
    tvm_context_free(context);
    program = NULL;
    context = NULL;
    json_decref(read_trace());
}
END_TEST

#ifdef HAVE_CUDA_H

START_TEST(timeline_of_a_gpu) {
    span prepare = {0}, translated = {0}, assembled = {0}, loaded = {0}, launched = {0}, ran = {0};
    run(TVM_DEVICE_CUDA, (tvm_context_options){.log_closure = trace_path});
    ck_assert_int_eq(launch(), TVM_OK);
    ck_assert_int_eq(tvm_trace_stop(context), TVM_OK);
    json_t *trace = read_trace();
    ck_assert_int_eq(spans_of(trace, "translate", false, &translated), 1);
    ck_assert_int_eq(spans_of(trace, "ptxas", false, &assembled), 1);
    ck_assert_int_eq(spans_of(trace, "load", false, &loaded), 1);
    ck_assert_int_eq(spans_of(trace, "prepare", false, &prepare), 1);
    ck_assert_int_eq(spans_of(trace, "launch", false, &launched), 2);
    ck_assert_int_eq(spans_of(trace, "scale", true, &ran), 2);
    /* Times are written in thousandths of a microsecond: the end of one may round beyond the start of the
     * next. */
    const double tolerance = 0.01;
    ck_assert(prepare.start <= translated.start && translated.end <= assembled.start + tolerance &&
              assembled.end <= loaded.start + tolerance && loaded.end <= prepare.end + tolerance);
    ck_assert_double_eq_tol(ran.end - ran.start, 8000, 0.01); /* the driver says 2 ms, 4, 6, 8 */
    json_decref(trace);
    tvm_program_free(program);
    program = NULL;
    tvm_context_free(context);
    context = NULL;
    ck_assert_int_eq(kit.driver->live(), 0);
    ck_assert_int_eq(kit.driver->mistakes(), 0);
}
END_TEST

START_TEST(the_cache_and_the_translation_are_told_of) {
    setenv("TILUSVM_LOG", "info", 1);
    run(TVM_DEVICE_CUDA, (tvm_context_options){.log = collect, .log_closure = log_path});
    ck_assert_int_eq(count_of(collected, " running on Fake GPU"), 1);
    ck_assert_int_eq(count_of(collected, " translate sm_90a: "), 1);
    ck_assert_int_eq(count_of(collected, " load cubin: "), 1);
    ck_assert_int_eq(count_of(collected, " launch "), 0);
}
END_TEST

START_TEST(what_is_wrong_with_the_cache_is_a_warning) {
    unsetenv("TILUSVM_LOG");
    snprintf(kit.cache, sizeof kit.cache, "/proc/no/cache");
    run(TVM_DEVICE_CUDA, (tvm_context_options){.log = collect, .log_closure = log_path});
    ck_assert_msg(strstr(collected, "/proc/no/cache") != NULL, "%s", collected);
}
END_TEST

#ifdef HAVE_NVTX3
START_TEST(ranges_of_nvtx) {
    char *library = realpath("tests/fake/libnvtx.so", NULL);
    ck_assert_ptr_nonnull(library);
    setenv("NVTX_INJECTION64_PATH", library, 1);
    setenv("FAKE_NVTX_LOG", log_path, 1);
    free(library);
    run(TVM_DEVICE_CPU, (tvm_context_options){.threads = 2});
    ck_assert_str_eq(text_of(log_path), "push tilusvm prepare scale\npop\npush tilusvm launch scale\npop\n"
                                        "push tilusvm synchronize interpreter, 2 threads\npop\n");
}
END_TEST
#endif

#endif /* HAVE_CUDA_H */

int main(void) {
    Suite *suite = suite_create("observe");
    TCase *cases = tcase_create("observe");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, nothing_is_said_by_default);
    tcase_add_loop_test(cases, levels_of_the_environment, 0, 5);
    tcase_add_test(cases, an_unknown_level_is_told);
    tcase_add_test(cases, the_callback_takes_the_log);
    tcase_add_test(cases, contexts_do_not_share_a_log);
    tcase_add_test(cases, timeline_of_the_interpreter);
    tcase_add_test(cases, timeline_that_cannot_be_written);
#ifdef HAVE_CUDA_H
    tcase_add_test(cases, timeline_of_a_gpu);
    tcase_add_test(cases, the_cache_and_the_translation_are_told_of);
    tcase_add_test(cases, what_is_wrong_with_the_cache_is_a_warning);
#ifdef HAVE_NVTX3
    tcase_add_test(cases, ranges_of_nvtx);
#endif
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
