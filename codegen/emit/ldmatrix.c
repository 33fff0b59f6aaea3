/* ldmatrix and stmatrix: 8x8 matrices of 16-bit elements, whose rows are 16 contiguous bytes (PTX ISA). Word
 * w of every thread, locals 2w and 2w+1, is one matrix: lane i holds elements 2*(i%4) and 2*(i%4)+1 of row
 * i/4, or, transposed, the elements of rows 2*(i%4) and 2*(i%4)+1 in column i/4. Elements of 8 and 32
 * bits are four or one a word in place of two, not transposed. Whether that is so is asked of the linear
 * offsets of all threads. Rows of 16 bytes may begin with 16 elements of 4 or 6 bits, of which ldmatrix makes
 * bytes (shape .m8n16). */
#include "ldmatrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "numbers.h"
#include "own_reads.h"

enum { ROW_BYTES = 16, WORD_BYTES = 4 };

typedef struct matrices {
    const char *what; /* "ldmatrix", "stmatrix" */
    unsigned spread;  /* bits of the elements that rows begin with; 0: rows are what threads get */
    emitter *e;
    shared_access *access;
    const shared_tile *tile; /* of it */
    const shared_lanes *lanes;
    uint32_t slot, words;
    uint32_t in_row, in_word; /* elements */
    const uint32_t *constant; /* by local: linear offset */
    bool transposed;
    uint32_t odd; /* transposed: the offset of the second element of each word from its first */
} matrices;

/* Do the threads' parts have the shape of rows? */
static bool lanes_match(const matrices *m) {
    const uint32_t *offset = m->lanes->offset;
    for (uint32_t t = 0; t < m->tile->threads; t++) {
        uint32_t lane = t % 32, warp = t - lane;
        uint32_t row = m->transposed ? warp + lane % 4 : warp + lane / 4 * 4;
        uint32_t at = m->transposed ? lane / 4 : m->in_word * (lane % 4);
        if (offset[t] != offset[row] + at) return false;
    }
    return true;
}

/* Does every row begin at a multiple of 16 bytes, and hold together? */
static bool words_match(matrices *m) {
    uint32_t align = m->in_row;
    for (uint32_t t = 0; t < m->tile->threads; t++) {
        uint32_t lane = t % 32;
        bool starts_row = m->transposed ? lane / 4 == 0 : lane % 4 == 0;
        if (starts_row) align = (uint32_t)tvm_gcd(align, m->lanes->offset[t]);
    }
    align = (uint32_t)tvm_gcd(align, m->tile->constant);
    align = (uint32_t)tvm_gcd(align, m->tile->dynamic_divisor);
    if (align != m->in_row || tvm_shared_run(m->tile) < m->in_row) return false;
    m->odd = m->in_word > 1 ? m->constant[1] - m->constant[0] : 1;
    for (uint32_t w = 0; w < m->words; w++) {
        const uint32_t *word = m->constant + m->in_word * w;
        if (word[0] % m->in_row != 0) return false;
        for (uint32_t i = 1; i < m->in_word; i++)
            if (word[i] - word[0] != i * m->odd) return false;
    }
    return m->transposed ? m->odd % m->in_row == 0 : m->odd == 1;
}

/* Offsets of the lanes' rows: lane i gives the address of row i%8 of matrix i/8; matrices lie at differences
 * `step` from the first. */
static void row_lanes(const matrices *m, const uint32_t step[4], shared_lanes *rows) {
    for (uint32_t t = 0; t < m->tile->threads; t++) {
        uint32_t lane = t % 32, warp = t - lane, row = lane % 8;
        uint32_t from = m->transposed ? warp + row / 2 : warp + 4 * row;
        rows->offset[t] = m->lanes->offset[from] + (m->transposed ? row % 2 * m->odd : 0) + step[lane / 8];
    }
}

/* The same as PTX: the thread's part at another thread number, and the steps. */
static void row_value(matrices *m, const tvm_layout *layout, const uint32_t step[4], shared_lanes *rows) {
    emitter *e = m->e;
    reg tid = tvm_thread_id(e), low = tvm_pure(e, 'r', "and.b32 $, %s, 7;", tid.name);
    reg warp = tvm_pure(e, 'r', "and.b32 $, %s, 992;", tid.name);
    reg row = m->transposed ? tvm_pure(e, 'r', "shr.u32 $, %s, 1;", low.name)
                            : tvm_pure(e, 'r', "shl.b32 $, %s, 2;", low.name);
    reg thread = tvm_pure(e, 'r', "add.u32 $, %s, %s;", warp.name, row.name),
        sum = tvm_pure(e, 'r', "mov.b32 $, 0;");
    for (unsigned d = 0; d < m->tile->tile_rank; d++) {
        reg at;
        if (!tvm_coordinate_of(e, layout, d, thread, &at) || !tvm_shared_part(e, m->tile, d, at, &at))
            continue;
        sum = tvm_pure(e, 'r', "add.u32 $, %s, %s;", sum.name, at.name);
    }
    if (m->transposed && m->odd != 0) {
        reg odd = tvm_pure(e, 'r', "and.b32 $, %s, 1;", tid.name);
        sum = tvm_pure(e, 'r', "mad.lo.u32 $, %s, %u, %s;", odd.name, m->odd, sum.name);
    }
    reg matrix = tvm_pure(e, 'r', "bfe.u32 $, %s, 3, 2;", tid.name);
    for (uint32_t j = 1; j < 4; j++) {
        if (step[j] == 0) continue;
        reg p = tvm_pure(e, 'p', "setp.eq.u32 $, %s, %u;", matrix.name, j);
        reg extra = tvm_pure(e, 'r', "selp.b32 $, %u, 0, %s;", step[j], p.name);
        sum = tvm_pure(e, 'r', "add.u32 $, %s, %s;", sum.name, extra.name);
    }
    rows->value = sum;
    rows->varies = true;
}

/* Of the warp that has most. */
static unsigned group_conflicts(const matrices *m, const shared_lanes *rows, uint32_t constant,
                                unsigned count) {
    uint32_t address[32];
    unsigned worst = 0;
    for (uint32_t warp = 0; warp < m->tile->threads; warp += 32) {
        for (unsigned lane = 0; lane < 32; lane++)
            address[lane] = tvm_shared_bytes_of(
                m->tile, tvm_shared_swizzle(m->tile->layout,
                                            rows->offset[warp + lane] + constant + m->tile->constant));
        unsigned conflicts = tvm_shared_conflicts(address, 8 * count, 128);
        if (conflicts > worst) worst = conflicts;
    }
    return worst;
}

/* PTX ISA, "ldmatrix": of 16 elements of 4 or 6 bits the rest of 128 bits is padding. */
static const char *unpacking(const matrices *m) {
    return m->spread == 4 ? ".b4x16_p64" : m->spread == 6 ? ".b6x16_p32" : "";
}

/* "m8n8.x4.trans.shared.b16" */
static const char *form_of(const matrices *m, unsigned count, char text[48]) {
    snprintf(text, 48, "%s.x%u%s.shared.%s%s", m->spread ? "m8n16" : "m8n8", count,
             m->transposed ? ".trans" : "", m->spread ? "b8x16" : "b16", unpacking(m));
    return text;
}

static tvm_status emit_groups(matrices *m, const tvm_layout *layout, const char *refused) {
    emitter *e = m->e;
    unsigned count = m->words % 4 == 0 ? 4 : m->words % 2 == 0 ? 2 : 1, worst = 0;
    uint32_t last[4] = {UINT32_MAX, 0, 0, 0};
    shared_lanes *rows = calloc(1, sizeof *rows);
    if (!rows) return tvm_diag_no_memory(e->k->diags);
    for (uint32_t w = 0; w < m->words; w += count) {
        uint32_t step[4] = {0}, plus;
        char list[64];
        for (unsigned j = 1; j < count; j++)
            step[j] = m->constant[m->in_word * (w + j)] - m->constant[m->in_word * w];
        if (memcmp(step, last, sizeof step) != 0) {
            /* Another arrangement of the matrices: other row addresses. */
            rows->group_count = 0;
            row_lanes(m, step, rows);
            row_value(m, layout, step, rows);
            memcpy(last, step, sizeof last);
        }
        reg address = tvm_shared_address(m->access, rows, m->constant[m->in_word * w], &plus);
        unsigned conflicts = group_conflicts(m, rows, m->constant[m->in_word * w], count);
        if (conflicts > worst) worst = conflicts;
        int n = 0;
        for (unsigned j = 0; j < count; j++)
            n += snprintf(list + n, sizeof list - (size_t)n, "%s%s", j ? ", " : "",
                          tvm_slot_word(e, m->slot, w + j).name);
        char form[48];
        if (m->what[0] == 'l')
            tvm_emit(e, "ldmatrix.sync.aligned.%s {%s}, [%s+%u];", form_of(m, count, form), list,
                     address.name, plus);
        else
            tvm_emit(e, "stmatrix.sync.aligned.%s [%s+%u], {%s};", form_of(m, count, form), address.name,
                     plus, list);
    }
    char name[48];
    snprintf(name, sizeof name, "%s.x%u%s%s%s", m->what, count, m->transposed ? ".trans" : "", unpacking(m),
             m->access->guarded ? " guarded" : "");
    tvm_explain(e, name, 128, m->words / count, (int)worst, refused);
    free(rows);
    return TVM_OK;
}

static bool emit_matrices(emitter *e, const char *what, unsigned spread, shared_access *access,
                          const shared_lanes *lanes, const tvm_layout *layout, uint32_t slot,
                          char refused[200], tvm_status *status) {
    const shared_tile *tile = &access->tile;
    char fewer[80];
    uint32_t locals = tvm_layout_locals(layout);
    refused[0] = '\0';
    if (tile->bits > 8 * WORD_BYTES || 8 * WORD_BYTES % tile->bits != 0) return false;
    uint32_t in_word = 8 * WORD_BYTES / tile->bits, forms = tile->bytes == 2 ? 2 : 1;
    if (locals % in_word != 0 || tile->threads % 32 != 0) {
        if (tile->bytes == 2) snprintf(refused, 200, "%s: an odd number of elements a thread", what);
        return false;
    }
    uint32_t *constant = calloc(locals, sizeof *constant);
    if (!constant) {
        *status = tvm_diag_no_memory(e->k->diags);
        return true;
    }
    for (uint32_t i = 0; i < locals; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        tvm_layout_map(layout, 0, i, coordinate);
        constant[i] = tvm_shared_linear(tile, coordinate);
    }
    bool is_load = strcmp(what, "ldmatrix") == 0, shaped = false, taken = false;
    for (uint32_t form = 0; form < forms && !taken; form++) {
        matrices m = {.what = what,
                      .spread = spread,
                      .e = e,
                      .access = access,
                      .tile = tile,
                      .lanes = lanes,
                      .slot = slot,
                      .words = locals / in_word,
                      .in_row = 8 * ROW_BYTES / tile->bits,
                      .in_word = in_word,
                      .constant = constant,
                      .transposed = form == 1};
        if (!lanes_match(&m)) continue;
        /* fence WARP_BARRIER: these are other threads' elements, also where stmatrix stored what is loaded
         * plainly */
        if (is_load && !shaped && tvm_reads_own(e->k, tile->index - 1, layout))
            tvm_emit(e, "bar.warp.sync 0xffffffff;");
        shaped = true;
        if (!words_match(&m)) continue;
        taken = true;
        snprintf(fewer, sizeof fewer, "%s.x4: the matrices of a thread are no multiple of 4", what);
        *status = emit_groups(&m, layout, m.words % 4 == 0 ? "" : fewer);
    }
    if (!taken && (tile->bytes == 2 || spread)) {
        if (shaped)
            snprintf(refused, 200,
                     "%s: rows of %u elements are not 16 contiguous, aligned bytes of the shared tensor",
                     what, 8 * ROW_BYTES / tile->bits);
        else
            snprintf(refused, 200,
                     "%s: the register layout is no multiple of the 8x8 fragment, transposed or not", what);
    }
    free(constant);
    return taken;
}

bool tvm_emit_ldmatrix(emitter *e, shared_access *access, const shared_lanes *lanes, const tvm_layout *layout,
                       uint32_t slot, unsigned spread, char refused[200], tvm_status *status) {
    return emit_matrices(e, "ldmatrix", spread, access, lanes, layout, slot, refused, status);
}

bool tvm_emit_stmatrix(emitter *e, shared_access *access, const shared_lanes *lanes, const tvm_layout *layout,
                       uint32_t slot, char refused[200], tvm_status *status) {
    if (tvm_target_has(e->k->target, TVM_HAS_STMATRIX))
        return emit_matrices(e, "stmatrix", 0, access, lanes, layout, slot, refused, status);
    refused[0] = '\0';
    return false;
}
