/* slice, insert, concat, repeat and repeat-interleave. Where every thread has what its result needs, at
 * places that are the same in all threads, they are other names for registers; else the pieces meet in
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

/* What is inserted comes after what it replaces. */
static bool emit_scratch(emitter *e, const assembly *a) {
    uint32_t scratch = tvm_scratch_begin(e, tvm_tile_bytes(&a->tile));
    tvm_tile_store(e, &a->tile, &a->sides[0], scratch);
    if (a->pieces.op == TVM_OP_INSERT) tvm_scratch_publish(e);
    if (a->pieces.count > 1) tvm_tile_store(e, &a->tile, &a->sides[1], scratch);
    tvm_scratch_publish(e);
    return tvm_tile_load(e, &a->tile, &a->whole, scratch);
}

tvm_status tvm_emit_PIECES(emitter *e, const tvm_insn *insn) {
    assembly a;
    size_t before = e->body.size;
    bool done = tvm_pieces_plan(&a, e->k->program, e->k->kernel, insn), registers = done && a.origins;
    done = done && (registers ? emit_registers : emit_scratch)(e, &a);
    free(a.origins);
    if (!done) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e, registers ? "other registers" : "through shared memory", 0, tvm_body_lines(e, before), -1,
                registers ? "" : "other registers: threads hold other elements");
    return TVM_OK;
}
