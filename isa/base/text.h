/* Text under construction: PTX, listings, messages. */
#ifndef TVM_TEXT_H
#define TVM_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise to start; NUL-terminated once something was added. When memory is short or the text would
 * be longer than `limit` bytes (0: TVM_TEXT_MAX), `failed` is set, in the second case `too_long` too, and
 * additions do nothing any more. */
typedef struct tvm_text {
    char *data; /* malloc'ed; NULL: nothing was added */
    size_t size, capacity, limit;
    bool failed, too_long;
} tvm_text;

enum { TVM_TEXT_MAX = 256 << 20 };

void tvm_text_add(tvm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tvm_text_addv(tvm_text *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
void tvm_text_puts(tvm_text *text, const char *string);
void tvm_text_bytes(tvm_text *text, const char *bytes, size_t count);
/* Fails if `more` has failed. */
void tvm_text_append(tvm_text *text, const tvm_text *more);
/* The text so far, NUL-terminated; "" when nothing was added. It belongs to `text`. */
const char *tvm_text_string(const tvm_text *text);
void tvm_text_free(tvm_text *text);

#endif
