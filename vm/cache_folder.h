/* The part of the cache that is a folder of files. */
#ifndef TVM_VM_CACHE_FOLDER_H
#define TVM_VM_CACHE_FOLDER_H

#include "cache_types.h"
#include "diag.h"

/* Opens the folder for the functions below: returns a descriptor, or -1 with *reason, which says why the
 * folder cannot be trusted (it lives until the next call of this thread's strerror). */
int tvm_cache_folder_open(const char *dir, const char **reason);
/* Creates dir and its missing parents; 0 or the error's number. */
int tvm_cache_folder_make(const char *dir);

bool tvm_cache_file_read(int folder, tvm_cache_key key, uint64_t limit, uint8_t **bytes, size_t *size);
/* Returns 0 or the error's number. After any failure there is the old entry, the new one or none. */
int tvm_cache_file_write(int folder, tvm_cache_key key, const void *bytes, size_t size);
void tvm_cache_file_remove(int folder, tvm_cache_key key);
/* What a file holds beside the bytes. */
size_t tvm_cache_file_overhead(void);

/* Counts the entries, removes half-written files of processes that have died, and removes the least recently
 * used entries while all have more than `limit` bytes; *removed (may be NULL) counts what was removed.
 * Returns 0 or the error's number. */
int tvm_cache_folder_trim(int folder, uint64_t limit, tvm_cache_stats *left, tvm_cache_stats *removed);

/* The lock of a key: a descriptor that holds it until it is closed; -1 with errno EAGAIN when another holds
 * it, or with another errno when there are no locks. */
int tvm_cache_folder_lock(int folder, tvm_cache_key key);

#endif
