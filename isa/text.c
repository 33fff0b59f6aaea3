#include "text.h"

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

void tvm_text_addv(tvm_text *text, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    /* What is there mostly holds it, so that it is written at once. */
    if (reserve(text, 0)) {
        size_t room = text->capacity - text->size;
        int length = vsnprintf(text->data + text->size, room, format, arguments);
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
