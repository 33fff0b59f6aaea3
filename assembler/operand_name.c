/* How operands begin: with their names, or with a tensor of which a part is meant. */
#include <string.h>

#include "cursor.h"
#include "language.h"
#include "names.h"
#include "operand.h"
#include "variables.h"

/* The word of a positional operand is its name where a value follows it, and nothing else is named so. */
static bool is_keyword(const tvm_asm *as, const tvm_operand_desc *desc) {
    const tvm_token *after = tvm_asm_ahead(as, 1);
    bool value = after->kind == TVM_TOKEN_NAME || after->kind == TVM_TOKEN_INTEGER ||
                 after->kind == TVM_TOKEN_FLOAT || after->kind == TVM_TOKEN_STRING;
    if (desc->kind == 'D') value = tvm_asm_is(as, after, "[");
    if (strchr("rbsgavm", desc->kind)) value = value || tvm_asm_is(as, after, "%");
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, desc->name, (uint32_t)desc->name_length);
    if (desc->kind == 'D') return value && !(symbol && symbol->value.kind == TVM_VALUE_LIST);
    return value && !symbol && !tvm_asm_find_parameter(as, desc->name, (uint32_t)desc->name_length);
}

bool tvm_asm_operand_named(const tvm_asm *as, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as), *after = tvm_asm_ahead(as, 1);
    if (token->kind != TVM_TOKEN_NAME || token->pasted || token->length != desc->name_length ||
        memcmp(tvm_token_text(as->text.source, token), desc->name, desc->name_length) != 0)
        return false;
    if (desc->kind == 'F' || desc->kind == 'U') return true;
    if (desc->kind == 'N' && !desc->optional)
        return after->kind == TVM_TOKEN_NAME || after->kind == TVM_TOKEN_INTEGER;
    if (strchr("ALSW", desc->kind)) return after->kind == TVM_TOKEN_NAME || tvm_asm_is(as, after, "[");
    if (!desc->optional) return as->text.version >= TVM_LANGUAGE_OF_TENSORS && is_keyword(as, desc);
    return after->kind != TVM_TOKEN_NEWLINE && after->kind != TVM_TOKEN_END && !tvm_asm_is(as, after, ",");
}

/* A variable by its own name. */
static bool at_variable(tvm_asm *as, uint32_t *slot) {
    const char *name;
    uint32_t length, from = as->text.at;
    tvm_asm_next(as);
    as->report.muted++;
    bool named = tvm_asm_variable_name(as, &name, &length) && tvm_asm_at(as, "[");
    as->report.muted--;
    as->text.at = from;
    const tvm_symbol *symbol = named ? tvm_asm_find_slot(as, name, length) : NULL;
    if (symbol) *slot = symbol->slot;
    return symbol != NULL;
}

/* A variable that a parameter of a macro stands for. */
static bool at_parameter(const tvm_asm *as, uint32_t *slot) {
    const tvm_token *token = tvm_asm_peek(as);
    if (token->kind != TVM_TOKEN_NAME || !tvm_asm_is(as, tvm_asm_ahead(as, 1), "[")) return false;
    const tvm_symbol *symbol =
        tvm_symbols_find(&as->statics.names, tvm_token_text(as->text.source, token), token->length);
    if (!symbol || symbol->value.kind != TVM_VALUE_TENSOR) return false;
    *slot = symbol->value.as.tensor.slot;
    return true;
}

bool tvm_asm_at_part(tvm_asm *as) {
    uint32_t slot = TVM_NONE;
    if (as->text.version < TVM_LANGUAGE_OF_TENSORS) return false;
    bool found = tvm_asm_at_local(as) ? at_variable(as, &slot) : at_parameter(as, &slot);
    return found && slot != TVM_NONE && tvm_asm_kernel(as)->slots[slot].kind == TVM_SLOT_REGISTER;
}
