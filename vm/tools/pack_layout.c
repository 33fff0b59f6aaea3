#include "pack_layout.h"
#include "interp.h"
#include "launch.h"
#include "vbc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_EXTENT = 1 << 16,    /* of a tile */
    MAX_TILE_BITS = 1 << 22, /* so that the tables stay below some 100 MB */
    TILES_DOWN = 2,          /* of the probe that finds the layout */
    TILES_ACROSS = 2,
    CHECKED_DOWN = 2, /* of the one that checks it: unequal */
    CHECKED_ACROSS = 3,
    TILES = TILES_DOWN * TILES_ACROSS,
    WORD = 32
};

static tvm_status refuse(const pack_layout *layout, tvm_diags *diags, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tvm_status refuse(const pack_layout *layout, tvm_diags *diags, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "kernel '%.80s' cannot define a layout: %s",
                        tvm_string(layout->program, layout->kernel->name), text);
}

/* ---- the kernel's parameters ---- */

static uint32_t find_param(const pack_layout *layout, const char *name) {
    for (uint32_t i = 0; i < layout->kernel->param_count; i++)
        if (!strcmp(tvm_string(layout->program, layout->kernel->slots[i].name), name)) return i;
    return TVM_NONE;
}

static bool is_size(const pack_layout *layout, uint32_t param) {
    const tvm_slot *slot = &layout->kernel->slots[param];
    return slot->kind == TVM_SLOT_SCALAR && tvm_dtype_is_integer(slot->dtype);
}

/* Is this extent of w the parameter, nothing else? */
static bool is_extent(const pack_layout *layout, unsigned dim, uint32_t param) {
    const tvm_expr *exprs = layout->kernel->exprs,
                   *expr = &exprs[layout->kernel->slots[layout->w].shape[dim]];
    while (expr->op == TVM_EXPR_CAST) expr = &exprs[expr->a];
    return expr->op == TVM_EXPR_SLOT && expr->a == param;
}

static tvm_status check_signature(pack_layout *layout, tvm_diags *diags) {
    layout->k = find_param(layout, "k");
    layout->n = find_param(layout, "n");
    layout->w = find_param(layout, "w");
    layout->p = find_param(layout, "p");
    static const char signature[] = "it must be NAME(k, n: integers, w: global T[k, n], p: global u8[...])";
    if (layout->kernel->param_count != 4 || layout->k == TVM_NONE || layout->n == TVM_NONE ||
        layout->w == TVM_NONE || layout->p == TVM_NONE || !is_size(layout, layout->k) ||
        !is_size(layout, layout->n))
        return refuse(layout, diags, "%s", signature);
    const tvm_slot *w = &layout->kernel->slots[layout->w], *p = &layout->kernel->slots[layout->p];
    if (w->kind != TVM_SLOT_GLOBAL || w->rank != 2 || !is_extent(layout, 0, layout->k) ||
        !is_extent(layout, 1, layout->n) || p->kind != TVM_SLOT_GLOBAL || !tvm_dtype_same(p->dtype, TVM_U(8)))
        return refuse(layout, diags, "%s", signature);
    layout->type = w->dtype;
    if (tvm_dtype_is_lowbit(w->dtype) || tvm_dtype_same(w->dtype, TVM_U(8)) ||
        tvm_dtype_same(w->dtype, TVM_I(8)))
        return TVM_OK;
    return refuse(layout, diags, "its weights are %s, no type of 8 bits or less", TVM_DTYPE_TEXT(w->dtype));
}

/* Everything a launch of k by n checks; bytes of p. */
static tvm_status check_launch(const pack_layout *layout, int64_t k, int64_t n, uint32_t grid[3],
                               int64_t shape[TVM_MAX_RANK], uint64_t *bytes, tvm_diags *diags) {
    tvm_scalar scalars[TVM_MAX_PARAMS] = {0};
    scalars[layout->k].i = k;
    scalars[layout->n].i = n;
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    tvm_status status = tvm_launch_check(layout->program, layout->kernel, &env, diags);
    memcpy(grid, env.grid, sizeof env.grid);
    if (!status)
        status = tvm_launch_shape(layout->program, layout->kernel, layout->p, &env, shape, bytes, diags);
    return status;
}

tvm_status pack_layout_shape(const pack_layout *layout, int64_t k, int64_t n, int64_t shape[TVM_MAX_RANK],
                             unsigned *rank, uint64_t *bytes, tvm_diags *diags) {
    uint32_t grid[3];
    if (k > INT32_MAX || n > INT32_MAX)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "%" PRId64 " by %" PRId64 " weights are too many for kernel '%s'", k, n,
                            tvm_string(layout->program, layout->kernel->name));
    tvm_status status = check_launch(layout, k, n, grid, shape, bytes, diags);
    if (status) return status;
    *rank = layout->kernel->slots[layout->p].rank;
    uint64_t down = ((uint64_t)k + layout->rows - 1) / layout->rows,
             across = ((uint64_t)n + layout->columns - 1) / layout->columns;
    if (*bytes != down * across * layout->bytes)
        return refuse(layout, diags,
                      "p is not a grid of tiles of %u by %u weights for %" PRId64 " by %" PRId64,
                      layout->rows, layout->columns, k, n);
    return TVM_OK;
}

/* ---- tiles: the extents ---- */

/* 0 when the kernel does not take these sizes. */
static uint64_t bytes_of(const pack_layout *layout, int64_t k, int64_t n) {
    uint32_t grid[3];
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes;
    return check_launch(layout, k, n, grid, shape, &bytes, NULL) ? 0 : bytes;
}

static bool any_legal(const pack_layout *layout, int64_t *k, int64_t *n) {
    static const int64_t sizes[] = {1 << 12, 3 << 12, 5 << 12, 7 << 12, 15 << 12, 105 << 12};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (unsigned i = 0; i < SIZES * SIZES; i++) {
        *k = sizes[i / SIZES];
        *n = sizes[i % SIZES];
        if (bytes_of(layout, *k, *n)) return true;
    }
    return false;
}

/* The largest extent for which p is as large as for the smallest one; 0: none was found. */
static uint32_t tile_extent(const pack_layout *layout, int64_t other, bool of_rows, uint32_t *smallest) {
    uint64_t first = 0;
    uint32_t extent = 0;
    for (uint32_t size = 1; size <= 2 * MAX_EXTENT; size++) {
        uint64_t bytes = of_rows ? bytes_of(layout, size, other) : bytes_of(layout, other, size);
        if (!bytes) continue;
        if (!first) *smallest = size;
        if (first && bytes != first) return extent;
        first = bytes;
        extent = size;
    }
    return 0;
}

static tvm_status find_tile(pack_layout *layout, uint32_t smallest[2], tvm_diags *diags) {
    int64_t k, n;
    if (!any_legal(layout, &k, &n))
        return refuse(layout, diags, "it takes none of the sizes tried, 4096 by 4096 first");
    layout->rows = tile_extent(layout, n, true, &smallest[0]);
    layout->columns = tile_extent(layout, k, false, &smallest[1]);
    if (!layout->rows || !layout->columns || layout->rows > MAX_EXTENT || layout->columns > MAX_EXTENT)
        return refuse(layout, diags, "p does not grow with k and n");
    layout->bytes = bytes_of(layout, layout->rows, layout->columns);
    uint64_t bits = (uint64_t)layout->rows * layout->columns * layout->type.bits;
    if (bits > MAX_TILE_BITS || layout->bytes > MAX_TILE_BITS / 8)
        return refuse(layout, diags, "its tiles of %u by %u weights are too large", layout->rows,
                      layout->columns);
    if (!layout->bytes || layout->bytes * 8 < bits ||
        bytes_of(layout, (int64_t)layout->rows * TILES_DOWN, (int64_t)layout->columns * TILES_ACROSS) !=
            layout->bytes * TILES)
        return refuse(layout, diags, "p is not a grid of tiles of %u by %u weights", layout->rows,
                      layout->columns);
    return TVM_OK;
}

/* ---- tiles: where each bit comes from ---- */

typedef struct pack_probe {
    const pack_layout *layout;
    tvm_interp_kernel *interp;
    unsigned threads;
    int64_t k, n;
    uint8_t *w, *p;
    size_t w_bytes, p_bytes;
} pack_probe;

static tvm_status probe_start(pack_probe *probe, const pack_layout *layout, int64_t k, int64_t n,
                              tvm_diags *diags) {
    probe->k = k;
    probe->n = n;
    probe->w_bytes = (size_t)((uint64_t)k * (uint64_t)n * layout->type.bits / 8);
    probe->p_bytes = (size_t)bytes_of(layout, k, n);
    /* 64-byte alignment is what a launch promises kernels */
    probe->w = aligned_alloc(64, (probe->w_bytes + 63) / 64 * 64 + 64);
    probe->p = aligned_alloc(64, (probe->p_bytes + 63) / 64 * 64 + 64);
    if (!probe->w || !probe->p) return tvm_diag_no_memory(diags);
    memset(probe->w, 0, probe->w_bytes);
    return TVM_OK;
}

static void probe_end(pack_probe *probe) {
    free(probe->w);
    free(probe->p);
    probe->w = probe->p = NULL;
}

static tvm_status probe_run(pack_probe *probe, tvm_diags *diags) {
    const pack_layout *layout = probe->layout;
    tvm_interp_arg args[4] = {{.data = NULL}};
    args[layout->k].scalar.i = probe->k;
    args[layout->n].scalar.i = probe->n;
    args[layout->w].data = probe->w;
    args[layout->p].data = probe->p;
    uint32_t grid[3];
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes;
    memset(probe->p, 0, probe->p_bytes);
    tvm_status status = check_launch(layout, probe->k, probe->n, grid, shape, &bytes, diags);
    if (status || !grid[0] || !grid[1] || !grid[2]) return status;
    tvm_interp_options options = {.threads = probe->threads};
    return tvm_interp_run(probe->interp, args, grid, &options, diags);
}

/* What zero codes become, the same in every tile. */
static tvm_status find_complement(pack_probe *probe, uint32_t *complement, tvm_diags *diags) {
    const pack_layout *layout = probe->layout;
    memset(probe->w, 0, probe->w_bytes);
    tvm_status status = probe_run(probe, diags);
    for (unsigned tile = 1; !status && tile < TILES; tile++)
        if (memcmp(probe->p, probe->p + tile * layout->bytes, layout->bytes))
            status = refuse(layout, diags, "zero weights do not give the same in every tile");
    if (!status) memcpy(complement, probe->p, layout->bytes);
    return status;
}

/* Weight bit number i of the probe is bit t of i + 1 in run t: an output bit's values over all runs, against
 * that of zeros, spell where it comes from, or 0 when it is always the same. */
static tvm_status find_sources(pack_probe *probe, uint32_t *sources, tvm_diags *diags) {
    const uint8_t *zeros = (const uint8_t *)probe->layout->complement;
    size_t in = probe->w_bytes * 8, out = probe->p_bytes * 8;
    tvm_status status = TVM_OK;
    memset(sources, 0, out * sizeof *sources);
    for (unsigned t = 0; !status && in >> t; t++) {
        for (size_t i = 0; i < probe->w_bytes; i++) {
            unsigned byte = 0;
            for (unsigned b = 0; b < 8; b++) byte |= (unsigned)((8 * i + b + 1) >> t & 1) << b;
            probe->w[i] = (uint8_t)byte;
        }
        status = probe_run(probe, diags);
        for (size_t i = 0; !status && i < probe->p_bytes; i++)
            for (unsigned b = 0, from = probe->p[i] ^ zeros[i % probe->layout->bytes]; b < 8; b++)
                sources[8 * i + b] |= (uint32_t)(from >> b & 1) << t;
    }
    return status;
}

/* Refuses a layout in which a bit of the packed tensor is one whatever the weights are. */
static tvm_status check_constants(const pack_probe *probe, const uint32_t *sources, tvm_diags *diags) {
    const pack_layout *layout = probe->layout;
    const uint8_t *zeros = (const uint8_t *)layout->complement;
    for (size_t i = 0; i < layout->bytes * 8; i++)
        if (!sources[i] && zeros[i / 8] >> i % 8 & 1)
            return refuse(layout, diags, "it writes bits that are no weight's");
    return TVM_OK;
}

/* A source within its tile: row-major bit number + 1; 0 for none. *tile is the number of the tile, row-major.
 */
static uint32_t within_tile(const pack_layout *layout, uint32_t source, unsigned *tile) {
    if (!source) return 0;
    uint32_t bits = layout->type.bits, element = (source - 1) / bits, bit = (source - 1) % bits;
    uint32_t width = layout->columns * TILES_ACROSS, row = element / width, column = element % width;
    *tile = row / layout->rows * TILES_ACROSS + column / layout->columns;
    return ((row % layout->rows) * layout->columns + column % layout->columns) * bits + bit + 1;
}

static unsigned tile_at(bool down, unsigned place) {
    return down ? place % TILES_DOWN * TILES_ACROSS + place / TILES_DOWN : place;
}

/* Brings the sources of the first tile to bit numbers within the tile, and checks that all others have the
 * same. */
static tvm_status check_tiles(pack_layout *layout, uint32_t *sources, size_t in, tvm_diags *diags) {
    size_t bits = layout->bytes * 8;
    unsigned second = 0;
    for (size_t i = 0; i < bits; i++)
        if (sources[bits + i]) within_tile(layout, sources[bits + i], &second);
    layout->down = second != 1;
    for (unsigned place = 0; place < TILES; place++)
        for (size_t i = 0; i < bits; i++) {
            unsigned expected = tile_at(layout->down, place), tile = expected;
            uint32_t source = sources[place * bits + i];
            if (source > in) return refuse(layout, diags, "it writes bits that are no weight's");
            uint32_t here = within_tile(layout, source, &tile);
            if (!place) sources[i] = here;
            if (here != sources[i] || tile != expected)
                return refuse(layout, diags,
                              "not every tile of %u by %u weights stands by itself in p, in the same order",
                              layout->rows, layout->columns);
        }
    return TVM_OK;
}

static tvm_status check_complete(const pack_layout *layout, const uint32_t *sources, tvm_diags *diags) {
    size_t count = (size_t)layout->rows * layout->columns * layout->type.bits, found = 0;
    uint8_t *seen = calloc(count + 1, 1);
    if (!seen) return tvm_diag_no_memory(diags);
    for (size_t i = 0; i < layout->bytes * 8; i++) {
        if (sources[i] && !seen[sources[i]]) found++;
        seen[sources[i]] = 1;
    }
    free(seen);
    return found == count ? TVM_OK : refuse(layout, diags, "not all bits of the weights are in p");
}

/* ---- tiles: moves ---- */

/* The bits of a code that go into a word with one shift. */
typedef struct fragment {
    uint32_t element;
    int shift;
    uint8_t mask;
} fragment;

static unsigned word_fragments(const pack_layout *layout, const uint32_t *sources, size_t word,
                               fragment fragments[WORD]) {
    unsigned count = 0;
    for (unsigned position = 0; position < WORD; position++) {
        size_t i = word * WORD + position;
        if (i >= layout->bytes * 8 || !sources[i]) continue;
        uint32_t element = (sources[i] - 1) / layout->type.bits, bit = (sources[i] - 1) % layout->type.bits;
        int shift = (int)position - (int)bit;
        unsigned f = 0;
        while (f < count && (fragments[f].element != element || fragments[f].shift != shift)) f++;
        if (f == count) fragments[count++] = (fragment){.element = element, .shift = shift};
        fragments[f].mask |= (uint8_t)(1u << bit);
    }
    return count;
}

static tvm_status make_moves(pack_layout *layout, const uint32_t *sources, tvm_diags *diags) {
    fragment fragments[WORD];
    pack_moves *moves = &layout->moves;
    moves->words = (layout->bytes + 3) / 4;
    for (size_t w = 0; w < moves->words; w++) {
        unsigned count = word_fragments(layout, sources, w, fragments);
        if (count > moves->slots) moves->slots = count;
    }
    size_t entries = moves->words * moves->slots;
    uint32_t *source = layout->tables = calloc(entries + 1, sizeof *source + 3);
    if (!source) return tvm_diag_no_memory(diags);
    uint8_t *mask = (uint8_t *)(source + entries), *left = mask + entries, *right = left + entries;
    for (size_t w = 0; w < moves->words; w++) {
        unsigned count = word_fragments(layout, sources, w, fragments);
        for (unsigned f = 0; f < count; f++) {
            size_t at = f * moves->words + w;
            source[at] = fragments[f].element;
            mask[at] = fragments[f].mask;
            left[at] = (uint8_t)(fragments[f].shift > 0 ? fragments[f].shift : 0);
            right[at] = (uint8_t)(fragments[f].shift < 0 ? -fragments[f].shift : 0);
        }
    }
    moves->source = source;
    moves->mask = mask;
    moves->left = left;
    moves->right = right;
    return TVM_OK;
}

void pack_layout_tile(const pack_layout *layout, const uint8_t *codes, void *scratch, uint8_t *tile) {
    uint32_t *words = scratch;
    tvm_pack_move(&layout->moves, codes, (uint8_t *)(words + layout->moves.words), words);
    for (size_t w = 0; w < layout->moves.words; w++) words[w] ^= layout->complement[w];
    memcpy(tile, words, layout->bytes);
}

void pack_layout_untile(const pack_layout *layout, const void *tile, uint8_t *codes) {
    const pack_moves *moves = &layout->moves;
    const uint32_t *words = tile;
    memset(codes, 0, (size_t)layout->rows * layout->columns);
    for (unsigned s = 0; s < moves->slots; s++) {
        const uint32_t *source = moves->source + s * moves->words;
        const uint8_t *mask = moves->mask + s * moves->words, *left = moves->left + s * moves->words,
                      *right = moves->right + s * moves->words;
        for (size_t w = 0; w < moves->words; w++)
            codes[source[w]] |=
                (uint8_t)((words[w] ^ layout->complement[w]) << right[w] >> left[w]) & mask[w];
    }
}

/* ---- all of it ---- */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Is p of the probe what the moves make of w, tile by tile, zeros past the edge? */
static tvm_status compare(const pack_probe *probe, tvm_diags *diags) {
    const pack_layout *layout = probe->layout;
    size_t size = (size_t)layout->rows * layout->columns;
    uint8_t *codes = calloc(size + layout->bytes + pack_layout_scratch(layout) + 4, 1);
    if (!codes) return tvm_diag_no_memory(diags);
    uint8_t *tile = codes + size;
    uint8_t *scratch = tile + layout->bytes + (4 - (size + layout->bytes) % 4) % 4;
    uint64_t k = (uint64_t)probe->k, n = (uint64_t)probe->n;
    bool same = true;
    for (uint64_t i = 0; i < k; i += layout->rows)
        for (uint64_t j = 0; j < n; j += layout->columns) {
            memset(codes, 0, size);
            for (uint64_t r = 0; r < layout->rows && i + r < k; r++)
                for (uint64_t c = 0; c < layout->columns && j + c < n; c++)
                    codes[r * layout->columns + c] = (uint8_t)tvm_bits_get(
                        probe->w, ((i + r) * n + j + c) * layout->type.bits, layout->type.bits);
            pack_layout_tile(layout, codes, scratch, tile);
            uint64_t place = pack_layout_place(layout, k, n, i / layout->rows, j / layout->columns);
            same = same && !memcmp(tile, probe->p + place, layout->bytes);
        }
    free(codes);
    return same ? TVM_OK
                : refuse(layout, diags, "it does more than move bits within tiles of %u by %u weights",
                         layout->rows, layout->columns);
}

/* Random weights, not whole tiles where the kernel takes that. */
static tvm_status check_random(pack_probe *probe, const uint32_t smallest[2], tvm_diags *diags) {
    const pack_layout *layout = probe->layout;
    int64_t k = (int64_t)layout->rows * CHECKED_DOWN, n = (int64_t)layout->columns * CHECKED_ACROSS;
    if (bytes_of(layout, k + smallest[0], n)) k += smallest[0];
    if (bytes_of(layout, k, n + smallest[1])) n += smallest[1];
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    tvm_status status = probe_start(probe, layout, k, n, diags);
    for (size_t i = 0; !status && i < probe->w_bytes; i++) probe->w[i] = (uint8_t)(next_random(&state) >> 32);
    if (!status) status = probe_run(probe, diags);
    if (!status) status = compare(probe, diags);
    probe_end(probe);
    return status;
}

static tvm_status find_moves(pack_layout *layout, pack_probe *probe, tvm_diags *diags) {
    tvm_status status = probe_start(probe, layout, (int64_t)layout->rows * TILES_DOWN,
                                    (int64_t)layout->columns * TILES_ACROSS, diags);
    uint32_t *sources = status ? NULL : calloc(probe->p_bytes * 8, sizeof *sources);
    layout->complement = status ? NULL : calloc((layout->bytes + 3) / 4, sizeof *layout->complement);
    if (!status && (!sources || !layout->complement)) status = tvm_diag_no_memory(diags);
    if (!status) status = find_complement(probe, layout->complement, diags);
    if (!status) status = find_sources(probe, sources, diags);
    if (!status) status = check_constants(probe, sources, diags);
    if (!status) status = check_tiles(layout, sources, probe->w_bytes * 8, diags);
    if (!status) status = check_complete(layout, sources, diags);
    if (!status) status = make_moves(layout, sources, diags);
    free(sources);
    probe_end(probe);
    return status;
}

tvm_status pack_layout_open(const char *path, const char *kernel, unsigned threads, pack_layout *layout,
                            tvm_diags *diags) {
    *layout = (pack_layout){0};
    tvm_place place = {.file = path};
    tvm_status status = tvm_vbc_read_file(path, &layout->program, diags);
    if (status) return status;
    layout->kernel = tvm_find_kernel(layout->program, kernel ? kernel : "pack");
    if (!layout->kernel)
        return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL, "the program has no kernel '%s'",
                            kernel ? kernel : "pack");
    uint64_t hash[2];
    status = tvm_vbc_hash(layout->program, hash, diags);
    if (status) return status;
    snprintf(layout->hash, sizeof layout->hash, "%016" PRIx64 "%016" PRIx64, hash[0], hash[1]);
    uint32_t smallest[2] = {0};
    pack_probe probe = {.layout = layout, .threads = threads};
    status = check_signature(layout, diags);
    if (!status) status = find_tile(layout, smallest, diags);
    if (!status) status = tvm_interp_prepare(layout->program, layout->kernel, &probe.interp, diags);
    if (!status) status = find_moves(layout, &probe, diags);
    if (!status) status = check_random(&probe, smallest, diags);
    if (probe.interp) tvm_interp_free(probe.interp);
    return status;
}

void pack_layout_free(pack_layout *layout) {
    tvm_ir_program_free(layout->program);
    free(layout->tables);
    free(layout->complement);
    *layout = (pack_layout){0};
}
