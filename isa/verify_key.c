/* What an instruction that was found right is remembered by. */
#include "verify_state.h"

static uint32_t dtype_word(tvm_dtype type) {
    return (uint32_t)type.kind | (uint32_t)type.bits << 8 | (uint32_t)type.exponent << 16 |
           (uint32_t)type.mantissa << 24;
}

/* Four words of an operand; false when it does not exist, which the rule says, or is of global memory. */
static bool operand_key(const tvm_ir_kernel *kernel, const tvm_operand *operand, uint32_t *words) {
    words[0] = operand->kind;
    words[2] = words[3] = 0;
    if (operand->kind == TVM_OPERAND_SLOT) {
        if (operand->value >= kernel->slot_count) return false;
        const tvm_slot *slot = &kernel->slots[operand->value];
        words[1] = slot->kind;
        words[2] = dtype_word(slot->dtype);
        words[3] = slot->layout | (uint32_t)slot->packing << 24;
        return slot->kind == TVM_SLOT_REGISTER || slot->kind == TVM_SLOT_SHARED;
    }
    words[1] = operand->value;
    if (operand->kind != TVM_OPERAND_EXPR) return true;
    if (operand->value >= kernel->expr_count) return false;
    const tvm_expr *expr = &kernel->exprs[operand->value];
    words[0] |= (uint32_t)(expr->op == TVM_EXPR_INTEGER) << 8;
    words[1] = dtype_word(expr->type);
    words[2] = expr->op == TVM_EXPR_INTEGER ? (uint32_t)expr->value.i : 0;
    words[3] = expr->op == TVM_EXPR_INTEGER ? (uint32_t)((uint64_t)expr->value.i >> 32) : 0;
    return true;
}

uint32_t tvm_verify_key_of(const tvm_ir_kernel *kernel, const tvm_insn *insn, tvm_team team,
                           tvm_verify_key *key) {
    uint32_t count = insn->count;
    while (count > 0 && tvm_operands(kernel, insn)[count - 1].kind == TVM_OPERAND_NONE) count--;
    if (count > TVM_VERIFY_KEY_OPERANDS || insn->result >= kernel->slot_count) return 0;
    const tvm_slot *result = &kernel->slots[insn->result];
    uint32_t *word = key->words;
    *word++ = insn->op + 1u;
    *word++ = count | team.warps << 8;
    *word++ = result->kind;
    *word++ = dtype_word(result->dtype);
    *word++ = result->layout | (uint32_t)result->packing << 24;
    for (uint32_t i = 0; i < count; i++, word += 4)
        if (!operand_key(kernel, &tvm_operands(kernel, insn)[i], word)) return 0;
    return (uint32_t)(word - key->words);
}
