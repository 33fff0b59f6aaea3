/* Memory that is released all at once, and text that grows. */
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

/* Text under construction, always NUL-terminated once something was added. When memory or `limit` (bytes; 0:
 * unbounded) is exhausted, `failed` (and `too_long`) is set and additions do nothing. */
typedef struct tvm_buffer {
    char *text;
    size_t length;
    size_t capacity;
    size_t limit;
    bool failed;
    bool too_long;
} tvm_buffer;

void tvm_buffer_add(tvm_buffer *buffer, const char *text, size_t length);
void tvm_buffer_puts(tvm_buffer *buffer, const char *text);
void tvm_buffer_printf(tvm_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tvm_buffer_free(tvm_buffer *buffer);

#endif
