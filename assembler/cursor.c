/* Tokens one after the other, and errors at them. */
#include "parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

const tvm_token *tvm_asm_peek(const tvm_asm *as) {
    return &as->source->tokens[as->at];
}

const tvm_token *tvm_asm_ahead(const tvm_asm *as, uint32_t distance) {
    uint32_t last = as->source->count - 1;
    return &as->source->tokens[distance > last - as->at ? last : as->at + distance];
}

const tvm_token *tvm_asm_next(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    if (token->kind != TVM_TOKEN_END) {
        as->at++;
        as->tokens++;
    }
    return token;
}

bool tvm_asm_is(const tvm_asm *as, const tvm_token *token, const char *text) {
    if ((token->kind != TVM_TOKEN_SIGN && token->kind != TVM_TOKEN_NAME) || token->pasted) return false;
    const char *found = tvm_token_text(as->source, token);
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

const char *tvm_asm_found(const tvm_asm *as, const tvm_token *token, char text[80]) {
    switch (token->kind) {
    case TVM_TOKEN_END:
        snprintf(text, 80, "end of file");
        break;
    case TVM_TOKEN_NEWLINE:
        snprintf(text, 80, "end of line");
        break;
    default:
        snprintf(text, 80, "'%.*s'", token->length > 60 ? 60 : (int)token->length,
                 tvm_token_text(as->source, token));
        break;
    }
    return text;
}

bool tvm_asm_expect(tvm_asm *as, const char *text, const char *where) {
    if (tvm_asm_accept(as, text)) return true;
    char found[80];
    return tvm_asm_error(as, tvm_asm_peek(as), NULL, "expected '%s' %s, found %s", text, where,
                         tvm_asm_found(as, tvm_asm_peek(as), found));
}

bool tvm_asm_at_end(const tvm_asm *as) {
    uint8_t kind = tvm_asm_peek(as)->kind;
    return kind == TVM_TOKEN_NEWLINE || kind == TVM_TOKEN_END;
}

bool tvm_asm_expect_end(tvm_asm *as) {
    char found[80];
    if (!tvm_asm_at_end(as))
        return tvm_asm_error(as, tvm_asm_peek(as), NULL, "expected the end of the statement, found %s",
                             tvm_asm_found(as, tvm_asm_peek(as), found));
    tvm_asm_next(as);
    return true;
}

void tvm_asm_skip_statement(tvm_asm *as) {
    while (!tvm_asm_at_end(as)) tvm_asm_next(as);
    tvm_asm_next(as);
}

/* One `${...}`: text at the dollar sign; appends the value and returns the length up to and with the brace,
 * or 0. */
static size_t paste(tvm_asm *as, const tvm_token *token, const char *text, size_t length, tvm_text *buffer) {
    size_t depth = 0, end = 1;
    do {
        if (text[end] == '{') depth++;
        if (text[end] == '}') depth--;
        end++;
    } while (depth && end < length);
    tvm_value value;
    char shown[64];
    as->muted++;
    bool good = tvm_asm_expression_of_text(as, as->source->name, text + 2, end - 3, &value);
    as->muted--;
    if (!good) {
        tvm_asm_error(as, token, NULL, "'%.*s' has no static value", end > 60 ? 60 : (int)end, text);
        return 0;
    }
    if (value.kind == TVM_VALUE_POISON) return 0;
    if (value.kind != TVM_VALUE_INTEGER && value.kind != TVM_VALUE_DTYPE && value.kind != TVM_VALUE_STRING) {
        tvm_asm_error(as, token, NULL, "${} pastes an integer, a type or a string into a name, not %s",
                      tvm_value_what(&value));
        return 0;
    }
    tvm_text_puts(buffer, tvm_value_text(&value, shown));
    return end;
}

static bool is_short(tvm_asm *as, const tvm_token *token, uint32_t length) {
    if (length <= TVM_MAX_NAME) return true;
    return tvm_asm_error(as, token, NULL, "a name has at most %d letters, this one %u", TVM_MAX_NAME, length);
}

bool tvm_asm_name(tvm_asm *as, const tvm_token *token, const char **text, uint32_t *length) {
    *text = tvm_token_text(as->source, token);
    *length = token->length;
    if (!token->pasted) return is_short(as, token, *length);
    tvm_text buffer = {0};
    bool good = true;
    for (size_t i = 0; good && i < token->length;) {
        const char *rest = *text + i;
        if (*rest == '$') {
            size_t used = paste(as, token, rest, token->length - i, &buffer);
            good = used > 0;
            i += used;
        } else {
            tvm_text_bytes(&buffer, rest, 1);
            i++;
        }
    }
    char *copy =
        good && !buffer.failed && buffer.data ? tvm_arena_text(&as->scratch, buffer.data, buffer.size) : NULL;
    size_t size = buffer.size;
    tvm_text_free(&buffer);
    if (!good) return false;
    if (!copy) return tvm_asm_no_memory(as);
    if (!tvm_is_identifier(copy, size))
        return tvm_asm_error(as, token, "${} pastes into a name; elsewhere write the constant itself",
                             "'%.60s' is not a name", copy);
    *text = copy;
    *length = (uint32_t)size;
    return is_short(as, token, *length);
}

bool tvm_asm_expect_name(tvm_asm *as, const char *what, const char **text, uint32_t *length) {
    const tvm_token *token = tvm_asm_peek(as);
    char found[80];
    if (token->kind != TVM_TOKEN_NAME)
        return tvm_asm_error(as, token, NULL, "expected %s, found %s", what, tvm_asm_found(as, token, found));
    tvm_asm_next(as);
    return tvm_asm_name(as, token, text, length);
}

bool tvm_asm_string(tvm_asm *as, const tvm_token *token, tvm_value *value) {
    const char *text = tvm_token_text(as->source, token) + 1;
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

/* ---- errors ---- */

/* How this statement came to be read, from the inside out: iterations of .for, and including files. */
static void add_context(const tvm_asm *as, tvm_text *hint) {
    const char *between = hint->size ? "; " : "";
    if (as->let_token) {
        tvm_text_add(hint, "%sused at %s:%u", between, as->let_source->name, as->let_token->line);
        between = ", ";
    }
    for (unsigned i = as->frame_count; i-- > 0;) {
        const tvm_frame *frame = &as->frames[i];
        char text[64];
        if (frame->kind == TVM_FRAME_FOR) {
            tvm_text_add(hint, "%sin .for with %.*s = %s", between, (int)frame->name_length, frame->name,
                         tvm_value_text(&frame->current, text));
            between = ", ";
        } else if (frame->kind == TVM_FRAME_MACRO) {
            tvm_text_add(hint, "%sin %.*s, called at %s:%u", between, (int)frame->name_length, frame->name,
                         frame->caller->name, frame->caller->tokens[frame->opener].line);
            between = ", ";
        } else if (frame->kind == TVM_FRAME_FILE && i > 0) {
            const tvm_source *by = as->frames[i - 1].source;
            tvm_text_add(hint, "%sincluded from %s:%u", between, by->name, by->tokens[frame->opener].line);
            between = ", ";
        }
    }
}

/* The bracket that is to blame for what was met at the token: left open by the token's statement, on a line
 * before. NULL when there is none. */
static const tvm_token *left_open(const tvm_source *source, const tvm_token *token) {
    /* The token may be a copy that spans several. */
    uint32_t low = 0, high = source->count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (source->tokens[middle].offset < token->offset)
            low = middle + 1;
        else
            high = middle;
    }
    const tvm_token *end = &source->tokens[low];
    while (end->kind != TVM_TOKEN_NEWLINE && end->kind != TVM_TOKEN_END) end++;
    if (end->kind == TVM_TOKEN_END || !end->value.u) return NULL;
    const tvm_token *opener = &source->tokens[end->value.u - 1];
    return token->offset == end->offset || token->line > opener->line ? opener : NULL;
}

/* Has an error been reported there? One is enough where .for or an included file come by again. */
static bool reported_at(const tvm_asm *as, const tvm_source *source, const tvm_token *token) {
    for (size_t i = as->diags_before; as->diags && i < as->diags->count; i++) {
        const tvm_diag *diag = &as->diags->items[i];
        if (diag->line == token->line && diag->column == token->column && diag->file &&
            strcmp(diag->file, source->name) == 0)
            return true;
    }
    return false;
}

static bool report(tvm_asm *as, tvm_status status, const tvm_source *source, const tvm_token *token,
                   const char *hint, const char *format, va_list arguments) {
    if (as->stopped || as->muted) return false;
    const tvm_token *opener = source && token ? left_open(source, token) : NULL;
    if (opener)
        return tvm_asm_error_in(as, source, opener, NULL, "'%c' is not closed",
                                *tvm_token_text(source, opener));
    if (source && token && reported_at(as, source, token)) return false;
    tvm_text full = {0};
    if (hint) tvm_text_puts(&full, hint);
    add_context(as, &full);
    char line[TVM_SOURCE_LINE_MAX + 1];
    tvm_place place = {0};
    if (source) place.file = source->name;
    if (source && token) {
        tvm_source_line(source, token->offset, line);
        place.line = token->line;
        place.column = token->column;
        place.length = token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END ? 1 : token->length;
        place.source = line[0] ? line : NULL;
    }
    tvm_diag_addv(as->diags, status, &place, full.size ? full.data : NULL, format, arguments);
    tvm_text_free(&full);
    if (as->status == TVM_OK) as->status = status;
    if (++as->errors >= TVM_ASM_ERRORS) as->stopped = true;
    return false;
}

bool tvm_asm_error(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(as, TVM_SYNTAX, as->source, token, hint, format, arguments);
    va_end(arguments);
    return false;
}

bool tvm_asm_invalid(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(as, TVM_INVALID, as->source, token, hint, format, arguments);
    va_end(arguments);
    return false;
}

bool tvm_asm_error_in(tvm_asm *as, const tvm_source *source, const tvm_token *token, const char *hint,
                      const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(as, TVM_SYNTAX, source, token, hint, format, arguments);
    va_end(arguments);
    return false;
}

bool tvm_asm_no_memory(tvm_asm *as) {
    if (!as->stopped) {
        tvm_diag_no_memory(as->diags);
        if (as->status == TVM_OK) as->status = TVM_NO_MEMORY;
        as->errors++;
    }
    as->stopped = true;
    return false;
}
