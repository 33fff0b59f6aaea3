/* Names: a table with nested scopes, newest first. Used for static names, and for the slots of a kernel. */
#ifndef TVM_ASSEMBLER_SYMBOLS_H
#define TVM_ASSEMBLER_SYMBOLS_H

#include "value.h"

typedef struct tvm_symbol {
    const char *name;
    uint32_t length;
    uint32_t next;     /* of the same bucket, one more than its index; 0 ends */
    uint32_t scope;    /* depth it was defined at */
    uint32_t slot;     /* of a variable: its slot, or one of tvm_symbol_state */
    uint32_t array;    /* of an array or a record of variables: its number in the kernel */
    const char *shown; /* a variable as it was written, `acc[0]` */
    /* A macro's parameter that stands for a variable of its caller: symbol `alias` of that table. */
    struct tvm_symbols *home;
    uint32_t alias;
    tvm_value value;
    const char *file; /* where it was defined; line 0: nowhere */
    uint32_t line;
} tvm_symbol;

/* What a variable may have in place of a slot. */
enum tvm_symbol_state {
    TVM_SYMBOL_POISON = UINT32_MAX,     /* TVM_NONE: its definition was an error */
    TVM_SYMBOL_UNMADE = UINT32_MAX - 1, /* a macro has it as a parameter, and nothing has assigned it yet */
    TVM_SYMBOL_ARRAY = UINT32_MAX - 2,  /* the elements have slots */
    TVM_SYMBOL_RECORD = UINT32_MAX - 3  /* the fields have slots; the least of these states */
};

typedef struct tvm_symbols {
    tvm_symbol *items;
    uint32_t count;
    uint32_t capacity;
    uint32_t scope;
    uint32_t limit; /* one more than how many of the oldest symbols are found; 0: all */
    uint32_t
        *buckets; /* bucket_count of them, a power of two, or none; as many as symbols, when they are added */
    uint32_t bucket_count;
} tvm_symbols;

/* Adds a symbol at the current scope; the name is not copied. Returns NULL when out of memory. Pointers into
 * the table hold until the next addition. */
tvm_symbol *tvm_symbols_add(tvm_symbols *symbols, const char *name, uint32_t length);
/* The innermost symbol of that name, or NULL. */
tvm_symbol *tvm_symbols_find(const tvm_symbols *symbols, const char *name, uint32_t length);
void tvm_symbols_enter(tvm_symbols *symbols);
void tvm_symbols_leave(tvm_symbols *symbols);
/* Drops all symbols; the scopes that are open stay so, and the memory is kept. */
void tvm_symbols_clear(tvm_symbols *symbols);
void tvm_symbols_free(tvm_symbols *symbols);

#endif
