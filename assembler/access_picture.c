/* Pictures of what a warp's accesses do: which lanes meet in which bank of shared memory in which pass, and
 * which sectors of which lines of global memory they touch. */
#include "picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traffic.h"

enum { WARP = 32, LINES_SHOWN = 32, CELLS_IN_ROW = 8, MATRIX = 8 };

/* The accesses of a register tensor: each thread's elements in the order of the tensor's, as many to an
 * access as lie together in memory, up to 16 bytes. */
typedef struct accesses {
    const tvm_layout *layout;
    uint64_t *offset; /* in elements, by thread and then in the order of `sorted` locals */
    uint32_t threads, locals, warps, count; /* count: of a thread */
    uint32_t elements;                      /* of an access */
    unsigned bits;                          /* of an element */
    bool matrices; /* they are ldmatrix's: each reads rows of 8 elements for 8 lanes */
} accesses;

typedef uint64_t offset_of(const void *memory, const tvm_layout *layout, const uint32_t *index);

static int by_element(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* May `elements` of each thread be accessed at once? */
static bool lie_together(const accesses *a, uint32_t elements) {
    size_t all = (size_t)a->threads * a->locals;
    if (a->locals % elements || elements * a->bits > 128) return false;
    for (size_t i = 0; i < all; i++) {
        uint64_t first = a->offset[i - i % elements];
        if (first % elements || a->offset[i] != first + i % elements) return false;
    }
    return true;
}

static bool open_accesses(accesses *a, const tvm_layout *layout, unsigned bits, offset_of *offset,
                          const void *memory) {
    *a = (accesses){.layout = layout, .bits = bits, .elements = 1};
    a->threads = tvm_layout_threads(layout);
    a->locals = tvm_layout_locals(layout);
    a->warps = (a->threads + WARP - 1) / WARP;
    uint32_t(*sorted)[2] = calloc(a->locals, sizeof *sorted);
    a->offset = calloc((size_t)a->threads * a->locals, sizeof *a->offset);
    for (uint32_t l = 0; sorted && l < a->locals; l++) {
        sorted[l][0] = tvm_layout_element(layout, 0, l);
        sorted[l][1] = l;
    }
    bool ok = sorted && a->offset;
    if (ok) qsort(sorted, a->locals, sizeof *sorted, by_element);
    for (uint32_t t = 0; ok && t < a->threads; t++)
        for (uint32_t l = 0; l < a->locals; l++) {
            uint32_t index[TVM_MAX_RANK];
            tvm_layout_map(layout, t, sorted[l][1], index);
            a->offset[(size_t)t * a->locals + l] = offset(memory, layout, index);
        }
    free(sorted);
    while (ok && lie_together(a, a->elements * 2)) a->elements *= 2;
    a->count = a->locals / a->elements;
    return ok;
}

/* Byte addresses of the lanes of an access; returns how many there are. */
static unsigned lanes_of(const accesses *a, uint32_t warp, uint32_t number, uint64_t address[WARP]) {
    unsigned lanes = 0;
    unsigned apart = a->matrices ? 4 : 1; /* lane 4 i has the first elements of row i of ldmatrix's */
    for (uint32_t t = warp * WARP; t < (warp + 1) * WARP && t < a->threads; t += apart)
        address[lanes++] = a->offset[(size_t)t * a->locals + (size_t)number * a->elements] * a->bits / 8;
    return lanes;
}

/* Are they what ldmatrix reads: rows of 8 elements of 16 bits that lie together, four lanes to a row? */
static void find_matrices(accesses *a) {
    tvm_layout atom, outer;
    if (a->bits != 16 || a->elements != 2 || tvm_layout_atom("ldmatrix", 8, &atom, NULL) ||
        tvm_layout_divide_right(a->layout, &atom, &outer, NULL))
        return;
    for (uint32_t t = 0; t < a->threads; t++)
        for (uint32_t n = 0; n < a->count; n++) {
            uint64_t first = a->offset[(size_t)(t - t % 4) * a->locals + (size_t)n * 2];
            if (first % MATRIX || a->offset[(size_t)t * a->locals + (size_t)n * 2] != first + t % 4 * 2)
                return;
        }
    a->matrices = true;
}

/* ---- shared memory ---- */

static uint64_t shared_offset(const void *memory, const tvm_layout *layout, const uint32_t *index) {
    (void)layout;
    return tvm_shared_layout_offset(memory, index);
}

typedef struct bank_access {
    unsigned lanes, width, passes, least;
    uint32_t address[WARP];
    uint8_t pass[WARP];
} bank_access;

static void bank_access_of(const accesses *a, uint32_t warp, uint32_t number, bank_access *b) {
    uint64_t address[WARP];
    b->lanes = lanes_of(a, warp, number, address);
    b->width = a->matrices ? 128 : a->elements * a->bits;
    for (unsigned i = 0; i < b->lanes; i++) b->address[i] = (uint32_t)address[i];
    b->passes = tvm_bank_passes(b->address, b->lanes, b->width, b->pass);
    b->least = tvm_bank_passes_least(b->lanes, b->width);
}

/* A row of eight cells of the banks that a lane uses, from the bank that stands before it on: which lanes use
 * them in this pass. */
static void draw_banks(picture *p, const accesses *a, uint32_t warp, uint32_t number) {
    bank_access b;
    bank_access_of(a, warp, number, &b);
    unsigned words = b.width > 32 ? b.width / 32 : 1, together = tvm_lanes_together(b.width);
    unsigned columns = TVM_BANKS / words, per_row = columns > CELLS_IN_ROW ? CELLS_IN_ROW : columns;
    unsigned parts = columns / per_row, lane_unit = a->matrices ? 4 : 1;
    picture_panel *panel = tvm_picture_panel(p, b.passes * parts, per_row);
    if (!panel) return;
    tvm_text_add(&panel->title, "warp %" PRIu32 ", access %" PRIu32 ": lanes by bank\n", warp, number);
    for (unsigned c = 0; c < per_row; c++) tvm_picture_number(panel->heads[c], c * words);
    for (unsigned r = 0; r < b.passes * parts; r++)
        snprintf(panel->labels[r], PICTURE_LABEL, "pass %u  %2u", r / parts, r % parts * per_row * words);
    for (unsigned i = 0; i < b.lanes; i++) {
        unsigned column = b.address[i] / 4 % TVM_BANKS / words;
        picture_cell *cell =
            &panel->cells[(size_t)(b.pass[i] * parts + column / per_row) * per_row + column % per_row];
        size_t length = strlen(cell->text);
        /* the first pass of the lanes that are served with this one */
        unsigned phase = 0, first = i - i % together;
        for (unsigned k = 0; k < first; k++)
            if (b.pass[k] >= phase) phase = b.pass[k] + 1U;
        cell->marked = b.pass[i] > phase;
        cell->colour = (uint16_t)(i * lane_unit);
        if (!length)
            snprintf(cell->text, sizeof cell->text, a->matrices ? "row %u" : "%u", i);
        else if (cell->text[length - 1] != '+')
            strcat(cell->text, "+");
    }
    tvm_picture_drop_empty_rows(panel);
}

void tvm_picture_shared_access(picture *p, const tvm_layout *layout, const tvm_shared_layout *tile,
                               unsigned bits) {
    accesses a;
    char text[TVM_LAYOUT_TEXT_MAX];
    uint64_t passes = 0, least = 0;
    uint32_t worst_warp = 0, worst_access = 0;
    unsigned most = 0, fewest = UINT32_MAX;
    snprintf(p->title, sizeof p->title, "An access to %s", tvm_shared_layout_text(tile, text));
    if (!open_accesses(&a, layout, bits, shared_offset, tile)) p->failed = true;
    if (!p->failed) find_matrices(&a);
    for (uint32_t w = 0; !p->failed && w < a.warps; w++)
        for (uint32_t n = 0; n < a.count; n++) {
            bank_access b;
            bank_access_of(&a, w, n, &b);
            passes += b.passes;
            least += b.least;
            if (b.passes < fewest) fewest = b.passes;
            if (b.passes <= most) continue;
            most = b.passes;
            worst_warp = w;
            worst_access = n;
        }
    if (!p->failed) {
        draw_banks(p, &a, worst_warp, worst_access);
        if (a.matrices)
            tvm_text_puts(&p->notes, "By ldmatrix: each access reads 8 rows of 16 bytes.\n");
        else
            tvm_text_add(
                &p->notes,
                "Each access: %" PRIu32 " element%s, %" PRIu32 " bit%s a lane; 0+ is lane 0 and others, "
                "which read the same.\n",
                a.elements, a.elements > 1 ? "s" : "", a.elements * bits, a.elements * bits > 1 ? "s" : "");
        tvm_text_add(&p->notes, "%" PRIu32 " warp%s, %" PRIu32 " access%s each, %s%u pass%s", a.warps,
                     a.warps > 1 ? "s" : "", a.count, a.count > 1 ? "es" : "", most > fewest ? "up to " : "",
                     most, most > 1 ? "es" : "");
        if (passes == least)
            tvm_text_puts(&p->notes, ": no bank conflicts.\n");
        else
            tvm_text_add(&p->notes,
                         ", %" PRIu64 " in all where %" PRIu64 " would do: %.3g-way bank conflicts (!).\n",
                         passes, least, (double)passes / (double)least);
    }
    free(a.offset);
}

/* ---- global memory ---- */

typedef struct global_rows {
    uint64_t row; /* elements */
} global_rows;

static uint64_t global_offset(const void *memory, const tvm_layout *layout, const uint32_t *index) {
    const global_rows *rows = memory;
    uint64_t at = 0;
    for (unsigned d = 0; d + 1 < layout->rank; d++) at = at * layout->shape[d] + index[d];
    return at * rows->row + index[layout->rank - 1];
}

static int by_address(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The lanes that touch bytes [from, from + 32), as "3-5", and how many of the bytes are touched. */
static unsigned sector_of(const uint64_t *address, unsigned lanes, unsigned bytes, uint64_t from,
                          unsigned *first, unsigned *last) {
    uint32_t touched = 0;
    unsigned count = 0;
    *first = WARP;
    *last = 0;
    for (unsigned i = 0; i < lanes; i++) {
        if (address[i] + bytes <= from || address[i] >= from + TVM_SECTOR_BYTES) continue;
        if (i < *first) *first = i;
        *last = i;
        for (uint64_t at = address[i]; at < address[i] + bytes; at++)
            if (at >= from && at < from + TVM_SECTOR_BYTES) touched |= 1U << (at - from);
    }
    for (; touched; touched &= touched - 1) count++;
    return count;
}

static void draw_lines(picture *p, const uint64_t *address, unsigned lanes, unsigned bytes) {
    uint64_t line[2 * WARP], count = 0;
    for (unsigned i = 0; i < lanes; i++) {
        line[count++] = address[i] / TVM_LINE_BYTES;
        line[count++] = (address[i] + bytes - 1) / TVM_LINE_BYTES;
    }
    qsort(line, count, sizeof *line, by_address);
    uint64_t different = 0;
    for (uint64_t i = 0; i < count; i++)
        if (!i || line[i] != line[i - 1]) line[different++] = line[i];
    uint32_t rows = different > LINES_SHOWN ? LINES_SHOWN : (uint32_t)different;
    enum { SECTORS = TVM_LINE_BYTES / TVM_SECTOR_BYTES };
    picture_panel *panel = tvm_picture_panel(p, rows, SECTORS);
    if (!panel) return;
    tvm_text_puts(&panel->title, "warp 0, access 0: lanes by line of 128 bytes and sector of 32\n");
    for (unsigned s = 0; s < SECTORS; s++) tvm_picture_number(panel->heads[s], s * TVM_SECTOR_BYTES);
    for (uint32_t r = 0; r < rows; r++) {
        snprintf(panel->labels[r], PICTURE_LABEL, "byte %" PRIu64, line[r] * TVM_LINE_BYTES);
        for (unsigned s = 0; s < SECTORS; s++) {
            unsigned first, last,
                used = sector_of(address, lanes, bytes, line[r] * TVM_LINE_BYTES + s * TVM_SECTOR_BYTES,
                                 &first, &last);
            picture_cell *cell = &panel->cells[(size_t)r * SECTORS + s];
            if (!used) continue;
            if (first == last)
                snprintf(cell->text, sizeof cell->text, "%u", first);
            else
                snprintf(cell->text, sizeof cell->text, "%u-%u", first, last);
            cell->colour = (uint16_t)first;
            cell->marked = used < TVM_SECTOR_BYTES;
        }
    }
}

void tvm_picture_global_access(picture *p, const tvm_layout *layout, uint64_t row, unsigned bits) {
    accesses a;
    uint64_t address[WARP], sectors = 0, lines = 0, used = 0;
    global_rows rows = {row ? row : layout->shape[layout->rank - 1]};
    snprintf(p->title, sizeof p->title, "An access to global rows of %" PRIu64 " elements of %u bits",
             rows.row, bits);
    if (!open_accesses(&a, layout, bits, global_offset, &rows)) p->failed = true;
    unsigned bytes = (a.elements * bits + 7) / 8, lanes = 0;
    for (uint32_t w = 0; !p->failed && w < a.warps; w++)
        for (uint32_t n = 0; n < a.count; n++) {
            lanes = lanes_of(&a, w, n, address);
            lines += tvm_blocks_touched(address, lanes, bytes, TVM_LINE_BYTES);
            sectors += tvm_blocks_touched(address, lanes, bytes, TVM_SECTOR_BYTES);
        }
    if (!p->failed) {
        lanes = lanes_of(&a, 0, 0, address);
        draw_lines(p, address, lanes, bytes);
        used = ((uint64_t)tvm_layout_elements(layout) * bits + 7) / 8;
        tvm_text_add(&p->notes,
                     "%" PRIu32 " warp%s, %" PRIu32 " access%s each of up to %u x %u bytes: %" PRIu64
                     " lines, %" PRIu64 " sectors.\n%" PRIu64 " bytes of %" PRIu64
                     " that are moved, %.0f %%, are of the tile; ! marks sectors "
                     "of which not all is used.\n",
                     a.warps, a.warps > 1 ? "s" : "", a.count, a.count > 1 ? "es" : "", lanes, bytes, lines,
                     sectors, used, sectors * TVM_SECTOR_BYTES,
                     100.0 * (double)used / (double)(sectors * TVM_SECTOR_BYTES));
    }
    free(a.offset);
}
