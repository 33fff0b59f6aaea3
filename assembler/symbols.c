#include "symbols.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint32_t bucket_of(const char *name, uint32_t length) {
    return (uint32_t)(XXH3_64bits(name, length) % TVM_SYMBOL_BUCKETS);
}

tvm_symbol *tvm_symbols_add(tvm_symbols *symbols, const char *name, uint32_t length) {
    if (symbols->count == symbols->capacity) {
        uint32_t capacity = symbols->capacity ? symbols->capacity * 2 : 64;
        tvm_symbol *items = realloc(symbols->items, capacity * sizeof *items);
        if (!items) return NULL;
        symbols->items = items;
        symbols->capacity = capacity;
    }
    uint32_t bucket = bucket_of(name, length);
    tvm_symbol *symbol = &symbols->items[symbols->count++];
    *symbol = (tvm_symbol){
        .name = name, .length = length, .next = symbols->buckets[bucket], .scope = symbols->scope};
    symbols->buckets[bucket] = symbols->count;
    return symbol;
}

tvm_symbol *tvm_symbols_find(const tvm_symbols *symbols, const char *name, uint32_t length) {
    for (uint32_t i = symbols->buckets[bucket_of(name, length)]; i; i = symbols->items[i - 1].next) {
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
        symbols->buckets[bucket_of(symbol->name, symbol->length)] = symbol->next;
    }
    if (symbols->scope) symbols->scope--;
}

void tvm_symbols_clear(tvm_symbols *symbols) {
    symbols->count = 0;
    memset(symbols->buckets, 0, sizeof symbols->buckets);
}

void tvm_symbols_free(tvm_symbols *symbols) {
    free(symbols->items);
    *symbols = (tvm_symbols){0};
}
