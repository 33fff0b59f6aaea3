#include "subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 20 };

typedef struct process {
    pid_t pid;
    int pipe; /* its output; -1 once it is at its end */
    int64_t deadline;
    bool ended;
    int wait_status;
    size_t size;
    char *output; /* TVM_PROCESS_OUTPUT_MAX + 1 bytes */
} process;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads what has come; what is beyond the limit is dropped, so that the program does not block. */
static void read_output(process *p) {
    char chunk[4096];
    ssize_t got = read(p->pipe, chunk, sizeof chunk);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        close(p->pipe);
        p->pipe = -1;
        return;
    }
    size_t room = TVM_PROCESS_OUTPUT_MAX - p->size, keep = (size_t)got < room ? (size_t)got : room;
    memcpy(p->output + p->size, chunk, keep);
    p->size += keep;
}

/* Waits for output or a short while. */
static void wait_output(process *p) {
    if (p->pipe < 0) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        return;
    }
    struct pollfd poller = {p->pipe, POLLIN, 0};
    if (poll(&poller, 1, POLL_MS) > 0) read_output(p);
}

/* Has it ended? When the caller's process ignores SIGCHLD the exit status is lost: it then counts as 0. */
static void check_ended(process *p) {
    int status;
    pid_t got = waitpid(p->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) return;
    p->ended = true;
    p->wait_status = got < 0 ? 0 : status;
}

/* What is still in the pipe of a program that has ended; a descendant that holds the pipe open is not waited
 * for. */
static void drain(process *p) {
    while (p->pipe >= 0) {
        struct pollfd poller = {p->pipe, POLLIN, 0};
        if (poll(&poller, 1, 0) <= 0) {
            close(p->pipe);
            p->pipe = -1;
        } else {
            read_output(p);
        }
    }
}

static void watch(process *p, tvm_process_result *result) {
    while (!p->ended) {
        wait_output(p);
        check_ended(p);
        if (!p->ended && now_ms() >= p->deadline) {
            result->timed_out = true;
            kill(-p->pid, SIGKILL);
            while (!p->ended) {
                check_ended(p);
                if (!p->ended) nanosleep(&(struct timespec){0, 1000000}, NULL);
            }
        }
    }
    drain(p);
    p->output[p->size] = '\0';
    if (WIFSIGNALED(p->wait_status)) result->signal = WTERMSIG(p->wait_status);
    if (WIFEXITED(p->wait_status)) result->exit_code = WEXITSTATUS(p->wait_status);
}

/* The descriptor under a number above those of the standard streams; -1 with errno, and then it is closed. */
static int above_standard(int descriptor) {
    if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
    int above = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(descriptor);
    errno = error;
    return above;
}

int tvm_process_memory(const char *what) {
    return above_standard(memfd_create(what, MFD_CLOEXEC));
}

/* A process group of its own, no signals blocked or ignored, no input, output into the pipe. */
static int spawn(process *p, const char *const argv[], const int *passed, size_t passed_count, int output) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        posix_spawnattr_setflags(&attributes,
                                 POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        posix_spawnattr_setpgroup(&attributes, 0);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, 1);
        if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, 2);
        /* Onto itself: that keeps it open, in the program alone. */
        for (size_t i = 0; i < passed_count && !error; i++)
            error = posix_spawn_file_actions_adddup2(&actions, passed[i], passed[i]);
        /* posix_spawn takes char *const[] but does not write to the strings */
        union {
            const char *const *in;
            char *const *out;
        } arguments = {argv};
        if (!error) error = posix_spawn(&p->pid, argv[0], &actions, &attributes, arguments.out, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* So that one that loops ends even when this process dies before it. Generous: the program may have threads.
 */
static void limit_processor_time(pid_t pid, unsigned limit_ms) {
    rlim_t seconds = ((rlim_t)limit_ms / 1000 + 1) * 16;
    prlimit(pid, RLIMIT_CPU, &(struct rlimit){seconds, seconds}, NULL);
}

tvm_status tvm_process_run(const char *const argv[], const int *passed, size_t passed_count,
                           unsigned limit_ms, tvm_process_result *result, tvm_diags *diags) {
    *result = (tvm_process_result){0};
    process p = {.output = malloc(TVM_PROCESS_OUTPUT_MAX + 1), .deadline = now_ms() + limit_ms};
    if (!p.output) return tvm_diag_no_memory(diags);
    int ends[2];
    int made = pipe2(ends, O_CLOEXEC);
    if (made == 0 && (ends[1] = above_standard(ends[1])) < 0) close(ends[0]), made = -1;
    if (made != 0) {
        int error = errno;
        free(p.output);
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "cannot make a pipe: %s", strerror(error));
    }
    result->error = spawn(&p, argv, passed, passed_count, ends[1]);
    close(ends[1]);
    if (result->error) {
        close(ends[0]);
        p.output[0] = '\0';
    } else {
        p.pipe = ends[0];
        limit_processor_time(p.pid, limit_ms);
        fcntl(p.pipe, F_SETFL, O_NONBLOCK);
        watch(&p, result);
    }
    result->output = p.output;
    return TVM_OK;
}

tvm_status tvm_process_run_on(const char *argv[], size_t at, const void *bytes, size_t size,
                              unsigned limit_ms, tvm_process_result *result, tvm_diags *diags) {
    char path[32];
    *result = (tvm_process_result){0};
    int file = tvm_process_memory("input");
    if (file < 0 || write(file, bytes, size) != (ssize_t)size) {
        int error = errno;
        if (file >= 0) close(file);
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "cannot make a file in memory: %s", strerror(error));
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    argv[at] = path;
    tvm_status status = tvm_process_run(argv, &file, 1, limit_ms, result, diags);
    argv[at] = NULL;
    close(file);
    return status;
}
