/* Register and shared layouts as text: the canonical form that the assembler reads back. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"

/* ---- canonical text ---- */

typedef struct writer {
    char *text;
    size_t capacity;
    size_t length;
} writer;

/* Appends, cutting off what does not fit. */
static void put(writer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(to->text + to->length, to->capacity - to->length, format, arguments);
    va_end(arguments);
    if (wrote < 0) return;
    to->length += (size_t)wrote;
    if (to->length >= to->capacity) to->length = to->capacity - 1;
}

static void put_list(writer *to, const uint32_t *values, unsigned count) {
    put(to, "[");
    for (unsigned i = 0; i < count; i++) put(to, "%s%" PRIu32, i ? ", " : "", values[i]);
    put(to, "]");
}

const char *tvm_layout_text(const tvm_layout *layout, char text[TVM_LAYOUT_TEXT_MAX]) {
    writer to = {text, TVM_LAYOUT_TEXT_MAX, 0};
    put(&to, "layout(");
    put_list(&to, layout->shape, layout->rank);
    put(&to, ", ");
    put_list(&to, layout->mode_size, layout->modes);
    put(&to, ", [");
    for (unsigned i = 0; i < layout->spatials; i++) put(&to, "%s%" PRId32, i ? ", " : "", layout->spatial[i]);
    put(&to, "], [");
    for (unsigned i = 0; i < layout->locals; i++) put(&to, "%s%u", i ? ", " : "", (unsigned)layout->local[i]);
    put(&to, "])");
    return text;
}

const char *tvm_shared_layout_text(const tvm_shared_layout *layout, char text[TVM_LAYOUT_TEXT_MAX]) {
    writer to = {text, TVM_LAYOUT_TEXT_MAX, 0};
    put(&to, "shared(");
    put_list(&to, layout->shape, layout->rank);
    put(&to, ", ");
    put_list(&to, layout->mode_size, layout->modes);
    put(&to, ", ");
    put_list(&to, layout->mode_stride, layout->modes);
    if (layout->swizzle_bits > 0)
        put(&to, ", swizzle(%u, %u, %u)", (unsigned)layout->swizzle_base, (unsigned)layout->swizzle_bits,
            (unsigned)layout->swizzle_shift);
    put(&to, ")");
    return text;
}
