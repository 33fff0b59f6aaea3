/* Operands of view-global and view-shared. */
#include <string.h>

#include "cursor.h"
#include "operand.h"
#include "shapes.h"

bool tvm_asm_read_view_extents(tvm_asm *as, tvm_reading *r) {
    r->type.form = TVM_FORM_PART;
    return tvm_asm_expect(as, "[", "and the extents of the view") &&
           tvm_asm_global_shape(as, TVM_LEAF_GRID, &r->type.rank, r->type.shape);
}

bool tvm_asm_leave_out_view_extents(tvm_asm *as, tvm_reading *r) {
    const tvm_slot *base = &tvm_asm_kernel(as)->slots[r->operands[0].value];
    r->type.form = TVM_FORM_PART;
    r->type.rank = base->rank;
    r->extents_follow = true;
    memcpy(r->type.shape, base->shape, sizeof r->type.shape);
    return true;
}

bool tvm_asm_read_view_strides(tvm_asm *as, tvm_reading *r) {
    r->type.form = TVM_FORM_ROW_MAJOR;
    if (tvm_asm_accept(as, "row_major")) return true;
    r->type.form = TVM_FORM_STRIDED;
    return tvm_asm_expect(as, "[", "and the strides of the view") &&
           tvm_asm_global_strides(as, TVM_LEAF_GRID, r->type.rank, r->type.stride);
}

/* A shared tensor's extents are an operand, right before the order. */
static void order_shared(const tvm_asm *as, tvm_reading *r, uint32_t at) {
    const tvm_slot *base = &tvm_asm_kernel(as)->slots[r->operands[0].value];
    uint32_t rank = tvm_slot_rank(as->program, base), extents = 1 + rank, count = r->operands[at].value;
    tvm_operand order[1 + TVM_MAX_RANK];
    memcpy(order, &r->operands[at], (count + 1) * sizeof *order);
    r->operands[extents].value = count;
    for (uint32_t d = 1; d <= count; d++) {
        uint32_t extent = order[d].value < rank ? tvm_slot_shape(as->program, base)[order[d].value] : 1;
        r->operands[extents + d] = (tvm_operand){TVM_OPERAND_CONST, extent};
    }
    memcpy(&r->operands[extents + 1 + count], order, (count + 1) * sizeof *order);
    r->count = extents + 2 * (1 + count);
}

bool tvm_asm_order_extents(tvm_asm *as, tvm_reading *r, uint32_t at) {
    const tvm_slot *base = &tvm_asm_kernel(as)->slots[r->operands[0].value];
    uint32_t count = r->operands[at].value;
    if (!r->extents_follow) return true;
    if (r->info->result == TVM_SLOT_SHARED) order_shared(as, r, at);
    if (r->info->result != TVM_SLOT_GLOBAL) return true;
    r->type.rank = count;
    for (uint32_t d = 0; d < count; d++)
        if (r->operands[at + 1 + d].value < base->rank)
            r->type.shape[d] = base->shape[r->operands[at + 1 + d].value];
    return true;
}
