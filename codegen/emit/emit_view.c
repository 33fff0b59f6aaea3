/* view-global: the address of the view, and the check that it lies inside of what it views. */
#include <string.h>

#include "analysis.h"
#include "hoist.h"
#include "emit.h"
#include "global_access.h"

/* Is 0 <= index, 0 <= extent and index + extent <= bound known of a dimension? extent TVM_NONE: 1. */
static bool is_proven(emitter *e, uint32_t index, uint32_t extent, uint32_t bound) {
    int64_t at, count = 1;
    if (extent == TVM_NONE || tvm_fact_constant(e->k, extent, &count))
        return count >= 0 && tvm_fact_inside(e->k, index, count, bound);
    return extent == bound && tvm_fact_constant(e->k, index, &at) && at == 0;
}

static reg wide(emitter *e, uint32_t expr) {
    reg value = tvm_emit_expr(e, expr), out = tvm_new_rd(e);
    if (e->k->kernel->exprs[expr].type.bits == 64) return value;
    tvm_emit(e, "cvt.s64.s32 %s, %s;", out.name, value.name);
    return out;
}

/* Unsigned, a negative number is above every extent: bound < index, or bound - index < extent. */
static void check_dimension(emitter *e, uint32_t index, uint32_t extent, uint32_t bound) {
    reg last = wide(e, bound), at = wide(e, index), left = tvm_new_rd(e);
    reg before = tvm_new_pred(e), behind = tvm_new_pred(e), outside = tvm_new_pred(e);
    tvm_emit(e, "setp.lt.u64 %s, %s, %s;", before.name, last.name, at.name);
    tvm_emit(e, "sub.s64 %s, %s, %s;", left.name, last.name, at.name);
    if (extent == TVM_NONE)
        tvm_emit(e, "setp.lt.u64 %s, %s, 1;", behind.name, left.name);
    else
        tvm_emit(e, "setp.lt.u64 %s, %s, %s;", behind.name, left.name, wide(e, extent).name);
    tvm_emit(e, "or.pred %s, %s, %s;", outside.name, before.name, behind.name);
    tvm_emit_trap(e, outside, true);
}

/* How many dimensions had to be checked. */
static unsigned check_part(emitter *e, uint32_t slot, const tvm_view *view) {
    const tvm_slot *made = &e->k->kernel->slots[slot], *base = &e->k->kernel->slots[view->base];
    unsigned checked = 0;
    for (unsigned b = 0; b < view->base_rank; b++) {
        uint32_t extent = TVM_NONE;
        for (unsigned d = 0; d < view->rank; d++)
            if (view->from[d] == b) extent = made->shape[d];
        if (is_proven(e, view->index[b].value, extent, base->shape[b])) continue;
        check_dimension(e, view->index[b].value, extent, base->shape[b]);
        checked++;
    }
    return checked;
}

tvm_status tvm_emit_VIEW_GLOBAL(emitter *e, const tvm_insn *insn) {
    static const uint32_t origin[TVM_MAX_RANK] = {0};
    static const uint64_t nothing[TVM_MAX_RANK] = {0};
    const tensor_place *base;
    tvm_view view;
    global_access g = {0};
    tvm_view_read(e->k->kernel, insn, &view);
    bool at_launch = e->k->kernel->slots[insn->result].at_launch;
    unsigned checked = at_launch ? 0 : check_part(e, insn->result, &view);
    tvm_global_open(e, &g, view.base, view.index, 0);
    reg address = tvm_global_pointer(&g, origin);
    base = &e->slots[view.base].place;
    tensor_place place = {.moves = base->moves, .made_at = e->hoist->scopes};
    for (unsigned d = 0; d < view.base_rank; d++)
        place.moves = place.moves || !tvm_fact_stable(e->k, view.index[d].value);
    e->k->slots[insn->result].alignment = tvm_global_alignment(&g.tile, nothing);
    e->slots[insn->result].place = place;
    memcpy(e->slots[insn->result].reg, address.name, sizeof address.name);
    tvm_explain(e,
                at_launch ? "address, checked by the launch"
                : checked ? "address, checked"
                          : "address",
                0, checked, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_VIEW_SHARED(emitter *e, const tvm_insn *insn) {
    (void)insn; /* where it lies has been planned */
    tvm_explain(e, "alias", 0, 0, -1, "");
    return TVM_OK;
}
