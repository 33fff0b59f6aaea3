/* Text to tokens. A source is read as a whole, so that .for can read its body again by position. */
#ifndef TVM_ASSEMBLER_LEXER_H
#define TVM_ASSEMBLER_LEXER_H

#include <stdbool.h>
#include <stdint.h>

#include "diag.h"

enum {
    TVM_SOURCE_MAX = 64 << 20, /* bytes of one file */
    TVM_TOKENS_MAX = 16 << 20, /* tokens of one file */
    TVM_SOURCE_LINE_MAX = 400  /* a longer line is not shown in diagnostics */
};

typedef enum tvm_token_kind {
    TVM_TOKEN_END,     /* of the source; the last token, after a newline */
    TVM_TOKEN_NEWLINE, /* end of a statement; value.u: one more than the token of a bracket left open, or 0 */
    TVM_TOKEN_NAME,    /* pasted: contains ${...} */
    TVM_TOKEN_INTEGER, /* value.u */
    TVM_TOKEN_FLOAT,   /* value.f */
    TVM_TOKEN_STRING,  /* text includes the quotes */
    TVM_TOKEN_SIGN     /* operators and punctuation: one or two characters */
} tvm_token_kind;

typedef struct tvm_token {
    uint8_t kind;    /* tvm_token_kind */
    bool pasted;     /* of a name */
    bool adjacent;   /* no blank between this and the token before */
    uint32_t offset; /* of the text in the source */
    uint32_t length;
    uint32_t line;
    uint32_t column;
    union {
        uint64_t u;
        double f;
    } value;
} tvm_token;

typedef struct tvm_source {
    struct tvm_source *next;
    char *name;
    char *text; /* NUL-terminated */
    size_t length;
    tvm_token *tokens;
    uint32_t count;
    uint32_t capacity;
} tvm_source;

/* Takes a copy of name and text. Lexical errors (at most `limit` of them) are reported, counted in *errors,
 * and the offending characters left out. NULL when there is no source to work with: out of memory, or a limit
 * above. */
tvm_source *tvm_source_new(const char *name, const char *text, size_t length, unsigned limit,
                           unsigned *errors, tvm_diags *diags);
void tvm_source_free(tvm_source *source);

static inline const char *tvm_token_text(const tvm_source *source, const tvm_token *token) {
    return source->text + token->offset;
}

/* The line that contains offset, copied without its newline into line; "" when it is too long. */
void tvm_source_line(const tvm_source *source, uint32_t offset, char line[TVM_SOURCE_LINE_MAX + 1]);

#endif
