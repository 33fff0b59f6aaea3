/* A folder of results that took long to compute, shared safely by any number of processes: whole files only
 * (written to a temporary and renamed), each with a checksum, the folder bounded in size. Whatever is wrong
 * with it costs time, never correctness: a call then reports a warning at most, and the caller computes. */
#ifndef TVM_VM_CACHE_H
#define TVM_VM_CACHE_H

#include "diag.h"

typedef struct tvm_cache tvm_cache;

#define TVM_CACHE_LIMIT ((uint64_t)1 << 30) /* default bound of the folder, in bytes */

typedef struct tvm_cache_key {
    uint64_t hash[2];
} tvm_cache_key;

/* The key of a description: any text that names everything the result depends on. */
tvm_cache_key tvm_cache_key_of(const char *description);

/* dir NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm. It is created with its parents (mode 0700) and
 * must belong to the user and be writable by no one else. NULL, with the reason in *warnings, when it cannot
 * be used; NULL without one when dir is "". Every function below takes a NULL cache, which holds nothing. */
tvm_cache *tvm_cache_open(const char *dir, uint64_t limit, tvm_diags *warnings);
void tvm_cache_close(tvm_cache *cache);

/* The bytes put under this key, malloc'ed, and a mark that they were used; false when there are none. A
 * corrupt entry is removed. */
bool tvm_cache_get(const tvm_cache *cache, tvm_cache_key key, uint8_t **bytes, size_t *size);
/* Stores a copy, then removes the least recently used entries while the folder is over its limit. An entry
 * above the limit is not stored. */
void tvm_cache_put(const tvm_cache *cache, tvm_cache_key key, const void *bytes, size_t size,
                   tvm_diags *warnings);
void tvm_cache_drop(const tvm_cache *cache, tvm_cache_key key);

#endif
