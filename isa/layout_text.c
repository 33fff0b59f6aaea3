/* Register and shared layouts as text: the canonical form that the assembler reads back, and pictures. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- picture ---- */

enum {
    HOLDERS_SHOWN = 4, /* more are abbreviated to the first two and the last: 0,1,..,31 */
    LINE_WIDTH = 100,  /* at which a vector wraps */
    HOLDERS_TEXT = 32,
    GAP = 2 /* spaces before each cell */
};

typedef struct picture {
    const tvm_layout *layout;
    uint32_t offsets[TVM_MAX_THREADS]; /* from the lowest holder of an element to each of them, ascending */
    uint32_t holders;
    uint32_t blocks, rows, columns; /* blocks: one per leading index */
    uint32_t extent; /* of what a row runs through: the last row of a wrapped vector may be short */
    int margin, thread_width, local_width;
} picture;

/* A replication digit of size n whose less significant digits make up `below` threads adds multiples of
 * `below`. */
static void find_holders(picture *p) {
    const tvm_layout *layout = p->layout;
    uint32_t below = tvm_layout_threads(layout);
    p->offsets[0] = 0;
    p->holders = 1;
    for (unsigned i = 0; i < layout->spatials; i++) {
        int32_t m = layout->spatial[i];
        uint32_t size = m < 0 ? (uint32_t)-m : layout->mode_size[m];
        below /= size;
        if (m >= 0) continue;
        for (uint32_t h = p->holders; h-- > 0;)
            for (uint32_t j = size; j-- > 0;) p->offsets[h * size + j] = p->offsets[h] + j * below;
        p->holders *= size;
    }
}

static int holders_text(const picture *p, uint32_t thread, char text[HOLDERS_TEXT]) {
    writer to = {text, HOLDERS_TEXT, 0};
    bool cut = p->holders > HOLDERS_SHOWN;
    for (uint32_t h = 0; h < (cut ? 2 : p->holders); h++)
        put(&to, "%s%" PRIu32, h ? "," : "", thread + p->offsets[h]);
    if (cut) put(&to, ",..,%" PRIu32, thread + p->offsets[p->holders - 1]);
    return (int)to.length;
}

static int decimal_width(uint32_t number) {
    return snprintf(NULL, 0, "%" PRIu32, number);
}

static int cell_width(const picture *p) {
    return GAP + p->thread_width + 2 + p->local_width;
}

/* Shape of the grid; a vector is wrapped into rows of a power of two. */
static void plan_picture(picture *p) {
    const tvm_layout *layout = p->layout;
    char text[HOLDERS_TEXT];
    p->extent = layout->shape[layout->rank - 1];
    uint32_t threads = tvm_layout_threads(layout);
    p->local_width = decimal_width(tvm_layout_locals(layout) - 1);
    p->thread_width = 1;
    for (uint32_t t = 0; t < threads; t++) {
        uint32_t index[TVM_MAX_RANK], lowest, local;
        tvm_layout_map(layout, t, 0, index);
        tvm_layout_locate(layout, index, &lowest, &local);
        int width = holders_text(p, lowest, text);
        if (width > p->thread_width) p->thread_width = width;
    }
    if (layout->rank > 1) {
        p->columns = p->extent;
        p->rows = layout->shape[layout->rank - 2];
        p->margin = decimal_width(p->rows - 1);
    } else {
        p->margin = decimal_width(p->extent - 1);
        p->columns = 1;
        while (p->columns < p->extent && p->margin + 2 * (int)p->columns * cell_width(p) <= LINE_WIDTH)
            p->columns *= 2;
        if (p->columns > p->extent) p->columns = p->extent;
        p->rows = (p->extent + p->columns - 1) / p->columns;
    }
    p->blocks = tvm_layout_elements(layout) / (layout->rank > 1 ? p->rows * p->columns : p->extent);
    int header = decimal_width(p->columns - 1) - p->local_width - 2;
    if (header > p->thread_width) p->thread_width = header;
}

static void put_block_title(const picture *p, writer *to, uint32_t *index, uint32_t block) {
    const tvm_layout *layout = p->layout;
    unsigned leading = layout->rank > 2 ? layout->rank - 2U : 0;
    for (unsigned d = leading; d-- > 0;) {
        index[d] = block % layout->shape[d];
        block /= layout->shape[d];
    }
    if (leading == 0) return;
    put(to, "[");
    for (unsigned d = 0; d < leading; d++) put(to, "%" PRIu32 ", ", index[d]);
    put(to, ":, :]\n");
}

static void put_block(const picture *p, writer *to, uint32_t block) {
    const tvm_layout *layout = p->layout;
    uint32_t index[TVM_MAX_RANK] = {0};
    char text[HOLDERS_TEXT];
    put_block_title(p, to, index, block);
    put(to, "%*s", p->margin, "");
    for (uint32_t column = 0; column < p->columns; column++) put(to, "%*" PRIu32, cell_width(p), column);
    put(to, "\n");
    for (uint32_t row = 0; row < p->rows; row++) {
        put(to, "%*" PRIu32, p->margin, layout->rank > 1 ? row : row * p->columns);
        for (uint32_t column = 0; column < p->columns; column++) {
            uint32_t thread, local;
            if (layout->rank == 1 && row * p->columns + column >= p->extent) break;
            index[layout->rank - 1] = layout->rank > 1 ? column : row * p->columns + column;
            if (layout->rank > 1) index[layout->rank - 2] = row;
            tvm_layout_locate(layout, index, &thread, &local);
            holders_text(p, thread, text);
            put(to, "%*s: %*" PRIu32, GAP + p->thread_width, text, p->local_width, local);
        }
        put(to, "\n");
    }
}

char *tvm_layout_picture(const tvm_layout *layout) {
    picture p = {.layout = layout};
    find_holders(&p);
    plan_picture(&p);
    size_t line = (size_t)p.margin + (size_t)p.columns * (size_t)cell_width(&p) + 1;
    size_t title = layout->rank > 2 ? 12 * TVM_MAX_RANK : 0;
    writer to = {NULL, p.blocks * (title + (p.rows + (size_t)1) * line) + 1, 0};
    to.text = malloc(to.capacity);
    if (!to.text) return NULL;
    for (uint32_t block = 0; block < p.blocks; block++) put_block(&p, &to, block);
    to.text[to.length] = '\0';
    return to.text;
}
