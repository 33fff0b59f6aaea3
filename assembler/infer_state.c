/* What the files infer*.c ask of a kernel whose open layouts are decided. */
#include "infer_state.h"

#include <stdio.h>
#include <string.h>

void tvm_infer_registers(const tvm_infer_state *in, uint32_t insn, tvm_infer_operands *out) {
    const tvm_operand *operands = tvm_operands(in->kernel, &in->kernel->insns[insn]);
    out->count = 0;
    for (uint32_t i = 0; i < in->kernel->insns[insn].count && out->count < TVM_INFER_OPERANDS; i++) {
        if (operands[i].kind != TVM_OPERAND_SLOT ||
            in->kernel->slots[operands[i].value].kind != TVM_SLOT_REGISTER)
            continue;
        out->at[out->count] = i;
        out->slots[out->count++] = operands[i].value;
    }
}

uint32_t tvm_infer_result(const tvm_infer_state *in, uint32_t insn) {
    uint32_t slot = in->kernel->insns[insn].result;
    return slot != TVM_NONE && in->kernel->slots[slot].kind == TVM_SLOT_REGISTER ? slot : TVM_NONE;
}

uint32_t tvm_infer_moved(const tvm_infer_state *in, uint32_t insn, unsigned *ordinal) {
    const tvm_insn *source = &in->kernel->insns[insn];
    const tvm_operand *operands = tvm_operands(in->kernel, source);
    const char *cursor = tvm_infer_row(in, insn)->operands;
    tvm_infer_operands registers;
    tvm_operand_desc desc;
    uint32_t result = tvm_infer_result(in, insn), at = 0;
    *ordinal = 0;
    if (result != TVM_NONE) return result;
    tvm_infer_registers(in, insn, &registers);
    while (at < source->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        for (unsigned k = 0; desc.kind == 'r' && k < registers.count; k++) {
            *ordinal = k;
            if (registers.at[k] == at) return registers.slots[k];
        }
        at += tvm_entry_operands(in->program, in->kernel, &desc, &operands[at]);
    }
    return TVM_NONE;
}

tvm_layout tvm_infer_layout(const tvm_infer_state *in, uint32_t layout) {
    return in->program->layouts[layout];
}

uint32_t tvm_infer_number(tvm_infer_state *in, const tvm_layout *layout) {
    if (!tvm_layout_holdable(layout, NULL)) return TVM_NONE;
    uint32_t number = tvm_ir_program_layout(in->program, layout);
    if (number == TVM_NONE) in->failed = true;
    return number;
}

tvm_layout tvm_infer_shape_of(const tvm_infer_state *in, uint32_t slot) {
    return in->program->layouts[in->kernel->slots[slot].layout];
}

tvm_team tvm_infer_team(const tvm_infer_state *in, uint32_t insn) {
    return in->teams[insn];
}

/* A view reads each thread's bits as they lie: in another layout they would be other elements. So where its
 * layout is left out it is its source's, and of another width than its source it is written. */
static bool is_view_as_it_lies(const tvm_infer_state *in, uint32_t insn, const uint32_t *layouts,
                               uint32_t declared, tvm_why *why) {
    uint32_t slot = tvm_infer_result(in, insn);
    if (in->kernel->insns[insn].op != TVM_OP_VIEW || slot == TVM_NONE || !in->open[slot]) return true;
    if (declared == TVM_NONE || declared == layouts[0]) return true;
    if (why)
        snprintf(why->text, sizeof why->text,
                 "a view without a layout has its source's; of another width it needs one, which says where "
                 "the elements are that the bits become");
    return false;
}

/* The operands' slots are replaced by spare ones, which have the layouts that are tried. */
static bool ask_rule(tvm_infer_state *in, uint32_t insn, const tvm_infer_operands *registers,
                     const uint32_t *layouts, uint32_t declared, uint32_t *result, tvm_why *why) {
    const tvm_insn *old = &in->kernel->insns[insn];
    tvm_operand operands[TVM_INSN_OPERANDS];
    tvm_result_type type = {.kind = tvm_op(old->op)->result};
    uint32_t slot = tvm_infer_result(in, insn);
    in->attempts++;
    if (old->count > TVM_INSN_OPERANDS) return false;
    if (!is_view_as_it_lies(in, insn, layouts, declared, why)) return false;
    if (old->count) memcpy(operands, tvm_operands(in->kernel, old), old->count * sizeof *operands);
    for (unsigned k = 0; k < registers->count; k++) {
        uint32_t spare = in->slot_count + k;
        in->work[spare] = in->work[registers->slots[k]];
        in->work[spare].layout = layouts[k];
        operands[registers->at[k]].value = spare;
    }
    if (slot != TVM_NONE) {
        type.dtype = in->work[slot].dtype;
        type.packing = (tvm_packing)in->work[slot].packing;
        type.has_layout = declared != TVM_NONE;
        if (type.has_layout) type.layout = tvm_infer_layout(in, declared);
    }
    if (tvm_infer(in->program, &in->view, tvm_infer_team(in, insn), old, operands, &type, why) != TVM_OK)
        return false;
    if (slot == TVM_NONE) return true;
    /* An instruction whose text has the tile, as gather may, derives less where its layout is left out. */
    const tvm_layout shape = tvm_infer_shape_of(in, slot);
    if (shape.rank != type.layout.rank || memcmp(shape.shape, type.layout.shape, sizeof shape.shape) != 0)
        return false;
    if (!result) return true;
    *result = tvm_infer_number(in, &type.layout);
    return *result != TVM_NONE;
}

bool tvm_infer_attempt(tvm_infer_state *in, uint32_t insn, const uint32_t *layouts, uint32_t declared,
                       uint32_t *result, tvm_why *why) {
    tvm_infer_operands registers;
    tvm_infer_memo *memo = in->asked[insn];
    tvm_infer_registers(in, insn, &registers);
    for (; memo && !why; memo = memo->next) {
        if (memo->result != declared || memo->numbered != (result != NULL) ||
            memcmp(memo->layouts, layouts, registers.count * sizeof *layouts) != 0)
            continue;
        if (result && memo->good) *result = memo->made;
        return memo->good;
    }
    bool good = ask_rule(in, insn, &registers, layouts, declared, result, why);
    memo = in->memos < TVM_INFER_MEMOS ? tvm_infer_array(in, 1, sizeof *memo) : NULL;
    if (!memo) return good;
    in->memos++;
    memcpy(memo->layouts, layouts, registers.count * sizeof *layouts);
    memo->result = declared;
    memo->numbered = result != NULL;
    memo->good = good;
    if (result && good) memo->made = *result;
    memo->next = in->asked[insn];
    in->asked[insn] = memo;
    return good;
}

void *tvm_infer_array(tvm_infer_state *in, size_t count, size_t size) {
    void *items = tvm_arena_alloc(&in->as->scratch, (count + 1) * size);
    if (!items) in->failed = true;
    if (items) memset(items, 0, (count + 1) * size);
    return items;
}
