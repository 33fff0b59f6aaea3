#include "memory_table.h"

#include <stdlib.h>
#include <string.h>

bool tvm_memory_table_open(tvm_memory_table *table) {
    return pthread_rwlock_init(&table->lock, NULL) == 0;
}

void tvm_memory_table_close(tvm_memory_table *table) {
    pthread_rwlock_destroy(&table->lock);
    free(table->blocks);
}

/* How many blocks begin at the address or before. */
static size_t blocks_up_to(const tvm_memory_table *table, uintptr_t address) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->blocks[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool grow(tvm_memory_table *table) {
    if (table->count < table->capacity) return true;
    size_t capacity = table->capacity ? 2 * table->capacity : 16;
    tvm_memory_block *blocks = reallocarray(table->blocks, capacity, sizeof *blocks);
    if (!blocks) return false;
    table->blocks = blocks;
    table->capacity = capacity;
    return true;
}

bool tvm_memory_table_add(tvm_memory_table *table, const void *data, size_t bytes) {
    if (!bytes) return true;
    pthread_rwlock_wrlock(&table->lock);
    bool grown = grow(table);
    if (grown) {
        size_t at = blocks_up_to(table, (uintptr_t)data);
        memmove(table->blocks + at + 1, table->blocks + at, (table->count - at) * sizeof *table->blocks);
        table->blocks[at] = (tvm_memory_block){(uintptr_t)data, bytes};
        atomic_store(&table->known, ++table->count);
    }
    pthread_rwlock_unlock(&table->lock);
    return grown;
}

void tvm_memory_table_remove(tvm_memory_table *table, const void *data) {
    pthread_rwlock_wrlock(&table->lock);
    size_t at = blocks_up_to(table, (uintptr_t)data);
    if (at > 0 && table->blocks[at - 1].address == (uintptr_t)data) {
        memmove(table->blocks + at - 1, table->blocks + at, (table->count - at) * sizeof *table->blocks);
        atomic_store(&table->known, --table->count);
    }
    pthread_rwlock_unlock(&table->lock);
}

size_t tvm_memory_table_bytes(tvm_memory_table *table, const void *data) {
    uintptr_t address = (uintptr_t)data;
    size_t bytes = SIZE_MAX;
    if (!atomic_load_explicit(&table->known, memory_order_acquire)) return bytes;
    pthread_rwlock_rdlock(&table->lock);
    size_t at = blocks_up_to(table, address);
    if (at > 0 && address - table->blocks[at - 1].address < table->blocks[at - 1].bytes)
        bytes = table->blocks[at - 1].bytes - (address - table->blocks[at - 1].address);
    pthread_rwlock_unlock(&table->lock);
    return bytes;
}
