#include "shrink.h"

#include <stdlib.h>
#include <string.h>

typedef struct lines {
    char **line;
    unsigned count;
    bool *out; /* is left out */
} lines;

static lines cut(const char *text) {
    lines l = {.line = NULL};
    unsigned room = 1;
    for (const char *at = text; *at; at++) room += *at == '\n';
    l.line = calloc(room, sizeof *l.line);
    l.out = calloc(room, sizeof *l.out);
    if (!l.line || !l.out) abort();
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        l.line[l.count] = strndup(at, length);
        if (!l.line[l.count++]) abort();
        at += length + (at[length] == '\n');
    }
    return l;
}

static void release(lines *l) {
    for (unsigned i = 0; i < l->count; i++) free(l->line[i]);
    free(l->line);
    free(l->out);
}

static char *join(const lines *l) {
    size_t size = 1;
    for (unsigned i = 0; i < l->count; i++) size += strlen(l->line[i]) + 1;
    char *text = malloc(size), *at = text;
    if (!text) abort();
    for (unsigned i = 0; i < l->count; i++) {
        if (l->out[i]) continue;
        at = stpcpy(at, l->line[i]);
        *at++ = '\n';
    }
    *at = '\0';
    return text;
}

static bool still_fails(const lines *l, shrink_fails fails, void *data, unsigned *tries) {
    if (*tries == 0) return false;
    --*tries;
    char *text = join(l);
    bool bad = fails(text, data);
    free(text);
    return bad;
}

static bool is_word(const char *line, const char *word) {
    line += strspn(line, " ");
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == '\0');
}

static bool opens(const char *line) {
    return is_word(line, "for") || is_word(line, "while") || is_word(line, "if") || is_word(line, "role");
}

/* The end of what line `first` opens; count: there is none. */
static unsigned end_of(const lines *l, unsigned first) {
    unsigned depth = 0;
    for (unsigned i = first; i < l->count; i++) {
        if (l->out[i]) continue;
        if (opens(l->line[i])) depth++;
        if (is_word(l->line[i], "end") && --depth == 0) return i;
    }
    return l->count;
}

/* Leaves lines [first, end) out where it fails without them. */
static bool without(lines *l, unsigned first, unsigned end, shrink_fails fails, void *data, unsigned *tries) {
    bool any = false, before[4096];
    if (end > l->count) end = l->count;
    if (end - first > sizeof before / sizeof *before) return false;
    for (unsigned i = first; i < end; i++) {
        any = any || !l->out[i];
        before[i - first] = l->out[i];
        l->out[i] = true;
    }
    if (any && still_fails(l, fails, data, tries)) return true;
    for (unsigned i = first; i < end; i++) l->out[i] = before[i - first];
    return false;
}

static bool without_control(lines *l, unsigned first, shrink_fails fails, void *data, unsigned *tries) {
    unsigned end = end_of(l, first);
    if (end == l->count) return false;
    if (without(l, first, end + 1, fails, data, tries)) return true;
    l->out[first] = l->out[end] = true; /* the body stays */
    if (still_fails(l, fails, data, tries)) return true;
    l->out[first] = l->out[end] = false;
    return false;
}

static bool one_pass(lines *l, shrink_fails fails, void *data, unsigned *tries) {
    bool shrunk = false;
    for (unsigned size = l->count / 4; size > 0; size /= 2)
        for (unsigned first = 0; first < l->count; first += size)
            shrunk = without(l, first, first + size, fails, data, tries) || shrunk;
    for (unsigned i = 0; i < l->count; i++)
        if (!l->out[i] && opens(l->line[i])) shrunk = without_control(l, i, fails, data, tries) || shrunk;
    return shrunk;
}

/* A variable's name at `at`, its length; 0: there is none. */
static size_t name_at(const char *at) {
    return *at == '%' && at[1] == 'v' ? 2 + strspn(at + 2, "0123456789") : 0;
}

/* The line with its use number `use` of a variable as another variable. */
static char *with_other(const char *line, unsigned use, const char *other) {
    const char *from = strchr(line, '=');
    from = from && name_at(line + strspn(line, " ")) ? from : line;
    for (const char *at = from; *at; at++) {
        size_t length = name_at(at);
        if (length == 0 || use-- > 0) continue;
        char *made = malloc(strlen(line) + strlen(other) + 1);
        if (!made) abort();
        memcpy(made, line, (size_t)(at - line));
        strcpy(stpcpy(made + (at - line), other), at + length);
        return made;
    }
    return NULL;
}

/* Uses of a variable become uses of the first one that will do. */
static bool exchange(lines *l, unsigned i, unsigned use, shrink_fails fails, void *data, unsigned *tries) {
    for (unsigned j = 0; j < i; j++) {
        const char *target = l->line[j] + strspn(l->line[j], " ");
        size_t length = name_at(target);
        char name[32], *before = l->line[i];
        if (l->out[j] || length == 0 || length >= sizeof name) continue;
        memcpy(name, target, length);
        name[length] = '\0';
        char *made = with_other(before, use, name);
        if (!made) return false;
        if (strcmp(made, before) == 0) {
            free(made);
            return false;
        }
        l->line[i] = made;
        if (still_fails(l, fails, data, tries)) {
            free(before);
            return true;
        }
        l->line[i] = before;
        free(made);
    }
    return false;
}

static bool exchange_all(lines *l, shrink_fails fails, void *data, unsigned *tries) {
    bool changed = false;
    for (unsigned i = 0; i < l->count; i++)
        for (unsigned use = 0; !l->out[i] && use < 4; use++)
            changed = exchange(l, i, use, fails, data, tries) || changed;
    return changed;
}

/* Parameters stand on lines of their own; one that nothing reads goes. */
char *shrink(const char *text, shrink_fails fails, void *data, unsigned tries) {
    lines l = cut(text);
    bool again = true;
    while (again && tries > 0) {
        while (one_pass(&l, fails, data, &tries)) continue;
        again = exchange_all(&l, fails, data, &tries);
    }
    char *made = join(&l);
    release(&l);
    return made;
}
