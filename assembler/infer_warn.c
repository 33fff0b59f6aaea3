/* Warnings about what no layout makes good: tiles that the threads cannot share evenly, and tensors that need
 * more registers than a thread has. */
#include <string.h>

#include "infer_open.h"
#include "infer_state.h"
#include "report.h"
#include "text.h"

enum { ACCESS_BYTES = 16, MOST_WARPS = 32, NAMED = 3 };

/* ---- tiles ---- */

/* Do the threads share a tile of this shape evenly, where they move `bits` at once? */
static bool is_shared_evenly(const tvm_layout *shape, uint32_t threads, unsigned bits) {
    tvm_layout made;
    return tvm_layout_auto(shape->rank, shape->shape, threads, bits, &made, NULL) == TVM_OK &&
           tvm_layout_replication(&made) == 1;
}

/* Bytes that a thread would move at once of what it holds, were that a power of two: up to `widest`. */
static unsigned bytes_of_half(const tvm_layout *layout, unsigned bits, unsigned widest) {
    uint64_t held = (uint64_t)tvm_layout_locals(layout) * bits / 8;
    unsigned bytes = widest;
    while (bytes > held) bytes /= 2;
    return bytes;
}

static void write_extents(tvm_text *text, const tvm_layout *shape) {
    for (unsigned d = 0; d < shape->rank; d++)
        tvm_text_add(text, "%s%u", d ? ", " : "[", (unsigned)shape->shape[d]);
    tvm_text_puts(text, "]");
}

/* The next longer tile, along the last dimension, that they share; and the number of warps that do. */
static void write_remedy(tvm_text *hint, const tvm_layout *shape, uint32_t threads, unsigned bits) {
    tvm_layout longer = *shape;
    uint32_t *last = &longer.shape[shape->rank - 1], most = 2 * *last, warps = threads / 32;
    while (*last < most && !is_shared_evenly(&longer, threads, bits)) ++*last;
    if (*last == most)
        for (*last /= 2; *last < most && !is_shared_evenly(&longer, threads, 8 * ACCESS_BYTES);) ++*last;
    if (*last < most) {
        tvm_text_puts(hint, "they share ");
        write_extents(hint, &longer);
        tvm_text_puts(hint, " evenly: what is outside of a global tensor is loaded as zero and not stored");
    }
    while (warps > 1 && !is_shared_evenly(shape, 32 * warps, bits)) warps--;
    if (warps > 1) tvm_text_add(hint, "%s.warps %u share this one", hint->size ? "; " : "", (unsigned)warps);
    if (!hint->size) tvm_text_puts(hint, "extents that are powers of two are shared evenly");
}

static void warn_of_tile(tvm_infer_state *in, uint32_t insn, uint32_t slot) {
    const tvm_layout shape = tvm_infer_shape_of(in, slot), layout = tvm_infer_layout(in, in->layout[slot]);
    const tvm_open_slot *made = &in->as->open.slots[slot];
    unsigned own = in->work[slot].dtype.bits, widest = tvm_infer_width(in, insn, own);
    unsigned bytes = tvm_infer_access_bytes(&layout, own, widest), bits = own * (ACCESS_BYTES / widest);
    uint32_t threads = tvm_layout_threads(&layout), elements = tvm_layout_elements(&layout);
    bool replicated = tvm_layout_replication(&layout) > 1,
         global = tvm_infer_space_of(in, insn) == TVM_SPACE_GLOBAL;
    tvm_text hint = {0}, tile = {0};
    if (elements < threads || tvm_infer_line(in, insn, shape.rank) + 1U != shape.rank) return;
    if (replicated ? tvm_layout_locals(&layout) * own <= 8 * ACCESS_BYTES
                   : !global || bytes >= bytes_of_half(&layout, own, widest))
        return;
    write_extents(&tile, &shape);
    write_remedy(&hint, &shape, threads, bits);
    if (replicated)
        tvm_asm_warn(in->as, made->source, made->token, tvm_text_string(&hint),
                     "%u threads do not share the tile %s evenly: each holds %u of its %u elements",
                     (unsigned)threads, tvm_text_string(&tile), (unsigned)tvm_layout_locals(&layout),
                     (unsigned)elements);
    else
        tvm_asm_warn(
            in->as, made->source, made->token, tvm_text_string(&hint),
            "%u threads do not share the tile %s evenly: each moves its %u elements %u bytes at a time",
            (unsigned)threads, tvm_text_string(&tile), (unsigned)tvm_layout_locals(&layout), bytes);
    tvm_text_free(&hint);
    tvm_text_free(&tile);
}

/* Of what is moved in a layout that was chosen for that. */
static void warn_of_tiles(tvm_infer_state *in) {
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        unsigned ordinal;
        if (tvm_infer_space_of(in, i) == TVM_SPACE_NONE || in->kernel->insns[i].op == TVM_OP_MMA) continue;
        uint32_t slot = tvm_infer_moved(in, i, &ordinal);
        if (slot == TVM_NONE || !in->open[slot] || in->layout[slot] == TVM_NONE) continue;
        const tvm_infer_reason *reason = &in->reasons[slot];
        if (reason->why == TVM_WHY_ACCESS && reason->insn == i) warn_of_tile(in, i, slot);
    }
}

/* ---- registers ---- */

/* The tensors that take most behind the instruction. */
static void write_greatest(const tvm_infer_state *in, uint32_t insn, tvm_text *text) {
    uint32_t named[NAMED], count = 0;
    while (count < NAMED) {
        uint32_t best = TVM_NONE, most = 0;
        for (uint32_t s = 0; s < in->slot_count; s++) {
            unsigned i = 0;
            while (i < count && named[i] != s) i++;
            uint32_t words = i == count ? tvm_infer_alive_words(in, s, insn) : 0;
            if (words > most) best = s;
            if (words > most) most = words;
        }
        if (best == TVM_NONE) break;
        tvm_text_add(text, "%s%%%s has %u", count ? ", " : "",
                     tvm_string(in->program, in->kernel->slots[best].name), (unsigned)most);
        named[count++] = best;
    }
}

/* At the head of a loop: of what stands between instructions that follow each other the compiler may compute
 * a part at a time. */
static void warn_of_registers(tvm_infer_state *in) {
    uint32_t at = 0, most = 0, limit = tvm_infer_registers_of_thread(in);
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        bool loop = tvm_insn_class(&in->kernel->insns[i]) == TVM_CLASS_LOOP;
        uint32_t alive = loop ? tvm_infer_alive(in, i) : 0;
        if (alive > most) at = i;
        if (alive > most) most = alive;
    }
    if (most <= limit) return;
    tvm_text greatest = {0};
    write_greatest(in, at, &greatest);
    tvm_asm_warn(in->as, in->as->open.insns[at].source, in->as->open.insns[at].token,
                 "smaller tiles, more .warps, or a tensor in shared memory in place of one in registers",
                 "the tensors of this loop need %u registers of a thread, which has %u: %s", (unsigned)most,
                 (unsigned)limit, tvm_text_string(&greatest));
    tvm_text_free(&greatest);
}

void tvm_infer_warn(tvm_infer_state *in) {
    if (!in->as->open.count) return;
    warn_of_tiles(in);
    warn_of_registers(in);
}
