/* Files, branches, repetitions, calls and scopes that are open. */
#include "frames.h"

#include <string.h>

#include "cursor.h"
#include "directive_names.h"
#include "directives.h"
#include "head.h"
#include "report.h"

tvm_frame *tvm_asm_open_frame(tvm_asm *as, tvm_frame_kind kind, const tvm_token *token) {
    if (as->text.frame_count == TVM_ASM_FRAMES) {
        tvm_asm_error(as, token, NULL, ".if, .for, .scope, .include and macros nested deeper than %d",
                      TVM_ASM_FRAMES);
        as->report.stopped = true;
        return NULL;
    }
    tvm_frame *frame = &as->text.frames[as->text.frame_count++];
    *frame = (tvm_frame){
        .kind = kind, .source = as->text.source, .opener = (uint32_t)(token - as->text.source->tokens)};
    return frame;
}

static void pop(tvm_asm *as) {
    const tvm_frame *frame = tvm_asm_top(as);
    if (frame->entered) tvm_symbols_leave(&as->statics.names);
    if (frame->kind == TVM_FRAME_MACRO || frame->kind == TVM_FRAME_SCOPE)
        tvm_symbols_leave(&as->kernel.slots);
    if (frame->kind == TVM_FRAME_MACRO) {
        as->text.macros--;
        as->kernel.own_scope = frame->own_scope;
        as->text.version = frame->version;
        as->text.source = frame->caller;
        as->text.at = frame->resume;
    }
    if (frame->kind == TVM_FRAME_FILE) {
        uint32_t resume = frame->resume;
        as->text.version = frame->version;
        as->text.includes--;
        as->text.frame_count--;
        if (as->text.frame_count) {
            as->text.source = as->text.frames[as->text.frame_count - 1].source;
            as->text.at = resume;
        }
        return;
    }
    as->text.frame_count--;
}

/* A kernel ends in the file, branch or iteration it began in. */
bool tvm_asm_leave_kernel(tvm_asm *as) {
    if (!as->kernel.begun || as->kernel.frames < as->text.frame_count) return true;
    const tvm_token *token = &as->kernel.source->tokens[as->kernel.token];
    tvm_asm_error_in(as, as->kernel.source, token, NULL, "'.%s' without '.end'",
                     tvm_asm_what_is_open(as));
    tvm_asm_kernel_close(as);
    return false;
}

static const char *const brackets[][2] = {
    [TVM_FRAME_IF] = {".if", ".endif"},
    [TVM_FRAME_FOR] = {".for", ".endfor"},
    [TVM_FRAME_SCOPE] = {".scope", ".endscope"},
};

bool tvm_asm_close_frames(tvm_asm *as, unsigned count) {
    bool good = true;
    while (as->text.frame_count > count) {
        const tvm_frame *frame = tvm_asm_top(as);
        if (!tvm_asm_leave_kernel(as)) good = false;
        if (frame->kind == TVM_FRAME_FILE || frame->kind == TVM_FRAME_MACRO) return false;
        const char *const *words = brackets[frame->kind];
        const tvm_source *source = frame->source;
        const tvm_token *opener = &source->tokens[frame->opener];
        pop(as); /* first: its own iteration is no context of the error */
        tvm_asm_error_in(as, source, opener, NULL, "'%s' without '%s'", words[0], words[1]);
        good = false;
    }
    return good;
}

tvm_frame *tvm_asm_innermost(tvm_asm *as, tvm_frame_kind kind) {
    unsigned count = as->text.frame_count;
    while (count && as->text.frames[count - 1].kind == TVM_FRAME_IF) count--;
    tvm_frame *frame = count ? &as->text.frames[count - 1] : NULL;
    if (!frame || frame->kind != kind || frame->source != as->text.source) return NULL;
    tvm_asm_close_frames(as, count);
    return frame;
}

void tvm_asm_close_frame(tvm_asm *as) {
    tvm_asm_leave_kernel(as);
    pop(as);
}

/* ---- skipping ---- */

/* The directive that begins the statement at the cursor: its name token, or NULL. */
static const tvm_token *directive_at(const tvm_asm *as) {
    const tvm_token *name = tvm_asm_ahead(as, 1);
    return tvm_asm_at(as, ".") && name->kind == TVM_TOKEN_NAME ? name : NULL;
}

/* `.if condition: statement`, `.for i = a to b: statement`: does a colon that belongs to no `?` stand in the
 * rest of the line? */
bool tvm_asm_is_one_line(const tvm_asm *as) {
    unsigned depth = 0, conditionals = 0;
    for (uint32_t i = 0;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return false;
        if (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) depth++;
        if (depth && (tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]"))) depth--;
        if (!depth && tvm_asm_is(as, token, "?")) conditionals++;
        if (!depth && tvm_asm_is(as, token, ":") && !conditionals--) return true;
    }
}

void tvm_asm_skip_to(tvm_asm *as, const char *opener, const char *closer, bool branches) {
    bool one_line_counts = strcmp(opener, "if") == 0 || strcmp(opener, "for") == 0;
    unsigned depth = 0;
    while (tvm_asm_peek(as)->kind != TVM_TOKEN_END && as->text.tokens <= TVM_ASM_TOKENS) {
        const tvm_token *name = directive_at(as);
        if (name && tvm_asm_is(as, name, opener)) {
            if (!one_line_counts || !tvm_asm_is_one_line(as)) depth++;
        } else if (name && tvm_asm_is(as, name, closer)) {
            if (!depth) return;
            depth--;
        } else if (name && branches && !depth &&
                   (tvm_asm_is(as, name, "elif") || tvm_asm_is(as, name, "else"))) {
            return;
        } else if (name && as->text.version >= 2 && !name->pasted &&
                   !tvm_asm_is_directive(tvm_token_text(as->text.source, name), name->length)) {
            tvm_asm_unknown_directive(as, name);
        }
        tvm_asm_skip_statement(as);
    }
}
