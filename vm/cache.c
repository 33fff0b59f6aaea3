#include "cache.h"
#include "cache_folder.h"
#include "cache_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sodium.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_LIMIT = 256 << 20 };

struct tvm_cache {
    uint64_t limit;
    tvm_cache_memory memory;
    atomic_bool warned; /* of the folder, which is worth one word */
    bool on_disk;
    char dir[];
};

tvm_cache_key tvm_cache_key_of(const char *description, const void *bytes, size_t size) {
    tvm_cache_key key;
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof key.hash);
    crypto_generichash_update(&state, (const unsigned char *)description, strlen(description) + 1);
    crypto_generichash_update(&state, bytes, size);
    crypto_generichash_final(&state, (unsigned char *)key.hash, sizeof key.hash);
    return key;
}

/* ---- opening ---- */

static void unusable(tvm_cache *cache, const char *reason, tvm_diags *warnings) {
    if (atomic_exchange(&cache->warned, true)) return;
    tvm_diag_add(warnings, TVM_IO, NULL, NULL,
                 "the cache folder '%s' cannot be used, what is translated is kept in memory alone: %s",
                 cache->dir, reason);
}

/* dir, or the default of the XDG base directory specification (which has relative paths ignored); malloc'ed.
 */
static char *folder_path(const char *dir, tvm_diags *warnings) {
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
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
                     "there is no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path");
        path = strdup("");
    }
    if (!path || length < 0) {
        tvm_diag_no_memory(warnings);
        return NULL;
    }
    return path;
}

/* $TVM_CACHE_LIMIT, else the default. */
static uint64_t chosen_limit(tvm_diags *warnings) {
    static const char units[] = "KMG";
    const char *text = secure_getenv("TVM_CACHE_LIMIT");
    if (!text || !*text) return TVM_CACHE_LIMIT;
    char *end = NULL;
    errno = 0;
    unsigned long long value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    const char *unit = end && *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (end && !end[unit != NULL] && !errno && value <= UINT64_MAX >> shift) return (uint64_t)value << shift;
    tvm_diag_add(warnings, TVM_USAGE, NULL, NULL,
                 "TVM_CACHE_LIMIT is '%s': a number of bytes is expected, with K, M or G for their powers",
                 text);
    return TVM_CACHE_LIMIT;
}

static void check_folder(tvm_cache *cache, tvm_diags *warnings) {
    const char *reason;
    int error = tvm_cache_folder_make(cache->dir);
    int folder = error ? -1 : tvm_cache_folder_open(cache->dir, &reason);
    cache->on_disk = folder >= 0;
    if (folder >= 0)
        close(folder);
    else
        unusable(cache, error ? strerror(error) : reason, warnings);
}

tvm_cache *tvm_cache_open(const char *dir, uint64_t limit, tvm_diags *warnings) {
    if (dir && !dir[0]) return NULL;
    /* Chooses the processor's fastest code; a failure is one of random numbers, which are not asked for. */
    (void)!sodium_init();
    char *path = folder_path(dir, warnings);
    if (!path) return NULL;
    size_t length = strlen(path) + 1;
    tvm_cache *cache = calloc(1, sizeof *cache + length);
    if (cache) {
        cache->limit = limit ? limit : chosen_limit(warnings);
        memcpy(cache->dir, path, length);
        if (!tvm_cache_memory_start(&cache->memory,
                                    cache->limit < MEMORY_LIMIT ? cache->limit : MEMORY_LIMIT)) {
            free(cache);
            cache = NULL;
        }
    }
    free(path);
    if (!cache)
        tvm_diag_no_memory(warnings);
    else if (cache->dir[0])
        check_folder(cache, warnings);
    return cache;
}

void tvm_cache_close(tvm_cache *cache) {
    if (!cache) return;
    tvm_cache_memory_end(&cache->memory);
    free(cache);
}

/* ---- entries ---- */

/* A descriptor, or -1: the folder is looked at anew each time, since it may have been removed or replaced. */
static int open_folder(const tvm_cache *cache, const char **reason) {
    *reason = "";
    return cache->on_disk ? tvm_cache_folder_open(cache->dir, reason) : -1;
}

bool tvm_cache_get(tvm_cache *cache, tvm_cache_key key, uint8_t **bytes, size_t *size) {
    const char *reason;
    if (!cache) return false;
    int folder = open_folder(cache, &reason);
    bool found = folder >= 0 && tvm_cache_file_read(folder, key, cache->limit, bytes, size);
    if (folder >= 0) close(folder);
    return found || tvm_cache_memory_get(&cache->memory, key, bytes, size);
}

/* NULL, or why it cannot be written. */
static const char *put_in_folder(const tvm_cache *cache, tvm_cache_key key, const void *bytes, size_t size) {
    const char *reason;
    int folder = open_folder(cache, &reason);
    if (folder < 0) {
        int error = tvm_cache_folder_make(cache->dir);
        if (error) return strerror(error);
        folder = tvm_cache_folder_open(cache->dir, &reason);
    }
    if (folder < 0) return reason;
    int error = tvm_cache_file_write(folder, key, bytes, size);
    if (error == ENOSPC || error == EDQUOT) {
        tvm_cache_folder_trim(folder, cache->limit / 2, NULL,
                              NULL); /* what dead processes left, old entries */
        error = tvm_cache_file_write(folder, key, bytes, size);
    }
    if (!error) tvm_cache_folder_trim(folder, cache->limit, NULL, NULL);
    close(folder);
    return error ? strerror(error) : NULL;
}

void tvm_cache_put(tvm_cache *cache, tvm_cache_key key, const void *bytes, size_t size, tvm_diags *warnings) {
    size_t overhead = tvm_cache_file_overhead();
    if (!cache || size > cache->limit || overhead > cache->limit - size) return;
    const char *reason = cache->on_disk ? put_in_folder(cache, key, bytes, size) : "";
    if (!reason) return;
    tvm_cache_memory_put(&cache->memory, key, bytes, size);
    if (cache->on_disk) unusable(cache, reason, warnings);
}

void tvm_cache_drop(tvm_cache *cache, tvm_cache_key key) {
    const char *reason;
    if (!cache) return;
    tvm_cache_memory_drop(&cache->memory, key);
    int folder = open_folder(cache, &reason);
    if (folder < 0) return;
    tvm_cache_file_remove(folder, key);
    close(folder);
}

/* ---- claims ---- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The lock of the key's making; false when another holds it. No folder and no locks are a claim without one.
 */
static bool try_claim(const tvm_cache *cache, tvm_cache_key key, tvm_cache_claim *claim) {
    const char *reason;
    int folder = open_folder(cache, &reason);
    if (folder < 0) return true;
    int lock = tvm_cache_folder_lock(folder, key);
    bool busy = lock < 0 && errno == EAGAIN;
    close(folder);
    claim->lock = lock + 1;
    return !busy;
}

bool tvm_cache_get_or_claim(tvm_cache *cache, tvm_cache_key key, unsigned wait_ms, tvm_cache_claim *claim,
                            uint8_t **bytes, size_t *size) {
    enum { FIRST_NS = 500000, LONGEST_NS = 20000000 };
    *claim = (tvm_cache_claim){0};
    if (!cache) return false;
    int64_t deadline = now_ms() + wait_ms;
    for (long nap = FIRST_NS;; nap = nap < LONGEST_NS / 2 ? nap * 2 : LONGEST_NS) {
        if (tvm_cache_get(cache, key, bytes, size)) return true;
        if (try_claim(cache, key, claim)) break;
        if (now_ms() >= deadline) return false;
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
    /* Its last holder may have put it in between. */
    if (!tvm_cache_get(cache, key, bytes, size)) return false;
    tvm_cache_release(claim);
    return true;
}

void tvm_cache_release(tvm_cache_claim *claim) {
    if (claim->lock) close(claim->lock - 1);
    claim->lock = 0;
}

/* ---- the folder as a whole ---- */

static tvm_status survey(tvm_cache *cache, uint64_t limit, tvm_cache_stats *left, tvm_cache_stats *removed,
                         tvm_diags *diags) {
    const char *reason;
    tvm_cache_stats *stats = left ? left : removed;
    *stats = (tvm_cache_stats){.limit = cache ? cache->limit : 0};
    if (!cache || !cache->on_disk) return TVM_OK;
    stats->dir = cache->dir;
    int folder = open_folder(cache, &reason);
    int error = folder < 0 ? 0 : tvm_cache_folder_trim(folder, limit, left, removed);
    if (folder >= 0) close(folder);
    if (folder >= 0 && !error) return TVM_OK;
    return tvm_diag_add(diags, TVM_IO, NULL, NULL, "the cache folder '%s' cannot be read or changed: %s",
                        cache->dir, error ? strerror(error) : reason);
}

tvm_status tvm_cache_read_stats(tvm_cache *cache, tvm_cache_stats *stats, tvm_diags *diags) {
    return survey(cache, UINT64_MAX, stats, NULL, diags);
}

tvm_status tvm_cache_clear(tvm_cache *cache, tvm_cache_stats *stats, tvm_diags *diags) {
    return survey(cache, 0, NULL, stats, diags);
}
