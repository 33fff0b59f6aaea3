/* Values of expressions while a program is assembled: static ones, and run-time scalars as nodes of the
 * kernel. */
#ifndef TVM_ASSEMBLER_VALUE_H
#define TVM_ASSEMBLER_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "program.h"

typedef enum tvm_value_kind {
    TVM_VALUE_POISON, /* the result of an error already reported: whatever is made of it is silent poison */
    TVM_VALUE_INTEGER,
    TVM_VALUE_FLOAT,
    TVM_VALUE_BOOL,
    TVM_VALUE_DTYPE,
    TVM_VALUE_LAYOUT,
    TVM_VALUE_SHARED,
    TVM_VALUE_SWIZZLE,   /* of a shared layout whose shape is not known yet */
    TVM_VALUE_ROW_MAJOR, /* likewise */
    TVM_VALUE_LIST,
    TVM_VALUE_STRING,
    TVM_VALUE_EXPR,   /* run-time scalar */
    TVM_VALUE_TENSOR, /* of the kernel, or what an instruction that is not written yet gives */
    TVM_VALUE_MACRO,
    TVM_VALUE_SIGNATURE, /* parameters of kernels, read where one takes them */
    TVM_VALUE_PROGRAM,   /* of .program */
    TVM_VALUE_TABLE,
    TVM_VALUE_RECORD, /* a row of a table */
    TVM_VALUE_LET     /* an expression of launch-time values, read anew where its name stands */
} tvm_value_kind;

/* Small, copied freely; what it points to lives in an arena. */
typedef struct tvm_value {
    tvm_value_kind kind;
    tvm_dtype type; /* INTEGER, FLOAT: kind NONE adapts to its surroundings, else fixed by i64(...) and its
                       kin; of EXPR and BOOL always set; of DTYPE the value */
    union {
        int64_t i; /* INTEGER (bits of u64 if that is the type), BOOL */
        double f;
        const tvm_layout *layout;
        const tvm_shared_layout *shared;
        struct {
            const struct tvm_value *items;
            uint32_t count;
        } list;
        struct {
            const char *text;
            uint32_t length;
        } string;
        struct {
            uint8_t base, bits, shift;
        } swizzle;
        uint32_t expr;
        uint32_t program; /* in the order of .program */
        struct {
            uint32_t slot;
            uint8_t kind;                      /* tvm_slot_kind */
            const struct tvm_pending *pending; /* NULL: the slot holds it. Scratch memory */
        } tensor;
        const struct tvm_macro *macro;
        struct {
            const struct tvm_table *table;
            uint32_t row;
        } record; /* of a TABLE the row means nothing */
        struct {
            const struct tvm_source *source;
            uint32_t at; /* token */
        } let;
        struct {
            const struct tvm_source *source;
            uint32_t at;      /* token */
            uint32_t names;   /* how many static names were known there: the oldest ones */
            unsigned version; /* of the language there */
        } signature;
    } as;
} tvm_value;

/* A name, not terminated. */
typedef struct tvm_word {
    const char *name;
    uint32_t length;
} tvm_word;

/* .table: values in named columns and rows. */
typedef struct tvm_row {
    tvm_word name;
    const tvm_value *values; /* one a column */
    bool kept;               /* its condition holds */
} tvm_row;

typedef struct tvm_table {
    tvm_word name;
    const tvm_word *columns;
    uint32_t column_count;
    const tvm_row *rows;
    uint32_t row_count;
    uint32_t *index;     /* rows by the hashes of their names, one more than their numbers; 0: none */
    uint32_t index_size; /* a power of two above the rows' number */
} tvm_table;

static inline tvm_value tvm_value_poison(void) {
    return (tvm_value){.kind = TVM_VALUE_POISON};
}
tvm_value tvm_value_integer(int64_t i);
tvm_value tvm_value_float(double f);
tvm_value tvm_value_bool(bool b);
tvm_value tvm_value_dtype(tvm_dtype type);
tvm_value tvm_value_string(const char *text, uint32_t length);
/* The layouts are copied into the arena; poison when it is exhausted. */
tvm_value tvm_value_layout(tvm_arena *arena, const tvm_layout *layout);
tvm_value tvm_value_shared(tvm_arena *arena, const tvm_shared_layout *layout);

bool tvm_value_is_number(const tvm_value *value); /* static integer, float or bool */
bool tvm_value_is_scalar(const tvm_value *value); /* number or run-time scalar */
bool tvm_value_is_static(const tvm_value *value); /* anything but a run-time scalar or a tensor */

/* A static integer or float that adapts to its surroundings. */
bool tvm_value_is_literal(const tvm_value *value);
/* Is the float a whole number? No infinity and no NaN is. */
bool tvm_is_whole(double value);
/* A number as a scalar, and back. */
tvm_scalar tvm_value_scalar(const tvm_value *value);
tvm_value tvm_value_of_scalar(tvm_dtype type, tvm_scalar scalar);
/* A number as one of a type; literals are exact numbers of 64 bits before. */
tvm_value tvm_value_as(const tvm_value *value, tvm_dtype type);

/* Deep copy into another arena; poison when it is exhausted. */
tvm_value tvm_value_copy(tvm_arena *arena, const tvm_value *value);

/* Equality of static values of one kind; numbers by value. */
bool tvm_value_equal(const tvm_value *a, const tvm_value *b);

/* "a register tensor", "a register layout", for messages. */
const char *tvm_slot_what(tvm_slot_kind kind);
const char *tvm_value_what(const tvm_value *value);
/* Short text of the value itself, for messages and ${...}: numbers, types and strings in full. */
const char *tvm_value_text(const tvm_value *value, char text[64]);

#endif
