#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static tvm_status io_error(const char *path, const char *doing, int error, tvm_diags *diags) {
    bool standard = strcmp(path, "-") == 0;
    const tvm_place place = {.file = standard ? NULL : path};
    return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot %s%s: %s", doing,
                        standard ? " standard output" : "", strerror(error));
}

/* ---- writing under a file-size limit ---- */

/* The kernel sends SIGXFSZ to the thread that writes: blocked there, it stays pending until it is taken. */
typedef struct size_guard {
    sigset_t before;
    bool pending; /* already, and so not ours to take */
} size_guard;

static sigset_t size_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

static void guard_begin(size_guard *guard) {
    sigset_t set = size_signal(), pending;
    sigemptyset(&pending);
    sigpending(&pending);
    guard->pending = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &set, &guard->before);
}

static void guard_end(const size_guard *guard) {
    sigset_t set = size_signal();
    if (!guard->pending)
        while (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

int tvm_write_all(int descriptor, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    int error = 0;
    size_guard guard;
    guard_begin(&guard);
    while (size > 0 && error == 0) {
        ssize_t put = write(descriptor, at, size);
        if (put < 0) {
            if (errno != EINTR) error = errno;
            continue;
        }
        at += put;
        size -= (size_t)put;
    }
    guard_end(&guard);
    return error;
}

static int write_all_at(int descriptor, const void *bytes, size_t size, uint64_t offset) {
    const uint8_t *at = bytes;
    int error = 0;
    size_guard guard;
    guard_begin(&guard);
    while (size > 0 && error == 0) {
        ssize_t put = pwrite(descriptor, at, size, (off_t)offset);
        if (put <= 0) {
            if (put == 0 || errno != EINTR) error = put == 0 ? EIO : errno;
            continue;
        }
        at += put;
        size -= (size_t)put;
        offset += (uint64_t)put;
    }
    guard_end(&guard);
    return error;
}

static int set_size(int descriptor, uint64_t size) {
    size_guard guard;
    guard_begin(&guard);
    int error = ftruncate(descriptor, (off_t)size) ? errno : 0;
    guard_end(&guard);
    return error;
}

/* A stream's buffer goes where write goes, past a limit an error. What write returns is the number of bytes,
 * 0 for an error (fopencookie(3)). */
static ssize_t stream_write(void *cookie, const char *bytes, size_t size) {
    int error = tvm_write_all((int)(intptr_t)cookie, bytes, size);
    if (!error) return (ssize_t)size;
    errno = error;
    return 0;
}

static int stream_close(void *cookie) {
    return close((int)(intptr_t)cookie);
}

FILE *tvm_output_stream(const char *path, bool append) {
    int mode = append ? O_APPEND : O_TRUNC;
    int descriptor = strcmp(path, "-") == 0 ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                            : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666);
    if (descriptor < 0) return NULL;
    cookie_io_functions_t functions = {.write = stream_write, .close = stream_close};
    FILE *stream = fopencookie((void *)(intptr_t)descriptor, "w", functions);
    if (!stream) close(descriptor);
    return stream;
}

/* ---- temporaries, as a signal's handler finds them ---- */

/* A handler gets nothing but the signal's number, so what it removes stands here: the one mutable state that
 * outputs share. A place is taken before the file is made and free after it has gone, so that a signal at any
 * time, in any thread, finds it; of more outputs at once than there are places the last are not found. */
static _Atomic(char *) temporaries[256];
enum { TEMPORARIES = sizeof temporaries / sizeof *temporaries };

static void remember(char *name) {
    for (size_t i = 0; i < TEMPORARIES; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&temporaries[i], &none, name)) return;
    }
}

/* Free for the next, and the name with it. */
static void forget(char *name) {
    if (!name) return;
    for (size_t i = 0; i < TEMPORARIES; i++) {
        char *same = name;
        if (atomic_compare_exchange_strong(&temporaries[i], &same, NULL)) break;
    }
    free(name);
}

void tvm_output_remove_temporaries(void) {
    for (size_t i = 0; i < TEMPORARIES; i++) {
        const char *name = atomic_load(&temporaries[i]);
        if (name) unlink(name);
    }
}

/* ---- names ---- */

/* A name beside path; NULL when memory runs out. */
static char *name_beside(const char *path, unsigned attempt) {
    char *name;
    return asprintf(&name, "%s.tmp%ld.%u", path, (long)getpid(), attempt) < 0 ? NULL : name;
}

static int open_nameless(const char *path) {
    char *folder = strdup(path);
    if (!folder) return -1;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int descriptor = open(slash ? folder : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    free(folder);
    return descriptor;
}

/* The mode is left to the process's umask. */
static int open_named(tvm_output *output) {
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        char *name = name_beside(output->path, attempt);
        if (!name) break;
        remember(name);
        int descriptor = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) {
            output->temporary = name;
            return descriptor;
        }
        int error = errno;
        forget(name);
        errno = error;
        if (error != EEXIST) break;
    }
    return -1;
}

/* 0 or the error's number. */
static int link_as(const tvm_output *output, const char *name) {
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", output->descriptor);
    return linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? errno : 0;
}

/* Names the nameless file: as what it is to be, if nothing is there, else as a temporary. */
static int give_name(tvm_output *output, bool *done) {
    int error = output->replaces ? EEXIST : link_as(output, output->path);
    *done = error == 0;
    for (unsigned attempt = 0; attempt < 1000 && error == EEXIST; attempt++) {
        char *name = name_beside(output->path, attempt);
        if (!name) return ENOMEM;
        remember(name);
        error = link_as(output, name);
        if (error)
            forget(name);
        else
            output->temporary = name;
    }
    return error;
}

/* ---- the file ---- */

/* What it will be called, and the permissions of what it replaces. */
static tvm_status find_place(const char *path, tvm_output *output, tvm_diags *diags) {
    struct stat existing;
    tvm_place place = {.file = path};
    const char *folder = secure_getenv("TMPDIR");
    output->standard = strcmp(path, "-") == 0;
    if (output->standard) {
        if (asprintf(&output->path, "%s/tvm", folder && *folder ? folder : "/tmp") >= 0) return TVM_OK;
        output->path = NULL;
        return tvm_diag_no_memory(diags);
    }
    output->replaces = stat(path, &existing) == 0;
    if (output->replaces && !S_ISREG(existing.st_mode))
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "the output must be a regular file");
    if (output->replaces && access(path, W_OK)) return io_error(path, "open for writing", errno, diags);
    output->mode = output->replaces ? existing.st_mode & 0777 : 0;
    output->path = output->replaces ? realpath(path, NULL) : strdup(path);
    return output->path ? TVM_OK : io_error(path, "open for writing", errno, diags);
}

tvm_status tvm_output_open(const char *path, uint64_t size, tvm_output *output, tvm_diags *diags) {
    *output = (tvm_output){.descriptor = -1};
    tvm_status status = find_place(path, output, diags);
    if (status) return status;
    output->descriptor = open_nameless(output->path);
    if (output->descriptor < 0) output->descriptor = open_named(output);
    if (output->descriptor < 0) return io_error(path, "open for writing", errno, diags);
    int error = size ? set_size(output->descriptor, size) : 0;
    return error ? io_error(path, "write", error, diags) : TVM_OK;
}

tvm_status tvm_output_write(const tvm_output *output, const void *bytes, size_t size, uint64_t offset,
                            tvm_diags *diags) {
    int error = write_all_at(output->descriptor, bytes, size, offset);
    return error ? io_error(output->path, "write", error, diags) : TVM_OK;
}

/* A signal that ends the process waits until the name is right or the temporary is gone, in a process of one
 * thread; of several, another one may take it between these calls. */
static int name_and_rename(tvm_output *output) {
    bool done = false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = output->temporary ? 0 : give_name(output, &done);
    int descriptor = output->descriptor;
    output->descriptor = -1;
    if (close(descriptor) && !error) error = errno; /* some file systems tell of a full disk only now */
    if (error && done) unlink(output->path);
    if (!error && !done && rename(output->temporary, output->path)) error = errno;
    if (error && output->temporary) unlink(output->temporary);
    forget(output->temporary);
    output->temporary = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* 0 or the error's number. */
static int copy_to_standard_output(int descriptor) {
    uint8_t chunk[1 << 16];
    off_t at = 0;
    for (;;) {
        ssize_t got = pread(descriptor, chunk, sizeof chunk, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : 0;
        int error = tvm_write_all(STDOUT_FILENO, chunk, (size_t)got);
        if (error) return error;
        at += got;
    }
}

tvm_status tvm_output_commit(tvm_output *output, tvm_diags *diags) {
    if (output->standard) {
        int failed = copy_to_standard_output(output->descriptor);
        return failed ? io_error("-", "write to", failed, diags) : TVM_OK;
    }
    int error = output->replaces && fchmod(output->descriptor, output->mode) ? errno : 0;
    if (!error) error = name_and_rename(output);
    return error ? io_error(output->path, "write", error, diags) : TVM_OK;
}

void tvm_output_close(tvm_output *output) {
    if (output->path && output->descriptor >= 0) close(output->descriptor);
    if (output->temporary) unlink(output->temporary);
    forget(output->temporary);
    free(output->path);
    *output = (tvm_output){.descriptor = -1};
}
