/* Figures of tvm-memory(7) that suites count: each is a line of a table there, and a suite fails where the
 * line says something else than what it has counted. */
#ifndef TVM_TESTS_MANUAL_FIGURES_H
#define TVM_TESTS_MANUAL_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"

enum { MANUAL_SIZE = 1 << 20, MANUAL_LINE = 200 };

/* The page's text, which the caller frees; ends the suite where there is none. */
static inline char *manual_text(const char *top) {
    char path[4200];
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/man/tvm-memory.7", top);
    char *text = NULL;
    if (tvm_file_read(path, MANUAL_SIZE, &bytes, &size, NULL) == TVM_OK) text = strndup((char *)bytes, size);
    free(bytes);
    if (text == NULL) abort();
    return text;
}

/* Has the page a line of this name and these figures, and nothing else? */
static inline bool manual_says(const char *top, const char *name, const unsigned *figures, size_t count) {
    char line[MANUAL_LINE];
    int at = snprintf(line, sizeof line, "\n%s", name);
    for (size_t i = 0; i < count; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "\t%u", figures[i]);
    snprintf(line + at, sizeof line - (size_t)at, "\n");
    char *text = manual_text(top);
    bool good = strstr(text, line) != NULL;
    free(text);
    if (!good) fprintf(stderr, "tvm-memory(7) should have the line:%s", line);
    return good;
}

#endif
