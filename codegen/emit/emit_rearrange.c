/* Instructions that give the elements of a register tensor other places. Where every thread has what its
 * result needs they are other names for registers. Else, best first: movmatrix for what is 8x8 matrices of
 * 16-bit elements transposed, one shuffle a word where lanes of a warp exchange words, scratch memory. */
#include "compute.h"
#include "relayout_plan.h"
#include "scratch.h"
#include "scratch_move.h"

/* ---- other names ---- */

tvm_status tvm_emit_RELABEL(emitter *e, const tvm_insn *insn) {
    uint32_t from = tvm_operands(e->k->kernel, insn)[0].value, words = e->slots[insn->result].words;
    for (uint32_t i = 0; i < words && from != insn->result; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, insn->result, i).name,
                 tvm_slot_word(e, from, i).name);
    tvm_explain(e, "alias", 0, 0, -1, "");
    return TVM_OK;
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
    } ways[] = {[RELAYOUT_IN_THREAD] = {"other registers", emit_in_thread},
                [RELAYOUT_MOVMATRIX] = {"movmatrix", emit_movmatrix},
                [RELAYOUT_SHUFFLES] = {"shuffles", emit_shuffles},
                [RELAYOUT_SCRATCH] = {"through shared memory", emit_scratch}};
    relayout r;
    size_t before = e->body.size;
    bool done = tvm_relayout_plan(&r, e->k->program, e->k->kernel, insn);
    done = done && ways[r.how].emit(e, &r);
    tvm_relayout_free(&r);
    if (!done) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e, ways[r.how].name, 0, tvm_body_lines(e, before), -1,
                r.how == RELAYOUT_SCRATCH ? "shuffles: not one word of one lane for each word" : "");
    return TVM_OK;
}
