/* How wgmma's operands lie in shared memory: see wgmma_matrix.h. The canonical forms, with T elements in 16
 * bytes (CUTLASS, include/cute/arch/mma_sm90_desc.hpp, writes them so, too):
 *
 *   along k      row 8i + r at i * stride + r * width, element c of 16 bytes of k at c; the second 16 bytes
 *                at 16, without a swizzle at leading
 *   transposed   step 8i + s of k at i * stride + s * width, row T * j + r at j * 16 + r within `width`, and
 *                then at leading; without a swizzle, i * leading and j * stride */
#include "wgmma_matrix.h"

#include <string.h>

#include "numbers.h"

enum { PIECE = 16, EIGHT = 8 };

/* ---- where elements lie ---- */

bool tvm_wgmma_open(kernel_state *k, const mma_operands *o, bool is_a, wgmma_operand *out) {
    const tvm_operand *tensor = is_a ? o->mma.a.tensor : o->mma.b.tensor;
    const char *name = is_a ? o->mma.atoms->a : o->mma.atoms->b;
    out->is_a = is_a;
    out->layout = is_a ? &o->tile_a : &o->tile_b;
    return tvm_layout_atom(name, strlen(name), &out->atom, NULL) == TVM_OK &&
           tvm_shared_open_layout(k, &out->tile, tensor->value, tensor + 1, out->layout);
}

/* Of an element of a fragment, in bytes. */
static uint32_t place(const wgmma_operand *o, uint32_t warp, uint32_t fragment, uint32_t row, uint32_t k) {
    uint32_t index[] = {o->is_a ? row : k, o->is_a ? k : row}, lane, local, coordinate[TVM_MAX_RANK];
    tvm_layout_locate(&o->atom, index, &lane, &local);
    tvm_layout_map(o->layout, 32 * warp + lane, fragment * tvm_layout_locals(&o->atom) + local, coordinate);
    return tvm_shared_linear(&o->tile, coordinate) * o->tile.bytes;
}

uint32_t tvm_wgmma_offset(const wgmma_operand *o, uint32_t fragment) {
    return place(o, 0, fragment, 0, 0);
}

/* ---- what fragments have in common ---- */

static const char *find_width(const wgmma_operand *o, wgmma_matrix *matrix) {
    const tvm_shared_layout *layout = o->tile.layout;
    unsigned bits = layout->swizzle_bits;
    matrix->width = (uint32_t)PIECE << bits;
    matrix->period = bits ? EIGHT * matrix->width : PIECE;
    bool known = bits == 0 || (bits <= 3 && layout->swizzle_shift == 3 &&
                               (UINT32_C(1) << layout->swizzle_base) * o->tile.bytes == PIECE);
    return known ? NULL
                 : "the tensor's swizzle is not one of wgmma's, swizzle(3, 1 to 3, 3): leave its layout out";
}

static const char *find_groups(const wgmma_operand *o, wgmma_matrix *matrix) {
    uint32_t threads = tvm_layout_threads(o->layout), first = place(o, 0, 0, 0, 0);
    if (threads % WGMMA_THREADS != 0)
        return "the warps are no multiple of 4: write .warps 4, or a multiple of it";
    for (uint32_t g = 0; g < threads / WGMMA_THREADS; g++) {
        matrix->groups[g] = place(o, 4 * g, 0, 0, 0) - first;
        matrix->varies = matrix->varies || matrix->groups[g] != 0;
        for (uint32_t w = 1; w < 4 && !o->is_a; w++)
            if (place(o, 4 * g + w, 0, 0, 0) - first != matrix->groups[g])
                return "the four warps of a group do not have the same b: give c a multiple of 64 rows, or exchange a "
                       "and b";
    }
    return NULL;
}

/* Does the fragment lie so? Rows and steps of k are a sum. */
static bool is_fragment(const wgmma_operand *o, uint32_t row, uint32_t k, uint32_t half) {
    uint32_t steps = WGMMA_STEP / o->tile.bytes, first = place(o, 0, 0, 0, 0);
    for (uint32_t r = 0; r < EIGHT; r++)
        if (place(o, 0, 0, r, 0) != first + r * row) return false;
    for (uint32_t c = 0; c < steps; c++)
        if (place(o, 0, 0, 0, c) != first + c % (steps / 2) * k + c / (steps / 2) * half) return false;
    return true;
}

static const char *find_form(const wgmma_operand *o, wgmma_matrix *matrix) {
    uint32_t bytes = o->tile.bytes, half = place(o, 0, 0, 0, WGMMA_STEP / bytes / 2) - place(o, 0, 0, 0, 0);
    bool swizzled = matrix->width > PIECE;
    if (is_fragment(o, matrix->width, bytes, half) && (half == PIECE || !swizzled)) {
        matrix->leading = half;
        return NULL;
    }
    if (bytes != 2 || !is_fragment(o, bytes, matrix->width, half))
        return "the tile's rows do not lie under one of wgmma's swizzles, swizzle(3, 1 to 3, 3): leave its layout out; "
               "elements of 8 and of 32 bits lie with k last (transpose_b of b)";
    matrix->is_transposed = true;
    *(swizzled ? &matrix->stride : &matrix->leading) = half;
    return NULL;
}

const char *tvm_wgmma_find_matrix(const wgmma_operand *o, wgmma_matrix *matrix) {
    *matrix = (wgmma_matrix){.leading = PIECE};
    const char *why = find_groups(o, matrix);
    if (!why) why = find_width(o, matrix);
    if (!why) why = find_form(o, matrix);
    if (why || o->tile.dynamic_divisor * o->tile.bytes % matrix->period == 0) return why;
    return "the tile's place is not known to be a multiple of 8 rows: give the stage a "
           "dimension of its own";
}

/* ---- eights of rows ---- */

const char *tvm_wgmma_find_eights(wgmma_matrix *matrix, const uint32_t *at, uint32_t count) {
    bool wraps = matrix->is_transposed && matrix->width > PIECE;
    uint32_t beside = wraps ? matrix->width / PIECE : 1, step = EIGHT * matrix->width;
    if (count > beside) step = at[beside] - at[0];
    for (uint32_t i = 0; i < count; i++)
        if (at[i] != at[0] + i % beside * PIECE + i / beside * step)
            return "the tile's rows do not lie one after the other: leave the layout of its tensor out";
    *(wraps ? &matrix->leading : &matrix->stride) = step;
    matrix->eights = count;
    uint32_t least = matrix->width > PIECE ? matrix->period : PIECE;
    bool whole = matrix->stride % least == 0 && matrix->leading % (wraps ? least : PIECE) == 0;
    return whole && step < UINT32_C(1) << 18
               ? NULL
               : "eight rows do not begin in the first of 8 rows: leave the layout out";
}

const char *tvm_wgmma_find_rows(const wgmma_operand *o, wgmma_matrix *matrix) {
    uint32_t at[WGMMA_ROWS], warps = tvm_layout_threads(o->layout) / 32;
    for (uint32_t w = 0; w < warps; w++)
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t offset = place(o, w, 0, EIGHT * half, 0) - matrix->groups[w / 4];
            if (w < 4) at[2 * w + half] = offset;
            if (offset != at[2 * (w % 4) + half])
                return "the groups of four warps do not have the rows alike: leave the layout of c out";
        }
    return tvm_wgmma_find_eights(matrix, at, WGMMA_ROWS);
}

const char *tvm_wgmma_check_beginning(const wgmma_operand *o, const wgmma_matrix *matrix, uint32_t offset) {
    uint32_t groups = tvm_layout_threads(o->layout) / WGMMA_THREADS;
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t first = o->tile.constant * o->tile.bytes + matrix->groups[g] + offset,
                 in_row = first % matrix->width,
                 taken = matrix->is_transposed ? matrix->eights * PIECE : WGMMA_STEP;
        bool fits = matrix->width == PIECE || (matrix->is_transposed && in_row == 0) ||
                    in_row + taken <= matrix->width;
        if (first % PIECE != 0 || first % matrix->period >= matrix->width || !fits)
            return "a step of k does not begin in the first of 8 rows: leave the layout of its tensor out";
    }
    return NULL;
}
