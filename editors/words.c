/* Prints the words of the language and the targets, `KIND WORD` a line, each once: editors/fill.awk puts them
 * into the files of editors and shells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "words.h"

enum { WORDS_MAX = 1024, WORD_MAX = 64, TARGETS_MAX = 64 };

typedef struct seen {
    char words[WORDS_MAX][WORD_MAX]; /* of one kind */
    size_t count;
} seen;

static void print_word(void *context, tvm_word_kind kind, const char *word, size_t length) {
    seen *s = context;
    char text[WORD_MAX];
    snprintf(text, sizeof text, "%.*s", (int)length, word);
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->words[i], text) == 0) return;
    if (length >= WORD_MAX || s->count == WORDS_MAX) {
        fprintf(stderr, "words: more or longer words than there is room for\n");
        exit(EXIT_FAILURE);
    }
    memcpy(s->words[s->count++], text, sizeof text);
    printf("%s %s\n", tvm_word_kind_name(kind), text);
}

int main(void) {
    static seen s;
    tvm_target targets[TARGETS_MAX];
    char name[16];
    for (int kind = 0; kind < TVM_WORD_KINDS; kind++) {
        s.count = 0;
        tvm_words_each((tvm_word_kind)kind, print_word, &s);
    }
    size_t count = tvm_target_list(targets, TARGETS_MAX);
    for (size_t i = 0; i < count && i < TARGETS_MAX; i++)
        printf("target %s\n", tvm_target_name(targets[i], name));
    printf("target native\n");
    return fflush(stdout) || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
