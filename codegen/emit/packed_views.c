/* Views of packed codes, and pairs of them: see packed_views.h. */
#include "packed_views.h"

#include <string.h>

reg tvm_hidden_constant(emitter *e, uint32_t value) {
    reg zero = tvm_pure(e, 'r', "shr.u32 $, %s, 16;", tvm_thread_id(e).name);
    return tvm_pure(e, 'r', "or.b32 $, %s, 0x%x;", zero.name, (unsigned)value);
}

void tvm_block_begin(block_views *v, emitter *e, uint32_t slot, uint32_t block) {
    memset(v, 0, sizeof *v);
    v->e = e;
    v->recipe = tvm_pair_recipe_of(tvm_slot_dtype(e->k, slot));
    v->slot = slot;
    v->block = block;
}

reg tvm_block_view(block_views *v, unsigned view) {
    emitter *e = v->e;
    const tvm_pair_recipe *recipe = v->recipe;
    if (view < recipe->words) return tvm_slot_word(e, v->slot, v->block * recipe->words + view);
    if (v->view[view].name[0]) return v->view[view];
    const tvm_pair_view *how = &recipe->view[view - recipe->words];
    reg a = tvm_block_view(v, how->a), d = tvm_new_r(e);
    if (how->op == TVM_VIEW_SHIFT) {
        tvm_emit(e, "shr.u32 %s, %s, %u;", d.name, a.name, (unsigned)how->amount);
    } else if (how->op == TVM_VIEW_ROTATE) {
        tvm_emit(e, "shf.r.wrap.b32 %s, %s, %s, %u;", d.name, a.name, a.name, (unsigned)how->amount);
    } else if (how->op == TVM_VIEW_BYTES) {
        unsigned low = how->amount % 2u, high = 4 + how->amount / 2u;
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%x;", d.name, a.name, tvm_block_view(v, how->b).name,
                 low | high << 4 | (low + 2) << 8 | (high + 2) << 12);
    } else {
        tvm_emit(e, "lop3.b32 %s, %s, %s, 0x%08x, 0xe4;", d.name, a.name, tvm_block_view(v, how->b).name,
                 how->amount * 0x10001u);
    }
    v->view[view] = d;
    return d;
}

/* A view shifted, to the left when distance > 0: within each half, what the caller keeps of it has stayed
 * inside. */
reg tvm_moved_view(block_views *v, unsigned purpose, unsigned view, int distance) {
    emitter *e = v->e;
    const tvm_pair_recipe *recipe = v->recipe;
    unsigned from = view;
    int whole = distance;
    if (view >= recipe->words && recipe->view[view - recipe->words].op == TVM_VIEW_SHIFT && distance != 0) {
        from = recipe->view[view - recipe->words].a;
        whole -= recipe->view[view - recipe->words].amount;
    }
    if (whole == 0 || distance == 0) return tvm_block_view(v, whole == 0 ? from : view);
    if (v->moved[purpose][view].name[0] && v->distance[purpose][view] == distance)
        return v->moved[purpose][view];
    reg d = word_op(e, whole > 0 ? "shl.b32" : "shr.u32", tvm_block_view(v, from),
                    (uint32_t)(whole > 0 ? whole : -whole));
    v->moved[purpose][view] = d;
    v->distance[purpose][view] = distance;
    return d;
}

void tvm_write_pair(emitter *e, element_writer *writer, const tvm_dtype *wide, reg pair) {
    if (!wide) {
        tvm_write_word(e, writer, pair);
        return;
    }
    reg half[2] = {tvm_new_h(e), tvm_new_h(e)};
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", half[0].name, half[1].name, pair.name);
    for (unsigned i = 0; i < 2; i++) tvm_write_element(e, writer, tvm_half_to_f32(e, *wide, half[i]));
}
