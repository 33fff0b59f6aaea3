#include "cache.h"
#include "fileio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* A file is this header and the bytes. The cache never leaves its machine: host byte order. */
typedef struct entry_header {
    char magic[8];
    uint64_t version;
    uint64_t size;
    uint64_t key[2];
    uint64_t checksum[2];     /* XXH3, 128 bits, of the bytes */
    uint64_t header_checksum; /* XXH3, 64 bits, of the members above */
} entry_header;

static const char entry_magic[8] = "TVMCACHE";
enum { ENTRY_VERSION = 1, NAME_HEX = 32, STALE_SECONDS = 3600 };
static const char entry_suffix[] = ".entry";

struct tvm_cache {
    uint64_t limit;
    char dir[];
};

tvm_cache_key tvm_cache_key_of(const char *description) {
    XXH128_hash_t hash = XXH3_128bits(description, strlen(description));
    return (tvm_cache_key){{hash.high64, hash.low64}};
}

/* ---- the folder ---- */

static void unusable(tvm_diags *warnings, const char *dir, const char *reason) {
    tvm_diag_add(warnings, TVM_IO, NULL, NULL, "the cache folder '%s' cannot be used: %s", dir, reason);
}

/* dir, or the default of the XDG base directory specification (which has relative paths ignored); malloc'ed.
 */
static char *folder_path(const char *dir, tvm_diags *warnings) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int length = 0;
    if (dir)
        path = strdup(dir);
    else if (xdg && xdg[0] == '/')
        length = asprintf(&path, "%s/tilusvm", xdg);
    else if (home && home[0] == '/')
        length = asprintf(&path, "%s/.cache/tilusvm", home);
    else {
        tvm_diag_add(warnings, TVM_IO, NULL, NULL,
                     "there is no cache: neither XDG_CACHE_HOME nor HOME is an absolute path");
        return NULL;
    }
    if (!path || length < 0) {
        tvm_diag_no_memory(warnings);
        return NULL;
    }
    return path;
}

/* Creates dir and its missing parents; 0 or the error's number. */
static int make_folders(char *dir) {
    for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = mkdir(dir, 0700) ? errno : 0;
        *slash = '/';
        if (error && error != EEXIST && error != EISDIR && error != EACCES && error != EROFS) return error;
    }
    return mkdir(dir, 0700) && errno != EEXIST ? errno : 0;
}

/* NULL, or why entries of this folder are not to be trusted: code from it is run. */
static const char *distrust(const char *dir) {
    struct stat info;
    if (stat(dir, &info)) return strerror(errno);
    if (!S_ISDIR(info.st_mode)) return "it is not a folder";
    if (info.st_uid != geteuid()) return "it belongs to another user";
    if (info.st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it (chmod 700 would end that)";
    return NULL;
}

tvm_cache *tvm_cache_open(const char *dir, uint64_t limit, tvm_diags *warnings) {
    if (dir && !dir[0]) return NULL;
    char *path = folder_path(dir, warnings);
    if (!path) return NULL;
    int error = make_folders(path);
    const char *reason = error ? strerror(error) : distrust(path);
    tvm_cache *cache = NULL;
    if (reason) {
        unusable(warnings, path, reason);
    } else {
        size_t length = strlen(path) + 1;
        cache = malloc(sizeof *cache + length);
        if (cache) {
            cache->limit = limit;
            memcpy(cache->dir, path, length);
        } else {
            tvm_diag_no_memory(warnings);
        }
    }
    free(path);
    return cache;
}

void tvm_cache_close(tvm_cache *cache) {
    free(cache);
}

/* ---- entries ---- */

static char *entry_path(const tvm_cache *cache, tvm_cache_key key) {
    char *path;
    if (asprintf(&path, "%s/%016llx%016llx%s", cache->dir, (unsigned long long)key.hash[0],
                 (unsigned long long)key.hash[1], entry_suffix) < 0)
        return NULL;
    return path;
}

static entry_header make_header(tvm_cache_key key, const void *bytes, size_t size) {
    entry_header header = {.version = ENTRY_VERSION, .size = size, .key = {key.hash[0], key.hash[1]}};
    memcpy(header.magic, entry_magic, sizeof header.magic);
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    header.checksum[0] = hash.high64;
    header.checksum[1] = hash.low64;
    header.header_checksum = XXH3_64bits(&header, offsetof(entry_header, header_checksum));
    return header;
}

/* Is this file exactly what tvm_cache_put would have written? */
static bool entry_intact(const uint8_t *file, size_t size, tvm_cache_key key) {
    if (size < sizeof(entry_header)) return false;
    entry_header expected = make_header(key, file + sizeof expected, size - sizeof expected);
    return memcmp(file, &expected, sizeof expected) == 0;
}

bool tvm_cache_get(const tvm_cache *cache, tvm_cache_key key, uint8_t **bytes, size_t *size) {
    char *path = cache ? entry_path(cache, key) : NULL;
    if (!path) return false;
    uint8_t *file = NULL;
    size_t file_size = 0;
    bool found = tvm_file_read(path, cache->limit, &file, &file_size, NULL) == TVM_OK;
    bool intact = found && entry_intact(file, file_size, key);
    if (found && !intact) unlink(path);
    if (intact) {
        utimensat(AT_FDCWD, path, NULL, 0); /* the time of last use; it is no harm if it cannot be set */
        *size = file_size - sizeof(entry_header);
        memmove(file, file + sizeof(entry_header), *size);
        *bytes = file;
    } else {
        free(file);
    }
    free(path);
    return intact;
}

void tvm_cache_drop(const tvm_cache *cache, tvm_cache_key key) {
    char *path = cache ? entry_path(cache, key) : NULL;
    if (path) unlink(path);
    free(path);
}

/* ---- the bound ---- */

typedef struct found_entry {
    char name[NAME_HEX + sizeof entry_suffix];
    uint64_t size;
    struct timespec used;
} found_entry;

typedef struct found_entries {
    found_entry *items;
    size_t count, capacity;
    uint64_t total;
} found_entries;

static bool is_entry_name(const char *name) {
    return strspn(name, "0123456789abcdef") == NAME_HEX && strcmp(name + NAME_HEX, entry_suffix) == 0;
}

/* A temporary of tvm_file_write, whose process may have died. */
static bool is_temporary_name(const char *name) {
    size_t length = sizeof entry_suffix - 1;
    return strspn(name, "0123456789abcdef") == NAME_HEX &&
           strncmp(name + NAME_HEX, entry_suffix, length) == 0 &&
           strncmp(name + NAME_HEX + length, ".tmp", 4) == 0;
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
    memcpy(entry->name, name, sizeof entry->name); /* an entry name has exactly this length */
    entry->size = (uint64_t)info->st_size;
    entry->used = info->st_mtim;
    found->total += entry->size;
    return true;
}

/* Lists the entries and removes abandoned temporaries. */
static void scan(DIR *folder, found_entries *found) {
    time_t now = time(NULL);
    for (struct dirent *item = readdir(folder); item; item = readdir(folder)) {
        bool temporary = is_temporary_name(item->d_name);
        struct stat info;
        if (!temporary && !is_entry_name(item->d_name)) continue;
        if (fstatat(dirfd(folder), item->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
            continue;
        if (!temporary) {
            if (!add_entry(found, item->d_name, &info)) return;
        } else if (now - info.st_mtime > STALE_SECONDS) {
            unlinkat(dirfd(folder), item->d_name, 0);
        }
    }
}

static int by_use(const void *a, const void *b) {
    const found_entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Removes the least recently used entries while the folder is over its limit. Another process may do the
 * same: what is gone already is gone. */
static void evict(const tvm_cache *cache) {
    DIR *folder = opendir(cache->dir);
    if (!folder) return;
    found_entries found = {0};
    scan(folder, &found);
    if (found.total > cache->limit) {
        qsort(found.items, found.count, sizeof *found.items, by_use);
        for (size_t i = 0; i < found.count && found.total > cache->limit; i++) {
            unlinkat(dirfd(folder), found.items[i].name, 0);
            found.total -= found.items[i].size;
        }
    }
    free(found.items);
    closedir(folder);
}

void tvm_cache_put(const tvm_cache *cache, tvm_cache_key key, const void *bytes, size_t size,
                   tvm_diags *warnings) {
    if (!cache || size > cache->limit || sizeof(entry_header) > cache->limit - size) return;
    char *path = entry_path(cache, key);
    uint8_t *file = malloc(sizeof(entry_header) + size);
    if (!path || !file) {
        tvm_diag_no_memory(warnings);
    } else {
        entry_header header = make_header(key, bytes, size);
        memcpy(file, &header, sizeof header);
        if (size) memcpy(file + sizeof header, bytes, size);
        tvm_diags why = {0};
        if (tvm_file_write(path, file, sizeof header + size, &why))
            unusable(warnings, cache->dir, why.count ? why.items[0].message : "out of memory");
        else
            evict(cache);
        tvm_diags_free(&why);
    }
    free(file);
    free(path);
}
