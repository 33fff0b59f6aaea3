#include "relayout_plan.h"

#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "scratch_need.h"

enum { WARP = 32 };

void tvm_relayout_free(relayout *r) {
    free(r->map);
    free(r->lane_xor);
}

static bool is_in_thread(relayout *r) {
    r->map = calloc(r->result.locals, sizeof *r->map);
    return r->map && tvm_layout_broadcasts(r->source.layout, r->result.layout, r->map, NULL);
}

/* Is `from` X of the 8x8 fragment and `to` Y of the transposed one, so that each thread's word of `to` is a
 * word of `from` transposed? Fills map[word]. */
static bool is_transposed(const tvm_layout *from, const tvm_layout *to, uint32_t *map) {
    tvm_layout atom, turned, whole, part;
    if (from->rank < 2 || tvm_layout_atom("ldmatrix", 8, &atom, NULL) != TVM_OK ||
        tvm_layout_permute(&atom, (const uint32_t[]){1, 0}, &turned, NULL) != TVM_OK)
        return false;
    return tvm_layout_divide_right(from, &atom, &whole, NULL) == TVM_OK &&
           tvm_layout_divide_right(to, &turned, &part, NULL) == TVM_OK &&
           tvm_layout_broadcasts(&whole, &part, map, NULL);
}

/* movmatrix is its own inverse. */
static bool is_movmatrix(const relayout *r) {
    const tvm_layout *from = r->source.layout, *to = r->result.layout;
    tvm_layout turned_from, turned_to;
    uint32_t order[TVM_MAX_RANK];
    if (r->type.bits != 16 || from->rank < 2) return false;
    if (is_transposed(from, to, r->map)) return true;
    for (unsigned d = 0; d < from->rank; d++) order[d] = d;
    order[from->rank - 1] = from->rank - 2U;
    order[from->rank - 2] = from->rank - 1U;
    return tvm_layout_permute(from, order, &turned_from, NULL) == TVM_OK &&
           tvm_layout_permute(to, order, &turned_to, NULL) == TVM_OK &&
           is_transposed(&turned_from, &turned_to, r->map);
}

/* Which lane, and which of its words, holds word w of a thread's result: lane and word in *lane and *word;
 * false where its elements do not lie so in one word of the warp. `holder` is of the warp, by element: 1 +
 * lane * locals + local. */
static bool find_word(const relayout *r, const uint32_t *elements, const uint32_t *holder, uint32_t w,
                      uint32_t *lane, uint32_t *word) {
    uint32_t each = 32 / r->type.bits, first = holder[elements[w * each]];
    if (first == 0 || (first - 1) % r->source.locals % each != 0) return false;
    for (uint32_t i = 1; i < each; i++)
        if (holder[elements[w * each + i]] != first + i) return false;
    *lane = (first - 1) / r->source.locals;
    *word = (first - 1) % r->source.locals / each;
    return true;
}

/* The lanes of a warp, against what is known of the block: word w of every thread's result is word map[w] of
 * the lane whose number is lane0(thread) ^ lane_xor[w]. lane0: of word 0, by thread. */
static bool match_warp(const relayout *r, const uint32_t *results, const uint32_t *holder, uint32_t words,
                       uint32_t first_thread) {
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const uint32_t *elements = results + (size_t)lane * r->result.locals;
        uint32_t origin = 0, from, word;
        for (uint32_t w = 0; w < words; w++) {
            if (!find_word(r, elements, holder, w, &from, &word)) return false;
            if (w == 0) {
                uint32_t index[TVM_MAX_RANK], thread, local;
                tvm_layout_map(r->result.layout, first_thread + lane, 0, index);
                tvm_layout_locate(r->source.layout, index, &thread, &local);
                if (thread % WARP != from) return false;
                origin = from;
            }
            if (first_thread + lane == 0) {
                r->map[w] = word;
                r->lane_xor[w] = origin ^ from;
            } else if (r->map[w] != word || r->lane_xor[w] != (origin ^ from)) {
                return false;
            }
        }
    }
    return true;
}

static bool match_warps(const relayout *r, uint32_t *sources, uint32_t *results, uint32_t *holder,
                        uint32_t words) {
    uint32_t threads = tvm_layout_threads(r->source.layout);
    tvm_layout_table(r->source.layout, sources);
    tvm_layout_table(r->result.layout, results);
    for (uint32_t warp = 0; warp < threads; warp += WARP) {
        const uint32_t *from = sources + (size_t)warp * r->source.locals;
        memset(holder, 0, tvm_layout_elements(r->source.layout) * sizeof *holder);
        for (uint32_t i = WARP * r->source.locals; i-- > 0;) holder[from[i]] = 1 + i;
        if (!match_warp(r, results + (size_t)warp * r->result.locals, holder, words, warp)) return false;
    }
    return true;
}

static bool is_shuffles(relayout *r) {
    uint32_t threads = tvm_layout_threads(r->source.layout), each = 32 / r->type.bits;
    if (!tvm_is_power_of_two(r->type.bits) || r->type.bits < 8 || r->type.bits > 32 ||
        r->source.locals % each != 0 || r->result.locals % each != 0)
        return false;
    uint32_t words = r->result.locals / each;
    uint32_t *sources = malloc((size_t)threads * r->source.locals * sizeof *sources);
    uint32_t *results = malloc((size_t)threads * r->result.locals * sizeof *results);
    uint32_t *holder = malloc(tvm_layout_elements(r->source.layout) * sizeof *holder);
    r->lane_xor = calloc(words, sizeof *r->lane_xor);
    bool matched =
        sources && results && holder && r->lane_xor && match_warps(r, sources, results, holder, words);
    free(sources);
    free(results);
    free(holder);
    return matched;
}

bool tvm_relayout_plan(relayout *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_insn *insn) {
    uint32_t slot = tvm_operands(kernel, insn)[0].value;
    const tvm_layout *from = &program->layouts[kernel->slots[slot].layout],
                     *to = &program->layouts[kernel->slots[insn->result].layout];
    *r = (relayout){.type = kernel->slots[slot].dtype,
                    .source = {.layout = from, .slot = slot, .locals = tvm_layout_locals(from)},
                    .result = {.layout = to, .slot = insn->result, .locals = tvm_layout_locals(to)}};
    if (is_in_thread(r))
        r->how = RELAYOUT_IN_THREAD;
    else if (r->map && is_movmatrix(r))
        r->how = RELAYOUT_MOVMATRIX;
    else if (r->map && is_shuffles(r))
        r->how = RELAYOUT_SHUFFLES;
    else
        r->how = RELAYOUT_SCRATCH;
    if (r->map && r->how == RELAYOUT_SCRATCH)
        tvm_tile_plan(&r->tile, r->type, from->rank, from->shape,
                      (tile_side *const[]){&r->source, &r->result}, 2);
    return r->map != NULL;
}

uint64_t tvm_relayout_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_insn *insn, tvm_target target, uint64_t taken) {
    relayout r;
    (void)target, (void)taken;
    bool known = tvm_relayout_plan(&r, program, kernel, insn);
    tvm_relayout_free(&r);
    return known && r.how == RELAYOUT_SCRATCH ? tvm_tile_bytes(&r.tile) : 0;
}
