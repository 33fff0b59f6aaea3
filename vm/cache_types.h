/* What the parts of the cache share. */
#ifndef TVM_VM_CACHE_TYPES_H
#define TVM_VM_CACHE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BLAKE2b (RFC 7693) of 256 bits: nobody can make a program that has the key of another one. */
typedef struct tvm_cache_key {
    uint64_t hash[4];
} tvm_cache_key;

/* What is in the folder. */
typedef struct tvm_cache_stats {
    const char *dir; /* NULL: in memory alone. Lives as long as the cache. */
    uint64_t entries, bytes, limit;
} tvm_cache_stats;

#endif
