#include "cache_memory.h"

#include <stdlib.h>
#include <string.h>

bool tvm_cache_memory_start(tvm_cache_memory *memory, uint64_t limit) {
    *memory = (tvm_cache_memory){.limit = limit};
    return pthread_mutex_init(&memory->lock, NULL) == 0;
}

static void forget_all(tvm_memory_entry *entry) {
    while (entry) {
        tvm_memory_entry *next = entry->next;
        free(entry);
        entry = next;
    }
}

void tvm_cache_memory_end(tvm_cache_memory *memory) {
    forget_all(memory->first);
    pthread_mutex_destroy(&memory->lock);
}

/* Takes the entry of the key out of the list; NULL when there is none. */
static tvm_memory_entry *take(tvm_cache_memory *memory, tvm_cache_key key) {
    for (tvm_memory_entry **link = &memory->first; *link; link = &(*link)->next) {
        tvm_memory_entry *entry = *link;
        if (memcmp(&entry->key, &key, sizeof key) != 0) continue;
        *link = entry->next;
        memory->total -= entry->size;
        return entry;
    }
    return NULL;
}

static void add(tvm_cache_memory *memory, tvm_memory_entry *entry) {
    entry->next = memory->first;
    memory->first = entry;
    memory->total += entry->size;
}

/* The list is in the order of use: what goes over the limit from its beginning on is forgotten. */
static void trim(tvm_cache_memory *memory) {
    uint64_t total = 0;
    for (tvm_memory_entry **link = &memory->first; *link; link = &(*link)->next) {
        if (total + (*link)->size > memory->limit) {
            forget_all(*link);
            *link = NULL;
            memory->total = total;
            return;
        }
        total += (*link)->size;
    }
}

bool tvm_cache_memory_get(tvm_cache_memory *memory, tvm_cache_key key, uint8_t **bytes, size_t *size) {
    pthread_mutex_lock(&memory->lock);
    tvm_memory_entry *entry = take(memory, key);
    uint8_t *copy = entry ? malloc(entry->size + 1) : NULL;
    if (copy) {
        memcpy(copy, entry->bytes, entry->size);
        *bytes = copy;
        *size = entry->size;
    }
    if (entry) add(memory, entry);
    pthread_mutex_unlock(&memory->lock);
    return copy != NULL;
}

void tvm_cache_memory_put(tvm_cache_memory *memory, tvm_cache_key key, const void *bytes, size_t size) {
    tvm_memory_entry *entry = size <= memory->limit ? malloc(sizeof *entry + size) : NULL;
    if (!entry) return;
    entry->key = key;
    entry->size = size;
    if (size) memcpy(entry->bytes, bytes, size);
    pthread_mutex_lock(&memory->lock);
    free(take(memory, key));
    add(memory, entry);
    trim(memory);
    pthread_mutex_unlock(&memory->lock);
}

void tvm_cache_memory_drop(tvm_cache_memory *memory, tvm_cache_key key) {
    pthread_mutex_lock(&memory->lock);
    free(take(memory, key));
    pthread_mutex_unlock(&memory->lock);
}
