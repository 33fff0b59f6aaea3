/* Pictures of layouts and packings: panels of cells, built by layout_picture.c, access_picture.c and
 * packing_picture.c, and written for a terminal (picture.c) or as SVG (picture_svg.c). */
#ifndef TVM_ASSEMBLER_PICTURE_H
#define TVM_ASSEMBLER_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "assembler.h"
#include "diag.h"
#include "layout.h"
#include "text.h"

enum { PICTURE_CELL = 40, PICTURE_LABEL = 24, PICTURE_PANELS = 4096, PICTURE_WIDTH = 80, PICTURE_GAP = 2 };

typedef struct picture_cell {
    char text[PICTURE_CELL]; /* "": there is no cell */
    uint16_t colour;         /* equal numbers, equal colours */
    bool marked;             /* a bank conflict, bytes that are moved and not used */
} picture_cell;

typedef struct picture_panel {
    tvm_text title; /* lines before the cells */
    uint32_t rows, columns;
    int gap;                       /* spaces before each cell, of text */
    char (*heads)[PICTURE_LABEL];  /* of the columns */
    char (*labels)[PICTURE_LABEL]; /* of the rows */
    picture_cell *cells;           /* row by row */
} picture_panel;

typedef struct picture {
    char title[TVM_LAYOUT_TEXT_MAX + 32]; /* of the SVG */
    bool wide; /* for SVG: more rows and columns are shown before they are folded */
    picture_panel *panels;
    size_t count;
    tvm_text notes; /* lines after the panels: what repeats, what the accesses cost */
    bool failed;    /* memory is short, or the picture too large */
} picture;

/* A panel with empty cells; NULL, and the picture has failed, when memory is short. The pointer holds until
 * the next panel is added. */
picture_panel *tvm_picture_panel(picture *p, uint32_t rows, uint32_t columns);
/* Rows without a cell go. */
void tvm_picture_drop_empty_rows(picture_panel *panel);
void tvm_picture_free(picture *p);
/* "%u" */
void tvm_picture_number(char label[PICTURE_LABEL], uint32_t number);
/* A colour of its own for each small number, light enough for black text: 0xrrggbb. */
uint32_t tvm_picture_rgb(unsigned number);

void tvm_picture_text(const picture *p, bool colour, tvm_text *out);
void tvm_picture_svg(const picture *p, tvm_text *out);
/* Writes it as is asked, and frees it. */
tvm_status tvm_picture_finish(picture *p, const tvm_picture_request *request, char **text, tvm_diags *diags);

/* ---- what is drawn ---- */

/* The elements of a register tensor: the threads that hold each, and the local index. */
void tvm_picture_layout(picture *p, const tvm_layout *layout);
/* Of elements of `bits` bits: the line of 128 bytes and the banks in which they lie, as many to a cell as lie
 * together in up to 16 bytes. */
void tvm_picture_shared(picture *p, const tvm_shared_layout *layout, unsigned bits);
/* A warp that loads or stores a register tensor from or to the shared tile of the same shape. */
void tvm_picture_shared_access(picture *p, const tvm_layout *layout, const tvm_shared_layout *tile,
                               unsigned bits);
/* The same for a tile of a global tensor whose rows are `row` elements long (0: the tile's), from its start.
 */
void tvm_picture_global_access(picture *p, const tvm_layout *layout, uint64_t row, unsigned bits);

#endif
