/* Diagnostics: the one path by which an error travels from where it happens to the tool or caller.
 * A function that can fail returns a tvm_status and, when it is not TVM_OK, has appended at least one
 * tvm_diag to the list that it was given. Nothing below the tools prints. */
#ifndef TVM_DIAG_H
#define TVM_DIAG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tvm_status.h"

/* Where: a file with a 1-based line and column; 0 means unknown; file may be NULL. source, when known, is the
 * text of that line (without its newline), over which a caret of `length` columns is drawn. */
typedef struct tvm_place {
    const char *file;
    uint32_t line;
    uint32_t column;
    uint32_t length;
    const char *source;
} tvm_place;

typedef struct tvm_diag {
    tvm_status status; /* TVM_OK: a warning */
    char *file;
    uint32_t line;
    uint32_t column;
    uint32_t length;
    char *source;
    char *message;
    char *hint; /* NULL when there is none */
} tvm_diag;

/* Zero-initialise ({0}) to start; release with tvm_diags_free. After out of memory, count may be short while
 * `lost` counts what could not be kept. */
typedef struct tvm_diags {
    tvm_diag *items;
    size_t count;
    size_t capacity;
    size_t lost;
} tvm_diags;

/* Appends a copy of everything given and returns `status`, so that `return tvm_diag_add(...)` reads well.
 * `place` and `hint` may be NULL; `diags` may be NULL (nothing is kept). */
tvm_status tvm_diag_add(tvm_diags *diags, tvm_status status, const tvm_place *place, const char *hint,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));
tvm_status tvm_diag_addv(tvm_diags *diags, tvm_status status, const tvm_place *place, const char *hint,
                         const char *format, va_list arguments) __attribute__((format(printf, 5, 0)));

/* Shorthand for the one message of an allocation that failed. */
tvm_status tvm_diag_no_memory(tvm_diags *diags);

/* Why something could not be done, where the caller knows the place: the text ends up in a diagnostic. */
typedef struct tvm_why {
    char text[200];
} tvm_why;
/* Writes the reason (why may be NULL) and returns TVM_INVALID. */
tvm_status tvm_refuse(tvm_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints all of them as `file:line:column: error: message` (or warning), the source line with its caret, and
 * the hint. `program` prefixes diagnostics without a file. */
void tvm_diags_print(const tvm_diags *diags, FILE *stream, const char *program, bool color);

void tvm_diags_free(tvm_diags *diags);

/* The table's text for a status: "success", ... */
const char *tvm_status_text(tvm_status status);
/* The table's advice, for a hint; NULL when there is none. */
const char *tvm_status_advice(tvm_status status);

#endif
