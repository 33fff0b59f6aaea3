#include "relayout.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS = 256, SHAPE = 96 };

typedef struct shapes {
    char of[LAYOUTS][SHAPE]; /* of L0, L1, ...: "[4, 8]" */
} shapes;

static bool is_named(const char *at) {
    return at[0] == 'L' && at[1] >= '0' && at[1] <= '9';
}

/* `.layout L0 = layout([32], ...` */
static void note_shape(shapes *s, const char *line) {
    unsigned number;
    char shape[SHAPE];
    if (sscanf(line, ".layout L%u = layout(%95[^]]", &number, shape) == 2 && number < LAYOUTS)
        snprintf(s->of[number], SHAPE, "%.90s]", shape);
}

/* Does the instruction need its layout as it is? */
static bool keeps(const char *line) {
    static const char *const words[] = {" = view ",   " = relayout ", " = gather ",
                                        " = concat ", " = slice ",    "alloc-shared"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(line, words[i])) return true;
    return false;
}

/* Without `, layout L3`; `, L3` becomes the tile of its shape. */
static char *put_line(char *to, const char *line, size_t length, const shapes *s) {
    const char *end = line + length;
    while (line < end) {
        const char *layout = strncmp(line, ", layout ", 9) == 0 ? line + 9
                             : strncmp(line, ", ", 2) == 0      ? line + 2
                                                                : "";
        if (!is_named(layout)) {
            *to++ = *line++;
            continue;
        }
        unsigned number = (unsigned)strtoul(layout + 1, NULL, 10);
        if (layout == line + 2 && number < LAYOUTS) to += sprintf(to, ", %s", s->of[number]);
        line = layout + 1 + strspn(layout + 1, "0123456789");
    }
    return to;
}

char *leave_layouts_out(const char *text) {
    static shapes s;
    char *made = malloc(4 * strlen(text) + 1), *to = made;
    if (!made) abort();
    memset(&s, 0, sizeof s);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        char *line = strndup(at, length);
        if (!line) abort();
        note_shape(&s, line);
        if (keeps(line) || line[0] == '.')
            to = stpcpy(to, line);
        else
            to = put_line(to, line, length, &s);
        *to++ = '\n';
        at += length + (at[length] == '\n');
        free(line);
    }
    *to = '\0';
    return made;
}
