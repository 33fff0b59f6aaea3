/* The blocks of memory that a context has allocated, by address, so that launches know the size of the memory
 * at an address that they are given. All functions may be called by several threads at once. */
#ifndef TVM_VM_MEMORY_TABLE_H
#define TVM_VM_MEMORY_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tvm_memory_block {
    uintptr_t address;
    size_t bytes;
} tvm_memory_block;

typedef struct tvm_memory_table {
    pthread_rwlock_t lock;
    tvm_memory_block *blocks; /* ascending */
    size_t count, capacity;
    atomic_size_t known; /* count, to be read without the lock */
} tvm_memory_table;

/* False when there is no memory for the lock. */
bool tvm_memory_table_open(tvm_memory_table *table);
void tvm_memory_table_close(tvm_memory_table *table);
/* False when out of memory. Of 0 bytes nothing is noted. */
bool tvm_memory_table_add(tvm_memory_table *table, const void *data, size_t bytes);
void tvm_memory_table_remove(tvm_memory_table *table, const void *data);
/* Bytes from an address to the end of the block that it lies in; SIZE_MAX: in none. */
size_t tvm_memory_table_bytes(tvm_memory_table *table, const void *data);

#endif
