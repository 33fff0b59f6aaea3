/* Inside tidy.c: the lines of a kernel's text with the registers that they mention. */
#ifndef TVM_CODEGEN_TIDY_LINES_H
#define TVM_CODEGEN_TIDY_LINES_H

#include "emit.h"

/* A register as a line mentions it; or the constant that came in its place. */
typedef struct token {
    uint32_t line;
    uint32_t at;  /* in the text */
    uint32_t reg; /* TVM_NONE: `literal`, text of another line */
    uint32_t literal;
    uint16_t literal_length;
    uint8_t length;
} token;

typedef enum line_kind {
    LINE_OPAQUE, /* nothing is known of it: it may assign all that it mentions */
    LINE_USE,    /* has no result */
    LINE_RESULT, /* the registers of its first operand are its results */
    LINE_PURE    /* the same, and it does nothing else */
} line_kind;

typedef struct line {
    uint32_t begin, end;    /* of the text, the newline not among it */
    uint32_t first, count;  /* tokens: the guard, the results, and others */
    uint32_t label, target; /* a label's number; that of a branch; TVM_NONE */
    line_kind kind;
    uint16_t guarded, results; /* tokens: 0 or 1, and how many */
    bool is_move, is_wgmma, is_dead;
    bool takes_literals, is_real; /* constants may be operands; they are floats */
} line;

/* Of a register. */
typedef struct reg_use {
    uint32_t assigned, line, last;      /* how often; where first; the last line that mentions it */
    uint32_t reach;                     /* the first line behind `line` that is reached without it */
    bool is_plain, is_pinned, is_early; /* early: mentioned before it is assigned */
} reg_use;

typedef struct tidy_lines {
    char *text; /* of the prologue and the body */
    line *lines;
    token *tokens;
    reg_use *uses;
    uint32_t line_count, token_count, reg_count;
    uint32_t first_of[8]; /* by class: its registers are first_of[class] .. first_of[class + 1] */
} tidy_lines;

bool tvm_tidy_read(tidy_lines *l, emitter *e);
/* Writes those that are not dead, with the registers numbered anew. */
bool tvm_tidy_write(const tidy_lines *l, emitter *e, tvm_text *out);
void tvm_tidy_free(tidy_lines *l);

/* May the one stand in an instruction where the other does? */
bool tvm_tidy_same_class(const tidy_lines *l, uint32_t a, uint32_t b);

#endif
