/* Tensors as values of expressions: instructions written as calls, and operators. The instruction that an
 * expression ends in is not written at once, so that its result can be the variable that the statement
 * assigns. */
#include "nested.h"

#include <string.h>

#include "builtins.h"
#include "cursor.h"
#include "expressions.h"
#include "instruction.h"
#include "report.h"

/* Is the token one of the words that the first operand of an instruction may be? */
static bool is_first_word(const tvm_asm *as, unsigned op, const tvm_token *token) {
    tvm_operand_desc desc;
    if (op == TVM_OP_COUNT) return false;
    const char *cursor = tvm_op(op)->operands;
    const tvm_operand_words *words = tvm_operand_next(&cursor, &desc) ? tvm_words_of(desc.kind) : NULL;
    for (unsigned i = 0; words && i < words->count; i++)
        if (tvm_asm_is(as, token, words->names[i])) return true;
    return false;
}

/* A function's name calls the instruction only with a first operand that no argument of the function can be:
 * a word, as in reduce(sum, ...), or a tensor, as in squeeze(%x, 0) and squeeze(load-global(...), 0). */
static bool begins_with_operand(const tvm_asm *as, unsigned op, uint32_t tokens) {
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    if (is_first_word(as, op, tvm_asm_ahead(as, tokens + 1))) return true;
    if (!tvm_operand_next(&cursor, &desc) || desc.kind != 'r') return false;
    for (uint32_t i = tokens + 1;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        bool hyphen = tvm_asm_is(as, token, "-");
        if (tvm_asm_is(as, token, "%") || (hyphen && i > tokens + 1)) return true;
        if (token->kind == TVM_TOKEN_NAME && tvm_asm_is(as, tvm_asm_ahead(as, i + 1), "(") &&
            is_first_word(as, tvm_op_by_name(tvm_token_text(as->text.source, token), token->length),
                          tvm_asm_ahead(as, i + 2)))
            return true;
        if (token->kind != TVM_TOKEN_NAME && !hyphen && !tvm_asm_is(as, token, "(")) return false;
    }
}

bool tvm_asm_at_nested(const tvm_asm *as, uint32_t *tokens) {
    unsigned op = tvm_asm_mnemonic(as, tokens);
    if (op == TVM_OP_COUNT || tvm_op(op)->result != TVM_SLOT_REGISTER ||
        !tvm_asm_is(as, tvm_asm_ahead(as, *tokens), "("))
        return false;
    const char *name = tvm_op(op)->mnemonic;
    size_t length = strlen(name);
    return !tvm_asm_is_function(name, length) || begins_with_operand(as, op, *tokens);
}

bool tvm_asm_nested(tvm_asm *as, tvm_value *value) {
    uint32_t tokens;
    const tvm_token *token = tvm_asm_peek(as);
    unsigned op = tvm_asm_mnemonic(as, &tokens);
    if (!as->kernel.begun || as->kernel.is_entry)
        return tvm_asm_error(as, token, NULL, "instructions stand between .kernel and .end");
    for (uint32_t i = 0; i <= tokens; i++) tvm_asm_next(as); /* the parenthesis, too */
    if (++as->text.nesting > TVM_ASM_NESTING)
        return tvm_asm_error(as, token, NULL, "expression nested deeper than %d", TVM_ASM_NESTING);
    if (!tvm_asm_nested_operands(as, token, op, value)) return false;
    as->text.nesting--;
    return true;
}
