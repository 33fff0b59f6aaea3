#include "symbols.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint32_t *bucket_of(const tvm_symbols *symbols, const char *name, uint32_t length) {
    return &symbols->buckets[XXH3_64bits(name, length) & (symbols->bucket_count - 1)];
}

static void put(const tvm_symbols *symbols, uint32_t number) {
    tvm_symbol *symbol = &symbols->items[number - 1];
    uint32_t *bucket = bucket_of(symbols, symbol->name, symbol->length);
    symbol->next = *bucket;
    *bucket = number;
}

/* Room for one more; chains stay short, however many names a loop makes. */
static bool grow(tvm_symbols *symbols) {
    enum { FIRST = 64 };
    uint32_t capacity = symbols->capacity ? symbols->capacity * 2 : FIRST;
    tvm_symbol *items = realloc(symbols->items, capacity * sizeof *items);
    if (!items) return false;
    symbols->items = items;
    uint32_t *buckets = calloc(capacity, sizeof *buckets);
    if (!buckets) return false;
    free(symbols->buckets);
    symbols->buckets = buckets;
    symbols->bucket_count = symbols->capacity = capacity;
    for (uint32_t i = 1; i <= symbols->count; i++) put(symbols, i);
    return true;
}

tvm_symbol *tvm_symbols_add(tvm_symbols *symbols, const char *name, uint32_t length) {
    if (symbols->count == symbols->capacity && !grow(symbols)) return NULL;
    tvm_symbol *symbol = &symbols->items[symbols->count++];
    *symbol = (tvm_symbol){.name = name, .length = length, .scope = symbols->scope};
    put(symbols, symbols->count);
    return symbol;
}

tvm_symbol *tvm_symbols_find(const tvm_symbols *symbols, const char *name, uint32_t length) {
    if (!symbols->count) return NULL;
    for (uint32_t i = *bucket_of(symbols, name, length); i; i = symbols->items[i - 1].next) {
        tvm_symbol *symbol = &symbols->items[i - 1];
        if (symbols->limit && i >= symbols->limit) continue;
        if (symbol->length == length && memcmp(symbol->name, name, length) == 0) return symbol;
    }
    return NULL;
}

void tvm_symbols_enter(tvm_symbols *symbols) {
    symbols->scope++;
}

void tvm_symbols_leave(tvm_symbols *symbols) {
    while (symbols->count && symbols->items[symbols->count - 1].scope >= symbols->scope && symbols->scope) {
        const tvm_symbol *symbol = &symbols->items[--symbols->count];
        *bucket_of(symbols, symbol->name, symbol->length) = symbol->next;
    }
    if (symbols->scope) symbols->scope--;
}

void tvm_symbols_clear(tvm_symbols *symbols) {
    symbols->count = 0;
    if (symbols->buckets) memset(symbols->buckets, 0, symbols->bucket_count * sizeof *symbols->buckets);
}

void tvm_symbols_free(tvm_symbols *symbols) {
    free(symbols->items);
    free(symbols->buckets);
    *symbols = (tvm_symbols){0};
}
