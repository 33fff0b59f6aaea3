/* Panels of cells, and how they are written for a terminal. */
#include "picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

picture_panel *tvm_picture_panel(picture *p, uint32_t rows, uint32_t columns) {
    picture_panel *more =
        p->count < PICTURE_PANELS ? realloc(p->panels, (p->count + 1) * sizeof *p->panels) : NULL;
    if (!more) {
        p->failed = true;
        return NULL;
    }
    p->panels = more;
    picture_panel *panel = &more[p->count++];
    *panel = (picture_panel){.rows = rows, .columns = columns, .gap = PICTURE_GAP};
    panel->heads = calloc(columns, sizeof *panel->heads);
    panel->labels = calloc(rows, sizeof *panel->labels);
    panel->cells = calloc((size_t)rows * columns, sizeof *panel->cells);
    if (panel->heads && panel->labels && panel->cells) return panel;
    p->failed = true;
    return NULL;
}

void tvm_picture_free(picture *p) {
    for (size_t i = 0; i < p->count; i++) {
        tvm_text_free(&p->panels[i].title);
        free(p->panels[i].heads);
        free(p->panels[i].labels);
        free(p->panels[i].cells);
    }
    free(p->panels);
    tvm_text_free(&p->notes);
}

void tvm_picture_drop_empty_rows(picture_panel *panel) {
    uint32_t kept = 0;
    size_t row = panel->columns * sizeof *panel->cells;
    for (uint32_t r = 0; r < panel->rows; r++) {
        bool empty = true;
        const picture_cell *cells = &panel->cells[(size_t)r * panel->columns];
        for (uint32_t c = 0; c < panel->columns; c++) empty = empty && !cells[c].text[0];
        if (empty) continue;
        memmove(&panel->cells[(size_t)kept * panel->columns], cells, row);
        memmove(panel->labels[kept++], panel->labels[r], PICTURE_LABEL);
    }
    panel->rows = kept;
}

void tvm_picture_number(char label[PICTURE_LABEL], uint32_t number) {
    snprintf(label, PICTURE_LABEL, "%" PRIu32, number);
}

/* Hues a golden angle apart, so that neighbouring numbers differ. */
uint32_t tvm_picture_rgb(unsigned number) {
    unsigned hue = number * 137 % 360, part = hue % 60, rising = 150 + part * 100 / 60;
    unsigned falling = 250 - part * 100 / 60;
    switch (hue / 60) {
    case 0:
        return 0xfa0096 | rising << 8;
    case 1:
        return 0x00fa96 | falling << 16;
    case 2:
        return 0x96fa00 | rising;
    case 3:
        return 0x9600fa | falling << 8;
    case 4:
        return 0x0096fa | rising << 16;
    default:
        return 0xfa9600 | falling;
    }
}

/* The nearest of a terminal's cube of 6 * 6 * 6 colours. */
static unsigned terminal_colour(unsigned number) {
    uint32_t rgb = tvm_picture_rgb(number);
    unsigned r = (rgb >> 16 & 255), g = rgb >> 8 & 255, b = rgb & 255;
    return 16 + 36 * ((r * 5 + 127) / 255) + 6 * ((g * 5 + 127) / 255) + (b * 5 + 127) / 255;
}

static int largest(int a, size_t b) {
    return a > (int)b ? a : (int)b;
}

typedef struct widths {
    int margin, cell, gap;
    bool marks; /* a column for them after each cell */
} widths;

static widths measure(const picture_panel *panel) {
    widths w = {.gap = panel->gap};
    for (uint32_t r = 0; r < panel->rows; r++) w.margin = largest(w.margin, strlen(panel->labels[r]));
    for (uint32_t c = 0; c < panel->columns; c++) w.cell = largest(w.cell, strlen(panel->heads[c]));
    for (size_t i = 0; i < (size_t)panel->rows * panel->columns; i++) {
        w.cell = largest(w.cell, strlen(panel->cells[i].text));
        w.marks = w.marks || panel->cells[i].marked;
    }
    return w;
}

static void put_cell(const picture_cell *cell, const widths *w, bool colour, tvm_text *out) {
    const char *mark = !w->marks ? "" : cell->marked ? "!" : " ";
    if (colour && cell->text[0])
        tvm_text_add(out, "%*s\033[30;48;5;%um%*s%s\033[0m", w->gap, "", terminal_colour(cell->colour),
                     w->cell, cell->text, mark);
    else
        tvm_text_add(out, "%*s%s", w->gap + w->cell, cell->text, mark);
}

static void put_panel(const picture_panel *panel, bool colour, tvm_text *out) {
    widths w = measure(panel);
    tvm_text_append(out, &panel->title);
    tvm_text_add(out, "%*s", w.margin, "");
    for (uint32_t c = 0; c < panel->columns; c++)
        tvm_text_add(out, "%*s%s", w.gap + w.cell, panel->heads[c],
                     w.marks && c + 1 < panel->columns ? " " : "");
    tvm_text_puts(out, "\n");
    for (uint32_t r = 0; r < panel->rows; r++) {
        const picture_cell *row = &panel->cells[(size_t)r * panel->columns];
        uint32_t columns = panel->columns;
        while (columns > 0 && !row[columns - 1].text[0]) columns--;
        tvm_text_add(out, "%*s", w.margin, panel->labels[r]);
        for (uint32_t c = 0; c < columns; c++) put_cell(&row[c], &w, colour, out);
        tvm_text_puts(out, "\n");
    }
}

void tvm_picture_text(const picture *p, bool colour, tvm_text *out) {
    for (size_t i = 0; i < p->count; i++) put_panel(&p->panels[i], colour, out);
    tvm_text_append(out, &p->notes);
}

tvm_status tvm_picture_finish(picture *p, const tvm_picture_request *request, char **text, tvm_diags *diags) {
    tvm_text out = {.failed = false};
    *text = NULL;
    if (p->failed)
        out.failed = true;
    else if (request->svg)
        tvm_picture_svg(p, &out);
    else
        tvm_picture_text(p, request->colour, &out);
    tvm_picture_free(p);
    if (out.failed) {
        tvm_text_free(&out);
        return tvm_diag_no_memory(diags);
    }
    *text = out.data;
    return TVM_OK;
}
