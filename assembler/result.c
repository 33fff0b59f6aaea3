/* What an instruction gives: its type, the slot of its variable, and the instruction in the kernel. */
#include "language.h"
#include "result.h"

#include <stdio.h>
#include <string.h>

#include "infer_open.h"
#include "report.h"
#include "variables.h"

/* A name for the line table: control characters do not belong in a program's strings. */
static uint32_t file_string(tvm_asm *as) {
    const char *name = as->text.source->name;
    char *clean = tvm_arena_text(&as->scratch, name, strlen(name));
    if (!clean) return TVM_NONE;
    for (char *c = clean; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    return tvm_ir_program_string(as->program, clean, strlen(clean));
}

bool tvm_asm_emit(tvm_asm *as, const tvm_token *token, unsigned op, uint32_t result,
                  const tvm_operand *operands, uint32_t count) {
    tvm_insn insn = {
        .op = (uint16_t)op, .result = result, .file = file_string(as), .line = as->statement.line};
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (kernel->insn_count >= TVM_MAX_INSNS) {
        tvm_asm_invalid(as, token, NULL, "a kernel has at most %d instructions", TVM_MAX_INSNS);
        as->report.stopped = true;
        return false;
    }
    if (insn.file == TVM_NONE || tvm_ir_kernel_add_insn(kernel, &insn, operands, count) == TVM_NONE)
        return tvm_asm_no_memory(as);
    if (op == TVM_OP_VIEW_GLOBAL || op == TVM_OP_VIEW_SHARED) kernel->slots[result].view = kernel->insn_count;
    return tvm_asm_note_insn(as, token);
}

/* The slot that an inferred type asks for. */
static bool make_slot(tvm_asm *as, const tvm_result_type *type, tvm_slot *slot) {
    *slot = (tvm_slot){.kind = (uint8_t)type->kind,
                       .dtype = type->dtype,
                       .packing = (uint8_t)type->packing,
                       .layout = TVM_NONE};
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) slot->shape[d] = slot->stride[d] = TVM_NONE;
    if (type->kind == TVM_SLOT_GLOBAL) {
        slot->rank = (uint8_t)type->rank;
        slot->form = (uint8_t)type->form;
        memcpy(slot->shape, type->shape, type->rank * sizeof *slot->shape);
        if (type->form == TVM_FORM_STRIDED)
            memcpy(slot->stride, type->stride, type->rank * sizeof *slot->stride);
        return true;
    }
    if (type->kind == TVM_SLOT_SCALAR) return true;
    slot->layout = type->kind == TVM_SLOT_REGISTER
                       ? tvm_ir_program_layout(as->program, &type->layout)
                       : tvm_ir_program_shared_layout(as->program, &type->shared_layout);
    return slot->layout != TVM_NONE || tvm_asm_no_memory(as);
}

static bool check_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length, uint32_t index,
                       const tvm_slot *wanted, const tvm_result_type *type) {
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    const tvm_slot *slot = &kernel->slots[index];
    if (slot->kind != wanted->kind)
        return tvm_asm_invalid(as, token, "one name is one variable of one type: choose another name",
                               "'%%%.*s' is %s, this gives %s", (int)length, name,
                               tvm_slot_what((tvm_slot_kind)slot->kind),
                               tvm_slot_what((tvm_slot_kind)wanted->kind));
    if (!tvm_dtype_same(slot->dtype, wanted->dtype))
        return tvm_asm_invalid(as, token,
                               "one name is one variable of one type: convert, or choose another name",
                               "'%%%.*s' has type %s, this gives %s", (int)length, name,
                               TVM_DTYPE_TEXT(slot->dtype), TVM_DTYPE_TEXT(wanted->dtype));
    if (slot->packing != wanted->packing)
        return tvm_asm_invalid(as, token, "one name is one variable of one packing: choose another name",
                               "'%%%.*s' has packing %s, this gives %s", (int)length, name,
                               tvm_packing_names[slot->packing], tvm_packing_names[wanted->packing]);
    if (slot->kind == TVM_SLOT_REGISTER) return tvm_asm_same_layout(as, token, name, length, index, type);
    if (slot->layout != wanted->layout)
        return tvm_asm_invalid(as, token, "one name is one variable of one layout: choose another name",
                               "'%%%.*s' has another layout than this gives", (int)length, name);
    return true;
}

/* Where the instruction would do with other layouts: which lines these come from. */
static const char *layout_lines(tvm_asm *as, const tvm_insn *insn, const tvm_operand *operands,
                                const tvm_result_type *declared, char hint[256]) {
    tvm_result_type shape = *declared;
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    size_t used = 0;
    if (tvm_asm_infer_shape(as, insn, operands, &shape, NULL) != TVM_OK) return NULL;
    hint[0] = '\0';
    for (uint32_t i = 0; i < insn->count && used < 256; i++) {
        if (operands[i].kind != TVM_OPERAND_SLOT) continue;
        const tvm_slot *slot = &kernel->slots[operands[i].value];
        if (slot->kind != TVM_SLOT_REGISTER) continue;
        used += (size_t)snprintf(hint + used, 256 - used, "%s'%%%.60s' has its layout from line %u",
                                 used ? ", " : "", tvm_string(as->program, slot->name),
                                 as->open.slots[operands[i].value].token->line);
    }
    return used ? hint : NULL;
}

/* The cast of an operand that makes the tensors of an element-wise instruction of one type, or of one that it
 * takes: to the float type of the two, else to the wider one. */
static const char *cast_hint(tvm_asm *as, const tvm_insn *insn, const tvm_operand *operands, char hint[256]) {
    const tvm_op_info *info = tvm_op(insn->op);
    const tvm_slot *first = NULL;
    for (uint32_t i = 0; i < insn->count && tvm_op_is_elementwise(info); i++) {
        if (operands[i].kind != TVM_OPERAND_SLOT) continue;
        const tvm_slot *slot = &tvm_asm_kernel(as)->slots[operands[i].value], *from = slot;
        if (slot->kind != TVM_SLOT_REGISTER || slot->dtype.kind == TVM_KIND_BOOL) continue;
        tvm_dtype to = first ? first->dtype : TVM_F32;
        if (!tvm_op_takes_element(info, slot->dtype)) {
            if (!tvm_op_takes_element(info, to)) continue;
        } else if (!first || tvm_dtype_same(first->dtype, slot->dtype)) {
            first = slot;
            continue;
        } else {
            bool floats[] = {first->dtype.kind == TVM_KIND_FLOAT, slot->dtype.kind == TVM_KIND_FLOAT};
            bool second = floats[0] != floats[1] ? floats[1] : slot->dtype.bits > first->dtype.bits;
            if (second) from = first, to = slot->dtype;
        }
        snprintf(hint, 256, "'cast(%%%.60s, %s)' has elements of that type",
                 tvm_string(as->program, from->name), TVM_DTYPE_TEXT(to));
        return hint;
    }
    return NULL;
}

/* What the instruction gives; where layouts are left out its shape and type alone. */
static bool infer(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_operand *operands,
                  uint32_t count, tvm_result_type *type) {
    tvm_insn insn = {
        .op = (uint16_t)op, .result = TVM_NONE, .count = count, .match = TVM_NONE, .file = TVM_NONE};
    tvm_why why;
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    const tvm_result_type declared = *type;
    char hint[256];
    bool open = type->open || tvm_asm_has_open(as, operands, count);
    tvm_status status = open && type->kind != TVM_SLOT_SHARED
                            ? tvm_asm_infer_shape(as, &insn, operands, type, &why)
                            : tvm_infer(as->program, kernel, tvm_asm_team(as), &insn, operands, type, &why);
    if (status == TVM_OK && type->kind == TVM_SLOT_REGISTER && !open &&
        !tvm_layout_holdable(&type->layout, &why))
        status = TVM_INVALID;
    if (status == TVM_OK) return true;
    if (kernel->warps == 0) return false; /* it has been said that .warps is missing or wrong */
    const char *help = cast_hint(as, &insn, operands, hint);
    if (!help && !open) help = layout_lines(as, &insn, operands, &declared, hint);
    return tvm_asm_invalid(as, token, help, "%s: %s", tvm_op(op)->mnemonic, why.text);
}

/* In a statement that prints, what is loaded is named after the tensor that it is loaded from. */
static void name_after_source(tvm_asm *as, const tvm_pending *pending) {
    const tvm_operand *source = pending->operands;
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (as->statement.assigned || !pending->count || source->kind != TVM_OPERAND_SLOT) return;
    if (kernel->slots[source->value].kind == TVM_SLOT_REGISTER) return;
    as->statement.assigned = tvm_string(as->program, kernel->slots[source->value].name);
    as->statement.assigned_length = (uint32_t)strlen(as->statement.assigned);
}

bool tvm_asm_finish(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result_token,
                    const char *result_name, uint32_t result_length, const tvm_operand *operands,
                    uint32_t count, tvm_result_type *type) {
    if (!infer(as, token, op, operands, count, type)) return false;
    if (type->kind == TVM_SLOT_SHARED && type->dtype.bits < 8 && as->text.version < TVM_LANGUAGE_OF_PACKED)
        return tvm_asm_error(as, token, "write '.vasm 7', or store it as u8 and take a view in registers",
                             "shared tensors of %s came with version %d of the language",
                             TVM_DTYPE_TEXT(type->dtype), TVM_LANGUAGE_OF_PACKED);
    if (!result_name) return tvm_asm_emit(as, token, op, TVM_NONE, operands, count);
    tvm_slot slot;
    uint32_t index;
    if (!make_slot(as, type, &slot)) return false;
    const tvm_symbol *symbol = tvm_asm_find_assigned(as, result_name, result_length);
    if (!symbol) {
        if (!tvm_asm_add_slot(as, result_token, result_name, result_length, &slot, &index) ||
            !tvm_asm_note_slot(as, result_token, index, type))
            return false;
    } else {
        index = symbol->slot;
        if (index == TVM_NONE ||
            !check_slot(as, result_token, result_name, result_length, index, &slot, type))
            return false;
    }
    return tvm_asm_emit(as, token, op, index, operands, count);
}

static bool finish_temporary(tvm_asm *as, const tvm_pending *pending, uint32_t *slot) {
    tvm_result_type type = pending->type;
    tvm_slot made;
    if (as->statement.reports) name_after_source(as, pending);
    return infer(as, pending->token, pending->op, pending->operands, pending->count, &type) &&
           make_slot(as, &type, &made) && tvm_asm_add_temporary(as, pending->token, &made, slot) &&
           tvm_asm_note_slot(as, pending->token, *slot, &type) &&
           tvm_asm_emit(as, pending->token, pending->op, *slot, pending->operands, pending->count);
}

bool tvm_asm_settle(tvm_asm *as, tvm_value *value) {
    if (value->kind != TVM_VALUE_TENSOR || !value->as.tensor.pending) return true;
    uint32_t slot;
    if (!finish_temporary(as, value->as.tensor.pending, &slot)) return false;
    value->as.tensor.slot = slot;
    value->as.tensor.pending = NULL;
    return true;
}

bool tvm_asm_open_unless_follows(tvm_asm *as, tvm_value *value, unsigned rank, const uint32_t *shape) {
    const tvm_pending *from = value->as.tensor.pending;
    const tvm_insn insn = {.op = (uint16_t)from->op,
                           .result = TVM_NONE,
                           .count = from->count,
                           .match = TVM_NONE,
                           .file = TVM_NONE};
    tvm_result_type type = from->type;
    tvm_why why;
    if (tvm_asm_has_open(as, from->operands, from->count) ||
        tvm_infer(as->program, tvm_asm_kernel(as), tvm_asm_team(as), &insn, from->operands, &type, NULL) ==
            TVM_OK)
        return true;
    tvm_pending *open = tvm_arena_alloc(&as->scratch, sizeof *open);
    if (!open) return tvm_asm_no_memory(as);
    *open = *from;
    open->type.has_layout = open->type.open = true;
    value->as.tensor.pending = open;
    return tvm_infer_whole(rank, shape, tvm_asm_team(as), &open->type.layout, &why) ||
           tvm_asm_invalid(as, from->token, NULL, "%s", why.text);
}
