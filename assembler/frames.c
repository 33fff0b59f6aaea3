/* Running a program's text: files, branches, repetitions, calls and scopes that are open, and which statement
 * comes next. */
#include "parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fileio.h"

static tvm_frame *top(tvm_asm *as) {
    return as->frame_count ? &as->frames[as->frame_count - 1] : NULL;
}

tvm_frame *tvm_asm_open_frame(tvm_asm *as, tvm_frame_kind kind, const tvm_token *token) {
    if (as->frame_count == TVM_ASM_FRAMES) {
        tvm_asm_error(as, token, NULL, ".if, .for, .scope, .include and macros nested deeper than %d",
                      TVM_ASM_FRAMES);
        as->stopped = true;
        return NULL;
    }
    tvm_frame *frame = &as->frames[as->frame_count++];
    *frame =
        (tvm_frame){.kind = kind, .source = as->source, .opener = (uint32_t)(token - as->source->tokens)};
    return frame;
}

static void pop(tvm_asm *as) {
    const tvm_frame *frame = top(as);
    if (frame->entered) tvm_symbols_leave(&as->names);
    if (frame->kind == TVM_FRAME_MACRO || frame->kind == TVM_FRAME_SCOPE) tvm_symbols_leave(&as->slots);
    if (frame->kind == TVM_FRAME_MACRO) {
        as->macros--;
        as->own_scope = frame->own_scope;
        as->version = frame->version;
        as->source = frame->caller;
        as->at = frame->resume;
    }
    if (frame->kind == TVM_FRAME_FILE) {
        uint32_t resume = frame->resume;
        as->version = frame->version;
        as->includes--;
        as->frame_count--;
        if (as->frame_count) {
            as->source = as->frames[as->frame_count - 1].source;
            as->at = resume;
        }
        return;
    }
    as->frame_count--;
}

/* A kernel ends in the file, branch or iteration it began in. */
static bool leave_kernel(tvm_asm *as) {
    if (!as->in_kernel || as->kernel_frames < as->frame_count) return true;
    const tvm_token *token = &as->kernel_source->tokens[as->kernel_token];
    tvm_asm_error_in(as, as->kernel_source, token, NULL, "'.%s' without '.end'",
                     as->in_entry ? "entry" : "kernel");
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
    while (as->frame_count > count) {
        const tvm_frame *frame = top(as);
        if (!leave_kernel(as)) good = false;
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
    unsigned count = as->frame_count;
    while (count && as->frames[count - 1].kind == TVM_FRAME_IF) count--;
    tvm_frame *frame = count ? &as->frames[count - 1] : NULL;
    if (!frame || frame->kind != kind || frame->source != as->source) return NULL;
    tvm_asm_close_frames(as, count);
    return frame;
}

void tvm_asm_close_frame(tvm_asm *as) {
    leave_kernel(as);
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
static bool is_one_line(const tvm_asm *as) {
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
    while (tvm_asm_peek(as)->kind != TVM_TOKEN_END && as->tokens <= TVM_ASM_TOKENS) {
        const tvm_token *name = directive_at(as);
        if (name && tvm_asm_is(as, name, opener)) {
            if (!one_line_counts || !is_one_line(as)) depth++;
        } else if (name && tvm_asm_is(as, name, closer)) {
            if (!depth) return;
            depth--;
        } else if (name && branches && !depth &&
                   (tvm_asm_is(as, name, "elif") || tvm_asm_is(as, name, "else"))) {
            return;
        } else if (name && as->version >= 2 && !name->pasted &&
                   !tvm_asm_is_directive(tvm_token_text(as->source, name), name->length)) {
            tvm_asm_unknown_directive(as, name);
        }
        tvm_asm_skip_statement(as);
    }
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

/* ---- .if ---- */

/* The condition of .if and .elif; an error counts as a branch taken, so that nothing of the .if is read.
 * `line`: may a colon follow, and a statement? */
static bool static_condition(tvm_asm *as, bool line, bool *error) {
    bool holds = false;
    bool good = tvm_asm_condition(as, "the condition of .if", &holds);
    if (!good)
        tvm_asm_skip_statement(as);
    else if (!line || !tvm_asm_at(as, ":"))
        good = tvm_asm_expect_end(as);
    *error = !good;
    if (!good) as->left_out = true;
    return good && holds;
}

static void enter_branch(tvm_asm *as, tvm_frame *frame, bool holds, bool error) {
    frame->taken = holds || error;
    if (!holds) tvm_asm_skip_to(as, "if", "endif", true);
}

bool tvm_asm_if(tvm_asm *as, const tvm_token *token) {
    bool error, one_line = is_one_line(as);
    bool holds = static_condition(as, one_line, &error);
    if (one_line) {
        if (error) return false;
        if (!tvm_asm_expect(as, ":", "after the condition")) return false;
        if (!holds) tvm_asm_skip_statement(as);
        return true;
    }
    tvm_frame *frame = tvm_asm_open_frame(as, TVM_FRAME_IF, token);
    if (!frame) return false;
    enter_branch(as, frame, holds, error);
    return true;
}

bool tvm_asm_elif(tvm_asm *as, const tvm_token *token, bool is_else) {
    const char *name = is_else ? ".else" : ".elif";
    tvm_frame *frame = top(as);
    bool good = true;
    if (!frame || frame->kind != TVM_FRAME_IF || frame->source != as->source) {
        tvm_asm_error(as, token, NULL, "'%s' without '.if'", name);
        tvm_asm_skip_statement(as);
        return true;
    }
    if (frame->has_else) good = tvm_asm_error(as, token, NULL, "'%s' after '.else'", name);
    good = good && leave_kernel(as);
    frame->has_else = frame->has_else || is_else;
    if (frame->taken || !good) {
        frame->taken = true;
        tvm_asm_skip_statement(as);
        tvm_asm_skip_to(as, "if", "endif", true);
    } else if (is_else) {
        frame->taken = true;
        if (!tvm_asm_expect_end(as)) tvm_asm_skip_statement(as);
    } else {
        bool error;
        bool holds = static_condition(as, false, &error);
        enter_branch(as, frame, holds, error);
    }
    return true;
}

bool tvm_asm_endif(tvm_asm *as, const tvm_token *token) {
    const tvm_frame *frame = top(as);
    if (!frame || frame->kind != TVM_FRAME_IF || frame->source != as->source)
        return tvm_asm_error(as, token, NULL, "'.endif' without '.if'");
    leave_kernel(as);
    pop(as);
    return tvm_asm_expect_end(as);
}

/* ---- .for ---- */

/* Takes the next value; false when there is none. */
static bool advance(tvm_asm *as, tvm_frame *frame) {
    if (frame->is_list) {
        if (frame->index >= frame->list.as.list.count) return false;
        frame->current = frame->list.as.list.items[frame->index++];
    } else {
        if (frame->step > 0 ? frame->next >= frame->end : frame->next <= frame->end) return false;
        frame->current = tvm_value_integer(frame->next);
        if (__builtin_add_overflow(frame->next, frame->step, &frame->next)) frame->next = frame->end;
    }
    const tvm_token *token = &frame->source->tokens[frame->opener];
    tvm_symbols_enter(&as->names);
    frame->entered = true;
    return tvm_asm_define(as, token, frame->name, frame->name_length, &frame->current) &&
           (frame->current.kind != TVM_VALUE_RECORD || tvm_asm_define_columns(as, token, &frame->current));
}

static void leave_iteration(tvm_asm *as, tvm_frame *frame) {
    if (frame->entered) tvm_symbols_leave(&as->names);
    frame->entered = false;
}

static bool for_range(tvm_asm *as, tvm_frame *frame, const tvm_value *start, const tvm_token *token) {
    if (start->kind == TVM_VALUE_POISON) return false;
    if (start->kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL, ".for goes over integers `a to b` or a list, not over %s",
                             tvm_value_what(start));
    frame->next = start->as.i;
    frame->step = 1;
    if (!tvm_asm_expect(as, "to", "after the start of .for") ||
        !tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the end of .for", &frame->end))
        return false;
    const tvm_token *step = tvm_asm_ahead(as, 1);
    if (tvm_asm_accept(as, "step") &&
        !tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the step of .for", &frame->step))
        return false;
    return frame->step != 0 || tvm_asm_invalid(as, step, NULL, "the step of .for is 0");
}

static bool for_header(tvm_asm *as, tvm_frame *frame) {
    const char *name;
    tvm_value value;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name that .for defines", &name, &frame->name_length)) return false;
    frame->name = tvm_arena_text(&as->keep, name, frame->name_length);
    if (!frame->name) return tvm_asm_no_memory(as);
    if (!tvm_asm_check_name(as, token, name, frame->name_length)) return false;
    bool in = tvm_asm_accept(as, "in");
    if (!in && !tvm_asm_expect(as, "=", "after the name of .for")) return false;
    token = tvm_asm_peek(as);
    if (!tvm_asm_static(as, "what .for goes over", &value)) return false;
    if (value.kind == TVM_VALUE_TABLE && !tvm_asm_rows(as, value.as.record.table, &value)) return false;
    if (in && value.kind != TVM_VALUE_LIST && value.kind != TVM_VALUE_POISON)
        return tvm_asm_error(as, token, NULL, "'in' goes over a list or a table, not over %s",
                             tvm_value_what(&value));
    frame->is_list = value.kind == TVM_VALUE_LIST;
    frame->list = tvm_value_copy(&as->keep, &value);
    if (frame->is_list && frame->list.kind == TVM_VALUE_POISON) return tvm_asm_no_memory(as);
    if (!frame->is_list && !for_range(as, frame, &value, token)) return false;
    return true;
}

/* A .for that is not executed, or not any more: to behind its .endfor, or its line. */
static bool leave_for(tvm_asm *as, bool at_end) {
    uint32_t line_end = top(as)->line_end;
    if (!at_end && !line_end) {
        tvm_asm_skip_to(as, "for", "endfor", false);
        if (tvm_asm_peek(as)->kind == TVM_TOKEN_END)
            return true; /* reported there: the frame is still open */
        tvm_asm_next(as);
        tvm_asm_next(as);
    }
    if (line_end) as->at = line_end;
    leave_iteration(as, top(as));
    as->frame_count--;
    return tvm_asm_expect_end(as);
}

bool tvm_asm_for(tvm_asm *as, const tvm_token *token) {
    /* The frame is pushed when complete: errors in the header are not in an iteration. */
    tvm_frame frame = {.kind = TVM_FRAME_FOR, .source = as->source};
    if (is_one_line(as)) {
        frame.line_end = as->at;
        while (as->source->tokens[frame.line_end].kind != TVM_TOKEN_NEWLINE) frame.line_end++;
    }
    bool good = for_header(as, &frame);
    if (good)
        good = frame.line_end ? tvm_asm_expect(as, ":", "after what .for goes over") : tvm_asm_expect_end(as);
    if (!good) as->left_out = true;
    if (!good && as->source->tokens[as->at - 1].kind != TVM_TOKEN_NEWLINE) tvm_asm_skip_statement(as);
    tvm_frame *pushed = tvm_asm_open_frame(as, TVM_FRAME_FOR, token);
    if (!pushed) return false;
    frame.opener = pushed->opener;
    frame.resume = as->at;
    *pushed = frame;
    return (good && advance(as, pushed)) || leave_for(as, false);
}

static bool next_iteration(tvm_asm *as, tvm_frame *frame) {
    leave_kernel(as);
    leave_iteration(as, frame);
    if (!advance(as, frame)) return leave_for(as, true);
    as->at = frame->resume;
    return true;
}

/* Is the cursor behind the statement of a .for of one line? */
static bool at_line_end(const tvm_asm *as) {
    const tvm_frame *frame = &as->frames[as->frame_count - 1];
    return frame->kind == TVM_FRAME_FOR && frame->line_end && frame->source == as->source &&
           as->at >= frame->line_end;
}

bool tvm_asm_endfor(tvm_asm *as, const tvm_token *token) {
    tvm_frame *frame = tvm_asm_innermost(as, TVM_FRAME_FOR);
    if (!frame) return tvm_asm_error(as, token, NULL, "'.endfor' without '.for'");
    return next_iteration(as, frame);
}

/* ---- .include ---- */

/* folder (with its slash, may be empty) + file, in scratch memory. */
static char *joined(tvm_asm *as, const char *folder, size_t length, bool slash, const char *file) {
    size_t size = length + strlen(file) + 4;
    char *path = tvm_arena_alloc(&as->scratch, size);
    if (!path) return NULL;
    snprintf(path, size, "%.*s%s%s", (int)length, folder, slash ? "/" : "", file);
    if (strcmp(path, "-") == 0) snprintf(path, size, "./-");
    return path;
}

static const tvm_source *known_source(const tvm_asm *as, const char *path) {
    for (const tvm_source *source = as->sources; source; source = source->next)
        if (strcmp(source->name, path) == 0) return source;
    return NULL;
}

static const tvm_source *read_source(tvm_asm *as, const tvm_token *token, const char *path) {
    uint8_t *bytes = NULL;
    const char *text;
    size_t size;
    tvm_diags diags = {0};
    if (as->options && as->options->reads) as->options->reads(as->options->closure, path);
    bool open = as->options && as->options->open_text &&
                as->options->open_text(as->options->open_context, path, &text, &size);
    if (!open && tvm_file_read(path, TVM_SOURCE_MAX, &bytes, &size, &diags) != TVM_OK) {
        tvm_asm_error(as, token, NULL, "%s",
                      diags.count ? diags.items[0].message : "the file cannot be read");
        tvm_diags_free(&diags);
        return NULL;
    }
    if (!open) text = (const char *)bytes;
    unsigned errors = as->errors;
    tvm_source *source = tvm_source_new(path, text, size, TVM_ASM_ERRORS, &as->errors, as->diags);
    free(bytes);
    if (errors != as->errors && as->status == TVM_OK) as->status = TVM_SYNTAX;
    if (as->errors >= TVM_ASM_ERRORS) as->stopped = true;
    if (!source) {
        if (as->status == TVM_OK) as->status = TVM_SYNTAX;
        as->errors++;
        as->stopped = true;
        return NULL;
    }
    source->next = as->sources;
    as->sources = source;
    return source;
}

/* The source of an included file: beside the including one, then in each -I folder. */
static const tvm_source *find_source(tvm_asm *as, const tvm_token *token, const char *file) {
    const char *includer = as->source->name, *slash = strrchr(includer, '/');
    size_t folder = file[0] == '/' || !slash ? 0 : (size_t)(slash - includer) + 1;
    size_t folders = as->options && file[0] != '/' ? as->options->include_dir_count : 0;
    for (size_t i = 0; i <= folders; i++) {
        const char *path = i ? joined(as, as->options->include_dirs[i - 1],
                                      strlen(as->options->include_dirs[i - 1]), true, file)
                             : joined(as, includer, folder, false, file);
        if (!path) {
            tvm_asm_no_memory(as);
            return NULL;
        }
        const tvm_source *source = known_source(as, path);
        if (source) return source;
        if (access(path, F_OK) == 0) return read_source(as, token, path);
    }
    tvm_asm_error(as, token, folders ? NULL : "folders to search are given with -I", "cannot find '%.200s'",
                  file);
    return NULL;
}

bool tvm_asm_push_source(tvm_asm *as, const tvm_source *source, uint32_t opener) {
    if (as->frame_count == TVM_ASM_FRAMES) {
        as->stopped = true;
        return tvm_asm_error(as, tvm_asm_peek(as), NULL, "nested deeper than %d", TVM_ASM_FRAMES);
    }
    as->frames[as->frame_count++] = (tvm_frame){
        .kind = TVM_FRAME_FILE, .source = source, .opener = opener, .resume = as->at, .version = as->version};
    as->includes++;
    as->source = source;
    as->at = 0;
    return true;
}

bool tvm_asm_include(tvm_asm *as, const tvm_token *token) {
    const tvm_token *file = tvm_asm_peek(as);
    char found[80];
    tvm_value name;
    if (file->kind != TVM_TOKEN_STRING)
        return tvm_asm_error(as, file, NULL, "expected a file name in quotes, found %s",
                             tvm_asm_found(as, file, found));
    tvm_asm_next(as);
    if (!tvm_asm_string(as, file, &name) || !tvm_asm_expect_end(as)) return false;
    if (as->includes >= TVM_ASM_INCLUDES) {
        tvm_asm_error(as, file, "does the file include itself?", ".include nested deeper than %d",
                      TVM_ASM_INCLUDES);
        as->stopped = true;
        return false;
    }
    const tvm_source *source = find_source(as, file, name.as.string.text);
    if (!source) as->left_out = true;
    return source && tvm_asm_push_source(as, source, (uint32_t)(token - as->source->tokens));
}

/* ---- the loop ---- */

static void end_of_source(tvm_asm *as) {
    unsigned files = as->frame_count;
    while (files && as->frames[files - 1].kind != TVM_FRAME_FILE) files--;
    tvm_asm_close_frames(as, files);
    leave_kernel(as);
    pop(as);
}

static bool within_limits(tvm_asm *as) {
    if (++as->statements <= TVM_ASM_STATEMENTS && as->tokens <= TVM_ASM_TOKENS) return true;
    tvm_asm_error(as, tvm_asm_peek(as), NULL,
                  "too long: more than %d statements or %d tokens, with those that .for repeats",
                  TVM_ASM_STATEMENTS, TVM_ASM_TOKENS);
    as->stopped = true;
    return false;
}

static void one_statement(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    char found[80];
    tvm_arena_reset(&as->scratch);
    as->nesting = 0; /* after an error it is left where it was */
    if (!within_limits(as)) return;
    if (!as->version_seen && !(tvm_asm_at(as, ".") && tvm_asm_is(as, tvm_asm_ahead(as, 1), "vasm"))) {
        as->version_seen = true;
        tvm_asm_error(as, token, NULL, "expected '.vasm %d' before anything else, found %s",
                      TVM_LANGUAGE_VERSION, tvm_asm_found(as, token, found));
    }
    const tvm_macro *macro = tvm_asm_macro_at(as);
    if (tvm_asm_at(as, ".")) {
        tvm_asm_directive(as);
    } else if (macro) {
        tvm_asm_call_macro(as, macro);
    } else if (as->in_entry) {
        tvm_asm_error(as, token, "'.case KERNEL if CONDITION'", "expected a directive, found %s",
                      tvm_asm_found(as, token, found));
        tvm_asm_skip_statement(as);
    } else if (as->in_kernel) {
        tvm_asm_statement(as);
    } else {
        tvm_asm_error(as, token, "instructions stand between .kernel and .end",
                      "expected a directive, found %s", tvm_asm_found(as, token, found));
        tvm_asm_skip_statement(as);
    }
}

void tvm_asm_run(tvm_asm *as) {
    while (!as->stopped && as->frame_count) {
        if (at_line_end(as)) {
            if (within_limits(as)) next_iteration(as, top(as));
            continue;
        }
        switch (tvm_asm_peek(as)->kind) {
        case TVM_TOKEN_END:
            end_of_source(as);
            break;
        case TVM_TOKEN_NEWLINE:
            tvm_asm_next(as);
            break;
        default:
            one_statement(as);
            break;
        }
    }
}
