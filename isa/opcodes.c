#include "program.h"

#include <string.h>

#define TVM_OP(id, mnemonic, family, result, operands, effects, semantics)                                   \
    {mnemonic, #family, TVM_SLOT_##result, operands, effects, semantics},
static const tvm_op_info ops[TVM_OP_COUNT] = {
#include "opcodes.def"
};
#undef TVM_OP

#define TVM_EXPR(id, text, arity, precedence) {text, arity, precedence},
static const tvm_expr_info expr_ops[TVM_EXPR_COUNT] = {
#include "expr.def"
};
#undef TVM_EXPR

const char *const tvm_compare_names[TVM_COMPARE_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
const char *const tvm_reduction_names[TVM_REDUCTION_COUNT] = {"sum", "max"};
const char *const tvm_evict_names[TVM_EVICT_COUNT] = {"normal", "first", "last"};

static const tvm_operand_words words[] = {
    {'C', TVM_COMPARE_COUNT, "a comparison", tvm_compare_names},
    {'R', TVM_REDUCTION_COUNT, "a reduction", tvm_reduction_names},
    {'E', TVM_EVICT_COUNT, "an eviction priority", tvm_evict_names},
};

const tvm_operand_words *tvm_words_of(char kind) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].kind == kind) return &words[i];
    return NULL;
}

const tvm_op_info *tvm_op(unsigned op) {
    return op < TVM_OP_COUNT ? &ops[op] : NULL;
}

tvm_opcode tvm_op_by_name(const char *mnemonic, size_t length) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++)
        if (strlen(ops[op].mnemonic) == length && memcmp(ops[op].mnemonic, mnemonic, length) == 0)
            return (tvm_opcode)op;
    return TVM_OP_COUNT;
}

const tvm_expr_info *tvm_expr_op_info(unsigned op) {
    return op < TVM_EXPR_COUNT ? &expr_ops[op] : NULL;
}

/* An entry is  name:kind  name:=kind  with an optional [] after s and g, and an optional ? at the end. */
bool tvm_operand_next(const char **cursor, tvm_operand_desc *desc) {
    const char *at = *cursor;
    while (*at == ' ') at++;
    if (*at == '\0') {
        *cursor = at;
        return false;
    }
    *desc = (tvm_operand_desc){.name = at, .name_length = strcspn(at, ":"), .stored = true};
    at += desc->name_length + 1;
    if (*at == '=') {
        desc->stored = false;
        at++;
    }
    desc->kind = *at++;
    if (at[0] == '[' && at[1] == ']') {
        desc->indexed = true;
        at += 2;
    }
    if (*at == '?') {
        desc->optional = true;
        at++;
    }
    *cursor = at;
    return true;
}
