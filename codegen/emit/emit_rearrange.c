/* Instructions that give the elements of a register tensor other places. Where every thread has what its
 * result needs they are other names for registers. Else, best first: movmatrix for what is 8x8 matrices of
 * 16-bit elements transposed, one shuffle a word where lanes of a warp exchange words, scratch memory. */
#include "caches.h"
#include "compute.h"
#include "numbers.h"
#include "scratch.h"
#include "scratch_tile.h"

#include <stdlib.h>
#include <string.h>

enum { WARP = 32 };

/* ---- other names ---- */

tvm_status tvm_emit_RELABEL(emitter *e, const tvm_insn *insn) {
    uint32_t from = tvm_operands(e->kernel, insn)[0].value, words = e->slots[insn->result].words;
    for (uint32_t i = 0; i < words && from != insn->result; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, insn->result, i).name,
                 tvm_slot_word(e, from, i).name);
    tvm_explain(e, "alias", 0, 0, -1, "");
    return TVM_OK;
}

/* ---- relayout: how ---- */

typedef enum how { IN_THREAD, MOVMATRIX, SHUFFLES, SCRATCH_MEMORY } how;

typedef struct relayout {
    tvm_dtype type;
    tile_side source, result;
    how how;
    uint32_t *map;      /* IN_THREAD: of the result's local index; MOVMATRIX and SHUFFLES: of its word */
    uint32_t *lane_xor; /* SHUFFLES: of each word of the result, to that of word 0 */
    scratch_tile tile;  /* SCRATCH_MEMORY */
} relayout;

static void free_relayout(relayout *r) {
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

/* False without memory. */
static bool plan_relayout(relayout *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          const tvm_insn *insn) {
    uint32_t slot = tvm_operands(kernel, insn)[0].value;
    const tvm_layout *from = &program->layouts[kernel->slots[slot].layout],
                     *to = &program->layouts[kernel->slots[insn->result].layout];
    *r = (relayout){.type = kernel->slots[slot].dtype,
                    .source = {.layout = from, .slot = slot, .locals = tvm_layout_locals(from)},
                    .result = {.layout = to, .slot = insn->result, .locals = tvm_layout_locals(to)}};
    if (is_in_thread(r))
        r->how = IN_THREAD;
    else if (r->map && is_movmatrix(r))
        r->how = MOVMATRIX;
    else if (r->map && is_shuffles(r))
        r->how = SHUFFLES;
    else
        r->how = SCRATCH_MEMORY;
    if (r->map && r->how == SCRATCH_MEMORY)
        tvm_tile_plan(&r->tile, r->type, from->rank, from->shape,
                      (tile_side *const[]){&r->source, &r->result}, 2);
    return r->map != NULL;
}

uint64_t tvm_relayout_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_insn *insn, tvm_target target, uint64_t taken) {
    relayout r;
    (void)target, (void)taken;
    bool known = plan_relayout(&r, program, kernel, insn);
    free_relayout(&r);
    return known && r.how == SCRATCH_MEMORY ? tvm_tile_bytes(&r.tile) : 0;
}

/* ---- relayout: the code ---- */

/* Runs of elements that make words go as words. */
static bool emit_in_thread(emitter *e, const relayout *r) {
    uint32_t each = r->type.bits < 32 && 32 % r->type.bits == 0 ? 32U / r->type.bits : 1,
             from = r->source.slot;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, r->result.slot)) return false;
    for (uint32_t l = 0; l < r->result.locals;) {
        uint32_t run = 1;
        while (run < each && l + run < r->result.locals && r->map[l + run] == r->map[l] + run) run++;
        if (each > 1 && run == each && l % each == 0 && r->map[l] % each == 0) {
            tvm_write_word(e, &writer, tvm_slot_word(e, from, r->map[l] / each));
            l += each;
        } else {
            tvm_write_element(e, &writer, tvm_read_element(e, from, r->map[l++], false));
        }
    }
    tvm_write_end(e, &writer);
    return true;
}

static bool emit_movmatrix(emitter *e, const relayout *r) {
    element_writer writer;
    if (!tvm_write_begin(e, &writer, r->result.slot)) return false;
    for (uint32_t w = 0; w < r->result.locals / 2; w++) {
        reg turned = tvm_new_r(e);
        tvm_emit(e, "movmatrix.sync.aligned.m8n8.trans.b16 %s, %s;", turned.name,
                 tvm_slot_word(e, r->source.slot, r->map[w]).name);
        tvm_write_word(e, &writer, turned);
    }
    tvm_write_end(e, &writer);
    return true;
}

/* The thread that holds the element of a thread's first word, computed at kernel entry: of the coordinates
 * of the element, the digits that make a thread number of the source. */
static reg holder_of_first(emitter *e, const relayout *r) {
    const tvm_layout *layout = r->source.layout;
    uint32_t index[TVM_MAX_RANK], weight = 1;
    reg thread = {""};
    tvm_layout_map(r->result.layout, 0, 0, index);
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t m = layout->spatial[i];
        reg coordinate;
        if (m >= 0 && tvm_thread_coordinate(e, r->result.layout, layout->mode_dim[m], &coordinate)) {
            uint32_t below = 1;
            for (unsigned n = (unsigned)m + 1;
                 n < layout->modes && layout->mode_dim[n] == layout->mode_dim[m]; n++)
                below *= layout->mode_size[n];
            reg digit = tvm_pure_modulo(e, tvm_pure_divide(e, coordinate, below), layout->mode_size[m]);
            digit = tvm_pure_scale(e, digit, weight);
            thread = thread.name[0] ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", thread.name, digit.name) : digit;
        }
        weight *= m < 0 ? (uint32_t)-m : layout->mode_size[m];
    }
    return thread.name[0] ? thread : tvm_pure(e, 'r', "mov.u32 $, 0;");
}

static bool emit_shuffles(emitter *e, const relayout *r) {
    element_writer writer;
    reg holder = holder_of_first(e, r);
    uint32_t words = r->result.locals * r->type.bits / 32;
    if (!tvm_write_begin(e, &writer, r->result.slot)) return false;
    for (uint32_t w = 0; w < words; w++) {
        reg lane = r->lane_xor[w]
                       ? tvm_pure(e, 'r', "xor.b32 $, %s, %u;", holder.name, (unsigned)r->lane_xor[w])
                       : holder;
        reg word = tvm_new_r(e);
        tvm_emit(e, "shfl.sync.idx.b32 %s, %s, %s, 31, 0xffffffff;", word.name,
                 tvm_slot_word(e, r->source.slot, r->map[w]).name, lane.name);
        tvm_write_word(e, &writer, word);
    }
    tvm_write_end(e, &writer);
    return true;
}

static bool emit_scratch(emitter *e, const relayout *r) {
    uint32_t scratch = tvm_scratch_begin(e, tvm_tile_bytes(&r->tile));
    tvm_tile_store(e, &r->tile, &r->source, scratch);
    tvm_scratch_publish(e);
    return tvm_tile_load(e, &r->tile, &r->result, scratch);
}

tvm_status tvm_emit_RELAYOUT(emitter *e, const tvm_insn *insn) {
    static const struct {
        const char *name;
        bool (*emit)(emitter *e, const relayout *r);
    } ways[] = {[IN_THREAD] = {"other registers", emit_in_thread},
                [MOVMATRIX] = {"movmatrix", emit_movmatrix},
                [SHUFFLES] = {"shuffles", emit_shuffles},
                [SCRATCH_MEMORY] = {"through shared memory", emit_scratch}};
    relayout r;
    size_t before = e->body.size;
    bool done = plan_relayout(&r, e->program, e->kernel, insn);
    done = done && ways[r.how].emit(e, &r);
    free_relayout(&r);
    if (!done) return tvm_diag_no_memory(e->diags);
    tvm_explain(e, ways[r.how].name, 0, tvm_body_lines(e, before), -1,
                r.how == SCRATCH_MEMORY ? "shuffles: not one word of one lane for each word" : "");
    return TVM_OK;
}
