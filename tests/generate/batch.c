#include "batch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "language.h"

static int is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* A layout's name L0, where nothing of a name stands before it. */
static size_t layout_name(const char *text, const char *at) {
    if (*at != 'L' || (at > text && (is_of_name(at[-1]) || at[-1] == '%'))) return 0;
    size_t digits = strspn(at + 1, "0123456789");
    return digits && !is_of_name(at[1 + digits]) ? 1 + digits : 0;
}

/* The text with names that no other one has. */
static char *put_renamed(char *to, const char *text, unsigned number) {
    const char *at = text;
    if (strncmp(at, ".vasm", 5) == 0) at += strcspn(at, "\n");
    while (*at) {
        size_t layout = layout_name(text, at);
        if (strncmp(at, ".kernel k(", 10) == 0) {
            to += sprintf(to, ".kernel k%u(", number);
            at += 10;
        } else if (layout) {
            to += sprintf(to, "%.*s_%u", (int)layout, at, number);
            at += layout;
        } else {
            *to++ = *at++;
        }
    }
    return to;
}

char *generate_batch(char *const *texts, unsigned count) {
    size_t size = 64;
    for (unsigned i = 0; i < count; i++) size += texts[i] ? 3 * strlen(texts[i]) + 64 : 0;
    char *all = malloc(size), *to = all;
    if (!all) abort();
    to += sprintf(to, ".vasm %d\n", TVM_LANGUAGE_VERSION);
    for (unsigned i = 0; i < count; i++)
        if (texts[i]) to = put_renamed(to, texts[i], i);
    *to = '\0';
    return all;
}
