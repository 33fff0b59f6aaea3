#include "observe.h"
#include "output.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The rows of the timeline: the process with its threads, and one below it for the GPU with its streams,
 * whose process number is none that a process has. */
enum { GPU_PROCESS = 0 };

/* In quotes. Bytes above 0x7f are left as they are: names are those of the language, paths the system's. */
/* gettid() of glibc 2.30, for older ones too. */
static long thread_id(void) {
    return syscall(SYS_gettid);
}

static void write_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

/* The event up to its arguments; the lock is held and there is a file. Times in microseconds. */
static void write_event(tvm_observer *observer, const char *name, long process, long thread, int64_t start,
                        int64_t end) {
    FILE *file = observer->trace;
    fputs(observer->trace_begun ? ",\n" : "\n", file);
    observer->trace_begun = true;
    fputs("{\"name\":", file);
    write_text(file, name);
    fprintf(file, ",\"cat\":\"tilusvm\",\"ph\":\"X\",\"pid\":%ld,\"tid\":%ld,\"ts\":%.3f,\"dur\":%.3f",
            process, thread, (double)(start - observer->origin) * 1e-3, (double)(end - start) * 1e-3);
}

/* "process_name" or "thread_name" of a row. */
static void name_row(tvm_observer *observer, const char *what, long process, long thread, const char *name) {
    FILE *file = observer->trace;
    fputs(observer->trace_begun ? ",\n" : "\n", file);
    observer->trace_begun = true;
    fprintf(file, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%ld,\"tid\":%ld,\"args\":{\"name\":", what, process,
            thread);
    write_text(file, name);
    fputs("}}", file);
}

void tvm_trace_host_span(tvm_observer *observer, const char *name, const char *detail, int64_t start,
                         int64_t end) {
    pthread_mutex_lock(&observer->lock);
    if (observer->trace) {
        write_event(observer, name, getpid(), thread_id(), start, end);
        fputs(",\"args\":{\"of\":", observer->trace);
        write_text(observer->trace, detail);
        fputs("}}", observer->trace);
    }
    pthread_mutex_unlock(&observer->lock);
}

void tvm_trace_device_span(tvm_observer *observer, const char *name, unsigned stream, int64_t start,
                           int64_t end) {
    pthread_mutex_lock(&observer->lock);
    if (observer->trace) {
        write_event(observer, name, GPU_PROCESS, stream, start, end);
        fputc('}', observer->trace);
    }
    pthread_mutex_unlock(&observer->lock);
}

tvm_status tvm_observer_trace(tvm_observer *observer, const char *path, tvm_diags *diags) {
    const tvm_place place = {.file = path};
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&observer->lock);
    if (observer->trace) {
        status = tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "a timeline is being written already");
    } else {
        observer->trace = tvm_output_stream(path, false);
        if (!observer->trace)
            status =
                tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot open for writing: %s", strerror(errno));
    }
    if (!status) {
        observer->trace_begun = false;
        observer->origin = tvm_now_ns();
        fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", observer->trace);
        name_row(observer, "process_name", getpid(), thread_id(), "host");
        name_row(observer, "process_name", GPU_PROCESS, 0, "GPU");
        atomic_fetch_or(&observer->active, TVM_OBSERVE_TRACE);
    }
    pthread_mutex_unlock(&observer->lock);
    return status;
}

tvm_status tvm_observer_trace_end(tvm_observer *observer, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    pthread_mutex_lock(&observer->lock);
    atomic_fetch_and(&observer->active, ~(unsigned)TVM_OBSERVE_TRACE);
    FILE *file = observer->trace;
    observer->trace = NULL;
    pthread_mutex_unlock(&observer->lock);
    if (!file) return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "no timeline is being written");
    fputs("\n]}\n", file);
    bool failed = ferror(file);
    if (fclose(file) || failed)
        status =
            tvm_diag_add(diags, TVM_IO, NULL, NULL, "the timeline cannot be written: %s", strerror(errno));
    return status;
}
