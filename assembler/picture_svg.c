/* Pictures as SVG: one file, no scripts, no fonts of its own. */
#include "picture.h"

#include <string.h>

enum { LETTER = 7, LINE = 18, EDGE = 12, SPACE = 14 };

/* Text with what XML reserves replaced. */
static void put_escaped(tvm_text *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char *as = text[i] == '&' ? "&amp;" : text[i] == '<' ? "&lt;" : text[i] == '>' ? "&gt;" : NULL;
        if (as)
            tvm_text_puts(out, as);
        else
            tvm_text_bytes(out, &text[i], 1);
    }
}

/* A <text> a line, from y on; returns the y after them. */
static unsigned put_lines(tvm_text *out, const char *text, unsigned y) {
    while (*text) {
        size_t length = strcspn(text, "\n");
        tvm_text_add(out, "<text x=\"%d\" y=\"%u\">", EDGE, y + 13);
        put_escaped(out, text, length);
        tvm_text_puts(out, "</text>\n");
        y += LINE;
        text += length + (text[length] == '\n');
    }
    return y;
}

static unsigned lines_width(const char *text) {
    size_t widest = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (length > widest) widest = length;
        text += length + (text[length] == '\n');
    }
    return (unsigned)widest * LETTER;
}

typedef struct sizes {
    unsigned margin, cell; /* pixels */
} sizes;

static sizes measure(const picture_panel *panel) {
    size_t margin = 0, cell = 1;
    for (uint32_t r = 0; r < panel->rows; r++)
        if (strlen(panel->labels[r]) > margin) margin = strlen(panel->labels[r]);
    for (uint32_t c = 0; c < panel->columns; c++)
        if (strlen(panel->heads[c]) > cell) cell = strlen(panel->heads[c]);
    for (size_t i = 0; i < (size_t)panel->rows * panel->columns; i++)
        if (strlen(panel->cells[i].text) > cell) cell = strlen(panel->cells[i].text);
    return (sizes){EDGE + (unsigned)margin * LETTER + 6, (unsigned)cell * LETTER + 8};
}

static void put_cell(tvm_text *out, const picture_cell *cell, unsigned x, unsigned y, unsigned width) {
    tvm_text_add(out, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%d\" fill=\"#%06x\" stroke=\"%s\"%s/>",
                 x, y, width, LINE, (unsigned)tvm_picture_rgb(cell->colour), cell->marked ? "#c00" : "#777",
                 cell->marked ? " stroke-width=\"2.5\"" : " stroke-width=\"0.5\"");
    tvm_text_add(out, "<text x=\"%u\" y=\"%u\" text-anchor=\"middle\">", x + width / 2, y + 13);
    put_escaped(out, cell->text, strlen(cell->text));
    tvm_text_puts(out, "</text>\n");
}

static unsigned put_panel(tvm_text *out, const picture_panel *panel, unsigned y) {
    sizes s = measure(panel);
    y = put_lines(out, tvm_text_string(&panel->title), y);
    for (uint32_t c = 0; c < panel->columns; c++)
        tvm_text_add(out, "<text x=\"%u\" y=\"%u\" text-anchor=\"middle\" fill=\"#555\">%s</text>\n",
                     s.margin + c * s.cell + s.cell / 2, y + 13, panel->heads[c]);
    y += LINE;
    for (uint32_t r = 0; r < panel->rows; r++, y += LINE) {
        tvm_text_add(out, "<text x=\"%u\" y=\"%u\" text-anchor=\"end\" fill=\"#555\">%s</text>\n",
                     s.margin - 6, y + 13, panel->labels[r]);
        for (uint32_t c = 0; c < panel->columns; c++) {
            const picture_cell *cell = &panel->cells[(size_t)r * panel->columns + c];
            if (cell->text[0]) put_cell(out, cell, s.margin + c * s.cell, y, s.cell);
        }
    }
    return y + SPACE;
}

void tvm_picture_svg(const picture *p, tvm_text *out) {
    tvm_text body = {0};
    unsigned width = lines_width(tvm_text_string(&p->notes)), y = EDGE;
    if (strlen(p->title) * LETTER > width) width = (unsigned)strlen(p->title) * LETTER;
    y = put_lines(&body, p->title, y) + SPACE / 2;
    for (size_t i = 0; i < p->count; i++) {
        const picture_panel *panel = &p->panels[i];
        sizes s = measure(panel);
        if (s.margin + panel->columns * s.cell > width) width = s.margin + panel->columns * s.cell;
        if (lines_width(tvm_text_string(&panel->title)) > width)
            width = lines_width(tvm_text_string(&panel->title));
        y = put_panel(&body, panel, y);
    }
    y = put_lines(&body, tvm_text_string(&p->notes), y);
    tvm_text_add(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
                 "font-family=\"monospace\" font-size=\"11\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                 width + 2 * EDGE, y + EDGE);
    tvm_text_append(out, &body);
    tvm_text_puts(out, "</svg>\n");
    tvm_text_free(&body);
}
