/* Views of global tensors. */
#include "interp_impl.h"

#include <string.h>

#include "view.h"

INTERP_NO_PLAN(VIEW_GLOBAL)

static tvm_status fail(const interp_context *context, const interp_insn *insn, uint32_t base,
                       const char *why) {
    const tvm_interp_kernel *k = context->block->kernel;
    return tvm_interp_fail(context, insn, "view '%%%s' of '%s%s': %s",
                           interp_slot_name(k, insn->source->result), interp_sigil(k, base),
                           interp_slot_name(k, base), why);
}

tvm_status tvm_interp_VIEW_GLOBAL(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t slot = insn->source->result;
    tvm_view view;
    tvm_why why;
    tvm_view_read(k->kernel, insn->source, &view);
    const interp_global *base = interp_global_of(context, view.base);
    interp_global made = *interp_run_global(context->block->run, slot);
    if (!made.known)
        return fail(context, insn, view.base, "an extent or a stride is negative or has no value");
    tvm_view_numbers n = {
        .form = (tvm_global_form)interp_slot(k, slot)->form, .base_rank = view.base_rank, .rank = view.rank};
    memcpy(n.from, view.from, sizeof n.from);
    memcpy(n.base_shape, base->shape, sizeof n.base_shape);
    memcpy(n.shape, made.shape, sizeof n.shape);
    memcpy(n.stride, made.stride, sizeof n.stride);
    tvm_status status = tvm_interp_index(context, insn, 0, view.base_rank, n.index);
    if (status != TVM_OK) return status;
    if (tvm_view_inside(&n, &why) != TVM_OK) return fail(context, insn, view.base, why.text);
    int64_t bits = 0;
    for (unsigned d = 0; d < view.base_rank; d++)
        bits += n.index[d] * base->stride[d] * interp_slot(k, slot)->dtype.bits;
    made.data = base->data ? (uint8_t *)base->data + bits / 8 : NULL;
    *interp_global_of(context, slot) = made;
    return TVM_OK;
}

/* ---- of shared tensors: where they lie has been planned ---- */

INTERP_NO_PLAN(VIEW_SHARED)

tvm_status tvm_interp_VIEW_SHARED(interp_context *context, const interp_insn *insn) {
    (void)context, (void)insn;
    return TVM_OK;
}
