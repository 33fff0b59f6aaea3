/* Diagnostics: collecting and printing. */
#include "diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STYLE_PLAIN "\033[0m"
#define STYLE_BOLD  "\033[1m"
#define STYLE_ERROR "\033[1;31m"
#define STYLE_CARET "\033[1;32m"

/* Of a longer source line only a window around the error is shown. Bytes. */
enum { WINDOW = 160, WINDOW_BEFORE = 80 };

const char *tvm_status_text(tvm_status status) {
    switch (status) {
#define STATUS_TEXT(id, value, text, advice)                                                                 \
    case TVM_##id:                                                                                           \
        return text;
        TVM_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *tvm_status_advice(tvm_status status) {
    switch (status) {
#define STATUS_ADVICE(id, value, text, advice)                                                               \
    case TVM_##id:                                                                                           \
        return (advice)[0] ? (advice) : NULL;
        TVM_STATUS_TABLE(STATUS_ADVICE)
#undef STATUS_ADVICE
    }
    return NULL;
}

/* ---- collecting ---- */

static bool reserve_one(tvm_diags *diags) {
    if (diags->count < diags->capacity) return true;
    if (diags->capacity > SIZE_MAX / 2 / sizeof *diags->items) return false;
    size_t capacity = diags->capacity ? 2 * diags->capacity : 8;
    tvm_diag *items = realloc(diags->items, capacity * sizeof *items);
    if (!items) return false;
    diags->items = items;
    diags->capacity = capacity;
    return true;
}

/* Copies text, if there is any; false when memory is short. */
static bool copy_text(char **copy, const char *text) {
    *copy = NULL;
    if (!text) return true;
    size_t size = strlen(text) + 1;
    *copy = malloc(size);
    if (*copy) memcpy(*copy, text, size);
    return *copy != NULL;
}

__attribute__((format(printf, 1, 0))) static char *format_text(const char *format, va_list arguments) {
    va_list measure;
    va_copy(measure, arguments);
    int length = vsnprintf(NULL, 0, format, measure);
    va_end(measure);
    if (length < 0) return NULL;
    size_t size = (size_t)length + 1;
    char *text = malloc(size);
    if (text) vsnprintf(text, size, format, arguments);
    return text;
}

static void free_one(tvm_diag *diag) {
    free(diag->file);
    free(diag->source);
    free(diag->message);
    free(diag->hint);
}

tvm_status tvm_diag_addv(tvm_diags *diags, tvm_status status, const tvm_place *place, const char *hint,
                         const char *format, va_list arguments) {
    static const tvm_place nowhere;
    if (!diags) return status;
    if (!place) place = &nowhere;
    tvm_diag diag = {.status = status, .line = place->line, .column = place->column, .length = place->length};
    diag.message = format_text(format, arguments);
    bool copied = diag.message != NULL;
    copied = copy_text(&diag.file, place->file) && copied;
    copied = copy_text(&diag.source, place->source) && copied;
    copied = copy_text(&diag.hint, hint) && copied;
    if (copied && reserve_one(diags)) {
        diags->items[diags->count++] = diag;
    } else {
        free_one(&diag);
        diags->lost++;
    }
    return status;
}

tvm_status tvm_diag_add(tvm_diags *diags, tvm_status status, const tvm_place *place, const char *hint,
                        const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tvm_diag_addv(diags, status, place, hint, format, arguments);
    va_end(arguments);
    return status;
}

tvm_status tvm_diag_no_memory(tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_NO_MEMORY, NULL, NULL, "%s", tvm_status_text(TVM_NO_MEMORY));
}

tvm_status tvm_refuse(tvm_why *why, const char *format, ...) {
    if (why == NULL) return TVM_INVALID;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return TVM_INVALID;
}

void tvm_diags_free(tvm_diags *diags) {
    for (size_t i = 0; i < diags->count; i++) free_one(&diags->items[i]);
    free(diags->items);
    *diags = (tvm_diags){0};
}

/* ---- printing ---- */

/* Texts hold pieces of input files: control characters must not reach the terminal. */
static void print_text(FILE *stream, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool control = (c < 0x20 && c != '\t' && c != '\n') || c == 0x7f;
        fputc(control ? '?' : c, stream);
    }
}

static bool continues_utf8(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Blanks as wide as the text. Tabs stay, so that they are as wide as those above. */
static void print_blanks(FILE *stream, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!continues_utf8(text[i])) fputc(text[i] == '\t' ? '\t' : ' ', stream);
}

static void print_source(const tvm_diag *diag, FILE *stream, bool color) {
    const char *line = diag->source;
    size_t size = strcspn(line, "\r\n");
    size_t caret = diag->column ? diag->column - 1 : 0;
    if (caret > size) caret = size;
    size_t first = 0, last = size;
    if (size > WINDOW) {
        first = caret > WINDOW_BEFORE ? caret - WINDOW_BEFORE : 0;
        while (first > 0 && continues_utf8(line[first])) first--;
        last = size - first > WINDOW ? first + WINDOW : size;
        while (last < size && continues_utf8(line[last])) last++;
    }
    const char *before = first > 0 ? "..." : "";
    fprintf(stream, "    %s", before);
    print_text(stream, line + first, last - first);
    fprintf(stream, "%s\n", last < size ? "..." : "");
    if (diag->column == 0) return;
    fputs("    ", stream);
    print_blanks(stream, before, strlen(before));
    print_blanks(stream, line + first, caret - first);
    fprintf(stream, "%s^", color ? STYLE_CARET : "");
    for (size_t i = caret + 1; i < last && i - caret < diag->length; i++)
        if (!continues_utf8(line[i])) fputc('~', stream);
    fprintf(stream, "%s\n", color ? STYLE_PLAIN : "");
}

static void print_place(const tvm_diag *diag, FILE *stream, const char *program) {
    const char *name = diag->file ? diag->file : program;
    if (!name) return;
    print_text(stream, name, strlen(name));
    if (diag->line) fprintf(stream, ":%" PRIu32, diag->line);
    if (diag->line && diag->column) fprintf(stream, ":%" PRIu32, diag->column);
    fputs(": ", stream);
}

static void print_one(const tvm_diag *diag, FILE *stream, const char *program, bool color) {
    if (color) fputs(STYLE_BOLD, stream);
    print_place(diag, stream, program);
    if (color) fputs(STYLE_ERROR, stream);
    fputs(diag->status == TVM_OK ? "warning: " : "error: ", stream);
    if (color) fputs(STYLE_PLAIN STYLE_BOLD, stream);
    print_text(stream, diag->message, strlen(diag->message));
    fputs(color ? STYLE_PLAIN "\n" : "\n", stream);
    if (diag->source) print_source(diag, stream, color);
    if (diag->hint) {
        fputs("    hint: ", stream);
        print_text(stream, diag->hint, strlen(diag->hint));
        fputc('\n', stream);
    }
}

void tvm_diags_print(const tvm_diags *diags, FILE *stream, const char *program, bool color) {
    for (size_t i = 0; i < diags->count; i++) print_one(&diags->items[i], stream, program, color);
    if (diags->lost == 0) return;
    tvm_diag lost = {.message = NULL};
    print_place(&lost, stream, program);
    fprintf(stream, "error: out of host memory: %zu more messages are lost\n", diags->lost);
}
