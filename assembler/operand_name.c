/* Names of operands: what is written without one, and what begins with it. */
#include <string.h>

#include "cursor.h"
#include "language.h"
#include "names.h"
#include "operand.h"

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
    if (desc->kind == 'F') return true;
    if (desc->kind == 'N' && !desc->optional)
        return after->kind == TVM_TOKEN_NAME || after->kind == TVM_TOKEN_INTEGER;
    if (strchr("ALSW", desc->kind)) return after->kind == TVM_TOKEN_NAME || tvm_asm_is(as, after, "[");
    if (!desc->optional) return as->text.version >= TVM_LANGUAGE_OF_TENSORS && is_keyword(as, desc);
    return after->kind != TVM_TOKEN_NEWLINE && after->kind != TVM_TOKEN_END && !tvm_asm_is(as, after, ",");
}
