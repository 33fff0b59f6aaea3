/* The C library's functions that can fail, made to fail: a program linked with the --wrap flags of
 * SHIM_FLAGS (Makefile.am) and shim.c has its own objects' calls counted, the nth one failed, and its
 * allocations kept track of. Calls are counted from every thread. */
#ifndef TVM_TESTS_SHIM_H
#define TVM_TESTS_SHIM_H

#include <stdbool.h>

typedef enum shim_kind {
    SHIM_MEMORY, /* allocations, those inside of strdup and its kin among them */
    SHIM_FILE,   /* file operations, processes, opening libraries */
    SHIM_THREAD, /* making threads, mutexes and keys */
    SHIM_LOCK,   /* taking a mutex: counted, never failed */
    SHIM_KINDS
} shim_kind;

/* From now on calls are counted and allocations tracked; the nth failable one (1: the next one; 0: none)
 * fails, and with `on` all that follow. */
void shim_start(long nth, bool on);
/* Nothing is counted or failed any more; what was allocated stays tracked until it is freed. */
void shim_stop(void);
/* The function that was failed first ("open"); NULL: none was. */
const char *shim_failed(void);
long shim_count(shim_kind kind);
/* Blocks allocated since the first shim_start that were not freed. */
long shim_live(void);
/* The failable call of the oldest of them, as shim_start counts. */
long shim_oldest(void);

#endif
