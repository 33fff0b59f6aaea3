/* Definitions and readers of slots. */
#include "uses.h"

#include <stdlib.h>

static void note_readers(const tvm_ir_kernel *kernel, slot_uses *uses) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].kind == TVM_OPERAND_SLOT) uses->slots[kernel->operands[i].value].count++;
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        uses->slots[s].first = at;
        at += uses->slots[s].count;
        uses->slots[s].count = 0;
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        const tvm_operand *operands = tvm_operands(kernel, insn);
        for (uint32_t o = 0; o < insn->count; o++) {
            if (operands[o].kind != TVM_OPERAND_SLOT) continue;
            slot_use *use = &uses->slots[operands[o].value];
            uses->readers[use->first + use->count++] = i;
        }
    }
}

tvm_status tvm_slot_uses_make(kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    slot_uses *uses = calloc(1, sizeof *uses);
    k->uses = uses;
    if (!uses) return tvm_diag_no_memory(k->diags);
    uses->slots = calloc(kernel->slot_count + (size_t)1, sizeof *uses->slots);
    uses->readers = calloc(kernel->operand_count + (size_t)1, sizeof *uses->readers);
    if (!uses->slots || !uses->readers) return tvm_diag_no_memory(k->diags);
    note_readers(kernel, uses);
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        uint32_t result = kernel->insns[i].result;
        if (result == TVM_NONE) continue;
        uses->slots[result].assigned++;
        uses->slots[result].definition = i;
    }
    return TVM_OK;
}

void tvm_slot_uses_free(kernel_state *k) {
    if (!k->uses) return;
    free(k->uses->slots);
    free(k->uses->readers);
    free(k->uses);
    k->uses = NULL;
}

const tvm_insn *tvm_slot_definition(const kernel_state *k, uint32_t slot) {
    const slot_use *use = &k->uses->slots[slot];
    return use->assigned == 1 ? &k->kernel->insns[use->definition] : NULL;
}

const tvm_insn *tvm_slot_reader(const kernel_state *k, uint32_t slot, uint32_t i) {
    return &k->kernel->insns[k->uses->readers[k->uses->slots[slot].first + i]];
}

bool tvm_slot_is_zero(const kernel_state *k, uint32_t slot) {
    const tvm_insn *insn = tvm_slot_definition(k, slot);
    if (!insn || insn->op != TVM_OP_ALLOC_REGISTER || insn->count < 1) return false;
    const tvm_operand *init = &tvm_operands(k->kernel, insn)[insn->count - 1];
    if (init->kind == TVM_OPERAND_NONE) return true;
    const tvm_expr *node = init->kind == TVM_OPERAND_EXPR ? &k->kernel->exprs[init->value] : NULL;
    return node && ((node->op == TVM_EXPR_FLOAT && node->value.f == 0) ||
                    (node->op == TVM_EXPR_INTEGER && node->value.i == 0));
}

/* A constant of the text, as an operand; -1 where it is none, or negative. */
static int64_t literal_of(const kernel_state *k, const tvm_operand *operand) {
    const tvm_expr *node = operand->kind == TVM_OPERAND_EXPR ? &k->kernel->exprs[operand->value] : NULL;
    return node && node->op == TVM_EXPR_INTEGER && node->value.i >= 0 ? node->value.i : -1;
}

bool tvm_slot_elements_at_most(const kernel_state *k, uint32_t slot, int64_t most) {
    tvm_dtype type = tvm_slot_dtype(k, slot);
    if (type.kind == TVM_KIND_UINT && type.bits < 32 && most >= (INT64_C(1) << type.bits) - 1) return true;
    const tvm_insn *insn = tvm_slot_definition(k, slot);
    if (!insn || type.bits < 32) return false;
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    if (insn->op == TVM_OP_CAST) {
        /* of a narrower type, so that no value is another one of the result's */
        return tvm_slot_dtype(k, operands[0].value).bits < 32 &&
               tvm_slot_elements_at_most(k, operands[0].value, most);
    }
    for (unsigned i = 0; insn->op == TVM_OP_AND && i < 2; i++) {
        int64_t mask = literal_of(k, &operands[i]);
        if (mask >= 0 && mask <= most) return true;
    }
    return false;
}
