/* Words of other languages: what a program says instead. */
#ifndef TVM_ASSEMBLER_FOREIGN_H
#define TVM_ASSEMBLER_FOREIGN_H

#include <stddef.h>

/* `word` is none of the language: a test compares the rows with its instructions, directives, functions and
 * types, so that a row goes when its word becomes one. */
typedef struct tvm_foreign {
    const char *word;
    const char *hint;
    const char *uses; /* the instruction that the hint names, or NULL */
} tvm_foreign;

/* The rows, up to one without a word. */
extern const tvm_foreign tvm_foreign_words[];

/* The hint for a word that the language does not know, or NULL. */
const char *tvm_foreign_hint(const char *word, size_t length);

#endif
