#include "pieces_plan.h"

#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "scratch_need.h"

enum { WARP = 32 };

/* The place of an element in the tensor of its result. */
typedef struct place {
    uint32_t at[TVM_MAX_RANK];
} place;

/* What a layout's digits add up to: element (t, l) lies at threads[t] + locals[l]. */
typedef struct places {
    place *threads, *locals;
} places;

static bool find_places(const tvm_layout *layout, places *out) {
    uint32_t threads = tvm_layout_threads(layout), locals = tvm_layout_locals(layout);
    out->threads = calloc((size_t)threads + locals, sizeof *out->threads);
    if (!out->threads) return false;
    out->locals = out->threads + threads;
    for (uint32_t t = 0; t < threads; t++) tvm_layout_map(layout, t, 0, out->threads[t].at);
    for (uint32_t l = 0; l < locals; l++) tvm_layout_map(layout, 0, l, out->locals[l].at);
    return true;
}

/* The element of a piece, in row-major order, that the result has for element (thread, l). */
static uint32_t source_of(const assembly *a, const places *p, uint32_t thread, uint32_t l, unsigned *piece) {
    uint32_t index[TVM_MAX_RANK], from[TVM_MAX_RANK], flat = 0;
    for (unsigned d = 0; d < a->layout->rank; d++) index[d] = p->threads[thread].at[d] + p->locals[l].at[d];
    *piece = tvm_pieces_origin(&a->pieces, index, from);
    for (unsigned d = 0; d < a->pieces.rank; d++) flat = flat * a->pieces.shapes[*piece][d] + from[d];
    return flat;
}

/* Has every thread the element of the result's local l where thread 0 has it? */
static bool find_origin(assembly *a, const places *p, uint32_t l, uint32_t *const *tables) {
    origin *o = &a->origins[l];
    uint32_t flat = source_of(a, p, 0, l, &o->piece), threads = tvm_layout_threads(a->layout);
    uint32_t locals = tvm_layout_locals(a->layouts[o->piece]);
    while (o->local < locals && tables[o->piece][o->local] != flat) o->local++;
    if (o->local == locals) return false;
    for (uint32_t t = 1; t < threads; t++) {
        unsigned piece;
        flat = source_of(a, p, t, l, &piece);
        if (piece != o->piece || tables[piece][(size_t)t * locals + o->local] != flat) return false;
    }
    return true;
}

static bool find_origins(assembly *a, const places *p, uint32_t *const *tables) {
    for (uint32_t l = 0; l < a->locals; l++)
        if (!find_origin(a, p, l, tables)) return false;
    return true;
}

/* ---- shift, between the lanes of warps ---- */

/* Do all threads to whose local l another element comes have it from local `from` of the thread so many lanes
 * before? */
static bool all_from(const assembly *a, const places *p, uint32_t l, int lanes, uint32_t from,
                     const uint32_t *table) {
    uint32_t threads = tvm_layout_threads(a->layout);
    for (uint32_t t = 0; t < threads; t++) {
        unsigned piece;
        int lane = (int)(t % WARP) - lanes;
        if (!tvm_shift_moves(&a->pieces, p->threads[t].at[a->pieces.axis] + p->locals[l].at[a->pieces.axis]))
            continue;
        if (lane < 0 || lane >= WARP) return false;
        if (table[(size_t)((int)t - lanes) * a->locals + from] != source_of(a, p, t, l, &piece)) return false;
    }
    return true;
}

/* The first thread to whose place an element comes has it from a lane of its warp: is it so of the others,
 * too? */
static bool find_lane(assembly *a, const places *p, uint32_t l, const uint32_t *table) {
    origin *o = &a->origins[l];
    uint32_t threads = tvm_layout_threads(a->layout), at = p->locals[l].at[a->pieces.axis], first = threads;
    *o = (origin){.local = l};
    for (uint32_t t = threads; t-- > 0;)
        if (tvm_shift_moves(&a->pieces, p->threads[t].at[a->pieces.axis] + at))
            first = t;
        else
            o->some = true;
    if (first == threads) return true;
    uint32_t wanted = source_of(a, p, first, l, &o->piece);
    for (uint32_t other = first / WARP * WARP; other < first / WARP * WARP + WARP; other++)
        for (uint32_t from = 0; from < a->locals; from++)
            if (table[(size_t)other * a->locals + from] == wanted &&
                all_from(a, p, l, (int)first - (int)other, from, table)) {
                o->local = from;
                o->lanes = (int)first - (int)other;
                return true;
            }
    return false;
}

/* Bounds are rounded to what the threads' coordinates are multiples of, so that locals have them in common.
 */
static bool find_lanes(assembly *a, const places *p, const uint32_t *table) {
    unsigned axis = a->pieces.axis;
    uint32_t step = 0, threads = tvm_layout_threads(a->layout);
    for (uint32_t t = 0; t < threads; t++) step = (uint32_t)tvm_gcd(step, p->threads[t].at[axis]);
    for (uint32_t l = 0; l < a->locals; l++) {
        int by = (int)a->pieces.times, end = a->pieces.back ? (int)a->layout->shape[axis] - by : by;
        int bound = end - (int)p->locals[l].at[axis], up = (int)(step ? step : 1);
        if (!find_lane(a, p, l, table)) return false;
        a->origins[l].bound = bound <= 0 ? 0 : (bound + up - 1) / up * up;
    }
    return true;
}

/* ---- through scratch memory ---- */

static tile_side side_of(const tvm_layout *layout, uint32_t slot) {
    return (tile_side){.layout = layout, .slot = slot, .locals = tvm_layout_locals(layout)};
}

/* What is shifted is stored twice: as it is, and over that so many places further. */
static void plan_shift(assembly *a, uint32_t *shape) {
    tile_side *further = a->pieces.back ? &a->sides[0] : &a->sides[1];
    a->sides[1] = a->sides[0];
    further->offset[a->pieces.axis] = a->pieces.times;
    if (a->pieces.back) a->whole.offset[a->pieces.axis] = a->pieces.times;
    shape[a->pieces.axis] += a->pieces.times;
    a->side_count = 2;
}

/* The scratch tile is the source of a slice, and the result of what is made of two. */
static void plan_tile(assembly *a) {
    tile_side *sides[3] = {&a->sides[0], &a->whole, &a->sides[1]};
    const tvm_layout *space = a->pieces.op == TVM_OP_SLICE ? a->layouts[0] : a->layout;
    uint32_t shape[TVM_MAX_RANK];
    memcpy(shape, space->shape, sizeof shape);
    a->side_count = a->pieces.count;
    a->overlap = a->pieces.op == TVM_OP_INSERT || a->pieces.op == TVM_OP_SHIFT;
    for (unsigned p = 0; p < a->pieces.count; p++) a->sides[p] = side_of(a->layouts[p], a->pieces.slots[p]);
    a->whole = side_of(a->layout, a->result);
    if (a->pieces.op == TVM_OP_SLICE) memcpy(a->whole.offset, a->pieces.offset, sizeof a->whole.offset);
    if (a->pieces.op == TVM_OP_INSERT)
        memcpy(a->sides[1].offset, a->pieces.offset, sizeof a->sides[1].offset);
    if (a->pieces.op == TVM_OP_CONCAT)
        a->sides[1].offset[a->pieces.axis] = a->pieces.shapes[0][a->pieces.axis];
    if (a->pieces.op == TVM_OP_SHIFT) plan_shift(a, shape);
    tvm_tile_plan(&a->tile, a->type, space->rank, shape, sides, 1 + a->side_count);
}

bool tvm_pieces_plan(assembly *a, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_insn *insn) {
    uint32_t *tables[2] = {NULL, NULL};
    *a = (assembly){.result = insn->result, .layout = &program->layouts[kernel->slots[insn->result].layout]};
    tvm_pieces_of(program, kernel, insn, tvm_operands(kernel, insn), &a->pieces);
    a->type = kernel->slots[insn->result].dtype;
    a->locals = tvm_layout_locals(a->layout);
    a->origins = calloc(a->locals, sizeof *a->origins);
    places result = {NULL, NULL};
    bool good = a->origins != NULL && find_places(a->layout, &result);
    for (unsigned p = 0; p < a->pieces.count; p++) {
        a->layouts[p] = &program->layouts[kernel->slots[a->pieces.slots[p]].layout];
        size_t entries = (size_t)tvm_layout_threads(a->layouts[p]) * tvm_layout_locals(a->layouts[p]);
        tables[p] = malloc(entries * sizeof *tables[p]);
        good = good && tables[p];
        if (good) tvm_layout_table(a->layouts[p], tables[p]);
    }
    bool same = good && find_origins(a, &result, tables);
    a->by_lanes = good && !same && a->pieces.op == TVM_OP_SHIFT && find_lanes(a, &result, tables[0]);
    if (good && !same && !a->by_lanes) {
        free(a->origins);
        a->origins = NULL;
        plan_tile(a);
    }
    free(result.threads);
    free(tables[0]);
    free(tables[1]);
    return good;
}

uint64_t tvm_pieces_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                            tvm_target target, uint64_t taken) {
    assembly a;
    (void)target, (void)taken;
    bool good = tvm_pieces_plan(&a, program, kernel, insn), through = good && !a.origins;
    free(a.origins);
    return through ? tvm_tile_bytes(&a.tile) : 0;
}
