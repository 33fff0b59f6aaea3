/* A library for LD_PRELOAD: of the calls with which a process makes, fills, names and closes files, the nth
 * meets what the environment says. For the process itself, not for those that it starts. INTERRUPT_CALL which
 * one (1: the first) INTERRUPT_SIGNAL  a signal that is sent to the process before that call; else
 *   INTERRUPT_ERROR   the error's number with which it fails
 *   INTERRUPT_COUNT   a file that is to get how many there are
 *   INTERRUPT_NAMED   1: the file system has no files without a name (O_TMPFILE) */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pid_t process; /* 0: not yet known */
    long call;
    int signal, error;
    bool named;
} asked;
static char count_file[4096];
static atomic_long calls;

static long number_of(const char *name) {
    const char *text = getenv(name);
    long number = text ? atol(text) : 0;
    unsetenv(name);
    return number;
}

__attribute__((constructor)) static void begin(void) {
    asked.call = number_of("INTERRUPT_CALL");
    asked.signal = (int)number_of("INTERRUPT_SIGNAL");
    asked.error = (int)number_of("INTERRUPT_ERROR");
    asked.named = number_of("INTERRUPT_NAMED") != 0;
    const char *file = getenv("INTERRUPT_COUNT");
    if (file && strlen(file) < sizeof count_file) strcpy(count_file, file);
    unsetenv("INTERRUPT_COUNT");
    asked.process = getpid();
}

__attribute__((destructor)) static void end(void) {
    if (!count_file[0] || asked.process != getpid()) return;
    long count = atomic_load(&calls);
    FILE *file = fopen(count_file, "w");
    if (file) fprintf(file, "%ld\n", count), fclose(file);
}

/* Does this call fail? */
static bool meets(void) {
    if (asked.process != getpid() || atomic_fetch_add(&calls, 1) + 1 != asked.call) return false;
    if (asked.signal) {
        kill(asked.process, asked.signal);
        return false;
    }
    errno = asked.error;
    return true;
}

#define CALL(result, name, parameters, ...)                                                                  \
    result name parameters;                                                                                  \
    result name parameters {                                                                                 \
        return meets() ? -1 : (result)syscall(__VA_ARGS__);                                                  \
    }

CALL(ssize_t, pwrite, (int file, const void *from, size_t size, off_t at), SYS_pwrite64, file, from, size, at)
CALL(int, ftruncate, (int file, off_t size), SYS_ftruncate, file, size)
CALL(int, fchmod, (int file, mode_t mode), SYS_fchmod, file, mode)
CALL(int, linkat, (int from, const char *a, int to, const char *b, int flags), SYS_linkat, from, a, to, b,
     flags)
CALL(int, rename, (const char *from, const char *to), SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)

/* Only of files that are written; others are opened at every start of a process. */
int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (asked.named && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (flags & O_ACCMODE && meets()) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Closed whatever it returns. */
int close(int file) {
    int flags = (int)syscall(SYS_fcntl, file, F_GETFL);
    bool fails = flags >= 0 && flags & O_ACCMODE && file > STDERR_FILENO && meets();
    int error = errno, result = (int)syscall(SYS_close, file);
    if (fails) errno = error;
    return fails ? -1 : result;
}
