/* Tensors as values of expressions: instructions written as calls, and operators. The instruction that an
 * expression ends in is not written at once, so that its result can be the variable that the statement
 * assigns. */
#include "nested.h"

#include <string.h>

#include "builtins.h"
#include "cursor.h"
#include "expressions.h"
#include "instruction.h"
#include "language.h"
#include "report.h"

/* Is the token one of the words that the first operand of an instruction may be? */
static bool is_first_word(const tvm_asm *as, unsigned op, const tvm_token *token) {
    const tvm_operand_words *words = tvm_op_first_words(op);
    for (unsigned i = 0; words && i < words->count; i++)
        if (tvm_asm_is(as, token, words->names[i])) return true;
    return false;
}

/* Is what stands so far behind the cursor a tensor, or a variable? */
static bool is_tensor_at(const tvm_asm *as, uint32_t distance) {
    const tvm_token *token = tvm_asm_ahead(as, distance), *before = tvm_asm_ahead(as, distance - 1);
    if (tvm_asm_is(as, token, "%")) { /* else it divides */
        const tvm_token *name = tvm_asm_ahead(as, distance + 1);
        return name->kind == TVM_TOKEN_NAME && name->adjacent && before->kind == TVM_TOKEN_SIGN &&
               !tvm_asm_is(as, before, ")") && !tvm_asm_is(as, before, "]");
    }
    if (token->kind != TVM_TOKEN_NAME || token->pasted) return false;
    const tvm_symbol *symbol =
        tvm_symbols_find(&as->statics.names, tvm_token_text(as->text.source, token), token->length);
    return symbol && symbol->value.kind == TVM_VALUE_TENSOR;
}

/* A hyphenated mnemonic, as load-global. */
static bool is_hyphenated_at(const tvm_asm *as, uint32_t distance) {
    const tvm_token *hyphen = tvm_asm_ahead(as, distance + 1), *name = tvm_asm_ahead(as, distance + 2);
    return tvm_asm_ahead(as, distance)->kind == TVM_TOKEN_NAME && tvm_asm_is(as, hyphen, "-") &&
           hyphen->adjacent && name->kind == TVM_TOKEN_NAME && name->adjacent &&
           tvm_asm_is(as, tvm_asm_ahead(as, distance + 3), "(");
}

/* An instruction that gives a tensor, and is no function, or begins with a word of its own. */
static bool is_instruction_at(const tvm_asm *as, uint32_t distance) {
    const tvm_token *token = tvm_asm_ahead(as, distance);
    if (token->kind != TVM_TOKEN_NAME || !tvm_asm_is(as, tvm_asm_ahead(as, distance + 1), "(")) return false;
    const char *name = tvm_token_text(as->text.source, token);
    unsigned op = tvm_op_by_name(name, token->length);
    if (op == TVM_OP_COUNT || tvm_op(op)->since > as->text.version) return false;
    return is_first_word(as, op, tvm_asm_ahead(as, distance + 2)) ||
           (tvm_op(op)->result == TVM_SLOT_REGISTER && !tvm_asm_is_function(name, token->length));
}

/* The first operand's name stands before it, so far behind the cursor. */
static bool is_named_at(const tvm_asm *as, uint32_t distance, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_ahead(as, distance), *after = tvm_asm_ahead(as, distance + 1);
    return as->text.version >= TVM_LANGUAGE_OF_TENSORS && token->kind == TVM_TOKEN_NAME &&
           token->length == desc->name_length &&
           memcmp(tvm_token_text(as->text.source, token), desc->name, desc->name_length) == 0 &&
           (after->kind == TVM_TOKEN_NAME || tvm_asm_is(as, after, "%"));
}

/* A function's name calls the instruction only with a first operand that no argument of the function can be:
 * a word, as in reduce(sum, ...), or what a tensor stands in, as squeeze(%x, 0) and squeeze(load-global(...),
 * 0). */
static bool begins_with_operand(const tvm_asm *as, unsigned op, uint32_t tokens) {
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    unsigned depth = 0;
    if (is_first_word(as, op, tvm_asm_ahead(as, tokens + 1))) return true;
    if (!tvm_operand_next(&cursor, &desc)) return false;
    if (is_named_at(as, tokens + 1, &desc)) return true;
    if (desc.kind != 'r') return false;
    for (uint32_t i = tokens + 1;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        bool closes = tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]");
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return false;
        if (!depth && (closes || tvm_asm_is(as, token, ","))) return false;
        if (is_tensor_at(as, i) || is_hyphenated_at(as, i) || is_instruction_at(as, i)) return true;
        if (closes) depth--;
        if (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) depth++;
    }
}

/* Scalars are values of expressions from the same version on as functions of scalars. */
static bool is_value(const tvm_asm *as, const tvm_op_info *info) {
    bool scalar = info->result == TVM_SLOT_SCALAR && !(info->traits & TVM_TRAIT_SYNTAX) &&
                  as->text.version >= TVM_LANGUAGE_OF_TENSORS;
    return info->result == TVM_SLOT_REGISTER || scalar;
}

bool tvm_asm_at_nested(const tvm_asm *as, uint32_t *tokens) {
    unsigned op = tvm_asm_mnemonic(as, tokens);
    if (op == TVM_OP_COUNT || !is_value(as, tvm_op(op)) || !tvm_asm_is(as, tvm_asm_ahead(as, *tokens), "("))
        return false;
    const char *name = tvm_op(op)->mnemonic;
    size_t length = strlen(name);
    return !tvm_asm_is_function(name, length) || begins_with_operand(as, op, *tokens);
}

/* Does the operand stand by its name among those in the parentheses that open so far behind the cursor? */
static bool has_named(const tvm_asm *as, uint32_t open, const char *name) {
    unsigned depth = 0;
    for (uint32_t i = open;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return false;
        if (tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]")) depth--;
        if (!depth && i > open) return false;
        if (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) depth++;
        if (depth == 1 && tvm_asm_is(as, token, ",") && tvm_asm_is(as, tvm_asm_ahead(as, i + 1), name))
            return true;
    }
}

bool tvm_asm_at_reduction(const tvm_asm *as, unsigned *word) {
    const tvm_operand_words *words = tvm_op_first_words(TVM_OP_REDUCE);
    const tvm_token *token = tvm_asm_peek(as);
    const char *text = tvm_token_text(as->text.source, token);
    if (as->text.version < TVM_LANGUAGE_OF_TENSORS || !tvm_asm_is(as, tvm_asm_ahead(as, 1), "("))
        return false;
    for (*word = 0; *word < words->count && !tvm_asm_is(as, token, words->names[*word]);) ++*word;
    if (*word == words->count || tvm_symbols_find(&as->statics.names, text, token->length)) return false;
    bool other =
        tvm_op_by_name(text, token->length) != TVM_OP_COUNT || tvm_asm_is_function(text, token->length);
    return !other || has_named(as, 1, "axis");
}

static bool call(tvm_asm *as, unsigned op, uint32_t tokens, tvm_value word, tvm_value *value) {
    const tvm_token *token = tvm_asm_peek(as);
    if ((!as->kernel.begun || as->kernel.is_entry) && !tvm_asm_of_constants(as, op))
        return tvm_asm_error(as, token, NULL, "instructions stand between .kernel and .end");
    for (uint32_t i = 0; i <= tokens; i++) tvm_asm_next(as); /* the parenthesis, too */
    if (++as->text.nesting > TVM_ASM_NESTING)
        return tvm_asm_error(as, token, NULL, "expression nested deeper than %d", TVM_ASM_NESTING);
    if (!tvm_asm_nested_operands(as, token, op, word, value)) return false;
    as->text.nesting--;
    return true;
}

bool tvm_asm_nested(tvm_asm *as, tvm_value *value) {
    uint32_t tokens;
    unsigned op = tvm_asm_mnemonic(as, &tokens);
    return call(as, op, tokens, tvm_value_poison(), value);
}

bool tvm_asm_reduction(tvm_asm *as, unsigned word, tvm_value *value) {
    return call(as, TVM_OP_REDUCE, 1, tvm_value_integer(word), value);
}
