/* slice, insert, concat, repeat, repeat-interleave and shift. Where every thread has what its result needs,
 * at places that are the same in all threads, they are other names for registers; else the pieces meet in
 * scratch memory. */
#include "compute.h"
#include "pieces_plan.h"
#include "scratch.h"
#include "scratch_move.h"

#include <stdlib.h>

/* Runs of elements that make words go as words. */
static bool emit_registers(emitter *e, const assembly *a) {
    uint32_t each = a->type.bits < 32 && 32 % a->type.bits == 0 ? 32U / a->type.bits : 1;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, a->result)) return false;
    for (uint32_t l = 0; l < a->locals;) {
        const origin *o = &a->origins[l];
        uint32_t run = 1;
        while (run < each && l + run < a->locals && o[run].piece == o->piece &&
               o[run].local == o->local + run)
            run++;
        if (each > 1 && run == each && l % each == 0 && o->local % each == 0) {
            tvm_write_word(e, &writer, tvm_slot_word(e, a->pieces.slots[o->piece], o->local / each));
            l += each;
        } else {
            tvm_write_element(e, &writer, tvm_read_element(e, a->pieces.slots[o->piece], o->local, false));
            l++;
        }
    }
    tvm_write_end(e, &writer);
    return true;
}

static reg shuffled(emitter *e, reg value, int lanes) {
    reg out = tvm_new_r(e);
    tvm_emit(e, "shfl.sync.%s.b32 %s, %s, %d, %d, 0xffffffff;", lanes > 0 ? "up" : "down", out.name,
             value.name, lanes > 0 ? lanes : -lanes, lanes > 0 ? 0 : 31);
    return out;
}

/* A word of the result: from the word of another lane where `moves`, else the thread's own. */
static reg word_of(emitter *e, const origin *o, reg other, reg own, reg moves) {
    reg value = o->lanes ? shuffled(e, other, o->lanes) : other;
    if (!o->some) return value;
    reg out = tvm_new_r(e);
    tvm_emit(e, "selp.b32 %s, %s, %s, %s;", out.name, value.name, own.name, moves.name);
    return out;
}

/* An element as %r, or as %rd its halves' words. */
static reg element_of(emitter *e, const assembly *a, const origin *o, uint32_t own, reg moves) {
    uint32_t slot = a->pieces.slots[0];
    if (a->type.bits == 64) {
        reg words[2], out = a->type.kind == TVM_KIND_FLOAT ? tvm_new_fd(e) : tvm_new_rd(e);
        for (uint32_t i = 0; i < 2; i++)
            words[i] = word_of(e, o, tvm_slot_word(e, slot, 2 * o->local + i),
                               tvm_slot_word(e, slot, 2 * own + i), moves);
        tvm_emit(e, "mov.b64 %s, {%s, %s};", out.name, words[0].name, words[1].name);
        return out;
    }
    reg other = tvm_read_element(e, slot, o->local, false), mine = tvm_read_element(e, slot, own, false);
    if (!tvm_is_half(a->type)) return word_of(e, o, other, mine, moves);
    reg pair[2] = {tvm_new_r(e), tvm_new_r(e)}, out = tvm_new_h(e), unused = tvm_new_h(e);
    tvm_emit(e, "mov.b32 %s, {%s, %s};", pair[0].name, other.name, other.name);
    tvm_emit(e, "mov.b32 %s, {%s, %s};", pair[1].name, mine.name, mine.name);
    reg word = word_of(e, o, pair[0], pair[1], moves);
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", out.name, unused.name, word.name);
    return out;
}

/* Does an element come to the thread's place? Without a name: to that of every thread. */
static reg moves_of(emitter *e, const assembly *a, const origin *o) {
    reg thread;
    if (!o->some) return (reg){""};
    if (!tvm_thread_coordinate(e, a->layout, a->pieces.axis, &thread))
        thread = tvm_pure(e, 'r', "mov.b32 $, 0;");
    return tvm_pure(e, 'p', "setp.%s.s32 $, %s, %d;", a->pieces.back ? "lt" : "ge", thread.name, o->bound);
}

/* Elements of a word that come from one word of a lane go as it. */
static bool emit_lanes(emitter *e, const assembly *a) {
    uint32_t each = a->type.bits < 32 && 32 % a->type.bits == 0 ? 32U / a->type.bits : 1;
    uint32_t slot = a->pieces.slots[0];
    element_writer writer;
    if (!tvm_write_begin(e, &writer, a->result)) return false;
    for (uint32_t l = 0; l < a->locals;) {
        const origin *o = &a->origins[l];
        uint32_t run = 1;
        reg moves = moves_of(e, a, o);
        while (run < each && l + run < a->locals && o[run].lanes == o->lanes && o[run].some == o->some &&
               o[run].local == o->local + run && o[run].bound == o->bound)
            run++;
        if (each > 1 && run == each && l % each == 0 && o->local % each == 0) {
            tvm_write_word(e, &writer,
                           word_of(e, o, tvm_slot_word(e, slot, o->local / each),
                                   tvm_slot_word(e, slot, l / each), moves));
            l += each;
        } else {
            tvm_write_element(e, &writer, element_of(e, a, o, l, moves));
            l++;
        }
    }
    tvm_write_end(e, &writer);
    return true;
}

/* What is inserted comes after what it replaces. */
static bool emit_scratch(emitter *e, const assembly *a) {
    uint32_t scratch = tvm_scratch_begin(e, tvm_tile_bytes(&a->tile));
    tvm_tile_store(e, &a->tile, &a->sides[0], scratch);
    if (a->overlap) tvm_scratch_publish(e);
    if (a->side_count > 1) tvm_tile_store(e, &a->tile, &a->sides[1], scratch);
    tvm_scratch_publish(e);
    return tvm_tile_load(e, &a->tile, &a->whole, scratch);
}

tvm_status tvm_emit_PIECES(emitter *e, const tvm_insn *insn) {
    assembly a;
    size_t before = e->body.size;
    bool done = tvm_pieces_plan(&a, e->k->program, e->k->kernel, insn), registers = done && a.origins;
    done = done && (a.by_lanes ? emit_lanes : registers ? emit_registers : emit_scratch)(e, &a);
    free(a.origins);
    if (!done) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e,
                a.by_lanes  ? "shuffles"
                : registers ? "other registers"
                            : "through shared memory",
                0, tvm_body_lines(e, before), -1,
                registers ? "" : "other registers: threads hold other elements");
    return TVM_OK;
}
