/* Errors and warnings: where they are, and how what is there came to be read. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

/* How this statement came to be read, from the inside out: iterations of .for, and including files. */
static void add_context(const tvm_asm *as, tvm_text *hint) {
    const char *between = hint->size ? "; " : "";
    if (as->text.let_token) {
        tvm_text_add(hint, "%sused at %s:%u", between, as->text.let_source->name, as->text.let_token->line);
        between = ", ";
    }
    for (unsigned i = as->text.frame_count; i-- > 0;) {
        const tvm_frame *frame = &as->text.frames[i];
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
            const tvm_source *by = as->text.frames[i - 1].source;
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
    for (size_t i = as->report.diags_before; as->report.diags && i < as->report.diags->count; i++) {
        const tvm_diag *diag = &as->report.diags->items[i];
        if (diag->line == token->line && diag->column == token->column && diag->file &&
            strcmp(diag->file, source->name) == 0)
            return true;
    }
    return false;
}

/* An error, or with TVM_OK a warning, at the token of the source, of which either may be NULL. */
static void add_diag(tvm_asm *as, tvm_status status, const tvm_source *source, const tvm_token *token,
                     const char *hint, const char *format, va_list arguments) {
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
    tvm_diag_addv(as->report.diags, status, &place, full.size ? full.data : NULL, format, arguments);
    tvm_text_free(&full);
}

static bool report(tvm_asm *as, tvm_status status, const tvm_source *source, const tvm_token *token,
                   const char *hint, const char *format, va_list arguments) {
    if (as->report.stopped || as->report.muted) return false;
    const tvm_token *opener = source && token ? left_open(source, token) : NULL;
    if (opener)
        return tvm_asm_error_in(as, source, opener, NULL, "'%c' is not closed",
                                *tvm_token_text(source, opener));
    if (source && token && reported_at(as, source, token)) return false;
    add_diag(as, status, source, token, hint, format, arguments);
    if (as->report.status == TVM_OK) as->report.status = status;
    if (++as->report.errors >= TVM_ASM_ERRORS) as->report.stopped = true;
    return false;
}

bool tvm_asm_error(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(as, TVM_SYNTAX, as->text.source, token, hint, format, arguments);
    va_end(arguments);
    return false;
}

bool tvm_asm_expected(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...) {
    char wanted[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wanted, sizeof wanted, format, arguments);
    va_end(arguments);
    if (token->kind == TVM_TOKEN_END || token->kind == TVM_TOKEN_NEWLINE)
        return tvm_asm_error(as, token, hint, "expected %s, found end of %s", wanted,
                             token->kind == TVM_TOKEN_END ? "file" : "line");
    return tvm_asm_error(as, token, hint, "expected %s, found '%.*s'", wanted,
                         token->length > 60 ? 60 : (int)token->length,
                         tvm_token_text(as->text.source, token));
}

bool tvm_asm_invalid(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(as, TVM_INVALID, as->text.source, token, hint, format, arguments);
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

void tvm_asm_warn(tvm_asm *as, const tvm_source *source, const tvm_token *token, const char *hint,
                  const char *format, ...) {
    va_list arguments;
    if (as->report.stopped || as->report.muted || reported_at(as, source, token)) return;
    va_start(arguments, format);
    add_diag(as, TVM_OK, source, token, hint, format, arguments);
    va_end(arguments);
}

bool tvm_asm_no_memory(tvm_asm *as) {
    if (!as->report.stopped) {
        tvm_diag_no_memory(as->report.diags);
        if (as->report.status == TVM_OK) as->report.status = TVM_NO_MEMORY;
        as->report.errors++;
    }
    as->report.stopped = true;
    return false;
}
