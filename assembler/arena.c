#include "arena.h"
#include "numbers.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct tvm_arena_chunk {
    tvm_arena_chunk *next;
    size_t size;
    size_t used;
    alignas(max_align_t) unsigned char bytes[];
};

enum { CHUNK_SIZE = 1 << 16 };

static tvm_arena_chunk *chunk_new(tvm_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2 || (arena->limit && size > arena->limit - arena->total)) return NULL;
    tvm_arena_chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk) return NULL;
    chunk->next = arena->chunks;
    chunk->size = size;
    chunk->used = 0;
    arena->chunks = chunk;
    arena->total += size;
    return chunk;
}

void *tvm_arena_alloc(tvm_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size_t align = alignof(max_align_t);
    size = tvm_round_up(size, align);
    if (!size) size = align;
    tvm_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < size) {
        chunk = chunk_new(arena, size > CHUNK_SIZE ? size : CHUNK_SIZE);
        if (!chunk) return NULL;
    }
    void *result = chunk->bytes + chunk->used;
    chunk->used += size;
    return result;
}

char *tvm_arena_text(tvm_arena *arena, const char *text, size_t length) {
    char *copy = tvm_arena_alloc(arena, length + 1);
    if (!copy) return NULL;
    if (length) memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void tvm_arena_reset(tvm_arena *arena) {
    tvm_arena_chunk *keep = arena->chunks;
    if (!keep) return;
    for (tvm_arena_chunk *chunk = keep->next, *next; chunk; chunk = next) {
        next = chunk->next;
        arena->total -= chunk->size;
        free(chunk);
    }
    keep->next = NULL;
    keep->used = 0;
}

void tvm_arena_free(tvm_arena *arena) {
    for (tvm_arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    arena->chunks = NULL;
    arena->total = 0;
}
