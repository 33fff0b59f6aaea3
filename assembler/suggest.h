/* "Did you mean": the nearest of the names that could have stood there. */
#ifndef TVM_ASSEMBLER_SUGGEST_H
#define TVM_ASSEMBLER_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

enum { TVM_SUGGEST_MAX = 48 }; /* longer names are not compared */

typedef struct tvm_suggest {
    const char *wanted;
    size_t length;
    char best[TVM_SUGGEST_MAX + 1];
    unsigned distance; /* of best; insertions, deletions, substitutions and swaps of neighbours count one */
} tvm_suggest;

void tvm_suggest_start(tvm_suggest *suggest, const char *wanted, size_t length);
void tvm_suggest_offer(tvm_suggest *suggest, const char *name, size_t length);
/* All names that the function gives, from index 0 to a NULL. */
void tvm_suggest_offer_all(tvm_suggest *suggest, const char *(*name)(size_t index));
/* The best name if it is near enough to be what was meant, else NULL. */
const char *tvm_suggest_best(const tvm_suggest *suggest);
/* `did you mean 'x'?` into hint, or NULL. */
const char *tvm_suggest_hint(const tvm_suggest *suggest, const char *sigil, char hint[96]);
/* The same in a buffer that lives as long as the block around. */
#define TVM_SUGGEST_HINT(suggest, sigil) tvm_suggest_hint(suggest, sigil, (char[96]){0})

#endif
