#include "cache_folder.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A file is this header and the bytes. The cache never leaves its machine: host byte order. */
typedef struct entry_header {
    char magic[8];
    uint64_t version;
    uint64_t size;
    tvm_cache_key key;
    uint64_t checksum[4]; /* BLAKE2b of the members above and the bytes */
} entry_header;

static const char entry_magic[8] = "TVMCACHE";
enum {
    ENTRY_VERSION = 2,
    NAME_HEX = 64,
    NAME_HEX_1 = 32 /* of version 1 */,
    STALE_SECONDS = 3600,
    ATTEMPTS = 1000
};
static const char entry_suffix[] = ".entry", lock_name[] = "lock";

/* ---- the folder ---- */

int tvm_cache_folder_make(const char *dir) {
    char *path = strdup(dir);
    if (!path) return ENOMEM;
    int failed = 0;
    for (char *slash = strchr(path + 1, '/'); slash && !failed; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = mkdir(path, 0700) ? errno : 0;
        *slash = '/';
        if (error != EEXIST && error != EISDIR && error != EACCES && error != EROFS) failed = error;
    }
    if (!failed && mkdir(path, 0700) && errno != EEXIST) failed = errno;
    free(path);
    return failed;
}

/* NULL, or why what this is of is not to be trusted: code from it is run. */
static const char *distrust(const struct stat *info) {
    if (info->st_uid != geteuid()) return "it belongs to another user";
    if (info->st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it (chmod 700 would end that)";
    return NULL;
}

int tvm_cache_folder_open(const char *dir, const char **reason) {
    struct stat info;
    *reason = NULL;
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        *reason = errno == ENOTDIR && !stat(dir, &info) ? "it is not a folder" : strerror(errno);
    else
        *reason = fstat(folder, &info) ? strerror(errno) : distrust(&info);
    if (folder >= 0 && *reason) close(folder);
    return *reason ? -1 : folder;
}

int tvm_cache_folder_lock(int folder, tvm_cache_key key) {
    int lock = openat(folder, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (lock < 0) {
        if (errno == EAGAIN) errno = EIO;
        return -1;
    }
    /* One byte of one file for every key: nothing to clean up. The lock is of the open file, not the process,
     * so that the threads of one process exclude each other as well. */
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(key.hash[0] >> 2), .l_len = 1};
    if (fcntl(lock, F_OFD_SETLK, &range) == 0) return lock;
    int error = errno == EACCES ? EAGAIN : errno;
    close(lock);
    errno = error;
    return -1;
}

/* ---- entries ---- */

typedef char entry_name[NAME_HEX + sizeof entry_suffix];

static void name_of(tvm_cache_key key, entry_name name) {
    sodium_bin2hex(name, NAME_HEX + 1, (const unsigned char *)key.hash, sizeof key.hash);
    strcpy(name + NAME_HEX, entry_suffix);
}

size_t tvm_cache_file_overhead(void) {
    return sizeof(entry_header);
}

static entry_header make_header(tvm_cache_key key, const void *bytes, size_t size) {
    entry_header header = {.version = ENTRY_VERSION, .size = size, .key = key};
    crypto_generichash_state state;
    memcpy(header.magic, entry_magic, sizeof header.magic);
    crypto_generichash_init(&state, NULL, 0, sizeof header.checksum);
    crypto_generichash_update(&state, (const unsigned char *)&header, offsetof(entry_header, checksum));
    crypto_generichash_update(&state, bytes, size);
    crypto_generichash_final(&state, (unsigned char *)header.checksum, sizeof header.checksum);
    return header;
}

/* All of `size` bytes; false at an error or an early end. */
static bool read_exactly(int file, void *to, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(file, (uint8_t *)to + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* The bytes of an open entry, malloc'ed, when it is exactly what would have been written for this key. */
static uint8_t *read_intact(int file, const struct stat *info, tvm_cache_key key, uint64_t limit,
                            size_t *size) {
    entry_header header;
    if (!S_ISREG(info->st_mode) || distrust(info) || (uint64_t)info->st_size < sizeof header ||
        (uint64_t)info->st_size > limit)
        return NULL;
    *size = (size_t)info->st_size - sizeof header;
    uint8_t *bytes = malloc(*size + 1);
    if (bytes && read_exactly(file, &header, sizeof header) && read_exactly(file, bytes, *size)) {
        entry_header expected = make_header(key, bytes, *size);
        if (memcmp(&header, &expected, sizeof header) == 0) return bytes;
    }
    free(bytes);
    return NULL;
}

bool tvm_cache_file_read(int folder, tvm_cache_key key, uint64_t limit, uint8_t **bytes, size_t *size) {
    entry_name name;
    struct stat info = {0}, now;
    name_of(key, name);
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        if (errno == ELOOP) unlinkat(folder, name, 0); /* a symbolic link */
        return false;
    }
    uint8_t *read = fstat(file, &info) ? NULL : read_intact(file, &info, key, limit, size);
    if (read) {
        futimens(file, NULL); /* the time of last use; it is no harm if it cannot be set */
        *bytes = read;
    } else if (!fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) && now.st_ino == info.st_ino) {
        unlinkat(folder, name, 0); /* unless another process has replaced it in between */
    }
    close(file);
    return read != NULL;
}

void tvm_cache_file_remove(int folder, tvm_cache_key key) {
    entry_name name;
    name_of(key, name);
    unlinkat(folder, name, 0);
}

/* ---- writing: a temporary that its writer holds a lock of, so that others know that it is alive ---- */

enum { TEMPORARY_NAME = sizeof(entry_name) + 64 };

/* A new file, locked; -1 with errno. */
static int open_temporary(int folder, const char *entry, char name[TEMPORARY_NAME]) {
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct stat info;
        snprintf(name, TEMPORARY_NAME, "%s.tmp%ld.%u", entry, (long)getpid(), attempt);
        int file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0 && errno == EEXIST) continue;
        if (file < 0) return -1;
        /* Another may have taken it for abandoned before it was locked. */
        bool taken = flock(file, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (!taken && !fstat(file, &info) && info.st_nlink) return file;
        close(file);
    }
    errno = EEXIST;
    return -1;
}

int tvm_cache_file_write(int folder, tvm_cache_key key, const void *bytes, size_t size) {
    entry_name entry;
    char name[TEMPORARY_NAME];
    name_of(key, entry);
    int file = open_temporary(folder, entry, name);
    if (file < 0) return errno;
    entry_header header = make_header(key, bytes, size);
    int error = tvm_write_all(file, &header, sizeof header);
    if (!error) error = tvm_write_all(file, bytes, size);
    if (!error && renameat(folder, name, folder, entry)) error = errno;
    if (error) unlinkat(folder, name, 0);
    if (close(file) && !error) {
        error = errno; /* some file systems tell of a full disk only now */
        unlinkat(folder, entry, 0);
    }
    return error;
}

/* ---- the bound ---- */

typedef struct found_entry {
    entry_name name;
    uint64_t size;
    struct timespec used;
} found_entry;

typedef struct found_entries {
    found_entry *items;
    size_t count, capacity;
    uint64_t total;
} found_entries;

/* The suffix of an entry's name; NULL: it is none. Entries of version 1 are never read again, and go as the
 * oldest ones. */
static const char *entry_suffix_of(const char *name) {
    size_t digits = strspn(name, "0123456789abcdef"), length = sizeof entry_suffix - 1;
    bool known = digits == NAME_HEX || digits == NAME_HEX_1;
    return known && strncmp(name + digits, entry_suffix, length) == 0 ? name + digits : NULL;
}

static bool is_entry_name(const char *name) {
    const char *suffix = entry_suffix_of(name);
    return suffix && strcmp(suffix, entry_suffix) == 0;
}

static bool is_temporary_name(const char *name) {
    const char *suffix = entry_suffix_of(name);
    return suffix && strncmp(suffix + sizeof entry_suffix - 1, ".tmp", 4) == 0;
}

static bool add_entry(found_entries *found, const char *name, const struct stat *info) {
    if (found->count == found->capacity) {
        size_t capacity = found->capacity ? found->capacity * 2 : 64;
        found_entry *items = reallocarray(found->items, capacity, sizeof *items);
        if (!items) return false;
        found->items = items;
        found->capacity = capacity;
    }
    found_entry *entry = &found->items[found->count++];
    memcpy(entry->name, name, strlen(name) + 1); /* an entry's name is no longer than that */
    entry->size = (uint64_t)info->st_size;
    entry->used = info->st_mtim;
    found->total += entry->size;
    return true;
}

/* A temporary whose lock can be had has no writer any more. Where there are no locks, its age tells. */
static void remove_abandoned(int folder, const char *name, const struct stat *info) {
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return;
    bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (locked || (errno != EWOULDBLOCK && time(NULL) - info->st_mtim.tv_sec > STALE_SECONDS))
        unlinkat(folder, name, 0);
    close(file);
}

static int scan(int folder, found_entries *found) {
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = again < 0 ? NULL : fdopendir(again);
    if (!listing) {
        int error = errno;
        if (again >= 0) close(again);
        return error;
    }
    int error = 0;
    for (struct dirent *item = readdir(listing); item && !error; item = readdir(listing)) {
        bool temporary = is_temporary_name(item->d_name);
        struct stat info;
        if (!temporary && !is_entry_name(item->d_name)) continue;
        if (fstatat(folder, item->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode)) continue;
        if (temporary)
            remove_abandoned(folder, item->d_name, &info);
        else if (!add_entry(found, item->d_name, &info))
            error = ENOMEM;
    }
    closedir(listing);
    return error;
}

static int by_use(const void *a, const void *b) {
    const found_entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Another process may do the same: what is gone already is gone. */
int tvm_cache_folder_trim(int folder, uint64_t limit, tvm_cache_stats *left, tvm_cache_stats *removed) {
    found_entries found = {0};
    size_t gone = 0;
    int error = scan(folder, &found);
    uint64_t total = found.total;
    if (total > limit) qsort(found.items, found.count, sizeof *found.items, by_use);
    for (; !error && gone < found.count && total > limit; gone++) {
        if (unlinkat(folder, found.items[gone].name, 0) && errno != ENOENT) error = errno;
        if (!error) total -= found.items[gone].size;
    }
    if (left) left->entries = found.count - gone, left->bytes = total;
    if (removed) removed->entries = gone, removed->bytes = found.total - total;
    free(found.items);
    return error;
}
