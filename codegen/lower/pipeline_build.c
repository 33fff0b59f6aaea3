#include "pipeline_build.h"

#include <stdio.h>
#include <string.h>

#include "numbers.h"
#include "shared_plan.h"

/* ---- building ---- */

/* An operator of constants alone is its result, as the verifier wants it: bounds of a loop may be constants.
 */
static tvm_expr fold(const lowering *l, tvm_expr expr) {
    const uint32_t children[3] = {expr.a, expr.b, expr.c};
    unsigned arity = tvm_expr_op_info(expr.op)->arity;
    tvm_scalar operands[3], value;
    tvm_why why;
    for (unsigned i = 0; i < arity; i++) {
        if (children[i] == TVM_NONE || l->to->exprs[children[i]].op != TVM_EXPR_INTEGER) return expr;
        operands[i].i = l->to->exprs[children[i]].value.i;
    }
    if (!arity || tvm_expr_apply(&expr, l->to->exprs[expr.a].type, operands, &value, &why)) return expr;
    return (tvm_expr){.op = TVM_EXPR_INTEGER, .type = expr.type, .value.i = value.i};
}

uint32_t tvm_lower_node(lowering *l, tvm_expr expr) {
    expr = fold(l, expr);
    uint32_t index = tvm_ir_kernel_expr(l->to, &expr);
    if (index == TVM_NONE) l->failed = true;
    return index;
}

uint32_t tvm_lower_constant(lowering *l, tvm_dtype type, int64_t value) {
    return tvm_lower_node(l, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = type, .value.i = value});
}

uint32_t tvm_lower_value(lowering *l, uint32_t slot) {
    return tvm_lower_node(l, (tvm_expr){.op = TVM_EXPR_SLOT, .type = l->to->slots[slot].dtype, .a = slot});
}

uint32_t tvm_lower_binary(lowering *l, tvm_expr_op op, tvm_dtype type, uint32_t a, uint32_t b) {
    return tvm_lower_node(l, (tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
}

void tvm_lower_insert(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t result,
                      const tvm_operand *operands, uint32_t count) {
    tvm_insn insn = {.op = (uint16_t)op, .result = result, .file = place->file, .line = place->line};
    tvm_operand all[TVM_INSN_OPERANDS + TVM_MAX_RANK] = {{TVM_OPERAND_NONE, 0}};
    if (l->failed) return;
    if (count) memcpy(all, operands, count * sizeof *all);
    count += tvm_operands_left_out(l->program, l->to, op, operands, count);
    if (tvm_ir_kernel_add_insn(l->to, &insn, all, count) == TVM_NONE) l->failed = true;
}

void tvm_lower_let(lowering *l, const tvm_insn *place, uint32_t slot, uint32_t expr) {
    tvm_lower_insert(l, place, TVM_OP_LET, slot, &(tvm_operand){TVM_OPERAND_EXPR, expr}, 1);
}

void tvm_lower_numbered(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t number) {
    tvm_lower_insert(l, place, op, TVM_NONE, &(tvm_operand){TVM_OPERAND_CONST, number}, 1);
}

static bool is_taken(const lowering *l, const char *name) {
    for (uint32_t s = 0; s < l->to->slot_count; s++)
        if (strcmp(tvm_string(l->program, l->to->slots[s].name), name) == 0) return true;
    return false;
}

uint32_t tvm_lower_variable(lowering *l, const char *like, tvm_slot slot) {
    char name[TVM_MAX_NAME + 1];
    unsigned number = l->loops;
    do snprintf(name, sizeof name, "%.200s_ahead%u", like, number++);
    while (is_taken(l, name));
    uint32_t string = tvm_ir_program_string(l->program, name, strlen(name));
    slot.name = string;
    uint32_t index = string == TVM_NONE ? TVM_NONE : tvm_ir_kernel_add_slot(l->to, &slot);
    if (index == TVM_NONE) l->failed = true;
    return index == TVM_NONE ? 0 : index;
}

uint32_t tvm_lower_scalar(lowering *l, const char *like, tvm_dtype type) {
    return tvm_lower_variable(l, like,
                              (tvm_slot){.kind = TVM_SLOT_SCALAR, .dtype = type, .layout = TVM_NONE});
}

/* ---- rings ---- */

/* The tile that was read in the turn before. */
uint32_t tvm_lower_tile_before(lowering *l) {
    tvm_dtype type = TVM_I(32);
    uint32_t stage = tvm_lower_value(l, l->stage);
    uint32_t is_first = tvm_lower_binary(l, TVM_EXPR_EQ, TVM_BOOL, stage, tvm_lower_constant(l, type, 0));
    uint32_t before = tvm_lower_binary(l, TVM_EXPR_SUB, type, stage, tvm_lower_constant(l, type, 1));
    return tvm_lower_node(l, (tvm_expr){.op = TVM_EXPR_SELECT,
                                        .type = type,
                                        .a = is_first,
                                        .b = tvm_lower_constant(l, type, l->loop.stages - 1),
                                        .c = before});
}

uint32_t tvm_lower_tile_after(lowering *l) {
    tvm_dtype type = TVM_I(32);
    uint32_t stage = tvm_lower_value(l, l->stage);
    uint32_t is_last =
        tvm_lower_binary(l, TVM_EXPR_EQ, TVM_BOOL, stage, tvm_lower_constant(l, type, l->loop.stages - 1));
    uint32_t after = tvm_lower_binary(l, TVM_EXPR_ADD, type, stage, tvm_lower_constant(l, type, 1));
    return tvm_lower_node(l, (tvm_expr){.op = TVM_EXPR_SELECT,
                                        .type = type,
                                        .a = is_last,
                                        .b = tvm_lower_constant(l, type, 0),
                                        .c = after});
}

static bool is_ring(const lowering *l, uint32_t slot) {
    return l->loop.end != 0 && tvm_pipeline_fills(&l->loop, slot);
}

/* The tensor's layout with the stages in front, each at a whole period of the swizzle and of what wgmma and
 * bulk copies ask of an address. */
static void make_ring(lowering *l, uint32_t slot, uint32_t stages) {
    tvm_slot *tensor = &l->to->slots[slot];
    const tvm_shared_layout *tile = &l->program->shared_layouts[tensor->layout];
    uint32_t shape[TVM_MAX_RANK] = {stages}, size[TVM_MAX_MODES] = {stages}, stride[TVM_MAX_MODES];
    unsigned period = tile->swizzle_bits ? tile->swizzle_base + tile->swizzle_shift + tile->swizzle_bits : 0;
    unsigned bits = tensor->dtype.bits;
    uint64_t align = tvm_shared_tensor_alignment(tile, bits); /* bytes, then elements that are whole ones */
    align = bits < 8 ? align * tvm_bits_whole(bits) : align * 8 / bits;
    if (align < UINT64_C(1) << period) align = UINT64_C(1) << period;
    tvm_shared_layout ring;
    memcpy(shape + 1, tile->shape, tile->rank * sizeof *shape);
    memcpy(size + 1, tile->mode_size, tile->modes * sizeof *size);
    memcpy(stride + 1, tile->mode_stride, tile->modes * sizeof *stride);
    stride[0] = (uint32_t)tvm_round_up(tvm_shared_layout_span(tile), align);
    if (tile->modes == TVM_MAX_MODES ||
        tvm_shared_layout_make(tile->rank + 1U, shape, tile->modes + 1U, size, stride, tile->swizzle_base,
                               tile->swizzle_bits, tile->swizzle_shift, &ring, NULL) != TVM_OK)
        l->failed = true;
    else
        tensor->layout = tvm_ir_program_shared_layout(l->program, &ring);
    if (tensor->layout == TVM_NONE) l->failed = true;
}

void tvm_lower_find(lowering *l, uint32_t loop) {
    uint32_t wrong;
    memset(l->ahead, 0, l->from->insn_count * sizeof *l->ahead);
    if (tvm_pipeline_find(l->program, l->from, loop, &l->loop, l->ahead, &wrong, NULL) != TVM_OK)
        l->failed = true;
}

void tvm_lower_rings(lowering *l) {
    for (uint32_t i = 0; i < l->from->insn_count && !l->failed; i++) {
        if (!tvm_pipeline_stages(l->from, &l->from->insns[i])) continue;
        tvm_lower_find(l, i);
        for (uint32_t t = 0; t < l->loop.tensor_count && !l->failed; t++) {
            const tvm_slot *old = &l->from->slots[l->loop.tensors[t]],
                           *new = &l->to->slots[l->loop.tensors[t]];
            if (old->layout == new->layout) make_ring(l, l->loop.tensors[t], l->loop.stages);
        }
    }
    l->loop.end = 0;
}

/* ---- instructions as they were, in another tile and with other scalars ---- */

/* The limit on the size of a tree bounds the recursion. */
uint32_t tvm_lower_expr(lowering *l, uint32_t expr) {
    tvm_expr copy = l->from->exprs[expr];
    unsigned arity = tvm_expr_op_info(copy.op)->arity;
    if (copy.op == TVM_EXPR_SLOT && l->renamed[copy.a] != TVM_NONE)
        return tvm_lower_value(l, l->renamed[copy.a]);
    uint32_t *children[3] = {&copy.a, &copy.b, &copy.c};
    bool changed = false;
    for (unsigned i = 0; i < arity; i++) {
        uint32_t child = tvm_lower_expr(l, *children[i]);
        changed = changed || child != *children[i];
        *children[i] = child;
    }
    return changed ? tvm_lower_node(l, copy) : expr;
}

void tvm_lower_copy(lowering *l, const tvm_insn *insn) {
    tvm_operand operands[TVM_INSN_OPERANDS + TVM_MAX_RANK];
    const tvm_operand *old = tvm_operands(l->from, insn);
    uint32_t count = 0;
    for (uint32_t o = 0; o < insn->count && count + 2 < TVM_INSN_OPERANDS + TVM_MAX_RANK; o++) {
        operands[count] = old[o];
        if (old[o].kind == TVM_OPERAND_EXPR) operands[count].value = tvm_lower_expr(l, old[o].value);
        count++;
        if (old[o].kind == TVM_OPERAND_SLOT && is_ring(l, old[o].value))
            operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, l->tile};
    }
    uint32_t result = insn->result;
    if (result != TVM_NONE && l->renamed[result] != TVM_NONE) result = l->renamed[result];
    tvm_lower_insert(l, insn, (tvm_opcode)insn->op, result, operands, count);
}

/* ---- mbarriers ---- */

uint32_t tvm_lower_barriers(lowering *l, const tvm_insn *place, const char *name, uint32_t extent,
                            bool open) {
    tvm_shared_layout layout;
    uint32_t shape[1] = {extent};
    if (tvm_shared_layout_row_major(1, shape, &layout, NULL) != TVM_OK) l->failed = true;
    tvm_slot slot = {.kind = TVM_SLOT_BARRIER, .dtype = TVM_U(64)};
    slot.layout = tvm_ir_program_shared_layout(l->program, &layout);
    if (slot.layout == TVM_NONE) l->failed = true;
    uint32_t index = tvm_lower_variable(l, name, slot);
    tvm_operand operands[2] = {{TVM_OPERAND_NONE, 0}, {open ? TVM_OPERAND_CONST : TVM_OPERAND_NONE, open}};
    tvm_lower_insert(l, place, TVM_OP_ALLOC_BARRIER, index, operands, 2);
    return index;
}

void tvm_lower_barrier(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t slot, uint32_t index,
                       uint32_t pending) {
    tvm_operand operands[3] = {
        {TVM_OPERAND_SLOT, slot}, {TVM_OPERAND_EXPR, index}, {TVM_OPERAND_CONST, pending}};
    tvm_lower_insert(l, place, op, TVM_NONE, operands, pending ? 3 : 2);
}
