#include "sequence.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 96, LABELS = 4, NAME_MAX_LENGTH = 12, LINE_MAX_LENGTH = 160 };

typedef struct binding {
    char name[NAME_MAX_LENGTH];
    reg value;
} binding;

typedef struct expansion {
    emitter *e;
    sequence_type type;
    binding bindings[NAMES];
    unsigned count;
    uint32_t labels[LABELS];
    bool has_label[LABELS];
    char line[LINE_MAX_LENGTH];
    size_t used;
} expansion;

static reg new_of_class(emitter *e, char class) {
    switch (class) {
    case 'f':
        return tvm_new_f(e);
    case 'g':
        return tvm_new_fd(e);
    case 'q':
        return tvm_new_rd(e);
    case 'p':
        return tvm_new_pred(e);
    default:
        return tvm_new_r(e);
    }
}

static void bind(expansion *s, const char *name, reg value) {
    binding *to = &s->bindings[s->count < NAMES ? s->count++ : NAMES - 1];
    to->name[0] = '\0';
    strncat(to->name, name, sizeof to->name - 1);
    to->value = value;
}

static reg named(expansion *s, const char *name) {
    for (unsigned i = 0; i < s->count; i++)
        if (strcmp(s->bindings[i].name, name) == 0) return s->bindings[i].value;
    char class = name[0] == 'e' || strcmp(name, "result") == 0 ? s->type.class : name[0];
    bind(s, name, new_of_class(s->e, class));
    return s->bindings[s->count - 1].value;
}

static void put(expansion *s, const char *text, size_t length) {
    if (length >= sizeof s->line - s->used) length = sizeof s->line - 1 - s->used;
    memcpy(s->line + s->used, text, length);
    s->used += length;
    s->line[s->used] = '\0';
}

static void put_text(expansion *s, const char *text) {
    put(s, text, strlen(text));
}

static size_t word_length(const char *at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length])) length++;
    return length;
}

/* $t, $b, $top, $mask or a label; how much of the text it is. */
static size_t put_special(expansion *s, const char *at) {
    char text[24] = "";
    size_t length = word_length(at + 1);
    bool wide = s->type.bits == 64;
    if (isdigit((unsigned char)at[1])) {
        unsigned label = (unsigned)(at[1] - '0') % LABELS;
        if (!s->has_label[label]) s->labels[label] = tvm_new_label(s->e);
        s->has_label[label] = true;
        snprintf(text, sizeof text, "$L%u", s->labels[label]);
    } else if (length == 1) {
        put_text(s, at[1] == 't' ? s->type.suffix : wide ? "b64" : "b32");
    } else if (at[1] == 't') {
        snprintf(text, sizeof text, "%u", s->type.bits - 1);
    } else {
        snprintf(text, sizeof text, "0x%x", UINT32_MAX >> (s->type.bits < 32 ? 32 - s->type.bits : 0));
    }
    put_text(s, text);
    return 1 + length;
}

/* #1.5 of f32, ##1.5 of f64. */
static size_t put_number(expansion *s, const char *at) {
    char *end, text[24];
    if (at[1] == '#') {
        snprintf(text, sizeof text, "0d%016" PRIX64, tvm_f64_bits(strtod(at + 2, &end)));
        put_text(s, text);
        return (size_t)(end - at);
    }
    snprintf(text, sizeof text, "0f%08X", (unsigned)tvm_f32_bits(strtof(at + 1, &end)));
    put_text(s, text);
    return (size_t)(end - at);
}

static size_t put_register(expansion *s, const char *at) {
    char name[NAME_MAX_LENGTH];
    size_t length = word_length(at + 1);
    if (length > sizeof name - 1) length = sizeof name - 1;
    memcpy(name, at + 1, length);
    name[length] = '\0';
    put_text(s, named(s, name).name);
    return 1 + word_length(at + 1);
}

/* One line, up to its semicolon; what follows it. */
static const char *emit_line(expansion *s, const char *at) {
    s->used = 0;
    while (*at == ' ' || *at == '\n') at++;
    while (*at != ';') {
        size_t taken = 1;
        if (*at == '%')
            taken = put_register(s, at);
        else if (*at == '#')
            taken = put_number(s, at);
        else if (*at == '$')
            taken = put_special(s, at);
        else
            put(s, at, 1);
        at += taken;
    }
    if (s->used > 0) tvm_emit(s->e, "%s%s", s->line, s->line[s->used - 1] == ':' ? "" : ";");
    at++;
    while (*at == ' ' || *at == '\n') at++;
    return at;
}

reg tvm_emit_sequence_to(emitter *e, const char *sequence, sequence_type type, const reg operands[3],
                         reg result) {
    static const char *const names[3] = {"x", "y", "z"};
    expansion s = {.e = e, .type = type};
    for (unsigned i = 0; i < 3; i++) bind(&s, names[i], operands[i]);
    if (result.name[0]) bind(&s, "result", result);
    while (*sequence != '\0') sequence = emit_line(&s, sequence);
    return named(&s, "result");
}
