/* The words of the language, from the tables that give them their meaning: for editors. */
#ifndef TVM_ASSEMBLER_WORDS_H
#define TVM_ASSEMBLER_WORDS_H

#include <stddef.h>

typedef enum tvm_word_kind {
    TVM_WORD_INSTRUCTION, /* mnemonics with operands: load-global */
    TVM_WORD_CONTROL,     /* for, if, end and their like */
    TVM_WORD_DIRECTIVE,   /* without the dot */
    TVM_WORD_TYPE,
    TVM_WORD_FUNCTION, /* of expressions, over numbers, types and layouts */
    TVM_WORD_ATOM,     /* layouts with a dotted name: mma.m16n8k16.A */
    TVM_WORD_CONSTANT, /* what an expression understands before any name: true, block */
    TVM_WORD_OPERAND,  /* names of operands, and what stands between two: mask, to */
    TVM_WORD_FLAG,     /* operands that are there or not: transpose_b */
    TVM_WORD_VALUE,    /* what an operand may be: sum, acq_rel; it stands behind one of the next two */
    TVM_WORD_CHOOSER,  /* of the instructions those whose first operand is a VALUE: reduce */
    TVM_WORD_CHOICE,   /* of the operands those that are a VALUE: order */
    TVM_WORD_KINDS
} tvm_word_kind;

/* "instruction", "control", ... */
const char *tvm_word_kind_name(tvm_word_kind kind);

/* `word` is of `length` bytes, not NUL-terminated, and lives as long as the call. */
typedef void tvm_word_visit(void *context, tvm_word_kind kind, const char *word, size_t length);

/* Calls visit for every word of the kind. The last five kinds give a word for each operand that has it. */
void tvm_words_each(tvm_word_kind kind, tvm_word_visit *visit, void *context);

#endif
