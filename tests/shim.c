/* See shim.h. Each wrapper is the linker's __wrap_NAME for NAME; __real_NAME is the C library's. */
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct block {
    void *pointer; /* NULL: free, GONE: was used */
    long call;
} block;

enum { BLOCKS = 1 << 16, STREAMS = 64, KEYS = 1024 };
static char gone_mark;
#define GONE ((void *)&gone_mark)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static block blocks[BLOCKS];
static long live;
static struct {
    FILE *stream;
    char **text;
} streams[STREAMS]; /* of open_memstream: their text is a block once they are closed */
static bool on_and_on;
static atomic_bool
    started; /* read without the lock first: a sanitizer's start comes here before anything works */
static atomic_bool used; /* shim_start was called */
static long fail_at, call;
static long counts[SHIM_KINDS];
static atomic_bool own_keys[KEYS]; /* made since shim_start */
static const char *failed_name;
static atomic_bool polled, waited; /* since shim_start */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
static void hold(void) {
    __real_pthread_mutex_lock(&lock);
}
static void let_go(void) {
    pthread_mutex_unlock(&lock);
}

/* ---- control ---- */

void shim_start(long nth, bool on) {
    hold();
    used = true;
    started = true;
    on_and_on = on;
    fail_at = nth;
    call = 0;
    memset(counts, 0, sizeof counts);
    failed_name = NULL;
    atomic_store(&polled, false);
    atomic_store(&waited, false);
    let_go();
}

void shim_stop(void) {
    hold();
    started = false;
    let_go();
}

const char *shim_failed(void) {
    hold();
    const char *name = failed_name;
    let_go();
    return name;
}

long shim_count(shim_kind kind) {
    hold();
    long count = counts[kind];
    let_go();
    return count;
}

long shim_live(void) {
    hold();
    long count = live;
    let_go();
    return count;
}

long shim_oldest(void) {
    long oldest = 0;
    hold();
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].pointer && blocks[i].pointer != GONE && (!oldest || blocks[i].call < oldest))
            oldest = blocks[i].call;
    let_go();
    return oldest;
}

static bool fails(shim_kind kind, const char *name) {
    bool failing = false;
    if (!atomic_load(&started)) return false;
    hold();
    if (started) {
        counts[kind]++;
        call++;
        failing = fail_at && (call == fail_at || (on_and_on && call > fail_at));
        if (failing && !failed_name) failed_name = name;
    }
    let_go();
    return failing;
}

/* ---- tracking: a hash table with linear probing ---- */

static size_t slot_of(const void *pointer) {
    return ((size_t)pointer >> 4) * 0x9e3779b97f4a7c15u >> 48;
}

static void *track(void *pointer) {
    if (!atomic_load(&started)) return pointer;
    hold();
    if (pointer && live < BLOCKS / 2) {
        size_t i = slot_of(pointer);
        while (blocks[i].pointer && blocks[i].pointer != GONE) i = (i + 1) % BLOCKS;
        blocks[i] = (block){pointer, call};
        live++;
    }
    let_go();
    return pointer;
}

static void untrack(const void *pointer) {
    if (!atomic_load(&used)) return;
    hold();
    size_t i = slot_of(pointer);
    if (pointer && live)
        for (size_t n = 0; n < BLOCKS && blocks[i].pointer; n++, i = (i + 1) % BLOCKS)
            if (blocks[i].pointer == pointer) {
                blocks[i].pointer = blocks[(i + 1) % BLOCKS].pointer ? GONE : NULL;
                live--;
                break;
            }
    let_go();
}

/* ---- wrappers. WRAP: the type, the name, its parameters, the arguments; the body fails or goes on ---- */

#define WRAP(type, name, parameters)                                                                         \
    type __real_##name parameters;                                                                           \
    type __wrap_##name parameters;                                                                           \
    type __wrap_##name parameters

#define FAIL(kind, name, error, value)                                                                       \
    if (fails(kind, name)) {                                                                                 \
        errno = error;                                                                                       \
        return value;                                                                                        \
    }

/* Functions that fail with -1 or NULL, do nothing when they do, and need no care otherwise. */
#define PLAIN(kind, type, name, parameters, arguments, error, value)                                         \
    WRAP(type, name, parameters) {                                                                           \
        FAIL(kind, #name, error, value)                                                                      \
        return __real_##name arguments;                                                                      \
    }

WRAP(void *, malloc, (size_t size)) {
    FAIL(SHIM_MEMORY, "malloc", ENOMEM, NULL)
    return track(__real_malloc(size));
}

WRAP(void *, calloc, (size_t count, size_t size)) {
    FAIL(SHIM_MEMORY, "calloc", ENOMEM, NULL)
    return track(__real_calloc(count, size));
}

WRAP(void *, aligned_alloc, (size_t alignment, size_t size)) {
    FAIL(SHIM_MEMORY, "aligned_alloc", ENOMEM, NULL)
    return track(__real_aligned_alloc(alignment, size));
}

WRAP(void *, realloc, (void *old, size_t size)) {
    FAIL(SHIM_MEMORY, "realloc", ENOMEM, NULL)
    untrack(old);
    return track(__real_realloc(old, size));
}

WRAP(void *, reallocarray, (void *old, size_t count, size_t size)) {
    FAIL(SHIM_MEMORY, "reallocarray", ENOMEM, NULL)
    untrack(old);
    return track(__real_reallocarray(old, count, size));
}

WRAP(void, free, (void *pointer)) {
    untrack(pointer);
    __real_free(pointer);
}

WRAP(char *, strdup, (const char *text)) {
    FAIL(SHIM_MEMORY, "strdup", ENOMEM, NULL)
    return track(__real_strdup(text));
}

WRAP(char *, strndup, (const char *text, size_t size)) {
    FAIL(SHIM_MEMORY, "strndup", ENOMEM, NULL)
    return track(__real_strndup(text, size));
}

WRAP(char *, realpath, (const char *path, char *resolved)) {
    FAIL(SHIM_FILE, "realpath", ENOMEM, NULL)
    char *result = __real_realpath(path, resolved);
    return resolved ? result : track(result);
}

int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **text, const char *format, ...) {
    FAIL(SHIM_MEMORY, "asprintf", ENOMEM, -1)
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(text, format, arguments);
    va_end(arguments);
    if (length >= 0) track(*text);
    return length;
}

WRAP(FILE *, open_memstream, (char **text, size_t *size)) {
    FAIL(SHIM_MEMORY, "open_memstream", ENOMEM, NULL)
    FILE *stream = __real_open_memstream(text, size);
    if (!atomic_load(&started)) return stream;
    hold();
    for (size_t i = 0; stream && i < STREAMS; i++)
        if (!streams[i].stream) {
            streams[i].stream = stream;
            streams[i].text = text;
            break;
        }
    let_go();
    return stream;
}

/* The stream is closed whatever is returned. */
WRAP(int, fclose, (FILE * stream)) {
    char **text = NULL;
    if (!atomic_load(&used)) return __real_fclose(stream);
    hold();
    for (size_t i = 0; i < STREAMS; i++)
        if (streams[i].stream == stream) {
            text = streams[i].text;
            streams[i].stream = NULL;
        }
    let_go();
    bool failing = fails(text ? SHIM_MEMORY : SHIM_FILE, "fclose");
    int result = __real_fclose(stream);
    if (text) track(*text);
    if (failing) errno = text ? ENOMEM : ENOSPC;
    return failing ? EOF : result;
}

/* ---- files ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    FAIL(SHIM_FILE, "open", EMFILE, -1)
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...) {
    FAIL(SHIM_FILE, "openat", EMFILE, -1)
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return __real_openat(folder, path, flags, mode);
}

/* The argument, where there is one, is an int or a pointer: both are passed on as a long. */
int __real_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...) {
    FAIL(SHIM_FILE, "fcntl", EINVAL, -1)
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return __real_fcntl(file, command, argument);
}

/* How often a process is looked at depends on its speed: only the first call of each is one that can fail, so
 * that calls have the same numbers in every run. */
int __real_poll(struct pollfd *files, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *files, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *files, nfds_t count, int timeout) {
    if (atomic_load(&started) && !atomic_exchange(&polled, true)) FAIL(SHIM_FILE, "poll", ENOMEM, -1)
    return __real_poll(files, count, timeout);
}

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options) {
    if (atomic_load(&started) && !atomic_exchange(&waited, true)) FAIL(SHIM_FILE, "waitpid", ECHILD, -1)
    return __real_waitpid(pid, status, options);
}

/* Closed whatever is returned. */
WRAP(int, close, (int descriptor)) {
    bool failing = fails(SHIM_FILE, "close");
    int result = __real_close(descriptor);
    if (failing) errno = EIO;
    return failing ? -1 : result;
}

PLAIN(SHIM_FILE, ssize_t, read, (int file, void *to, size_t size), (file, to, size), EIO, -1)
PLAIN(SHIM_FILE, ssize_t, write, (int file, const void *from, size_t size), (file, from, size), ENOSPC, -1)
PLAIN(SHIM_FILE, ssize_t, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at), EIO, -1)
PLAIN(SHIM_FILE, ssize_t, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at),
      ENOSPC, -1)
PLAIN(SHIM_FILE, int, stat, (const char *path, struct stat *to), (path, to), EACCES, -1)
PLAIN(SHIM_FILE, int, fstat, (int file, struct stat *to), (file, to), EIO, -1)
PLAIN(SHIM_FILE, int, fstatat, (int folder, const char *path, struct stat *to, int flags),
      (folder, path, to, flags), EACCES, -1)
PLAIN(SHIM_FILE, int, access, (const char *path, int mode), (path, mode), EACCES, -1)
PLAIN(SHIM_FILE, int, unlink, (const char *path), (path), EACCES, -1)
PLAIN(SHIM_FILE, int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), EACCES, -1)
PLAIN(SHIM_FILE, int, rename, (const char *from, const char *to), (from, to), ENOSPC, -1)
PLAIN(SHIM_FILE, int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC, -1)
PLAIN(SHIM_FILE, int, rmdir, (const char *path), (path), EACCES, -1)
PLAIN(SHIM_FILE, char *, mkdtemp, (char *path), (path), ENOSPC, NULL)
PLAIN(SHIM_FILE, DIR *, opendir, (const char *path), (path), EMFILE, NULL)
PLAIN(SHIM_FILE, DIR *, fdopendir, (int folder), (folder), ENOMEM, NULL)
PLAIN(SHIM_FILE, int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, -1)
PLAIN(SHIM_FILE, int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b), ENOSPC,
      -1)
PLAIN(SHIM_FILE, int, futimens, (int file, const struct timespec times[2]), (file, times), EPERM, -1)
PLAIN(SHIM_FILE, void *, mmap, (void *at, size_t size, int protection, int flags, int file, off_t offset),
      (at, size, protection, flags, file, offset), ENOMEM, MAP_FAILED)
PLAIN(SHIM_FILE, struct dirent *, readdir, (DIR * folder), (folder), EIO, NULL)
PLAIN(SHIM_FILE, int, ftruncate, (int file, off_t size), (file, size), ENOSPC, -1)
PLAIN(SHIM_FILE, int, fchmod, (int file, mode_t mode), (file, mode), EPERM, -1)
PLAIN(SHIM_FILE, int, fsync, (int file), (file), EIO, -1)
PLAIN(SHIM_FILE, int, flock, (int file, int operation), (file, operation), ENOLCK, -1)
PLAIN(SHIM_FILE, int, linkat, (int from, const char *a, int to, const char *b, int flags),
      (from, a, to, b, flags), EPERM, -1)
PLAIN(SHIM_FILE, int, utimensat, (int folder, const char *path, const struct timespec times[2], int flags),
      (folder, path, times, flags), EPERM, -1)
PLAIN(SHIM_FILE, int, pipe2, (int ends[2], int flags), (ends, flags), EMFILE, -1)
PLAIN(SHIM_FILE, FILE *, fopen, (const char *path, const char *mode), (path, mode), EMFILE, NULL)
PLAIN(SHIM_FILE, int, fflush, (FILE * stream), (stream), ENOSPC, EOF)
PLAIN(SHIM_FILE, void *, dlopen, (const char *path, int mode), (path, mode), ENOMEM, NULL)
PLAIN(SHIM_FILE, void *, dlsym, (void *library, const char *name), (library, name), ENOENT, NULL)
PLAIN(SHIM_FILE, int, posix_spawn,
      (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
       const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]),
      (pid, path, actions, attributes, argv, environment), EAGAIN, EAGAIN)
PLAIN(SHIM_FILE, int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t * actions), (actions),
      ENOMEM, ENOMEM)
PLAIN(SHIM_FILE, int, posix_spawn_file_actions_addopen,
      (posix_spawn_file_actions_t * actions, int file, const char *path, int flags, mode_t mode),
      (actions, file, path, flags, mode), ENOMEM, ENOMEM)
PLAIN(SHIM_FILE, int, posix_spawn_file_actions_adddup2,
      (posix_spawn_file_actions_t * actions, int from, int to), (actions, from, to), ENOMEM, ENOMEM)
PLAIN(SHIM_FILE, int, posix_spawnattr_init, (posix_spawnattr_t * attributes), (attributes), ENOMEM, ENOMEM)

/* ---- threads ---- */

PLAIN(SHIM_THREAD, int, pthread_create,
      (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *closure),
      (thread, attributes, run, closure), EAGAIN, EAGAIN)
PLAIN(SHIM_THREAD, int, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes),
      (mutex, attributes), ENOMEM, ENOMEM)
PLAIN(SHIM_THREAD, int, pthread_cond_init, (pthread_cond_t * condition, const pthread_condattr_t *attributes),
      (condition, attributes), ENOMEM, ENOMEM)
PLAIN(SHIM_THREAD, int, pthread_attr_init, (pthread_attr_t * attributes), (attributes), ENOMEM, ENOMEM)
WRAP(int, pthread_key_create, (pthread_key_t * key, void (*destroy)(void *))) {
    FAIL(SHIM_THREAD, "pthread_key_create", EAGAIN, EAGAIN)
    int error = __real_pthread_key_create(key, destroy);
    if (!error && *key < KEYS) atomic_store(&own_keys[*key], atomic_load(&started));
    return error;
}

/* A sanitizer has a key too, made at its start, that it cannot do without. */
WRAP(int, pthread_setspecific, (pthread_key_t key, const void *value)) {
    if (key < KEYS && atomic_load(&own_keys[key])) {
        FAIL(SHIM_THREAD, "pthread_setspecific", ENOMEM, ENOMEM)
    }
    return __real_pthread_setspecific(key, value);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (atomic_load(&started)) {
        hold();
        counts[SHIM_LOCK]++;
        let_go();
    }
    return __real_pthread_mutex_lock(mutex);
}
