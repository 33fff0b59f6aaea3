/* Pictures of register layouts and of shared layouts. What is too large is folded: the first rows and columns
 * are drawn, and notes say what repeats them. */
#include "picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOLDERS_SHOWN = 4, /* more are abbreviated to the first two and the last: 0,1,..,31 */
    ROWS = 32,         /* of a panel for a terminal, */
    LINES = 64,        /* and of all of its panels */
    SHARED_GAP = 1,
    WIDE = 64,       /* rows and columns of a panel of an SVG, */
    WIDE_LINES = 256 /* and rows of all */
};

/* ---- folding ---- */

/* A step of a dimension that repeats what is shown: `count` times, `step` indices further each. */
typedef struct repeat {
    unsigned dim;
    uint32_t step, count;
} repeat;

typedef struct folding {
    uint32_t shown[TVM_MAX_RANK]; /* of each dimension */
    repeat repeats[2 * TVM_MAX_MODES];
    unsigned count;
} folding;

/* The largest divisor of `size` up to `limit`. */
static uint32_t divisor_up_to(uint32_t size, uint32_t limit) {
    uint32_t best = 1;
    for (uint32_t d = 1; d <= limit && d <= size; d++)
        if (size % d == 0) best = d;
    return best;
}

/* A dimension of modes (most significant first) of which at most `limit` indices are to be shown. A mode may
 * be cut: its indices are all one step apart. */
static void fold_dimension(folding *f, unsigned dim, const uint32_t *mode_size, const uint8_t *mode_dim,
                           unsigned modes, uint32_t extent, uint32_t limit) {
    uint32_t below = 1; /* indices that the modes so far span */
    f->shown[dim] = extent;
    if (extent <= limit) return;
    f->shown[dim] = 1;
    for (unsigned m = modes; m-- > 0;) {
        if (mode_dim[m] != dim) continue;
        uint32_t size = mode_size[m], part = 1;
        if (f->shown[dim] == below) part = divisor_up_to(size, limit / below);
        f->shown[dim] *= part;
        if (part < size) f->repeats[f->count++] = (repeat){dim, below * part, size / part};
        below *= size;
    }
}

static const char *dimension_name(unsigned dim, unsigned rank, char name[32]) {
    if (rank == 1) return "elements";
    if (dim + 1 == rank) return "columns";
    if (dim + 2 == rank) return "rows";
    snprintf(name, 32, "indices of dimension %u", dim);
    return name;
}

static void note_shown(picture *p, const folding *f, const uint32_t *shape, unsigned rank) {
    char name[32];
    const char *before = "Shown: ";
    if (!f->count) return;
    for (unsigned d = 0; d < rank; d++) {
        if (f->shown[d] == shape[d]) continue;
        tvm_text_add(&p->notes, "%s%" PRIu32 " of %" PRIu32 " %s", before, f->shown[d], shape[d],
                     dimension_name(d, rank, name));
        before = ", ";
    }
    tvm_text_puts(&p->notes, ". They repeat:\n");
}

static void note_step(picture *p, const repeat *r, unsigned rank) {
    char name[32];
    tvm_text_add(&p->notes, "  every %" PRIu32 " %s, %" PRIu32 " times: ", r->step,
                 dimension_name(r->dim, rank, name), r->count);
}

/* "[0, 1, :, :]" of a panel whose leading indices are these. */
static void title_panel(picture_panel *panel, const uint32_t *index, unsigned rank) {
    if (rank <= 2) return;
    tvm_text_puts(&panel->title, "[");
    for (unsigned d = 0; d + 2 < rank; d++) tvm_text_add(&panel->title, "%" PRIu32 ", ", index[d]);
    tvm_text_puts(&panel->title, ":, :]\n");
}

/* The leading indices of panel number `block`. */
static void unflatten_leading(const folding *f, unsigned rank, uint32_t block, uint32_t *index) {
    for (unsigned d = rank > 2 ? rank - 2U : 0; d-- > 0;) {
        index[d] = block % f->shown[d];
        block /= f->shown[d];
    }
}

static uint32_t leading_count(const folding *f, unsigned rank) {
    uint32_t count = 1;
    for (unsigned d = 0; d + 2 < rank; d++) count *= f->shown[d];
    return count;
}

static int decimal_width(uint32_t number) {
    return snprintf(NULL, 0, "%" PRIu32, number);
}

/* How many cells of a width fit beside the labels; at least one. */
static uint32_t columns_that_fit(const picture *p, int margin, int cell) { /* cell: with its gap */
    if (p->wide) return WIDE;
    int fit = (PICTURE_WIDTH - margin) / cell;
    return fit > 0 ? (uint32_t)fit : 1;
}

/* ---- register layouts ---- */

typedef struct holders {
    const tvm_layout *layout;
    uint32_t offsets[TVM_MAX_THREADS]; /* from the lowest holder of an element to each of them, ascending */
    uint32_t count;
    int local_width;
} holders;

/* A replication digit of size n whose less significant digits make up `below` threads adds multiples of
 * `below`. */
static void find_holders(holders *h) {
    const tvm_layout *layout = h->layout;
    uint32_t below = tvm_layout_threads(layout);
    h->offsets[0] = 0;
    h->count = 1;
    for (unsigned i = 0; i < layout->spatials; i++) {
        int32_t m = layout->spatial[i];
        uint32_t size = m < 0 ? (uint32_t)-m : layout->mode_size[m];
        below /= size;
        if (m >= 0) continue;
        for (uint32_t k = h->count; k-- > 0;)
            for (uint32_t j = size; j-- > 0;) h->offsets[k * size + j] = h->offsets[k] + j * below;
        h->count *= size;
    }
    h->local_width = decimal_width(tvm_layout_locals(layout) - 1);
}

/* "0,4: 1"; returns the text's length. */
static int cell_text(const holders *h, uint32_t thread, uint32_t local, char text[PICTURE_CELL]) {
    bool cut = h->count > HOLDERS_SHOWN;
    int length = 0;
    for (uint32_t k = 0; k < (cut ? 2 : h->count); k++)
        length += snprintf(text + length, (size_t)(PICTURE_CELL - length), "%s%" PRIu32, k ? "," : "",
                           thread + h->offsets[k]);
    if (cut)
        length += snprintf(text + length, (size_t)(PICTURE_CELL - length), ",..,%" PRIu32,
                           thread + h->offsets[h->count - 1]);
    return length +
           snprintf(text + length, (size_t)(PICTURE_CELL - length), ": %*" PRIu32, h->local_width, local);
}

static int widest_cell(const holders *h) {
    int widest = 1;
    char text[PICTURE_CELL];
    for (uint32_t t = 0; t < tvm_layout_threads(h->layout); t++) {
        uint32_t index[TVM_MAX_RANK], lowest, local;
        tvm_layout_map(h->layout, t, 0, index);
        tvm_layout_locate(h->layout, index, &lowest, &local);
        int width = cell_text(h, lowest, local, text);
        if (width > widest) widest = width;
    }
    return widest;
}

/* What a step along the dimension adds, by the digit that its mode is. */
static void note_digit(picture *p, const tvm_layout *layout, const repeat *r) {
    uint32_t below = 1, place = 1;
    unsigned mode = layout->modes;
    while (mode-- > 0) {
        if (layout->mode_dim[mode] != r->dim) continue;
        if (r->step < below * layout->mode_size[mode]) break;
        below *= layout->mode_size[mode];
    }
    for (unsigned i = layout->locals; i-- > 0 && layout->local[i] != mode;)
        place *= layout->mode_size[layout->local[i]];
    bool is_local = false;
    for (unsigned i = 0; i < layout->locals; i++) is_local = is_local || layout->local[i] == mode;
    if (!is_local) {
        place = 1;
        for (unsigned i = layout->spatials; i-- > 0 && layout->spatial[i] != (int32_t)mode;)
            place *= layout->spatial[i] < 0 ? (uint32_t)-layout->spatial[i]
                                            : layout->mode_size[layout->spatial[i]];
    }
    note_step(p, r, layout->rank);
    tvm_text_add(&p->notes, "%s + %" PRIu32 "\n", is_local ? "local" : "thread", place * (r->step / below));
}

/* The colours stand for warps where several are shown, else for threads. */
static void colour_cells(picture *p, const uint32_t *threads) {
    size_t at = 0, cells = 0;
    bool warps = false;
    for (size_t i = 0; i < p->count; i++) cells += (size_t)p->panels[i].rows * p->panels[i].columns;
    for (size_t i = 0; i < cells; i++) warps = warps || threads[i] / 32 != threads[0] / 32;
    for (size_t i = 0; i < p->count; i++)
        for (size_t c = 0; c < (size_t)p->panels[i].rows * p->panels[i].columns; c++, at++)
            p->panels[i].cells[c].colour = (uint16_t)(warps ? threads[at] / 32 : threads[at]);
}

static void fold_layout(const picture *p, const tvm_layout *layout, int cell, folding *f, uint32_t *columns) {
    unsigned rank = layout->rank;
    const uint32_t *shape = layout->shape;
    uint32_t rows = p->wide ? WIDE : ROWS;
    int margin = decimal_width((rank > 1 ? shape[rank - 2] : shape[0]) - 1);
    uint32_t fit = columns_that_fit(p, margin, PICTURE_GAP + cell);
#define FOLD(dim, limit)                                                                                     \
    fold_dimension(f, (dim), layout->mode_size, layout->mode_dim, layout->modes, shape[dim], (limit))
    if (rank == 1) { /* a vector is wrapped into rows of a power of two */
        *columns = 1;
        while (*columns < shape[0] && *columns * 2 <= fit) *columns *= 2;
        FOLD(0, *columns * rows);
        if (*columns > f->shown[0]) *columns = f->shown[0];
        return;
    }
    FOLD(rank - 1, fit);
    *columns = f->shown[rank - 1];
    FOLD(rank - 2, rows);
    uint32_t lines = f->shown[rank - 2], most = p->wide ? WIDE_LINES : LINES;
    for (unsigned d = rank - 2; d-- > 0;) {
        FOLD(d, lines < most ? most / lines : 1);
        lines *= f->shown[d];
    }
#undef FOLD
}

void tvm_picture_layout(picture *p, const tvm_layout *layout) {
    holders h = {.layout = layout};
    folding f = {.count = 0};
    uint32_t columns, index[TVM_MAX_RANK] = {0};
    unsigned rank = layout->rank;
    char text[TVM_LAYOUT_TEXT_MAX];
    find_holders(&h);
    fold_layout(p, layout, widest_cell(&h), &f, &columns);
    snprintf(p->title, sizeof p->title, "%s: thread: local", tvm_layout_text(layout, text));
    uint32_t rows = rank > 1 ? f.shown[rank - 2] : (f.shown[0] + columns - 1) / columns;
    uint32_t blocks = leading_count(&f, rank);
    uint32_t *threads = calloc((size_t)blocks * rows * columns, sizeof *threads), *thread = threads;
    if (!threads) p->failed = true;
    for (uint32_t block = 0; threads && block < blocks; block++) {
        picture_panel *panel = tvm_picture_panel(p, rows, columns);
        if (!panel) break;
        unflatten_leading(&f, rank, block, index);
        title_panel(panel, index, rank);
        for (uint32_t c = 0; c < columns; c++) tvm_picture_number(panel->heads[c], c);
        for (uint32_t r = 0; r < rows; r++) {
            tvm_picture_number(panel->labels[r], rank > 1 ? r : r * columns);
            for (uint32_t c = 0; c < columns; c++, thread++) {
                uint32_t local;
                index[rank - 1] = rank > 1 ? c : r * columns + c;
                if (rank > 1) index[rank - 2] = r;
                if (rank == 1 && index[0] >= f.shown[0]) break;
                tvm_layout_locate(layout, index, thread, &local);
                cell_text(&h, *thread, local, panel->cells[(size_t)r * columns + c].text);
            }
        }
    }
    if (!p->failed) colour_cells(p, threads);
    note_shown(p, &f, layout->shape, rank);
    for (unsigned i = 0; i < f.count; i++) note_digit(p, layout, &f.repeats[i]);
    free(threads);
}

/* ---- shared layouts ---- */

/* Elements of the last dimension, from multiples of as many on, that lie together in up to 16 bytes. */
static uint32_t run_of(const tvm_shared_layout *s, unsigned bits) {
    uint32_t last = s->shape[s->rank - 1], run = 1, rows = 1;
    for (unsigned d = 0; d + 1 < s->rank; d++) rows *= s->shape[d];
    for (uint32_t wider = 2; wider * bits <= 128 && last % wider == 0; wider *= 2) {
        uint32_t index[TVM_MAX_RANK] = {0};
        for (uint32_t row = 0; row < rows; row++) {
            uint32_t rest = row;
            for (unsigned d = s->rank - 1U; d-- > 0; rest /= s->shape[d]) index[d] = rest % s->shape[d];
            for (uint32_t c = 0, first = 0; c < last; c++) {
                index[s->rank - 1] = c;
                uint32_t offset = tvm_shared_layout_offset(s, index);
                if (c % wider == 0) first = offset;
                if (first % wider || offset != first + c % wider) return run;
            }
        }
        run = wider;
    }
    return run;
}

static void shared_cell(const tvm_shared_layout *s, unsigned bits, uint32_t run, const uint32_t *index,
                        picture_cell *cell) {
    uint64_t bit = (uint64_t)tvm_shared_layout_offset(s, index) * bits;
    unsigned line = (unsigned)(bit / 1024), first = (unsigned)(bit / 32 % 32);
    unsigned last = (unsigned)((bit + (uint64_t)run * bits - 1) / 32 % 32);
    if (first == last)
        snprintf(cell->text, sizeof cell->text, "%u:%u", line, first);
    else
        snprintf(cell->text, sizeof cell->text, "%u:%u-%u", line, first, last);
    cell->colour = (uint16_t)(first / (run * bits >= 32 ? run * bits / 32 : 1));
}

/* By how much offsets change with a step along a dimension, where that is the same everywhere and never
 * carries. */
static bool same_step(const tvm_shared_layout *s, const repeat *r, int64_t *change) {
    uint32_t index[TVM_MAX_RANK], elements = 1, outer = r->step * r->count;
    bool first = true;
    for (unsigned d = 0; d < s->rank; d++) elements *= s->shape[d];
    for (uint32_t e = 0; e < elements; e++) {
        uint32_t rest = e;
        for (unsigned d = s->rank; d-- > 0; rest /= s->shape[d]) index[d] = rest % s->shape[d];
        if (index[r->dim] % outer + r->step >= outer) continue;
        int64_t here = tvm_shared_layout_offset(s, index);
        index[r->dim] += r->step;
        int64_t step = (int64_t)tvm_shared_layout_offset(s, index) - here;
        if (!first && step != *change) return false;
        *change = step;
        first = false;
    }
    return true;
}

static void note_offset(picture *p, const tvm_shared_layout *s, const repeat *r, unsigned bits) {
    int64_t change = 0;
    note_step(p, r, s->rank);
    if (!same_step(s, r, &change))
        tvm_text_puts(&p->notes, "in other banks\n");
    else if (change * (int64_t)bits % 1024 == 0)
        tvm_text_add(&p->notes, "line + %" PRId64 "\n", change * (int64_t)bits / 1024);
    else
        tvm_text_add(&p->notes, "%" PRId64 " bytes further\n", change * (int64_t)bits / 8);
}

void tvm_picture_shared(picture *p, const tvm_shared_layout *s, unsigned bits) {
    folding f = {.count = 0};
    char text[TVM_LAYOUT_TEXT_MAX];
    unsigned rank = s->rank;
    uint32_t index[TVM_MAX_RANK] = {0}, run = run_of(s, bits);
    int line = decimal_width((uint32_t)((uint64_t)tvm_shared_layout_span(s) * bits / 1024));
    int margin = rank > 1 ? decimal_width(s->shape[rank - 2] - 1) : 1;
    uint32_t fit = columns_that_fit(p, margin, SHARED_GAP + line + (run * bits > 32 ? 6 : 3));
    uint32_t lines = 1, most = p->wide ? WIDE_LINES : LINES;
    snprintf(p->title, sizeof p->title, "%s: line of 128 bytes: banks of 4 bytes",
             tvm_shared_layout_text(s, text));
    for (unsigned d = rank; d-- > 0;) {
        uint32_t limit = d + 1 == rank ? fit * run : d + 2 == rank ? (p->wide ? WIDE : ROWS) : most / lines;
        fold_dimension(&f, d, s->mode_size, s->mode_dim, s->modes, s->shape[d], limit ? limit : 1);
        if (d + 1 < rank) lines *= f.shown[d];
    }
    while (f.shown[rank - 1] % run) run /= 2;
    uint32_t rows = rank > 1 ? f.shown[rank - 2] : 1, columns = f.shown[rank - 1] / run;
    uint32_t blocks = leading_count(&f, rank);
    for (uint32_t block = 0; block < blocks; block++) {
        picture_panel *panel = tvm_picture_panel(p, rows, columns);
        if (!panel) return;
        panel->gap = SHARED_GAP;
        unflatten_leading(&f, rank, block, index);
        title_panel(panel, index, rank);
        for (uint32_t c = 0; c < columns; c++) tvm_picture_number(panel->heads[c], c * run);
        for (uint32_t r = 0; r < rows; r++) {
            tvm_picture_number(panel->labels[r], r);
            for (uint32_t c = 0; c < columns; c++) {
                index[rank - 1] = c * run;
                if (rank > 1) index[rank - 2] = r;
                shared_cell(s, bits, run, index, &panel->cells[(size_t)r * columns + c]);
            }
        }
    }
    tvm_text_add(&p->notes,
                 "Each cell: %" PRIu32 " element%s of %u bits, by line of 128 bytes: banks of 4 bytes.\n",
                 run, run > 1 ? "s" : "", bits);
    note_shown(p, &f, s->shape, rank);
    for (unsigned i = 0; i < f.count; i++) note_offset(p, s, &f.repeats[i], bits);
}
