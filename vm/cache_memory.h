/* The part of the cache that is in memory, for when there is no folder. */
#ifndef TVM_VM_CACHE_MEMORY_H
#define TVM_VM_CACHE_MEMORY_H

#include <pthread.h>

#include "cache_types.h"

typedef struct tvm_memory_entry {
    struct tvm_memory_entry *next;
    tvm_cache_key key;
    size_t size;
    uint8_t bytes[];
} tvm_memory_entry;

typedef struct tvm_cache_memory {
    pthread_mutex_t lock;
    tvm_memory_entry *first; /* used last */
    uint64_t total, limit;   /* bytes */
} tvm_cache_memory;

bool tvm_cache_memory_start(tvm_cache_memory *memory, uint64_t limit);
void tvm_cache_memory_end(tvm_cache_memory *memory);
bool tvm_cache_memory_get(tvm_cache_memory *memory, tvm_cache_key key, uint8_t **bytes, size_t *size);
/* Removes the least recently used entries beyond the limit; an entry for which memory is short is not kept.
 */
void tvm_cache_memory_put(tvm_cache_memory *memory, tvm_cache_key key, const void *bytes, size_t size);
void tvm_cache_memory_drop(tvm_cache_memory *memory, tvm_cache_key key);

#endif
