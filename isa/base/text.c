#include "text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_MIN = 512 };

/* Makes room for `more` bytes and a NUL. */
static bool reserve(tvm_text *text, size_t more) {
    size_t limit = text->limit ? text->limit : TVM_TEXT_MAX;
    if (text->failed) return false;
    if (text->size > limit || more > limit - text->size) {
        text->failed = text->too_long = true;
        return false;
    }
    size_t need = text->size + more + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity : CAPACITY_MIN;
    while (capacity < need) capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

/* ---- formats ---- */

/* One conversion of a format, as far as it is known here. */
typedef struct conversion {
    char kind, fill;
    unsigned width, size; /* size: 0 int, 1 long, 2 long long, 3 size_t */
    bool counted;         /* .* */
} conversion;

typedef struct argument_list {
    va_list list;
} argument_list;

static const char *read_conversion(const char *at, conversion *c) {
    *c = (conversion){.fill = ' '};
    if (*at == '0') c->fill = *at++;
    while (*at >= '0' && *at <= '9') c->width = c->width * 10 + (unsigned)(*at++ - '0');
    if (at[0] == '.' && at[1] == '*') {
        c->counted = true;
        at += 2;
    }
    if (*at == 'z') c->size = 3, at++;
    for (; *at == 'l' && c->size < 2; at++) c->size++;
    c->kind = *at;
    return *at ? at + 1 : at;
}

/* A text that is being written byte by byte: most pieces are short. `end` is the last place, of the NUL. */
typedef struct writer {
    tvm_text *text;
    char *at, *end;
} writer;

static void find_places(writer *w) {
    size_t limit = w->text->limit ? w->text->limit : TVM_TEXT_MAX;
    size_t last = w->text->capacity ? w->text->capacity - 1 : 0;
    w->at = w->text->data ? w->text->data + w->text->size : NULL;
    w->end = w->text->failed || !w->text->data ? w->at : w->text->data + (last < limit ? last : limit);
}

/* Makes room for at least one byte more. */
static bool more_room(writer *w) {
    if (w->text->data) w->text->size = (size_t)(w->at - w->text->data);
    if (!reserve(w->text, 1)) return false;
    find_places(w);
    return true;
}

static inline bool write_byte(writer *w, char byte) {
    if (w->at == w->end && !more_room(w)) return false;
    *w->at++ = byte;
    return true;
}

static void add_digits(writer *w, const conversion *c, uint64_t value, bool negative) {
    char digits[64], *end = digits + sizeof digits, *at = end;
    const char *names = c->kind == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    unsigned base = c->kind == 'd' || c->kind == 'u' ? 10 : 16;
    do {
        *--at = names[value % base];
        value /= base;
    } while (value);
    if (negative && c->fill == ' ') *--at = '-';
    while ((size_t)(end - at) + (negative && c->fill == '0') < c->width && at > digits + 1) *--at = c->fill;
    if (negative && c->fill == '0') *--at = '-';
    while (at < end && write_byte(w, *at)) at++;
}

static uint64_t take_integer(argument_list *a, const conversion *c) {
    bool is_signed = c->kind == 'd';
    switch (c->size) {
    case 0:
        return is_signed ? (uint64_t)va_arg(a->list, int) : va_arg(a->list, unsigned);
    case 1:
        return is_signed ? (uint64_t)va_arg(a->list, long) : va_arg(a->list, unsigned long);
    case 2:
        return is_signed ? (uint64_t)va_arg(a->list, long long) : va_arg(a->list, unsigned long long);
    default:
        return va_arg(a->list, size_t);
    }
}

static void add_string(writer *w, const char *string, bool counted, int count) {
    const char *end = counted && count >= 0 ? string + count : NULL;
    while (string != end && *string && write_byte(w, *string)) string++;
}

/* False where there is a conversion that is not known here. */
static bool add_conversion(writer *w, const conversion *c, argument_list *a) {
    int count = c->counted ? va_arg(a->list, int) : 0;
    if (c->counted && c->kind != 's') return false;
    switch (c->kind) {
    case 's':
        if (c->width) return false;
        add_string(w, va_arg(a->list, const char *), c->counted, count);
        return true;
    case 'd':
    case 'u':
    case 'x':
    case 'X': {
        if (c->width > 32) return false;
        uint64_t value = take_integer(a, c);
        bool negative = c->kind == 'd' && (int64_t)value < 0;
        add_digits(w, c, negative ? 0 - value : value, negative);
        return true;
    }
    case 'c':
        if (c->width || c->size) return false;
        write_byte(w, (char)va_arg(a->list, int));
        return true;
    case '%':
        write_byte(w, '%');
        return true;
    default:
        return false;
    }
}

/* What nearly all texts are made of, several times as fast as the C library's way. */
static bool add_known(tvm_text *text, const char *format, va_list list) {
    writer w = {.text = text};
    argument_list a;
    bool known = true;
    find_places(&w);
    va_copy(a.list, list);
    while (known && *format) {
        while (*format && *format != '%' && write_byte(&w, *format)) format++;
        if (*format != '%') break;
        conversion c = {.fill = ' '};
        if (format[1] == 's' || format[1] == 'd' || format[1] == 'u') {
            c.kind = format[1];
            format += 2;
        } else {
            format = read_conversion(format + 1, &c);
        }
        known = add_conversion(&w, &c, &a);
    }
    va_end(a.list);
    if (text->data) {
        text->size = (size_t)(w.at - text->data);
        *w.at = '\0';
    }
    return known;
}

static void add_formatted(tvm_text *text, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    /* What is there mostly holds it, so that it is written at once. */
    if (reserve(text, 0)) {
        size_t room = text->capacity - text->size;
        int length = vsnprintf(text->data + text->size, room, format, list);
        if (length < 0) {
            text->failed = true;
        } else if (reserve(text, (size_t)length)) {
            if ((size_t)length >= room) vsnprintf(text->data + text->size, (size_t)length + 1, format, again);
            text->size += (size_t)length;
        }
        text->data[text->size] = '\0';
    }
    va_end(again);
}

void tvm_text_addv(tvm_text *text, const char *format, va_list list) {
    size_t before = text->size;
    if (!*format) tvm_text_bytes(text, format, 0);
    if (add_known(text, format, list) || text->failed) return;
    text->size = before;
    add_formatted(text, format, list);
}

void tvm_text_add(tvm_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tvm_text_addv(text, format, arguments);
    va_end(arguments);
}

void tvm_text_bytes(tvm_text *text, const char *bytes, size_t count) {
    if (!reserve(text, count)) return;
    if (count) memcpy(text->data + text->size, bytes, count);
    text->size += count;
    text->data[text->size] = '\0';
}

void tvm_text_puts(tvm_text *text, const char *string) {
    tvm_text_bytes(text, string, strlen(string));
}

void tvm_text_append(tvm_text *text, const tvm_text *more) {
    if (more->failed) text->failed = true;
    tvm_text_bytes(text, more->data, more->size);
}

const char *tvm_text_string(const tvm_text *text) {
    return text->data ? text->data : "";
}

void tvm_text_free(tvm_text *text) {
    free(text->data);
    *text = (tvm_text){0};
}
