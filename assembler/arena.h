/* Memory that is released all at once. */
#ifndef TVM_ASSEMBLER_ARENA_H
#define TVM_ASSEMBLER_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tvm_arena_chunk tvm_arena_chunk;

/* Zero-initialise to start. `total` is what has been taken from the system, bounded by `limit` (0:
 * unbounded). */
typedef struct tvm_arena {
    tvm_arena_chunk *chunks;
    size_t total;
    size_t limit;
} tvm_arena;

/* Aligned for any type, uninitialised; NULL when memory or the limit is exhausted. */
void *tvm_arena_alloc(tvm_arena *arena, size_t size);
/* A NUL-terminated copy. */
char *tvm_arena_text(tvm_arena *arena, const char *text, size_t length);
/* Everything allocated becomes invalid; one chunk is kept for reuse. */
void tvm_arena_reset(tvm_arena *arena);
void tvm_arena_free(tvm_arena *arena);

#endif
