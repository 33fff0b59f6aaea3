/* A folder of results that took long to compute, shared safely by any number of processes: whole files only
 * (written to a temporary and renamed), each with a checksum, the folder bounded in size. A fault of the
 * folder costs time, never correctness: a call then reports at most one warning, and results that cannot be
 * kept on disk are kept in memory. */
#ifndef TVM_VM_CACHE_H
#define TVM_VM_CACHE_H

#include "cache_types.h"
#include "diag.h"

typedef struct tvm_cache tvm_cache;

#define TVM_CACHE_LIMIT ((uint64_t)1 << 30) /* default bound of the folder, in bytes */
/* How long to wait for another process' result before computing it, too. */
enum { TVM_CACHE_WAIT_MS = 30 * 1000 };

/* Computes the key of a result that depends only on a description, which is any text, and on `size` bytes. */
tvm_cache_key tvm_cache_key_of(const char *description, const void *bytes, size_t size);

/* dir NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm. It is created with its parents (mode 0700) and
 * must belong to the user and be writable by no one else; a folder that cannot be used gives a warning and a
 * cache in memory. limit 0: $TVM_CACHE_LIMIT (bytes, with K, M or G for the powers of 1024), else the
 * default. NULL when dir is "" or, with a warning, out of memory; every function below takes a NULL cache,
 * which holds nothing. All but close may be called by several threads at once. */
tvm_cache *tvm_cache_open(const char *dir, uint64_t limit, tvm_diags *warnings);
void tvm_cache_close(tvm_cache *cache);

/* Gets the bytes that were put under this key, malloc'ed, and marks them as used; false when there are none.
 * A corrupt entry is removed, as is one that is not a regular file of the user that no one else may write. */
bool tvm_cache_get(tvm_cache *cache, tvm_cache_key key, uint8_t **bytes, size_t *size);
/* Stores a copy, then removes the least recently used entries while the folder is over its limit. An entry
 * above the limit is not stored. */
void tvm_cache_put(tvm_cache *cache, tvm_cache_key key, const void *bytes, size_t size, tvm_diags *warnings);
void tvm_cache_drop(tvm_cache *cache, tvm_cache_key key);

/* Zero is no claim. */
typedef struct tvm_cache_claim {
    int lock; /* a descriptor + 1 */
} tvm_cache_claim;

/* As tvm_cache_get; when there is no entry, claims the computation of one: the caller that gets the claim,
 * with false, computes the entry and puts it. Other callers wait for the entry, at most `wait_ms`;
 * afterwards, and where there are no locks, they get false as well and compute it, too. The claim ends with
 * tvm_cache_release or the process, however it dies. */
bool tvm_cache_get_or_claim(tvm_cache *cache, tvm_cache_key key, unsigned wait_ms, tvm_cache_claim *claim,
                            uint8_t **bytes, size_t *size);
void tvm_cache_release(tvm_cache_claim *claim);

/* TVM_IO when the folder cannot be read. Both also remove half-written files of processes that have died. */
tvm_status tvm_cache_read_stats(tvm_cache *cache, tvm_cache_stats *stats, tvm_diags *diags);
/* Removes all entries; *stats says what was removed. */
tvm_status tvm_cache_clear(tvm_cache *cache, tvm_cache_stats *stats, tvm_diags *diags);

#endif
