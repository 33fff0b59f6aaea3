/* Tokens one after the other. */
#include "cursor.h"

#include <stdio.h>
#include <string.h>

#include "report.h"
#include "text.h"

const tvm_token *tvm_asm_peek(const tvm_asm *as) {
    return &as->text.source->tokens[as->text.at];
}

const tvm_token *tvm_asm_ahead(const tvm_asm *as, uint32_t distance) {
    uint32_t last = as->text.source->count - 1;
    return &as->text.source->tokens[distance > last - as->text.at ? last : as->text.at + distance];
}

const tvm_token *tvm_asm_next(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    if (token->kind != TVM_TOKEN_END) {
        as->text.at++;
        as->text.tokens++;
    }
    return token;
}

bool tvm_asm_is(const tvm_asm *as, const tvm_token *token, const char *text) {
    if ((token->kind != TVM_TOKEN_SIGN && token->kind != TVM_TOKEN_NAME) || token->pasted) return false;
    const char *found = tvm_token_text(as->text.source, token);
    size_t i = 0; /* nearly always the first byte decides */
    while (i < token->length && text[i] && found[i] == text[i]) i++;
    return i == token->length && !text[i];
}

bool tvm_asm_at(const tvm_asm *as, const char *text) {
    return tvm_asm_is(as, tvm_asm_peek(as), text);
}

bool tvm_asm_accept(tvm_asm *as, const char *text) {
    if (!tvm_asm_at(as, text)) return false;
    tvm_asm_next(as);
    return true;
}

bool tvm_asm_expect(tvm_asm *as, const char *text, const char *where) {
    if (tvm_asm_accept(as, text)) return true;
    return tvm_asm_expected(as, tvm_asm_peek(as), NULL, "'%s' %s", text, where);
}

bool tvm_asm_at_end(const tvm_asm *as) {
    uint8_t kind = tvm_asm_peek(as)->kind;
    return kind == TVM_TOKEN_NEWLINE || kind == TVM_TOKEN_END;
}

bool tvm_asm_expect_end(tvm_asm *as) {
    if (!tvm_asm_at_end(as)) return tvm_asm_expected(as, tvm_asm_peek(as), NULL, "the end of the statement");
    tvm_asm_next(as);
    return true;
}

void tvm_asm_skip_statement(tvm_asm *as) {
    while (!tvm_asm_at_end(as)) tvm_asm_next(as);
    tvm_asm_next(as);
}

bool tvm_asm_string(tvm_asm *as, const tvm_token *token, tvm_value *value) {
    const char *text = tvm_token_text(as->text.source, token) + 1;
    size_t length = token->length - 2, n = 0;
    char *copy = tvm_arena_alloc(&as->scratch, length + 1);
    if (!copy) return tvm_asm_no_memory(as);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\' && i + 1 < length) i++;
        copy[n++] = text[i];
    }
    copy[n] = '\0';
    if (memchr(copy, '\0', n)) return tvm_asm_error(as, token, NULL, "a string cannot contain a NUL byte");
    *value = tvm_value_string(copy, (uint32_t)n);
    return true;
}

void tvm_asm_skip_expression(tvm_asm *as) {
    unsigned depth = 0;
    while (!tvm_asm_at_end(as)) {
        bool closes = tvm_asm_at(as, ")") || tvm_asm_at(as, "]");
        if (!depth && (closes || tvm_asm_at(as, ","))) return;
        if (closes) depth--;
        if (tvm_asm_at(as, "(") || tvm_asm_at(as, "[")) depth++;
        tvm_asm_next(as);
    }
}

bool tvm_asm_at_local(const tvm_asm *as) {
    const tvm_token *name = tvm_asm_ahead(as, 1);
    return tvm_asm_at(as, "%") && name->kind == TVM_TOKEN_NAME && name->adjacent;
}

bool tvm_asm_each(tvm_asm *as, bool (*one)(tvm_asm *as)) {
    do {
        if (!one(as)) return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}
