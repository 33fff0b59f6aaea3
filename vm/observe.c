/* Log lines and spans; trace.c writes the timeline's file. */
#include "observe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "nvtx.h"
#include "output.h"

static const char *const level_names[] = {"default", "error", "warn", "info", "debug", "off"};

static const struct {
    const char *name;
    tvm_log_level level;
} span_kinds[] = {
#define ROW(id, name, level) {name, level},
    TVM_SPAN_TABLE(ROW)
#undef ROW
};

int64_t tvm_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the log ---- */

/* "2026-11-21T04:24:32.123Z tilusvm info: text" */
static void write_line(tvm_observer *observer, tvm_log_level level, const char *text) {
    struct timespec now;
    struct tm utc;
    char stamp[32] = "";
    FILE *file = observer->log_file ? observer->log_file : stderr;
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc)) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    pthread_mutex_lock(&observer->lock);
    fprintf(file, "%s.%03ldZ tilusvm %s: %s\n", stamp, now.tv_nsec / 1000000, level_names[level], text);
    fflush(file);
    pthread_mutex_unlock(&observer->lock);
}

void tvm_log(tvm_observer *observer, tvm_log_level level, const char *format, ...) {
    char text[2048]; /* what is longer is cut: a log must work when memory is short */
    if (!observer || level > observer->level) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (observer->log)
        observer->log(observer->closure, level, text);
    else
        write_line(observer, level, text);
}

/* TVM_LOG_DEFAULT when the environment does not say; *unknown is a text that it has instead of a level. */
static tvm_log_level level_of_environment(const char **unknown) {
    const char *text = secure_getenv("TILUSVM_LOG");
    *unknown = NULL;
    if (!text || !*text) return TVM_LOG_DEFAULT;
    for (int level = TVM_LOG_ERROR; level <= TVM_LOG_OFF; level++)
        if (!strcasecmp(text, level_names[level])) return (tvm_log_level)level;
    *unknown = text;
    return TVM_LOG_WARN;
}

static void open_log(tvm_observer *observer, const tvm_context_options *options) {
    const char *unknown, *path = secure_getenv("TILUSVM_LOG_FILE");
    tvm_log_level level = level_of_environment(&unknown);
    if (options->log_level) level = options->log_level;
    if (level == TVM_LOG_DEFAULT && options->log) level = TVM_LOG_WARN;
    observer->level = level == TVM_LOG_OFF ? TVM_LOG_DEFAULT : level; /* which no line has */
    observer->log = options->log;
    observer->closure = options->log_closure;
    if (observer->level >= TVM_LOG_INFO) atomic_fetch_or(&observer->active, TVM_OBSERVE_LOG);
    if (observer->level && !options->log && path && *path) {
        observer->log_file = tvm_output_stream(path, true);
        if (!observer->log_file)
            tvm_log(observer, TVM_LOG_WARN, "TILUSVM_LOG_FILE=%s cannot be written: %s", path,
                    strerror(errno));
    }
    if (unknown)
        tvm_log(observer, TVM_LOG_WARN, "TILUSVM_LOG=%s is none of error, warn, info, debug and off",
                unknown);
}

tvm_status tvm_observer_open(tvm_observer *observer, const tvm_context_options *options, tvm_diags *diags) {
    if (options->log_level > TVM_LOG_OFF)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "%d is no level of a log", (int)options->log_level);
    open_log(observer, options);
    if (tvm_nvtx_present()) atomic_fetch_or(&observer->active, TVM_OBSERVE_NVTX);
    return TVM_OK;
}

void tvm_observer_close(tvm_observer *observer) {
    if (observer->trace) tvm_observer_trace_end(observer, NULL);
    if (observer->log_file) fclose(observer->log_file);
}

/* ---- spans ---- */

void tvm_span_open(const tvm_observer *observer, tvm_span *span) {
    (void)observer;
    span->start = tvm_now_ns();
    if (!(span->active & TVM_OBSERVE_NVTX)) return;
    char text[128];
    snprintf(text, sizeof text, "tilusvm %s %s", span_kinds[span->kind].name, span->detail);
    tvm_nvtx_push(text);
}

void tvm_span_close(tvm_observer *observer, const tvm_span *span) {
    int64_t end = tvm_now_ns();
    if (span->active & TVM_OBSERVE_NVTX) tvm_nvtx_pop();
    if (span->active & TVM_OBSERVE_TRACE)
        tvm_trace_host_span(observer, span_kinds[span->kind].name, span->detail, span->start, end);
    if (span->active & TVM_OBSERVE_LOG)
        tvm_log(observer, span_kinds[span->kind].level, "%s %s: %.3f ms", span_kinds[span->kind].name,
                span->detail, (double)(end - span->start) * 1e-6);
}
