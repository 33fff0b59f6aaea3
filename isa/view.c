#include "view.h"

#include <inttypes.h>

void tvm_view_read(const tvm_ir_kernel *kernel, const tvm_insn *insn, tvm_view *view) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    const tvm_slot *slot = &kernel->slots[insn->result];
    *view = (tvm_view){.base = operands->value,
                       .base_rank = kernel->slots[operands->value].rank,
                       .rank = slot->rank,
                       .index = operands + 1};
    const tvm_operand *order = view->index + view->base_rank;
    uint32_t behind = 2 + view->base_rank + (order->kind == TVM_OPERAND_NONE ? 0 : order->value);
    view->settled = behind < insn->count && operands[behind].kind != TVM_OPERAND_NONE;
    for (unsigned d = 0; slot->form == TVM_FORM_PART && d < slot->rank; d++)
        view->from[d] = (uint8_t)(order->kind == TVM_OPERAND_NONE ? view->base_rank - slot->rank + d
                                                                  : order[1 + d].value);
}

/* ---- where they are made ---- */

static bool launch_knows(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    unsigned rank = kernel->slots[operands->value].rank;
    for (unsigned d = 1; d <= rank; d++)
        if (tvm_expr_leaves(kernel, operands[d].value) & ~(unsigned)(TVM_LEAF_LAUNCH | TVM_LEAF_GRID))
            return false;
    return true;
}

void tvm_views_find(tvm_ir_kernel *kernel) {
    unsigned depth = 0;
    bool sure = true; /* no block has left before */
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        kernel->slots[s].view = 0;
        kernel->slots[s].at_launch = false;
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (tvm_class_opens(class)) depth++;
        if (class == TVM_CLASS_END && depth > 0) depth--;
        if (class == TVM_CLASS_EXIT) sure = false;
        bool global = insn->op == TVM_OP_VIEW_GLOBAL;
        if (!global && insn->op != TVM_OP_VIEW_SHARED) continue;
        kernel->slots[insn->result].view = i + 1;
        kernel->slots[insn->result].at_launch = global && depth == 0 && sure && launch_knows(kernel, insn);
    }
}

/* ---- through views ---- */

/* One view towards the memory; false: the slot is no view. (What is viewed is made before the view, so that
 * the way ends, as soon as the kernel has been verified.) */
static bool step(const tvm_ir_kernel *kernel, tvm_view *view, uint32_t slot) {
    uint32_t made = kernel->slots[slot].view;
    if (made == 0) return false;
    tvm_view_read(kernel, &kernel->insns[made - 1], view);
    return true;
}

/* What the slot is a view of; the slot itself: it is none. */
static uint32_t viewed(const tvm_ir_kernel *kernel, uint32_t slot) {
    uint32_t made = kernel->slots[slot].view;
    return made == 0 ? slot : tvm_operands(kernel, &kernel->insns[made - 1])->value;
}

unsigned tvm_view_depth(const tvm_ir_kernel *kernel, uint32_t slot) {
    unsigned depth = 0;
    for (; depth <= TVM_MAX_VIEW_DEPTH && kernel->slots[slot].view != 0; depth++) slot = viewed(kernel, slot);
    return depth;
}

uint32_t tvm_view_root(const tvm_ir_kernel *kernel, uint32_t slot) {
    for (unsigned depth = 0; depth <= TVM_MAX_VIEW_DEPTH && kernel->slots[slot].view != 0; depth++)
        slot = viewed(kernel, slot);
    return slot;
}

bool tvm_global_alias(const tvm_ir_kernel *kernel, uint32_t a, uint32_t b) {
    return kernel->slots[a].kind == TVM_SLOT_GLOBAL && kernel->slots[b].kind == TVM_SLOT_GLOBAL &&
           tvm_view_root(kernel, a) == tvm_view_root(kernel, b);
}

tvm_global_dim tvm_global_step(const tvm_ir_kernel *kernel, uint32_t slot, unsigned dim) {
    tvm_view view;
    for (unsigned depth = 0; depth <= TVM_MAX_VIEW_DEPTH; depth++) {
        if (kernel->slots[slot].form != TVM_FORM_PART || !step(kernel, &view, slot)) break;
        slot = view.base;
        dim = view.from[dim];
    }
    return (tvm_global_dim){slot, dim};
}

/* ---- in numbers ---- */

bool tvm_strided_span(unsigned rank, const int64_t *shape, const int64_t *stride, int64_t *span) {
    bool empty = false;
    *span = 1;
    for (unsigned d = 0; d < rank; d++) {
        int64_t last;
        if (shape[d] < 0 || stride[d] < 0) return false;
        empty = empty || shape[d] == 0;
        if (shape[d] > 0 && (__builtin_mul_overflow(shape[d] - 1, stride[d], &last) ||
                             __builtin_add_overflow(*span, last, span)))
            return false;
    }
    if (empty) *span = 0;
    return true;
}

static tvm_status part_inside(const tvm_view_numbers *view, tvm_why *why) {
    for (unsigned b = 0; b < view->base_rank; b++) {
        int64_t index = view->index[b], extent = 1, bound = view->base_shape[b];
        for (unsigned d = 0; d < view->rank; d++)
            if (view->from[d] == b) extent = view->shape[d];
        if (index >= 0 && index <= bound && extent >= 0 && extent <= bound - index) continue;
        if (extent == 1)
            return tvm_refuse(why, "index %" PRId64 " is not inside dimension %u of extent %" PRId64, index,
                              b, bound);
        return tvm_refuse(
            why, "%" PRId64 " elements at index %" PRId64 " are not inside dimension %u of extent %" PRId64,
            extent, index, b, bound);
    }
    return TVM_OK;
}

/* The base's elements in row-major order: the first is the index's. */
static tvm_status line_inside(const tvm_view_numbers *view, tvm_why *why) {
    int64_t first = 0, count = 1, span, strides[TVM_MAX_RANK], below = 1;
    for (unsigned d = 0; d < view->base_rank; d++) {
        int64_t index = view->index[d], bound = view->base_shape[d];
        if (index < 0 || (index > 0 && index >= bound))
            return tvm_refuse(why, "index %" PRId64 " is not inside dimension %u of extent %" PRId64, index,
                              d, bound);
        if (__builtin_mul_overflow(count, bound, &count))
            return tvm_refuse(why, "the tensor has too many elements");
        first = first * bound + index;
    }
    bool fits = true;
    for (unsigned d = view->rank; d-- > 0;) {
        strides[d] = view->form == TVM_FORM_STRIDED ? view->stride[d] : below;
        if (strides[d] < 0)
            return tvm_refuse(why, "the stride of dimension %u is negative: %" PRId64, d, strides[d]);
        if (view->shape[d] < 0)
            return tvm_refuse(why, "the extent of dimension %u is negative: %" PRId64, d, view->shape[d]);
        fits = fits && !__builtin_mul_overflow(below, view->shape[d] > 0 ? view->shape[d] : 1, &below);
    }
    if (!fits || !tvm_strided_span(view->rank, view->shape, strides, &span))
        return tvm_refuse(why, "it goes over more than 2^63 elements");
    if (span == 0 || span <= count - first) return TVM_OK;
    return tvm_refuse(why, "it goes over %" PRId64 " elements from element %" PRId64 " of %" PRId64 " on",
                      span, first, count);
}

tvm_status tvm_view_inside(const tvm_view_numbers *view, tvm_why *why) {
    return view->form == TVM_FORM_PART ? part_inside(view, why) : line_inside(view, why);
}
